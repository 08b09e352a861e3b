"""Time limits of runs: what overruns one is ended and told, and what keeps to it is left alone."""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit.status import Status
from tests.plain import counts, overdue, run
from tests.waiting import LIMIT, hang


@pytest.mark.parametrize("backend", ["threading", "sequential"])
def test_a_time_limit_is_refused_where_a_run_cannot_be_killed(
    tmp_path: Path, store: str, backend: str
) -> None:
    ledger = tmp_path / "ledger"

    def f(i: int) -> float:
        ledger.touch()
        return 0.0

    with pytest.raises(ValueError, match=f"needs worker processes.*'{backend}'.*backend='loky'"):
        run(f, store, 3, backend=backend, timeout=1)
    assert not ledger.exists()
    assert not Path(store).exists()


def test_a_time_limit_may_follow_from_the_mean_time(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("sweepkit.run"), "LEAST_LIMIT", LIMIT)
    mark = overdue(tmp_path, monkeypatch)

    def f(i: int) -> float:
        if i == 7:
            hang(mark)
        return float(i)

    ds = run(f, store, 20, timeout="20x", n_jobs=1)
    assert counts(ds) == {"done": 19, "timeout": 1}
    assert str(ds["error"].sel(i=7).values) == "the run took more than its time limit of 120 s"
    assert sk.open(store, mask=False)["duration"].sel(i=7) > LIMIT


def test_runs_within_their_time_limit_are_left_alone(store: str) -> None:
    def f(i: int) -> float:
        time.sleep(0.3)
        return float(i)

    ds = run(f, store, 6, timeout=LIMIT / 2)
    assert counts(ds) == {"done": 6}


@pytest.mark.parametrize("how", ["becomes another program", "closes what is not its own"])
def test_a_run_that_cuts_its_worker_off_is_ended_too(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    mark = overdue(tmp_path, monkeypatch)

    def f(i: int) -> float:
        if i == 3:
            if how == "becomes another program":
                Path(f"{mark}.part").write_text(str(os.getpid()))
                os.replace(f"{mark}.part", mark)
                os.execvp("sleep", ["sleep", "600"])
            os.closerange(3, 2000)
            hang(mark)
        return float(i)

    ds = run(f, store, 6, timeout=LIMIT, n_jobs=1)
    assert counts(ds) == {"done": 5, "timeout": 1}
    assert int(ds["status"].sel(i=3)) == Status.TIMEOUT


def test_a_result_that_hangs_when_it_is_read_is_its_own_runs(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = overdue(tmp_path, monkeypatch)

    class Endless:
        def __array__(self, *_: Any, **__: Any) -> Any:
            hang(mark)

    def f(i: int) -> Any:
        return {"y": Endless() if i == 3 else float(i)}

    ds = run(f, store, 6, timeout=LIMIT, n_jobs=1)
    assert counts(ds) == {"done": 5, "timeout": 1}
    assert int(ds["status"].sel(i=3)) == Status.TIMEOUT


@pytest.mark.parametrize("moment", ["read", "freed"])
def test_a_result_that_kills_its_worker_convicts_its_own_run(store: str, moment: str) -> None:
    class Deadly:
        def __array__(self, *_: Any, **__: Any) -> Any:
            if moment == "read":
                os._exit(5)
            return np.float64(1.0).__array__()

        def __del__(self) -> None:
            if moment == "freed":
                os._exit(5)

    def f(i: int) -> Any:
        return {"y": Deadly() if i == 777 else float(i)}

    # A declared one is read as it comes and let go, another at the end of the batch.
    outputs = {"y": sk.output(dtype="float64")} if moment == "freed" else {}
    sweep = sk.Sweep(f, sk.grid(i=range(1000)), outputs=outputs, version="1")
    ds = sk.run(sweep, store, n_jobs=1, backend="loky", progress=False)
    assert counts(ds) == {"done": 999, "crashed": 1}
    assert int(ds["status"].sel(i=777)) == Status.CRASHED
    assert int(ds["attempts"].sel(i=777)) == 1


def test_a_run_that_hung_may_be_tried_again(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = overdue(tmp_path, monkeypatch)

    def f(i: int) -> float:
        if i == 3 and not mark.exists():
            hang(mark)
        return float(i)

    ds = run(f, store, 5, timeout=LIMIT, retry={"timeout": 1}, n_jobs=1)
    assert counts(ds) == {"done": 5}
    assert ds["attempts"].values.tolist() == [1, 1, 1, 2, 1]
    assert str(ds["error"].sel(i=3).values) == ""


def endless(i: int) -> float:
    time.sleep(600)
    return float(i)


def test_a_factor_of_the_mean_time_has_a_bound_before_any_run_is_done(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("sweepkit.run"), "FIRST_LIMIT", 0.3)
    ds = run(endless, store, 2, timeout="20x")
    assert counts(ds) == {"timeout": 2}
    assert (ds["error"] == "the run took more than its time limit of 0.3 s").all()


def test_runs_that_fail_at_once_teach_no_time_limit(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("sweepkit.run"), "LEAST_LIMIT", 0.01)

    def f(i: int) -> float:
        if i != 3:
            raise ValueError
        time.sleep(0.5)
        return float(i)

    assert counts(run(f, store, 6, timeout="3x", n_jobs=1)) == {"done": 1, "error": 5}

"""Receipts: what sessions took, also those that were killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit.receipt import Meter
from tests.clock import Clock
from tests.conftest import Start
from tests.waiting import LIMIT

OPTIONS: dict[str, Any] = {"backend": "sequential", "progress": False}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.zarr")


def third_raises(a: int) -> float:
    time.sleep(0.01)
    if a % 3 == 0:
        raise ValueError(f"not {a}")
    return float(a)


def test_a_receipt_adds_up_what_sessions_took(store: str) -> None:
    sweep = sk.Sweep(third_raises, sk.grid(a=range(9)), requirements=["result > 3"])
    sk.run(sweep, store, **OPTIONS)
    sk.run(sweep, store, rerun="error", **OPTIONS)
    receipt = sk.receipt(store)
    assert (receipt.done, receipt.failed, receipt.wasted) == (6, 2, 6)
    assert (receipt.runs, receipt.pending) == (9, 0)
    assert receipt.errors == {"ValueError": 6}
    kept = float(sk.open(store)["duration"].where(sk.open(store)["status"] == 1).sum())
    assert receipt.wasted_seconds >= 6 * 0.01
    assert receipt.used_seconds == pytest.approx(receipt.wasted_seconds + kept)
    assert receipt.used_seconds <= receipt.held_seconds
    assert receipt.utilisation == receipt.used_seconds / receipt.held_seconds
    assert receipt.queued_seconds >= 0
    sessions = receipt.sessions
    assert sessions["done"].tolist() == [6, 0]
    assert sessions["wasted"].tolist() == [3, 3]
    assert sessions["state"].tolist() == ["done", "done"]
    assert sessions.index.tolist() == [1, 2]
    assert (sessions["ended"] >= sessions["began"]).all()


def test_what_is_left_is_told_of_the_grid_and_of_its_refinements(store: str, clock: Clock) -> None:
    def slow(a: float) -> float:
        clock.pass_by(0.01)
        return a

    grid = sk.grid(a=np.linspace(0, 1, 40))
    sweep = sk.Sweep(slow, grid, requirements=["result > 0.5"], version="1")
    ds = sk.run(sweep, store, request=sk.Request(budget=0.15), **OPTIONS)
    left = int((ds["status"] == 0).sum())
    assert 0 < left < 40
    points = sk.grid(sk.paired({"a": np.linspace(0.4, 0.6, 30).tolist()}, dim="point"))
    ds = sk.refine(sweep, store, points, request=sk.Request(budget=0.15), **OPTIONS)
    receipt = sk.receipt(store)
    assert (receipt.runs, receipt.pending) == (70, int((ds["status"] == 0).sum()))
    assert receipt.left.startswith(f"grid: {left} runs: ")
    assert f"; stage 1: {receipt.pending - left} runs: " in receipt.left
    assert f"so far: {70 - receipt.pending} of 70" in repr(receipt)


def test_results_thrown_away_for_a_rerun_are_wasted(store: str) -> None:
    def simulate(a: int) -> float:
        time.sleep(0.02)
        return 1.0

    grid = sk.grid(a=range(5))
    ds = sk.run(sk.Sweep(simulate, grid, version="1"), store, **OPTIONS)
    thrown_away = float(ds["duration"].sum())
    sk.run(sk.Sweep(simulate, grid, version="2"), store, stale="rerun", **OPTIONS)
    receipt = sk.receipt(store)
    assert receipt.sessions["wasted"].tolist() == [0, 5]
    assert receipt.wasted_seconds == pytest.approx(thrown_away)


def test_runs_tried_again_are_wasted(store: str, tmp_path: Path) -> None:
    def simulate(a: int) -> float:
        if not (tmp_path / str(a)).exists():
            (tmp_path / str(a)).touch()
            raise RuntimeError("first time")
        return 1.0

    sk.run(sk.Sweep(simulate, sk.grid(a=range(4))), store, retry=1, **OPTIONS)
    receipt = sk.receipt(store)
    assert (receipt.done, receipt.wasted) == (4, 4)
    assert receipt.errors == {}


def test_a_receipt_is_shown_as_text_and_escaped_html(tmp_path: Path) -> None:
    path = tmp_path / "<i>.zarr"
    sk.run(sk.Sweep(third_raises, sk.grid(a=range(9))), path, **OPTIONS)
    receipt = sk.receipt(path)
    assert "1 session: complete: 9 of 9>" in repr(receipt)
    assert "ValueError: 3 runs" in repr(receipt)
    assert "1, done" in repr(receipt)
    shown = receipt._repr_html_()
    assert "<i>" not in shown
    assert "&lt;i&gt;" in shown


def test_the_meter_runs_only_while_compute_is_held(clock: Clock) -> None:
    meter = Meter()
    for workers, seconds in ((0, 5.0), (2, 3.0), (2, 1.0), (0, 7.0), (1, 2.0), (0, 9.0)):
        meter.hold(workers)
        clock.pass_by(seconds)
    assert (meter.seconds, meter.core_seconds) == (6.0, 10.0)
    meter.hold(3)
    clock.pass_by(1.0)
    assert (meter.seconds, meter.core_seconds) == (7.0, 13.0)


def test_a_receipt_tells_who_ran_it_and_where(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    grid = sk.grid(a=[1, 2])
    options: dict[str, Any] = {"backend": "sequential", "progress": False}
    sk.run(sk.Sweep(lambda a: a, grid), store, **options)
    (row,) = sk.receipt(store).sessions.to_dict("records")
    assert (row["user"], row["host"]) == ("ada", socket.gethostname())
    assert f"by ada on {socket.gethostname()}" in repr(sk.receipt(store))

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    sk.run(sk.Sweep(lambda a: a, sk.grid(a=[1, 2, 3])), store, **options)
    assert sk.receipt(store).sessions["user"].tolist() == ["ada", ""]


def test_time_before_compute_is_held_is_queued_and_not_metered(store: str) -> None:
    from contextlib import contextmanager

    from sweepkit.executors.joblib import JoblibExecutor

    class Busy(JoblibExecutor):
        @contextmanager
        def hold(self, task: Any, **options: Any) -> Any:
            time.sleep(0.3)
            with super().hold(task, **options) as crew:
                yield crew

    sweep = sk.Sweep(lambda a: 1.0, sk.grid(a=range(3)))
    began = time.monotonic()
    sk.run(sweep, store, executor=Busy(1, "sequential"), progress=False)
    took = time.monotonic() - began
    receipt = sk.receipt(store)
    assert receipt.queued_seconds >= 0.3
    assert receipt.held_seconds <= took - receipt.queued_seconds


def test_a_session_that_fails_has_its_receipt(store: str) -> None:
    sweep = sk.Sweep(third_raises, sk.grid(a=range(9)))
    with pytest.raises(sk.RunError):
        sk.run(sweep, store, on_error="raise", **OPTIONS)
    receipt = sk.receipt(store)
    assert receipt.sessions["state"].tolist() == ["failed"]
    assert "RunError" in receipt.left


KILLED = """
import os, sys, time
import sweepkit as sk

def simulate(a):
    time.sleep(0.15)
    with open(sys.argv[1] + ".begun", "a") as file:
        file.write("x")
        half = file.tell() > 50
    while half:
        time.sleep(60)  # it is killed in the middle, however late
    return float(a)

def progress(told):
    print("going", flush=True)

sweep = sk.Sweep(simulate, sk.grid(a=range(100)), version="1")
sk.run(sweep, sys.argv[1], backend="threading", n_jobs=2, progress=progress)
"""


def test_a_killed_session_still_shows_what_it_did(store: str, start: Start) -> None:
    child = start(KILLED, store)
    assert child.stdout is not None
    for line in child.stdout:
        assert line == "going\n"
        if Path(store).exists() and sk.receipt(store).done:
            break
    assert sk.receipt(store).sessions["state"].tolist() == ["running"]
    os.kill(child.pid, signal.SIGKILL)
    child.wait(LIMIT)
    receipt = sk.receipt(store)
    assert receipt.sessions["state"].tolist() == ["killed"]
    assert receipt.held_seconds > 0
    assert receipt.done > 0

    def simulate(a: int) -> float:
        return float(a)

    sk.run(sk.Sweep(simulate, sk.grid(a=range(100)), version="1"), store, **OPTIONS)
    receipt = sk.receipt(store)
    assert receipt.sessions["state"].tolist() == ["killed", "done"]
    assert receipt.pending == 0
    (first, _) = sorted(Path(f"{store}.sweepkit", "sessions").glob("*.json"))
    assert json.loads(first.read_text())["state"] == "killed"


def test_receipts_of_before_and_damaged_ones_do_no_harm(store: str) -> None:
    sk.run(sk.Sweep(third_raises, sk.grid(a=range(3))), store, **OPTIONS)
    folder = Path(f"{store}.sweepkit", "sessions")
    (folder / "20200101T000000-5.json").write_text('{"began": 1577836800.5, "runs": {"done": 2}}')
    (folder / "20200101T000001-5.json").write_text("{")
    receipt = sk.receipt(store)
    assert receipt.sessions["done"].tolist() == [2, 2]
    assert receipt.done == 4
    assert list(receipt.damaged) == ["20200101T000001-5.json"]
    assert "?" in repr(receipt)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("runs", {"done": "many"}),
        ("runs", [1]),
        ("held_seconds", "a"),
        ("held_seconds", None),
        ("began", "x"),
        ("began", 1e300),
        ("errors", 5),
        ("environment", []),
        ("stage", "x"),
        ("pid", "x"),
        ("workers", "<script>"),
        ("state", 7),
    ],
)
def test_what_is_damaged_in_a_session_is_not_counted_and_told(
    store: str, part: str, value: Any
) -> None:
    sk.run(sk.Sweep(third_raises, sk.grid(a=range(1, 3))), store, **OPTIONS)
    (path,) = Path(f"{store}.sweepkit", "sessions").glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), part: value}))
    receipt = sk.receipt(store)
    assert len(receipt.sessions) == 1
    assert list(receipt.damaged) == [path.name]
    assert f"counted as far as it can be: {path.name}" in repr(receipt)
    assert "<script>" not in receipt._repr_html_()


def test_without_a_sweep_there_is_no_receipt(store: str) -> None:
    with pytest.raises(sk.StoreError, match="holds no sweep"):
        sk.receipt(store)

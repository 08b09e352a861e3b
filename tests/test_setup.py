"""What a worker sets up once: entered before its runs, left at its end, told where it fails."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sweepkit as sk
from sweepkit.status import Status
from tests.waiting import LIMIT, Leap, hang

BACKENDS = ("loky", "threading", "sequential")


def run(sweep: sk.Sweep, store: str, **options: Any) -> Any:
    known = {"n_jobs": 2, "backend": "sequential", "progress": False}
    return sk.run(sweep, store, **{**known, **options}).load()


def licence(ledger: Path) -> Any:
    """A set-up that notes in a file when it is entered and left."""

    @contextlib.contextmanager
    def held() -> Iterator[dict[str, int]]:
        with open(ledger, "a") as file:
            file.write("in\n")
        yield {"calls": 0}
        with open(ledger, "a") as file:
            file.write("out\n")

    return held


def use(a: int, server: dict[str, int]) -> float:
    server["calls"] += 1
    return float(server["calls"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_worker_enters_it_once_and_leaves_it(tmp_path: Path, store: str, backend: str) -> None:
    ledger = tmp_path / "ledger"
    sweep = sk.Sweep(use, sk.grid(a=range(200)), setup={"server": licence(ledger)})
    ds = run(sweep, store, backend=backend)
    lines = ledger.read_text().split()
    workers = lines.count("in")
    assert 1 <= workers <= 2
    assert lines.count("out") == workers
    assert ds["result"].max().item() >= 200 / workers
    assert (ds["status"] == Status.DONE).all()


def test_a_worker_that_is_replaced_leaves_it_and_the_next_enters_it(
    tmp_path: Path, store: str
) -> None:
    ledger = tmp_path / "ledger"
    sweep = sk.Sweep(use, sk.grid(a=range(12)), setup={"server": licence(ledger)})
    run(sweep, store, backend="loky", n_jobs=1, recycle_after=4)
    lines = ledger.read_text().split()
    assert lines.count("in") >= 3
    assert lines.count("out") == lines.count("in")


def test_a_plain_function_gives_what_it_returns_and_may_take_inputs(
    tmp_path: Path, store: str
) -> None:
    weights = tmp_path / "weights"
    weights.write_text("2 3")

    def load(weights: str) -> list[float]:
        with open(weights) as file:
            return [float(one) for one in file.read().split()]

    def simulate(a: int, model: list[float], weights: str) -> float:
        return a * model[1]

    sweep = sk.Sweep(simulate, sk.grid(a=[5]), inputs={"weights": weights}, setup={"model": load})
    assert run(sweep, store)["result"].item() == 15.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_it_fails_no_run_is_tried_and_it_is_named(
    tmp_path: Path, store: str, backend: str
) -> None:
    ledger = tmp_path / "ledger"

    def load() -> None:
        raise OSError("no licence left")

    def simulate(a: int, model: Any) -> float:
        ledger.touch()
        return 1.0

    sweep = sk.Sweep(simulate, sk.grid(a=range(1000)), setup={"model": load})
    with pytest.raises(
        sk.SetupError, match="setup 'model' failed: OSError: no licence left"
    ) as told:
        run(sweep, store, backend=backend)
    assert "in load" in str(told.value)
    assert not ledger.exists()


def endless() -> int:
    threading.Event().wait()
    return 1


def test_one_without_an_end_is_told_where_the_time_of_a_request_ends(store: str) -> None:
    sweep = sk.Sweep(lambda a, server: a, sk.grid(a=range(3)), setup={"server": endless})
    with pytest.raises(sk.SetupError, match=r"the duration of 1 s is reached .* sets up 'server'"):
        run(sweep, store, backend="loky", request=sk.Request(duration=1))
    assert not os.path.exists(store)


def test_one_without_an_end_is_ended_where_runs_have_a_time_limit(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "hangs"
    monkeypatch.setattr("sweepkit.fleet.perf_counter", Leap(mark))
    monkeypatch.setattr("sweepkit.member.STACK_SECONDS", LIMIT)

    def endless() -> int:
        hang(mark)
        return 1

    sweep = sk.Sweep(lambda a, server: a, sk.grid(a=range(3)), setup={"server": endless})
    with pytest.raises(sk.SetupError, match=r"more than 1200 s, .* one of 120 s; make") as told:
        run(sweep, store, backend="loky", n_jobs=1, timeout=LIMIT)
    assert "in endless" in str(told.value)


def test_where_leaving_it_fails_runs_are_kept(store: str) -> None:
    @contextlib.contextmanager
    def held() -> Iterator[int]:
        yield 1
        raise OSError("cannot give it back")

    sweep = sk.Sweep(lambda a, server: a, sk.grid(a=range(3)), setup={"server": held})
    assert (run(sweep, store)["status"] == Status.DONE).all()


def test_it_is_left_after_an_interrupt(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweepkit.fleet.GRACE", LIMIT)
    monkeypatch.setattr("sweepkit.fleet.LEAVE_SECONDS", LIMIT)
    ledger = tmp_path / "ledger"
    driver = os.getpid()

    def simulate(a: int, server: Any) -> float:
        if a == 5:
            import signal

            os.kill(driver, signal.SIGINT)
        return 1.0

    sweep = sk.Sweep(simulate, sk.grid(a=range(10_000)), setup={"server": licence(ledger)})
    with pytest.raises(KeyboardInterrupt):
        run(sweep, store, backend="loky", n_jobs=1)  # none is just setting it up
    lines = ledger.read_text().split()
    assert lines.count("out") == lines.count("in") >= 1


def test_its_code_is_part_of_what_runs_are_made_by(store: str) -> None:
    size = 1

    def load() -> int:
        return size

    sweep = sk.Sweep(lambda a, model: a * model, sk.grid(a=[5]), setup={"model": load})
    run(sweep, store)
    size = 2
    with pytest.raises(sk.StaleCodeError, match=r"'size' of setup 'model' changed"):
        run(sweep, store)


def test_what_is_no_function_clashes_or_is_not_taken_is_refused() -> None:
    grid = sk.grid(a=[1])
    with pytest.raises(TypeError, match="setup 'model' is a context manager; give the function"):
        sk.Sweep(lambda a, model: a, grid, setup={"model": contextlib.nullcontext(3)})
    with pytest.raises(TypeError, match="setup 'model' is 3; give the function"):
        sk.Sweep(lambda a, model: a, grid, setup={"model": 3})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="setup 'model' needs 'a', which is no input"):
        sk.Sweep(lambda a, model: a, grid, setup={"model": lambda a: a})
    with pytest.raises(ValueError, match="setup 'a' has the name of a parameter"):
        sk.Sweep(lambda a: a, grid, setup={"a": dict})
    with pytest.raises(TypeError, match="input or setup 'model' is no argument"):
        sk.Sweep(lambda a: a, grid, setup={"model": dict})
    with pytest.raises(TypeError, match="give a mapping from the name"):
        sk.Sweep(lambda a: a, grid, setup=dict)  # type: ignore[arg-type]

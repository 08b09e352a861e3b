"""Workers that die: the run that killed one is told, and no other is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import pytest
from joblib.externals.loky import get_reusable_executor

import sweepkit as sk
from tests.plain import counts, kill_self, run, workers
from tests.waiting import LIMIT


def test_a_worker_killed_from_outside_costs_no_run(store: str, tmp_path: Path) -> None:
    ledger, enough = tmp_path / "ledger", tmp_path / "enough"
    ledger.touch()
    killed: list[int] = []

    def interrupted() -> set[int]:
        """Runs that were on when their worker was killed, and have not ended since."""
        lines = [line.split() for line in ledger.read_text().splitlines()]
        ended = {(int(pid), int(i)) for word, pid, i in lines if word == "end"}
        begun = {(int(pid), int(i)) for word, pid, i in lines if word == "begin"}
        return {i for pid, i in begun - ended if pid in killed} - {i for _, i in ended}

    def kill(progress: sk.Progress) -> None:
        # A run that is on at two deaths is held to be their cause.
        if len(killed) < 4 and progress.finished > 2 * len(killed) and not interrupted():
            there = workers()
            victim = there[len(killed) % len(there)]
            killed.append(victim.pid)
            victim.kill()
        if len(killed) == 4:
            enough.touch()

    def f(i: int) -> float:
        with open(ledger, "a") as file:
            file.write(f"begin {os.getpid()} {i}\n")
        time.sleep(0.0 if enough.exists() else 0.06)
        with open(ledger, "a") as file:
            file.write(f"end {os.getpid()} {i}\n")
        return float(i)

    ds = run(f, store, 1000, progress=kill)
    assert len(killed) == 4
    assert counts(ds) == {"done": 1000}
    assert (ds["error"] == "").all()
    assert ds["result"].values.tolist() == list(map(float, range(1000)))


def killers(n: int, every: int, kill: Callable[[], None]) -> Callable[[int], float]:
    def f(i: int) -> float:
        if i % every == every // 2:
            kill()
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        return float(i)

    return f


def exit_3() -> None:
    os._exit(3)


def test_a_sweep_of_nothing_but_killers_ends(store: str) -> None:
    ds = run(killers(12, 1, exit_3), store, 12)
    assert counts(ds) == {"crashed": 12}
    assert (ds["error"] == "the worker died with exit code 3").all()


@pytest.mark.slow
def test_200_killers_in_a_row_end(store: str) -> None:
    ds = run(killers(200, 1, kill_self), store, 200)
    assert counts(ds) == {"crashed": 200}
    assert (ds["error"] != "").all()


@pytest.mark.slow
def test_20_killers_among_10_000_runs_cost_little(tmp_path: Path) -> None:
    """Seconds are told, and what is begun again is bounded: none of it depends on the machine."""
    began = time.monotonic()
    ds = run(killers(10_000, 20_000, kill_self), str(tmp_path / "clean.zarr"), 10_000)
    clean = time.monotonic() - began
    assert counts(ds) == {"done": 10_000}
    began = time.monotonic()
    ds = run(killers(10_000, 500, kill_self), str(tmp_path / "deadly.zarr"), 10_000)
    deadly = time.monotonic() - began
    print(f"10,000 runs of 1 ms: clean {clean:.1f} s, with 20 killers {deadly:.1f} s")
    assert counts(ds) == {"done": 9_980, "crashed": 20}
    assert int(ds["attempts"].sum()) < 2 * 10_000


def test_a_run_that_crashed_may_be_tried_again(tmp_path: Path, store: str) -> None:
    def f(i: int) -> float:
        mark = tmp_path / f"{i}"
        if i % 2 and not mark.exists():
            mark.touch()
            os._exit(1)
        return float(i)

    ds = run(f, store, 6, retry={"crashed": 1})
    assert counts(ds) == {"done": 6}
    assert ds["attempts"].values.tolist() == [1, 2, 1, 2, 1, 2]


def test_deaths_leave_the_users_own_joblib_alone(store: str) -> None:
    before = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(8)))

    def f(i: int) -> float:
        if i == 3:
            os._exit(1)
        return float(i)

    ds = run(f, store, 8)
    assert counts(ds) == {"done": 7, "crashed": 1}
    after = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(8)))
    get_reusable_executor().shutdown(wait=True)
    assert before & after


def test_a_sweep_in_a_thread_survives_a_killer(store: str) -> None:
    found: list[Any] = []

    def f(i: int) -> float:
        if i == 3:
            os._exit(1)
        return float(i)

    thread = threading.Thread(target=lambda: found.append(run(f, store, 8)))
    thread.start()
    thread.join(LIMIT)
    assert counts(found[0]) == {"done": 7, "crashed": 1}

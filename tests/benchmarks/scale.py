"""What a sweep of 10^8 runs asks of the driver, and what 10^7 real runs take.

Nothing is simulated in the first part: a stub executor answers each batch at once, so what is
left is the planner, the schedule, the status handling and the store, a real one on disk with one
output. Memory and seconds per batch are told by decade of runs; both are flat if nothing in the
driver grows with the number of runs. The second part makes trivial runs with one output on two
workers. Each from a fresh process.

``python -m tests.benchmarks.scale`` takes about ten minutes and 1 GB of disk.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import sweepkit as sk
from sweepkit.columns import Column
from sweepkit.protocols import Batch, Crew, Outcome, Result, Share, everyone
from sweepkit.status import Status
from tests.benchmarks.measure import apart, peak_mb, table, timed

SIMULATED = 10**8
REAL = 10**7
SECONDS = 1e-6
"""What each run is said to have taken, in seconds."""


class Stub:
    """An executor that runs nothing and answers each batch at once."""

    workers = 2

    def __init__(self, told: Callable[[], int]) -> None:
        self.told = told
        self.batches = 0
        self.calls: list[int] = []
        """How many calls had been made before each batch of this decade."""

    @contextmanager
    def hold(self, task: Any, *, timeout: Callable[[], float | None] | None) -> Iterator[Crew]:
        """See :class:`~sweepkit.protocols.Executor`."""
        yield self

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`."""
        for batch in batches:
            if stopping():
                return
            self.batches += 1
            self.calls.append(self.told())
            yield Outcome(batch, answer(batch.runs))


def answer(runs: np.ndarray[Any, np.dtype[np.int64]]) -> Result:
    """What runs of a trivial simulator would have returned."""
    count = len(runs)
    column = Column(None, (runs % 1000) / 8, "float64")
    return Result(
        np.full(count, Status.DONE, dtype=np.int8), np.full(count, SECONDS), {"result": [column]}
    )


def square(runs: int) -> Any:
    """A grid of two axes, about as long as each other."""
    short = 10 ** (round(math.log10(runs)) // 2)
    return sk.grid(a=np.arange(short) / 8, b=np.arange(runs // short) / 8)


def trivial(a: float, b: float) -> float:
    """A simulator that does next to nothing."""
    return a + b


@contextmanager
def called(counted: bool) -> Iterator[Callable[[], int]]:
    """Tell how many Python and C functions this thread has called since, if it is ``counted``.

    That is what the driver does, whatever else the machine does.
    """
    calls = 0

    def profile(*_: object) -> None:
        nonlocal calls
        calls += 1

    if counted:
        sys.setprofile(profile)
    try:
        yield lambda: calls // 2  # each call is told again when it returns
    finally:
        if counted:
            sys.setprofile(None)


def simulated(runs: int, store: str, counted: bool = False) -> list[dict[str, float]]:
    """Plan and drive so many runs with the stub; what it took, decade by decade.

    Where calls are ``counted``, those of the middlemost batch are told (one in many also writes
    what has gathered in some seconds), and the seconds are those of counting too.
    """
    process = psutil.Process()
    marks = [10**at for at in range(5, round(math.log10(runs)) + 1)]
    rows: list[dict[str, float]] = []
    began = time.perf_counter()
    since = [began, 0, 0]  # seconds, batches, runs
    most = 0.0

    def watch(progress: sk.Progress) -> None:
        nonlocal most
        most = max(most, process.memory_info().rss / 1e6)
        if not marks or progress.finished < marks[0]:
            return
        now = time.perf_counter()
        seconds, batches = now - since[0], executor.batches - since[1]
        done = progress.finished - since[2]
        rows.append(
            {
                "runs": float(marks.pop(0)),
                "ms_a_batch": seconds / max(batches, 1) * 1e3,
                "calls_a_batch": float(np.median(np.diff(executor.calls))),
                "us_a_run": seconds / max(done, 1) * 1e6,
                "mb": most,
            }
        )
        since[:] = [now, executor.batches, progress.finished]
        executor.calls.clear()
        most = 0.0

    sweep = sk.Sweep(trivial, square(runs))
    with called(counted) as told:
        executor = Stub(told)
        ds = sk.run(sweep, store, executor=executor, max_runs=runs, progress=watch)
    rows.append({"runs": float(runs), "seconds": time.perf_counter() - began, **on_disk(store)})
    assert int(ds["status"][-1, -1]) == Status.DONE
    return rows


def on_disk(store: str) -> dict[str, float]:
    """Files and megabytes of a store."""
    found = [one.stat() for one in Path(store).rglob("*") if one.is_file()]
    return {"files": float(len(found)), "disk_mb": sum(one.st_size for one in found) / 1e6}


def real(runs: int) -> dict[str, float]:
    """Make so many trivial runs on two workers."""
    sweep = sk.Sweep(trivial, square(runs))
    run = partial(sk.run, n_jobs=2, max_runs=runs, progress=False)
    seconds, _ = timed(lambda: run(sweep, "r.zarr"))
    again, _ = timed(lambda: run(sweep, "r.zarr"))
    seconds_open, ds = timed(lambda: sk.open("r.zarr"))
    seconds_read, total = timed(lambda: int((ds["status"] == Status.DONE).sum()))
    assert total == runs
    return {
        "us_a_run": seconds / runs * 1e6,
        "mb": peak_mb(),
        "again_s": again,
        "open_s": seconds_open,
        "count_s": seconds_read,
        **on_disk("r.zarr"),
    }


def main() -> None:
    """Measure both and print the tables."""
    case = apart("tests.benchmarks.scale", "simulated", str(SIMULATED))
    *decades, whole = case["rows"]
    head = ("simulated up to", "ms a batch", "us a run", "MB in the driver")
    rows = [[int(d["runs"]), d["ms_a_batch"], d["us_a_run"], d["mb"]] for d in decades]
    print(table([*head], rows))
    print(json.dumps(whole))
    for runs in (REAL // 10, REAL):
        print(f"real, {runs:,}", json.dumps(apart("tests.benchmarks.scale", "real", str(runs))))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        way, runs = sys.argv[1], int(sys.argv[2])
        print(json.dumps({"rows": simulated(runs, "s.zarr")} if way == "simulated" else real(runs)))
    else:
        main()

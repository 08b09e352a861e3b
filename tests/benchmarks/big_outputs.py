"""Runs whose output takes megabytes: how fast they are stored, and what the driver holds.

Each run returns an array of 4 MB of which half is noise, which no compression makes smaller. The
floor is joblib's workers that write the same arrays with numpy.save and return nothing. Each number
comes from a fresh process with two workers; what was written is deleted.

    python -m tests.benchmarks.big_outputs [runs]
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.measure import apart, peak_mb, table

RUNS = 2_000
ENTRIES = 2**19
"""Float64 of one run: 4 MB."""


def simulator(i: int) -> dict[str, Any]:
    """An array of which the first half is noise."""
    made = np.zeros(ENTRIES)
    made[: ENTRIES // 2] = np.random.default_rng(i).integers(1, 2**62, ENTRIES // 2).view("f8")
    return {"field": made, "first": float(made[0])}


def sweepkit(count: int, backend: str) -> float:
    """Seconds of a sweep into a store."""
    import sweepkit as sk

    sweep = sk.Sweep(simulator, sk.grid(i=range(count)))
    start = time.perf_counter()
    ds = sk.run(sweep, "a.zarr", n_jobs=2, backend=backend, progress=False)
    seconds = time.perf_counter() - start
    assert (ds["status"] == 1).all()
    return seconds


def saved(i: int, folder: str) -> None:
    """Write what a run gives."""
    np.save(f"{folder}/{i}.npy", simulator(i)["field"])


def floor(count: int, backend: str) -> float:
    """Seconds of joblib and numpy.save."""
    import joblib

    folder = Path("saved")
    folder.mkdir()
    start = time.perf_counter()
    with joblib.parallel_config(backend=backend, n_jobs=2):
        joblib.Parallel()(joblib.delayed(saved)(i, str(folder.absolute())) for i in range(count))
    return time.perf_counter() - start


CASES: dict[str, Callable[[int, str], float]] = {"sweepkit": sweepkit, "numpy.save": floor}


def measured(case: str, backend: str, count: int) -> dict[str, Any]:
    """One case in a process of its own."""
    return apart("tests.benchmarks.big_outputs", case, backend, str(count))


def main(count: int = RUNS) -> None:
    """Measure and print the table."""
    rows = []
    for backend in ("loky", "threading"):
        for case in ("numpy.save", "sweepkit"):
            one = measured(case, backend, count)
            worker = one["worker"] or "not told"  # threads, or processes that nobody waited for
            rows.append([f"{case}, {backend}", one["rate"], one["driver"], worker])
    total = count * ENTRIES * 8 / 2**20
    print(f"{count:,} runs x 4 MB, {total:,.0f} MB")
    print(table(["", "MB/s", "driver, peak MB", "a worker, peak MB"], rows))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        name, how, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
        took = CASES[name](runs, how)
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        rate = runs * ENTRIES * 8 / 2**20 / took
        for left in ("a.zarr", "a.zarr.sweepkit", "saved"):
            shutil.rmtree(left, ignore_errors=True)
        print(json.dumps({"rate": rate, "driver": peak_mb(), "worker": children}))
    else:
        main(*map(int, sys.argv[1:]))

"""What the framework adds to a vectorized simulator: 10^6 runs of an oscillator, stored.

A damped oscillator integrated by Euler's method, 1,000 steps, in batches of 8,192
runs, two workers.
The floor is the bare function called by joblib on the same parameters in batches of the same size,
with its results returned and nothing stored. Both from a fresh process, imports left out, the start
of workers included; medians of three in turns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.measure import apart, peak_mb, repeated, table, timed

WORKERS = 2
BATCH = 8_192
STEPS = 1_000
Array = NDArray[np.float64]


def oscillator(stiffness: Array, damping: Array) -> dict[str, Array]:
    """Energy and displacement after ten seconds; symplectic Euler, 10 ms a step."""
    x, v = np.ones_like(stiffness), np.zeros_like(stiffness)
    for _ in range(STEPS):
        v -= 0.01 * (stiffness * x + damping * v)
        x += 0.01 * v
    return {"x": x, "energy": 0.5 * (stiffness * x**2 + v**2)}


def _axes(runs: int) -> tuple[Array, Array]:
    return np.linspace(1.0, 50.0, 1000), np.linspace(0.0, 2.0, runs // 1000)


def bare(runs: int) -> dict[str, Any]:
    """The function itself on batches of the same size."""
    import joblib

    stiffness, damping = (a.ravel() for a in np.meshgrid(*_axes(runs), indexing="ij"))

    def work() -> Any:
        return joblib.Parallel(n_jobs=WORKERS)(
            joblib.delayed(oscillator)(stiffness[at : at + BATCH], damping[at : at + BATCH])
            for at in range(0, runs, BATCH)
        )

    seconds, result = timed(work)
    assert sum(len(one["x"]) for one in result) == runs
    return {"us": seconds / runs * 1e6, "mb": peak_mb()}


def ours(runs: int) -> dict[str, Any]:
    """sweepkit, stored with status."""
    import xarray as xr

    import sweepkit as sk

    xr.DataArray([0.0], dims="x", coords={"x": [0.0]}).copy()  # makes xarray import dask
    stiffness, damping = _axes(runs)
    grid = sk.grid(stiffness=stiffness, damping=damping)
    sweep = sk.Sweep(sk.vectorized(oscillator, max_batch=BATCH), grid)
    run = sk.run
    seconds, ds = timed(lambda: run(sweep, "b.zarr", n_jobs=WORKERS, progress=False))
    assert int((ds["status"] == 1).sum()) == runs
    return {"us": seconds / runs * 1e6, "mb": peak_mb()}


WAYS: dict[str, Callable[[int], dict[str, Any]]] = {"bare": bare, "ours": ours}


def case(way: str, runs: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    return apart("tests.benchmarks.vectorized", way, str(runs))


def main() -> None:
    """Measure and print the table."""
    rows = []
    for runs in (100_000, 1_000_000):
        floor, own = repeated(3, [partial(case, way, runs) for way in ("bare", "ours")])
        rows.append([f"{runs:,} runs", floor["us"], own["us"], own["us"] / floor["us"], own["mb"]])
    print(table(("case", "bare us", "sweepkit us", "ratio", "driver MB"), rows))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(WAYS[sys.argv[1]](int(sys.argv[2]))))
    else:
        main()

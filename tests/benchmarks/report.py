"""The first report of 10^6 runs x 8 parameters, against counting alone.

Run as ``python -m tests.benchmarks.report``. The floor is one ``np.bincount`` of ready-made codes
per table that the report holds: 8 values, 28 pairs.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from itertools import combinations

import numpy as np
import xarray as xr

from sweepkit.analysis import (
    Table,
    held_up,
    importance,
    kinds,
    pairs,
    rate,
    regions,
    table,
    volumes,
)

N_RUNS = 1_000_000
WANTED_S = 1.5
WANTED_MB = 1024
SHAPE = (10, 10, 10, 10, 5, 5, 2, 2)


def grid() -> xr.Dataset:
    """A complete grid of 10 x 10 x 10 x 10 x 5 x 5 x 2 x 2."""
    names = tuple(f"p{k}" for k in range(8))
    coords = {name: np.arange(float(n)) for name, n in zip(names, SHAPE, strict=True)}
    axes = np.ix_(*(np.arange(n) / n for n in SHAPE))
    failed = (axes[0] > 0.65) & (axes[1] < 0.3) | (axes[2] > 0.85) & (axes[4] > 0.5)
    failed = np.broadcast_to(failed, SHAPE) ^ (np.random.default_rng(0).random(SHAPE) < 0.02)
    status = np.where(np.random.default_rng(1).random(SHAPE) < 0.001, 2, 1).astype(np.int8)
    error = np.where(status == 2, "ValueError: step 3 diverged", "").astype(object)
    variables = {"failed": failed, "status": status, "error": error}
    return xr.Dataset({k: (names, v) for k, v in variables.items()}, coords=coords)


def complete_grid() -> xr.Dataset:
    """The same without errors, so that its indices are exact."""
    return grid().assign(status=lambda ds: xr.ones_like(ds["status"]))


def sample() -> xr.Dataset:
    """As many scattered runs."""
    x = np.random.default_rng(0).random((8, N_RUNS))
    failed = (x[0] > 0.65) & (x[1] < 0.3) | (x[2] > 0.85) & (x[4] > 0.5)
    coords = {f"p{k}": ("sample", v) for k, v in enumerate(x)}
    return xr.Dataset({"failed": ("sample", failed)}, coords=coords)


def floor_of(t: Table) -> float:
    """Seconds to count 8 values and 28 pairs from codes."""
    start = time.perf_counter()
    codes = [p.coarser(8).codes.astype(np.intp) for p in t.parameters]
    sizes = [p.coarser(8).n for p in t.parameters]
    fails = t.outcome == 1
    for c, n in zip(codes, sizes, strict=True):
        np.bincount(c * 2 + fails, minlength=2 * n)
    for i, j in combinations(range(8), 2):
        code = (codes[i] * sizes[j] + codes[j]) * 2 + fails
        np.bincount(code, minlength=2 * sizes[i] * sizes[j])
    return time.perf_counter() - start


def timed(ds: xr.Dataset) -> tuple[dict[str, float], float]:
    """Seconds of each part of the report, and of the floor."""
    spent: dict[str, float] = {}
    start = time.perf_counter()
    coded = table(ds)
    spent["table"] = time.perf_counter() - start
    parts: dict[str, Callable[[Table], object]] = {
        "held_up": held_up,
        "pairs": pairs,
        "importance": importance,
        "kinds": kinds,
        "rate": rate,
    }
    for name, part in parts.items():
        start = time.perf_counter()
        part(coded)
        spent[name] = time.perf_counter() - start
    return spent, floor_of(coded)


def peak_mb() -> float:
    """Peak resident memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    # The first call of a process also imports scipy; a report is made in a running kernel.
    small = xr.Dataset({"failed": ("a", [True, False])}, coords={"a": [0.0, 1.0]})
    importance(small), held_up(small), kinds(small), rate(small)
    layouts = {"complete grid": complete_grid, "grid with errors": grid, "scattered": sample}
    print(f"{N_RUNS:,} runs x 8 parameters; wanted: {WANTED_S} s and {WANTED_MB} MB in all")
    for name, make in layouts.items():
        ds = make()
        before = peak_mb()
        spent, floor = min((timed(ds) for _ in range(3)), key=lambda pair: sum(pair[0].values()))
        total = sum(spent.values())
        each = "  ".join(f"{part} {seconds:.3f}" for part, seconds in spent.items())
        print(f"{name:17s} {each}")
        print(
            f"{'':17s} total {total:.2f} s ({total / WANTED_S:.2f} of wanted), "
            f"floor {floor:.3f} s, ratio {total / floor:.1f}; peak {peak_mb():.0f} MB, "
            f"{before:.0f} before"
        )
        del ds
    for name, make, part in (("regions", sample, regions), ("volumes", complete_grid, volumes)):
        coded = table(make())
        start = time.perf_counter()
        part(coded)
        spent_s, floor = time.perf_counter() - start, floor_of(coded)
        print(f"{name} of as many: {spent_s:.2f} s, ratio {spent_s / floor:.1f} to the same floor")


if __name__ == "__main__":
    main()

"""How long a sweep of unequal runs takes on eight workers, over the lower bound.

Sleeping runs, so that eight workers mean something on fewer cores, of log-normal cost (sigma 1.5).
The lower bound is the larger of the mean work of a worker and the longest run. Measured from the
begin of the first run to the end of the last, by the clock of the runs, on workers that are
threads: for sweepkit with declared costs, with costs learnt from coordinates that explain them,
with costs that are equal as far as it is told, and for joblib with batch_size=1 (first come, first
served) and "auto". In turns, medians.

Worker processes take time to start, on fewer cores one after the other, which counts in their row;
the row after it has the lower bound of workers of which each is there from its own first run on.

    python -m tests.benchmarks.makespan [mean seconds of 200 runs] [repetitions]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import sweepkit as sk
from tests.benchmarks.measure import table

WORKERS = 8
SIGMA = 1.5


def costs(runs: int, total: float, seed: int) -> np.ndarray[Any, Any]:
    """Log-normal seconds of runs, scaled so that they sum to a total."""
    made = np.exp(SIGMA * np.random.default_rng(seed).standard_normal(runs))
    return np.asarray(made * total / made.sum())


def bound(seconds: np.ndarray[Any, Any]) -> float:
    """No schedule is shorter."""
    return max(float(seconds.sum()) / WORKERS, float(seconds.max()))


def span(times: Sequence[tuple[float, float]]) -> float:
    """From the first begin to the last end."""
    return max(end for _, end in times) - min(begin for begin, _ in times)


def sleeping(seconds: float) -> tuple[float, float]:
    """A run; returns when it began and ended."""
    begin = time.perf_counter()
    time.sleep(seconds)
    return begin, time.perf_counter()


def by_joblib(seconds: np.ndarray[Any, Any], batch: int | str) -> float:
    """Runs in the order given, in joblib's batches."""
    import joblib

    work = joblib.Parallel(n_jobs=WORKERS, backend="threading", batch_size=batch)
    return span(work(joblib.delayed(sleeping)(one) for one in seconds.tolist()))


def swept(sweep: sk.Sweep) -> float:
    """The sweep as it is, its makespan by what the runs returned."""
    with tempfile.TemporaryDirectory(prefix="sweepkit-benchmark-") as folder:
        ds = sk.run(sweep, f"{folder}/s.zarr", n_jobs=WORKERS, backend="threading", progress=False)
        begin, end = ds["begin"].values.ravel(), ds["end"].values.ravel()
        return float(end.max() - begin.min())


def bound_from(seconds: np.ndarray[Any, Any], ready: np.ndarray[Any, Any]) -> float:
    """No schedule is shorter on workers that are there from these times on."""
    ready = np.sort(ready)
    at_work = np.arange(1, len(ready) + 1)
    ends = (float(seconds.sum()) + np.cumsum(ready)) / at_work  # if just the first so many work
    return max(float(ends.min()), float(ready[0] + seconds.max()))


def by_processes(seconds: np.ndarray[Any, Any], *, started: bool = False) -> float:
    """Costs declared, on worker processes, with the time in which they start.

    If ``started``, over the bound for when each was there, times the usual bound, so that all ways
    are divided by one.
    """

    def simulate(i: int) -> dict[str, float]:
        begin, end = sleeping(float(seconds[i]))
        return {"begin": begin, "end": end, "worker": os.getpid()}

    grid = sk.grid(i=range(len(seconds)))
    sweep = sk.Sweep(simulate, grid, cost=lambda i: seconds[i], version="1")
    with tempfile.TemporaryDirectory(prefix="sweepkit-benchmark-") as folder:
        ds = sk.run(sweep, f"{folder}/s.zarr", n_jobs=WORKERS, backend="loky", progress=False)
        begin, end, worker = (ds[name].values for name in ("begin", "end", "worker"))
    first = np.array([begin[worker == one].min() for one in np.unique(worker)]) - begin.min()
    whole = float(end.max() - begin.min())
    return whole / bound_from(seconds, first) * bound(seconds) if started else whole


def declared(seconds: np.ndarray[Any, Any]) -> float:
    """Costs declared by a function of the parameter."""

    def simulate(i: int) -> dict[str, float]:
        begin, end = sleeping(float(seconds[i]))
        return {"begin": begin, "end": end}

    grid = sk.grid(i=range(len(seconds)))
    return swept(sk.Sweep(simulate, grid, cost=lambda i: seconds[i], version="1"))


def untold(seconds: np.ndarray[Any, Any]) -> float:
    """Nothing declared, and the parameter explains nothing: coarse pass, then in order."""

    def simulate(i: str) -> dict[str, float]:
        begin, end = sleeping(float(seconds[int(i)]))
        return {"begin": begin, "end": end}

    grid = sk.grid(i=[str(i) for i in range(len(seconds))])
    return swept(sk.Sweep(simulate, grid, version="1"))


def learnt(seconds: np.ndarray[Any, Any]) -> float:
    """Nothing declared; three coordinates multiply up to the cost, with 10 % that they do not."""
    rng = np.random.default_rng(1)
    logs = np.log(seconds)
    shares = rng.dirichlet([1, 1, 1], len(seconds))
    rows = {name: np.exp(shares[:, at] * logs) for at, name in enumerate("abc")}

    def simulate(a: float, b: float, c: float, rng: Any) -> dict[str, float]:
        begin, end = sleeping(a * b * c * float(np.exp(0.1 * rng.standard_normal())))
        return {"begin": begin, "end": end}

    return swept(sk.Sweep(simulate, sk.grid(sk.paired(rows, dim="row")), version="1"))


WAYS: dict[str, Callable[[np.ndarray[Any, Any]], float]] = {
    "sweepkit, costs declared": declared,
    "sweepkit, costs declared, processes": by_processes,
    "the same, over the bound once they are there": partial(by_processes, started=True),
    "sweepkit, costs learnt from coordinates": learnt,
    "sweepkit, costs not told by anything": untold,
    "joblib, first come first served": lambda seconds: by_joblib(seconds, 1),
    "joblib, batch_size='auto'": lambda seconds: by_joblib(seconds, "auto"),
}


def main(total: float = 80.0, repetitions: int = 3) -> None:
    """Print makespans over the lower bound."""
    rows = []
    found: dict[tuple[int, str], list[float]] = {}
    for runs in (200, 2000):
        for seed in range(repetitions):
            seconds = costs(runs, total, seed)
            for name, way in WAYS.items():
                found.setdefault((runs, name), []).append(way(seconds) / bound(seconds))
    for name in WAYS:
        shown = (found[runs, name] for runs in (200, 2000))
        rows.append([name, *(f"{median(one):.2f} (to {max(one):.2f})" for one in shown)])
    print(table(["makespan over lower bound, 8 workers", "200 runs", "2,000 runs"], rows))


if __name__ == "__main__":
    main(*(kind(one) for kind, one in zip((float, int), sys.argv[1:], strict=False)))

"""Pending runs to ordered batches inside blocks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.format1 import Layout
from sweepkit.grid import Grid
from sweepkit.protocols import Batch

__all__ = [
    "COARSE_RUNS",
    "COARSE_SHARE",
    "Open",
    "Placement",
    "Schedule",
    "batch_seconds",
    "batch_size",
    "coarse_runs",
    "critical",
    "cut",
    "merged",
    "random_order",
    "schedule",
    "spread",
]

ORDER_SEED = 0
COARSE_SHARE = 0.05
COARSE_LEAST = 64
COARSE_RUNS = 32_768
BATCH_RUNS = 4_096
BATCH_SECONDS = 0.5
FIRST_SECONDS = 0.05
MOST_SIMULATED = 50_000
"""Runs up to which a schedule is worked out run by run."""


@dataclass(frozen=True)
class Placement:
    """Which position on disk is which position in the declared grid.

    Attributes
    ----------
    declared_sizes, disk_sizes : mapping of str to int
        Positions along each dim in the declared grid and on disk, each in its own order of dims.
    on_disk : mapping of str to array of int
        For each dim the position on disk of each declared position.
    declared : mapping of str to array of int
        For each dim the declared position of each position on disk; -1 where it is not declared.
    """

    declared_sizes: Mapping[str, int]
    disk_sizes: Mapping[str, int]
    on_disk: Mapping[str, NDArray[np.int64]]
    declared: Mapping[str, NDArray[np.int64]]

    @classmethod
    def of(
        cls,
        declared_sizes: Mapping[str, int],
        disk_sizes: Mapping[str, int],
        on_disk: Mapping[str, NDArray[np.int64]],
    ) -> Placement:
        """From the position on disk of each declared value, by dim."""
        declared = {}
        for dim, size in disk_sizes.items():
            inverse = np.full(size, -1, dtype=np.int64)
            inverse[on_disk[dim]] = np.arange(len(on_disk[dim]))
            declared[dim] = inverse
        return cls(dict(declared_sizes), dict(disk_sizes), dict(on_disk), declared)

    @classmethod
    def same(cls, sizes: Mapping[str, int]) -> Placement:
        """Of a store that lies as the grid is declared."""
        return cls.of(sizes, sizes, {dim: np.arange(n) for dim, n in sizes.items()})

    @cached_property
    def _strides(self) -> dict[str, int]:
        strides, stride = {}, math.prod(self.declared_sizes.values())
        for dim, size in self.declared_sizes.items():
            stride //= size
            strides[dim] = stride
        return strides

    def runs(self, box: tuple[slice, ...]) -> NDArray[np.int64]:
        """Number in the declared grid of each cell of a box on disk, flat; -1 where none."""
        runs = np.zeros((1,) * len(box), dtype=np.int64)
        missing = np.zeros((1,) * len(box), dtype=bool)
        for at, (dim, part) in enumerate(zip(self.disk_sizes, box, strict=True)):
            shape = [-1 if other == at else 1 for other in range(len(box))]
            positions = self.declared[dim][part].reshape(shape)
            runs = runs + positions * self._strides[dim]
            missing = missing | (positions < 0)
        return np.where(missing, np.int64(-1), runs).ravel()

    def runs_at(self, disk: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number in the declared grid of flat positions on disk; -1 where none."""
        at = np.unravel_index(disk, tuple(self.disk_sizes.values()))
        runs = np.zeros(len(disk), dtype=np.int64)
        missing = np.zeros(len(disk), dtype=bool)
        for dim, places in zip(self.disk_sizes, at, strict=True):
            positions = self.declared[dim][places]
            runs += positions * self._strides[dim]
            missing |= positions < 0
        return np.where(missing, np.int64(-1), runs)

    def disk(self, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Flat position on disk of declared runs."""
        places = np.unravel_index(runs, tuple(self.declared_sizes.values()))
        index = dict(zip(self.declared_sizes, places, strict=True))
        at = tuple(self.on_disk[dim][index[dim]] for dim in self.disk_sizes)
        return np.ravel_multi_index(at, tuple(self.disk_sizes.values())).astype(np.int64)


def random_order(sizes: Mapping[str, int]) -> dict[str, Any]:
    """What tells the runs of the coarse pass and their order, as plain data.

    ``random_prefix(seed, product of sizes, coarse)`` gives their flat positions on disk.
    """
    return {
        "seed": ORDER_SEED,
        "sizes": dict(sizes),
        "coarse": coarse_runs(math.prod(sizes.values())),
    }


def coarse_runs(total: int) -> int:
    """How many runs are tried first, in random order, so that the map shows early.

    5 % of them, but at least 64 and at most 32,768.
    """
    wanted = max(math.ceil(total * COARSE_SHARE), COARSE_LEAST)
    return min(wanted, COARSE_RUNS, total)


def batch_size(cost: float, left: int, workers: int, *, started: bool) -> int:
    """Runs of a batch: long enough to hide dispatch, short enough for an even tail.

    Parameters
    ----------
    cost : float
        Seconds per run, NaN while unknown.
    left : int
        Runs still to be handed out.
    workers : int
        Runs that go on at the same time.
    started : bool
        Whether the first batches have come back; those before are short.
    """
    if math.isnan(cost):
        return 1
    seconds = BATCH_SECONDS if started else FIRST_SECONDS
    by_cost = seconds / max(cost, 1e-7)
    share = left / (4 * workers)
    return int(max(1, min(by_cost, max(share, FIRST_SECONDS / max(cost, 1e-7)), BATCH_RUNS)))


def cut(
    block: int,
    cells: NDArray[np.int64],
    runs: NDArray[np.int64],
    size: Callable[[], tuple[int, float]],
) -> Iterator[Batch]:
    """Cells of one block as batches; ``size()`` gives runs and seconds per run when asked."""
    at = 0
    while at < len(cells):
        count, cost = size()
        part = slice(at, at + count)
        taken = len(cells[part])
        yield Batch(block, cells[part], runs[part], 0.0 if math.isnan(cost) else cost * taken)
        at += taken


def by_block(
    layout: Layout, disk: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.intp]]]:
    """Runs given by their flat position on disk, block by block.

    Yields the number of a block, the cells in it, and which of the runs given they are, in the
    order given.
    """
    at = np.unravel_index(disk, layout.shape)
    outer = tuple(a // b for a, b in zip(at, layout.block, strict=True))
    numbers = np.ravel_multi_index(outer, layout.blocks)
    order = np.argsort(numbers, kind="stable")
    borders = np.flatnonzero(np.diff(numbers[order])) + 1
    for rows in np.split(order, borders):
        if not len(rows):
            continue
        number = int(numbers[rows[0]])
        box = layout.box(number)
        shape = tuple(part.stop - part.start for part in box)
        inner = tuple(a[rows] - part.start for a, part in zip(at, box, strict=True))
        yield number, np.ravel_multi_index(inner, shape).astype(np.int64), rows


# --- which runs when ------------------------------------------------------------------------------


def spread(grid: Grid, runs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """A few of some runs that lie far apart in the grid, each as far as can be from those before.

    Distances are in shares of each dim's positions; replicates do not count.
    """
    dims = [dim for dim in grid.dims if not _only_replicates(grid, dim)]
    index = grid.index(runs)
    at = np.zeros((len(runs), max(len(dims), 1)))
    for column, dim in enumerate(dims):
        at[:, column] = index[dim] / max(grid.sizes[dim] - 1, 1) - 0.5
    near = np.full(len(runs), np.inf)
    chosen: list[int] = []
    row = int(np.argmin((at**2).sum(axis=1))) if len(runs) else 0
    while len(chosen) < min(count, len(runs)):
        chosen.append(row)
        near = np.minimum(near, ((at - at[row]) ** 2).sum(axis=1))
        near[chosen] = -1.0
        row = int(np.argmax(near))
    return runs[chosen]


def _only_replicates(grid: Grid, dim: str) -> bool:
    return all(one.role == "replicate" for one in grid.parameters if one.dim == dim)


def critical(
    runs: NDArray[np.int64], seconds: NDArray[np.float64], lead: float, workers: int
) -> NDArray[np.int64]:
    """Runs so long that begun after the coarse pass they alone would decide when the sweep ends.

    Parameters
    ----------
    runs, seconds : array, shape (n,)
        All that is pending and what each costs.
    lead : float
        Seconds of the coarse pass, all its runs together.
    workers : int

    Returns
    -------
    array of int
        The longest first; at most half as many as workers, so that the coarse pass goes on, too.
    """
    shortest = 0.9 * max(float(seconds.sum()) - lead, 0.0) / workers
    few = np.argsort(-seconds, kind="stable")[: workers // 2]
    return runs[few[seconds[few] > shortest]]


@dataclass(frozen=True, eq=False)
class Open:
    """Pending runs of one block in the order in which they are handed out.

    Attributes
    ----------
    block : int
    cells, runs : array of int, shape (n,)
        As of a Batch.
    seconds : array of float, shape (n,)
        What each is expected to take.
    """

    block: int
    cells: NDArray[np.int64]
    runs: NDArray[np.int64]
    seconds: NDArray[np.float64]

    def ordered(self, *, longest: bool) -> Open:
        """The same runs, the longest or the shortest first."""
        order = np.argsort(-self.seconds if longest else self.seconds, kind="stable")
        return Open(self.block, self.cells[order], self.runs[order], self.seconds[order])


def merged(
    blocks: Iterator[Open], window: int, target: Callable[[], float], *, longest: bool
) -> Iterator[Batch]:
    """Batches from several blocks at a time, the longest (or shortest) runs of them first.

    Parameters
    ----------
    blocks : iterator of Open
        In the order in which they are to be opened; each is ordered here.
    window : int
        Blocks that are open at the same time.
    target : callable
        Seconds that the next batch is to take; asked anew for each.
    longest : bool
        Whether long runs come first, else short ones.
    """
    heap: list[tuple[float, int, int, Open]] = []
    sign = -1.0 if longest else 1.0

    def push(one: Open, at: int) -> None:
        heapq.heappush(heap, (sign * float(one.seconds[at]), one.block, at, one))

    while True:
        while len(heap) < window:
            one = next(blocks, None)
            if one is None:
                break
            if len(one.runs):
                push(one.ordered(longest=longest), 0)
        if not heap:
            return
        _, block, at, one = heapq.heappop(heap)
        limit = target()
        sums = np.cumsum(one.seconds[at : at + BATCH_RUNS])
        count = max(1, int(np.searchsorted(sums, limit, side="right")))
        part = slice(at, at + count)
        if at + count < len(one.runs):
            push(one, at + count)
        seconds = float(sums[min(count, len(sums)) - 1])
        yield Batch(block, one.cells[part], one.runs[part], seconds)


def batch_seconds(left: float, workers: int) -> float:
    """How long the next batch is to take, given the seconds of work left for all workers.

    Long enough to hide dispatch; toward the end so short that runs go out one by one.
    """
    return max(min(BATCH_SECONDS, left / (4 * workers)), FIRST_SECONDS / 2)


@dataclass(frozen=True, eq=False)
class Schedule:
    """What runs when, if each goes to the worker that is free first.

    Attributes
    ----------
    wall : float
        When the last run ends, in seconds.
    fits : array of bool, shape (n,)
        Which runs are started: those that end in time.
    """

    wall: float
    fits: NDArray[np.bool_]


def schedule(
    seconds: NDArray[np.float64],
    workers: int,
    *,
    until: float = math.inf,
    bounds: NDArray[np.float64] | None = None,
) -> Schedule:
    """Runs in a given order on some workers, as a session hands them out.

    Parameters
    ----------
    seconds : array, shape (n,)
        What each run takes, in the order in which they are handed out.
    workers : int
    until : float
        A run is left out if its bound would take it beyond, in seconds from the beginning.
    bounds : array, shape (n,), optional
        What each run takes at most; ``seconds`` by default.
    """
    limits = seconds if bounds is None else bounds
    fits = np.ones(len(seconds), dtype=bool)
    if len(seconds) > MOST_SIMULATED:
        ends = np.cumsum(seconds) / workers
        fits = ends - seconds / workers + limits <= until
        taken = seconds[fits]
        longest = float(taken.max()) if len(taken) else 0.0
        return Schedule(max(float(taken.sum()) / workers, longest), fits)
    free = [0.0] * workers
    wall = 0.0
    for at, (span, limit) in enumerate(zip(seconds.tolist(), limits.tolist(), strict=True)):
        begin = free[0]
        if begin + limit > until:
            fits[at] = False
            continue
        heapq.heapreplace(free, begin + span)
        wall = max(wall, begin + span)
    return Schedule(wall, fits)

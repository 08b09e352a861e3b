"""Pending runs to ordered batches inside blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.format1 import Layout
from sweepkit.protocols import Batch

__all__ = [
    "COARSE_RUNS",
    "COARSE_SHARE",
    "Placement",
    "batch_size",
    "coarse_runs",
    "cut",
    "random_order",
]

ORDER_SEED = 0
COARSE_SHARE = 0.05
COARSE_LEAST = 64
COARSE_RUNS = 32_768
BATCH_RUNS = 4_096
BATCH_SECONDS = 0.5
FIRST_SECONDS = 0.05


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

"""Pending runs to ordered batches inside blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweepkit.format1 import Layout
from sweepkit.protocols import Batch

__all__ = ["COARSE_RUNS", "COARSE_SHARE", "Placement", "batch_size", "coarse_runs", "cut"]

COARSE_SHARE = 0.05
COARSE_RUNS = 32_768
BATCH_RUNS = 4_096
BATCH_SECONDS = 0.5
FIRST_SECONDS = 0.05


@dataclass(frozen=True)
class Placement:
    """Which position on disk is which position in the declared grid, dim by dim.

    Attributes
    ----------
    shape : tuple of int
        Of the declared grid.
    declared : sequence of array of int
        For each dim and position on disk the declared position; -1 where it is not declared.
    """

    shape: tuple[int, ...]
    declared: Sequence[NDArray[np.int64]]

    @classmethod
    def of(
        cls, dims: Sequence[str], on_disk: Mapping[str, NDArray[np.int64]], sizes: Mapping[str, int]
    ) -> Placement:
        """From the position on disk of each declared value, by dim."""
        declared = []
        for dim in dims:
            inverse = np.full(sizes[dim], -1, dtype=np.int64)
            inverse[on_disk[dim]] = np.arange(len(on_disk[dim]))
            declared.append(inverse)
        return cls(tuple(len(on_disk[dim]) for dim in dims), declared)

    def runs(self, box: tuple[slice, ...]) -> NDArray[np.int64]:
        """Number in the declared grid of each cell of a box, flat; -1 where not declared."""
        runs = np.zeros((1,) * len(box), dtype=np.int64)
        missing = np.zeros((1,) * len(box), dtype=bool)
        stride = math.prod(self.shape)
        for at, part in enumerate(box):
            stride //= self.shape[at]
            positions = self.declared[at][part].reshape(
                [-1 if other == at else 1 for other in range(len(box))]
            )
            runs = runs + positions * stride
            missing = missing | (positions < 0)
        runs = np.where(missing, -1, runs)
        return runs.ravel()

    @property
    def complete(self) -> bool:
        """Whether every position on disk is declared."""
        return all((positions >= 0).all() for positions in self.declared)


def coarse_runs(total: int) -> int:
    """How many runs are tried first, in random order, so that the map shows early."""
    return min(math.ceil(total * COARSE_SHARE), COARSE_RUNS)


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


def by_block(layout: Layout, disk: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Runs given by their flat position on disk, as cells of each block, blocks ascending."""
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
        yield number, np.ravel_multi_index(inner, shape).astype(np.int64)

"""Bounds of the failure rate in slices of the space of a refined grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded, Codes, Floats
from sweepkit.analysis.lattice import (
    ABSENT,
    FAILS,
    PASSES,
    SECOND,
    Lattice,
    Leaf,
    numbers_of,
)
from sweepkit.analysis.table import Table

__all__ = ["slice_bounds"]

MAX_ENTRIES = 5_000_000
"""Numbers held at once."""

MAX_WORK = 1_000_000_000
"""Slices times parts of the space looked at; beyond, nothing bounds a slice."""


@dataclass(frozen=True, eq=False)
class _Slices:
    """Where result cells lie: ends along some ordered parameters, codes of some others."""

    low: dict[int, Floats]
    high: dict[int, Floats]
    codes: dict[str, Codes]

    def some(self, rows: NDArray[np.intp]) -> _Slices:
        return _Slices(
            {k: v[rows] for k, v in self.low.items()},
            {k: v[rows] for k, v in self.high.items()},
            {name: v[rows] for name, v in self.codes.items()},
        )


def slice_bounds(
    t: Table,
    lattice: Lattice,
    cell: Codes,
    n_cells: int,
    along: Sequence[Coded],
    at_points: bool,
) -> tuple[Floats, Floats]:
    """Least and most share that fails where some parameters have the values of each cell.

    A part of the space whose runs all agree is as they are, and so is the slice through it; the
    others are undecided, as is everything along a parameter that makes no cells of the space.
    """
    low, high = np.zeros(n_cells), np.ones(n_cells)
    first = np.full(n_cells, -1)
    first[cell[::-1]] = np.arange(t.n)[::-1]
    there = np.flatnonzero(first >= 0)
    slices = _slices(t, lattice, along, at_points, first[there])
    width = lattice.cube.size + sum(map(len, lattice.touched_leaves))
    if slices is None or len(there) * width > MAX_WORK:
        return low, high
    for rows in np.array_split(np.arange(len(there)), len(there) * width // MAX_ENTRIES + 1):
        fails, passes, every = _measured(lattice, slices.some(rows), len(rows)).T
        with np.errstate(invalid="ignore", divide="ignore"):
            low[there[rows]] = np.nan_to_num(fails / every)
            high[there[rows]] = 1 - np.nan_to_num(passes / every)
    return low.clip(0, 1), high.clip(0, 1)


def _slices(
    t: Table, lattice: Lattice, along: Sequence[Coded], at_points: bool, runs: NDArray[np.intp]
) -> _Slices | None:
    """Ends of the slices that hold these runs; None along what makes no cells of the space."""
    number = {p.name: k for k, p in enumerate(lattice.ordered)}
    others = {p.name: p for p in lattice.others}
    low: dict[int, Floats] = {}
    high: dict[int, Floats] = {}
    codes: dict[str, Codes] = {}
    for p in along:
        if p.name in number:
            k = number[p.name]
            if at_points or not p.binned:
                low[k] = high[k] = numbers_of(t, p)[0][runs]
            else:
                low[k], high[k] = (
                    _as_the_lattice(lattice, k, ends)[p.codes[runs]] for ends in (p.lower, p.upper)
                )
        elif p.name in others:
            codes[p.name] = others[p.name].codes[runs]
        elif p.n > 1:
            return None
    return _Slices(low, high, codes)


def _as_the_lattice(lattice: Lattice, k: int, ends: NDArray[Any]) -> Floats:
    if lattice.ordered[k].kind != "time":
        return ends.astype(np.float64)
    nanoseconds = ends.astype(f"{ends.dtype.kind}8[ns]").astype(np.int64)
    seconds: Floats = (nanoseconds - lattice.origin[k]) / SECOND
    return seconds


def _measured(lattice: Lattice, slices: _Slices, n: int) -> Floats:
    """Of each slice how much surely fails, surely passes, and is there; shape (slices, 3)."""
    total = np.zeros((n, 3))
    for group in range(lattice.n_groups):
        mine = _in_group(lattice, slices, group, n)
        state = lattice.state(group, sure=True)
        for cell in lattice.touched(group):
            state[cell] = ABSENT
        kinds = np.stack([state == FAILS, state == PASSES, state != ABSENT]).astype(np.float64)
        found = _of_cells(lattice, slices, kinds, n)
        split = lattice.touched_leaves[group]
        if split:
            found = found + _of_leaves(lattice, slices, split, n)
        total += mine[:, None] * found
    return total


def _in_group(lattice: Lattice, slices: _Slices, group: int, n: int) -> NDArray[np.bool_]:
    mine = np.ones(n, dtype=bool)
    for p in reversed(lattice.others):
        group, code = divmod(group, p.n)
        if p.name in slices.codes:
            mine &= slices.codes[p.name] == code
    return mine


def _of_cells(lattice: Lattice, slices: _Slices, kinds: Floats, n: int) -> Floats:
    """The same of cells that nothing refined, by contracting one parameter after another."""
    for k in reversed(range(kinds.ndim - 1)):
        if k not in slices.low:
            width = np.diff(lattice.levels[k]) / lattice.span[k]
            kinds = np.tensordot(kinds, width, axes=([k + 1], [0]))
    result = np.broadcast_to(kinds, (n, *kinds.shape))
    for k in sorted(slices.low):
        level = lattice.levels[k]
        part = _part(lattice, slices, k, level[:-1], level[1:])
        result = np.einsum("ca,cxa...->cx...", part, result)
    return np.asarray(result, dtype=np.float64)


def _of_leaves(lattice: Lattice, slices: _Slices, split: list[Leaf], n: int) -> Floats:
    low, high = (np.array([leaf.box[end] for leaf in split]) for end in (0, 1))
    share = np.ones((n, len(split)))
    for k in range(low.shape[1]):
        if k in slices.low:
            share *= _part(lattice, slices, k, low[:, k], high[:, k])
        else:
            share *= (high[:, k] - low[:, k]) / lattice.span[k]
    kinds = [
        [leaf.sure and leaf.state == "fails", leaf.sure and leaf.state == "passes",
         bool(leaf.points)]
        for leaf in split
    ]  # fmt: skip
    found: Floats = share @ np.array(kinds, dtype=np.float64)
    return found


def _part(lattice: Lattice, slices: _Slices, k: int, low: Floats, high: Floats) -> Floats:
    """How much of each slice lies between two ends, shape (slices, ends).

    A slice at one value lies half in each of the two parts that meet there.
    """
    a, b = slices.low[k][:, None], slices.high[k][:, None]
    thick = np.clip(np.minimum(b, high) - np.maximum(a, low), 0, None) / lattice.span[k]
    ends = lattice.levels[k][0], lattice.levels[k][-1]
    whole = (a > low) & (a < high)
    whole |= ((a == low) & (a == ends[0])) | ((a == high) & (a == ends[1]))
    half = ((a == low) | (a == high)) & ~whole
    part: Floats = np.where(a == b, whole + 0.5 * half, thick)
    return part

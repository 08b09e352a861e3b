"""Cells of a grid split where passing turns into failing."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count as counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.candidates import Asked, Wanted, key_of
from sweepkit.analysis.coding import Floats, shown
from sweepkit.analysis.lattice import (
    FAILS,
    MIXED,
    PASSES,
    Lattice,
    Leaf,
    Point,
    halves,
    leaves,
    plane,
)

__all__ = ["MAX_SPLIT_DIMS", "bisect", "explored", "split", "undecided"]

MAX_SPLIT_DIMS = 6
"""Splitting a cell takes half its corners anew; beyond this many, edges are bisected instead."""

MAX_UNFIT = 100
"""Cells in a row that take more points than are left before looking for one that does not ends."""


def undecided(
    lattice: Lattice, most: int, rng: np.random.Generator
) -> list[tuple[float, float, int, Leaf]]:
    """The largest leaves whose points disagree as a heap, the largest first, equals at random.

    A corner that is unknown, as one that errored, disagrees with nothing. Of cells that nothing
    refined yet only `most` are taken, and made into leaves.
    """
    found: list[Leaf] = []
    where: list[tuple[NDArray[np.int64], Floats]] = []
    cells = lattice.cell_shares()
    for group in range(lattice.n_groups):
        mixed = lattice.state(group) == MIXED
        for cell, inside in lattice.touched(group).items():
            mixed[cell] = False
            split_up = leaves(lattice, group, lattice.box(cell), inside)
            found += [leaf for leaf in split_up if leaf.state == "mixed"]
        flat = np.flatnonzero(mixed)
        where.append((flat + group * mixed.size, cells.reshape(-1)[flat]))
    at = np.concatenate([flat for flat, _ in where])
    share = np.concatenate([one for _, one in where])
    for number in at[np.lexsort((rng.random(len(at)), -share))[:most]].tolist():
        group, place = divmod(number, cells.size)
        cell = tuple(map(int, np.unravel_index(place, cells.shape)))
        found += leaves(lattice, group, lattice.box(cell), [])
    chance = rng.random(len(found)).tolist()
    heap = [(-leaf.share, chance[k], k, leaf) for k, leaf in enumerate(found)]
    heapq.heapify(heap)
    return heap


def split(asked: Asked, lattice: Lattice, wanted: int, taken: set[tuple[Any, ...]]) -> list[Wanted]:
    """Corners that split undecided cells, the largest first, each whole where it fits.

    What is left over, too few for any cell, bisects edges.
    """
    points: list[Wanted] = []
    heap = undecided(lattice, 2 * wanted + MAX_UNFIT, asked.rng)
    number = counter(len(heap))
    full = 0
    while heap and len(points) < wanted and full < MAX_UNFIT:
        leaf = heapq.heappop(heap)[-1]
        best = _best_cut(lattice, leaf)
        if best is None:
            continue
        k, at = best
        new = []
        for x in plane(leaf.box, k, at):
            point = lattice.point(leaf.group, x)
            if not _there(lattice, leaf.group, x) and key_of(point) not in taken:
                new.append(point)
        if len(points) + len(new) > wanted:
            full += 1
            continue
        name = lattice.ordered[k].name
        what = "a cell" if leaf.state == "mixed" else "part of such a cell,"
        for point in new:
            taken.add(key_of(point))
            low, high = (shown(lattice.value(k, end[k])) for end in leaf.box)
            reason = (
                f"corners disagree: splits {name} {low} to {high}, "
                f"{what} of {100 * leaf.share:.3g} % of the space"
            )
            points.append(Wanted(point, reason, leaf.share))
        # With runs to spare both halves are split too, whatever their new corners may say.
        for half in halves(leaf.box, k, at):
            part = replace(leaf, box=half, share=leaf.share / 2, state="unknown")
            heapq.heappush(heap, (-part.share, float(asked.rng.random()), next(number), part))
    if len(points) < wanted:
        points += bisect(asked, lattice, wanted - len(points), taken)
    return points


def _best_cut(lattice: Lattice, leaf: Leaf) -> tuple[int, float] | None:
    """The parameter to split a cell along: wide, and across which the outcome changes."""
    best: tuple[float, int, float] | None = None
    box, group = leaf.box, leaf.group
    for k in range(len(box[0])):
        at = lattice.middle(box, k)
        if at is None:
            continue
        below, above = plane(box, k, box[0][k]), plane(box, k, box[1][k])
        differ = sum(
            lattice.fails(group, a) != lattice.fails(group, b)
            for a, b in zip(below, above, strict=True)
        )
        wide = (box[1][k] - box[0][k]) / lattice.span[k]
        score = wide * (0.25 + differ / len(below))
        if best is None or score > best[0] + 1e-12:
            best = (score, k, at)
    return None if best is None else (best[1], best[2])


def bisect(
    asked: Asked, lattice: Lattice, wanted: int, taken: set[tuple[Any, ...]]
) -> list[Wanted]:
    """Middles of cell edges whose ends disagree: one point each, in any number of dims."""
    points: list[Wanted] = []
    heap = undecided(lattice, 2 * wanted + MAX_UNFIT, asked.rng)
    while heap and len(points) < wanted:
        leaf = heapq.heappop(heap)[-1]
        edges = []
        for x in lattice.corners(leaf.group, leaf.box):
            for k in range(len(x)):
                y = (*x[:k], leaf.box[1][k], *x[k + 1 :])
                pair = [lattice.fails(leaf.group, end) for end in (x, y)]
                at = lattice.middle(leaf.box, k)
                if x != y and at is not None and None not in pair and pair[0] != pair[1]:
                    edges.append((*x[:k], at, *x[k + 1 :]))
        if not edges:
            continue
        x = edges[int(asked.rng.integers(len(edges)))]
        point = lattice.point(leaf.group, x)
        if key_of(point) in taken or _there(lattice, leaf.group, x):
            continue
        taken.add(key_of(point))
        share = f"{100 * leaf.share:.3g} % of the space"
        reason = f"between a point that passes and one that fails, in a cell of {share}"
        points.append(Wanted(point, reason, leaf.share))
    return points


def explored(asked: Asked, lattice: Lattice, n: int) -> list[Wanted]:
    """Points inside cells whose corners agree, where something small could hide."""
    points: list[Wanted] = []
    taken: set[tuple[Any, ...]] = set()
    states = [lattice.state(group).reshape(-1) for group in range(lattice.n_groups)]
    quiet = [np.flatnonzero((state == PASSES) | (state == FAILS)) for state in states]
    ends = np.cumsum([len(flat) for flat in quiet])
    shape = lattice.cell_shares().shape
    for k in asked.rng.permutation(int(ends[-1]))[: 4 * n].tolist():
        group = int(np.searchsorted(ends, k, side="right"))
        flat = int(quiet[group][k - ends[group]])
        box = lattice.box([int(i) for i in np.unravel_index(flat, shape)])
        x = []
        for axis, (low, high) in enumerate(zip(*box, strict=True)):
            value = asked.rng.uniform(low, high)
            x.append(float(round(value)) if lattice.whole[axis] else value)
        point = lattice.point(group, x)
        if _there(lattice, group, tuple(x)) or key_of(point) in taken:
            continue
        taken.add(key_of(point))
        word = "fails" if states[group][flat] == FAILS else "passes"
        share = lattice.share(box) / lattice.n_groups
        reason = f"unexplored: inside a cell whose every corner {word}"
        points.append(Wanted(point, reason, share))
        if len(points) == n:
            break
    return points


def _there(lattice: Lattice, group: int, x: Point) -> bool:
    """Whether a point has a known outcome."""
    return lattice.share_failing(group, x) is not None

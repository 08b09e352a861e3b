"""The cells of a grid of ordered parameters, split as far as refined points allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded, Floats
from sweepkit.analysis.outcomes import FAILED, SKIPPED, UnanswerableError, declared, refinement
from sweepkit.analysis.table import Table, along, spread_over, varied

__all__ = [
    "ABSENT",
    "FAILS",
    "MIXED",
    "UNKNOWN",
    "Box",
    "Lattice",
    "Leaf",
    "Point",
    "halves",
    "lattice_of",
    "leaves",
    "numbers_of",
    "own_parameters",
    "plane",
    "required_lattice",
]

Box: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
Point: TypeAlias = tuple[float, ...]
State: TypeAlias = Literal["passes", "fails", "mixed", "unknown"]

UNKNOWN, PASSES, FAILS, MIXED, ABSENT = -1, 0, 1, 2, 3
_STATE_OF_BITS = np.array(
    [ABSENT, PASSES, FAILS, MIXED, UNKNOWN, UNKNOWN, UNKNOWN, MIXED], dtype=np.int8
)
"""By what some corner does: 1 passes, 2 fails, 4 is unknown."""

SECOND = 10**9


@dataclass(frozen=True, eq=False)
class Lattice:
    """A grid's cells and every point known, refined ones too.

    Attributes
    ----------
    ordered, others : tuple of Coded
        Parameters whose values have cells between them, and those whose values stand apart.
    levels : tuple of array
        Values of the ordered ones on the grid; times in seconds since the first of them.
    cube : array of float, shape (groups, values of each ordered parameter...)
        Share of the runs of each point of the grid that fail, NaN where none is known. A group is
        a combination of the other parameters' values.
    present : array of bool, as cube
        Which points of the grid are runs; a mask leaves some out.
    extra : dict
        (group, values) of a refined point -> that share.
    whole : array of bool
        Which ordered parameters take whole numbers.
    origin : tuple of int
        First value of each ordered parameter that is a time, in nanoseconds; else 0.
    on_grid : array of bool, shape (runs,)
        Which runs lie at points of the grid.
    place : array of int, shape (runs,)
        Flat position in the cube of runs on the grid, number of the extra point of the others.
    """

    ordered: tuple[Coded, ...]
    others: tuple[Coded, ...]
    levels: tuple[Floats, ...]
    cube: Floats
    present: NDArray[np.bool_]
    extra: dict[tuple[int, Point], float]
    whole: NDArray[np.bool_]
    origin: tuple[int, ...]
    on_grid: NDArray[np.bool_]
    place: NDArray[np.int64]

    @property
    def span(self) -> Floats:
        return np.array([level[-1] - level[0] for level in self.levels])

    @property
    def n_groups(self) -> int:
        return len(self.cube)

    def share_failing(self, group: int, x: Point) -> float | None:
        """Share of the runs at a point that fail; None where it is unknown."""
        refined = self.extra.get((group, x))
        if refined is not None:
            return refined
        index = self.index(x)
        if index is None:
            return None
        value = float(self.cube[(group, *index)])
        return None if np.isnan(value) else value

    def fails(self, group: int, x: Point) -> bool | None:
        """Whether most runs at a point fail; None where it is unknown."""
        share = self.share_failing(group, x)
        return None if share is None else share >= 0.5

    def index(self, x: Point) -> tuple[int, ...] | None:
        """Position of a point on the grid; None where it is none of its points."""
        index = tuple(at.get(value, -1) for at, value in zip(self._at, x, strict=True))
        return None if min(index) < 0 else index

    @cached_property
    def _at(self) -> tuple[dict[float, int], ...]:
        return tuple({float(v): i for i, v in enumerate(level)} for level in self.levels)

    @cached_property
    def _refined(self) -> dict[int, list[Point]]:
        points: dict[int, list[Point]] = {}
        for group, x in self.extra:
            points.setdefault(group, []).append(x)
        return points

    def share(self, box: Box) -> float:
        """Share of one group's space in a box."""
        low, high = np.array(box[0]), np.array(box[1])
        return float(np.prod((high - low) / self.span))

    def cell_shares(self) -> Floats:
        """Share of the whole space in each cell of one group."""
        share = np.ones(tuple(len(level) - 1 for level in self.levels))
        for k, level in enumerate(self.levels):
            width = np.diff(level) / (level[-1] - level[0])
            share = share * width.reshape((1,) * k + (-1,) + (1,) * (share.ndim - k - 1))
        return share / self.n_groups

    def middle(self, box: Box, k: int) -> float | None:
        """Where a box may be split along a parameter; None where no value lies between."""
        low, high = box[0][k], box[1][k]
        centre = (low + high) / 2
        if self.whole[k]:
            centre = float(np.floor(centre))
        elif self.ordered[k].kind == "time":
            centre = round(centre * SECOND) / SECOND
        return centre if low < centre < high else None

    def value(self, k: int, x: float) -> Any:
        """A value of an ordered parameter as the runs have it."""
        p = self.ordered[k]
        if p.kind == "time":
            nanoseconds = self.origin[k] + round(x * SECOND)
            kind = np.datetime64 if p.values.dtype.kind == "M" else np.timedelta64
            return kind(nanoseconds, "ns")
        return round(x) if self.whole[k] else float(x)

    def state(self, group: int, *, sure: bool = False) -> NDArray[np.int8]:
        """Per cell of the grid whether its corners pass, fail, are mixed or unknown, or absent.

        With `sure` a corner whose runs do not all agree is mixed. Some absent corners count not.
        A cell is mixed if some corner passes and another fails, whatever else is unknown.
        """
        rates = self.cube[group]
        passes, fails = rates < 0.5, rates >= 0.5
        if sure:
            passes, fails = rates < 1, rates > 0
        bits = np.where(np.isnan(rates), 4, passes + 2 * fails).astype(np.int8)
        bits[~self.present[group]] = 0
        for k in range(bits.ndim):
            lead = (slice(None),) * k
            bits = bits[(*lead, slice(None, -1))] | bits[(*lead, slice(1, None))]
        return _STATE_OF_BITS[bits]

    def corners(self, group: int, box: Box) -> list[Point]:
        """The corners of a box that can be run."""
        found = []
        for x in product(*zip(*box, strict=True)):
            index = self.index(x)
            if index is None or self.present[(group, *index)]:
                found.append(x)
        return found

    def touched(self, group: int) -> dict[tuple[int, ...], list[Point]]:
        """Refined points by each cell of the grid that holds them, its faces included."""
        cells: dict[tuple[int, ...], list[Point]] = {}
        for x in self._refined.get(group, []):
            choices = []
            for v, level in zip(x, self.levels, strict=True):
                right = int(np.searchsorted(level, v, side="right")) - 1
                some = {right, right - 1} if right >= 0 and level[right] == v else {right}
                choices.append([i for i in some if 0 <= i < len(level) - 1])
            for cell in product(*choices):
                cells.setdefault(cell, []).append(x)
        return cells

    @cached_property
    def touched_leaves(self) -> tuple[list[Leaf], ...]:
        """Per group the parts of the cells that hold refined points."""
        return tuple(
            [
                leaf
                for cell, inside in self.touched(group).items()
                for leaf in leaves(self, group, self.box(cell), inside)
            ]
            for group in range(self.n_groups)
        )

    def box(self, cell: Sequence[int]) -> Box:
        """Ends of a cell of the grid."""
        low = tuple(float(level[i]) for level, i in zip(self.levels, cell, strict=True))
        high = tuple(float(level[i + 1]) for level, i in zip(self.levels, cell, strict=True))
        return low, high

    def point(self, group: int, x: Sequence[float]) -> dict[str, Any]:
        """The values of a point by parameter."""
        point: dict[str, Any] = {}
        for p in reversed(self.others):
            group, code = divmod(group, p.n)
            point[p.name] = p.values[code]
        for k, p in enumerate(self.ordered):
            point[p.name] = self.value(k, x[k])
        return point


def plane(box: Box, k: int, at: float) -> list[Point]:
    """The corners that splitting a box makes."""
    ends: list[tuple[float, ...]] = [*zip(*box, strict=True)]
    ends[k] = (at,)
    return list(product(*ends))


def halves(box: Box, k: int, at: float) -> tuple[Box, Box]:
    """A box split in two."""
    low, high = box
    return (low, (*high[:k], at, *high[k + 1 :])), ((*low[:k], at, *low[k + 1 :]), high)


@dataclass(frozen=True)
class Leaf:
    """A cell that no known points split further.

    Attributes
    ----------
    group : int
    box : Box
    share : float
        Of the whole space.
    state : {"passes", "fails", "mixed", "unknown"}
        What most runs at its points do; unknown where a corner is, unless others disagree.
    sure : bool
        Whether all runs at all its points agree, and no corner is unknown.
    points : tuple
        Known points it holds: its corners, and others inside.
    """

    group: int
    box: Box
    share: float
    state: State
    sure: bool
    points: tuple[Point, ...]


def leaves(lattice: Lattice, group: int, box: Box, inside: Sequence[Point]) -> Iterator[Leaf]:
    """Parts of a cell, split wherever known points allow it."""
    for k in range(len(box[0])):
        at = lattice.middle(box, k) if inside else None
        if at is None:
            continue
        if all(lattice.share_failing(group, x) is not None for x in plane(box, k, at)):
            lower, upper = halves(box, k, at)
            yield from leaves(lattice, group, lower, [x for x in inside if x[k] <= at])
            yield from leaves(lattice, group, upper, [x for x in inside if x[k] >= at])
            return
    ends = lattice.corners(group, box)
    known = {x: lattice.share_failing(group, x) for x in dict.fromkeys([*ends, *inside])}
    points = tuple(x for x, share in known.items() if share is not None)
    shares = {share for share in known.values() if share is not None}
    whole = all(known[x] is not None for x in ends) and bool(shares)
    most = {share >= 0.5 for share in shares}
    state: State = "mixed" if len(most) == 2 else "unknown"
    if whole and len(most) == 1:
        state = "fails" if most.pop() else "passes"
    sure = whole and (shares == {0.0} or shares == {1.0})
    yield Leaf(group, box, lattice.share(box) / lattice.n_groups, state, sure, points)


def own_parameters(t: Table) -> tuple[Coded, ...]:
    """Design and scenario parameters that a run is given, without what follows from them."""
    derived = set(declared(t.ds).get("derived", {}))
    roles = any("role" in array.attrs for array in t.ds.coords.values())
    axes = {a.name for a in t.axes if a is not None}
    own = []
    for p in varied(t):
        if "[" in p.name and p.name not in t.ds.coords:
            raise UnanswerableError(
                f"{p.name.partition('[')[0]!r} is a vector, whose values cannot be suggested one "
                "by one; select its runs as scenarios instead"
            )
        given = "role" in t.ds.coords[p.name].attrs if roles else True
        if p.name not in derived and given and not (t.grid and p.name not in axes):
            own.append(p)
    if not own:
        raise UnanswerableError("no design or scenario parameter is left to suggest values of")
    return tuple(own)


def lattice_of(t: Table, outcome: NDArray[np.int8]) -> Lattice | None:
    """The cells of a grid, or of the grid that a first stage made; None for scattered runs."""
    if not t.grid and "stage" not in refinement(t.ds):
        return None
    own = own_parameters(t)
    base = np.ones(t.n, dtype=bool) if t.stage is None else t.stage == t.stage.min()
    several = {p.name for p in own if p.ordered and _several(t, p, base)}
    ordered = tuple(p for p in own if p.name in several)
    others = tuple(p for p in own if not p.ordered)
    if not ordered:
        return None
    placed = [numbers_of(t, p) for p in ordered]
    raw = np.stack([numbers for numbers, _ in placed], axis=1)
    levels = tuple(np.unique(raw[base, k]) for k in range(len(ordered)))
    group = np.zeros(t.n, dtype=np.int64)
    for p in others:
        group = group * p.n + p.codes
    shape = (int(np.prod([p.n for p in others], dtype=np.int64)), *map(len, levels))
    on_grid, place = _places(raw, group, levels, shape)
    size = int(np.prod(shape, dtype=np.int64))
    if not t.grid and not _crossed(t, base, place, size):
        return None
    known = outcome <= FAILED
    here = known & on_grid
    n = np.bincount(place[here], minlength=size)
    f = np.bincount(place[here & (outcome == FAILED)], minlength=size)
    with np.errstate(invalid="ignore"):
        cube = (f / n).reshape(shape)
    present = np.bincount(place[on_grid & (outcome != SKIPPED)], minlength=size) > 0
    extra = _refined(raw, group, known & ~on_grid, outcome, place)
    whole = np.array([t.ds.coords[p.name].dtype.kind in "iu" for p in ordered])
    return Lattice(
        ordered,
        others,
        levels,
        cube,
        present.reshape(shape),
        extra,
        whole,
        tuple(origin for _, origin in placed),
        on_grid,
        place,
    )


def _several(t: Table, p: Coded, base: NDArray[np.bool_]) -> bool:
    return p.n > 1 and len(np.unique(p.codes[base])) > 1


def numbers_of(t: Table, p: Coded) -> tuple[Floats, int]:
    """Values of an ordered parameter, one per run; times exactly, in seconds since the first."""
    if p.kind != "time":
        return t.raw(p.name), 0
    nanoseconds = along(t, p.name).astype(f"{p.values.dtype.kind}8[ns]").astype(np.int64)
    origin = int(nanoseconds.min())
    return spread_over(t, p.dims, (nanoseconds - origin) / SECOND), origin


def _places(
    raw: Floats, group: NDArray[np.int64], levels: Sequence[Floats], shape: tuple[int, ...]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which runs lie on the grid, and where."""
    on_grid = np.ones(len(raw), dtype=bool)
    index = [group]
    for k, level in enumerate(levels):
        at = np.searchsorted(level, raw[:, k]).clip(0, len(level) - 1)
        on_grid &= level[at] == raw[:, k]
        index.append(at)
    return on_grid, np.ravel_multi_index(tuple(index), shape).astype(np.int64)


def _crossed(t: Table, base: NDArray[np.bool_], place: NDArray[np.int64], size: int) -> bool:
    """Whether the first stage is a grid: declared as one, or all combinations of its values."""
    said = declared(t.ds).get("parameters")
    if said:
        return all(one["dims"] == [one["name"]] for one in said)
    return len(np.unique(place[base])) == size


def _refined(
    raw: Floats,
    group: NDArray[np.int64],
    those: NDArray[np.bool_],
    outcome: NDArray[np.int8],
    place: NDArray[np.int64],
) -> dict[tuple[int, Point], float]:
    """Refined points, with the share of their runs that fails; numbers them in `place`."""
    frame = pd.DataFrame(raw[those])
    frame.insert(0, "group", group[those])
    columns = list(frame.columns)
    grouped = frame.assign(fails=outcome[those] == FAILED).groupby(columns, sort=False)["fails"]
    place[those] = grouped.ngroup().to_numpy()
    shares = grouped.mean()
    return {
        (int(g), tuple(x)): float(share)
        for (g, *x), share in zip(shares.index.tolist(), shares.tolist(), strict=True)
    }


def required_lattice(t: Table, outcome: NDArray[np.int8]) -> Lattice:
    """The cells of a grid.

    Raises
    ------
    UnanswerableError
        If there are none, or nothing is known of them.
    """
    if not (outcome <= FAILED).any():
        raise UnanswerableError(f"none of {t.n} runs has passed or failed yet")
    lattice = lattice_of(t, outcome)
    if lattice is None:
        raise UnanswerableError(
            "these runs (of the first stage) are no grid of ordered parameters, so there are no "
            "cells to split; scattered runs are a sample, which `rate` takes as it is"
        )
    return lattice

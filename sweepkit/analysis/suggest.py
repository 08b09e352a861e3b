"""Where to run next, and what refined runs then say about the whole space."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import count as counter
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.regions import regions
from sweepkit.analysis.table import (
    FAILED,
    PENDING,
    SKIPPED,
    Coded,
    Errors,
    Failed,
    Floats,
    Table,
    UnanswerableError,
    declared,
    passed_and_failed,
    shown,
    table,
    varied,
)
from sweepkit.grid import Grid, grid, paired
from sweepkit.parameters import values

__all__ = ["Suggestion", "refined_rate", "suggest", "volumes"]

Goal: TypeAlias = Literal["boundary", "rate", "confirm", "replicate"]
Box: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]

MAX_SPLIT_DIMS = 6
"""Splitting a cell takes half its corners anew; beyond this many, edges are bisected instead."""

MAX_UNFIT = 100
"""Cells in a row that take more points than are left before looking for one that does not ends."""

MAX_COMPARED = 200_000
GP_RUNS = 1_000
N_CANDIDATES = 4_000
N_TREES = 200


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Points to run next.

    Attributes
    ----------
    grid : Grid
        The points along one dim (crossed with the replicates of the runs, if any): what a
        `Sweep` of the same simulator accepts.
    points : DataFrame
        One row per point: its parameters, ``reason`` and ``score`` (larger is more wanted).
    goal : str
        What they are for.
    method : str
        How they were found, and what they rest on.
    """

    grid: Grid = field(repr=False)
    points: pd.DataFrame
    goal: str
    method: str


def suggest(
    ds: xr.Dataset | Table,
    n: int,
    goal: Goal = "boundary",
    *,
    explore: float = 0.1,
    dim: str = "point",
    seed: int = 0,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> Suggestion:
    """Points to run next, each with its reason.

    Parameters
    ----------
    ds : Dataset or Table
    n : int
        Points, at most; fewer where no more are worth running.
    goal : {"boundary", "rate", "confirm", "replicate"}
        "boundary": where passing turns into failing. On a grid, cells whose corners disagree are
        split, the largest first; of scattered runs with a margin of continuous parameters, up to
        1,000 of them, a Gaussian process says where its sign is least sure (straddle); otherwise
        Extra-Trees say where the outcome is least sure. "rate": where the overall failure rate is
        undecided. "confirm": in the boxes that `regions` finds and just outside their limits.
        "replicate": more replicates of the points whose failure rate is least sure.
    explore : float
        Share of the points kept for where nothing has been seen, between 0 and 1.
    dim : str
        Dim of the suggested grid.
    seed : int
        Of what is drawn.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    Suggestion

    Raises
    ------
    UnanswerableError
        If what is known does not tell where: all pass, all fail, nothing has run, no replicates.
    ImportError
        If scikit-learn, which scattered runs need, is not installed.

    References
    ----------
    B. Bryan et al., NIPS 18 (2005), 163-170, for straddle; P. Geurts, D. Ernst and L. Wehenkel,
    Mach. Learn. 63 (2006), 3-42, for Extra-Trees.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [False, False, True])}, coords={"a": [0.0, 1.0, 2.0]})
    >>> suggest(ds, 1, explore=0).points["a"].tolist()
    [1.5]
    """
    if n < 1:
        raise ValueError(f"n={n!r} points; at least 1")
    if not 0 <= explore <= 1:
        raise ValueError(f"explore={explore!r} must lie between 0 and 1, as 0.1 does")
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    ways: dict[str, Callable[[_Asked], tuple[list[_Point], str]]] = {
        "boundary": _boundary,
        "rate": _rate,
        "confirm": _confirm,
        "replicate": _replicate,
    }
    if goal not in ways:
        raise ValueError(f"goal={goal!r} is none of {', '.join(map(repr, ways))}")
    outcome = t.counted(errors)
    asked = _Asked(t, outcome, n, explore, np.random.default_rng([seed, 104729]), errors)
    points, method = ways[goal](asked)
    points = _new(t, points)
    if not points:
        raise UnanswerableError(
            "no new point is worth running: what is undecided is as small as the parameters' "
            "values allow, or has run already"
        )
    return _suggestion(t, points[:n], goal, method, dim)


@dataclass(frozen=True)
class _Point:
    """Values by parameter, the reason, and how much it is wanted."""

    at: dict[str, Any]
    reason: str
    score: float


@dataclass(frozen=True, eq=False)
class _Asked:
    """What a way of suggesting is handed."""

    t: Table
    outcome: NDArray[np.int8]
    n: int
    explore: float
    rng: np.random.Generator
    errors: Errors

    @property
    def n_explore(self) -> int:
        return min(round(self.explore * self.n), self.n)


def _own(t: Table) -> tuple[Coded, ...]:
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


def _new(t: Table, points: list[_Point]) -> list[_Point]:
    """The points without repeats and without those that have run or are going to."""
    names = list(points[0].at) if points else []
    if not names or t.n > MAX_COMPARED:
        there = set()
    else:
        columns = _as_run(t, tuple(t[name] for name in names))
        there = set(zip(*(columns[name].tolist() for name in names), strict=True))
    new = []
    for point in points:
        key = tuple(np.asarray(v).tolist() if isinstance(v, np.generic) else v
                    for v in point.at.values())  # fmt: skip
        if key not in there:
            there.add(key)
            new.append(point)
    return new


def _suggestion(
    t: Table, points: list[_Point], goal: str, method: str, dim: str
) -> Suggestion:
    names = list(points[0].at)
    columns: dict[str, Any] = {}
    for name in names:
        array = t.ds.coords[name]
        data = np.array([p.at[name] for p in points], dtype=object)
        if array.dtype.kind in "biufmM":
            data = data.astype(array.dtype)
        columns[name] = data
    frame = pd.DataFrame(columns)
    frame["reason"] = [p.reason for p in points]
    frame["score"] = [p.score for p in points]

    def described(name: str, data: Any) -> Any:
        attrs = t.ds.coords[name].attrs
        return values(
            data if data.dtype.kind != "O" else data.tolist(),
            role=str(attrs.get("role", "design")),
            units=attrs.get("units"),
            long_name=attrs.get("long_name"),
        )

    together = paired({name: described(name, columns[name]) for name in names}, dim=dim)
    repeated = [p for p in t.parameters if p.role == "replicate" and p.name not in names]
    crossed = {p.name: described(p.name, p.values) for p in repeated}
    if not crossed:
        return Suggestion(together, frame, goal, method)
    if list(crossed) == ["replicate"] and repeated[0].values.tolist() == list(range(repeated[0].n)):
        return Suggestion(grid(together, replicates=repeated[0].n), frame, goal, method)
    return Suggestion(grid(together, crossed), frame, goal, method)


# Cells of a grid


@dataclass(frozen=True, eq=False)
class _Lattice:
    """A grid's cells and every point known, in refined ones too.

    Attributes
    ----------
    ordered, others : tuple of Coded
        Parameters whose values have cells between them, and those whose values stand apart.
    levels : tuple of array
        Values of the ordered ones on the grid.
    known : dict
        (group, values) of a point -> whether it fails.
    of_run : list
        The point of each run; None where its outcome is unknown.
    extra : dict
        Group -> array of refined points, shape (points, ordered parameters).
    """

    ordered: tuple[Coded, ...]
    others: tuple[Coded, ...]
    levels: tuple[Floats, ...]
    known: dict[tuple[int, tuple[float, ...]], bool]
    extra: dict[int, Floats]
    whole: NDArray[np.bool_]

    @property
    def span(self) -> Floats:
        return np.array([level[-1] - level[0] for level in self.levels])

    @property
    def n_groups(self) -> int:
        return int(np.prod([p.n for p in self.others], dtype=np.int64))

    def share(self, box: Box) -> float:
        """Share of one group's space in a box."""
        low, high = np.array(box[0]), np.array(box[1])
        return float(np.prod((high - low) / self.span))

    def corners(self, box: Box) -> list[tuple[float, ...]]:
        return list(product(*zip(*box, strict=True)))

    def middle(self, box: Box, k: int) -> float | None:
        """Where a box may be split along a parameter; None where no value lies between."""
        low, high = box[0][k], box[1][k]
        centre = (low + high) / 2
        if self.whole[k]:
            centre = float(np.floor(centre))
        return centre if low < centre < high else None

    def plane(self, box: Box, k: int, at: float) -> list[tuple[float, ...]]:
        """The corners that splitting a box makes."""
        ends: list[tuple[float, ...]] = [*zip(*box, strict=True)]
        ends[k] = (at,)
        return list(product(*ends))

    def halves(self, box: Box, k: int, at: float) -> tuple[Box, Box]:
        low, high = box
        return (low, (*high[:k], at, *high[k + 1 :])), ((*low[:k], at, *low[k + 1 :]), high)


@dataclass(frozen=True)
class _Leaf:
    """A cell that no known points split further."""

    group: int
    box: Box
    share: float
    state: Literal["passes", "fails", "mixed"]
    points: tuple[tuple[float, ...], ...]
    """Known points it holds: its corners, and others inside."""


def _lattice(t: Table, outcome: NDArray[np.int8]) -> _Lattice | None:
    """The cells of a grid, or of the grid that a first stage made; None for scattered runs."""
    own = _own(t)
    base = np.ones(t.n, dtype=bool) if t.stage is None else t.stage == t.stage.min()
    if not t.grid and "stage" not in t.ds.variables:
        return None
    ordered = tuple(p for p in own if p.ordered and len(np.unique(t.raw(p.name)[base])) > 1)
    others = tuple(p for p in own if not p.ordered)
    if not ordered:
        return None
    if any(p.kind == "time" for p in ordered):
        raise UnanswerableError("cells along times are not split; give times as numbers")
    raw = np.stack([t.raw(p.name) for p in ordered], axis=1)
    levels = tuple(np.unique(raw[base, k]) for k in range(len(ordered)))
    group = np.zeros(t.n, dtype=np.int64)
    for p in others:
        group = group * p.n + p.codes
    if not t.grid:
        made = len(np.unique(np.column_stack([raw[base], group[base]]), axis=0))
        size = int(np.prod([len(level) for level in levels], dtype=np.int64))
        if made < size * int(np.prod([p.n for p in others], dtype=np.int64)):
            return None
    known, extra = _known(t, outcome, raw, group, base)
    whole = np.array([t.ds.coords[p.name].dtype.kind in "iu" for p in ordered])
    return _Lattice(ordered, others, levels, known, extra, whole)


def _known(
    t: Table,
    outcome: NDArray[np.int8],
    raw: Floats,
    group: NDArray[np.int64],
    base: NDArray[np.bool_],
) -> tuple[dict[tuple[int, tuple[float, ...]], bool], dict[int, Floats]]:
    """What each point is known to do (most of its replicates), and the refined points."""
    ended = outcome <= FAILED
    frame = pd.DataFrame(raw[ended])
    frame.insert(0, "group", group[ended])
    frame["fails"] = outcome[ended] == FAILED
    frame["base"] = base[ended]
    keys = [c for c in frame.columns if c not in ("fails", "base")]
    points = frame.groupby(keys, sort=False).agg({"fails": "mean", "base": "max"}).reset_index()
    at = points[keys[1:]].to_numpy(dtype=np.float64)
    groups = points["group"].to_numpy(dtype=np.int64)
    fails = points["fails"].to_numpy() >= 0.5
    known = {
        (int(g), tuple(x)): bool(f) for g, x, f in zip(groups, at.tolist(), fails, strict=True)
    }
    added = ~points["base"].to_numpy(dtype=bool)
    extra = {int(g): at[added & (groups == g)] for g in np.unique(groups[added])}
    return known, extra


def _base_state(lattice: _Lattice, group: int) -> NDArray[np.int8]:
    """Per cell of the grid: 0 passes, 1 fails, 2 mixed, by its corners."""
    shape = tuple(len(level) for level in lattice.levels)
    cube = np.full(shape, -1, dtype=np.int8)
    at = [{float(v): i for i, v in enumerate(level)} for level in lattice.levels]
    for (g, x), fails in lattice.known.items():
        if g == group:
            index = tuple(a.get(v, -1) for a, v in zip(at, x, strict=True))
            if min(index) >= 0:
                cube[index] = fails
    low, high = cube.copy(), cube.copy()
    for k in range(len(shape)):
        lead = (slice(None),) * k
        first, second = (*lead, slice(None, -1)), (*lead, slice(1, None))
        low = np.minimum(low[first], low[second])
        high = np.maximum(high[first], high[second])
    return np.where((low == high) & (low >= 0), low, 2).astype(np.int8)


def _touched(lattice: _Lattice, group: int) -> dict[tuple[int, ...], list[tuple[float, ...]]]:
    """Refined points by each cell of the grid that holds them, its faces included."""
    cells: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
    for x in lattice.extra.get(group, np.empty((0, len(lattice.levels)))).tolist():
        choices = []
        for v, level in zip(x, lattice.levels, strict=True):
            right = int(np.searchsorted(level, v, side="right")) - 1
            some = {right, right - 1} if right >= 0 and level[right] == v else {right}
            choices.append([i for i in some if 0 <= i < len(level) - 1])
        for cell in product(*choices):
            cells.setdefault(cell, []).append(tuple(x))
    return cells


def _box_of(lattice: _Lattice, cell: Sequence[int]) -> Box:
    low = tuple(float(level[i]) for level, i in zip(lattice.levels, cell, strict=True))
    high = tuple(float(level[i + 1]) for level, i in zip(lattice.levels, cell, strict=True))
    return low, high


def _leaves(
    lattice: _Lattice, group: int, box: Box, inside: Sequence[tuple[float, ...]]
) -> Iterator[_Leaf]:
    """Parts of a cell, split wherever known points allow it."""
    known = lattice.known
    for k in range(len(box[0])):
        at = lattice.middle(box, k) if inside else None
        if at is None:
            continue
        if all((group, x) in known for x in lattice.plane(box, k, at)):
            lower, upper = lattice.halves(box, k, at)
            yield from _leaves(lattice, group, lower, [x for x in inside if x[k] <= at])
            yield from _leaves(lattice, group, upper, [x for x in inside if x[k] >= at])
            return
    corners = [x for x in lattice.corners(box) if (group, x) in known]
    points = tuple(dict.fromkeys([*corners, *inside]))
    states = {known[group, x] for x in points}
    whole = len(corners) == 2 ** len(box[0])
    state: Literal["passes", "fails", "mixed"] = "mixed"
    if whole and len(states) == 1:
        state = "fails" if states.pop() else "passes"
    yield _Leaf(group, box, lattice.share(box) / lattice.n_groups, state, points)


def _mixed_leaves(lattice: _Lattice, t: Table) -> Iterator[_Leaf]:
    """Leaves that are undecided, over all groups."""
    for group in range(lattice.n_groups):
        state = _base_state(lattice, group)
        touched = _touched(lattice, group)
        cells = {tuple(c) for c in np.argwhere(state == 2).tolist()} | set(touched)
        for cell in sorted(cells):
            for leaf in _leaves(lattice, group, _box_of(lattice, cell), touched.get(cell, [])):
                if leaf.state == "mixed":
                    yield leaf


def volumes(
    ds: xr.Dataset | Table,
    *,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> xr.DataArray:
    """Share of the parameter space that each run of a refined grid stands for.

    Each cell is split as far as its known points allow; what is left is shared equally by the
    points it holds. Without refinement these are the weights of the trapezoid rule.

    Parameters
    ----------
    ds : Dataset or Table
        A grid, or runs of a grid and its refinements with a coordinate ``stage``.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataArray
        Over the run dims, dimensionless, with sum 1; 0 for runs whose outcome is unknown.
        ``ds.assign_coords(volume=volumes(ds))`` lets every rate weigh by it.

    Raises
    ------
    UnanswerableError
        If the runs (of the first stage) are no grid, or none has passed or failed.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [False, False, True])}, coords={"a": [0.0, 1.0, 2.0]})
    >>> volumes(ds).values.tolist()
    [0.25, 0.5, 0.25]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    outcome = t.counted(errors)
    lattice = _required_lattice(t, outcome)
    weight: dict[tuple[int, tuple[float, ...]], float] = {}
    for group in range(lattice.n_groups):
        touched = _touched(lattice, group)
        plain = np.ones(tuple(len(level) - 1 for level in lattice.levels), dtype=bool)
        for cell, inside in touched.items():
            plain[cell] = False
            for leaf in _leaves(lattice, group, _box_of(lattice, cell), inside):
                for x in leaf.points:
                    weight[group, x] = weight.get((group, x), 0.0) + leaf.share / len(leaf.points)
        for x, share in _plain_shares(lattice, plain):
            if share > 0:
                weight[group, x] = weight.get((group, x), 0.0) + share / lattice.n_groups
    flat = _of_runs(t, lattice, outcome, weight)
    total = flat.sum()
    return xr.DataArray(
        (flat / total if total else flat).reshape(t.shape),
        dims=t.dims,
        name="volume",
        attrs={"units": "1", "long_name": "share of the parameter space"},
    )


def _plain_shares(
    lattice: _Lattice, plain: NDArray[np.bool_]
) -> Iterator[tuple[tuple[float, ...], float]]:
    """Share of each grid point in the cells that nothing refined."""
    d = plain.ndim
    volume = plain.astype(np.float64)
    for k, level in enumerate(lattice.levels):
        width = np.diff(level) / (level[-1] - level[0])
        volume = volume * width.reshape((1,) * k + (-1,) + (1,) * (d - k - 1))
    share = np.zeros(tuple(len(level) for level in lattice.levels))
    for offset in product((0, 1), repeat=d):
        part = tuple(slice(o, n - 1 + o) for o, n in zip(offset, share.shape, strict=True))
        share[part] += volume / 2**d
    for index in np.argwhere(share > 0):
        x = tuple(float(level[i]) for level, i in zip(lattice.levels, index, strict=True))
        yield x, float(share[tuple(index)])


def _of_runs(
    t: Table,
    lattice: _Lattice,
    outcome: NDArray[np.int8],
    weight: dict[tuple[int, tuple[float, ...]], float],
) -> Floats:
    """Weights of points as weights of their runs, replicates alike."""
    raw = np.stack([t.raw(p.name) for p in lattice.ordered], axis=1)
    group = np.zeros(t.n, dtype=np.int64)
    for p in lattice.others:
        group = group * p.n + p.codes
    known = np.flatnonzero(outcome <= FAILED)
    keys = [(int(g), tuple(x)) for g, x in zip(group[known], raw[known].tolist(), strict=True)]
    number: dict[tuple[int, tuple[float, ...]], int] = {}
    for key in keys:
        number[key] = number.get(key, 0) + 1
    flat = np.zeros(t.n)
    flat[known] = [weight.get(key, 0.0) / number[key] for key in keys]
    return flat


def _required_lattice(t: Table, outcome: NDArray[np.int8]) -> _Lattice:
    if not (outcome <= FAILED).any():
        raise UnanswerableError(f"none of {t.n} runs has passed or failed yet")
    lattice = _lattice(t, outcome)
    if lattice is None:
        raise UnanswerableError(
            "these runs (of the first stage) are no grid of ordered parameters, so there are no "
            "cells to split; scattered runs are a sample, which `rate` takes as it is"
        )
    return lattice


def refined_rate(
    ds: xr.Dataset | Table,
    *,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """Share of the parameter space that fails, with bounds by volume.

    A cell whose known points all agree is taken to be as they are; the others are undecided. So
    the bounds hold if nothing smaller than a cell hides between points that agree.

    Parameters
    ----------
    ds : Dataset or Table
        A grid, or runs of a grid and its refinements with a coordinate ``stage``.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        One row: ``rate`` (each cell as its points on average), ``low`` (share of cells that
        fail), ``high`` (with the undecided), ``undecided``, ``plain_rate`` (share of runs that
        fail, which refinement biases), ``n_run``, ``n_failed``, ``n_unknown``, ``basis``.

    Raises
    ------
    UnanswerableError
        If the runs (of the first stage) are no grid, or none has passed or failed.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [False, False, True])}, coords={"a": [0.0, 1.0, 2.0]})
    >>> refined_rate(ds)[["rate", "low", "high"]].values.tolist()
    [[0.25, 0.0, 0.5]]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    outcome = t.counted(errors)
    lattice = _required_lattice(t, outcome)
    fails, undecided = 0.0, 0.0
    for group in range(lattice.n_groups):
        state = _base_state(lattice, group)
        share = np.ones(state.shape)
        for k, level in enumerate(lattice.levels):
            width = np.diff(level) / (level[-1] - level[0])
            share = share * width.reshape((1,) * k + (-1,) + (1,) * (state.ndim - k - 1))
        share /= lattice.n_groups
        touched = _touched(lattice, group)
        for cell, inside in touched.items():
            share[cell] = 0.0
            for leaf in _leaves(lattice, group, _box_of(lattice, cell), inside):
                fails += leaf.share * (leaf.state == "fails")
                undecided += leaf.share * (leaf.state == "mixed")
        fails += float(share[state == 1].sum())
        undecided += float(share[state == 2].sum())
    weight = volumes(t).values.reshape(-1)
    f, ended = outcome == FAILED, outcome <= FAILED
    row = {
        "rate": float(weight[f].sum()),
        "low": fails,
        "high": min(fails + undecided, 1.0),
        "undecided": undecided,
        "plain_rate": float(f.sum() / ended.sum()),
        "n_run": int(ended.sum()),
        "n_failed": int(f.sum()),
        "n_unknown": int((~ended & (outcome != SKIPPED)).sum()),
        "basis": "refined",
    }
    frame = pd.DataFrame([row])
    frame.attrs["basis"] = "volume of cells whose points agree; the others are undecided"
    return frame


# Ways of suggesting


def _boundary(asked: _Asked) -> tuple[list[_Point], str]:
    passed_and_failed(asked.t, asked.errors)
    lattice = _lattice(asked.t, asked.outcome)
    if lattice is None:
        return _boundary_of_sample(asked)
    points = _explored(asked, lattice, asked.n_explore)
    taken = {_key(p.at) for p in points}
    wanted = asked.n - len(points)
    split = _split if len(lattice.ordered) <= MAX_SPLIT_DIMS else _bisect
    points = [*split(asked, lattice, wanted, taken), *points]
    how = "split" if split is _split else "bisected along their edges"
    return points, f"cells whose corners disagree are {how}, the largest first"


def _key(at: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(at.values())


def _in_order(asked: _Asked, lattice: _Lattice) -> list[tuple[float, float, int, _Leaf]]:
    """Undecided leaves as a heap, the largest first, equals in random order."""
    leaves = list(_mixed_leaves(lattice, asked.t))
    chance = asked.rng.random(len(leaves)).tolist()
    heap = [(-leaf.share, chance[k], k, leaf) for k, leaf in enumerate(leaves)]
    heapq.heapify(heap)
    return heap


def _split(
    asked: _Asked, lattice: _Lattice, wanted: int, taken: set[tuple[Any, ...]]
) -> list[_Point]:
    points: list[_Point] = []
    heap = _in_order(asked, lattice)
    number = counter(len(heap))
    full = 0
    while heap and len(points) < wanted and full < MAX_UNFIT:
        leaf = heapq.heappop(heap)[-1]
        best = _best_cut(lattice, leaf)
        if best is None:
            continue
        k, at = best
        new = []
        for x in lattice.plane(leaf.box, k, at):
            point = _as_point(lattice, leaf.group, x)
            if (leaf.group, x) not in lattice.known and _key(point) not in taken:
                new.append(point)
        if len(points) + len(new) > wanted:
            full += 1
            continue
        name = lattice.ordered[k].name
        for point in new:
            taken.add(_key(point))
            reason = (
                f"corners disagree: splits {name} {shown(leaf.box[0][k])} to "
                f"{shown(leaf.box[1][k])}, a cell of {100 * leaf.share:.3g} % of the space"
            )
            points.append(_Point(point, reason, leaf.share))
        # With runs to spare both halves are split too, whatever their new corners may say.
        for half in lattice.halves(leaf.box, k, at):
            part = replace(leaf, box=half, share=leaf.share / 2)
            heapq.heappush(heap, (-part.share, float(asked.rng.random()), next(number), part))
    return points


def _best_cut(lattice: _Lattice, leaf: _Leaf) -> tuple[int, float] | None:
    """The parameter to split a cell along: wide, and across which the outcome changes."""
    best: tuple[float, int, float] | None = None
    known, box = lattice.known, leaf.box
    for k in range(len(box[0])):
        at = lattice.middle(box, k)
        if at is None:
            continue
        below = lattice.plane((box[0], box[1]), k, box[0][k])
        above = lattice.plane((box[0], box[1]), k, box[1][k])
        differ = sum(
            known.get((leaf.group, a)) != known.get((leaf.group, b))
            for a, b in zip(below, above, strict=True)
        )
        wide = (box[1][k] - box[0][k]) / lattice.span[k]
        score = wide * (0.25 + differ / len(below))
        if best is None or score > best[0] + 1e-12:
            best = (score, k, at)
    return None if best is None else (best[1], best[2])


def _bisect(
    asked: _Asked, lattice: _Lattice, wanted: int, taken: set[tuple[Any, ...]]
) -> list[_Point]:
    """Middles of cell edges whose ends disagree: one point each, in any number of dims."""
    points: list[_Point] = []
    heap = _in_order(asked, lattice)
    while heap and len(points) < wanted:
        leaf = heapq.heappop(heap)[-1]
        edges = []
        for x in lattice.corners(leaf.box):
            for k in range(len(x)):
                y = (*x[:k], leaf.box[1][k], *x[k + 1 :])
                pair = [lattice.known.get((leaf.group, end)) for end in (x, y)]
                at = lattice.middle(leaf.box, k)
                if x != y and at is not None and None not in pair and pair[0] != pair[1]:
                    edges.append((*x[:k], at, *x[k + 1 :]))
        if not edges:
            continue
        x = edges[int(asked.rng.integers(len(edges)))]
        point = _as_point(lattice, leaf.group, x)
        if _key(point) in taken or (leaf.group, x) in lattice.known:
            continue
        taken.add(_key(point))
        share = f"{100 * leaf.share:.3g} % of the space"
        reason = f"between a point that passes and one that fails, in a cell of {share}"
        points.append(_Point(point, reason, leaf.share))
    return points


def _as_point(lattice: _Lattice, group: int, x: Sequence[float]) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for p in reversed(lattice.others):
        group, code = divmod(group, p.n)
        point[p.name] = p.values[code]
    for k, (p, value) in enumerate(zip(lattice.ordered, x, strict=True)):
        point[p.name] = round(value) if lattice.whole[k] else float(value)
    return point


def _explored(asked: _Asked, lattice: _Lattice, n: int) -> list[_Point]:
    """Points inside cells whose corners agree, where something small could hide."""
    points: list[_Point] = []
    taken: set[tuple[Any, ...]] = set()
    state = {g: _base_state(lattice, g) for g in range(lattice.n_groups)}
    quiet = [(g, cell) for g, s in state.items() for cell in np.argwhere(s != 2)]
    for at in asked.rng.permutation(len(quiet))[: 4 * n]:
        group, cell = quiet[int(at)]
        box = _box_of(lattice, cell.tolist())
        x = []
        for k, (low, high) in enumerate(zip(*box, strict=True)):
            value = asked.rng.uniform(low, high)
            x.append(float(round(value)) if lattice.whole[k] else value)
        point = _as_point(lattice, group, x)
        if (group, tuple(x)) in lattice.known or _key(point) in taken:
            continue
        taken.add(_key(point))
        word = "fails" if state[group][tuple(cell)] == 1 else "passes"
        share = lattice.share(box) / lattice.n_groups
        reason = f"unexplored: inside a cell whose every corner {word}"
        points.append(_Point(point, reason, share))
        if len(points) == n:
            break
    return points


def _boundary_of_sample(asked: _Asked) -> tuple[list[_Point], str]:
    t = asked.t
    own = _own(t)
    known = asked.outcome <= FAILED
    candidates = _candidates(asked, own, N_CANDIDATES)
    margin = _margin_of(t, known) if all(p.kind == "number" for p in own) else None
    if margin is not None and int(known.sum()) <= GP_RUNS:
        unsure = _straddle(asked, own, known, margin, candidates)
        if unsure is not None:
            points = _spaced(asked, own, candidates, unsure, "the sign of the margin is unsure")
            return points, "Gaussian process of the margin, straddle"
    chance = _forest(asked, own, known, candidates)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nan_to_num(chance * np.log2(chance))
        entropy -= np.nan_to_num((1 - chance) * np.log2(1 - chance))
    points = _spaced(asked, own, candidates, entropy, "the outcome is unsure", chance)
    return points, f"Extra-Trees of {int(known.sum())} runs, entropy of the outcome"


def _candidates(asked: _Asked, own: tuple[Coded, ...], n: int) -> dict[str, NDArray[Any]]:
    """Points to choose from: each parameter spread as it was run, drawn apart from the others."""
    drawn: dict[str, NDArray[Any]] = {}
    for p in own:
        array = asked.t.ds.coords[p.name].values
        if p.kind == "number" and array.dtype.kind == "f":
            some = np.sort(np.unique(asked.t.raw(p.name)))
            drawn[p.name] = np.asarray(np.quantile(some, asked.rng.random(n)))
        else:
            drawn[p.name] = asked.rng.choice(array.reshape(-1), n)
    return drawn


def _features(
    own: tuple[Coded, ...], columns: dict[str, NDArray[Any]], t: Table
) -> Floats:
    """Parameters as numbers for a model: ordered ones in shares of their range, others one-hot."""
    features = []
    for p in own:
        values_ = np.asarray(columns[p.name])
        if p.kind == "number":
            low, high = float(p.lower[0]), float(p.upper[-1])
            features.append((values_.astype(np.float64) - low) / ((high - low) or 1.0))
        elif p.kind == "time":
            numbers = values_.astype(p.values.dtype).astype(np.int64).astype(np.float64)
            ends = p.values.astype(np.int64)
            features.append((numbers - ends[0]) / (float(ends[-1] - ends[0]) or 1.0))
        else:
            features += [(values_ == value).astype(np.float64) for value in p.values.tolist()]
    return np.stack(features, axis=1)


def _as_run(t: Table, own: tuple[Coded, ...]) -> dict[str, NDArray[Any]]:
    """The parameters' own values, one per run."""
    shape = dict(zip(t.dims, t.shape, strict=True))
    return {
        p.name: t.ds.coords[p.name].expand_dims(
            {d: shape[d] for d in t.dims if d not in t.ds.coords[p.name].dims}
        ).transpose(*t.dims).values.reshape(-1)
        for p in own
    }  # fmt: skip


def _margin_of(t: Table, known: NDArray[np.bool_]) -> Floats | None:
    """The smallest margin per run, each in its own standard deviations; None without one."""
    if not t.requirements:
        return None
    from sweepkit.reading import margin

    margins = margin(t.ds, t.requirements).transpose(*t.dims, "requirement").values
    margins = margins.reshape(t.n, -1).astype(np.float64)
    if not np.isfinite(margins[known]).all():
        return None
    scale = margins[known].std(axis=0)
    if not (scale > 0).any():
        return None
    smallest: Floats = (margins / np.where(scale > 0, scale, 1.0)).min(axis=1)
    return smallest


def _sklearn(module: str) -> Any:
    try:
        return import_module(f"sklearn.{module}")
    except ImportError as error:
        raise ImportError(
            "suggesting from scattered runs needs scikit-learn, which the extra 'analysis' "
            f"brings: pip install 'sweepkit[analysis]' ({error})"
        ) from error


def _straddle(
    asked: _Asked,
    own: tuple[Coded, ...],
    known: NDArray[np.bool_],
    margin: Floats,
    candidates: dict[str, NDArray[Any]],
) -> Floats | None:
    """1.96 standard deviations less the distance of the margin from 0; None if a GP fits badly."""
    import warnings

    gaussian, kernels = _sklearn("gaussian_process"), _sklearn("gaussian_process.kernels")
    x = _features(own, {k: v[known] for k, v in _as_run(asked.t, own).items()}, asked.t)
    y = margin[known].clip(*np.quantile(margin[known], [0.02, 0.98]))
    kernel = kernels.ConstantKernel(1.0) * kernels.RBF(np.full(x.shape[1], 0.3))
    kernel += kernels.WhiteKernel(1e-2)
    model = gaussian.GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    fold = asked.rng.random(len(x)) < 0.25
    with warnings.catch_warnings():
        # A length scale at its end says that a parameter does not matter, which is no fault.
        warnings.simplefilter("ignore")
        if fold.any() and not fold.all() and len(x) >= 20:
            guess = model.fit(x[~fold], y[~fold]).predict(x[fold])
            error = float(np.mean((guess - y[fold]) ** 2))
            if not error < 0.5 * float(np.var(y)):
                return None
        mean, deviation = model.fit(x, y).predict(
            _features(own, candidates, asked.t), return_std=True
        )
    unsure: Floats = 1.96 * deviation - np.abs(mean)
    return unsure


def _forest(
    asked: _Asked,
    own: tuple[Coded, ...],
    known: NDArray[np.bool_],
    candidates: dict[str, NDArray[Any]],
) -> Floats:
    """Chance of failure at each candidate."""
    ensemble = _sklearn("ensemble")
    runs = np.flatnonzero(known)
    if len(runs) > 50_000:
        runs = asked.rng.choice(runs, 50_000, replace=False)
    x = _features(own, {k: v[runs] for k, v in _as_run(asked.t, own).items()}, asked.t)
    fails = asked.outcome[runs] == FAILED
    model = ensemble.ExtraTreesClassifier(N_TREES, min_samples_leaf=2, random_state=0)
    model.fit(x, fails)
    chances = model.predict_proba(_features(own, candidates, asked.t))
    classes = [bool(c) for c in model.classes_]
    if True not in classes:
        return np.zeros(len(chances))
    chance: Floats = chances[:, classes.index(True)]
    return chance


def _spaced(
    asked: _Asked,
    own: tuple[Coded, ...],
    candidates: dict[str, NDArray[Any]],
    score: Floats,
    why: str,
    chance: Floats | None = None,
) -> list[_Point]:
    """The best candidates, apart from each other and from runs, and some far from everything."""
    from scipy.spatial import cKDTree

    x = _features(own, candidates, asked.t)
    runs = _features(own, _as_run(asked.t, own), asked.t)
    far: Floats = np.asarray(cKDTree(runs).query(x)[0])
    n_best = asked.n - asked.n_explore
    points: list[_Point] = []
    free = np.ones(len(x), dtype=bool)
    value = score - score.min() + 1e-9
    nearest: Floats = np.array(far, dtype=np.float64)
    for k in range(min(asked.n, len(x))):
        # What lies close to a point already chosen tells little more.
        worth = value * np.minimum(nearest, np.median(far)) if k < n_best else nearest
        best = int(np.argmax(np.where(free, worth, -np.inf)))
        free[best] = False
        nearest = np.minimum(nearest, np.linalg.norm(x - x[best], axis=1))
        at = {p.name: candidates[p.name][best] for p in own}
        reason = "unexplored: far from every run"
        if k < n_best:
            reason = why
            if chance is not None:
                reason = f"{why}: {100 * chance[best]:.0f} % chance of failing"
        points.append(_Point(at, reason, float(worth[best])))
    return points


def _rate(asked: _Asked) -> tuple[list[_Point], str]:
    t = asked.t
    lattice = _lattice(t, asked.outcome)
    known = asked.outcome <= FAILED
    if lattice is None:
        own = _own(t)
        drawn = _candidates(asked, own, asked.n)
        f, m = int((asked.outcome == FAILED).sum()), int(known.sum())
        now = np.diff(failure_interval(f, m))[0] if m else 1.0
        then = np.diff(failure_interval(f / m * (m + asked.n) if m else 0, m + asked.n))[0]
        reason = f"independent sample: the interval's width goes from {now:.2g} to about {then:.2g}"
        points = [
            _Point({p.name: drawn[p.name][k] for p in own}, reason, float(now - then))
            for k in range(asked.n)
        ]
        return points, "independent runs, each parameter spread as it was run"
    leaves = list(_mixed_leaves(lattice, t))
    points = _explored(asked, lattice, asked.n_explore if leaves else asked.n)
    taken = {_key(p.at) for p in points}
    points = [*_split(asked, lattice, asked.n - len(points), taken), *points]
    return points, "the undecided cells, the largest first: their volume is what bounds the rate"


def _confirm(asked: _Asked) -> tuple[list[_Point], str]:
    t = asked.t
    found = regions(t, errors=asked.errors)
    boxes = [b for b in found.boxes["limits"] if b]
    if not boxes:
        raise UnanswerableError("no box of failures was found, so there is none to confirm")
    own = _own(t)
    inside, outside = (asked.n + 1) // 2, asked.n // 2
    points: list[_Point] = []
    for k in range(asked.n):
        limits = boxes[k % len(boxes)]
        text = found.boxes["text"].iloc[k % len(boxes)]
        drawn = {name: v[0] for name, v in _candidates(asked, own, 1).items()}
        for name, limit in limits.items():
            if name in drawn:
                drawn[name] = _inside(asked, t, name, limit)
        reason = f"inside the box {text}"
        ends = _open_ends(t, limits, drawn)
        if k >= inside and ends:
            name, low, high = ends[(k - inside) // len(boxes) % len(ends)]
            drawn[name] = _cast(t, name, asked.rng.uniform(low, high))
            reason = f"just outside the limit on {name} of the box {text}"
        points.append(_Point(drawn, reason, float(found.boxes["density"].iloc[k % len(boxes)])))
    return points, f"{inside} points inside and up to {outside} just outside {len(boxes)} boxes"


def _inside(asked: _Asked, t: Table, name: str, limit: Any) -> Any:
    if isinstance(limit, tuple):
        if t[name].kind != "number":
            return limit[int(asked.rng.integers(2))]
        return _cast(t, name, asked.rng.uniform(float(limit[0]), float(limit[1])))
    some = sorted(limit, key=str)
    return some[int(asked.rng.integers(len(some)))]


def _open_ends(
    t: Table, limits: dict[str, Any], drawn: dict[str, Any]
) -> list[tuple[str, float, float]]:
    """Where one may step just outside a box: parameter, from, to."""
    ends = []
    for name, limit in limits.items():
        p = t[name]
        if name not in drawn or p.kind != "number" or not isinstance(limit, tuple):
            continue
        least, most = float(p.lower[0]), float(p.upper[-1])
        low, high = float(limit[0]), float(limit[1])
        step = 0.1 * (most - least)
        if low > least:
            ends.append((name, max(low - step, least), low))
        if high < most:
            ends.append((name, high, min(high + step, most)))
    return ends


def _cast(t: Table, name: str, value: float) -> Any:
    return round(value) if t.ds.coords[name].dtype.kind in "iu" else value


def _replicate(asked: _Asked) -> tuple[list[_Point], str]:
    t = asked.t
    repeated = [p for p in t.parameters if p.role == "replicate"]
    if len(repeated) != 1 or t.points is None:
        raise UnanswerableError(
            f"{len(repeated)} parameters have the role 'replicate'; one with several values is "
            "needed to repeat points"
        )
    replicate = repeated[0]
    if t.ds.coords[replicate.name].dtype.kind not in "iu":
        raise UnanswerableError(f"replicate {replicate.name!r} is not numbered by integers")
    own = _own(t)
    n_points = len(t.points.first)
    n = np.bincount(t.points.of[asked.outcome <= FAILED], minlength=n_points)
    f = np.bincount(t.points.of[asked.outcome == FAILED], minlength=n_points)
    pending = np.bincount(t.points.of[asked.outcome == PENDING], minlength=n_points)
    usable = (n > 0) & (pending == 0)
    if not usable.any():
        raise UnanswerableError("no point has finished all its replicates")
    number = t.raw(replicate.name)
    next_ = np.zeros(n_points, dtype=np.int64)
    np.maximum.at(next_, t.points.of, number.astype(np.int64) + 1)
    more = np.zeros(n_points, dtype=np.int64)
    width = _widths(f, n)
    width = np.where(usable, width, -np.inf)
    points = []
    names = [p.name for p in own]
    for _ in range(asked.n):
        k = int(np.argmax(width))
        at = {name: t.point(int(t.points.first[k]))[name] for name in names}
        now = _widths(f[k], n[k])
        reason = f"{f[k]} of {n[k]} replicates failed: the interval is {now:.2g} wide"
        at[replicate.name] = int(next_[k] + more[k])
        points.append(_Point(at, reason, float(width[k])))
        more[k] += 1
        # The next goes where the interval would then be widest, at the rates seen so far.
        m = n[k] + more[k]
        width[k] = _widths(f[k] / n[k] * m, m)
    return points, "more replicates where the interval of a point is widest (Wilson)"


def _widths(f: Any, n: Any) -> Any:
    interval = failure_interval(f, n)
    return interval[..., 1] - interval[..., 0]

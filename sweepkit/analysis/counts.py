"""Runs counted by cell, with intervals on the basis that the runs allow."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.intervals import (
    anytime_interval,
    check_level,
    failure_interval,
    normal_quantile,
)
from sweepkit.analysis.refined import Shares
from sweepkit.analysis.slices import slice_bounds
from sweepkit.analysis.table import (
    ERRORED,
    FAILED,
    PASSED,
    PENDING,
    SKIPPED,
    Coded,
    Codes,
    Errors,
    Floats,
    Points,
    Table,
    UnanswerableError,
    boundary_of,
    combined,
    dim_codes,
    spread,
)

__all__ = [
    "BASES",
    "Cells",
    "Counts",
    "basis_sentence",
    "basis_words",
    "cells",
    "count",
    "drawn",
    "finished_prefix",
    "kept",
    "run_weights",
]

BASES = (
    "nothing has run",
    "census",
    "sample",
    "replicates",
    "clusters",
    "in progress",
    "bounds",
    "refined",
)
"""What an interval rests on; `MEANINGS` has each in a sentence. Unknown runs widen each to the
worst case."""

MEANINGS = {
    "nothing has run": "no bound is known",
    "census": "every point of the grid has run, so there is no sampling error",
    "sample": "independent runs, Wilson",
    "replicates": "the points are all there are and only their runs scatter at random, Wilson with "
    "the runs these are worth",
    "clusters": "points were drawn and runs of one point are alike, Clopper and Pearson with the "
    "runs they are worth",
    "in progress": "valid at every look while the random coarse pass runs, of the runs declared",
    "bounds": "unfinished in no random order, so only what unfinished runs could still change",
    "refined": "weighted by the share of the space that each run stands for; bounds by cells of "
    "the space whose runs do not agree, widened by the replicates' scatter",
}
NOTHING, CENSUS, SAMPLE, REPLICATES, CLUSTERS, PROGRESS, BOUNDS, REFINED = range(len(BASES))

MAX_CELLS = 10_000_000


@dataclass(frozen=True, eq=False)
class Counts:
    """What the runs of each cell say; every array has one entry per cell."""

    n_run: NDArray[np.int64]
    n_failed: NDArray[np.int64]
    n_unknown: NDArray[np.int64]
    n_error: NDArray[np.int64]
    rate: Floats
    low: Floats
    high: Floats
    boundary: Floats
    basis: NDArray[np.int8]

    @property
    def words(self) -> NDArray[np.str_]:
        """The basis of each cell in words."""
        return np.array(BASES)[self.basis]


def count(
    t: Table,
    cell: Codes,
    n_cells: int,
    *,
    fixed: Sequence[str] = (),
    by_replicate: bool = False,
    level: float = 0.95,
    errors: Errors = "apart",
    with_boundary: bool = True,
    along: Sequence[Coded] | None = None,
    at_points: bool = False,
) -> Counts:
    """Count the runs of each cell, with intervals on the basis the runs allow.

    Parameters
    ----------
    t : Table
    cell : array of int, shape (runs,)
        Which cell each run belongs to, from 0 to `n_cells` - 1.
    fixed : sequence of str
        The run dims along which a cell does not extend.
    by_replicate : bool
        Whether cells are single replicates, so that nothing is repeated in them.
    along : sequence of Coded, optional
        The parameters whose codes tell the cells apart; with `at_points` their exact values do.
        Of refined runs the bounds are then those of the slice of the space at these values.
    """
    check_level(level)
    outcome = t.counted(errors)
    tally: NDArray[np.int64] = np.bincount(
        cell * np.int64(5) + outcome, minlength=5 * n_cells
    ).reshape(n_cells, 5)
    n_failed, n_known = tally[:, FAILED], tally[:, PASSED] + tally[:, FAILED]
    n_unknown = tally[:, PENDING] + tally[:, ERRORED]
    n_error = tally[:, ERRORED]
    if errors == "fail":
        n_error = np.bincount(cell[t.outcome == ERRORED], minlength=n_cells)
    weights = run_weights(t)
    shares = _shares(cell, outcome, n_cells, weights, tally)
    failing, known, unknown = shares
    with np.errstate(invalid="ignore", divide="ignore"):
        rate_ = failing / known
        floor, ceiling = failing / (known + unknown), (failing + unknown) / (known + unknown)

    points = drawn(t, fixed)
    exact = points is None and (by_replicate or t.points is None) and not _single(t, fixed)
    exact = exact and not t.random
    if exact:
        low, high = floor.copy(), ceiling.copy()
        basis = np.where(tally[:, PENDING] > 0, BOUNDS, CENSUS).astype(np.int8)
    else:
        basis, n_seen = _worth(
            t, cell, outcome, n_cells, points, by_replicate, n_known, rate_, level
        )
        # A sample's interval speaks of its known runs; the unknown could all pass or all fail.
        with np.errstate(invalid="ignore"):
            k = np.nan_to_num(rate_ * n_seen).clip(0, n_seen)
            interval = failure_interval(k, n_seen, level=level)
            alike = basis == CLUSTERS
            interval[alike] = failure_interval(k[alike], n_seen[alike], level=level, method="exact")
            low = interval[:, 0] * known / (known + unknown)
            high = (interval[:, 1] * known + unknown) / (known + unknown)
    if t.volume is not None:
        basis[:] = REFINED
        low, high, rate_ = _refined(t, cell, n_cells, outcome, errors, along, at_points,
                                    (low, high, rate_))  # fmt: skip
    if t.prefix is not None and t.volume is None and not t.finished:
        going = tally[:, PENDING] > 0
        finite = points is None or t.points is not None
        first = _in_progress(t, cell, outcome, n_cells, tally, level, finite)
        if finite:
            first = np.stack([np.maximum(first[:, 0], floor), np.minimum(first[:, 1], ceiling)], -1)
        low[going], high[going], basis[going] = first[going, 0], first[going, 1], PROGRESS
    nothing = n_known == 0
    low[nothing], high[nothing], basis[nothing] = 0.0, 1.0, NOTHING
    return Counts(
        n_run=n_known,
        n_failed=n_failed,
        n_unknown=n_unknown,
        n_error=n_error,
        rate=rate_,
        low=low,
        high=high,
        boundary=_boundary_share(t, cell, outcome, n_known, exact and with_boundary),
        basis=basis,
    )


def _single(t: Table, fixed: Sequence[str]) -> bool:
    """Whether cells are single runs of drawn points, of which nothing says how they scatter."""
    at = [k for k, dim in enumerate(t.dims) if dim in fixed and t.axes[k] is None]
    alone = all(dim in fixed or n == 1 for dim, n in zip(t.dims, t.shape, strict=True))
    return bool(at) and alone and any(t.shape[k] > 1 for k in at)


def _refined(
    t: Table,
    cell: Codes,
    n_cells: int,
    outcome: NDArray[np.int8],
    errors: Errors,
    along: Sequence[Coded] | None,
    at_points: bool,
    plain: tuple[Floats, Floats, Floats],
) -> tuple[Floats, Floats, Floats]:
    """Bounds and rate of refined runs: by volume, and by the scatter of replicates if any."""
    low, high, rate_ = plain
    found = t.shares(errors)
    if found is None:
        return low, high, rate_
    if along is None:
        least, most = _by_volume(found, cell, n_cells, outcome)
    else:
        least, most = slice_bounds(t, found.lattice, cell, n_cells, along, at_points)
        # The few runs at a refined value say less of its slice than the cells around them.
        rate_ = np.clip(rate_, least, most)
    if t.points is not None:
        least, most = np.fmin(least, low), np.fmax(most, high)
    # Of volumes given otherwise the rate may lie beyond.
    return np.fmin(least, rate_), np.fmax(most, rate_), rate_


def drawn(t: Table, fixed: Sequence[str]) -> tuple[NDArray[np.int64], int] | None:
    """Which drawn point each run is of, and how many there are; None where none was drawn.

    Parameters that share a dim were drawn or listed together, so their points stand for others.
    The values of crossed parameters are all there are. Dims in `fixed` count as given.
    """
    parts = []
    for dim, size, axis in zip(t.dims, t.shape, t.axes, strict=True):
        varied = any(p.role != "replicate" for p in t.parameters if p.dims == (dim,))
        if size > 1 and axis is None and varied and dim not in fixed:
            parts.append((spread(dim_codes(t, dim, ("design", "scenario"))[0], dim, t), size))
    return combined(parts, t.n) if parts else None


def run_weights(t: Table) -> Floats | None:
    if t.stage is not None and t.volume is None:
        raise UnanswerableError(
            f"these runs hold {len(np.unique(t.stage))} stages: refined runs crowd where designs "
            "fail, so their plain share is no failure rate; give each run the share of the space "
            "it stands for in a coordinate 'volume' (sweepkit.analysis.volumes(ds)), or select "
            "one stage"
        )
    return t.weights


def _shares(
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    weights: Floats | None,
    tally: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """Failed, known and unknown weight per cell."""
    mass: Floats = tally.astype(np.float64)
    if weights is not None:
        code = cell * np.int64(5) + outcome
        mass = np.bincount(code, weights=weights, minlength=5 * n_cells).astype(np.float64)
        mass = mass.reshape(n_cells, 5)
    return (
        mass[:, FAILED],
        mass[:, PASSED] + mass[:, FAILED],
        mass[:, PENDING] + mass[:, ERRORED],
    )


def _worth(
    t: Table,
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    points: tuple[NDArray[np.int64], int] | None,
    by_replicate: bool,
    n_known: NDArray[np.int64],
    rate_: Floats,
    level: float,
) -> tuple[NDArray[np.int8], Floats]:
    """What a sampling interval of each cell rests on, and how many independent runs it is worth."""
    known = outcome <= FAILED
    basis = np.full(n_cells, SAMPLE, dtype=np.int8)
    worth = total = n_known.astype(np.float64)
    weight = np.ones(1) if t.weights is None else t.weights
    if t.weights is not None:
        total = np.bincount(cell[known], weights=weight[known], minlength=n_cells).astype(float)
        squares = np.bincount(cell[known], weights=weight[known] ** 2, minlength=n_cells)
        with np.errstate(invalid="ignore", divide="ignore"):
            worth = np.nan_to_num(total**2 / squares)  # Kish: as many runs of equal weight
    weight = np.broadcast_to(weight, (t.n,))
    repeats = None if by_replicate else t.points
    if repeats is None and not by_replicate and t.random and points is None:
        # One run of each point of a random simulator: points are strata of one run.
        repeats = Points(np.arange(t.n), np.arange(t.n))
    if repeats is not None:
        several, apart = _fixed_points(repeats, cell, outcome, n_cells, weight, total, rate_, worth)
        basis[several] = REPLICATES
        worth = np.where(several, apart, worth)
    if points is not None and (t.points is not None or points[1] < t.n):
        alike, together = _drawn_points(
            points, cell, outcome, n_cells, weight, total, rate_, worth, level
        )
        basis[alike] = CLUSTERS
        worth = np.where(alike, together, worth)
    return basis, worth


def _fixed_points(
    repeats: Points,
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    weight: Floats,
    total: Floats,
    rate_: Floats,
    plain: Floats,
) -> tuple[NDArray[np.bool_], Floats]:
    """Cells of several points, and how many independent runs the replicates of these are worth.

    The points are strata: the variance is that of replicates within points, W. G. Cochran,
    Sampling Techniques (1977), 5.3, as an effective number of runs in Wilson's interval: X. Yan
    and X. G. Su, Stat. Biopharm. Res. 2 (2010), 329-335. A point's p (1 - p) is taken as
    (f + 1) (n - f + 1) / ((n + 1) (n + 2)), whose expectation is never below it, so that points
    of few replicates do not feign certainty; nor are runs worth less than if they were pooled.
    """
    n_points = len(repeats.first)
    known = outcome <= FAILED
    of = repeats.of[known]
    n = np.bincount(of, minlength=n_points)
    f = np.bincount(repeats.of[outcome == FAILED], minlength=n_points)
    mass = np.bincount(of, weights=weight[known], minlength=n_points)
    home = cell[repeats.first]
    declared = np.bincount(repeats.of[outcome != SKIPPED], minlength=n_points) > 0
    several = np.bincount(home[declared & (repeats.first >= 0)], minlength=n_cells) > 1
    seen = n > 0
    n, f, mass, home = n[seen], f[seen], mass[seen], home[seen]
    scatter = (f + 1) * (n - f + 1) / ((n + 1) * (n + 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.bincount(home, weights=mass**2 * scatter / n, minlength=n_cells) / total**2
        worth = np.fmax(plain, rate_ * (1 - rate_) / variance)
    return several, np.nan_to_num(worth)


def _drawn_points(
    points: tuple[NDArray[np.int64], int],
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    weight: Floats,
    total: Floats,
    rate_: Floats,
    plain: Floats,
    level: float,
) -> tuple[NDArray[np.bool_], Floats]:
    """Cells of several drawn points with several runs each, and what these runs are worth.

    The variance of the rate is taken between points (a ratio estimate), turned into an effective
    number of runs and reduced for the few points it was estimated from: E. L. Korn and
    B. I. Graubard, Survey Methodology 24 (1998), 193-201, with Clopper and Pearson's interval. The
    degrees of freedom are those of F. E. Satterthwaite, Biometrics Bull. 2 (1946), 110-114: a few
    points that stand out tell less of the variance than as many even ones.
    """
    from scipy.special import stdtrit

    of, n_points = points
    there = np.flatnonzero(outcome != SKIPPED)
    both, _ = pd.factorize(cell[there] * np.int64(n_points) + of[there])
    n_both = int(both.max(initial=-1)) + 1
    home = np.zeros(n_both, dtype=np.int64)
    home[both] = cell[there]
    n_points_declared = np.bincount(home, minlength=n_cells)
    crowded = np.bincount(home[np.bincount(both, minlength=n_both) > 1], minlength=n_cells) > 0
    alike = (n_points_declared > 1) & crowded

    known = outcome[there] <= FAILED
    fails = outcome[there] == FAILED
    w = weight[there]
    mass = np.bincount(both[known], weights=w[known], minlength=n_both)
    failing = np.bincount(both[fails], weights=w[fails], minlength=n_both)
    m = np.bincount(home[mass > 0], minlength=n_cells).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.nan_to_num(failing - rate_[home] * mass)
        between = np.bincount(home, weights=residual**2, minlength=n_cells)
        variance = m / (m - 1) * between / total**2
        worth = rate_ * (1 - rate_) / variance
        fourth = np.bincount(home, weights=residual**4, minlength=n_cells)
        kurtosis = np.nan_to_num(m * fourth / between**2, nan=1.0)
        most = np.maximum(m - 1, 1)
        freedom = np.clip(2 * m / (kurtosis - 1 + 2 / most), 1, most)
        shrink = (normal_quantile(level) / stdtrit(freedom, (1 + level) / 2)) ** 2
        # Points that all agree tell nothing of how runs scatter: each counts once.
        sure = (rate_ == 0) | (rate_ == 1) | (m < 2)
        worth = np.where(sure, m, np.fmin(worth, plain) * shrink)
    return alike, np.nan_to_num(worth)


def _by_volume(
    found: Shares, cell: Codes, n_cells: int, outcome: NDArray[np.int8]
) -> tuple[Floats, Floats]:
    """Bounds of deterministic runs: cells of the space whose runs agree are as these are."""
    known = outcome <= FAILED
    decided = np.where(known, found.volume - found.undecided, 0.0)
    fails = outcome == FAILED
    total = np.bincount(cell, weights=found.volume, minlength=n_cells)
    failing = np.bincount(cell[fails], weights=decided[fails], minlength=n_cells)
    sure = np.bincount(cell, weights=decided, minlength=n_cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = failing / total, 1 - (sure - failing) / total
    return low.clip(0, 1), high.clip(0, 1)


def _in_progress(
    t: Table,
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    tally: NDArray[np.int64],
    level: float,
    finite: bool,
) -> Floats:
    prefix = finished_prefix(t)
    at, what = cell[prefix], outcome[prefix]
    drawn = np.bincount(at, minlength=n_cells)
    failed = np.bincount(at[what == FAILED], minlength=n_cells)
    errored = np.bincount(at[what == ERRORED], minlength=n_cells)
    total = tally[:, :SKIPPED].sum(axis=1)
    return anytime_interval(
        failed, drawn, total if finite else np.inf, level=level, n_unknown=errored
    )


def finished_prefix(t: Table) -> NDArray[np.int64]:
    """Runs of the coarse pass in their random order, up to the first that is still pending."""
    if t.prefix is None:
        return np.empty(0, dtype=np.int64)
    prefix: NDArray[np.int64] = t.prefix[t.outcome[t.prefix] != SKIPPED]
    pending = np.flatnonzero(t.outcome[prefix] == PENDING)
    return prefix[: pending[0]] if len(pending) else prefix


def _boundary_share(
    t: Table, cell: Codes, outcome: NDArray[np.int8], n_known: NDArray[np.int64], exact: bool
) -> Floats:
    if not exact or not t.grid:
        return np.full(len(n_known), np.nan)
    on = t.boundary if outcome is t.outcome else boundary_of(t, outcome)
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Floats = np.bincount(cell[on], minlength=len(n_known)) / n_known
    return share


@dataclass(frozen=True, eq=False)
class Cells:
    """How runs fall into the cells of a result."""

    cell: Codes
    n: int
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: dict[str, xr.DataArray]
    fixed: tuple[str, ...]
    by_replicate: bool
    along: tuple[Coded, ...]
    at_points: bool


def cells(t: Table, by: Sequence[str] | None, *, bins: int = 20) -> Cells:
    """The cells of a result by these parameters, or by design where none are named."""
    parts: list[tuple[Codes, int]] = []
    dims: list[str] = []
    coords: dict[str, xr.DataArray] = {}
    fixed: list[str] = []
    if by is None:
        for dim in t.dims:
            codes, n = dim_codes(t, dim, ("design",))
            own = [p for p in t.parameters if p.dims == (dim,) and p.role == "design"]
            if not own:
                continue
            # The first run of each design carries its values.
            _, first = np.unique(codes, return_index=True)
            for name, array in t.ds.coords.items():
                design = array.attrs.get("role", "design") == "design"
                if array.dims[:1] == (dim,) and set(array.dims) & set(t.dims) == {dim} and design:
                    coords[str(name)] = array.isel({dim: first}).reset_coords(drop=True)
            parts.append((spread(codes, dim, t), n))
            dims.append(dim)
            # A scenario that was drawn with each design is a sample of one.
            if n == t.shape[t.dims.index(dim)] and not _moves(t, dim, "scenario"):
                fixed.append(dim)
    else:
        for name in by:
            p = t[name].coarser(bins)
            parts.append((p.codes, p.n))
            dims.append(p.name)
            coords[p.name] = _coordinate(p, t)
        for dim in t.dims:
            own = [p for p in t.parameters if dim in p.dims and p.role != "replicate"]
            own = own or [p for p in t.parameters if dim in p.dims]
            axis = t.axes[t.dims.index(dim)]
            told = all(p.name in by and t[p.name].coarser(bins) is p for p in own)
            if (own and told) or (axis is not None and axis.name in by):
                fixed.append(dim)
    shape = tuple(n for _, n in parts)
    if np.prod([float(n) for n in shape]) > MAX_CELLS:
        raise ValueError(
            f"{' x '.join(map(str, shape))} cells by {', '.join(map(repr, dims))} are more than "
            f"{MAX_CELLS}; name fewer parameters in by="
        )
    cell, n_cells = combined(parts, t.n)
    return Cells(
        cell=cell,
        n=n_cells,
        dims=tuple(dims),
        shape=shape,
        coords=coords,
        fixed=tuple(fixed),
        by_replicate=by is not None and any(t[name].role == "replicate" for name in by),
        along=t.design if by is None else tuple(t[name].coarser(bins) for name in by),
        at_points=by is None,
    )


def _moves(t: Table, dim: str, role: str) -> bool:
    return any(p.dims == (dim,) and p.role == role and p.n > 1 for p in t.parameters)


def _coordinate(p: Coded, t: Table) -> xr.DataArray:
    attrs = dict(t.ds.coords[p.name].attrs) if p.name in t.ds.coords else {}
    if p.binned:
        attrs["binned"] = f"middle of {p.n} quantile bins"
    return xr.DataArray(p.values, dims=p.name, name=p.name, attrs=attrs)


def kept(
    t: Table, by: str | Sequence[str] | None, over: str | Sequence[str] | None
) -> list[str] | None:
    """The parameters that a result keeps; None is the design."""
    if by is not None and over is not None:
        raise ValueError("give by= (what to keep) or over= (what to average over), not both")
    if over is not None:
        dropped = _parameters_of(t, over, "over")
        return [p.name for p in t.parameters if p.name not in dropped]
    if by is None:
        return None
    return _parameters_of(t, by, "by")


def _parameters_of(t: Table, given: str | Sequence[str], word: str) -> list[str]:
    """Names of parameters, each there and given once."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{word} is {given!r}; give names of parameters")
    names = list(names)
    known = [p.name for p in t.parameters]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            what = "is an output" if name in t.ds.data_vars else "is no parameter"
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{word}={name!r} {what}; the parameters are {', '.join(known)}{hint}")
    if len(set(names)) < len(names):
        raise ValueError(f"{word}={names!r} names a parameter twice")
    return names


def basis_words(counts: Counts) -> str:
    """The bases of all cells in a few words, with how many runs are unknown."""
    words = ", ".join(BASES[k] for k in np.unique(counts.basis))
    unknown = int(counts.n_unknown.sum())
    return f"{words}; {unknown} unknown runs as bounds" if unknown else words


def basis_sentence(counts: Counts) -> str:
    """What the intervals rest on, with how many cells where they differ."""
    kinds, numbers = np.unique(counts.basis, return_counts=True)
    words = [f"{BASES[k]} ({MEANINGS[BASES[k]]})" for k in kinds]
    if len(words) == 1:
        text = words[0]
    else:
        text = "; ".join(f"{n} cells: {w}" for w, n in zip(words, numbers, strict=True))
    unknown = int(counts.n_unknown.sum())
    return f"{text}; {unknown} unknown runs as bounds" if unknown else text

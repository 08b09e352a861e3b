"""Failure rates, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sweepkit.analysis.table import (
    ERRORED,
    FAILED,
    PASSED,
    PENDING,
    SKIPPED,
    Coded,
    Codes,
    Errors,
    Failed,
    Floats,
    Points,
    Table,
    UnanswerableError,
    boundary_of,
    combined,
    dim_codes,
    spread,
    table,
)

__all__ = [
    "anytime_interval",
    "convergence",
    "failure_interval",
    "failure_rate",
    "held_up",
    "rate",
]

Method: TypeAlias = Literal["wilson", "wilson-cc", "exact", "jeffreys"]

BASES = ("nothing has run", "census", "sample", "replicates", "in progress", "bounds", "refined")
"""What an interval rests on.

census: every point of a deterministic grid has run, so the share is exact; how far the grid is
from the continuum is told by the boundary share. sample: independent runs (Wilson). replicates:
clustered by design and scenario point. in progress: valid at every look while the random coarse
pass runs, of the runs declared. bounds: unfinished in no random order, so only what the unfinished
runs could still change. refined: weighted by volume. Unknown runs widen each to the worst case.
"""
_NOTHING, _CENSUS, _SAMPLE, _REPLICATES, _PROGRESS, _BOUNDS, _REFINED = range(len(BASES))

MAX_CELLS = 10_000_000


def failure_interval(
    n_failed: ArrayLike, n_run: ArrayLike, *, level: float = 0.95, method: Method = "wilson"
) -> Floats:
    """Confidence interval of a failure rate from independent runs.

    Parameters
    ----------
    n_failed, n_run : array of int, shape (...)
        Failed and finished runs per design.
    level : float
        Coverage, between 0 and 1.
    method : {"wilson", "wilson-cc", "exact", "jeffreys"}
        Wilson's score (the default; close to `level` on average), the same with continuity
        correction, Clopper and Pearson's (never below `level`), or Jeffreys' with the ends at no
        failure and all failures fixed at 0 and 1.

    Returns
    -------
    array of float, shape (..., 2)
        Lower and upper bound, dimensionless; NaN where nothing has run.

    Raises
    ------
    ValueError
        If more runs failed than finished, or `level` is not between 0 and 1.

    References
    ----------
    E. B. Wilson, J. Am. Stat. Assoc. 22 (1927), 209-212. R. G. Newcombe, Statist. Med. 17 (1998),
    857-872. C. J. Clopper and E. S. Pearson, Biometrika 26 (1934), 404-413. L. D. Brown,
    T. T. Cai and A. DasGupta, Statist. Sci. 16 (2001), 101-133.

    Examples
    --------
    >>> failure_interval(3, 20).round(3).tolist()
    [0.052, 0.36]
    """
    _check_level(level)
    k, n = np.broadcast_arrays(np.asarray(n_failed, float), np.asarray(n_run, float))
    if ((k < 0) | (k > n)).any():
        at = np.argmax(((k < 0) | (k > n)).reshape(-1))
        raise ValueError(
            f"{k.reshape(-1)[at]:g} of {n.reshape(-1)[at]:g} runs failed; between none and all can"
        )
    bounds = {"wilson": _wilson, "wilson-cc": _wilson_cc, "exact": _exact, "jeffreys": _jeffreys}
    if method not in bounds:
        raise ValueError(f"method={method!r} is none of {', '.join(map(repr, bounds))}")
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = bounds[method](k, n, level)
    low, high = np.where(k == 0, 0.0, low), np.where(k == n, 1.0, high)
    interval: Floats = np.stack([low, high], axis=-1).clip(0, 1)
    interval[n == 0] = np.nan
    return interval


def _wilson(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    z = _z(level)
    p = k / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return centre - half, centre + half


def _wilson_cc(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    z = _z(level)
    p, q = k / n, 1 - k / n
    below = z * np.sqrt(np.maximum(z**2 - 2 - 1 / n + 4 * p * (n * q + 1), 0))
    above = z * np.sqrt(np.maximum(z**2 + 2 - 1 / n + 4 * p * (n * q - 1), 0))
    scale = 2 * (n + z**2)
    return (2 * k + z**2 - 1 - below) / scale, (2 * k + z**2 + 1 + above) / scale


def _exact(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    tail = (1 - level) / 2
    return _beta_quantile(k, n - k + 1, tail), _beta_quantile(k + 1, n - k, 1 - tail)


def _jeffreys(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    tail = (1 - level) / 2
    return (
        _beta_quantile(k + 0.5, n - k + 0.5, tail),
        _beta_quantile(k + 0.5, n - k + 0.5, 1 - tail),
    )


def _beta_quantile(a: Floats, b: Floats, q: float) -> Floats:
    from scipy.special import betaincinv

    return np.asarray(betaincinv(a, b, q), dtype=np.float64)


def _z(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level={level!r} must lie between 0 and 1, as 0.95 does")


def anytime_interval(
    n_failed: ArrayLike,
    n_run: ArrayLike,
    n_total: ArrayLike,
    *,
    level: float = 0.95,
    n_unknown: ArrayLike = 0,
) -> Floats:
    """Interval of a failure rate that may be looked at after every run.

    With probability `level` it holds the truth at all looks together, so stopping when it looks
    good is fair. The runs must have been drawn in a uniformly random order, without replacement.

    Parameters
    ----------
    n_failed, n_run, n_total : array of int, shape (...)
        Failed among the runs drawn so far, drawn so far, and declared; infinite `n_total` is a
        sample of independent runs from a continuum.
    level : float
        Coverage over all looks, between 0 and 1.
    n_unknown : array of int, shape (...)
        How many of those drawn errored: they count as passed below and as failed above.

    Returns
    -------
    array of float, shape (..., 2)
        Lower and upper bound, dimensionless; it closes when all declared runs are drawn.

    References
    ----------
    I. Waudby-Smith and A. Ramdas, Confidence sequences for sampling without replacement,
    NeurIPS 33 (2020): the prior-posterior-ratio martingale, here with a uniform prior.

    Examples
    --------
    >>> anytime_interval([0, 3], [0, 20], 20).tolist()
    [[0.0, 1.0], [0.15, 0.15]]
    """
    _check_level(level)
    s, t, total, unknown = np.broadcast_arrays(
        *(np.asarray(v, dtype=np.float64) for v in (n_failed, n_run, n_total, n_unknown))
    )
    low = _anytime_bound(s, t, total, 1 - level, upper=False)
    high = _anytime_bound(s + unknown, t, total, 1 - level, upper=True)
    return np.stack([low, high], axis=-1)


def _anytime_bound(s: Floats, t: Floats, total: Floats, alpha: float, *, upper: bool) -> Floats:
    """The furthest rate whose posterior is above alpha times its prior, by bisection."""
    endless = np.isinf(total)
    n = np.where(endless, 1.0, total)
    rest = np.where(endless, 1.0, n - t)
    seen = np.where(t > 0, t, 1.0)

    def inside(more: Floats) -> NDArray[np.bool_]:
        known = _log_beta_binomial(more, rest, 1 + s, 1 + t - s) > np.log(alpha / (n + 1))
        if endless.any():
            known = np.where(endless, _log_beta(more, 1 + s, 1 + t - s) > np.log(alpha), known)
        return known

    mode = np.where(endless, s / seen, np.floor((rest + 1) * s / seen).clip(0, rest))
    good, bad = mode, np.where(upper, rest + 1, -1.0)
    good, bad = np.where(endless, mode, good), np.where(endless, float(upper), bad)
    steps = int(np.ceil(np.log2(max(float(np.max(rest, initial=1.0)) + 2, 2)))) + 1
    for _ in range(60 if endless.any() else steps):
        centre = (good + bad) / 2
        centre = np.where(endless, centre, np.floor(centre) if upper else np.ceil(centre))
        ok = inside(centre.clip(0, rest)) & (endless | ((centre >= 0) & (centre <= rest)))
        good, bad = np.where(ok, centre, good), np.where(ok, bad, centre)
    bound: Floats = np.where(endless, good, (s + good) / np.maximum(n, 1))
    nothing = (t == 0) | (n == 0)
    return np.where(nothing, float(upper), bound)


def _log_beta_binomial(k: Floats, n: Floats, a: Floats, b: Floats) -> Floats:
    from scipy.special import betaln, gammaln

    choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(choose + betaln(k + a, n - k + b) - betaln(a, b))


def _log_beta(p: Floats, a: Floats, b: Floats) -> Floats:
    from scipy.special import betaln, xlog1py, xlogy

    return np.asarray(xlogy(a - 1, p) + xlog1py(b - 1, -p) - betaln(a, b))


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
    """
    _check_level(level)
    outcome = t.counted(errors)
    tally: NDArray[np.int64] = np.bincount(
        cell * np.int64(5) + outcome, minlength=5 * n_cells
    ).reshape(n_cells, 5)
    n_failed, n_known = tally[:, FAILED], tally[:, PASSED] + tally[:, FAILED]
    n_unknown = tally[:, PENDING] + tally[:, ERRORED]
    n_error = tally[:, ERRORED]
    if errors == "fail":
        n_error = np.bincount(cell[t.outcome == ERRORED], minlength=n_cells)
    weights = _run_weights(t)
    shares = _shares(cell, outcome, n_cells, weights, tally)
    failing, known, unknown = shares
    with np.errstate(invalid="ignore", divide="ignore"):
        rate_ = failing / known
        floor, ceiling = failing / (known + unknown), (failing + unknown) / (known + unknown)

    exact = all(exact_along(t, d) for d in t.dims if d not in fixed)
    repeats = None if by_replicate else t.points
    many = np.zeros(n_cells, dtype=bool)
    n_seen = n_known.astype(np.float64)
    if weights is not None:
        n_seen = _kish(cell, outcome, n_cells, weights)
    if repeats is not None:
        many, n_seen = _effective(cell, outcome, n_cells, repeats, rate_, level)

    # A sample's interval speaks of its known runs; the unknown could all have passed or failed.
    with np.errstate(invalid="ignore"):
        interval = failure_interval(np.nan_to_num(rate_ * n_seen).clip(0, n_seen), n_seen,
                                    level=level)
        low = interval[:, 0] * known / (known + unknown)
        high = (interval[:, 1] * known + unknown) / (known + unknown)
    basis = np.full(n_cells, _SAMPLE, dtype=np.int8)
    if exact and repeats is None:
        low, high = floor.copy(), ceiling.copy()
        basis[:] = np.where(tally[:, PENDING] > 0, _BOUNDS, _CENSUS)
    basis[many] = _REPLICATES
    if t.volume is not None:
        basis[:] = _REFINED
    if t.prefix is not None and t.volume is None and not t.finished:
        going = tally[:, PENDING] > 0
        first = _in_progress(t, cell, outcome, n_cells, tally, level, exact or repeats is not None)
        if exact or repeats is not None:
            first = np.stack([np.maximum(first[:, 0], floor), np.minimum(first[:, 1], ceiling)], -1)
        low[going], high[going], basis[going] = first[going, 0], first[going, 1], _PROGRESS
    nothing = n_known == 0
    low[nothing], high[nothing], basis[nothing] = 0.0, 1.0, _NOTHING
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


def exact_along(t: Table, dim: str) -> bool:
    """Whether averaging along a dim is a census: a crossed parameter that is no replicate."""
    axis = t.axes[t.dims.index(dim)]
    return t.shape[t.dims.index(dim)] == 1 or (axis is not None and axis.role != "replicate")


def _run_weights(t: Table) -> Floats | None:
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


def _kish(cell: Codes, outcome: NDArray[np.int8], n_cells: int, weights: Floats) -> Floats:
    known = outcome <= FAILED
    total = np.bincount(cell[known], weights=weights[known], minlength=n_cells)
    squares = np.bincount(cell[known], weights=weights[known] ** 2, minlength=n_cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(total**2 / squares)


def _effective(
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    repeats: Points,
    rate_: Floats,
    level: float,
) -> tuple[NDArray[np.bool_], Floats]:
    """Which cells average several points, and how many independent runs theirs are worth.

    The variance of the rate is taken between points (a ratio estimate), turned into an effective
    number of runs and reduced for the few points it was estimated from: E. L. Korn and
    B. I. Graubard, Survey Methodology 24 (1998), 193-201.
    """
    from scipy.special import stdtrit

    n_points = len(repeats.first)
    n = np.bincount(repeats.of[outcome <= FAILED], minlength=n_points)
    f = np.bincount(repeats.of[outcome == FAILED], minlength=n_points)
    seen = n > 0
    n, f, of = n[seen], f[seen], cell[repeats.first[seen]]
    m = np.bincount(of, minlength=n_cells).astype(np.float64)
    runs = np.bincount(of, weights=n, minlength=n_cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = f - rate_[of] * n
        between = np.bincount(of, weights=residual**2, minlength=n_cells)
        variance = m / (m - 1) * between / runs**2
        worth = rate_ * (1 - rate_) / variance
        shrink = (_z(level) / stdtrit(np.maximum(m - 1, 1), (1 + level) / 2)) ** 2
        # Points that all agree tell nothing of how replicates scatter: each counts once.
        worth = np.where((rate_ == 0) | (rate_ == 1), m, np.minimum(worth, runs) * shrink)
    return m > 1, np.where(m > 1, np.nan_to_num(worth), runs)


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
            if n == t.shape[t.dims.index(dim)]:
                fixed.append(dim)
    else:
        for name in by:
            p = t[name].coarser(bins)
            parts.append((p.codes, p.n))
            dims.append(p.name)
            coords[p.name] = _coordinate(p, t)
            if p.dims == (p.name,) or t.axes[t.dims.index(p.dims[0])] is t[name]:
                fixed.append(p.dims[0])
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
    )


def _coordinate(p: Coded, t: Table) -> xr.DataArray:
    attrs = dict(t.ds.coords[p.name].attrs) if p.name in t.ds.coords else {}
    if p.binned:
        attrs["binned"] = f"middle of {p.n} quantile bins"
    return xr.DataArray(p.values, dims=p.name, name=p.name, attrs=attrs)


def failure_rate(
    ds: xr.Dataset | Table,
    by: str | Sequence[str] | None = None,
    *,
    over: str | Sequence[str] | None = None,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> xr.Dataset:
    """Failure rate of each design, or by any parameters, averaged over the others.

    Parameters
    ----------
    ds : Dataset or Table
    by : str or sequence of str, optional
        The parameters the result keeps, each a dim of its own; values that hardly repeat are
        taken in 20 quantile bins. By default the design parameters, as the Dataset lays them out.
    over : str or sequence of str, optional
        The parameters to average over, in place of `by`: all others are kept.
    requirements, failed : optional
        What fails, as in `table`.
    level : float
        Coverage of the intervals, between 0 and 1.
    errors : {"apart", "fail"}
        Whether runs that errored, overran, crashed or were invalid are unknown, or fail.

    Returns
    -------
    Dataset
        Over the dims of `by`: ``rate``, ``low``, ``high``, ``boundary`` (dimensionless) and
        ``n_run`` (finished), ``n_failed``, ``n_unknown`` (pending or errored), ``n_error``.
        Skipped runs count nowhere. ``rate`` is NaN where nothing has run, with bounds 0 and 1.
        ``boundary`` is, on a complete deterministic grid, the share of runs with a neighbour of
        the other outcome; NaN elsewhere. ``attrs["basis"]`` says what the intervals rest on and
        ``basis`` says it per cell.

    Raises
    ------
    ValueError
        If nothing says which runs fail, a name is no parameter, or there are too many cells.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> failure_rate(ds, by="gain")["rate"].values.tolist()
    [0.0, 0.5]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    split = cells(t, kept(t, by, over))
    counts = count(
        t,
        split.cell,
        split.n,
        fixed=split.fixed,
        by_replicate=split.by_replicate,
        level=level,
        errors=errors,
    )
    percent = f"{100 * level:g} %"
    about: dict[str, tuple[Any, dict[str, str]]] = {
        "rate": (counts.rate, {"units": "1", "long_name": "failure rate"}),
        "low": (counts.low, {"units": "1", "long_name": f"lower bound of the rate ({percent})"}),
        "high": (counts.high, {"units": "1", "long_name": f"upper bound of the rate ({percent})"}),
        "boundary": (
            counts.boundary,
            {"units": "1", "long_name": "share of runs beside one of the other outcome"},
        ),
        "n_run": (counts.n_run, {"units": "1", "long_name": "finished runs"}),
        "n_failed": (counts.n_failed, {"units": "1", "long_name": "failed runs"}),
        "n_unknown": (counts.n_unknown, {"units": "1", "long_name": "pending or errored runs"}),
        "n_error": (counts.n_error, {"units": "1", "long_name": "errored runs"}),
        "basis": (counts.words, {"long_name": "what the interval rests on"}),
    }
    return xr.Dataset(
        {
            name: (split.dims, np.asarray(values).reshape(split.shape), attrs)
            for name, (values, attrs) in about.items()
        },
        coords=split.coords,
        attrs={"basis": basis_sentence(counts), "level": level, "errors": errors},
    )


def kept(
    t: Table, by: str | Sequence[str] | None, over: str | Sequence[str] | None
) -> list[str] | None:
    """The parameters that a result keeps; None is the design."""
    if by is not None and over is not None:
        raise ValueError("give by= (what to keep) or over= (what to average over), not both")
    if over is not None:
        dropped = [over] if isinstance(over, str) else list(over)
        for name in dropped:
            t[name]
        return [p.name for p in t.parameters if p.name not in dropped]
    if by is None:
        return None
    names = [by] if isinstance(by, str) else list(by)
    for name in names:
        t[name]
    return names


def basis_sentence(counts: Counts) -> str:
    """What the intervals rest on, with how many cells where they differ."""
    kinds, numbers = np.unique(counts.basis, return_counts=True)
    words = [BASES[k] for k in kinds]
    if len(words) == 1:
        text = words[0]
    else:
        text = ", ".join(f"{w}: {n} cells" for w, n in zip(words, numbers, strict=True))
    unknown = int(counts.n_unknown.sum())
    return f"{text}; {unknown} unknown runs as bounds" if unknown else text


def rate(
    ds: xr.Dataset | Table,
    by: str | Sequence[str] | None = None,
    *,
    width: float = 0.05,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """Failure rate of the whole set, or by parameters, with the runs a sharper one would take.

    Parameters
    ----------
    ds : Dataset or Table
    by : str or sequence of str, optional
        Parameters to keep; by default none, which is one row for all runs.
    width : float
        Wanted width of the interval, dimensionless.
    requirements, failed, level, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        Columns as the variables of `failure_rate`, and ``n_needed``: further runs for the wanted
        width at the present rate (0 where it is reached or a census leaves nothing to run; NaN
        where nothing has run, so no rate is known). ``attrs["basis"]`` says it in words.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("sample", [True] * 5 + [False] * 45)},
    ...                 coords={"gain": ("sample", np.arange(50.0))})
    >>> rate(ds)[["rate", "basis", "n_needed"]].values.tolist()
    [[0.1, 'sample', 507]]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    if not 0 < width < 1:
        raise ValueError(f"width={width!r} must lie between 0 and 1, as 0.05 does")
    split = cells(t, kept(t, by, None) or [])
    counts = count(
        t,
        split.cell,
        split.n,
        fixed=split.fixed,
        by_replicate=split.by_replicate,
        level=level,
        errors=errors,
    )
    frame = pd.DataFrame(_columns(counts))
    at = np.unravel_index(np.arange(split.n), split.shape) if split.dims else ()
    for k, (name, index) in enumerate(zip(split.dims, at, strict=True)):
        frame.insert(k, name, split.coords[name].values[index])
    frame["n_needed"] = _needed(counts, t, split.cell, width, level)
    frame.attrs["basis"] = basis_sentence(counts)
    return frame


def _needed(counts: Counts, t: Table, cell: Codes, width: float, level: float) -> Any:
    n_cells = len(counts.rate)
    known, p = counts.n_run, np.nan_to_num(counts.rate)
    low, high = np.zeros(n_cells), np.full(n_cells, 1e12)
    for _ in range(60):
        centre = np.sqrt(np.maximum(low, 1) * high)
        interval = failure_interval(p * centre, centre, level=level)
        wide = interval[:, 1] - interval[:, 0] > width
        low, high = np.where(wide, centre, low), np.where(wide, high, centre)
    total = np.ceil(high)
    nominal = failure_interval(np.minimum(p * known, known), known, level=level)
    with np.errstate(invalid="ignore", divide="ignore"):
        # What clustering or weighting costs now, it will cost later.
        effect = ((counts.high - counts.low) / (nominal[:, 1] - nominal[:, 0])) ** 2
    clustered = (counts.basis == _REPLICATES) | (counts.basis == _REFINED)
    total = np.where(clustered, np.ceil(total * np.maximum(np.nan_to_num(effect), 1)), total)
    needed = np.maximum(total - known, 0)
    pending = np.bincount(cell[t.outcome == PENDING], minlength=n_cells)
    closed = np.isin(counts.basis, (_CENSUS, _PROGRESS, _BOUNDS))
    needed = np.where(closed, np.minimum(needed, pending), needed)
    needed = np.where((counts.high - counts.low <= width), 0, needed)
    nothing = counts.basis == _NOTHING
    return np.where(nothing, np.nan, needed) if nothing.any() else needed.astype(np.int64)


def convergence(
    ds: xr.Dataset | Table,
    *,
    points: int = 20,
    seed: int = 0,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """How the failure rate settled as runs came in.

    Parameters
    ----------
    ds : Dataset or Table
    points : int
        Looks, spaced evenly in the logarithm of the number of runs.
    seed : int
        Of the random order taken where none is recorded.
    requirements, failed, level, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        Per look: ``n_run``, ``n_failed``, ``rate``, ``low``, ``high``, and ``n_needed`` as in
        `rate` for the width 0.05. The intervals hold at all looks together. ``attrs["order"]``
        says which order: the recorded random one, or one shuffled afterwards.

    Raises
    ------
    ValueError
        If no run has finished, so there is nothing to follow.

    References
    ----------
    As in `anytime_interval`.
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    if _run_weights(t) is not None:
        raise UnanswerableError(
            "these runs carry unequal weights, which no order of arrival reflects; use rate(ds)"
        )
    outcome = t.counted(errors)
    order = finished_prefix(t)
    recorded = len(order) > 0 and not t.finished
    if not recorded:
        order = np.flatnonzero((outcome != PENDING) & (outcome != SKIPPED))
        order = np.random.default_rng([seed, 7919]).permutation(order)
    if not len(order) or not (outcome[order] <= FAILED).any():
        raise UnanswerableError(
            f"none of {t.n} runs has passed or failed yet, so no rate can be followed; "
            "errors='fail' counts errors as failures"
        )
    what = outcome[order]
    looks = np.unique(np.geomspace(1, len(order), points).round().astype(np.int64))
    failing = np.cumsum(what == FAILED)[looks - 1]
    errored = np.cumsum(what == ERRORED)[looks - 1]
    crossed = all(exact_along(t, d) for d in t.dims) or t.points is not None
    total = float((outcome != SKIPPED).sum() if recorded else len(order)) if crossed else np.inf
    interval = anytime_interval(failing, looks, total, level=level, n_unknown=errored)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = failing / (looks - errored)
    frame = pd.DataFrame(
        {
            "n_run": looks - errored,
            "n_failed": failing,
            "n_error": errored,
            "rate": rates,
            "low": interval[:, 0],
            "high": interval[:, 1],
        }
    )
    frame.attrs["order"] = (
        "recorded random order of the coarse pass"
        if recorded
        else f"finished runs in a random order (seed {seed}), as none is recorded or all are done"
    )
    frame.attrs["basis"] = "in progress"
    return frame


def held_up(
    ds: xr.Dataset | Table,
    *,
    bins: int = 10,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """Which parameters held up: the failures at each value of each parameter.

    Parameters
    ----------
    ds : Dataset or Table
    bins : int
        Quantile bins of a parameter whose values hardly repeat.
    requirements, failed, level, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        One row per design or scenario parameter and value: ``parameter``, ``value``, ``held`` (it
        has run and nothing failed), and the columns of `failure_rate`.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> held_up(ds)[["parameter", "value", "held", "rate", "basis"]].values.tolist()[:2]
    [['gain', 1, True, 0.0, 'census'], ['gain', 2, False, 0.5, 'census']]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    frames = []
    sentences = []
    for whole in t.parameters:
        if whole.role == "replicate":
            continue
        p = whole.coarser(bins)
        fixed = whole.dims if len(whole.dims) == 1 and whole in t.axes else ()
        counts = count(t, p.codes, p.n, fixed=fixed, level=level, errors=errors)
        values: list[Any] = [p.label(k) for k in range(p.n)] if p.binned else p.values.tolist()
        if p.kind == "time" and not p.binned:
            values = list(p.values)
        frame = pd.DataFrame(_columns(counts))
        frame.insert(0, "parameter", p.name)
        frame.insert(1, "value", pd.Series(values, dtype=object))
        frame.insert(2, "held", (counts.n_run > 0) & (counts.n_failed == 0))
        frames.append(frame)
        sentences.append(f"{p.name}: {basis_sentence(counts)}")
    result = pd.concat(frames, ignore_index=True)
    result.attrs["basis"] = "; ".join(sentences)
    return result


def _columns(counts: Counts) -> dict[str, NDArray[Any]]:
    return {
        "n_run": counts.n_run,
        "n_failed": counts.n_failed,
        "n_unknown": counts.n_unknown,
        "n_error": counts.n_error,
        "rate": counts.rate,
        "low": counts.low,
        "high": counts.high,
        "boundary": counts.boundary,
        "basis": counts.words,
    }

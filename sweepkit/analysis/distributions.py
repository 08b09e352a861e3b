"""What an output looks like: quantiles, its distribution function, and the worst runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.bases import BOUNDS, CENSUS, CLUSTERS, PROGRESS, REFINED, REPLICATES
from sweepkit.analysis.cells import beside, cells, kept
from sweepkit.analysis.coding import Floats
from sweepkit.analysis.counts import basis_words, count, finished_prefix
from sweepkit.analysis.intervals import anytime_interval, check_level, failure_interval
from sweepkit.analysis.numbers import run_numbers
from sweepkit.analysis.outcomes import ERRORED, FAILED, PENDING, SKIPPED, Failed, UnanswerableError
from sweepkit.analysis.reasons import check_shares, reasons, whole_number
from sweepkit.analysis.table import Table, table
from sweepkit.analysis.unrefined import left_out, unrefined
from sweepkit.analysis.worth import drawn

__all__ = ["distribution"]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
MAX_CELLS = 10_000


def distribution(
    ds: xr.Dataset | Table,
    output: str,
    by: str | Sequence[str] | None = None,
    *,
    quantiles: Sequence[float] = QUANTILES,
    points: int = 101,
    worst: int = 5,
    level: float = 0.95,
    requirements: Any = None,
    failed: Failed = None,
) -> xr.Dataset:
    """What an output looks like over runs: quantiles, distribution function, worst runs.

    Parameters
    ----------
    ds : Dataset or Table
    output : str
        An output with one number per run.
    by : str or sequence of str, optional
        Parameters to keep; by default all runs are taken together.
    quantiles : sequence of float
        Between 0 and 1.
    points : int
        Values at which the distribution function is given: evenly spaced quantiles of all runs.
    worst : int
        Runs shown at either end.
    level : float
        Coverage of each quantile's interval, and of the band around the whole function.
    requirements, failed : optional
        As in `table`; not needed.

    Returns
    -------
    Dataset
        Over the dims of `by`: ``n_run`` (finished, with a number), ``n_unknown`` (pending or
        errored), ``n_nan``. With ``quantile``: ``value``, ``low``, ``high`` in the output's
        units; a bound is infinite where too few runs reach so far. With ``point``: ``at`` (a
        value), ``share`` (of runs at or below it), ``share_low``, ``share_high``. With ``tail``
        ("lowest", "highest") and ``place``: ``worst`` and ``worst_run`` (flat position in C
        order; -1 where there are fewer). Values are NaN where no run has a number.
        ``attrs["note"]`` says why. ``attrs["basis"]`` is that of `rate`: census (exact), sample
        (order statistics; the band of Dvoretzky, Kiefer and Wolfowitz), replicates (the same for
        the runs of fixed points, which scatter less), clusters (runs of a drawn point together
        count as what they are worth), in progress (quantiles where the anytime interval of the
        share below them allows; the band by what unfinished runs could still change) or bounds
        (that alone); unknown runs could lie anywhere and widen all of them.

    Raises
    ------
    UnanswerableError
        If no finished run has a number.
    ValueError
        If the output is not there or has dims of its own.

    References
    ----------
    W. J. Conover, Practical Nonparametric Statistics (1999), 3.2, for quantiles; R. S. Woodruff,
    J. Am. Stat. Assoc. 47 (1952), 635-646, for quantiles of clustered runs; W. Hoeffding, Ann.
    Math. Stat. 27 (1956), 713-721, for quantiles of runs that are not alike; P. Massart, Ann.
    Probab. 18 (1990), 1269-1283, and J. Bretagnolle, Lect. Notes Math. 784 (1980), 332-341, for
    the band.

    Examples
    --------
    >>> ds = xr.Dataset({"peak": ("a", [1.0, 2.0, 3.0, 4.0])}, coords={"a": [0, 1, 2, 3]})
    >>> distribution(ds, "peak", quantiles=[0.5])["value"].values.tolist()
    [2.0]
    """
    q = check_shares("quantiles", quantiles)
    if not len(q):
        raise ValueError("quantiles is empty; give some between 0 and 1, as [0.05, 0.5, 0.95]")
    whole_number("points", points)
    whole_number("worst", worst, 0)
    check_level(level)
    t = table(ds, failed=failed, requirements=requirements, errors="fail")
    t, left = unrefined(t)
    y = _numbers(t, output)
    split = cells(t, kept(t, by, None) or [])
    if split.n > MAX_CELLS:
        raise UnanswerableError(f"{split.n} cells by {split.dims}; at most {MAX_CELLS}")
    counts = count(
        t, split.cell, split.n, fixed=split.fixed, by_replicate=split.by_replicate, level=level,
        with_boundary=False, along=split.along, at_points=split.at_points,
    )  # fmt: skip
    points_drawn = drawn(t, split.fixed)
    first = np.zeros(t.n, dtype=bool)
    first[finished_prefix(t)] = True
    known = ~np.isnan(y)
    if not known.any():
        raise UnanswerableError(f"no finished run of {t.n} has a number in {output!r}")
    order = np.lexsort((y[known], split.cell[known]))
    runs = np.flatnonzero(known)[order]
    cell = split.cell[runs]
    starts = np.searchsorted(cell, np.arange(split.n + 1))
    unknown = np.bincount(
        split.cell[(t.outcome == PENDING) | (t.outcome == ERRORED)], minlength=split.n
    )
    skipped = np.bincount(split.cell[t.outcome == SKIPPED], minlength=split.n)
    # Runs of the coarse pass without a number could lie anywhere.
    lost = np.bincount(split.cell[first & ~known], minlength=split.n)
    done = np.bincount(split.cell[t.outcome <= FAILED], minlength=split.n)
    at = np.quantile(y[known], np.linspace(0, 1, points), method="inverted_cdf")
    value, low, high = (np.full((split.n, len(q)), np.nan) for _ in range(3))
    share, share_low, share_high = (np.full((split.n, points), np.nan) for _ in range(3))
    tails, tail_runs = np.full((split.n, 2, worst), np.nan), np.full((split.n, 2, worst), -1)
    weights = t.weights
    for k in range(split.n):
        mine = runs[starts[k] : starts[k + 1]]
        if not len(mine):
            continue
        values = y[mine]
        upto = _upto(weights, mine)
        basis = int(counts.basis[k])
        clustered = basis == CLUSTERS and points_drawn is not None
        point = points_drawn[0][mine] if clustered and points_drawn is not None else None
        n_drawn = len(mine) if point is None else len(np.unique(point))
        # What surely holds whatever the unfinished runs bring; also all that a grid leaves open.
        exact = basis in (CENSUS, BOUNDS, PROGRESS, REFINED)
        reach = _reach(q, values, upto, point, exact, level, int(unknown[k]))
        value[k] = values[_position(q, upto)]
        low[k] = np.where(reach[0] <= 0, -np.inf, values[_position(reach[0], upto)])
        high[k] = np.where(reach[1] > 1, np.inf, values[_position(reach[1].clip(0, 1), upto)])
        if basis == PROGRESS:
            total = int((split.cell == k).sum() - skipped[k]) if points_drawn is None else np.inf
            of_prefix = _in_progress(q, values, first[mine], total, lost[k], level)
            if points_drawn is not None:
                low[k], high[k] = of_prefix
            low[k], high[k] = np.fmax(low[k], of_prefix[0]), np.fmin(high[k], of_prefix[1])
        # Of several fixed points the runs are not alike, which costs the band a factor of e.
        edge = 2 * math.e if basis == REPLICATES else 2.0
        band = 0.0 if exact else float(np.sqrt(np.log(edge / (1 - level)) / (2 * n_drawn)))
        below = np.concatenate([[0.0], upto])[np.searchsorted(values, at, side="right")]
        total = len(mine) / (len(mine) + unknown[k])
        share[k] = below
        share_low[k] = (below - band).clip(0, 1) * total
        share_high[k] = (below + band).clip(0, 1) * total + (1 - total)
        m = min(worst, len(mine))
        for j, some in enumerate((np.arange(m), len(mine) - 1 - np.arange(m))):
            tails[k, j, :m], tail_runs[k, j, :m] = values[some], mine[some]
    units = {"units": str(t.ds[output].attrs.get("units", ""))}
    variables: dict[str, tuple[tuple[str, ...], NDArray[Any], dict[str, str]]] = {
        "n_run": ((), np.diff(starts), {"units": "1"}),
        "n_unknown": ((), unknown, {"units": "1"}),
        "n_nan": ((), done - np.diff(starts), {"units": "1"}),
        "value": (("quantile",), value, units),
        "low": (("quantile",), low, units),
        "high": (("quantile",), high, units),
        "share": (("point",), share, {"units": "1"}),
        "share_low": (("point",), share_low, {"units": "1"}),
        "share_high": (("point",), share_high, {"units": "1"}),
        "worst": (("tail", "place"), tails, units),
        "worst_run": (("tail", "place"), tail_runs, {}),
    }
    why = {
        "value": "where no run has a number",
        **dict.fromkeys(("low", "high", "share", "share_low", "share_high"), "there, too"),
        "worst": f"beyond the runs there are: fewer than {worst} have a number",
    }
    note = reasons({name: values for name, (_, values, _) in variables.items()}, why)
    split = beside(split, {*variables, "quantile", "point", "at", "tail", "place"})
    note = "; ".join(one for one in (note, split.renamed) if one)
    return xr.Dataset(
        {
            name: ((*split.dims, *own), values.reshape((*split.shape, *values.shape[1:])), attrs)
            for name, (own, values, attrs) in variables.items()
        },
        coords={**split.coords, "quantile": q, "at": ("point", at), "tail": ["lowest", "highest"]},
        attrs={
            "output": output,
            "level": level,
            "basis": left_out(basis_words(counts), left),
            "note": note,
        },
    )


def _numbers(t: Table, output: str) -> Floats:
    if output not in t.ds:
        raise ValueError(f"output {output!r} is not a variable of this Dataset")
    y = run_numbers(t, output)
    y[t.outcome > FAILED] = np.nan
    return y


def _upto(weights: Floats | None, mine: NDArray[np.intp]) -> Floats:
    """Share of the weight at or below each sorted run."""
    if weights is None:
        return np.arange(1, len(mine) + 1) / len(mine)
    total = np.cumsum(weights[mine])
    upto: Floats = total / total[-1]
    return upto


def _position(q: Floats, upto: Floats) -> NDArray[np.intp]:
    return np.searchsorted(upto, q - 1e-12).clip(0, len(upto) - 1)


def _reach(
    q: Floats,
    values: Floats,
    upto: Floats,
    point: NDArray[np.int64] | None,
    census: bool,
    level: float,
    unknown: int,
) -> tuple[Floats, Floats]:
    """Shares of the known runs between which each quantile surely lies."""
    n = len(values)
    if census:
        low, high = q.copy(), q.copy()
    elif point is None:
        from scipy.special import bdtr

        # Order statistics l and u with P(l-th <= quantile <= u-th) >= level.
        tail = (1 - level) / 2
        below = bdtr(np.arange(n + 1)[None, :].astype(float), n, q[:, None])
        rank_low = (below < tail).sum(axis=1)
        rank_high = (below < 1 - tail).sum(axis=1) + 1
        low, high = rank_low / n, rank_high / n
    else:
        worth = np.array([_worth(values <= values[i], point) for i in _position(q, upto)])
        interval = failure_interval(q * worth, worth, level=level, method="exact")
        low, high = interval[:, 0], interval[:, 1]
    # The unknown could all lie above (which lowers the rank among the known) or all below.
    total = n + unknown
    return (low * total - unknown) / n, high * total / n


def _in_progress(
    q: Floats,
    values: Floats,
    first: NDArray[np.bool_],
    total: float,
    lost: int,
    level: float,
) -> tuple[Floats, Floats]:
    """Bounds of quantiles by the runs of a random order drawn so far, sorted by value.

    A quantile lies below a value once surely that share of all runs does, at every look.
    """
    seen = values[first]
    n = len(seen)
    low, high = np.full(len(q), -np.inf), np.full(len(q), np.inf)
    if not n:
        return low, high

    def surely(rank: NDArray[np.int64], end: int) -> Floats:
        """Least or most share of all runs at or below the value of so many seen."""
        share = anytime_interval(rank, n + lost, total, level=level, n_unknown=lost)
        found: Floats = share[..., end]
        return found

    for end, bound in ((1, low), (0, high)):
        # The least rank whose share may reach the quantile, or surely does.
        below, above = np.zeros(len(q), dtype=np.int64), np.full(len(q), n + 1)
        while (above - below > 1).any():
            centre = (below + above) // 2
            reaches = surely(centre, end) >= q
            above, below = np.where(reaches, centre, above), np.where(reaches, below, centre)
        there = above <= n
        if end == 1:
            # Nothing at or below rank 0 may reach it already.
            there &= surely(np.zeros(len(q), dtype=np.int64), end) < q
        bound[there] = seen[above[there] - 1]
    return low, high


def _worth(below: NDArray[np.bool_], point: NDArray[np.int64]) -> float:
    """How many independent runs the runs of several points are worth for this share."""
    _, of = np.unique(point, return_inverse=True)
    n = np.bincount(of).astype(np.float64)
    k = np.bincount(of, weights=below)
    m, p = len(n), float(below.mean())
    if p in (0.0, 1.0):
        return float(m)
    variance = m / (m - 1) * float(((k - p * n) ** 2).sum()) / len(below) ** 2
    return float(min(p * (1 - p) / variance, len(below))) if variance > 0 else float(len(below))

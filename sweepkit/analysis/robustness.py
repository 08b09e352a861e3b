"""Which design to choose: how each does over scenarios and replicates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.answerable import endless
from sweepkit.analysis.cells import beside, cells
from sweepkit.analysis.coding import Floats, combined
from sweepkit.analysis.counts import basis_sentence, count
from sweepkit.analysis.outcomes import (
    ERRORED,
    FAILED,
    PASSED,
    SKIPPED,
    Errors,
    Failed,
    UnanswerableError,
    declared,
)
from sweepkit.analysis.reasons import check_share, check_shares, reasons
from sweepkit.analysis.table import Points, Table, dim_codes, spread, table
from sweepkit.analysis.unrefined import left_out, unrefined

__all__ = ["robustness"]

QUANTILES = (0.05, 0.1, 0.5)
CRITERIA = ("pass_share", "cvar", "regret")
BLOCK = 1024
"""Designs compared with one another at once."""
_DIRECTION = {"regret": -1}


def robustness(
    ds: xr.Dataset | Table,
    of: str | None = None,
    *,
    goal: str = "max",
    quantiles: Sequence[float] = QUANTILES,
    tail: float = 0.1,
    criteria: Sequence[str] = CRITERIA,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> xr.Dataset:
    """How each design does over scenarios and replicates, and which are worth choosing.

    Parameters
    ----------
    ds : Dataset or Table
    of : str, optional
        An output with one number per run. By default the margin: of several requirements the
        smallest, each divided by its standard deviation over all runs. Where there is neither, 1
        for a run that passes and 0 for one that fails.
    goal : {"max", "min"}
        Whether more or less of `of` is better; a margin is always better the larger it is.
    quantiles : sequence of float
        Lower quantiles (for ``goal="min"``, upper), between 0 and 1.
    tail : float
        The share of worst runs averaged in ``cvar``, between 0 and 1.
    criteria : sequence of str
        Columns that the Pareto front weighs: ``pass_share``, ``worst``, ``cvar``, ``mean``,
        ``regret``, ``distance``.
    requirements, failed, level, errors
        As in `failure_rate`. With ``errors="fail"`` a run that erred is worse than any number.

    Returns
    -------
    Dataset
        Over the design dims: ``worst``, ``mean``, ``cvar`` (mean of the worst `tail`),
        ``value`` (with ``quantile``), ``regret`` (most that another design does better in one
        scenario, on average over replicates unless these share their draws, as
        ``streams="common"`` makes them; NaN unless scenarios are shared), all in the units of
        `of`; ``pass_share`` with ``low`` and ``high``; ``distance`` to the nearest design with a
        failure, the root of summed squared shares of each parameter's range (0 if it fails
        itself, infinite if none fails); ``pareto`` (no design is at least as good in all criteria
        and better in one); ``n_run``, ``n_unknown``. NaN where nothing has run. ``attrs`` say the
        basis, `of`, and in ``note`` why a number is NaN or infinite.

    Raises
    ------
    UnanswerableError
        If there is no design parameter, or no run has passed or failed.

    References
    ----------
    C. McPhail et al., Earth's Future 6 (2018), 169-191, for robustness metrics;
    R. T. Rockafellar and S. Uryasev, J. Risk 2 (2000), 21-41, for CVaR;
    L. J. Savage, J. Am. Stat. Assoc. 46 (1951), 55-67, for regret.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> mass = xr.DataArray([5.0, 6.0], dims="mass", attrs={"role": "scenario"})
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": mass})
    >>> robustness(ds)["pareto"].values.tolist()
    [True, False]
    """
    if goal not in ("max", "min"):
        raise ValueError(f"goal={goal!r} is neither 'max' nor 'min'")
    if tail != 1:
        check_share("tail", tail)
    q = check_shares("quantiles", quantiles)
    if isinstance(criteria, str):
        raise ValueError(f"criteria={criteria!r} is a name; give a list of them")
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    if not t.design:
        raise UnanswerableError("no parameter has the role 'design', so there is nothing to choose")
    t, left = unrefined(t)
    outcome = t.counted(errors)
    if not (outcome <= FAILED).any():
        raise UnanswerableError(f"none of {t.n} runs has passed or failed yet")
    y, name, units = _quantity(t, of, outcome, goal)
    if errors == "fail":
        y = np.where(t.outcome == ERRORED, -np.inf, y)
    split = cells(t, None)
    counts = count(
        t, split.cell, split.n, fixed=split.fixed, level=level, errors=errors,
        with_boundary=False, along=split.along, at_points=True,
    )  # fmt: skip
    own = _summaries(split.cell, split.n, y, t.weights, q, tail)
    sign = -1.0 if goal == "min" and of is not None else 1.0
    regret, why_not = _regret(t, split.cell, split.n, y)
    distance = _distance(t, split.cell, split.n, outcome)
    columns = {
        "pass_share": 1 - counts.rate,
        "worst": own["worst"],
        "cvar": own["cvar"],
        "mean": own["mean"],
        "regret": regret,
        "distance": distance,
    }
    if not len(criteria):
        raise ValueError(f"criteria is empty; give some of {list(columns)}")
    for criterion in criteria:
        if criterion not in columns:
            raise ValueError(f"criteria name {criterion!r}, which is none of {list(columns)}")
    used = [c for c in criteria if not np.isnan(columns[c]).all()]
    scores = np.stack([columns[c] * _DIRECTION.get(c, 1) for c in used], axis=1)
    pareto = _pareto(scores)
    about = {"units": units}
    one = {"units": "1"}
    variables: dict[str, tuple[tuple[str, ...], NDArray[Any], dict[str, str]]] = {
        "worst": ((), sign * own["worst"], about),
        "mean": ((), sign * own["mean"], about),
        "cvar": ((), sign * own["cvar"], {**about, "long_name": f"mean of the worst {tail:g}"}),
        "value": (("quantile",), sign * own["value"], about),
        "regret": ((), regret, {**about, "long_name": "largest regret in one scenario"}),
        "pass_share": ((), 1 - counts.rate, one),
        "low": ((), 1 - counts.high, {**one, "long_name": "lower bound of the pass share"}),
        "high": ((), 1 - counts.low, {**one, "long_name": "upper bound of the pass share"}),
        "distance": ((), distance, {**one, "long_name": "distance to the nearest failing design"}),
        "pareto": ((), pareto, {"long_name": "no design is better in all criteria"}),
        "n_run": ((), counts.n_run, one),
        "n_unknown": ((), counts.n_unknown, one),
    }
    notes = [why_not] if why_not else []
    unknown = "where no run is known, or the grid leaves the design out"
    if (t.outcome != SKIPPED).all():
        unknown = "where no run is known"
    both = f"{unknown}, or infinite values of both signs meet"
    why = {"pass_share": unknown, "worst": unknown, "mean": both, "cvar": both, "value": unknown}
    if not np.isnan(regret).all():
        why["regret"] = unknown
    notes += [reasons({**columns, "value": own["value"]}, why)]
    if np.isinf(distance).any():
        notes.append("distance is infinite: no design fails")
    if np.isnan(distance).any():
        notes.append(f"distance is NaN: {endless(t, t.design)}")
    split = beside(split, {*variables, "quantile"})
    notes.append(split.renamed)
    return xr.Dataset(
        {
            key: ((*split.dims, *dims), values.reshape((*split.shape, *values.shape[1:])), attrs)
            for key, (dims, values, attrs) in variables.items()
        },
        coords={**split.coords, "quantile": q},
        attrs={
            "of": name,
            "basis": left_out(basis_sentence(counts), left),
            "criteria": ", ".join(used),
            "note": "; ".join(note for note in notes if note),
        },
    )


def _quantity(
    t: Table, of: str | None, outcome: NDArray[np.int8], goal: str
) -> tuple[Floats, str, str]:
    """What designs are compared by, larger better; NaN where unknown."""
    known = outcome <= FAILED
    if of is not None:
        if of not in t.ds or set(t.ds[of].dims) != set(t.dims):
            raise ValueError(f"of={of!r} is no output with one number per run")
        if t.ds[of].dtype.kind not in "bfiu":
            raise ValueError(f"of={of!r} is {t.ds[of].dtype}, not a number")
        y: Floats = t.ds[of].transpose(*t.dims).values.reshape(-1).astype(np.float64)
        y = y if goal == "max" else -y
        return np.where(known, y, np.nan), of, str(t.ds[of].attrs.get("units", ""))
    if t.requirements:
        from sweepkit.verdicts import margin

        margins = margin(t.ds, t.requirements).transpose(*t.dims, "requirement").values
        margins = margins.reshape(t.n, -1).astype(np.float64)
        if margins.shape[1] > 1:
            with np.errstate(invalid="ignore", divide="ignore"):
                scale = np.nanstd(np.where(np.isfinite(margins), margins, np.nan), axis=0)
            margins = margins / np.where(scale > 0, scale, 1.0)
        if not np.isnan(margins[known]).all(axis=0).any():
            name = "margin" if margins.shape[1] == 1 else "smallest margin in standard deviations"
            return np.where(known, margins.min(axis=1), np.nan), name, ""
    passes = np.where(outcome == PASSED, 1.0, 0.0)
    return np.where(known, passes, np.nan), "passed", "1"


def _summaries(
    cell: NDArray[Any], n_cells: int, y: Floats, weights: Floats | None, q: Floats, tail: float
) -> dict[str, Floats]:
    """Worst, mean, lower tail mean and quantiles of each cell, by one sort."""
    runs = np.flatnonzero(~np.isnan(y))
    runs = runs[np.lexsort((y[runs], cell[runs]))]
    values, of = y[runs], cell[runs]
    w = np.ones(len(runs)) if weights is None else weights[runs]
    starts = np.searchsorted(of, np.arange(n_cells + 1))
    some = np.diff(starts) > 0
    at = starts[:-1][some]
    out = {k: np.full(n_cells, np.nan) for k in ("worst", "mean", "cvar")}
    out["value"] = np.full((n_cells, len(q)), np.nan)
    if not len(runs):
        return out
    total = np.add.reduceat(w, at)
    number = np.diff(starts)[some]
    before = np.repeat(np.cumsum(w)[at] - w[at], number)
    upto = (np.cumsum(w) - before) / np.repeat(total, number)
    share = w / np.repeat(total, number)
    out["worst"][some] = values[at]
    # Each run counts in the tail by the part of it that lies below the tail's share.
    part = np.clip(tail - (upto - share), 0, share)
    with np.errstate(invalid="ignore"):  # of infinite values
        out["mean"][some] = np.add.reduceat(share * values, at)
        out["cvar"][some] = np.add.reduceat(np.where(part > 0, part * values, 0.0), at) / tail
    for k, quantile in enumerate(q):
        below = np.add.reduceat((upto < quantile - 1e-12).astype(np.int64), at)
        out["value"][some, k] = values[at + np.minimum(below, number - 1)]
    return out


def _regret(t: Table, cell: NDArray[Any], n_cells: int, y: Floats) -> tuple[Floats, str]:
    """Most that the best design of a scenario does better, over scenarios; and a remark."""
    if t.points is not None and declared(t.ds).get("streams") == "independent":
        return _regret_of_means(t, t.points, cell, n_cells, y)
    scenario, n_scenarios, nothing = _scenarios(t, ("scenario", "replicate"))
    if nothing:
        return np.full(n_cells, np.nan), (
            "regret is NaN: no parameter is a scenario or a replicate to compare in"
        )
    lost, remark = _lost(cell, n_cells, scenario, n_scenarios, y)
    unknown = int((np.isnan(y) & (t.outcome != SKIPPED)).sum())
    if unknown and not remark:
        remark = f"regret is at least this: {unknown} runs are unknown"
    return lost, remark


def _regret_of_means(
    t: Table, points: Points, cell: NDArray[Any], n_cells: int, y: Floats
) -> tuple[Floats, str]:
    """The same where replicates of designs share no draws: of their mean in each scenario.

    Replicate k of one design and of another met other random numbers, so what one did better than
    the other there is chance.
    """
    scenario, n_scenarios, _ = _scenarios(t, ("scenario",))
    known = ~np.isnan(y)
    n_points = len(points.first)
    with np.errstate(invalid="ignore"):
        total = np.bincount(points.of[known], weights=y[known], minlength=n_points)
        mean = total / np.bincount(points.of[known], minlength=n_points)
    there = points.first >= 0
    first = points.first[there]
    lost, remark = _lost(cell[first], n_cells, scenario[first], n_scenarios, mean[there])
    if remark:
        return lost, remark
    remark = "regret is of the mean over replicates, which share no draws (streams='independent')"
    unknown = int((~known & (t.outcome != SKIPPED)).sum())
    return lost, f"{remark}; {unknown} unknown runs are in no mean" if unknown else remark


def _scenarios(t: Table, roles: tuple[str, ...]) -> tuple[NDArray[Any], int, bool]:
    """Which scenario each run is of, how many there are, and whether nothing tells them apart."""
    parts = []
    for dim in t.dims:
        codes, n = dim_codes(t, dim, roles)
        if any(p.role in roles for p in t.parameters if p.dims == (dim,)):
            parts.append((spread(codes, dim, t), n))
    return (*combined(parts, t.n), not parts)


def _lost(
    cell: NDArray[Any], n_cells: int, scenario: NDArray[Any], n_scenarios: int, y: Floats
) -> tuple[Floats, str]:
    """What each design loses at most, and why none is known."""
    none = np.full(n_cells, np.nan)
    known = ~np.isnan(y)
    pairs = np.unique(cell[known] * np.int64(n_scenarios) + scenario[known])
    designs = np.bincount(pairs % n_scenarios, minlength=n_scenarios)
    compared = designs[designs > 0]
    if len(pairs) < known.sum():
        return none, "regret is NaN: several runs of a design are of the same scenario"
    if n_cells > 1 and np.mean(compared > 1) < 0.5:
        return none, "regret is NaN: designs do not share scenarios, so none is compared in any"
    best = np.full(n_scenarios, -np.inf)
    np.maximum.at(best, scenario[known], y[known])
    with np.errstate(invalid="ignore"):
        lost = best[scenario[known]] - y[known]
    worst = np.full(n_cells, -np.inf)
    np.maximum.at(worst, cell[known], np.where(np.isnan(lost), 0.0, lost))
    return np.where(np.isinf(worst) & (worst < 0), np.nan, worst), ""


def _distance(t: Table, cell: NDArray[Any], n_cells: int, outcome: NDArray[np.int8]) -> Floats:
    """Distance of each design to the nearest with a failure, in shares of parameter ranges."""
    from scipy.spatial import cKDTree

    runs = np.full(n_cells, -1)
    runs[cell[::-1]] = np.arange(t.n)[::-1]
    fails = np.bincount(cell[outcome == FAILED], minlength=n_cells) > 0
    if not fails.any():
        return np.full(n_cells, np.inf)
    if endless(t, t.design):
        return np.full(n_cells, np.nan)
    axes = []
    for p in t.design:
        if p.ordered:
            values = t.raw(p.name)[runs]
            range_ = float(np.ptp(values))
            axes.append((values - values.min()) / (range_ or 1.0))
        else:
            # One step apart whichever two values differ.
            axes += list(np.eye(p.n)[:, p.codes[runs]] / np.sqrt(2))
    points = np.stack(axes, axis=1)
    distance, _ = cKDTree(points[fails]).query(points)
    return np.asarray(distance, dtype=np.float64)


def _pareto(scores: Floats) -> NDArray[np.bool_]:
    """Rows that no other row dominates; rows with NaN never are."""
    front: NDArray[np.bool_] = np.asarray(~np.isnan(scores).any(axis=1))
    rows = np.flatnonzero(front)
    # Ranks compare as scores do, and unlike infinite ones can be added.
    ranks = [np.unique(scores[rows, k], return_inverse=True)[1] for k in range(scores.shape[1])]
    ranks = [rank for rank in ranks if len(rows) and rank.any()]
    if not ranks:
        return front
    order = np.lexsort(ranks[::-1])[::-1]
    points = np.stack(ranks, axis=1)[order]
    new = np.concatenate([[True], (np.diff(points, axis=0) != 0).any(axis=1)])
    ways = {1: _first_alone, 2: _front_of_two, 3: _front_of_three}
    on = ways.get(len(ranks), _front_of_many)(points[new])
    front[rows[order]] = on[np.cumsum(new) - 1]
    return front


def _first_alone(points: NDArray[np.int64]) -> NDArray[np.bool_]:
    on: NDArray[np.bool_] = np.arange(len(points)) == 0
    return on


def _front_of_two(points: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of distinct points, the first coordinate falling: those whose second exceeds all before."""
    second = points[:, 1]
    best = np.maximum.accumulate(second)
    on: NDArray[np.bool_] = np.concatenate([[True], second[1:] > best[:-1]])
    return on


def _front_of_three(points: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of distinct points in falling order: those beyond the stairs that earlier ones make.

    H. T. Kung, F. Luccio and F. P. Preparata, J. ACM 22 (1975), 469-476.
    """
    on = np.zeros(len(points), dtype=bool)
    second: list[int] = []  # rises, and the third coordinate falls with it
    third: list[int] = []
    for k, (_, y, z) in enumerate(points.tolist()):
        at = bisect_left(second, y)
        if at < len(second) and third[at] >= z:
            continue
        on[k] = True
        end = at + (at < len(second) and second[at] == y)
        while at and third[at - 1] <= z:
            at -= 1
        second[at:end], third[at:end] = [y], [z]
    return on


def _front_of_many(points: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of distinct points, block after block: a point that dominates another has the larger sum."""
    order = np.argsort(-points.sum(axis=1), kind="stable")
    kept = np.empty((0, points.shape[1]), dtype=np.int64)
    on = np.zeros(len(points), dtype=bool)
    for start in range(0, len(order), BLOCK):
        some = order[start : start + BLOCK]
        for other in range(0, len(kept), BLOCK):
            some = some[_dominating(kept[other : other + BLOCK], points[some]) == 0]
        some = some[_dominating(points[some], points[some]) == 1]  # each is as good as itself
        on[some] = True
        kept = np.concatenate([kept, points[some]])
    return on


def _dominating(those: NDArray[np.int64], points: NDArray[np.int64]) -> NDArray[np.intp]:
    """How many of those are at least as good in all as each point."""
    good = np.ones((len(those), len(points)), dtype=bool)
    for k in range(points.shape[1]):
        good &= those[:, k, None] >= points[None, :, k]
    number: NDArray[np.intp] = np.count_nonzero(good, axis=0)
    return number

"""Failure rates, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.counts import (
    BOUNDS,
    CENSUS,
    CLUSTERS,
    NOTHING,
    PROGRESS,
    REFINED,
    REPLICATES,
    Counts,
    basis_sentence,
    cells,
    count,
    drawn,
    finished_prefix,
    kept,
    run_weights,
)
from sweepkit.analysis.intervals import anytime_interval, failure_interval
from sweepkit.analysis.table import (
    ERRORED,
    FAILED,
    PENDING,
    SKIPPED,
    Codes,
    Errors,
    Failed,
    Table,
    UnanswerableError,
    table,
)
from sweepkit.analysis.unrefined import left_out, unrefined

__all__ = ["convergence", "failure_interval", "failure_rate", "held_up", "rate"]


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
        along=split.along,
        at_points=split.at_points,
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
        along=split.along,
        at_points=split.at_points,
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
        # What points or weights cost or gain now, they will later.
        effect = ((counts.high - counts.low) / (nominal[:, 1] - nominal[:, 0])) ** 2
    designed = np.isin(counts.basis, (REPLICATES, CLUSTERS, REFINED))
    total = np.where(designed, np.ceil(total * np.nan_to_num(effect, nan=1.0)), total)
    needed = np.maximum(total - known, 0)
    pending = np.bincount(cell[t.outcome == PENDING], minlength=n_cells)
    closed = np.isin(counts.basis, (CENSUS, PROGRESS, BOUNDS))
    needed = np.where(closed, np.minimum(needed, pending), needed)
    needed = np.where((counts.high - counts.low <= width), 0, needed)
    nothing = counts.basis == NOTHING
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
    t, left = unrefined(t)
    if run_weights(t) is not None:
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
    crossed = drawn(t, ()) is None or t.points is not None
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
    frame.attrs["basis"] = left_out("in progress", left)
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
        counts = count(t, p.codes, p.n, fixed=fixed, level=level, errors=errors, along=[p])
        values: list[Any] = [p.label(k) for k in range(p.n)] if p.binned else p.values.tolist()
        if p.kind == "time" and not p.binned:
            values = list(p.values)
        frame = pd.DataFrame(_columns(counts))
        frame.insert(0, "parameter", p.name)
        frame.insert(1, "value", pd.Series(values, dtype=object))
        # A refined value may have passed alone where the cells around it surely fail in part.
        held = (counts.n_run > 0) & (counts.n_failed == 0) & (counts.low <= 0)
        frame.insert(2, "held", held)
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

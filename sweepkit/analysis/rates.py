"""Failure rates, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.bases import (
    BASES,
    BOUNDS,
    CENSUS,
    CLUSTERS,
    NOTHING,
    PROGRESS,
    REFINED,
    REPLICATES,
)
from sweepkit.analysis.cells import beside, cells, kept
from sweepkit.analysis.coding import Codes, Floats
from sweepkit.analysis.counts import Counts, basis_sentence, count, finished_prefix, run_weights
from sweepkit.analysis.intervals import anytime_interval, failure_interval
from sweepkit.analysis.outcomes import (
    ERRORED,
    FAILED,
    PENDING,
    SKIPPED,
    Errors,
    Failed,
    UnanswerableError,
)
from sweepkit.analysis.reasons import check_share, reasons, whole_number
from sweepkit.analysis.table import Table, table
from sweepkit.analysis.unrefined import left_out, unrefined
from sweepkit.analysis.worth import drawn

__all__ = ["convergence", "failure_interval", "failure_rate", "held_up", "rate"]

WHY_NAN = {
    "rate": "where nothing has passed or failed",
    "boundary": "unless runs are a deterministic grid of crossed parameters; these are listed "
    "points, a sample, replicates or refined, none is known, or "
    "most neighbours of the known are not",
}
_LOOK = ("n_run", "n_failed", "n_error", "rate", "low", "high", "basis", "n_needed")


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
        ``boundary`` is, on a deterministic grid, the share of finished runs with a neighbour of
        the other outcome; NaN elsewhere, and where most neighbours of finished runs are unknown.
        ``attrs["basis"]`` says what the intervals rest on, ``basis`` says it per cell, and
        ``attrs["note"]`` says why a number is NaN. Here and in every other result, a parameter
        or dim named as one of its variables has an underscore more: of runs over a parameter
        ``low`` the result's ``low_`` is the parameter.

    Notes
    -----
    Unknown runs (pending, errored) could all pass or all fail: ``low`` and ``high`` take each to
    its worst, on top of what the basis gives, so they are bounds and hold at least as often as
    `level`. Replicates of fixed points are strata: the interval is that of their scatter within
    points, never that of the runs pooled. Points are fixed where parameters are crossed or a
    sweep lists them (`sk.values` with dims, `sk.paired`), and drawn where they come from
    `sk.latin_hypercube` or `sk.sobol`, or along one dim of a Dataset from elsewhere. Runs of a
    drawn point count together as what they are worth. Runs of refinements crowd where designs
    fail, so each is weighed by its ``volume`` (`volumes`; `sk.runs` and `sk.open` bring it):
    ``rate`` is a share of the space, and ``low`` and ``high`` bound the share in parts of the
    space whose runs all agree, at one value of a parameter those that the slice there passes
    through. Without volumes, runs of several stages are refused.

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
    split = beside(split, about)
    return xr.Dataset(
        {
            name: (split.dims, np.asarray(values).reshape(split.shape), attrs)
            for name, (values, attrs) in about.items()
        },
        coords=split.coords,
        attrs={
            "basis": basis_sentence(counts),
            "level": level,
            "errors": errors,
            "note": reasons(_columns(counts), WHY_NAN),
        },
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
        where nothing has run, so no rate is known). ``attrs["basis"]`` says it in words, and
        ``attrs["note"]`` why a number is NaN.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("sample", [True] * 5 + [False] * 45)},
    ...                 coords={"gain": ("sample", np.arange(50.0))})
    >>> rate(ds)[["rate", "basis", "n_needed"]].values.tolist()
    [[0.1, 'sample', 507]]
    """
    check_share("width", width)
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
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
    split = beside(split, {*frame, "n_needed"})
    at = np.unravel_index(np.arange(split.n), split.shape) if split.dims else ()
    for k, (name, index) in enumerate(zip(split.dims, at, strict=True)):
        frame.insert(k, name, split.coords[name].values[index])
    frame["n_needed"] = _needed(counts, t, split.cell, width, level)
    why = WHY_NAN | {"n_needed": WHY_NAN["rate"]}
    frame.attrs.update(basis=basis_sentence(counts), note=reasons(frame, why))
    return frame


def _needed(counts: Counts, t: Table, cell: Codes, width: float, level: float) -> Any:
    n_cells = len(counts.rate)
    known = counts.n_run
    total = _in_all(np.nan_to_num(counts.rate), width, level)
    nominal = failure_interval(counts.n_failed, known, level=level)
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


def _in_all(p: Floats, width: float, level: float) -> Floats:
    """Independent runs that make an interval so narrow, at these rates."""
    low, high = np.zeros(len(p)), np.full(len(p), 1e12)
    for _ in range(60):
        centre = np.sqrt(np.maximum(low, 1) * high)
        interval = failure_interval(p * centre, centre, level=level)
        wide = interval[:, 1] - interval[:, 0] > width
        low, high = np.where(wide, centre, low), np.where(wide, high, centre)
    total: Floats = np.ceil(high)
    return total


def convergence(
    ds: xr.Dataset | Table,
    *,
    points: int = 20,
    width: float = 0.05,
    seed: int = 0,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """How the failure rate settled as runs came in, and how many are still needed.

    Parameters
    ----------
    ds : Dataset or Table
    points : int
        Looks, spaced evenly in the logarithm of the number of runs.
    width : float
        Wanted width of the interval, dimensionless.
    seed : int
        Of the random order taken where none is recorded.
    requirements, failed, level, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        Per look: ``n_run``, ``n_failed``, ``n_error``, ``rate``, ``low``, ``high``, ``basis`` and
        ``n_needed`` (further runs for the wanted width at the rate then known; no more than are
        declared, but for drawn points). The last look is what `rate` says of all runs; the
        intervals of those before, whose basis is "in progress", hold at all looks together. The
        ``of`` says what an interval bounds: the share that fails of "the declared runs", or "the
        underlying rate" of which they are a sample; where replicates of fixed points are
        declared the last look is of that, those before of the declared runs, so that it may be
        the wider. The rate is NaN at looks before any run passed or failed. ``attrs["order"]``
        says which order: the recorded random one, or one shuffled afterwards; ``attrs["basis"]``
        is that of the last look, and ``attrs["note"]`` says why a number is NaN or a look apart.

    Raises
    ------
    ValueError
        If no run has finished, so there is nothing to follow.

    References
    ----------
    As in `anytime_interval`.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [False, False, True])}, coords={"a": [0.0, 1.0, 2.0]})
    >>> convergence(ds)[["n_run", "basis", "n_needed"]].values.tolist()[1:]
    [[2, 'in progress', 1], [3, 'census', 0]]
    """
    whole_number("points", points)
    whole_number("seed", seed, 0)
    check_share("width", width)
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
    if not (outcome <= FAILED).any():
        raise UnanswerableError(
            f"none of {t.n} runs has passed or failed yet, so no rate can be followed; "
            "errors='fail' counts errors as failures"
        )
    now = rate(t, width=width, level=level, errors=errors)
    endless = _endless(t)
    frame = pd.concat(
        [_looks(t, outcome, order, points, width, level), now[list(_LOOK)]],
        ignore_index=True,
    )
    finite = int(now["basis"].isin([BASES[k] for k in (CENSUS, BOUNDS, PROGRESS)]).sum()) > 0
    of = [*[_of(not endless)] * (len(frame) - 1), _of(finite and not endless)]
    frame["of"] = of
    frame.attrs["order"] = (
        "recorded random order of the coarse pass; at the last look all runs there are"
        if recorded
        else f"finished runs in a random order (seed {seed}), as none is recorded or all are done"
    )
    frame.attrs["basis"] = left_out(now.attrs["basis"], left)
    why = {"rate": "at looks before any run passed or failed: they had errored"}
    notes = [reasons(frame, why)]
    if len(set(of)) > 1:
        notes.append(
            "the last interval is of the rate that further points or replicates would show, those "
            "before of the runs declared, so it may be the wider"
        )
    frame.attrs["note"] = "; ".join(note for note in notes if note)
    return frame


def _endless(t: Table) -> bool:
    """Whether points are drawn from a space, of which the runs declared are a sample only."""
    return drawn(t, ()) is not None and t.points is None


def _of(declared_runs: bool) -> str:
    return "the declared runs" if declared_runs else "the underlying rate"


def _looks(
    t: Table,
    outcome: NDArray[np.int8],
    order: NDArray[np.int64],
    points: int,
    width: float,
    level: float,
) -> pd.DataFrame:
    """What was known at looks before the last."""
    declared = int((outcome != SKIPPED).sum())
    what = outcome[order]
    looks = np.unique(np.geomspace(1, max(len(order), 1), points).round().astype(np.int64))
    known = int((outcome <= FAILED).sum() + (outcome == ERRORED).sum())
    looks = looks[looks < known][: len(order)]
    failing = np.cumsum(what == FAILED)[looks - 1]
    errored = np.cumsum(what == ERRORED)[looks - 1]
    endless = _endless(t)
    total = np.inf if endless else float(declared)
    interval = anytime_interval(failing, looks, total, level=level, n_unknown=errored)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = failing / (looks - errored)
    needed = np.maximum(_in_all(np.nan_to_num(rates), width, level) - looks, 0)
    needed = needed if endless else np.minimum(needed, declared - looks)
    wide = interval[:, 1] - interval[:, 0] > width
    columns = (
        looks - errored, failing, errored, rates, interval[:, 0], interval[:, 1],
        BASES[PROGRESS], np.where(wide, needed, 0).astype(np.int64),
    )  # fmt: skip
    return pd.DataFrame(dict(zip(_LOOK, columns, strict=True)), index=range(len(looks)))


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
        has run and nothing failed, nor surely fails around it where runs are refined), and the
        columns of `failure_rate`. ``attrs["note"]`` says why a number is NaN.

    Raises
    ------
    UnanswerableError
        If all parameters are replicates.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> held_up(ds)[["parameter", "value", "held", "rate", "basis"]].values.tolist()[:2]
    [['gain', 1, True, 0.0, 'census'], ['gain', 2, False, 0.5, 'census']]
    """
    whole_number("bins", bins)
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
    if not frames:
        raise UnanswerableError(
            "all parameters are replicates, so there is none that could hold up; see rate(ds)"
        )
    result = pd.concat(frames, ignore_index=True)
    result.attrs["basis"] = "; ".join(sentences)
    result.attrs["note"] = reasons(result, WHY_NAN)
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

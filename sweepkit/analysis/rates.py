"""Failure rates, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.cells import beside, cells, kept
from sweepkit.analysis.counts import Counts, basis_sentence, count
from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.needed import needed
from sweepkit.analysis.outcomes import (
    Errors,
    Failed,
    UnanswerableError,
)
from sweepkit.analysis.reasons import check_share, reasons, whole_number
from sweepkit.analysis.table import Table, table

__all__ = ["failure_interval", "failure_rate", "held_up", "rate"]

WHY_NAN = {
    "rate": "where nothing has passed or failed",
    "boundary": "unless runs are a deterministic grid of crossed parameters; these are listed "
    "points, a sample, replicates or refined, none is known, or "
    "most neighbours of the known are not",
}


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
        While a sweep runs in random order (basis "in progress") it is, as its bounds are, of all
        declared runs: the random ones' share where these tell more than all that has finished.
        ``boundary`` is, on a deterministic grid, the share of finished runs with a neighbour of
        the other outcome; NaN elsewhere, and where most neighbours of finished runs are unknown.
        ``attrs["basis"]`` says what the intervals rest on, ``basis`` says it per cell, and
        ``attrs["note"]`` says why a number is NaN. Here and in every other result, a parameter
        or dim named as one of its variables has an underscore more: of runs over a parameter
        ``low`` the result's ``low_`` is the parameter, and the note says so.

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
            "note": _notes(reasons(_columns(counts), WHY_NAN), split.renamed),
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
    frame["n_needed"] = needed(counts, t, split.cell, width, level)
    why = WHY_NAN | {"n_needed": WHY_NAN["rate"]}
    frame.attrs.update(
        basis=basis_sentence(counts), note=_notes(reasons(frame, why), split.renamed)
    )
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


def _notes(*notes: str) -> str:
    return "; ".join(one for one in notes if one)


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

"""How the failure rate settled as runs came in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.bases import BASES, BOUNDS, CENSUS, PROGRESS
from sweepkit.analysis.counts import finished_prefix, run_weights
from sweepkit.analysis.intervals import anytime_interval
from sweepkit.analysis.needed import in_all
from sweepkit.analysis.outcomes import (
    ERRORED,
    FAILED,
    PENDING,
    SKIPPED,
    Errors,
    Failed,
    UnanswerableError,
)
from sweepkit.analysis.rates import rate
from sweepkit.analysis.reasons import check_share, reasons, whole_number
from sweepkit.analysis.table import Table, table
from sweepkit.analysis.unrefined import left_out, unrefined
from sweepkit.analysis.worth import drawn

__all__ = ["convergence"]

_LOOK = ("n_run", "n_failed", "n_error", "rate", "low", "high", "basis", "n_needed")


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
    needed = np.maximum(in_all(np.nan_to_num(rates), width, level) - looks, 0)
    needed = needed if endless else np.minimum(needed, declared - looks)
    wide = interval[:, 1] - interval[:, 0] > width
    columns = (
        looks - errored, failing, errored, rates, interval[:, 0], interval[:, 1],
        BASES[PROGRESS], np.where(wide, needed, 0).astype(np.int64),
    )  # fmt: skip
    return pd.DataFrame(dict(zip(_LOOK, columns, strict=True)), index=range(len(looks)))

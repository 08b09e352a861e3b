"""The room to move: the largest box of passing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.boxes import MAX_BOXES, Blocked, largest
from sweepkit.analysis.coding import Coded, Floats, shown
from sweepkit.analysis.nominal import as_number, code_of, components
from sweepkit.analysis.outcomes import PASSED, SKIPPED, Errors, Failed, UnanswerableError
from sweepkit.analysis.reasons import reasons, whole_number
from sweepkit.analysis.table import Table, table, varied
from sweepkit.analysis.worth import drawn

__all__ = ["safe_box"]

MAX_STARTS = 10_000
"""Combinations of unordered values that are searched one by one."""


def safe_box(
    ds: xr.Dataset | Table,
    nominal: Mapping[str, Any] | None = None,
    *,
    max_boxes: int = MAX_BOXES,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """The room to move: the largest box of passing runs, around a nominal point or anywhere.

    The box is closed: no run in it or on its ends failed or is unknown. On a grid its ends are
    points that passed with all their replicates, and no point that a mask leaves out is in it; of
    scattered and of refined runs each end lies at a value where some run passed, and what lies
    between the runs inside is not known: ``high`` bounds it. The search is exact (best first, by
    splitting at a failure); where it would look at more than `max_boxes` boxes, a box is grown
    step by step, and "at least" says so. Unordered parameters keep one value.

    Parameters
    ----------
    ds : Dataset or Table
    nominal : mapping, optional
        A point that the box must hold, with a value for every design and scenario parameter.
    max_boxes : int
        Boxes looked at by the exact search.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        Per design or scenario parameter: ``low``, ``high`` (both inside), ``whole`` (the box spans
        its range), and, with a nominal point, ``below`` and ``above`` (room in the parameter's
        units; NaN for unordered ones, which have no room). ``attrs``: ``volume`` (points on a
        grid, else the share of the space), ``share`` (of the points of the grid, without those
        that its masks leave out; else of the space), ``n_run`` (runs inside, all passed),
        ``high`` (the failure rate inside is at most this with 95 %, also for a box that was
        chosen because nothing in it failed; 0 of deterministic runs of a grid or of listed
        points, all of which have run; 1 for refined runs, which are no random sample),
        ``exact``, ``basis`` (what this rests on), ``note`` (why a number is NaN) and ``text``.

    Raises
    ------
    UnanswerableError
        If no run passed, or the nominal point failed or is unknown.

    References
    ----------
    Branch and bound over maximal empty boxes: J. Eckstein, P. L. Hammer, Y. Liu, M. Nediak and
    B. Simeone, Comput. Optim. Appl. 23 (2002), 285-298; here the branch is at the failure
    nearest to the middle. The bound counts the boxes there were to choose from, as in the sample
    compression of S. Floyd and M. Warmuth, Mach. Learn. 21 (1995), 269-304.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [True, False, False, True])},
    ...                 coords={"a": [1.0, 2.0, 3.0, 4.0]})
    >>> safe_box(ds)[["low", "high"]].values.tolist()
    [[2.0, 3.0]]
    """
    whole_number("max_boxes", max_boxes)
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    outcome = t.counted(errors)
    if not (outcome == PASSED).any():
        raise UnanswerableError(f"none of {t.n} runs is known to pass, so no box of them is safe")
    parameters = varied(t)
    own = {a.name for a in t.axes if a is not None}
    if t.grid:
        # What follows from other parameters adds no room of its own.
        parameters = tuple(p for p in parameters if p.name in own)
    if nominal is not None:
        nominal = components(t, nominal)
        missing = [p.name for p in parameters if p.name not in nominal]
        if missing:
            raise ValueError(f"nominal has no value for {', '.join(map(repr, missing))}")
    if t.grid:
        return _safe_on_grid(t, parameters, outcome, nominal, max_boxes)
    return _safe_of_sample(t, parameters, outcome, nominal, max_boxes)


def _safe_on_grid(
    t: Table,
    parameters: tuple[Coded, ...],
    outcome: NDArray[np.int8],
    nominal: Mapping[str, Any] | None,
    max_boxes: int,
) -> pd.DataFrame:
    shape = tuple(p.n for p in parameters)
    code = np.zeros(t.n, dtype=np.int64)
    for p in parameters:
        code = code * p.n + p.codes
    bad = np.zeros(int(np.prod(shape, dtype=np.int64)), dtype=bool)
    bad[code[outcome != PASSED]] = True
    at = None
    if nominal is not None:
        at = np.array([code_of(p, nominal[p.name]) for p in parameters])
        if bad[np.ravel_multi_index(tuple(at), shape)]:
            raise UnanswerableError(
                "the nominal point did not pass (or is not known to), so no box around it is safe"
            )
    solid = bad.reshape(shape)
    where = np.argwhere(_beside(solid, parameters)).astype(np.float64)
    blocked = Blocked(where, where + 1, where - 1, step=1.0)
    best: tuple[float, NDArray[np.int64], NDArray[np.int64]] | None = None
    exact = True
    for low, high in _starts(parameters, at):
        within: NDArray[np.bool_] = np.all((where >= low) & (where <= high), axis=1)
        points = None if at is None else at.astype(np.float64)
        least = 0.0 if best is None else best[0]
        found, proven = largest(
            blocked.some(within), low.astype(float), high.astype(float), points, max_boxes,
            solid=solid, least=least,
        )  # fmt: skip
        exact &= proven
        if found is not None and (best is None or found[0] > best[0]):
            best = (found[0], found[1].astype(np.int64), found[2].astype(np.int64))
    if best is None:
        raise UnanswerableError("no point passed with all its replicates, so no box is safe")
    volume, low, high = best
    rows = []
    inside = np.ones(t.n, dtype=bool)
    for k, p in enumerate(parameters):
        ends = [p.values[low[k]], p.values[high[k]]]
        whole = bool(high[k] - low[k] == p.n - 1)
        rows.append(_room(p, ends, whole, None if nominal is None else nominal[p.name]))
        inside &= (p.codes >= low[k]) & (p.codes <= high[k])
    # Of the points that the grid's masks do not leave out.
    n, size = int(inside.sum()), len(np.unique(code[outcome != SKIPPED]))
    scatters = t.points is not None or t.random
    pairs = (p.n * (p.n + 1) / 2 if p.ordered else p.n for p in parameters)
    boxes = float(sum(map(np.log, pairs)))
    basis = "census of its points"
    if scatters:
        basis = f"{n} runs, each a sample of its point, all passed; one of e^{boxes:.1f} boxes"
    return _framed(parameters, rows, exact, f"{int(volume)} of {size} points", {
        "volume": int(volume),
        "share": volume / size,
        "n_run": n,
        "high": _chosen(n, boxes) if scatters else 0.0,
        "basis": basis,
    })  # fmt: skip


def _chosen(n: float, boxes: float) -> float:
    """What the failure rate in a box is at most (95 %), chosen because none of n runs failed.

    `boxes` is the logarithm of how many there were to choose from.
    """
    return float(-np.expm1((np.log(0.05) - boxes) / n)) if n > 0 else 1.0


def _framed(
    parameters: Sequence[Coded],
    rows: list[dict[str, Any]],
    exact: bool,
    size: str,
    attrs: dict[str, Any],
) -> pd.DataFrame:
    frame = pd.DataFrame(rows, index=pd.Index([p.name for p in parameters], name="parameter"))
    unordered = "for values without an order, where there is no room to move"
    frame.attrs.update(attrs)
    frame.attrs["exact"] = exact
    frame.attrs["note"] = reasons(frame, {"below": unordered})
    frame.attrs["text"] = _box_text(frame, exact, size)
    return frame


def _beside(bad: NDArray[np.bool_], parameters: tuple[Coded, ...]) -> NDArray[np.bool_]:
    """Blocked points with a free neighbour: enough to tell boxes that hold a free point."""
    beside = np.zeros_like(bad)
    for k, p in enumerate(parameters):
        if p.ordered and p.n > 1:
            lead = (slice(None),) * k
            low, high = (*lead, slice(None, -1)), (*lead, slice(1, None))
            beside[low] |= bad[low] & ~bad[high]
            beside[high] |= bad[high] & ~bad[low]
    return beside


def _starts(
    parameters: tuple[Coded, ...], at: NDArray[np.int64] | None
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Boxes to search: all of each ordered parameter, one value of each unordered one."""
    number = np.prod([1.0 if p.ordered or at is not None else p.n for p in parameters])
    if number > MAX_STARTS:
        raise UnanswerableError(
            f"unordered values make {number:.0f} combinations, each with boxes of its own; name "
            "one in nominal="
        )
    starts = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
    for k, p in enumerate(parameters):
        if p.ordered:
            spans = [(0, p.n - 1)]
        else:
            spans = [(c, c) for c in (range(p.n) if at is None else [int(at[k])])]
        starts = [(np.append(low, a), np.append(high, b)) for low, high in starts for a, b in spans]
    return starts


def _safe_of_sample(
    t: Table,
    parameters: tuple[Coded, ...],
    outcome: NDArray[np.int8],
    nominal: Mapping[str, Any] | None,
    max_boxes: int,
) -> pd.DataFrame:
    ordered = [p for p in parameters if p.ordered and p.n > 1]
    others = [p for p in parameters if not p.ordered]
    if not ordered:
        raise UnanswerableError("no ordered parameter has several values, so no box has room")
    counts = outcome != SKIPPED
    if nominal is None:
        if others:
            raise UnanswerableError(
                f"{others[0].name!r} is unordered: name its value in nominal= to say which runs"
            )
    else:
        for p in others:
            counts &= p.codes == code_of(p, nominal[p.name])
    raw = np.stack([t.raw(p.name) for p in ordered], axis=1)
    counts &= np.isfinite(raw).all(axis=1)
    if not counts.any():
        raise UnanswerableError("no run with the nominal's unordered values has finite parameters")
    low, high = raw[counts].min(axis=0), raw[counts].max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    unit = (raw - low) / span
    at = None
    if nominal is not None:
        at = (np.array([as_number(nominal[p.name], p) for p in ordered]) - low) / span
        if ((at < 0) | (at > 1)).any():
            name = ordered[int(np.argmax((at < 0) | (at > 1)))].name
            raise ValueError(f"nominal {name} = {shown(nominal[name])} is outside what was run")
    bad = unit[counts & (outcome != PASSED)]
    if at is not None and len(bad) and (bad == at).all(axis=1).any():
        raise UnanswerableError("a run at the nominal point did not pass, so no box there is safe")
    good = unit[counts & (outcome == PASSED)]
    if not len(good):
        raise UnanswerableError("no run with the nominal's unordered values passed")
    blocked, zero, one = _ends(good, bad, at)
    found, exact = largest(blocked, zero, one, at, max_boxes, solid=None, least=0.0)
    if found is None:
        raise UnanswerableError(
            "failures leave no box with room between values that passed: more runs would"
            if at is None
            else "failures lie on all sides of the nominal point: no box has room"
        )
    volume, a, b = found
    inside = ((good >= a) & (good <= b)).all(axis=1)
    n, d = int(inside.sum()), len(ordered)
    rows = []
    for k, p in enumerate(ordered):
        ends = [_own(t, p, counts, unit[:, k], end) for end in (a[k], b[k])]
        whole = bool(a[k] == 0 and b[k] == 1)
        rows.append(_room(p, ends, whole, None if nominal is None else nominal[p.name]))
    refined = t.stage is not None
    # Each end lies at a run's value: at most so many boxes, and of 2 d runs the box is made.
    boxes = 2 * d * float(np.log(max(int(counts.sum()), 2)))
    basis = f"{n} scattered runs inside, all passed; one of e^{boxes:.1f} boxes there were"
    listed = drawn(t, ()) is None and not refined
    sure = listed and t.points is None and not t.random
    if listed:
        basis = "census of its points"
        if not sure:
            basis = f"{n} runs, each a sample of its point, all passed; one of e^{boxes:.1f} boxes"
    if refined:
        basis = f"{n} runs inside, all passed; refined runs are no sample of what lies between"
    return _framed(ordered, rows, exact, f"{100 * volume:.3g} % of the space, {n} runs", {
        "volume": volume,
        "share": volume,
        "n_run": n,
        "high": 1.0 if refined else 0.0 if sure else _chosen(n - 2 * d, boxes),
        "basis": basis,
    })  # fmt: skip


def _ends(good: Floats, bad: Floats, at: Floats | None) -> tuple[Blocked, Floats, Floats]:
    """Where the ends of a box of scattered runs may lie: at values that passed, or the nominal."""
    above, below = np.full(bad.shape, np.inf), np.full(bad.shape, -np.inf)
    low, high = good.min(axis=0), good.max(axis=0)
    for k in range(bad.shape[1]):
        own = good[:, k] if at is None else np.append(good[:, k], at[k])
        values = np.unique(own)
        low[k], high[k] = values[0], values[-1]
        up = np.searchsorted(values, bad[:, k], side="right")
        down = np.searchsorted(values, bad[:, k], side="left") - 1
        there = up < len(values)
        above[there, k] = values[up[there]]
        below[down >= 0, k] = values[down[down >= 0]]
    inside = ((bad >= low) & (bad <= high)).all(axis=1)
    return Blocked(bad, above, below, step=0.0).some(inside), low, high


def _own(t: Table, p: Coded, counts: NDArray[np.bool_], unit: Floats, end: float) -> Any:
    """An end of a box as the runs have it, to the last digit."""
    those = np.flatnonzero(counts)
    run = int(those[np.argmin(np.abs(unit[those] - end))])
    return t.point(run)[p.name]


def _room(p: Coded, ends: list[Any], whole: bool, nominal: Any) -> dict[str, Any]:
    low, high = ends
    row = {"low": low, "high": high, "whole": whole}
    if nominal is None:
        return row
    if not p.ordered:
        return {**row, "below": np.nan, "above": np.nan}
    if p.kind == "time":
        at = np.asarray(nominal).astype(p.values.dtype)
        return {**row, "below": pd.Timedelta(at - low), "above": pd.Timedelta(high - at)}
    return {**row, "below": float(nominal) - float(low), "above": float(high) - float(nominal)}


def _box_text(frame: pd.DataFrame, exact: bool, size: str) -> str:
    limits = [
        f"{name} {shown(row['low'])} to {shown(row['high'])}"
        for name, row in frame.iterrows()
        if not row["whole"]
    ]
    return f"{'' if exact else 'at least '}{size}: {', '.join(limits) or 'everywhere'}"

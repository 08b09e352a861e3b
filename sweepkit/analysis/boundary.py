"""The nearest failure, the room to move, and why one run came out as it did."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count as counter
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.table import (
    FAILED,
    PASSED,
    PENDING,
    SKIPPED,
    Coded,
    Errors,
    Failed,
    Floats,
    Table,
    UnanswerableError,
    as_numbers,
    shown,
    table,
    varied,
)
from sweepkit.status import NAMES, Status

__all__ = ["counterexample", "explain", "safe_box"]

MAX_WORK = 200_000_000
MAX_BOXES = 20_000
"""Boxes looked at before the exact search gives way to growing a box step by step."""

WORDS = ("passed", "failed", "pending", "errored", "skipped")


def counterexample(
    ds: xr.Dataset | Table,
    nominal: Mapping[str, Any],
    *,
    n: int = 5,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """The failing runs nearest to a nominal point, and what each changes.

    Parameters
    ----------
    ds : Dataset or Table
    nominal : mapping
        Parameter to value; parameters left out may take any value.
    n : int
        Most runs returned.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        Nearest first: ``distance`` (sum over parameters of the share of its range moved; 1 for
        another unordered value), ``n_changed``, ``changes`` (text), ``run`` (flat position in C
        order), and the parameters' values. Of replicates of one point, the first that fails.

    Raises
    ------
    UnanswerableError
        If no run failed.
    KeyError
        If a name is no parameter.

    References
    ----------
    Distances as of counterfactuals: S. Wachter, B. Mittelstadt and C. Russell, Harv. J. Law
    Technol. 31 (2018), 841-887 (scaled absolute differences favour few changes).

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> counterexample(ds, {"gain": 2, "mass": 5.0})["changes"].tolist()
    ['mass 5 -> 6']
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    runs = np.flatnonzero(t.counted(errors) == FAILED)
    if not len(runs):
        known = int((t.outcome <= FAILED).sum())
        raise UnanswerableError(
            f"none of {known} finished runs failed, so there is no counterexample among them"
        )
    near = _nearest(t, runs, nominal, n)
    rows = [_change(t, run, distance, nominal) for run, distance in near]
    return pd.DataFrame(rows)


def _nearest(
    t: Table, runs: NDArray[np.intp], nominal: Mapping[str, Any], n: int
) -> list[tuple[int, float]]:
    distance = np.zeros(len(runs))
    moved = np.zeros(len(runs), dtype=np.int64)
    for name, value in nominal.items():
        step = _moved(t, t[name], value, runs)
        distance += step
        moved += step > 0
    if t.points is not None:
        # Runs are in C order, so this keeps the first failing replicate of a point.
        _, first = np.unique(t.points.of[runs], return_index=True)
        runs, distance, moved = runs[first], distance[first], moved[first]
    order = np.lexsort((runs, moved, distance.round(12)))[:n]
    return [(int(runs[k]), float(distance[k])) for k in order]


def _moved(t: Table, p: Coded, value: Any, runs: NDArray[np.intp]) -> Floats:
    """How far runs are from a value, in shares of the parameter's range."""
    if not p.ordered:
        if value not in p.values.tolist():
            raise ValueError(f"{p.name} = {value!r} is none of {p.values.tolist()}")
        other: Floats = (p.codes[runs] != p.values.tolist().index(value)).astype(np.float64)
        return other
    at = _as_number(value, p)
    low, high = float(_number_of(p.lower[:1], p)[0]), float(_number_of(p.upper[-1:], p)[0])
    step: Floats = np.abs(t.raw(p.name)[runs] - at) / ((high - low) or 1.0)
    return step


def _number_of(values: NDArray[Any], p: Coded) -> Floats:
    return as_numbers(values, p.kind)


def _as_number(value: Any, p: Coded) -> float:
    if p.kind == "time":
        return float(as_numbers(np.asarray(value).astype(p.values.dtype)[None], "time")[0])
    return float(value)


def _change(t: Table, run: int, distance: float, nominal: Mapping[str, Any]) -> dict[str, Any]:
    point = t.point(run)
    changed = [
        f"{name} {shown(value)} -> {shown(point[name])}"
        for name, value in nominal.items()
        if not _same(point[name], value, t[name])
    ]
    return {
        "distance": distance,
        "n_changed": len(changed),
        "changes": ", ".join(changed) or "none: the nominal point itself",
        "run": run,
        **point,
    }


def _same(one: Any, other: Any, p: Coded) -> bool:
    if p.ordered:
        return _as_number(one, p) == _as_number(other, p)
    return bool(one == other)


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

    On a grid the box holds whole points, all passed with all their replicates; unknown runs are
    not known to pass, so they stay outside. Of scattered runs it reaches up to the failures and
    unknown runs around it. The search is exact (best first, by splitting at a failure); where it
    would look at more than `max_boxes` boxes, a box is grown step by step, and "at least" says
    so. Unordered parameters keep one value.

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
        Per design or scenario parameter: ``low``, ``high`` (both inside on a grid; of scattered
        runs the ends themselves may fail), ``whole`` (the box spans its range), and, with a
        nominal point, ``below`` and ``above`` (room in the parameter's units; NaN for unordered
        ones, which have no room). ``attrs``: ``volume`` (points on a grid, else the share of the
        space), ``share`` (of all points, or of the space), ``n_run``, ``high`` (upper bound of
        the failure rate inside by its runs alone; 0 on a grid, where all of it has run),
        ``exact`` and ``text``.

    Raises
    ------
    UnanswerableError
        If no run passed, or the nominal point failed or is unknown.

    References
    ----------
    Branch and bound over maximal empty boxes: J. Eckstein, P. L. Hammer, Y. Liu, M. Nediak and
    B. Simeone, Comput. Optim. Appl. 23 (2002), 285-298; here the branch is at the failure
    nearest to the middle.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [True, False, False, True])},
    ...                 coords={"a": [1.0, 2.0, 3.0, 4.0]})
    >>> safe_box(ds)[["low", "high"]].values.tolist()
    [[2.0, 3.0]]
    """
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
    blocked = np.argwhere(_beside(bad.reshape(shape), parameters))
    at = None
    if nominal is not None:
        at = np.array([_code_of(p, nominal[p.name]) for p in parameters])
        if bad[np.ravel_multi_index(tuple(at), shape)]:
            raise UnanswerableError(
                "the nominal point did not pass (or is not known to), so no box around it is safe"
            )
    best: tuple[float, NDArray[np.int64], NDArray[np.int64]] | None = None
    exact = True
    for low, high in _starts(parameters, at):
        inside = ((blocked >= low) & (blocked < high)).all(axis=1)
        points = None if at is None else at.astype(np.float64)
        found, proven = _largest(
            blocked[inside].astype(np.float64), low.astype(float), high.astype(float), points,
            max_boxes, solid=bad.reshape(shape), least=0.0 if best is None else best[0],
        )  # fmt: skip
        exact &= proven
        if found is not None and (best is None or found[0] > best[0]):
            best = (found[0], found[1].astype(np.int64), found[2].astype(np.int64))
    if best is None:
        raise UnanswerableError("no point passed with all its replicates, so no box is safe")
    volume, low, high = best
    rows = []
    for k, p in enumerate(parameters):
        ends = (p.values[low[k]], p.values[high[k] - 1])
        whole = bool(high[k] - low[k] == p.n)
        rows.append(_room(p, *ends, whole, None if nominal is None else nominal[p.name]))
    frame = pd.DataFrame(rows, index=pd.Index([p.name for p in parameters], name="parameter"))
    inside = np.ones(t.n, dtype=bool)
    for k, p in enumerate(parameters):
        inside &= (p.codes >= low[k]) & (p.codes < high[k])
    frame.attrs = {
        "volume": int(volume),
        "share": volume / float(np.prod(shape, dtype=np.float64)),
        "n_run": int(inside.sum()),
        "high": 0.0,
        "exact": exact,
        "text": _box_text(frame, exact, f"{int(volume)} of {int(np.prod(shape))} points"),
    }
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
    starts = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
    for k, p in enumerate(parameters):
        if p.ordered:
            spans = [(0, p.n)]
        else:
            spans = [(c, c + 1) for c in (range(p.n) if at is None else [int(at[k])])]
        starts = [(np.append(low, a), np.append(high, b)) for low, high in starts for a, b in spans]
    return starts


def _largest(
    blocked: Floats,
    low: Floats,
    high: Floats,
    nominal: Floats | None,
    max_boxes: int,
    *,
    solid: NDArray[np.bool_] | None,
    least: float,
) -> tuple[tuple[float, Floats, Floats] | None, bool]:
    """The largest box without a blocked point, and whether it is proven to be.

    With `solid`, which points of a grid are blocked, boxes are half-open in whole steps, and a
    blocked point takes its step away; without, boxes end at blocked points.
    """
    step = 0.0 if solid is None else 1.0
    number = counter()
    every = np.arange(len(blocked), dtype=np.int32)
    heap = [(-float(np.prod(high - low)), next(number), low, high, every, -1, False)]
    seen = {(low.tobytes(), high.tobytes())}
    looked, work = 0, 0
    while heap:
        negative, _, a, b, parents, cut, above = heapq.heappop(heap)
        if -negative <= least:
            return None, True
        inside = _after_cut(blocked, parents, a, b, cut, above, step)
        if not len(inside):
            # Only failures beside a point that passed are looked at: a box of failures has none.
            if solid is not None and solid[tuple(a.astype(np.int64))]:
                continue
            return (-negative, a, b), True
        looked, work = looked + 1, work + len(inside) * len(a)
        if looked > max_boxes or work > MAX_WORK:
            return _grown(blocked, low, high, nominal, step, least), False
        middle = (a + b - step) / 2
        size = np.where(b > a, b - a, 1.0)
        some = blocked[inside]
        split = some[np.argmin((np.abs(some - middle) / size).max(axis=1))]
        for k in range(len(a)):
            for upper in (False, True):
                a_, b_ = a.copy(), b.copy()
                if upper:
                    a_[k] = split[k] + step
                else:
                    b_[k] = split[k]
                if b_[k] <= a_[k] or not _holds(nominal, k, a_, b_, step):
                    continue
                key = (a_.tobytes(), b_.tobytes())
                if key in seen:
                    continue
                seen.add(key)
                volume = -float(np.prod(b_ - a_))
                heapq.heappush(heap, (volume, next(number), a_, b_, inside, k, upper))
    return None, True


def _after_cut(
    blocked: Floats,
    parents: NDArray[np.int32],
    a: Floats,
    b: Floats,
    cut: int,
    above: bool,
    step: float,
) -> NDArray[np.int32]:
    """Which blocked points of a box are left in the part of it cut along one dim."""
    if cut < 0:
        return parents
    at = blocked[parents, cut]
    left: NDArray[np.bool_] = at < b[cut]
    if above:
        left = at >= a[cut] if step else at > a[cut]
    inside: NDArray[np.int32] = parents[left]
    return inside


def _holds(nominal: Floats | None, k: int, a: Floats, b: Floats, step: float) -> bool:
    if nominal is None:
        return True
    return bool(a[k] <= nominal[k] and (nominal[k] < b[k] if step else nominal[k] <= b[k]))


def _grown(
    blocked: Floats, low: Floats, high: Floats, nominal: Floats | None, step: float, least: float
) -> tuple[float, Floats, Floats] | None:
    """A good box by shrinking from several sides: at each blocked point, the cut that costs least.

    Fast, and never larger than the largest.
    """
    best: tuple[float, Floats, Floats] | None = None
    rng = np.random.default_rng(0)
    for attempt in range(20):
        a, b, inside = low.copy(), high.copy(), blocked
        while len(inside) and (b > a).all():
            middle = (a + b - step) / 2 if nominal is None else nominal
            size = np.where(b > a, b - a, 1.0)
            far = (np.abs(inside - middle) / size).max(axis=1)
            far = far if attempt == 0 else far * rng.uniform(0.7, 1.3, len(far))
            split = inside[np.argmin(far)]
            cuts = []
            for k in range(len(a)):
                for upper in (False, True):
                    end = split[k] + step if upper else split[k]
                    a_, b_ = a.copy(), b.copy()
                    (a_ if upper else b_)[k] = end
                    if b_[k] > a_[k] and _holds(nominal, k, a_, b_, step):
                        cuts.append((float(np.prod(b_ - a_)), k, upper, a_, b_))
            if not cuts:
                break
            _, k, upper, a, b = max(cuts, key=lambda cut: cut[0])
            if upper:
                inside = inside[inside[:, k] >= a[k] if step else inside[:, k] > a[k]]
            else:
                inside = inside[inside[:, k] < b[k]]
        volume = float(np.prod(b - a))
        if not len(inside) and volume > max(least, best[0] if best else 0.0):
            best = (volume, a, b)
    return best


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
            counts &= p.codes == _code_of(p, nominal[p.name])
    raw = np.stack([t.raw(p.name) for p in ordered], axis=1)
    low, high = raw[counts].min(axis=0), raw[counts].max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    unit = (raw - low) / span
    at = None
    if nominal is not None:
        at = (np.array([_as_number(nominal[p.name], p) for p in ordered]) - low) / span
        if ((at < 0) | (at > 1)).any():
            name = ordered[int(np.argmax((at < 0) | (at > 1)))].name
            raise ValueError(f"nominal {name} = {nominal[name]!r} is outside what was run")
    blocked = unit[counts & (outcome != PASSED)]
    if at is not None and len(blocked) and (blocked == at).all(axis=1).any():
        raise UnanswerableError("a run at the nominal point did not pass, so no box there is safe")
    # The ends of a box may fail, and so may the ends of the space.
    blocked = blocked[((blocked > 0) & (blocked < 1)).all(axis=1)]
    zero, one = np.zeros(len(ordered)), np.ones(len(ordered))
    found, exact = _largest(blocked, zero, one, at, max_boxes, solid=None, least=0.0)
    if found is None:
        raise UnanswerableError("failures lie on all sides of the nominal point: no box has room")
    volume, a, b = found
    inside = counts & ((unit >= a) & (unit <= b)).all(axis=1) & (outcome == PASSED)
    n = int(inside.sum())
    rows = []
    for k, p in enumerate(ordered):
        ends = (a[k] * span[k] + low[k], b[k] * span[k] + low[k])
        whole = bool(a[k] == 0 and b[k] == 1)
        rows.append(_room(p, *_back(ends, p), whole, None if nominal is None else nominal[p.name]))
    frame = pd.DataFrame(rows, index=pd.Index([p.name for p in ordered], name="parameter"))
    frame.attrs = {
        "volume": volume,
        "share": volume,
        "n_run": n,
        "high": float(failure_interval(0, n)[1]) if n else 1.0,
        "exact": exact,
        "text": _box_text(frame, exact, f"{100 * volume:.3g} % of the space, {n} runs"),
    }
    return frame


def _back(ends: tuple[Any, Any], p: Coded) -> tuple[Any, Any]:
    if p.kind != "time":
        return float(ends[0]), float(ends[1])
    kind = p.values.dtype.kind + "8[ns]"
    low, high = (np.array([round(e * 1e9)]).astype(np.int64).astype(kind)[0] for e in ends)
    return low, high


def _code_of(p: Coded, value: Any) -> int:
    if p.ordered:
        numbers = p.numbers
        at = int(np.argmin(np.abs(numbers - _as_number(value, p))))
        if numbers[at] == _as_number(value, p):
            return at
    elif value in p.values.tolist():
        return int(p.values.tolist().index(value))
    near = p.values[at] if p.ordered else p.values.tolist()
    raise ValueError(f"nominal {p.name} = {value!r} is no value of the grid; near are {near!r}")


def _room(p: Coded, low: Any, high: Any, whole: bool, nominal: Any) -> dict[str, Any]:
    row = {"low": low, "high": high, "whole": whole}
    if nominal is None:
        return row
    if not p.ordered:
        return {**row, "below": np.nan, "above": np.nan}
    if p.kind == "time":
        at = np.asarray(nominal).astype(p.values.dtype)
        return {**row, "below": at - low, "above": high - at}
    return {**row, "below": float(nominal) - float(low), "above": float(high) - float(nominal)}


def _box_text(frame: pd.DataFrame, exact: bool, size: str) -> str:
    limits = [
        f"{name} {shown(row['low'])} to {shown(row['high'])}"
        for name, row in frame.iterrows()
        if not row["whole"]
    ]
    return f"{'' if exact else 'at least '}{size}: {', '.join(limits) or 'everywhere'}"


def explain(
    ds: xr.Dataset | Table,
    run: int | Mapping[str, Any],
    *,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """Why this run: its values, how often each fails, and the smallest change that would turn it.

    Parameters
    ----------
    ds : Dataset or Table
    run : int or mapping
        Flat position in C order, or the values of all parameters.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        Per parameter: ``value``, ``rate`` at that value over all other runs (NaN if nothing has
        run there), ``rate_n`` (runs behind it), ``lift`` (over the overall rate; NaN where that
        is 0), ``turns_at`` (the nearest value that, with all others as they are, has the other
        outcome; None if none has run or none turns it). ``attrs``: ``run``, ``outcome``,
        ``status``, ``error``, ``margins`` (by requirement), ``nearest`` (the nearest run of the
        other outcome, as in `counterexample`; empty if there is none) and ``text``.

    Raises
    ------
    UnanswerableError
        If the run is pending or skipped, so nothing is known of it.
    KeyError, IndexError
        If there is no such run.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> explain(ds, {"gain": 2, "mass": 6.0})["turns_at"].tolist()
    [1.0, 5.0]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    at = _position(t, run)
    outcome = t.counted(errors)
    if outcome[at] in (PENDING, SKIPPED):
        raise UnanswerableError(f"run {at} is {WORDS[outcome[at]]}, so nothing is known of it")
    bad = outcome[at] != PASSED
    others = np.flatnonzero(outcome == (PASSED if bad else FAILED))
    point = t.point(at)
    known = outcome <= FAILED
    overall = float((outcome == FAILED).sum() / max(int(known.sum()), 1))
    rows = []
    for p in t.parameters:
        there = known & (p.coarser(10).codes == p.coarser(10).codes[at])
        n = int(there.sum())
        rate = float((there & (outcome == FAILED)).sum() / n) if n else np.nan
        rows.append(
            {
                "value": point[p.name],
                "rate": rate,
                "rate_n": n,
                "lift": rate / overall if overall > 0 else np.nan,
                "turns_at": _turns_at(t, at, p, others),
            }
        )
    frame = pd.DataFrame(rows, index=pd.Index([p.name for p in t.parameters], name="parameter"))
    changes = ""
    if len(others):
        nominal = {p.name: point[p.name] for p in varied(t)}
        run_, distance = _nearest(t, others, nominal, 1)[0]
        changes = _change(t, run_, distance, nominal)["changes"]
    index = dict(zip(t.dims, np.unravel_index(at, t.shape), strict=True)) if t.shape else {}
    one = t.ds.isel({d: [int(i)] for d, i in index.items()})
    frame.attrs = {
        "run": at,
        "outcome": WORDS[outcome[at]],
        "status": _status(one),
        "error": str(one["error"].values.reshape(-1)[0]) if "error" in one else "",
        "margins": _margins(t, one),
        "nearest": changes,
    }
    frame.attrs["text"] = _report(frame, overall)
    return frame


def _position(t: Table, run: int | Mapping[str, Any]) -> int:
    if not isinstance(run, Mapping):
        if not -t.n <= run < t.n:
            raise IndexError(f"run {run} is not among {t.n} runs")
        return int(run) % t.n
    match = np.ones(t.n, dtype=bool)
    for name, value in run.items():
        p = t[name]
        if p.ordered:
            match &= t.raw(name) == _as_number(value, p)
        else:
            match &= p.codes == _code_of(p, value)
    found = np.flatnonzero(match)
    if not len(found):
        raise KeyError(f"no run at {dict(run)!r}")
    return int(found[0])


def _turns_at(t: Table, at: int, p: Coded, others: NDArray[np.intp]) -> Any:
    """The nearest value of one parameter that alone turns the outcome."""
    same = np.ones(len(others), dtype=bool)
    for o in t.parameters:
        # A parameter that moves with this one (derived from it, or replicates) may differ.
        if o.name == p.name or (set(o.dims) & set(p.dims) and t.grid):
            continue
        same &= o.codes[others] == o.codes[at]
        if o.binned and same.any():
            raw = t.raw(o.name)
            same &= raw[others] == raw[at]
    runs = others[same]
    if not len(runs):
        return None
    if p.ordered:
        raw = t.raw(p.name)
        runs = runs[np.argsort(np.abs(raw[runs] - raw[at]), kind="stable")]
    value = t.point(int(runs[0]))[p.name]
    return None if _same(value, t.point(at)[p.name], p) else value


def _status(one: xr.Dataset) -> str:
    if "status" not in one:
        return NAMES[Status.DONE]
    return NAMES[int(one["status"].values.reshape(-1)[0])]


def _margins(t: Table, one: xr.Dataset) -> dict[str, float]:
    if not t.requirements or _status(one) != NAMES[Status.DONE]:
        return {}
    from sweepkit.reading import margin

    values = margin(one, t.requirements).values.reshape(-1)
    return {r.name: float(v) for r, v in zip(t.requirements, values, strict=True)}


def _report(frame: pd.DataFrame, overall: float) -> str:
    about = frame.attrs
    lines = [f"run {about['run']} {about['outcome']} (status {about['status']})"]
    if about["error"]:
        lines.append(about["error"])
    lines += [f"{name}: margin {value:g}" for name, value in about["margins"].items()]
    ranked = frame.sort_values("rate", ascending=False)
    for name, row in ranked.iterrows():
        line = f"{name} = {shown(row['value'])}"
        if row["rate_n"]:
            line += f": {100 * row['rate']:.3g} % of {int(row['rate_n'])} runs fail there"
        if row["turns_at"] is not None and row["turns_at"] == row["turns_at"]:
            line += f"; {shown(row['turns_at'])} alone would turn it"
        lines.append(line)
    lines.append(f"overall {100 * overall:.3g} % fail")
    if about["nearest"]:
        lines.append(f"nearest run of the other outcome: {about['nearest']}")
    return "\n".join(lines)

"""The nearest failure, and why one run came out as it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.answerable import placed_runs
from sweepkit.analysis.coding import Coded, Floats, as_numbers, shown
from sweepkit.analysis.naming import freed, renamed
from sweepkit.analysis.nominal import as_number, code_of, components, same
from sweepkit.analysis.outcomes import (
    FAILED,
    PASSED,
    PENDING,
    SKIPPED,
    Errors,
    Failed,
    UnanswerableError,
)
from sweepkit.analysis.reasons import whole_number
from sweepkit.analysis.table import Table, table, varied
from sweepkit.status import NAMES, Status

__all__ = ["counterexample", "explain"]

_OWN = ("distance", "n_changed", "changes", "run")
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
    nominal = components(t, nominal)
    whole_number("n", n)
    placed_runs(t, [t[name] for name in nominal])
    runs = np.flatnonzero(t.counted(errors) == FAILED)
    if not len(runs):
        known = int((t.outcome <= FAILED).sum())
        if not known:
            raise UnanswerableError(
                f"none of {t.n} runs has passed or failed yet, so there is no counterexample "
                "among them; errors='fail' counts errors as failures"
            )
        raise UnanswerableError(
            f"none of {known} finished runs failed, so there is no counterexample among them"
        )
    near = _nearest(t, runs, nominal, n)
    rows = [_change(t, run, distance, nominal) for run, distance in near]
    frame = pd.DataFrame(rows)
    frame.attrs["note"] = renamed(freed([p.name for p in t.parameters], _OWN))
    return frame


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
            raise ValueError(
                f"{p.name} = {shown(value)} is none of {', '.join(map(shown, p.values[:20]))}"
            )
        other: Floats = (p.codes[runs] != p.values.tolist().index(value)).astype(np.float64)
        return other
    at = as_number(value, p)
    low, high = (float(as_numbers(end, p.kind)[0]) for end in (p.lower[:1], p.upper[-1:]))
    step: Floats = np.abs(t.raw(p.name)[runs] - at) / ((high - low) or 1.0)
    return step


def _change(t: Table, run: int, distance: float, nominal: Mapping[str, Any]) -> dict[str, Any]:
    point = t.point(run)
    changed = [
        f"{name} {shown(value)} -> {shown(point[name])}"
        for name, value in nominal.items()
        if not same(point[name], value, t[name])
    ]
    row = {
        "distance": distance,
        "n_changed": len(changed),
        "changes": ", ".join(changed) or "none: the nominal point itself",
        "run": run,
    }
    new = freed(point, _OWN)
    return {**row, **{new[name]: value for name, value in point.items()}}


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
        Flat position in C order, or the values of parameters: of as many as it takes for one
        point alone to have them. Of its replicates the first is taken where none is named.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        Per parameter: ``value``, ``rate`` at that value over all finished runs, this one included
        (NaN if none passed or failed there), ``rate_n`` (runs behind it), ``lift`` (over the
        overall rate; NaN where that is 0), ``turns_at`` (the nearest value that, with all others
        as they are, has the other outcome; None if none has run or none turns it), ``note`` (why
        one of these is missing).
        ``attrs``: ``run``, ``outcome``,
        ``status``, ``error``, ``margins`` (by requirement), ``nearest`` (the nearest run of the
        other outcome, as in `counterexample`, or the replicate of the same point that turns;
        empty if there is none) and ``text``.

    Raises
    ------
    UnanswerableError
        If the run is pending or skipped, so nothing is known of it.
    KeyError, IndexError
        If there is no such run.
    ValueError
        If several points have the values given; with the parameters that are missing.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> explain(ds, {"gain": 2, "mass": 6.0})["turns_at"].astype(float).tolist()
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
        turns_at = _turns_at(t, at, p, others)
        there = known & (p.coarser(10).codes == p.coarser(10).codes[at])
        n = int(there.sum())
        rate = float((there & (outcome == FAILED)).sum() / n) if n else np.nan
        rows.append(
            {
                "value": point[p.name],
                "rate": rate,
                "rate_n": n,
                "lift": rate / overall if overall > 0 else np.nan,
                "turns_at": turns_at,
                "note": _note(t, p, n, overall, turns_at, len(others)),
            }
        )
    frame = pd.DataFrame(rows, index=pd.Index([p.name for p in t.parameters], name="parameter"))
    # Without a type of its own a column of numbers would make NaN of None.
    for column in ("value", "turns_at"):
        frame[column] = pd.Series([row[column] for row in rows], index=frame.index, dtype=object)
    changes = ""
    if len(others):
        placed_runs(t, varied(t))
        nominal = {p.name: point[p.name] for p in varied(t)}
        run_, distance = _nearest(t, others, nominal, 1)[0]
        change = _change(t, run_, distance, nominal)
        changes = change["changes"] if change["n_changed"] else _repeat(t, frame, at, run_)
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


def _position(t: Table, run: Any) -> int:
    if not isinstance(run, Mapping):
        at = whole_number("run", run, None)
        if not -t.n <= at < t.n:
            raise IndexError(f"run {at} is not among {t.n} runs")
        return at % t.n
    match = np.ones(t.n, dtype=bool)
    for name, value in components(t, run, "run").items():
        p = t[name]
        if p.ordered:
            match &= t.raw(name) == as_number(value, p)
        else:
            match &= p.codes == code_of(p, value)
    found = np.flatnonzero(match)
    if not len(found):
        raise KeyError(f"no run at {dict(run)!r}")
    if len(found) > 1:
        own = {p.name: t.raw(p.name)[found] if p.ordered else p.codes[found] for p in varied(t)}
        missing = [name for name, some in own.items() if (some != some[0]).any()]
        if missing:
            raise ValueError(
                f"run={dict(run)!r} names {len(found)} runs: it has no value for "
                f"{', '.join(map(repr, missing))}"
            )
    return int(found[0])


def _repeat(t: Table, frame: pd.DataFrame, at: int, run: int) -> str:
    """What turns where the nearest run of the other outcome is of the same point."""
    here, there = t.point(at), t.point(run)
    turned = []
    for p in t.parameters:
        if p.role == "replicate":
            alone = frame.loc[p.name, "turns_at"]
            other = there[p.name] if alone is None else alone
            if not same(here[p.name], other, p):
                turned.append(f"{p.name} {shown(here[p.name])} -> {shown(other)}")
    return f"the same point, {', '.join(turned) or f'run {run}'}"


def _turns_at(t: Table, at: int, p: Coded, others: NDArray[np.intp]) -> Any:
    """The nearest value of one parameter that alone turns the outcome."""
    alike = np.ones(len(others), dtype=bool)
    for o in t.parameters:
        # A parameter that moves with this one (derived from it, or replicates) may differ.
        if o.name == p.name or (set(o.dims) & set(p.dims) and t.grid):
            continue
        alike &= o.codes[others] == o.codes[at]
        if o.binned and alike.any():
            raw = t.raw(o.name)
            alike &= raw[others] == raw[at]
    runs = others[alike]
    if not len(runs):
        return None
    if p.ordered:
        raw = t.raw(p.name)
        runs = runs[np.argsort(np.abs(raw[runs] - raw[at]), kind="stable")]
    value = t.point(int(runs[0]))[p.name]
    return None if same(value, t.point(at)[p.name], p) else value


def _note(t: Table, p: Coded, n: int, overall: float, turns_at: Any, others: int) -> str:
    """Why there is no rate, lift or turning value."""
    notes = []
    if not n:
        notes.append("rate and lift: no run at this value passed or failed")
    elif overall == 0:
        notes.append("lift: no run fails, so no rate is above the overall one")
    if turns_at is None:
        if not others:
            notes.append("turns_at: no run has the other outcome")
        elif p.n == 1:
            notes.append("turns_at: there is no other value")
        else:
            notes.append("turns_at: no run with the other outcome differs in this alone")
    return "; ".join(notes)


def _status(one: xr.Dataset) -> str:
    if "status" not in one:
        return NAMES[Status.DONE]
    return NAMES[int(one["status"].values.reshape(-1)[0])]


def _margins(t: Table, one: xr.Dataset) -> dict[str, float]:
    if not t.requirements or _status(one) != NAMES[Status.DONE]:
        return {}
    from sweepkit.verdicts import margin

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

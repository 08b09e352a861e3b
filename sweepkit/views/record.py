"""One run of a sweep: what it was given, what became of it, and what would make it pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded, shown
from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED, SKIPPED, declared
from sweepkit.analysis.table import Table
from sweepkit.status import NAMES, Status
from sweepkit.streams import seed_of
from sweepkit.views.levers import Lever
from sweepkit.views.packing import number, plain
from sweepkit.views.source import Bools, Source

__all__ = ["WORDS", "record", "trace"]

WORDS = ("pass", "fail", "pending", "error", "skipped")
ROLE_COST = {"design": 1.0, "scenario": 3.0, "replicate": 6.0}
MAX_ALTERNATIVES = 24
NEIGHBOURS = 8
"""Nearest runs shown of a run that no other differs from in one parameter alone."""

MAX_POINTS = 400
TEXT_LIMIT = 20_000


def record(
    of: Source, t: Table, run: int, stops: Sequence[int], selected: Bools | None
) -> dict[str, Any]:
    """Everything the run's card shows.

    Parameters
    ----------
    of : Source
    t : Table
        Judged by the limits in force.
    run : int
        Flat position in C order.
    stops : sequence of int
    selected : array of bool, or None
        Among which runs the one before and the one after are taken.

    Raises
    ------
    IndexError
        If there is no such run.
    """
    if not 0 <= run < t.n:
        raise IndexError(f"run {run} is none of the {t.n} runs")
    outcome = int(t.outcome[run])
    index = dict(zip(t.dims, map(int, np.unravel_index(run, t.shape)), strict=True))
    one = of.ds.isel(index)
    near = _nearest_passing(of, t, run) if outcome in (FAILED, ERRORED) else None
    point = [_value(of, t, p, run) for p in of.parameters]
    alone = not any(value["alternatives"] for value in point)
    return {
        "run": run,
        "outcome": WORDS[outcome],
        "status": _status(one, outcome),
        "index": index,
        "point": point,
        "around": _around(of, t, run) if alone else [],
        "margins": _margins(of.levers, stops, run) if of.ended[run] else [],
        "error": _text(one, "error"),
        "log": _text(one, "log"),
        "duration": _scalar(one, "duration"),
        "attempts": _scalar(one, "attempts"),
        "seed": _seed(of.ds, one),
        "outputs": [[n, _scalar(one, n), str(one[n].attrs.get("units", ""))] for n in of.outputs],
        "traces": _traces(of, run, near, stops),
        "nearest": None if near is None else _change(of, t, run, near),
        **_place(t, run, selected),
    }


def _value(of: Source, t: Table, p: Coded, run: int) -> dict[str, Any]:
    code = int(p.codes[run])
    exact = of.table.raw(p.name)[run] if p.binned else None
    label = p.label(code) if exact is None else _number_text(exact, p)
    return {
        "name": p.name,
        "role": p.role,
        "units": p.units,
        "value": label,
        "code": code,
        "alternatives": _alternatives(t, p, run),
    }


def _number_text(exact: float, p: Coded) -> str:
    if p.kind != "time":
        return f"{exact:.6g}"
    return shown(np.array(round(exact * 1e9)).astype(f"{p.values.dtype.kind}8[ns]")[()])


def _alternatives(t: Table, p: Coded, run: int) -> list[dict[str, Any]]:
    """The runs that differ in this parameter alone, in the order of its values."""
    if p.binned or p.dims != (p.name,) or p.name not in t.dims or p.n < 2:
        return []
    k = t.dims.index(p.name)
    step = int(np.prod(t.shape[k + 1 :], dtype=np.int64))
    here = run // step % t.shape[k]
    found = []
    for position in range(t.shape[k]):
        other = run + (position - here) * step
        code = int(p.codes[other])
        found.append([code, other])
    found.sort()
    if len(found) > MAX_ALTERNATIVES:
        at = [other for _, other in found].index(run)
        first = min(max(0, at - MAX_ALTERNATIVES // 2), len(found) - MAX_ALTERNATIVES)
        found = found[first : first + MAX_ALTERNATIVES]
    return [
        {"run": other, "label": p.label(code), "outcome": WORDS[int(t.outcome[other])]}
        for code, other in found
    ]


def _around(of: Source, t: Table, run: int) -> list[dict[str, Any]]:
    """The nearest runs, where parameters were drawn together and none varies alone.

    Near is by the sum over parameters of the share of the values that lie between, and of 1 where
    a category differs.
    """
    several = [p for p in of.parameters if p.n > 1]
    if not several or t.n < 2:
        return []
    away = np.zeros(t.n)
    for p in several:
        codes = t[p.name].codes
        step = np.abs(codes.astype(np.float64) - float(codes[run]))
        away += step / (t[p.name].n - 1) if p.ordered else step > 0
    away[run] = np.inf
    away[t.outcome == SKIPPED] = np.inf
    near = np.argsort(away, kind="stable")[: min(NEIGHBOURS, t.n - 1)]
    return [
        {"run": int(k), "outcome": WORDS[int(t.outcome[k])], "away": number(away[k] / len(several))}
        for k in near[np.isfinite(away[near])]
    ]


def _seed(ds: xr.Dataset, one: xr.Dataset) -> str:
    """The seed of a run as text, which no number of a browser cuts; empty if it is not known."""
    said = declared(ds)
    names = [p["name"] for p in said.get("parameters", ())]
    point = {name: one[name].values[()] for name in names if name in one.coords}
    seed = seed_of(said, point)
    return "" if seed is None else str(seed)


def _margins(levers: Sequence[Lever], stops: Sequence[int], run: int) -> list[dict[str, Any]]:
    found = []
    for one, stop in zip(levers, stops, strict=True):
        limit, value = float(one.stops[stop]), float(one.values[run])
        away = value - limit if one.rising else limit - value
        spread = float(one.stops[-1] - one.stops[0]) or 1.0
        scale = abs(limit) if limit else spread
        found.append(
            {
                "name": one.title,
                "what": one.what,
                "op": one.op,
                "limit": limit,
                "value": number(value),
                "away": number(away),
                "share": number(away / scale),
                "holds": bool(one.holds(stop)[run]),
                "units": one.units,
                "movable": one.movable,
            }
        )
    return found


def _status(one: xr.Dataset, outcome: int) -> str:
    if "status" not in one:
        return "done" if outcome <= FAILED else WORDS[outcome]
    value = float(one["status"].values)
    return NAMES[int(Status.PENDING if np.isnan(value) else value)]


def _text(one: xr.Dataset, name: str) -> str:
    if name not in one or one[name].ndim:
        return ""
    value = one[name].values.item() if hasattr(one[name].values, "item") else one[name].values
    text = value if isinstance(value, str) else ""
    if len(text) > TEXT_LIMIT:
        half = TEXT_LIMIT // 2
        text = f"{text[:half]}\n[{len(text) - TEXT_LIMIT:,} characters left out]\n{text[-half:]}"
    return text


def _scalar(one: xr.Dataset, name: str) -> float | None:
    if name not in one or one[name].ndim or one[name].dtype.kind not in "biuf":
        return None
    return number(one[name].values)


def _place(t: Table, run: int, selected: Bools | None) -> dict[str, Any]:
    """Where the run stands among the selected runs of its outcome, and who its neighbours are."""
    same = t.outcome == t.outcome[run]
    if selected is not None:
        same = same & selected
    those = np.flatnonzero(same)
    if not len(those):
        return {"place": None, "of": 0, "before": None, "after": None}
    at = int(np.searchsorted(those, run))
    inside = at < len(those) and those[at] == run
    after = (at + 1 if inside else at) % len(those)
    return {
        "place": at + 1 if inside else None,
        "of": len(those),
        "before": int(those[(at - 1) % len(those)]),
        "after": int(those[after]),
    }


def _nearest_passing(of: Source, t: Table, run: int) -> int | None:
    """The passing run with the fewest changes; design before scenario before replicate.

    Values that hardly repeat change in every run: of these it counts how far.
    """
    passing = np.flatnonzero(t.outcome == PASSED)
    if not len(passing):
        return None
    cost = np.zeros(len(passing))
    for p in of.parameters:
        if p.n < 2:
            continue
        if p.binned:
            exact = of.table.raw(p.name)
            share = np.abs(exact[passing] - exact[run]) / (float(np.ptp(exact)) or 1.0)
            cost += share * (100.0 + ROLE_COST.get(p.role, 1.0))
            continue
        codes = p.codes[passing].astype(np.int64)
        away = np.abs(codes - int(p.codes[run]))
        changed = away > 0
        step = away / (p.n - 1) if p.ordered else changed.astype(np.float64)
        cost += changed * 100.0 + ROLE_COST.get(p.role, 1.0) * step
    return int(passing[int(np.argmin(cost))])


def _change(of: Source, t: Table, run: int, near: int) -> dict[str, Any]:
    changes = []
    for p in of.parameters:
        values = of.table.raw(p.name) if p.binned else p.codes
        if values[run] != values[near]:
            changes.append(
                {
                    "name": p.name,
                    "old": _value_text(of, p, run),
                    "new": _value_text(of, p, near),
                    "units": p.units,
                }
            )
    again = ""
    if t.points is not None:
        those = t.outcome[t.points.of == t.points.of[near]]
        known = int((those <= FAILED).sum())
        if known > 1:
            again = f"passes in {int((those == PASSED).sum())} of {known} replicates"
    return {"run": near, "changes": changes, "again": again}


def _value_text(of: Source, p: Coded, run: int) -> str:
    if p.binned:
        return _number_text(float(of.table.raw(p.name)[run]), p)
    return p.label(int(p.codes[run]))


# --- traces --------------------------------------------------------------------------------------


def trace(of: Source, name: str, run: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places along its own dim and values of one run's trace, up to its length."""
    t = of.table
    index = dict(zip(t.dims, map(int, np.unravel_index(run, t.shape)), strict=True))
    array = of.ds[name].isel(index)
    values = np.asarray(array.values, np.float64)
    own = str(array.dims[0])
    along = np.arange(len(values), dtype=np.float64)
    if own in of.ds.coords and of.ds[own].dtype.kind in "iuf":
        along = np.asarray(of.ds[own].values, np.float64)
    length = of.ds[name].attrs.get("length")
    end = len(values)
    if length in of.ds:
        told = float(of.ds[length].isel(index).values)
        end = 0 if np.isnan(told) else int(told)
    else:
        finite = np.flatnonzero(np.isfinite(values))
        end = int(finite[-1]) + 1 if len(finite) else 0
    return along[:end], values[:end]


def _traces(of: Source, run: int, near: int | None, stops: Sequence[int]) -> list[dict[str, Any]]:
    found = []
    for name in of.traces[:4]:
        limits = _limits(of.levers, stops, name)
        own = next(str(d) for d in of.ds[name].dims if d not in of.table.dims)
        lines = []
        for which in (run, near):
            if which is None or not of.ended[which]:
                continue
            along, values = trace(of, name, which)
            step = max(1, -(-len(values) // MAX_POINTS))
            lines.append({"x": plain(along[::step]), "y": plain(values[::step]), "run": which})
        found.append(
            {
                "name": name,
                "units": str(of.ds[name].attrs.get("units", "")),
                "about": str(of.ds[name].attrs.get("long_name", "")),
                "along": own,
                "along_units": str(of.ds[own].attrs.get("units", "")) if own in of.ds else "",
                "lines": lines,
                "limits": [limit for limit, _ in limits],
                "beyond": [side for _, side in limits],
            }
        )
    return found


def _limits(levers: Sequence[Lever], stops: Sequence[int], name: str) -> list[tuple[float, str]]:
    """Where the limits of requirements on the trace's own values lie, and which side fails.

    No side where one value alone is held against the limit, such as the last.
    """
    found: list[tuple[float, str]] = []
    for one, stop in zip(levers, stops, strict=True):
        if one.of_margin or not one.movable:
            continue
        limit = float(one.stops[stop])
        told = re.fullmatch(
            rf"(?:(abs)\({re.escape(name)}\)|{re.escape(name)})\.(max|min|last)\(\w+\)", one.what
        )
        if told is None:
            continue
        whole = (told[2], one.rising) in (("max", False), ("min", True))
        side = ("below" if one.rising else "above") if whole else ""
        if told[1] is None:
            found.append((limit, side))
        else:
            outer = side == "above"
            found += [(limit, "above" if outer else ""), (-limit, "below" if outer else "")]
    return found

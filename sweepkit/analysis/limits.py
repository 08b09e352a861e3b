"""Limits that someone gives of a box: the runs inside, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded, as_numbers, shown
from sweepkit.analysis.table import Table

__all__ = ["inside_limits", "why_empty"]


def why_empty(t: Table, limits: Mapping[str, Any], n_run: int) -> str:
    """Limits that hold nothing by themselves, and why the density is NaN where it is."""
    notes = []
    for name, limit in limits.items():
        p = t[name]
        if isinstance(limit, tuple) and len(limit) == 2 and p.ordered:
            low, high = limit
            if low is not None and high is not None and _number(low, p) > _number(high, p):
                notes.append(f"low {shown(low)} of {name!r} is above its high {shown(high)}")
            continue
        there = set(t.raw(name).tolist()) if p.ordered else set(p.values.tolist())
        absent = [v for v in limit if (_number(v, p) if p.ordered else v) not in there]
        if absent:
            notes.append(f"no run has {name} = {', '.join(map(shown, absent))}")
    if n_run:
        return "; ".join(notes)
    return f"density is NaN: {'; '.join(notes) or 'no run inside passed or failed'}"


def inside_limits(t: Table, limits: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Whether each run is within all limits."""
    if not isinstance(limits, Mapping):
        raise TypeError(
            f"limits is {limits!r}; give a mapping of parameters to (low, high) or to sets"
        )
    inside = np.ones(t.n, dtype=bool)
    for name, limit in limits.items():
        inside &= _within(t, name, limit)
    return inside


def _within(t: Table, name: str, limit: Any) -> NDArray[np.bool_]:
    p = t[name]
    values = t.raw(name)
    if isinstance(limit, tuple) and len(limit) == 2 and p.ordered:
        inside = np.ones(t.n, dtype=bool)
        low, high = (None if v is None else _number(v, p) for v in limit)
        if low is not None:
            inside &= values >= low
        if high is not None:
            inside &= values <= high
        return inside
    if isinstance(limit, str) or not isinstance(limit, Collection):
        raise ValueError(
            f"the limit {limit!r} of {name!r} is neither (low, high) nor a set of values"
        )
    if p.ordered:
        wanted = np.array([_number(v, p) for v in limit])
        return np.isin(values, wanted)
    allowed = np.array([v in limit for v in p.values.tolist()])
    inside_: NDArray[np.bool_] = allowed[p.codes]
    return inside_


def _number(value: Any, p: Coded) -> float:
    if p.kind == "time":
        return float(as_numbers(np.asarray(value).astype(p.values.dtype)[None], "time")[0])
    return float(value)

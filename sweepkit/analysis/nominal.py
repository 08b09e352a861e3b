"""Values that someone names, as the runs have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweepkit.analysis.coding import Coded, as_numbers, shown
from sweepkit.analysis.table import Table

__all__ = ["as_number", "code_of", "components", "same"]


def components(t: Table, point: Mapping[str, Any], word: str = "nominal") -> dict[str, Any]:
    """A point by parameter: a vector, ``x0=[0, 1]``, as its components ``x0[0]`` and ``x0[1]``.

    Raises
    ------
    TypeError, KeyError, ValueError
        If it is no mapping, or a name is no parameter, or a vector has another length.
    """
    if not isinstance(point, Mapping):
        raise TypeError(f"{word} is {point!r}; give a mapping of parameters to values")
    found: dict[str, Any] = {}
    for name, value in point.items():
        own = [p.name for p in t.parameters if p.name.rpartition("[")[0] == name]
        if not own or name in t.ds.dims:
            found[t[name].name] = value
            continue
        values = np.asarray(value).reshape(-1)
        if len(values) != len(own):
            raise ValueError(f"{word} {name!r} has {len(values)} components; it has {len(own)}")
        found |= dict(zip(own, values, strict=True))
    return found


def as_number(value: Any, p: Coded) -> float:
    """A value of an ordered parameter as a float; a time in seconds.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        if p.kind == "time":
            given = np.asarray(value).astype(p.values.dtype)[None]
            number = float("nan") if np.isnat(given[0]) else float(as_numbers(given, "time")[0])
        else:
            number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{p.name} = {_plain(value)!r} is no {p.kind}") from error
    if not np.isfinite(number):
        raise ValueError(f"{p.name} = {shown(value)} is not finite")
    return number


def code_of(p: Coded, value: Any) -> int:
    """Code of a value that must be one of the runs'.

    Raises
    ------
    ValueError
        If it is none; with the nearest.
    """
    if p.ordered:
        numbers = p.numbers
        away = np.abs(numbers - as_number(value, p))
        at = int(np.argmin(np.where(np.isnan(away), np.inf, away)))
        if numbers[at] == as_number(value, p):
            return at
    elif value in p.values.tolist():
        return int(p.values.tolist().index(value))
    if p.ordered:
        few = p.values[max(at - 1, 0) : at + 2]
        said = f"near are {', '.join(map(shown, few))}"
    else:
        said = f"there are {', '.join(map(shown, p.values[:20]))}"
    raise ValueError(f"nominal {p.name} = {shown(value)} is no value of the grid; {said}")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def same(one: Any, other: Any, p: Coded) -> bool:
    """Whether two values of a parameter are equal."""
    if p.ordered:
        return as_number(one, p) == as_number(other, p)
    return bool(one == other)

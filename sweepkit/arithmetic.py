"""Arithmetic, comparison and reduction of labelled cells, with truth of three values."""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import nanoseconds

__all__ = [
    "Array",
    "Cells",
    "Truth",
    "Value",
    "absolute",
    "as_quantity",
    "as_truth",
    "combined",
    "compared",
    "every",
    "filled",
    "margins",
    "negated",
    "normal",
    "opposite",
    "reduced",
    "satisfied",
]

Array: TypeAlias = NDArray[Any]
Cells: TypeAlias = tuple[tuple[str, ...], Array]
"""Dims and the values along them; plain, for `xr.Variable` costs 40 microseconds per operation."""

_FUNCTIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
_FAMILIES = dict.fromkeys("biuf", "number") | dict.fromkeys("UTO", "text")
_FAMILIES |= {"M": "datetime", "m": "duration", "c": "complex"}
_TIMES = {  # what arithmetic on datetimes (M) and durations (m) gives; n is a number
    "M-M": "m", "M-m": "M", "M+m": "M", "m+M": "M", "m+m": "m", "m-m": "m",
    "m*n": "m", "n*m": "m", "m/n": "m", "m/m": "n",
}  # fmt: skip
_REDUCED = {"first": "biufUTOMm", "last": "biufUTOMm", "max": "biufMm", "min": "biufMm"}
_REDUCED |= {"mean": "biufm", "sum": "biufm"}
_TEXT = np.dtypes.StringDType(na_object=np.nan)
_LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True, slots=True)
class Value:
    """Cells as the grammar computes with them, and how many of them are data."""

    dims: tuple[str, ...]
    data: Array
    lengths: dict[str, Cells]
    """How many cells are data, for each padded dim."""
    dtype: str
    """As it was given, for messages."""

    @property
    def family(self) -> str:
        """What compares with what: number, text, datetime, duration; complex with nothing."""
        return _FAMILIES[self.data.dtype.kind]


@dataclass(frozen=True, slots=True)
class Truth:
    """Where something holds and where it fails; unknown where neither."""

    dims: tuple[str, ...]
    holds: Array
    fails: Array
    """Unknown is neither: with `holds` and `fails` apart, NaN needs no care in comparisons."""
    distance: Array | None
    """Margin, if asked for; ±inf where there is none, and where it is infinite ±_LARGEST."""
    lengths: dict[str, Cells]


def normal(data: Array) -> tuple[Array, str]:
    """Data in one of the dtypes that the grammar computes with, and how to call the given dtype.

    Raises
    ------
    TypeError, ValueError
        If there is no such dtype for it.
    """
    kind = data.dtype.kind
    if kind == "f":
        return data.astype(np.float64, copy=False), str(data.dtype)
    if kind in "Mm":
        try:
            return nanoseconds(data), str(data.dtype)
        except ValueError as fault:
            raise ValueError(f"it holds times that do not fit in nanoseconds: {fault}") from None
    if kind == "T":
        return data.astype(_TEXT), "str"
    if kind == "O":
        return _from_objects(data)
    if kind not in _FAMILIES:
        raise TypeError(f"its dtype is {data.dtype}")
    return data, "str" if kind == "U" else str(data.dtype)


def _from_objects(data: Array) -> tuple[Array, str]:
    cells = data.ravel().tolist()
    kinds = set(map(type, cells))
    if all(issubclass(kind, str) for kind in kinds):
        return data, "str"  # converting takes longer than comparing
    if all(issubclass(kind, int | float | np.number | np.bool_ | NoneType) for kind in kinds):
        return data.astype(np.float64), "object"
    missing = [not isinstance(cell, str) for cell in cells]
    if all(cell is None or cell != cell for cell, gone in zip(cells, missing, strict=True) if gone):
        return np.where(np.reshape(missing, data.shape), np.nan, data).astype(_TEXT), "str"
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(f"it holds objects of type {names}")


def _aligned(*parts: Cells) -> tuple[tuple[str, ...], list[Array]]:
    """All dims, in order of appearance, and the arrays as views that broadcast along them."""
    dims = tuple(dict.fromkeys(dim for own, _ in parts for dim in own))
    arrays = []
    for own, data in parts:
        if own and own != dims:
            data = data.transpose([own.index(dim) for dim in dims if dim in own])
            data = data[tuple(slice(None) if dim in own else np.newaxis for dim in dims)]
        arrays.append(data)
    return dims, arrays


def _shortest(*parts: dict[str, Cells]) -> dict[str, Cells]:
    """Lengths of what is computed from several values: valid where all of them are."""
    merged: dict[str, Cells] = {}
    for dim, length in (item for part in parts for item in part.items()):
        if dim in merged:
            dims, arrays = _aligned(merged[dim], length)
            length = dims, np.minimum(*arrays)
        merged[dim] = length
    return merged


def _inside(
    dims: tuple[str, ...], data: Array, lengths: dict[str, Cells]
) -> tuple[tuple[str, ...], Array, Array | None]:
    """Dims, data, and which cells are data; None if all are."""
    masks: list[Cells] = []
    for dim, length in lengths.items():
        position = np.arange(data.shape[dims.index(dim)])
        own, (index, count) = _aligned(((dim,), position), length)
        masks.append((own, index < count))
    if not masks:
        return dims, data, None
    dims, (data, *rest) = _aligned((dims, data), *masks)
    inside = functools.reduce(operator.and_, rest)
    return dims, data, np.broadcast_to(inside, np.broadcast_shapes(inside.shape, data.shape))


def _kept(inside: Array, data: Array) -> Array:
    """Data inside, and missing elsewhere: NaN, NaT or a missing string."""
    if data.dtype.kind in "UTO":
        data = data.astype(_TEXT)
        return np.where(inside, data, np.array(np.nan, dtype=_TEXT))
    missing = np.array("NaT", data.dtype) if data.dtype.kind in "Mm" else np.array(np.nan)
    return np.where(inside, data, missing)


def _plain(data: Array) -> Array | None:
    """As float64, durations as they are; None for anything else."""
    if data.dtype.kind == "m":
        return data
    return data.astype(np.float64, copy=False) if data.dtype.kind in "biuf" else None


def negated(value: Value) -> Value | None:
    """Minus a number or duration; None of anything else."""
    plain = _plain(value.data)
    return None if plain is None else Value(value.dims, -plain, value.lengths, str(plain.dtype))


def absolute(value: Value) -> Value | None:
    """Size of a number or duration; None of anything else."""
    if value.family in ("text", "datetime"):
        return None
    data = value.data
    if data.dtype.kind == "i":
        # The smallest int64 has no positive int64, but as unsigned it is right.
        data = np.abs(data.astype(np.int64)).view(np.uint64)
    elif data.dtype.kind != "b":
        data = np.abs(data)
    return Value(value.dims, data, value.lengths, str(data.dtype))


def _nanoseconds(data: Array) -> Array:
    return np.where(np.isnat(data), np.nan, data.view(np.int64).astype(np.float64))


def _as_duration(nanoseconds: Array) -> Array:
    known = np.abs(nanoseconds) < 2.0**63
    whole = np.where(known, np.rint(nanoseconds), 0.0).astype(np.int64).view("m8[ns]")
    return np.where(known, whole, np.timedelta64("NaT", "ns"))


def combined(sign: str, a: Value, b: Value) -> Value | None:
    """Arithmetic on two values; None if there is none for their dtypes."""
    dims, (first, second) = _aligned((a.dims, a.data), (b.dims, b.data))
    data = _computed(sign, first, second)
    if data is None:
        return None
    return Value(dims, data, _shortest(a.lengths, b.lengths), str(data.dtype))


def _computed(sign: str, a: Array, b: Array) -> Array | None:
    function = _FUNCTIONS[sign]
    if (first := _plain(a)) is not None and (second := _plain(b)) is not None and (
        first.dtype.kind == second.dtype.kind == "f"
    ):  # fmt: skip
        return np.asarray(function(first, second))
    kinds = [data.dtype.kind if data.dtype.kind in "MmcUTO" else "n" for data in (a, b)]
    result = _TIMES.get(f"{kinds[0]}{sign}{kinds[1]}")
    if result is None:
        return None
    floats = [_nanoseconds(x) if x.dtype.kind in "Mm" else x.astype(np.float64) for x in (a, b)]
    rough = np.asarray(function(*floats))
    if result == "n":
        return rough
    if sign in ("*", "/"):
        return _as_duration(rough)
    # Exact, but int64 wraps: where the rough result is too large there is no time.
    exact = np.asarray(function(a.view(np.int64), b.view(np.int64))).view(f"{result}8[ns]")
    return np.where(np.abs(rough) < 2.0**63, exact, np.array("NaT", exact.dtype))


def _decided(word: str, a: Array, b: Array) -> tuple[Array, Array]:
    """Where the comparison holds and where it fails; neither where a side is missing."""
    match word:
        case "<" | ">=":
            below, above = np.less(a, b), np.greater_equal(a, b)
        case "<=" | ">":
            below, above = np.less_equal(a, b), np.greater(a, b)
        case _:
            below = np.equal(a, b)
            above = ~below
            for data in (a, b):
                above = above & ~np.isnan(data) if data.dtype.kind in "fTMm" else above
    return (below, above) if word in ("<", "<=", "==") else (above, below)


def _gap(a: Array, b: Array) -> Array:
    """a - b as float64: exact before rounding for integers, in seconds for times."""
    if "f" in (a.dtype.kind, b.dtype.kind):
        return np.asarray(a.astype(np.float64, copy=False) - b.astype(np.float64, copy=False))
    seconds = 1e9 if a.dtype.kind in "Mm" else 1.0
    a, b = (x.view(np.int64) if x.dtype.kind in "Mm" else x for x in (a, b))
    rough = np.asarray(a.astype(np.float64) - b.astype(np.float64))
    # Once its sign is known, a difference below 2**64 is right in unsigned integers that wrap.
    first, second = a.astype(np.uint64), b.astype(np.uint64)
    above, below = (first - second).astype(np.float64), (second - first).astype(np.float64)
    exact = np.where(a >= b, above, -below)
    return np.where(np.abs(rough) < 2.0**63, exact, rough) / seconds


def compared(word: str, a: Value, b: Value, *, measured: bool) -> Truth:
    """Truth of a comparison of two values of one family; with distance if `measured`."""
    dims, (first, second) = _aligned((a.dims, a.data), (b.dims, b.data))
    if {first.dtype.kind, second.dtype.kind} in ({"T", "U"}, {"T", "O"}):
        first, second = first.astype(_TEXT), second.astype(_TEXT)
    holds, fails = _decided(word, first, second)
    lengths = _shortest(a.lengths, b.lengths)
    if not measured or a.family == "text":
        distance = _no_distance(holds, fails) if measured else None
        return Truth(dims, holds, fails, distance, lengths)
    gap = _gap(first, second)
    if word in ("<", "<="):
        gap = -gap
    elif word in ("==", "!="):
        gap = np.abs(gap) if word == "!=" else -np.abs(gap)
    # inf - inf is NaN although the comparison is _decided: the two are equal.
    gap = np.where(np.isnan(gap), 0.0, gap).clip(-_LARGEST, _LARGEST) + 0.0
    return Truth(dims, holds, fails, np.where(holds | fails, gap, np.nan), lengths)


def as_truth(value: Value, *, measured: bool) -> Truth | None:
    """Truth of a number: 1 is true, 0 false, NaN unknown; None if anything else is among it."""
    dims, data, inside = _inside(value.dims, value.data, value.lengths)
    holds, fails = data == 1, data == 0
    other = ~(holds | fails | np.isnan(data))
    if np.any(other if inside is None else other & inside):
        return None
    distance = _no_distance(holds, fails) if measured else None
    return Truth(dims, holds, fails, distance, value.lengths)


def as_quantity(truth: Truth) -> Value:
    """Truth as a number: what `as_truth` reads back."""
    data = np.where(truth.holds, 1.0, np.where(truth.fails, 0.0, np.nan))
    return Value(truth.dims, data, truth.lengths, "bool")


def _no_distance(holds: Array, fails: Array) -> Array:
    return np.where(holds, np.inf, np.where(fails, -np.inf, np.nan))


def satisfied(truth: Truth) -> Cells:
    """Where it holds, among the cells that are data."""
    dims, holds, inside = _inside(truth.dims, truth.holds, truth.lengths)
    return dims, holds if inside is None else holds & inside


def margins(truth: Truth) -> Cells:
    """Distance of what was `measured`; NaN where there is none, or no data."""
    assert truth.distance is not None
    dims, distance, inside = _inside(truth.dims, truth.distance, truth.lengths)
    undecided = np.isinf(distance) if inside is None else np.isinf(distance) | ~inside
    unbounded = np.where(np.abs(distance) == _LARGEST, np.copysign(np.inf, distance), 0.0)
    return dims, np.where(undecided, np.nan, distance + unbounded)


def filled(value: Value) -> Cells:
    """The cells of a value in memory of their own; missing where they are no data."""
    dims, data, inside = _inside(value.dims, value.data, value.lengths)
    return dims, data.copy() if inside is None else _kept(inside, data)


def every(parts: list[Truth]) -> Truth:
    """Whether all of the parts hold; the distance is the smallest."""
    if len(parts) == 1:
        return parts[0]
    dims, holds = _aligned(*((part.dims, part.holds) for part in parts))
    _, fails = _aligned(*((part.dims, part.fails) for part in parts))
    every, some = functools.reduce(operator.and_, holds), functools.reduce(operator.or_, fails)
    distances = [(part.dims, part.distance) for part in parts if part.distance is not None]
    smallest: Array | None = None
    if distances:
        # Where truth is _decided although a part is unknown, a known part has _decided it.
        smallest = functools.reduce(np.fmin, _aligned(*distances)[1])
        smallest = np.where(every | some, smallest, np.nan)
    return Truth(dims, every, some, smallest, _shortest(*(part.lengths for part in parts)))


def opposite(part: Truth) -> Truth:
    """Whether it does not hold; unknown stays unknown."""
    distance = None if part.distance is None else 0.0 - part.distance
    return Truth(part.dims, part.fails, part.holds, distance, part.lengths)


def reduced(value: Value, how: str, over: tuple[str, ...]) -> Value | None:
    """One cell along the dims `over`; None if there is no such reduction for the dtype."""
    if value.data.dtype.kind not in _REDUCED[how]:
        return None
    if how in ("first", "last"):
        return _picked(value, how, over)
    return _extreme(value, how, over) if how in ("max", "min") else _total(value, how, over)


def _split(value: Value, over: tuple[str, ...]) -> tuple[dict[str, Cells], dict[str, Cells]]:
    """Lengths along the dims that are reduced, and along those that stay."""
    gone = {dim: length for dim, length in value.lengths.items() if dim in over}
    return gone, {dim: length for dim, length in value.lengths.items() if dim not in over}


def _picked(value: Value, how: str, over: tuple[str, ...]) -> Value:
    """The first or last cell that is data."""
    dims, data = value.dims, value.data
    gone, stay = _split(value, over)
    for dim in over:
        length = gone.get(dim, ((), np.asarray(data.shape[dims.index(dim)])))
        dims, (data, count) = _aligned((dims, data), length)
        axis = dims.index(dim)
        rest = dims[:axis] + dims[axis + 1 :]
        if data.shape[axis] == 0:
            data = _kept(np.asarray(False), np.zeros(_dropped(data, axis), data.dtype))
        elif dim not in gone:
            # np.asarray, for a single string would come out as a str.
            data = np.asarray(data.take(0 if how == "first" else -1, axis), dtype=data.dtype)
        else:
            count = count.reshape(count.shape or (1,) * data.ndim)
            index = np.maximum(count - 1, 0) if how == "last" else np.zeros_like(count)
            chosen = np.take_along_axis(data, index, axis).squeeze(axis)
            data = _kept((count > 0).squeeze(axis), chosen)
        dims = rest
    return Value(dims, data, stay, str(data.dtype))


def _dropped(data: Array, axis: int) -> tuple[int, ...]:
    return data.shape[:axis] + data.shape[axis + 1 :]


def _extreme(value: Value, how: str, over: tuple[str, ...]) -> Value:
    """The largest or smallest of the cells that are data."""
    gone, stay = _split(value, over)
    dims, data, inside = _inside(value.dims, value.data, gone)
    axes = tuple(dims.index(dim) for dim in over)
    rest = tuple(dim for dim in dims if dim not in over)
    function: Any = np.max if how == "max" else np.min
    if inside is None and all(data.shape[axis] for axis in axes):
        data = np.asarray(function(data, axis=axes))
        return Value(rest, data, stay, str(data.dtype))
    if data.dtype.kind in "Mm":
        ends = {"max": -(2**63) + 1, "min": 2**63 - 1}
        start = np.array(ends[how]).view(data.dtype)
    else:
        data, start = data.astype(np.float64), np.array(-np.inf if how == "max" else np.inf)
    inside = np.ones(data.shape, dtype=bool) if inside is None else inside
    # np.max keeps a NaN among the data, which np.nanmax or a NaN outside would hide or spread.
    found = np.asarray(function(np.where(inside, data, start), axis=axes, initial=start[()]))
    data = _kept(np.asarray(inside.any(axis=axes)), found)
    return Value(rest, data, stay, str(data.dtype))


def _total(value: Value, how: str, over: tuple[str, ...]) -> Value:
    """Sum or mean of the cells that are data."""
    gone, stay = _split(value, over)
    dims, data, inside = _inside(value.dims, value.data, gone)
    axes = tuple(dims.index(dim) for dim in over)
    kind = data.dtype.kind
    data = _nanoseconds(data) if kind == "m" else data.astype(np.float64, copy=False)
    count: Any = math.prod(data.shape[axis] for axis in axes)
    if inside is not None:
        data, count = np.where(inside, data, 0.0), inside.sum(axis=axes)
    total = np.asarray(data.sum(axis=axes))
    total = np.asarray(np.true_divide(total, count)) if how == "mean" else total
    total = _as_duration(total) if kind == "m" else total
    return Value(tuple(dim for dim in dims if dim not in over), total, stay, str(total.dtype))

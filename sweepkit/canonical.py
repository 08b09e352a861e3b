"""Values that people give as an array of one of the data types that a parameter may have."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kind", "canonical", "cut", "kind_of", "nanoseconds", "near_misses"]

AXIS = 10**7
"""Values beyond which what is counted out one by one is refused: it is endless or a mistake."""

Kind = str
"""One of ``bool``, ``number``, ``str``, ``datetime``, ``timedelta``, ``label``."""


def kind_of(array: NDArray[Any]) -> Kind:
    """Kind of a canonical array of values."""
    return {"b": "bool", "O": "str", "M": "datetime", "m": "timedelta", "T": "str"}.get(
        array.dtype.kind, "number"
    )


def canonical(name: str, data: Any) -> NDArray[Any]:
    """Values as one of the dtypes that a parameter may have, or an error that names the misfit."""
    if hasattr(data, "dims") and hasattr(data, "to_index"):  # of xarray
        data = data.to_index() if data.ndim == 1 else data.values
    if isinstance(data, str | bytes) or not isinstance(data, Iterable) or _is_one(data):
        data = [data]
    if isinstance(data, set | frozenset):
        raise TypeError(f"values of parameter {name!r} are a set, which has no order; give a list")
    if hasattr(data, "columns") and hasattr(data, "dtypes"):
        raise TypeError(
            f"values of parameter {name!r} are a table; give one column, or let its columns vary "
            "together with sk.paired(dict(table.items()))"
        )
    if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
        raise ValueError(f"values of parameter {name!r} are masked in places; leave those out")
    if isinstance(data, range):
        if len(data) > AXIS:
            raise ValueError(
                f"parameter {name!r} has {len(data):,} values, more than {AXIS:,} along one dim; "
                "give fewer, or draw from the range with sk.sobol or sk.latin_hypercube"
            )
        return _settle(name, np.array(data))
    dtype = getattr(data, "dtype", None)
    if dtype is not None and getattr(dtype, "tz", None) is not None:
        raise TypeError(
            f"values of parameter {name!r} carry the time zone {dtype.tz}; "
            "convert to UTC and drop it, as in .tz_convert(None)"
        )
    if getattr(data, "nlevels", 1) > 1:
        raise TypeError(
            f"values of parameter {name!r} are a MultiIndex; let its levels vary together with "
            "sk.paired(dict(index.to_frame().items()))"
        )
    if isinstance(dtype, np.dtype):
        array = np.asarray(data)
        if array.dtype.kind == "T":  # it may hold missing values
            array = array.astype(object)
    else:  # items, those of a pandas extension type too, one by one
        array = _from_items(name, _listed(name, data))
    return _settle(name, array)


def _is_one(data: Any) -> bool:
    return getattr(data, "ndim", None) == 0


def _listed(name: str, data: Iterable[Any]) -> list[Any]:
    if isinstance(data, Sized):
        return list(data)
    items = list(islice(data, AXIS + 1))
    if len(items) > AXIS:
        raise ValueError(
            f"values of parameter {name!r} have not ended after {AXIS:,}; give a list of them"
        )
    return items


def _from_items(name: str, items: list[Any]) -> NDArray[Any]:
    items = [item[()] if isinstance(item, np.ndarray) and not item.ndim else item for item in items]
    if items and all(isinstance(item, np.ndarray | list | tuple) for item in items):
        return _from_vectors(name, items)
    kinds: dict[Kind, Any] = {}
    for item in items:
        kinds.setdefault(_item_kind(name, item), item)
    if len(kinds) > 1:
        pairs = ", ".join(f"{item!r} ({kind})" for kind, item in kinds.items())
        raise TypeError(
            f"values of parameter {name!r} are of mixed types: {pairs}; "
            "make them one type, or give them labels with sk.values({'label': object, ...})"
        )
    kind = next(iter(kinds), "number")
    if kind == "str":
        return np.array([str(item) for item in items], dtype=object)
    if kind in ("datetime", "timedelta"):
        times = [np.asarray(_nanoseconds(name, item)) for item in items]
        return np.array([_exact_nanoseconds(name, time)[()] for time in times])
    if kind == "number":
        return _from_numbers(name, items)
    return np.array(items)


def _from_vectors(name: str, items: list[Any]) -> NDArray[Any]:
    rows = [np.asarray(item, None if isinstance(item, np.ndarray) else object) for item in items]
    if len({row.shape for row in rows}) > 1:
        raise ValueError(
            f"values of parameter {name!r} are sequences of different lengths; "
            "give them labels, as in sk.values({'short': [1, 2], 'long': [1, 2, 3]})"
        )
    if len({row.dtype for row in rows}) == 1 and rows[0].dtype != object:
        return np.stack(rows)
    entries = [entry for row in rows for entry in row.flat]
    return _from_items(name, entries).reshape(len(rows), *rows[0].shape)


def _from_numbers(name: str, items: list[Any]) -> NDArray[Any]:
    if not any(isinstance(item, float | np.floating) for item in items):
        whole = [int(item) for item in items]
        low, high = min(whole, default=0), max(whole, default=0)
        if low < -(2**63) or high >= 2**64 or (low < 0 and high >= 2**63):
            widest = low if high < 2**63 else high
            raise ValueError(
                f"value {_integer(widest)} of parameter {name!r} does not fit the 64 bits that "
                "integers have"
                + (" beside negative values" if -(2**63) <= widest < 2**64 else "")
                + "; give it as a float or a label"
            )
        return np.array(whole, dtype=np.uint64 if high >= 2**63 else np.int64)
    for item in items:
        if not isinstance(item, float | np.floating) and not _is_float(int(item)):
            raise ValueError(
                f"value {_integer(int(item))} of parameter {name!r} is no exact float, "
                "and the other values are floats; make them one type"
            )
        if isinstance(item, np.longdouble) and item == item and np.longdouble(float(item)) != item:
            _refuse_longdouble(name, item)
    return np.array([float(item) for item in items])


def _integer(whole: int) -> str:
    """An integer as text; Python refuses to write out very long ones."""
    return str(whole) if whole.bit_length() < 200 else f"of {whole.bit_length()} bits"


def _is_float(whole: int) -> bool:
    try:
        return int(float(whole)) == whole
    except OverflowError:
        return False


def _item_kind(name: str, item: Any) -> Kind:
    if isinstance(item, bool | np.bool_):
        return "bool"
    if isinstance(item, enum.Enum):
        kind = type(item).__name__
        raise TypeError(
            f"value {item!r} of parameter {name!r} is a member of the Enum {kind}; give each a "
            f"label, as in sk.values({{one.name: one for one in {kind}}})"
        )
    if isinstance(item, np.timedelta64 | datetime.timedelta):  # numpy's is an np.integer as well
        return "timedelta"
    if isinstance(item, float | np.floating) and item != item:
        _refuse_nan(name)
    if isinstance(item, int | float | np.integer | np.floating):
        return "number"
    if isinstance(item, str):
        return "str"
    if isinstance(item, np.datetime64 | datetime.date):
        return "datetime"
    if item is None:
        raise TypeError(
            f"a value of parameter {name!r} is None; give it a label with "
            "sk.values({'none': None, ...})"
        )
    if type(item).__name__ in ("NAType", "NaTType"):
        raise ValueError(f"a value of parameter {name!r} is missing ({item!r}); leave it out")
    if isinstance(item, np.ma.core.MaskedConstant):
        raise ValueError(f"a value of parameter {name!r} is masked; leave it out")
    raise TypeError(_advice(name, item, type(item).__qualname__))


def _advice(name: str, item: object, what: str) -> str:
    return (
        f"value {cut(repr(item))} of parameter {name!r} is of type {what}, which is no coordinate "
        "value; give numbers, bools, strings or datetimes, or give each object a label with "
        "sk.values({'label': object, ...})"
    )


def cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_nan(name: str) -> None:
    raise ValueError(
        f"a value of parameter {name!r} is NaN, which equals nothing, itself included; "
        "leave it out, or stand a string or a label in for it"
    )


def _nanoseconds(name: str, item: Any) -> np.datetime64 | np.timedelta64:
    if getattr(item, "tzinfo", None) is not None:
        raise TypeError(
            f"value {item!s} of parameter {name!r} carries a time zone; "
            "convert to UTC and drop it, as in .astimezone(UTC).replace(tzinfo=None)"
        )
    if hasattr(item, "to_numpy"):  # pandas: its nanoseconds are not in datetime's fields
        item = item.to_numpy()
    is_span = isinstance(item, np.timedelta64 | datetime.timedelta)
    return np.timedelta64(item) if is_span else np.datetime64(item)


def _refuse_longdouble(name: str, item: object) -> None:
    raise ValueError(
        f"value {item!r} of parameter {name!r} has more digits than a float64 holds; round it"
    )


def _settle(name: str, array: NDArray[Any]) -> NDArray[Any]:
    kind = array.dtype.kind
    if kind == "O":
        shape = array.shape
        array = _from_items(name, list(array.ravel())).reshape(shape)
        kind = array.dtype.kind
    if kind in "UT" or (kind == "O" and all(type(item) is str for item in array.flat)):
        settled: NDArray[Any] = np.array(
            [str(item) for item in array.ravel()], dtype=object
        ).reshape(array.shape)
        for text in settled.flat:
            _check_text(name, text)
    elif kind == "b":
        settled = array.astype(bool)
    elif kind in "iu":
        big = array.dtype.kind == "u" and array.size > 0 and int(array.max()) > 2**63 - 1
        settled = array.astype(np.uint64 if big else np.int64)
    elif kind == "f":
        settled = array.astype(np.float64)
        if array.dtype.itemsize > 8 and not np.array_equal(
            settled.astype(array.dtype), array, equal_nan=True
        ):
            _refuse_longdouble(name, array[settled.astype(array.dtype) != array][0])
        if np.isnan(settled).any():
            _refuse_nan(name)
        settled = settled + 0.0  # -0.0 becomes 0.0: they are one value
    elif kind in "mM":
        settled = _exact_nanoseconds(name, array)
    else:
        raise TypeError(_advice(name, array.flat[0] if array.size else array, str(array.dtype)))
    settled.setflags(write=False)
    return settled


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"value {text!r} of parameter {name!r} holds half a character (a lone surrogate), "
            "which cannot be stored; mend the text"
        ) from None


def nanoseconds(times: NDArray[Any]) -> NDArray[Any]:
    """Datetimes or timedeltas counted in nanoseconds.

    Raises
    ------
    ValueError
        If one cannot be, with the words that follow "the value is".
    """
    unit = np.datetime_data(times.dtype)[0]
    if times.dtype.kind == "m" and unit == "generic" and not np.isnat(times).all():
        raise ValueError("a timedelta without a unit; give it one, as in np.timedelta64(3, 's')")
    if times.dtype.kind == "m" and unit in ("M", "Y"):  # numpy takes them at their mean length
        raise ValueError(
            f"a timedelta of dtype {times.dtype}, and months and years differ in length; give "
            "days, a date, or a whole number of them"
        )
    try:
        exact = times.astype(f"{times.dtype.kind}8[ns]")
        same = np.all((exact.astype(times.dtype) == times) | np.isnat(times))
    except OverflowError:  # from numpy 2.5 on; before, they wrap silently
        same = np.False_
    if not same:
        raise ValueError(
            f"outside the years 1678 to 2261 or finer than a nanosecond (dtype {times.dtype}), "
            "which nanoseconds in 64 bits cannot hold; give a number from an epoch of your own"
        )
    return exact


def _exact_nanoseconds(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if np.isnat(array).any():
        raise ValueError(f"a value of parameter {name!r} is NaT; leave it out")
    try:
        return nanoseconds(array)
    except ValueError as fault:
        raise ValueError(f"a value of parameter {name!r} is {fault}") from None


def near_misses(array: NDArray[Any]) -> list[tuple[float, float]]:
    """Pairs of floats that differ by a few units in the last place: 0.1 + 0.2 and 0.3.

    Meant for the values along one axis, where such a pair is one value computed in two ways.
    """
    if array.dtype.kind != "f" or array.ndim > 1 or len(array) < 2:
        return []
    ordered = np.sort(array[np.isfinite(array)])
    left, right = ordered[:-1], ordered[1:]
    with np.errstate(over="ignore"):
        close = (right > left) & (right - left <= 1e-13 * np.maximum(abs(left), abs(right)))
    return [(float(a), float(b)) for a, b in zip(left[close], right[close], strict=True)]

"""What a simulator returned, as an array in a data type that is stored."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import nanoseconds
from sweepkit.casts import Misfit

__all__ = ["dtype_name", "plain_array", "type_name"]

TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """Name of the stored data type for a numpy dtype, None where there is none."""
    if dtype.kind in "UT":
        return "str"
    if dtype.kind == "M":
        return "datetime64[ns]"
    if dtype.kind == "m":
        return "timedelta64[ns]"
    if dtype.kind in "biu" or (dtype.kind in "fc" and dtype.itemsize <= 16):
        if dtype.kind == "f" and dtype.itemsize > 8:
            return None
        return dtype.newbyteorder("=").name
    return None


def plain_array(name: str, value: Any) -> tuple[NDArray[Any], str]:
    """A value as an array in memory and the name of its stored dtype."""
    if isinstance(value, bool | np.bool_):
        return np.array(value, dtype=bool), "bool"
    if isinstance(value, int) and not isinstance(value, np.generic):
        return _whole(name, value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return np.array(value, dtype=np.float64), "float64"
    if isinstance(value, str):
        return _strings(name, np.array(value, dtype=object)), "str"
    if isinstance(value, datetime.datetime | datetime.date | datetime.timedelta):
        if getattr(value, "tzinfo", None) is not None:
            raise Misfit(f"output {name!r} carries a time zone; convert to UTC and drop it")
        if type(value).__name__ == "NaTType":
            return np.array(np.datetime64("NaT", "ns").astype("int64")), "datetime64[ns]"
        if hasattr(value, "to_numpy"):
            return plain_array(name, value.to_numpy())
        if isinstance(value, datetime.timedelta):
            return plain_array(name, np.timedelta64(value))
        return plain_array(name, np.datetime64(value))
    if value is None:
        raise Misfit(f"output {name!r} is None; return np.nan for a missing number, '' for text")
    return _array(name, value)


def _whole(name: str, value: int) -> tuple[NDArray[Any], str]:
    if -(2**63) <= value < 2**63:
        return np.array(value, dtype=np.int64), "int64"
    if 0 <= value < 2**64:
        return np.array(value, dtype=np.uint64), "uint64"
    raise Misfit(f"output {name!r} is {value}, which 64 bits cannot hold; return it as text")


def _array(name: str, value: Any) -> tuple[NDArray[Any], str]:
    if isinstance(value, list | tuple | range):
        value = _from_sequence(name, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise Misfit(f"output {name!r} is masked in places; fill it, as in .filled(np.nan)")
    try:
        array = np.array(value)  # a copy: the simulator may change its own in the next run
    except (ValueError, TypeError) as fault:
        raise Misfit(
            f"output {name!r} is a {type_name(value)} that makes no array ({fault})"
        ) from None
    if array.dtype.kind == "O":
        if array.size and all(isinstance(item, str) for item in array.flat):
            return _strings(name, array), "str"
        if array.size and all(isinstance(item, TIMES) for item in array.flat):
            parts = [plain_array(name, item) for item in array.flat]
            if len({dtype for _, dtype in parts}) == 1:
                return np.array([part for part, _ in parts]).reshape(array.shape), parts[0][1]
        inner = next((item for item in array.flat if not isinstance(item, str)), None)
        if not array.size:
            raise Misfit(f"output {name!r} is empty and tells no type; give it a dtype")
        what = f"{'holds' if array.ndim else 'is'} an object of type {type_name(inner)}"
        raise Misfit(
            f"output {name!r} {what}, which cannot be stored; return numbers, bools, text, "
            "datetimes, or arrays of them"
        )
    dtype = dtype_name(array.dtype)
    if dtype is None and array.dtype.kind in "fc":
        narrow = array.astype(np.float64 if array.dtype.kind == "f" else np.complex128)
        if np.array_equal(narrow.astype(array.dtype), array, equal_nan=True):
            return narrow, narrow.dtype.name
    if dtype is None:
        raise Misfit(
            f"output {name!r} has dtype {array.dtype}, which cannot be stored without loss"
        )
    if dtype == "str":
        return _strings(name, array.astype(object)), dtype
    if dtype in ("datetime64[ns]", "timedelta64[ns]"):
        return _exact_nanoseconds(name, array), dtype
    return array.astype(array.dtype.newbyteorder("="), copy=False), dtype


def _from_sequence(name: str, value: Sequence[Any]) -> Any:
    """Lists, nested ones too, as an array of the one type that they hold; numpy would cast."""
    entries = np.array(value, dtype=object).ravel().tolist()
    kinds = {_sort(kind) for kind in set(map(type, entries))}
    if kinds & {"list", "tuple", "ndarray"}:  # ragged, of which numpy tells more
        return value
    if len(kinds) > 1 and not kinds <= {"int", "float"}:
        raise Misfit(
            f"output {name!r} is a {type(value).__name__} of mixed types "
            f"({', '.join(sorted(kinds))}); return an array of one type"
        )
    if "int" not in kinds:
        return value
    whole = [int(one) for one in entries if not isinstance(one, float | np.floating)]
    low, high = min(whole), max(whole)
    if kinds == {"int"} and low >= -(2**63) and high < 2**63:
        return np.array(value, dtype=np.int64)
    if kinds == {"int"} and low >= 0 and high < 2**64:
        return np.array(value, dtype=np.uint64)
    if max(-low, high) > 2**53:
        beyond = low if -low > high else high
        raise Misfit(
            f"output {name!r} holds {beyond} beside other numbers, and no type holds all of them "
            "without loss; return it as text"
        )
    return np.array(value, dtype=np.float64)


def _sort(kind: type) -> str:
    if issubclass(kind, bool | np.bool_):
        return "bool"
    if issubclass(kind, TIMES):  # numpy's timedelta is an np.integer as well
        return "timedelta" if issubclass(kind, np.timedelta64 | datetime.timedelta) else "datetime"
    if issubclass(kind, int | np.integer):
        return "int"
    if issubclass(kind, float | np.floating):
        return "float"
    return "str" if issubclass(kind, str) else kind.__name__


def type_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


def _strings(name: str, array: NDArray[Any]) -> NDArray[Any]:
    plain = np.array([str(item) for item in array.ravel()], dtype=object).reshape(array.shape)
    for text in plain.flat:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Misfit(
                f"output {name!r} is text with half a character (a lone surrogate): {text!r}"
            ) from None
    return plain


def _exact_nanoseconds(name: str, array: NDArray[Any]) -> NDArray[Any]:
    try:
        return nanoseconds(array).astype("int64")
    except ValueError as fault:
        raise Misfit(f"output {name!r} is {fault}") from None

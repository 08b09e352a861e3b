"""What a simulator returned, as an array in a data type that is stored."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import nanoseconds
from sweepkit.capture import told
from sweepkit.casts import Misfit, cast_exactly, joined_dtype

__all__ = ["check_present", "dtype_name", "plain_array", "type_name", "unmade"]

TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
SEQUENCES = (list, tuple, range)


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
        return _strings(name, np.array(str.__str__(value), dtype=object)), "str"
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
    if isinstance(value, SEQUENCES):
        if _holds_arrays(value):
            return _of_arrays(name, value)
        value = _from_sequence(name, value)
    check_present(name, value)
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


def check_present(name: str, value: Any) -> None:
    """Refuse arrays of numpy, pandas, pyarrow or polars with entries that are masked or missing.

    Made an array of numpy, they would show as values, or as NaN beside rounded integers.
    """
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise Misfit(f"output {name!r} is masked in places; fill it, as in .filled(np.nan)")
        return
    missing: Any = 0
    if hasattr(value, "isna"):
        kind = getattr(value, "dtype", None)
        sparse = hasattr(kind, "fill_value")  # whose gaps are values
        plain = kind is None or sparse or isinstance(kind, np.dtype)
        missing = 0 if plain else np.sum(value.isna())
    elif hasattr(value, "null_count"):
        missing = value.null_count() if callable(value.null_count) else value.null_count
    if missing:
        raise Misfit(
            f"output {name!r} is a {type_name(value)} with missing entries (null or <NA>); fill "
            "them, or return floats with np.nan"
        )


def _is_array(kind: type) -> bool:
    return hasattr(kind, "__array__") and not issubclass(kind, np.generic)


def _holds_arrays(value: Sequence[Any]) -> bool:
    kinds = () if isinstance(value, range) else set(map(type, value))
    if any(map(_is_array, kinds)):
        return True
    nested = any(issubclass(kind, list | tuple) for kind in kinds)
    return nested and any(_holds_arrays(one) for one in value if isinstance(one, list | tuple))


def _of_arrays(name: str, value: Sequence[Any]) -> tuple[NDArray[Any], str]:
    """A list of arrays as one array of a type that holds them all without loss."""
    parts = []
    for one in value:
        if any(dim in getattr(one, "coords", ()) for dim in getattr(one, "dims", ())):
            raise Misfit(
                f"output {name!r} is a {type(value).__name__} of arrays with coordinates, which "
                "would be lost; return one array, as of xr.concat(...)"
            )
        if hasattr(one, "dims"):
            check_present(name, getattr(one, "data", None))
        parts.append(plain_array(name, one))
    joined, what = parts[0][1], f"output {name!r} is a {type(value).__name__} of arrays of"
    for array, dtype in parts:
        wide = joined_dtype(joined, dtype)
        if wide is None or array.shape != parts[0][0].shape:
            both = [f"{one} of shape {shown.shape}" for shown, one in (parts[0], (array, dtype))]
            raise Misfit(f"{what} {' and '.join(both)}; return one array")
        joined = wide
    try:
        return np.stack([cast_exactly(name, *one, joined) for one in parts]), joined
    except Misfit:
        kinds = " and ".join(sorted({dtype for _, dtype in parts}))
        raise Misfit(
            f"{what} {kinds}, and no type holds all of their values without loss; return text"
        ) from None


def _from_sequence(name: str, value: Sequence[Any]) -> Any:
    """Lists, nested ones too, as an array of the one type that they hold; numpy would cast."""
    shaped = np.array(value, dtype=object)
    entries = shaped.ravel().tolist()
    kinds = {_sort(kind) for kind in set(map(type, entries))}
    if kinds & {"list", "tuple"}:  # ragged, of which numpy tells more
        return value
    if len(kinds) > 1 and not kinds <= {"int", "float"}:
        raise Misfit(
            f"output {name!r} is a {type(value).__name__} of mixed types "
            f"({', '.join(sorted(kinds))}); return an array of one type"
        )
    if kinds & {"str", "datetime", "timedelta"}:
        return shaped  # an array of numpy's type cuts zeros off text and wraps far dates
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


def unmade(what: str, value: object, fault: BaseException) -> Misfit:
    """What a result raised while it was made an array, as a misfit."""
    return Misfit(f"{what} is a {type_name(value)} that makes no array ({told(fault)[0]})")


def type_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


def _strings(name: str, array: NDArray[Any]) -> NDArray[Any]:
    # str(...) of numpy's strings drops zeros at their end, and of an Enum gives its name
    items = [str.__str__(item) for item in array.ravel()]
    plain = np.array(items, dtype=object).reshape(array.shape)
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

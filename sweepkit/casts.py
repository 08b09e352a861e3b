"""Data types that hold others without loss, and values cast into them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Misfit", "as_declared", "cast_exactly", "integer_of_both", "joined_dtype"]

PLAIN = frozenset({"str", "bool", "datetime64[ns]", "timedelta64[ns]"})
"""Data types that hold nothing but their own."""


class Misfit(Exception):
    """What a run returned does not fit: the run is invalid."""


def as_declared(name: str, array: NDArray[Any], given: str, wanted: str) -> NDArray[Any]:
    """Values in a declared dtype: floats are rounded to it, all else is kept exactly."""
    if given.startswith("float") and wanted.startswith("float"):
        with np.errstate(over="ignore"):
            rounded = array.astype(wanted)
        if not np.array_equal(np.isinf(rounded), np.isinf(array)):
            raise Misfit(f"output {name!r} is {given} and too large for the declared {wanted}")
        return rounded
    if given.startswith("float") and wanted.lstrip("u").startswith("int"):
        array = array + np.zeros((), dtype=array.dtype)  # -0.0 is the integer 0
    return cast_exactly(name, array, given, wanted)


def joined_dtype(stored: str, given: str) -> str | None:
    """The narrowest data type that may hold values of both; None where there is none.

    Integers join floats as float64 (values beyond 2**53 are checked when they are cast).
    Bools, text, datetimes and timedeltas join nothing but themselves.
    """
    if stored == given:
        return stored
    if stored in PLAIN or given in PLAIN:
        return None
    a, b = np.dtype(stored), np.dtype(given)
    if {a.kind, b.kind} == {"i", "u"}:
        wide = np.promote_types(a, b)
        return wide.name if wide.kind in "iu" else None
    if a.kind in "iu" and b.kind in "iu":
        return np.promote_types(a, b).name
    if "c" in (a.kind, b.kind):
        return "complex128" if a != b else a.name
    if a.kind in "iu" or b.kind in "iu":
        return "float64"
    return np.promote_types(a, b).name


def integer_of_both(stored: str, values: NDArray[Any], given: str) -> str | None:
    """The integer type that may hold values of both, where :func:`joined_dtype` cannot tell.

    The stored one if it holds the values given; else, of int64 and uint64, the other, which holds
    what is stored if none of it is negative, or none of it is beyond int64. None where the types
    join, or are no integers.
    """
    if (
        PLAIN & {stored, given}
        or "uint64" not in (stored, given)
        or joined_dtype(stored, given) is not None
    ):
        return None
    try:
        cast_exactly("", values, given, stored)
    except Misfit:
        return "int64" if stored == "uint64" else "uint64"
    return stored


def cast_exactly(name: str, array: NDArray[Any], given: str, wanted: str) -> NDArray[Any]:
    """Values in another data type, or a Misfit naming both if that would lose something."""
    if given == wanted:
        return array
    if given not in PLAIN and wanted not in PLAIN:
        with np.errstate(all="ignore"):
            source, target = np.dtype(given).kind, np.dtype(wanted).kind
            if source == "c" and target != "c":
                cast, same = array.real.astype(wanted), np.zeros(array.shape, dtype=bool)
            else:
                cast = array.astype(wanted)
                same = _survived(array, cast)
        if np.all(same):
            return cast
        at = np.unravel_index(int(np.argmin(np.broadcast_to(same, array.shape))), array.shape)
        value = f" {array[at].item()!r}" if array.ndim else f" {array.item()!r}"
    else:
        value = ""
    raise Misfit(
        f"output {name!r} is {given}{value}, but the sweep stores {wanted}, "
        f"which cannot hold it without loss{_way_out(given, wanted)}"
    )


def _way_out(given: str, wanted: str) -> str:
    """What to do about values that do not fit, as the end of a message."""
    kinds = [np.dtype("O" if one in PLAIN else one).kind for one in (given, wanted)]
    if set(kinds) == {"i", "u"} and "uint64" in (given, wanted):
        return (
            "; no type holds whole numbers beyond int64 beside negative ones: return text, or "
            "float(...) in every run, which rounds"
        )
    if set(kinds) <= {"i", "u"}:
        return "; declare a wider one, as in sk.output(dtype='int64')"
    if set(kinds) & {"i", "u"} and "f" in kinds:
        return "; return text, or float(...) in every run, which rounds"
    if "O" in kinds:
        return "; return one type in every run"
    return ""


def _survived(array: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers a cast to another type has kept exactly."""
    source, target = array.dtype.kind, cast.dtype.kind
    if target == "c":
        real = _survived(array.real, cast.real)
        return real & _survived(array.imag, cast.imag) if source == "c" else real
    if source in "iu" and target == "f":
        return _ints_survive(array, cast)
    if source == "f" and target in "iu":
        limits = np.iinfo(cast.dtype)
        inside = (array >= float(limits.min)) & (array < float(limits.max + 1))
        return np.asarray(inside & (cast == array) & ~((array == 0) & np.signbit(array)))
    same = cast.astype(array.dtype) == array
    if source == "f":
        return np.asarray(same | (np.isnan(cast) & np.isnan(array)))
    return np.asarray(same & ((cast < 0) == (array < 0)))  # -1 and 255 are each other's cast


def _ints_survive(array: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether integers are kept by a cast to floats: always up to 2**mantissa, else by value."""
    digits = np.finfo(cast.dtype).nmant + 1
    limit = 2**digits
    return np.asarray((array <= limit) & (array >= -limit if array.dtype.kind == "i" else True))

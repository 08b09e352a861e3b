"""A value that lost its type on the way, in the type of the default that it replaces."""

from __future__ import annotations

import ast
import datetime
import itertools
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NotThatTypeError", "restored", "type_words"]

DIGITS = 8
"""Places after the point to which numpy rounds what it prints."""

TOKEN = re.compile(r"""[\[\](){}]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s\[\](){},]+""")
ZONE = re.compile(r"\d(Z|[+-]\d\d:?\d\d)$")


class NotThatTypeError(ValueError):
    """A value is none of the type that was expected; says what is, without what arrived."""


def restored(default: Any, arrived: Any) -> Any:
    """A value in the type of a default.

    Parameters
    ----------
    default : object
        None takes anything.
    arrived : object
        What papermill, YAML or a shell made of the value: text, a number, a list or a mapping.

    Returns
    -------
    object
        Of the default's type; an array has its dtype, or a datetime of finer unit.

    Raises
    ------
    NotThatTypeError
        If that is not possible without loss.

    Examples
    --------
    >>> restored(np.int64(20), "4")
    np.int64(4)
    >>> restored(np.array([0.5]), [1, 2])
    array([1., 2.])
    """
    if default is None:
        return arrived
    if isinstance(default, np.ndarray) and default.ndim == 0:
        return np.asarray(restored(default[()], arrived))
    for kinds, restore in RESTORERS:
        if isinstance(default, kinds):
            return restore(default, arrived)
    if type(arrived) is type(default):
        return arrived
    raise NotThatTypeError(
        f"a {type_words(default)}, which has no text form; let the default be a number, text, "
        "date, list or array, and make it from that in a cell below"
    )


def type_words(value: Any) -> str:
    """The type of a value, for people: ``int``, ``array of float64, 1-D``, ``list of str``."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"array of {_dtype_word(value.dtype)}, {value.ndim}-D"
    if isinstance(value, list | tuple) and value and len({type(one) for one in value}) == 1:
        return f"{type(value).__name__} of {type_words(value[0])}"
    return type(value).__name__


def _dtype_word(dtype: np.dtype[Any]) -> str:
    return "str" if dtype.kind in "UT" else dtype.name


def _truth(default: Any, arrived: Any) -> Any:
    told = {"true": True, "false": False}
    if isinstance(arrived, bool | np.bool_):
        return type(default)(arrived)
    if isinstance(arrived, str) and arrived.lower() in told:
        return type(default)(told[arrived.lower()])
    raise NotThatTypeError("true or false")


def _whole(default: Any, arrived: Any) -> Any:
    value = arrived
    if isinstance(value, str):
        with suppress(ValueError):
            value = int(value)
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, float | np.floating) and np.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise NotThatTypeError("a whole number; where a fraction is meant, let the default be one")
    if isinstance(default, np.integer):
        limits = np.iinfo(type(default))
        if not limits.min <= value <= limits.max:
            raise NotThatTypeError(f"a whole number from {limits.min} to {limits.max}")
    return type(default)(value)


def _real(default: Any, arrived: Any) -> Any:
    value = arrived
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise NotThatTypeError("a number")
    return type(default)(value)


def _complex(default: Any, arrived: Any) -> Any:
    if isinstance(arrived, str | int | float | complex) and not isinstance(arrived, bool):
        with suppress(ValueError):
            return type(default)(arrived)
    raise NotThatTypeError("a complex number, such as '1+2j'")


def _text(default: Any, arrived: Any) -> Any:
    if isinstance(arrived, str):
        return type(default)(arrived)
    raise NotThatTypeError("text; papermill -r NAME VALUE passes what looks like a number as text")


def _path(default: Any, arrived: Any) -> Any:
    return type(default)(_text("", os.fspath(arrived) if _is_path(arrived) else arrived))


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike)


def _moment(default: Any, arrived: Any) -> Any:
    """A date or a point in time, in the type of the default."""
    import pandas as pd

    told = "a date and time, such as '2026-03-01T12:00'"
    if isinstance(arrived, datetime.date | np.datetime64):
        arrived = arrived.isoformat() if isinstance(arrived, datetime.date) else str(arrived)
    if not isinstance(arrived, str):
        raise NotThatTypeError(told)
    try:
        if isinstance(default, np.datetime64):
            if ZONE.search(arrived.strip()):
                raise NotThatTypeError(f"{told}, without a time zone")
            made = np.datetime64(arrived.strip())
            return made.astype(np.promote_types(default.dtype, made.dtype))
        if isinstance(default, pd.Timestamp):
            return pd.Timestamp(arrived)
        moment = datetime.datetime.fromisoformat(arrived.strip())
    except NotThatTypeError:
        raise
    except ValueError:
        raise NotThatTypeError(told) from None
    if isinstance(default, datetime.datetime):
        return moment
    if moment.time() != datetime.time():
        raise NotThatTypeError("a date without a time of day")
    return moment.date()


def _span(default: Any, arrived: Any) -> Any:
    """A length of time, in the type of the default."""
    import pandas as pd

    told = "a length of time, such as '90 s' or '1 day'"
    if not isinstance(arrived, str | datetime.timedelta | np.timedelta64):
        raise NotThatTypeError(told)
    try:
        made = pd.Timedelta(arrived)
    except ValueError:
        raise NotThatTypeError(told) from None
    if isinstance(default, pd.Timedelta):
        return made
    if isinstance(default, np.timedelta64):
        exact = made.to_timedelta64()
        own = exact.astype(default.dtype)
        return own if own == exact else exact
    return made.to_pytimedelta()


def _several(default: Any, arrived: Any) -> Any:
    """A list, tuple or set; its elements in the type of the default's, where that is one."""
    items = list(arrived) if isinstance(arrived, list | tuple | set) else _spelled(arrived)
    own = list(default)
    kinds = {type(one) for one in own}
    example = own[0] if len(kinds) == 1 else 0.5 if kinds == {int, float} else None
    if isinstance(example, list | tuple | set):
        example = None
    return type(default)(restored(example, one) for one in items)


def _mapping(default: Any, arrived: Any) -> Any:
    value = arrived
    if isinstance(value, str):
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    if not isinstance(value, Mapping):
        raise NotThatTypeError("a mapping, such as {'a': 1}")
    return {key: restored(default.get(key), one) for key, one in value.items()}


def _array(default: NDArray[Any], arrived: Any) -> NDArray[Any]:
    items = list(arrived) if isinstance(arrived, list | tuple | np.ndarray) else None
    if items is None:
        items = _spelled(arrived, exact=default.dtype.kind not in "fc")
    if _depth(items) != default.ndim:
        raise NotThatTypeError(f"{default.ndim}-D, such as {_like(default)}")
    if default.dtype.kind == "O":
        return np.array(items, dtype=object)
    example = default.dtype.type(0) if default.dtype.kind in "biufc" else np.zeros(1, default.dtype)
    example = example if default.dtype.kind in "biufc" else example[0]
    try:
        made = np.array(_each(example, items))
    except NotThatTypeError:
        raise
    except ValueError:
        raise NotThatTypeError("rows of one length") from None
    return made.astype(default.dtype) if default.dtype.kind in "biufc" else made


def _each(example: Any, items: list[Any]) -> list[Any]:
    return [
        _each(example, list(one)) if isinstance(one, list | tuple) else restored(example, one)
        for one in items
    ]


def _depth(items: Any) -> int:
    return 1 + _depth(items[0] if len(items) else 0) if isinstance(items, list | tuple) else 0


def _like(default: NDArray[Any]) -> str:
    return (
        "[0.1, 0.5]" if default.ndim == 1 else "[" * default.ndim + "0.1, 0.5" + "]" * default.ndim
    )


def _spelled(arrived: Any, *, exact: bool = False) -> list[Any]:
    """A list from text: Python's, JSON's, or what numpy prints."""
    text = arrived.strip() if isinstance(arrived, str) else ""
    if not text.startswith(("[", "(", "{")):
        raise NotThatTypeError("a list, such as [0.1, 0.5]")
    if not _without_commas(text):
        for read in (ast.literal_eval, json.loads):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                found = read(text)
                if isinstance(found, list | tuple | set):
                    return list(found)
    return _printed(text, exact=exact)


def _without_commas(text: str) -> bool:
    """Whether two elements follow each other as numpy prints them; Python would join texts."""
    found = re.findall(rf"{TOKEN.pattern}|,", text)
    pairs = itertools.pairwise(found)
    return any(a not in "[({," and b not in "])}," for a, b in pairs)


def _printed(text: str, *, exact: bool) -> list[Any]:
    """A list from what numpy prints of an array.

    Raises
    ------
    NotThatTypeError
        Also if numpy left some out, or may have rounded what it printed.
    """
    if "..." in text:
        raise NotThatTypeError("a whole list: numpy left some out; pass array.tolist()")
    stack: list[list[Any]] = [[]]
    for token in TOKEN.findall(text):
        if token == "[":
            stack.append([])
        elif token == "]" and len(stack) > 1:
            stack[-2].append(stack.pop())
        elif token[0] in "'\"":
            stack[-1].append(ast.literal_eval(token))
        else:
            fraction = re.search(r"\.(\d+)", token)
            if not exact and fraction and len(fraction[1]) >= DIGITS:
                raise NotThatTypeError(
                    f"exact numbers: {token} was printed by numpy, which rounds to {DIGITS} "
                    "places; pass array.tolist()"
                )
            stack[-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1 or not isinstance(stack[0][0], list):
        raise NotThatTypeError("a list, such as [0.1, 0.5]")
    found: list[Any] = stack[0][0]
    return found


RESTORERS: tuple[tuple[Any, Any], ...] = (
    (bool | np.bool_, _truth),
    (np.timedelta64 | datetime.timedelta, _span),  # before numbers: numpy counts it among them
    (np.datetime64 | datetime.date, _moment),
    (int | np.integer, _whole),
    (float | np.floating, _real),
    (complex | np.complexfloating, _complex),
    (str, _text),
    (os.PathLike, _path),
    (np.ndarray, _array),
    (list | tuple | set, _several),
    (Mapping, _mapping),
)
"""How a value gets the type of a default, by that type; the first that fits."""

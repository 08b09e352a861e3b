"""Whether the parts of a declaration agree: keys, values and types, and what is made of them."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sweepkit.codes import StaleCodeError
from sweepkit.identity import Identity, changes
from sweepkit.inputs import described
from sweepkit.request import Request
from sweepkit.sweep import Sweep

__all__ = ["check_agreement", "check_code", "decoded", "exact_array"]

COLUMNS = {"datetime64[ns]": "int64", "timedelta64[ns]": "int64", "str": "object"}
"""Data types whose values are written as those of another."""
WORDS = {"bool": "true or false", "float64": "a number", "str": "text"}
ENDLESS = ("inf", "-inf", "nan")


def decoded(text: str, where: str) -> Any:
    """What a JSON text says.

    Raises
    ------
    ValueError
        If it is no JSON, says NaN, or says a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise _TwiceError(
                    f"{where} has {name!r} twice, as {reprlib.repr(found[name])} and as "
                    f"{reprlib.repr(value)}; take one out"
                )
            found[name] = value
        return found

    def constant(word: str) -> NoReturn:
        raise _TwiceError(f'{where} has {word}, which is no JSON; write null, or "{word}" as text')

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=constant)
    except _TwiceError as fault:
        raise ValueError(str(fault)) from None
    except ValueError as fault:
        raise ValueError(f"{where} is no JSON: {fault}") from None
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply to be one of a sweep") from None


class _TwiceError(Exception):
    """What the reader of JSON would take without a word."""


def exact_array(dtype: str, values: Any, what: str) -> NDArray[Any]:
    """Values of a document as an array that holds just them.

    Raises
    ------
    ValueError
        If one of them is of another type, or a number that the type does not hold.
    """
    column = COLUMNS.get(dtype, dtype)
    for value in _each(values):
        if not _fits(value, dtype):
            raise ValueError(
                f"{what} are declared as {dtype}, but there is {reprlib.repr(value)}; that takes "
                f"{WORDS.get(dtype, 'whole numbers that fit')}"
            )
    try:
        made = np.array(values, dtype=column)
    except ValueError:
        raise ValueError(f"{what} are lists of unequal length; give each as many entries") from None
    if dtype.endswith("[ns]"):
        made = made.astype(dtype)
    made.setflags(write=False)
    return made


def _each(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for one in values:
            yield from _each(one)
    else:
        yield values


def _fits(value: Any, dtype: str) -> bool:
    if dtype == "bool":
        return isinstance(value, bool)
    if dtype == "str":
        return isinstance(value, str)
    if dtype == "float64":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, int) and number:
            return abs(value) <= 2**1023 and int(float(value)) == value
        return (number and math.isfinite(value)) or value in ENDLESS
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    limits = np.iinfo("uint64" if dtype == "uint64" else "int64")
    return int(limits.min) <= value <= int(limits.max)


def check_agreement(said: Mapping[str, Any], sweep: Sweep, given: Collection[str]) -> None:
    """Refuse a document that says of its sweep what the sweep made of it is not.

    Parameters
    ----------
    said : mapping
        The document, known to be as its schema says.
    sweep : Sweep
        That was made of it.
    given : collection of str
        What was passed in place of what it names: of "simulator", "inputs", "setup".

    Raises
    ------
    ValueError
        Naming both sides.
    """
    grid = sweep.grid
    there = {"points": grid.size, "sizes": grid.sizes, "masked": bool(grid.masks)}
    pairs = [(f"runs.{word}", said["runs"][word], there[word]) for word in there]
    for one in said["grid"]["parameters"]:
        kind = grid[one["name"]].kind
        pairs.append((f"the kind of parameter {one['name']!r}", one["kind"], kind))
    if "simulator" not in given:
        pairs.append(("random", said["random"], sweep.random))
    for where, told, made in pairs:
        if told != made:
            raise ValueError(
                f"the declaration disagrees with itself: {where} is {told!r}, but its parameters "
                f"and code make {made!r}; write it anew with sweep.to_json()"
            )
    if said["request"] is not None:
        _check_request(said["request"])
    _check_inputs(said, sweep, given)


def _check_inputs(said: Mapping[str, Any], sweep: Sweep, given: Collection[str]) -> None:
    named = {n: one for n, one in sweep.inputs.items() if n in said["inputs"]}
    for name, there in described(named).items() if "inputs" not in given else ():
        told = said["inputs"][name]
        for word in ("kind", "bytes", "digest"):
            if told[word] != there[word]:
                raise ValueError(
                    f"input {name!r} is not what was declared: its {word} is {there[word]!r} in "
                    f"{there.get('path', 'what is here')!r}, and {told[word]!r} in the "
                    f"declaration; bring the file back, or pass inputs={{{name!r}: ...}}"
                )


def _check_request(said: Mapping[str, Any]) -> None:
    """Refuse a request that nobody could be given; a deadline may be past by now."""
    known = ("workers", "deadline", "duration", "budget")
    for name in said:
        if name not in known:
            raise ValueError(
                f"the request of the declaration has {name!r}; a request has {', '.join(known)}"
            )
    try:
        Request(**{name: value for name, value in said.items() if name != "deadline"})
        deadline = said.get("deadline")
        if deadline is not None and not isinstance(deadline, str):
            raise ValueError(f"deadline is {deadline!r}; give an ISO date and time")
    except ValueError as fault:
        raise ValueError(f"the request of the declaration: {fault}") from None


def check_code(said: Mapping[str, Any], sweep: Sweep) -> None:
    """Refuse code that is found, but is not the code that was declared.

    Raises
    ------
    ValueError
        If the document's identity of the code is none.
    StaleCodeError
        Naming what changed.
    """
    try:
        declared = Identity.from_json(said["code"])
    except (TypeError, ValueError, KeyError) as fault:
        raise ValueError(f"the code of the declaration is no identity: {fault}") from None
    now = sweep.identity
    told = changes(declared, now)
    if not told and declared.parts != now.parts and declared.python == now.python:
        told = [f"the digest is {now.digest}, as declared, but those of its parts are not"]
    if told:
        digests = f"digest {now.digest}", f"digest {declared.digest}"
        here, there = ("", "") if now.digest == declared.digest else (f" ({d})" for d in digests)
        raise StaleCodeError(
            f"the code of {sweep.name!r} that is found here{here} is not the one "
            f"declared{there}:\n"
            + "\n".join(f"  - {one}" for one in told)
            + "\nbring that code back, or take the one that is here with stale='keep'"
        )

"""Runs that need each other's results: found where that shows, and told what to use instead."""

from __future__ import annotations

import os
import re
import types
from collections.abc import Collection, Iterable
from typing import Any

__all__ = ["STEPWISE", "refuse_dependence", "refuse_own_store"]

STEPWISE = (
    ". Where one run goes step by step, loop inside it and return the steps as an array with a "
    "dim of its own"
)

EARLIER = re.compile(
    "(previous|prev|last|earlier|former|preceding|neighbou?r)(_?[a-z0-9_]*)|"
    "[a-z0-9_]*_(previous|prev)|results?|ds|dataset|outputs?|history|xr_?ds|store|sweep"
)
"""Names of arguments that, without a value, stand for what other runs gave."""

INSTEAD = (
    "runs of a sweep are independent and go in any order. If each step needs the one before, loop "
    "inside one run and return the steps as an array with a dim of its own; if a later sweep needs "
    "an earlier one's results, run that first and hand its store over with "
    "sk.Sweep(..., inputs=...); for a graph of dependent steps use a workflow engine"
)


def refuse_dependence(simulator: str, argument: str, outputs: Collection[str]) -> None:
    """Refuse an argument without a value that stands for what another run gave.

    Raises
    ------
    TypeError
        That says what to use instead.
    """
    if argument in outputs:
        raise TypeError(
            f"simulator {simulator!r} needs {argument!r}, which is an output: {INSTEAD}"
        )
    if EARLIER.fullmatch(argument.lower()):
        raise TypeError(
            f"simulator {simulator!r} needs {argument!r}, which is no parameter of the grid and "
            f"seems to stand for what another run gave: {INSTEAD}"
        )


def refuse_own_store(
    simulator: str, codes: Iterable[types.CodeType], scope: dict[str, Any], path: str
) -> None:
    """Refuse a simulator that reads the store its runs are written to.

    Its text has the path as a constant, or it uses a variable that is the path or was opened from
    there.

    Raises
    ------
    ValueError
        That says what to use instead.
    """
    own = os.path.abspath(path)
    for code in codes:
        for one in code.co_consts:
            if isinstance(one, str) and one and os.path.abspath(one) == own:
                _refuse(simulator, f"names {one!r}")
        for name in (*code.co_names, *code.co_freevars):
            if name in scope and _is_of(scope[name], own):
                _refuse(simulator, f"uses the variable {name!r}, which is")


def _is_of(value: Any, own: str) -> bool:
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        return isinstance(text, str) and bool(text) and os.path.abspath(text) == own
    if type(value).__module__.partition(".")[0] != "xarray":
        return False
    variables = [value, *getattr(value, "variables", {}).values()]
    sources = [getattr(one, "encoding", {}).get("source") for one in variables]
    return any(isinstance(one, str) and os.path.abspath(one) == own for one in sources)


def _refuse(simulator: str, how: str) -> None:
    raise ValueError(
        f"simulator {simulator!r} {how} the store that its runs are written to, so what it reads "
        f"would depend on which runs are done: {INSTEAD}"
    )

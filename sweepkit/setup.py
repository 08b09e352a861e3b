"""What a worker sets up once, and hands to each of its runs."""

from __future__ import annotations

import contextlib
import inspect
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sweepkit.inputs import as_handed
from sweepkit.parameters import check_name

__all__ = ["SetupError", "prepared", "settled_setup"]

logger = logging.getLogger(__name__)


class SetupError(RuntimeError):
    """What a worker sets up before its first run could not be set up; no run was tried there."""


def settled_setup(given: object, inputs: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Functions by name that set something up.

    Raises
    ------
    TypeError, ValueError
        If they are no mapping from identifiers to functions of inputs.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"setup is {given!r}; give a mapping from the name that runs get it by, as in "
            "{'model': load_model}"
        )
    for name, one in given.items():
        check_name(name, "setup")
        if not callable(one):
            what = "a context manager" if hasattr(one, "__enter__") else f"{one!r}"
            raise TypeError(
                f"setup {name!r} is {what}; give the function that makes it, which each worker "
                "calls for itself"
            )
        for argument in _needed(one):
            if argument not in inputs:
                raise TypeError(
                    f"setup {name!r} needs {argument!r}, which is no input of the sweep "
                    f"({', '.join(inputs) or 'there are none'}); parameters are known to runs only"
                )
    return dict(given)


def _needed(function: Callable[..., Any]) -> list[str]:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return []
    return [
        one.name
        for one in signature.parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]


def _taken(function: Callable[..., Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a function names among its arguments."""
    try:
        arguments = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return {}
    return {name: inputs[name] for name in arguments if name in inputs}


@contextlib.contextmanager
def prepared(
    inputs: Mapping[str, Any], setup: Mapping[str, Callable[..., Any]]
) -> Iterator[dict[str, Any]]:
    """What this worker hands to its runs by name; what was set up is left at the end.

    Raises
    ------
    SetupError
        If setting up fails: says what, with the traceback.
    """
    handed = as_handed(inputs)
    given = dict(handed)
    stack = contextlib.ExitStack()
    try:
        for name, function in setup.items():
            try:
                made = function(**_taken(function, given))
                if hasattr(type(made), "__enter__") and hasattr(type(made), "__exit__"):
                    made = stack.enter_context(made)
            except (Exception, SystemExit) as fault:
                text = "".join(traceback.format_exception(fault))
                raise SetupError(
                    f"setup {name!r} failed: {type(fault).__name__}: {fault}\n{text}"
                ) from None
            handed[name] = made
        yield handed
    finally:
        try:
            stack.close()
        except Exception:  # runs are done by now, and no fault of its own shall cost them
            logger.warning("leaving what was set up failed", exc_info=True)

"""Where the code of a declaration is found again: by import, as a command, or not at all."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from sweepkit.command import Command
from sweepkit.vectorized import Vectorized

__all__ = ["NeedsCodeError", "reference_of", "resolved"]


class NeedsCodeError(ValueError):
    """A document names code that it cannot bring along; says what to pass instead."""


def reference_of(thing: Any) -> dict[str, Any]:
    """How a function, class or command is found again, as plain data.

    ``{"import": "module:name", "file": ...}``, ``{"command": {...}}``, or ``{"needs_code": why}``.
    """
    if isinstance(thing, Command):
        return {"command": thing.to_json()}
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        why = _unimportable(thing, module, name)
        if why is None:
            file = getattr(sys.modules[module], "__file__", None)
            found: dict[str, Any] = {"import": f"{module}:{name}"}
            return found | ({"file": os.path.abspath(file)} if file else {})
        if isinstance(thing, Vectorized):  # vectorized where the sweep was declared
            inner = reference_of(thing.function)
            if "import" in inner:
                return {**inner, "vectorized": thing.max_batch}
        return {"needs_code": why}
    return {"needs_code": f"is a {type(thing).__name__}, which no import finds"}


def _unimportable(thing: Any, module: str, name: str) -> str | None:
    if module in ("__main__", "__mp_main__"):
        return "is defined in __main__ (a notebook or script)"
    if "<lambda>" in name:
        return "is a lambda"
    if "<locals>" in name:
        return "is defined within a function"
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    if isinstance(found, staticmethod):
        found = found.__func__
    if found is not thing:
        return f"is not what {module}:{name} is now"
    return None if isinstance(thing, type | types.FunctionType) or callable(thing) else "is data"


def resolved(said: Mapping[str, Any], what: str, instead: str) -> Any:
    """What a reference stands for, imported.

    Raises
    ------
    NeedsCodeError
        If it needs code, or cannot be imported; says what to pass instead.
    """
    if "command" in said:
        try:
            return Command.from_json(said["command"])
        except (KeyError, TypeError, AttributeError) as fault:
            raise ValueError(f"{what} is no command as sk.command makes one: {fault!r}") from None
    if "needs_code" in said:
        raise NeedsCodeError(f"{what} {said['needs_code']}, which no document carries; {instead}")
    module, colon, name = str(said.get("import", "")).partition(":")
    if not (module and colon and name):
        raise ValueError(
            f"{what} is {said.get('import', '')!r}, which is no module:name; mend the declaration, "
            f"or {instead}"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as fault:
        where = (
            f", which was in {said['file']}; put its folder on PYTHONPATH" if "file" in said else ""
        )
        raise NeedsCodeError(
            f"{what} is {said['import']}, which cannot be imported here ({fault}){where}; or "
            f"{instead}"
        ) from fault
    if not callable(found):
        raise ValueError(
            f"{what} is {said['import']}, which is a {type(found).__name__} and no function; mend "
            f"the declaration, or {instead}"
        )
    if "vectorized" in said:
        return Vectorized(found, said["vectorized"])
    return found

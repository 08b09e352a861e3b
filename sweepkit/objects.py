"""Reading of functions, classes and instances, and of where they come from; runs nothing."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = [
    "behind",
    "name_of",
    "defaults_of",
    "file_digest",
    "held_by",
    "home_of",
    "installed",
    "package_version",
    "spec_of",
    "static",
    "type_name",
    "unwrapped",
]

_WRAPPED = ("__wrapped__", "py_func", "pyfunc")  # functools, numba, numpy.vectorize
_SLOTS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(NamedTuple("_Pair", [("left", int)]).__dict__["left"]),
)


def unwrapped(value: Any) -> Any:
    """What a method, a partial or a wrapper stands around; None for anything else."""
    if type(value) is functools.partial:
        return value.func
    if type(value) is types.MethodType:
        return value.__func__
    inner = next(filter(callable, (static(value, name) for name in _WRAPPED)), None)
    return None if inner is value else inner


def name_of(value: Any) -> str:
    """How a function, class or callable is spoken of, without the function it is local to."""
    if type(value) is types.FunctionType:
        if "__wrapped__" in vars(value):
            return f"{value.__code__.co_qualname.partition('.')[0]} of {value.__name__}"
        return value.__name__ if "<locals>" in value.__qualname__ else value.__qualname__
    if type(value) is functools.partial:
        return f"partial of {name_of(value.func)}"
    if type(value) is types.MethodType:
        return name_of(value.__func__)
    name = static(value, "__qualname__") or static(value, "__name__")
    if issubclass(type(value), type):
        name = value.__qualname__
    return name if isinstance(name, str) else "self"


def behind(value: Any) -> Iterator[tuple[str, object]]:
    """What an attribute of a class stands for, by role."""
    kind = type(value)
    if kind in (staticmethod, classmethod):
        yield "", value.__func__
    elif kind is property:
        accessors = {"": value.fget, " setter": value.fset, " deleter": value.fdel}
        yield from ((role, each) for role, each in accessors.items() if each is not None)
    elif kind is functools.cached_property:
        yield "", value.func
    elif kind is functools.partialmethod:
        yield "", value.func
        yield " arguments", (value.args, value.keywords)
    elif kind not in _SLOTS:
        yield "", value


def home_of(value: Any) -> str:
    """Name of the module that a function or class was defined in."""
    if type(value) is types.FunctionType:
        return str(value.__globals__.get("__name__", ""))
    home = value.__module__ if issubclass(type(value), type) else static(value, "__module__")
    if home is None and type(value) is types.BuiltinFunctionType:
        home = type(value.__self__).__module__
    return home if isinstance(home, str) else type(value).__module__


def defaults_of(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Arguments that have a default, and the defaults."""
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def held_by(
    value: object, skipped: Callable[[str], bool] = lambda module: False
) -> dict[str, object]:
    """Attributes an instance holds, in its ``__dict__`` or in slots."""
    held = dict(static(value, "__dict__") or {})
    for base in type(value).__mro__:
        for key, slot in base.__dict__.items():
            if type(slot) is types.MemberDescriptorType and not skipped(base.__module__):
                with contextlib.suppress(AttributeError):  # never assigned
                    held[key] = slot.__get__(value)
    return held


def static(value: Any, name: str) -> Any:
    """Attribute read without calling anything of the user's; None where there is none."""
    found = inspect.getattr_static(value, name, None)
    if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType):
        try:
            return found.__get__(value)
        except AttributeError:
            return None
    return found


def type_name(value: object) -> str:
    """Name of the value's type, with its module where that is not built in."""
    kind = type(value)
    home = kind.__module__
    return kind.__qualname__ if home == "builtins" else f"{home}.{kind.__qualname__}"


def file_digest(file: str) -> str:
    """Hex digest of what a file holds."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def spec_of(module: str) -> importlib.machinery.ModuleSpec | None:
    """Where a module is found; imports nothing."""
    names = module.split(".")
    try:
        spec = importlib.util.find_spec(names[0])
    except ValueError:  # __main__, and modules made by hand
        return None
    for n in range(2, len(names) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        where = list(spec.submodule_search_locations)
        spec = importlib.machinery.PathFinder.find_spec(".".join(names[:n]), where)
    return spec


def installed(module: str) -> bool:
    """Whether a module is part of Python, of an installed package, or of sweepkit."""
    top = module.partition(".")[0]
    if top in ("", "__main__", "__mp_main__"):
        return False
    if top == __name__.partition(".")[0] or top in sys.builtin_module_names:
        return True
    loaded = sys.modules.get(module) or sys.modules.get(top)
    file = static(loaded, "__file__") if loaded else None
    if not isinstance(file, str) and (spec := spec_of(top)) is not None:
        file = next(iter(spec.submodule_search_locations or [spec.origin or ""]))
    if not file or file in ("built-in", "frozen"):
        return top in sys.stdlib_module_names
    real, standard = os.path.realpath(file), os.path.realpath(os.path.dirname(os.__file__))
    folders = {"site-packages", "dist-packages"}
    return not folders.isdisjoint(real.split(os.sep)) or real.startswith(standard + os.sep)


def package_version(module: str) -> str:
    """Version of the package that a module is of; "" where it has none."""
    top = module.partition(".")[0]
    found = static(sys.modules.get(top), "__version__")
    if isinstance(found, str):
        return found
    try:
        return importlib.metadata.version(top)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""

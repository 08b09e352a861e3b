"""Values as bytes for other processes, and what keeps one from being sent, by name."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import cloudpickle

from sweepkit.bytecode import read_code
from sweepkit.objects import behind, defaults_of, held_by, installed, name_of, static, type_name

__all__ = ["pickled_value", "pickling_culprit"]


def pickled_value(value: object) -> bytes:
    """A value as bytes that a process without the notebook's own names can read."""
    with io.BytesIO() as buffer:
        _Pickler(buffer, protocol=5).dump(value)
        return buffer.getvalue()


def _reduce_cached(cached: Any) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function under functools.cache, which pickles by its name alone, with what it wraps."""
    found: Any = sys.modules.get(cached.__module__)
    for part in cached.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is cached and cached.__module__ != "__main__":
        return str(cached.__qualname__)
    told = cached.cache_parameters()
    return _cached, (cached.__wrapped__, told["maxsize"], told["typed"])


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize=maxsize, typed=typed)(function)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle's, which would look for cached functions of a notebook in the worker."""

    dispatch_table: ClassVar[Any] = ChainMap(
        {functools._lru_cache_wrapper: _reduce_cached}, cloudpickle.Pickler.dispatch_table
    )


def pickling_culprit(value: object) -> str | None:
    """Name of what keeps `value` from being pickled by cloudpickle; None if it pickles.

    Follows what cloudpickle takes along: globals, closures and defaults of functions that are not
    importable, attributes of instances, items of containers.

    Examples
    --------
    >>> import threading
    >>> pickling_culprit({"lock": threading.Lock()})
    "item 'lock' (a _thread.lock)"
    """
    named = type(value) is types.FunctionType
    return _culprit(value, f"function {static(value, '__qualname__')!r}" if named else "", "", [])


def _culprit(value: object, what: str, tail: str, seen: list[object]) -> str | None:
    try:
        pickled_value(value)
    except Exception:  # pickling runs what the user's classes define, which may raise anything
        seen.append(value)
    else:
        return None
    for inner_what, inner_tail, inner in _taken_along(value, f" of {what}{tail}" if what else ""):
        if not any(inner is known for known in seen):
            found = _culprit(inner, inner_what, inner_tail, seen)
            if found is not None:
                return found
    name = "open file" if isinstance(value, io.IOBase) else type_name(value)
    kind = f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    return f"{what} ({kind}){tail}" if what else kind


def _taken_along(value: Any, tail: str) -> Iterator[tuple[str, str, object]]:
    """What is pickled with `value`: how it is called, whose it is, and the object."""
    kind = type(value)
    if kind is types.FunctionType:
        owner = value.__qualname__
        for use, name, *_ in sorted(read_code(value.__code__).used):
            if use == "global" and name in value.__globals__:
                yield f"global {name!r}", f", used by function {owner!r}", value.__globals__[name]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not assigned yet
                yield f"closure variable {name!r}", f" of {owner!r}", cell.cell_contents
        for name, default in defaults_of(value):
            yield f"default {name!r}", f" of {owner!r}", default
    elif kind is types.MethodType:
        yield "'self'", f" of method {value.__qualname__!r}", value.__self__
    elif kind is functools._lru_cache_wrapper:
        yield f"function {name_of(value.__wrapped__)!r}", tail, value.__wrapped__
    elif kind is functools.partial:
        yield f"function {name_of(value.func)!r}", tail, value.func
        for key, item in [*enumerate(value.args), *value.keywords.items()]:
            yield f"argument {key!r}", f" of a partial{tail}", item
    elif issubclass(kind, (dict, list, tuple, set, frozenset)):
        for key, item in value.items() if issubclass(kind, dict) else enumerate(value):
            yield f"item {key!r}", tail, item
    elif issubclass(kind, type):
        for name, item in vars(value).items():
            for _, inner in behind(item):
                yield f"attribute {name!r}", f" of class {value.__qualname__!r}", inner
    elif not installed(kind.__module__):
        for name, item in held_by(value).items():
            yield f"attribute {name!r}", tail or f" of a {kind.__qualname__}", item
        yield f"class {kind.__qualname__!r}", tail, kind

"""What is run: a function, and how the values of a point are handed to it."""

from __future__ import annotations

import dis
import inspect
import itertools
import linecache
import os
import signal
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.dependence import STEPWISE, refuse_dependence, refuse_own_store
from sweepkit.grid import Grid

__all__ = ["INJECTED", "Call", "call_of"]

INJECTED = ("rng", "seed", "scratch")
"""What a simulator gets beside the parameters if it asks for it by an argument's name."""

UNSETTLING = frozenset(
    {
        "Thread",
        "ThreadPoolExecutor",
        "Timer",
        "addHandler",
        "alarm",
        "basicConfig",
        "disable",
        "fesetround",
        "getcontext",
        "meta_path",
        "nice",
        "path_hooks",
        "prlimit",
        "pthread_sigmask",
        "sched_setaffinity",
        "setLevel",
        "set_int_max_str_digits",
        "set_printoptions",
        "set_threshold",
        "setbufsize",
        "setcontext",
        "setdefaulttimeout",
        "setegid",
        "seteuid",
        "setitimer",
        "setlocale",
        "setpriority",
        "setprofile",
        "setrecursionlimit",
        "setrlimit",
        "setswitchinterval",
        "settrace",
        "siginterrupt",
        "stack_size",
        "start_new_thread",
        "umask",
    }
)
"""Names of functions and classes that change a process for the runs after."""


@dataclass(frozen=True)
class Call:
    """How a simulator is called.

    Attributes
    ----------
    positional, keyword : tuple of str
        Parameters, derived coordinates and injected values in the order they are handed over.
    injected : frozenset of str
        Which of them are made for each run, and not of the grid.
    constant : frozenset of str
        Which of them are the same for all runs of a worker: inputs, and what it set up.
    """

    positional: tuple[str, ...]
    keyword: tuple[str, ...]
    injected: frozenset[str]
    constant: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Everything handed over."""
        return self.positional + self.keyword

    def arguments(
        self,
        grid: Grid,
        index: Mapping[str, NDArray[np.intp]],
        injected: Mapping[str, Iterable[Any]],
        handed: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """Values of each run, in the order of ``names``."""
        derived = dict(grid.derived)
        count = len(next(iter(index.values()), ()))
        columns: list[Iterable[Any]] = []
        for name in self.names:
            if name in self.injected:
                columns.append(injected[name])
            elif name in self.constant:
                columns.append(itertools.repeat((handed or {})[name], count))
            elif name in derived:
                columns.append(grid.columns(index, (name,))[name].tolist())
            else:
                one = grid[name]
                columns.append(one.handed(index[one.dim]))
        if not columns:
            return iter([()] * count)
        return zip(*columns, strict=True)


def call_of(
    function: Callable[..., Any],
    grid: Grid,
    constant: Collection[str] = (),
    outputs: Collection[str] = (),
) -> Call:
    """How to call a simulator on the points of a grid.

    ``constant`` are the names of inputs and of what is set up, ``outputs`` those of outputs that
    are known, which no argument may have.

    Raises
    ------
    TypeError
        If it is no function, lacks an argument for a parameter, or needs one that the grid does
        not have; the message names it.
    """
    name = simulator_name(function)
    if not callable(function):
        raise TypeError(
            f"the simulator is {function!r}, of type {type(function).__name__}; give a function "
            "of the parameters"
        )
    call = getattr(type(function), "__call__", None)
    for kind, is_one in (
        ("coroutine", inspect.iscoroutinefunction),
        ("generator", inspect.isgeneratorfunction),
        ("asynchronous generator", inspect.isasyncgenfunction),
    ):
        if is_one(function) or is_one(call):
            raise TypeError(
                f"simulator {name!r} is a {kind} function; give a plain function that returns "
                "its outputs" + (STEPWISE if "gen" in kind else "")
            )
    extra = (*grid.names, *(n for n, _ in grid.derived), *constant)
    try:
        signature = _signature(function)
    except (ValueError, TypeError):  # some C functions tell nothing of their arguments
        return Call((), (*grid.names, *constant), frozenset(), frozenset(constant))
    positional: list[str] = []
    keyword: list[str] = []
    injected: set[str] = set()
    contiguous = True
    has_rest = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for argument in signature.parameters.values():
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            contiguous = contiguous and argument.kind is argument.VAR_KEYWORD
            continue
        wanted = argument.name
        if wanted in extra or (
            wanted in INJECTED and (argument.default is argument.empty or argument.default is None)
        ):
            if wanted not in extra:
                injected.add(wanted)
            if argument.kind is argument.POSITIONAL_ONLY and not contiguous:
                raise TypeError(
                    f"argument {wanted!r} of simulator {name!r} is positional only and follows "
                    "one that the grid does not give"
                )
            by_place = argument.kind is not argument.KEYWORD_ONLY and contiguous
            (positional if by_place else keyword).append(wanted)
        elif argument.default is argument.empty:
            refuse_dependence(name, wanted, outputs)
            raise TypeError(
                f"simulator {name!r} needs {wanted!r}, which is no parameter of the grid "
                f"({', '.join(grid.names) or 'none'}); add it to the grid or give it a default"
            )
        else:
            contiguous = False
    handed = {*positional, *keyword}
    for parameter in grid.parameters:
        if parameter.name in handed:
            continue
        if has_rest:
            keyword.append(parameter.name)
        elif parameter.role != "replicate":
            raise TypeError(
                f"parameter {parameter.name!r} is no argument of simulator {name!r} "
                f"({', '.join(signature.parameters) or 'it takes none'}); "
                "rename one of them or leave the parameter out"
            )
    for one in constant:
        if one not in handed and not has_rest:
            raise TypeError(
                f"input or setup {one!r} is no argument of simulator {name!r} "
                f"({', '.join(signature.parameters) or 'it takes none'}); rename it or leave it out"
            )
        keyword += [one] if one not in handed else []
    return Call(tuple(positional), tuple(keyword), frozenset(injected), frozenset(constant))


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Arguments of a function, whatever its annotations name that does not exist."""
    if sys.version_info >= (3, 14):  # where they are evaluated when asked for
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def simulator_name(function: object) -> str:
    """Name of a simulator for people."""
    inner = function
    while hasattr(inner, "func") and hasattr(inner, "keywords"):
        inner = inner.func
    return getattr(inner, "__name__", None) or type(inner).__name__


def _codes(function: object, seen: set[int]) -> Iterator[types.CodeType]:
    """Code of a function and of the user's functions that it names, each once."""
    inner = inspect.unwrap(function) if callable(function) else function
    while hasattr(inner, "func") and hasattr(inner, "keywords"):
        inner = inner.func
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, types.FunctionType):
        call = getattr(type(inner), "__call__", None)
        if isinstance(call, types.FunctionType):
            yield from _codes(call, seen)
        return
    if id(inner.__code__) in seen:
        return
    seen.add(id(inner.__code__))
    pending = [inner.__code__]
    while pending:
        code = pending.pop()
        yield code
        pending += [one for one in code.co_consts if isinstance(one, types.CodeType)]
        for name in code.co_names:
            helper = inner.__globals__.get(name)
            if isinstance(helper, types.FunctionType) and not _installed(helper):
                yield from _codes(helper, seen)
    for cell in inner.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            if isinstance(cell.cell_contents, types.FunctionType):
                yield from _codes(cell.cell_contents, seen)


def _installed(function: types.FunctionType) -> bool:
    return f"{os.sep}site-packages{os.sep}" in function.__code__.co_filename


def uses_global_random(function: object) -> bool:
    """Whether a simulator's code names ``random``, as in ``np.random.normal()``.

    Then the global generators are seeded before each run, so that its draws depend on the run
    alone; else before each batch, which is cheaper.
    """
    return any("random" in code.co_names for code in _codes(function, set()))


def patchable(function: object) -> tuple[tuple[str, str], ...]:
    """Attributes of modules that a simulator's code might set, as in ``math.pi = 3``.

    They are looked at after each run; most simulators set none, which costs nothing. Functions
    within a function count as its code, and modules may be named in any way that it spells out.
    """
    scope = getattr(inspect.unwrap(function) if callable(function) else None, "__globals__", {})
    found: set[tuple[str, str]] = set()
    for code in _codes(function, set()):
        inside = list(_nested(code))
        names = set().union(*map(_set_attributes, inside))
        for reached in set().union(*map(_spelled, inside)) if names else ():
            module = scope.get(reached, sys.modules.get(reached))
            if isinstance(module, types.ModuleType):
                found |= {(module.__name__, name) for name in names}
    return tuple(sorted(found))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code and those of the functions in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _nested(one)


def _set_attributes(code: types.CodeType) -> set[str]:
    setting = ("STORE_ATTR", "DELETE_ATTR")
    names = {one.argval for one in dis.get_instructions(code) if one.opname in setting}
    if {"setattr", "delattr"} & set(code.co_names):
        names |= {one for one in code.co_consts if isinstance(one, str)}
    return names


def _spelled(code: types.CodeType) -> set[str]:
    """What may be the name of a module; as a text, only where modules are looked up by one."""
    names = {*code.co_names, *code.co_freevars, *code.co_cellvars}
    if {"import_module", "__import__", "modules"} & names:
        names |= {one for one in code.co_consts if isinstance(one, str)}
    return names


def unsettles(function: object) -> bool:
    """Whether a simulator's code names what changes its process in ways that are seldom used.

    Then every run is looked at for all of them, as long runs are anyway.
    """
    scope = getattr(inspect.unwrap(function) if callable(function) else None, "__globals__", {})
    for code in _codes(function, set()):
        names = set(code.co_names)
        if names & UNSETTLING or ("sys" in names and names & {"path", "modules"}):
            return True
        if "signal" in names and scope.get("signal", signal) in (signal, signal.signal):
            return True
    return False


def refuse_own_store_of(function: object, path: str) -> None:
    """Refuse a simulator whose code reads the store that its runs are written to.

    Raises
    ------
    ValueError
        That says what to use instead.
    """
    inner = inspect.unwrap(function) if callable(function) else None
    scope = dict(getattr(inner, "__globals__", {}))
    free = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    for name, cell in zip(free, getattr(inner, "__closure__", None) or (), strict=True):
        with suppress(ValueError):  # an empty cell
            scope[name] = cell.cell_contents
    refuse_own_store(simulator_name(function), _codes(function, set()), scope, path)


def cell_sources(function: object) -> dict[str, str]:
    """Text of the notebook cells that a simulator was defined in, for tracebacks in workers."""
    sources = {}
    for code in _codes(function, set()):
        filename = code.co_filename
        if not os.path.exists(filename) and filename not in sources:
            lines = linecache.getlines(filename)
            if lines:
                sources[filename] = "".join(lines)
    return sources

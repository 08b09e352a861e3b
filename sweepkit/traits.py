"""What a run may change of its process, seldom: read, compared and set back."""

from __future__ import annotations

import contextlib
import ctypes
import decimal
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Pristine", "Trait"]


@dataclass(frozen=True)
class Trait:
    """Something of a process that a run may change for those after it.

    Attributes
    ----------
    name : str
        For people.
    read : callable
        Its value, to be compared.
    restore : callable
        Set it to a value that was read.
    """

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object]


LIMITS = tuple(
    getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)
SIGNALS = tuple(sorted(one for one in signal.valid_signals() if one < 32 and one not in (9, 19)))


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(one) for one in LIMITS]


def _set_limits(was: Sequence[tuple[int, int]]) -> None:
    for one, limit in zip(LIMITS, was, strict=True):
        if resource.getrlimit(one) != limit:
            resource.setrlimit(one, limit)


def _umask() -> int:
    mask = os.umask(0o077)  # there is no other way to read it
    os.umask(mask)
    return mask


def _handlers() -> list[Any]:
    return [signal.getsignal(one) for one in SIGNALS]


def _set_handlers(was: Sequence[Any]) -> None:
    for one, handler in zip(SIGNALS, was, strict=True):
        if signal.getsignal(one) != handler and handler is not None:
            signal.signal(one, handler)


def _decimal() -> tuple[Any, ...]:
    now = decimal.getcontext()
    traps = tuple(kind for kind, on in now.traps.items() if on)
    return now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, traps


def _set_decimal(was: tuple[Any, ...]) -> None:
    now, traps = decimal.getcontext(), was[-1]
    now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp = was[:-1]
    for kind in now.traps:
        now.traps[kind] = kind in traps


def _set_collector(was: tuple[bool, tuple[int, int, int]]) -> None:
    (gc.enable if was[0] else gc.disable)()
    gc.set_threshold(*was[1])


def _set_traced(was: tuple[Any, Any]) -> None:
    sys.settrace(was[0])
    sys.setprofile(was[1])


def _set_niceness(was: int) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, was)


def _user() -> tuple[int, int, int, int]:
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid()


def _set_user(was: tuple[int, int, int, int]) -> None:
    os.setegid(was[3])
    os.seteuid(was[1])


def _set_print_options(was: dict[str, Any]) -> None:
    np.set_printoptions(**was)


def _search_path() -> Trait:
    """Where modules are searched; a folder that was added and a module came from stays, as more
    may come from it later.
    """
    path, was = sys.path, tuple(sys.path)
    expected = list(was)

    def kept() -> bool:
        return sys.path == expected

    def restore(_: bool) -> None:
        used = [one for one in dict.fromkeys(sys.path) if one not in was and _gave_a_module(one)]
        ahead = sys.path[: len(was)] != list(was)
        expected[:] = [*used, *was] if ahead else [*was, *used]
        path[:] = expected
        sys.path = path

    return Trait("sys.path", kept, restore)


def _gave_a_module(folder: str) -> bool:
    start = os.path.join(folder, "")
    files = (getattr(one, "__file__", None) for one in list(sys.modules.values()))
    return any(isinstance(one, str) and one.startswith(start) for one in files)


def _finders() -> Trait:
    """How modules are searched; a finder that came with a module that was loaded since stays."""
    lists: tuple[Any, Any] = sys.meta_path, sys.path_hooks
    was: list[list[Any]] = [list(one) for one in lists]
    loaded = frozenset(sys.modules)
    expected: list[list[Any]] = [list(one) for one in was]

    def kept() -> bool:
        return [sys.meta_path, sys.path_hooks] == expected

    def restore(_: bool) -> None:
        here: tuple[list[Any], ...] = sys.meta_path, sys.path_hooks
        for now, before, after in zip(here, was, expected, strict=True):
            came = [one for one in now if one not in before and _module_of(one) not in loaded]
            after[:] = [*before, *came]
        sys.meta_path, sys.path_hooks = lists
        for one, after in zip(lists, expected, strict=True):
            one[:] = after

    return Trait("finders of modules", kept, restore)


def _module_of(finder: Any) -> str:
    return str(getattr(finder, "__module__", None) or type(finder).__module__)


def _logging() -> tuple[Any, ...]:
    root = logging.root
    return root.manager.disable, root.level, root.disabled, tuple(root.handlers)


def _set_logging(was: tuple[Any, ...]) -> None:
    logging.disable(was[0])
    logging.root.setLevel(was[1])
    logging.root.disabled = was[2]
    logging.root.handlers[:] = was[3]


def _rounding() -> Trait | None:
    """How sums are rounded, where the system's library tells."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "fegetround"):
        return None
    return Trait("floating-point rounding", library.fegetround, library.fesetround)


def _modules() -> Trait:
    """Modules that are no longer known, or have others in their place."""
    known: dict[str, Any] = {}

    def kept() -> bool:
        if len(sys.modules) > len(known):
            for name, module in list(sys.modules.items()):
                known.setdefault(name, module)
        return known.items() <= sys.modules.items()

    def restore(_: bool) -> None:
        sys.modules.update(known)

    kept()
    return Trait("sys.modules", kept, restore)


def _timer(kind: int, name: str) -> Trait:
    """A timer that was set; one of the caller's own that has run out meanwhile is as it should."""
    left, interval = signal.getitimer(kind)
    end = time.monotonic() + left

    def kept() -> bool:
        now, again = signal.getitimer(kind)
        if not left:
            return not now
        if interval or kind != signal.ITIMER_REAL:
            return again == interval
        ahead = end - time.monotonic()
        return ahead <= 0.1 or abs(now - ahead) < 0.1

    def restore(_: bool) -> None:
        ahead = max(end - time.monotonic(), 1e-3) if left else 0.0
        signal.setitimer(kind, ahead, interval)

    return Trait(name, kept, restore)


def _traits() -> Iterator[Trait]:
    yield Trait("resource limits", _limits, _set_limits)
    yield Trait("umask", _umask, os.umask)
    yield Trait("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield _timer(signal.ITIMER_REAL, "timer")
    yield _timer(signal.ITIMER_VIRTUAL, "virtual timer")
    yield _timer(signal.ITIMER_PROF, "profiling timer")
    yield Trait("signal handlers", _handlers, _set_handlers)
    yield Trait(
        "blocked signals",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda was: signal.pthread_sigmask(signal.SIG_SETMASK, was),
    )
    yield Trait("decimal context", _decimal, _set_decimal)
    yield Trait(
        "locale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda was: locale.setlocale(locale.LC_ALL, was),
    )
    yield Trait("garbage collection", lambda: (gc.isenabled(), gc.get_threshold()), _set_collector)
    yield Trait("socket timeout", socket.getdefaulttimeout, socket.setdefaulttimeout)
    yield Trait("tracing", lambda: (sys.gettrace(), sys.getprofile()), _set_traced)
    yield Trait("numpy's print options", np.get_printoptions, _set_print_options)
    yield Trait("niceness", lambda: os.getpriority(os.PRIO_PROCESS, 0), _set_niceness)
    yield Trait("user", _user, _set_user)
    if hasattr(os, "sched_getaffinity"):
        yield Trait(
            "processors", lambda: os.sched_getaffinity(0), lambda was: os.sched_setaffinity(0, was)
        )
    yield Trait("logging", _logging, _set_logging)
    yield Trait("switch interval", sys.getswitchinterval, sys.setswitchinterval)
    yield Trait("digits of integers", sys.get_int_max_str_digits, sys.set_int_max_str_digits)
    yield Trait("size of threads' stacks", threading.stack_size, threading.stack_size)
    yield Trait("numpy's buffer size", np.getbufsize, np.setbufsize)
    rounding = _rounding()
    if rounding is not None:
        yield rounding
    yield _search_path()
    yield _finders()
    yield _modules()


class Pristine:
    """A process as it was before any run.

    Parameters
    ----------
    more : Trait
        Of this process, beside those that every process has.
    """

    def __init__(self, *more: Trait) -> None:
        self._known = [(one, one.read()) for one in (*_traits(), *more)]

    def restore(self) -> tuple[list[str], list[str]]:
        """Undo changes; names of what had changed, and of that what could not be undone."""
        changed: list[str] = []
        stuck: list[str] = []
        for at, (trait, was) in enumerate(self._known):
            if trait.read() == was:
                continue
            changed.append(trait.name)
            with contextlib.suppress(OSError, ValueError, RecursionError, locale.Error):
                trait.restore(was)
            now = trait.read()
            if now != was:
                stuck.append(trait.name)
                self._known[at] = trait, now
        return changed, stuck

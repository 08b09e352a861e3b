"""What runs share with one another in a process: restored after each, changes noted."""

from __future__ import annotations

import contextlib
import decimal
import gc
import locale
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweepkit import keeper

__all__ = ["Pristine", "Surroundings", "Trait", "kept_surroundings", "seed_globals"]

ABSENT = object()
ENDING = 0.05
"""Seconds that threads which a run started have to end by themselves."""

HARMLESS = "tqdm."
"""Modules whose threads do nothing to runs: progress bars have one that watches them."""


def seed_globals(seed: int) -> None:
    """Seed the global generators of numpy and Python."""
    np.random.seed(seed)
    random.seed(seed)


# --- what is seldom changed ------------------------------------------------------------------


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
    """Entries lost from where modules are searched; those added are left, and do no harm."""
    was = list(sys.path)

    def kept() -> bool:
        return sys.path[-len(was) :] == was or [one for one in sys.path if one in was] == was

    def restore(_: bool) -> None:
        added = [one for one in sys.path if one not in was]
        sys.path[:] = added + was

    return Trait("sys.path", kept, restore)


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
    yield _search_path()
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


# --- what is often changed -------------------------------------------------------------------


@dataclass
class Surroundings:
    """What runs share with one another, restored after every run; changes are noted.

    Working directory, environment, standard streams, filters of warnings, how numpy treats
    floating-point errors, and those attributes of modules that the simulator's code might set;
    less often, what :class:`Pristine` has, and threads.

    Parameters
    ----------
    contained : bool
        Whether these belong to the runs alone, to restore; else nothing is done.
    patchable : sequence of (str, str)
        Modules and attributes.
    pristine : Pristine, optional
        The process as it was before; by default as it is now.
    """

    contained: bool
    patchable: Sequence[tuple[str, str]] = ()
    pristine: Pristine | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._noted: set[str] = set()
        self._patchable = [
            (sys.modules[module], name, getattr(sys.modules[module], name, ABSENT))
            for module, name in self.patchable
            if module in sys.modules
        ]

    def __enter__(self) -> Surroundings:
        if self.contained:
            self._home = os.open(".", os.O_RDONLY)
            self._environ = dict(os.environ)
            self._raw: Any = getattr(os.environ, "_data", os.environ)
            self._kept = dict(self._raw)
            self._streams = sys.stdout, sys.stderr
            self._filters = list(warnings.filters)
            self._float_errors = np.geterr()
            self._children = _children()
            self._threads = set(threading.enumerate())
            self.pristine = self.pristine or Pristine()
        return self

    def restore(self, *, wholly: bool) -> bool:
        """Undo what a run changed; whether something is left that cannot be undone.

        What is seldom changed is looked at only ``wholly``, which takes about 30 microseconds.
        """
        if not self.contained:
            return False
        os.fchdir(self._home)
        sys.stdout, sys.stderr = self._streams
        if warnings.filters != self._filters:
            warnings.resetwarnings()
            warnings.simplefilter("always")
            self._filters = list(warnings.filters)
        if np.geterr() != self._float_errors:
            np.seterr(**self._float_errors)
        for owner, name, value in self._patchable:
            if getattr(owner, name, ABSENT) is not value:
                self._note(f"{owner.__name__}.{name} changed")
                if value is ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
        if self._raw != self._kept:
            self._restore_environment()
        return self._restore_wholly() if wholly else False

    def _restore_environment(self) -> None:
        changed = sorted(set(self._environ.items()) ^ set(os.environ.items()))
        names = sorted({name for name, _ in changed})
        self._note(f"environment changed: {', '.join(names)}")
        for name in names:
            if name in self._environ:
                os.environ[name] = self._environ[name]
            else:
                os.environ.pop(name, None)
        if "TZ" in names:
            time.tzset()

    def _restore_wholly(self) -> bool:
        assert self.pristine is not None
        changed, stuck = self.pristine.restore()
        for name in changed:
            undone = "" if name not in stuck else ", which cannot be undone"
            self._note(f"{name} changed{undone}")
        left = self._left_threads()
        if left:
            self._note(f"threads left behind: {', '.join(sorted({one.name for one in left}))}")
            self._threads.update(left)
        return bool(stuck or left)

    def _left_threads(self) -> list[threading.Thread]:
        """Threads that runs started and that go on, after a moment to end."""
        new = [
            one
            for one in threading.enumerate()
            if one not in self._threads
            and not type(one).__module__.startswith(HARMLESS)
            and type(one).__name__ != "_DummyThread"  # of C code, which keeps its own
        ]
        end = time.monotonic() + ENDING
        for one in new:
            one.join(max(end - time.monotonic(), 0.0))
        return [one for one in new if one.is_alive()]

    def told(self) -> tuple[str, ...]:
        """What was changed since this was last asked, in words."""
        if self.contained and not _children() <= self._children:
            self._note("child processes left behind")
        notes, self.notes = tuple(self.notes), []
        return notes

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.notes.append(text)

    def __exit__(self, *_: object) -> None:
        if self.contained:
            self.restore(wholly=False)
            os.close(self._home)


def _children() -> set[int]:
    """Processes that this one started and that are alive, where the system tells."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, AttributeError):  # none, which is told fast; or not told at all
        return set()
    return set(keeper.descendants(os.getpid())) - {ended.si_pid if ended else 0}


@contextlib.contextmanager
def shown_warnings() -> Iterator[None]:
    """Within, each warning is printed, every time."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def kept_surroundings(patchable: Sequence[tuple[str, str]] = ()) -> Iterator[Pristine]:
    """Within, runs may change what they share with this process; it is restored at the end.

    Seeds of numpy's and Python's global generators, working directory, environment, standard
    streams, filters of warnings, and what :class:`Pristine` has. What other threads change
    meanwhile is theirs to lose.
    """
    of_numpy, of_python = np.random.get_state(), random.getstate()
    of_decimal = decimal.getcontext()
    pristine = Pristine()
    try:
        with warnings.catch_warnings(), Surroundings(True, patchable, pristine) as surroundings:
            try:
                yield pristine
            finally:
                if decimal.getcontext() is not of_decimal:
                    decimal.setcontext(of_decimal)
                surroundings.restore(wholly=True)
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)

"""What runs share with one another in a process: restored after each, changes noted."""

from __future__ import annotations

import contextlib
import decimal
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweepkit import keeper
from sweepkit.traits import Pristine

__all__ = ["Surroundings", "kept_surroundings", "seed_globals"]

ABSENT = object()
ENDING = 0.05
"""Seconds that threads which a run started have to end by themselves."""

HARMLESS = "tqdm."
"""Modules whose threads do nothing to runs: progress bars have one that watches them."""


def seed_globals(seed: int) -> None:
    """Seed the global generators of numpy and Python."""
    np.random.seed(seed)
    random.seed(seed)


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

        What is seldom changed is looked at only ``wholly``, which takes about 70 microseconds.
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
            with contextlib.suppress(RuntimeError):  # another thread is just starting it
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
    """Processes that this one started and that are alive, where the system tells.

    Without those that Python starts by itself, as for shared memory, and that end with it.
    """
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, AttributeError):  # none, which is told fast; or not told at all
        return set()
    known = set(keeper.descendants(os.getpid())) - {ended.si_pid if ended else 0}
    return {one for one in known - _servants() if not keeper.serves(one)}


def _servants() -> set[int]:
    """Processes that Python started for this one: just started they look like it.

    The modules keep them in private attributes, the only place that tells at that moment.
    """
    held = [
        getattr(sys.modules.get(module), name, None)
        for module, name in (
            ("multiprocessing.resource_tracker", "_resource_tracker"),
            ("multiprocessing.forkserver", "_forkserver"),
            ("joblib.externals.loky.backend.resource_tracker", "_resource_tracker"),
        )
    ]
    pids = {getattr(one, name, None) for one in held for name in ("_pid", "_forkserver_pid")}
    return {pid for pid in pids if pid is not None}


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

"""A job that a person holds: one session on a thread of its own, watched and steered."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread as _executors_that_end_before_us  # noqa: F401
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from sweepkit.places import is_url
from sweepkit.protocols import Executor, Store
from sweepkit.run import Session
from sweepkit.settings import Settings
from sweepkit.status import ENDINGS, Progress
from sweepkit.sweep import Sweep

__all__ = ["Job", "Terms", "begun"]

EXIT_SECONDS = 10.0
"""How long the interpreter waits at its exit for a job to put away what is finished."""


@dataclass(frozen=True)
class Terms:
    """What a job was started with, as far as a second start must be the same.

    Attributes
    ----------
    sweep : Sweep
    options : mapping of str to str
        Each option as text.
    """

    sweep: Sweep
    options: Mapping[str, str]

    def differences(self, other: Terms) -> list[str]:
        """In words, how other terms differ from these."""
        before, now = self.sweep.declaration(), other.sweep.declaration()
        told = [f"another {word}" for word in now if before.get(word) != now[word]]
        if not told:
            told = [
                f"other values of {new.name!r}"
                for old, new in zip(
                    self.sweep.grid.parameters, other.sweep.grid.parameters, strict=True
                )
                if not np.array_equal(old.keys(), new.keys())
            ]
        if self.sweep.identity.digest != other.sweep.identity.digest:
            told.append("other code of the simulator")
        for name in {**self.options, **other.options}:
            old, new = self.options.get(name, "not said"), other.options.get(name, "not said")
            if old != new:
                told.append(f"{name} {new} instead of {old}")
        return told


class Job:
    """A sweep being run in the background; :func:`sweepkit.start` makes it.

    Its methods return at once but for ``wait`` and ``result``, and may be called from any thread.
    In a notebook it displays itself and stays up to date. ``await job`` gives its result.

    Parameters
    ----------
    sweep : Sweep
    store : Store
    executor : Executor
    settings : Settings
        What is run, into what, by what, and how.
    report : callable
        Called with each Progress, from the job's thread.
    terms : Terms
        By which a second start is told from another job.
    opened : callable
        Gives the Dataset of the store as declared: called with the session.
    shown : callable
        Gives the mimebundle that displays the job: called with it.
    """

    def __init__(
        self,
        sweep: Sweep,
        store: Store,
        executor: Executor,
        settings: Settings,
        *,
        report: Callable[[Progress], None],
        terms: Terms,
        opened: Callable[[Session], xr.Dataset],
        shown: Callable[[Job], dict[str, Any]],
    ) -> None:
        self.name = sweep.name
        self.store = store.path
        self.where = store.where
        self.terms = terms
        self.session = Session(sweep, store, executor, settings, self._hear)
        self.began = time.time()
        self._report = report
        self._opened = opened
        self._shown = shown
        self._progress = Progress(sweep.grid.size, state="declared")
        self._fault: BaseException | None = None
        self._news = threading.Condition()
        self._told = 0
        self._warned = False
        self._ended = threading.Event()
        self._then: list[Callable[[], None]] = []
        self._thread = threading.Thread(
            target=self._run, name=f"sweepkit {self.store}", daemon=True
        )

    # --- what a person asks ---

    @property
    def state(self) -> str:
        """One of :data:`sweepkit.status.STATES`."""
        return self.progress.state

    @property
    def progress(self) -> Progress:
        """How far it was when last heard of, a fifth of a second ago at most while it runs."""
        return self._progress

    @property
    def error(self) -> str:
        """What ended it, in one line; "" if nothing did."""
        fault = self._fault
        return "" if fault is None else f"{type(fault).__name__}: {fault}"

    @property
    def dataset(self) -> xr.Dataset:
        """The store as it is now, opened lazily; unfinished runs are NaN.

        Raises
        ------
        ValueError
            If nothing is stored yet, which is so until a first run is done.
        """
        return self._opened(self.session)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, for so many seconds at most; returns whether it has.

        Interrupting the kernel ends the waiting and not the job.

        Raises
        ------
        TypeError, ValueError
            If that is no number of seconds.
        """
        return self._ended.wait(_patience(timeout))

    def result(self, timeout: float | None = None) -> xr.Dataset:
        """Wait for the end and open the store; of a cancelled job with a warning of what is left.

        Raises
        ------
        TimeoutError
            If it has not ended within so many seconds.
        Exception
            What the session raised, as :func:`sweepkit.run` would.
        """
        if not self.wait(timeout):
            raise TimeoutError(
                f"the job on {self.store} is {self.state} after {timeout:g} s; wait longer, or "
                "look at job.dataset for what is finished"
            )
        if self._fault is not None:
            raise self._fault
        self._warn_of_cancelled()
        return self.dataset

    def _warn_of_cancelled(self) -> None:
        """Say once that what is handed over is not all: its unfinished runs look like NaN."""
        now = self.progress
        if self._warned or now.state != "cancelled" or now.finished >= now.total:
            return
        self._warned = True
        warnings.warn(
            f"the job on {self.store} was cancelled with {now.total - now.finished:,} of "
            f"{now.total:,} runs pending, which are NaN in its Dataset; sk.start(sweep, "
            f"{self.store!r}) goes on",
            stacklevel=3,
        )

    def __await__(self) -> Generator[Any, None, xr.Dataset]:
        return self._awaited().__await__()

    async def _awaited(self) -> xr.Dataset:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set)

        with self._news:
            self._then.append(tell)
        if self._ended.is_set():
            tell()
        await ended.wait()
        return self.result()

    # --- what a person says ---

    def pause(self) -> None:
        """Begin no more runs; those in flight end and are kept, and workers are let go."""
        self.session.pause()

    def resume(self) -> None:
        """Go on after a pause."""
        self.session.resume()

    def cancel(self) -> None:
        """End soon: finished runs are kept, those in flight become pending."""
        self.session.stop()

    # --- the thread ---

    def begin(self) -> None:
        """Start the thread, once."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread; at once where it does not run, as after a fork."""
        self._thread.join(timeout)

    def _run(self) -> None:
        fault: BaseException | None = None
        try:
            self.session.run()
        except BaseException as one:  # a thread's end: whoever asks for the result gets it
            fault = one
        self._end(fault)

    def _end(self, fault: BaseException | None) -> None:
        self._fault = fault
        last = self.session.progress()
        with _lock:
            if _jobs.get(_key(self.store)) is self:
                del _jobs[_key(self.store)]
        with self._news:
            self._progress = replace(last, state="failed" if fault else last.state)
            self._told += 1
            self._ended.set()
            self._news.notify_all()
            then, self._then = self._then, []
        for tell in then:
            tell()

    def _hear(self, progress: Progress) -> None:
        if progress.state not in ENDINGS:  # an end is told once the store is let go
            with self._news:
                self._progress = progress
                self._told += 1
                self._news.notify_all()
        self._report(progress)

    def news(self, seen: int, timeout: float) -> int:
        """Wait until there is more news than some seen, and return how much there is."""
        with self._news:
            self._news.wait_for(lambda: self._told > seen, timeout)
            return self._told

    # --- how it looks ---

    def __repr__(self) -> str:
        now = self.progress
        parts = [now.state, f"{now.finished:,} of {now.total:,} runs"]
        parts += [f"{count:,} {kind}" for kind, count in now.errors.items()][:4]
        return f"<sweepkit.Job {self.name!r} into {self.store}: {', '.join(parts)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self._shown(self)


def _patience(timeout: object) -> float | None:
    """Seconds to wait, checked; none for as long as it takes."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float | np.number):
        raise TypeError(f"timeout is {timeout!r}; give seconds, or None to wait for the end")
    if math.isnan(timeout):
        raise ValueError("timeout is nan; give seconds, or None to wait for the end")
    return None if timeout > threading.TIMEOUT_MAX else float(timeout)


_lock = threading.Lock()
_jobs: dict[str, Job] = {}
"""Live jobs by the path of their store: what a cell that is run again finds its job by."""


def begun(job: Job) -> Job:
    """Start a job, or return the live one on its store that is the same.

    Raises
    ------
    ValueError
        If the live one was started with another sweep or other options; says which.
    """
    with _lock:
        live = _jobs.get(_key(job.store))
        if live is None or live.state in ENDINGS:
            _jobs[_key(job.store)] = job
            job.begin()
            return job
    told = live.terms.differences(job.terms)
    if told:
        raise ValueError(
            f"a job on {job.store} is {live.state}, and was started otherwise; now there is "
            f"{', '.join(told)}: cancel it first (job.cancel(); job.wait()), wait for it, or "
            "use another store"
        )
    return live


def live(store: str) -> Job | None:
    """The job that goes on in this process and writes to a store."""
    with _lock:
        return _jobs.get(_key(store))


def _key(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)


def _end_all() -> None:
    """End all jobs cleanly when the interpreter ends."""
    with _lock:
        jobs = list(_jobs.values())
    for job in jobs:
        job.cancel()
    end = time.monotonic() + EXIT_SECONDS
    for job in jobs:
        job.join(max(end - time.monotonic(), 0.0))


# Not atexit, whose functions are called when the executors of concurrent.futures, through which
# stores are written, take no more work: what is finished could not be put away by then.
threading._register_atexit(_end_all)  # type: ignore[attr-defined]

"""This machine's cores: worker processes, threads or the caller's own, as joblib is set up."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
from joblib.parallel import get_active_backend

from sweepkit.capture import TextCapture, routed_prints
from sweepkit.containment import kept_surroundings
from sweepkit.digest import digest_of
from sweepkit.evaluate import STOP, Station, Task, evaluate
from sweepkit.fleet import PREFETCH, RECYCLE_BYTES, TICK, Fleet, pickled
from sweepkit.futures import evaluate_pickled
from sweepkit.keeper import descendants
from sweepkit.premises import Premises
from sweepkit.protocols import Batch, Crew, Outcome, Result, Share, everyone
from sweepkit.setup import prepared
from sweepkit.traits import Pristine

__all__ = ["JoblibExecutor"]

OWN = ("loky", "threading", "sequential")


class JoblibExecutor:
    """Compute as joblib is set up to use it.

    Parameters
    ----------
    n_jobs : int, optional
        Runs at the same time; -1 for all cores that this process may use. By default what an
        active ``joblib.parallel_config`` says, else all cores.
    backend : str, optional
        "loky" (processes), "threading", "sequential", or any backend registered with joblib. By
        default what an active ``joblib.parallel_config`` says, else "loky".

    recycle_after : int or str, optional
        A worker process makes room for a fresh one after so many runs, or after it has grown by
        so much memory, as in "500 MB"; by default after it has grown by 1 GB.

    Raises
    ------
    ValueError
        If there is no such backend, ``n_jobs`` is 0, or ``recycle_after`` is neither runs nor
        memory.
    """

    def __init__(
        self,
        n_jobs: int | None = None,
        backend: str | None = None,
        *,
        recycle_after: int | str | None = None,
    ) -> None:
        # The configuration belongs to the thread that calls, so it is read here and now.
        active, configured = get_active_backend()
        self.backend = backend or _backend_name(active, configured)
        if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int)):
            raise TypeError(f"n_jobs is {n_jobs!r}; give a whole number, or -1 for all cores")
        asked = n_jobs if n_jobs is not None else configured
        if asked is None:
            asked = 1 if self.backend == "sequential" else -1
        if asked == 0:
            raise ValueError("n_jobs is 0; give a number of workers, or -1 for all cores")
        if asked < 0:
            asked = max(1, joblib.cpu_count() + 1 + asked)
        self._workers = 1 if self.backend == "sequential" else asked
        if self.backend not in OWN and self.backend not in joblib.parallel.BACKENDS:
            known = sorted({*OWN, *joblib.parallel.BACKENDS})
            raise ValueError(
                f"backend {self.backend!r} is not known to joblib; there are {', '.join(known)}"
            )
        self._recycle = _recycling(recycle_after)
        self._here: Station | None = None
        self.client: Any = getattr(active, "client", None) if backend is None else None
        """Of the cluster, where joblib is configured to use dask."""

    @property
    def workers(self) -> int:
        """Runs at the same time."""
        return self._workers

    def running_here(self) -> bool:
        """Whether a run is on in the caller's own thread, so that an interrupt must reach it."""
        return self._here is not None and self._here.claim[0] >= 0

    @contextmanager
    def hold(self, task: Task, *, timeout: Callable[[], float | None] | None) -> Iterator[Crew]:
        """See :class:`~sweepkit.protocols.Executor`."""
        if timeout is not None and self.backend != "loky":
            raise ValueError(
                f"a time limit needs worker processes, which can be killed; backend "
                f"{self.backend!r} has none: use backend='loky' or leave timeout= out"
            )
        if self.backend == "loky":
            payload = pickled(task)
            with Fleet(
                payload,
                task.threads,
                self._workers,
                timeout,
                *self._recycle,
                leaves=bool(task.setup),
            ) as fleet:
                yield fleet
        elif self.backend == "sequential":
            with (
                _in_process(task) as (route, pristine, scratch),
                prepared(task.inputs, task.setup) as handed,
            ):
                self._here = Station(
                    TextCapture(), pristine=pristine, scratch=scratch, handed=handed
                )
                yield _Here(task, self._here, route)
        elif self.backend == "threading":
            with (
                _in_process(task) as (route, _, scratch),
                contextlib.ExitStack() as setups,
            ):
                yield _Threads(task, self._workers, route, scratch, setups)
        else:
            with _limited(task):  # the backend may run here, in threads that share the limit
                yield _Registered(task, self._workers, self.backend)


def _backend_name(active: Any, configured: int | None) -> str:
    """Name of the backend that joblib would use: its default, unless it is configured."""
    for name, kind in joblib.parallel.BACKENDS.items():
        if type(active) is kind:
            return "sequential" if name == "sequential" else str(name)
    return "sequential" if type(active).__name__ == "SequentialBackend" else "loky"


def _recycling(after: int | str | None) -> tuple[int | None, int | None]:
    """Bytes and runs after which a worker is replaced."""
    if after is None:
        return RECYCLE_BYTES, None
    if isinstance(after, int) and not isinstance(after, bool) and after >= 1:
        return RECYCLE_BYTES, after
    units = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    if isinstance(after, str):
        number, _, unit = after.strip().rpartition(" ")
        if unit in units:
            with contextlib.suppress(ValueError):
                if float(number) > 0:
                    return int(float(number) * units[unit]), None
    raise ValueError(f"recycle_after is {after!r}; give a number of runs, or memory as in '500 MB'")


@contextmanager
def _limited(task: Task) -> Iterator[None]:
    """Threads of linear algebra as the sweep says, while runs share this process."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(task.threads):
        yield


@contextmanager
def _in_process(
    task: Task,
) -> Iterator[tuple[Callable[[TextCapture | None], None], Pristine, str | None]]:
    """What runs in this process need: where prints go, what to restore, and scratch space."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_limited(task))
        scratch = None
        if "scratch" in task.call.injected and task.kept_scratch is None:
            premises = Premises()
            stack.callback(premises.leave)
            scratch = premises.path
        pristine = stack.enter_context(kept_surroundings(task.patchable))
        yield stack.enter_context(routed_prints()), pristine, scratch


def _admitted(share: Share, using: int, stopping: Callable[[], bool]) -> int:
    """Wait for a share, and return it; 0 once it is time to stop."""
    allowed = share(using)
    while allowed < 1 and not stopping():
        time.sleep(TICK)
        allowed = share(0)
    return 0 if stopping() else allowed


class _Here:
    """Runs in the caller's own thread."""

    def __init__(
        self, task: Task, station: Station, route: Callable[[TextCapture | None], None]
    ) -> None:
        self._task = task
        self._station = station
        self._route = route

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`."""
        station = self._station
        station.interrupted = stopping
        for batch in batches:
            while len(batch) and _admitted(share, 1, stopping):
                self._route(station.capture)  # type: ignore[arg-type]
                station.claim[STOP] = 0.0
                try:
                    result = evaluate(self._task, batch.runs, station)
                except KeyboardInterrupt:
                    if not stopping():
                        raise
                    return
                finally:
                    self._route(None)
                    station.claim[0] = -1.0
                done = len(result)
                if done:
                    yield Outcome(batch.part(slice(0, done)), result)
                batch = batch.part(slice(done, None))
            if stopping():
                return


class _Threads:
    """Runs in threads of this process: for simulators that release the interpreter lock."""

    def __init__(
        self,
        task: Task,
        workers: int,
        route: Callable[[TextCapture | None], None],
        scratch: str | None,
        setups: contextlib.ExitStack,
    ) -> None:
        self._task = task
        self._workers = workers
        self._route = route
        self._scratch = scratch
        self._setups = setups
        self._own = threading.local()
        self._stations: dict[int, Station] = {}  # each change is one step: no lock is needed
        self._children = set(descendants(os.getpid()))

    def _handed(self) -> dict[str, Any]:
        """What this thread hands to its runs; set up once for each, as threads run at a time."""
        if not hasattr(self._own, "handed"):
            made = prepared(self._task.inputs, self._task.setup)
            self._own.handed = made.__enter__()
            self._setups.push(made.__exit__)
        return dict(self._own.handed)

    def _evaluate(self, batch: Batch) -> Any:
        capture = TextCapture()
        station = Station(capture, contained=False, scratch=self._scratch, handed=self._handed())
        self._stations[id(station)] = station
        self._route(capture)
        try:
            return evaluate(self._task, batch.runs, station)
        finally:
            self._route(None)
            del self._stations[id(station)]

    def _noted(self, result: Result) -> Result:
        """With a note if runs left child processes, which go on in this process."""
        if self._children.issuperset(descendants(os.getpid())):
            return result
        self._children.update(descendants(os.getpid()))
        return replace(result, notes=(*result.notes, "child processes left behind"))

    @staticmethod
    def _room(running: dict[Future[Any], Batch], workers: int) -> bool:
        """Whether one more batch may go out: ahead of time, if those before it are short."""
        if len(running) < workers:
            return True
        short = all(batch.seconds <= PREFETCH for batch in running.values())
        return short and len(running) < 2 * workers

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`."""
        source = iter(batches)
        again: deque[Batch] = deque()
        running: dict[Future[Any], Batch] = {}
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="sweepkit")
        told = False
        try:
            while True:
                allowed = min(share(min(len(running), self._workers)), self._workers)
                while not stopping() and self._room(running, allowed):
                    batch = again.popleft() if again else next(source, None)
                    if batch is None:
                        if not running:
                            return
                        break
                    if len(batch):
                        running[pool.submit(self._evaluate, batch)] = batch
                if not running:
                    if stopping():
                        return
                    time.sleep(TICK)
                    continue
                if stopping() and not told:
                    told = True
                    for future in list(running):
                        if future.cancel():
                            del running[future]
                    for station in list(self._stations.values()):
                        station.claim[STOP] = 1.0
                finished, _ = wait(running, timeout=TICK, return_when=FIRST_COMPLETED)
                if not finished:
                    yield None
                for future in finished:
                    batch, result = running.pop(future), future.result()
                    if not running:
                        result = self._noted(result)
                    done = len(result)
                    if done < len(batch):
                        again.append(batch.part(slice(done, None)))
                    if done:
                        yield Outcome(batch.part(slice(0, done)), result)
        finally:
            for station in list(self._stations.values()):
                station.claim[STOP] = 1.0
            pool.shutdown(wait=True, cancel_futures=True)


class _Registered:
    """Runs on whatever backend is registered with joblib under a name."""

    def __init__(self, task: Task, workers: int, backend: str) -> None:
        payload = pickled(task)
        self._digest = digest_of(payload)
        # As an array joblib's backends share it in a file, or scatter it, once and not by batch.
        self._payload = np.frombuffer(payload, dtype=np.uint8)
        self._workers = workers
        self._backend = backend

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`.

        Batches go out in rounds: joblib would pull from its own threads otherwise.
        """
        source = iter(batches)
        workers = self._workers
        while workers := min(_admitted(share, workers, stopping), self._workers):
            round_ = []
            for batch in source:
                round_.append(batch)
                long = batch.seconds > 1.0
                if len(round_) >= (2 if long else 8) * workers:
                    break
            if not round_:
                return
            with joblib.parallel_config(backend=self._backend, n_jobs=workers):
                results = joblib.Parallel()(
                    joblib.delayed(evaluate_pickled)(self._digest, self._payload, batch.runs)
                    for batch in round_
                )
            for batch, result in zip(round_, results, strict=True):
                yield Outcome(batch, result)

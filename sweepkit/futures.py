"""A crew over anything that is handed calls and gives futures, for executors of other people."""

from __future__ import annotations

import atexit
import contextlib
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from time import monotonic, sleep
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from sweepkit.capture import TextCapture, remember_sources, routed_prints
from sweepkit.digest import digest_of
from sweepkit.evaluate import Station, Task, evaluate
from sweepkit.fleet import GRACE, PREFETCH, TICK, pickled
from sweepkit.protocols import Batch, ComputeLostError, Outcome, Result, Share, everyone
from sweepkit.setup import prepared

__all__ = ["FuturesCrew", "evaluate_pickled"]


class FuturesCrew:
    """Runs batches by a ``submit`` as pools of ``concurrent.futures`` have it.

    With it an executor is a few lines: hold a pool, and yield a crew over it. A run that raises,
    exits or prints is contained as anywhere. A pool of processes cannot tell which run ended a
    worker, nor kill one: a death ends the sweep, with what was counted kept.

    Parameters
    ----------
    submit : callable
        Takes a function and its arguments, which it may pickle, and gives a
        ``concurrent.futures.Future``.
    task : Task
        What ``hold`` was given.
    workers : int
        Runs at the same time.

    Examples
    --------
    >>> from contextlib import contextmanager
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> class Threads:
    ...     workers = 2
    ...     @contextmanager
    ...     def hold(self, task, *, timeout):
    ...         with ThreadPoolExecutor(self.workers) as pool:
    ...             yield FuturesCrew(pool.submit, task, self.workers)
    """

    def __init__(self, submit: Callable[..., Future[Any]], task: Task, workers: int) -> None:
        payload = pickled(task)
        self._submit = submit
        self._digest = digest_of(payload)
        self._payload = np.frombuffer(payload, dtype=np.uint8)
        self._workers = workers

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`."""
        source: Iterator[Batch] | None = (batch for batch in batches if len(batch))
        flying: dict[Future[Any], Batch] = {}
        deadline: float | None = None
        try:
            while True:
                allowed = min(share(-(-len(flying) // _depth(flying))), self._workers)
                while source and not stopping() and len(flying) < allowed * _depth(flying):
                    batch = next(source, None)
                    if batch is None:
                        source = None
                        break
                    flying[self._sent(batch)] = batch
                if stopping():
                    deadline = deadline or monotonic() + GRACE
                    flying = {one: batch for one, batch in flying.items() if not one.cancel()}
                over = source is None if deadline is None else True
                if (over and not flying) or (deadline is not None and monotonic() > deadline):
                    return
                if not flying:
                    sleep(TICK)
                finished = wait(flying, TICK, FIRST_COMPLETED).done if flying else ()
                if not finished:
                    yield None
                for future in finished:
                    yield Outcome(flying.pop(future), _received(future))
        finally:
            for future in flying:
                future.cancel()

    def _sent(self, batch: Batch) -> Future[Any]:
        try:
            return self._submit(evaluate_pickled, self._digest, self._payload, batch.runs)
        except (BrokenExecutor, RuntimeError) as fault:
            raise _lost(fault) from fault


def _depth(flying: Mapping[Future[Any], Batch]) -> int:
    """Batches for each worker: one is sent ahead of time if those in flight are short."""
    return 2 if all(batch.seconds <= PREFETCH for batch in flying.values()) else 1


def _received(future: Future[Any]) -> Result:
    try:
        result: Result = future.result()
    except BrokenExecutor as fault:
        raise _lost(fault) from fault
    return result


def _lost(fault: BaseException) -> ComputeLostError:
    return ComputeLostError(
        f"the pool of workers is broken: {fault}; it cannot tell which run did it, as "
        "backend='loky' or sk.DaskExecutor can; what was counted is kept"
    )


# --- on a worker ---------------------------------------------------------------------------------

_tasks: dict[str, tuple[Task, dict[str, Any]]] = {}
"""Cache of a worker: the task that it has rebuilt, by its digest, and what it hands to runs."""
_left = contextlib.ExitStack()
_rebuilding = threading.Lock()
_routing = threading.Lock()
_routed: list[tuple[contextlib.ExitStack, Callable[[TextCapture | None], None]]] = []
"""The one way of prints to runs, for each batch that this process runs at the moment."""
atexit.register(_left.close)


def evaluate_pickled(digest: str, payload: Any, runs: Any) -> Result:
    """Run a batch in a process that gets the task along with it."""
    with _rebuilding:
        if digest not in _tasks:
            _tasks.clear()
            _left.close()  # what was set up for the task before
            task: Task = pickle.loads(memoryview(payload))
            remember_sources(task.sources)
            _tasks[digest] = task, _left.enter_context(prepared(task.inputs, task.setup))
        task, handed = _tasks[digest]
    capture = TextCapture()
    with _sharing(task, capture):
        return evaluate(task, runs, Station(capture, handed=handed))


@contextlib.contextmanager
def _sharing(task: Task, capture: TextCapture) -> Iterator[None]:
    """Limited linear algebra, and this thread's prints to a capture.

    Batches in other threads may begin and end meanwhile: the last one leaves things as they were.
    """
    with _routing:
        if not _routed:
            held = contextlib.ExitStack()
            held.enter_context(threadpool_limits(task.threads))
            _routed.append((held, held.enter_context(routed_prints())))
        else:
            _routed.append(_routed[0])
        stack, route = _routed[0]
    route(capture)
    try:
        yield
    finally:
        route(None)
        with _routing:
            _routed.pop()
            if not _routed:
                stack.close()

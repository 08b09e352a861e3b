"""Batches to the workers of a dask cluster and back, as long as one job holds them.

A dask worker never runs the simulator itself. It keeps a worker process of the kind that runs
sweeps on one machine, with its claim, its session and its log, and hands it the batch. So a run
that dies or hangs is convicted on its node as it would be here, dask's own process lives on, and
when dask loses one that is no run's fault.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import process, util
from time import monotonic, sleep
from typing import Any, TypeAlias

import numpy as np
from distributed import Client, Future, get_worker
from numpy.typing import NDArray

from sweepkit.fleet import GRACE, TICK, Fleet, WorkerStartError
from sweepkit.protocols import Batch, ComputeLostError, Outcome, Result, Share, everyone
from sweepkit.setup import SetupError

__all__ = ["DaskCrew", "threads_of"]

DEEP = 2
"""Batches in flight for each worker thread, so that none waits for the way to the client."""

MOST_LOSSES = 20
"""Deaths of dask workers in a row, with no batch finished between, after which the sweep ends."""

JOIN_SECONDS = 60.0
"""How long, in seconds, a result may take from its worker to here."""

SMALL = 2**20
"""Tasks of fewer bytes pickled go through the scheduler."""

LOST = (
    "the connection to the dask scheduler was lost; what was counted is kept: connect a new "
    "client, and sk.run goes on"
)

Part: TypeAlias = tuple[NDArray[np.int64], Result]


@dataclass
class _Flight:
    """A batch on its way."""

    batch: Batch
    future: Future[Any]


@dataclass
class DaskCrew:
    """The workers of a cluster, as long as one job holds them."""

    client: Client
    payload: bytes
    threads: int
    timeout: Callable[[], float | None] | None
    most: int | None
    """Most runs at the same time."""
    stops_at_error: bool
    leaves: bool
    absence: Callable[[bool], str]
    """Told whether there is a worker; says why there is none, and has lost ones asked for again."""
    rest: Callable[[bool], None]
    """Told at a pause to give workers back, and at its end to have them again."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self._sent: Future[Any] | None = None
        self._wake: Future[Any] | None = None
        self._arrived: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._flying: dict[str, _Flight] = {}
        self._again: deque[Batch] = deque()
        self._losses = 0
        self._counted: tuple[float, int] = (-2.0, 0)
        self._absent = ""
        self._resting = False

    def waiting(self) -> str:
        """See :class:`~sweepkit.protocols.Awaited`."""
        self._check_alive()
        if self._resting or self._present():
            return ""
        self._call_for_workers()
        return self._absent

    def _call_for_workers(self) -> None:
        """Make a cluster that scales with its load begin."""
        if self._wake is None:
            self._wake = self.client.submit(bytes, 0, pure=False)

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`."""
        source = (batch for batch in batches if len(batch))
        deadline: float | None = None
        while True:
            if deadline is None and stopping():
                deadline = monotonic() + 2 * GRACE
                self._stop()
            self._check_alive()
            if deadline is None:
                allowed = share(-(-len(self._flying) // DEEP))
                if allowed:
                    self._put(resting=False)
                    self._feed(source, allowed)
                elif not self._flying:
                    self._put(resting=True)
                    sleep(TICK)
                    yield None
                    continue
            waiting = self._again and deadline is None
            if not (self._flying or waiting) or (deadline is not None and monotonic() > deadline):
                return
            for key in self._landed():
                flight = self._flying.pop(key, None)
                if flight is not None:
                    yield from self._received(flight, stopped=deadline is not None)
            yield None

    def _put(self, *, resting: bool) -> None:
        """Give workers back for a pause, or have them again after it."""
        if resting != self._resting:
            self._resting = resting
            self._sent = self._wake = None  # what lies on workers goes with them
            self._counted = (-2.0, 0)
            self.rest(resting)

    def _feed(self, source: Iterator[Batch], allowed: int) -> None:
        while len(self._flying) < min(self._room(), DEEP * allowed):
            batch = self._again.popleft() if self._again else next(source, None)
            if batch is None:
                return
            if self._sent is None or self._sent.status in ("lost", "cancelled", "error"):
                self._sent = self._send()
            if self._sent is None:
                self._again.appendleft(batch)
                return
            key = f"sweepkit-{self.token}-{uuid.uuid4().hex}"
            future = self.client.submit(
                run_batch,
                self._sent,
                self.token,
                self.threads,
                batch.runs,
                self.timeout() if self.timeout is not None else None,
                self.stops_at_error,
                self.leaves,
                key=key,  # of its own, so that calls that look alike are never merged
                pure=False,
                retries=0,
            )
            self._flying[key] = _Flight(batch, future)
            future.add_done_callback(lambda _, key=key: self._arrived.put(key))

    def _send(self) -> Future[Any] | None:
        """The task on the cluster, which workers fetch from one another, once each.

        A small one is the result of a call, which dask repeats if it is lost. A large one would
        burden the scheduler; it goes to a worker, or waits, as None, until there is one.
        """
        if len(self.payload) < SMALL:
            key = f"sweepkit-task-{self.token}-{uuid.uuid4().hex}"
            return self.client.submit(bytes, self.payload, key=key, pure=False)
        if not self._present():
            self._call_for_workers()
            return None
        with self._reached():
            sent: Future[Any] = self.client.scatter(self.payload, hash=False)
        return sent

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, TimeoutError) as fault:
            raise ComputeLostError(LOST) from fault

    def _room(self) -> int:
        """How many batches may be in flight; some while there is no worker, as it may come."""
        present = max(1, self._present())
        return DEEP * (present if self.most is None else min(present, self.most))

    @property
    def seen(self) -> int:
        """Threads of the workers when they were last counted."""
        return self._counted[1]

    def _present(self) -> int:
        """Threads of the workers, counted once a second, and while there is none each tick."""
        now, (counted, threads) = monotonic(), self._counted
        if now - counted > (1.0 if threads else TICK):
            threads = threads_of(self.client)
            self._counted = now, threads
            self._absent = self.absence(threads > 0)
            if threads:
                self._wake = None
        return threads

    def _landed(self) -> list[str]:
        """Keys of batches that have come back, after a wait of at most a tick."""
        keys = []
        with suppress(queue.Empty):
            keys.append(self._arrived.get(timeout=TICK))
            while True:
                keys.append(self._arrived.get_nowait())
        return keys

    def _received(self, flight: _Flight, *, stopped: bool) -> Iterator[Outcome]:
        batch, future = flight.batch, flight.future
        if future.status == "finished":
            try:
                parts: list[Part] = future.result(timeout=JOIN_SECONDS)
            except (OSError, TimeoutError):  # the worker went while its result was fetched
                self._lost(batch, stopped=stopped)
                return
            finally:
                future.release()
            self._losses = 0
            yield from self._outcomes(batch, parts)
            return
        if future.status == "error":
            fault = future.exception()
            if isinstance(fault, WorkerStartError | SetupError):
                raise fault
            if type(fault).__name__ != "KilledWorker":
                raise ComputeLostError(
                    f"a dask worker could not run a batch: {type(fault).__name__}: {fault}; "
                    "is sweepkit installed there, in the same version, and what the simulator "
                    "imports?"
                ) from fault
        self._lost(batch, stopped=stopped)

    def _outcomes(self, batch: Batch, parts: list[Part]) -> Iterator[Outcome]:
        """Outcomes of the runs of a batch; what was not run is given out again."""
        order = np.argsort(batch.runs)
        missing = np.ones(len(batch), dtype=bool)
        for runs, result in parts:
            rows = order[np.searchsorted(batch.runs, runs, sorter=order)]
            missing[rows] = False
            yield Outcome(_rows(batch, rows), result)
        if missing.any():
            self._again.append(_rows(batch, np.flatnonzero(missing)))

    def _lost(self, batch: Batch, *, stopped: bool) -> None:
        if stopped:
            return
        self._again.append(batch)
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise ComputeLostError(
                f"dask workers were lost {self._losses} times in a row before they finished a "
                "batch; see the cluster's logs. What was counted is kept, and sk.run goes on"
            )

    def _check_alive(self) -> None:
        if self.client.status != "running":
            raise ComputeLostError(LOST)

    def _stop(self) -> None:
        """Ask batches that run to end soon, and take back those that wait."""
        with suppress(OSError, RuntimeError, TimeoutError):
            self.client.run(stop_batches, self.token, wait=False, on_error="ignore")

    def release(self) -> None:
        """Take back what is on the cluster, and end the processes that its workers keep."""
        futures = [flight.future for flight in self._flying.values()]
        self._flying.clear()
        with suppress(OSError, RuntimeError, TimeoutError):
            if self.client.status == "running":
                self.client.cancel(futures, force=True)
                self.client.run(end_crews, self.token, on_error="ignore")
        self._sent = self._wake = None


def threads_of(client: Client) -> int:
    """Threads of a cluster's workers."""
    with suppress(OSError, RuntimeError, ValueError):
        workers = client.scheduler_info(n_workers=-1).get("workers", {}).values()
        return sum(one["nthreads"] for one in workers)
    return 0


def _rows(batch: Batch, rows: NDArray[np.intp]) -> Batch:
    share = batch.seconds * len(rows) / max(len(batch), 1)
    return Batch(batch.block, batch.cells[rows], batch.runs[rows], share)


# --- on a dask worker ----------------------------------------------------------------------------


@dataclass
class _Kept:
    """What a dask worker keeps for one job."""

    idle: list[Fleet] = field(default_factory=list)
    busy: list[Fleet] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    ended: bool = False


_kept: dict[str, _Kept] = {}
"""Cache of a worker: its processes, by job."""

_lock = threading.Lock()


def run_batch(
    payload: bytes,
    token: str,
    threads: int,
    runs: NDArray[np.int64],
    limit: float | None,
    stops_at_error: bool,
    leaves: bool,
) -> list[Part]:
    """Run a batch in a process that this worker keeps; which runs came out how, in parts."""
    kept, fleet = _borrowed(payload, token, threads, leaves)
    fleet.timeout = None if limit is None else lambda: limit
    wanted = _is_wanted()

    def stopping() -> bool:
        return kept.stopped.is_set() or not wanted()

    parts: list[Part] = []
    sound = False
    try:
        for outcome in fleet.map(iter([Batch(0, runs, runs)]), stopping):
            if outcome is not None:
                parts.append((outcome.batch.runs, outcome.result))
                if stops_at_error and outcome.result.errors:
                    return parts  # the process runs nothing more, and is ended
        sound = not stopping()
    finally:
        with _lock:
            kept.busy.remove(fleet)
            sound = sound and not kept.ended
            if sound:
                kept.idle.append(fleet)
        if not sound:
            fleet.__exit__()
    return parts


def _borrowed(payload: bytes, token: str, threads: int, leaves: bool) -> tuple[_Kept, Fleet]:
    with _lock:
        kept = _kept.setdefault(token, _Kept())
        fleet = kept.idle.pop() if kept.idle else None
        if fleet is None:
            _may_have_children()
            fleet = Fleet(payload, threads, 1, leaves=leaves)
        kept.busy.append(fleet)
    return kept, fleet


def _is_wanted() -> Callable[[], bool]:
    """Tells whether the batch that runs in this thread is still asked for."""
    try:
        worker = get_worker()
        key = worker.get_current_task()
    except (ValueError, AttributeError, KeyError):
        return lambda: True

    def wanted() -> bool:
        state = worker.state.tasks.get(key)
        return state is not None and state.state not in ("cancelled", "released", "forgotten")

    return wanted


async def stop_batches(token: str) -> None:
    """End what runs for a job soon; dask waits for no answer of a coroutine alone."""
    with _lock:
        kept = _kept.get(token)
    if kept is not None:
        kept.stopped.set()


def end_crews(token: str) -> None:
    """End the processes kept for a job."""
    with _lock:
        kept = _kept.pop(token, None)
        if kept is None:
            return
        kept.ended = True
        kept.stopped.set()
        idle, kept.idle = kept.idle, []
    for fleet in idle:
        fleet.__exit__()


def _may_have_children() -> None:
    """Let this process start processes although dask starts its workers as daemons.

    The ban is meant for children that outlive a killed parent; ours end with it, and are ended
    before an orderly exit waits for them.
    """
    process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    if not _registered:
        _registered.append(util.Finalize(None, _end_all, exitpriority=100))


_registered: list[Any] = []


def _end_all() -> None:
    for token in list(_kept):
        end_crews(token)

"""A dask cluster: given, or held for the job and released at its end.

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
from numpy.typing import NDArray

from sweepkit.evaluate import Task
from sweepkit.fleet import GRACE, TICK, Fleet, WorkerStartError, pickled
from sweepkit.protocols import (
    Batch,
    ComputeLostError,
    Crew,
    Outcome,
    Result,
    Share,
    everyone,
)
from sweepkit.setup import SetupError

try:
    from distributed import Client, Future, default_client, get_worker
except ModuleNotFoundError as fault:
    raise ModuleNotFoundError(
        "running on a dask cluster needs the package 'distributed'; pip install 'sweepkit[dask]'"
    ) from fault

__all__ = ["DaskExecutor"]

DEEP = 2
"""Batches in flight for each worker thread, so that none waits for the way to the client."""

MOST_LOSSES = 20
"""Deaths of dask workers in a row, with no batch finished between, after which the sweep ends."""

JOIN_SECONDS = 60.0
"""How long, in seconds, the first worker of a cluster may take to join before that is told."""

SMALL = 2**20
"""Tasks of fewer bytes pickled go through the scheduler."""

LOST = (
    "the connection to the dask scheduler was lost; what was counted is kept: connect a new "
    "client, and sk.run goes on"
)

Part: TypeAlias = tuple[NDArray[np.int64], Result]


class DaskExecutor:
    """Workers of a dask cluster.

    Parameters
    ----------
    client : distributed.Client or str, optional
        Of a running cluster, or the address of its scheduler. By default the current client.
    cluster : callable, optional
        Makes a cluster, such as ``lambda: SLURMCluster(cores=1, memory="2 GB")``. It is held for
        one job and released at its end, also when the job fails.
    workers : int, optional
        To how many workers a cluster that ``cluster`` makes is scaled; by default as it is made.
    n_jobs : int, optional
        Most runs at the same time; by default as many as the workers have threads.

    Raises
    ------
    TypeError, ValueError
        If both a client and a cluster are given, one is of the wrong kind, or there is neither.

    Examples
    --------
    >>> import sweepkit as sk
    >>> from distributed import LocalCluster
    >>> def local():
    ...     return LocalCluster(n_workers=2, host="127.0.0.1", dashboard_address="127.0.0.1:0")
    >>> executor = sk.DaskExecutor(cluster=local)
    """

    def __init__(
        self,
        client: Client | str | None = None,
        *,
        cluster: Callable[[], Any] | None = None,
        workers: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        if client is not None and cluster is not None:
            raise ValueError("give a client, or a cluster to be made, not both")
        if workers is not None and cluster is None:
            raise ValueError("workers= scales a cluster that cluster= makes; give cluster=, too")
        for word, count in (("workers", workers), ("n_jobs", n_jobs)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
                raise TypeError(f"{word} is {count!r}; give a whole number")
            if count is not None and count < 1:
                raise ValueError(f"{word} is {count}; give 1 or more")
        if cluster is not None and not callable(cluster):
            raise TypeError(
                f"cluster is a {type(cluster).__name__}; give a function that makes one, as in "
                "cluster=lambda: LocalCluster(n_workers=2), or its client as client="
            )
        if client is not None and not isinstance(client, Client | str):
            raise TypeError(
                f"client is a {type(client).__name__}; give a distributed.Client or the address "
                "of a scheduler"
            )
        if isinstance(client, Client) and client.asynchronous:
            raise ValueError("the client is asynchronous; give one made without asynchronous=True")
        if client is None and cluster is None:
            try:
                client = default_client()
            except ValueError:
                raise ValueError(
                    "there is no dask client; make one with distributed.Client(...), or give "
                    "cluster=, a function that makes a cluster"
                ) from None
        self._given = client
        self._make = cluster
        self._scale = workers
        self._most = n_jobs
        self._client: Client | None = client if isinstance(client, Client) else None

    @property
    def workers(self) -> int:
        """Threads of the cluster's workers, at least 1; more join and leave as it pleases."""
        count = self._scale or 1 if self._client is None else max(1, _threads(self._client))
        return count if self._most is None else min(count, self._most)

    @contextmanager
    def hold(self, task: Task, *, timeout: Callable[[], float | None] | None) -> Iterator[Crew]:
        """See :class:`~sweepkit.protocols.Executor`."""
        payload = pickled(task)
        with self._connected() as client:
            self._client = client
            crew = _Crew(
                client,
                payload,
                task.threads,
                timeout,
                lambda: self.workers,
                task.stops_at_error,
                bool(task.setup),
            )
            try:
                yield crew
            finally:
                crew.release()
                self._client = client if self._given is client else None

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        if isinstance(self._given, Client):
            if self._given.status != "running":
                raise ComputeLostError(
                    f"the dask client is {self._given.status}; connect a new one, and sk.run "
                    "goes on from what is stored"
                )
            yield self._given
            return
        if isinstance(self._given, str):
            try:
                client = Client(self._given, set_as_default=False)
            except OSError as fault:
                raise ComputeLostError(
                    f"no dask scheduler answers at {self._given}: {fault}"
                ) from fault
            with client:
                yield client
            return
        assert self._make is not None
        cluster = self._make()
        if not hasattr(cluster, "scheduler_address"):
            raise TypeError(
                f"cluster= made a {type(cluster).__name__}, which is no dask cluster; return a "
                "LocalCluster, SLURMCluster or the like"
            )
        with cluster:
            if self._scale is not None:
                cluster.scale(self._scale)
            with Client(cluster, set_as_default=False) as client:
                yield client


@dataclass
class _Flight:
    """A batch on its way."""

    batch: Batch
    future: Future[Any]


@dataclass
class _Crew:
    """The workers of a cluster, as long as one job holds them."""

    client: Client
    payload: bytes
    threads: int
    timeout: Callable[[], float | None] | None
    workers: Callable[[], int]
    stops_at_error: bool
    leaves: bool
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self._sent: Future[Any] | None = None
        self._wake: Future[Any] | None = None
        self._arrived: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._flying: dict[str, _Flight] = {}
        self._again: deque[Batch] = deque()
        self._losses = 0
        self._counted: tuple[float, int] = (-1.0, 1)

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
                self._feed(source, allowed)
                if not allowed and not self._flying:
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
        if not _threads(self.client):
            if self._wake is None:  # makes a cluster that scales with its load begin
                self._wake = self.client.submit(bytes, 0, pure=False)
            return None
        self._wake = None
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
        """How many batches may be in flight; workers are counted at most once a second."""
        now = monotonic()
        if now - self._counted[0] > 1.0:
            self._counted = now, DEEP * self.workers()
        return self._counted[1]

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


def _threads(client: Client) -> int:
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


def stop_batches(token: str) -> None:
    """End what runs for a job soon."""
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

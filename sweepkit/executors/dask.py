"""A dask cluster: given, or held for the job and released at its end."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from time import monotonic
from typing import Any

from sweepkit.capture import one_line
from sweepkit.evaluate import Task
from sweepkit.fleet import pickled
from sweepkit.protocols import ComputeLostError, Crew

try:
    from distributed import Client, Status, default_client
    from distributed.deploy.spec import ProcessInterface

    from sweepkit.executors.dispatch import DaskCrew, threads_of
except ModuleNotFoundError as fault:
    raise ModuleNotFoundError(
        "running on a dask cluster needs the package 'distributed'; pip install 'sweepkit[dask]'"
    ) from fault

__all__ = ["DaskExecutor"]

ASK_SECONDS = 5.0
"""How long, in seconds, after workers were asked for those that do not come are asked for again."""

REFUSED_SECONDS = 600.0
"""For how long, in seconds, a queue that refuses jobs is asked before that ends the sweep."""

SETTLE_SECONDS = 5.0
"""How long, in seconds, a cluster that is to be closed may take for what it is asked for."""

MOST_VANISHED = 3
"""How often, in a row, jobs may end before their worker joins; then that ends the sweep."""

REASONS = {"scancel": 'squeue --me --noheader --format="%i %T (%r)"'}
"""By the command with which a queue cancels jobs: the one that tells what becomes of them."""


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
        self._crew: DaskCrew | None = None
        self._last = 0

    @property
    def workers(self) -> int:
        """Threads of the cluster's workers, at least 1; more join and leave as it pleases."""
        if self._crew is not None:
            count = self._crew.seen or self._scale or 1
        elif self._client is not None:
            count = max(1, threads_of(self._client))
        else:
            count = self._scale or self._last or 1
        return count if self._most is None else min(count, self._most)

    @contextmanager
    def hold(self, task: Task, *, timeout: Callable[[], float | None] | None) -> Iterator[Crew]:
        """See :class:`~sweepkit.protocols.Executor`."""
        payload = pickled(task)
        with self._connected() as (client, absence, rest):
            self._client = client
            crew = DaskCrew(
                client,
                payload,
                task.threads,
                timeout,
                self._most,
                task.stops_at_error,
                bool(task.setup),
                absence,
                rest,
            )
            self._crew = crew
            try:
                yield crew
            finally:
                self._crew, self._last = None, crew.seen
                crew.release()
                self._client = client if self._given is client else None

    @contextmanager
    def _connected(
        self,
    ) -> Iterator[tuple[Client, Callable[[bool], str], Callable[[bool], None]]]:
        """A client, what says why there are no workers, and what gives them back for a pause."""
        if isinstance(self._given, Client):
            if self._given.status != "running":
                raise ComputeLostError(
                    f"the dask client is {self._given.status}; connect a new one, and sk.run "
                    "goes on from what is stored"
                )
            yield self._given, _none_joined, _kept
            return
        if isinstance(self._given, str):
            try:
                client = Client(self._given, set_as_default=False)
            except OSError as fault:
                raise ComputeLostError(
                    f"no dask scheduler answers at {self._given}: {fault}"
                ) from fault
            with client:
                yield client, _none_joined, _kept
            return
        assert self._make is not None
        with _made(self._make) as cluster, Client(cluster, set_as_default=False) as client:
            held = _Held(cluster, self._scale)
            try:
                yield client, held.absence, held.rest
            finally:
                held.settle()


def _none_joined(present: bool) -> str:
    """Why a given cluster has no workers."""
    return "" if present else "waiting for a worker to join the dask scheduler"


def _kept(_: bool) -> None:
    """A given cluster is its owner's: a pause leaves it as it is."""


# --- a cluster that is held ----------------------------------------------------------------------


@contextmanager
def _made(make: Callable[[], Any]) -> Iterator[Any]:
    """A cluster, closed at the end."""
    try:
        cluster = make()
    except (OSError, RuntimeError) as fault:
        raise ComputeLostError(f"cluster= could not make a cluster: {_told(fault)}") from fault
    if not hasattr(cluster, "scheduler_address"):
        raise TypeError(
            f"cluster= made a {type(cluster).__name__}, which is no dask cluster; return a "
            "LocalCluster, SLURMCluster or the like"
        )
    if getattr(cluster, "asynchronous", False):
        raise TypeError("cluster= made an asynchronous cluster; leave asynchronous=True out")
    with cluster:
        yield cluster


class _Held:
    """A cluster that is kept at the size that was asked for, as far as its queue gives workers.

    A queue takes workers back, when their time is up or others come first, and may refuse them
    for a while; clusters by themselves ask once.
    """

    def __init__(self, cluster: Any, workers: int | None) -> None:
        self._cluster = cluster
        self._workers = workers
        self._specified = hasattr(cluster, "worker_spec")
        self._asked = monotonic()
        self._asking: Future[str] | None = None
        self._detail = ""
        self._refused_since: float | None = None
        self._vanished = 0
        self._size = 0
        if workers is not None:
            if not self._specified or len(cluster.plan) > workers:
                cluster.scale(workers)
            else:
                self._ask()
        elif self._specified and not cluster.plan and not getattr(cluster, "_adaptive", None):
            raise ValueError(
                f"cluster= made a {type(cluster).__name__} without workers; say how many with "
                "sk.DaskExecutor(cluster=..., workers=8), or call its adapt(...)"
            )

    def absence(self, present: bool) -> str:
        """Why there are no workers, if there are none; those that do not come are asked for.

        Raises
        ------
        ComputeLostError
            If the queue has refused them for long, or its jobs end before workers join.
        """
        if present:
            self._vanished = 0
        if self._asking is not None and self._asking.done():
            self._detail = self._asking.result()
            self._asking = None
        if self._specified and self._asking is None and monotonic() - self._asked > ASK_SECONDS:
            self._ask()
        self._give_up()
        count = self._workers or len(getattr(self._cluster, "plan", ())) or 1
        workers = "a worker" if count == 1 else f"the first of {count} workers"
        detail = f": {self._detail}" if self._detail else ""
        return "" if present else f"waiting for {workers} of {type(self._cluster).__name__}{detail}"

    def rest(self, resting: bool) -> None:
        """Give the workers back for a pause, or ask for as many again.

        A cluster that scales with its load does so by itself.
        """
        if getattr(self._cluster, "_adaptive", None):
            return
        if resting:
            self._size = self._workers or len(getattr(self._cluster, "plan", ()))
        if not self._size:
            return
        if self._workers is not None:
            self._workers = 0 if resting else self._size
        self._cluster.scale(0 if resting else self._size)
        self._asked = monotonic()

    def settle(self) -> None:
        """Give back what there is and what is still being asked for, before the cluster closes.

        A job that its cluster gets as it closes would stay in the queue. And a cluster refuses to
        close while anything refers to a job that does not say it is closed; those of dask-jobqueue
        never say so.
        """
        if self._asking is not None:
            wait([self._asking], SETTLE_SECONDS)
        if self._specified and self._cluster.status is Status.running:
            loop = self._cluster.loop.asyncio_loop
            asyncio.run_coroutine_threadsafe(self._given_back(), loop).result()

    def _give_up(self) -> None:
        if self._refused_since is not None and monotonic() - self._refused_since > REFUSED_SECONDS:
            raise ComputeLostError(
                f"for {REFUSED_SECONDS:.0f} s the queue has refused to give workers; "
                f"{self._detail}; what was counted is kept, and sk.run goes on"
            )
        if self._vanished >= MOST_VANISHED:
            raise ComputeLostError(
                f"{self._vanished} times in a row the jobs of {type(self._cluster).__name__} "
                "ended before their worker joined; see what they printed (log_directory=), and "
                "whether sweepkit and dask are installed there; what was counted is kept"
            )

    # --- in the cluster's own thread ---

    async def _given_back(self) -> None:
        cluster = self._cluster
        if adaptive := getattr(cluster, "_adaptive", None):
            adaptive.stop()
        cluster.scale(0)
        await cluster
        made = list(getattr(cluster, "_created", ()))
        for job in (one for one in made if isinstance(one, ProcessInterface)):
            async with job.lock:  # while it is being asked for
                if job.status in (Status.created, Status.running):
                    await job.close()
                    job.status = Status.closed

    def _ask(self) -> None:
        self._asked = monotonic()
        loop = self._cluster.loop.asyncio_loop
        self._asking = asyncio.run_coroutine_threadsafe(self._corrected(), loop)

    async def _corrected(self) -> str:
        """Ask for workers that are not there, and say what came of it."""
        cluster = self._cluster
        while self._workers is not None and len(cluster.plan) < self._workers:
            cluster.worker_spec.update(cluster.new_worker_spec())
        try:
            for worker in list(cluster.workers.values()):
                if getattr(getattr(worker, "status", None), "name", "") == "created":
                    await worker  # it was refused
            if set(cluster.worker_spec) - set(cluster.workers):
                await cluster
        except (OSError, RuntimeError, ValueError) as fault:
            self._refused_since = self._refused_since or monotonic()
            self._asked = monotonic()
            return f"they were refused, and are asked for again: {_told(fault)}"
        self._refused_since = None
        return await self._state_of_jobs()

    async def _state_of_jobs(self) -> str:
        """What the queue says of jobs whose worker has not joined; they are made anew if gone."""
        cluster = self._cluster
        joined = {str(one["name"]) for one in cluster.scheduler_info["workers"].values()}
        jobs: dict[str, Any] = {}
        for name, worker in cluster.workers.items():
            known = joined & {str(name), *_grouped(name, cluster.worker_spec.get(name))}
            if getattr(worker, "job_id", None) and not known:
                jobs[str(worker.job_id)] = name
        command = next((REASONS.get(_program(cluster.workers[one])) for one in jobs.values()), None)
        if not jobs or command is None:
            return f"{_jobs(list(jobs))} not begun" if jobs else ""
        lines = await _said(command)
        if lines is None:
            return f"{_jobs(list(jobs))} not begun"
        states = dict(line.split(" ", 1) for line in lines if " " in line)
        gone = [name for job, name in jobs.items() if job not in states]
        for name in gone:  # under another name, as the old one is dropped a second time later on
            dropped = cluster.workers.pop(name, None)
            if dropped is not None:
                dropped.status = Status.closed  # else its cluster refuses to close
            if cluster.worker_spec.pop(name, None) is not None:
                cluster.worker_spec.update(cluster.new_worker_spec())
        self._vanished += bool(gone) and not joined
        return ", ".join(f"job {job} {states[job]}" for job in jobs if job in states)


def _jobs(numbers: list[str]) -> str:
    return f"job{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _grouped(name: object, spec: dict[str, Any] | None) -> set[str]:
    """Names of the workers that one job starts."""
    return {f"{name}{suffix}" for suffix in (spec or {}).get("group", ())}


def _program(worker: Any) -> str:
    return next(iter(shlex.split(getattr(worker, "cancel_command", "") or "")), "")


async def _said(command: str) -> list[str] | None:
    """Lines that a command prints, None if it does not succeed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    out, _ = await process.communicate()
    return None if process.returncode else out.decode(errors="replace").splitlines()


def _told(fault: BaseException) -> str:
    """What went wrong in one line; of a command that failed, what it said."""
    text = str(fault)
    _, found, said = text.partition("stderr:\n")
    return one_line(said if found and said.strip() else text)

"""Start sweeps in the background: the towers composed for a job that a person holds."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
import xarray as xr

from sweepkit import options as options_of
from sweepkit import reading
from sweepkit.executors.joblib import JoblibExecutor
from sweepkit.job import Job, Terms, begun
from sweepkit.options import DEFAULTS, PoolOptions, RunOptions, taking
from sweepkit.places import Given
from sweepkit.policies import (
    Policy,
    checked_policy,
    checked_priority,
    checked_weight,
    fair_finish,
)
from sweepkit.pool import Seat, Seated, Slots
from sweepkit.protocols import Executor
from sweepkit.quantities import moment, seconds
from sweepkit.run import Session
from sweepkit.status import ENDINGS
from sweepkit.sweep import Sweep
from sweepkit.targets import target as target_of
from sweepkit.views import job as view

if TYPE_CHECKING:
    from sweepkit.stores.zarr import ZarrStore

__all__ = ["Pool", "start"]


@taking(RunOptions, progress=False)
def start(
    sweep: Sweep,
    store: Given,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> Job:
    """Run what is pending of a sweep in the background.

    Returns at once. The same call again, in a cell that is run once more, returns the job that is
    on; after it has ended, or in another process, it goes on from the store.

    Parameters
    ----------
    sweep : Sweep
        What to run.
    store : path, URL or Zarr store
        As in :func:`run`.
    storage_options : mapping, optional
        As in :func:`run`.
    n_jobs, backend, executor, timeout, rerun, retry, recycle_after, keep_scratch
        As in :func:`run`. Worker processes, which are the default, leave the notebook free; in
        threads and in "sequential" runs share the interpreter with it.
    on_error, max_errors, max_runs, was, stale, snap
        As in :func:`run`.
    progress : bool or callable
        Show progress also as :func:`run` does, or be called with each Progress, from the job's
        thread.

    Returns
    -------
    Job
        Displays itself; ``job.dataset`` is the store as it is, ``job.result()`` waits for the
        end, ``job.pause()``, ``job.resume()`` and ``job.cancel()`` steer.

    Raises
    ------
    TypeError, ValueError
        If an option is not what it can be, or a job on the same store was started otherwise.
        What does not fit the store is told by ``job.result()``, and ``job.error`` in one line.

    Examples
    --------
    >>> import tempfile, sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> sweep = sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[1.62, 9.81]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = sk.start(sweep, f"{folder}/fall.zarr", backend="sequential")
    ...     job.result()["time"].sel(height=2.0, gravity=9.81).round(3).item(), job.state
    (0.639, 'done')
    """
    held = options_of.executor(options, options.get("request"))
    return begun(_job(sweep, target_of(store, storage_options), options, held))


def _job(
    sweep: Sweep,
    target: ZarrStore,
    options: RunOptions,
    executor: Executor,
    **terms: object,
) -> Job:
    if not isinstance(sweep, Sweep):
        raise TypeError(f"{sweep!r} is no Sweep; make one with sk.Sweep(simulator, grid)")

    def opened(session: Session) -> xr.Dataset:
        return reading.open(target.where).isel(session.declared())

    return Job(
        sweep,
        target,
        executor,
        options_of.settings(options),
        report=options_of.report(options.get("progress", False), sweep.name),
        terms=Terms(sweep, _texts({**DEFAULTS, **options, **terms})),
        opened=opened,
        shown=view.displayed(),
    )


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as text to be compared; how progress is shown makes no other job.

    A cell that is run again makes an executor anew, so that it counts by its kind.
    """
    texts = {name: repr(said) for name, said in options.items() if name != "progress"}
    return {**texts, "executor": type(options["executor"]).__name__}


def _seconds_until(deadline: float | str | datetime | timedelta | None) -> float:
    """Seconds from now to a deadline; infinite without one."""
    if deadline is None:
        return math.inf
    if isinstance(deadline, int | float | np.integer | np.floating | bool):
        return seconds(deadline, "deadline")
    return moment(deadline).timestamp() - time.time()


class Pool:
    """Compute that several jobs share.

    A job started later gets its share within about one batch. A job that waits holds nothing, and
    workers are let go when nothing is left to run.

    Parameters
    ----------
    n_jobs : int, optional
        Runs at the same time, of all jobs together; -1 for all cores, which is the default.
    backend : str, optional
        As in :func:`run`.
    policy : callable
        Which job gets the next free worker: a function of
        :class:`sweepkit.policies.Standing`. By default the one that fair sharing would finish
        first (:func:`sweepkit.policies.fair_finish`); there are also ``fair_share``,
        ``shortest_first`` and ``first_come``.

    Raises
    ------
    TypeError, ValueError
        If there is no such backend, or the policy does not name one of two jobs that it is tried
        with.

    Examples
    --------
    >>> import tempfile, sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> earth, moon = (sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[g])) for g in (9.8, 1.6))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with sk.Pool(n_jobs=1, backend="sequential") as pool:
    ...         jobs = pool.start(earth, f"{folder}/e.zarr"), pool.start(moon, f"{folder}/m.zarr")
    ...     [job.state for job in jobs]
    ['done', 'done']
    """

    def __init__(
        self,
        n_jobs: int | None = None,
        *,
        backend: str | None = None,
        policy: Policy = fair_finish,
    ) -> None:
        self._backend = backend
        self._slots = Slots(JoblibExecutor(n_jobs, backend).workers, checked_policy(policy))
        self._held: list[tuple[Job, Seat]] = []
        self._closed = False

    @property
    def workers(self) -> int:
        """Runs at the same time, of all jobs together."""
        return self._slots.workers

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs in the order in which they were started."""
        return tuple(job for job, _ in self._held)

    @taking(PoolOptions, progress=False)
    def start(
        self,
        sweep: Sweep,
        store: Given,
        *,
        storage_options: Mapping[str, Any] | None = None,
        weight: float = 1.0,
        priority: int = 0,
        deadline: float | str | datetime | timedelta | None = None,
        **options: Unpack[PoolOptions],
    ) -> Job:
        """Run what is pending of a sweep in the background, sharing with the pool's other jobs.

        Parameters
        ----------
        sweep, store, storage_options
            As in :func:`start`.
        weight : float
            Twice the weight, twice the share; between 1e-6 and 1e6.
        priority : int
            Jobs of a higher one go first, whatever their weight.
        deadline : float, str, datetime or timedelta, optional
            When it should be done: seconds from now, or as of a :class:`Request`. The policy may
            take it into account; nothing is stopped there.
        **options
            As in :func:`start`, without where to run.

        Raises
        ------
        TypeError, ValueError
            As in :func:`start`; also if the pool is closed, or weight, priority or deadline are
            not what they can be.
        """
        if self._closed:
            raise ValueError("the pool is closed; make another one with sk.Pool()")
        weight, priority = checked_weight(weight), checked_priority(priority)
        now = self._slots.clock()
        until = now + _seconds_until(deadline)
        seat = Seat(weight, priority, until, lambda: (0, math.nan), arrived=now)
        own = cast("RunOptions", dict(options))
        recycle_after = own.pop("recycle_after", None)
        inner = JoblibExecutor(self.workers, self._backend, recycle_after=recycle_after)
        seated = Seated(inner, self._slots, seat, lambda: made.session.stop_wishes > 0)
        shared = {"pool": id(self), "weight": weight, "priority": priority}
        made = _job(sweep, target_of(store, storage_options), own, seated, **shared)

        def outlook() -> tuple[int, float]:
            pending, cost = made.session.outlook()
            return (0 if made.session.pausing else pending), cost

        seat.outlook = outlook
        job = begun(made)
        if job is made:
            self._held.append((job, seat))
        return job

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of all jobs, for so many seconds at most; returns whether all have."""
        clock = self._slots.clock
        end = math.inf if timeout is None else clock() + timeout
        for job in self.jobs:
            rest = end - clock()
            if not job.wait(None if math.isinf(rest) else max(rest, 0.0)):
                return False
        return True

    def close(self, *, cancel: bool = False) -> None:
        """Take no more jobs, and wait for those there are, or cancel them."""
        self._closed = True
        if cancel:
            for job in self.jobs:
                job.cancel()
        self.wait()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(cancel=kind is not None)

    def __repr__(self) -> str:
        live = sum(job.state not in ENDINGS for job in self.jobs)
        lines = [f"<sweepkit.Pool of {self.workers} workers: {live} of {len(self.jobs)} jobs live>"]
        for job, seat in self._held:
            now = job.progress
            lines.append(
                f"  {job.name} into {os.path.basename(job.store)}: {now.state}, "
                f"{now.finished:,} of {now.total:,} runs, {seat.using} workers, "
                f"held {seat.held:.1f} s"
            )
        return "\n".join(lines)

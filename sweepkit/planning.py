"""What a sweep will take, and what it took: the towers composed for a plan and a receipt."""

from __future__ import annotations

import math
import os
import resource
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sweepkit import options
from sweepkit.forecast import Plan, forecast
from sweepkit.pilot import Survey, survey
from sweepkit.places import Given
from sweepkit.protocols import Executor
from sweepkit.quantities import core_seconds, moment
from sweepkit.receipt import Receipt, receipt_of
from sweepkit.run import Session
from sweepkit.settings import Settings
from sweepkit.status import Progress, Status
from sweepkit.stores.zarr import ZarrStore
from sweepkit.sweep import Sweep
from sweepkit.targets import target as target_of

__all__ = ["plan", "receipt"]

PILOT_RUNS = 16
"""Runs from which costs are first learnt."""
OFF = 0.4
"""By how much the log of costs is off what was declared, if a plan is to say so."""


def plan(
    sweep: Sweep,
    store: Given | None = None,
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    executor: Executor | None = None,
    pilot: int | None = None,
    deadline: Any = None,
    budget: Any = None,
    cost: float | Callable[..., Any] | None = None,
    progress: bool | Callable[[Progress], None] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """What running a sweep will take, known before it is paid for.

    Costs are learnt from finished runs: of the store, and of a pilot of a few runs that lie far
    apart. If costs are declared, these tell how runs compare, and finished runs the level.

    Parameters
    ----------
    sweep : Sweep
        What to plan.
    store : path, optional
        Where it is kept, or will be. Runs of the pilot are stored there and count as done;
        without a store they are not kept.
    n_jobs, backend, executor
        As in :func:`sweepkit.run`.
    pilot : int, optional
        Runs of the pilot; with 0 nothing is run, made or written. By default as many as are
        lacking to know costs from 16 runs, and none if a cost is declared.
    deadline : str, datetime or timedelta, optional
        When to be done, as of a :class:`Request`: how many workers are needed.
    budget : float, str or timedelta, optional
        Core-seconds that may be held, as of a :class:`Request`: which runs fit, and which are
        left.
    cost : float or callable, optional
        Seconds of a run, or a function of parameters by name, in place of what the sweep says.
    progress : bool or callable
        As in :func:`sweepkit.run`, for the pilot.
    storage_options : mapping, optional
        As in :func:`sweepkit.run`.

    Returns
    -------
    Plan
        Shown as a table; its numbers are attributes.

    Raises
    ------
    TypeError, ValueError
        If something does not fit, such as a deadline that is past, before anything is run.
    StoreError, StaleCodeError
        As in :func:`sweepkit.run`.

    Examples
    --------
    >>> import sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> sweep = sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[1.62, 9.81]), cost=900)
    >>> sk.plan(sweep, n_jobs=2, budget="1 core-hour").fit
    2
    """
    if not isinstance(sweep, Sweep):
        raise TypeError(f"{sweep!r} is no Sweep; make one with sk.Sweep(simulator, grid)")
    counted = isinstance(pilot, int) and not isinstance(pilot, bool) and pilot >= 0
    if pilot is not None and not counted:
        raise ValueError(f"pilot is {pilot!r}; give a number of runs, or 0 to run nothing")
    limit = None if budget is None else core_seconds(budget)
    until = None if deadline is None else moment(deadline)
    if cost is not None:
        sweep = replace(sweep, cost=cost)
    held = options.executor({"executor": executor, "n_jobs": n_jobs, "backend": backend})
    target = None if store is None else target_of(store, storage_options)
    seen = _surveyed(sweep, target)
    count = pilot
    if count is None:
        count = 0 if sweep.cost is not None else max(PILOT_RUNS - seen.costs.count, 0)
    count = min(count, seen.pending)
    worker_memory = math.nan
    if count:
        show = options.report(progress, f"pilot of {sweep.name}")
        seen = _piloted(sweep, target, held, count, seen, show)
        if getattr(held, "backend", "loky") == "loky":
            worker_memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * RSS_UNIT
    return forecast(
        sweep.name,
        seen,
        path=None if target is None else _shown(store, target),
        workers=held.workers,
        pilot=count,
        kept=target is not None,
        source=_source(sweep, seen),
        driver_memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT,
        worker_memory=worker_memory,
        deadline=until,
        now=datetime.now().astimezone(),
        budget=limit,
    )


RSS_UNIT = 1024 if os.uname().sysname == "Linux" else 1
"""Bytes in which the system counts the memory of processes."""


def _shown(store: Given, target: ZarrStore) -> str:
    """A store as a person named it."""
    return os.fspath(store) if isinstance(store, str | os.PathLike) else target.path


def _surveyed(sweep: Sweep, target: ZarrStore | None) -> Survey:
    """A sweep and its store as they are; nothing is written."""
    if target is None or not target.root.exists():
        return survey(sweep, None)
    target.peek()
    return survey(sweep, target)


def _piloted(
    sweep: Sweep,
    target: ZarrStore | None,
    executor: Executor,
    count: int,
    before: Survey,
    report: Callable[[Progress], None],
) -> Survey:
    """What is known once a pilot has run, in the store or in one that is then thrown away."""
    settings = Settings(max_runs=sweep.grid.size, pilot=count)
    if target is not None:
        Session(sweep, target, executor, settings, report).run()
        return _surveyed(sweep, target)
    with tempfile.TemporaryDirectory(prefix="sweepkit-") as folder:
        apart = ZarrStore(os.path.join(folder, "pilot.zarr"))
        Session(sweep, apart, executor, settings, report).run()
        seen = _surveyed(sweep, apart)
    return replace(
        before,
        costs=seen.costs,
        disk=seen.disk,
        block_bytes=seen.block_bytes,
        blocks=seen.blocks,
    )


def _source(sweep: Sweep, seen: Survey) -> str:
    """What costs are known from, in words."""
    runs = f"learnt from {seen.costs.count:,} runs" if seen.costs.count else ""
    if sweep.cost is None:
        return runs or "not known: nothing has run, and none is declared"
    if not runs:
        return "declared"
    share = seen.costs.share
    off = f", which took {share:,.3g} times what was declared" if abs(math.log(share)) > OFF else ""
    return f"declared, and {runs}{off}"


def receipt(store: Given, *, storage_options: Mapping[str, Any] | None = None) -> Receipt:
    """What all sessions of a store took: queued, held, used and wasted time, runs, errors.

    Parameters
    ----------
    store : path, URL or Zarr store
        Of the store, or a zip of it; another process may be writing to it.
    storage_options : mapping, optional
        As in :func:`sweepkit.run`.

    Returns
    -------
    Receipt
        Shown as a table; its numbers are attributes, and ``sessions`` has one row for each.

    Raises
    ------
    StoreError
        If there is no sweep.
    """
    target = target_of(store, storage_options)
    runs = pending = 0
    for part in (target, *map(target.stage, target.stages)):
        part.peek()
        for box in map(part.layout.box, range(part.layout.n_blocks)):
            status = part.read("status", box)
            pending += int((status == Status.PENDING).sum())
            runs += int((status != Status.SKIPPED).sum())
    return receipt_of(target, runs=runs, pending=pending)

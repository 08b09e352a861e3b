"""Run a sweep and read it: the towers composed for a notebook."""

from __future__ import annotations

import math
import os
import resource
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import xarray as xr

from sweepkit import reading
from sweepkit.amend import add_derived, damage
from sweepkit.analysis import Suggestion
from sweepkit.executors.joblib import JoblibExecutor
from sweepkit.forecast import Plan, forecast
from sweepkit.grid import Grid
from sweepkit.pilot import Survey, survey
from sweepkit.protocols import Executor, StoreError
from sweepkit.quantities import core_seconds, moment
from sweepkit.receipt import Receipt, receipt_of
from sweepkit.refine import refine as run_stages
from sweepkit.request import Request
from sweepkit.run import MAX_RUNS, UNSUCCESSFUL, Session, Settings
from sweepkit.simulator import simulator_name
from sweepkit.status import NAMES, Progress, Status
from sweepkit.stores.zarr import STAGES, ZarrStore
from sweepkit.sweep import Sweep
from sweepkit.views import progress as views

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["derive", "plan", "receipt", "refine", "run", "verify"]

PILOT_RUNS = 16
"""Runs from which costs are first learnt."""


def run(
    sweep: Sweep,
    store: str | os.PathLike[str],
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    executor: Executor | None = None,
    timeout: float | str | None = None,
    rerun: str | Sequence[str] = (),
    retry: Mapping[str, int] | int = 0,
    recycle_after: int | str | None = None,
    keep_scratch: bool = False,
    on_error: str = "collect",
    max_errors: float | None = None,
    max_runs: int = MAX_RUNS,
    was: Mapping[str, Any] | None = None,
    stale: str = "ask",
    snap: bool = False,
    request: Request | None = None,
    progress: bool | Callable[[Progress], None] = True,
) -> xr.Dataset:
    """Run what is pending of a sweep, into a store, and open it.

    The store is made if it does not exist; if it does, finished runs are kept and what is missing
    is run: after an interruption, a kill, or with more values on an axis.

    Parameters
    ----------
    sweep : Sweep
        What to run.
    store : path
        Folder of the Zarr store, such as ``"cartpole.zarr"``.
    n_jobs : int, optional
        Runs at the same time; -1 for all cores. By default as joblib is configured, else all.
    backend : str, optional
        "loky" (worker processes), "threading", "sequential", or another that joblib knows. By
        default as joblib is configured, else "loky".
    executor : Executor, optional
        Other compute, instead of ``n_jobs`` and ``backend``.
    timeout : float or str, optional
        Seconds that a run may take before it is killed, or a factor of the mean time of the runs
        so far, as in "20x" (but at least 1 s); needs worker processes.
    rerun : str or sequence of str
        Statuses of finished runs to be tried again, such as "error"; "unsuccessful" stands for
        error, timeout, crashed and invalid.
    retry : int or mapping of str to int
        How often a run that does not succeed is tried again before the session ends, for all
        statuses or by status, as in ``{"timeout": 1, "crashed": 2}``.
    recycle_after : int or str, optional
        A worker process makes room for a fresh one after so many runs, or after it has grown by
        so much, as in "500 MB"; by default after it has grown by 1 GB.
    keep_scratch : bool
        Keep the folders that runs got as ``scratch``, in ``<store>.sweepkit/scratch``.
    on_error : {"collect", "raise"}
        With "raise" the sweep stops after the first run that does not succeed.
    max_errors : int or float, optional
        Stop once more runs (int) or a larger share of the runs (float below 1) do not succeed.
    max_runs : int
        Refuse grids with more points.
    was : mapping, optional
        Value that the finished runs had of a parameter that joins the store now.
    stale : {"ask", "keep", "rerun"}
        What to do with finished runs if the simulator's code has changed: raise and say what
        changed, keep them, or run them again.
    snap : bool
        Take a stored value for one that differs from it by rounding alone.
    request : Request, optional
        Workers, and a deadline, duration or budget at which to stop: what is done by then is
        kept, the receipt says what is left and why, and the same call goes on.
    progress : bool or callable
        Show progress, or be called with each :class:`~sweepkit.Progress`.

    Returns
    -------
    Dataset
        As :func:`sweepkit.open` gives it; where the store holds more values than the sweep
        declares, those that it declares.

    Raises
    ------
    TypeError, ValueError
        If something does not fit, before the first run: what, where, and what to do.
    StoreError
        If the store cannot be read or written, or another process writes to it.
    StaleCodeError
        If the code changed since runs were made and ``stale="ask"``.
    RunError, TooManyErrorsError
        If ``on_error`` or ``max_errors`` say so; finished runs are kept.
    KeyboardInterrupt
        If it was interrupted; finished runs are kept, and the same call goes on.

    Examples
    --------
    >>> import tempfile, sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> sweep = sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[1.62, 9.81]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ds = sk.run(sweep, f"{folder}/fall.zarr", backend="sequential", progress=False)
    ...     ds["time"].sel(height=2.0, gravity=9.81).round(3).item()
    0.639
    """
    if not isinstance(sweep, Sweep):
        raise TypeError(f"{sweep!r} is no Sweep; make one with sk.Sweep(simulator, grid)")
    settings = Settings(
        timeout=_checked_timeout(timeout),
        rerun=statuses(rerun),
        retry=_retries(retry),
        keep_scratch=keep_scratch,
        on_error=_one_of("on_error", on_error, ("collect", "raise")),
        max_errors=max_errors,
        max_runs=max_runs,
        was=was or {},
        stale=_one_of("stale", stale, ("ask", "keep", "rerun")),
        snap=snap,
        request=_checked_request(request),
    )
    workers = n_jobs if request is None else _workers(request, executor, n_jobs)
    held = _executor(executor, workers, backend, recycle_after)
    target = ZarrStore(store)
    session = Session(sweep, target, held, settings, _report(progress, sweep))
    session.run()
    return reading.open(target.path).isel(session.declared())


def plan(
    sweep: Sweep,
    store: str | os.PathLike[str] | None = None,
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    executor: Executor | None = None,
    pilot: int | None = None,
    deadline: Any = None,
    budget: Any = None,
    cost: float | Callable[..., Any] | None = None,
    progress: bool | Callable[[Progress], None] = True,
) -> Plan:
    """What running a sweep will take, known before it is paid for.

    Costs are those declared, else they are learnt from finished runs: of the store, and of a
    pilot of a few runs that lie far apart.

    Parameters
    ----------
    sweep : Sweep
        What to plan.
    store : path, optional
        Where it is kept, or will be. Runs of the pilot are stored there and count as done;
        without a store they are not kept.
    n_jobs, backend, executor
        As in :func:`run`.
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
        As in :func:`run`, for the pilot.

    Returns
    -------
    Plan
        Shown as a table; its numbers are attributes.

    Raises
    ------
    TypeError, ValueError
        If something does not fit, such as a deadline that is past, before anything is run.
    StoreError, StaleCodeError
        As in :func:`run`.

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
    held = _executor(executor, n_jobs, backend, None)
    target = None if store is None else ZarrStore(store)
    seen = _surveyed(sweep, target)
    count = pilot
    if count is None:
        count = 0 if sweep.cost is not None else max(PILOT_RUNS - seen.costs.count, 0)
    count = min(count, seen.pending)
    worker_memory = math.nan
    if count:
        seen = _piloted(sweep, target, held, count, seen, _report(progress, sweep, "pilot of "))
        if getattr(held, "backend", "loky") == "loky":
            worker_memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * RSS_UNIT
    return forecast(
        sweep.name,
        seen,
        path=None if target is None else os.fspath(store),  # type: ignore[arg-type]
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


def _surveyed(sweep: Sweep, target: ZarrStore | None) -> Survey:
    """A sweep and its store as they are; nothing is written."""
    if target is None or not os.path.exists(target.path):
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
    return f"declared, and {runs}" if runs else "declared"


def receipt(store: str | os.PathLike[str]) -> Receipt:
    """What all sessions of a store took: queued, held, used and wasted time, runs, errors.

    Parameters
    ----------
    store : path
        Of the store; another process may be writing to it.

    Returns
    -------
    Receipt
        Shown as a table; its numbers are attributes, and ``sessions`` has one row for each.

    Raises
    ------
    StoreError
        If there is no sweep.
    """
    target = ZarrStore(store)
    target.peek()
    runs = pending = 0
    for box in map(target.layout.box, range(target.layout.n_blocks)):
        status = target.read("status", box)
        pending += int((status == Status.PENDING).sum())
        runs += int((status != Status.SKIPPED).sum())
    return receipt_of(target, runs=runs, pending=pending)


def _checked_request(request: object) -> Request | None:
    if request is None or isinstance(request, Request):
        return request
    raise TypeError(f"request is {request!r}; give sk.Request(workers=..., duration=...)")


def _workers(request: Request, executor: Executor | None, n_jobs: int | None) -> int | None:
    """How many workers a request and the rest of the call ask for."""
    if request.workers is None:
        return n_jobs
    given = n_jobs if executor is None else executor.workers
    if given is not None and given != request.workers:
        raise ValueError(
            f"the request asks for {request.workers} workers, and the call for {given}; give one"
        )
    return None if executor is not None else int(request.workers)


def refine(
    sweep: Sweep,
    store: str | os.PathLike[str],
    points: Suggestion | Grid | None = None,
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    executor: Executor | None = None,
    timeout: float | str | None = None,
    rerun: str | Sequence[str] = (),
    retry: Mapping[str, int] | int = 0,
    recycle_after: int | str | None = None,
    keep_scratch: bool = False,
    on_error: str = "collect",
    max_errors: float | None = None,
    max_runs: int = MAX_RUNS,
    stale: str = "ask",
    progress: bool | Callable[[Progress], None] = True,
) -> xr.Dataset:
    """Run further points of a sweep into its store, as a stage beside the grid.

    The same call goes on after an interruption; other points become the next stage. Points that
    the grid or an earlier stage has are not run again. Seeds follow from the point alone: a
    refined run draws what a run of the grid at the same point would.

    Parameters
    ----------
    sweep : Sweep
        The one whose grid the store holds.
    store : path
        Of the store.
    points : Suggestion or Grid, optional
        What :func:`suggest` gave, or points along one dim (as :func:`paired` makes them) with
        the parameters of the sweep, crossed with replicates or not. Without, what is pending in
        the stages that there are.
    n_jobs, backend, executor, timeout, rerun, retry, recycle_after, keep_scratch
        As in :func:`run`.
    on_error, max_errors, max_runs, stale, progress
        As in :func:`run`.

    Returns
    -------
    Dataset
        As ``sk.open(store, stages=True)`` gives it: the runs of the grid and of all stages along
        one dim ``run``.

    Raises
    ------
    TypeError, ValueError
        If the points have other parameters than the sweep, or are crossed.
    StoreError, StaleCodeError, RunError, TooManyErrorsError, KeyboardInterrupt
        As in :func:`run`; also StoreError if nothing is stored yet.

    Examples
    --------
    >>> import tempfile, sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> grid = sk.grid(height=[1.0, 2.0, 3.0], gravity=[1.62, 9.81])
    >>> sweep = sk.Sweep(fall, grid, requirements=["time < 0.7"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, options = f"{folder}/fall.zarr", {"backend": "sequential", "progress": False}
    ...     ds = sk.run(sweep, path, **options)
    ...     ds = sk.refine(sweep, path, sk.suggest(ds, 2, explore=0), **options)
    ...     sk.runs(ds)["stage"].value_counts().to_dict()
    {0: 6, 1: 2}
    """
    if not isinstance(sweep, Sweep):
        raise TypeError(f"{sweep!r} is no Sweep; make one with sk.Sweep(simulator, grid)")
    given = points.grid if isinstance(points, Suggestion) else points
    if given is not None and not isinstance(given, Grid):
        raise TypeError(
            f"points are a {type(points).__name__}; give what sk.suggest returned, or a grid of "
            "points along one dim, as sk.paired makes it"
        )
    settings = Settings(
        timeout=_checked_timeout(timeout),
        rerun=statuses(rerun),
        retry=_retries(retry),
        keep_scratch=keep_scratch,
        on_error=_one_of("on_error", on_error, ("collect", "raise")),
        max_errors=max_errors,
        max_runs=max_runs,
        stale=_one_of("stale", stale, ("ask", "keep", "rerun")),
    )
    held = _executor(executor, n_jobs, backend, recycle_after)
    target = ZarrStore(store)
    run_stages(sweep, target, given, held, settings, _report(progress, sweep))
    return reading.open(target.path, stages=True)


def _executor(
    given: Executor | None,
    n_jobs: int | None,
    backend: str | None,
    recycle_after: int | str | None,
) -> Executor:
    if given is None:
        return JoblibExecutor(n_jobs, backend, recycle_after=recycle_after)
    if n_jobs is not None or backend is not None or recycle_after is not None:
        raise ValueError("give an executor, or n_jobs, backend and recycle_after, not both")
    return given


def _report(
    progress: bool | Callable[[Progress], None], sweep: Sweep, before: str = ""
) -> Callable[[Progress], None]:
    if callable(progress):
        return progress
    return views.shown(before + sweep.name) if progress else views.silent


def statuses(words: str | Sequence[str]) -> tuple[Status, ...]:
    """Statuses from words."""
    listed = [words] if isinstance(words, str) else list(words)
    made: list[Status] = []
    for word in listed:
        if word == "unsuccessful":
            made += UNSUCCESSFUL
        elif word in NAMES and word != "pending":
            made.append(Status(NAMES.index(word)))
        else:
            known = ", ".join([*NAMES[1:], "unsuccessful"])
            raise ValueError(f"rerun={word!r} is no status; there are {known}")
    return tuple(dict.fromkeys(made))


def _one_of(word: str, given: str, known: tuple[str, ...]) -> str:
    if given not in known:
        raise ValueError(f"{word}={given!r} is none of {', '.join(known)}")
    return given


def _checked_timeout(timeout: float | str | None) -> tuple[float | None, float | None]:
    """A time limit as (seconds, factor of the mean duration), one of them or none."""
    if timeout is None:
        return None, None
    number: object = timeout
    if isinstance(timeout, str) and timeout.endswith("x"):
        with suppress(ValueError):
            number = float(timeout[:-1])
        if isinstance(number, float) and 1 < number < math.inf:
            return None, number
    elif not isinstance(timeout, bool) and isinstance(timeout, int | float) and timeout > 0:
        return float(timeout), None
    raise ValueError(
        f"timeout is {timeout!r}; give seconds above 0, or a factor of the mean time as in '20x'"
    )


def _retries(given: Mapping[str, int] | int) -> dict[Status, int]:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return dict.fromkeys(UNSUCCESSFUL, given) if given else {}
    if isinstance(given, Mapping):
        counts = {}
        for word, count in given.items():
            (one,) = statuses(word) if word in NAMES else (None,)
            if one not in UNSUCCESSFUL or not isinstance(count, int) or count < 0:
                known = ", ".join(one.word for one in UNSUCCESSFUL)
                raise ValueError(f"retry={given!r}: give counts for statuses among {known}")
            counts[one] = count
        return counts
    raise ValueError(f"retry is {given!r}; give a count, or counts by status")


def derive(
    store: str | os.PathLike[str],
    name: str,
    formula: str | Callable[[xr.Dataset], xr.DataArray],
    *,
    units: str | None = None,
    long_name: str | None = None,
) -> xr.Dataset:
    """Add an output computed from stored ones, without running anything.

    Parameters
    ----------
    store : path
        Of a store that no other process writes to.
    name : str
        Of the new output; one that was derived before is computed anew.
    formula : str or callable
        An expression on outputs and parameters, or a function of the opened Dataset that returns
        a DataArray over the run dims, with or without dims of its own.
    units, long_name : str, optional
        Stored with the output.

    Returns
    -------
    Dataset
        As :func:`sweepkit.open` gives it, with the output. Runs that finish later hold NaN there
        until it is derived again.

    Raises
    ------
    ValueError
        If the name is taken or no identifier, or the result does not lie over the runs.
    StoreBusyError
        If another process writes to the store.
    """
    target = ZarrStore(store)
    with target.hold():
        if not target.exists():
            raise StoreError(f"{target.path} holds no sweep to derive from")
        target.open()
        ds = reading.open(target.path)
        attrs = {"units": units, "long_name": long_name, "derived": _formula_text(formula)}
        array = reading.derived(ds, formula)
        add_derived(target, name, array, {k: v for k, v in attrs.items() if v is not None})
    return reading.open(target.path)


def _formula_text(formula: str | Callable[[xr.Dataset], xr.DataArray]) -> str:
    return formula if isinstance(formula, str) else f"function {simulator_name(formula)}"


def verify(store: str | os.PathLike[str]) -> pd.DataFrame:
    """Read everything that counts as done and name what is missing or damaged.

    What is found is noted beside the store, and the next :func:`run` (in stages the next
    :func:`refine`) computes just that anew.

    Parameters
    ----------
    store : path
        Of a store.

    Returns
    -------
    DataFrame
        One row for each damaged chunk: ``variable`` (in stages as ``stages/1/name``), ``runs``
        (how many lost a value), ``where`` (their range along each dim) and ``reason``. Empty if
        all is well.

    Raises
    ------
    StoreError
        If there is no sweep, or its root is damaged.
    """
    import pandas as pd

    target = ZarrStore(store)
    columns = ["variable", "runs", "where", "reason"]
    rows = [(one.variable, one.runs, one.where, one.reason) for one in damage(target)]
    for number in target.stages:
        rows += [
            (f"{STAGES}/{number}/{one.variable}", one.runs, one.where, one.reason)
            for one in damage(target.stage(number))
        ]
    return pd.DataFrame(rows, columns=columns)

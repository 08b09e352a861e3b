"""Run a sweep and read it: the towers composed for a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import xarray as xr

from sweepkit import options as options_of
from sweepkit import reading
from sweepkit.amend import add_derived, damage
from sweepkit.analysis import Suggestion
from sweepkit.codes import changed_objects, object_identities
from sweepkit.format1 import was_from_json
from sweepkit.grid import Grid
from sweepkit.identity import Identity, changes
from sweepkit.locate import one_run
from sweepkit.options import RefineOptions, RunOptions, taking
from sweepkit.places import Given, where
from sweepkit.protocols import StoreError
from sweepkit.refine import refine as run_stages
from sweepkit.replay import Replay, rerun
from sweepkit.root import STAGES, DamagedError, stages_said
from sweepkit.run import Session
from sweepkit.simulator import simulator_name
from sweepkit.sweep import Sweep
from sweepkit.targets import target as target_of

if TYPE_CHECKING:
    import pandas as pd

    from sweepkit.stores.zarr import ZarrStore

__all__ = ["derive", "refine", "replay", "run", "verify"]


@taking(RunOptions)
def run(
    sweep: Sweep,
    store: Given,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> xr.Dataset:
    """Run what is pending of a sweep, into a store, and open it.

    The store is made if it does not exist; if it does, finished runs are kept and what is missing
    is run: after an interruption, a kill, or with more values on an axis.

    Parameters
    ----------
    sweep : Sweep
        What to run.
    store : path, URL or Zarr store
        Folder of the Zarr store, such as ``"cartpole.zarr"``; a URL such as
        ``"s3://bucket/cartpole.zarr"`` or, in this process's memory, ``"memory://cartpole.zarr"``;
        or a store object of ``zarr.storage``.
    storage_options : mapping, optional
        For the file system of a URL, as fsspec takes them: endpoint, credentials and the like.
    n_jobs : int, optional
        Runs at the same time; -1 for all cores. By default as joblib is configured, else all.
    backend : str, optional
        "loky" (worker processes), "threading", "sequential", or another that joblib knows. By
        default as joblib is configured, else "loky".
    executor : Executor, optional
        Other compute, instead of ``n_jobs`` and ``backend``.
    timeout : float or str, optional
        Seconds that a run may take before it is killed, or a factor of the mean time of the runs
        done so far, as in "20x" (but at least 1 s, and 10 min until the first is done); needs
        worker processes.
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
        Stop once more runs (int), or a larger share of those that have ended (float below 1; of
        20 or more, or of all), do not succeed.
        This and ``on_error="raise"`` are judged with what the store has kept, so a sweep that was
        stopped ends so again, before its first run, until ``rerun="error"`` tries those again or
        more is allowed.
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
    session, target = _session(sweep, target_of(store, storage_options), options)
    session.run()
    return reading.open(target.where).isel(session.declared())


@taking(RefineOptions)
def refine(
    sweep: Sweep,
    store: Given,
    points: Suggestion | Grid | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[RefineOptions],
) -> xr.Dataset:
    """Run further points of a sweep into its store, as a stage beside the grid.

    The same call goes on after an interruption; other points become the next stage. Points that
    the grid or an earlier stage has are not run again. Seeds follow from the point alone: a
    refined run draws what a run of the grid at the same point would.

    Parameters
    ----------
    sweep : Sweep
        The one whose grid the store holds.
    store : path, URL or Zarr store
        Of the store.
    points : Suggestion or Grid, optional
        What :func:`suggest` gave, or points along one dim (as :func:`paired` makes them) with
        the parameters of the sweep, crossed with replicates or not. Without, what is pending in
        the stages that there are.
    storage_options : mapping, optional
        As in :func:`run`.
    n_jobs, backend, executor, timeout, rerun, retry, recycle_after, keep_scratch
        As in :func:`run`.
    on_error, max_errors, max_runs, stale, request, progress
        As in :func:`run`; a request holds for all stages together.

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
    settings = options_of.settings(options)
    held = options_of.executor(options, settings.request)
    show = options_of.report(options.get("progress", True), sweep.name)
    target = target_of(store, storage_options)
    run_stages(sweep, target, given, held, settings, show)
    return reading.open(target.where, stages=True)


def _session(sweep: Sweep, target: ZarrStore, options: RunOptions) -> tuple[Session, ZarrStore]:
    if not isinstance(sweep, Sweep):
        raise TypeError(f"{sweep!r} is no Sweep; make one with sk.Sweep(simulator, grid)")
    settings = options_of.settings(options)
    held = options_of.executor(options, settings.request)
    show = options_of.report(options.get("progress", True), sweep.name)
    return Session(sweep, target, held, settings, show), target


def derive(
    store: Given,
    name: str,
    formula: str | Callable[[xr.Dataset], xr.DataArray],
    *,
    units: str | None = None,
    long_name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
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
        a DataArray over the run dims, with or without dims of its own. A result that lacks run
        dims, as a mean over them does, is stored with each run that it holds for.
    units, long_name : str, optional
        Stored with the output.
    storage_options : mapping, optional
        As in :func:`run`.

    Returns
    -------
    Dataset
        As :func:`sweepkit.open` gives it, with the output. Runs that finish later hold NaN there
        until it is derived again.

    Raises
    ------
    ValueError
        If the name is taken or no identifier, or the result has other coordinate values or
        another length along a run dim than the sweep.
    StoreBusyError
        If another process writes to the store.
    """
    target = target_of(store, storage_options)
    with target.hold():
        if not target.exists():
            raise StoreError(f"{target.path} holds no sweep to derive from")
        target.open()
        ds = reading.open(target.where)
        attrs = {"units": units, "long_name": long_name, "derived": _formula_text(formula)}
        array = reading.derived(ds, formula)
        add_derived(target, name, array, {k: v for k, v in attrs.items() if v is not None})
    return reading.open(target.where)


def _formula_text(formula: str | Callable[[xr.Dataset], xr.DataArray]) -> str:
    return formula if isinstance(formula, str) else f"function {simulator_name(formula)}"


def verify(store: Given, *, storage_options: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read everything that counts as done and name what is missing or damaged.

    What is found is noted beside the store, and the next :func:`run` (in stages the next
    :func:`refine`) computes just that anew.

    Parameters
    ----------
    store : path, URL or Zarr store
        As in :func:`run`, or a zip that :func:`pack` made.
    storage_options : mapping, optional
        As in :func:`run`.

    Returns
    -------
    DataFrame
        One row for each damaged chunk, each variable with damaged metadata and each stage whose
        root is lost or damaged: ``variable`` (in stages as ``stages/1/name``), ``runs`` (how many
        lost a value), ``where`` (their range along each dim) and ``reason``. Empty if all is well.

    Raises
    ------
    StoreError
        If there is no sweep, or its root is damaged.
    """
    import pandas as pd

    from sweepkit.stages import numbers

    target = target_of(store, storage_options)
    columns = ["variable", "runs", "where", "reason"]
    rows = [(one.variable, one.runs, one.where, one.reason) for one in damage(target)]
    for number in sorted({*target.stages, *numbers(target.where)}):
        name, stage = f"{STAGES}/{number}", target.stage(number)
        try:
            found = damage(stage)
        except DamagedError as fault:  # of its root; what else is damaged is named all the same
            shape = stages_said(target.root).get(f"{name}/status", {}).get("shape", (0,))
            lost = 0 if (stage.root / "status").is_dir() else math.prod(shape)
            rows.append((name, lost, "all of it", str(fault)))
            continue
        rows += [(f"{name}/{one.variable}", one.runs, one.where, one.reason) for one in found]
    return pd.DataFrame(rows, columns=columns)


def replay(
    sweep: Sweep,
    ds: xr.Dataset | Given,
    run: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Replay:
    """Execute one run again, here and in the open, and compare it with what is stored.

    Nothing is caught or contained: what the simulator prints appears, what it raises comes
    through with its traceback, so that ``%debug`` and breakpoints work. It gets the same
    arguments, objects behind labels, seed and generator as the stored run.

    Parameters
    ----------
    sweep : Sweep
        With the simulator and the objects behind labels.
    ds : Dataset or path
        The store, or what :func:`sweepkit.open` or :func:`run` gave, or a selection of it.
    run : int, mapping, Series, DataFrame of one row, or Dataset
        Its place in C order over the run dims; values of its parameters, those with one value
        may be left out; its row in ``sk.runs(ds)``; or a selection of one run.
    storage_options : mapping, optional
        As in :func:`run`, where ``ds`` is a URL.

    Returns
    -------
    Replay
        With ``outputs`` (a Dataset), ``result`` (what the simulator returned), ``reproduced``,
        ``differs`` (what is not as stored, by name) and ``code`` (whether it changed since).

    Raises
    ------
    TypeError, ValueError
        If the run is not there, is not one run, or does not fit the sweep.
    Exception
        Whatever the simulator raises.

    Examples
    --------
    >>> import tempfile, sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> sweep = sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[1.62, 9.81]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ds = sk.run(sweep, f"{folder}/fall.zarr", backend="sequential", progress=False)
    ...     sk.replay(sweep, ds, {"height": 2.0, "gravity": 9.81}).reproduced
    True
    """
    if not isinstance(sweep, Sweep):
        raise TypeError(f"{sweep!r} is no Sweep; make one with sk.Sweep(simulator, grid)")
    opened = ds if isinstance(ds, xr.Dataset) else reading.open(where(ds, storage_options))
    one = one_run(opened, run)
    said = reading.declaration_of(opened)
    parameters = [p["name"] for p in said.get("parameters", [])] or sweep.grid.names
    values = {name: one[name].values[()] for name in parameters if name in one.coords}
    return rerun(
        sweep,
        values,
        one.load(),
        was=was_from_json(said) if said else {},
        code=_code_words(sweep, said, one),
        entropy=said.get("entropy"),
        streams=said.get("streams"),
    )


def _code_words(sweep: Sweep, said: Mapping[str, Any], one: xr.Dataset) -> str:
    """Whether the code and objects are those that made a run."""
    codes = said.get("codes")
    if not codes or "code" not in one:
        return "which code made the stored run is not known"
    number = int(one["code"])
    if not 0 <= number < len(codes):
        return "no code has made this run yet"
    told = changes(Identity.from_json(codes[number]["identity"]), sweep.identity)
    told += [
        f"label {label!r} of {name!r} stands for another object"
        for name, label in changed_objects(said.get("objects", {}), object_identities(sweep.grid))
        if name in one.coords and one[name].values[()] == label
    ]
    if told:
        return f"the code has changed since the stored run was made: {'; '.join(told)}"
    return "the code is the one that made the stored run"

"""Run a sweep and read it: the towers composed for a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import xarray as xr

from sweepkit import reading
from sweepkit.executors.joblib import JoblibExecutor
from sweepkit.protocols import Executor
from sweepkit.run import MAX_RUNS, UNSUCCESSFUL, Session, Settings
from sweepkit.status import NAMES, Progress, Status
from sweepkit.stores.zarr import ZarrStore
from sweepkit.sweep import Sweep
from sweepkit.views import progress as views

__all__ = ["run"]


def run(
    sweep: Sweep,
    store: str | os.PathLike[str],
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    executor: Executor | None = None,
    timeout: float | None = None,
    rerun: str | Sequence[str] = (),
    on_error: str = "collect",
    max_errors: float | None = None,
    max_runs: int = MAX_RUNS,
    was: Mapping[str, Any] | None = None,
    stale: str = "ask",
    snap: bool = False,
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
    timeout : float, optional
        Seconds that a run may take before it is killed; needs worker processes.
    rerun : str or sequence of str
        Statuses of finished runs to be tried again, such as "error"; "unsuccessful" stands for
        error, timeout, crashed and invalid.
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
    progress : bool or callable
        Show progress, or be called with each :class:`~sweepkit.Progress`.

    Returns
    -------
    Dataset
        As :func:`sweepkit.open` gives it.

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
        on_error=_one_of("on_error", on_error, ("collect", "raise")),
        max_errors=max_errors,
        max_runs=max_runs,
        was=was or {},
        stale=_one_of("stale", stale, ("ask", "keep", "rerun")),
        snap=snap,
    )
    if executor is None:
        executor = JoblibExecutor(n_jobs, backend)
    elif n_jobs is not None or backend is not None:
        raise ValueError("give an executor, or n_jobs and backend, not both")
    if callable(progress):
        report = progress
    else:
        report = views.shown(sweep.name) if progress else views.silent
    target = ZarrStore(store)
    Session(sweep, target, executor, settings, report).run()
    return reading.open(target.path)


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


def _checked_timeout(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}; give seconds above 0")
    return float(timeout)

"""The options that run, start and refine share: named once, checked before anything runs."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypedDict, TypeVar, get_type_hints

import numpy as np

from sweepkit.executors.joblib import JoblibExecutor
from sweepkit.protocols import Executor
from sweepkit.request import Request
from sweepkit.settings import MAX_RUNS, Settings
from sweepkit.status import NAMES, UNSUCCESSFUL, Progress, Status
from sweepkit.views import progress as views

__all__ = [
    "Compute",
    "Conduct",
    "Joining",
    "PoolOptions",
    "RefineOptions",
    "RunOptions",
    "executor",
    "report",
    "settings",
    "statuses",
    "taking",
]

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


class Compute(TypedDict, total=False):
    """Where runs are run; the words of :func:`sweepkit.run`."""

    n_jobs: int | None
    backend: str | None
    executor: Executor | None
    recycle_after: int | str | None


class Conduct(TypedDict, total=False):
    """What a session does beside running what is pending; the words of :func:`sweepkit.run`."""

    timeout: float | str | None
    rerun: str | Sequence[str]
    retry: Mapping[str, int] | int
    keep_scratch: bool
    on_error: str
    max_errors: float | None
    max_runs: int
    stale: str


class Joining(Conduct, total=False):
    """Conduct of a session that may change the axes of its store."""

    was: Mapping[str, Any] | None
    snap: bool


class RefineOptions(Compute, Conduct, total=False):
    """Options of :func:`sweepkit.refine`."""

    request: Request | None
    progress: bool | Callable[[Progress], None]


class RunOptions(Compute, Joining, total=False):
    """Options of :func:`sweepkit.run` and :func:`sweepkit.start`."""

    request: Request | None
    progress: bool | Callable[[Progress], None]


class PoolOptions(Joining, total=False):
    """Options of :meth:`sweepkit.Pool.start`, beside its own."""

    recycle_after: int | str | None
    progress: bool | Callable[[Progress], None]


DEFAULTS: RunOptions = {
    "n_jobs": None,
    "backend": None,
    "executor": None,
    "timeout": None,
    "rerun": (),
    "retry": 0,
    "recycle_after": None,
    "keep_scratch": False,
    "on_error": "collect",
    "max_errors": None,
    "max_runs": MAX_RUNS,
    "was": None,
    "stale": "ask",
    "snap": False,
    "request": None,
    "progress": True,
}


def taking(
    options: type, **other: object
) -> Callable[[Callable[Given, Returned]], Callable[Given, Returned]]:
    """Let a function that takes ``**options`` show each of them, and refuse any other by name.

    Parameters
    ----------
    options : type
        The TypedDict of its options, whose defaults are above.
    **other
        Defaults of this function that differ.
    """
    hints = get_type_hints(options)
    defaults: dict[str, object] = {**DEFAULTS, **other}
    names = [name for name in defaults if name in hints]

    def dressed(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
        own = inspect.signature(function)
        plain = [one for one in own.parameters.values() if one.kind != one.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults[name],
                annotation=hints[name],
            )
            for name in names
        ]
        accepted = {one.name for one in plain} | set(names)

        @functools.wraps(function)
        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
            for name in kwargs:
                if name not in accepted:
                    near = difflib.get_close_matches(name, sorted(accepted), 1)
                    raise TypeError(
                        f"{function.__name__} has no option {name!r}"
                        + (f"; did you mean {near[0]!r}?" if near else f" ({', '.join(names)})")
                    )
            return function(*args, **kwargs)

        shown = own.replace(parameters=[*plain, *keywords])
        checked.__signature__ = shown  # type: ignore[attr-defined]
        return checked

    return dressed


def settings(options: Conduct) -> Settings:
    """What a session is asked to do.

    Raises
    ------
    TypeError, ValueError
        If an option is not what it can be.
    """
    said: RunOptions = {**DEFAULTS, **options}
    return Settings(
        timeout=_checked_timeout(said["timeout"]),
        rerun=statuses(said["rerun"]),
        retry=_retries(said["retry"]),
        keep_scratch=_flag("keep_scratch", said["keep_scratch"]),
        on_error=_one_of("on_error", said["on_error"], ("collect", "raise")),
        max_errors=_checked_most(said["max_errors"]),
        max_runs=_checked_count("max_runs", said["max_runs"]),
        was=_checked_was(said["was"]),
        stale=_one_of("stale", said["stale"], ("ask", "keep", "rerun")),
        snap=_flag("snap", said["snap"]),
        request=_checked_request(said["request"]),
    )


def executor(options: Compute, request: Request | None = None) -> Executor:
    """The compute that is asked for, with as many workers as a request says.

    Raises
    ------
    ValueError
        If an executor is given and also how to make one, or none can be made so.
    """
    given = options.get("executor")
    if request is not None:
        workers = _workers(request, given, options.get("n_jobs"))
        options = {**options, "n_jobs": workers}
    asked = [options.get(name) for name in ("n_jobs", "backend", "recycle_after")]
    if given is None:
        n_jobs, backend = options.get("n_jobs"), options.get("backend")
        here = JoblibExecutor(n_jobs, backend, recycle_after=options.get("recycle_after"))
        if here.backend != "dask":
            return here
        from sweepkit.executors.dask import DaskExecutor

        return DaskExecutor(here.client, n_jobs=n_jobs if n_jobs and n_jobs > 0 else None)
    if any(one is not None for one in asked):
        raise ValueError("give an executor, or n_jobs, backend and recycle_after, not both")
    return given


def report(progress: bool | Callable[[Progress], None], name: str) -> Callable[[Progress], None]:
    """What is called with each progress of a sweep of some name."""
    if callable(progress):
        return progress
    if not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}; give True, False, or a function of a Progress")
    return views.shown(name) if progress else views.silent


def statuses(words: str | Sequence[str]) -> tuple[Status, ...]:
    """Statuses from words."""
    listed = [words] if isinstance(words, str) else words
    if not isinstance(listed, Sequence) or not all(isinstance(word, str) for word in listed):
        raise TypeError(f"rerun is {words!r}; give a status, or a list of statuses")
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


def _flag(word: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"{word} is {given!r}; give True or False")
    return given


def _checked_count(word: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise TypeError(f"{word} is {given!r}; give a whole number")
    if given < 1:
        raise ValueError(f"{word} is {given}; give 1 or more")
    return int(given)


def _checked_most(given: object) -> int | float | None:
    """Most errors: a count of 0 or more, or a share between 0 and 1."""
    if given is None:
        return None
    told = "give a count of runs, such as 10, or a share of them between 0 and 1, such as 0.05"
    if isinstance(given, bool) or not isinstance(given, int | float | np.integer | np.floating):
        raise TypeError(f"max_errors is {given!r}; {told}")
    if isinstance(given, float | np.floating):
        if not 0 < given < 1:
            raise ValueError(f"max_errors is {float(given)}; {told}")
        return float(given)
    if given < 0:
        raise ValueError(f"max_errors is {given}; {told}")
    return int(given)


def _checked_was(given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"was is {given!r}; give values by parameter, as in {{'drag': 0.0}}")
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
            whole = isinstance(count, int) and not isinstance(count, bool)
            if one not in UNSUCCESSFUL or not whole or count < 0:
                known = ", ".join(one.word for one in UNSUCCESSFUL)
                raise ValueError(f"retry={given!r}: give counts for statuses among {known}")
            counts[one] = count
        return counts
    raise ValueError(f"retry is {given!r}; give a count, or counts by status")

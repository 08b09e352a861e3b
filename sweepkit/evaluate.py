"""One batch to one columnar result, in a worker: errors, logs and time recorded."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from sweepkit.capture import CHANGED, UNSETTLED, Capture, capped, one_line, printed, told
from sweepkit.columns import Collector
from sweepkit.containment import Surroundings, seed_globals, shown_warnings
from sweepkit.grid import Grid
from sweepkit.outputs import Output
from sweepkit.parameters import Parameter
from sweepkit.parcels import Depot, Outbox
from sweepkit.protocols import Result
from sweepkit.simulator import Call
from sweepkit.status import Status
from sweepkit.streams import generators, run_keys, seeds
from sweepkit.traits import Pristine
from sweepkit.vectorized import Vectorized

__all__ = ["Claim", "Station", "Task", "evaluate"]

UNSEEN = 1e-4
"""Runs that take longer, in seconds, are looked at for what C code printed or changed."""

LONG = 5e-3
"""Runs that take longer, in seconds, are looked at for all that a run may change."""

HANDOVER = 0.05
"""Seconds after which the results so far are handed over, so that they outlive the worker."""

STOP, DOOMED, PATIENT, SPAN = 2, 3, 4, 5
"""Items of a claim: whether to stop, whether the worker is being killed, whether it stays in use
whatever runs leave behind, and how many runs, from the row on, are in one call together."""


@dataclass(frozen=True)
class Task:
    """Everything a worker needs to run any batch of a sweep; sent once."""

    function: Callable[..., Any]
    call: Call
    grid: Grid
    outputs: Mapping[str, Output]
    entropy: int
    streams: str
    was: Mapping[str, Parameter]
    threads: int = 1
    global_random: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    kept_scratch: str | None = None
    patchable: tuple[tuple[str, str], ...] = ()
    unsettling: bool = False
    stops_at_error: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)
    setup: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    artefacts: str | None = None
    depot: Depot | None = None

    def arguments(
        self,
        index: Mapping[str, NDArray[np.intp]],
        keys: NDArray[np.uint64],
        scratch: str | None,
        handed: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """What the simulator is given, run by run."""
        injected: dict[str, Any] = {}
        for name in self.call.injected:
            if name == "rng":
                injected[name] = generators(keys, self.entropy)
            elif name == "seed":
                injected[name] = seeds(keys, self.entropy)
            elif name == "artefacts":
                injected[name] = _kept_folders(self.own_keys(index), self.artefacts or "")
            else:
                injected[name] = (
                    _scratches(len(keys), scratch)
                    if self.kept_scratch is None
                    else _kept_scratches(self.own_keys(index), self.kept_scratch)
                )
        return self.call.arguments(self.grid, index, injected, handed)

    def keys(self, index: Mapping[str, NDArray[np.intp]]) -> NDArray[np.uint64]:
        """Keys of the runs at some positions."""
        return run_keys(self.grid, index, streams=self.streams, was=self.was)

    def own_keys(self, index: Mapping[str, NDArray[np.intp]]) -> NDArray[np.uint64]:
        """Keys that no two runs share, also where designs draw the same random numbers."""
        return run_keys(self.grid, index, was=self.was)


class Claim(Protocol):
    """A few numbers that the driver of a worker sees."""

    def __getitem__(self, at: int, /) -> float: ...

    def __setitem__(self, at: int, number: float, /) -> None: ...


@dataclass
class Station:
    """What a worker has about it while it runs batches.

    Attributes
    ----------
    capture : Capture
        Where prints go.
    claim : sequence of float
        [row that runs, of those not handed over, when it started, then as STOP, DOOMED and
        PATIENT say]: read and set by the driver.
    touched : array of one flag
        Bits that are set when the run that is on printed or changed something.
    watched : bool
        Whether something sets the flag; else every run is looked at.
    contained : bool
        Whether the working directory, environment and warnings are its own to restore.
    interrupted : callable
        Whether a person asked to stop, so that a KeyboardInterrupt is theirs and not the run's.
    scratch : str or None
        Where scratch folders are made.
    pristine : Pristine or None
        The process before any run; None for as it is when a batch begins.
    hand : callable or None
        Takes the results of the first runs of a batch while it goes on.
    replaceable : bool
        Whether another may take over when a run left behind what cannot be undone.
    full : callable
        Whether the process has grown so much that another has to take over.
    worn : bool
        Whether another has to take over.
    handed : mapping
        What all runs of this worker are handed by name.
    """

    capture: Capture
    claim: Claim = field(default_factory=lambda: [-1.0, *[0.0] * 5])
    touched: bytearray = field(default_factory=lambda: bytearray(1))
    watched: bool = False
    contained: bool = True
    interrupted: Callable[[], bool] = lambda: False
    scratch: str | None = None
    pristine: Pristine | None = None
    hand: Callable[[Result], None] | None = None
    replaceable: bool = False
    full: Callable[[], bool] = lambda: False
    worn: bool = False
    handed: Mapping[str, Any] = field(default_factory=dict)


def evaluate(task: Task, runs: NDArray[np.int64], station: Station) -> Result:
    """Run a batch.

    Parameters
    ----------
    task : Task
        What to run.
    runs : array of int, shape (n,)
        Numbers of the runs in the declared grid.
    station : Station
        Of this worker.

    Returns
    -------
    Result
        Of all runs that were not handed over before, or of the first of them if the station's
        claim said to stop or the station is worn.
    """
    index = task.grid.index(runs)
    keys = task.keys(index) if task.call.injected or task.global_random else _first(task, index)
    batchwise = isinstance(task.function, Vectorized)
    function = _keyworded(task.function, task.call)
    with contextlib.ExitStack() as stack:
        if station.contained:
            stack.enter_context(shown_warnings())
        surroundings = stack.enter_context(
            Surroundings(station.contained, task.patchable, station.pristine)
        )
        reseeds = seeds(keys, task.entropy) if task.global_random else None
        if station.contained and reseeds is None and len(keys):
            seed_globals(next(seeds(keys[:1], task.entropy)))
        if batchwise:
            from sweepkit.batchwise import Calls

            return Calls(function, task, station, surroundings, index, keys).result()
        arguments = task.arguments(index, keys, station.scratch, station.handed)
        left = len(runs)
        while True:
            result, goes_on = _loop(function, arguments, task, station, surroundings, reseeds, left)
            if not goes_on or station.hand is None:
                return result
            station.hand(result)
            left -= len(result)


def _loop(
    function: Callable[..., Any],
    arguments: Iterator[tuple[Any, ...]],
    task: Task,
    station: Station,
    surroundings: Surroundings,
    reseeds: Iterator[int] | None,
    left: int,
) -> tuple[Result, bool]:
    """Run what is left of a batch; whether it has more when these results are to be handed over."""
    claim, touched = station.claim, station.touched
    always = CHANGED if task.patchable or not station.watched else 0
    if task.unsettling:
        always = CHANGED | UNSETTLED
    touched[0] = always  # between batches the worker itself sets it
    handing = perf_counter() + HANDOVER if station.hand is not None else float("inf")
    goes_on = False
    claimed_again = partial(claim_again, claim)
    results = Collector(task.outputs, outbox(task, station), claimed_again, station.interrupted)
    take = results.take
    stamps: list[float] = []
    stamp = stamps.append
    errors: dict[int, str] = {}
    logs: dict[int, str] = {}
    row, since, process = -1, 0, os.getpid()
    for row, given in enumerate(arguments):
        if claim[STOP]:
            row -= 1
            break
        if reseeds is not None:
            seed_globals(next(reseeds))
        started = perf_counter()
        claim[1] = started
        claim[0] = row
        try:
            value = function(*given)
        except BaseException as exception:  # the one broad except: around the user's simulator
            seconds = perf_counter() - started
            if isinstance(exception, KeyboardInterrupt) and station.interrupted():
                row -= 1
                break
            if os.getpid() != process:
                end_fork(exception)
            errors[row], text = told(exception)
            logs[row] = capped(printed(station.capture) + text)
            touched[0] |= CHANGED
            del exception
        else:
            seconds = perf_counter() - started
            take(row, value)
            value = None  # what freeing it does is this run's doing
        stamp(seconds)
        if touched[0] or seconds > UNSEEN:
            if os.getpid() != process:
                end_fork(None)
            if claim[DOOMED]:  # the signal for its stack woke it: leave the log as it is
                threading.Event().wait()
            text = printed(station.capture)
            if text and row not in logs:
                logs[row] = text
            wholly = bool(touched[0] & UNSETTLED) or seconds > LONG
            stuck = surroundings.restore(wholly=wholly)
            if stuck and station.replaceable and not claim[PATIENT]:
                station.worn = True
                break
            if task.stops_at_error and (errors or results.misfits):
                claim[STOP] = 1.0
            touched[0] = always
            since = row + 1
            if started + seconds > handing and since < left:
                station.worn = station.full()
                goes_on = not station.worn
                break
    claim[0] = -1.0
    if not goes_on and not station.worn and surroundings.restore(wholly=True):
        station.worn = station.replaceable and not claim[PATIENT]
    text = printed(station.capture)
    if text and row >= 0:
        logs[row] = capped(
            f"(printed by one of the last {row + 1 - since} runs of a batch)\n{text}"
        )
    columns = results.columns(row + 1)
    claim[0] = -1.0
    status = np.full(row + 1, Status.DONE, dtype=np.int8)
    status[list(errors)] = Status.ERROR
    for at, misfit in results.misfits.items():
        status[at] = Status.INVALID
        errors[at] = one_line(misfit)
        logs[at] = capped(f"{logs.get(at, '')}{misfit}\n{results.traces.get(at, '')}")
    notes, misnamed = surroundings.told(), results.misnamed
    result = Result(status, np.array(stamps), columns, errors, logs, notes, misnamed)
    return result, goes_on


def claim_again(claim: Claim, row: int) -> None:
    """Say that a run is on once more, from now."""
    claim[1] = perf_counter()
    claim[0] = row


def outbox(task: Task, station: Station) -> Outbox | None:
    """Where this worker puts big values, if it can write where they belong.

    No run is on while it writes: what happens then is not a run's doing.
    """
    if task.depot is None or not task.depot.reached:
        return None
    return Outbox(task.depot, partial(station.claim.__setitem__, 0, -1.0))


def end_fork(exception: BaseException | None) -> NoReturn:
    """End a process that a run forked and that came out of the simulator as if it were a worker."""
    code: object = 0 if exception is None else 1
    if isinstance(exception, SystemExit):
        code = exception.code or 0
    os._exit(code if isinstance(code, int) else 1)


def _first(task: Task, index: Mapping[str, NDArray[np.intp]]) -> NDArray[np.uint64]:
    return task.keys({dim: positions[:1] for dim, positions in index.items()})


def _keyworded(function: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """The simulator as a function of positional values only."""
    if not call.keyword:
        return function
    split, names = len(call.positional), call.keyword

    def called(*given: Any) -> Any:
        return function(*given[:split], **dict(zip(names, given[split:], strict=True)))

    return called


def _kept_scratches(keys: NDArray[np.uint64], root: str) -> Iterator[str]:
    for high, low in keys.tolist():
        path = os.path.join(root, f"{high:016x}{low:016x}")
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        yield path


def _kept_folders(keys: NDArray[np.uint64], root: str) -> Iterator[str]:
    """Folders that runs may make: what an earlier try left there is gone."""
    for high, low in keys.tolist():
        path = os.path.join(root, f"{high:016x}{low:016x}")
        shutil.rmtree(path, ignore_errors=True)
        yield path


def _scratches(count: int, root: str | None) -> Iterator[str]:
    for _ in range(count):
        path = tempfile.mkdtemp(prefix="sweepkit-run-", dir=root)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

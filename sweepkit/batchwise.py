"""A batch of a vectorized simulator: called whole, by halves where that fails, taken apart by run.

Results come as columns and are kept as columns; only what does not fit is looked at run by run.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.capture import capped, one_line, told
from sweepkit.casts import Misfit
from sweepkit.columns import Collector, Column, put_apart, whole_column
from sweepkit.containment import Surroundings, seed_globals
from sweepkit.evaluate import DOOMED, PATIENT, SPAN, STOP, Station, Task, end_fork, outbox
from sweepkit.outputs import Output
from sweepkit.protocols import Result
from sweepkit.results import as_mapping
from sweepkit.status import Status
from sweepkit.streams import generators, seeds
from sweepkit.vectorized import Vectorized

__all__ = ["Calls", "arrays_of", "only_run"]


class Calls:
    """The calls of one batch.

    Parameters
    ----------
    function : callable
        The simulator, of positional arguments.
    task, station, surroundings
        See :mod:`sweepkit.evaluate`.
    index : mapping of dim to array of int, shape (n,)
        Positions of the runs.
    keys : array of uint64, shape (n, 2) or fewer where no run needs its own
    """

    def __init__(
        self,
        function: Callable[..., Any],
        task: Task,
        station: Station,
        surroundings: Surroundings,
        index: Mapping[str, NDArray[np.intp]],
        keys: NDArray[np.uint64],
    ) -> None:
        self._function = function
        self._task = task
        self._station = station
        self._surroundings = surroundings
        self._index = index
        self._keys = keys
        self._process = os.getpid()
        self._outbox = outbox(task, station)
        self._collector = Collector(task.outputs, self._outbox, interrupted=station.interrupted)
        self._columns: dict[str, list[Column]] = {}
        self._errors: dict[int, str] = {}
        self._logs: dict[int, str] = {}
        self._seconds = np.zeros(len(next(iter(index.values()), ())))
        self._stopped = False

    def result(self) -> Result:
        """Call for all runs; for the first ones if the station's claim says to stop."""
        count, done = len(self._seconds), 0
        most = count
        if isinstance(self._task.function, Vectorized):
            most = self._task.function.max_batch
        for at in range(0, count, most):
            done = at + self._call(slice(at, min(at + most, count)))
            if self._stopped:
                break
        self._station.claim[0] = -1.0
        status = np.full(done, Status.DONE, dtype=np.int8)
        status[list(self._errors)] = Status.ERROR
        for name, columns in self._collector.columns(done).items():
            self._columns.setdefault(name, []).extend(columns)
        for row, misfit in self._collector.misfits.items():
            status[row] = Status.INVALID
            self._errors[row] = one_line(misfit)
            trace = self._collector.traces.get(row, "")
            self._logs[row] = capped(f"{self._logs.get(row, '')}{misfit}\n{trace}")
        joined = {name: _joined(group, done) for name, group in self._columns.items()}
        notes, misnamed = self._surroundings.told(), self._collector.misnamed
        return Result(
            status, self._seconds[:done], joined, self._errors, self._logs, notes, misnamed
        )

    def _call(self, rows: slice) -> int:
        """Call for some rows, by halves if that raises; returns how many of them are settled."""
        station, count = self._station, int(rows.stop - rows.start)
        if station.claim[STOP]:
            self._stopped = True
            return 0
        if self._task.global_random:
            seed_globals(next(seeds(self._keys[rows], self._task.entropy)))
        index = {dim: positions[rows] for dim, positions in self._index.items()}
        given = arrays_of(self._task, index, self._keys[rows], station.handed)
        started = perf_counter()
        station.claim[SPAN] = count
        station.claim[1] = started
        station.claim[0] = rows.start
        fault: BaseException | None = None
        value: Any = None
        try:
            value = self._function(*given)
        except BaseException as exception:  # around the user's simulator, as in evaluate
            fault = exception
        self._seconds[rows] += (perf_counter() - started) / count
        if isinstance(fault, KeyboardInterrupt) and station.interrupted():
            self._stopped = True
            return 0
        text = self._after(fault)
        if fault is None:
            if text:
                which = "" if count == 1 else f"(printed by one call of {count} runs)\n"
                self._logs[rows.start] = capped(which + text)
            self._take(rows, value)
            return count
        if count == 1:
            self._errors[rows.start], trace = told(fault)
            self._logs[rows.start] = capped(text + trace)
            return 1
        del fault  # with it, the arrays of the call
        middle = int(rows.start) + count // 2
        taken = self._call(slice(rows.start, middle))
        if not self._stopped:
            taken += self._call(slice(middle, rows.stop))
        return taken

    def _after(self, fault: BaseException | None) -> str:
        """What a call printed; what it changed around it is restored."""
        if os.getpid() != self._process:
            end_fork(fault)
        if self._station.claim[DOOMED]:  # the signal for its stack woke it: leave the log as it is
            threading.Event().wait()
        capture = self._station.capture
        text = capture.take() if capture.size() else ""
        stuck = self._surroundings.restore(wholly=True)
        if stuck and self._station.replaceable and not self._station.claim[PATIENT]:
            self._station.worn = self._stopped = True
        return text

    # --- results ---

    def _take(self, rows: slice, value: Any) -> None:
        count, declared = int(rows.stop - rows.start), self._task.outputs
        spoil = self._collector.spoil
        try:
            named, ends = _taken_apart(value, declared, count)
        except BaseException as fault:  # of code that the simulator gave along
            spoil(range(rows.start, rows.stop), fault)
            return
        at = np.arange(rows.start, rows.stop, dtype=np.intp)
        try:
            first = self._collector.apart(_of_run(named, ends, 0))
            made = {
                name: whole_column(name, one, declared.get(name), first[name], at, ends.get(name))
                for name, one in named.items()
            }
        except BaseException as fault:  # of some or all: each is looked at
            if isinstance(fault, KeyboardInterrupt) and self._station.interrupted():
                raise
            for row in range(count):
                try:
                    one = _of_run(named, ends, row)
                except BaseException as own:  # of code that the simulator gave along
                    spoil((rows.start + row,), own)
                else:
                    self._collector.take(rows.start + row, one)
            return
        for name, column in made.items():
            if self._outbox is not None:
                column = put_apart(name, column, self._outbox)
            self._columns.setdefault(name, []).append(column)


def arrays_of(
    task: Task,
    index: Mapping[str, NDArray[np.intp]],
    keys: NDArray[np.uint64],
    handed: Mapping[str, Any],
) -> list[Any]:
    """What the function is given for some runs: arrays, or lists of objects.

    Parameters
    ----------
    task : Task
    index : mapping of dim to array of int, shape (n,)
        Positions of the runs.
    keys : array of uint64, shape (n, 2)
    handed : mapping
        What all runs are handed by name.
    """
    derived = {name for name, _ in task.grid.derived}
    given: list[Any] = []
    for name in task.call.names:
        if name in task.call.constant:
            given.append(handed[name])
        elif name == "rng" and name in task.call.injected:
            given.append(list(generators(keys, task.entropy)))
        elif name in task.call.injected:
            given.append(np.array(list(seeds(keys, task.entropy)), dtype=np.int64))
        elif name in derived:
            given.append(np.array(task.grid.columns(index, (name,))[name]))
        else:
            one = task.grid[name]
            at = index[one.dim]
            given.append(one.values[at] if one.objects is None else list(one.handed(at)))
    return given


def only_run(value: Any, declared: Mapping[str, Output]) -> dict[str, Any]:
    """The outputs of the one run of a call.

    Raises
    ------
    Misfit
        If the first dim of an output is not the runs'.
    """
    return _of_run(*_taken_apart(value, declared, 1), 0)


def _taken_apart(
    value: Any, declared: Mapping[str, Output], count: int
) -> tuple[dict[str, Any], dict[str, NDArray[np.int32]]]:
    """Outputs of a call by name, checked to have one entry a run, and lengths of padded ones."""
    named = dict(as_mapping(value, declared))
    lengths = {
        name: named.pop(f"{name}_length")
        for name, said in declared.items()
        if said.pad and name in named and f"{name}_length" in named
    }
    for name, one in named.items():
        _check_leading(name, one, count)
    return named, {name: _ends(name, named[name], one, count) for name, one in lengths.items()}


def _of_run(
    named: Mapping[str, Any], ends: Mapping[str, NDArray[np.int32]], row: int
) -> dict[str, Any]:
    """The outputs of one of the runs."""
    found = {}
    for name, one in named.items():
        value = one.isel({one.dims[0]: row}, drop=True) if hasattr(one, "isel") else one[row]
        found[name] = value[: ends[name][row]] if name in ends else value
    return found


def _check_leading(name: str, value: Any, count: int) -> None:
    shape = (len(value),) if isinstance(value, list | tuple) else tuple(np.shape(value))
    if not shape or shape[0] != count:
        what = f"has shape {shape}" if shape else "is one value"
        raise Misfit(
            f"output {name!r} {what}, but the batch has {count} run{'s' * (count != 1)}; a "
            "vectorized simulator returns arrays whose first dim is the runs'"
        )


def _ends(name: str, padded: Any, lengths: Any, count: int) -> NDArray[np.int32]:
    """Lengths of padded results, checked."""
    array, most = np.asarray(lengths), np.shape(padded)[1] if np.ndim(padded) > 1 else 0
    fits = array.shape == (count,) and array.dtype.kind in "iu"
    if not fits or (count and not (array.min() >= 0 and array.max() <= most)):
        raise Misfit(
            f"'{name}_length' gives the lengths of {name!r}: {count} whole numbers of at most "
            f"{most}, but is {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int32)


def _joined(columns: list[Column], done: int) -> list[Column]:
    """Columns of single calls that are of one type, shape and coordinates as one."""
    groups: dict[Any, list[Column]] = {}
    for one in columns:
        coords = tuple((dim, along.dtype.str, along.tobytes()) for dim, along in one.coords.items())
        groups.setdefault((one.variable, one.written, one.pad, coords), []).append(one)
    return [_concatenated(group, done) for group in groups.values()]


def _concatenated(group: list[Column], done: int) -> Column:
    first = group[0]
    parts = [np.arange(done) if one.rows is None else one.rows for one in group]
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    whole = len(rows) == done and bool((rows == np.arange(done)).all())
    if len(group) == 1:
        return dataclasses.replace(first, rows=None if whole else rows)
    lengths = [one.lengths for one in group if one.lengths is not None]
    return dataclasses.replace(
        first,
        rows=None if whole else rows,
        values=np.concatenate([one.values for one in group]),
        lengths=np.concatenate(lengths) if lengths else None,
    )

"""One batch to one columnar result, in a worker: errors, logs and time recorded."""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import random
import shutil
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from sweepkit.grid import Grid
from sweepkit.outputs import Collector, Output
from sweepkit.parameters import Parameter
from sweepkit.protocols import Result
from sweepkit.simulator import Call
from sweepkit.status import Status
from sweepkit.streams import generators, run_keys, seeds
from sweepkit.vectorized import Vectorized

__all__ = ["HEAD", "TAIL", "Capture", "Station", "Task", "capped", "evaluate"]

HEAD = 8_192
TAIL = 24_576
"""Characters of a log that are kept from its beginning and its end."""

UNSEEN = 1e-4
"""Runs that take longer, in seconds, are looked at for what C code printed or changed."""

TELLING = frozenset(
    {
        "os.chdir",
        "os.putenv",
        "os.unsetenv",
        "os.system",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.exec",
        "subprocess.Popen",
        "pty.spawn",
    }
)
"""Audit events of Python after which a run is looked at for what it printed or changed."""


DOOMED = 3
"""Item of a claim that says that the worker is being killed."""

SPAN = 4
"""Item of a claim that says how many runs, from the row on, are in one call together."""

ABSENT = object()


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
    inputs: Mapping[str, Any] = field(default_factory=dict)
    setup: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    artefacts: str | None = None

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


class Capture(Protocol):
    """Where what a run prints ends up."""

    def size(self) -> int:
        """How much there is; 0 for nothing."""

    def take(self) -> str:
        """The text so far, capped, and begin anew."""


@dataclass
class Station:
    """What a worker has about it while it runs batches.

    Attributes
    ----------
    capture : Capture
        Where prints go.
    claim : sequence of float
        [row that runs, when it started, whether to stop, whether it is being killed]: read and
        set by the driver.
    touched : array of one flag
        Set when the run that is on printed or changed something.
    watched : bool
        Whether something sets the flag; else every run is looked at.
    contained : bool
        Whether the working directory, environment and warnings are its own to restore.
    interrupted : callable
        Whether a person asked to stop, so that a KeyboardInterrupt is theirs and not the run's.
    scratch : str or None
        Where scratch folders are made.
    handed : mapping
        What all runs of this worker are handed by name.
    """

    capture: Capture
    claim: Claim = field(default_factory=lambda: [-1.0, 0.0, 0.0, 0.0, 0.0])
    touched: bytearray = field(default_factory=lambda: bytearray(1))
    watched: bool = False
    contained: bool = True
    interrupted: Callable[[], bool] = lambda: False
    scratch: str | None = None
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
        Of all runs, or of the first ones if the station's claim said to stop.
    """
    index = task.grid.index(runs)
    keys = task.keys(index) if task.call.injected or task.global_random else _first(task, index)
    batchwise = isinstance(task.function, Vectorized)
    function = _keyworded(task.function, task.call)
    with contextlib.ExitStack() as stack:
        if station.contained:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("always")
            warnings.showwarning = _show_warning
        surroundings = stack.enter_context(_Surroundings(station.contained, task.patchable))
        reseeds = seeds(keys, task.entropy) if task.global_random else None
        if station.contained and reseeds is None and len(keys):
            _seed_globals(next(seeds(keys[:1], task.entropy)))
        if batchwise:
            from sweepkit.batchwise import Calls

            return Calls(function, task, station, surroundings, index, keys).result()
        arguments = task.arguments(index, keys, station.scratch, station.handed)
        return _loop(function, arguments, task, station, surroundings, reseeds)


def _loop(
    function: Callable[..., Any],
    arguments: Iterator[tuple[Any, ...]],
    task: Task,
    station: Station,
    surroundings: _Surroundings,
    reseeds: Iterator[int] | None,
) -> Result:
    claim, touched, always = station.claim, station.touched, not station.watched
    touched[0] = always  # between batches the worker itself sets it
    results = Collector(task.outputs)
    take = results.take
    stamps: list[float] = []
    errors: dict[int, str] = {}
    logs: dict[int, str] = {}
    row, since, process = -1, 0, os.getpid()
    for row, given in enumerate(arguments):
        if claim[2]:
            row -= 1
            break
        if reseeds is not None:
            _seed_globals(next(reseeds))
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
                _end_fork(exception)
            errors[row], text = _told(exception)
            logs[row] = capped(_printed(station.capture) + text)
            touched[0] = 1
            del exception
        else:
            seconds = perf_counter() - started
            take(row, value)
        stamps.append(seconds)
        if touched[0] or seconds > UNSEEN or task.patchable:
            if os.getpid() != process:
                _end_fork(None)
            if claim[DOOMED]:  # the signal for its stack woke it: leave the log as it is
                threading.Event().wait()
            text = _printed(station.capture)
            if text and row not in logs:
                logs[row] = text
            surroundings.restore()
            touched[0] = always
            since = row + 1
    claim[0] = -1.0
    text = _printed(station.capture)
    if text and row >= 0:
        logs[row] = capped(
            f"(printed by one of the last {row + 1 - since} runs of a batch)\n{text}"
        )
    columns = results.columns(row + 1)
    status = np.full(row + 1, Status.DONE, dtype=np.int8)
    status[list(errors)] = Status.ERROR
    for at, misfit in results.misfits.items():
        status[at] = Status.INVALID
        errors[at] = one_line(misfit)
        logs[at] = capped(f"{logs.get(at, '')}{misfit}\n")
    return Result(status, np.array(stamps), columns, errors, logs, surroundings.told())


def _end_fork(exception: BaseException | None) -> NoReturn:
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


def _seed_globals(seed: int) -> None:
    np.random.seed(seed)
    random.seed(seed)


# --- what a run may change around it ---------------------------------------------------------


class _Surroundings:
    """What runs share with one another, restored after every run; changes are noted.

    Working directory, environment, standard streams, filters of warnings, how numpy treats
    floating-point errors, and those attributes of modules that the simulator's code might set.
    """

    def __init__(self, contained: bool, patchable: Sequence[tuple[str, str]] = ()) -> None:
        self.contained = contained
        self.notes: list[str] = []
        self._patchable = [
            (sys.modules[module], name, getattr(sys.modules[module], name, ABSENT))
            for module, name in patchable
            if module in sys.modules
        ]

    def __enter__(self) -> _Surroundings:
        if self.contained:
            self._home = os.open(".", os.O_RDONLY)
            self._environ = dict(os.environ)
            self._raw: Any = getattr(os.environ, "_data", os.environ)
            self._kept = dict(self._raw)
            self._streams = sys.stdout, sys.stderr
            self._filters = list(warnings.filters)
            self._float_errors = np.geterr()
            self._childless = not _has_children()
        return self

    def restore(self) -> None:
        """Undo what a run changed."""
        if not self.contained:
            return
        os.fchdir(self._home)
        sys.stdout, sys.stderr = self._streams
        if warnings.filters != self._filters:
            warnings.resetwarnings()
            warnings.simplefilter("always")
            self._filters = list(warnings.filters)
        if np.geterr() != self._float_errors:
            np.seterr(**self._float_errors)
        for owner, name, value in self._patchable:
            if getattr(owner, name, ABSENT) is not value:
                self._note(f"{owner.__name__}.{name} changed")
                if value is ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
        if self._raw != self._kept:
            changed = sorted(set(self._environ.items()) ^ set(os.environ.items()))
            names = sorted({name for name, _ in changed})
            self._note(f"environment changed: {', '.join(names)}")
            for name in names:
                if name in self._environ:
                    os.environ[name] = self._environ[name]
                else:
                    os.environ.pop(name, None)

    def told(self) -> tuple[str, ...]:
        """What was changed so far, in words."""
        self.restore()
        if self.contained and self._childless and _has_children():
            self._note("child processes left behind")
        return tuple(self.notes)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def __exit__(self, *_: object) -> None:
        if self.contained:
            self.restore()
            os.close(self._home)


def _has_children() -> bool:
    """Whether this process has children that are alive, where the system tells cheaply."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


# --- what a run says ---------------------------------------------------------------------------


def _told(exception: BaseException) -> tuple[str, str]:
    """An exception in one line and its traceback from the simulator's frame on."""
    frames = exception.__traceback__.tb_next if exception.__traceback__ else None
    parts = traceback.format_exception(type(exception), exception, frames)
    last = traceback.format_exception_only(type(exception), exception)[-1]
    if isinstance(exception, SyntaxError):
        last = f"{type(exception).__name__}: {exception.msg}"
    name = type(exception).__name__
    text = last.strip()
    head, colon, tail = text.partition(":")
    if head.endswith(name):
        text = f"{name}{colon}{tail}"
    return one_line(text), "".join(parts)


def one_line(text: str) -> str:
    """Text on one line of at most 300 characters that can be encoded."""
    line = " ".join(text.split())
    line = line if len(line) <= 300 else f"{line[:297]}..."
    return line.encode(errors="backslashreplace").decode()


def capped(text: str) -> str:
    """Text with its middle left out if it is long, and that can be encoded."""
    if len(text) > HEAD + TAIL:
        left = len(text) - HEAD - TAIL
        text = f"{text[:HEAD]}\n... {left:,} characters left out ...\n{text[-TAIL:]}"
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _printed(capture: Capture) -> str:
    return capture.take() if capture.size() else ""


class _Flagging(io.TextIOWrapper):
    """A text stream that sets a flag when it is written to."""

    flag: bytearray

    def write(self, text: str, /) -> int:
        self.flag[0] = 1
        return super().write(text)

    def close(self) -> None:
        """Stay open for the runs to come."""
        self.flush()


class FileCapture:
    """Standard output and error of a worker process, redirected to a file of its own.

    Holds what C code and child processes print, too, and what is printed before a crash.

    Parameters
    ----------
    path : str
        Of the file.
    touched : bytearray
        Its first item is set when Python prints, or does what may print or change surroundings.
    """

    def __init__(self, path: str, touched: bytearray) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(self._file, stream)
        raw = io.BufferedWriter(io.FileIO(os.dup(self._file), "w"))
        text = _Flagging(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        text.flag = touched
        sys.stdout = sys.stderr = text
        self._flush = text.flush

        def heard(event: str, _: tuple[Any, ...]) -> None:
            if event in TELLING:
                touched[0] = 1

        sys.addaudithook(heard)

    @property
    def fileno(self) -> int:
        """Descriptor of the file."""
        return self._file

    def size(self) -> int:
        """Bytes printed since the last take."""
        self._flush()
        return os.lseek(self._file, 0, os.SEEK_END)

    def take(self) -> str:
        """The text, its middle left out if it is long; the file is emptied."""
        text = read_capped(self._file)
        os.ftruncate(self._file, 0)
        return text


def read_capped(file: int) -> str:
    """Beginning and end of a file as text."""
    size = os.lseek(file, 0, os.SEEK_END)
    if size <= 4 * (HEAD + TAIL):
        return capped(os.pread(file, size, 0).decode(errors="backslashreplace"))
    head = os.pread(file, HEAD, 0).decode(errors="backslashreplace")
    tail = os.pread(file, TAIL, size - TAIL).decode(errors="backslashreplace")
    left = size - HEAD - TAIL
    return f"{head}\n... {left:,} bytes left out ...\n{tail}".replace("\0", "\\0")


class TextCapture:
    """What one thread prints through Python, kept while others print where they like."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        """Keep text; the middle of what is much too long is dropped at once."""
        self._parts.append(text)
        self._size += len(text)
        if len(self._parts) > 10_000 or self._size > 64 * (HEAD + TAIL):
            self._parts = [capped("".join(self._parts))]
            self._size = len(self._parts[0])
        return len(text)

    def size(self) -> int:
        """Characters kept since the last take."""
        return self._size

    def take(self) -> str:
        """The text, capped; begins anew."""
        text = capped("".join(self._parts))
        self._parts, self._size = [], 0
        return text


class _Routed(io.TextIOBase):
    """A stand-in for sys.stdout or sys.stderr that sends each thread's text to its capture."""

    def __init__(self, usual: Any, captures: threading.local) -> None:
        self._usual = usual
        self._captures = captures

    def write(self, text: str) -> int:
        capture = getattr(self._captures, "capture", None)
        target = capture if capture is not None else self._usual
        return int(target.write(text) or 0)

    def flush(self) -> None:
        if getattr(self._captures, "capture", None) is None:
            with contextlib.suppress(ValueError):  # closed at exit before this stand-in is
                self._usual.flush()

    def fileno(self) -> int:
        return int(self._usual.fileno())

    def isatty(self) -> bool:
        return getattr(self._captures, "capture", None) is None and self._usual.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._usual, "encoding", "utf-8")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)


@contextlib.contextmanager
def routed_prints() -> Iterator[Callable[[TextCapture | None], None]]:
    """Within, a thread's prints go to the capture that it set by calling what is yielded."""
    captures = threading.local()
    usual = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Routed(usual[0], captures), _Routed(usual[1], captures)

    def to(capture: TextCapture | None) -> None:
        captures.capture = capture

    try:
        yield to
    finally:
        sys.stdout, sys.stderr = usual


@contextlib.contextmanager
def kept_surroundings(patchable: Sequence[tuple[str, str]] = ()) -> Iterator[None]:
    """Within, runs may change what they share with this process; it is restored at the end.

    Seeds of numpy's and Python's global generators, working directory, environment, standard
    streams and filters of warnings.
    """
    of_numpy, of_python = np.random.get_state(), random.getstate()
    try:
        with warnings.catch_warnings(), _Surroundings(True, patchable):
            yield
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def remember_sources(sources: Mapping[str, str]) -> None:
    """Make the text of notebook cells known to tracebacks in this process."""
    for filename, text in sources.items():
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)

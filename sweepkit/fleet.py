"""Worker processes, one by one: a death takes only itself, and tells which run it was.

Each worker is a process started by joblib's loky, with a pipe, a session (process group), a file
for what it prints, and a few bytes of shared memory, its claim, that say which run is on and
since when. So the run that ended a worker is known at once, a run that overruns is killed with
all its children, and neighbours do not notice.
"""

from __future__ import annotations

import faulthandler
import fcntl
import mmap
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import connection
from time import monotonic, perf_counter
from typing import Any

import cloudpickle
import numpy as np
from joblib import cpu_count
from joblib.externals.loky.backend import get_context

from sweepkit.evaluate import (
    DOOMED,
    SPAN,
    FileCapture,
    Station,
    Task,
    capped,
    evaluate,
    one_line,
    read_capped,
    remember_sources,
)
from sweepkit.protocols import Batch, Outcome, Result
from sweepkit.setup import SetupError, prepared
from sweepkit.status import Status

__all__ = ["Fleet", "WorkerStartError"]

CLAIM_BYTES = 64
TICK = 0.1
"""Longest wait, in seconds, before time limits and a wish to stop are looked at."""

GRACE = 1.0
"""Seconds that runs in flight have to end by themselves when the sweep is stopped."""

PREFETCH = 0.25
"""Batches expected to be shorter, in seconds, are sent ahead of time."""

STACK_SIGNAL = signal.SIGXCPU
"""Makes a worker write its stack; a signal that simulators have no use for."""

REFUSALS = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OSError,
)
"""What pickling raises for objects that it cannot take apart."""

ORPHAN_SECONDS = 2.0
"""How often, in seconds, a worker looks whether the driver is still its parent."""

LEAVE_SECONDS = 10.0
"""How long, in seconds, workers may take to leave what they set up."""

RECYCLE_BYTES = 2**30
"""Growth of a worker, in bytes, after which a fresh one takes over."""

BLAS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class WorkerStartError(RuntimeError):
    """Workers die before they run anything."""


def pickled(task: Task) -> bytes:
    """A task as bytes, or a TypeError that names what in it cannot be sent to a process."""
    try:
        return bytes(cloudpickle.dumps(task, protocol=5))
    except REFUSALS as fault:
        from sweepkit.identity import pickling_culprit

        sent = {"the simulator": task.function}
        sent |= {f"input {name!r}": one for name, one in task.inputs.items()}
        sent |= {f"setup {name!r}": one for name, one in task.setup.items()}
        found = ((what, pickling_culprit(one)) for what, one in sent.items())
        what, culprit = next((pair for pair in found if pair[1]), ("the simulator", None))
        raise TypeError(
            f"{what} cannot be sent to worker processes because of {culprit or fault}; "
            "make it inside the simulator, or run with backend='threading'"
        ) from fault


class _Member:
    """One worker as the driver sees it."""

    def __init__(self, number: int, folder: str, payload: bytes, threads: int) -> None:
        context = get_context("loky")
        self.number = number
        stem = os.path.join(folder, f"worker-{number}-{os.urandom(4).hex()}")
        self.log_path, claim_path = f"{stem}.log", f"{stem}.claim"
        with open(claim_path, "wb") as file:
            file.write(bytes(CLAIM_BYTES))
        with open(claim_path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), CLAIM_BYTES)
        self.claim = memoryview(self._map).cast("d")
        self.claim[0] = -1.0
        self.connection, theirs = context.Pipe()
        life, self._life = context.Pipe(duplex=False)
        # The process never gets this end: when the driver is gone, however it went, it closes.
        names = dict.fromkeys(BLAS, str(threads))
        self.process = context.Process(
            target=serve,
            args=(theirs, life, self.log_path, claim_path, threads),
            env=names,
        )
        # Until it has a session of its own, an interrupt of the driver would reach it, too.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        theirs.close()
        life.close()
        self.inflight: deque[Batch] = deque()
        self.ready = False
        self.grown = 0
        self.done = 0
        self.killed_for: tuple[int, float, str] | None = None
        """Row that overran, seconds it took, and what is said of it."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(payload)

    def send(self, batch: Batch) -> None:
        """Hand a batch over; a worker that is gone is seen by its sentinel."""
        runs = batch.runs
        spaced = (
            len(runs) > 1
            and runs[-1] - runs[0] == len(runs) - 1
            and bool((np.diff(runs) == 1).all())
        )
        plain = (int(runs[0]), int(runs[-1]) + 1) if spaced else runs
        self.inflight.append(batch)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps(plain, protocol=5))

    @property
    def running(self) -> tuple[int, float]:
        """Row that runs, or -1, and when it started (perf_counter)."""
        started = self.claim[1]
        return int(self.claim[0]), started

    @property
    def span(self) -> int:
        """How many runs, from the one that runs on, are in one call together."""
        return int(self.claim[SPAN])

    def let_leave(self) -> None:
        """Ask a worker without work to leave what it set up, and to end."""
        if self.ready and not self.inflight:
            self.connection.close()

    def kill(self) -> None:
        """End the worker and everything it started."""
        pid = self.process.pid
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill_with_stack(self) -> None:
        """As kill, but the stack it is in goes to its log first."""
        size = _size(self.log_path)
        self.claim[DOOMED] = 1.0
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, STACK_SIGNAL)
        end = monotonic() + 0.5
        while _size(self.log_path) == size and monotonic() < end and self.process.is_alive():
            connection.wait([self.process.sentinel], timeout=0.01)
        connection.wait([self.process.sentinel], timeout=0.05)
        self.kill()

    def close(self) -> str:
        """Let go of everything but the exit code; returns what was last printed."""
        self.kill()  # children may outlive the worker in its group
        self.process.join()
        self.connection.close()
        self._life.close()
        self.claim.release()
        self._map.close()
        text = ""
        with suppress(OSError):
            file = os.open(self.log_path, os.O_RDONLY)
            text = read_capped(file)
            os.close(file)
        return text


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


@dataclass
class Fleet:
    """Workers for one task, and the loop that keeps them busy."""

    task: Task
    count: int
    timeout: Callable[[], float | None] | None = None
    recycle_bytes: int | None = RECYCLE_BYTES
    recycle_runs: int | None = None

    def __post_init__(self) -> None:
        self._payload = pickled(self.task)
        self._folder = tempfile.mkdtemp(prefix="sweepkit-")
        self._members: list[_Member] = []
        self._cores = cpu_count()
        self._again: deque[Batch] = deque()
        self._strikes: dict[int, int] = {}
        self._unstarted = 0
        self.deaths = 0
        self._last_look = monotonic()
        self._allowance: dict[tuple[int, float], float] = {}
        self._oom_kills = oom_kills()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._let_leave(self._members)
        for member in self._members:
            member.kill()
        for member in self._members:
            member.close()
        self._members.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _let_leave(self, members: Sequence[_Member]) -> None:
        """Give workers the time to leave what they set up."""
        if not self.task.setup:
            return
        for member in members:
            member.let_leave()
        end = monotonic() + LEAVE_SECONDS
        for member in members:
            if member.connection.closed:
                member.process.join(max(end - monotonic(), 0.0))

    def _new(self, number: int) -> _Member:
        return _Member(number, self._folder, self._payload, self.task.threads)

    # --- the loop ---

    def map(self, batches: Iterator[Batch], stopping: Callable[[], bool]) -> Iterator[Outcome]:
        """See :class:`~sweepkit.protocols.Crew`."""
        source = iter(batches)
        exhausted = False
        deadline: float | None = None
        while True:
            if deadline is None and stopping():
                deadline = monotonic() + GRACE
                self._ask_to_stop()
            if deadline is None and not exhausted:
                exhausted = self._feed(source)
            elif deadline is None:
                self._feed(iter(()))
            busy = [member for member in self._members if member.inflight]
            if not busy and (deadline is not None or (exhausted and not self._again)):
                return
            if deadline is not None and monotonic() > deadline:
                return
            yield from self._collect(self._members, stopped=deadline is not None)

    def _feed(self, source: Iterator[Batch]) -> bool:
        """Give work to whoever has room; True when there is no more."""
        for depth in (1, 2):
            for member in self._members:
                while len(member.inflight) < depth and not self._worn(member):
                    if depth == 2 and any(b.seconds > PREFETCH for b in member.inflight):
                        break
                    batch = self._next(source)
                    if batch is None:
                        return True
                    self._hand(member, batch)
            while depth == 1 and self._may_hire():
                batch = self._next(source)
                if batch is None:
                    return True
                self._members.append(self._new(len(self._members)))
                self._hand(self._members[-1], batch)
        return False

    def _may_hire(self) -> bool:
        """Whether one more worker may be started: there is room, and cores to start it on."""
        starting = sum(not member.ready for member in self._members)
        return len(self._members) < self.count and starting < self._cores

    def _next(self, source: Iterator[Batch]) -> Batch | None:
        while self._again:
            batch = self._again.popleft()
            if len(batch):
                return batch
        return next((batch for batch in source if len(batch)), None)

    def _hand(self, member: _Member, batch: Batch) -> None:
        room = self._room(member)
        if len(batch) > room:
            self._again.appendleft(batch.part(slice(room, None)))
            batch = batch.part(slice(0, room))
        member.send(batch)

    def _room(self, member: _Member) -> int:
        """Runs that a worker may still be given before a fresh one takes over."""
        if self.recycle_runs is None:
            return sys.maxsize
        return self.recycle_runs - member.done - sum(map(len, member.inflight))

    def _collect(self, members: list[_Member], *, stopped: bool) -> Iterator[Outcome]:
        waited = {member.connection: member for member in members}
        waited |= {member.process.sentinel: member for member in members}
        ready = connection.wait(list(waited), timeout=TICK)
        # A child that a run forked may hold the dead worker's pipes open: ask the system, too.
        seen = [waited[one] for one in ready] or members
        for member in {id(one): one for one in seen}.values():
            yield from self._received(member)
            if not member.process.is_alive() and not member.connection.closed:
                yield from self._received(member)
                yield from self._bury(member, stopped=stopped)
        if self.timeout is not None and not stopped:
            limit = self.timeout()
            if limit is not None:
                self._kill_overdue(limit)

    def _received(self, member: _Member) -> Iterator[Outcome]:
        """Results that have arrived from a worker."""
        while True:
            try:
                if not member.connection.poll():
                    return
                message = pickle.loads(member.connection.recv_bytes())
            except (EOFError, ConnectionResetError, OSError):
                return
            if isinstance(message, str):
                raise SetupError(message)
            if message is None:
                member.ready = True
                self._unstarted = 0
                continue
            if member.killed_for is not None:
                continue  # the run overran; that the signal for its stack woke it does not count
            result, member.grown = message
            batch = member.inflight.popleft()
            done = len(result)
            member.done += done
            if done < len(batch):
                self._again.append(batch.part(slice(done, None)))
                batch = batch.part(slice(0, done))
            if done:
                yield Outcome(batch, result)
            if self._worn(member) and not member.inflight:
                self._replace(member)

    def _worn(self, member: _Member) -> bool:
        """Whether a worker has grown or run so much that a fresh one should take over."""
        if self._room(member) <= 0:
            return True
        return self.recycle_bytes is not None and member.grown > self.recycle_bytes

    def _replace(self, member: _Member) -> None:
        at = self._members.index(member)
        self._let_leave([member])
        member.close()
        self._members[at] = self._new(member.number)

    # --- deaths ---

    def _bury(self, member: _Member, *, stopped: bool) -> Iterator[Outcome]:
        (row, started), span = member.running, member.span
        seconds = perf_counter() - started
        inflight = list(member.inflight)
        killed_for, code = member.killed_for, member.process.exitcode
        if killed_for is not None:
            row, seconds, _ = killed_for
        printed = member.close()
        self.deaths += 1
        at = self._members.index(member)
        if not member.ready:
            self._unstarted += 1
            if not stopped and (code == 1 or self._unstarted >= 3):
                raise WorkerStartError(
                    f"workers die before they run anything, the last with {_cause(code)}:\n"
                    f"{printed.strip() or 'nothing was printed'}"
                )
        if stopped:
            self._members.pop(at)
        else:
            self._members[at] = self._new(member.number)
        if not inflight:
            return
        batch, *others = inflight
        if row < 0 and len(batch) == 1 and member.ready:
            row = 0  # it died around its only run, where results are packed
        if row < 0:
            half = len(batch) // 2 if member.ready else 0
            self._give_back([batch.part(slice(0, half)), batch.part(slice(half, None)), *others])
            return
        if span > 1:  # one call of many: its halves are tried until the run that did it is alone
            edges = (0, row, row + span // 2, row + span, None)
            parts = [batch.part(slice(*edge)) for edge in pairwise(edges)]
            self._give_back([*parts, *others])
            return
        before, after = batch.part(slice(0, row)), batch.part(slice(row + 1, None))
        suspect = batch.part(slice(row, row + 1))
        if killed_for is not None:
            status, error = Status.TIMEOUT, killed_for[2]
        elif self._convicted(int(suspect.runs[0]), code):
            status, error = Status.CRASHED, f"the worker died with {_cause(code)}{self._memory()}"
        else:
            self._give_back([suspect, before, after, *others])
            return
        self._give_back([before, after, *others])
        yield Outcome(
            suspect,
            Result(
                np.array([status], dtype=np.int8),
                np.array([seconds]),
                errors={0: one_line(error)},
                logs={0: capped(printed)} if printed else {},
            ),
        )

    def _give_back(self, batches: list[Batch]) -> None:
        self._again.extendleft(batch for batch in reversed(batches) if len(batch))

    def _convicted(self, run: int, code: int | None) -> bool:
        """Whether a death is the run's doing: at once, unless it may have come from outside."""
        if code is not None and -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
            self._strikes[run] = self._strikes.get(run, 0) + 1
            return self._strikes[run] >= 2
        return True

    def _memory(self) -> str:
        """Words for a death that the kernel counted as out of memory."""
        known, self._oom_kills = self._oom_kills, oom_kills()
        return ", out of memory" if self._oom_kills > known else ""

    def _kill_overdue(self, timeout: float) -> None:
        now, clock = monotonic(), perf_counter()
        slept = now - self._last_look > 10 * TICK + 1  # this process itself stood still
        self._last_look = now
        if slept:  # what ran meanwhile gets the time anew
            running = [(member.number, member.running[1]) for member in self._members]
            self._allowance = {(number, began): clock - began for number, began in running}
        for member in self._members:
            row, started = member.running
            if row < 0 or member.killed_for is not None or not member.inflight:
                continue
            if member.connection.poll():
                continue  # a result waits, so the claim may be of the next batch
            limit = timeout + self._allowance.get((member.number, started), 0.0)
            if clock - started > limit:
                error = f"the run took more than its time limit of {timeout:g} s"
                member.killed_for = (row, clock - started, error)
                member.kill_with_stack()

    def _ask_to_stop(self) -> None:
        for member in self._members:
            member.claim[2] = 1.0


def oom_kills() -> int:
    """Processes killed for want of memory: in this control group if it counts them, else in all."""
    groups: dict[str, str] = {}
    with suppress(OSError, ValueError), open("/proc/self/cgroup") as file:
        for line in file:
            _, kinds, group = line.rstrip().split(":", 2)
            groups |= dict.fromkeys(kinds.split(","), group)
    for path in (
        f"/sys/fs/cgroup{groups.get('', '')}/memory.events",
        "/sys/fs/cgroup/memory.events",
        f"/sys/fs/cgroup/memory{groups.get('memory', '')}/memory.oom_control",
        "/sys/fs/cgroup/memory/memory.oom_control",
        "/proc/vmstat",
    ):
        with suppress(OSError, ValueError), open(path) as file:
            for line in file:
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    return 0


def _cause(code: int | None) -> str:
    if code is None:
        return "no exit code"
    if code < 0:
        try:
            return f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


# --- in the worker -----------------------------------------------------------------------------


def serve(pipe: Any, life: Any, log_path: str, claim_path: str, threads: int) -> None:
    """What a worker process does: take batches from the pipe until it closes."""
    os.setsid()
    _die_with(life)
    touched = bytearray(1)
    capture = FileCapture(log_path, touched)
    os.set_inheritable(pipe.fileno(), False)
    faulthandler.register(STACK_SIGNAL, file=capture.fileno, all_threads=True)
    # Nothing to do here, yet no SIG_IGN, which child processes would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with open(claim_path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), CLAIM_BYTES)
    claim = memoryview(mapped).cast("d")
    try:
        payload = pipe.recv_bytes()
    except EOFError:
        return
    task = pickle.loads(payload)
    remember_sources(task.sources)
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)
    station = Station(capture, claim, touched, watched=True, scratch=os.path.dirname(log_path))
    try:
        with prepared(task.inputs, task.setup) as handed:
            capture.take()
            pipe.send_bytes(pickle.dumps(None, protocol=5))
            _work(pipe, task, replace(station, handed=handed))
    except SetupError as fault:
        pipe.send_bytes(pickle.dumps(str(fault), protocol=5))


def _work(pipe: Any, task: Task, station: Station) -> None:
    """Run batches until the pipe closes."""
    at_first = _resident()
    while True:
        try:
            plain = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        runs = np.arange(*plain, dtype=np.int64) if isinstance(plain, tuple) else plain
        result = evaluate(task, runs, station)
        message = pickle.dumps((result, _resident() - at_first), protocol=5)
        pipe.send_bytes(message)


def _die_with(life: Any) -> None:
    """End this process and all it started when the driver closes its end of a pipe.

    On Linux the kernel does it, by a signal to the process group, whatever runs here; elsewhere
    a thread does, which has to wait while C code holds the interpreter.
    """
    if sys.platform == "linux":
        set_signal = 10  # F_SETSIG, which the fcntl module does not name
        fcntl.fcntl(life.fileno(), fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(life.fileno(), set_signal, signal.SIGKILL)
        flags = fcntl.fcntl(life.fileno(), fcntl.F_GETFL)
        fcntl.fcntl(life.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)

    parent = os.getppid()

    def watch() -> None:
        # A process that the driver forked may hold the pipe open, so its own end is looked for.
        with suppress(EOFError, OSError):
            while os.getppid() == parent:
                if life.poll(ORPHAN_SECONDS):
                    life.recv_bytes()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _resident() -> int:
    """Memory that the process holds, bytes."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

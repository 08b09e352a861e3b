"""Worker processes, one by one: a death takes only itself, and tells which run it was.

Each worker is a fresh Python process, with a pipe, a session (process group), a file for what it
prints, and a few bytes of shared memory, its claim, that say which run is on and since when. So
the run that ended a worker is known at once, a run that overruns is killed with all its children,
and neighbours do not notice.
"""

from __future__ import annotations

import math
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import connection
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from joblib import cpu_count

from sweepkit import keeper
from sweepkit.capture import capped, one_line
from sweepkit.deaths import cause, oom_kills
from sweepkit.evaluate import PATIENT, STOP, Task
from sweepkit.member import Member
from sweepkit.pickling import pickled_value, pickling_culprit
from sweepkit.premises import Premises
from sweepkit.protocols import Batch, Outcome, Result, Share, everyone
from sweepkit.setup import SetupError
from sweepkit.status import Status

__all__ = ["Fleet", "WorkerStartError"]

TICK = 0.1
"""Longest wait, in seconds, before time limits and a wish to stop are looked at."""

GRACE = 1.0
"""Seconds that runs in flight have to end by themselves when the sweep is stopped."""

PREFETCH = 0.25
"""Batches expected to be shorter, in seconds, are sent ahead of time."""

DEEPEST = 4
"""Most batches in flight at a worker, where they are so short that it might run out of them."""

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

LEAVE_SECONDS = 10.0
"""How long, in seconds, workers may take to leave what they set up."""

SETUP_TIMES = 10.0
SETUP_LEAST = 60.0
"""Where runs have a time limit, setting up has one of so many times theirs, and of as many seconds
at least: what is loaded once may take longer than a run."""

RECYCLE_BYTES = 2**30
"""Growth of a worker, in bytes, after which a fresh one takes over."""

PATIENCE = 20
"""Workers replaced for what runs left behind, after which that is only noted: each costs time."""


class WorkerStartError(RuntimeError):
    """Workers die before they run anything."""


def pickled(task: Task) -> bytes:
    """A task as bytes, or a TypeError that names what in it cannot be sent to a process."""
    try:
        return pickled_value(task)
    except REFUSALS as fault:
        sent = {"the simulator": task.function}
        sent |= {f"input {name!r}": one for name, one in task.inputs.items()}
        sent |= {f"setup {name!r}": one for name, one in task.setup.items()}
        found = ((what, pickling_culprit(one)) for what, one in sent.items())
        what, culprit = next((pair for pair in found if pair[1]), ("the simulator", None))
        raise TypeError(
            f"{what} cannot be sent to worker processes because of {culprit or fault}; "
            "make it inside the simulator, or run with backend='threading'"
        ) from fault


@dataclass
class Fleet:
    """Workers for one task, and the loop that keeps them busy."""

    payload: bytes
    """The task, pickled."""
    threads: int
    count: int
    timeout: Callable[[], float | None] | None = None
    recycle_bytes: int | None = RECYCLE_BYTES
    recycle_runs: int | None = None
    leaves: bool = False
    """Whether workers set up something that they are to leave at their end."""

    def __post_init__(self) -> None:
        self._premises = Premises()
        self._members: list[Member] = []
        self._hired = 0
        self._cores = cpu_count()
        self._again: deque[Batch] = deque()
        self._strikes: dict[int, int] = {}
        self._unstarted = 0
        self._retired = 0
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
        self._premises.leave()

    def _let_leave(self, members: Sequence[Member]) -> None:
        """Give workers the time to leave what they set up."""
        if not self.leaves:
            return
        for member in members:
            member.let_leave()
        end = monotonic() + LEAVE_SECONDS
        for member in members:
            if member.connection.closed:
                member.process.wait(max(end - monotonic(), 0.0))

    def _hire(self) -> Member:
        self._hired += 1
        return self._new(self._hired - 1)

    def _new(self, number: int) -> Member:
        most = math.inf if self.recycle_bytes is None else self.recycle_bytes
        member = Member(number, self._premises.path, self.payload, self.threads, most)
        member.claim[PATIENT] = float(self._retired >= PATIENCE)
        return member

    # --- the loop ---

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`."""
        source = iter(batches)
        exhausted = False
        deadline: float | None = None
        while True:
            if deadline is None and stopping():
                deadline = monotonic() + GRACE
                self._ask_to_stop()
            allowed = min(share(len(self._members)), self.count)
            if len(self._members) > allowed:
                self._let_go(len(self._members) - allowed)
            elif deadline is None and not exhausted:
                exhausted = self._feed(source, allowed)
            elif deadline is None:
                self._feed(iter(()), allowed)
            busy = [member for member in self._members if member.inflight]
            if not busy and (deadline is not None or (exhausted and not self._again)):
                return
            if deadline is not None and monotonic() > deadline:
                return
            yield from self._collect(self._members, stopped=deadline is not None)
            yield None

    def _let_go(self, count: int) -> None:
        """End so many workers, at most, that have nothing to do."""
        for member in [one for one in self._members if not one.inflight][:count]:
            self._members.remove(member)
            self._let_leave([member])
            member.close()
            keeper.end_kin(member.place)

    def _feed(self, source: Iterator[Batch], allowed: int) -> bool:
        """Give work to whoever has room; True when there is no more.

        A worker that is still starting has none, as what comes first is not to wait for it while
        others are free; but where it sets something up, so that it is not let go half set up.
        """
        for depth in range(1, DEEPEST + 1):
            for member in self._members:
                while (
                    (member.ready or self.leaves)
                    and len(member.inflight) < depth
                    and self._room(member) > 0
                ):
                    ahead = max((b.seconds for b in member.inflight), default=0.0)
                    if ahead > (PREFETCH if depth == 2 else PREFETCH / 10):
                        break
                    batch = self._next(source)
                    if batch is None:
                        return True
                    self._hand(member, batch)
            if depth == 1 and not self._hire_for(source, allowed):
                return True
        return False

    def _hire_for(self, source: Iterator[Batch], allowed: int) -> bool:
        """Start workers, each for a batch that is there; False when there is no more."""
        while self._may_hire(allowed):
            starting = sum(not member.ready for member in self._members)
            while len(self._again) <= starting:
                batch = next((batch for batch in source if len(batch)), None)
                if batch is None:
                    return False
                self._again.append(batch)
            self._members.append(self._hire())
        return True

    def _may_hire(self, allowed: int) -> bool:
        """Whether one more worker may be started: there is room, and cores to start it on."""
        starting = sum(not member.ready for member in self._members)
        return len(self._members) < allowed and starting < self._cores

    def _next(self, source: Iterator[Batch]) -> Batch | None:
        while self._again:
            batch = self._again.popleft()
            if len(batch):
                return batch
        return next((batch for batch in source if len(batch)), None)

    def _hand(self, member: Member, batch: Batch) -> None:
        room = self._room(member)
        if len(batch) > room:
            self._again.appendleft(batch.part(slice(room, None)))
            batch = batch.part(slice(0, room))
        member.send(batch)

    def _room(self, member: Member) -> int:
        """Runs that a worker may still be given before a fresh one takes over."""
        waiting = sum(map(len, member.inflight))
        room = sys.maxsize if self.recycle_runs is None else self.recycle_runs - member.done
        return room - waiting

    def _collect(self, members: list[Member], *, stopped: bool) -> Iterator[Outcome]:
        waited: dict[Any, Member] = {member.process.sentinel: member for member in members}
        waited |= {member.connection: member for member in members if not member.cut_off}
        ready = connection.wait([*waited], timeout=TICK)
        # A child that a run forked may hold the dead worker's pipes open: ask the system, too.
        seen = [waited[one] for one in ready] or members
        for member in {id(one): one for one in seen}.values():
            yield from self._received(member)
            if member.process.exit_code is not None and not member.connection.closed:
                yield from self._received(member)
                yield from self._bury(member, stopped=stopped)
        if self.timeout is not None and not stopped:
            limit = self.timeout()
            if limit is not None:
                self._kill_overdue(limit)

    def _received(self, member: Member) -> Iterator[Outcome]:
        """Results that have arrived from a worker."""
        while not member.cut_off:
            try:
                if not member.connection.poll():
                    return
                message = pickle.loads(member.connection.recv_bytes())
            except (EOFError, ConnectionResetError, OSError):
                member.cut_off = True
                return
            if isinstance(message, str):
                raise SetupError(message)
            if message is None:
                member.ready = True
                self._unstarted = 0
                self._premises.watch()
                continue
            if member.killed_for is not None:
                continue  # the run overran; that the signal for its stack woke it does not count
            result, goes_on, worn, grown = message
            batch = member.inflight[0]
            done, rest = len(result), batch.part(slice(len(result), None))
            member.done += done
            if goes_on:
                member.inflight[0] = rest
            else:
                member.inflight.popleft()
                if len(rest):
                    self._again.append(rest)
            if worn:
                self._retire(member, grown=grown)
            elif self._room(member) <= 0 and not member.inflight:
                self._replace(member)
            if done:
                yield Outcome(batch.part(slice(0, done)) if len(rest) else batch, result)
            if worn or member.connection.closed:
                return

    def _retire(self, member: Member, *, grown: bool) -> None:
        """Have a fresh worker take over from one that grew, or keeps what cannot be undone."""
        self._retired += not grown
        self._give_back(list(member.inflight))
        member.inflight.clear()
        self._replace(member)
        if self._retired >= PATIENCE:
            for one in self._members:
                one.claim[PATIENT] = 1.0

    def _replace(self, member: Member) -> None:
        at = self._members.index(member)
        self._let_leave([member])
        member.close()
        keeper.end_kin(member.place)
        self._members[at] = self._new(member.number)

    # --- deaths ---

    def _bury(self, member: Member, *, stopped: bool) -> Iterator[Outcome]:
        (row, started), span = member.running, member.span
        seconds = perf_counter() - started
        inflight = list(member.inflight)
        killed_for, code = member.killed_for, member.process.exit_code
        if killed_for is not None:
            row, seconds, _ = killed_for
        printed = member.close()
        keeper.end_kin(member.place)
        self.deaths += 1
        at = self._members.index(member)
        if not member.ready:
            self._unstarted += 1
            if not stopped and (code == 1 or self._unstarted >= 3):
                raise WorkerStartError(
                    f"workers die before they run anything, the last with {cause(code)}:\n"
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
            parts = [batch.part(slice(0, half)), batch.part(slice(half, None))]
            begun = [one.begun() for one in parts] if member.ready else parts
            self._give_back([*begun, *others])
            return
        if span > 1:  # one call of many: its halves are tried until the run that did it is alone
            edges = (0, row, row + span // 2, row + span, None)
            tried = [batch.part(slice(*edge)) for edge in pairwise(edges)]
            self._give_back([*(one.begun() for one in tried[:-1]), tried[-1], *others])
            return
        before, after = batch.part(slice(0, row)).begun(), batch.part(slice(row + 1, None))
        suspect = batch.part(slice(row, row + 1))
        if killed_for is not None:
            status, error = Status.TIMEOUT, killed_for[2]
        elif self._convicted(int(suspect.runs[0]), code):
            status, error = Status.CRASHED, f"the worker died with {cause(code)}{self._memory()}"
        else:
            self._give_back([suspect.begun(), before, after, *others])
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
        if self.leaves:
            self._end_endless_setup(timeout, clock, slept=slept)
        for member in self._members:
            row, started = member.running
            if row < 0 or member.killed_for is not None or not member.inflight:
                continue
            if not member.cut_off and member.connection.poll():
                continue  # a result waits, so the claim may be of the next batch
            limit = timeout + self._allowance.get((member.number, started), 0.0)
            if clock - started > limit:
                error = f"the run took more than its time limit of {timeout:g} s"
                member.killed_for = (row, clock - started, error)
                member.kill_with_stack()

    def _end_endless_setup(self, timeout: float, clock: float, *, slept: bool) -> None:
        """Raise if a worker has been setting up for far longer than a run may take."""
        limit = max(SETUP_TIMES * timeout, SETUP_LEAST)
        for member in self._members:
            if slept:
                member.hired = clock
            if (
                not member.ready
                and clock - member.hired > limit
                and member.process.exit_code is None
            ):
                member.kill_with_stack()
                self._members.remove(member)
                raise SetupError(
                    f"setting up took a worker more than {limit:g} s, the limit where runs have "
                    f"one of {timeout:g} s; make it quicker, or the time limit longer\n"
                    f"{member.close().strip()}"
                )

    def _ask_to_stop(self) -> None:
        for member in self._members:
            member.claim[STOP] = 1.0

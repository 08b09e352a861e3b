"""Several jobs on one machine: worker slots that go from job to job as a policy says.

Each job keeps workers of its own, started for it and ended with it, so that neither a death nor
what a simulator leaves in its process reaches another job. What is shared is how many of them
there may be: a crew asks for its share before it hands out a batch, and lets a worker go when the
share has shrunk.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweepkit.policies import Policy, Standing, checked_choice, fair_finish, fair_shares
from sweepkit.protocols import Batch, Crew, Executor, Outcome, Share, everyone

__all__ = ["Seat", "Seated", "Slots"]

SLICE = 2.0
"""Seconds that a job keeps a worker at least, since starting one takes a part of that."""

POLL = 0.05
"""How often, in seconds, a job that waits for its first worker asks."""

FRESH = 0.02
"""How long, in seconds, the policy's word holds while the same jobs are there."""


@dataclass(eq=False)
class Seat:
    """One job at a pool.

    Attributes
    ----------
    weight, priority
        As in :class:`~sweepkit.policies.Standing`.
    deadline : float
        By the clock of the slots, infinite without.
    outlook : callable
        Gives the runs to be finished (0 during a pause) and the seconds that one takes.
    arrived : float
        By the clock of the slots.
    using, granted : int
        Workers that there are, and that there may be.
    held, entitled : float
        Worker-seconds, as in :class:`~sweepkit.policies.Standing`.
    """

    weight: float
    priority: int
    deadline: float
    outlook: Callable[[], tuple[int, float]]
    arrived: float
    using: int = 0
    granted: int = 0
    held: float = 0.0
    entitled: float = 0.0
    grown: float = -math.inf
    most: int = 1
    left: float = math.nan
    target: int = 0


@dataclass
class Slots:
    """Worker slots and the seats that share them; may be asked from any thread.

    Attributes
    ----------
    workers : int
        Slots in all.
    policy : Policy
        Says which seat gets the next.
    clock : callable
        Seconds.
    """

    workers: int
    policy: Policy = fair_finish
    clock: Callable[[], float] = time.monotonic
    seats: list[Seat] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _settled: float = 0.0
    _decided: float = -math.inf

    def join(self, seat: Seat) -> None:
        """Take part."""
        with self._lock:
            self._settle()
            self.seats.append(seat)
            self._decided = -math.inf

    def leave(self, seat: Seat) -> None:
        """Give back what it has."""
        with self._lock:
            self._settle()
            self.seats.remove(seat)
            seat.using = seat.granted = 0
            self._decided = -math.inf

    def share(self, seat: Seat, using: int) -> int:
        """How many workers a seat may have that has some; it is to let go what is more."""
        with self._lock:
            self._settle()
            seat.using = using
            now = self._settled
            if now - self._decided >= FRESH:
                self._decide()
                self._decided = now
            target = seat.target
            if target < using and now - seat.grown < SLICE:
                target = min(using, seat.most)
            taken = sum(max(one.using, one.granted) for one in self.seats if one is not seat)
            granted = max(min(target, self.workers - taken), 0)
            if granted > using:
                seat.grown = now
            seat.granted = granted
            return granted

    def _settle(self) -> None:
        """Account for the time since it was last done: held by use, entitled by weight."""
        now = self.clock()
        passed, self._settled = now - self._settled, now
        if not self.seats:
            return
        most = np.array([one.most for one in self.seats])
        weight = np.array([one.weight for one in self.seats])
        shares = fair_shares(weight, most, self.workers)
        for one, fair in zip(self.seats, shares.tolist(), strict=True):
            one.held += one.using * passed
            one.entitled += fair * passed

    def _decide(self) -> None:
        """Give out all slots one by one: how many workers each seat should have."""
        for one in self.seats:
            _look(one, self.workers)
        counts = [0] * len(self.seats)
        for _ in range(self.workers):
            able = [at for at, one in enumerate(self.seats) if counts[at] < one.most]
            if not able:
                break
            chosen = self.policy(self._standing(able, counts))
            counts[able[checked_choice(chosen, len(able))]] += 1
        for one, count in zip(self.seats, counts, strict=True):
            one.target = count

    def _standing(self, able: list[int], counts: list[int]) -> Standing:
        seats = [self.seats[at] for at in able]
        now = self.clock()
        return Standing(
            weight=np.array([one.weight for one in seats]),
            priority=np.array([one.priority for one in seats]),
            arrived=np.array([one.arrived for one in seats]),
            workers=np.array([counts[at] for at in able]),
            most=np.array([one.most for one in seats]),
            held=np.array([one.held for one in seats]),
            entitled=np.array([one.entitled for one in seats]),
            left=np.array([one.left for one in seats]),
            deadline=np.array([one.deadline - now for one in seats]),
        )


def _look(seat: Seat, workers: int) -> None:
    """Take in what a job has left."""
    pending, cost = seat.outlook()
    seat.left = pending * cost if pending else 0.0
    seat.most = min(pending, workers)


class Seated:
    """An executor whose crew has as many workers as a seat at a pool allows.

    Parameters
    ----------
    inner : Executor
        Where runs are run; must hire workers when it hands out batches and not before.
    slots : Slots
    seat : Seat
    stopping : callable
        Whether to wait no longer for a first worker.
    """

    def __init__(
        self, inner: Executor, slots: Slots, seat: Seat, stopping: Callable[[], bool]
    ) -> None:
        self.inner = inner
        self.slots = slots
        self.seat = seat
        self.stopping = stopping

    @property
    def workers(self) -> int:
        """Workers that the job has now, and at least the one that it will have."""
        return max(self.seat.granted, 1)

    @property
    def holding(self) -> int:
        """Workers that the job holds now, for its meter; none while others have them all."""
        return max(self.seat.using, self.seat.granted)

    @contextmanager
    def hold(self, task: Any, *, timeout: Callable[[], float | None] | None) -> Iterator[Crew]:
        """See :class:`~sweepkit.protocols.Executor`; waits for a first worker."""
        self.slots.join(self.seat)
        try:
            while not self.slots.share(self.seat, 0) and not self.stopping():
                time.sleep(POLL)
            with self.inner.hold(task, timeout=timeout) as crew:
                yield _SeatedCrew(crew, self.slots, self.seat)
        finally:
            self.slots.leave(self.seat)


@dataclass
class _SeatedCrew:
    crew: Crew
    slots: Slots
    seat: Seat

    def map(
        self, batches: Iterator[Batch], stopping: Callable[[], bool], share: Share = everyone
    ) -> Iterator[Outcome | None]:
        """See :class:`~sweepkit.protocols.Crew`."""

        def both(using: int) -> int:
            own, granted = share(using), self.slots.share(self.seat, using)
            # Without a run left, and without a pause, it may go on to find that there is none.
            return min(own, granted or int(self.seat.most == 0))

        return self.crew.map(batches, stopping, both)

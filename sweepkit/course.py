"""How far a session is: its state, counts and clocks, what is left and why, what it tells."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from sweepkit.cost import Cost
from sweepkit.judge import Tally
from sweepkit.receipt import LIVE, Meter
from sweepkit.request import Request
from sweepkit.status import UNSUCCESSFUL, Example, Progress

__all__ = ["Course"]

CLOSING = 0.15
"""Seconds that ending takes once a limit is seen: the look for it, and letting workers go."""
CLOSING_WORKER = 0.02
"""The same for each worker."""
MOST_CLOSING = 0.1
"""The largest share of a limit that is kept for it."""


@dataclass
class Course:
    """The course of one session; the session moves it on, and anyone may read it.

    Attributes
    ----------
    request : Request or None
        Limits at which to stop.
    total : int
        Runs that were pending when the session began.
    state : str
        One of :data:`sweepkit.status.STATES`.
    tally : Tally
    meter : Meter
        Counts while compute is held.
    examples : list of Example
        The first run of each kind of error.
    pausing : bool
        Whether no more runs are to be begun for now.
    stop_wishes : int
        How often it was asked to end.
    interrupted : bool
        Whether a person interrupted.
    ending : Exception or None
        What it ends with by the failure policy.
    waiting : str
        Why there is no worker, while it is waited for.
    """

    request: Request | None
    total: int = 0
    state: str = "declared"
    tally: Tally = field(default_factory=Tally)
    meter: Meter = field(default_factory=Meter)
    examples: list[Example] = field(default_factory=list)
    pausing: bool = False
    stop_wishes: int = 0
    interrupted: bool = False
    ending: Exception | None = None
    waiting: str = ""
    _asked: float = field(default_factory=time.monotonic)
    _began: float = field(default_factory=time.monotonic)
    _queued: float = 0.0
    _paused_at: float | None = None
    _paused_seconds: float = 0.0

    # --- what happens ---

    def stop(self) -> None:
        """Note a wish to end soon."""
        self.stop_wishes += 1

    def held(self, workers: int) -> None:
        """Compute is held from now on."""
        self.meter.hold(workers)
        self._began = time.monotonic()
        self._queued = self._began - self._asked

    def pause(self, paused: bool) -> bool:
        """Stop or start the clock; whether that is a change."""
        if paused == (self._paused_at is not None):
            return False
        now = time.monotonic()
        if self._paused_at is not None:
            self._paused_seconds += now - self._paused_at
        self._paused_at = now if paused else None
        return True

    @property
    def going(self) -> str:
        """How it goes on, for its receipt."""
        return "running" if self._paused_at is None else "paused"

    # --- limits ---

    @property
    def limited(self) -> bool:
        """Whether there is a limit at which to stop."""
        return self.request is not None and self.request.limited

    def time_left(self, workers: int) -> tuple[float, str]:
        """Seconds until the first limit of the request is to be ended for, and what it is.

        Workers are held while they end, so that is begun a little before.
        """
        if self.request is None or not self.limited:
            return math.inf, ""
        held = self.meter.seconds
        left, limit = self.request.left(held, workers, self.meter.core_seconds)
        closing = CLOSING + CLOSING_WORKER * workers
        return left - min(closing, MOST_CLOSING * max(left + held, 0.0)), limit

    # --- what is left ---

    @property
    def unfinished(self) -> int:
        """Runs of this session that are still pending; at most, while a mask is uncounted."""
        return max(self.total - self.tally.counts.total(), 0)

    def left(self, workers: int) -> str:
        """What is left and why; empty if nothing is."""
        if not self.unfinished:
            return ""
        runs = f"{self.unfinished:,} run{'' if self.unfinished == 1 else 's'}"
        if self.ending is not None:
            return f"{runs}: the session ended with {type(self.ending).__name__}"
        if self.interrupted or self.stop_wishes:
            return f"{runs}: the session was stopped"
        seconds, limit = self.time_left(workers)
        if seconds <= 0:
            return f"{runs}: {limit} is reached"
        if self.tally.dropped:
            return f"{runs}: none of them is sure to end within {limit}"
        return runs

    @property
    def outcome(self) -> str:
        """How the session came to its end, in one word."""
        if self.ending is not None:
            return "failed"
        if self.interrupted or self.stop_wishes:
            return "cancelled"
        return "limit" if self.limited and self.unfinished else "done"

    # --- what is told ---

    def progress(self, cost: Cost, workers: int, *, judged: bool) -> Progress:
        """How far it is, for whoever watches.

        Parameters
        ----------
        cost : Cost
            Of a run.
        workers : int
        judged : bool
            Whether there are requirements.
        """
        now = time.monotonic() if self._paused_at is None else self._paused_at
        elapsed = now - self._began - self._paused_seconds
        ran = self.tally.settled
        left = self.unfinished
        expected, low, high = cost.remaining(left, workers)
        if elapsed > 1 and ran and expected > 0:  # as slow as it has been, at least
            factor = max(left * elapsed / ran / expected, 1.0)
            expected, low, high = expected * factor, low * factor, high * factor
        return Progress(
            self.total,
            self.tally.by_name,
            self.tally.failed,
            elapsed,
            ran / elapsed if elapsed > 0 and ran else math.nan,
            (expected, low, high),
            dict(self.tally.errors),
            self.state,
            self.tally.busy_seconds,
            workers,
            judged,
            tuple(self.examples),
            self.left(workers) if self.state == "done" and self.request is not None else "",
            self.waiting if self.state == "queued" else "",
        )

    def account(self, state: str, workers: int) -> dict[str, Any]:
        """What its receipt says of it."""
        runs = self.tally.by_name
        said = {
            "state": state,
            "workers": workers,
            "runs": runs,
            "failed": self.tally.failed,
            "queued_seconds": self._queued,
            "held_seconds": self.meter.core_seconds,
            "used_seconds": self.tally.busy_seconds,
            "wasted": sum(runs.get(one.word, 0) for one in UNSUCCESSFUL) + self.tally.repeated,
            "wasted_seconds": self.tally.wasted_seconds,
            "errors": dict(self.tally.errors.most_common(50)),
            "notes": dict(self.tally.notes.most_common(50)),
            "interrupted": self.interrupted,
        }
        if self.request is not None:
            said["request"] = self.request.to_json()
        if state not in LIVE:
            said["left"] = self.left(workers)
        return said

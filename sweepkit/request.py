"""What a sweep is given: workers, and a limit in time or in compute at which it stops."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np

from sweepkit.quantities import (
    core_seconds,
    core_text,
    moment,
    moment_text,
    seconds,
    time_text,
)

__all__ = ["Request"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Compute asked for: so many workers, until a deadline, for a time, or for a budget.

    A sweep under a request stops cleanly at the first limit that is reached. Shortly before, it
    starts no run that might overrun it: none whose cost stays below what is left with less than
    95 % probability. What is left is run by the same call later.

    Parameters
    ----------
    workers : int, optional
        Runs at the same time.
    deadline : str, datetime or timedelta, optional
        When to be done: the next such local time ("07:00"), an ISO date and time, a time from now
        ("2 h"), or a datetime, local if it has no zone.
    duration : float, str or timedelta, optional
        How long compute may be held: seconds, or text such as "30 min".
    budget : float, str or timedelta, optional
        Core-seconds that may be held, or text such as "4 core-hours"; a worker held for a second
        is one, whether it is busy or not.

    Raises
    ------
    ValueError
        If a limit is past, or cannot be read.

    Examples
    --------
    >>> Request(workers=8, budget="4 core-hours")
    Request(workers=8, budget='4 core-hours')
    """

    workers: int | None = None
    deadline: Any = None
    duration: Any = None
    budget: Any = None
    ends: datetime | None = field(init=False, repr=False, default=None)
    """The deadline as a point in time."""
    seconds: float | None = field(init=False, repr=False, default=None)
    """The duration in seconds."""
    core_seconds: float | None = field(init=False, repr=False, default=None)
    """The budget in core-seconds."""

    def __post_init__(self) -> None:
        whole = isinstance(self.workers, int | np.integer) and not isinstance(self.workers, bool)
        if self.workers is not None and (not whole or self.workers < 1):
            raise ValueError(f"workers is {self.workers!r}; give a whole number of at least 1")
        for name, given, read in (
            ("ends", self.deadline, moment),
            ("seconds", self.duration, seconds),
            ("core_seconds", self.budget, core_seconds),
        ):
            if given is not None:
                object.__setattr__(self, name, read(given))

    def __repr__(self) -> str:
        said = {name: getattr(self, name) for name in ("workers", "deadline", "duration", "budget")}
        told = ", ".join(f"{name}={value!r}" for name, value in said.items() if value is not None)
        return f"Request({told})"

    @property
    def limited(self) -> bool:
        """Whether there is any limit but that on workers."""
        return any(one is not None for one in (self.ends, self.seconds, self.core_seconds))

    @property
    def past(self) -> bool:
        """Whether the deadline is over already."""
        return self.ends is not None and self.ends.timestamp() <= time.time()

    def after(self, held: float, core_held: float) -> Request | None:
        """What is left of it once so many seconds and core-seconds were held; None if nothing is.

        Parameters
        ----------
        held, core_held : float
        """
        seconds = None if self.seconds is None else self.seconds - held
        budget = None if self.core_seconds is None else self.core_seconds - core_held
        if self.past or any(one is not None and one <= 0 for one in (seconds, budget)):
            return None
        return replace(self, deadline=self.ends, duration=seconds, budget=budget)

    def left(self, held: float, workers: int, core_held: float | None = None) -> tuple[float, str]:
        """How long compute may still be held.

        Parameters
        ----------
        held : float
            Seconds for which it has been held.
        workers : int
            How many are held now.
        core_held : float, optional
            Core-seconds that have been held; by default as if so many workers had been all along.

        Returns
        -------
        tuple of (float, str)
            Seconds until the first limit, below 0 if it is past, infinite if there is none; and
            that limit in words.
        """
        found = [(float("inf"), "")]
        if self.ends is not None:
            text = f"the deadline of {moment_text(self.ends)}"
            found.append((self.ends.timestamp() - time.time(), text))
        if self.seconds is not None:
            found.append((self.seconds - held, f"the duration of {time_text(self.seconds)}"))
        if self.core_seconds is not None:
            text = f"the budget of {core_text(self.core_seconds)}"
            spent = held * workers if core_held is None else core_held
            found.append(((self.core_seconds - spent) / workers, text))
        return min(found)

    def to_json(self) -> dict[str, Any]:
        """As plain data: the deadline in ISO form, times in seconds, without what is not asked."""
        said = {
            "workers": None if self.workers is None else int(self.workers),
            "deadline": None if self.ends is None else self.ends.isoformat(timespec="seconds"),
            "duration": self.seconds,
            "budget": self.core_seconds,
        }
        return {name: value for name, value in said.items() if value is not None}

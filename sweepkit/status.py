"""What became of a run."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ENDINGS", "NAMES", "STATES", "UNSUCCESSFUL", "Example", "Progress", "Status"]


class Status(enum.IntEnum):
    """What became of a run, as stored in the variable ``status`` (int8).

    NaN is a legal output, so it says nothing about whether a run has finished: this does.

    Examples
    --------
    >>> Status.CRASHED.word
    'crashed'
    """

    PENDING = 0
    """Not run, or not finished."""
    DONE = 1
    """The simulator returned and its outputs are stored."""
    ERROR = 2
    """The simulator raised."""
    TIMEOUT = 3
    """The run overran its time limit and was killed."""
    CRASHED = 4
    """The run ended its worker process: a signal, out of memory, ``os._exit``."""
    INVALID = 5
    """The simulator returned what does not fit the sweep's outputs."""
    SKIPPED = 6
    """The grid's validity mask leaves this point out; it is never run."""

    @property
    def word(self) -> str:
        """The status as it is shown, in lower case."""
        return self.name.lower()


NAMES: tuple[str, ...] = tuple(status.word for status in Status)
"""Word of each status, in the order of their numbers."""

UNSUCCESSFUL: tuple[Status, ...] = (Status.ERROR, Status.TIMEOUT, Status.CRASHED, Status.INVALID)
"""Of runs that came to an end without a result."""


STATES: tuple[str, ...] = (
    "declared",
    "queued",
    "held",
    "running",
    "paused",
    "collecting",
    "done",
    "cancelled",
    "failed",
)
"""What a job can be: declared while the store is looked at, queued until compute is held, held
until the first run begins, running or paused, collecting once the last has ended."""

ENDINGS: tuple[str, ...] = ("done", "cancelled", "failed")
"""The states in which a job has ended."""


@dataclass(frozen=True)
class Example:
    """The first run of a session that ended in one kind of error.

    Attributes
    ----------
    kind : str
        The exception's type, or the status.
    error : str
        In one line.
    where : str
        Its parameters.
    log : str
        What it printed, and the traceback.
    """

    kind: str
    error: str
    where: str
    log: str


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes
    ----------
    total : int
        Runs that were pending when the session began; at most, while a mask is uncounted.
    counts : mapping of str to int
        Runs of this session by status.
    failed : int
        Runs that are done and do not satisfy a requirement.
    elapsed : float
        Seconds since compute was held, without those paused.
    rate : float
        Runs per second of late; NaN while unknown.
    remaining : tuple of float
        Seconds still to go as (expected, low, high); NaN while unknown.
    errors : mapping of str to int
        Errors of this session by kind: the exception's type, or the status.
    state : str
        "declared", "queued", "held", "running", "paused", "collecting", "done", "cancelled" or
        "failed".
    used : float
        Seconds that runs took, added up.
    workers : int
        Runs that go on at the same time.
    judged : bool
        Whether there are requirements that runs can fail.
    examples : tuple of Example
        The first run of each kind of error.
    note : str
        What a limit left to be run, and why.
    waiting : str
        Why there is no worker yet, or no more, while the state is "queued".
    """

    total: int
    counts: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    elapsed: float = 0.0
    rate: float = math.nan
    remaining: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    errors: Mapping[str, int] = field(default_factory=dict)
    state: str = "running"
    used: float = 0.0
    workers: int = 0
    judged: bool = False
    examples: tuple[Example, ...] = ()
    note: str = ""
    waiting: str = ""

    @property
    def finished(self) -> int:
        """Runs that are no longer pending, skipped ones included."""
        return sum(self.counts.values())

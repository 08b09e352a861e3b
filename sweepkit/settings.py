"""What a session is asked to do beside running what is pending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweepkit.request import Request
from sweepkit.status import Status

__all__ = ["MAX_RUNS", "Settings"]

MAX_RUNS = 10**6


@dataclass(frozen=True)
class Settings:
    """What a session is asked to do beside running what is pending.

    Attributes
    ----------
    timeout : tuple of float or None
        Seconds that a run may take, or a factor of the mean duration so far.
    rerun : tuple of Status
        Statuses of finished runs to be tried again.
    retry : mapping of Status to int
        How often runs that end so are tried again within the session.
    keep_scratch : bool
        Whether folders given to runs are kept beside the store.
    on_error : {"collect", "raise"}
        Whether to go on after a run that did not succeed.
    max_errors : int, float or None
        Stop when more runs (int) or a larger share of those finished (float) did not succeed, of
        this session or with those that earlier ones left.
    max_runs : int
        Refuse grids with more points.
    was : mapping
        Value that finished runs had of a parameter that joins now.
    stale : {"ask", "keep", "rerun"}
        What to do with runs made by code that has changed since.
    snap : bool
        Take stored values for those that differ by rounding alone.
    request : Request or None
        Limits at which to stop.
    pilot : int or None
        Run only so many runs, far apart.
    """

    timeout: tuple[float | None, float | None] = (None, None)
    rerun: tuple[Status, ...] = ()
    retry: Mapping[Status, int] = field(default_factory=dict)
    keep_scratch: bool = False
    on_error: str = "collect"
    max_errors: float | None = None
    max_runs: int = MAX_RUNS
    was: Mapping[str, Any] = field(default_factory=dict)
    stale: str = "ask"
    snap: bool = False
    request: Request | None = None
    pilot: int | None = None

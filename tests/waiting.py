"""Waiting for an event instead of for a time, and hanging without costing any."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic, perf_counter

import psutil

__all__ = ["LIMIT", "Leap", "gone", "hang", "until"]

LIMIT = 120.0
"""Seconds after which what a test waits for does not come: a loaded machine is slow, and stands
still for a while; a hang is longer."""

HOURS = 10_000.0
"""Seconds by which a clock leaps: more than any time limit here."""


def until(event: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is true; a process that ends before fails the test with what it said."""
    end = monotonic() + LIMIT
    while not event():
        assert monotonic() < end, "it did not happen in time"
        if process is not None and process.poll() is not None and not event():
            raise AssertionError(f"exit code {process.returncode}\n{process.communicate()}")
        time.sleep(0.02)


def gone(processes: Iterable[psutil.Process]) -> None:
    """Wait until processes have ended."""
    _, alive = psutil.wait_procs(list(processes), timeout=LIMIT)
    assert alive == []


def hang(mark: Path | str) -> None:
    """Hang in a run; what reads the mark knows that it does, until the process is gone."""
    with open(f"{mark}.part", "w") as file:
        file.write(str(os.getpid()))
    os.replace(f"{mark}.part", mark)
    time.sleep(600)


class Leap:
    """A clock that is hours ahead as long as a run says that it hangs.

    So the run is overdue at once, and the time limit can be one that no other run comes near to,
    however slow the machine. Runs of other workers would be overdue, too: use a single one.
    """

    def __init__(self, mark: Path | str) -> None:
        self.mark = Path(mark)

    def __call__(self) -> float:
        return perf_counter() + (HOURS if self._hangs() else 0.0)

    def _hangs(self) -> bool:
        try:
            os.kill(int(self.mark.read_text()), 0)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

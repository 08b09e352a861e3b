"""Waiting for an event instead of for a time, hanging without costing any, and counting work."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, perf_counter
from types import FrameType

import psutil

__all__ = ["LIMIT", "Leap", "counted", "free_port", "gone", "hang", "until"]

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


def free_port(but: int | None = None) -> int:
    """A port that nothing listens on, and that the system gives to nobody who asks it for any."""
    while True:
        port = 20_000 + secrets.randbelow(10_000)  # below those that it gives
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            if port != but:
                return port


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
        except (FileNotFoundError, ValueError, ProcessLookupError):
            return False  # not yet, or no more
        return True


@contextmanager
def counted() -> Iterator[list[str]]:
    """What this thread calls meanwhile, Python's and C's functions: work, whatever the machine."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, function: object) -> None:
        if event in ("call", "c_call"):
            calls.append(event)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)

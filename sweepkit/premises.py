"""The folder that a session has for a while: locked, and removed whoever ends first."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress

from sweepkit import keeper
from sweepkit.process import interpreter

__all__ = ["Premises"]

PREFIX = "sweepkit-"
OWNER = "owner"
"""File that the owner of a folder keeps locked, so that it is known to be alive."""


class Premises:
    """A folder among the temporary ones, for one session.

    Folders whose owner is gone, and what still runs there, are removed first.
    """

    def __init__(self) -> None:
        clear_abandoned()
        self._standard = _hold_standard_files()
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        owner = os.path.join(self.path, OWNER)
        self._lock = os.open(f"{owner}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(f"{owner}.new", owner)  # never seen without its lock
        self._keeper: subprocess.Popen[bytes] | None = None

    def watch(self) -> None:
        """Have it removed, and its processes ended, should this process be killed."""
        if self._keeper is not None:
            return
        left = {name: value for name, value in os.environ.items() if name != keeper.MARK}
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._keeper = subprocess.Popen(
                [interpreter(), "-I", "-S", keeper.__file__, self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=left,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def leave(self) -> None:
        """End what still runs there, and remove it."""
        keeper.end_kin(self.path + os.sep)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        if self._keeper is not None and self._keeper.stdin is not None:
            with suppress(BrokenPipeError):
                self._keeper.stdin.write(b".")
                self._keeper.stdin.close()
            self._keeper.wait()
        for one in self._standard:
            os.close(one)


def _hold_standard_files() -> list[int]:
    """Open files 0 to 2 where they are closed; returns those.

    Else pipes would get these numbers, which mean something else in a process that is started.
    """
    held = []
    while (one := os.open(os.devnull, os.O_RDWR)) <= 2:
        held.append(one)
    os.close(one)
    return held


def clear_abandoned() -> None:
    """Remove the folders of sessions that were killed, and end what they left running."""
    for owner in glob.glob(os.path.join(tempfile.gettempdir(), f"{PREFIX}*", OWNER)):
        with suppress(OSError):  # of another user, or its owner is alive
            lock = os.open(owner, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder = os.path.dirname(owner)
                keeper.end_kin(folder + os.sep)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)

"""The folder that a session has for a while: locked, and removed whoever ends first."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from stat import S_ISDIR

from sweepkit import keeper
from sweepkit.keeper import OWNER
from sweepkit.process import interpreter

__all__ = ["Premises", "making_room"]

PREFIX = "sweepkit-"
GIVEN = re.compile(r"sweepkit-[a-z0-9_]{8}")
"""The name of a folder, as :func:`tempfile.mkdtemp` makes it."""

OF_WORKERS = re.compile(r"worker-\d+-[0-9a-f]{8}(\..*)?")
"""What lies in a folder of a session with worker processes."""

FORSAKEN_SECONDS = 86_400.0
"""How long nothing changed in a folder without its owner's file before it is removed."""


class Premises:
    """A folder among the temporary ones, for one session.

    Folders whose owner is gone, and what still runs there, are removed first.
    """

    def __init__(self) -> None:
        clear_abandoned()
        self._standard = _hold_standard_files()
        try:
            with making_room(tempfile.gettempdir()):
                self.path, self._lock = _settled()
        except OSError:
            self._let_standard_files_go()
            raise
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
        keeper.clear(self.path)
        os.close(self._lock)
        if self._keeper is not None and self._keeper.stdin is not None:
            with suppress(BrokenPipeError):
                self._keeper.stdin.write(b".")
                self._keeper.stdin.close()
            self._keeper.wait()
        self._let_standard_files_go()

    def _let_standard_files_go(self) -> None:
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


@contextmanager
def making_room(folder: str) -> Iterator[None]:
    """Within, an error of the system is told as one of the folder for temporary files."""
    try:
        yield
    except OSError as fault:
        free = ""
        with suppress(OSError):
            free = f"; {shutil.disk_usage(folder).free:,} bytes are free there"
        raise OSError(
            fault.errno,
            f"{fault.strerror or fault}: temporary files cannot be made in {folder}{free}; make "
            "room there, or have TMPDIR name another folder before Python starts",
        ) from fault


def _settled() -> tuple[str, int]:
    """A new folder, and the descriptor that locks the file of its owner."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        owner = os.path.join(path, OWNER)
        lock = -1
        with suppress(FileNotFoundError, BlockingIOError):  # cleared by another before it is locked
            lock = os.open(owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(owner), os.fstat(lock)):
                return path, lock
        if lock >= 0:
            os.close(lock)


def clear_abandoned() -> None:
    """Remove the folders of sessions that were killed, and end what they left running."""
    for folder in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{PREFIX}*")):
        if not GIVEN.fullmatch(os.path.basename(folder)):
            continue
        with suppress(OSError):  # its owner is alive, or another clears it
            told = os.lstat(folder)
            if not S_ISDIR(told.st_mode) or told.st_uid != os.getuid():
                continue
            try:
                lock = os.open(os.path.join(folder, OWNER), os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                _clear_ownerless(folder)
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                keeper.end_kin(folder + os.sep)
                keeper.clear(folder)
            finally:
                os.close(lock)


def _clear_ownerless(folder: str) -> None:
    """Remove what a kill left of a folder before it had its owner's file, or without it.

    That is empty, or holds only what workers leave and none uses any more.
    """
    names = os.listdir(folder)
    changed = [os.lstat(os.path.join(folder, name)).st_mtime for name in ("", *names)]
    if (
        time.time() - max(changed) > FORSAKEN_SECONDS
        and all(OF_WORKERS.fullmatch(name) for name in names)
        and not keeper.kin(folder + os.sep)
    ):
        keeper.clear(folder)

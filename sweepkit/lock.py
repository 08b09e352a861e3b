"""One writer at a store: a lock of the system, and who holds it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from sweepkit.files import clear_name, replace_file
from sweepkit.holding import begun, busy, holder_of
from sweepkit.protocols import Holder, StoreBusyError, UnwritableError

__all__ = ["held"]


@contextmanager
def held(root: Path, beside: Path) -> Iterator[None]:
    """Be the only writer of a store; a folder beside it that nothing came of is taken away.

    Raises
    ------
    StoreBusyError
        If another process writes; names its pid, host and since when.
    UnwritableError
        If nothing can be written there.
    """
    made: list[Path] = []
    try:
        made = _missing(beside)
        beside.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(beside / "lock", timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise StoreBusyError(busy(root, _holder(beside))) from None
    except OSError as fault:
        _take_away(made)
        raise UnwritableError(
            f"{root} cannot be written: {fault.strerror or fault}; "
            "choose another path or mend its permissions"
        ) from fault
    try:
        for folder in (beside, beside / "sessions"):
            for partial in folder.glob("*.partial"):
                clear_name(partial)  # left by a writer that was killed
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with suppress(OSError):
            replace_file(beside / "holder.json", json.dumps(holder))
        yield
    finally:
        # Who waits for the lock sees that its file is gone: while it is held it may be removed.
        if made and not begun(root, beside):
            shutil.rmtree(beside, ignore_errors=True)
            _take_away(made)
        lock.release()


def _missing(folder: Path) -> list[Path]:
    """Folders that are not there yet, the innermost first."""
    return [one for one in (folder, *folder.parents) if not one.exists()]


def _take_away(made: list[Path]) -> None:
    """Remove empty folders that were made for nothing."""
    with suppress(OSError):
        for one in made:
            with suppress(FileNotFoundError):
                one.rmdir()


def _holder(beside: Path) -> Holder | None:
    try:
        return holder_of(json.loads((beside / "holder.json").read_text()))
    except (OSError, ValueError):
        return None

"""Ends the processes of a session and removes its folder, also if its driver was killed.

A worker's processes are known by a variable of their environment, or by where they print to, as
well as by their parents: so also those are found that left the worker's group (``setsid``), but
not one that cleared its environment, prints elsewhere and has lost its parent. Only Linux tells
of these; elsewhere the groups of workers are ended, which is most of it.

The trackers of ``multiprocessing`` and joblib, which remove the shared memory and semaphores that a
dead process left, are let do so before they are ended.

Run as a script, this stays beside the driver, without any library, until the driver is gone.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress

__all__ = [
    "MARK",
    "OWNER",
    "clear",
    "descendants",
    "end_kin",
    "kill",
    "kin",
    "serves",
    "trackers",
]

MARK = "SWEEPKIT_SESSION"
"""Variable of the environment of workers and all that they start: the place of the worker."""

OWNER = "owner"
"""File in a session's folder that the session keeps locked, so that it is known to be alive."""

ROUNDS = 20
"""How often processes are looked for, in case that one starts others meanwhile."""

TRACKER = b"resource_tracker import main"
SERVANTS = (TRACKER, b"multiprocessing.forkserver import main")
"""What the processes are called that Python itself starts beside one that uses its shared memory,
semaphores or pools, and that end by themselves with it."""

TRACKER_SECONDS = 5.0
"""How long, in seconds, trackers may take to remove what a dead process left."""

LOOK_SECONDS = 2.0
"""How often, in seconds, the script looks whether the driver is still its parent."""


def kin(place: str) -> list[int]:
    """Processes that were started at a place or below: a session's folder or a worker's path."""
    marked, found = f"{MARK}={place}".encode(), []
    with suppress(OSError):
        names = [name for name in os.listdir("/proc") if name.isdigit()]
        for name in names:
            if int(name) != os.getpid() and _belongs(name, marked, place):
                found.append(int(name))
    return found


def _belongs(name: str, marked: bytes, place: str) -> bool:
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            environ = file.read()
    except OSError:
        return False  # of another user, or gone
    if environ.startswith(marked) or b"\0" + marked in environ:
        return True
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.readlink(f"/proc/{name}/fd/{descriptor}").startswith(place):
                return True
    return False


def descendants(pid: int) -> list[int]:
    """Processes that one started, and those that these started."""
    found: list[int] = []
    left = [pid]
    while left:
        one = left.pop()
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children") as file:
                    left += (children := [int(word) for word in file.read().split()])
                    found += children
    return found


def serves(pid: int, names: tuple[bytes, ...] = SERVANTS) -> bool:
    """Whether a process is one that Python itself started beside another."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read()
    except OSError:
        return False
    return any(name in words for name in names)


def trackers(group: int) -> list[int]:
    """Those of a process group that remove what dead processes left."""
    try:
        os.killpg(group, 0)
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    found = []
    for name in names:
        with suppress(OSError):
            if os.getpgid(int(name)) == group and serves(int(name), (TRACKER,)):
                found.append(int(name))
    return found


def kill(pids: list[int]) -> None:
    """End processes at once."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_kin(place: str) -> None:
    """End all processes that were started at a place or below, trackers last."""
    seen: set[int] = set()
    spared: set[int] = set()
    for _ in range(ROUNDS):
        alive = set(kin(place))
        spared |= {one for one in alive - seen if serves(one, (TRACKER,))}
        if not alive - seen - spared:
            break
        kill(sorted(alive - spared))
        seen |= alive - spared
    end = time.monotonic() + TRACKER_SECONDS
    while spared and time.monotonic() < end:
        time.sleep(0.005)
        spared = {one for one in spared if serves(one, (TRACKER,))}
    kill(sorted(spared))


def clear(folder: str) -> None:
    """Remove a session's folder; the file of its owner goes last.

    By that file the folder is known for what it is, so what a kill, or a file that cannot be
    removed, leaves here goes with a later session.
    """
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != OWNER:
                with suppress(OSError):
                    os.unlink(entry.path)
        if os.listdir(folder) == [OWNER]:
            os.unlink(os.path.join(folder, OWNER))
        os.rmdir(folder)


def keep(folder: str) -> None:
    """Wait until the driver is done or gone; if it is gone, end and remove what it left."""
    driver = os.getppid()
    while True:
        ready = select.select([0], [], [], LOOK_SECONDS)[0]
        if ready and os.read(0, 1):
            return  # the driver has done it itself
        if ready or os.getppid() != driver:
            break
    for _ in range(ROUNDS):
        end_kin(folder + os.sep)
        clear(folder)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)  # something was still writing


if __name__ == "__main__":
    keep(sys.argv[1])

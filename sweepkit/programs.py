"""An external program, run to its end: no shell, its output to files, all of it ended with it."""

from __future__ import annotations

import codecs
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

__all__ = ["Ended", "execute"]

LOOK = 0.25
"""Seconds after which what a program printed meanwhile is passed on."""

MOST_TEXT = 64 * 2**20
"""Bytes of standard output, from its end, in which outputs are looked for."""

PIECE = 2**20


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes
    ----------
    code : int
        Exit code; negative for a signal.
    printed : str
        Standard output.
    complaint : str
        Last line of standard error that is not blank; "" if there is none.
    """

    code: int
    printed: str
    complaint: str


def execute(
    arguments: Sequence[str], *, folder: str, env: Mapping[str, str], given: bytes
) -> Ended:
    """Run a program in a folder and wait for its end.

    What it prints is printed here too, while it runs. If this is interrupted, the program and
    what it started are ended. A worker process leads a process group that its driver kills, so a
    program stays in it; elsewhere it gets a group of its own.
    """
    alone = not _in_worker()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as source,
    ):
        source.write(given)
        source.seek(0)
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=env,
            stdin=source,
            stdout=out,
            stderr=err,
            start_new_session=alone,
        )
        tails = [_passing_on(file, sys.stdout) for file in (out, err)]
        try:
            _wait(process, tails)
        finally:
            if alone:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            elif process.returncode is None:
                process.kill()
            process.wait()
        for tail in tails:
            tail()
        return Ended(process.returncode, _read(out, MOST_TEXT), _last_line(_read(err, PIECE)))


def _in_worker() -> bool:
    """Whether this process leads a session as a worker of a fleet does."""
    parent = multiprocessing.parent_process()
    return parent is not None and os.getsid(0) == os.getpid()


def _wait(process: subprocess.Popen[bytes], tails: Sequence[Callable[[], None]]) -> None:
    """Wait until a program has ended, but do not take its exit code yet where that is possible.

    Until it is taken, its number, which is also its group's, is given to no other process.
    """
    if not hasattr(os, "pidfd_open"):
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK)
                return
            for tail in tails:
                tail()
    pidfd = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        while not poll.poll(LOOK * 1000):
            for tail in tails:
                tail()
    finally:
        os.close(pidfd)


def _passing_on(file: IO[bytes], target: IO[str]) -> Callable[[], None]:
    """A function that prints what has come to a file since it was last called."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
    at = 0

    def passed() -> None:
        nonlocal at
        while piece := os.pread(file.fileno(), PIECE, at):
            at += len(piece)
            target.write(decoder.decode(piece))

    return passed


def _read(file: IO[bytes], most: int) -> str:
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - most)
    data = bytearray()
    while piece := os.pread(file.fileno(), most - len(data), start + len(data)):
        data += piece
    return bytes(data).decode(errors="backslashreplace")


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def signal_name(number: int) -> str:
    """A signal for people."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"

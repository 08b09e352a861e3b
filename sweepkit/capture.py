"""What runs print and say: kept run by run, capped, and told in words."""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

__all__ = [
    "HEAD",
    "TAIL",
    "Capture",
    "FileCapture",
    "TextCapture",
    "capped",
    "one_line",
    "printed",
    "read_capped",
    "remember_sources",
    "routed_prints",
    "told",
]

CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")
"""Characters that steer a terminal, or that some readers of text stop at."""

HEAD = 8_192
TAIL = 24_576
"""Characters of a log that are kept from its beginning and its end."""

CHANGED = 1
UNSETTLED = 2
"""Bits of the flag that a run sets: it printed or changed something; or what is seldom changed."""

TELLING = {
    **dict.fromkeys(
        (
            "os.chdir",
            "os.putenv",
            "os.unsetenv",
            "os.system",
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
            "os.exec",
            "subprocess.Popen",
            "pty.spawn",
        ),
        CHANGED,
    ),
    **dict.fromkeys(
        (
            "resource.setrlimit",
            "resource.prlimit",
            "_thread.start_new_thread",
            "_thread.start_joinable_thread",
            "sys.settrace",
            "sys.setprofile",
        ),
        CHANGED | UNSETTLED,
    ),
}
"""Audit events of Python after which a run is looked at for what it printed or changed."""


class Capture(Protocol):
    """Where what a run prints ends up."""

    def size(self) -> int:
        """How much there is; 0 for nothing."""

    def take(self) -> str:
        """The text so far, capped, and begin anew."""


def told(exception: BaseException) -> tuple[str, str]:
    """An exception in one line and its traceback from the simulator's frame on."""
    try:
        return _told(exception)
    except BaseException:  # of its class, which may say its name or text by code of its own
        name = type.__dict__["__name__"].__get__(type(exception))
        return one_line(f"{name}: of a class that raises when it is told"), ""


def _told(exception: BaseException) -> tuple[str, str]:
    frames = exception.__traceback__.tb_next if exception.__traceback__ else None
    parts = traceback.format_exception(type(exception), exception, frames)
    last = traceback.format_exception_only(type(exception), exception)[-1]
    if isinstance(exception, SyntaxError):
        last = f"{type(exception).__name__}: {exception.msg}"
    name = type(exception).__name__
    text = last.strip()
    head, colon, tail = text.partition(":")
    if head.endswith(name):
        text = f"{name}{colon}{tail}"
    return one_line(text), "".join(parts)


def one_line(text: str) -> str:
    """Text on one line of at most 300 characters that can be encoded and shown anywhere."""
    line = CONTROL.sub(lambda one: f"\\x{ord(one[0]):02x}", " ".join(text.split()))
    line = line if len(line) <= 300 else f"{line[:297]}..."
    return line.encode(errors="backslashreplace").decode()


def capped(text: str) -> str:
    """Text with its middle left out if it is long, and that can be encoded."""
    if len(text) > HEAD + TAIL:
        left = len(text) - HEAD - TAIL
        text = f"{text[:HEAD]}\n... {left:,} characters left out ...\n{text[-TAIL:]}"
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def printed(capture: Capture) -> str:
    return capture.take() if capture.size() else ""


class _Flagging(io.TextIOWrapper):
    """A text stream that sets a flag when it is written to."""

    flag: bytearray

    def write(self, text: str, /) -> int:
        self.flag[0] |= CHANGED
        return super().write(text)

    def close(self) -> None:
        """Stay open for the runs to come."""
        self.flush()


class FileCapture:
    """Standard output and error of a worker process, redirected to a file of its own.

    Holds what C code and child processes print, too, and what is printed before a crash.

    Parameters
    ----------
    path : str
        Of the file.
    touched : bytearray
        Its first item is set when Python prints, or does what may print or change surroundings.
    """

    def __init__(self, path: str, touched: bytearray) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.attach()
        raw = io.BufferedWriter(io.FileIO(os.dup(self._file), "w"))
        text = _Flagging(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        text.flag = touched
        sys.stdout = sys.stderr = text
        self._flush = text.flush

        def heard(event: str, _: tuple[Any, ...]) -> None:
            if event in TELLING:
                touched[0] |= TELLING[event]

        sys.addaudithook(heard)

    @property
    def fileno(self) -> int:
        """Descriptor of the file."""
        return self._file

    def attached(self) -> bool:
        """Whether standard output and error of the process are the file."""
        try:
            return all(os.path.sameopenfile(self._file, stream) for stream in (1, 2))
        except OSError:
            return False

    def attach(self, _: bool = True) -> None:
        """Make the file standard output and error of the process."""
        for stream in (1, 2):
            os.dup2(self._file, stream)

    def size(self) -> int:
        """Bytes printed since the last take."""
        self._flush()
        return os.lseek(self._file, 0, os.SEEK_END)

    def take(self) -> str:
        """The text, its middle left out if it is long; the file is emptied."""
        text = read_capped(self._file)
        os.ftruncate(self._file, 0)
        return text


def read_capped(file: int) -> str:
    """Beginning and end of a file as text."""
    size = os.lseek(file, 0, os.SEEK_END)
    if size <= 4 * (HEAD + TAIL):
        return capped(os.pread(file, size, 0).decode(errors="backslashreplace"))
    head = os.pread(file, HEAD, 0).decode(errors="backslashreplace")
    tail = os.pread(file, TAIL, size - TAIL).decode(errors="backslashreplace")
    left = size - HEAD - TAIL
    return f"{head}\n... {left:,} bytes left out ...\n{tail}".replace("\0", "\\0")


class TextCapture:
    """What one thread prints through Python, kept while others print where they like."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        """Keep text; the middle of what is much too long is dropped at once."""
        self._parts.append(text)
        self._size += len(text)
        if len(self._parts) > 10_000 or self._size > 64 * (HEAD + TAIL):
            self._parts = [capped("".join(self._parts))]
            self._size = len(self._parts[0])
        return len(text)

    def size(self) -> int:
        """Characters kept since the last take."""
        return self._size

    def take(self) -> str:
        """The text, capped; begins anew."""
        text = capped("".join(self._parts))
        self._parts, self._size = [], 0
        return text


class _Routed(io.TextIOBase):
    """A stand-in for sys.stdout or sys.stderr that sends each thread's text to its capture."""

    def __init__(self, usual: Any, captures: threading.local) -> None:
        self._usual = usual
        self._captures = captures

    def write(self, text: str) -> int:
        capture = getattr(self._captures, "capture", None)
        target = capture if capture is not None else self._usual
        return int(target.write(text) or 0)

    def flush(self) -> None:
        if getattr(self._captures, "capture", None) is None:
            with contextlib.suppress(ValueError):  # closed at exit before this stand-in is
                self._usual.flush()

    def fileno(self) -> int:
        return int(self._usual.fileno())

    def isatty(self) -> bool:
        return getattr(self._captures, "capture", None) is None and self._usual.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._usual, "encoding", "utf-8")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)


@contextlib.contextmanager
def routed_prints() -> Iterator[Callable[[TextCapture | None], None]]:
    """Within, a thread's prints go to the capture that it set by calling what is yielded."""
    captures = threading.local()
    usual = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Routed(usual[0], captures), _Routed(usual[1], captures)

    def to(capture: TextCapture | None) -> None:
        captures.capture = capture

    try:
        yield to
    finally:
        sys.stdout, sys.stderr = usual


def remember_sources(sources: Mapping[str, str]) -> None:
    """Make the text of notebook cells known to tracebacks in this process."""
    for filename, text in sources.items():
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)

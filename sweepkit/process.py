"""A fresh Python process that runs one function, with a pipe to this one.

Made by the standard library's ``subprocess`` and with nothing imported but what the function needs:
with joblib's own processes, each of which imports joblib, as does the tracker of resources beside
them, the first run would begin twice as late.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe

__all__ = ["PythonProcess"]

PROGRAM = (
    "import os, sys; from importlib import import_module as module;"
    "from multiprocessing.connection import Connection;"
    "[os.set_inheritable(int(one), False) for one in sys.argv[1].split()];"
    "pipe, entry = Connection(int(sys.argv[1].split()[0])), sys.argv[2:];"
    "sys.path[:], sys.argv[:] = pipe.recv();"
    "getattr(module(entry[0]), entry[1])(pipe, *entry[2:])"
)


class PythonProcess:
    """A process that calls ``entry(pipe, *words)`` of a module, and ends when that returns.

    It searches modules where this process does, has its working directory and its interpreter's
    flags (as ``-O``), and sees its ``sys.argv``, but does not import its main module. Until the
    function lets them through, interrupts do not reach it.

    Parameters
    ----------
    entry : (str, str)
        Module and name of the function.
    words : sequence of str
        Further arguments of the function.
    descriptors : sequence of int
        Files that are open there, too, under the same numbers.
    environment : mapping of str to str
        Variables set there in addition.

    Attributes
    ----------
    pid : int
    connection : Connection
        This end of the pipe.
    sentinel : int
        Ready to be read once the process, and any child that it forked, is gone.

    Raises
    ------
    OSError
        If the system can start no more processes.
    """

    def __init__(
        self,
        entry: tuple[str, str],
        words: Sequence[str] = (),
        descriptors: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.connection, theirs = Pipe()
        self.sentinel, held_there = os.pipe()
        passed = (theirs.fileno(), held_there, *descriptors)
        # asserts, warnings and development mode hold there as they do here
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        program = ["-P", "-c", PROGRAM, " ".join(map(str, passed))]
        command = [sys.executable, *flags, *program, *entry, *words]
        # An interrupt goes to a whole process group, which the process is in until it leaves it.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                pass_fds=passed,
            )
        except BaseException:
            self._let_go()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            theirs.close()
            os.close(held_there)
        self.pid = self._child.pid
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((sys.path, getattr(sys, "argv", [])))

    @property
    def exit_code(self) -> int | None:
        """Exit status, minus the number of the signal that ended it, or None while it lives."""
        return self._child.poll()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended, but no longer than so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout)

    def close(self) -> None:
        """Wait until it has ended, and let go of all but its exit code."""
        self._child.wait()
        self._let_go()

    def _let_go(self) -> None:
        self.connection.close()
        if self.sentinel >= 0:
            os.close(self.sentinel)
            self.sentinel = -1

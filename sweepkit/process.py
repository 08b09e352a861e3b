"""A fresh Python process that runs one function, with a pipe to this one.

Made by the standard library's ``subprocess`` and with nothing imported but what the function needs:
with joblib's own processes, each of which imports joblib, as does the tracker of resources beside
them, the first run would begin twice as late.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import Pipe, spawn

__all__ = ["PythonProcess", "interpreter"]

PROGRAM = (
    "import os, sys; from importlib import import_module as module;"
    "from importlib.machinery import PathFinder as Finder;"
    "from multiprocessing.connection import Connection;"
    "[os.set_inheritable(int(one), False) for one in sys.argv[1].split()];"
    "pipe, entry = Connection(int(sys.argv[1].split()[0])), sys.argv[2:];"
    "sys.path[:], sys.argv[:], found = pipe.recv();"
    "Finder = type('Found', (), {'find_spec': staticmethod(lambda name, path=None, target=None, "
    "find=Finder.find_spec, found=found: find(name, [found[name]]) if name in found else None)});"
    "found and sys.meta_path.insert(0, Finder);"
    "getattr(module(entry[0]), entry[1])(pipe, *entry[2:])"
)


def interpreter() -> str:
    """The Python that runs processes: this one, or the one named to ``multiprocessing``.

    Raises
    ------
    RuntimeError
        If there is none, as where Python is a part of another program.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for one in (sys.executable, spawn.get_executable(), shutil.which(version)):
        path = os.fsdecode(one or "")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise RuntimeError(
        f"worker processes need a Python of their own, but sys.executable is {sys.executable!r}; "
        "name it by multiprocessing.set_executable(path), or run with backend='threading'"
    )


def found_aside() -> dict[str, str]:
    """Modules that another folder of the search path hides by now, and where they came from.

    Such as ``random``, imported before the working directory with its ``random.py`` joined the
    search path, as it does in notebooks: the process is to find what this one has.
    """
    found: dict[str, str] = {}
    earlier: set[str] = set()
    for folder in dict.fromkeys(sys.path):
        names = _names(folder)
        for name in names & earlier & sys.modules.keys():
            file = getattr(sys.modules[name], "__file__", None) or ""
            above = os.path.dirname(os.path.dirname(file))
            place = above if os.path.basename(file) == "__init__.py" else os.path.dirname(file)
            if os.path.abspath(place) == os.path.abspath(folder):
                found[name] = os.path.abspath(folder)
        earlier |= names
    return found


def _names(folder: str) -> set[str]:
    """What may be imported from a folder."""
    try:
        return {one.split(".")[0] for one in os.listdir(folder or ".")}
    except OSError:
        return set()


class PythonProcess:
    """A process that calls ``entry(pipe, *words)`` of a module, and ends when that returns.

    It searches modules where this process does, finds those that this one has imported where they
    were found, has its working directory and its interpreter's flags (as ``-O``), and sees its
    ``sys.argv``, but does not import its main module. Until the function lets them through,
    interrupts do not reach it.

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
    printed : str
        Path of the file that its standard output and error are appended to.

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
    RuntimeError
        If there is no interpreter to start.
    """

    def __init__(
        self,
        entry: tuple[str, str],
        words: Sequence[str] = (),
        descriptors: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        printed: str = os.devnull,
    ) -> None:
        python = interpreter()
        # asserts, warnings and development mode hold there as they do here
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        with open(printed, "ab") as output:
            self.connection, theirs = Pipe()
            self.sentinel, held_there = os.pipe()
            passed = (theirs.fileno(), held_there, *descriptors)
            program = ["-P", "-c", PROGRAM, " ".join(map(str, passed))]
            # An interrupt goes to a whole process group, which it is in until it leaves it.
            held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                with ExitStack() as undone:
                    undone.callback(self._let_go)
                    self._child = subprocess.Popen(
                        [python, *flags, *program, *entry, *words],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        env={**os.environ, **(environment or {})},
                        pass_fds=passed,
                    )
                    undone.pop_all()  # it is there to stay
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)
                theirs.close()
                os.close(held_there)
        self.pid = self._child.pid
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((sys.path, getattr(sys, "argv", []), found_aside()))

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

"""Processes forked from one that has imported everything: hundreds of them take seconds.

Each runs a script in a folder as ``python script.py`` would, from there on, to an interpreter's
usual end.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

from tests.waiting import LIMIT

__all__ = ["GATE", "Nursery"]

GATE = "gate"
"""A pipe in the folder that a held process waits at until somebody opens it for writing."""

WHICH_MODULES = """
import json, sys
with open("modules", "w") as file:
    json.dump(sorted(sys.modules), file)
"""

MOTHER = r"""
import contextlib, ctypes, gc, importlib, json, os, runpy, sys

def born(folder, script, arguments, held):
    for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
        path = name if number == 0 else os.path.join(folder, name)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    sys.path[0] = folder
    sys.argv = [script, *arguments]
    if held:
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # any tracer may come
        with open(held):
            pass
    runpy.run_path(script, run_name="__main__")
    sys.exit(0)

said = os.fdopen(os.dup(1), "w", buffering=1)
asked = os.fdopen(os.dup(0), "r")
for line in asked:
    order = json.loads(line)
    if "modules" in order:
        for name in order["modules"]:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.freeze()  # what is never collected is not copied by each process
        print("imported", file=said)
        continue
    pid = os.fork()
    if not pid:
        born(**order)
    print(pid, file=said)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=said)
"""


class Nursery:
    """What forks them, one at a time.

    Parameters
    ----------
    folder : Path
        An empty one, for a trial.
    trial : str
        A script that imports what the others will.
    """

    def __init__(self, folder: Path, trial: str) -> None:
        root = str(Path(__file__).parents[1])
        search = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._mother = subprocess.Popen(
            [sys.executable, "-c", MOTHER],
            env={**os.environ, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._asked, self._said = self._mother.stdin, self._mother.stdout
        self._heard = b""
        (folder / "trial.py").write_text(trial + WHICH_MODULES)
        self.start(folder, "trial.py")
        code = self.wait()
        assert code == 0, (folder / "err").read_text()
        self._ask({"modules": json.loads((folder / "modules").read_text())})
        assert self._hear() == "imported"

    def _ask(self, order: object) -> None:
        self._asked.write(json.dumps(order).encode() + b"\n")

    def _hear(self) -> str:
        while b"\n" not in self._heard:
            assert select.select([self._said], [], [], 5 * LIMIT)[0], "it does not end"
            more = os.read(self._said.fileno(), 4096)
            assert more, "the process that forks them has ended"
            self._heard += more
        line, self._heard = self._heard.split(b"\n", 1)
        return line.decode()

    def start(self, folder: Path, script: str, *arguments: str, held: bool = False) -> int:
        """Start a script in a folder; what it writes goes to files ``out`` and ``err`` there."""
        gate = ""
        if held:
            gate = str(folder / GATE)
            Path(gate).unlink(missing_ok=True)
            os.mkfifo(gate)
        self._ask({"folder": str(folder), "script": script, "arguments": arguments, "held": gate})
        return int(self._hear())

    def wait(self) -> int:
        """Exit code of what was started, minus the number of the signal that killed it."""
        return int(self._hear())

    def close(self) -> None:
        self._asked.close()
        self._mother.wait()
        self._said.close()

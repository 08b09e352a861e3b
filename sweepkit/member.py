"""One worker process as the driver sees it: its pipe, its claim, its log, and its end."""

from __future__ import annotations

import math
import mmap
import os
import pickle
import signal
from collections import deque
from contextlib import suppress
from multiprocessing import connection
from time import monotonic, perf_counter

import numpy as np

from sweepkit import keeper
from sweepkit.capture import read_capped
from sweepkit.evaluate import DOOMED, SPAN
from sweepkit.premises import making_room
from sweepkit.process import PythonProcess
from sweepkit.protocols import Batch
from sweepkit.worker import CLAIM_BYTES, STACK_SIGNAL

__all__ = ["Member"]

STACK_SECONDS = 0.5
"""How long, in seconds, a worker that is to be killed may take to write its stack."""

BLAS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class Member:
    """One worker as the driver sees it."""

    def __init__(
        self, number: int, folder: str, payload: bytes, threads: int, most: float = math.inf
    ) -> None:
        self.number = number
        self.place = os.path.join(folder, f"worker-{number}-{os.urandom(4).hex()}")
        self.log_path, claim_path = f"{self.place}.log", f"{self.place}.claim"
        with making_room(folder), open(claim_path, "wb") as file:
            file.write(bytes(CLAIM_BYTES))
        with open(claim_path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), CLAIM_BYTES)
        self.claim = memoryview(self._map).cast("d")
        self.claim[0] = -1.0
        life, self._life = connection.Pipe(duplex=False)
        # The process never gets this end: when the driver is gone, however it went, it closes.
        self.process = PythonProcess(
            ("sweepkit.worker", "serve"),
            (str(life.fileno()), self.log_path, claim_path, str(threads), repr(most)),
            (life.fileno(),),
            {**dict.fromkeys(BLAS, str(threads)), keeper.MARK: self.place},
            self.log_path,
        )
        life.close()
        self.connection = self.process.connection
        self.inflight: deque[Batch] = deque()
        self.hired = perf_counter()
        self.ready = False
        self.cut_off = False
        """Whether nothing more can arrive: its end of the pipe is closed, as by a run that became
        another program, or that closed what is not its own."""
        self.done = 0
        self.killed_for: tuple[int, float, str] | None = None
        """Row that overran, seconds it took, and what is said of it."""
        self.remark = ""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(payload)

    def send(self, batch: Batch) -> None:
        """Hand a batch over; a worker that is gone is seen by its sentinel."""
        runs = batch.runs
        spaced = (
            len(runs) > 1
            and runs[-1] - runs[0] == len(runs) - 1
            and bool((np.diff(runs) == 1).all())
        )
        plain = (int(runs[0]), int(runs[-1]) + 1) if spaced else runs
        self.inflight.append(batch)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps(plain, protocol=5))

    @property
    def running(self) -> tuple[int, float]:
        """Row that runs, or -1, and when it started (perf_counter)."""
        started = self.claim[1]
        return int(self.claim[0]), started

    @property
    def span(self) -> int:
        """How many runs, from the one that runs on, are in one call together."""
        return int(self.claim[SPAN])

    def let_leave(self) -> None:
        """Ask a worker without work to leave what it set up, and to end."""
        if self.ready and not self.inflight:
            self.connection.close()

    def kill(self) -> None:
        """End the worker and what it started, as far as it is of its group or family.

        Trackers that runs started are left, to remove what these ran out on.
        """
        pid = self.process.pid
        family = keeper.descendants(pid)
        left = keeper.trackers(pid)
        if not left:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        keeper.kill([pid, *(one for one in family if one not in left)])

    def kill_with_stack(self) -> None:
        """As kill, but the stack it is in goes to its log first."""
        size = _size(self.log_path)
        self.claim[DOOMED] = 1.0
        stopped = _is_stopped(self.process.pid)
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, STACK_SIGNAL)
            os.kill(self.process.pid, signal.SIGCONT)
        end = monotonic() + STACK_SECONDS
        while _size(self.log_path) == size and monotonic() < end and self.process.exit_code is None:
            connection.wait([self.process.sentinel], timeout=0.01)
        connection.wait([self.process.sentinel], timeout=0.05)
        if _size(self.log_path) == size:
            self.remark = "\nno stack could be had: the process did not heed the signal for it\n"
        if stopped:
            self.remark += "\nthe process was stopped, as by SIGSTOP\n"
        self.kill()

    def close(self) -> str:
        """Let go of everything but the exit code; returns what was last printed."""
        self.kill()  # children may outlive the worker in its group
        self.process.close()
        self._life.close()
        self.claim.release()
        self._map.close()
        text = ""
        with suppress(OSError):
            file = os.open(self.log_path, os.O_RDONLY)
            text = read_capped(file)
            os.close(file)
        return text + self.remark


def _is_stopped(pid: int) -> bool:
    """Whether a process stands still for a signal, where the system tells."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0

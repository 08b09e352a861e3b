"""What a worker process does: run the batches that come by its pipe."""

from __future__ import annotations

import faulthandler
import fcntl
import mmap
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from sweepkit.capture import FileCapture, remember_sources
from sweepkit.evaluate import Station, Task, evaluate
from sweepkit.protocols import Result
from sweepkit.setup import SetupError, prepared
from sweepkit.traits import Pristine, Trait

__all__ = ["CLAIM_BYTES", "STACK_SIGNAL", "serve"]

CLAIM_BYTES = 64
STACK_SIGNAL = signal.SIGXCPU
"""Makes a worker write its stack; a signal that simulators have no use for."""

RESULT_BUFFER = 2**20
"""Bytes that the system is asked to hold of a worker's results while the driver is busy."""

ORPHAN_SECONDS = 2.0
"""How often, in seconds, a worker looks whether the driver is still its parent."""


def serve(
    pipe: Connection, life: str, log_path: str, claim_path: str, threads: str, most: str
) -> None:
    """What a worker process does: take batches from the pipe until it closes.

    Once it has grown by more than ``most`` bytes it stops, for a fresh one to take over. The file
    ``life`` is at its end when the driver is gone.
    """
    os.setsid()
    _die_with(Connection(int(life), writable=False))
    _widen(pipe)
    touched = bytearray(1)
    capture = FileCapture(log_path, touched)
    _tell_stack(capture)
    # Nothing to do here, yet no SIG_IGN, which child processes would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with open(claim_path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), CLAIM_BYTES)
    claim = memoryview(mapped).cast("d")
    try:
        payload = pipe.recv_bytes()
    except EOFError:
        return
    task = pickle.loads(payload)
    remember_sources(task.sources)
    import threadpoolctl

    threadpoolctl.threadpool_limits(int(threads))
    try:
        with prepared(task.inputs, task.setup) as handed:
            capture.take()
            pipe.send_bytes(pickle.dumps(None, protocol=5))
            scratch = os.path.dirname(log_path)
            _work(pipe, task, _station(capture, claim, touched, handed, scratch), float(most))
    except SetupError as fault:
        pipe.send_bytes(pickle.dumps(str(fault), protocol=5))


def _station(
    capture: FileCapture,
    claim: Any,
    touched: bytearray,
    handed: Mapping[str, Any],
    scratch: str,
) -> Station:
    pristine = Pristine(
        Trait("standard output", capture.attached, capture.attach),
        Trait("signal handlers", _stack_is_told, lambda _: _tell_stack(capture)),
    )
    return Station(
        capture,
        claim,
        touched,
        watched=True,
        scratch=scratch,
        pristine=pristine,
        replaceable=True,
        handed=handed,
    )


def _work(pipe: Connection, task: Task, station: Station, most: float) -> None:
    """Run batches until the pipe closes."""
    at_first = _resident()

    def full() -> bool:
        return _resident() - at_first > most

    def hand(result: Result, goes_on: bool = True) -> None:
        grown = not goes_on and full()
        station.worn |= grown
        said = (result, goes_on, station.worn, grown)
        pipe.send_bytes(pickle.dumps(said, protocol=5))

    station.hand = hand
    station.full = full
    while True:
        try:
            plain = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        runs = np.arange(*plain, dtype=np.int64) if isinstance(plain, tuple) else plain
        hand(evaluate(task, runs, station), False)
        if station.worn:
            threading.Event().wait()  # to be replaced


def _unheard(*_: object) -> None:
    """Handler that Python knows for the signal for the stack; faulthandler's own is beneath."""


def _stack_is_told() -> bool:
    return signal.getsignal(STACK_SIGNAL) is _unheard


def _tell_stack(capture: FileCapture) -> None:
    faulthandler.unregister(STACK_SIGNAL)
    signal.signal(STACK_SIGNAL, _unheard)
    faulthandler.register(STACK_SIGNAL, file=capture.fileno, all_threads=True)


def _die_with(life: Connection) -> None:
    """End this process and all it started when the driver closes its end of a pipe.

    On Linux the kernel does it, by a signal to the process group, whatever runs here; elsewhere
    a thread does, which has to wait while C code holds the interpreter.
    """
    if sys.platform == "linux":
        set_signal = 10  # F_SETSIG, which the fcntl module does not name
        fcntl.fcntl(life.fileno(), fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(life.fileno(), set_signal, signal.SIGKILL)
        flags = fcntl.fcntl(life.fileno(), fcntl.F_GETFL)
        fcntl.fcntl(life.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)

    parent = os.getppid()

    def watch() -> None:
        # The stack is told of the thread that the signal finds, which is to be that of the runs.
        signal.pthread_sigmask(signal.SIG_BLOCK, {STACK_SIGNAL})
        # A process that the driver forked may hold the pipe open, so its own end is looked for.
        with suppress(EOFError, OSError):
            while os.getppid() == parent:
                if life.poll(ORPHAN_SECONDS):
                    life.recv_bytes()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _widen(pipe: Connection) -> None:
    """Let a pipe take a whole result, as far as the system allows."""
    with suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, RESULT_BUFFER)


def _resident() -> int:
    """Memory that the process holds, bytes."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

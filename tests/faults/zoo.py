"""Faults of one run among forty: what it does, and what must become of it.

Runs of the sweep are numbered by ``i``; run ``FAULTY`` acts, all others return ``i * i``.
"""

from __future__ import annotations

import ctypes
import decimal
import gc
import locale
import math
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from sweepkit.status import Status

RUNS = 40
FAULTY = 7
IN_PROCESSES = ("loky",)
ANYWHERE = ("sequential", "threading", "loky")
HERE = ("sequential", "loky")
"""Where runs do not share their process with others at the same time."""


@dataclass(frozen=True)
class Fault:
    """One row of the zoo.

    Attributes
    ----------
    act : callable
        What the faulty run does; what it returns is the run's result, None for the usual one.
    status : Status
        What must become of the run.
    error : str
        Regular expression that the run's error matches; empty for no error.
    log : tuple of str
        Regular expressions that are found in the run's log.
    backends : tuple of str
        Where it is tried.
    options : mapping
        For ``sk.run``.
    notes : tuple of str
        Regular expressions for notes in the account of the session.
    leaves : bool
        Whether a process is left behind where runs have none of their own.
    """

    act: Callable[[], Any]
    status: Status
    error: str = ""
    log: tuple[str, ...] = ()
    backends: tuple[str, ...] = ANYWHERE
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    leaves: bool = False

    @property
    def name(self) -> str:
        return self.act.__name__


def shared() -> dict[str, Any]:
    """What runs share that one may change for the others."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "umask": mask,
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "precision of decimals": decimal.getcontext().prec,
        "recursion limit": sys.getrecursionlimit(),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "ignored signals": [n for n in (15, 24) if signal.getsignal(n) is signal.SIG_IGN],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "locale": locale.setlocale(locale.LC_ALL),
        "search path": bool(sys.path),
        "modules": "random" in sys.modules,
        "garbage collection": gc.isenabled(),
        "socket timeout": socket.getdefaulttimeout(),
        "tracing": sys.gettrace(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }


AT_FIRST = shared()


def simulator(act: Callable[[], Any], *, alone: bool) -> Callable[[int], dict[str, Any]]:
    """The simulator with one faulty run; alone, if no two runs share a process at a time."""

    def simulate(i: int) -> dict[str, Any]:
        given = act() if i == FAULTY else None
        # A neighbour fails if what the faulty run did to the process is left to it.
        with np.errstate(divide="ignore"):
            np.float64(1.0) / np.float64(0.0)
        print(end="")
        if i != FAULTY and alone and shared() != AT_FIRST:
            raise RuntimeError(f"{shared()} is not {AT_FIRST}")
        return {"y": math.sqrt(float(i**4))} if given is None else given

    return simulate


# --- a worker dies ---------------------------------------------------------------------------


def is_killed() -> None:
    print("the last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def is_terminated() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def reads_address_zero() -> None:
    ctypes.string_at(0)


def aborts() -> None:
    os.abort()


def exits_0() -> None:
    os._exit(0)


def exits_3() -> None:
    print("partial", end="")
    sys.stdout.flush()
    os._exit(3)


def kills_its_group() -> None:
    os.killpg(0, signal.SIGKILL)


# --- a run hangs -----------------------------------------------------------------------------


def sleeps() -> None:
    print("about to sleep")
    time.sleep(600)


def sleeps_in_c_holding_the_interpreter() -> None:
    ctypes.PyDLL(None).sleep(600)


def spins() -> None:
    while True:
        pass


def waits_for_a_child() -> None:
    subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(600.25)"], check=True)


def waits_for_a_deaf_child() -> None:
    code = (
        "import signal, time\n"
        "for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): "
        "signal.signal(one, signal.SIG_IGN)\ntime.sleep(600.25)"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def forks_and_hangs() -> None:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    time.sleep(600)


def is_deaf_to_the_stack_signal() -> None:
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    print("heard nothing")
    time.sleep(600)


# --- a run misbehaves ------------------------------------------------------------------------


def exits_politely() -> NoReturn:
    sys.exit("no more")


def interrupts_itself() -> None:
    raise KeyboardInterrupt


class TwoArguments(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def raises_what_needs_two_arguments() -> None:
    raise TwoArguments("this", "that")


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise TypeError("no")


def raises_what_cannot_be_pickled() -> None:
    raise Unpicklable


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


def raises_what_has_no_text() -> None:
    raise Unspeakable


def raises_a_bare_base_exception() -> None:
    raise BaseException("the very base")


def raises_generator_exit() -> None:
    raise GeneratorExit


def raises_stop_iteration() -> None:
    raise StopIteration(3)


def raises_a_group() -> None:
    raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])


def raises_a_lone_surrogate() -> None:
    raise ValueError("half a character \ud800 and a zero \0 here\nand a second line")


def recurses() -> int:
    return recurses() + 1


def asks_for_too_much_memory() -> None:
    np.ones(2**58)


def returns_a_lambda() -> dict[str, Any]:
    return {"y": lambda: 3}


def returns_a_lock() -> dict[str, Any]:
    return {"y": threading.Lock()}


def returns_a_generator() -> Any:
    return (one for one in ())


def returns_text_for_a_number() -> dict[str, Any]:
    return {"y": "49"}


def returns_another_shape() -> dict[str, Any]:
    return {"y": np.zeros(3)}


def returns_another_name() -> dict[str, Any]:
    return {"z": 49.0}


def returns_more() -> dict[str, Any]:
    return {"y": 49.0, "z": 1.0}


def returns_nothing() -> dict[str, Any]:
    return {}


def returns_itself() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["y"] = made
    return made


def returns_nan() -> dict[str, Any]:
    return {"y": math.nan}


def prints_50_mb() -> None:
    line = "x" * 999 + "\n"
    print("the beginning")
    for _ in range(50_000):
        sys.stdout.write(line)
    print("the end")


def prints_50_mb_in_c() -> None:
    os.write(1, b"the beginning\n")
    block = b"x" * 2**20
    for _ in range(50):
        os.write(1, block)
    os.write(1, b"\nthe end\n")


def prints_by_a_child() -> None:
    subprocess.run(["sh", "-c", "echo from a child; echo its error >&2"], check=True)


def prints_bytes_that_are_no_text() -> None:
    os.write(1, b"\xff\xfe and \xc3")


def warns_by_the_thousand() -> None:
    for number in range(5_000):
        warnings.warn(f"warning {number}", stacklevel=1)


def makes_warnings_errors() -> None:
    warnings.simplefilter("error")
    time.sleep(0.001)


def makes_floats_raise() -> None:
    np.seterr(all="raise")
    time.sleep(0.001)


def deletes_its_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def changes_the_environment() -> None:
    os.environ["SWEEPKIT_TEST"] = "changed"
    os.environ.pop("HOME", None)


def changes_what_is_seldom_changed() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    os.umask(0o777)
    decimal.getcontext().prec = 3
    sys.setrecursionlimit(5_000)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    sys.path.clear()
    del sys.modules["random"]
    gc.disable()
    socket.setdefaulttimeout(0.001)
    sys.settrace(lambda *_: None)
    os.nice(1)


def sets_an_alarm() -> None:
    signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
    signal.setitimer(signal.ITIMER_REAL, 0.2)


def reseeds_numpy() -> None:
    np.random.seed(1)
    random.seed(1)


def replaces_standard_output() -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stdout


def closes_standard_output() -> None:
    sys.stdout.close()
    sys.stderr.close()


def closes_descriptor_1() -> None:
    os.close(1)


def patches_a_module() -> None:
    math.sqrt = lambda _: -1.0  # type: ignore[assignment]


def deletes_from_a_module() -> dict[str, Any]:
    del math.sqrt
    return {"y": 49.0}


def leaves_a_child_behind() -> None:
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600.25)"])


def leaves_a_thread_behind() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def leaves_a_daemon_behind() -> None:
    subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600.25)"], start_new_session=True
    )


def hangs_with_daemons() -> None:
    leaves_a_daemon_behind()
    subprocess.Popen(  # one that can be told by its parent alone
        [sys.executable, "-S", "-c", "import time; time.sleep(600.25)"],
        start_new_session=True,
        env={},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(600)


def dies_with_a_daemon() -> None:
    leaves_a_daemon_behind()
    os._exit(3)


def stops_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def forks_and_forgets_which_it_is() -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)


def forks_and_exits_politely() -> dict[str, Any]:
    child = os.fork()
    if not child:
        sys.exit(5)
    return {"y": float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))}


def closes_every_descriptor() -> None:
    os.closerange(3, 256)


CRASH = {"status": Status.CRASHED, "backends": IN_PROCESSES}
HANG: dict[str, Any] = {
    "status": Status.TIMEOUT,
    "error": r"the run took more than its time limit of 1 s",
    "backends": IN_PROCESSES,
    "options": {"timeout": 1.0},
}
ERROR = {"status": Status.ERROR}
INVALID = {"status": Status.INVALID}
DONE = {"status": Status.DONE}

FAULTS = (
    Fault(
        is_killed,
        error=r"the worker died with signal 9 \(SIGKILL\)$",
        log=("last words",),
        **CRASH,
    ),
    Fault(is_terminated, error=r"signal 15 \(SIGTERM\)$", **CRASH),
    Fault(reads_address_zero, error=r"signal 11 \(SIGSEGV\)$", **CRASH),
    Fault(aborts, error=r"signal 6 \(SIGABRT\)$", **CRASH),
    Fault(exits_0, error=r"exit code 0$", **CRASH),
    Fault(exits_3, error=r"exit code 3$", log=("partial",), **CRASH),
    Fault(kills_its_group, error=r"signal 9 \(SIGKILL\)$", **CRASH),
    Fault(closes_every_descriptor, error=r"exit code \d+$", **CRASH),
    Fault(sleeps, log=("about to sleep", r"in sleeps\b", r"in simulate\b"), **HANG),
    Fault(
        sleeps_in_c_holding_the_interpreter,
        log=(r"in sleeps_in_c_holding_the_interpreter\b",),
        **HANG,
    ),
    Fault(spins, log=(r"in spins\b",), **HANG),
    Fault(waits_for_a_child, log=(r"in waits_for_a_child\b", "subprocess.py"), **HANG),
    Fault(waits_for_a_deaf_child, log=(r"in waits_for_a_deaf_child\b",), **HANG),
    Fault(forks_and_hangs, log=(r"in forks_and_hangs\b",), **HANG),
    Fault(
        is_deaf_to_the_stack_signal,
        log=("heard nothing", "no stack could be had: the process did not heed the signal for it"),
        **HANG,
    ),
    Fault(stops_itself, log=(r"in stops_itself\b", "was stopped, as by SIGSTOP"), **HANG),
    Fault(hangs_with_daemons, log=(r"in hangs_with_daemons\b",), **HANG),
    Fault(dies_with_a_daemon, error=r"exit code 3$", **CRASH),
    Fault(exits_politely, error="^SystemExit: no more$", log=("in exits_politely",), **ERROR),
    Fault(interrupts_itself, error="^KeyboardInterrupt$", log=("in interrupts_itself",), **ERROR),
    Fault(raises_what_needs_two_arguments, error="^TwoArguments: this and that$", **ERROR),
    Fault(raises_what_cannot_be_pickled, error="^Unpicklable: holds a lock$", **ERROR),
    Fault(raises_what_has_no_text, error="^Unspeakable", **ERROR),
    Fault(raises_a_bare_base_exception, error="^BaseException: the very base$", **ERROR),
    Fault(raises_generator_exit, error="^GeneratorExit$", **ERROR),
    Fault(raises_stop_iteration, error="^StopIteration: 3$", **ERROR),
    Fault(raises_a_group, error=r"several \(2 sub-exceptions\)", log=("ValueError: one",), **ERROR),
    Fault(
        raises_a_lone_surrogate,
        error=r"^ValueError: half a character \\ud800 and a zero .* here and a second line$",
        **ERROR,
    ),
    Fault(recurses, error="^RecursionError: maximum recursion", log=("in recurses",), **ERROR),
    Fault(asks_for_too_much_memory, error="MemoryError|ValueError: .*allowed dimension", **ERROR),
    Fault(returns_a_lambda, error="output 'y'.*function", **INVALID),
    Fault(returns_a_lock, error="output 'y'.*lock", **INVALID),
    Fault(returns_a_generator, error="generator", **INVALID),
    Fault(returns_text_for_a_number, error="'y'.*str.*float64", **INVALID),
    Fault(
        returns_another_shape,
        error=r"'y' is \(y_dim_0: 3\), but the sweep stores a scalar",
        **INVALID,
    ),
    Fault(returns_another_name, error=r"'z' was not returned by the first run \(\w+=", **INVALID),
    Fault(
        returns_more,
        error=r"'z' was not returned by the first run \(.*\); outputs are y; return the same",
        **INVALID,
    ),
    Fault(returns_nothing, error="no outputs were returned", **INVALID),
    Fault(returns_itself, error="output 'y'.*dict", **INVALID),
    Fault(returns_nan, **DONE),
    Fault(prints_50_mb, log=("^the beginning\n", r"left out", "the end\n$"), **DONE),
    Fault(
        prints_50_mb_in_c,
        log=("^the beginning\n", r"left out", "the end\n$"),
        backends=IN_PROCESSES,
        **DONE,
    ),
    Fault(prints_by_a_child, log=("from a child", "its error"), backends=IN_PROCESSES, **DONE),
    Fault(prints_bytes_that_are_no_text, log=(r"\\xff\\xfe and",), backends=IN_PROCESSES, **DONE),
    Fault(
        warns_by_the_thousand,
        log=("UserWarning: warning 0\n", "warning 4999"),
        backends=HERE,
        **DONE,
    ),
    Fault(makes_warnings_errors, **DONE),
    Fault(makes_floats_raise, **DONE),
    Fault(deletes_its_folder, **DONE),
    Fault(
        changes_the_environment,
        notes=("environment changed: HOME, SWEEPKIT_TEST",),
        backends=HERE,
        **DONE,
    ),
    Fault(reseeds_numpy, **DONE),
    Fault(replaces_standard_output, backends=HERE, **DONE),
    Fault(closes_standard_output, **DONE),
    Fault(closes_descriptor_1, backends=IN_PROCESSES, **DONE),
    Fault(patches_a_module, notes=(r"math.sqrt changed",), backends=HERE, **DONE),
    Fault(deletes_from_a_module, notes=(r"math.sqrt changed",), backends=HERE, **DONE),
    Fault(
        changes_what_is_seldom_changed,
        notes=(
            "resource limits changed",
            "umask changed",
            "decimal context changed",
            "recursion limit changed",
            "signal handlers changed",
            "blocked signals changed",
            r"sys\.path changed",
            r"sys\.modules changed",
            "garbage collection changed",
            "socket timeout changed",
            "tracing changed",
            "niceness changed",
        ),
        backends=HERE,
        **DONE,
    ),
    Fault(sets_an_alarm, notes=("timer changed",), backends=HERE, **DONE),
    Fault(leaves_a_child_behind, notes=("child processes left",), leaves=True, **DONE),
    Fault(
        leaves_a_daemon_behind,
        notes=("child processes left",),
        backends=IN_PROCESSES,
        **DONE,
    ),
    Fault(leaves_a_thread_behind, notes=("threads left behind: Thread-",), backends=HERE, **DONE),
    Fault(leaves_a_thread_behind, backends=("threading",), **DONE),
    Fault(forks_and_forgets_which_it_is, backends=HERE, **DONE),
    Fault(forks_and_exits_politely, backends=HERE, **DONE),
)

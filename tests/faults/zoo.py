"""Faults of one run among forty: what it does, and what must become of it.

Runs of the sweep are numbered by ``i``; run ``FAULTY`` acts, all others return ``i * i``.
"""

from __future__ import annotations

import decimal
import gc
import locale
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweepkit.status import Status
from tests.faults import acts

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
        acts.is_killed,
        error=r"the worker died with signal 9 \(SIGKILL\)$",
        log=("last words",),
        **CRASH,
    ),
    Fault(acts.is_terminated, error=r"signal 15 \(SIGTERM\)$", **CRASH),
    Fault(acts.reads_address_zero, error=r"signal 11 \(SIGSEGV\)$", **CRASH),
    Fault(acts.aborts, error=r"signal 6 \(SIGABRT\)$", **CRASH),
    Fault(acts.exits_0, error=r"exit code 0$", **CRASH),
    Fault(acts.exits_3, error=r"exit code 3$", log=("partial",), **CRASH),
    Fault(acts.kills_its_group, error=r"signal 9 \(SIGKILL\)$", **CRASH),
    Fault(acts.closes_every_descriptor, error=r"exit code \d+$", **CRASH),
    Fault(acts.sleeps, log=("about to sleep", r"in sleeps\b", r"in simulate\b"), **HANG),
    Fault(
        acts.sleeps_in_c_holding_the_interpreter,
        log=(r"in sleeps_in_c_holding_the_interpreter\b",),
        **HANG,
    ),
    Fault(acts.spins, log=(r"in spins\b",), **HANG),
    Fault(acts.waits_for_a_child, log=(r"in waits_for_a_child\b", "subprocess.py"), **HANG),
    Fault(acts.waits_for_a_deaf_child, log=(r"in waits_for_a_deaf_child\b",), **HANG),
    Fault(acts.forks_and_hangs, log=(r"in forks_and_hangs\b",), **HANG),
    Fault(
        acts.is_deaf_to_the_stack_signal,
        log=("heard nothing", "no stack could be had: the process did not heed the signal for it"),
        **HANG,
    ),
    Fault(acts.stops_itself, log=(r"in stops_itself\b", "was stopped, as by SIGSTOP"), **HANG),
    Fault(acts.hangs_with_daemons, log=(r"in hangs_with_daemons\b",), **HANG),
    Fault(acts.dies_with_a_daemon, error=r"exit code 3$", **CRASH),
    Fault(acts.exits_politely, error="^SystemExit: no more$", log=("in exits_politely",), **ERROR),
    Fault(
        acts.interrupts_itself, error="^KeyboardInterrupt$", log=("in interrupts_itself",), **ERROR
    ),
    Fault(acts.raises_what_needs_two_arguments, error="^TwoArguments: this and that$", **ERROR),
    Fault(acts.raises_what_cannot_be_pickled, error="^Unpicklable: holds a lock$", **ERROR),
    Fault(acts.raises_what_has_no_text, error="^Unspeakable", **ERROR),
    Fault(acts.raises_a_bare_base_exception, error="^BaseException: the very base$", **ERROR),
    Fault(acts.raises_generator_exit, error="^GeneratorExit$", **ERROR),
    Fault(acts.raises_stop_iteration, error="^StopIteration: 3$", **ERROR),
    Fault(
        acts.raises_a_group,
        error=r"several \(2 sub-exceptions\)",
        log=("ValueError: one",),
        **ERROR,
    ),
    Fault(
        acts.raises_a_lone_surrogate,
        error=r"^ValueError: half a character \\ud800 and a zero .* here and a second line$",
        **ERROR,
    ),
    Fault(acts.recurses, error="^RecursionError: maximum recursion", log=("in recurses",), **ERROR),
    Fault(
        acts.asks_for_too_much_memory, error="MemoryError|ValueError: .*allowed dimension", **ERROR
    ),
    Fault(acts.returns_a_lambda, error="output 'y'.*function", **INVALID),
    Fault(acts.returns_a_lock, error="output 'y'.*lock", **INVALID),
    Fault(
        acts.returns_what_makes_no_array,
        error=r"output 'y' is a .*Tensor that makes no array \(RuntimeError: Can't call",
        **INVALID,
    ),
    Fault(acts.returns_a_generator, error="generator", **INVALID),
    Fault(acts.returns_text_for_a_number, error="'y'.*str.*float64", **INVALID),
    Fault(
        acts.returns_another_shape,
        error=r"'y' is \(y_dim_0: 3\), but the sweep stores a scalar",
        **INVALID,
    ),
    Fault(
        acts.returns_another_name, error=r"'z' was not returned by the first run \(\w+=", **INVALID
    ),
    Fault(
        acts.returns_more,
        error=r"'z' was not returned by the first run \(.*\); outputs are y; return the same",
        **INVALID,
    ),
    Fault(acts.returns_nothing, error="no outputs were returned", **INVALID),
    Fault(acts.returns_itself, error="output 'y'.*dict", **INVALID),
    Fault(acts.returns_nan, **DONE),
    Fault(acts.prints_50_mb, log=("^the beginning\n", r"left out", "the end\n$"), **DONE),
    Fault(
        acts.prints_50_mb_in_c,
        log=("^the beginning\n", r"left out", "the end\n$"),
        backends=IN_PROCESSES,
        **DONE,
    ),
    Fault(acts.prints_by_a_child, log=("from a child", "its error"), backends=IN_PROCESSES, **DONE),
    Fault(
        acts.prints_bytes_that_are_no_text, log=(r"\\xff\\xfe and",), backends=IN_PROCESSES, **DONE
    ),
    Fault(
        acts.warns_by_the_thousand,
        log=("UserWarning: warning 0\n", "warning 4999"),
        backends=HERE,
        **DONE,
    ),
    Fault(acts.makes_warnings_errors, **DONE),
    Fault(acts.makes_floats_raise, **DONE),
    Fault(acts.deletes_its_folder, **DONE),
    Fault(
        acts.changes_the_environment,
        notes=("environment changed: HOME, SWEEPKIT_TEST",),
        backends=HERE,
        **DONE,
    ),
    Fault(acts.reseeds_numpy, **DONE),
    Fault(acts.replaces_standard_output, backends=HERE, **DONE),
    Fault(acts.closes_standard_output, **DONE),
    Fault(acts.closes_descriptor_1, backends=IN_PROCESSES, **DONE),
    Fault(acts.patches_a_module, notes=(r"math.sqrt changed",), backends=HERE, **DONE),
    Fault(acts.deletes_from_a_module, notes=(r"math.sqrt changed",), backends=HERE, **DONE),
    Fault(
        acts.changes_what_is_seldom_changed,
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
    Fault(acts.sets_an_alarm, notes=("timer changed",), backends=HERE, **DONE),
    Fault(acts.leaves_a_child_behind, notes=("child processes left",), leaves=True, **DONE),
    Fault(
        acts.leaves_a_daemon_behind,
        notes=("child processes left",),
        backends=IN_PROCESSES,
        **DONE,
    ),
    Fault(
        acts.leaves_a_thread_behind, notes=("threads left behind: Thread-",), backends=HERE, **DONE
    ),
    Fault(acts.leaves_a_thread_behind, backends=("threading",), **DONE),
    Fault(acts.forks_and_forgets_which_it_is, backends=HERE, **DONE),
    Fault(acts.forks_and_exits_politely, backends=HERE, **DONE),
)

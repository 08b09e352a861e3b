"""What a faulty run does to itself, its worker and the process it shares."""

from __future__ import annotations

import ctypes
import decimal
import gc
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
from typing import Any, NoReturn

import numpy as np

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


class Tensor:
    """Of those that raise as soon as they are made an array: with a gradient, on a GPU."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on a tensor that requires grad")


def returns_what_makes_no_array() -> dict[str, Any]:
    return {"y": Tensor()}


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

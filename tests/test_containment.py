"""What a run changes of its process is restored before the next, or a fresh worker goes on."""

from __future__ import annotations

import ctypes
import decimal
import gc
import importlib
import json
import locale
import logging
import os
import platform
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit import fleet
from sweepkit.capture import TextCapture
from sweepkit.containment import Surroundings, kept_surroundings
from sweepkit.evaluate import Station, Task, evaluate
from sweepkit.simulator import unsettles
from sweepkit.traits import Pristine, Trait
from tests.conftest import MEMORY
from tests.waiting import LIMIT, until


def limit_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))


def set_precision() -> None:
    decimal.getcontext().prec = 3


def trap_nothing() -> None:
    decimal.setcontext(decimal.Context(traps=[]))


def forget_a_module() -> None:
    del sys.modules["decimal"]


def replace_a_module() -> None:
    sys.modules["decimal"] = sys.modules["json"]


UPWARD = 0x800 if platform.machine() in ("x86_64", "AMD64") else 0x400000


class Finder:
    """Finds nothing."""


CHANGES: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("resource limits", limit_files),
    ("umask", lambda: os.umask(0o777)),
    ("recursion limit", lambda: sys.setrecursionlimit(5_000)),
    ("timer", lambda: signal.alarm(100)),
    ("virtual timer", lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 100)),
    ("profiling timer", lambda: signal.setitimer(signal.ITIMER_PROF, 100, 1)),
    ("signal handlers", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN)),
    ("blocked signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})),
    ("decimal context", set_precision),
    ("decimal context", trap_nothing),
    ("garbage collection", gc.disable),
    ("garbage collection", lambda: gc.set_threshold(10_000)),
    ("socket timeout", lambda: socket.setdefaulttimeout(1.0)),
    ("tracing", lambda: sys.setprofile(lambda *_: None)),
    ("numpy's print options", lambda: np.set_printoptions(precision=2)),
    ("processors", lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])),
    ("logging", lambda: logging.disable(50)),
    ("logging", lambda: logging.root.setLevel(5)),
    ("logging", lambda: logging.root.addHandler(logging.NullHandler())),
    ("switch interval", lambda: sys.setswitchinterval(0.5)),
    ("digits of integers", lambda: sys.set_int_max_str_digits(0)),
    ("size of threads' stacks", lambda: threading.stack_size(1 << 20)),
    ("numpy's buffer size", lambda: np.setbufsize(1600)),
    ("floating-point rounding", lambda: ctypes.CDLL(None).fesetround(UPWARD)),
    ("finders of modules", lambda: sys.meta_path.insert(0, Finder)),
    ("finders of modules", sys.path_hooks.clear),
    ("sys.path", lambda: sys.path.insert(0, "/of/a/model")),
    ("sys.path", lambda: sys.path.append("/of/a/model")),
    ("sys.path", lambda: setattr(sys, "path", [])),
    ("sys.path", sys.path.clear),
    ("sys.path", sys.path.reverse),
    ("sys.modules", forget_a_module),
    ("sys.modules", replace_a_module),
)


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_what_is_seldom_changed_is_restored_and_told(name: str, change: Callable[[], Any]) -> None:
    pristine = Pristine()
    change()
    assert pristine.restore() == ([name], [])
    assert pristine.restore() == ([], [])


def test_a_locale_is_restored() -> None:
    before = locale.setlocale(locale.LC_ALL)
    other = "C" if before != "C" else "C.UTF-8"
    pristine = Pristine()
    locale.setlocale(locale.LC_ALL, other)
    assert pristine.restore() == (["locale"], [])
    assert locale.setlocale(locale.LC_ALL) == before


@pytest.mark.parametrize("place", [0, 10**6])
def test_a_folder_that_a_module_came_from_is_left_in_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    (tmp_path / "model_of_a_run.py").write_text("")
    pristine, before = Pristine(), list(sys.path)
    monkeypatch.setattr(sys, "path", sys.path)
    try:
        for _ in range(2):
            sys.path.insert(place, str(tmp_path))
            sys.path.insert(place, "/of/nothing")
            importlib.import_module("model_of_a_run")
            assert pristine.restore() == (["sys.path"], [])
            both = [str(tmp_path), *before], [*before, str(tmp_path)]
            assert sys.path == both[bool(place)]
    finally:
        sys.path[:] = before
        sys.modules.pop("model_of_a_run", None)


def test_a_timer_of_the_caller_goes_on() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 60)
        pristine = Pristine()
        assert pristine.restore() == ([], [])
        signal.alarm(0)
        assert pristine.restore() == (["timer"], [])
        assert 55 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_what_cannot_be_undone_is_told_once() -> None:
    state = [1]
    pristine = Pristine(Trait("state", lambda: state[0], lambda _: None))
    state[0] = 2
    assert pristine.restore() == (["state"], ["state"])
    assert pristine.restore() == ([], [])


def test_the_caller_gets_its_own_decimal_context_back() -> None:
    before = decimal.getcontext()
    with kept_surroundings():
        decimal.getcontext().prec = 3
        decimal.setcontext(decimal.Context(prec=4))
    assert decimal.getcontext() is before
    assert before.prec == 28


def test_threads_that_end_at_once_are_none_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()
    monkeypatch.setattr("sweepkit.containment.ENDING", LIMIT)
    with Surroundings(True) as surroundings:
        threading.Thread(target=time.sleep, args=(0.01,)).start()
        assert not surroundings.restore(wholly=True)
        monkeypatch.setattr("sweepkit.containment.ENDING", 0.05)
        threading.Thread(target=hold.wait, args=(LIMIT,), name="left").start()
        assert surroundings.restore(wholly=True)
        assert surroundings.told() == ("threads left behind: left",)
        assert not surroundings.restore(wholly=True)
        hold.set()


def hidden(code: str) -> Callable[[int], float]:
    """A simulator that takes a few ms and changes something which its own code does not name."""

    def f(i: int) -> float:
        if i == 2:
            exec(code)
        end = time.perf_counter() + 0.006
        while time.perf_counter() < end:
            pass
        return float(sys.getrecursionlimit())

    return f


def test_runs_that_take_long_are_looked_at_whatever_their_code_names() -> None:
    simulate = hidden("import sys; sys.setrecursionlimit(5_000)")
    assert not unsettles(simulate)
    sweep = sk.Sweep(simulate, sk.grid(i=range(5)))
    task = Task(simulate, sweep.call, sweep.grid, {}, 0, "independent", {})
    usual = sys.getrecursionlimit()
    result = evaluate(task, np.arange(5), Station(TextCapture(), watched=True))
    assert result.columns["result"][0].values.tolist() == [usual, usual, 5_000, usual, usual]
    assert result.notes == ("recursion limit changed",)
    assert sys.getrecursionlimit() == usual


def test_code_that_names_what_is_seldom_changed_is_found() -> None:
    def alarm(i: int) -> None:
        signal.alarm(3)

    def path(i: int) -> None:
        sys.path.clear()

    def neither(i: int) -> float:
        return float(len(os.path.join("signals", str(i))))

    assert unsettles(alarm)
    assert unsettles(path)
    assert not unsettles(neither)


def notes(store: str) -> dict[str, int]:
    (session,) = Path(f"{store}.sweepkit", "sessions").iterdir()
    return dict(json.loads(session.read_text())["notes"])


def test_a_worker_with_a_thread_left_behind_is_replaced_and_its_results_are_kept(
    store: str,
) -> None:
    def f(i: int) -> dict[str, float]:
        if i == 5:
            threading.Thread(target=time.sleep, args=(600,), name="left", daemon=True).start()
        left = any(one.name == "left" for one in threading.enumerate())
        return {"left": float(left), "pid": float(os.getpid())}

    sweep = sk.Sweep(f, sk.grid(i=range(30)))
    ds = sk.run(sweep, store, n_jobs=1, backend="loky", progress=False).load()
    assert np.flatnonzero(ds["left"].values).tolist() == [5]
    assert len(set(ds["pid"].values.tolist())) == 2
    assert (ds["attempts"] == 1).all()
    assert notes(store) == {"threads left behind: left": 1}


def share_memory(path: Path) -> SharedMemory:
    """Memory that other processes see, which nobody removes."""
    memory = SharedMemory(create=True, size=1_000)
    path.write_text(memory.name)
    return memory


@pytest.mark.parametrize("dies", [False, True])
def test_shared_memory_that_a_run_leaves_is_removed_with_its_worker(
    store: str, tmp_path: Path, dies: bool
) -> None:
    held = []

    def f(i: int) -> float:
        if i == 3:
            held.append(share_memory(tmp_path / "name"))
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
        return float(i)

    ds = sk.run(sk.Sweep(f, sk.grid(i=range(10))), store, n_jobs=1, progress=False)
    assert [i for i in range(10) if ds["status"][i] != 1] == ([3] if dies else [])
    assert notes(store) == {}  # what removes it is no child that the run left
    left = MEMORY / (tmp_path / "name").read_text()
    until(lambda: not left.exists())  # by the tracker, a moment after the worker


def test_workers_are_not_replaced_without_end(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "PATIENCE", 2)

    def f(i: int) -> dict[str, float]:
        threading.Thread(target=time.sleep, args=(600,), name="left").start()
        return {"pid": float(os.getpid())}

    sweep = sk.Sweep(f, sk.grid(i=range(20)))
    ds = sk.run(sweep, store, n_jobs=1, backend="loky", progress=False).load()
    assert len(set(ds["pid"].values.tolist())) == 3
    assert (ds["status"] == 1).all()

"""What tests share: a place for a store, and processes of their own."""

from __future__ import annotations

import compileall
import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
from hypothesis import settings

from tests.clock import Clock, clocked
from tests.waiting import LIMIT

ROOT = Path(__file__).parents[1]

EXHAUSTIVE = os.environ.get("SWEEPKIT_EXHAUSTIVE") == "1"
"""Whether long forms try everything, which takes hours, and not a sample of some minutes."""

MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one."""

MUCH = 4 * 2**30
"""Bytes that must be free there for the folders of tests, which take a tenth of it."""

if not EXHAUSTIVE:
    settings.load_profile("ci")  # the same examples each time, and none too slow


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep folders of tests in memory: stores are flushed, for which a disk takes half the time.

    ``--basetemp`` has them elsewhere, and left there. What a session left that was killed goes.
    """
    if config.option.basetemp is not None or not MEMORY.is_dir():
        return
    for old in MEMORY.glob("pytest-of-sweepkit-*"):
        if not psutil.pid_exists(int(old.name.rpartition("-")[2])):
            shutil.rmtree(old, ignore_errors=True)
    if shutil.disk_usage(MEMORY).free < MUCH:
        return
    folder = MEMORY / f"pytest-of-sweepkit-{os.getpid()}"
    config.option.basetemp = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_sessionstart() -> None:
    """Have sweepkit compiled for the hundreds of processes that tests start.

    Where Python is told to write no bytecode, each of them would compile it anew.
    """
    if sys.dont_write_bytecode:
        compileall.compile_dir(ROOT / "sweepkit", quiet=2)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare workers the imports of test modules, and sessions most garbage collection.

    Functions of test modules go to workers by value: to import the module there, with all that it
    imports, takes each of them a second. Those of other modules here go by name, as usual.
    """
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        cloudpickle.register_pickle_by_value(module)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Who interrupts is heard in every test: none leaves other handlers of signals."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    yield
    left = {one: signal.getsignal(one) for one in before}
    for one, handler in before.items():
        signal.signal(one, handler)
    assert left == before


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test moves, for sessions in its own process."""
    return clocked(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Path of a store that is not there yet."""
    return str(tmp_path / "a.zarr")


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start Python code as a process of its own, in the test's folder; it is ended afterwards."""
    begun: list[subprocess.Popen[str]] = []

    def started(code: str, *arguments: object) -> subprocess.Popen[str]:
        script = tmp_path / f"driver{len(begun)}.py"
        script.write_text(textwrap.dedent(code))
        search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": search},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield started
    for process in begun:
        if process.poll() is None:
            family: list[Any] = [process]
            with suppress(psutil.NoSuchProcess):
                family += psutil.Process(process.pid).children(recursive=True)
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def finish(start: Start) -> Callable[..., str]:
    """Run Python code as a process of its own to its end; returns what it printed."""

    def finished(code: str, *arguments: object) -> str:
        process = start(code, *arguments)
        out, err = process.communicate(timeout=15 * LIMIT)
        assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{err}"
        return out

    return finished

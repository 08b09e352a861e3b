"""People and systems end a driver: finished runs stay, no orphan computes, the next one goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil
import pytest

import sweepkit as sk
from sweepkit.status import Status
from tests.waiting import LIMIT, gone, until

Start = Callable[..., "Popen[str]"]
DRIVER = """
import ctypes, json, os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
os.setsid()  # a group of its own, as a terminal gives it
print("begun", flush=True)
import sweepkit as sk
import sweepkit.fleet

sweepkit.fleet.GRACE = float(sys.argv[4])

def f(i):
    if os.path.exists("ledger") and os.path.getsize("ledger") >= 4 * int(sys.argv[2]):
        {hang}
    time.sleep(0.0 if os.path.exists("quick") else float(sys.argv[3]))
    file = os.open("ledger", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, b"%3d\\n" % i)
    os.close(file)
    return {{"y": i * i}}

def progress(p):
    if p.finished >= 3:
        print("running", flush=True)
    if p.finished >= 6:
        print("six", flush=True)

sweep = sk.Sweep(f, sk.grid(i=range(int(sys.argv[1]))), version="1")
ds = sk.run(sweep, "a.zarr", n_jobs=2, progress=progress)
print(json.dumps(ds["status"].values.tolist()))
"""
HANGS = {
    "python": "time.sleep(600)",
    "c": "ctypes.PyDLL(None).sleep(600)",
    "child": "__import__('subprocess').run(['sleep', '600'])",
}


class Driver:
    """A sweep in a process of its own, and all the processes that it begins."""

    def __init__(
        self, start: Start, folder: Path, *, runs: int = 1000, hang: str = "python",
        hanging_after: int = 10**6, seconds: float = 0.05, grace: float = LIMIT,
    ) -> None:  # fmt: skip
        self.folder = folder
        code = DRIVER.format(hang=HANGS[hang])
        self.process = start(code, runs, hanging_after, seconds, grace)
        self.watchdog = threading.Timer(2 * LIMIT, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()
        self.expect("begun")

    def expect(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        assert self.process.stderr is not None
        raise AssertionError(self.process.stderr.read())

    def family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def group(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=LIMIT)
        self.watchdog.cancel()
        return self.process.returncode, errors

    def ledger(self) -> list[int]:
        path = self.folder / "ledger"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def done(self) -> set[int]:
        ds = sk.open(self.folder / "a.zarr").load()
        kept = (ds["status"] == Status.DONE).values
        assert (ds["status"].values[~kept] == Status.PENDING).all()
        assert ds["y"].values[kept].tolist() == [i**2 for i in ds["i"].values[kept].tolist()]
        return set(ds["i"].values[kept].tolist())


@pytest.fixture
def drive(start: Start, tmp_path: Path) -> Callable[..., Driver]:
    return lambda **how: Driver(start, tmp_path, **how)


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_an_interrupt_keeps_what_is_finished(drive: Any, tmp_path: Path, times: int) -> None:
    driver = drive(runs=600)
    driver.expect("running")
    processes = driver.family()
    for _ in range(times):
        driver.group(signal.SIGINT)
    code, errors = driver.end()
    assert code == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # of the driver alone
    gone(processes)
    kept = driver.done()
    assert kept == set(driver.ledger())
    assert 3 <= len(kept) < 600
    (tmp_path / "quick").touch()
    again = drive(runs=600)
    code, errors = again.end()
    assert code == 0, errors
    assert sorted(again.ledger()) == list(range(600))


@pytest.mark.parametrize(
    "delay", [0.7, *(pytest.param(one / 5, marks=pytest.mark.slow) for one in range(12))]
)
def test_an_interrupt_at_the_beginning_is_one_too(drive: Any, delay: float) -> None:
    driver = drive(grace=1.0)
    time.sleep(delay)  # whatever it is doing by then
    processes = driver.family()
    driver.group(signal.SIGINT)
    again: list[bool] = []

    def once_more() -> None:
        again.append(True)
        driver.group(signal.SIGINT)

    timer = threading.Timer(LIMIT / 4, once_more)
    timer.start()
    code, errors = driver.end()
    timer.cancel()
    timer.join()
    # Python itself loses one that comes in a callback, such as of an import, and says so.
    assert not again or "Exception ignored" in errors
    assert code in (-signal.SIGINT, 1), errors
    assert "KeyboardInterrupt" in errors
    gone(processes)


def test_an_interrupt_while_every_run_hangs_does_not_wait_for_them(drive: Any) -> None:
    driver = drive(runs=20, hang="c", hanging_after=6, grace=1.0)
    driver.expect("six")
    processes = driver.family()
    driver.group(signal.SIGINT)
    code, _ = driver.end()  # in far less time than they hang
    assert code == -signal.SIGINT
    gone(processes)
    assert driver.done() <= set(driver.ledger())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_terminated_keeps_what_is_finished(drive: Any, number: signal.Signals) -> None:
    driver = drive()
    driver.expect("running")
    processes = driver.family()
    driver.process.send_signal(number)
    code, errors = driver.end()
    assert code == -number
    assert "Traceback" not in errors
    gone(processes)
    assert driver.done() == set(driver.ledger())


@pytest.mark.parametrize(
    "hang", ["c", *(pytest.param(one, marks=pytest.mark.slow) for one in ("python", "child"))]
)
def test_a_killed_driver_leaves_no_orphan_and_no_lock(
    drive: Any, tmp_path: Path, hang: str
) -> None:
    driver = drive(runs=10, hang=hang, hanging_after=6, seconds=0.3)
    driver.expect("running")
    processes = driver.family()
    assert len(processes) >= 2
    driver.process.kill()
    driver.process.wait()
    kept = driver.done()
    executed = len(driver.ledger())
    again = drive(runs=10)  # at once
    gone(processes)
    code, errors = again.end()
    assert code == 0, errors
    assert again.done() == set(range(10))
    assert not set(again.ledger()[executed:]) & kept
    late = [i for i in again.ledger()[executed:] if again.ledger()[executed:].count(i) > 1]
    assert late == []


def test_what_a_run_forked_does_not_keep_workers_alive(start: Start) -> None:
    """A child that the driver forked holds its pipes open after it has been killed."""
    driver = start(
        """
        import os, time
        import sweepkit as sk

        def progress(p):
            if p.finished >= 2 and not seen:
                seen.append(1)
                if os.fork() == 0:
                    time.sleep(600)
                    os._exit(0)
                print("running", flush=True)

        def f(i):
            time.sleep(0.3)
            return float(i)

        seen = []
        sk.run(sk.Sweep(f, sk.grid(i=range(400))), "a.zarr", n_jobs=2, progress=progress)
        """
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "running\n"
    children = psutil.Process(driver.pid).children(recursive=True)
    workers = [one for one in children if "keeper.py" not in " ".join(one.cmdline())]
    workers = [one for one in workers if os.getpgid(one.pid) == one.pid]
    others = [one for one in children if one not in workers]
    assert len(workers) == 2
    driver.kill()
    driver.wait()
    try:
        gone(workers)
    finally:
        for one in others:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def cgroup() -> Path | None:
    """Where a control group that limits memory can be made, if it can."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, group = line.split(":", 2)
        if kinds in ("", "memory"):
            root = Path("/sys/fs/cgroup", *([kinds] if kinds else []))
            place = Path(f"{root}{group}", f"sweepkit-test-{os.getpid()}")
            try:
                place.mkdir()
            except OSError:
                continue
            for name in ("memory.max", "memory.limit_in_bytes"):
                with suppress(OSError):
                    if (place / name).exists():
                        (place / name).write_text(str(700 * 2**20))
                        return place
            place.rmdir()
    return None


@pytest.mark.skipif(not Path("/proc/self/cgroup").exists(), reason="control groups are of Linux")
def test_a_run_that_is_out_of_memory_is_told_so(start: Start, tmp_path: Path) -> None:
    place = cgroup()
    if place is None:
        pytest.skip("no control group with a limit on memory can be made here; it needs root")
    try:
        driver = start(
            f"""
            import json, os
            from pathlib import Path
            Path("{place}", "cgroup.procs").write_text(str(os.getpid()))
            import numpy as np
            import sweepkit as sk

            def f(i):
                if i == 5:
                    return float(np.ones(2**27).sum())  # 1 GB
                return float(i)

            ds = sk.run(sk.Sweep(f, sk.grid(i=range(12))), "a.zarr", n_jobs=2, progress=False)
            print(json.dumps([ds["status"].values.tolist(), str(ds["error"][5].values)]))
            """
        )
        out, errors = driver.communicate(timeout=LIMIT)
        assert driver.returncode == 0, errors
        status, error = json.loads(out)
        assert status == [1] * 5 + [int(Status.CRASHED)] + [1] * 6
        assert error == "the worker died with signal 9 (SIGKILL), out of memory"
    finally:
        until(lambda: not (place / "cgroup.procs").read_text().strip())
        place.rmdir()

"""A notebook's kernel is interrupted, restarted and killed in the middle of a sweep."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import sweepkit as sk
from sweepkit.status import Status
from tests.waiting import LIMIT, gone, until

jupyter_client = pytest.importorskip("jupyter_client")
ROOT = Path(__file__).parents[2]
RUNS = 300
PREPARE = """
import os, time
import sweepkit as sk
import sweepkit.fleet, sweepkit.intake

sweepkit.fleet.GRACE = 60.0  # what is on at an interrupt ends, however slow the machine
sweepkit.intake.RESTS = 0.0  # and what is done is written at once, however slow the disk

def f(i):
    time.sleep(0.0 if os.path.exists("quick") else 0.2)
    with open("ledger", "a") as file:
        file.write(f"{i}\\n")
    return {"y": i * i}

sweep = sk.Sweep(f, sk.grid(i=range(300)), requirements=["y >= 0"])
"""
RUN = 'ds = sk.run(sweep, "a.zarr", n_jobs=3)'


class Kernel:
    """A real kernel in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = jupyter_client.KernelManager(kernel_name="python3")
        search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, "PYTHONPATH": search})
        self.connect()

    def connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT)

    def execute(self, code: str) -> str:
        """Start a cell; its reply comes later."""
        return str(self.client.execute(code))

    def reply(self, message: str) -> dict[str, Any]:
        end = time.monotonic() + LIMIT
        while True:
            got = self.client.get_shell_msg(timeout=max(end - time.monotonic(), 0.01))
            if got["parent_header"].get("msg_id") == message:
                return dict(got["content"])

    def do(self, code: str) -> None:
        content = self.reply(self.execute(code))
        assert content["status"] == "ok", content

    def family(self) -> list[psutil.Process]:
        (pid,) = [self.manager.provisioner.process.pid]
        return [one for one in psutil.Process(pid).children(recursive=True) if worker(one)]

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def worker(one: psutil.Process) -> bool:
    try:
        line = " ".join(one.cmdline())
        return "resource_tracker" not in line and "keeper.py" not in line
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    Path(tmp_path, "ledger").touch()
    one = Kernel(tmp_path)
    one.do(PREPARE)
    yield one
    one.end()


def ledger(folder: Path) -> list[int]:
    return [int(line) for line in Path(folder, "ledger").read_text().split()]


def done(folder: Path) -> set[int]:
    ds = sk.open(folder / "a.zarr")
    kept = ds["status"].load() == Status.DONE  # before the values, which may come meanwhile
    ds = ds.load()
    assert (ds["y"].where(kept, drop=True) == ds["i"].where(kept, drop=True) ** 2).all()
    assert set(ds["status"].values[~kept.values].tolist()) <= {Status.PENDING}
    return set(ds["i"].values[kept.values].tolist())


def test_a_kernel_interrupted_once_and_twice_goes_on_where_it_was(
    kernel: Kernel, tmp_path: Path
) -> None:
    for wanted, times in ((9, 1), (27, 2)):
        cell = kernel.execute(RUN)
        until(lambda wanted=wanted: len(ledger(tmp_path)) >= wanted)  # type: ignore[misc]
        processes = kernel.family()
        assert len(processes) == 3
        for _ in range(times):
            kernel.manager.interrupt_kernel()
        content = kernel.reply(cell)
        assert (content["status"], content["ename"]) == ("error", "KeyboardInterrupt")
        gone(processes)
        assert done(tmp_path) == set(ledger(tmp_path))  # all that ended is kept
        assert len(done(tmp_path)) >= wanted
        kernel.do("assert 1 + 1 == 2")
    (tmp_path / "quick").touch()
    kernel.do(RUN)
    assert done(tmp_path) == set(range(RUNS))
    assert sorted(ledger(tmp_path)) == list(range(RUNS))


@pytest.mark.parametrize("how", ["kill", pytest.param("restart", marks=pytest.mark.slow)])
def test_a_kernel_restarted_or_killed_leaves_no_orphan_and_nothing_undone(
    kernel: Kernel, tmp_path: Path, how: str
) -> None:
    kernel.execute(RUN)
    until(lambda: Path(tmp_path, "a.zarr").exists() and len(done(tmp_path)) >= 4)
    processes = kernel.family()
    assert len(processes) == 3
    if how == "kill":
        psutil.Process(kernel.manager.provisioner.process.pid).kill()
    kernel.client.stop_channels()
    kernel.manager.restart_kernel(now=True)
    kept = done(tmp_path)
    executed = len(ledger(tmp_path))
    assert len(kept) >= 4
    kernel.connect()
    (tmp_path / "quick").touch()
    kernel.do(PREPARE)
    cell = kernel.execute(RUN)  # at once, whatever is left of the other
    gone(processes)
    content = kernel.reply(cell)
    assert content["status"] == "ok", content
    assert done(tmp_path) == set(range(RUNS))
    assert not set(ledger(tmp_path)[executed:]) & kept
    lines = ledger(tmp_path)
    assert len(lines) - len(set(lines)) <= executed - len(kept)


@pytest.mark.slow
def test_a_kernel_that_is_shut_down_leaves_no_orphan(kernel: Kernel, tmp_path: Path) -> None:
    kernel.execute(RUN)
    until(lambda: len(ledger(tmp_path)) >= 6)
    processes = kernel.family()
    kernel.manager.shutdown_kernel(now=False)
    gone(processes)
    before = len(ledger(tmp_path))
    kept = done(tmp_path)
    assert len(kept) >= 1
    assert len(ledger(tmp_path)) == before

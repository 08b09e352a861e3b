"""The n-th system call kills the driver or finds the disk full: nothing acknowledged is lost.

``strace`` injects the fault into the real calls of the real libraries. It counts them by thread, so
the n-th call is that of whichever thread makes so many first.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sweepkit as sk
from sweepkit.reading import NotASweepError
from sweepkit.status import Status
from tests.conftest import EXHAUSTIVE
from tests.nursery import GATE, Nursery
from tests.waiting import LIMIT, until

SEED = 20
QUICK = {"rename": 6, "write": 12, "fsync": 4}
"""Calls that some thread of a session certainly makes."""

MOST = 400
"""More calls than any session here makes; the search for the last one ends there."""

CALLS = {
    "rename": "rename,renameat,renameat2",
    "write": "write",
    "fsync": "fsync,fdatasync",
    "unlink": "unlink,unlinkat",
    "mkdir": "mkdir,mkdirat",
}
FAULTS = {"kill": "signal=SIGKILL", "full": "error=ENOSPC"}
TRIED = [
    pytest.param(call, fault, id=f"{call}-{fault}")
    for call in CALLS
    for fault in FAULTS
    if (call, fault) != ("unlink", "full")
]
SAMPLE = [one for one in TRIED if one.values[0] in QUICK]

DRIVER = """
import os, sys
import numpy as np
import sweepkit as sk
from sweepkit import format1

format1.BLOCK_RUNS = 8
ledger = os.open("ledger", os.O_RDWR | os.O_CREAT)

def f(a, b):
    # pwrite is not among the calls that fail
    os.pwrite(ledger, b"%3d %3d\\n" % (a, b), os.fstat(ledger).st_size)
    if a == 1 and b == 2:
        raise ValueError("always")
    return {"y": 10.0 * a + b, "trace": np.full(5, a - b), "text": f"{a}-{b}"}

n = int(sys.argv[1])
sweep = sk.Sweep(f, sk.grid(a=range(n), b=range(5)), version="1", name="f")
try:
    sk.run(sweep, "a.zarr", backend="sequential", progress=False)
except sk.StoreError as error:
    assert "a.zarr" in str(error), error
    sys.exit(28)
"""


def debian(package: str) -> str | None:
    """Install a Debian package where this process may; the path of its program if it is there."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update", "-qq"], ["install", "-y", "-qq", package]):
            subprocess.run(["apt-get", *command], capture_output=True, timeout=900)
    return shutil.which(package)


@pytest.fixture(scope="session")
def strace() -> str:
    found = shutil.which("strace") or debian("strace")
    works = (
        found is not None
        and not subprocess.run(
            [found, "-f", "-o", os.devnull, "true"], capture_output=True
        ).returncode
    )
    if not works and os.environ.get("CI") == "true":
        pytest.fail("strace is missing or may not trace here; CI installs it with apt")
    if not works:
        pytest.skip("strace is missing or may not trace here (Debian package 'strace')")
    assert found is not None
    return found


def traced(pid: int) -> bool:
    """Whether a process is traced by another."""
    status = Path("/proc", str(pid), "status").read_text()
    return "TracerPid:\t0\n" not in status


class Place:
    """A folder with a store, a driver that fills it, and a ledger of what was executed."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder = folder
        self.store = folder / "a.zarr"
        self.nursery = nursery
        (folder / "driver.py").write_text(DRIVER)

    def drive(self, n: int, tracing: list[str] | None = None) -> int:
        held = tracing is not None
        pid = self.nursery.start(self.folder, "driver.py", str(n), held=held)
        if tracing is None:
            return self.ended()
        with subprocess.Popen([*tracing, "-p", str(pid)], stderr=subprocess.PIPE) as tracer:
            until(lambda: traced(pid) or tracer.poll() is not None)
            with open(self.folder / GATE, "w"):
                pass
            code = self.ended()
            _, said = tracer.communicate(timeout=LIMIT)
            assert tracer.returncode in (0, code, -code, 128 - code), said
            return code

    def ended(self) -> int:
        code = self.nursery.wait()
        assert code in (0, 28, -9), (self.folder / "err").read_text()[-3000:]
        return code

    def inject(self, strace: str, n: int, call: str, fault: str, number: int) -> bool:
        """Fill with the n-th call of a kind failing; True if a thread made so many."""
        log = self.folder / "strace.log"
        names = CALLS[call]
        code = self.drive(
            n,
            [
                strace, "-f", "-qq", "-o", str(log), "-e", f"trace={names}", "-e", "signal=none",
                "-e", f"inject={names}:{FAULTS[fault]}:when={number}",
            ],
        )  # fmt: skip
        if fault == "kill":
            return code == -9
        return "(INJECTED)" in log.read_text(errors="replace")

    def kill(self, strace: str, n: int, call: str, at_most: int) -> None:
        """Fill and be killed late, at one of the first calls of a kind."""
        for number in range(at_most, 0, -1):
            if self.inject(strace, n, call, "kill", number):
                return
        pytest.fail(f"no thread made a call of {call}")

    def ledger(self) -> list[tuple[int, int]]:
        path = self.folder / "ledger"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(a), int(b)) for a, b in map(str.split, lines)]

    def settled(self) -> dict[tuple[int, int], Status]:
        """What counts as finished; its values are compared."""
        try:
            ds = sk.open(self.store).load()
        except NotASweepError:
            return {}
        found = {}
        for a in ds["a"].values.tolist():
            for b in ds["b"].values.tolist():
                run = ds.sel(a=a, b=b)
                status = Status(int(run["status"]))
                if status == Status.DONE:
                    assert float(run["y"]) == 10 * a + b
                    assert (run["trace"].values == np.full(5, a - b)).all()
                    assert str(run["text"].values) == f"{a}-{b}"
                if status != Status.PENDING:
                    found[a, b] = status
        return found

    def check(self, n: int, acknowledged: dict[tuple[int, int], Status]) -> None:
        """Nothing acknowledged is lost; another session finishes, and does nothing twice."""
        settled = self.settled()
        assert acknowledged.items() <= settled.items()
        before = len(self.ledger())
        assert self.drive(n) == 0
        executed = self.ledger()[before:]
        assert len(set(executed)) == len(executed)
        assert not set(executed) & set(settled)
        final = self.settled()
        assert len(final) == 5 * n
        assert [p for p, one in final.items() if one != Status.DONE] == [(1, 2)]
        assert final[1, 2] == Status.ERROR
        assert sk.verify(self.store).empty
        assert not list(self.folder.rglob("*.partial"))


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    one = Nursery(tmp_path_factory.mktemp("trial"), DRIVER.replace("sys.argv[1]", "2"))
    yield one
    one.close()


@pytest.fixture
def places(tmp_path: Path, nursery: Nursery) -> Iterator[Place]:
    """Fresh places, one after the other."""

    def made() -> Iterator[Place]:
        number = 0
        while True:
            folder = tmp_path / f"place{number}"
            folder.mkdir()
            yield Place(folder, nursery)
            number += 1

    return made()


@pytest.mark.parametrize(("call", "fault"), SAMPLE)
def test_a_fault_at_some_system_calls_loses_nothing(
    strace: str, places: Iterator[Place], call: str, fault: str
) -> None:
    place = next(places)
    number = random.Random(f"{SEED}-{call}-{fault}").randint(1, QUICK[call])
    assert place.inject(strace, 3, call, fault, number)
    place.check(3, {})


def test_a_fault_in_a_growth_loses_nothing(strace: str, places: Iterator[Place]) -> None:
    place = next(places)
    place.drive(2)
    acknowledged = place.settled()
    assert len(acknowledged) == 10
    place.kill(strace, 4, "rename", 4)
    place.check(4, acknowledged)


def test_a_kill_during_recovery_twice_loses_nothing(strace: str, places: Iterator[Place]) -> None:
    place = next(places)
    acknowledged: dict[tuple[int, int], Status] = {}
    for number in (6, 3, 2):
        place.kill(strace, 4, "rename", number)
        settled = place.settled()
        assert acknowledged.items() <= settled.items()
        acknowledged = settled
    place.check(4, acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize(("call", "fault"), TRIED)
@pytest.mark.parametrize("grown", [False, True])
def test_a_fault_at_every_system_call_loses_nothing(
    strace: str, places: Iterator[Place], call: str, fault: str, grown: bool
) -> None:
    step = 1 if EXHAUSTIVE else 25
    first = random.Random(f"{call}-{fault}-{grown}").randint(1, step)
    for number in range(first, MOST, step):
        place = next(places)
        acknowledged = {}
        if grown:
            place.drive(2)
            acknowledged = place.settled()
        hit = place.inject(strace, 3, call, fault, number)
        place.check(3, acknowledged)
        shutil.rmtree(place.folder)
        if not hit:
            print(f"{call}, {fault}: {number - 1} calls")
            return
    pytest.fail(f"more than {MOST} calls of {call}")


@pytest.mark.slow
def test_kills_during_recovery_from_everywhere_lose_nothing(
    strace: str, places: Iterator[Place]
) -> None:
    draw = random.Random(SEED)
    for _ in range(40 if EXHAUSTIVE else 4):
        place = next(places)
        acknowledged: dict[tuple[int, int], Status] = {}
        for _ in range(3):
            place.inject(strace, 3, draw.choice(list(CALLS)), "kill", draw.randint(1, 40))
            settled = place.settled()
            assert acknowledged.items() <= settled.items()
            acknowledged = settled
        place.check(3, acknowledged)

"""A kill at any moment: what counted as done stays, right, and is not run again.

Each scenario is killed by SIGKILL at its n-th change of the file system, for many n: between any
two of them a process may die. Processes are forked from one that has imported everything, so that
hundreds of kills take seconds.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import sweepkit as sk
from sweepkit.status import Status
from tests.conftest import EXHAUSTIVE
from tests.waiting import LIMIT, gone

HARNESS = '''
import gc, importlib, json, os, random, shutil, signal, sys, traceback
from contextlib import suppress
import numpy as np
import xarray as xr
import sweepkit as sk
from sweepkit import amend, format1, intake, reading

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}
WRITES = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
HERE = os.path.abspath(sys.argv[1])
BASE, MODULES = HERE + ".base", HERE + ".modules"
STORE = os.path.join(HERE, "a.zarr")
LEDGER = os.path.join(HERE, "ledger")

def note(*values):
    line = " ".join(str(float(value)) for value in values) + chr(10)
    file = os.open(LEDGER, os.O_APPEND | os.O_WRONLY)
    os.write(file, line.encode())
    os.close(file)

def ledger():
    with open(LEDGER) as file:
        return [tuple(map(float, line.split())) for line in file]

def sweep_into(sweep, **options):
    return sk.run(sweep, STORE, backend="sequential", progress=False, **options)

def finished():
    """Points that count as done, with their values, as any reader sees them; none before."""
    try:
        ds = sk.open(STORE).load()
    except reading.NotASweepError:
        return {}
    names = [str(n) for n in ds.coords if n in SHOWN]
    table = sk.runs(ds)
    table = table[table["status"] == "done"]
    return {
        tuple(float(row[name]) if name in names else float(ADDED.get(name, 0)) for name in SHOWN):
        row["y"] for _, row in table.iterrows()
    }

ADDED = {}

def child(work, number=None):
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        if number is not None:
            seen = [0]
            def hook(event, args):
                if event in CHANGES or (event == "open" and isinstance(args[2], int)
                                        and args[2] & WRITES and args[0] != LEDGER):
                    seen[0] += 1
                    if seen[0] == number:
                        os.kill(os.getpid(), signal.SIGKILL)
            sys.addaudithook(hook)
        work()
        code = 0
        if number is not None:
            with open(os.path.join(HERE, "changes"), "w") as file:
                file.write(str(seen[0]))
    except BaseException:
        traceback.print_exc(file=sys.stdout)
    finally:
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(code)

def fresh():
    shutil.rmtree(HERE)
    os.mkdir(HERE)
    open(LEDGER, "w").close()

def as_before():
    """What the kill finds, the same each time."""
    shutil.rmtree(HERE)
    shutil.copytree(BASE, HERE)

def remember():
    with open(os.path.join(HERE, "base"), "w") as file:
        json.dump(list(finished()), file)

def check(number, base):
    if base:
        sk.open(STORE)  # readers see the old store or the new, and never none
    done = finished()
    for point, y in done.items():
        assert y == expected(*point), (number, "wrong value", point, y)
    before = ledger()
    act()
    again = ledger()[len(before):]
    assert len(set(again)) == len(again), (number, "run twice", again)
    allowed = RERUN
    twice = [p for p in again if (p in done or p in base) and not allowed(p)]
    assert not twice, (number, "done, and run again", twice)
    after = finished()
    assert set(after) == set(map(tuple, POINTS)), (number, "missing", set(POINTS) ^ set(after))
    for point, y in after.items():
        assert y == expected(*point), (number, "wrong value after", point, y)
    with open(LEDGER) as file:
        lines = len(file.readlines())
    act()
    assert len(ledger()) == lines, (number, "a finished sweep runs again")
    left = [n for n in os.listdir(STORE) if n.endswith(".partial")]
    assert not left, (number, "left in the store", left)

RERUN = lambda point: False
before = lambda: None

def everything():
    before()
    finished()
    act()
    finished()

def main(wanted, seed):
    fresh()
    imported(everything)
    fresh()
    assert child(before) == 0
    shutil.copytree(HERE, BASE)
    assert child(remember) == 0
    with open(os.path.join(HERE, "base")) as file:
        base = set(map(tuple, json.load(file)))
    assert child(act, 10**9) == 0
    with open(os.path.join(HERE, "changes")) as file:
        count = int(file.read())
    numbers = list(range(1, count + 1))
    if wanted < count:
        numbers = sorted(random.Random(seed).sample(numbers, wanted))
    wrong = []
    for number in numbers:
        as_before()
        status = child(act, number)
        if not os.WIFSIGNALED(status):
            assert status == 0
            continue
        if child(lambda: check(number, base)) != 0:
            wrong.append(number)
    shutil.rmtree(BASE)
    print(json.dumps({"changes": count, "tried": len(numbers), "wrong": wrong}), flush=True)

def imported(work):
    """Import here what some work imports, so that no process forked off has to."""
    def noted():
        work()
        with open(MODULES, "w") as file:
            json.dump(sorted(sys.modules), file)
    assert child(noted) == 0
    take_over()

def take_over():
    with open(MODULES) as file:
        for name in json.load(file):
            with suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()  # what is never collected is not copied by each process

def trial():
    global SHOWN
    SHOWN = ["a", "b"]
    for n in (2, 3):
        sweep_into(sk.Sweep(lambda a, b: {"y": 1.0}, sk.grid(a=range(n), b=[1]), version="1"))
    finished()

if __name__ == "__main__":
    fresh()
    imported(trial)
    with open(sys.argv[2]) as file:
        scenarios = json.load(file)
    for code in scenarios:
        def scenario():
            exec(code, globals())
            main(int(sys.argv[3]), seed=int(sys.argv[4]))
        assert child(scenario) == 0
        take_over()
'''

SCENARIOS = {
    "creation": """
        SHOWN, POINTS = ["a", "b"], [(a, b) for a in (1., 2., 3.) for b in (0.5, 1.5)]
        def expected(a, b): return 10 * a + b
        def f(a, b):
            note(a, b)
            return {"y": 10 * a + b, "text": "x", "trace": np.arange(3.0)}
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[1, 2, 3], b=[0.5, 1.5])))
    """,
    "many blocks": """
        format1.BLOCK_RUNS = 4
        SHOWN = ["a", "b"]
        POINTS = [(float(a), float(b)) for a in range(4) for b in range(5)]
        def expected(a, b): return 10 * a + b
        intake.SLOW, intake.RESTS = -1.0, 0.0
        def f(a, b):
            note(a, b)
            return {"y": 10.0 * a + b}
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=range(4), b=range(5))))
    """,
    "growth": """
        format1.BLOCK_RUNS, format1.ROOM = 4, 0
        SHOWN = ["a", "b"]
        POINTS = [(float(a), float(b)) for a in (0, 1, 2, 3, 4) for b in (7, 8, 9)]
        def expected(a, b): return 10 * a + b
        def f(a, b):
            note(a, b)
            return {"y": 10.0 * a + b}
        def before(): sweep_into(sk.Sweep(f, sk.grid(a=[3, 1], b=[8])))
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 2, 3, 4], b=[7, 8, 9])))
    """,
    "a parameter joins": """
        SHOWN, ADDED = ["a", "drag"], {"drag": 0.5}
        POINTS = [(a, d) for a in (1., 2.) for d in (0.25, 0.5)]
        def expected(a, drag): return 10 * a + drag
        def f0(a):
            note(a, 0.5)
            return {"y": 10.0 * a + 0.5}
        def f(a, drag):
            note(a, drag)
            return {"y": 10.0 * a + drag}
        def before(): sweep_into(sk.Sweep(f0, sk.grid(a=[1, 2]), version="1"))
        def act():
            sweep = sk.Sweep(f, sk.grid(a=[1, 2], drag=[0.25, 0.5]), version="1")
            sweep_into(sweep, was={"drag": 0.5})
    """,
    "replicates join": """
        SHOWN, ADDED = ["a", "replicate"], {"replicate": 0}
        POINTS = [(a, d) for a in (1., 2.) for d in (0., 1., 2.)]
        SEEDS = {}
        def expected(a, replicate): return SEEDS[a, replicate]
        def f(a, seed):
            note(*[key for key, value in SEEDS.items() if value == seed][0])
            return {"y": seed}
        for one in POINTS:
            grid = sk.grid(a=[one[0]], replicates=3)
            from sweepkit.streams import run_keys, seeds
            keys = run_keys(grid, grid.index(np.array([int(one[1])])))
            SEEDS[one] = next(seeds(keys, 0))
        def before(): sweep_into(sk.Sweep(f, sk.grid(a=[1, 2])))
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[1, 2], replicates=3)))
    """,
    "an int axis gets a float": """
        SHOWN, POINTS = ["a", "b"], [(a, b) for a in (1., 1.5, 2.) for b in (0., 1.)]
        def expected(a, b): return 10 * a + b
        def f(a, b):
            note(a, b)
            return {"y": 10.0 * a + b}
        def before(): sweep_into(sk.Sweep(f, sk.grid(a=[1, 2], b=[0, 1])))
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[1, 1.5, 2], b=[0, 1])))
    """,
    "an output widens": """
        SHOWN, POINTS = ["a", "b"], [(a, b) for a in (0., 1., 2.) for b in (0., 1.)]
        def expected(a, b): return a if a < 2 else a + 0.5
        def f(a, b):
            note(a, b)
            return {"y": int(a) if a < 2 else a + 0.5}
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 2], b=[0, 1])))
    """,
    "errors are run again": """
        SHOWN, POINTS = ["a", "b"], [(a, b) for a in (0., 1., 2.) for b in (0., 1.)]
        def expected(a, b): return a + b
        def f(a, b):
            note(a, b)
            if len(ledger()) <= 6 and b == 0:
                raise ValueError("the first time")
            return {"y": a + b}
        def before(): sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 2], b=[0, 1])))
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 2], b=[0, 1])), rerun="error")
    """,
    "done runs are run again": """
        SHOWN, POINTS = ["a", "b"], [(a, b) for a in (0., 1., 2.) for b in (0., 1.)]
        def expected(a, b): return a + b
        RERUN = lambda point: True
        def old(a, b): return {"y": a + b}
        def f(a, b):
            note(a, b)
            return {"y": a + b}
        def before(): sweep_into(sk.Sweep(old, sk.grid(a=[0, 1, 2], b=[0, 1]), version="1"))
        def act():
            sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 2], b=[0, 1]), version="2"), stale="rerun")
    """,
    "big outputs are made again": """
        format1.CHUNK_BYTES, format1.BLOCK_RUNS = 16, 4
        SHOWN, POINTS = ["a", "b"], [(a, b) for a in (0., 1., 2.) for b in (1., 2.)]
        def expected(a, b): return [10 * a + b] * 3
        def finished():
            try:
                ds = sk.open(STORE, mask=False).load()
            except reading.NotASweepError:
                return {}
            done = {
                (float(ds["a"][i]), float(ds["b"][j])): ds["trace"].values[i, j].tolist()
                for i, j in np.argwhere(ds["status"].values == 1)
            }
            old = [p for p, y in done.items() if y == [-one for one in expected(*p)]]
            return {point: y for point, y in done.items() if point not in old}
        def old(a, b): return {"trace": np.full(3, -(10.0 * a + b))}
        def f(a, b):
            note(a, b)
            return {"trace": np.full(3, 10.0 * a + b)}
        def before(): sweep_into(sk.Sweep(old, sk.grid(a=[0, 1], b=[1, 2]), version="1"))
        def act():
            sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 2], b=[1, 2]), version="2"), stale="rerun")
            left = os.listdir(STORE + ".sweepkit")
            assert "parcels" not in left, left
    """,
}


def killed(
    tmp_path: Path, finish: Callable[..., str], names: list[str], wanted: int
) -> dict[str, dict[str, object]]:
    """How many kills were tried, by scenario; fails with the tracebacks of those that lost."""
    place, scenarios = tmp_path / "place", tmp_path / "scenarios.json"
    place.mkdir()
    scenarios.write_text(json.dumps([textwrap.dedent(SCENARIOS[name]) for name in names]))
    seed = random.randrange(10**6) if EXHAUSTIVE else wanted
    out = finish(HARNESS, place, scenarios, wanted, seed)
    lines = out.splitlines()
    said = [json.loads(line) for line in lines if line.startswith("{")]
    assert not any(one["wrong"] for one in said), out
    return dict(zip(names, said, strict=True))


def test_a_kill_at_some_changes_of_the_file_system_loses_nothing(
    tmp_path: Path, finish: Callable[..., str]
) -> None:
    said = killed(tmp_path, finish, list(SCENARIOS), 1)
    assert [one["tried"] for one in said.values()] == [1] * len(SCENARIOS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_many_changes_of_the_file_system_loses_nothing(
    tmp_path: Path, finish: Callable[..., str], name: str
) -> None:
    wanted = 60 if EXHAUSTIVE else 6
    said = killed(tmp_path, finish, [name], wanted)[name]
    assert said["tried"] == min(wanted, int(str(said["changes"])))


# --- kills and interrupts from outside, with workers -------------------------------------------

DRIVER = """
import os, sys
import sweepkit as sk

def f(a, b):
    line = f"{a} {b}\\n".encode()
    for path in (FIFO, LEDGER):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(file, line)
        os.close(file)
    return {"y": 100 * a + b, "text": "x" * (b % 5)}

if __name__ == "__main__":
    FIFO, LEDGER = os.path.abspath("fifo"), os.path.abspath("ledger")
    import sweepkit.fleet, sweepkit.intake
    sweepkit.intake.SLOW = -1.0   # written at once, as runs of seconds are
    sweepkit.intake.RESTS = 0.0
    sweepkit.fleet.GRACE = 60.0   # what is on at an interrupt ends, however slow the machine
    grid = sk.grid(a=range(int(sys.argv[3])), b=range(40))
    sk.run(sk.Sweep(f, grid, version="1"), "a.zarr", backend=sys.argv[1], n_jobs=int(sys.argv[2]),
           progress=False)
    print("finished")
"""


class Ledger:
    """Which runs were started, told as it happens by a pipe and kept in a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self.path.touch()
        os.mkfifo(folder / "fifo")
        self._pipe = os.open(folder / "fifo", os.O_RDWR | os.O_NONBLOCK)

    def wait(self, count: int, process: subprocess.Popen[str]) -> None:
        """Until so many more runs were started, or the process has ended."""
        seen, end = 0, time.monotonic() + LIMIT
        while seen < count and process.poll() is None:
            assert time.monotonic() < end, f"{seen} of {count} runs in time"
            if select.select([self._pipe], [], [], 0.2)[0]:
                seen += os.read(self._pipe, 4096).count(b"\n")

    def drain(self, seconds: float) -> None:
        """Let runs go on for a moment."""
        select.select([], [], [], seconds)
        while select.select([self._pipe], [], [], 0)[0]:
            os.read(self._pipe, 65536)

    def runs(self) -> Counter[tuple[int, int]]:
        """How often each point was started so far."""
        pairs = [line.split() for line in self.path.read_text().splitlines()]
        return Counter((int(a), int(b)) for a, b in pairs)

    def close(self) -> None:
        os.close(self._pipe)


def done_points(path: Path) -> set[tuple[int, int]]:
    """Points that count as done, all with the right values."""
    if not (path / "zarr.json").exists():
        return set()
    table = sk.runs(sk.open(path).load())
    table = table[table["status"] == "done"]
    if "y" not in table:
        assert table.empty
        return set()
    assert (table["y"] == 100 * table["a"] + table["b"]).all()
    assert table["text"].tolist() == ["x" * (b % 5) for b in table["b"]]
    return set(zip(table["a"].tolist(), table["b"].tolist(), strict=True))


def end_of_family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def killed_drivers(tmp_path: Path, start: Callable[..., subprocess.Popen[str]], count: int) -> None:
    chance = random.Random(count)
    ledger = Ledger(tmp_path)
    kept: set[tuple[int, int]] = set()
    try:
        for trial in range(count):
            backend = ("loky", "sequential", "loky", "threading")[trial % 4]
            before = ledger.runs()
            kept = done_points(tmp_path / "a.zarr")
            process = start(DRIVER, backend, 2, 50 * (trial + 1))  # grown each time
            ledger.wait(chance.randint(1, 30), process)
            ledger.drain(chance.random() * 0.1)
            workers = end_of_family(process)
            process.send_signal(signal.SIGKILL)
            process.wait()
            gone(workers)  # none outlives its driver
            again = ledger.runs() - before
            assert not kept & set(again), "counted done, and run again"
            assert max(again.values(), default=1) == 1, "run twice by one driver"
            assert done_points(tmp_path / "a.zarr") >= kept, "lost"
        assert kept
    finally:
        ledger.close()


def test_a_driver_killed_four_times_keeps_what_counted_as_done(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    killed_drivers(tmp_path, start, 4)


@pytest.mark.slow
def test_a_driver_killed_thirty_times_keeps_what_counted_as_done(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    killed_drivers(tmp_path, start, 30)


def test_resume_after_a_kill_runs_exactly_the_missing_runs_at_once(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    ledger = Ledger(tmp_path)
    try:
        process = start(DRIVER, "loky", 2, 5)
        ledger.wait(20, process)
        process.kill()
        process.wait()
        kept = done_points(tmp_path / "a.zarr")
        before = ledger.runs()
        again = start(DRIVER, "loky", 2, 5)
        out, err = again.communicate(timeout=LIMIT)
        assert "finished" in out, err
        ran = ledger.runs() - before
        everything = {(a, b) for a in range(5) for b in range(40)}
        assert set(ran) == everything - kept
        assert max(ran.values(), default=1) == 1
        assert done_points(tmp_path / "a.zarr") == everything
    finally:
        ledger.close()


@pytest.mark.parametrize("backend", ["loky", "threading", "sequential"])
def test_an_interrupt_keeps_finished_runs_leaves_no_children_and_resumes(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], backend: str
) -> None:
    ledger = Ledger(tmp_path)
    try:
        process = start(DRIVER, backend, 2, 10**3)
        ledger.wait(30, process)
        workers = end_of_family(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode in (1, -signal.SIGINT, 130)
        assert err.rstrip().endswith("KeyboardInterrupt")
        gone(workers)
        before, kept = ledger.runs(), done_points(tmp_path / "a.zarr")
        assert kept
        status = sk.open(tmp_path / "a.zarr", mask=False)["status"].values
        assert set(status.ravel().tolist()) <= {Status.DONE, Status.PENDING}
        again = start(DRIVER, backend, 2, 10**3)
        ledger.wait(30, again)
        again.kill()
        again.wait()
        assert not set(ledger.runs() - before) & kept
    finally:
        ledger.close()

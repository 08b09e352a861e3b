"""A kill at any moment: what counted as done stays, right, and is not run again.

Each scenario is killed by SIGKILL at its n-th change of the file system, for many n: between any
two of them a process may die. Processes are forked from one that has imported everything, so that
hundreds of kills take seconds.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import subprocess
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sweepkit as sk

HARNESS = '''
import json, os, random, signal, sys, traceback
import numpy as np
import xarray as xr
import sweepkit as sk
from sweepkit import blocks, format1, reading, run, workbench, amend
from sweepkit.executors import joblib
from sweepkit.stores import zarr

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}
WRITES = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
HERE = os.path.abspath(sys.argv[1])
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
PARTS = lambda: None

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
        traceback.print_exc()
    finally:
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(code)

def fresh():
    import shutil
    for name in os.listdir(HERE):
        path = os.path.join(HERE, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    open(LEDGER, "w").close()

def check(number):
    done = finished()
    for point, y in done.items():
        assert y == expected(*point), (number, "wrong value", point, y)
    before = ledger()
    act()
    again = ledger()[len(before):]
    assert len(set(again)) == len(again), (number, "run twice", again)
    allowed = RERUN
    twice = [p for p in again if p in done and not allowed(p)]
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

def main(wanted, seed):
    fresh()
    assert child(before) == 0
    assert child(act, 10**9) == 0
    with open(os.path.join(HERE, "changes")) as file:
        count = int(file.read())
    numbers = list(range(1, count + 1))
    if wanted < count:
        numbers = sorted(random.Random(seed).sample(numbers, wanted))
    wrong = []
    for number in numbers:
        fresh()
        assert child(before) == 0
        status = child(act, number)
        if not os.WIFSIGNALED(status):
            assert status == 0
            continue
        if child(lambda: check(number)) != 0:
            wrong.append(number)
    print(json.dumps({"changes": count, "tried": len(numbers), "wrong": wrong}))
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
        def f(a, b):
            note(a, b)
            return 10.0 * a + b
        f2 = lambda a, b: {"y": f(a, b)}
        def act():
            real = run.Session._maybe_flush
            run.SLOW = -1.0
            sweep_into(sk.Sweep(f2, sk.grid(a=range(4), b=range(5)), version="1"))
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
}


def killed(tmp_path: Path, finish: Callable[..., str], name: str, wanted: int) -> dict[str, object]:
    place = tmp_path / "place"
    place.mkdir()
    main = f"main({wanted}, seed=7)\n"
    out = finish(HARNESS + textwrap.dedent(SCENARIOS[name]) + main, place)
    return dict(json.loads(out.splitlines()[-1]))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_some_changes_of_the_file_system_loses_nothing(
    tmp_path: Path, finish: Callable[..., str], name: str
) -> None:
    said = killed(tmp_path, finish, name, 12)
    assert said["wrong"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_every_change_of_the_file_system_loses_nothing(
    tmp_path: Path, finish: Callable[..., str], name: str
) -> None:
    said = killed(tmp_path, finish, name, 10**6)
    assert said["wrong"] == []
    assert said["tried"] == said["changes"]

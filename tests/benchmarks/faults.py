"""The same twenty runs, of which five go wrong, in sweepkit and in its peers: what is left.

``python -m tests.benchmarks.faults [--limit SECONDS] [TOOL ...]``

Runs 0 to 19 return ``i * i``; run 3 raises, 7 ends its process by SIGKILL, 11 hangs, 13 returns
NaN, 17 prints. Each tool runs in a process group of its own, in a folder of its own, with its
documented way to go on after errors and to store results, and a limit on its time: what it has
stored or returned by then is counted, then it is resumed once, in a new process, without the faults
of 7 and 11. Processes that are left are counted and ended.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

RUNS = 20
ODD = {3: "raises", 7: "is killed", 11: "hangs", 13: "is NaN", 17: "prints"}
GOOD = [i for i in range(RUNS) if i not in (3, 7, 11)]
LIMIT = 30.0
TIMEOUT = 2.0

SIMULATOR = '''
import json, math, os, signal, sys, time

TAME = "--tame" in sys.argv

def simulate(i):
    i = int(i)
    with open("ledger", "a") as file:
        file.write(f"{i}\\n")
    time.sleep(0.05)
    if i == 3:
        raise ValueError("run 3 raises")
    if i == 7 and not TAME:
        os.kill(os.getpid(), signal.SIGKILL)
    if i == 11 and not TAME:
        time.sleep(600)
    if i == 17:
        print("run 17 prints")
    return math.nan if i == 13 else float(i * i)

def told(**what):
    """Say what there is now; the last word counts."""
    with open("said.tmp", "w") as file:
        json.dump(what, file)
    os.replace("said.tmp", "said.json")
'''

TOOLS = {
    "sweepkit": '''
import sweepkit as sk
ds = sk.run(sk.Sweep(simulate, sk.grid(i=range(20))), "a.zarr", n_jobs=2, timeout=TIMEOUT,
            rerun="unsuccessful", stale="keep", progress=False)
''',
    "joblib": '''
import joblib
values = joblib.Parallel(n_jobs=2, timeout=TIMEOUT)(joblib.delayed(simulate)(i) for i in range(20))
told(values=dict(enumerate(values)))
''',
    "xyzpy": '''
import xyzpy
runner = xyzpy.Runner(simulate, var_names=["y"])
harvester = xyzpy.Harvester(runner, data_name="a.h5", engine="h5netcdf")
harvester.harvest_combos({"i": list(range(20))}, parallel=True, num_workers=2)
''',
    "pipefunc": '''
from concurrent.futures import ProcessPoolExecutor
from pipefunc import Pipeline, PipeFunc
pipeline = Pipeline([PipeFunc(simulate, output_name="y", mapspec="i[k] -> y[k]")])
with ProcessPoolExecutor(2) as pool:
    found = pipeline.map({"i": list(range(20))}, run_folder="a", executor=pool, parallel=True,
                         storage="file_array", error_handling="continue", cleanup=not TAME,
                         show_progress=False)
''',
    "sweepexp": '''
import sweepexp
sweep = sweepexp.SweepExpParallel(lambda i: {"y": simulate(i)}, {"i": list(range(20))}, "a.nc",
                                  timeout=TIMEOUT, auto_save=True)
sweep.run(status=["N", "F", "T"], max_workers=2)
''',
}

READERS = {
    "sweepkit": '''
ds = sk.open("a.zarr").load()
rows = {int(i): (str(sk.Status(int(s)).word), float(y), str(e), str(l)) for i, s, y, e, l in
        zip(ds["i"].values, ds["status"].values, ds["result"].values, ds["error"].values,
            ds["log"].values)}
told(values={i: r[1] for i, r in rows.items() if r[0] == "done"},
     errors={i: r[2] for i, r in rows.items() if r[0] not in ("done", "pending")},
     logs={i: r[3] for i, r in rows.items() if r[3]})
''',
    "xyzpy": '''
import xarray as xr
if os.path.exists("a.h5"):
    ds = xr.open_dataset("a.h5", engine="h5netcdf")
    told(values={int(i): float(y) for i, y in zip(ds["i"].values, ds["y"].values)})
''',
    "pipefunc": '''
import numpy as np
from pipefunc.map import load_outputs
values, errors = {}, {}
try:
    found = load_outputs("y", run_folder="a")
    for i, y in enumerate(np.ma.filled(found, None).tolist()):
        if isinstance(y, (int, float)):
            values[i] = float(y)
        elif "ErrorSnapshot" in str(y):
            errors[i] = str(y)
except Exception as fault:
    errors[-1] = repr(fault)
told(values=values, errors={i: e for i, e in errors.items() if i >= 0})
''',
    "sweepexp": '''
import xarray as xr
if os.path.exists("a.nc"):
    ds = xr.open_dataset("a.nc")
    rows = list(zip(ds["i"].values, ds["status"].values, ds["y"].values))
    told(values={int(i): float(y) for i, s, y in rows if s == "C"},
         errors={int(i): str(s) for i, s, y in rows if s in ("F", "T")})
''',
}


@dataclass
class Outcome:
    """What one tool left after one session."""

    values: dict[int, float]
    errors: dict[int, str]
    logs: dict[int, str]
    executed: int
    seconds: float
    ending: str
    orphans: int

    @property
    def kept(self) -> list[int]:
        """Good runs whose value is there and right."""
        right = []
        for i in GOOD:
            got = self.values.get(i)
            if got is not None and (got == i * i or (i == 13 and got != got)):
                right.append(i)
        return right


def limited(command: list[str], folder: Path, limit: float) -> tuple[float, str, int]:
    """Run a command at most so long; returns seconds, how it ended, and processes it left."""
    began = time.monotonic()
    with open(folder / "output", "a") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    seen: set[psutil.Process] = set()
    ending = "hangs"
    while time.monotonic() - began < limit:
        with suppress(psutil.NoSuchProcess):
            seen |= set(psutil.Process(process.pid).children(recursive=True))
        if process.poll() is not None:
            ending = "ends" if process.returncode == 0 else _last_line(folder / "output")
            break
        time.sleep(0.05)
    seconds = time.monotonic() - began
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
    _, alive = psutil.wait_procs(list(seen), timeout=3)
    for one in alive:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    return seconds, ending, len(alive)


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    raised = [one.split(":")[0].split(".")[-1] for one in lines if re.match(r"[\w.]+: ", one)]
    return f"raises {raised[-1] if raised else '?'}"


def session(tool: str, folder: Path, limit: float, *, tame: bool) -> Outcome:
    """One session of a tool in a folder, and what can be read of it afterwards."""
    script = folder / "driver.py"
    guard = textwrap.indent(TOOLS[tool].strip() + "\n", "    ")
    script.write_text(
        f"{SIMULATOR}\nTIMEOUT = {TIMEOUT}\nif __name__ == '__main__':\n{guard}"
    )
    reader = folder / "reader.py"
    reader.write_text(
        f"{SIMULATOR}\nimport sweepkit as sk\n{READERS.get(tool, '')}"
        if tool == "sweepkit"
        else f"{SIMULATOR}\n{READERS.get(tool, '')}"
    )
    (folder / "said.json").unlink(missing_ok=True)
    (folder / "ledger").write_text("")
    command = [sys.executable, str(script), *(["--tame"] if tame else [])]
    seconds, ending, orphans = limited(command, folder, limit)
    subprocess.run([sys.executable, str(reader)], cwd=folder, capture_output=True, timeout=60)
    said: dict[str, Any] = {}
    if (folder / "said.json").exists():
        said = json.loads((folder / "said.json").read_text())
    parts = [{int(i): one for i, one in said.get(word, {}).items()} for word in
             ("values", "errors", "logs")]  # fmt: skip
    executed = len((folder / "ledger").read_text().split())
    return Outcome(parts[0], parts[1], parts[2], executed, seconds, ending, orphans)


def row(tool: str, limit: float) -> list[str]:
    """A tool's line of the table."""
    with tempfile.TemporaryDirectory(prefix="sweepkit-faults-") as made:
        folder = Path(made)
        first = session(tool, folder, limit, tame=False)
        second = session(tool, folder, limit, tame=True)
    named = [f"{i} {ODD[i]}" for i in (3, 7, 11) if i in first.errors]
    blamed = len(set(first.errors) & set(GOOD))
    named += [f"and {blamed} good ones"] if blamed else []
    log = "kept" if any("run 17 prints" in one for one in first.logs.values()) else "lost"
    return [
        f"{tool} {importlib.metadata.version(tool)}",
        f"{first.ending}, {first.seconds:.0f} s",
        f"{len(first.kept)} of {len(GOOD)}",
        ", ".join(named) or "none",
        log,
        str(first.orphans),
        f"{second.ending}; {second.executed} run, {len(second.values)} there",
    ]


HEAD = (
    "tool", "the call", "good runs kept", "faults told by run", "print of 17", "orphans",
    "resumed with 7 and 11 mended",
)  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each session")
    parser.add_argument("tools", nargs="*", default=[], help=f"of {', '.join(TOOLS)}")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])
    )
    rows = [HEAD]
    for tool in given.tools or TOOLS:
        try:
            rows.append(tuple(row(tool, given.limit)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((tool, "is not installed", *[""] * (len(HEAD) - 2)))
    for at, line in enumerate(rows):
        print(f"| {' | '.join(line)} |")
        if not at:
            print(f"|{' --- |' * len(line)}")


if __name__ == "__main__":
    main()

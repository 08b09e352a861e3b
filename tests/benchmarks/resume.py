"""From the call to the first new run on a half-finished store of 10^6 runs.

The floor is what reading the statuses back by plain Zarr takes. Each number comes from a fresh
process, imports left out.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from typing import Any

from tests.benchmarks.measure import ROOT, peak_mb, table, timed

RUNS = 1_000_000


def simulator(a: float, b: float) -> dict[str, float]:
    """A trivial simulator with eight outputs."""
    x = a + b
    return {"o0": x, "o1": x, "o2": x, "o3": x, "o4": x, "o5": x, "o6": x, "o7": x}


class Stop(Exception):
    """Raised from the progress callback to end a session half-way."""


def half(folder: str) -> None:
    """Fill half of a store."""
    import sweepkit as sk

    def report(progress: Any) -> None:
        if progress.finished >= RUNS // 2:
            raise Stop

    with suppress(Stop):
        sk.run(_sweep(), f"{folder}/r.zarr", n_jobs=2, progress=report)


def _sweep() -> Any:
    import sweepkit as sk

    return sk.Sweep(
        simulator, sk.grid(a=[i / 100 for i in range(100)], b=[i / 7 for i in range(RUNS // 100)])
    )


def again(folder: str) -> dict[str, float]:
    """Resume, and stop at the first new run."""
    import zarr

    import sweepkit as sk

    run, sweep = sk.run, _sweep()
    floor, status = timed(lambda: zarr.open_array(f"{folder}/r.zarr/status", mode="r")[...])
    done = int((status == 1).sum())
    start = time.perf_counter()
    first: list[float] = []

    def report(progress: Any) -> None:
        if progress.counts and not first:
            first.append(time.perf_counter() - start)
            raise Stop

    with suppress(Stop):
        run(sweep, f"{folder}/r.zarr", n_jobs=2, progress=report)
    return {"done": done, "floor": floor, "first": first[0], "mb": peak_mb()}


def main() -> None:
    """Measure and print the table."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="sweepkit-benchmark-") as folder:
        said = []
        for step in ("half", "again"):
            done = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.resume", step, folder],
                cwd=ROOT,
                check=True,
                capture_output=True,
                text=True,
            )
            said.append(done.stdout)
        found = json.loads(said[1].strip().splitlines()[-1])
    head = ("resume of 10^6 runs", "runs done", "statuses read s", "first new run s", "ratio", "MB")
    row = [
        "half finished",
        int(found["done"]),
        found["floor"],
        found["first"],
        found["first"] / found["floor"],
        found["mb"],
    ]
    print(table(head, [row]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["half"]:
        half(sys.argv[2])
    elif sys.argv[1:2] == ["again"]:
        print(json.dumps(again(sys.argv[2])))
    else:
        main()

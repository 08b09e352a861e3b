"""What the framework adds to a run: microseconds a run, beside raw joblib and the peers.

Trivial runs that return dictionaries of floats, two workers, everything stored. The floor is
joblib on chunks of 256 that return the same dictionaries, with nothing stored. Each number comes
from a fresh process, imports left out, the start of workers included; medians of three in turns.
Peers are measured at 10,000 runs if they are installed (the ``benchmark`` extra).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.benchmarks.measure import apart, peak_mb, repeated, table, timed

WORKERS = 2
SIZES = (10_000, 100_000, 1_000_000)


def one(a: float, b: float) -> dict[str, float]:
    """A trivial simulator with one output."""
    return {"o0": a + b}


def eight(a: float, b: float) -> dict[str, float]:
    """A trivial simulator with eight outputs."""
    x = a + b
    return {"o0": x, "o1": x, "o2": x, "o3": x, "o4": x, "o5": x, "o6": x, "o7": x}


def eight_random(a: float, b: float, rng: Any) -> dict[str, float]:
    """The same, handed a random generator that it does not use."""
    x = a + b
    return {"o0": x, "o1": x, "o2": x, "o3": x, "o4": x, "o5": x, "o6": x, "o7": x}


SIMULATORS: dict[str, Callable[..., Any]] = {
    "one": one,
    "eight": eight,
    "random": eight_random,
}


def _axes(runs: int) -> tuple[list[float], list[float]]:
    short = 100
    return [i / short for i in range(short)], [i / 7 for i in range(runs // short)]


def _chunk(simulator: Callable[..., Any], pairs: list[tuple[float, float]]) -> list[Any]:
    return [simulator(a, b) for a, b in pairs]


def raw(kind: str, runs: int) -> dict[str, Any]:
    """joblib on chunks of 256, nothing stored."""
    import joblib

    a_axis, b_axis = _axes(runs)
    pairs = [(a, b) for a in a_axis for b in b_axis]
    simulator = SIMULATORS[kind]

    def work() -> Any:
        return joblib.Parallel(n_jobs=WORKERS)(
            joblib.delayed(_chunk)(simulator, pairs[at : at + 256]) for at in range(0, runs, 256)
        )

    seconds, result = timed(work)
    assert sum(map(len, result)) == runs
    return {"us": seconds / runs * 1e6, "mb": peak_mb()}


def ours(kind: str, runs: int, timeout: float | None = None) -> dict[str, Any]:
    """sweepkit, stored with status."""
    import xarray as xr

    import sweepkit as sk

    xr.DataArray([0.0], dims="x", coords={"x": [0.0]}).copy()  # makes xarray import dask
    a_axis, b_axis = _axes(runs)
    sweep = sk.Sweep(SIMULATORS[kind], sk.grid(a=a_axis, b=b_axis))
    run = sk.run
    seconds, _ = timed(
        lambda: run(sweep, "b.zarr", n_jobs=WORKERS, progress=False, timeout=timeout)
    )
    files = sum(len(names) for _, _, names in os.walk("b.zarr/o0"))
    seconds_open, ds = timed(lambda: sk.open("b.zarr"))
    outputs = [name for name in ds.data_vars if str(name).startswith("o")]
    seconds_read, _ = timed(lambda: ds[outputs].load())
    return {
        "us": seconds / runs * 1e6,
        "mb": peak_mb(),
        "files": files,
        "open_s": seconds_open + seconds_read,
    }


def limited(kind: str, runs: int) -> dict[str, Any]:
    """sweepkit with a time limit on every run."""
    return ours(kind, runs, timeout=60.0)


def harvester(kind: str, runs: int) -> dict[str, Any]:
    """xyzpy's Harvester, stored in netCDF."""
    import xyzpy

    a_axis, b_axis = _axes(runs)
    names = ["o0"] if kind == "one" else [f"o{i}" for i in range(8)]

    def simulator(a: float, b: float) -> Any:
        values = tuple(SIMULATORS[kind](a, b).values())
        return values[0] if len(values) == 1 else values

    runner = xyzpy.Runner(simulator, var_names=names)
    target = xyzpy.Harvester(runner, data_name="h.nc", engine="h5netcdf")
    combos = {"a": a_axis, "b": b_axis}
    seconds, _ = timed(
        lambda: target.harvest_combos(combos, parallel=True, num_workers=WORKERS, verbosity=0)
    )
    return {"us": seconds / runs * 1e6, "mb": peak_mb()}


def pipefunc(
    kind: str, runs: int, storage: str = "file_array", *, whole: bool = False
) -> dict[str, Any]:
    """pipefunc's map with file storage: a pickle for each output of a run.

    With ``whole`` the dictionary is one output, so a single pickle a run, which must be taken
    apart by whoever wants one of the eight.
    """
    from pipefunc import PipeFunc, Pipeline

    a_axis, b_axis = _axes(runs)
    names = ("y",) if whole or kind == "one" else tuple(f"o{i}" for i in range(8))

    def simulator(a: float, b: float) -> Any:
        result = SIMULATORS[kind](a, b)
        return result if whole else tuple(result.values()) if len(names) > 1 else result["o0"]

    mapped = PipeFunc(
        simulator,
        output_name=names if len(names) > 1 else names[0],
        mapspec=f"a[i], b[j] -> {', '.join(f'{name}[i, j]' for name in names)}",
    )
    pipeline = Pipeline([mapped])
    seconds, _ = timed(
        lambda: pipeline.map(
            {"a": a_axis, "b": b_axis},
            run_folder="p",
            storage=storage,
            parallel=True,
            show_progress=False,
        )
    )
    return {"us": seconds / runs * 1e6, "mb": peak_mb()}


WAYS: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "raw": raw,
    "ours": ours,
    "limited": limited,
    "xyzpy": harvester,
    "pipefunc": pipefunc,
    "pipefunc, one pickle a run": partial(pipefunc, whole=True),
    "pipefunc, Zarr": partial(pipefunc, storage="zarr_file_array"),
}


def case(way: str, kind: str, runs: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    return apart("tests.benchmarks.overhead", way, kind, str(runs))


def main() -> None:
    """Measure everything and print the table."""
    rows: list[list[object]] = []
    for kind in ("one", "eight"):
        for runs in SIZES:
            floor, own = repeated(3, [partial(case, w, kind, runs) for w in ("raw", "ours")])
            rows.append(
                [
                    f"{kind} output{'s' * (kind == 'eight')}, {runs:,} runs",
                    floor["us"],
                    own["us"],
                    own["us"] / floor["us"],
                    own["mb"],
                    own["files"],
                    own["open_s"],
                ]
            )
    for way, label in (("ours", "eight outputs, with rng"), ("limited", "eight, time limit")):
        kind = "random" if way == "ours" else "eight"
        (own,) = repeated(3, [partial(case, way, kind, SIZES[-1])])
        rows.append(
            [
                f"{label}, {SIZES[-1]:,} runs",
                "",
                own["us"],
                "",
                own["mb"],
                own["files"],
                own["open_s"],
            ]
        )
    head = ("case", "joblib us", "sweepkit us", "ratio", "driver MB", "files/output", "open+read s")
    print(table(head, rows))
    peers: list[list[object]] = []
    own = case("ours", "eight", SIZES[0])
    for name in ("xyzpy", "pipefunc", "pipefunc, one pickle a run", "pipefunc, Zarr"):
        if importlib.util.find_spec(name.partition(",")[0]) is None:
            print(f"{name} is not installed; pip install 'sweepkit[benchmark]' measures it too")
            continue
        peer = case(name, "eight", SIZES[0])
        peers.append([name, peer["us"], own["us"], peer["us"] / own["us"], peer["mb"]])
    if peers:
        largest = case("ours", "eight", SIZES[-1])
        for row in peers:
            row.append(float(str(row[1])) / largest["us"])
        print()
        head = (
            "peer, stored, 10,000 runs",
            "peer us",
            "sweepkit us",
            "times",
            "MB",
            "times ours at 10^6",
        )
        print(table(head, peers))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(WAYS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
    else:
        main()

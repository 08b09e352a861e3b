"""Faults that people met with other tools, about what runs draw, return and are given back."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.status import Status

BACKENDS = ("sequential", "threading", "loky")


def run(function: Callable[..., Any], grid: Any, store: object, **options: Any) -> Any:
    options = {"n_jobs": 2, "backend": "loky", "progress": False, **options}
    return sk.run(sk.Sweep(function, grid, version="1"), str(store), **options).load()


# joblib/joblib#36, optuna/optuna#692: every worker drew the same random numbers
def draw(i: int, rng: np.random.Generator) -> float:
    return float(rng.random())


def test_draws_are_distinct_and_the_same_everywhere_also_after_growth(tmp_path: Path) -> None:
    found = {}
    for backend in BACKENDS:
        ds = run(draw, sk.grid(i=range(50)), tmp_path / f"{backend}.zarr", backend=backend)
        found[backend] = ds["result"].values.tolist()
    assert len(set(found["loky"])) == 50
    assert found["loky"] == found["threading"] == found["sequential"]
    run(draw, sk.grid(i=range(0, 50, 3)), tmp_path / "grown.zarr", n_jobs=1)
    grown = run(draw, sk.grid(i=range(50)), tmp_path / "grown.zarr", n_jobs=3)
    assert grown["result"].values.tolist() == found["loky"]


def draw_from_globals(i: int) -> dict[str, float]:
    import random

    return {"a": float(np.random.random()), "b": random.random()}


@pytest.mark.parametrize("backend", ["sequential", "loky"])
def test_draws_from_global_generators_depend_on_the_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    first = run(draw_from_globals, sk.grid(i=range(50)), tmp_path / "a.zarr", n_jobs=2)
    assert len(set(first["a"].values.tolist())) == len(set(first["b"].values.tolist())) == 50
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "BATCH_RUNS", 3)
    options = {} if backend == "sequential" else {"n_jobs": 3}
    again = run(
        draw_from_globals, sk.grid(i=range(50)), tmp_path / "b.zarr", backend=backend, **options
    )
    for name in ("a", "b"):
        assert first[name].values.tolist() == again[name].values.tolist()


# dask/distributed#2015: equal calls were merged
@pytest.mark.parametrize("backend", BACKENDS)
def test_five_replicates_of_a_function_that_ignores_its_inputs_run_five_times(
    tmp_path: Path, store: str, backend: str
) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()

    def f() -> float:
        with open(ledger, "a") as file:
            file.write("x")
        return 1.0

    ds = run(f, sk.grid(replicates=5), store, backend=backend)
    assert ds.sizes["replicate"] == 5
    assert ledger.read_text() == "xxxxx"


# quaquel/EMAworkbench#12: results stored in finishing order
@pytest.mark.parametrize("backend", BACKENDS)
def test_results_sit_at_their_coordinates_whatever_the_order_they_finish_in(
    store: str, backend: str
) -> None:
    def f(i: int, j: str) -> float:
        time.sleep((8 - i) * 0.004)
        return 10.0 * i + ("a", "b", "c").index(j)

    grid = sk.grid(i=[3, 1, 7, 0, 5], j=["c", "a", "b"])
    n_jobs = 1 if backend == "sequential" else 4
    ds = run(f, grid, store, backend=backend, n_jobs=n_jobs)
    for i in (3, 1, 7, 0, 5):
        for at, j in enumerate("abc"):
            assert ds["result"].sel(i=i, j=j) == 10 * i + at


# joblib/joblib#1647: runs saw each other's files; a deleted folder stuck to reused workers
@pytest.mark.parametrize("backend", ["sequential", "loky"])
def test_a_deleted_working_directory_sticks_to_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.chdir(tmp_path)

    def f(i: int) -> float:
        import os
        import tempfile

        if i == 0:
            folder = tempfile.mkdtemp()
            os.chdir(folder)
            os.rmdir(folder)
            return 0.0
        Path("out.txt").write_text(str(i))
        return float(i)

    ds = run(f, sk.grid(i=range(12)), "a.zarr", backend=backend)
    assert ds["result"].values.tolist() == list(map(float, range(12)))
    assert Path.cwd() == tmp_path
    assert Path(tmp_path, "out.txt").exists()


# pydata/xarray#2789: strings were cut to the length of the first
def test_strings_are_kept_whole(store: str) -> None:
    texts = ["a", "longer", "", "é", "日本", "with\nlines", "tab\t", "💥 beyond the plane"]

    def f(text: str) -> dict[str, str]:
        return {"same": text, "twice": text * 2}

    grown = [*texts, "a much longer one that comes later than all the others"]
    run(f, sk.grid(text=texts), store)
    run(f, sk.grid(text=grown), store)
    ds = sk.open(store).load()
    assert ds["text"].values.tolist() == grown
    assert ds["same"].values.tolist() == grown
    assert ds["twice"].values.tolist() == [one * 2 for one in grown]


# pydata/xarray#6476: writing float results into an int variable truncated them
@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_after_ints_are_not_truncated(
    store: str, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "BATCH_RUNS", 1)

    def f(a: int) -> float:
        return a if a < 2 else a + 0.5

    ds = run(f, sk.grid(a=[0, 1, 2]), store, backend=backend)
    done = ds["status"].values == Status.DONE
    assert ds["result"].values[done].tolist() == np.array([0.0, 1.0, 2.5])[done].tolist()
    for text in ds["error"].values[~done].tolist():
        assert "'result'" in text
        assert "float64" in text
        assert "int64" in text


SHARED: dict[str, Any] = {"n": 0, "trace": np.zeros(3), "flag": True}


def returns_one_dict(i: int) -> dict[str, Any]:
    SHARED["n"] = i
    SHARED["trace"][:] = i
    return SHARED


BARE = np.zeros(3)


def returns_one_array(i: int) -> Any:
    BARE[:] = i
    return BARE


def returns_a_view(i: int) -> dict[str, Any]:
    BARE[:] = i
    return {"trace": BARE[::-1], "n": BARE[1:2][0]}


@pytest.mark.parametrize("backend", ["sequential", "loky"])
def test_a_simulator_may_hand_out_the_same_object_every_time(tmp_path: Path, backend: str) -> None:
    expected = [[float(i)] * 3 for i in range(40)]
    grid = sk.grid(i=range(40))
    ds = run(returns_one_dict, grid, tmp_path / "a.zarr", backend=backend)
    assert ds["n"].values.tolist() == list(range(40))
    assert ds["trace"].values.tolist() == expected
    ds = run(returns_one_array, grid, tmp_path / "b.zarr", backend=backend)
    assert ds["result"].values.tolist() == expected
    ds = run(returns_a_view, grid, tmp_path / "c.zarr", backend=backend)
    assert ds["trace"].values.tolist() == expected
    assert ds["n"].values.tolist() == list(range(40))


def test_what_runs_did_is_told_with_their_statuses_at_the_end(store: str) -> None:
    import json

    def f(i: int) -> float:
        if i in (3, 4):
            raise ValueError(f"run {i}")
        if i == 5:
            raise KeyError("k")
        return float(i)

    run(f, sk.grid(i=range(8)), store)
    (session,) = Path(f"{store}.sweepkit", "sessions").iterdir()
    said = json.loads(session.read_text())
    assert said["errors"] == {"ValueError": 2, "KeyError": 1}
    assert said["runs"] == {"done": 5, "error": 3}


def labelled(values: Any, at: Any = None) -> xr.DataArray:
    return xr.DataArray(values, dims="x", coords=None if at is None else {"x": at})


PADDED = sk.output(dims="x", size=4, pad=True)
DECLARED = sk.output(dims="x", size=4, pad=True, coords={"x": [0.0, 1.0, 2.0, 3.0]})
TWICE = r"other coordinate values along 'x' than the sweep stores: 3 instead of 1 at position 0"
LOST = r"coordinates along 'x', which is padded: they would be lost"


@pytest.mark.parametrize(
    ("first", "later", "output", "told"),
    [
        (([1.0, 2.0, 3.0], [1, 2, 3]), ([3.0, 2.0, 1.0], [3, 2, 1]), None, TWICE),
        (([1.0, 2.0], None), ([2.0, 1.0], [20, 10]), None, "along 'x', from 20 on, but the sweep"),
        (([1.0, 2.0], [2**53, 2**53 + 1]), ([2.0, 1.0], [2.0**53] * 2), None, "at position 1"),
        (([1.0, 2.0], [np.nan, 1.0]), ([3.0, 4.0], [np.nan, 1.0]), None, None),
        (([1.0, 2.0], ["a\0", "a"]), ([3.0, 4.0], ["a\0", "a"]), None, None),
        (([1.0, 2.0], [1, 2]), ([3.0, 4.0], [1.0, 2.0]), None, None),
        (([1.0], None), ([1.0, 2.0], [0.0, 1.0]), PADDED, LOST),
        (([1.0], [0.0]), ([1.0, 2.0], [0.0, 1.0]), DECLARED, None),
        (([1.0], [0.0]), ([1.0, 2.0], [0.0, 2.0]), DECLARED, "2.0 instead of 1.0 at position 1"),
    ],
)
def test_results_along_other_coordinates_are_not_laid_over_one_another(
    store: str, first: Any, later: Any, output: Any, told: str | None
) -> None:
    def f(i: int) -> Any:
        return {"y": labelled(*(first if i == 0 else later))}

    outputs = {} if output is None else {"y": output}
    for points in ([0], [0, 1]):
        sweep = sk.Sweep(f, sk.grid(i=points), outputs=outputs, version="1")
        ds = sk.run(sweep, store, backend="sequential", progress=False).load()
    assert ds["y"].values[0, : len(first[0])].tolist() == first[0]
    if told is None:
        assert ds["status"].values.tolist() == [Status.DONE] * 2
        assert ds["y"].values[1, : len(later[0])].tolist() == later[0]
    else:
        assert ds["status"].values.tolist() == [Status.DONE, Status.INVALID]
        assert told in str(ds["error"].values[1]).replace("\n", " ")


def test_coordinates_of_far_dates_are_refused_and_not_wrapped(store: str) -> None:
    far = np.array(["2000-01-01", "5000-01-01"], dtype="M8[s]")

    def f(i: int) -> Any:
        return labelled([1.0, 2.0], far)

    ds = run(f, sk.grid(i=[0, 1]), store, backend="sequential")
    assert ds["status"].values.tolist() == [Status.INVALID] * 2
    assert "coords along 'x' have a value that is outside the years" in str(ds["error"].values[0])


@pytest.mark.parametrize("beside", [2**53 + 1, 2**63 + 1])
def test_a_negative_zero_is_not_the_integer_zero(store: str, beside: int) -> None:
    ds = run(lambda i: beside if i == 0 else -0.0, sk.grid(i=[0]), store, backend="sequential")
    ds = run(lambda i: beside if i == 0 else -0.0, sk.grid(i=[0, 1]), store, backend="sequential")
    assert ds["status"].values.tolist() == [Status.DONE, Status.INVALID]
    assert "'result' is float64 -0.0, but the sweep stores" in str(ds["error"].values[1])
    assert int(sk.open(store, mask=False)["result"][0]) == beside

"""The store as Dataset and as table: masked, ordered, lazy, also while it is written."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit import format1
from sweepkit.status import NAMES, Status


def run(sweep: sk.Sweep, path: str, **options: Any) -> xr.Dataset:
    return sk.run(sweep, path, backend="sequential", progress=False, **options)


def typed(a: int) -> dict[str, Any]:
    return {
        "real": 1.5,
        "narrow": np.float32(0.5),
        "whole": 7,
        "small": np.int8(3),
        "ok": True,
        "when": np.datetime64("2020-02-29T12:00:00.000000001"),
        "span": np.timedelta64(5, "s"),
        "text": "日本",
        "pair": 1 + 2j,
        "trace": np.arange(3),
        "truths": np.array([True, False]),
        "texts": np.array(["a", "longer"]),
    }


HIDDEN: dict[str, tuple[str, Any]] = {
    "real": ("float64", np.nan),
    "narrow": ("float32", np.nan),
    "whole": ("float64", np.nan),
    "small": ("float64", np.nan),
    "ok": ("float64", np.nan),
    "when": ("datetime64[ns]", np.datetime64("NaT", "ns")),
    "span": ("timedelta64[ns]", np.timedelta64("NaT", "ns")),
    "text": ("object", ""),
    "pair": ("complex128", complex(np.nan, np.nan)),
    "trace": ("float64", np.nan),
    "truths": ("float64", np.nan),
    "texts": ("object", ""),
}


@pytest.fixture
def stopped(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in which 2 of 6 runs are done: the third raised, and the sweep was to stop."""
    # So a batch is one run.
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "FIRST_SECONDS", 0.0)
    count = 0

    def simulate(a: int) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count > 2:
            raise ValueError("enough")
        return typed(a)

    with pytest.raises(sk.RunError):
        run(sk.Sweep(simulate, sk.grid(a=range(6)), version="1"), store, on_error="raise")
    return store


# --- masks of unfinished cells -----------------------------------------------------------------


@pytest.mark.parametrize("name", HIDDEN)
def test_unfinished_cells_are_hidden_by_type(stopped: str, name: str) -> None:
    ds = sk.open(stopped)
    dtype, nothing = HIDDEN[name]
    array = ds[name].load()
    assert str(array.dtype) == dtype
    done = (ds["status"] == Status.DONE).values
    assert done.sum() == 2
    for value in array.values[~done].ravel():
        if isinstance(nothing, str):
            assert value == nothing
        else:
            assert pd.isna(value)
    for value in array.values[done]:
        assert np.array_equal(value, np.asarray(typed(0)[name]).astype(array.dtype))


def test_dtypes_do_not_depend_on_progress(stopped: str) -> None:
    before = {str(n): v.dtype for n, v in sk.open(stopped).variables.items()}
    run(sk.Sweep(typed, sk.grid(a=range(6)), version="1"), stopped, rerun="error")
    after = {str(n): v.dtype for n, v in sk.open(stopped).variables.items()}
    assert (sk.open(stopped)["status"] == Status.DONE).all()
    assert before == after


def test_both_parts_of_unfinished_complex_numbers_are_hidden(stopped: str) -> None:
    pair = sk.open(stopped)["pair"].load()
    assert int(pair.real.count()) == int(pair.imag.count()) == 2
    assert float(pair.imag.mean()) == 2.0


def test_unfinished_cells_stay_out_of_means_counts_and_tables(stopped: str) -> None:
    ds = sk.open(stopped)
    assert ds["whole"].mean().item() == 7
    assert ds["ok"].sum().item() == 2
    assert int(ds["small"].count()) == 2
    table = sk.runs(ds)
    assert table["whole"].dropna().tolist() == [7.0, 7.0]
    assert sk.failed(ds, ["whole > 8"]).sum().item() == 2
    assert int(sk.failed(ds, ["whole > 8"]).isnull().sum()) == 4


def test_without_the_mask_stored_values_come_as_they_are(stopped: str) -> None:
    ds = sk.open(stopped, mask=False).load()
    assert ds["whole"].dtype == np.int64
    assert ds["small"].dtype == np.int8
    assert ds["ok"].dtype == bool
    assert sorted(ds["whole"].values.tolist()) == [0, 0, 0, 0, 7, 7]
    assert int(ds["when"].isnull().sum()) == 4


def test_integers_beyond_a_float_keep_their_dtype_and_say_so(store: str) -> None:
    ds = run(sk.Sweep(lambda a: 2**53 + a, sk.grid(a=[0, 1, 2])), store)
    assert ds["result"].dtype == np.int64
    assert ds["result"].values.tolist() == [2**53, 2**53 + 1, 2**53 + 2]
    assert "2**53" in ds["result"].attrs["note"]


# --- laziness and selections -------------------------------------------------------------------


def test_opening_reads_no_values(store: str) -> None:
    run(sk.Sweep(typed, sk.grid(a=range(4))), store)
    for chunk in (Path(store) / "trace" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"broken")
    ds = sk.open(store)
    assert ds["real"].values.tolist() == [1.5] * 4
    with pytest.raises((ValueError, RuntimeError)):
        ds["trace"].load()


@pytest.fixture
def shuffled(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of several blocks whose disk order is not the declared one, with holes."""
    monkeypatch.setattr(format1, "BLOCK_RUNS", 4)

    def simulate(a: int, b: float) -> dict[str, Any]:
        if a == 3:
            raise ValueError(f"no {b}")
        return {"y": 10 * a + b, "trace": np.arange(3.0) + a, "n": a}

    for a, b in (
        ([5, 3], [0.5]),
        ([1, 2, 3, 4, 5], [0.0, 0.5, 1.0]),
        ([5, 4, 3, 2, 1], [1.0, 0.0, 0.5]),
    ):
        run(sk.Sweep(simulate, sk.grid(a=a, b=b), version="1"), store)
    return store


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"a": 0},
        {"a": -1, "b": 2},
        {"a": slice(1, 4)},
        {"a": slice(None, None, -1)},
        {"a": slice(4, 0, -2), "b": [2, 0]},
        {"a": [3, 3, 0]},
        {"a": np.array([True, False, True, False, True])},
        {"a": slice(0, 0)},
        {"a": [], "b": 0},
        {"b": slice(2, 9)},
    ],
)
def test_any_selection_gives_what_the_whole_gives(shuffled: str, index: dict[str, Any]) -> None:
    whole = sk.open(shuffled).load()
    assert whole["a"].values.tolist() == [5, 4, 3, 2, 1]
    assert whole["b"].values.tolist() == [1.0, 0.0, 0.5]
    good = whole["a"] != 3
    assert ((whole["y"] == 10 * whole["a"] + whole["b"]) == good).all()
    lazily = sk.open(shuffled).isel(index).load()
    assert lazily.identical(whole.isel(index))


def test_points_picked_one_by_one_are_right(shuffled: str) -> None:
    at = {"a": xr.DataArray([0, 2, 4, 1], dims="p"), "b": xr.DataArray([2, 1, 0, 0], dims="p")}
    assert sk.open(shuffled).isel(at).load().identical(sk.open(shuffled).load().isel(at))


def test_labels_and_dask_chunks_work(shuffled: str) -> None:
    ds = sk.open(shuffled, chunks={})
    assert ds["y"].chunks is not None
    assert ds["y"].sel(a=4, b=0.5).compute().item() == 40.5
    assert ds.load().identical(sk.open(shuffled).load())


def test_errors_are_told_for_the_runs_that_had_one(shuffled: str) -> None:
    ds = sk.open(shuffled)
    assert ds["error"].sel(a=3, b=0.5).item() == "ValueError: no 0.5"
    assert ds["error"].sel(a=4).values.tolist() == ["", "", ""]
    assert "raise ValueError" in ds["log"].sel(a=3).values[0]
    assert ds["log_size"].sel(a=3).values.tolist() == [len(t) for t in ds["log"].sel(a=3).values]


# --- derived coordinates and the table ---------------------------------------------------------


def test_derived_coordinates_are_handed_over_and_come_with_the_dataset(store: str) -> None:
    grid = sk.grid(length=[1.0, 2.0], mass=[3.0, 4.0]).derive({"inertia": "mass * length ** 2"})
    ds = run(sk.Sweep(lambda length, mass, inertia: inertia, grid), store)
    assert ds["inertia"].dims == ("length", "mass")
    assert (ds["inertia"] == ds["mass"] * ds["length"] ** 2).all()
    assert (ds["result"] == ds["inertia"]).all()
    grown = sk.grid(length=[3.0, 1.0], mass=[3.0, 4.0]).derive({"inertia": "mass * length ** 2"})
    run(sk.Sweep(lambda length, mass, inertia: inertia, grown), store)
    ds = sk.open(store)
    assert ds["length"].values.tolist() == [3.0, 1.0, 2.0]
    assert (ds["result"] == ds["inertia"]).all()


def test_the_table_has_a_row_per_run_and_its_columns_in_order(store: str) -> None:
    grid = sk.grid(
        sk.paired({"gain": [1.0, 2.0], "kind": ["p", "q"]}, dim="case"), a=[1, 2, 3], replicates=2
    ).where("a < 3")

    def simulate(gain: float, kind: str, a: int) -> dict[str, Any]:
        if gain == 2 and a == 2:
            raise ValueError("no")
        return {"y": gain * a, "word": kind, "trace": np.zeros(4)}

    ds = run(sk.Sweep(simulate, grid, requirements=["y < 2"]), store)
    table = sk.runs(ds)
    columns = list(table.columns)
    assert set(columns[:4]) == {"gain", "kind", "a", "replicate"}
    assert columns[4:] == [
        "y",
        "word",
        "status",
        "duration",
        "attempts",
        "code",
        "log_size",
        "error",
        "log",
        "failed",
    ]
    assert len(table) == 8
    assert table["status"].tolist().count("error") == 2
    assert list(table["status"].cat.categories) == list(NAMES)
    one = table[(table["gain"] == 2) & (table["a"] == 1) & (table["replicate"] == 0)]
    assert one[["y", "word", "failed"]].values.tolist() == [[2.0, "q", 1.0]]
    errors = table[table["status"] == "error"]
    assert errors["y"].isna().all()
    assert errors["failed"].isna().all()
    assert errors["error"].tolist() == ["ValueError: no"] * 2


def test_a_dataset_from_elsewhere_makes_a_table(tmp_path: Path) -> None:
    ds = xr.Dataset({"y": (("a", "b"), np.eye(2))}, coords={"a": [1, 2], "b": ["p", "q"]})
    table = sk.runs(ds, requirements=["y < 0.5"])
    assert table.to_dict("list") == {
        "a": [1, 1, 2, 2],
        "b": ["p", "q", "p", "q"],
        "y": [1.0, 0.0, 0.0, 1.0],
        "failed": [1.0, 0.0, 0.0, 1.0],
    }
    assert sk.status_counts(ds) == {"done": 4}


def test_status_counts_count(stopped: str) -> None:
    assert sk.status_counts(sk.open(stopped)) == {"pending": 3, "done": 2, "error": 1}


@pytest.mark.parametrize("what", ["nothing", "file", "folder", "broken"])
def test_what_is_no_sweep_is_told_by_path(tmp_path: Path, what: str) -> None:
    path = tmp_path / "a.zarr"
    if what == "file":
        path.write_text("")
    elif what != "nothing":
        path.mkdir()
        if what == "broken":
            (path / "zarr.json").write_text("{")
    with pytest.raises(ValueError, match=str(path)):
        sk.open(path)


def test_opening_imports_no_simulator_and_runs_no_code(
    store: str, finish: Callable[..., str]
) -> None:
    run(sk.Sweep(typed, sk.grid(a=[1]).where(lambda a: a > 0)), store)
    out = finish(
        """
        import sys
        import sweepkit as sk
        ds = sk.open(sys.argv[1]).load()
        print(ds["whole"].item())
        print([name for name in ("joblib", "tests") if name in sys.modules])
        """,
        store,
    )
    assert out.split("\n")[:2] == ["7.0", "[]"]


@pytest.mark.parametrize("anew", ["an output widens", "a parameter joins"])
def test_a_dataset_opened_before_the_store_was_made_anew_says_so(store: str, anew: str) -> None:
    def simulate(a: int, drag: float = 0.0) -> float:
        return a if a < 2 else a + 0.5

    run(sk.Sweep(simulate, sk.grid(a=[0, 1]), version="1"), store)
    opened = sk.open(store)
    grown = sk.open(store)
    run(sk.Sweep(simulate, sk.grid(a=[0, 1, -1]), version="1"), store)
    assert grown["result"].values.tolist() == [0.0, 1.0]
    if anew == "an output widens":
        run(sk.Sweep(simulate, sk.grid(a=[0, 1, 2]), version="1"), store)
    else:
        grid = sk.grid(a=[0, 1], drag=[0.0, 1.0])
        run(sk.Sweep(simulate, grid, version="1"), store, was={"drag": 0.0})
    with pytest.raises(ValueError, match=r"'\w+' was stored anew.*sk\.open"):
        opened["result"].load()


# --- while it is written -----------------------------------------------------------------------

WRITER = """
import os, sys
import sweepkit as sk
import sweepkit.intake
from sweepkit import format1

format1.BLOCK_RUNS = 64
sweepkit.intake.SLOW = -1.0
sweepkit.intake.RESTS = 0.0

def simulate(a, b):
    with open("fifo", "w") as file:
        file.write("x")
    return {"n": a * 1000 + b + 1, "text": f"{a} {b}"}

sk.run(sk.Sweep(simulate, sk.grid(a=range(20), b=range(40))), "a.zarr", backend="sequential",
       progress=False)
"""


def test_a_store_that_is_being_written_shows_finished_cells_only(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = start(WRITER)
    pipe = os.open(tmp_path / "fifo", os.O_RDONLY)
    looks = 0
    last = -1
    while os.read(pipe, 30) or process.poll() is None:
        if not (tmp_path / "a.zarr" / "zarr.json").exists():
            continue
        ds = sk.open(tmp_path / "a.zarr")
        if "n" not in ds:
            continue
        ds = ds[["n", "text", "status"]].load()
        looks += 1
        expected = ds["a"] * 1000 + ds["b"] + 1
        seen = ds["n"].notnull()
        assert (ds["n"] == expected).where(seen, True).all()
        words = ds["text"].values[(ds["text"] != "").values]
        assert all(word.count(" ") == 1 for word in words)
        assert int(seen.sum()) >= last
        last = int(seen.sum())
    os.close(pipe)
    assert process.wait() == 0
    assert looks > 2
    assert sk.open(tmp_path / "a.zarr")["n"].notnull().all()


@pytest.mark.parametrize("judge", [sk.failed, sk.margin])
def test_requirements_are_asked_of_a_dataset_alone(judge: Any) -> None:
    for wrong in ("a.zarr", pd.DataFrame({"a": [1]})):
        with pytest.raises(TypeError, match=r"asked of a Dataset, not of a \w+; give what sk.open"):
            judge(wrong, ["a > 1"])


def test_where_no_run_is_done_nothing_passes_or_fails(store: str) -> None:
    def simulate(a: float) -> float:
        raise RuntimeError("boom")

    sweep = sk.Sweep(simulate, sk.grid(a=[1.0, 2.0]), requirements=["y < 2"])
    ds = sk.run(sweep, store, backend="sequential", progress=False)
    assert sk.failed(ds).isnull().all()
    assert sk.margin(ds).dims == ("a", "requirement")
    assert sk.margin(ds).isnull().all()
    assert sk.failure_rate(ds)["rate"].isnull().all()

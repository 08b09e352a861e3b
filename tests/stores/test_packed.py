"""Stores as zips, in memory and in store objects of zarr."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from zarr.storage import LocalStore, MemoryStore, ZipStore

import sweepkit as sk
from sweepkit.targets import target as target_of

QUIET: dict[str, Any] = {"backend": "sequential", "progress": False}


def simulate(a: int, b: float) -> dict[str, Any]:
    if a == 3:
        raise ValueError("three is no good")
    return {"y": a * b, "trace": np.arange(float(a + 1))}


def sweep(n: int = 5) -> sk.Sweep:
    grid = sk.grid(a=range(n), b=[1.0, 2.0])
    trace = sk.output(dims="t", size=9, pad=True)
    return sk.Sweep(simulate, grid, requirements=["y < 5"], outputs={"trace": trace})


@pytest.fixture
def packed(store: str, tmp_path: Path) -> str:
    ds = sk.run(sweep(), store, **QUIET)
    sk.refine(sweep(), store, sk.suggest(ds, 2, explore=0), **QUIET)
    return sk.pack(store, tmp_path / "a.zarr.zip")


def test_a_zip_is_the_store_with_its_receipts(packed: str, store: str, tmp_path: Path) -> None:
    before = sk.receipt(store)
    os.rename(store, f"{store}.away")
    os.rename(f"{store}.sweepkit", f"{store}.away.sweepkit")
    ds, then = sk.open(packed), sk.open(f"{store}.away")
    xr.testing.assert_identical(ds.load(), then.load())
    assert sk.runs(packed).equals(sk.runs(f"{store}.away"))
    assert sk.open(packed, stages=True).sizes["run"] == 12
    assert len(sk.verify(packed)) == 0
    receipt = sk.receipt(packed)
    assert (receipt.done, len(receipt.records)) == (before.done, 2)
    assert len(sk.provenance(packed).sessions) == 2
    assert sk.replay(sweep(), packed, {"a": 2, "b": 1.0}).reproduced
    assert sk.export(packed, tmp_path / "runs.csv").endswith("runs.csv")
    assert not os.path.exists(f"{packed}.sweepkit")


def test_plain_xarray_reads_a_zip_without_a_warning(packed: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_zarr(ZipStore(packed, mode="r")) as plain:
            assert plain["y"].shape == (5, 2)


def test_the_same_content_gives_the_same_bytes(packed: str, store: str, tmp_path: Path) -> None:
    again = Path(sk.pack(store, tmp_path / "again.zip"))
    assert again.read_bytes() == Path(packed).read_bytes()
    assert not [name for name in zipfile.ZipFile(packed).namelist() if "lock" in name]
    assert zipfile.ZipFile(packed).testzip() is None


def test_nothing_is_overwritten_unasked(packed: str, store: str) -> None:
    before = Path(packed).read_bytes()
    with pytest.raises(FileExistsError, match=r"a\.zarr\.zip is there already; remove it"):
        sk.pack(store, packed)
    sk.run(sweep(6), store, **QUIET)
    sk.pack(store, packed, overwrite=True)
    assert Path(packed).read_bytes() != before
    assert [one.name for one in Path(packed).parent.glob(".*.part")] == []


def test_what_cannot_be_packed_is_told(store: str, tmp_path: Path) -> None:
    aim = tmp_path / "a.zip"
    with pytest.raises(sk.StoreError, match="holds no sweep"):
        sk.pack(store, aim)
    assert not os.path.exists(f"{store}.sweepkit")
    with pytest.raises(ValueError, match=r"'a\.tar' does not end in \.zip"):
        sk.pack(store, tmp_path / "a.tar")
    with pytest.raises(FileNotFoundError, match="is not there; make it first"):
        sk.pack(store, tmp_path / "none" / "a.zip")
    sk.plan(sweep(), store, pilot=3, **QUIET)
    with pytest.raises(ValueError, match=r"has 7 pending runs; finish it"):
        sk.pack(store, aim)
    with target_of(store).hold():
        with pytest.raises(sk.StoreBusyError, match=f"process {os.getpid()}"):
            sk.pack(store, aim)
        assert not aim.exists()
        sk.pack(store, aim, partial=True)
    assert (sk.open(aim)["status"] == 0).sum() == 7
    aim.write_bytes(b"PK, but nothing more")
    with pytest.raises(sk.StoreError, match="cannot be read as a zip"):
        sk.open(aim)


def test_a_zip_is_only_read(packed: str, tmp_path: Path) -> None:
    assert sk.run(sweep(), packed, **QUIET)["y"].sel(a=4, b=2.0) == 8  # it is finished
    with pytest.raises(sk.StoreError, match=r"a\.zarr\.zip is a zip, and zips are only read: run"):
        sk.run(sweep(6), packed, **QUIET)
    with pytest.raises(sk.StoreError, match="zips are only read"):
        sk.run(sweep(), tmp_path / "new.zip", **QUIET)
    with pytest.raises(sk.StoreError, match="zips are only read"):
        sk.derive(packed, "z", "2 * y")
    assert not (tmp_path / "new.zip").exists()


def test_damage_in_a_zip_is_named(packed: str, tmp_path: Path) -> None:
    worse = tmp_path / "worse.zip"
    with zipfile.ZipFile(packed) as whole, zipfile.ZipFile(worse, "w") as part:
        for name in whole.namelist():
            content = whole.read(name)
            if name.startswith("y/c/"):
                continue
            if name.startswith("duration/c/"):
                content = content[:-1] + bytes([content[-1] ^ 1])
            part.writestr(name, content)
    assert sorted(sk.verify(worse)["variable"]) == ["duration", "y"]
    with pytest.raises(ValueError, match="a chunk of variable 'y' is missing"):
        sk.open(worse)["y"].load()


# --- memory, and store objects of zarr -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["url", "object"])
def test_a_sweep_in_memory_runs_grows_refines_and_is_packed(kind: str, tmp_path: Path) -> None:
    place: Any = f"memory://{tmp_path.name}.zarr" if kind == "url" else MemoryStore()
    sk.run(sweep(), place, **QUIET)
    ds = sk.run(sweep(6), place, **QUIET)
    assert ds["y"].values[5].tolist() == [5.0, 10.0]
    assert sk.derive(place, "twice", "2 * y")["twice"].sel(a=2, b=2.0) == 8
    flat = sk.refine(sweep(6), place, sk.suggest(ds, 2, explore=0), **QUIET)
    assert flat.sizes["run"] == 14
    assert len(sk.verify(place)) == 0
    assert len(sk.receipt(place).records) == 3
    zipped = sk.pack(place, tmp_path / "a.zip")
    np.testing.assert_array_equal(sk.open(zipped)["y"].values, ds["y"].values)


def test_a_second_writer_in_memory_is_refused() -> None:
    place = MemoryStore()
    with target_of(place).hold(), pytest.raises(sk.StoreBusyError, match=f"process {os.getpid()}"):
        sk.run(sweep(), place, **QUIET)


def test_workers_fill_a_store_in_memory() -> None:
    ds = sk.run(sweep(), MemoryStore(), n_jobs=2, progress=False)
    assert ds["y"].sel(a=4, b=2.0) == 8


def test_a_local_store_object_is_its_folder(store: str) -> None:
    sk.run(sweep(), LocalStore(store), **QUIET)
    assert os.path.exists(f"{store}.sweepkit/sessions")
    assert sk.open(store)["y"].shape == (5, 2)


def test_a_store_object_that_holds_something_else_is_left_alone() -> None:
    place = MemoryStore()
    xr.Dataset({"other": ("x", [1, 2])}).to_zarr(place, consolidated=False)
    keys = set(place._store_dict)
    with pytest.raises(sk.StoreError):
        sk.run(sweep(), place, **QUIET)
    assert set(place._store_dict) == keys

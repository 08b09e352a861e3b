"""The Zarr store: its contract, what is on disk, and what other readers make of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import sweepkit as sk
from sweepkit.protocols import StoreError
from tests.contracts import StoreContract
from tests.waiting import LIMIT


class TestZarrStore(StoreContract):
    @pytest.fixture
    def place(self, store: str) -> str:
        return store


def run(sweep: sk.Sweep, path: str, **options: Any) -> xr.Dataset:
    return sk.run(sweep, path, backend="sequential", progress=False, **options)


def everything(a: int, b: str) -> dict[str, Any]:
    if a == 2:
        raise ValueError("no")
    return {
        "y": a / 3,
        "n": a,
        "ok": a > 0,
        "word": b * a,
        "when": np.datetime64("2000-01-01T00:35") + np.timedelta64(6 * a, "h"),
        "span": np.timedelta64(a, "ns"),
        "trace": np.arange(float(a + 1)),
        "words": np.array(["é", b]),
    }


def full_sweep(a: Any = (0, 1, 2, 3)) -> sk.Sweep:
    grid = sk.grid(
        sk.paired(
            {
                "x0": sk.values(np.eye(2), dims=("case", "state")),
                "when0": np.array(["2001", "2002"], dtype="datetime64[Y]"),
            },
            dim="case",
        ),
        a=sk.scenario(list(a), units="m"),
        b=["p", "longer"],
    )

    def simulate(a: int, b: str, x0: Any, when0: Any) -> dict[str, Any]:
        return everything(a, b)

    return sk.Sweep(
        simulate,
        grid,
        outputs={"trace": sk.output(dims="time", size=5, pad=True, units="rad")},
        requirements=["y < 0.5"],
        version="1",
    )


@pytest.fixture
def full(store: str) -> str:
    run(full_sweep(), store)
    return store


# --- other readers -----------------------------------------------------------------------------


def test_plain_open_zarr_reads_it_without_a_warning(full: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_zarr(full) as plain:
            loaded = plain.load()
    assert loaded.sizes == {"case": 2, "state": 2, "a": 4, "b": 2, "time": 5, "words_dim_0": 2}
    assert loaded["when"].dtype == np.dtype("datetime64[ns]")
    assert loaded["span"].dtype == np.dtype("timedelta64[ns]")
    one = loaded.isel(case=0, a=3, b=1)
    assert one["when"].values == np.datetime64("2000-01-01T18:35")
    assert one["span"].values == np.timedelta64(3, "ns")
    assert one["word"].item() == "longer" * 3
    assert one["words"].values.tolist() == ["é", "longer"]
    assert one["status"].item() == 1
    assert one["status"].attrs["flag_meanings"].split()[1] == "done"
    assert one["x0"].values.tolist() == [1.0, 0.0]
    assert np.isnan(one["trace"].values).tolist() == [False] * 4 + [True]


def test_open_datatree_reads_it_without_a_warning(full: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_datatree(full, engine="zarr") as tree:
            assert set(tree.to_dataset().data_vars) >= {"y", "status"}
            assert not tree.children


@pytest.mark.parametrize("opened", [sk.open, xr.open_zarr])
def test_to_netcdf_keeps_every_value_without_a_warning(
    full: str, tmp_path: Path, opened: Callable[[str], xr.Dataset]
) -> None:
    ds = opened(full).load()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as back:
            back.load()
    for name in ds.variables:
        assert back[name].values.tolist() == ds[name].values.tolist() or np.array_equal(
            back[name].values, ds[name].values, equal_nan=True
        ), name
    assert json.loads(back.attrs["sweepkit"])["requirements"][0]["text"] == "y < 0.5"


def test_a_member_listing_of_the_group_is_without_a_warning(full: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open_group(full, mode="r", use_consolidated=False)
        names = {name for name, _ in group.members()}
    assert names == {str(name) for name in xr.open_zarr(full).variables}


# --- what is on disk ---------------------------------------------------------------------------


def test_only_arrays_lie_in_the_store_and_all_else_beside_it(full: str) -> None:
    inside = {one.name for one in Path(full).iterdir()}
    assert inside == {"zarr.json"} | {str(name) for name in xr.open_zarr(full).variables}
    beside = Path(f"{full}.sweepkit")
    assert {"lock", "holder.json", "sessions"} <= {one.name for one in beside.iterdir()}
    (session,) = (beside / "sessions").iterdir()
    said = json.loads(session.read_text())
    assert said["runs"] == {"done": 12, "error": 4}
    assert not list(Path(full).rglob("*.partial"))


def test_encodings_and_codecs_are_ours(full: str) -> None:
    def metadata(name: str) -> dict[str, Any]:
        return dict(json.loads((Path(full) / name / "zarr.json").read_text()))

    assert metadata("word")["data_type"] == "string"
    assert metadata("when")["data_type"] == "int64"
    assert metadata("when")["attributes"]["units"] == "nanoseconds since 1970-01-01"
    assert metadata("span")["attributes"]["units"] == "nanoseconds"
    assert metadata("status")["data_type"] == "int8"
    for name in ("y", "status", "word", "trace", "a"):
        codecs = [one["name"] for one in metadata(name)["codecs"]]
        assert codecs[-2:] == ["zstd", "crc32c"], name
    assert metadata("y")["node_type"] == "array"
    root = json.loads((Path(full) / "zarr.json").read_text())
    assert root["consolidated_metadata"]["metadata"].keys() == {
        str(name) for name in xr.open_zarr(full).variables
    }


def test_nothing_on_disk_is_pickle(full: str) -> None:
    for path in [*Path(full).rglob("*"), *Path(f"{full}.sweepkit").rglob("*")]:
        if path.is_file():
            data = path.read_bytes()
            assert not data.startswith(b"\x80"), path
            assert b"cloudpickle" not in data, path


def test_few_files_are_written_per_output(store: str) -> None:
    sweep = sk.Sweep(
        lambda a, b: {f"y{i}": 1.0 for i in range(3)}, sk.grid(a=range(300), b=range(300))
    )
    run(sweep, store)
    files = [one for one in (Path(store) / "y0").rglob("*") if one.is_file()]
    assert len(files) <= 4
    texts = [one for one in (Path(store) / "log").rglob("*") if one.is_file()]
    assert len(texts) == 1, "texts are written only where there are any"


def test_a_chunk_that_is_gone_or_flipped_is_missed_and_made_again(full: str) -> None:
    chunk = next(one for one in (Path(full) / "y" / "c").rglob("*") if one.is_file())
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(bytes(data))
    with pytest.raises((ValueError, RuntimeError)):
        sk.open(full)["y"].load()
    found = sk.verify(full)
    assert found["variable"].tolist() == ["y"]
    before = sk.open(full)["n"].load()
    grown = run(full_sweep(range(5)), full)
    assert grown["y"].sel(a=3, b="p").values.tolist() == [1.0, 1.0]
    assert sk.verify(full).empty
    chunk.unlink()
    assert sk.verify(full)["reason"].tolist() == ["is missing"]
    ds = run(full_sweep(), full)
    assert ds["y"].sel(a=3, b="p").values.tolist() == [1.0, 1.0]
    assert ds["n"].equals(before.sel(a=ds["a"]))
    assert sk.verify(full).empty


def test_every_chunk_of_every_variable_may_be_damaged_and_is_made_good(full: str) -> None:
    whole = sk.open(full).load()
    for chunk in [one for one in Path(full).rglob("c/**/*") if one.is_file()]:
        if chunk.relative_to(full).parts[0] in whole.coords:
            continue
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 1
        chunk.write_bytes(bytes(data))
        name = chunk.relative_to(full).parts[0]
        assert name in sk.verify(full)["variable"].tolist(), name
        ds = run(full_sweep(), full).load()
        for one in ("y", "word", "when", "trace", "status", "error"):
            assert ds[one].equals(whole[one]), (name, one)


def a_folder(chunk: Path) -> None:
    chunk.unlink()
    (chunk / "x").mkdir(parents=True)


DAMAGES: tuple[Callable[[Path], Any], ...] = (
    lambda chunk: chunk.write_bytes(b""),
    lambda chunk: chunk.write_bytes(chunk.read_bytes()[:-1] + b"?"),
    a_folder,
    Path.unlink,
)


@pytest.mark.parametrize("spoil", DAMAGES)
def test_statuses_that_cannot_be_read_are_lost_and_their_runs_run_again(
    store: str, spoil: Callable[[Path], Any]
) -> None:
    sweep = sk.Sweep(lambda a: {"y": a * 10.0}, sk.grid(a=[1, 2, 3]), version="1")
    run(sweep, store)
    spoil(Path(store) / "status" / "c" / "0")
    (Path(store) / "attempts" / "c" / "0").write_bytes(b"")
    for _ in range(2):
        ds = run(sweep, store).load()
        assert ds["y"].values.tolist() == [10.0, 20.0, 30.0]
        assert ds["status"].values.tolist() == [1, 1, 1]
    assert sk.verify(store).empty


def test_a_folder_in_the_place_of_a_chunk_is_a_lost_chunk(full: str) -> None:
    whole = sk.open(full).load()
    for name in ("y", "trace", "a"):
        a_folder(next(one for one in (Path(full) / name / "c").rglob("*") if one.is_file()))
    with pytest.raises(StoreError):
        sk.open(full).load()
    assert sk.verify(full)["reason"].tolist() == ["is missing"] * 3
    ds = run(full_sweep(), full).load()
    assert ds["y"].equals(whole["y"])
    assert ds["trace"].equals(whole["trace"])
    assert sk.verify(full).empty


def test_an_axis_that_was_rewritten_is_told(full: str) -> None:
    axis = zarr.open_array(f"{full}/a", mode="r+")
    axis[:] = np.array([3, 2, 1, 0])
    assert sk.verify(full)["variable"].tolist() == ["a"]
    with pytest.raises(StoreError, match=r"'a' was changed since it was committed.*its copy"):
        run(full_sweep(), full)
    axis[:] = np.array([0, 1, 2, 3])
    assert run(full_sweep(range(6)), full).sizes["a"] == 6
    assert sk.verify(full).empty
    shutil.rmtree(full)
    assert run(full_sweep((3, 2, 1, 0)), full)["a"].values.tolist() == [3, 2, 1, 0]
    assert run(full_sweep((3, 2, 1, 0)), full).sizes["a"] == 4


def test_an_axis_lost_with_its_copy_is_not_promised_back(full: str) -> None:
    shutil.rmtree(f"{full}/a/c")
    with pytest.raises(StoreError, match=r"sk\.run restores it from its copy"):
        sk.open(full)
    shutil.rmtree(f"{full}.sweepkit/axes/a/c")
    for attempt in (lambda: sk.open(full), lambda: run(full_sweep(), full)):
        with pytest.raises(StoreError, match=r"no whole copy of it in .*from a copy of the store"):
            attempt()


@pytest.mark.parametrize("empty", [[], np.array([]), np.zeros((0, 3)), np.zeros((3, 0))])
def test_outputs_of_no_size_are_no_damage(store: str, empty: Any) -> None:
    sweep = sk.Sweep(lambda i: {"y": empty, "z": i}, sk.grid(i=[0, 1, 2]), version="1")
    for _ in range(2):
        ds = run(sweep, store).load()
        assert ds["y"].shape == (3, *np.shape(empty))
        assert ds["attempts"].values.tolist() == [1, 1, 1]
        assert sk.verify(store).empty


# --- what is there already ---------------------------------------------------------------------


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "array").mkdir(parents=True)
    (folder / "array" / "zarr.json").write_text("{}")
    with pytest.raises(StoreError, match=r"mine exists and is no sweep \(it holds array\)"):
        run(full_sweep(), str(folder))
    assert (folder / "array" / "zarr.json").read_text() == "{}"


def test_a_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("text")
    with pytest.raises(StoreError, match="mine exists and is no sweep"):
        run(full_sweep(), str(tmp_path / "mine"))
    assert (tmp_path / "mine").read_text() == "text"


@pytest.mark.filterwarnings("ignore:Consolidated metadata")  # as others write it
def test_another_zarr_group_is_refused_and_left_alone(tmp_path: Path) -> None:
    xr.Dataset({"x": 1.0}).to_zarr(tmp_path / "other.zarr", zarr_format=3, consolidated=True)
    with pytest.raises(StoreError, match="is a Zarr group but no sweep"):
        run(full_sweep(), str(tmp_path / "other.zarr"))
    with pytest.raises(ValueError, match=r"no sweep; use xarray\.open_zarr"):
        sk.open(tmp_path / "other.zarr")
    assert xr.open_zarr(tmp_path / "other.zarr")["x"].item() == 1.0


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run(full_sweep(), str(tmp_path / "empty")).sizes["a"] == 4


def test_a_newer_format_is_refused_with_both_versions(full: str) -> None:
    path = Path(full) / "zarr.json"
    path.write_text(path.read_text().replace('"sweepkit_format": 1', '"sweepkit_format": 2'))
    for attempt in (lambda: sk.open(full), lambda: run(full_sweep(), full)):
        with pytest.raises(Exception, match="format 2, and this sweepkit knows format 1"):
            attempt()


def test_a_path_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        run(full_sweep(), str(tmp_path / "file" / "a.zarr"))


def test_a_name_that_is_too_long_and_a_link_to_nowhere_are_told(tmp_path: Path) -> None:
    for n in (250, 300):
        with pytest.raises(StoreError, match="cannot be written: File name too long; choose"):
            run(full_sweep(), str(tmp_path / ("x" * n)))
        with pytest.raises(StoreError, match="holds no sweep"):
            sk.open(tmp_path / ("x" * n))
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(StoreError, match="link is a link to nowhere, which is not there"):
        run(full_sweep(), str(tmp_path / "link"))


def test_missing_folders_on_the_way_are_made(tmp_path: Path) -> None:
    assert run(full_sweep(), str(tmp_path / "some" / "where" / "a.zarr")).sizes["a"] == 4


def test_a_store_may_be_moved_and_grown_there(full: str, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "b.zarr"
    moved.parent.mkdir()
    os.rename(full, moved)
    ds = run(full_sweep(range(5)), str(moved))
    assert ds["attempts"].max().item() == 1
    assert ds.sizes["a"] == 5


# --- two processes -----------------------------------------------------------------------------

WRITER = """
import os, sys
import sweepkit as sk

def simulate(a):
    if a == 0:
        with open("started", "w") as file:   # a FIFO: waits for a reader
            file.write("x")
        with open("go") as file:             # a FIFO: waits for a writer
            file.read()
    return a * 1.0

half = [int(a) for a in sys.argv[1].split(",")]
try:
    sk.run(sk.Sweep(simulate, sk.grid(a=half), version="1"), "a.zarr", backend="sequential",
           progress=False)
    print("finished")
except sk.StoreBusyError as told:
    print("told:", told)
"""


def two_writers(
    tmp_path: Path,
    start: Callable[..., subprocess.Popen[str]],
    finish: Callable[..., str],
    repetitions: int,
) -> None:
    for name in ("started", "go"):
        os.mkfifo(tmp_path / name)
    for _ in range(repetitions):
        for old in tmp_path.glob("a.zarr*"):
            subprocess.run(["rm", "-r", str(old)], check=True)
        first = start(WRITER, "0,1,2")
        with open(tmp_path / "started") as file:
            assert file.read() == "x"
        said = finish(WRITER, "3,4,5")
        assert said.startswith("told: ")
        assert (
            f"a.zarr is being written by process {first.pid} on {os.uname().nodename}, since 20"
            in said
        )
        with open(tmp_path / "go", "w") as file:
            file.write("x")
        out, err = first.communicate(timeout=LIMIT)
        assert out == "finished\n", err
        assert finish(WRITER, "3,4,5") == "finished\n"
        ds = sk.open(tmp_path / "a.zarr").load()
        assert sorted(ds["a"].values.tolist()) == [0, 1, 2, 3, 4, 5]
        assert (ds["result"] == ds["a"]).all()


def test_of_two_processes_the_second_is_told_and_nothing_is_lost(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], finish: Callable[..., str]
) -> None:
    two_writers(tmp_path, start, finish, 1)


@pytest.mark.slow
def test_of_two_processes_the_second_is_told_twenty_times(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], finish: Callable[..., str]
) -> None:
    two_writers(tmp_path, start, finish, 20)


def test_a_lock_file_of_a_killed_writer_blocks_nothing(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], finish: Callable[..., str]
) -> None:
    for name in ("started", "go"):
        os.mkfifo(tmp_path / name)
    first = start(WRITER, "0,1")
    with open(tmp_path / "started") as file:
        file.read()
    first.kill()
    first.wait()
    assert (tmp_path / "a.zarr.sweepkit" / "lock").exists()
    assert finish(WRITER, "1,2") == "finished\n"

"""Nothing is silently wrong: what is lost, changed or half there is told by who reads it."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit import format1
from sweepkit.files import exchanged, swap
from sweepkit.root import CHECKSUM, DamagedError, OutdatedError, sealed
from sweepkit.status import Status
from tests.conftest import EXHAUSTIVE
from tests.faults.test_attacks import KINDS, Ledger, chunk_of, delete, empty, run, same, truncate
from tests.faults.test_attacks import ledger as ledger
from tests.faults.test_attacks import original as original
from tests.faults.test_attacks import small_blocks as small_blocks


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change JSON in a file to other JSON."""
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


# --- lost chunks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "mask"), [*((kind, True) for kind in KINDS), ("n", False)])
def test_a_lost_chunk_is_missed_by_who_reads_it(
    ledger: Ledger, store: str, original: xr.Dataset, kind: str, mask: bool
) -> None:
    chunk = chunk_of(store, kind)
    delete(chunk)
    ds = sk.open(store, mask=mask)
    told = rf"variable '{kind}' is missing, .*at positions a 2.*b 0 to 2 on disk; sk\.verify"
    with pytest.raises(sk.StoreError, match=told) as caught:
        ds[kind].load()
    assert str(chunk) in str(caught.value)
    first = sk.open(store).isel(a=slice(0, 2))
    xr.testing.assert_equal(first[kind].load(), original[kind].isel(a=slice(0, 2)))
    same(run(ledger, store), original)
    assert {a for a, _ in ledger.take()} <= {2, 3}


def test_lost_statuses_are_pending_for_a_sweep_that_declares_others(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    delete(chunk_of(store, "status"))
    run(ledger, store, a=[0, 1])
    assert ledger.take() == set()
    assert sk.verify(store).empty
    status = sk.open(store)["status"].load()
    assert (status.sel(a=[2, 3]) == Status.PENDING).all()
    assert (status.sel(a=[0, 1]) == Status.DONE).all()


def test_lost_lengths_of_traces_are_missed(store: str) -> None:
    sweep = sk.Sweep(
        lambda a: np.arange(a + 1.0),
        sk.grid(a=range(4)),
        outputs={"result": sk.output(dims="step", size=6, pad=True)},
    )
    sk.run(sweep, store, backend="sequential", progress=False)
    delete(Path(store, "result_length", "c", "0"))
    with pytest.raises(sk.StoreError, match="'result_length' is missing"):
        sk.open(store)["result"].load()


@pytest.mark.parametrize("axis", ["a", "b"])
def test_a_lost_coordinate_is_missed_and_restored(
    ledger: Ledger, store: str, original: xr.Dataset, axis: str
) -> None:
    delete(Path(store, axis, "c", "0"))
    with pytest.raises(sk.StoreError, match=rf"coordinate '{axis}' lost a chunk, .*sk\.run"):
        sk.open(store)
    same(run(ledger, store), original)
    assert ledger.take() == set()


def test_what_was_never_run_is_not_missed(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stepwise(monkeypatch)

    def simulate(a: int) -> float:
        if a % 2:
            raise ValueError("odd")
        return 1.0

    sweep = sk.Sweep(simulate, sk.grid(a=range(40)), version="1")
    with pytest.raises(sk.TooManyErrorsError):
        sk.run(sweep, store, backend="sequential", progress=False, max_errors=0)
    ds = sk.open(store).load()
    assert (ds["status"] == Status.PENDING).any()
    assert sk.verify(store).empty


# --- an edited root ------------------------------------------------------------------------------


def arrays(root: dict[str, Any]) -> Any:
    return root["consolidated_metadata"]["metadata"]


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "separator": lambda root: arrays(root)["y"]["chunk_key_encoding"].update(
        configuration={"separator": "."}
    ),
    "name": lambda root: arrays(root).update(yy=arrays(root).pop("y")),
    "dims": lambda root: arrays(root)["y"].update(dimension_names=["b", "a"]),
    "shape": lambda root: [
        said.update(shape=[4, *said["shape"][1:]])
        for said in arrays(root).values()
        if said["shape"][0] == 6
    ],
    "declaration": lambda root: root["attributes"].update(
        sweepkit=root["attributes"]["sweepkit"].replace("0.1.0", "0.1.1").replace('"y"', '"z"')
    ),
}


@pytest.mark.parametrize(
    ("what", "sealing"),
    [*((what, "with the checksum") for what in EDITS), ("name", "without it")],
)
def test_an_edited_root_is_told_and_restored(
    ledger: Ledger, store: str, original: xr.Dataset, what: str, sealing: str
) -> None:
    path, copy = Path(store, "zarr.json"), Path(f"{store}.sweepkit", "root.json")
    edit(path, EDITS[what])
    if sealing == "without it":
        edit(path, lambda root: root["consolidated_metadata"].pop(CHECKSUM))
    for act in (lambda: sk.open(store), lambda: sk.verify(store)):
        with pytest.raises(sk.StoreError, match=r"zarr\.json, is damaged.*next sk\.run") as told:
            act()
        assert str(copy) in str(told.value)
    same(run(ledger, store), original)
    assert ledger.take() == set()
    assert sk.verify(store).empty


def test_an_edited_root_without_a_copy_is_refused(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    edit(Path(store, "zarr.json"), EDITS["shape"])
    shutil.rmtree(f"{store}.sweepkit")
    for act in (lambda: sk.open(store), lambda: run(ledger, store)):
        with pytest.raises(sk.StoreError, match="there is no copy of it in"):
            act()
    assert ledger.take() == set()


def test_a_root_that_may_not_be_read_is_told(store: str, original: xr.Dataset) -> None:
    path = Path(store, "zarr.json")
    content = path.read_bytes()
    path.unlink()
    path.mkdir()  # what even root cannot read
    with pytest.raises(sk.StoreError, match=r"zarr\.json cannot be read: Is a directory"):
        sk.open(store)
    path.rmdir()
    path.write_bytes(content)
    same(sk.open(store).load(), original)


def test_a_store_is_copied_without_its_side_folder(
    store: str, original: xr.Dataset, tmp_path: Path
) -> None:
    shutil.copytree(store, tmp_path / "copy.zarr")
    same(sk.open(tmp_path / "copy.zarr").load(), original)


def test_a_copy_of_a_root_that_was_not_committed_is_no_alarm(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    copy = Path(f"{store}.sweepkit", "root.json")
    root = json.loads(copy.read_text())
    EDITS["shape"](root)  # as a writer leaves it that was killed before it committed a growth
    copy.write_text(json.dumps(sealed(root)))
    same(sk.open(store).load(), original)
    assert sk.verify(store).empty
    same(run(ledger, store), original)
    assert ledger.take() == set()


def test_a_root_that_zarr_wrote_anew_is_read(store: str, original: xr.Dataset) -> None:
    import zarr

    zarr.open_group(store, mode="r+").attrs["note"] = "mine"
    assert sk.open(store).attrs["note"] == "mine"
    same(sk.open(store).load(), original)


# --- flipped bytes of metadata -------------------------------------------------------------------


def flips(path: Path, count: int) -> list[tuple[int, int]]:
    draw = random.Random(f"7-{path.parent.name}")
    size = path.stat().st_size
    return [(draw.randrange(size), 1 << draw.randrange(8)) for _ in range(count)]


def fuzz(store: str, names: list[str], count: int, original: xr.Dataset) -> int:
    refused = 0
    for name in names:
        path = Path(store, name, "zarr.json")
        whole = path.read_bytes()
        for at, bit in flips(path, count):
            content = bytearray(whole)
            content[at] ^= bit
            path.write_bytes(bytes(content))
            try:
                ds = sk.open(store).load()
            except sk.StoreError as error:
                told = str(error)
                refused += 1
            else:
                told = f"{store}: sk.run"
                xr.testing.assert_identical(ds, original)
            assert store in told
            assert "sk.run" in told or "update sweepkit" in told, told
        path.write_bytes(whole)
    return refused


def test_a_flipped_byte_of_metadata_gives_the_same_data_or_is_told(
    store: str, original: xr.Dataset
) -> None:
    assert fuzz(store, ["."], 120, original) > 110
    assert fuzz(store, ["y", "status", "a", "text", "log"], 8, original) == 0


@pytest.mark.slow
def test_many_flipped_bytes_of_metadata_give_the_same_data_or_are_told(
    store: str, original: xr.Dataset
) -> None:
    fuzz(store, ["."], 1500 if EXHAUSTIVE else 400, original)
    fuzz(store, [*map(str, original.variables)], 1500 if EXHAUSTIVE else 40, original)


@pytest.mark.parametrize(
    ("kind", "harm"),
    [("y", delete), ("log", truncate), ("error", empty), ("status", delete), ("a", truncate)],
)
def test_damaged_metadata_of_a_variable_is_named(
    ledger: Ledger, store: str, original: xr.Dataset, kind: str, harm: Callable[[Path], None]
) -> None:
    harm(Path(store, kind, "zarr.json"))
    found = sk.verify(store)
    assert found["variable"].tolist() == [kind]
    word = "is missing" if harm is delete else "cannot be read"
    assert found["reason"].tolist() == [f"its zarr.json {word}"]
    assert found["where"].tolist() == ["all of it; the next sk.run restores it"]
    same(run(ledger, store), original)
    assert ledger.take() == set()
    assert sk.verify(store).empty


# --- while it is written -------------------------------------------------------------------------


def stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is a batch, written and told at once."""
    session = importlib.import_module("sweepkit.run")
    monkeypatch.setattr(session, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.intake"), "SLOW", -1.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.intake"), "RESTS", 0.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "BATCH_RUNS", 1)
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "FIRST_SECONDS", 0.0)


def test_what_a_dataset_shows_as_done_has_its_value(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepwise(monkeypatch)
    opened: list[xr.Dataset] = []

    def look(progress: sk.Progress) -> None:
        if Path(store).exists():
            ds = sk.open(store)
            ds["y"].load()  # and its status when more is done
            opened.append(ds)

    sweep = sk.Sweep(lambda a: {"y": float(a)}, sk.grid(a=range(20)), version="1")
    sk.run(sweep, store, backend="sequential", progress=look)
    counts = []
    for ds in opened:
        done = ds["status"].values == Status.DONE
        assert (~np.isnan(ds["y"].values) == done).all()
        ds.load()
        assert (~np.isnan(ds["y"].values) == (ds["status"].values == Status.DONE)).all()
        counts.append(int(done.sum()))
    assert 0 < counts[0] < counts[-1] == 20


def test_runs_that_are_run_again_are_not_shown_as_they_were(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepwise(monkeypatch)

    def sweep(version: str) -> sk.Sweep:
        return sk.Sweep(lambda a: {"n": a + 1}, sk.grid(a=range(8)), version=version)

    sk.run(sweep("1"), store, backend="sequential", progress=False)
    ds = sk.open(store)
    assert (ds["status"] == Status.DONE).all()
    told: list[str] = []

    def look(progress: sk.Progress) -> None:
        try:
            assert ds["n"].values.tolist() == list(range(1, 9))
        except OutdatedError as error:
            told.append(str(error))

    sk.run(sweep("2"), store, backend="sequential", progress=look, stale="rerun")
    assert told
    assert "being run again since this Dataset was opened; open it again" in told[0]
    assert sk.open(store)["n"].values.tolist() == list(range(1, 9))


def test_a_reader_of_a_column_that_widens_gets_an_error_and_no_other_values(store: str) -> None:
    def simulate(a: int) -> Any:
        return a if a < 10 else a + 0.5

    def widen(values: list[int]) -> None:
        sweep = sk.Sweep(simulate, sk.grid(a=values), version="1")
        sk.run(sweep, store, backend="sequential", progress=False)

    widen([1, 2, 3])
    plain, ours = xr.open_zarr(store, chunks=None), sk.open(store)
    assert plain["result"].dtype == np.int64
    widen([1, 2, 3, 10])
    with pytest.raises(ValueError, match=r"size|checksum"):
        plain["result"].load()
    with pytest.raises(OutdatedError, match="open it again"):
        ours["result"].load()
    for opened in (xr.open_zarr(store), sk.open(store)):
        assert opened["result"].values.tolist() == [1.0, 2.0, 3.0, 10.5]


def test_a_reader_of_an_axis_that_other_numbers_join_gets_an_error(store: str) -> None:
    def widen(a: list[Any]) -> None:
        grid = sk.paired(a=a, b=list(range(len(a))), dim="case")
        sweep = sk.Sweep(lambda a, b: float(a), grid, version="1")
        sk.run(sweep, store, backend="sequential", progress=False)

    widen([1, 2, 3])
    plain, ours = xr.open_zarr(store, chunks=None), sk.open(store)
    widen([1, 2, 3, 0.5])
    for opened in (plain, ours):
        with pytest.raises(ValueError, match=r"size|checksum|open it again"):
            opened["a"].load()
    assert sk.open(store)["a"].values.tolist() == [1.0, 2.0, 3.0, 0.5]


# --- replaced as a whole -------------------------------------------------------------------------


def test_folders_change_places_at_once(tmp_path: Path) -> None:
    for name in ("fresh", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "is").write_text(name)
    if not exchanged(tmp_path / "fresh", tmp_path / "place"):
        pytest.skip("this file system cannot exchange two names")
    assert (tmp_path / "place" / "is").read_text() == "fresh"
    swap(tmp_path / "fresh", tmp_path / "place", tmp_path / "old")
    assert (tmp_path / "place" / "is").read_text() == "place"
    assert (tmp_path / "old" / "is").read_text() == "fresh"
    assert not (tmp_path / "fresh").exists()


def test_a_store_set_aside_by_a_killed_writer_is_found(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    beside = Path(f"{store}.sweepkit")
    shutil.copytree(store, beside / "rewrite")
    (beside / "rewrite-ready").write_text("")
    os.rename(store, beside / "replaced")  # and killed before the second renaming
    same(sk.open(store).load(), original)
    same(run(ledger, store), original)
    assert ledger.take() == set()
    assert not {"rewrite", "rewrite-ready", "replaced"} & {one.name for one in beside.iterdir()}


def test_a_lost_root_of_a_stage_hides_no_runs(store: str) -> None:
    sweep = sk.Sweep(lambda a: a * 2.0, sk.grid(a=[0.0, 1.0, 2.0]), version="1")
    options: dict[str, Any] = {"backend": "sequential", "progress": False}
    sk.run(sweep, store, **options)
    sk.refine(sweep, store, sk.paired(a=[0.5], dim="point"), **options)
    delete(Path(store, "stages", "1", "zarr.json"))
    with pytest.raises(sk.StoreError, match=r"stages/1"):
        sk.open(store, stages=True)
    sk.refine(sweep, store, **options)
    assert sk.open(store, stages=True).sizes["run"] == 4


# --- refused, and nothing left -------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Consolidated metadata")  # as others write it
def test_a_refused_sweep_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("text")
    xr.Dataset({"x": 1.0}).to_zarr(tmp_path / "other.zarr", zarr_format=3, consolidated=True)
    grid = sk.grid(a=[1, 2])
    good = sk.Sweep(lambda a: {"y": a}, grid)
    typo = sk.Sweep(lambda a: {"y": a}, grid, requirements=["yy > 1"])
    before = sorted(tmp_path.rglob("*"))
    for sweep, name in (
        (good, "mine"),
        (good, "other.zarr"),
        (typo, "new.zarr"),
        (typo, "deep/down/new.zarr"),
    ):
        with pytest.raises((sk.StoreError, ValueError)):
            sk.run(sweep, tmp_path / name, backend="sequential", progress=False)
        assert sorted(tmp_path.rglob("*")) == before, name


def test_chunks_without_dask_name_what_to_install(
    store: str, original: xr.Dataset, finish: Callable[..., str]
) -> None:
    out = finish(
        """
        import sys
        sys.modules["dask"] = None
        import sweepkit as sk
        for stages in (False, True):
            try:
                sk.open(sys.argv[1], chunks={}, stages=stages)
            except ImportError as told:
                print(told)
        """,
        store,
    )
    for line in out.splitlines():
        assert line.startswith(
            "chunks={} needs dask, which is not installed; pip install 'sweepkit"
        )
    assert len(out.splitlines()) == 2


def test_errors_of_reading_are_store_errors_and_value_errors() -> None:
    assert issubclass(DamagedError, sk.StoreError)
    assert issubclass(DamagedError, ValueError)
    assert format1.FORMAT == 1

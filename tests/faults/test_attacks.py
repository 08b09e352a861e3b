"""The store is attacked: what is lost is named, what counted as done elsewhere stays."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit import arrays, format1
from sweepkit.root import sealed
from sweepkit.status import Status

A, B = list(range(6)), [0.5, 1.5, 2.5]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of six runs, so that a chunk is a part of a store."""
    monkeypatch.setattr(format1, "BLOCK_RUNS", 6)


class Ledger:
    """Notes which runs are executed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __call__(self, *values: float) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(values) + "\n")

    def take(self) -> set[tuple[float, ...]]:
        lines = [tuple(json.loads(line)) for line in self.path.read_text().splitlines()]
        assert len(set(lines)) == len(lines)
        self.path.write_text("")
        return set(lines)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def simulator(ledger: Ledger) -> Callable[..., dict[str, Any]]:
    def f(a: int, b: float) -> dict[str, Any]:
        ledger(a, b)
        print("said", a)
        if a == 3:
            raise ValueError(f"three and {b}")
        return {"y": a * b, "n": a, "text": f"{a}/{b}", "trace": np.full(4, a + b)}

    return f


def run(ledger: Ledger, store: str, a: list[int] = A, **options: Any) -> xr.Dataset:
    sweep = sk.Sweep(simulator(ledger), sk.grid(a=a, b=B), version="1")
    return sk.run(sweep, store, backend="sequential", progress=False, **options).load()


@pytest.fixture
def original(ledger: Ledger, store: str) -> xr.Dataset:
    ds = run(ledger, store)
    ledger.take()
    return ds


def same(ds: xr.Dataset, original: xr.Dataset) -> None:
    for name in ("y", "n", "text", "trace", "status", "error", "log"):
        xr.testing.assert_equal(ds[name], original[name])


# --- damaged chunks ----------------------------------------------------------------------------


def delete(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


HARM = (delete, truncate, empty, flip)
KINDS = ("status", "y", "n", "text", "trace", "error", "log", "duration", "attempts", "log_size")
PAIRS = [
    pytest.param(kind, harm, id=f"{kind}-{harm.__name__}", marks=[] if quick else pytest.mark.slow)
    for at, kind in enumerate(KINDS)
    for number, harm in enumerate(HARM)
    for quick in [kind in ("status", "y", "trace") or (at + number) % 4 == 0]
]


def chunk_of(store: str, kind: str) -> Path:
    """The chunk of a variable that holds run a=3, b=0.5, in the second block."""
    number = 1 if kind != "trace" else 3 // 2
    path = Path(store, kind, "c", str(number), "0", *(["0"] if kind == "trace" else []))
    assert path.exists(), sorted(Path(store, kind).rglob("*"))
    return path


@pytest.mark.parametrize(("kind", "harm"), PAIRS)
def test_a_damaged_chunk_is_named_and_just_its_runs_are_done_again(
    ledger: Ledger,
    store: str,
    original: xr.Dataset,
    kind: str,
    harm: Callable[[Path], None],
) -> None:
    assert sk.verify(store).empty
    harm(chunk_of(store, kind))
    found = sk.verify(store)
    assert list(found["variable"]) == [kind]
    assert found["where"][0] == "a 2 to 3, b 0 to 2"
    assert ("missing" in found["reason"][0]) == (harm is delete)
    assert sk.verify(store).equals(found)
    lost = {(2, 0.5), (2, 1.5), (2, 2.5), (3, 0.5), (3, 1.5), (3, 2.5)}
    if kind in ("y", "n", "text", "trace"):
        lost = {one for one in lost if one[0] == 2}  # runs of a=3 have no outputs
    if kind == "error":
        lost = {one for one in lost if one[0] == 3}
    assert found["runs"][0] == len(lost)
    again = run(ledger, store)
    # Runs are told by chunk: those that ended in an error are among them.
    executed = ledger.take()
    assert lost <= executed <= {(a, b) for a in (2, 3) for b in B}
    same(again, original)
    assert sk.verify(store).empty
    run(ledger, store)
    assert ledger.take() == set()


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_chunk_is_noticed_without_verify(
    ledger: Ledger, store: str, original: xr.Dataset, harm: Callable[[Path], None]
) -> None:
    harm(chunk_of(store, "y"))
    same(run(ledger, store), original)
    assert {one[0] for one in ledger.take()} == {2}
    assert sk.verify(store).empty


def test_flipped_chunks_of_a_store_too_big_to_be_read_are_left_to_verify(
    ledger: Ledger, store: str, original: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "LOOKED_AT", 1000)
    flip(chunk_of(store, "y"))
    with pytest.raises(sk.StoreError, match=r"'y' is damaged .*sk\.verify"):
        run(ledger, store)
    assert ledger.take() == set()
    assert list(sk.verify(store)["variable"]) == ["y"]
    same(run(ledger, store), original)
    assert {one[0] for one in ledger.take()} == {2}


def test_reading_a_flipped_chunk_names_the_store_and_what_to_do(
    store: str, original: xr.Dataset
) -> None:
    flip(chunk_of(store, "y"))
    with pytest.raises(Exception, match=r"(?s)'y'.*verify"):
        sk.open(store)["y"].load()


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("axis", ["a", "b"])
def test_a_damaged_coordinate_is_named_and_restored(
    ledger: Ledger, store: str, original: xr.Dataset, axis: str, harm: Callable[[Path], None]
) -> None:
    harm(Path(store, axis, "c", "0"))
    found = sk.verify(store)
    assert list(found["variable"]) == [axis]
    assert found["runs"][0] == 0
    again = run(ledger, store)
    assert ledger.take() == set()
    xr.testing.assert_identical(again[axis], original[axis])
    same(again, original)
    assert sk.verify(store).empty


def test_a_damaged_coordinate_without_a_copy_is_refused(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    delete(Path(store, "a", "c", "0"))
    shutil.rmtree(f"{store}.sweepkit")
    with pytest.raises(sk.StoreError, match="'a' is missing; there is no whole copy of it"):
        run(ledger, store)
    assert ledger.take() == set()


# --- damaged metadata and leftovers --------------------------------------------------------------


@pytest.mark.parametrize("harm", [delete, truncate, empty])
def test_a_damaged_root_is_told_and_mended(
    ledger: Ledger, store: str, original: xr.Dataset, harm: Callable[[Path], None]
) -> None:
    harm(Path(store, "zarr.json"))
    with pytest.raises(ValueError, match=r"damaged|holds no sweep"):
        sk.open(store)
    with pytest.raises(sk.StoreError, match=r"damaged|holds no sweep"):
        sk.verify(store)
    same(run(ledger, store), original)
    assert ledger.take() == set()


@pytest.mark.parametrize("harm", [delete, truncate, empty])
def test_damaged_metadata_of_a_variable_is_mended(
    ledger: Ledger, store: str, original: xr.Dataset, harm: Callable[[Path], None]
) -> None:
    harm(Path(store, "y", "zarr.json"))
    harm(Path(store, "b", "zarr.json"))
    same(sk.open(store).load(), original)  # the root has a copy
    same(run(ledger, store), original)
    assert ledger.take() == set()
    assert sk.verify(store).empty


def test_a_variable_deleted_whole_is_computed_again(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    shutil.rmtree(Path(store, "n"))
    same(run(ledger, store), original)
    assert {(a, b) for a in A if a != 3 for b in B} <= ledger.take()


def test_leftovers_of_a_killed_writer_do_no_harm(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    for place in ("y/c/1/0.8371.partial", "zarr.json.22.partial", "y/zarr.json.partial"):
        Path(store, place).write_bytes(b"half")
    same(sk.open(store).load(), original)
    same(run(ledger, store, a=[*A, 6]).isel(a=slice(0, len(A))), original)
    assert ledger.take() == {(6, b) for b in B}
    assert not list(Path(store).rglob("*.partial"))


def test_a_newer_format_is_told(ledger: Ledger, store: str, original: xr.Dataset) -> None:
    path = Path(store, "zarr.json")
    root = json.loads(path.read_text())
    root["attributes"]["sweepkit_format"] = 2
    path.write_text(json.dumps(root))
    told = "is of format 2, and this sweepkit knows format 1; update sweepkit"
    with pytest.raises(ValueError, match=told):
        sk.open(store)
    for act in (lambda: run(ledger, store), lambda: sk.verify(store)):
        with pytest.raises(sk.StoreError, match=told):
            act()
    assert json.loads(path.read_text()) == root
    assert ledger.take() == set()


@pytest.mark.parametrize("where", ["root and child", "child only"])
def test_a_pickle_codec_is_refused_and_not_run(
    ledger: Ledger, tmp_path: Path, store: str, original: xr.Dataset, where: str
) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    codec = {"name": "numcodecs.pickle", "configuration": {"protocol": 5}}
    root_path, child = Path(store, "zarr.json"), Path(store, "y", "zarr.json")
    metadata = json.loads(child.read_text())
    metadata["codecs"] = [codec]
    child.write_text(json.dumps(metadata))
    if where == "root and child":
        root = json.loads(root_path.read_text())
        root["consolidated_metadata"]["metadata"]["y"]["codecs"] = [codec]
        root_path.write_text(json.dumps(sealed(root)))
    chunk_of(store, "y").write_bytes(pickle.dumps(Evil()))
    if where == "root and child":
        told = r"y'? is encoded by numcodecs\.pickle, which no sweep uses and which may run code"
        with pytest.raises(ValueError, match=told):
            sk.open(store)
        for act in (lambda: run(ledger, store), lambda: sk.verify(store)):
            with pytest.raises(sk.StoreError, match=told):
                act()
    else:
        assert set(sk.verify(store)["variable"]) == {"y"}
        same(run(ledger, store).drop_vars("y").assign(y=original["y"]), original)
    assert not (tmp_path / "executed").exists()


# --- the disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount is not None and os.geteuid() == 0
    if made:
        command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
        made = subprocess.run(command, capture_output=True).returncode == 0
    if not made:
        pytest.skip("a 2 MB file system cannot be mounted here; it needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_loses_nothing_that_counts_as_done(small_disk: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")

    def f(i: int) -> dict[str, Any]:
        ledger(i)
        return {"noise": np.random.default_rng(i).random(8192), "i2": i * i}

    def go() -> xr.Dataset:
        sweep = sk.Sweep(f, sk.grid(i=range(60)), version="1")
        return sk.run(sweep, small_disk / "a.zarr", backend="sequential", progress=False)

    store = str(small_disk / "a.zarr")
    with pytest.raises(sk.StoreError, match=r"a\.zarr.*[\d,]+ bytes are free there"):
        go()
    done = sk.open(store).load()
    kept = np.flatnonzero(done["status"] == Status.DONE)
    for i in kept:
        assert done["noise"][i].values.tolist() == np.random.default_rng(i).random(8192).tolist()
    assert not set(np.flatnonzero(done["status"] != Status.DONE)) & set(kept)
    with pytest.raises(sk.StoreError, match="bytes are free"):
        go()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    ledger.path.write_text("")
    ds = go().load()
    assert (ds["status"] == Status.DONE).all()
    assert {int(i) for (i,) in ledger.take()} & set(kept.tolist()) == set()
    for k in range(60):
        assert ds["noise"][k].values.tolist() == np.random.default_rng(k).random(8192).tolist()
    assert sk.verify(store).empty


@pytest.mark.parametrize("full", ["files", "names"])
def test_a_full_disk_for_temporary_files_is_told(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def f(i: int) -> float:
        return 2.0 * i

    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    if full == "names":
        monkeypatch.setattr(tempfile, "tempdir", str(small_disk / "gone"))
    else:
        with suppress(OSError), open(small_disk / "fill", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    there = sorted(os.listdir(small_disk))
    sweep = sk.Sweep(f, sk.grid(i=range(4)))
    with pytest.raises(OSError, match=r"temporary files cannot be made in .*TMPDIR") as told:
        sk.run(sweep, tmp_path / "a.zarr", n_jobs=1, backend="loky", progress=False)
    assert str(small_disk) in str(told.value)
    assert sorted(os.listdir(small_disk)) == there
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ds = sk.run(sweep, tmp_path / "a.zarr", n_jobs=1, backend="loky", progress=False)
    assert ds["result"].values.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_full_disk_from_the_beginning_is_told(small_disk: Path) -> None:
    with open(small_disk / "ballast", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    sweep = sk.Sweep(lambda i: float(i), sk.grid(i=range(4)), version="1")
    store = small_disk / "a.zarr"
    with pytest.raises(sk.StoreError, match=r"a\.zarr.*cannot be written.*space"):
        sk.run(sweep, store, backend="sequential", progress=False)
    (small_disk / "ballast").unlink()
    ds = sk.run(sweep, store, backend="sequential", progress=False)
    assert (ds["status"] == Status.DONE).all()


NOBODY = 65534


@pytest.mark.slow
def test_a_store_that_may_not_be_read_is_told(tmp_path: Path, finish: Any) -> None:
    sweep = sk.Sweep(lambda i: float(i), sk.grid(i=[1, 2]), version="1", name="f")
    store, beside = tmp_path / "a.zarr", tmp_path / "a.zarr.sweepkit"
    sk.run(sweep, store, backend="sequential", progress=False)
    for one in (*tmp_path.parents, tmp_path):
        if one.stat().st_uid == os.geteuid() and "pytest" in str(one):
            one.chmod(one.stat().st_mode | 0o055)
    for one in (beside, *beside.rglob("*")):
        one.chmod(0o777)
    store.chmod(0o000)
    out = finish(
        f"""
        import os
        import sweepkit as sk
        from sweepkit import stores, reading
        import sweepkit.run, sweepkit.workbench, sweepkit.executors.joblib, scipy, pandas
        import email.policy  # while it may still be read
        if os.geteuid() == 0:
            os.setgid({NOBODY}); os.setuid({NOBODY})
        sweep = sk.Sweep(lambda i: float(i), sk.grid(i=[1, 2]), version="1", name="f")
        for call in (
            lambda: sk.run(sweep, "a.zarr", backend="sequential", progress=False),
            lambda: sk.open("a.zarr"),
            lambda: sk.verify("a.zarr"),
        ):
            try:
                call()
            except sk.StoreError as error:
                print(error)
        """
    )
    store.chmod(0o755)
    told = out.splitlines()
    assert len(told) == 3
    assert all("Permission denied; mend its permissions" in one for one in told)
    assert sk.open(store)["result"].values.tolist() == [1.0, 2.0]


def test_a_read_only_path_is_told_and_a_finished_sweep_there_is_read(
    tmp_path: Path, finish: Any
) -> None:
    place = tmp_path / "closed"
    place.mkdir()
    sk.run(
        sk.Sweep(lambda i: float(i), sk.grid(i=[1, 2]), version="1", name="f"),
        place / "old.zarr",
        backend="sequential",
        progress=False,
    )
    for one in (*tmp_path.parents, tmp_path):
        if one.stat().st_uid == os.geteuid() and "pytest" in str(one):
            one.chmod(one.stat().st_mode | 0o055)
    for one in (place, *place.rglob("*")):
        one.chmod(0o555 if one.is_dir() else 0o444)
    out = finish(
        f"""
        import os
        import sweepkit as sk
        from sweepkit import stores, reading
        import sweepkit.run, sweepkit.workbench, sweepkit.executors.joblib, scipy, pandas
        import email.policy  # while it may still be read
        if os.geteuid() == 0:
            os.setgid({NOBODY}); os.setuid({NOBODY})
        def f(i):
            print("ran")
            return float(i)
        def sweep(values, **more):
            return sk.Sweep(f, sk.grid(i=values), version="1", name="f", **more)
        tries = [
            (sweep([1, 2, 3]), "closed/new.zarr", {{}}),
            (sweep([1, 2, 3]), "closed/old.zarr", {{}}),
            (sweep([1, 2], requirements=["result > 0"]), "closed/old.zarr", {{}}),
            (sweep([1, 2]), "closed/old.zarr", {{"rerun": "error"}}),
            (sweep([1, 2]), "closed/old.zarr", {{}}),
        ]
        for given, path, options in tries:
            try:
                ds = sk.run(given, path, backend="sequential", progress=False, **options)
                print(ds["result"].values.tolist())
            except sk.StoreError as error:
                print(type(error).__name__, error)
        print(sk.open("closed/old.zarr")["result"].values.tolist())
        print(len(sk.verify("closed/old.zarr")))
        """
    )
    first, second, third, again, same_call, values, found = out.splitlines()
    assert "old.zarr cannot be written" in third
    assert again == same_call == "[1.0, 2.0]"
    assert "new.zarr cannot be written: Permission denied; choose another path" in first
    assert "old.zarr cannot be written: Permission denied; choose another path" in second
    assert values == "[1.0, 2.0]"
    assert found == "0"
    for one in (place, *place.rglob("*")):
        one.chmod(0o755)


# --- others at the same store ------------------------------------------------------------------


def test_a_second_writer_is_told_who_writes(tmp_path: Path, start: Any, ledger: Ledger) -> None:
    writer = start(
        """
        import time
        import sweepkit as sk
        from sweepkit.stores.zarr import ZarrStore
        with ZarrStore("a.zarr").hold():
            print("held", flush=True)
            time.sleep(600)
        """
    )
    assert writer.stdout.readline() == "held\n"
    with pytest.raises(sk.StoreBusyError, match=rf"process {writer.pid} on \S+, since \d{{4}}-"):
        run(ledger, str(tmp_path / "a.zarr"))
    assert ledger.take() == set()
    writer.kill()
    writer.wait()
    run(ledger, str(tmp_path / "a.zarr"))  # no unlock step
    assert len(ledger.take()) == len(A) * len(B)


def test_a_reader_that_holds_files_reads_on_while_they_are_replaced(
    ledger: Ledger, store: str, original: xr.Dataset
) -> None:
    lazy = sk.open(store)
    held = [open(path, "rb") for path in Path(store).rglob("c/*/*") if path.is_file()]  # noqa: SIM115
    try:
        run(ledger, store, a=[*A, 6, 7], rerun="error")
        assert ledger.take() == {(a, b) for a in (3, 6, 7) for b in B}
        same(lazy.isel(a=slice(0, 3)).load(), original.isel(a=slice(0, 3)))
        assert all(file.read() for file in held)
    finally:
        for file in held:
            file.close()
    assert (sk.open(store)["status"].sel(a=[6, 7]) == Status.DONE).all()


def test_every_read_while_it_is_written_is_whole(store: str, monkeypatch: Any) -> None:
    """What a reader sees as done has its value, at any moment of a session."""
    seen: list[int] = []

    def look(progress: sk.Progress) -> None:
        if not Path(store).exists():
            return
        ds = sk.open(store).load()
        done = ds["status"].values == Status.DONE
        i = np.broadcast_to(ds["i"].values, done.shape)
        assert (ds["y"].values[done] == i[done] ** 2).all()
        assert np.isnan(ds["y"].values[~done]).all()
        seen.append(int(done.sum()))

    session = importlib.import_module("sweepkit.run")
    monkeypatch.setattr(session, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.intake"), "SLOW", -1.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.intake"), "RESTS", 0.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "BATCH_RUNS", 2)

    def f(i: int) -> dict[str, float]:
        time.sleep(0.04)
        return {"y": float(i * i)}

    sweep = sk.Sweep(f, sk.grid(i=range(30)), version="1")
    sk.run(sweep, store, backend="sequential", progress=look)
    assert seen[-1] == 30
    assert seen == sorted(seen)
    assert len(set(seen)) > 2

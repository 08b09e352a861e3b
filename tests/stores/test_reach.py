"""What reads a store reads it wherever it lies: in Python, and from a shell."""

from __future__ import annotations

import importlib
import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from zarr.storage import MemoryStore

import sweepkit as sk
from sweepkit.cli import main
from tests.stores.conftest import Bucket

pytest.importorskip("anywidget", reason="needs 'sweepkit[explore]'")
sharing = importlib.import_module("sweepkit.share")  # the package shows the function of its name

MODULE = """
import sweepkit as sk

def simulate(a, b):
    if a == 3:
        raise ValueError("three is no good")
    return {"y": a * b}

def sweep(n=5):
    return sk.Sweep(simulate, sk.grid(a=range(n), b=[1.0, 2.0]), requirements=["y < 5"], name="ab")
"""


@dataclass(frozen=True)
class Kept:
    """A finished sweep in some place, and how it is reached."""

    place: Any
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> dict[str, Any]:
        """Arguments for functions that take storage options."""
        return {"storage_options": self.options} if self.options else {}

    @property
    def words(self) -> list[str]:
        """The same for a shell."""
        named = [f"{name}={value}" for name, value in self.options.items()]
        return [word for one in named for word in ("--storage-option", one)]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with a sweep, found from the current folder, which is the test's own."""
    name = f"swept_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return importlib.import_module(name)


def kept(kind: str, module: Any, request: pytest.FixtureRequest) -> Kept:
    """A finished sweep in a place of some kind."""
    options: dict[str, Any] = {}
    place: Any = {"icechunk": "a.icechunk", "memory": f"memory://{module.__name__}/a.zarr"}.get(
        kind
    )
    if kind == "bucket":
        bucket: Bucket = request.getfixturevalue("bucket")
        place, options = bucket.url, bucket.options
    elif kind == "object":
        place = MemoryStore()
    elif kind == "zip":
        place = "a.zarr"
    reached = {"storage_options": options} if options else {}
    sk.run(module.sweep(), place, backend="sequential", progress=False, **reached)
    if kind == "zip":
        place = sk.pack(place, "a.zarr.zip")
    return Kept(place, options)


BUCKET = pytest.param("bucket", marks=pytest.mark.slow)
SLOWER = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("zip", "icechunk")]
"""Kinds that are tried with the rest in the long forms."""


@pytest.mark.parametrize("kind", [BUCKET, "zip", "icechunk", "memory", "object"])
def test_it_is_explored_reported_exported_and_traced(
    kind: str, module: Any, request: pytest.FixtureRequest
) -> None:
    store = kept(kind, module, request)
    shown = sk.explore(store.place, **store.reached)
    assert json.loads(shown.first)["meta"]["n"] == 10
    assert shown.selection.sum() == 10
    shown.close()
    report = sk.report(store.place, "r.json", **store.reached)
    assert json.loads(report.read_text())["runs"]["total"] == 10
    sk.export(store.place, "r.csv", **store.reached)
    assert len(pd.read_csv("r.csv")) == 10
    assert len(sk.provenance(store.place, **store.reached).sessions) == 1


def shell(*words: object) -> str:
    """What a command says, which must succeed."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("kind", ["bucket", *SLOWER])
def test_every_command_reads_it(
    kind: str, module: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kept(kind, module, request)
    place, words = store.place, store.words
    target = f"{module.__name__}:sweep"
    ran = shell("run", target, "--store", place, "--backend", "sequential", "--quiet", *words)
    assert "8 done, 2 error" in ran
    assert json.loads(shell("status", place, "--json", *words))["finished"] == 10
    assert "10 of 10" in shell("status", place, "--follow", *words)
    assert "all is well" in shell("verify", place, *words)
    assert "complete: 10 of 10" in shell("receipt", place, *words)
    assert "1 code version" in shell("provenance", place, *words)
    assert "pending 0 of 10" in shell("plan", target, "--store", place, "--pilot", 0, *words)
    shell("export", place, "r.csv", *words)
    shell("report", place, "-o", "r.md", *words)
    assert Path("r.csv").exists()
    assert Path("r.md").exists()
    assert "as stored, bit for bit" in shell("replay", target, place, 2, *words)
    shell("pack", place, "again.zip", *words)
    assert "0 runs from pass to fail" in shell("compare", place, "again.zip", *words)
    served: list[Any] = []

    def made(place: Any, **_: Any) -> None:
        from sweepkit.views.page import page

        served.append(page(place))

    monkeypatch.setattr("sweepkit.views.page.serve", made)
    shell("explore", place, "--no-browser", *words)
    assert len(served) == 1


def test_a_version_is_read_from_a_shell(module: Any) -> None:
    for n in (3, 5):
        sk.run(module.sweep(n), "a.icechunk", backend="sequential", progress=False)
    listed = json.loads(shell("snapshots", "a.icechunk", "--json"))
    assert listed[0]["snapshot"] == sk.snapshots("a.icechunk")["snapshot"][0]
    assert "6 runs of this session, its end" in shell("snapshots", "a.icechunk")
    old = next(one for one in listed if one["message"] == "6 runs of this session, its end")
    told = shell("status", "a.icechunk", "--json", "--snapshot", old["snapshot"])
    assert json.loads(told)["total"] == 6
    shell("export", "a.icechunk", "old.csv", "--snapshot", old["snapshot"])
    assert len(Path("old.csv").read_text().splitlines()) == 7
    for words, said in (
        (("status", "a.zarr", "--snapshot", "x"), "is for Icechunk repositories"),
        (("status", "a.icechunk", "--snapshot", "x"), "has no snapshot 'x'"),
        (("snapshots", "a.zarr"), "a.zarr is no Icechunk repository"),
    ):
        done = CliRunner().invoke(main, list(words))
        assert (done.exit_code, said in done.output) == (1, True), done.output


@pytest.mark.parametrize("kind", ["object", *SLOWER, BUCKET])
def test_what_is_no_folder_is_shared_as_one(
    kind: str, module: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "execute", lambda *_, **__: None)
    store = kept(kind, module, request)
    made = sk.share(store.place, "shared", **store.reached)
    (copy,) = made.glob("*.zarr")
    ds = sk.open(copy)
    was = sk.open(store.place, **store.reached)
    np.testing.assert_array_equal(ds["y"].values, was["y"].values)
    assert len(sk.verify(copy)) == 0
    assert len(sk.receipt(copy).records) == 1
    assert "icechunk" not in (made / "binder/requirements.txt").read_text()


def test_what_is_too_big_to_be_shared_is_told_before_it_is_all_fetched(
    bucket: Bucket, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MOST_BYTES", 2000)
    reached = {"storage_options": bucket.options}
    sk.run(module.sweep(), bucket.url, backend="sequential", progress=False, **reached)
    with pytest.raises(ValueError, match=rf"{bucket.url} has more than the 2 kB that hosts of git"):
        sk.share(bucket.url, "shared", **reached)
    assert not Path("shared").exists()


def test_a_command_keeps_nothing_in_memory(module: Any) -> None:
    words = ["run", f"{module.__name__}:sweep", "--store", "memory://a"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "gone with this command; give a path or another URL" in done.output


READERS: list[Callable[[str], Any]] = [
    lambda path: sk.open(path).load(),
    sk.verify,
    sk.receipt,
    sk.provenance,
    sk.runs,
]


def test_a_flipped_bit_anywhere_in_a_zip_is_met_as_damage(module: Any) -> None:
    """Each file in it has its turn: what reads it gives the same values, or an error of stores."""
    sk.run(module.sweep(), "a.zarr", backend="sequential", progress=False)
    whole = Path(sk.pack("a.zarr", "a.zip"))
    before, content = sk.open(whole).load(), whole.read_bytes()
    with zipfile.ZipFile(whole) as packed:
        places = [(one.filename, one.header_offset, one.compress_size) for one in packed.infolist()]
    unseen = []
    for name, offset, size in places:
        spoiled = bytearray(content)
        spoiled[offset + 30 + len(name) + size // 2] ^= 4
        whole.write_bytes(spoiled)
        told = 0
        for read in READERS:
            try:
                found = read(str(whole))
            except sk.StoreError:
                told += 1
                continue
            if read is READERS[0]:
                assert found.identical(before), name
            told += read is sk.verify and len(found) > 0
        if not told and not name.startswith(".sweepkit"):
            unseen.append(name)
    assert not [name for name in unseen if not name.startswith("stages")]

"""Files where folders should be, folders where files should be, links to nowhere; and stages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk

GRID = sk.grid(a=[0.0, 1.0, 2.0, 3.0], b=[0, 1])


def f(a: float, b: int) -> dict[str, Any]:
    return {"y": a + 10 * b, "wide": np.full(80_000, a - b), "v": np.arange(3.0) * a}


SWEEP = sk.Sweep(
    f,
    GRID,
    outputs={"v": sk.output(dims="k", size=3, coords={"k": [1.0, 2.0, 4.0]})},
    requirements=["y < 2"],
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a stage."""
    path = tmp_path_factory.mktemp("places") / "a.zarr"
    sk.run(SWEEP, path, backend="sequential", progress=False)
    points = sk.grid(a=sk.values([0.5, 1.5], dims="p"), b=sk.values([0, 1], dims="p"))
    sk.refine(SWEEP, path, points, backend="sequential", progress=False)
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    for end in ("", ".sweepkit"):
        shutil.copytree(f"{made}{end}", tmp_path / f"a.zarr{end}")
    return tmp_path / "a.zarr"


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def as_file(path: Path) -> None:
    remove(path)
    path.write_text("not an array")


def as_folder(path: Path) -> None:
    remove(path)
    (path / "left").mkdir(parents=True)


def as_link_to_nowhere(path: Path) -> None:
    remove(path)
    path.symlink_to("nowhere")


def results(store: Path, *, stages: bool = False) -> xr.Dataset:
    ds = sk.open(store, stages=stages)
    kept: xr.Dataset = ds[["y", "wide", "v", "status"]].load()
    return kept


IN_THE_WAY = [
    *((as_file, name) for name in ("a", "y", "wide/c/2")),
    *((as_folder, name) for name in ("y/zarr.json",)),
    *((as_link_to_nowhere, name) for name in ("k/c/0", "y/c/0/0", "wide/c/2")),
    *(
        pytest.param(harm, name, marks=pytest.mark.slow)
        for harm, name in (
            *((as_file, name) for name in ("k", "status", "y/c", "status/c")),
            *((as_folder, name) for name in ("a/zarr.json", "k/c/0", "wide/c/2/1/0")),
            *((as_link_to_nowhere, name) for name in ("a", "b/c/0", "y")),
        )
    ),
]


@pytest.mark.parametrize(("harm", "name"), IN_THE_WAY)
def test_what_is_in_the_place_of_a_file_or_folder_gives_way(
    harm: Callable[[Path], None], name: str, store: Path, made: Path
) -> None:
    harm(store / name)
    sk.run(SWEEP, store, backend="sequential", progress=False)
    assert results(store).identical(results(made))
    assert sk.verify(store).empty


def test_big_values_of_workers_make_their_way_too(store: Path, made: Path) -> None:
    as_file(store / "wide" / "c" / "2")
    sk.run(SWEEP, store, backend="threading", n_jobs=1, progress=False)
    assert results(store).identical(results(made))


def test_folders_named_as_half_written_files_go(store: Path) -> None:
    left = [store / "y" / "z.partial", Path(f"{store}.sweepkit/sessions/z.partial")]
    for one in left:
        (one / "within").mkdir(parents=True)
    sk.run(SWEEP, store, backend="sequential", progress=False)
    assert not any(map(os.path.exists, left))


def lose(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("root", [lose, cut, as_folder])
@pytest.mark.parametrize("copy", [None, lose, cut])
def test_a_root_comes_back_or_says_that_it_cannot_and_nothing_is_touched(
    root: Callable[[Path], None], copy: Callable[[Path], None] | None, store: Path, made: Path
) -> None:
    root(store / "zarr.json")
    if copy is None:
        sk.run(SWEEP, store, backend="sequential", progress=False)
        assert results(store).identical(results(made))
        return
    copy(Path(f"{store}.sweepkit/root.json"))
    before = {one: one.stat().st_mtime_ns for one in store.rglob("*")}
    told = r"zarr\.json(, is damaged: .*take it from a copy| cannot be read: Is a directory; mend)"
    for call in (
        lambda: sk.open(store),
        lambda: sk.verify(store),
        lambda: sk.run(SWEEP, store, backend="sequential", progress=False),
    ):
        with pytest.raises(sk.StoreError, match=told):
            call()
    assert {one: one.stat().st_mtime_ns for one in store.rglob("*")} == before


SLOW_NAMES = [pytest.param(name, marks=pytest.mark.slow) for name in ("y/zarr.json", "b/c/0")]


@pytest.mark.parametrize("name", ["y/c/0", "zarr.json", *SLOW_NAMES])
def test_damage_of_a_stage_names_the_call_that_makes_it_good_and_that_does(
    name: str, store: Path, made: Path
) -> None:
    path = store / "stages" / "1" / name
    path.write_bytes(path.read_bytes()[:-5])
    call = f"sk.refine(sweep, {str(store)!r})"
    told = []
    try:
        told += sk.verify(store)["where"].tolist()
        results(store, stages=True)
    except sk.StoreError as fault:
        told.append(str(fault))
    assert not [one for one in told if "sk.run" in one]
    assert name == "y/zarr.json" or [one for one in told if call in one]
    sk.refine(SWEEP, store, backend="sequential", progress=False)
    assert results(store, stages=True).identical(results(made, stages=True))
    assert sk.verify(store).empty

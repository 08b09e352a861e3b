"""Refinements run into the store of their sweep, and are read together with the grid."""

from __future__ import annotations

import importlib
import json
import random
import shutil
import signal
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.analysis import UnanswerableError
from sweepkit.analysis.table import table
from sweepkit.root import sealed
from sweepkit.status import Status
from tests.clock import Clock
from tests.conftest import EXHAUSTIVE, Start
from tests.test_kills import HARNESS

OPTIONS: dict[str, Any] = {"backend": "sequential", "progress": False}
CALLS: list[tuple[Any, ...]] = []


def ball(a: float, b: float, seed: int) -> dict[str, Any]:
    """Fails in a disc; tells its seed."""
    CALLS.append((a, b))
    return {"far": ((a - 0.6) ** 2 + (b - 0.4) ** 2) ** 0.5, "seed": seed, "trace": [a, b, 1.0]}


def sweep(size: int = 6, **options: Any) -> sk.Sweep:
    axis = np.linspace(0, 1, size)
    grid = sk.grid(a=axis, b=sk.scenario(axis, units="m"), **options)
    return sk.Sweep(ball, grid, requirements=["far > 0.27"], version="1")


def points(a: list[float], b: list[float], **options: Any) -> sk.Grid:
    return sk.grid(sk.paired(a=a, b=b, dim="point"), **options)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@pytest.fixture
def path(store: str) -> str:
    sk.run(sweep(), store, **OPTIONS)
    CALLS.clear()
    return store


# --- from the grid to where it fails -------------------------------------------------------------


def test_suggested_points_are_run_read_and_weighed(path: str) -> None:
    truth = np.pi * 0.27**2
    ds = sk.open(path)
    before = sk.refined_rate(ds).iloc[0]
    for stage in (1, 2, 3):
        ds = sk.refine(sweep(), path, sk.suggest(ds, 40, seed=stage), **OPTIONS)
        assert ds.sizes["run"] == 36 + 40 * stage
        assert np.unique(ds["stage"]).tolist() == list(range(stage + 1))
        row = sk.rate(ds).iloc[0]
        now = sk.refined_rate(ds).iloc[0]
        assert row["basis"] == "refined"
        assert row["low"] <= truth <= row["high"]
        assert now["low"] <= truth <= now["high"]
        assert now["undecided"] < before["undecided"]
        assert (row["low"], row["high"]) == pytest.approx((now["low"], now["high"]))
        before = now
    assert abs(row["rate"] - truth) < 0.02
    assert abs(now["plain_rate"] - truth) > 0.1
    assert ds["volume"].sum().item() == pytest.approx(1)
    assert ds["b"].attrs == {"role": "scenario", "units": "m"}
    assert ds["a"].attrs["role"] == "design"
    table = sk.runs(path)
    assert table["stage"].value_counts().to_dict() == {0: 36, 1: 40, 2: 40, 3: 40}
    assert (table["status"] == "done").all()


def test_a_request_ends_a_refinement_and_the_same_call_goes_on(path: str, clock: Clock) -> None:
    def slow(a: float, b: float, seed: int) -> dict[str, Any]:
        clock.pass_by(0.01)
        return ball(a, b, seed)

    later = sk.Sweep(slow, sweep().grid, requirements=["far > 0.27"], version="1")
    near = np.linspace(0.1, 0.3, 60)
    for at in (0.05, 0.15):  # two stages, and of each little is done
        given = points(near.tolist(), [at] * 60)
        ds = sk.refine(later, path, given, request=sk.Request(budget=0.15), **OPTIONS)
        assert 0 < int((ds["status"] == Status.DONE).sum() - 36) < 60
    CALLS.clear()
    ds = sk.refine(later, path, request=sk.Request(duration=0.3), **OPTIONS)
    assert 0 < len(CALLS) <= 30  # of both stages together
    assert int((ds["status"] == Status.PENDING).sum()) > 40
    with pytest.raises(ValueError, match="asks for 2 workers, and the call for 3"):
        sk.refine(later, path, request=sk.Request(workers=2), n_jobs=3)
    ds = sk.refine(later, path, **OPTIONS)
    assert (ds["status"] == Status.DONE).all()


def test_every_analysis_takes_all_stages(path: str) -> None:
    ds = sk.refine(sweep(), path, sk.suggest(sk.open(path), 40), **OPTIONS)
    grid = sk.open(path)
    assert sk.held_up(ds).groupby("parameter")["n_run"].sum().tolist() == [76, 76]
    assert sk.failure_rate(ds, by=[])["n_run"].item() == 76
    assert int(sk.kinds(ds)["count"].sum()) > int(sk.kinds(grid)["count"].sum())
    near = sk.counterexample(ds, {"a": 0.0, "b": 0.0}).iloc[0]
    far = sk.counterexample(grid, {"a": 0.0, "b": 0.0}).iloc[0]
    assert near["distance"] < far["distance"]
    sk.safe_box(ds, {"a": 0.0, "b": 1.0})
    sk.explain(ds, 70)
    assert len(sk.islands(ds)["island"]) >= 1
    exact = sk.importance(grid)
    got = sk.importance(ds)
    np.testing.assert_allclose(got["S1"], exact["S1"])
    np.testing.assert_allclose(got["ST"], exact["ST"])
    assert "stage 0" in got.attrs["basis"]
    boxes = sk.regions(ds)
    assert boxes.boxes["text"].tolist() == sk.regions(grid).boxes["text"].tolist()
    for answer in (sk.pairs(ds), sk.combinations(ds), sk.distribution(ds, "far"),
                   sk.robustness(ds), sk.convergence(ds)):  # fmt: skip
        assert "40 refined runs left out" in answer.attrs["basis"]


def test_a_sample_is_refined_and_its_plain_rate_refused(store: str) -> None:
    sampled = sk.Sweep(
        ball,
        sk.latin_hypercube(a=(0, 1), b=(0, 1), size=60),
        requirements=["far > 0.27"],
        version="1",
    )
    ds = sk.run(sampled, store, **OPTIONS)
    ds = sk.refine(sampled, store, sk.suggest(ds, 20), **OPTIONS)
    assert ds.sizes["run"] == 80
    assert "volume" not in ds.coords
    with pytest.raises(UnanswerableError, match="plain share is no failure rate"):
        sk.rate(ds)
    assert len(sk.suggest(ds, 10).points) == 10


def test_replicates_are_unrolled_and_numbered_on(store: str) -> None:
    noisy = sk.Sweep(_coin, sk.grid(a=[0.0, 0.5, 1.0], replicates=4), requirements=["low == 0"])
    ds = sk.run(noisy, store, **OPTIONS)
    ds = sk.refine(noisy, store, sk.suggest(ds, 5, goal="replicate"), **OPTIONS)
    added = ds.isel(run=ds["stage"] == 1)
    assert added["replicate"].min() == 4
    assert 0.5 in added["a"].values
    more = sk.grid(sk.paired(a=[0.25], dim="point"), replicates=4)
    ds = sk.refine(noisy, store, more, **OPTIONS)
    assert ds.isel(run=ds["stage"] == 2)["replicate"].values.tolist() == [0, 1, 2, 3]
    assert xr.open_zarr(f"{store}/stages/2").sizes == {"point_2": 4}
    row = sk.rate(ds).iloc[0]
    assert row["basis"] == "refined"
    assert row["low"] < row["rate"] < row["high"]


def _coin(a: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"low": int(rng.random() < a)}


# --- seeds ---------------------------------------------------------------------------------------


def test_a_refined_run_draws_what_the_grid_would(tmp_path: Path) -> None:
    other, store = str(tmp_path / "b.zarr"), str(tmp_path / "a.zarr")
    full = sk.run(sweep(11), other, **OPTIONS)
    sk.run(sweep(), store, **OPTIONS)
    tenths = np.linspace(0, 1, 11).tolist()
    ds = sk.refine(sweep(), store, points([tenths[1], tenths[3]], [0.5, tenths[7]]), **OPTIONS)
    for a, b in ((tenths[1], 0.5), (tenths[3], tenths[7])):
        (mine,) = ds["seed"].values[(ds["a"] == a) & (ds["b"] == b)]
        assert mine == full["seed"].sel(a=a, b=b).item()


def test_a_refined_replicate_draws_what_the_grid_would(tmp_path: Path) -> None:
    other, store = str(tmp_path / "b.zarr"), str(tmp_path / "a.zarr")
    full = sk.run(sweep(3, replicates=6), other, **OPTIONS)
    sk.run(sweep(3, replicates=2), store, **OPTIONS)
    more = sk.paired(a=[0.5, 0.5], b=[0.0, 0.0], dim="point",
                     replicate=sk.values([5, 3], role="replicate"))  # fmt: skip
    ds = sk.refine(sweep(3, replicates=2), store, more, **OPTIONS)
    ds = ds.isel(run=ds["stage"] == 1)
    wanted = full["seed"].sel(a=0.5, b=0.0, replicate=[5, 3])
    assert ds["seed"].values.tolist() == wanted.values.tolist()


def test_grown_over_a_refined_run_counts_once(path: str) -> None:
    ds = sk.refine(sweep(), path, points([0.1, 0.55], [0.5, 0.45]), **OPTIONS)
    seed = ds["seed"].values[ds["stage"] == 1]
    wide = sk.Sweep(
        ball,
        sk.grid(a=[0.1, *np.linspace(0, 1, 6)], b=sk.scenario([0.5, *np.linspace(0, 1, 6)])),
        requirements=["far > 0.27"],
        version="1",
    )
    grown = sk.run(wide, path, **OPTIONS)
    assert grown.sizes["a"] == 7
    assert grown["seed"].sel(a=0.1, b=0.5) == seed[0]
    ds = sk.open(path, stages=True)
    assert ds.sizes["run"] == 49 + 1
    assert not sk.runs(ds).duplicated(["a", "b"]).any()


# --- resumed -------------------------------------------------------------------------------------


def test_the_same_points_run_nothing_and_others_are_the_next_stage(path: str) -> None:
    first = points([0.1, 0.3], [0.5, 0.7])
    sk.refine(sweep(), path, first, **OPTIONS)
    assert sorted(CALLS) == [(0.1, 0.5), (0.3, 0.7)]
    sk.refine(sweep(), path, points([0.3, 0.1], [0.7, 0.5]), **OPTIONS)
    assert len(CALLS) == 2
    ds = sk.refine(sweep(), path, points([0.3, 0.9, 0.2], [0.7, 0.9, 0.4]), **OPTIONS)
    assert CALLS[2:] == [(0.9, 0.9)]  # one is of stage 1, one of the grid
    assert ds["stage"].values[-3:].tolist() == [1, 1, 2]
    ds = sk.refine(sweep(), path, **OPTIONS)
    assert len(CALLS) == 3
    assert ds.sizes["run"] == 39
    sk.run(sweep(), path, **OPTIONS)
    assert len(CALLS) == 3


def test_an_interrupted_refinement_goes_on(path: str) -> None:
    wanted = sk.suggest(sk.open(path), 20)

    def stopped(a: float, b: float, seed: int) -> dict[str, Any]:
        if len(CALLS) == 7:
            signal.raise_signal(signal.SIGINT)
        return ball(a, b, seed)

    mine = sk.Sweep(stopped, sweep().grid, requirements=["far > 0.27"], version="1")
    with pytest.raises(KeyboardInterrupt):
        sk.refine(mine, path, wanted, **OPTIONS)
    ds = sk.open(path, stages=True)
    done = int((ds["status"] == Status.DONE).sum()) - 36
    assert 0 < done <= 7
    assert sk.rate(ds)["basis"].item() == "refined"
    before = len(CALLS)
    sk.refine(sweep(), path, wanted, **OPTIONS)
    assert len(CALLS) - before == 20 - done
    ds = sk.open(path, stages=True)
    assert (ds["status"] == Status.DONE).all()
    assert ds["stage"].max() == 1


def test_errors_are_apart_and_tried_again(path: str) -> None:
    def moody(a: float, b: float, seed: int) -> dict[str, Any]:
        if a == 0.1 and not mended:
            raise ValueError("not yet")
        return ball(a, b, seed)

    mended = False
    again = sk.Sweep(moody, sweep().grid, requirements=["far > 0.27"], version="1")
    ds = sk.refine(again, path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    assert sk.status_counts(ds) == {"done": 37, "error": 1}
    assert "not yet" in sk.runs(ds)["error"].iloc[-2]
    mended = True
    ds = sk.refine(again, path, **OPTIONS)
    assert sk.status_counts(ds) == {"done": 37, "error": 1}
    ds = sk.refine(again, path, rerun="error", **OPTIONS)
    assert sk.status_counts(ds) == {"done": 38}


def test_masked_points_are_skipped_and_left_out(store: str) -> None:
    masked = sk.Sweep(
        ball, sweep().grid.where("a + b < 1.5"), requirements=["far > 0.27"], version="1"
    )
    sk.run(masked, store, **OPTIONS)
    ds = sk.refine(masked, store, points([0.1, 0.95], [0.1, 0.95]), **OPTIONS)
    assert (ds["a"] + ds["b"]).max() < 1.5
    assert ds["stage"].sum() == 1


# --- refused by name -----------------------------------------------------------------------------


def test_points_of_another_kind_are_refused(path: str, tmp_path: Path) -> None:
    mine = sweep()
    with pytest.raises(ValueError, match="lack parameter 'b'"):
        sk.refine(mine, path, sk.grid(a=[0.1]), **OPTIONS)
    with pytest.raises(ValueError, match="have a parameter 'c' that the sweep has not"):
        sk.refine(mine, path, sk.paired(a=[0.1], b=[0.1], c=[1]), **OPTIONS)
    with pytest.raises(ValueError, match="the points are crossed, along a, b"):
        sk.refine(mine, path, sk.grid(a=[0.1], b=[0.3]), **OPTIONS)
    with pytest.raises(ValueError, match="'b' is a str in the points, in the sweep a number"):
        sk.refine(mine, path, sk.paired(a=[0.1], b=["x"]), **OPTIONS)
    with pytest.raises(TypeError, match="points are a list"):
        sk.refine(mine, path, [{"a": 0.1}], **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(sk.StoreError, match="holds no sweep to refine"):
        sk.refine(mine, tmp_path / "none.zarr", points([0.1], [0.3]), **OPTIONS)
    other = sk.Sweep(ball, mine.grid, entropy=5, version="1")
    with pytest.raises(sk.DifferentSweepError, match="entropy is 5"):
        sk.refine(other, path, points([0.1], [0.3]), **OPTIONS)
    changed = sk.Sweep(ball, mine.grid, version="2")
    with pytest.raises(sk.StaleCodeError, match="has changed"):
        sk.refine(changed, path, points([0.1], [0.3]), **OPTIONS)
    assert not CALLS
    assert not (Path(path) / "stages").exists()


def test_a_second_writer_is_refused(path: str, start: Start, tmp_path: Path) -> None:
    holder = start(
        """
        import signal, sys
        from sweepkit.stores.zarr import ZarrStore
        with ZarrStore(sys.argv[1]).hold():
            print("held", flush=True)
            signal.pause()
        """,
        path,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(sk.StoreBusyError, match=f"process {holder.pid}"):
        sk.refine(sweep(), path, points([0.1], [0.3]), **OPTIONS)
    assert not CALLS


def test_the_grid_is_not_written_while_a_stage_is(path: str) -> None:
    refused = []

    def nosy(a: float, b: float, seed: int) -> dict[str, Any]:
        with pytest.raises(sk.StoreBusyError) as caught:
            sk.run(sweep(), path, **OPTIONS)
        refused.append(str(caught.value))
        return ball(a, b, seed)

    mine = sk.Sweep(nosy, sweep().grid, requirements=["far > 0.27"], version="1")
    sk.refine(mine, path, points([0.1], [0.3]), **OPTIONS)
    assert len(refused) == 1


# --- what is on disk -----------------------------------------------------------------------------


def test_any_reader_finds_grid_and_stages_without_a_warning(path: str) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    sk.refine(sweep(), path, points([0.9], [0.7]), **OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = xr.open_zarr(path)
        tree = xr.open_datatree(path, engine="zarr")
        stage = xr.open_zarr(path, group="stages/1")
    assert set(plain.sizes) == {"a", "b", "trace_dim_0"}
    assert plain["far"].shape == (6, 6)
    assert sorted(tree["stages"].children) == ["1", "2"]
    assert tree["stages/2"]["far"].shape == (1,)
    assert set(stage.coords) == {"a", "b"}
    assert stage["status"].dims == ("point_1",)
    root = json.loads((Path(path) / "zarr.json").read_text())
    listed = root["consolidated_metadata"]["metadata"]
    assert {"stages", "stages/1", "stages/1/far", "stages/2/status"} <= set(listed)


def test_receipts_lie_beside_the_store(path: str) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    receipts = sorted(Path(f"{path}.sweepkit", "sessions").glob("*.json"))
    assert [one.name.endswith("-stage-1.json") for one in receipts] == [False, True]
    assert json.loads(receipts[1].read_text())["runs"] == {"done": 2}


def test_damage_in_a_stage_is_named_and_run_again(path: str) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    (chunk,) = Path(path, "stages", "1", "far", "c").rglob("0")
    chunk.write_bytes(b"\x00" * chunk.stat().st_size)
    found = sk.verify(path)
    assert found["variable"].tolist() == ["stages/1/far"]
    assert found["runs"].tolist() == [2]
    before = len(CALLS)
    sk.refine(sweep(), path, **OPTIONS)
    assert len(CALLS) == before + 2
    assert sk.verify(path).empty


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize("lost", ["stages/1/zarr.json", "stages/1", "stages"])
def test_a_stage_that_is_lost_is_missed_until_it_is_run_again(path: str, lost: str) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    before = sk.refine(sweep(), path, points([0.2], [0.5]), **OPTIONS).load()
    remove(Path(path, lost))
    for _ in range(2):
        for read in (sk.runs, lambda one: sk.open(one, stages=True)):
            with pytest.raises(sk.StoreError, match=r"stages/1.*is missing; sk\.refine\(sweep, "):
                read(path)
        found = sk.verify(path).set_index("variable")
        assert found["reason"]["stages/1"].count("is missing; sk.refine(sweep, ") == 1
        assert found["runs"].tolist() == {"stages": [2, 1], "stages/1": [2]}.get(lost, [0])
        sk.run(sweep(), path, **OPTIONS)  # does not forget it
    after = sk.refine(sweep(), path, **OPTIONS).load()
    xr.testing.assert_identical(after.drop_vars("duration"), before.drop_vars("duration"))
    assert sk.verify(path).empty


def test_stages_of_a_store_that_was_removed_do_not_come_back(path: str) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    shutil.rmtree(path)  # but not what is beside it
    sk.run(sweep(), path, **OPTIONS)
    assert sk.open(path, stages=True).sizes["run"] == 36
    assert sk.verify(path).empty
    assert sk.refine(sweep(), path, points([0.9], [0.5]), **OPTIONS).sizes["run"] == 37


@pytest.mark.parametrize("lost", ["stages/1", "stages", "stages/zarr.json"])
@pytest.mark.parametrize("change", ["grows", "is made anew"])
def test_a_lost_stage_outlives_a_store_that(path: str, lost: str, change: str) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    before = sk.refine(sweep(), path, points([0.2], [0.5]), **OPTIONS).load()
    remove(Path(path, lost))
    larger = sweep(7) if change == "grows" else sweep(replicates=2)
    sk.run(larger, path, **OPTIONS)
    if lost == "stages/zarr.json":
        assert sk.verify(path).empty
    else:
        (reason, *_) = sk.verify(path)["reason"]
        assert "stages/1" in reason
        assert "is missing; sk.refine(sweep, " in reason
    after = sk.refine(larger, path, **OPTIONS)
    then, now = (ds.isel(run=ds["stage"] > 0).load() for ds in (before, after))
    for name in ("a", "b", "stage", "far", "seed", "trace"):
        np.testing.assert_array_equal(now[name].values, then[name].values)
    assert sk.verify(path).empty
    assert list(xr.open_datatree(path, engine="zarr")["stages"].children) == ["1", "2"]


@pytest.mark.parametrize("lost", ["stages/1", "stages/1/zarr.json"])
def test_a_stage_without_a_copy_is_restored_by_what_the_store_says(path: str, lost: str) -> None:
    before = sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS).load()
    gone, beside = Path(path, lost), Path(f"{path}.sweepkit/stages/1")
    if gone.is_dir():
        shutil.rmtree(gone)
        (beside / "root.json").write_text("{")
    else:
        gone.unlink()
        shutil.rmtree(beside)
    sk.run(sweep(), path, **OPTIONS)
    assert "restores it from what the root of the store says" in sk.verify(path)["reason"][0]
    CALLS.clear()
    after = sk.refine(sweep(), path, points([0.9], [0.5]), **OPTIONS)
    assert len(CALLS) == 1
    after = sk.refine(sweep(), path, **OPTIONS)
    assert len(CALLS) == (1 if gone.name == "zarr.json" else 3)
    before, after = (ds.drop_vars(["duration", "volume"]).load() for ds in (before, after))
    xr.testing.assert_identical(after.isel(run=slice(38)), before)
    assert sk.verify(path).empty


def test_a_stage_that_nothing_brings_back_is_given_up_with_a_warning(path: str) -> None:
    wanted = points([0.1, 0.3], [0.5, 0.7])
    before = sk.refine(sweep(), path, wanted, **OPTIONS).load()
    shutil.rmtree(Path(path, "stages", "1"))
    shutil.rmtree(f"{path}.sweepkit/stages/1/axes")  # so its points are unknown
    assert "of the store; the next sk.run goes on without it" in sk.verify(path)["reason"][0]
    with pytest.warns(UserWarning, match=r"stages/1 is lost .* or run its points again with sk\.r"):
        sk.run(sweep(), path, **OPTIONS)
    assert sk.open(path, stages=True).sizes["run"] == 36
    after = sk.refine(sweep(), path, wanted, **OPTIONS).load()
    xr.testing.assert_identical(after.drop_vars("duration"), before.drop_vars("duration"))
    assert sk.verify(path).empty


def test_a_store_with_a_lost_stage_is_not_handed_on(path: str, tmp_path: Path) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    shutil.rmtree(Path(path, "stages", "1"))
    for hand in (sk.pack, sk.share):
        with pytest.raises(
            sk.StoreError, match=r"a\.zarr/stages/1.*is missing; sk\.refine\(sweep, "
        ):
            hand(path, tmp_path / "handed.zip")
        assert not (tmp_path / "handed.zip").exists()


def test_stages_that_are_listed_without_their_group_are_mended(path: str) -> None:
    before = sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS).load()
    root = json.loads(Path(path, "zarr.json").read_text())
    del root["consolidated_metadata"]["metadata"]["stages"]
    Path(path, "zarr.json").write_text(json.dumps(sealed(root)))
    with pytest.raises(sk.StoreError, match=r"the next sk\.run restores"):
        sk.open(path)
    sk.run(sweep(), path, **OPTIONS)
    xr.testing.assert_identical(sk.open(path, stages=True).load(), before)


def test_a_stage_outlives_whatever_happens_to_the_grid(path: str) -> None:
    sk.refine(sweep(), path, points([0.1, 0.3], [0.5, 0.7]), **OPTIONS)
    before = sk.open(path, stages=True).load()
    sk.run(sweep(7), path, **OPTIONS)  # growth
    sk.derive(path, "near", "far < 0.1")
    joins = sk.Sweep(
        lambda a, b, seed, c: ball(a, b, seed), sk.grid(sweep().grid, c=[1.0, 2.0]), version="1",
        requirements=["far > 0.27"],
    )  # fmt: skip
    sk.run(joins, path, was={"c": 1.0}, **OPTIONS)  # made anew and swapped in
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = xr.open_datatree(path, engine="zarr")
    xr.testing.assert_equal(
        tree["stages/1"]["far"].drop_vars(["a", "b"]),
        before["far"].isel(run=before["stage"] == 1).drop_vars(["a", "b", "stage", "volume"])
        .rename(run="point_1"),
    )  # fmt: skip
    ds = sk.open(path, stages=True)
    assert ds["c"].values[ds["stage"] == 1].tolist() == [1.0, 1.0]
    count = len(CALLS)
    ds = sk.refine(joins, path, sk.paired(a=[0.1, 0.3], b=[0.5, 0.7], c=[1.0, 2.0]), **OPTIONS)
    assert len(CALLS) == count + 1  # at c = 1 it is the run of stage 1
    assert ds["stage"].max() == 2


def test_a_stage_made_before_a_parameter_joined_is_resumed(path: str) -> None:
    wanted = points([0.1, 0.3, 0.7], [0.5, 0.7, 0.3])

    def stopped(a: float, b: float, seed: int) -> dict[str, Any]:
        if len(CALLS) == 1:
            raise KeyboardInterrupt
        return ball(a, b, seed)

    mine = sk.Sweep(stopped, sweep().grid, requirements=["far > 0.27"], version="1")
    with pytest.raises(sk.RunError):
        sk.refine(mine, path, wanted, on_error="raise", **OPTIONS)
    before = sk.open(path, stages=True).load()
    assert (before["status"] != Status.DONE).any()
    joins = sk.Sweep(
        lambda a, b, seed, c, kind: ball(a, b, seed),
        sk.grid(sweep().grid, c=[1.0, 2.0], kind=["soft", "hard"]),
        version="1",
        requirements=["far > 0.27"],
    )
    sk.run(joins, path, was={"c": 1.0, "kind": "soft"}, **OPTIONS)
    CALLS.clear()
    ds = sk.refine(joins, path, rerun="error", **OPTIONS)
    assert (ds["status"] == Status.DONE).all()
    assert 0 < len(set(CALLS)) < 3
    stage = ds.isel(run=ds["stage"] == 1)
    assert stage["c"].values.tolist() == [1.0] * 3
    assert stage["kind"].values.tolist() == ["soft"] * 3
    seeds = before.isel(run=before["stage"] == 1)
    done = (seeds["status"] == Status.DONE).values
    assert stage["seed"].values[done].tolist() == seeds["seed"].values[done].tolist()
    with xr.open_zarr(f"{path}/stages/1") as plain:
        assert plain["c"].dims == ("point_1",)
    CALLS.clear()
    sk.refine(joins, path, **OPTIONS)
    assert not CALLS


def test_a_half_finished_flat_store_keeps_the_order_of_its_coarse_pass(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So a batch is one run.
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "FIRST_SECONDS", 0.0)
    grid = sk.grid(a=range(12), b=[3.0, 1.0, 2.0, 0.0]).where("a + b < 13")

    def some(a: int, b: float) -> dict[str, Any]:
        CALLS.append((a, b))
        if len(CALLS) > 20:
            raise ValueError("enough")
        return {"y": a + b}

    mine = sk.Sweep(some, grid, requirements=["y < 8"], version="1")
    with pytest.raises(sk.RunError):
        sk.run(mine, store, on_error="raise", **OPTIONS)
    more = sk.grid(a=range(12), b=[0.0, 1.0, 2.0, 3.0]).where("a + b < 13")
    with pytest.raises(sk.RunError):
        sk.run(sk.Sweep(some, more, requirements=["y < 8"], version="1"), store,
               on_error="raise", **OPTIONS)  # fmt: skip
    opened, flat = sk.open(store), sk.open(store, stages=True)
    assert sk.rate(opened)["basis"].item() == sk.rate(flat)["basis"].item() == "in progress"
    a, b = (x.values.ravel() for x in xr.broadcast(opened["a"], opened["b"]))
    places, flat_places = table(opened).prefix, table(flat).prefix
    assert places is not None
    assert flat_places is not None
    drawn = list(zip(a[places].tolist(), b[places].tolist(), strict=True))
    assert len(flat_places) == len(drawn)
    runs = flat.isel(run=flat_places)
    assert list(zip(runs["a"].values.tolist(), runs["b"].values.tolist(), strict=True)) == drawn
    assert sk.convergence(flat).attrs["order"] == sk.convergence(opened).attrs["order"]


def test_a_stage_that_was_not_listed_is_by_the_next_writer(path: str) -> None:
    root = Path(path) / "zarr.json"
    before = root.read_text()
    sk.refine(sweep(), path, points([0.1], [0.5]), **OPTIONS)
    root.write_text(before)
    (Path(f"{path}.sweepkit") / "root.json").write_text(before)
    assert not xr.open_datatree(path, engine="zarr").children
    sk.run(sweep(), path, **OPTIONS)
    assert list(xr.open_datatree(path, engine="zarr")["stages"].children) == ["1"]
    assert sk.open(path, stages=True).sizes["run"] == 37


def test_text_traces_and_labels_go_flat(store: str) -> None:
    kinds = {"soft": min, "hard": max}

    def told(a: float, how: Callable[..., Any]) -> dict[str, Any]:
        if a == 2 and how is min:
            raise ValueError("no")
        return {"trace": np.arange(int(a) + 1.0), "word": how.__name__ * int(a), "n": int(a),
                "when": np.datetime64("2001-01-01", "ns")}  # fmt: skip

    mine = sk.Sweep(
        told,
        sk.grid(a=[1, 2, 3], how=kinds),
        outputs={"trace": sk.output(dims="time", size=5, pad=True)},
        requirements=["n < 3"],
        version="1",
    )
    sk.run(mine, store, **OPTIONS)
    ds = sk.refine(mine, store, sk.paired(a=[4, 4], how=["soft", "hard"]), **OPTIONS)
    assert ds["how"].values.tolist() == ["soft", "hard"] * 4
    assert ds["word"].values.tolist()[-2:] == ["min" * 4, "max" * 4]
    assert ds["error"].values[2] == "ValueError: no"
    assert np.isnan(ds["trace"].values[2]).all()
    assert ds["trace"].isel(run=[0, 7], time=slice(0, 3)).values.tolist()[1] == [0, 1, 2]
    assert ds["trace"].isel(run=7, time=4).item() == 4
    assert ds["when"].dtype.kind == "M"
    assert sk.runs(ds)["failed"].tolist()[-1] == 1
    shutil.rmtree(f"{store}.sweepkit")  # only what a writer needs
    xr.testing.assert_identical(sk.open(store, stages=True).load(), ds.load())


def test_a_store_without_stages_is_flat_all_the_same(path: str) -> None:
    ds = sk.open(path, stages=True)
    assert ds.sizes["run"] == 36
    assert (ds["stage"] == 0).all()
    grid = sk.open(path)
    np.testing.assert_array_equal(ds["far"], grid["far"].values.ravel())
    assert sk.rate(ds)["rate"].item() == sk.rate(grid)["rate"].item()
    assert "stage" not in sk.runs(path)


# --- kills ---------------------------------------------------------------------------------------

TOGETHER = """
    def finished():
        import warnings
        if not os.path.exists(os.path.join(STORE, "zarr.json")):
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            xr.open_zarr(STORE).load()
            tree = xr.open_datatree(STORE, engine="zarr").load()
        for node in tree.subtree:  # what is listed can be read, whenever a writer was killed
            for name in node.ds.data_vars:
                node.ds[name].values
        table = sk.runs(STORE)
        table = table[table["status"] == "done"]
        return {tuple(float(row[n]) for n in SHOWN): row["y"] for _, row in table.iterrows()}
    def refine_into(sweep, points, **options):
        return sk.refine(sweep, STORE, points, backend="sequential", progress=False, **options)
    intake.SLOW, intake.RESTS = -1.0, 0.0
    SHOWN = ["a", "b"]
    GRID = [(a, b) for a in (0., 1., 2.) for b in (0., 1.)]
    def expected(a, b): return 10 * a + b
    def f(a, b):
        note(a, b)
        return {"y": 10 * a + b, "trace": np.arange(3.0)}
    SWEEP = sk.Sweep(f, sk.grid(a=[0, 1, 2], b=[0, 1]), version="1")
"""

SCENARIOS = {
    "a refinement": """
        POINTS = GRID + [(0.5, 0.25), (1.5, 0.75)]
        def before(): sweep_into(SWEEP)
        def act(): refine_into(SWEEP, sk.paired(a=[0.5, 1.5], b=[0.25, 0.75]))
    """,
    "the next refinement": """
        POINTS = GRID + [(0.5, 0.25), (1.5, 0.75)]
        def before():
            sweep_into(SWEEP)
            refine_into(SWEEP, sk.paired(a=[0.5], b=[0.25]))
        def act(): refine_into(SWEEP, sk.paired(a=[0.5, 1.5], b=[0.25, 0.75]))
    """,
    "an output widens in a refinement": """
        POINTS = GRID + [(3., 0.), (4., 0.), (5., 0.5)]
        def g(a, b):
            note(a, b)
            y = 10 * a + b
            return {"y": int(y) if y == int(y) else y}
        SWEEP = sk.Sweep(g, sk.grid(a=[0, 1, 2], b=[0, 1]), version="1")
        def before(): sweep_into(SWEEP)
        def act(): refine_into(SWEEP, sk.paired(a=[3, 4, 5], b=[0, 0, 0.5]))
    """,
    "a refined grid grows": """
        POINTS = [(a, b) for a in (0., 1., 2., 3.) for b in (0., 1.)] + [(0.5, 0.25)]
        def before():
            sweep_into(SWEEP)
            refine_into(SWEEP, sk.paired(a=[0.5], b=[0.25]))
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 2, 3], b=[0, 1]), version="1"))
    """,
    "a refined grid is made anew": """
        POINTS = [(a, b) for a in (0., 1., 1.5, 2.) for b in (0., 1.)] + [(0.5, 0.25)]
        def before():
            sweep_into(SWEEP)
            refine_into(SWEEP, sk.paired(a=[0.5], b=[0.25]))
        def act(): sweep_into(sk.Sweep(f, sk.grid(a=[0, 1, 1.5, 2], b=[0, 1]), version="1"))
    """,
}


def killed(tmp_path: Path, finish: Callable[..., str], names: list[str], wanted: int) -> None:
    place, scenarios = tmp_path / "place", tmp_path / "scenarios.json"
    place.mkdir()
    told = [textwrap.dedent(TOGETHER) + textwrap.dedent(SCENARIOS[name]) for name in names]
    scenarios.write_text(json.dumps(told))
    seed = random.randrange(10**6) if EXHAUSTIVE else wanted
    out = finish(HARNESS, place, scenarios, wanted, seed)
    said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(said) == len(names), out
    assert not any(one["wrong"] for one in said), out
    assert all(one["tried"] == min(wanted, one["changes"]) for one in said)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_every_change_of_the_file_system_loses_nothing(
    tmp_path: Path, finish: Callable[..., str], name: str
) -> None:
    killed(tmp_path, finish, [name], 10**6 if EXHAUSTIVE else 8)


def test_killed_by_worker_death_a_point_is_crashed_and_others_complete(path: str) -> None:
    mine = sk.Sweep(_deadly, sweep().grid, requirements=["far > 0.27"], version="1")
    ds = sk.refine(mine, path, points([0.1, 0.3, 0.5], [0.5, 0.7, 0.5]), n_jobs=2, progress=False)
    assert sk.status_counts(ds) == {"done": 38, "crashed": 1}


def _deadly(a: float, b: float, seed: int) -> dict[str, Any]:
    if a == 0.3:
        import os

        os._exit(3)
    return ball(a, b, seed)


# --- names that refinement needs -----------------------------------------------------------------


def product(volume: float, stage: float, b: float) -> dict[str, Any]:
    return {"y": volume * stage * b}


def numbered(a: float, b: float) -> dict[str, Any]:
    return {"y": a * b, "run": a + 7}


def test_declared_parameters_are_never_taken_for_what_refinement_gave(tmp_path: Path) -> None:
    axes = {"volume": [1.0, 2.0, 3.0, 4.0], "stage": [1.0, 2.0], "b": [1.0, 2.0]}
    named = sk.Sweep(product, sk.grid(**axes), requirements=["y < 5"], version="1")
    ds = sk.run(named, tmp_path / "p.zarr", **OPTIONS)
    fails = np.prod(np.meshgrid(*axes.values(), indexing="ij"), axis=0) >= 5
    row = sk.rate(ds).iloc[0]
    assert (row["rate"], row["basis"]) == (fails.mean(), "census")
    assert sk.rate(ds, by="volume")["rate"].tolist() == fails.mean(axis=(1, 2)).tolist()
    assert set(sk.importance(ds)["parameter"].values) == set(axes)
    flat = sk.open(tmp_path / "p.zarr", stages=True)
    assert flat["stage"].values.tolist() == [1.0, 1.0, 2.0, 2.0] * 4
    with pytest.raises(sk.StoreError, match="'stage', which is also what names which refinement"):
        sk.refine(named, tmp_path / "p.zarr", sk.suggest(ds, 3, explore=0), **OPTIONS)
    assert not list((tmp_path / "p.zarr").glob("stages/*/zarr.json"))


def test_an_output_named_as_the_dim_of_flat_runs_is_refused(tmp_path: Path) -> None:
    axes = {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]}
    named = sk.Sweep(numbered, sk.grid(**axes), requirements=["y < 5"], version="1")
    ds = sk.run(named, tmp_path / "n.zarr", **OPTIONS)
    with pytest.raises(sk.StoreError, match=r"'run', which is also what names the dim.*rename it"):
        sk.refine(named, tmp_path / "n.zarr", sk.suggest(ds, 2, explore=0), **OPTIONS)
    with pytest.raises(sk.StoreError, match="'run', which is also what names the dim"):
        sk.open(tmp_path / "n.zarr", stages=True)

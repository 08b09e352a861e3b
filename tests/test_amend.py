"""Damage is found and undone; outputs are computed later from stored ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit import arrays, format1
from sweepkit.amend import damage, restore
from sweepkit.status import Status
from sweepkit.stores.zarr import ZarrStore


def f(a: int, b: float) -> dict[str, Any]:
    if a == 4:
        raise ValueError("four")
    return {"y": a * b, "trace": np.full(3, float(a))}


def fill(store: str, a: Any = range(6)) -> xr.Dataset:
    sweep = sk.Sweep(f, sk.grid(a=list(a), b=[0.5, 1.5]), version="1")
    return sk.run(sweep, store, backend="sequential", progress=False)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format1, "BLOCK_RUNS", 4)


def opened(path: str) -> ZarrStore:
    store = ZarrStore(path)
    store.open()
    return store


def test_a_sound_store_has_no_damage_and_nothing_to_restore(store: str) -> None:
    fill(store)
    assert damage(ZarrStore(store)) == []
    assert restore(opened(store)) == 0


def test_damage_is_told_by_variable_box_and_words(store: str) -> None:
    fill(store)
    Path(store, "y", "c", "1", "0").unlink()
    (found,) = damage(ZarrStore(store))
    assert found.variable == "y"
    assert found.box == (slice(2, 4), slice(0, 2))
    assert found.runs == 4
    assert found.where == "a 2 to 3, b 0 to 1"
    assert found.reason == "is missing"


def test_chunks_of_runs_that_never_ran_are_not_missed(store: str) -> None:
    fill(store)
    chunk = Path(store, "y", "c", "2", "0")  # of a=4, which raised, and a=5
    chunk.unlink()
    (found,) = damage(ZarrStore(store))
    assert found.runs == 2
    for one in Path(store, "error", "c").rglob("*"):
        if one.is_file() and one.parent.name != "2":
            one.unlink()  # texts of runs that have none
    assert [one.variable for one in damage(ZarrStore(store))] == ["y"]


def test_what_is_noted_is_undone_once(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LOOKED_AT", 0)
    fill(store)
    chunk = Path(store, "y", "c", "1", "0")
    os.truncate(chunk, 5)
    assert restore(opened(store)) == 0  # not looked at, so not known
    damage(ZarrStore(store))
    assert Path(f"{store}.sweepkit", "damaged.json").exists()
    assert restore(opened(store)) == 4
    assert not Path(f"{store}.sweepkit", "damaged.json").exists()
    status = sk.open(store)["status"].load()
    assert (status.isel(a=slice(2, 4)) == Status.PENDING).all()
    assert (status.isel(a=slice(0, 2)) == Status.DONE).all()


@pytest.mark.parametrize("how", ["unlink", "truncate"])
@pytest.mark.parametrize("name", ["error", "log", "y"])
def test_just_the_runs_that_lost_a_value_are_run_again(store: str, name: str, how: str) -> None:
    fill(store, range(2, 6))  # a=4 raises: in one chunk two runs have an error and log, two a y
    before = sk.runs(sk.open(store)).drop(columns=["duration", "attempts"])
    chunk = Path(store, name, "c", "1", "0")
    if how == "unlink":
        chunk.unlink()
    else:
        os.truncate(chunk, chunk.stat().st_size // 2)
    (found,) = damage(ZarrStore(store))
    assert (found.variable, found.runs) == (name, 2)
    assert restore(opened(store)) == 2
    ds = fill(store, range(2, 6))
    again = {5} if name == "y" else {4}
    attempts = ds["attempts"].max("b").to_series().to_dict()
    assert {a for a, n in attempts.items() if n == 2} == again
    assert sk.runs(ds).drop(columns=["duration", "attempts"]).equals(before)
    assert damage(ZarrStore(store)) == []


def test_a_damaged_value_is_told_with_its_variable_and_runs(store: str) -> None:
    fill(store)
    os.truncate(Path(store, "y", "c", "1", "0"), 5)
    with pytest.raises(sk.StoreError, match=r"'y' is damaged in some of the runs at .*a 2 to 3"):
        sk.open(store)["y"].isel(a=slice(2, 4)).load()


START = np.datetime64("2001-01-01", "ns")


def typed(a: int) -> dict[str, Any]:
    late = START + a
    return {
        "when": late,
        "span": np.timedelta64(a, "ns"),
        "moments": late + np.arange(3),
        "text": f"é{a}",
        "true": bool(a % 2),
        "plane": complex(a, -a),
        "wide": np.uint64(2**63 + a),
    }


@pytest.mark.parametrize("name", ["when", "moments", "span", "text", "true", "plane", "wide"])
@pytest.mark.parametrize("block", [0, 3], ids=["first", "last"])
def test_damaged_values_of_any_type_keep_no_store_from_being_opened(
    store: str, name: str, block: int
) -> None:
    sweep = sk.Sweep(typed, sk.grid(a=range(16)), version="1")
    before = sk.run(sweep, store, backend="sequential", progress=False).load()
    own = ["0"] if name == "moments" else []
    os.truncate(Path(store, name, "c", str(block), *own), 5)
    opened = sk.open(store)
    assert {n: opened[n].dtype for n in opened.variables} == {
        n: before[n].dtype for n in before.variables
    }
    sound = slice(4, 12)
    xr.testing.assert_identical(opened.isel(a=sound).load(), before.isel(a=sound))
    with pytest.raises(sk.StoreError, match=rf"{name!r} is damaged in some of the runs at .*a"):
        opened[name].load()
    ds = sk.run(sweep, store, backend="sequential", progress=False).load()
    timed = ["duration", "attempts"]
    xr.testing.assert_identical(ds.drop_vars(timed), before.drop_vars(timed))
    assert damage(ZarrStore(store)) == []


@pytest.mark.parametrize("how", ["unlink", "flip"])
@pytest.mark.parametrize(
    "along",
    [
        START + np.arange(3),
        np.arange(3) * np.timedelta64(1, "s"),
        np.array(["p", "q", "é"]),
        [1, 2, 3],
    ],
    ids=["datetime", "timedelta", "text", "number"],
)
def test_a_damaged_coordinate_of_an_output_is_told_and_restored(
    store: str, along: Any, how: str
) -> None:
    outputs = {"trace": sk.output(dims="time", size=3, coords={"time": along})}
    sweep = sk.Sweep(lambda a: {"trace": a + np.arange(3)}, sk.grid(a=[1, 2]), outputs=outputs)
    before = sk.run(sweep, store, backend="sequential", progress=False).load()
    harm(Path(store, "time", "c", "0"), how)
    with pytest.raises(sk.StoreError, match="coordinate 'time'"):
        sk.open(store)
    assert [(one.variable, one.where) for one in damage(ZarrStore(store))] == [
        ("time", "all of it; the next sk.run restores it")
    ]
    ds = sk.run(sweep, store, backend="sequential", progress=False).load()
    xr.testing.assert_identical(ds, before)
    assert damage(ZarrStore(store)) == []


@pytest.mark.parametrize("name", ["word", "day"])
def test_a_damaged_parameter_that_is_no_index_is_told_when_it_is_read(
    store: str, name: str
) -> None:
    days = START + np.arange(3) * np.timedelta64(1, "D")
    grid = sk.paired(dim="case", word=["a", "é", "longer"], day=days)
    sweep = sk.Sweep(lambda word, day: 1.0, grid, version="1")
    before = sk.run(sweep, store, backend="sequential", progress=False).load()
    harm(Path(store, name, "c", "0"), "flip")
    with pytest.raises(sk.StoreError, match=rf"{name!r} is damaged .*case 0 to 2.* restores"):
        sk.open(store)[name].load()
    ds = sk.run(sweep, store, backend="sequential", progress=False).load()
    xr.testing.assert_identical(ds, before)


def harm(chunk: Path, how: str) -> None:
    if how == "unlink":
        chunk.unlink()
        return
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 0x10
    chunk.write_bytes(content)


def test_damage_of_a_store_that_was_mended_meanwhile_is_forgotten(store: str) -> None:
    fill(store)
    chunk = Path(store, "y", "c", "1", "0")
    content = chunk.read_bytes()
    chunk.write_bytes(b"")
    assert len(damage(ZarrStore(store))) == 1
    chunk.write_bytes(content)
    assert damage(ZarrStore(store)) == []
    assert restore(opened(store)) == 0


def test_there_is_nothing_to_verify_where_there_is_no_sweep(tmp_path: Path) -> None:
    with pytest.raises(sk.StoreError, match="holds no sweep"):
        sk.verify(tmp_path / "nothing.zarr")


# --- outputs computed later ----------------------------------------------------------------------


def test_a_formula_becomes_an_output_in_any_order_on_disk(store: str) -> None:
    fill(store, [3, 1])
    fill(store, [0, 1, 2, 3])
    ds = sk.derive(store, "twice", "2 * y + a", units="m").load()
    assert ds["twice"].dims == ds["y"].dims
    np.testing.assert_array_equal(ds["twice"], 2 * ds["y"] + ds["a"])
    assert ds["twice"].attrs["units"] == "m"
    again = sk.open(store).load()
    xr.testing.assert_identical(again["twice"], ds["twice"])


def test_a_function_may_give_an_output_dims_of_its_own(store: str) -> None:
    fill(store)
    ds = sk.derive(store, "square", lambda ds: ds["trace"] ** 2).load()
    done = ds["status"] == Status.DONE
    np.testing.assert_array_equal(ds["square"].where(done), (ds["trace"] ** 2).where(done))


@pytest.mark.parametrize("over", ["b", ["a", "b"]])
def test_a_mean_over_runs_is_stored_with_each_that_it_holds_for(
    store: str, over: str | list[str]
) -> None:
    fill(store)
    ds = sk.derive(store, "level", lambda ds: ds["y"].mean(over)).load()
    done = ds["status"] == Status.DONE
    expected = ds["y"].mean(over).broadcast_like(ds["y"]).transpose(*ds["y"].dims)
    assert ds["level"].dims == ds["y"].dims
    np.testing.assert_array_equal(ds["level"].where(done), expected.where(done))


def test_unfinished_runs_have_no_derived_value(store: str) -> None:
    fill(store)
    ds = sk.derive(store, "twice", "2 * y").load()
    assert np.isnan(ds["twice"].sel(a=4)).all()
    grown = fill(store, range(8)).load()
    assert np.isnan(grown["twice"].sel(a=[6, 7])).all()
    assert not np.isnan(grown["twice"].sel(a=5)).any()
    anew = sk.derive(store, "twice", "3 * y").load()
    np.testing.assert_array_equal(anew["twice"].sel(a=[6, 7]), 3 * anew["y"].sel(a=[6, 7]))


def test_integers_and_truths_derived_read_as_nothing_for_runs_that_finish_later(
    store: str,
) -> None:
    calls: list[int] = []

    def counted(a: int, b: float) -> dict[str, Any]:
        calls.append(a)
        return f(a, b)

    def grow(a: Any) -> xr.Dataset:
        sweep = sk.Sweep(counted, sk.grid(a=list(a), b=[0.5, 1.5]), version="1")
        return sk.run(sweep, store, backend="sequential", progress=False)

    grow(range(3))
    sk.derive(store, "large", "y > 1")
    sk.derive(store, "count", lambda ds: (ds["trace"] > 0).sum("trace_dim_0"))
    ds = grow([*range(4), *range(5, 9)]).load()
    for name in ("large", "count"):
        assert not ds[name].sel(a=[0, 1, 2]).isnull().any()
        assert ds[name].sel(a=[3, 5, 8]).isnull().all()
    assert sk.verify(store).empty
    calls.clear()
    grow([*range(4), *range(5, 9)])
    assert calls == []


@pytest.mark.parametrize("most", [2**53 + 1, 2**63 - 1])
def test_derived_integers_that_no_float_holds_are_read_as_they_are(store: str, most: int) -> None:
    sweep = sk.Sweep(lambda a: {"n": most - a}, sk.grid(a=[0, 1, 2]), version="1")
    sk.run(sweep, store, backend="sequential", progress=False)
    sk.derive(store, "same", lambda ds: ds["n"])
    for mask in (True, False):
        same = sk.open(store, mask=mask)["same"]
        assert same.values.tolist() == [most, most - 1, most - 2]
    assert "integers beyond 2**53" in sk.open(store)["same"].attrs["note"]
    sk.derive(store, "same", lambda ds: ds["n"] - (most - 2))
    assert sk.open(store)["same"].values.tolist() == [2.0, 1.0, 0.0]


def test_a_lost_chunk_of_a_derived_output_is_told_and_runs_nothing(store: str) -> None:
    fill(store)
    sk.derive(store, "twice", "2 * y")
    before = sk.open(store)["twice"].load()
    Path(store, "twice", "c", "0", "0").unlink()
    assert sk.verify(store)["variable"].tolist() == ["twice"]
    with pytest.raises(sk.StoreError, match=r"'twice' is missing.*again with sk\.derive"):
        sk.open(store)["twice"].load()
    assert fill(store)["twice"].isel(a=slice(0, 2)).isnull().all()
    assert int(sk.open(store)["attempts"].max()) == 1
    xr.testing.assert_identical(sk.derive(store, "twice", "2 * y")["twice"].load(), before)


def test_results_made_again_forget_what_was_derived_from_the_old(store: str) -> None:
    fill(store)
    sk.derive(store, "twice", "2 * y")
    sweep = sk.Sweep(
        lambda a, b: {"y": -a * b, "trace": np.zeros(3)},
        sk.grid(a=range(6), b=[0.5, 1.5]),
        version="2",
    )
    ds = sk.run(sweep, store, backend="sequential", progress=False, stale="rerun")
    assert ds["twice"].isnull().all()


@pytest.mark.parametrize("name", ["y", "a", "status", "not a name", "class"])
def test_a_name_that_is_taken_or_none_is_refused(store: str, name: str) -> None:
    fill(store)
    before = sk.open(store).load()
    with pytest.raises(ValueError, match=name):
        sk.derive(store, name, "2 * y")
    xr.testing.assert_identical(sk.open(store).load(), before)


def test_a_result_that_does_not_lie_over_the_runs_is_refused(store: str) -> None:
    fill(store)
    with pytest.raises(ValueError, match="gave 2 entries along 'a', where the sweep has 6"):
        sk.derive(store, "short", lambda ds: ds["y"].isel(a=slice(0, 2)))


def test_nothing_is_derived_while_another_writes(store: str) -> None:
    fill(store)
    with ZarrStore(store).hold(), pytest.raises(sk.StoreBusyError):
        sk.derive(store, "twice", "2 * y")

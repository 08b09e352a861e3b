"""Runs handed on: tables with units, training sets with honest splits, provenance, comparison."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sweepkit as sk

parquet = pytest.importorskip("pyarrow.parquet")
QUIET: dict[str, Any] = {"backend": "sequential", "progress": False}


def walk(gain: float, law: str, mass: float, rng: Any) -> dict[str, Any]:
    if mass > 2.5 and law == "steep":
        raise ArithmeticError("<b>diverged</b>, as 'expected'")
    steps = int(rng.integers(3, 9))
    return {"peak": gain * mass + 0.01 * float(rng.normal()), "trace": np.arange(steps) * gain}


def grown(gain: float, law: str, mass: float, rng: Any) -> dict[str, Any]:
    found = walk(gain, law, mass, rng)
    return {**found, "peak": found["peak"] + (1.0 if gain > 3 else 0.0), "new": 1}


def sweep(simulator: Any = walk, **more: Any) -> sk.Sweep:
    declared = {
        "gain": sk.design(np.arange(8.0), units="N/m", long_name="gain | of the law"),
        "law": ["flat", "steep", "schräg"],
        "mass": sk.scenario(np.arange(4.0), units="kg"),
        **more,
    }
    trace = sk.output(dims="step", size=9, pad=True, units="rad")
    return sk.Sweep(
        simulator,
        sk.grid(declared, replicates=2),
        outputs={"trace": trace},
        requirements=["peak < 9"],
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("export") / "walk.zarr")
    sk.run(sweep(), path, **QUIET)
    return path


def test_parquet_has_one_row_a_run_and_units_in_its_metadata(store: str, tmp_path: Path) -> None:
    ds = sk.open(store)
    path = sk.export(ds, tmp_path / "runs.parquet")
    rows = pd.read_parquet(path)
    pd.testing.assert_frame_equal(
        rows[["gain", "peak", "failed"]], sk.runs(ds)[["gain", "peak", "failed"]]
    )
    schema = parquet.read_schema(path)
    assert schema.field("gain").metadata[b"units"] == b"N/m"
    assert schema.field("mass").metadata[b"role"] == b"scenario"
    said = json.loads(schema.metadata[b"sweepkit"])
    assert said["columns"]["failed"]["requirements"] == ["peak < 9"]
    assert said["declaration"]["name"] == "walk"
    assert said["dims"] == {"gain": 8, "law": 3, "mass": 4, "replicate": 2}


def test_csv_json_and_netcdf_hold_the_same_runs(store: str, tmp_path: Path) -> None:
    ds = sk.open(store)
    rows = sk.runs(ds)
    csv = pd.read_csv(sk.export(store, tmp_path / "runs.csv"))
    assert np.array_equal(csv["peak"], rows["peak"], equal_nan=True)
    beside = json.loads((tmp_path / "runs.csv-metadata.json").read_text())
    units = {one["name"]: one.get("units") for one in beside["tableSchema"]["columns"]}
    assert units["gain"] == "N/m"
    assert units["duration"] == "s"
    told = json.loads(Path(sk.export(ds, tmp_path / "runs.json")).read_text())
    assert len(told["data"]) == len(rows) == 192
    assert told["data"][0]["peak"] == pytest.approx(rows["peak"][0], rel=1e-14)
    with xr.open_dataset(sk.export(ds, tmp_path / "runs.nc")) as again:
        assert np.array_equal(again["trace"].values, ds["trace"].values, equal_nan=True)
        assert again["mass"].attrs["units"] == "kg"
        assert "ArithmeticError" in str(again["error"].values.ravel().tolist())
    assert not list(tmp_path.glob(".*"))


def test_an_ending_or_folder_that_is_not_known_is_told(store: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'runs.xls' ends in none of .parquet, .csv, .json, .nc"):
        sk.export(store, tmp_path / "runs.xls")
    with pytest.raises(FileNotFoundError, match="is not there; make it first"):
        sk.export(store, tmp_path / "none" / "runs.csv")


def read(folder: str) -> dict[str, pd.DataFrame]:
    return {one.stem: pd.read_parquet(one) for one in Path(folder, "data").glob("*.parquet")}


@pytest.mark.parametrize(
    "split",
    ["design", "block", "scenario", {"gain": (5.0, None)}, {"mass": (2.0, None), "law": ["flat"]}],
    ids=str,
)
def test_no_design_is_in_two_splits(store: str, tmp_path: Path, split: Any) -> None:
    parts = read(sk.training_set(store, tmp_path / "set", split=split, shares=(0.6, 0.2, 0.2)))
    assert {"train", "test"} <= set(parts)
    designs = {n: set(zip(one["gain"], one["law"], strict=True)) for n, one in parts.items()}
    numbers = {n: set(one["design"]) for n, one in parts.items()}
    for one in parts:
        for other in set(parts) - {one}:
            assert not designs[one] & designs[other]
            assert not numbers[one] & numbers[other]
    if split == "scenario":
        masses = [set(one["mass"]) for one in parts.values()]
        assert not masses[0] & masses[1]
    if isinstance(split, dict) and "gain" in split:
        assert parts["test"]["gain"].min() == 5
        assert parts["train"]["gain"].max() == 4
    whole = pd.concat(parts.values())
    assert whole["run"].is_unique
    if split in ("design", "block"):
        assert len(whole) == 192
        assert (whole["status"] == "error").sum() == 16
        assert whole.loc[whole["status"] == "error", ["peak", "failed"]].isna().all(axis=None)
        assert (whole["failed"] == 1).sum() == (sk.runs(store)["failed"] == 1).sum() > 0


def test_episodes_are_padded_with_lengths_or_one_row_a_step(store: str, tmp_path: Path) -> None:
    ds = sk.open(store)
    padded = read(sk.training_set(ds, tmp_path / "a"))
    one = padded["train"].iloc[0]
    length = int(one["trace_length"])
    assert len(one["trace"]) == 9
    assert np.isnan(one["trace"][length:]).all()
    assert one["trace"][:length].tolist() == [one["gain"] * k for k in range(length)]
    steps = read(sk.training_set(ds, tmp_path / "b", episodes="steps", targets=["trace", "failed"]))
    run = steps["train"][steps["train"]["run"] == one["run"]]
    assert run["step"].tolist() == list(range(length))
    assert run["trace"].tolist() == [one["gain"] * k for k in range(length)]
    with xr.open_zarr(tmp_path / "a" / "data.zarr", group="train", consolidated=False) as zarr:
        at = int(np.flatnonzero(zarr["run"].values == one["run"])[0])
        assert np.array_equal(zarr["trace"][at].values, one["trace"], equal_nan=True)
        assert zarr["gain"].attrs["units"] == "N/m"
        assert zarr.sizes["row"] == len(padded["train"])


def test_the_card_says_what_the_set_is(store: str, tmp_path: Path) -> None:
    folder = sk.training_set(store, tmp_path / "set", features=["gain", "mass"], targets=["peak"])
    card = Path(folder, "README.md").read_text()
    for part in (
        "path: data/train.parquet",
        "| `gain` | feature | N/m | double",
        "gain \\| of the law",
        "peak < 9",
        "entropy 0",
        "code 0: identity `",
        "numpy ",
        "designs at random, seed 0",
        "errored runs are in",
    ):
        assert part in card.replace("float64", "double"), part
    again = sk.training_set(store, tmp_path / "set", features=["gain"], targets=["peak"])
    assert "`mass`" not in Path(again, "README.md").read_text()


def test_what_makes_no_honest_set_is_refused(store: str, tmp_path: Path) -> None:
    ds = sk.open(store)
    with pytest.raises(ValueError, match="features name 'gian', which is neither"):
        sk.training_set(ds, tmp_path / "a", features=["gian"])
    with pytest.raises(ValueError, match="are features and targets"):
        sk.training_set(ds, tmp_path / "a", features=["gain"], targets=["gain"])
    with pytest.raises(ValueError, match="2 designs cannot make 3 splits"):
        sk.training_set(ds.isel(gain=[0, 1], law=[0]), tmp_path / "a")
    with pytest.raises(ValueError, match="holds no runs"):
        sk.training_set(ds, tmp_path / "a", split={"gain": (99.0, None)})
    with pytest.raises(ValueError, match="split='rows' is none of 'design', 'block'"):
        sk.training_set(ds, tmp_path / "a", split="rows")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"holds thesis.tex, which is no training set"):
        sk.training_set(ds, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()
    with pytest.raises(ValueError, match="none of 192 runs is finished"):
        sk.training_set(ds.assign(status=ds["status"] * 0), tmp_path / "a")


def test_provenance_tells_who_computed_what(store: str) -> None:
    told = sk.provenance(store)
    assert told.name == "walk"
    assert told.sessions["done"].sum() == 176
    assert told.sessions["error"].sum() == 16
    assert told.codes["runs"].tolist() == [192]
    assert told.packages["numpy"] == np.__version__
    assert told.declaration["entropy"] == 0
    assert told.sessions["user"].tolist() == [getpass.getuser()]
    assert told.sessions["code"].tolist() == told.codes["identity"].tolist()
    assert told.json()["sessions"][0]["host"] == socket.gethostname()
    assert told.json()["packages"] == dict(told.packages)
    for word in ("By", "When", "Cost", getpass.getuser(), "192 finished runs"):
        assert word in repr(told)
    assert sk.provenance(sk.open(store)).sessions.equals(told.sessions)
    assert told.codes["identity"][0] in told._repr_html_()
    with pytest.raises(ValueError, match="does not say what made it"):
        sk.provenance(xr.Dataset({"y": ("a", [1.0])}))


def test_compare_names_what_changed_and_where_pass_became_fail(store: str, tmp_path: Path) -> None:
    path = str(tmp_path / "grown.zarr")
    sk.run(sweep(grown, gain=sk.design(np.arange(1.0, 9.0), units="N/m")), path, **QUIET)
    told = sk.compare(store, path)
    what = told.declared.set_index("what")
    assert what.loc["parameter gain", "before"] == "8 values, alone 0"
    assert what.loc["parameter gain", "after"] == "8 values, alone 8"
    assert what.loc["output new", "before"] == "not there"
    assert any(name.startswith("code ") for name in what.index)
    old, new = sk.runs(store), sk.runs(path)
    keys = ["gain", "law", "mass", "replicate"]
    both = old.merge(new, on=keys, suffixes=("_a", "_b"))
    expected = both[(both["failed_a"] == 0) & (both["failed_b"] == 1)]
    assert len(told.now_failing) == len(expected) > 0
    assert told.outcomes.loc["pass", "fail"] == len(expected)
    assert told.outcomes.loc["not there"].sum() == 24
    peak = told.outputs.set_index("output").loc["peak"]
    assert peak["largest"] == pytest.approx(1.0)
    assert "from pass to fail" in repr(told)
    assert "now" not in told.flipped
    assert "<b>" not in told._repr_html_().replace("<b>sweepkit.Comparison</b>", "")
    same = sk.compare(store, store)
    assert same.declared.empty
    assert same.flipped.empty
    with pytest.raises(ValueError, match="the sweeps share no parameter"):
        sk.compare(store, xr.Dataset({"y": ("other", [1.0])}, coords={"other": [1]}))


def test_json_holds_numbers_and_times_to_the_last_digit(tmp_path: Path) -> None:
    times = np.array(["2026-01-01T00:00:00.123456789", "2026-01-02"], "M8[ns]")
    ds = xr.Dataset({"y": ("t", [0.1 + 0.2, np.nan])}, coords={"t": times})
    rows = json.loads(Path(sk.export(ds, tmp_path / "a.json")).read_text())["data"]
    assert rows[0]["y"] == 0.1 + 0.2
    assert rows[1]["y"] is None
    assert np.datetime64(rows[0]["t"]) == times[0]


def test_json_tells_infinite_from_nan(tmp_path: Path) -> None:
    ds = xr.Dataset({"y": ("a", [np.inf, -np.inf, np.nan])}, coords={"a": [1, 2, 3]})
    rows = json.loads(Path(sk.export(ds, tmp_path / "a.json")).read_text())["data"]
    assert [row["y"] for row in rows] == ["INF", "-INF", None]


def test_netcdf_keeps_values_that_it_has_no_type_for_or_names_them(tmp_path: Path) -> None:
    times = np.array(["1700-01-01T00:00:00.000000001", "NaT", "2261-01-01"], "M8[ns]")
    spans = np.array([2**62 + 1, "NaT", 1], "m8[ns]")
    far = np.array(["1700-01-01", "2000-01-01", "2261-01-01T00:00:00.000000003"], "M8[ns]")
    half = np.array([0.1, 2, -0.0], np.float16)
    ds = xr.Dataset(
        {"at": ("t", times), "took": ("t", spans), "half": ("t", half)}, coords={"t": far}
    )
    with xr.open_dataset(sk.export(ds, tmp_path / "a.nc"), decode_timedelta=True) as read:
        for name in ("at", "took", "half", "t"):
            np.testing.assert_array_equal(read[name].values, ds[name].values)
    ds = xr.Dataset({"word": ("a", np.array(["a\0b", "c"], object))}, coords={"a": [1, 2]})
    with pytest.raises(ValueError, match=r"'word' holds 'a\\x00b', which netCDF would cut at the"):
        sk.export(ds, tmp_path / "b.nc")
    assert not (tmp_path / "b.nc").exists()


def test_compare_takes_equal_numbers_of_other_types_as_the_same_value() -> None:
    whole = xr.Dataset({"y": ("a", [1.0, 2.0])}, coords={"a": [1, 2]})
    told = sk.compare(whole, whole.assign_coords(a=[1.0, 2.0]))
    assert told.declared.empty
    text = whole.assign_coords(a=["1", "2"])
    with pytest.raises(ValueError, match="'a' is numbers in the first sweep and text in the"):
        sk.compare(whole, text)


def test_compare_takes_no_unjudged_run_as_passed_and_bears_any_name() -> None:
    coords = {"before": [1, 2, 3]}
    old = xr.Dataset({"failed": ("before", [0.0, 1.0, np.nan])}, coords=coords)
    new = xr.Dataset({"failed": ("before", [1.0, 1.0, 1.0])}, coords=coords)
    told = sk.compare(old, new)
    assert told.outcomes.loc["unknown", "fail"] == 1
    assert len(told.now_failing) == 1
    assert list(told.flipped) == ["before", "outcome before", "outcome after"]
    assert "1 runs from pass to fail" in repr(told)
    named = xr.Dataset({"outcome": ("a", [1 + 1j, 2.0])}, coords={"a": [1, 2]})
    assert sk.compare(named, named * 2).outputs.loc[0, "largest"] == pytest.approx(2.0)


def test_what_is_told_of_a_refined_store_counts_its_refined_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "refined.zarr")
    own = sk.Sweep(grown, sk.grid(gain=[0.0, 1.0], law=["pid"], mass=[1.0]))
    sk.run(own, path, **QUIET)
    more = sk.grid(sk.paired(dim="point", gain=[0.25, 0.5], law=["pid"] * 2, mass=[1.0] * 2))
    sk.refine(own, path, more, **QUIET)
    assert sk.provenance(path).codes["runs"].tolist() == [4]
    assert sk.compare(path, path).outcomes.to_numpy().sum() == 4

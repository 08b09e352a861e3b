"""Training sets of awkward sweeps: vectors, traces of two dims, refined runs, folders in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.rows import boxes

pytest.importorskip("pyarrow")
QUIET: dict[str, Any] = {"backend": "sequential", "progress": False}


def fly(gain: float, start: Any, law: str, rng: Any) -> dict[str, Any]:
    if law == "steep" and gain > 5:
        raise ArithmeticError("diverged")
    steps = int(rng.integers(0, 4))
    return {
        "path": np.arange(2.0 * steps).reshape(steps, 2) + gain,
        "spectrum": np.ones(3),
        "phase": complex(gain, start[1]),
        "word": f"w{gain:g}",
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("training") / "fly.zarr")
    grid = sk.grid(
        gain=sk.design(np.arange(10.0), units="N/m"),
        start=sk.values(np.arange(6.0).reshape(3, 2), dims=("case", "state"), role="scenario"),
        law=sk.scenario(["flat", "steep"]),
        replicates=2,
    )
    outputs = {
        "path": sk.output(dims=("step", "axis"), size=(4, 2), pad=True),
        "spectrum": sk.output(dims="frequency"),
    }
    sweep = sk.Sweep(fly, grid, outputs=outputs, requirements=["gain < 4"], streams="common")
    sk.run(sweep, path, **QUIET)
    return path


def read(folder: str) -> pd.DataFrame:
    return pd.concat(pd.read_parquet(one) for one in sorted(Path(folder, "data").glob("*.parquet")))


def test_boxes_hold_each_run_once_in_order_and_none_too_many() -> None:
    for shape in ((5,), (2, 3), (3, 1, 4, 2), (1, 7)):
        flat = np.arange(int(np.prod(shape))).reshape(shape)
        for most in (1, 3, 5, 100):
            parts = [flat[box].reshape(-1) for box in boxes(shape, most)]
            assert max(map(len, parts)) <= most
            assert np.concatenate(parts).tolist() == flat.reshape(-1).tolist()


def test_vectors_and_complex_numbers_are_columns_of_a_table(store: str, tmp_path: Path) -> None:
    rows = pd.read_csv(sk.export(store, tmp_path / "runs.csv"))
    assert rows[["start[0]", "start[1]"]].drop_duplicates().to_numpy().tolist() == [
        [0, 1], [2, 3], [4, 5]
    ]  # fmt: skip
    done = rows[rows["status"] == "done"]
    assert (done["phase_real"] == done["gain"]).all()
    assert (done["phase_imag"] == done["start[1]"]).all()
    with xr.open_dataset(sk.export(store, tmp_path / "runs.nc")) as again:
        assert again["phase_imag"].sel(gain=1.0, law="flat").values[:, 0].tolist() == [1, 3, 5]
    assert len(sk.runs(sk.open(store).isel(gain=slice(0)))) == 0


def test_shapes_survive_and_errors_have_a_row_in_either_form(store: str, tmp_path: Path) -> None:
    rows = read(sk.training_set(store, tmp_path / "padded"))
    assert np.stack([np.stack(one) for one in rows["path"]]).shape == (120, 4, 2)
    assert np.stack(rows["start"]).shape == (120, 2)
    bad = rows[rows["status"] == "error"]
    assert len(bad) == 24
    assert bad[["word", "failed", "phase_real"]].isna().all(axis=None)
    with pytest.raises(ValueError, match=r"'path' along 'step', 'spectrum' along 'frequency' have"):
        sk.training_set(store, tmp_path / "steps", episodes="steps")
    folder = sk.training_set(store, tmp_path / "steps", episodes="steps", targets=["path"])
    steps = read(folder)
    whole = rows.set_index("run")["path_length"].fillna(0).sort_index()
    assert (steps.groupby("run").size() == np.maximum(whole, 1)).all()
    assert (steps["step"] == -1).sum() == (whole == 0).sum() > 24
    there = steps[steps["step"] >= 0]
    expected = np.stack([there["gain"] + 2 * there["step"], there["gain"] + 2 * there["step"] + 1])
    assert (np.stack(there["path"]) == expected.T).all()
    with xr.open_zarr(Path(folder, "data.zarr"), group="train", consolidated=False) as zarr:
        assert zarr.sizes["row"] == len(set(steps["run"]) & set(zarr["run"].values))


def test_the_card_says_where_the_test_was_met_in_training(store: str, tmp_path: Path) -> None:
    shared = {"split": {"law": ["steep"]}, "designs": "shared", "targets": ["word"]}
    card = Path(sk.training_set(store, tmp_path / "a", **shared), "README.md").read_text()
    assert "the same are in several splits" in card
    assert "none is in two splits" not in card
    assert "**streams are common**: replicate k" in card
    apart = sk.training_set(store, tmp_path / "b", split={"gain": [7]}, targets=["word"])
    card = Path(apart, "README.md").read_text()
    assert "none is in two splits" in card
    assert "flat, steep" in card
    assert set(pd.read_parquet(f"{apart}/data/test.parquet")["gain"]) == {7.0}
    for split in ({"replicate": [1]}, "replicate"):
        with pytest.raises(ValueError, match="would part the replicates of one point"):
            sk.training_set(store, tmp_path / "c", split=split)
    with pytest.raises(ValueError, match=r"'gain' at 7.5, which is none of its values"):
        sk.training_set(store, tmp_path / "c", split={"gain": [7.5]})
    with pytest.raises(ValueError, match="names 'gian', which is no parameter"):
        sk.training_set(store, tmp_path / "c", split={"gian": (1, None)})
    assert not (tmp_path / "c").exists()


def test_the_values_of_one_parameter_are_held_out_whole(store: str, tmp_path: Path) -> None:
    for name, designs in (("start[0]", "shared"), ("gain", "apart")):
        how: dict[str, Any] = {"split": name, "designs": designs, "shares": (0.6, 0.2, 0.2)}
        folder = sk.training_set(store, tmp_path / "set", targets=["word"], **how)
        column = name.partition("[")[0]
        held = [
            set(pd.read_parquet(one)[column].map(np.ravel).map(tuple))
            for one in Path(folder, "data").glob("*.parquet")
        ]
        assert len(held) == 3
        assert sum(map(len, held)) == len(set.union(*held))
        assert "(0) left out" in Path(folder, "README.md").read_text()


def test_a_folder_that_only_looks_like_a_training_set_is_left_alone(
    store: str, tmp_path: Path
) -> None:
    mine = tmp_path / "project"
    (mine / "data").mkdir(parents=True)
    (mine / "data" / "measured.csv").write_text("1")
    (mine / "README.md").write_text("# my project")
    with pytest.raises(ValueError, match=r"holds README.md, data, which is no training set"):
        sk.training_set(store, mine, targets=["word"])
    assert (mine / "data" / "measured.csv").exists()


def test_an_earlier_set_stays_until_the_new_one_is_whole(store: str, tmp_path: Path) -> None:
    folder = Path(sk.training_set(store, tmp_path / "set", targets=["word"]))
    before = (folder / "README.md").read_bytes()
    broken = sk.open(store).load()
    broken["word"][-1, -1, 0, 0] = 7  # which is no text, so that Arrow refuses it
    with pytest.raises(TypeError, match="Expected bytes, got a 'int' object"):
        sk.training_set(broken, folder, targets=["word"])
    assert (folder / "README.md").read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["set"]


def test_refined_runs_carry_stage_and_weight_and_no_feature_more(tmp_path: Path) -> None:
    def bowl(x: float, y: float) -> dict[str, float]:
        return {"height": x * x + y * y}

    axis = np.linspace(-2, 2, 5)
    sweep = sk.Sweep(bowl, sk.grid(x=axis, y=axis), requirements=["height < 2"])
    path = str(tmp_path / "bowl.zarr")
    ds = sk.run(sweep, path, **QUIET)
    sk.refine(sweep, path, sk.suggest(ds, 12), **QUIET)
    folder = sk.training_set(path, tmp_path / "set")
    rows = read(folder)
    assert rows["stage"].value_counts().to_dict() == {0: 25, 1: 12}
    card = Path(folder, "README.md").read_text()
    assert "| `volume` | label |" in card
    assert "| `x` | feature |" in card


def test_hub_libraries_read_what_is_written(store: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    polars = pytest.importorskip("polars")
    folder = sk.training_set(store, tmp_path / "set")
    train = f"{folder}/data/train.parquet"
    rows = pd.read_parquet(train)
    assert polars.read_parquet(train)["run"].to_list() == rows["run"].tolist()
    keep = {"cache_dir": str(tmp_path / "cache")}
    named = datasets.load_dataset("parquet", data_files={"train": train}, **keep)
    assert np.array(named["train"][3]["spectrum"]).shape == (3,)
    hub = datasets.load_dataset(folder, **keep)
    assert set(hub) == {"train", "validation", "test"}
    assert hub["train"]["run"][:] == rows["run"].tolist()
    assert np.array(hub["train"].with_format("numpy")[0]["path"]).shape == (4, 2)


def test_blocks_are_cut_finer_where_there_are_too_few_for_the_splits(tmp_path: Path) -> None:
    ds = xr.Dataset({"peak": ("gain", np.arange(8.0))}, coords={"gain": np.arange(8.0)})
    folder = Path(sk.training_set(ds, tmp_path / "a", targets=["peak"], split="block"), "data")
    gains = [pd.read_parquet(one)["gain"].to_numpy() for one in sorted(folder.iterdir())]
    assert sorted(np.concatenate(gains)) == list(range(8))
    assert all(len(one) == np.ptp(one) + 1 > 1 for one in gains)  # neighbours go together


def test_shares_that_do_not_sum_to_one_are_refused(tmp_path: Path) -> None:
    ds = xr.Dataset({"peak": ("gain", np.arange(8.0))}, coords={"gain": np.arange(8.0)})
    for shares in ((0.5, 0.2, 0.1), (0.8, 0.2, 0.2), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1)):
        with pytest.raises(ValueError, match="give three shares"):
            sk.training_set(ds, tmp_path / "a", shares=shares)


def test_the_length_of_an_episode_is_a_whole_number(tmp_path: Path) -> None:
    coords = {"gain": np.arange(8.0)}
    long = {"path": (("gain", "step"), np.zeros((8, 3)), {"length": "path_length"})}
    lengths = np.array([3.0, 2, np.nan, 3, 3, 3, 3, 1])
    ds = xr.Dataset({**long, "path_length": ("gain", lengths)}, coords=coords)
    folder = sk.training_set(ds, tmp_path / "a", shares=(1, 0, 0))
    told = pd.read_parquet(f"{folder}/data/train.parquet")["path_length"]
    assert told.tolist() == [3, 2, 0, 3, 3, 3, 3, 1]
    assert told.dtype == np.int64

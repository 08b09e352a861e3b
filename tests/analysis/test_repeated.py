"""Replicates that share no draws, and points that a refinement repeats."""

import json

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit import analysis
from tests.analysis.planted import grid


def declares(ds: xr.Dataset, **said: object) -> xr.Dataset:
    return ds.assign_attrs(sweepkit=json.dumps(said))


def noisy_designs() -> xr.Dataset:
    rng = np.random.default_rng(3)
    y = rng.normal(size=(4, 3, 50)) + np.arange(4.0)[:, None, None]
    ds = grid(
        y < 0, d=range(4), s=("scenario", range(3)), r=("replicate", range(50))
    )  # fmt: skip
    return ds.assign(y=(("d", "s", "r"), y))


def test_regret_compares_means_where_replicates_share_no_draws() -> None:
    ds = noisy_designs()
    means = ds["y"].mean("r")
    expected = (means.max("d") - means).max("s")
    independent = analysis.robustness(declares(ds, streams="independent"), "y")
    np.testing.assert_allclose(independent["regret"], expected)
    assert "share no draws" in independent.attrs["note"]
    # The best design loses nothing but by chance, which single replicates would call regret.
    assert independent["regret"].values[3] == 0
    common = analysis.robustness(declares(ds, streams="common"), "y")
    np.testing.assert_allclose(common["regret"], (ds["y"].max("d") - ds["y"]).max(("s", "r")))
    assert common["regret"].values[3] > 2


def test_regret_of_replicates_alone_is_of_their_mean() -> None:
    ds = declares(noisy_designs().isel(s=0, drop=True), streams="independent")
    means = ds["y"].mean("r")
    np.testing.assert_allclose(analysis.robustness(ds, "y")["regret"], means.max() - means)


def chancy(a, b, rng):
    return {"ok": bool(rng.random() > a)}


def test_replicates_where_it_is_least_sure_make_the_rate_surer(tmp_path) -> None:
    points = sk.grid(a=[0.0, 0.02, 0.5, 0.98, 1.0], b=[1.0, 2.0], replicates=6)
    sweep = sk.Sweep(chancy, points, requirements=["ok == True"])
    how = {"backend": "sequential", "progress": False}
    ds = sk.run(sweep, tmp_path / "a.zarr", **how)
    before = analysis.rate(ds).iloc[0]
    more = sk.suggest(ds, 12, goal="replicate")
    both = sk.refine(sweep, tmp_path / "a.zarr", more, **how)
    after = analysis.rate(both).iloc[0]
    assert before["basis"] == after["basis"] == "replicates"
    assert after["n_run"] == before["n_run"] + 12
    assert after["high"] - after["low"] < before["high"] - before["low"]
    # Each point weighs as before, however often it was repeated.
    fails = xr.DataArray(sk.failed(both).values, dims="point").groupby(
        xr.DataArray(both["a"].values * 10 + both["b"].values, dims="point", name="at")
    )
    assert after["rate"] == pytest.approx(float(fails.mean().mean()))
    by_a = analysis.failure_rate(both, by="a")
    assert set(by_a["basis"].values) == {"replicates"}
    assert by_a["high"].values[0] < 0.3
    unweighed = analysis.rate(both.drop_vars("volume")).iloc[0]
    assert unweighed[["rate", "low", "high"]].tolist() == after[["rate", "low", "high"]].tolist()


def test_repeated_points_cover_their_rate() -> None:
    truth, missed = np.r_[np.zeros(12), 0.5, 0.5, np.ones(2)], 0
    told = {"dims": ["a", "r"], "sampled": [], "parameters": [{"name": "a"}, {"name": "r"}]}
    of = np.r_[np.repeat(np.arange(16), 4), np.repeat([12, 13], 20)]
    stage = np.r_[np.zeros(64, int), np.ones(40, int)]
    number = np.r_[np.tile(np.arange(4), 16), np.tile(np.arange(4, 24), 2)]
    for seed in range(200):
        failed = np.random.default_rng([seed, 9]).random(len(of)) < truth[of]
        ds = xr.Dataset(
            {"failed": ("run", failed), "status": ("run", np.ones(len(of), np.int8))},
            coords={
                "a": ("run", of), "r": ("run", number, {"role": "replicate"}),
                "stage": ("run", stage),
            },
        )  # fmt: skip
        row = analysis.rate(declares(ds, **told)).iloc[0]
        assert row["basis"] == "replicates"
        missed += not row["low"] <= truth.mean() <= row["high"]
    assert missed <= 10


def test_refined_scattered_runs_are_told_what_to_take() -> None:
    rng = np.random.default_rng(1)
    ds = xr.Dataset(
        {"failed": ("run", rng.random(80) < 0.4)},
        coords={
            "a": ("run", rng.random(80)),
            "b": ("run", rng.random(80)),
            "stage": ("run", np.repeat([0, 1], 40)),
        },
    )
    with pytest.raises(analysis.UnanswerableError, match="of no grid, take those of the first"):
        analysis.rate(ds)
    alone = ds.isel(run=(ds["stage"] == 0).values)
    assert analysis.rate(alone).iloc[0]["n_run"] == 40

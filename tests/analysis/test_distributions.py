import numpy as np
import pytest
import xarray as xr

from sweepkit.analysis import distribution
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import cartpole, grid, sample


def scattered(y, **parameters):
    ds = sample(np.zeros(len(y), bool), **parameters or {"x": np.arange(float(len(y)))})
    return ds.assign(y=("sample", y))


def test_quantiles_of_a_census_are_exact():
    ds = grid(np.zeros(100, bool), a=range(100)).assign(y=("a", np.arange(100.0)))
    got = distribution(ds, "y", quantiles=[0.25, 0.5])
    assert got["value"].values.tolist() == [24, 49]
    assert got["low"].values.tolist() == got["high"].values.tolist() == [24, 49]
    assert got.attrs["basis"] == "census"
    np.testing.assert_array_equal(got["share"], got["share_low"])


def test_quantile_intervals_and_band_cover_what_they_claim():
    rng = np.random.default_rng(12)
    held, within = np.zeros(3), 0
    truth = -np.log(1 - np.array([0.1, 0.5, 0.9]))
    for _ in range(200):
        y = rng.exponential(size=80)
        got = distribution(scattered(y), "y", quantiles=[0.1, 0.5, 0.9])
        held += (got["low"].values <= truth) & (truth <= got["high"].values)
        cdf = 1 - np.exp(-got["at"].values)
        low, high = got["share_low"].values, got["share_high"].values
        within += ((low <= cdf) & (cdf <= high)).all()
    assert (held / 200 >= 0.92).all()
    assert within / 200 >= 0.93


def test_a_bound_is_infinite_where_too_few_runs_reach():
    got = distribution(scattered(np.arange(5.0)), "y", quantiles=[0.01, 0.99])
    assert got["low"].values[0] == -np.inf
    assert got["high"].values[1] == np.inf


def test_replicates_widen_the_interval():
    rng = np.random.default_rng(3)
    level = rng.normal(size=30)
    ds = scattered(
        np.repeat(level, 20),
        x=np.repeat(rng.random(30), 20),
        rep=("replicate", np.tile(np.arange(20), 30)),
    )
    got = distribution(ds, "y", quantiles=[0.5])
    alone = distribution(scattered(level), "y", quantiles=[0.5])
    assert got.attrs["basis"] == "clusters"
    width = (got["high"] - got["low"]).item()
    assert width >= 0.8 * (alone["high"] - alone["low"]).item()


def test_unknown_runs_could_lie_anywhere():
    status = np.ones(100)
    status[50:60] = 2
    ds = grid(np.zeros(100), status, a=range(100)).assign(y=("a", np.arange(100.0)))
    got = distribution(ds, "y", quantiles=[0.5, 0.99])
    known = np.r_[np.arange(50), np.arange(60, 100)]
    everything = np.sort(np.concatenate([known, np.full(10, -1e9)]))
    assert got["low"].values[0] == everything[49]
    assert got["high"].values[1] == np.inf or got["high"].values[1] >= 98
    assert "10 unknown runs" in got.attrs["basis"]
    assert got["n_unknown"].item() == 10


def test_worst_runs_and_groups():
    got = distribution(cartpole(), "steps", by="length", worst=2)
    assert got["value"].dims == ("length", "quantile")
    steps = cartpole()["steps"]
    first = steps.isel(length=0).min().item()
    assert got["worst"].sel(tail="lowest", place=0).values[0] == first
    assert steps.values.reshape(-1)[got["worst_run"].values[0, 0, 0]] == first
    assert got["n_run"].values.tolist() == [320] * 6


def test_what_has_no_distribution_is_refused():
    ds = grid([0, 0], [2, 0], a=[0, 1]).assign(y=("a", [1.0, 2.0]), z=(("a", "s"), np.ones((2, 2))))
    with pytest.raises(UnanswerableError, match="no finished run of 2"):
        distribution(ds, "y")
    with pytest.raises(ValueError, match="reduce it to one number"):
        distribution(ds, "z")
    with pytest.raises(ValueError, match="not a variable"):
        distribution(ds, "nope")
    one = xr.Dataset({"y": ("a", [3.0])}, coords={"a": [1]})
    assert distribution(one, "y", quantiles=[0.5])["value"].values.tolist() == [3.0]

import numpy as np
import pytest
import xarray as xr

from sweepkit.analysis import importance
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import DATA, cartpole, grid, sample

# Sobol' indices of the Ishigami function, a = 7, b = 0.1 (closed form: T. Ishigami and T. Homma,
# Proc. ISUMA 1990, 398-403).
S1 = [0.31390519114781146, 0.4424111447900409, 0.0]
ST = [0.5575888552099592, 0.4424111447900409, 0.2436836640621477]
S13 = 0.2436836640621477


def ishigami(x1, x2, x3):
    return np.sin(x1) + 7 * np.sin(x2) ** 2 + 0.1 * x3**4 * np.sin(x1)


def ishigami_grid(axis):
    y = ishigami(*np.meshgrid(axis, axis, axis, indexing="ij"))
    return xr.Dataset({"y": (("x1", "x2", "x3"), y)}, coords={"x1": axis, "x2": axis, "x3": axis})


@pytest.mark.parametrize(
    ("axis", "weights", "tolerance"),
    [
        ((np.arange(32) + 0.5) / 32 * 2 * np.pi - np.pi, "midpoint", 0.0024),
        (np.linspace(-np.pi, np.pi, 32), "trapezoid", 0.005),
    ],
)
def test_ishigami_on_a_grid_is_exact_but_for_the_grid(axis, weights, tolerance):
    got = importance(ishigami_grid(axis), of="y", weights=weights)
    np.testing.assert_allclose(got["S1"], S1, atol=tolerance)
    np.testing.assert_allclose(got["ST"], ST, atol=tolerance)
    np.testing.assert_allclose(got["S2"].values[0, 2], S13, atol=tolerance)
    assert got["S2"].values[0, 1] < 1e-12
    assert "census" in got.attrs["basis"]


def test_weights_are_part_of_the_parameter():
    ds = ishigami_grid(np.linspace(-np.pi, np.pi, 32))
    plain = importance(ds, of="y")
    for name in ("x1", "x2", "x3"):
        ds[name].attrs["weights"] = "trapezoid"
    np.testing.assert_allclose(importance(ds, of="y")["S1"], S1, atol=0.005)
    assert abs(plain["S1"].values - S1).max() > 0.005


def test_ishigami_from_scattered_runs_is_within_a_hundredth():
    data = np.load(DATA / "ishigami_lhs4096.npz")
    coords = {f"x{i + 1}": ("sample", data["X"][:, i]) for i in range(3)}
    got = importance(xr.Dataset({"y": ("sample", data["Y"])}, coords=coords), of="y")
    np.testing.assert_allclose(got["S1"], S1, atol=0.01)
    np.testing.assert_allclose(got["S2"].values[0, 2], S13, atol=0.005)
    assert got["S2"].values[0, 1] < 0.01
    assert np.isnan(got["ST"]).all()
    assert "ST needs a complete grid" in got.attrs["note"]


def test_cartpole_names_length_and_delay_as_the_pair_that_matters_most():
    got = importance(cartpole())
    at = np.unravel_index(np.nanargmax(got["S2"].values), (5, 5))
    assert {str(got["parameter"].values[k]) for k in at} == {"length", "delay"}
    assert got["S2"].sel(parameter="length", other="delay").item() == pytest.approx(0.138, abs=5e-4)
    st = got["ST"].to_series().round(2)
    assert (st["length"], st["delay"], round(st["seed"], 3)) == (0.80, 0.44, 0.05)
    assert got["noise"].item() == pytest.approx(0.049, abs=5e-4)
    assert got["rank"].to_series().sort_values().index[0] == "length"


def test_shares_of_an_interaction_agree_with_variances_by_hand():
    failed = np.zeros((4, 3, 2), bool)
    failed[0, 1:] = True
    got = importance(grid(failed, a=range(4), b=range(3), c=range(2)))
    variance = failed.var()
    a, b = failed.mean(axis=(1, 2)).var(), failed.mean(axis=(0, 2)).var()
    np.testing.assert_allclose(got["S1"], [a / variance, b / variance, 0], atol=1e-12)
    np.testing.assert_allclose(got["S2"].values[0, 1], (variance - a - b) / variance)
    np.testing.assert_allclose(got["ST"], 1 - np.array([b, a, variance]) / variance, atol=1e-12)


def test_rare_failures_are_ranked_by_distance_and_it_is_said():
    failed = np.zeros((20, 20, 20), bool)
    failed[19, 3, :10] = True
    got = importance(grid(failed, a=range(20), b=range(20), c=range(20)))
    assert got.attrs["ranked_by"] == "KS"
    assert "0.12 %" in got.attrs["note"]
    assert got["rank"].values.tolist() == [1, 2, 3]
    assert got["lift"].sel(parameter="a").item() == pytest.approx(20)
    assert got["lift_at"].sel(parameter="a").item() == "19"


def test_incomplete_grid_says_why_shares_are_missing():
    status = np.ones((4, 4))
    status[3, 3] = 2
    ds = grid(np.arange(16) > 9, status, a=range(4), b=range(4))
    got = importance(ds)
    assert np.isnan(got["S1"]).all()
    assert "1 of 16 runs are missing" in got.attrs["note"]
    assert got["rank"].sel(parameter="a").item() == 1
    assert not np.isnan(importance(ds, errors="fail")["ST"]).any()


@pytest.mark.parametrize(("failed", "said"), [(0, "0 of 4 .* failed"), (1, "0 of 4 .* passed")])
def test_all_alike_is_refused(failed, said):
    with pytest.raises(UnanswerableError, match=said):
        importance(grid(np.full(4, failed), a=range(4)))


def test_all_errors_and_unfit_outputs_are_refused():
    with pytest.raises(UnanswerableError, match="2 errored"):
        importance(grid([0, 0], [2, 3], a=[0, 1]))
    ds = grid([0, 1], a=[0, 1]).assign(path=(("a", "step"), np.zeros((2, 3))), flat=("a", [1, 1]))
    with pytest.raises(ValueError, match="reduce it to one number per run"):
        importance(ds, of="path")
    with pytest.raises(UnanswerableError, match="is 1 in all 2"):
        importance(ds, of="flat")


def test_scattered_failures_are_ranked_by_distance():
    rng = np.random.default_rng(2)
    a, b = rng.random(3000), rng.random(3000)
    got = importance(sample((a > 0.6) & (b > 0.2), a=a, b=b, c=rng.random(3000)))
    assert got.attrs["ranked_by"] == "KS"
    assert got["rank"].values.tolist() == [1, 2, 3]
    assert got["S1"].isnull().all()
    assert "misrank failures at the ends of a range" in got.attrs["note"]
    assert got.attrs["basis"] == "distances between passed and failed of 3000 scattered runs"


def test_few_scattered_runs_get_no_shares_but_a_reason():
    rng = np.random.default_rng(2)
    ds = sample(rng.random(6) > 0.5, a=rng.random(6), b=rng.random(6))
    got = importance(ds.assign(y=("sample", rng.random(6))), of="y")
    assert "need more scattered runs" in got.attrs["note"]
    assert not np.isnan(got["KS"]).any()


@pytest.mark.parametrize("bad", [[1, np.inf], [1, np.nan], [0, 0], [-1, 2]])
def test_weights_that_are_no_shares_are_refused(bad):
    ds = grid([[True, False], [False, False]], a=[0.0, 1.0], b=[0.0, 1.0])
    with pytest.raises(ValueError, match="weights of 'a' must be 2 finite numbers >= 0"):
        importance(ds, weights={"a": bad})


@pytest.mark.parametrize("seed", range(6))
def test_ishigami_of_any_latin_hypercube_is_within_a_hundredth(seed):
    from scipy.stats import qmc

    x = (qmc.LatinHypercube(3, rng=seed + 100).random(4096) * 2 - 1) * np.pi
    coords = {f"x{i + 1}": ("sample", x[:, i]) for i in range(3)}
    got = importance(xr.Dataset({"y": ("sample", ishigami(*x.T))}, coords=coords), of="y")
    np.testing.assert_allclose(got["S1"], S1, atol=0.01)
    np.testing.assert_allclose(got["S2"].values[0, 2], S13, atol=0.01)


def test_noise_alone_makes_no_shares():
    rng = np.random.default_rng(7)
    x = rng.random((1000, 8))
    y = 2 * x[:, 0] + rng.normal(size=1000)
    coords = {f"x{i}": ("sample", x[:, i]) for i in range(8)}
    got = importance(xr.Dataset({"y": ("sample", y)}, coords=coords), of="y")
    assert got["S1"].values[0] == pytest.approx(0.25, abs=0.08)
    assert got["S1"].values[1:].max() < 0.03

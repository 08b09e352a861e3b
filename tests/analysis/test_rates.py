import json

import numpy as np
import pytest
import xarray as xr

from sweepkit.analysis import (
    anytime_interval,
    convergence,
    failure_interval,
    failure_rate,
    held_up,
    rate,
    table,
)
from tests.analysis.planted import DATA, cartpole, grid, in_random_order, sample

ROWS = json.loads((DATA / "binomial_intervals.json").read_text())["rows"]


@pytest.mark.parametrize(
    ("method", "key"),
    [("wilson", "wilson"), ("wilson-cc", "wilsoncc"), ("exact", "exact"), ("jeffreys", "jeffreys")],
)
def test_intervals_agree_with_reference_numbers(method, key):
    assert len(ROWS) == 126
    for row in ROWS:
        got = failure_interval(row["k"], row["n"], level=row["level"], method=method)
        np.testing.assert_allclose(got, row[key], atol=1e-9, rtol=0)


def test_interval_is_nan_where_nothing_has_run_and_refuses_more_failures_than_runs():
    assert np.isnan(failure_interval([0, 1], [0, 3])).tolist() == [[True, True], [False, False]]
    with pytest.raises(ValueError, match="4 of 3 runs failed"):
        failure_interval(4, 3)
    with pytest.raises(ValueError, match="between 0 and 1"):
        failure_interval(1, 3, level=95)


def test_anytime_interval_closes_when_all_runs_are_drawn():
    k = np.arange(0, 101)
    got = anytime_interval(k, 100, 100)
    np.testing.assert_array_equal(got, np.stack([k / 100, k / 100], axis=-1))
    assert anytime_interval(0, 0, 50).tolist() == [0.0, 1.0]
    assert anytime_interval(0, 0, 0).tolist() == [0.0, 1.0]


def test_anytime_interval_agrees_with_counting_every_composition():
    from math import comb

    total, alpha = 60, 0.05
    for t in (1, 7, 30, 59):
        for s in range(0, t + 1, max(1, t // 5)):
            inside = []
            for k in range(s, total - t + s + 1):
                likelihood = comb(k, s) * comb(total - k, t - s) / comb(total, t)
                posterior = likelihood * (t + 1) / (total + 1)
                if posterior > alpha / (total + 1):
                    inside.append(k)
            low, high = anytime_interval(s, t, total)
            assert (round(low * total), round(high * total)) == (inside[0], inside[-1])


@pytest.mark.parametrize("truth", [0, 3, 40, 170])
def test_anytime_interval_misses_in_at_most_five_percent_of_sweeps_over_all_looks(truth):
    rng = np.random.default_rng(20 + truth)
    sweeps, total = 400, 200
    population = np.arange(total) < truth
    draws = np.stack([rng.permutation(population) for _ in range(sweeps)])
    failed = draws.cumsum(axis=1)
    interval = anytime_interval(failed, np.arange(1, total + 1), total)
    missed = (interval[..., 0] > truth / total + 1e-12) | (interval[..., 1] < truth / total - 1e-12)
    assert missed.any(axis=1).mean() <= 0.05


def test_endless_anytime_interval_misses_in_at_most_five_percent_of_sweeps():
    rng = np.random.default_rng(5)
    draws = rng.random((400, 300)) < 0.1
    interval = anytime_interval(draws.cumsum(axis=1), np.arange(1, 301), np.inf)
    missed = (interval[..., 0] > 0.1) | (interval[..., 1] < 0.1)
    assert missed.any(axis=1).mean() <= 0.05


def test_rate_of_each_design_averages_over_scenarios_and_replicates():
    failed = np.zeros((2, 3, 4), bool)
    failed[1, 0] = True
    ds = grid(failed, gain=[1, 2], mass=("scenario", [1.0, 2, 3]), rep=("replicate", range(4)))
    got = failure_rate(ds)
    assert got["rate"].dims == ("gain",)
    assert got["rate"].values.tolist() == [0.0, 4 / 12]
    assert got["n_run"].values.tolist() == [12, 12]
    assert got.attrs["basis"].startswith("replicates (the points are all there are")
    assert got["rate"].attrs["units"] == "1"
    assert failure_rate(ds, over=["gain", "rep"])["rate"].values.tolist() == [0.5, 0, 0]
    assert failure_rate(ds, by=["mass", "gain"])["rate"].dims == ("mass", "gain")


def test_census_has_no_sampling_error_but_a_boundary():
    ds = grid(np.arange(10) >= 6, a=np.arange(10.0))
    row = rate(ds).iloc[0]
    assert (row["rate"], row["low"], row["high"]) == (0.4, 0.4, 0.4)
    assert row["basis"] == "census"
    assert row["boundary"] == 0.2
    assert row["n_needed"] == 0


def test_scattered_runs_of_one_design_are_a_sample():
    ds = sample([True] * 3 + [False] * 17, mass=("scenario", np.arange(20.0)))
    row = rate(ds).iloc[0]
    assert row["basis"] == "sample"
    np.testing.assert_allclose([row["low"], row["high"]], failure_interval(3, 20))


def test_scattered_designs_keep_their_layout_and_their_values():
    ds = sample([True, False, True], a=[0.1, 0.2, 0.3], b=[5.0, 6.0, 7.0])
    got = failure_rate(ds)
    assert got["rate"].dims == ("sample",)
    assert got["a"].values.tolist() == [0.1, 0.2, 0.3]
    ds = sample(
        [True, False, True, True], a=[0.1, 0.1, 0.3, 0.3], mass=("scenario", [1.0, 2, 3, 4])
    )
    got = failure_rate(ds)
    assert got["rate"].values.tolist() == [0.5, 1.0]
    assert got["a"].values.tolist() == [0.1, 0.3]


def test_parameters_that_vary_together_are_grouped_by_value():
    ds = sample([True, False, True, True], a=[1, 1, 2, 2], b=[0.5, 0.7, 0.5, 0.7])
    got = failure_rate(ds, by="a")
    assert got["rate"].dims == ("a",)
    assert got["rate"].values.tolist() == [0.5, 1.0]
    many = np.random.default_rng(0).random(4000)
    got = failure_rate(sample(many > 0.5, x=many, y=many[::-1]), by=["x"])
    assert got.sizes == {"x": 20}
    assert "quantile bins" in got["x"].attrs["binned"]
    assert got["rate"].values[0] == 0


def test_errors_are_unknown_and_widen_the_bounds_or_fail():
    ds = grid([0, 0, 1, 0], [1, 1, 1, 2], a=[0, 1, 2, 3])
    apart, fail = rate(ds).iloc[0], rate(ds, errors="fail").iloc[0]
    assert apart["rate"] == pytest.approx(1 / 3)
    assert (apart["low"], apart["high"]) == (0.25, 0.5)
    assert (apart["n_run"], apart["n_unknown"], apart["n_error"]) == (3, 1, 1)
    assert fail["rate"] == fail["low"] == fail["high"] == 0.5
    assert (fail["n_run"], fail["n_failed"], fail["n_unknown"], fail["n_error"]) == (4, 2, 0, 1)
    assert "1 unknown runs as bounds" in failure_rate(ds, by=[]).attrs["basis"]


def test_skipped_runs_count_nowhere():
    got = rate(grid([0, 1, 1], [1, 1, 6], a=[0, 1, 2])).iloc[0]
    assert (got["rate"], got["n_run"], got["n_unknown"], got["basis"]) == (0.5, 2, 0, "census")


def test_unfinished_without_recorded_order_gives_bounds_only():
    got = rate(grid([1, 0, 0, 0], [1, 1, 0, 0], a=[0, 1, 2, 3])).iloc[0]
    assert (got["low"], got["high"], got["basis"]) == (0.25, 0.75, "bounds")


@pytest.mark.parametrize("status", [0, 2, 6])
def test_nothing_known_says_so(status):
    got = rate(grid([0, 0], [status, status], a=[0, 1])).iloc[0]
    assert np.isnan(got["rate"])
    assert (got["low"], got["high"], got["basis"]) == (0, 1, "nothing has run")
    assert np.isnan(got["n_needed"])
    with pytest.raises(ValueError, match="none of 2 runs"):
        convergence(grid([0, 0], [status, status], a=[0, 1]))


def test_single_run_is_answered():
    row = rate(grid([True], a=[1.0])).iloc[0]
    assert (row["rate"], row["low"], row["basis"]) == (1, 1, "census")
    assert len(held_up(grid([True], a=[1.0]))) == 1
    assert len(convergence(grid([True], a=[1.0]))) == 1


def test_in_progress_rests_on_the_random_prefix_and_closes():
    from sweepkit.grid import random_prefix

    rng = np.random.default_rng(7)
    failed = rng.random((40, 50)) < 0.2
    truth = failed.mean()
    order = random_prefix(11, failed.size, 400)
    status = np.zeros(failed.size)
    status[order[:300]] = 1
    # Later blocks have run too, and all of them failed: no random sample, but they are known.
    ds = in_random_order(grid(failed, status, a=np.arange(40), b=np.arange(50)), 11, 400)
    row = rate(ds).iloc[0]
    assert row["basis"] == "in progress"
    assert row["low"] <= truth <= row["high"]
    k = int(failed.reshape(-1)[order[:300]].sum())
    assert row["rate"] == k / 300
    np.testing.assert_allclose([row["low"], row["high"]], anytime_interval(k, 300, 2000))
    followed = convergence(ds)
    assert followed["n_run"].iloc[-1] == 300
    assert "recorded" in followed.attrs["order"]
    ds["status"][:] = 1
    row = rate(ds).iloc[0]
    assert row["basis"] == "census"
    assert row["low"] == row["high"] == truth


@pytest.mark.parametrize("by", [None, "a", ["a", "b"]])
def test_rate_of_a_running_sweep_lies_within_its_own_interval(by):
    from sweepkit.grid import random_prefix

    failed = np.arange(2000).reshape(40, 50) >= 1300
    status = np.zeros(failed.size)
    order = random_prefix(11, failed.size, 100)
    # The blocks that ran after the coarse pass hold hardly any failure: no random sample.
    status[order], status[:900] = 1, 1
    ds = in_random_order(grid(failed, status, a=np.arange(40), b=np.arange(50)), 11, 100)
    found = rate(ds, by)
    ran = found[found["n_run"] > 0]
    assert (ran["low"] <= ran["rate"]).all()
    assert (ran["rate"] <= ran["high"]).all()
    if by is None:
        row = found.iloc[0]
        assert row["n_failed"] / row["n_run"] < row["low"] <= failed.mean() <= row["high"]
        assert row["rate"] == failed.reshape(-1)[order].mean()
        assert "n_failed of n_run" in found.attrs["basis"]


def test_a_pending_run_of_the_prefix_ends_what_the_interval_uses():
    from sweepkit.grid import random_prefix

    failed = np.zeros(100, bool)
    order = random_prefix(3, 100, 50)
    status = np.zeros(100)
    status[order[:10]] = 1
    status[order[11:50]] = 1
    ds = in_random_order(grid(failed, status, a=np.arange(100)), 3, 50)
    row = rate(ds).iloc[0]
    assert row["high"] == pytest.approx(min(anytime_interval(0, 10, 100)[1], 51 / 100))


def test_replicates_of_drawn_points_are_clusters():
    # Points that always or never fail: 20 replicates of each tell no more than one.
    rng = np.random.default_rng(1)
    designs = rng.random(30) < 0.4
    ds = sample(
        np.repeat(designs, 20),
        x=np.repeat(rng.random(30), 20),
        rep=("replicate", np.tile(np.arange(20), 30)),
    )
    row = rate(ds).iloc[0]
    alone = failure_interval(designs.sum(), 30)
    assert row["basis"] == "clusters"
    assert row["high"] - row["low"] >= (alone[1] - alone[0]) * 0.98


def test_crossed_values_of_a_drawn_point_are_a_cluster():
    rng = np.random.default_rng(1)
    fails = np.repeat((rng.random(40) < 0.4)[:, None], 10, axis=1)
    ds = xr.Dataset(
        {"failed": (("sample", "gain"), fails)},
        coords={"x": ("sample", rng.random(40)), "y": ("sample", rng.random(40)),
                "gain": np.arange(10.0)},
    )  # fmt: skip
    row = rate(ds).iloc[0]
    alone = failure_interval(fails[:, 0].sum(), 40)
    assert row["basis"] == "clusters"
    assert row["high"] - row["low"] >= (alone[1] - alone[0]) * 0.98
    by_gain = failure_rate(ds, by="gain")
    assert set(by_gain["basis"].values) == {"sample"}
    np.testing.assert_allclose([by_gain["low"][0], by_gain["high"][0]], alone)
    by_point = failure_rate(ds, by=["x", "y"])
    assert set(by_point["basis"].values[by_point["n_run"].values > 0]) == {"census"}


def test_no_failure_in_crossed_runs_bounds_the_rate_as_that_many_runs_do():
    failed = np.zeros((1, 3, 14), bool)
    ds = grid(failed, length=[0.5], mass=("scenario", [1.0, 2, 3]), rep=("replicate", range(14)))
    row = rate(ds).iloc[0]
    assert row["basis"] == "replicates"
    assert row["high"] == pytest.approx(failure_interval(0, 42)[1])
    assert row["high"] < 0.085


def test_points_that_surely_pass_or_fail_leave_less_to_scatter():
    failed = np.repeat((np.arange(20) < 5)[:, None], 14, axis=1)
    row = rate(grid(failed, a=np.arange(20), rep=("replicate", range(14)))).iloc[0]
    low, high = failure_interval(70, 280)
    assert row["low"] < row["rate"] < row["high"]
    assert row["high"] - row["low"] < 0.7 * (high - low)


LANDSCAPES = {
    "even": np.full(24, 0.5),
    "rare": np.full(24, 0.03),
    "one bad point": np.where(np.arange(24) == 7, 0.9, 0.01),
    "sure": (np.arange(24) < 6).astype(float),
    "mixed": np.random.default_rng(0).beta(0.4, 1.2, size=24),
    "ramp": np.linspace(0, 1, 24),
}


SWEEPS = 2000


def covered(ds, truth):
    """Share of the sweeps along the dim 'sweep' whose interval holds the truth."""
    got = failure_rate(ds, by="sweep")
    return float(((got["low"] <= truth) & (truth <= got["high"])).mean())


@pytest.mark.parametrize("replicates", [2, 5, 14])
@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_replicate_interval_of_fixed_points_covers_what_it_claims(landscape, replicates):
    p = LANDSCAPES[landscape].reshape(6, 4, 1)
    failed = np.random.default_rng(21).random((SWEEPS, 6, 4, replicates)) < p
    ds = grid(failed, sweep=np.arange(SWEEPS), a=np.arange(6), m=("scenario", np.arange(4)),
              rep=("replicate", np.arange(replicates)))  # fmt: skip
    assert set(failure_rate(ds, by="sweep")["basis"].values) == {"replicates"}
    # Wilson's coverage swings around its level with the rate; points must not make it worse.
    low, high = failure_interval(failed.sum(axis=(1, 2, 3)), failed[0].size).T
    pooled = float(((low <= p.mean()) & (p.mean() <= high)).mean())
    assert covered(ds, p.mean()) >= min(0.95, pooled - 0.001)
    if landscape not in ("even", "rare"):
        assert covered(ds, p.mean()) >= 0.95


@pytest.mark.parametrize("points", [8, 12, 40])
def test_replicate_interval_of_drawn_points_covers_what_it_claims(points):
    rng = np.random.default_rng(22)
    p = rng.beta(0.4, 1.2, size=(SWEEPS, points, 1))
    failed = rng.random((SWEEPS, points, 25)) < p
    ds = xr.Dataset(
        {"failed": (("sweep", "sample", "rep"), failed)},
        coords={"sweep": np.arange(SWEEPS), "x": ("sample", rng.random(points)),
                "y": ("sample", rng.random(points)),
                "rep": ("rep", np.arange(25), {"role": "replicate"})},
    )  # fmt: skip
    assert set(failure_rate(ds, by="sweep")["basis"].values) == {"clusters"}
    assert covered(ds, 0.25) >= 0.95
    low, high = failure_interval(failed.sum(axis=(1, 2)), points * 25).T
    assert ((low <= 0.25) & (high >= 0.25)).mean() < 0.6


def test_replicates_of_one_point_are_independent():
    ds = grid([[0, 1, 0, 0]], a=[1.0], rep=("replicate", range(4)))
    row = rate(ds).iloc[0]
    assert row["basis"] == "sample"
    np.testing.assert_allclose([row["low"], row["high"]], failure_interval(1, 4))


def test_stages_are_refused_without_volumes_and_weighted_with_them():
    ds = sample([True, True, True, False], a=[0.0, 0.1, 0.2, 0.9])
    ds = ds.assign_coords(stage=("sample", [0, 1, 1, 0]))
    with pytest.raises(ValueError, match="2 stages"):
        rate(ds)
    ds = ds.assign_coords(volume=("sample", [0.2, 0.05, 0.05, 0.7]))
    row = rate(ds).iloc[0]
    assert row["rate"] == pytest.approx(0.3)
    assert row["basis"] == "refined"


def test_trapezoid_weights_enter_the_census():
    ds = grid([1, 0, 0], a=[0.0, 1.0, 2.0])
    ds["a"].attrs["weights"] = "trapezoid"
    assert rate(ds)["rate"].item() == 0.25


def test_held_up_has_a_row_per_value_and_names_what_held():
    got = held_up(cartpole())
    assert got["parameter"].unique().tolist() == ["length", "masspole", "force_mag", "delay"]
    assert got.groupby("parameter")["n_run"].sum().eq(1920).all()
    assert set(got["basis"]) == {"replicates"}
    assert got.loc[got["n_failed"] == 0, "held"].all()


def test_wanted_width_is_reached_with_the_runs_asked_for():
    ds = sample([True] * 10 + [False] * 90, x=np.arange(100.0))
    needed = int(rate(ds, width=0.04)["n_needed"].item())
    low, high = failure_interval(0.1 * (100 + needed), 100 + needed)
    assert high - low == pytest.approx(0.04, rel=1e-3)


def test_a_table_stands_in_for_its_dataset():
    ds = cartpole()
    xr.testing.assert_identical(failure_rate(table(ds)), failure_rate(ds))


def test_contradicting_arguments_are_refused():
    ds = grid([True], a=[1])
    with pytest.raises(ValueError, match="not both"):
        failure_rate(ds, by="a", over="a")
    with pytest.raises(ValueError, match="by='b' is no parameter; the parameters are a"):
        failure_rate(ds, by="b")
    with pytest.raises(ValueError, match="neither 'apart' nor 'fail'"):
        rate(ds, errors="drop")


def test_boundary_is_unknown_where_most_neighbours_are():
    at = np.add.outer(np.arange(6), np.arange(6))
    failed = np.broadcast_to(np.arange(6)[:, None] >= 3, (6, 6))
    axes = {"a": np.arange(6.0), "b": np.arange(6.0)}
    checkered = grid(failed, np.where(at % 2, 0, 1), **axes)
    got = rate(checkered)
    assert np.isnan(got["boundary"].item())
    assert "most neighbours of the known are not" in got.attrs["note"]
    nearly = np.ones((6, 6), dtype=int)
    nearly[0, 0] = 0
    assert rate(grid(failed, nearly, **axes))["boundary"].item() == pytest.approx(12 / 35)
    masked = grid(failed, np.where(at % 2, 6, 1), **axes)  # skipped runs are no neighbours
    assert rate(masked)["boundary"].item() == 0


def test_each_look_says_what_its_interval_bounds():
    failed = np.random.default_rng(3).random((20, 10)) < 0.3
    repeated = grid(failed, a=np.arange(20.0), r=np.arange(10))
    repeated["r"].attrs["role"] = "replicate"
    looks = convergence(repeated, points=5)
    assert looks["of"].tolist()[-2:] == ["the declared runs", "the underlying rate"]
    assert "may be the wider" in looks.attrs["note"]
    census = convergence(grid(failed, a=np.arange(20.0), b=np.arange(10.0)), points=5)
    assert set(census["of"]) == {"the declared runs"}
    assert census.attrs["note"] == ""
    drawn = convergence(sample(failed[:, 0], a=np.random.default_rng(0).random(20)), points=5)
    assert set(drawn["of"]) == {"the underlying rate"}

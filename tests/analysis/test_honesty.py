"""What an answer claims is so: intervals, boxes, bases, and reasons for what is no number."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sweepkit.analysis as analysis
from sweepkit.analysis import UnanswerableError
from sweepkit.verdicts import failed as failed_of
from tests.analysis.planted import grid, in_random_order, sample
from tests.analysis.test_suggest import as_runs, planted, refined


def stages(dims=2, n=9, seed=0, rounds=2):
    """A refined grid with its volumes, and the function that says what fails."""
    ds, truth, fails = planted(dims, seed, n)
    ds = refined(as_runs(ds), fails, rounds, 30)
    return ds.assign_coords(volume=analysis.volumes(ds)), truth, fails


def half_run(seed=0):
    rng = np.random.default_rng(seed)
    failed = rng.random((9, 9)) < 0.4
    status = (rng.random((9, 9)) < 0.6).astype(int)
    ds = grid(failed, status, a=np.arange(9.0), b=np.arange(9.0))
    return in_random_order(ds, 1, 60).assign(y=(("a", "b"), rng.random((9, 9))))


def latin_hypercube(n=60, seed=3):
    rng = np.random.default_rng(seed)
    return sample(
        rng.random(n) < 0.3, gain=rng.random(n), mass=("scenario", rng.random(n))
    ).assign(y=("sample", rng.random(n)))  # fmt: skip


# --- boxes -----------------------------------------------------------------------------------


def inside(ds, box):
    held = np.ones(ds.sizes[next(iter(ds["failed"].dims))], bool)
    for name, row in box.iterrows():
        values = ds[name].values
        held &= (values >= row["low"]) & (values <= row["high"])
    return held


@pytest.mark.parametrize("seed", range(20))
def test_no_failing_run_lies_in_a_safe_box_or_on_its_ends(seed):
    rng = np.random.default_rng([seed, 5])
    # Few values, so that failures lie on the faces of the space and of every box.
    x = rng.integers(0, 6, (3, 80)) / 5
    ds = sample(rng.random(80) < 0.15, a=x[0], b=x[1], c=x[2])
    box = analysis.safe_box(ds)
    assert not ds["failed"].values[inside(ds, box)].any()
    assert inside(ds, box).sum() == box.attrs["n_run"] > 0
    at = np.flatnonzero(~ds["failed"].values)[0]
    nominal = {name: float(ds[name][at]) for name in ("a", "b", "c")}
    try:
        box = analysis.safe_box(ds, nominal)
    except UnanswerableError:
        # A failure may lie at the nominal point itself, or on all sides of it.
        return
    assert not ds["failed"].values[inside(ds, box)].any()
    assert all(box.loc[n, "low"] <= v <= box.loc[n, "high"] for n, v in nominal.items())


def test_the_largest_scattered_box_is_found_by_brute_force_too():
    rng = np.random.default_rng(8)
    x = rng.random((2, 30))
    failed = rng.random(30) < 0.3
    got = analysis.safe_box(sample(failed, a=x[0], b=x[1]))
    good, bad = x[:, ~failed], x[:, failed]
    span = np.ptp(x, axis=1)
    best = 0.0
    for a0 in good[0]:
        for a1 in good[0][good[0] > a0]:
            for b0 in good[1]:
                for b1 in good[1][good[1] > b0]:
                    within = (bad[0] >= a0) & (bad[0] <= a1) & (bad[1] >= b0) & (bad[1] <= b1)
                    if not within.any():
                        best = max(best, (a1 - a0) * (b1 - b0) / span.prod())
    assert got.attrs["exact"]
    assert got.attrs["share"] == pytest.approx(best)


def test_a_safe_box_of_stages_holds_no_failure_and_bounds_nothing_between():
    ds, _, _ = stages()
    box = analysis.safe_box(ds)
    assert not ds["failed"].values[inside(ds, box)].any()
    assert not box["whole"].all()
    assert box.attrs["high"] == 1.0
    assert "refined runs are no sample" in box.attrs["basis"]


def test_the_bound_of_a_chosen_box_holds_the_rate_inside():
    missed = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, 11])
        x = rng.random((2, 150))
        ds = sample(rng.random(150) < 0.1, a=x[0], b=x[1])
        missed += analysis.safe_box(ds).attrs["high"] < 0.1
    assert missed <= 3


def test_replicates_that_all_passed_bound_the_rate_of_a_safe_box():
    failed = np.zeros((3, 5), bool)
    failed[2, 0] = True
    box = analysis.safe_box(grid(failed, a=range(3), rep=("replicate", range(5))))
    assert box.loc["a", ["low", "high"]].tolist() == [0, 1]
    assert analysis.failure_interval(0, 10)[1] < box.attrs["high"] < 0.5


# --- refined runs ----------------------------------------------------------------------------


@pytest.mark.parametrize(("dims", "n", "seed"), [(2, 9, 0), (2, 9, 1), (3, 7, 2)])
def test_bounds_at_a_refined_value_hold_the_rate_there(dims, n, seed):
    ds, _, fails = stages(dims, n, seed)
    axis = np.linspace(0, 1, 161 if dims == 2 else 61)
    table = analysis.held_up(ds)
    pd.testing.assert_series_equal(
        analysis.rate(ds, by="p0")["high"],
        table.loc[table["parameter"] == "p0", "high"], check_index=False,
    )  # fmt: skip
    undecided = 0
    for _, row in table.iterrows():
        axes = [np.array([row["value"]]) if f"p{k}" == row["parameter"] else axis
                for k in range(dims)]  # fmt: skip
        mesh = np.meshgrid(*axes, indexing="ij")
        truth = fails(**{f"p{k}": m for k, m in enumerate(mesh)}).mean()
        assert row["low"] - 0.02 <= truth <= row["high"] + 0.02
        assert row["low"] <= row["rate"] <= row["high"]
        assert not (row["held"] and row["low"] > 0)
        undecided += row["high"] > row["low"]
    single = table[(table["n_run"] == 1) & (table["high"] > table["low"])]
    assert len(single)
    assert undecided > 5
    assert set(table["basis"]) == {"refined"}


def test_a_derived_coordinate_bounds_no_slice():
    ds, _, _ = stages()
    q = (ds["p0"] + ds["p1"]).round(1)
    for attrs in ({}, {"role": "design"}):
        got = analysis.rate(ds.assign_coords(q=("run", q.values, attrs)), by="q")
        assert (got["low"] == 0).all()
        assert (got["high"] == 1).all()


def test_replicates_of_refined_points_do_not_hide_what_lies_between():
    ds, _, _ = stages()
    point = ds.isel(run=np.repeat(np.arange(ds.sizes["run"]), 3))
    rep = ("run", np.tile([0, 1, 2], ds.sizes["run"]), {"role": "replicate"})
    both = point.drop_vars("volume").assign_coords(rep=rep)
    both = both.assign_coords(volume=analysis.volumes(both))
    alone, repeated = analysis.rate(ds).iloc[0], analysis.rate(both).iloc[0]
    assert repeated["low"] <= alone["low"]
    assert repeated["high"] >= alone["high"]


# --- bases -----------------------------------------------------------------------------------


def test_a_latin_hypercube_is_a_sample_and_has_no_regret():
    ds = latin_hypercube()
    got = analysis.robustness(ds)
    assert got.attrs["basis"].startswith("sample")
    assert (got["high"] > got["low"]).all()
    assert np.isnan(got["regret"]).all()
    assert "designs do not share scenarios" in got.attrs["note"]
    designs = analysis.robustness(ds.drop_vars("mass"))
    assert designs.attrs["basis"].startswith("sample")
    assert "no parameter is a scenario" in designs.attrs["note"]


def test_one_run_of_each_point_of_a_random_simulator_is_no_census():
    failed = np.zeros((5, 4), bool)
    ds = grid(failed, a=range(5), b=range(4)).assign_attrs(sweepkit='{"random": true}')
    row = analysis.rate(ds).iloc[0]
    assert row["basis"] == "replicates"
    assert row["high"] == pytest.approx(analysis.failure_interval(0, 20)[1])


@pytest.mark.parametrize("make", [half_run, latin_hypercube])
def test_all_answers_of_a_store_name_one_basis(make):
    ds = make()
    basis = analysis.rate(ds).iloc[0]["basis"]
    assert analysis.convergence(ds)["basis"].iloc[-1] == basis
    assert analysis.distribution(ds, "y").attrs["basis"].startswith(basis)
    assert analysis.regions(ds).boxes["basis"].iloc[0] == basis
    assert set(analysis.held_up(ds)["basis"]) == {basis}


@pytest.mark.parametrize("seed", range(3))
def test_quantiles_in_progress_hold_those_of_the_whole(seed):
    rng = np.random.default_rng([seed, 2])
    y = rng.normal(size=(40, 50))
    order = np.random.default_rng(0)
    from sweepkit.grid import random_prefix

    first = random_prefix(11, y.size, 400)
    status = np.zeros(y.size)
    status[first[: int(order.integers(150, 400))]] = 1
    ds = in_random_order(grid(y > 1, status, a=np.arange(40), b=np.arange(50)), 11, 400)
    got = analysis.distribution(ds.assign(y=(("a", "b"), y)), "y", quantiles=[0.1, 0.5, 0.9])
    truth = np.quantile(y, [0.1, 0.5, 0.9], method="inverted_cdf")
    assert (got["low"] <= truth).all()
    assert (truth <= got["high"]).all()
    assert np.isfinite(got["low"][1:]).all()
    assert np.isfinite(got["high"][:2]).all()


# --- convergence -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ds",
    [half_run(), latin_hypercube(), grid([0, 1, 0, 0], a=range(4)), grid([0, 1], [2, 1], a=[0, 1])],
    ids=["half run", "sample", "finished", "errored"],
)
def test_convergence_ends_at_the_rate(ds):
    followed, now = analysis.convergence(ds, width=0.1), analysis.rate(ds, width=0.1)
    columns = ["n_run", "n_failed", "rate", "low", "high", "basis", "n_needed"]
    assert followed.iloc[-1][columns].tolist() == now.iloc[0][columns].tolist()
    assert followed["n_run"].is_monotonic_increasing
    assert set(followed["basis"].iloc[:-1]) <= {"in progress"}


# --- suggestions -----------------------------------------------------------------------------


@pytest.mark.parametrize("goal", ["boundary", "rate"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("dims", [2, 4])
def test_few_points_are_suggested_too(goal, n, dims):
    ds, _, _ = planted(dims, 0, 9) if dims == 2 else planted(dims, 0, 5)
    got = analysis.suggest(ds, n, goal=goal, explore=0)
    assert len(got.points) == n


def test_a_corner_that_errored_disagrees_with_nothing():
    status = np.ones((5, 5), int)
    status[1, 1] = 2
    failed = np.zeros((5, 5), bool)
    failed[4, 4] = True
    ds = grid(failed, status, a=np.arange(5.0), b=np.arange(5.0))
    points = analysis.suggest(ds, 5, explore=0).points
    assert (points["a"] >= 3).all()
    assert (points["b"] >= 3).all()
    status[3, 4] = status[4, 3] = status[3, 3] = 2
    ds = grid(failed, status, a=np.arange(5.0), b=np.arange(5.0))
    with pytest.raises(UnanswerableError, match=r"no two known neighbours disagree .* 4 runs err"):
        analysis.suggest(ds, 5, explore=0)


# --- reasons ---------------------------------------------------------------------------------


def test_many_categories_are_boxed_in_time():
    rng = np.random.default_rng(4)
    bad = rng.random((200, 200)) < np.where(np.arange(200) < 20, 0.9, 0.05)[:, None]
    ds = grid(bad, c=[f"c{k:03}" for k in range(200)], d=[f"d{k}" for k in range(200)])
    limits = analysis.regions(ds, max_boxes=1).boxes["limits"].iloc[0]
    assert limits == {"c": {f"c{k:03}" for k in range(20)}}


def test_replicates_alone_hold_nothing_up():
    ds = grid([0, 1, 0], rep=("replicate", range(3)))
    with pytest.raises(UnanswerableError, match="all parameters are replicates"):
        analysis.held_up(ds)


def test_every_column_with_nan_has_a_reason():
    ds, lhs = half_run(), latin_hypercube()
    for got in (analysis.rate(lhs), analysis.held_up(lhs), analysis.failure_rate(lhs)):
        assert "boundary is NaN" in got.attrs["note"]
    nothing = grid([0, 0], [0, 0], a=[0, 1])
    assert "n_needed is NaN where nothing" in analysis.rate(nothing).attrs["note"]
    few = grid([0, 1], [1, 0], a=[0, 1]).assign(y=("a", [1.0, 2.0]))
    assert "worst is NaN beyond" in analysis.distribution(few, "y").attrs["note"]
    assert "S2 of a parameter with itself" in analysis.importance(lhs).attrs["note"]
    report = analysis.explain(ds, int(np.flatnonzero(ds["status"].values.ravel())[0]))
    for _, row in report.iterrows():
        assert (row["turns_at"] is None) == ("turns_at" in row["note"])
    ds = grid([[0, 1], [0, 0]], mode=["x", "y"], a=[0, 1])
    assert (
        "below is NaN for values without"
        in analysis.safe_box(ds, {"mode": "y", "a": 0}).attrs["note"]
    )


def test_a_function_that_reduces_over_runs_is_refused():
    ds = xr.Dataset(
        {"y": (("a", "b"), [[1.0, 2.0], [3.0, 4.0]])}, coords={"a": [0, 1], "b": [0, 1]}
    )

    def always(outputs):
        return outputs["y"].max("b") < 3.5

    with pytest.raises(ValueError, match="'always' returned one value for all runs along 'b'"):
        failed_of(ds, [always])


@pytest.mark.parametrize("bad", [0, -1, True, "3", 2.5, None])
def test_what_is_no_count_is_refused(bad):
    ds = half_run()
    for call in (
        lambda: analysis.suggest(ds, bad),
        lambda: analysis.counterexample(ds, {"a": 0.0}, n=bad),
        lambda: analysis.convergence(ds, points=bad),
        lambda: analysis.regions(ds, max_boxes=bad),
        lambda: analysis.combinations(ds, order=bad),
        lambda: analysis.islands(ds, connectivity=bad),
        lambda: analysis.held_up(ds, bins=bad),
        lambda: analysis.distribution(ds, "y", points=bad),
    ):
        with pytest.raises(ValueError, match="must be a whole number, at least"):
            call()


def test_a_vector_is_named_whole_or_by_its_components():
    ds = sample([0, 0, 1, 0], a=[0.0, 1, 2, 3]).assign_coords(
        x0=(("sample", "k"), [[0.0, 1], [1, 1], [2, 2], [3, 0]])
    )
    whole = analysis.counterexample(ds, {"a": 1.0, "x0": [1, 1]})
    parts = analysis.counterexample(ds, {"a": 1.0, "x0[0]": 1.0, "x0[1]": 1.0})
    pd.testing.assert_frame_equal(whole, parts)
    with pytest.raises(ValueError, match="'x0' has 3 components; it has 2"):
        analysis.counterexample(ds, {"x0": [1, 1, 1]})
    with pytest.raises(ValueError, match="a = 'much' is no number"):
        analysis.counterexample(ds, {"a": "much"})
    with pytest.raises(TypeError, match="nominal is 3; give a mapping"):
        analysis.safe_box(ds, 3)

import json

import numpy as np
import pytest
import xarray as xr

from sweepkit.analysis import failure_interval, rate, refined_rate, suggest, volumes
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import cartpole, grid, sample


def as_runs(ds):
    """Runs of a grid along one dim, as stage 0."""
    names = list(ds["failed"].dims)
    flat = ds.stack(run=names).reset_index("run")
    flat["failed"] = ("run", flat["failed"].values)
    coords = {n: ("run", flat[n].values, dict(ds[n].attrs)) for n in names}
    out = xr.Dataset({"failed": ("run", flat["failed"].values)}, coords=coords)
    return out.assign_coords(stage=("run", np.zeros(out.sizes["run"], int)))


def refined(ds, fails, rounds, n, **options):
    """The same with so many rounds of suggestions run."""
    for stage in range(1, rounds + 1):
        points = suggest(ds, n, seed=stage, **options).points
        names = [c for c in points if c not in ("reason", "score")]
        failed = fails(**{name: points[name].to_numpy() for name in names})
        more = xr.Dataset(
            {"failed": ("run", failed)},
            coords={
                **{k: ("run", points[k].to_numpy(), dict(ds[k].attrs)) for k in names},
                "stage": ("run", np.full(len(points), stage)),
            },
        )
        ds = xr.concat([ds, more], dim="run")
    return ds


def planted(dims, seed, n):
    """A grid over the unit cube that fails in a ball, its volume, and the function."""
    rng = np.random.default_rng(seed)
    centre, radius = rng.uniform(0.35, 0.65, dims), rng.uniform(0.2, 0.3)

    def fails(**x):
        return sum((x[f"p{k}"] - centre[k]) ** 2 for k in range(dims)) < radius**2

    axes = {f"p{k}": np.linspace(0, 1, n) for k in range(dims)}
    mesh = dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    volume = np.pi * radius**2 if dims == 2 else 4 / 3 * np.pi * radius**3
    return grid(fails(**mesh), **axes), volume, fails


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("dims", "n"), [(2, 9), (3, 7)])
def test_volume_bounds_hold_the_truth_after_every_round(seed, dims, n):
    ds, truth, fails = planted(dims, seed, n)
    ds = as_runs(ds)
    before = refined_rate(ds).iloc[0]
    assert before["low"] <= truth <= before["high"]
    for _ in range(3):
        ds = refined(ds, fails, 1, 100)
        now = refined_rate(ds).iloc[0]
        assert now["low"] <= truth <= now["high"]
        assert now["undecided"] < before["undecided"]
        assert abs(now["rate"] - truth) <= now["undecided"]
        before = now


def test_plain_share_of_refined_runs_is_biased_and_volumes_repair_it():
    ds, truth, fails = planted(2, 5, 9)
    ds = refined(as_runs(ds), fails, 4, 200, explore=0)
    now = refined_rate(ds).iloc[0]
    assert abs(now["plain_rate"] - truth) > 0.1
    assert abs(now["rate"] - truth) < 0.02
    with pytest.raises(UnanswerableError, match="volumes"):
        rate(ds)
    weighted = rate(ds.assign_coords(volume=volumes(ds))).iloc[0]
    assert weighted["rate"] == pytest.approx(now["rate"])
    assert weighted["basis"] == "refined"
    assert volumes(ds).sum().item() == pytest.approx(1)


def test_volumes_of_a_plain_grid_are_trapezoid_weights():
    ds = grid(np.zeros((3, 2)), a=[0.0, 1.0, 4.0], b=[0.0, 1.0])
    np.testing.assert_allclose(volumes(ds), np.outer([0.5, 2, 1.5], [1, 1]) / 8)


def test_cells_whose_corners_disagree_are_split_and_a_share_is_unexplored():
    ds, _, _ = planted(2, 1, 9)
    got = suggest(ds, 40)
    reasons = got.points["reason"]
    assert reasons.str.startswith("corners disagree").sum() >= 30
    assert reasons.str.startswith("unexplored").sum() == 4
    assert got.grid.size == len(got.points) <= 40
    assert got.grid.dims == ("point",)
    assert not got.points.duplicated(["p0", "p1"]).any()


def test_whole_numbers_stay_whole_and_unordered_values_apart():
    n, mode = np.arange(0, 9, 4), ["x", "y"]
    failed = np.array([[0, 0], [0, 1], [1, 1]])
    got = suggest(grid(failed, n=n, mode=mode), 2, explore=0).points
    assert set(zip(got["n"], got["mode"], strict=True)) == {(6, "x"), (2, "y")}
    assert got["n"].dtype == np.int64
    with pytest.raises(UnanswerableError, match="no new point is worth running"):
        suggest(grid([0, 1], n=[1, 2]), 5, explore=0)


def test_many_dims_are_bisected_along_edges():
    axes = {f"p{k}": [0.0, 1.0, 2.0] for k in range(7)}
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    got = suggest(grid(mesh[0] + mesh[1] > 2.5, **axes), 50)
    assert "bisected" in got.method
    split = got.points[~got.points["reason"].str.startswith("unexplored")]
    assert len(split) > 30
    assert ((split[["p0", "p1"]] % 1 == 0.5).sum(axis=1) == 1).all()


def test_replicates_of_the_runs_are_crossed_with_the_points():
    got = suggest(cartpole(), 12)
    assert got.grid.sizes == {"point": len(got.points), "seed": 5}


def test_a_margin_leads_to_its_sign_change():
    rng = np.random.default_rng(4)
    x = rng.random((2, 150))
    y = x[0] + x[1] - 1.3
    ds = sample(y > 0, a=x[0], b=x[1]).drop_vars("failed").assign(y=("sample", y))
    ds = ds.assign_attrs(sweepkit=json.dumps({"requirements": [{"text": "y <= 0", "name": "y"}]}))
    got = suggest(ds, 30, explore=0)
    assert "Gaussian process" in got.method
    assert (np.abs(got.points["a"] + got.points["b"] - 1.3) < 0.15).mean() > 0.8


def test_mixed_parameters_are_led_by_trees():
    rng = np.random.default_rng(4)
    x, mode = rng.random(800), rng.choice(["fast", "slow"], 800)
    ds = sample(x > np.where(mode == "fast", 0.3, 0.8), a=x, mode=mode, n=rng.integers(0, 5, 800))
    got = suggest(ds, 40)
    assert "Extra-Trees" in got.method
    led = got.points[~got.points["reason"].str.startswith("unexplored")]
    limit = np.where(led["mode"] == "fast", 0.3, 0.8)
    assert (np.abs(led["a"] - limit) < 0.1).mean() > 0.8
    assert got.points["n"].dtype == np.int64


def test_more_independent_runs_narrow_the_rate():
    rng = np.random.default_rng(2)
    got = suggest(sample(rng.random(100) < 0.1, a=rng.random(100)), 50, goal="rate")
    assert len(got.points) == 50
    assert "width goes from" in got.points["reason"][0]
    ds, _, _ = planted(2, 1, 9)
    assert len(suggest(ds, 20, goal="rate").points) > 10


def test_boxes_are_confirmed_inside_and_just_outside():
    rng = np.random.default_rng(2)
    x = rng.random((3, 2000))
    ds = sample((x[0] > 0.6) & (x[1] < 0.5), a=x[0], b=x[1], c=x[2])
    got = suggest(ds, 40, goal="confirm").points
    inside = got["reason"].str.startswith("inside")
    assert inside.sum() == 20
    assert ((got["a"] > 0.59) & (got["b"] < 0.51))[inside].all()
    assert got["reason"][~inside].str.startswith("just outside").all()
    assert ((got["a"] < 0.61) | (got["b"] > 0.49))[~inside].all()


def test_replicates_go_where_the_rate_is_least_sure():
    failed = np.zeros((3, 8))
    failed[1, ::2] = 1
    ds = grid(failed, a=[1.0, 2.0, 3.0], rep=("replicate", np.arange(8)))
    got = suggest(ds, 6, goal="replicate")
    assert (got.points["a"] == 2.0).all()
    assert got.points["rep"].tolist() == list(range(8, 14))
    assert got.grid["rep"].role == "replicate"
    low, high = failure_interval(4, 8)
    assert f"{high - low:.2g} wide" in got.points["reason"][0]
    with pytest.raises(UnanswerableError, match="0 parameters have the role 'replicate'"):
        suggest(grid([0, 1], a=[0, 1]), 3, goal="replicate")


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
def test_times_are_split_to_the_nanosecond(kind):
    start = np.array(1_700_000_000_123_456_789 if kind[0] == "d" else 7, dtype=np.int64)
    when = (start + np.arange(6) * 3_600_000_000_001).astype(kind)
    change = when[2] + np.timedelta64(1_000_000_000_000, "ns")
    ds = grid((when[:, None] > change) & (np.arange(4) >= 1)[None, :], when=when, a=np.arange(4.0))
    for stage in (1, 2, 3):
        points = suggest(ds, 8, explore=0, seed=stage).points
        assert points["when"].dtype == kind
        assert not set(zip(points["when"], points["a"], strict=True)) & (
            set() if stage == 1 else set(zip(ds["when"].values, ds["a"].values, strict=True))
        )
        before = as_runs(ds) if stage == 1 else ds
        at = {name: points[name].to_numpy() for name in ("when", "a")}
        more = sample((at["when"] > change) & (at["a"] >= 1), **at).rename(sample="run")
        more = more.assign_coords(stage=("run", np.full(len(points), stage)))
        ds = xr.concat([before, more], dim="run")
        assert refined_rate(ds)["undecided"].item() < 0.9 / stage
    low, high = (ds["when"].values[ds["failed"].values == f] for f in (0, 1))
    assert high.min() - low[low <= change].max() < np.timedelta64(3_600_000_000_001 // 2, "ns")
    hour = "hour" in suggest(ds, 4, explore=0).points["reason"][0]
    assert hour or "splits" in suggest(ds, 4, explore=0).points["reason"][0]


def test_points_that_a_mask_leaves_out_are_not_suggested():
    axis = np.linspace(0, 1, 9)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    ds = grid(a > 0.45, np.where(a + b < 1.2, 1, 6), a=axis, b=axis)
    ds = ds.assign_attrs(sweepkit=json.dumps({"masks": [{"text": "a + b < 1.2"}]}))
    points = suggest(ds, 30).points
    assert (points["a"] + points["b"] < 1.2).all()
    row = refined_rate(ds).iloc[0]
    # The space is what the mask leaves: a trapezium, of which a > 0.45 is about half.
    assert row["low"] < 0.45 < row["high"]


def test_replicated_points_bound_the_space_by_those_that_agree():
    failed = np.random.default_rng(0).random((9, 12)) < np.linspace(0, 1, 9)[:, None]
    ds = grid(failed, a=np.linspace(0, 1, 9), rep=("replicate", np.arange(12)))
    row = refined_rate(ds).iloc[0]
    assert row["low"] <= 0.5 <= row["high"]


def test_what_tells_nothing_is_refused():
    for failed, status in ((0, 1), (1, 1), (0, 2), (0, 0)):
        ds = grid(np.full(4, failed), np.full(4, status), a=np.arange(4.0))
        with pytest.raises(UnanswerableError):
            suggest(ds, 3)
    with pytest.raises(ValueError, match="goal='nope'"):
        suggest(grid([0, 1], a=[0.0, 1.0]), 3, goal="nope")
    with pytest.raises(ValueError, match="at least 1"):
        suggest(grid([0, 1], a=[0.0, 1.0]), 0)
    with pytest.raises(UnanswerableError, match="no grid of ordered parameters"):
        refined_rate(sample([0, 1], a=[0.0, 1.0]))


@pytest.mark.parametrize("goal", ["boundary", "rate", "confirm"])
def test_ends_farther_apart_than_any_number_are_refused_and_nearer_ones_are_not(goal):
    most, at = np.finfo(np.float64).max, np.linspace(-1, 1, 12)
    y = np.linspace(0, 1, 12)
    fails = (at > 0.1)[:, None] & (y > 0.4)[None, :]
    far = grid(fails, a=at * most, y=y)
    with pytest.raises(
        UnanswerableError,
        match=r"'a' goes from -1\.798e\+308 to 1\.798e\+308, .* give it in a larger unit",
    ):
        suggest(far, 6, goal=goal)
    points = suggest(grid(fails, a=at * most / 2, y=y), 6, goal=goal).points
    assert (points["a"].abs() <= most / 2).all()


def test_absent_scikit_learn_is_named_with_its_extra(monkeypatch):
    import sys

    for name in [m for m in sys.modules if m.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    rng = np.random.default_rng(2)
    with pytest.raises(ImportError, match=r"sweepkit\[analysis\]"):
        suggest(sample(rng.random(50) < 0.5, a=rng.random(50)), 5)


def test_a_suggestion_shows_points_and_reasons_in_full():
    parameters = {f"a_rather_long_name_{k}": np.arange(3.0) for k in range(6)}
    fails = np.zeros((3,) * 6, dtype=bool)
    fails[2] = True
    found = suggest(grid(fails, **parameters), 12)
    shown = repr(found)
    assert all(name in shown for name in parameters)
    assert found.points["reason"].iloc[0] in shown
    assert "... of 12 points" in shown


def test_parameters_of_one_value_are_suggested_with_it():
    ds = cartpole().isel(delay=[1])
    got = suggest(ds, 4)
    assert set(got.points["delay"]) == {ds["delay"].item()}
    assert {"length", "delay"} <= {one.name for one in got.grid.parameters}
    alone = suggest(cartpole().isel(delay=1), 4)
    assert {"length", "delay"} <= {one.name for one in alone.grid.parameters}

import numpy as np
import pandas as pd
import pytest

from sweepkit.analysis import regions
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import DATA, cartpole, grid, sample


def tilted():
    frame = pd.read_csv(DATA / "prim_tilted.csv")
    columns = {name: frame[name].to_numpy() for name in "abcd"}
    return sample(frame["failed"].to_numpy(dtype=bool), **columns)


def two_boxes(seed):
    """Failures in two boxes of 6 parameters, 5 % of labels flipped."""
    rng = np.random.default_rng(seed)
    p = rng.random((6, 4000))
    failed = ((p[0] > 0.7) & (p[1] < 0.3)) | ((p[2] > 0.2) & (p[2] < 0.5) & (p[3] > 0.75))
    failed ^= rng.random(4000) < 0.05
    return sample(failed, **{f"p{i}": p[i] for i in range(6)})


def test_front_over_a_tilted_edge_is_at_least_as_good_as_a_peer():
    got = regions(tilted(), max_boxes=1)
    # EMA workbench 2.5.3, its best over peeling shares: 0.9239.
    assert got.front_area >= 0.924
    assert got.trajectory["front"].any()
    assert set(got.boxes["limits"].iloc[0]) == {"a", "b"}
    assert got.boxes["confirmed"].all()


def test_derived_coordinate_makes_a_tilted_edge_one_box():
    ds = tilted()
    got = regions(ds.assign_coords(ab=ds["a"] + ds["b"]))
    assert len(got.boxes) == 1
    box = got.boxes.iloc[0]
    assert box["density"] >= 0.95
    assert box["coverage"] >= 0.95
    assert box["held_out_density"] >= 0.95
    assert list(box["limits"]) == ["ab"]
    assert box["limits"]["ab"][0] == pytest.approx(1.45, abs=0.01)


@pytest.mark.parametrize("seed", [3, 71, 72, 73])
def test_two_noisy_boxes_are_found_without_a_spurious_parameter(seed):
    got = regions(two_boxes(seed)).boxes
    assert {tuple(sorted(limits)) for limits in got["limits"]} == {("p0", "p1"), ("p2", "p3")}
    assert got["confirmed"].all()
    limits = {name: limit for box in got["limits"] for name, limit in box.items()}
    assert limits["p0"][0] == pytest.approx(0.7, abs=0.02)
    assert limits["p1"][1] == pytest.approx(0.3, abs=0.02)
    assert limits["p2"] == pytest.approx((0.2, 0.5), abs=0.02)
    assert limits["p3"][0] == pytest.approx(0.75, abs=0.02)


def test_boxes_on_a_grid_are_limits_at_values_and_categories_are_sets():
    mode = np.array(["red", "green", "blue", "grey"])
    a = np.arange(30)
    failed = (a[:, None] >= 20) & np.isin(mode, ["green", "grey"])[None, :]
    ds = grid(np.repeat(failed[..., None], 5, axis=2), a=a, mode=mode, c=range(5))
    got = regions(ds)
    assert got.boxes["limits"].tolist() == [{"a": (20, 29), "mode": {"green", "grey"}}]
    assert got.boxes["text"].tolist() == ["a >= 20 and mode in {green, grey}"]
    assert got.boxes["basis"].tolist() == ["census"]


def test_own_limits_are_evaluated():
    got = regions(tilted())
    figures = got.evaluate({"a": (0.7, None), "b": (0.65, 1.0)})
    inside = pd.read_csv(DATA / "prim_tilted.csv").query("a >= 0.7 and 0.65 <= b <= 1")
    assert figures["n_run"] == len(inside)
    assert figures["density"] == inside["failed"].mean()
    assert figures["coverage"] == inside["failed"].sum() / 608
    assert figures["low"] < figures["density"] < figures["high"]
    nothing = got.evaluate({"a": (2.0, 3.0)})
    assert nothing["n_run"] == 0
    assert nothing["basis"] == "nothing has run"
    with pytest.raises(KeyError, match="no parameter 'zz'"):
        got.evaluate({"zz": (0, 1)})
    with pytest.raises(ValueError, match="neither"):
        got.evaluate({"a": 0.5})


def test_replicates_do_not_confirm_what_few_points_show():
    rng = np.random.default_rng(8)
    failed = np.repeat(rng.random(40) < 0.3, 50)
    x, y = rng.random(40), rng.random(40)
    ds = sample(
        failed,
        x=np.repeat(x, 50),
        y=np.repeat(y, 50),
        rep=("replicate", np.tile(np.arange(50), 40)),
    )
    assert not regions(ds).boxes["confirmed"].any()


def test_cartpole_fails_at_both_ends_of_length_and_with_the_delay():
    got = regions(cartpole()).boxes
    assert got["text"].tolist()[:4] == [
        "length >= 2", "length <= 0.05", "length <= 0.1 and delay >= 2",
        "length >= 1 and delay >= 4",
    ]  # fmt: skip
    assert got["density"].iloc[0] == 1
    assert set(got["basis"]) == {"replicates"}
    assert got["confirmed"].all()
    assert got["coverage"].sum() > 0.85


def test_limits_of_many_runs_are_exact_and_leave_no_slivers():
    x = np.random.default_rng(0).random((4, 120_000))
    failed = (x[0] > 0.65) & (x[1] < 0.3) | (x[2] > 0.85) & (x[3] > 0.5)
    got = regions(sample(failed, **{f"p{k}": v for k, v in enumerate(x)})).boxes
    assert len(got) == 2
    assert (got["density"] == 1).all()
    assert got["coverage"].sum() == pytest.approx(1)
    assert got["limits"][0]["p0"][0] == pytest.approx(0.65, abs=1e-4)  # a bin is 0.004 wide


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_not_confirmed(seed):
    rng = np.random.default_rng([seed, 50])
    ds = sample(rng.random(2000) < 0.2, **{f"p{k}": rng.random(2000) for k in range(6)})
    assert not regions(ds).boxes["confirmed"].any()


def test_too_little_is_refused():
    with pytest.raises(UnanswerableError, match="0 of 10 finished runs failed; at least 5"):
        regions(grid(np.zeros(10), a=range(10)))
    with pytest.raises(UnanswerableError, match="0 of 10 finished runs passed"):
        regions(grid(np.ones(10), a=range(10)))
    with pytest.raises(UnanswerableError, match="1 errored"):
        regions(grid([0], [2], a=[1]))


def test_refined_runs_are_left_out():
    ds = tilted()
    got = regions(ds.assign_coords(stage=("sample", np.arange(4000) % 2)))
    assert got.boxes["n_run"].max() <= 2000
    assert got.boxes.attrs["basis"].endswith("of stage 0, 2000 refined runs left out")


def test_held_out_coverage_is_of_all_failures_as_coverage_is():
    boxes = regions(two_boxes(1)).boxes
    assert len(boxes) > 1
    assert boxes["held_out_coverage"].sum() <= 1
    assert boxes["held_out_coverage"].values == pytest.approx(boxes["coverage"].values, abs=0.12)

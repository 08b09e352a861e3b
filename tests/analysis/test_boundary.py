import json
from itertools import product

import numpy as np
import pytest

from sweepkit.analysis import counterexample, explain, safe_box
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import DATA, cartpole, grid, sample

CASES = json.loads((DATA / "largest_box.json").read_text())["cases"]
PASSES = np.load(DATA / "largest_box.npz")


def boxed(passes):
    return grid(~passes, **{f"p{k}": np.arange(n) for k, n in enumerate(passes.shape)})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["grid"])
def test_largest_boxes_agree_with_brute_force(case):
    passes = PASSES[case["grid"]]
    got = safe_box(boxed(passes))
    assert got.attrs["exact"]
    assert got.attrs["volume"] == case["volume"]
    inside = passes[tuple(slice(a, b + 1) for a, b in got[["low", "high"]].values)]
    assert inside.all()
    assert inside.size == case["volume"]


@pytest.mark.parametrize("seed", range(5))
def test_box_around_a_nominal_point_agrees_with_trying_all(seed):
    rng = np.random.default_rng(seed)
    passes = rng.random((6, 5, 4)) > 0.2
    passes[3, 2, 1] = True
    best = 0
    spans = [
        [(a, b) for a in range(i + 1) for b in range(i + 1, n + 1)]
        for i, n in zip((3, 2, 1), passes.shape, strict=True)
    ]
    for box in product(*spans):
        inside = passes[tuple(slice(a, b) for a, b in box)]
        best = max(best, inside.size if inside.all() else 0)
    got = safe_box(boxed(passes), {"p0": 3, "p1": 2, "p2": 1})
    assert got.attrs["volume"] == best
    assert ((got["below"] >= 0) & (got["above"] >= 0)).all()


def test_a_search_that_gives_up_says_at_least():
    passes = PASSES["c"]
    got = safe_box(boxed(passes), max_boxes=3)
    assert not got.attrs["exact"]
    assert got.attrs["text"].startswith("at least")
    assert got.attrs["volume"] <= 96
    assert passes[tuple(slice(a, b + 1) for a, b in got[["low", "high"]].values)].all()


def test_unknown_runs_and_replicates_that_fail_stay_outside():
    status = np.ones((5, 2))
    status[4, 0] = 2
    failed = np.zeros((5, 2))
    failed[0, 1] = 1
    got = safe_box(grid(failed, status, a=range(5), rep=("replicate", range(2))))
    assert got.loc["a", ["low", "high"]].tolist() == [1, 3]


def test_unordered_values_are_kept_one_at_a_time():
    failed = np.array([[1, 0, 0, 1], [0, 0, 0, 0]])
    ds = grid(failed, mode=["x", "y"], a=range(4))
    assert safe_box(ds).loc["mode", "low"] == "y"
    got = safe_box(ds, {"mode": "x", "a": 2})
    assert got.loc["a", ["low", "high", "below", "above"]].tolist() == [1, 2, 1, 0]


def test_scattered_box_ends_at_failures():
    rng = np.random.default_rng(3)
    x = rng.random((2, 400))
    failed = (x[0] > 0.7) | (x[1] < 0.2)
    ds = sample(failed, a=x[0], b=x[1])
    got = safe_box(ds, {"a": 0.3, "b": 0.6})
    inside = (x[0] < got.loc["a", "high"]) & (x[1] > got.loc["b", "low"])
    assert not failed[inside].any()
    assert got.loc["a", "high"] == pytest.approx(0.7, abs=0.05)
    assert got.loc["b", "low"] == pytest.approx(0.2, abs=0.05)
    assert 0 < got.attrs["high"] < 0.15


def test_what_is_not_safe_is_refused():
    ds = grid([1, 0, 0], a=[0, 1, 2])
    with pytest.raises(UnanswerableError, match="nominal point did not pass"):
        safe_box(ds, {"a": 0})
    with pytest.raises(ValueError, match="no value of the grid; near"):
        safe_box(ds, {"a": 0.4})
    with pytest.raises(ValueError, match="nominal has no value for 'a'"):
        safe_box(ds, {})
    with pytest.raises(UnanswerableError, match="none of 2 runs is known to pass"):
        safe_box(grid([1, 0], [1, 2], a=[0, 1]))
    assert safe_box(grid([0], a=[5])).attrs["volume"] == 1
    assert safe_box(grid([0, 0], a=[0, 1])).attrs["share"] == 1


def test_nearest_failures_say_what_changes():
    failed = np.zeros((5, 5), bool)
    failed[4, 0] = failed[2, 4] = True
    ds = grid(failed, a=np.arange(5.0), b=np.arange(5.0))
    got = counterexample(ds, {"a": 2.0, "b": 1.0})
    assert got["distance"].tolist() == [0.75, 0.75]
    assert got["changes"].tolist() == ["b 1 -> 4", "a 2 -> 4, b 1 -> 0"]
    assert got["run"].tolist() == [14, 20]
    assert counterexample(ds, {"a": 2.0, "b": 4.0})["n_changed"][0] == 0
    with pytest.raises(UnanswerableError, match="none of 2 finished runs failed"):
        counterexample(grid([0, 0], a=[0, 1]), {"a": 0})
    with pytest.raises(KeyError, match="no parameter 'q'"):
        counterexample(ds, {"q": 0})


def test_counterexample_of_cartpole_is_a_point_once():
    nominal = {"length": 0.5, "masspole": 0.1, "force_mag": 10, "delay": 0}
    got = counterexample(cartpole(), nominal)
    assert not got.duplicated(["length", "masspole", "force_mag", "delay"]).any()
    assert (got["distance"].diff().dropna() >= 0).all()


def test_a_run_is_explained_by_what_turns_it():
    failed = np.zeros((5, 4), bool)
    failed[3:, 2:] = True
    ds = grid(failed, a=np.arange(5.0), b=np.arange(4.0))
    got = explain(ds, {"a": 4.0, "b": 2.0})
    assert got["turns_at"].tolist() == [2.0, 1.0]
    assert got["rate"].tolist() == [0.5, 0.4]
    assert got.attrs["outcome"] == "failed"
    assert got.attrs["nearest"] == "b 2 -> 1"
    assert "alone would turn it" in got.attrs["text"]
    assert explain(ds, 0)["turns_at"].isna().all()


def test_margins_and_errors_are_part_of_the_explanation():
    ds = grid([0, 0, 0], [1, 2, 0], a=[0, 1, 2]).drop_vars("failed")
    ds = ds.assign(y=("a", [5.0, np.nan, np.nan]), error=("a", ["", "ValueError: no", ""]))
    ds = ds.assign_attrs(sweepkit=json.dumps({"requirements": [{"text": "y < 3", "name": "y"}]}))
    assert explain(ds, 0).attrs["margins"] == {"y": -2.0}
    assert explain(ds, 1).attrs["error"] == "ValueError: no"
    assert explain(ds, 1).attrs["outcome"] == "errored"
    with pytest.raises(UnanswerableError, match="run 2 is pending"):
        explain(ds, 2)
    with pytest.raises(IndexError, match="not among 3 runs"):
        explain(ds, 7)
    with pytest.raises(KeyError, match="no run at"):
        explain(ds, {"a": 9})


def test_the_rate_of_a_value_is_that_of_all_its_runs_with_this_one():
    got = explain(grid([[True, False], [False, False]], a=[0, 1], b=[0, 1]), 0)
    assert got["rate"].tolist() == [0.5, 0.5]
    assert got["rate_n"].tolist() == [2, 2]

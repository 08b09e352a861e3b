import json

import numpy as np
import pytest

from sweepkit.analysis import failure_interval, robustness
from sweepkit.analysis.outcomes import UnanswerableError
from sweepkit.analysis.robustness import _pareto
from tests.analysis.planted import cartpole, grid, sample
from tests.waiting import counted

SCENARIOS = ("scenario", [1.0, 2.0, 3.0, 4.0])


def designs(y, **status):
    y = np.asarray(y, float)
    ds = grid(y < 0, gain=np.arange(len(y)), mass=SCENARIOS, **status)
    return ds.assign(y=(("gain", "mass"), y))


def test_summaries_agree_with_numbers_by_hand():
    y = [[4, 1, 2, 3], [5, 5, 5, -1]]
    got = robustness(designs(y), "y", tail=0.5, quantiles=[0.25])
    assert got["worst"].values.tolist() == [1, -1]
    assert got["cvar"].values.tolist() == [1.5, 2.0]
    assert got["value"].values[:, 0].tolist() == [1, -1]
    assert got["mean"].values.tolist() == [2.5, 3.5]
    assert got["pass_share"].values.tolist() == [1, 0.75]
    assert got["regret"].values.tolist() == [4, 4]
    assert got["distance"].values.tolist() == [1, 0]


def test_less_may_be_better():
    got = robustness(designs([[4, 1, 2, 3], [5, 5, 5, 6]]), "y", goal="min", quantiles=[0.1])
    assert got["worst"].values.tolist() == [4, 6]
    assert got["regret"].values.tolist() == [0, 4]


def test_the_margin_decides_by_default():
    ds = designs([[4, 1, 2, 3], [5, 5, 5, -1]]).drop_vars("failed")
    ds = ds.assign_attrs(sweepkit=json.dumps({"requirements": [{"text": "y > 0", "name": "y"}]}))
    got = robustness(ds)
    assert got["worst"].values.tolist() == [1, -1]
    assert got.attrs["of"] == "margin"


def test_pareto_front_agrees_with_brute_force():
    rng = np.random.default_rng(11)
    got = robustness(designs(rng.normal(size=(60, 4))), "y", criteria=("pass_share", "worst"))
    scores = np.stack([got["pass_share"].values, got["worst"].values], axis=1)
    wanted = [not any((o >= s).all() and (o > s).any() for o in scores) for s in scores]
    assert got["pareto"].values.tolist() == wanted


@pytest.mark.parametrize("n_criteria", [1, 2, 3, 4, 5])
def test_pareto_fronts_of_ties_infinities_and_nan_agree_with_brute_force(n_criteria):
    rng = np.random.default_rng(n_criteria)
    for most in (3, 50):
        scores = rng.integers(0, most, (300, n_criteria)).astype(float)
        scores[rng.random(scores.shape) < 0.02] = np.inf
        scores[rng.random(scores.shape) < 0.02] = -np.inf
        scores[rng.random(scores.shape) < 0.02] = np.nan
        wanted = [
            not np.isnan(s).any() and not any((o >= s).all() and (o > s).any() for o in scores)
            for s in scores
        ]
        assert _pareto(scores).tolist() == wanted
    assert _pareto(np.full((4, n_criteria), np.nan)).tolist() == [False] * 4


def test_a_front_of_all_designs_takes_no_square_of_their_number():
    shares = np.linspace(0, 1, 100_000)
    with counted() as calls:
        assert _pareto(np.stack([shares, 1 - shares], axis=1)).all()
        assert _pareto(np.stack([shares, 1 - shares, (7 * shares) % 1], axis=1)).all()
    assert len(calls) < 10 * len(shares)


def test_tail_mean_takes_part_of_a_run():
    got = robustness(designs([[1, 2, 3, 4]]), "y", tail=0.375)
    assert got["cvar"].item() == pytest.approx((1 + 2 * 0.5) / 1.5)


def test_designs_are_chosen_over_scenarios_and_replicates():
    ds = cartpole()
    for name in ("length", "masspole", "delay"):
        ds[name].attrs["role"] = "scenario"
    got = robustness(ds, "steps")
    assert got["worst"].dims == ("force_mag",)
    assert got["n_run"].values.tolist() == [480] * 4
    assert got.attrs["basis"].startswith("replicates")
    assert (got["regret"] >= 0).all()


def test_unshared_scenarios_have_no_regret_and_it_is_said():
    rng = np.random.default_rng(1)
    ds = sample(rng.random(40) < 0.2, gain=np.repeat([1, 2], 20), mass=("scenario", rng.random(40)))
    got = robustness(ds)
    assert np.isnan(got["regret"]).all()
    assert "do not share scenarios" in got.attrs["note"]
    low, high = failure_interval(int(ds["failed"][:20].sum()), 20)
    assert (got["low"].values[0], got["high"].values[0]) == pytest.approx((1 - high, 1 - low))


def test_errors_can_be_the_worst_of_all():
    ds = designs([[4, 1, 2, 3], [5, 5, 5, 6]])
    ds["status"][1, 3] = 2
    assert robustness(ds, "y")["worst"].values.tolist() == [1, 5]
    assert robustness(ds, "y", errors="fail")["worst"].values.tolist() == [1, -np.inf]


def test_all_pass_all_fail_and_nothing_known():
    got = robustness(designs(np.ones((2, 4))))
    assert np.isinf(got["distance"]).all()
    assert "no design fails" in got.attrs["note"]
    assert robustness(designs(-np.ones((2, 4))))["pass_share"].values.tolist() == [0, 0]
    with pytest.raises(UnanswerableError, match="none of 2 runs"):
        robustness(grid([0, 0], [2, 2], a=[0, 1]))
    with pytest.raises(UnanswerableError, match="nothing to choose"):
        robustness(grid([0, 0], mass=("scenario", [0, 1])))

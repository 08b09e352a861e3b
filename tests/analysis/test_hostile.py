"""What is no answer is refused by name, and what is asked too much is said."""

import numpy as np
import pytest

from sweepkit import analysis
from tests.analysis.planted import grid, sample

rng = np.random.default_rng(5)
SCATTERED = sample(rng.random(60) < 0.4, a=rng.random(60), b=rng.random(60))


def holed(value):
    a = SCATTERED["a"].values.copy()
    a[3] = value
    return SCATTERED.assign_coords(a=("sample", a, SCATTERED["a"].attrs))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_lie_nowhere_have_no_distances(value):
    ds = holed(value)
    for ask in (
        analysis.islands,
        lambda ds: analysis.counterexample(ds, {"a": 0.5, "b": 0.5}),
        lambda ds: analysis.explain(ds, 0),
        lambda ds: analysis.suggest(ds, 5),
        lambda ds: analysis.suggest(ds, 5, goal="rate"),
        lambda ds: analysis.suggest(ds, 5, goal="confirm"),
    ):
        with pytest.raises(analysis.UnanswerableError, match="'a' is NaN or infinite in 1 of 60"):
            ask(ds)
    found = analysis.robustness(ds)
    assert np.isnan(found["distance"]).all()
    assert "distance is NaN: 'a' is NaN or infinite" in found.attrs["note"]
    assert analysis.rate(ds).iloc[0]["n_run"] == 60


def test_one_scattered_run_is_an_island():
    alone = analysis.islands(sample([True], a=[0.5], b=[0.5]))
    assert alone["size"].values.tolist() == [1]


@pytest.mark.parametrize(
    ("ask", "error", "said"),
    [
        (lambda: analysis.failure_interval([1, 2], [3, 4, 5]), ValueError, "do not fit"),
        (lambda: analysis.anytime_interval(3, 2, 10), ValueError, "3 of 2 runs drawn failed"),
        (lambda: analysis.anytime_interval(1, 11, 10), ValueError, "of 10 declared"),
        (lambda: analysis.anytime_interval(1, 5, 10, n_unknown=6), ValueError, "6 are unknown"),
        (lambda: analysis.anytime_interval(1, 5, 10, n_unknown=-1), ValueError, "at least 0"),
        (lambda: analysis.anytime_interval(1, 5, np.nan), ValueError, "nan declared"),
        (lambda: analysis.suggest(SCATTERED, 10**7), ValueError, "at most 100,000 are suggested"),
        (lambda: analysis.robustness(SCATTERED, criteria=[]), ValueError, "criteria is empty"),
        (lambda: analysis.importance(SCATTERED, weights=3), TypeError, "weights is 3; give"),
        (lambda: analysis.regions(SCATTERED).evaluate("a > 3"), TypeError, "give a mapping"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(ask, error, said):
    with pytest.raises(error, match=said):
        ask()


def test_a_name_that_gave_way_is_told():
    ds = grid([0, 1, 0, 1], low=range(4)).assign(y=("low", np.arange(4.0)))
    said = "'low' is 'low_' here"
    assert said in analysis.rate(ds, by="low").attrs["note"]
    assert said in analysis.robustness(ds, "y").attrs["note"]
    assert said in analysis.distribution(ds, "y", by="low").attrs["note"]
    assert said in analysis.islands(ds).attrs["note"]
    assert "'run' is 'run_' here" in analysis.counterexample(
        grid([0, 1], run=[0, 1]), {"run": 0}
    ).attrs["note"]  # fmt: skip
    assert "here" not in analysis.rate(ds).attrs["note"]


def test_variance_is_known_and_bounds_that_are_not_have_a_reason():
    ds = grid([0, 1, 0, 0], [1, 1, 0, 1], a=range(4)).assign(y=("a", [1.0, 2.0, np.nan, 5.0]))
    assert analysis.importance(ds, "y")["variance"] == pytest.approx(np.var([1, 2, 5]))
    note = analysis.distribution(ds, "y", by="a").attrs["note"]
    for name in ("value", "low", "high", "share_low", "share_high"):
        assert f"{name} is NaN" in note

"""Costs of runs: declared, learnt, and how sure of it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweepkit as sk
from sweepkit.cost import Cost, Costs
from sweepkit.declared import declared_seconds

GRID = sk.grid(
    size=np.linspace(1, 10, 12), order=[1, 2, 3, 4], solver=["lu", "qr", "svd"], replicates=5
)
ALL = np.arange(GRID.size)


def truth(noise: float = 0.05, seed: int = 0) -> np.ndarray[Any, Any]:
    at = GRID.columns(GRID.index(ALL))
    factor = np.where(at["solver"] == "svd", 3.0, 1.0)
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal(GRID.size))
    return np.asarray(0.02 * at["size"] ** 1.5 * at["order"] ** 0.5 * factor * scatter)


def learnt(count: int, seed: int = 0, noise: float = 0.05) -> tuple[Costs, Any]:
    runs = np.random.default_rng(seed).permutation(GRID.size)[:count]
    seconds = truth(noise, seed)
    return Costs.of(GRID).after(runs, seconds[runs]), seconds


def test_nothing_is_known_before_anything_has_run() -> None:
    costs = Costs.of(GRID)
    assert not costs.known
    assert np.isnan(costs.expected(ALL)).all()
    assert np.isnan(costs.bound(ALL)).all()
    assert math.isnan(costs.total(ALL).seconds)


def test_costs_that_coordinates_explain_are_learnt_from_few_runs() -> None:
    costs, seconds = learnt(40)
    off = np.abs(costs.expected(ALL) / seconds - 1)
    assert np.median(off) < 0.1
    assert costs.varies(ALL)
    total = costs.total(ALL)
    assert abs(total.seconds - seconds.sum()) < total.error
    assert total.error < 0.1 * total.seconds


@pytest.mark.parametrize("noise", [0.05, 0.5])
@pytest.mark.parametrize("count", [10, 40, 300])
def test_about_95_percent_of_runs_stay_below_their_bound(count: int, noise: float) -> None:
    below = []
    for seed in range(10):
        costs, seconds = learnt(count, seed, noise)
        below.append((seconds < costs.bound(ALL)).mean())
    assert np.mean(below) > 0.85 if count == 10 else 0.9


def test_it_is_unsure_where_nothing_has_run() -> None:
    seconds = truth()
    near = np.flatnonzero(GRID.columns(GRID.index(ALL), ["size"])["size"] < 3)
    costs = Costs.of(GRID).after(near, seconds[near])
    ratio = costs.bound(ALL) / costs.expected(ALL)
    size = GRID.columns(GRID.index(ALL), ["size"])["size"]
    assert ratio[size > 9].mean() > ratio[size < 3].mean()


@given(cuts=st.lists(st.integers(1, 719), max_size=5))
def test_learning_in_parts_is_learning_at_once(cuts: list[int]) -> None:
    seconds = truth()
    whole = Costs.of(GRID).after(ALL, seconds)
    parts = Costs.of(GRID)
    for some in np.split(ALL, sorted(set(cuts))):
        parts = parts.after(some, seconds[some])
    np.testing.assert_allclose(parts.expected(ALL[:9]), whole.expected(ALL[:9]))


def test_costs_without_a_pattern_are_not_said_to_vary() -> None:
    rng = np.random.default_rng(0)
    seconds = 0.1 * np.exp(0.5 * rng.standard_normal(GRID.size))
    costs = Costs.of(GRID).after(ALL, seconds)
    assert np.std(np.log(costs.expected(ALL))) < 0.1
    assert costs.noise == pytest.approx(0.5, rel=0.1)


def test_a_grid_of_one_point_or_of_vectors_has_a_mean() -> None:
    for grid in (sk.grid(a=[1.0]), sk.grid(x=sk.values(np.eye(3), dims=("case", "state")))):
        costs = Costs.of(grid).after(np.zeros(5, dtype=np.int64), np.full(5, 2.0))
        assert costs.expected(np.arange(grid.size)) == pytest.approx(2.0, rel=0.3)


def test_values_without_a_spread_tell_nothing_and_warn_of_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    for values in ([1.0, np.inf], [-1e308, 1e308], [0.0, 5e-324]):
        costs = Costs.of(sk.grid(a=values, b=[1.0, 2.0]))
        costs = costs.after(np.arange(4), np.array([1.0, 2.0, 1.0, 2.0]))
        assert np.isfinite(costs.expected(np.arange(4))).all()
    assert not recwarn.list


def test_runs_that_are_next_to_free_do_not_raise_the_costs_of_the_others() -> None:
    grid = sk.grid(a=range(100))
    for free in ([0], [0, 50], [0, 1, 2]):
        seconds = np.full(100, 0.05)
        seconds[free] = 1e-6
        pilot = np.unique([*free, *range(0, 100, 7)])
        costs = Costs.of(grid).after(pilot, seconds[pilot])
        assert costs.total(np.arange(100)).seconds == pytest.approx(5, rel=0.25)
        if len(free) < 3:  # three in a row are a pattern
            assert (costs.bound(np.arange(10, 100)) < 0.3).all()


def test_costs_over_nine_decades_are_learnt() -> None:
    grid = sk.grid(decade=np.linspace(-6, 3, 28), other=range(10))
    at = grid.columns(grid.index(np.arange(grid.size)))
    seconds = 10 ** at["decade"] * (1 + at["other"] / 50)
    pilot = np.random.default_rng(0).permutation(grid.size)[:16]
    costs = Costs.of(grid).after(pilot, seconds[pilot])
    total = costs.total(np.arange(grid.size))
    assert total.seconds == pytest.approx(seconds.sum(), rel=0.35)
    assert abs(total.seconds - seconds.sum()) < total.error
    assert np.median(np.abs(np.log(costs.expected(np.arange(grid.size)) / seconds))) < 0.3


def test_of_many_runs_some_are_kept_whatever_the_batches() -> None:
    runs = np.tile(ALL, 8)
    seconds = np.tile(truth(), 8)
    whole = Costs.of(GRID).after(runs, seconds)
    parts = Costs.of(GRID)
    for at in range(0, len(runs), 77):
        parts = parts.after(runs[at : at + 77], seconds[at : at + 77])
    np.testing.assert_array_equal(parts.kept, whole.kept)
    assert len(whole.kept) <= 1024
    assert whole.count == len(runs)


# --- declared ---


def test_a_declared_number_or_function_is_known_at_once() -> None:
    assert Costs.of(GRID, 3.0).expected(ALL) == pytest.approx(3.0, rel=0.1)
    costs = Costs.of(GRID, lambda size: size / 10)
    size = GRID.columns(GRID.index(ALL), ["size"])["size"]
    assert costs.expected(ALL) == pytest.approx(size / 10, rel=0.1)
    assert costs.varies(ALL)


def test_what_runs_take_corrects_what_was_declared_by_a_factor() -> None:
    costs = Costs.of(GRID, lambda size: size / 10)
    size = GRID.columns(GRID.index(ALL), ["size"])["size"]
    costs = costs.after(ALL[:40], size[:40] / 5)
    assert costs.expected(ALL) == pytest.approx(size / 5, rel=0.1)


@pytest.mark.parametrize(
    "cost",
    [
        lambda solver, order: {"lu": 1.0, "qr": 2.0, "svd": 3.0}[solver] * order,
        lambda solver, order: order * (1.0 if solver == "lu" else 2.0 if solver == "qr" else 3.0),
        lambda **point: point["order"] * (1 + ["lu", "qr", "svd"].index(point["solver"])),
    ],
)
def test_a_function_may_take_single_values_only(cost: Any) -> None:
    at = GRID.columns(GRID.index(ALL), ["solver", "order"])
    rank = np.array([["lu", "qr", "svd"].index(one) for one in at["solver"]]) + 1
    np.testing.assert_array_equal(declared_seconds(cost, GRID, ALL), at["order"] * rank)


def test_a_function_is_given_arrays_if_that_gives_the_same() -> None:
    shapes = []

    def cost(size: Any) -> Any:
        shapes.append(np.shape(size))
        return size * 2

    declared_seconds(cost, GRID, ALL)
    assert (GRID.size,) in shapes
    assert len(shapes) < 20


@pytest.mark.parametrize(
    ("cost", "error", "match"),
    [
        (0, ValueError, "cost is 0; give the seconds"),
        (-1.0, ValueError, "cost is -1.0; give the seconds"),
        ("fast", ValueError, "cost is 'fast'; give the seconds"),
        (True, ValueError, "cost is True"),
        (lambda height: 1.0, TypeError, "cost needs 'height', which is no parameter"),
        (lambda size: -size, ValueError, r"cost gave -1.0 s for the run at size=1.0"),
        (lambda size: math.nan, ValueError, "cost gave nan s"),
        (lambda size: "long", TypeError, "cost gave 'long' for the run at size=1.0; a cost is"),
        (lambda size: None, TypeError, "cost gave None for the run at size=1.0"),
        (lambda size: [1.0, 2.0], TypeError, r"cost gave \[1.0, 2.0\] for the run at"),
        (
            lambda order: 1 / (order - 3),
            ValueError,
            "cost raised ZeroDivisionError: .*, for the run at order=3",
        ),
        (
            lambda order: {1: 1.0, 2: 1.0, 3: 1.0}[order],
            ValueError,
            "cost raised KeyError: 4, for the run at order=4; give a function",
        ),
        (lambda order: math.nan if order == 3 else 1.0, ValueError, "nan s for the run at order=3"),
        (1e300, ValueError, "cost is 1e.300; give the seconds .* at most 1e.10"),
        (lambda size: 10**400, TypeError, "cost gave 1000"),
    ],
)
def test_a_cost_that_does_not_fit_is_refused_when_it_is_declared(
    cost: Any, error: type[Exception], match: str
) -> None:
    def simulate(size: float, order: int, solver: str) -> float:
        return 1.0

    with pytest.raises(error, match=match):
        sk.Sweep(simulate, GRID, cost=cost)


# --- an axis of which only the beginning has run ---

AXIS = sk.grid(a=[float(i) for i in range(112)])
TRUE = {
    "constant": lambda a: 0.2 + 0 * a,
    "linear": lambda a: 0.02 * (a + 1),
    "exponential": lambda a: 0.2 * np.exp(a / 37),
}


def begun(shape: str, declared: Any, count: int) -> tuple[Costs, Any, Any]:
    """What is known of an axis once its first runs have finished, the other runs, their sum."""
    scatter = np.exp(0.02 * np.random.default_rng(count).standard_normal(AXIS.size))
    seconds = TRUE[shape](np.arange(float(AXIS.size))) * scatter
    costs = Costs.of(AXIS, declared).after(np.arange(count), seconds[:count])
    return costs, np.arange(count, AXIS.size), seconds[count:].sum()


@pytest.mark.parametrize("declared", [None, 0.0002, 0.2, 200.0])
@pytest.mark.parametrize("shape", sorted(TRUE))
def test_a_range_holds_the_truth_however_wrong_the_declared_level(
    shape: str, declared: float | None
) -> None:
    for count in (4, 5, 6, 8, 12, 20, 40):
        costs, rest, true = begun(shape, declared, count)
        total = costs.total(rest)
        assert total.seconds / total.factor < true < total.seconds * total.factor


TABLE = sk.grid(a=[float(i) for i in range(10)], b=sk.scenario([1.0, 2.0, 3.0]), replicates=6)


@pytest.mark.parametrize("declared", [None, 1.0])
@pytest.mark.parametrize("shape", ["equal", "scatter", "tenfold", "thirtyfold"])
def test_a_range_of_few_runs_holds_the_truth(shape: str, declared: float | None) -> None:
    a = TABLE.index(np.arange(TABLE.size))["a"] / 9
    logs = {"tenfold": math.log(10) * a, "thirtyfold": math.log(30) * a}.get(shape, 0 * a)
    scatter = {"equal": 0.05, "scatter": 0.8}.get(shape, 0.1)
    for count in (1, 2, 3):
        inside = 0
        for seed in range(40):
            rng = np.random.default_rng((seed, count))
            level = (0.2, 1.0, 5.0)[seed % 3]
            seconds = level * np.exp(logs + scatter * rng.standard_normal(TABLE.size))
            order = rng.permutation(TABLE.size)
            done, rest = order[:count], np.sort(order[count:])
            total = Costs.of(TABLE, declared).after(done, seconds[done]).total(rest)
            true = seconds[rest].sum()
            inside += total.seconds / total.factor < true < total.seconds * total.factor
        assert inside >= 33, (count, inside)


@pytest.mark.parametrize("declared", [None, 0.0002, 0.2, 200.0])
def test_more_runs_make_a_total_no_worse(declared: float | None) -> None:
    for shape in TRUE:
        off = []
        for count in (4, 8, 12, 20, 40):
            costs, rest, true = begun(shape, declared, count)
            off.append(abs(math.log(costs.total(rest).seconds / true)))
        assert all(later < before + 0.1 for before, later in pairwise(off))
        assert shape != "constant" or max(off) < 0.1


@pytest.mark.parametrize("wrong", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("shape", sorted(TRUE))
def test_a_declared_shape_holds_beyond_what_has_run_at_the_level_measured(
    shape: str, wrong: float
) -> None:
    for count in (1, 4, 40):
        costs, rest, true = begun(shape, lambda a: wrong * TRUE[shape](a), count)
        total = costs.total(rest)
        assert total.seconds == pytest.approx(true, rel=0.15)
        assert total.seconds / total.factor < true < total.seconds * total.factor


@pytest.mark.parametrize("declared", [None, 200.0])
def test_beyond_the_values_seen_costs_stay_and_doubt_grows(declared: float | None) -> None:
    costs, rest, _ = begun("exponential", declared, 40)
    seen = costs.expected(np.arange(40))
    assert (costs.expected(rest) <= 1.001 * seen.max()).all()
    doubt = costs.bound(rest) / costs.expected(rest)
    assert (np.diff(doubt) >= -1e-9).all()
    assert doubt[-1] > 2 * doubt[0]


@pytest.mark.parametrize("shape", sorted(TRUE))
def test_values_seen_on_both_sides_are_no_beyond(shape: str) -> None:
    some = np.arange(0, 112, 3)
    seconds = TRUE[shape](np.arange(112.0))
    total = Costs.of(AXIS, 50.0).after(some, seconds[some]).total(np.arange(112))
    assert total.seconds == pytest.approx(seconds.sum(), rel=0.3)
    assert total.factor < 1.5


def test_remaining_time_of_runs_that_scatter_is_never_nothing() -> None:
    expected, low, high = Cost().after(np.array([0.1, 5.0])).remaining(100, 2)
    assert 0 < low < expected < high


def test_remaining_time_of_equal_runs_is_a_narrow_range() -> None:
    cost = Cost().after(np.full(50, 0.2))
    expected, low, high = cost.remaining(100, 2)
    assert expected == pytest.approx(10)
    assert low == pytest.approx(10)
    assert high < 10.5

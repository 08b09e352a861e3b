from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sweepkit as sk
from sweepkit.grid import Grid
from sweepkit.streams import run_keys

Sampler = Callable[..., Grid]
BOTH = pytest.mark.parametrize("sampler", [sk.latin_hypercube, sk.sobol])


def columns(grid: Grid) -> dict[str, list[Any]]:
    return {name: grid[name].values.tolist() for name in grid}


@BOTH
def test_mixed_domains_are_drawn_along_one_dim(sampler: Sampler) -> None:
    pid, lqr = {"gain": 1.0}, len
    grid = sampler(
        {
            "mass": sk.scenario((0.1, 2.0), units="kg"),
            "delay": range(0, 10, 2),
            "law": {"pid": pid, "lqr": lqr},
            "surface": ["ice", "sand", "road"],
            "soft": [True, False],
            "wind": stats.norm(0, 3),
        },
        size=64,
    )
    assert grid.sizes == {"sample": 64}
    assert (grid["mass"].role, grid["mass"].units) == ("scenario", "kg")
    assert np.all((grid["mass"].values >= 0.1) & (grid["mass"].values < 2.0))
    assert set(grid["delay"].values.tolist()) == {0, 2, 4, 6, 8}
    assert grid["delay"].kind == "number"
    assert grid["delay"].values.dtype == np.int64
    assert set(grid["surface"].values) == {"ice", "sand", "road"}
    assert grid["soft"].values.dtype == bool
    at = np.arange(64)
    expected = [{"pid": pid, "lqr": lqr}[label] for label in grid["law"].values]
    assert list(grid["law"].handed(at)) == expected
    assert abs(np.std(grid["wind"].values) - 3) < 0.7


@BOTH
def test_parameters_may_bear_the_names_of_arguments(sampler: Sampler) -> None:
    names = ["seed", "size", "dim", "batches", "domains"]
    assert sampler(dict.fromkeys(names, (0, 1)), size=4, seed=3).names == tuple(names)
    assert sampler(domains=(0, 1), size=4).names == ("domains",)


@BOTH
def test_the_same_seed_gives_the_same_points_and_another_others(sampler: Sampler) -> None:
    def drawn(seed: int) -> dict[str, list[Any]]:
        return columns(sampler(a=(0, 1), b=range(100), size=32, seed=seed))

    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)
    assert columns(sampler(a=(0, 1), b=range(100), size=32)) == drawn(0)


@BOTH
def test_samples_are_crossed_with_other_parameters(sampler: Sampler) -> None:
    points = sampler({"a": (0, 1)}, size=256, dim="draw")
    assert sk.grid(points, gain=[1.0, 2.0], replicates=3).sizes == {
        "draw": 256,
        "gain": 2,
        "replicate": 3,
    }


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(0, 60), st.integers(0, 2**32))
def test_a_longer_sobol_set_begins_with_the_shorter_one(size: int, more: int, seed: int) -> None:
    def drawn(n: int) -> Grid:
        return sk.sobol(a=(0, 1), b=range(1000), c=stats.norm(), size=n, seed=seed)

    short, long = drawn(size), drawn(size + more)
    assert long.size == size + more
    for name in short:
        assert long[name].values[:size].tolist() == short[name].values.tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(1, 3), st.integers(0, 3), st.integers(0, 2**32))
def test_more_batches_begin_with_those_of_fewer(
    size: int, batches: int, more: int, seed: int
) -> None:
    def drawn(n: int) -> Grid:
        return sk.latin_hypercube(a=(0, 1), b=(5, 6), size=size, seed=seed, batches=n)

    short, long = drawn(batches), drawn(batches + more)
    assert long.size == size * (batches + more)
    for name in short:
        assert long[name].values[: short.size].tolist() == short[name].values.tolist()


def test_extended_sets_keep_the_keys_of_their_points() -> None:
    short, long = (sk.sobol(a=(0, 1), n=range(99), size=n) for n in (20, 50))
    at = np.arange(20)
    assert run_keys(short, {"sample": at}).tolist() == run_keys(long, {"sample": at}).tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 2**32))
def test_each_batch_of_a_latin_hypercube_hits_each_stratum_once(
    size: int, batches: int, seed: int
) -> None:
    grid = sk.latin_hypercube(a=(10, 20), size=size, seed=seed, batches=batches)
    strata = np.floor((grid["a"].values - 10) / 10 * size).reshape(batches, size)
    assert np.all(np.sort(strata, axis=1) == np.arange(size))


def test_levels_are_drawn_evenly() -> None:
    drawn = sk.latin_hypercube(n=range(1, 9), x=(0, 1), size=256)["n"].values
    assert np.unique(drawn, return_counts=True)[1].tolist() == [32] * 8


def test_sobol_points_cover_the_square_better_than_chance() -> None:
    grid = sk.sobol(a=(0, 1), b=(0, 1), size=256)
    cells = np.floor(np.stack([grid["a"].values, grid["b"].values]) * 16).astype(int)
    assert len(np.unique(cells, axis=1).T) == 256  # a (0, 8, 2)-net in base 2


def test_a_huge_range_is_drawn_from_without_being_listed() -> None:
    drawn = sk.sobol(n=range(-(10**12), 10**12, 10), size=64)["n"].values
    assert drawn.dtype == np.int64
    assert np.all(drawn % 10 == 0)
    assert drawn.min() < -(10**11)
    assert drawn.max() > 10**11


@pytest.mark.parametrize(
    ("distribution", "dtype"),
    [
        (stats.norm(2, 0.1), "float64"),
        (stats.loguniform(1e-3, 1), "float64"),
        (stats.truncnorm(-1, 1), "float64"),
        (stats.randint(0, 10**6), "int64"),
        (stats.poisson(10**6), "int64"),
        (stats.Normal(mu=2, sigma=0.1), "float64"),
    ],
)
def test_scipy_distributions_are_domains(distribution: Any, dtype: str) -> None:
    drawn = sk.sobol(x=distribution, size=512)["x"].values
    assert drawn.dtype == np.dtype(dtype)
    assert np.isfinite(drawn).all()
    if dtype == "float64":
        assert stats.kstest(drawn, distribution.cdf).pvalue > 0.01


def test_points_that_are_close_by_chance_are_no_near_misses() -> None:
    assert sk.sobol(a=(1e9, 1e9 + 1e-3), size=64).size == 64
    with pytest.raises(ValueError, match="differ by rounding alone"):
        sk.grid(a=np.sort(sk.sobol(a=(1e9, 1e9 + 1e-3), size=64)["a"].values))


SMALL = "the domains of {} hold {} points in all, but {} are to be drawn; draw fewer"


@BOTH
@pytest.mark.parametrize(
    ("domains", "arguments", "error", "text"),
    [
        ({"n": range(3)}, {"size": 10}, ValueError, SMALL.format("'n'", 3, 10)),
        (
            {"n": range(3), "m": ["x", "y"]},
            {"size": 10},
            ValueError,
            SMALL.format("'n', 'm'", 6, 10),
        ),
        (
            {"n": range(20), "m": range(20)},
            {"size": 256},
            ValueError,
            r"of the 256 points along dim 'sample' repeat.*400 points some were drawn twice: draw",
        ),
        ({"n": (0, 1)}, {"size": 0}, ValueError, "size is 0; give a whole number of at least 1"),
        ({"n": (0, 1)}, {"size": True}, ValueError, "size is True; give a whole number"),
        ({"n": (0, 1)}, {"size": 1.5}, ValueError, "size is 1.5; give a whole number"),
        ({"n": (0, 1)}, {"size": 4, "seed": -1}, ValueError, "seed is -1; .* at least 0"),
        ({"n": (0, 1)}, {"size": 4, "seed": None}, ValueError, "seed is None; give a whole"),
        ({"n": (1, 0)}, {"size": 4}, ValueError, r"range \(1, 0\) of parameter 'n' is empty or"),
        ({"n": (1, 1)}, {"size": 4}, ValueError, r"range \(1, 1\) of parameter 'n' is empty"),
        ({"n": (0, np.inf)}, {"size": 4}, ValueError, r"range \(0, inf\) of parameter 'n'"),
        ({"n": (0, np.nan)}, {"size": 4}, ValueError, r"range \(0, nan\) of parameter 'n'"),
        ({"n": (-1e308, 1e308)}, {"size": 4}, ValueError, r"range \(-1e\+308, 1e\+308\)"),
        ({"n": 3}, {"size": 4}, TypeError, r"domain 3 of parameter 'n' cannot be drawn from; giv"),
        ({"n": "abc"}, {"size": 4}, TypeError, "domain 'abc' of parameter 'n' cannot be drawn"),
        ({"n": None}, {"size": 4}, TypeError, "domain None of parameter 'n' cannot be drawn"),
        ({"n": []}, {"size": 4}, ValueError, "parameter 'n' has no values"),
        ({"n": range(0)}, {"size": 4}, ValueError, "parameter 'n' has no values"),
        ({"n": [1, 1]}, {"size": 2}, ValueError, "value 1 of parameter 'n' is given twice"),
        ({"n": [1, "a"]}, {"size": 2}, TypeError, "'n' are of mixed types"),
        ({"n": {1, 2}}, {"size": 2}, TypeError, "'n' are a set, which has no order"),
        ({}, {"size": 4}, ValueError, "no parameters are given to be sampled"),
        (None, {"size": 4}, ValueError, "no parameters are given to be sampled"),
        ([("a", (0, 1))], {"size": 4}, TypeError, "is a list; give a mapping from names"),
        ({"n": (0, 1)}, {"size": 4, "n": (0, 1)}, ValueError, "'n' is given in the mapping and"),
        ({"sample": (0, 1)}, {"size": 4}, ValueError, "dim 'sample' has the name of a parameter"),
        ({"n": (0, 1)}, {"size": 4, "dim": "a b"}, ValueError, "dim name 'a b' is no identifier"),
        ({"a b": (0, 1)}, {"size": 4}, ValueError, "parameter name 'a b' is no identifier"),
        (
            {"n": sk.values((0, 1), dims="q")},
            {"size": 4},
            ValueError,
            "parameter 'n' is sampled and cannot have dims of its own",
        ),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    sampler: Sampler,
    domains: Any,
    arguments: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        sampler(domains, **arguments)


def test_batches_are_checked() -> None:
    with pytest.raises(ValueError, match="batches is 0; give a whole number of at least 1"):
        sk.latin_hypercube(a=(0, 1), size=4, batches=0)

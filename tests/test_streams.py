from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sweepkit as sk
from sweepkit.grid import Grid
from sweepkit.parameters import Parameter, parameter
from sweepkit.streams import generators, run_keys, seeds

ROOT = Path(__file__).parents[1]

Draws = dict[tuple[Any, ...], tuple[int, float]]


def draws(
    grid: Grid,
    *,
    entropy: int = 0,
    streams: str = "independent",
    was: dict[str, Parameter] | None = None,
    runs: Any = None,
) -> Draws:
    """Seed and first number of each run by its point, replicates included."""
    runs = np.arange(grid.size) if runs is None else np.asarray(runs)
    index = grid.index(runs)
    keys = run_keys(grid, index, streams=streams, was=was)
    columns = grid.columns(index)
    names = sorted(grid)
    points = zip(*(columns[name].tolist() for name in names), strict=True)
    numbers = [rng.random() for rng in generators(keys, entropy)]
    return dict(zip(points, zip(seeds(keys, entropy), numbers, strict=True), strict=True))


GRID = sk.grid(gain=[1.0, 2.0, 3.0], mass=sk.scenario([0.1, 0.5]), replicates=4)

# --- the same numbers whatever is around a run ----------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(0, GRID.size - 1), min_size=1, max_size=30))
def test_a_run_draws_the_same_in_any_batch(runs: list[int]) -> None:
    alone = draws(GRID)
    together = draws(GRID, runs=runs)
    assert {point: alone[point] for point in together} == together


def test_a_run_draws_the_same_after_growth_and_reordering() -> None:
    grown = sk.grid(mass=sk.scenario([0.7, 0.5, 0.3, 0.1]), gain=[3.0, 0.5, 1.0, 2.0], replicates=9)
    before, after = draws(GRID), draws(grown)
    assert {point: after[point] for point in before} == before


def test_a_run_draws_the_same_whatever_the_dtype_of_its_axis() -> None:
    of_ints, of_floats = sk.grid(n=[1, 2], replicates=2), sk.grid(n=[1.0, 2.0, 2.5], replicates=2)
    before, after = draws(of_ints), draws(of_floats)
    assert {point: after[point] for point in before} == before


def test_units_roles_labels_objects_and_masks_leave_the_numbers() -> None:
    one = sk.grid(a=[1, 2], law={"p": 1, "q": 2})
    other = sk.grid(a=sk.scenario([1, 2], units="m"), law={"p": len, "q": print}).where("a > 1")
    assert draws(one) == draws(other)


def test_a_run_draws_the_same_in_a_new_process_under_another_hash_seed() -> None:
    code = (
        "import numpy as np, sweepkit as sk\n"
        "from sweepkit.streams import generators, run_keys, seeds\n"
        "grid = sk.grid(a=['x', 'y'], b=[0.1, 2], c=[True], replicates=2)\n"
        "keys = run_keys(grid, grid.index(np.arange(grid.size)))\n"
        "print(list(seeds(keys, 7)), [rng.integers(2**62) for rng in generators(keys, 7)])\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
    assert printed != {""}


KNOWN_SEEDS = [1064453874, 450690738, 3052133810, 3255534666]
KNOWN_INTEGERS = [2149375588, 3466042, 1313518856, 2784503987]


def test_known_seeds_stay_what_they_are() -> None:
    """Published results rest on them."""
    grid = sk.grid(a=[1, 0.5], law=["pid"], replicates=2)
    keys = run_keys(grid, grid.index(np.arange(grid.size)))
    assert list(seeds(keys, 0)) == KNOWN_SEEDS
    assert [rng.integers(2**32) for rng in generators(keys, 0)] == KNOWN_INTEGERS


# --- growth by a parameter -----------------------------------------------------------------------


def test_replicate_0_draws_what_the_point_drew_without_replicates() -> None:
    without, replicated = draws(sk.grid(a=[1, 2])), draws(sk.grid(a=[1, 2], replicates=3))
    assert {(a,): drawn for (a, replicate), drawn in replicated.items() if not replicate} == without
    assert len(set(replicated.values())) == 6


def test_replicate_0_draws_the_same_wherever_it_stands() -> None:
    shuffled = sk.grid(a=[1, 2], replicate=sk.values([2, 0, 1], role="replicate"))
    assert draws(shuffled) == draws(sk.grid(a=[1, 2], replicates=3))
    listed = sk.paired({"a": [2, 1], "replicate": sk.values([2, 0], role="replicate")})
    assert draws(listed).items() <= draws(shuffled).items()


def test_a_design_parameter_called_replicate_is_one_like_any_other() -> None:
    chosen = draws(sk.grid(a=[1], replicate=[0, 1]))
    assert chosen[(1, 0)] != draws(sk.grid(a=[1]))[(1,)]


def test_a_parameter_that_joined_takes_no_part_at_the_value_that_finished_runs_had() -> None:
    before = draws(sk.grid(a=[1, 2]))
    was = {"drag": parameter("drag", [0.0])}
    after = draws(sk.grid(a=[1, 2], drag=[0.0, 0.1]), was=was)
    assert {(a,): drawn for (a, drag), drawn in after.items() if drag == 0.0} == before
    assert len(set(after.values())) == 4


def test_a_joined_vector_and_label_take_no_part_at_the_value_that_was() -> None:
    x0 = sk.values([[0.0, 0.0], [1.0, 0.0]], dims=("case", "state"))
    grid = sk.grid(a=[1, 2], x0=x0, law={"pid": 1, "lqr": 2})
    was = {"x0": grid["x0"].take(np.array([0])), "law": grid["law"].take(np.array([1]))}
    index = grid.index(np.arange(grid.size))
    keys = run_keys(grid, index, was=was)
    at = (index["case"] == 0) & (index["law"] == 1)
    plain = sk.grid(a=[1, 2])
    assert keys[at].tolist() == run_keys(plain, plain.index(np.arange(2))).tolist()
    assert len(np.unique(keys, axis=0)) == grid.size


# --- common random numbers -----------------------------------------------------------------------


def test_with_common_streams_designs_are_compared_on_the_same_draws() -> None:
    by_world: dict[tuple[Any, ...], set[Any]] = {}
    for (_, mass, replicate), drawn in draws(GRID, streams="common").items():
        by_world.setdefault((mass, replicate), set()).add(drawn)
    assert all(len(drawn) == 1 for drawn in by_world.values())
    assert len(set().union(*by_world.values())) == 2 * 4


def test_with_common_streams_growth_in_designs_and_scenarios_changes_nothing() -> None:
    grown = sk.grid(GRID, other=[1, 2], wind=sk.scenario([0.0, 1.0]))
    was = {"wind": parameter("wind", sk.scenario([0.0]))}
    after = draws(grown, streams="common", was=was)
    names = sorted(grown)
    worlds = {
        (p["gain"], p["mass"], p["replicate"]): drawn
        for p, drawn in ((dict(zip(names, point, strict=True)), d) for point, d in after.items())
        if p["wind"] == 0.0
    }
    assert worlds == draws(GRID, streams="common")


def test_with_independent_streams_no_two_runs_share_a_draw() -> None:
    assert len(set(draws(GRID).values())) == GRID.size


# --- entropy and quality -------------------------------------------------------------------------


def test_other_entropy_gives_other_numbers() -> None:
    found = [draws(GRID, entropy=entropy) for entropy in (0, 1, 2**100)]
    for a, b in itertools.combinations(found, 2):
        assert not set(a.values()) & set(b.values())


def test_seeds_are_python_ints_of_32_bits() -> None:
    grid = sk.grid(a=range(2000))
    found = list(seeds(run_keys(grid, grid.index(np.arange(2000))), 0))
    assert {type(seed) for seed in found} == {int}
    assert min(found) >= 0
    assert 2**31 < max(found) < 2**32
    np.random.RandomState(max(found))


def test_the_seed_and_the_generator_of_a_run_are_unrelated() -> None:
    grid = sk.grid(a=range(2000))
    keys = run_keys(grid, grid.index(np.arange(2000)))
    drawn = np.array([rng.random() for rng in generators(keys, 0)])
    from_seed = [np.random.default_rng(seed).random() for seed in seeds(keys, 0)]
    assert abs(stats.pearsonr(drawn, np.array(list(seeds(keys, 0))))[0]) < 0.1
    assert abs(stats.pearsonr(drawn, from_seed)[0]) < 0.1


@pytest.fixture(scope="module")
def first_draws() -> np.ndarray:
    """First two numbers of 10,000 runs that lie side by side on a grid, shape (100, 100, 2)."""
    grid = sk.grid(a=np.linspace(0, 1, 100), b=range(100))
    keys = run_keys(grid, grid.index(np.arange(grid.size)))
    return np.array([rng.random(2) for rng in generators(keys, 0)]).reshape(100, 100, 2)


def test_first_draws_of_neighbouring_runs_are_uniform(first_draws: np.ndarray) -> None:
    for draw in np.moveaxis(first_draws, -1, 0):
        assert stats.kstest(draw.ravel(), "uniform").pvalue > 1e-3


def test_first_draws_of_neighbouring_runs_are_uncorrelated(first_draws: np.ndarray) -> None:
    draw = first_draws[..., 0]
    pairs = [(draw[1:], draw[:-1]), (draw[:, 1:], draw[:, :-1]), (draw, first_draws[..., 1])]
    for one, other in pairs:
        assert abs(stats.pearsonr(one.ravel(), other.ravel())[0]) < 0.04  # 4 sigma


def test_seeds_are_uniform_and_do_not_collide_more_than_chance_has_it() -> None:
    grid = sk.grid(a=range(20_000))
    found = np.array(list(seeds(run_keys(grid, grid.index(np.arange(grid.size))), 0)))
    assert stats.kstest(found / 2**32, "uniform").pvalue > 1e-3
    assert len(found) - len(np.unique(found)) <= 3  # 0.05 are expected


def test_generators_are_handed_out_one_by_one() -> None:
    grid = sk.grid(a=range(10**6), b=range(10))
    keys = run_keys(grid, grid.index(np.arange(5)))
    first = next(iter(generators(keys, 0)))
    assert isinstance(first, np.random.Generator)
    assert isinstance(first.bit_generator, np.random.PCG64)

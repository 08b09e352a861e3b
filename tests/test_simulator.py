from __future__ import annotations

import functools
import linecache
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit.capture import TextCapture
from sweepkit.evaluate import Station, Task, evaluate
from sweepkit.grid import Grid
from sweepkit.outputs import Output
from sweepkit.simulator import (
    Call,
    call_of,
    cell_sources,
    simulator_name,
    uses_global_random,
)

GRID = sk.grid(a=[1, 2], b=[10, 20])


def evaluated(
    function: Callable[..., Any],
    grid: Grid,
    outputs: Mapping[str, Output] | None = None,
    **more: Any,
) -> tuple[list[Any], dict[int, str]]:
    """The values of the output ``result`` by run, and the errors, as a worker has them."""
    task = Task(
        function, call_of(function, grid), grid, outputs or {}, 0, "independent", {}, **more
    )
    station = Station(TextCapture(), contained=False)
    done = evaluate(task, np.arange(grid.size), station)
    values: list[Any] = [None] * grid.size
    for column in done.columns.get("result", ()):
        rows = range(grid.size) if column.rows is None else column.rows.tolist()
        for row, value in zip(rows, column.values.tolist(), strict=True):
            values[row] = value
    return values, done.errors


class Plant:
    """A simulator with a state of its own."""

    gain = 3

    def __call__(self, a: int, b: int) -> int:
        return self.gain * a - b

    def method(self, a: int, *, b: int) -> int:
        return self.gain * a - b

    @classmethod
    def of_class(cls, b: int, a: int) -> int:
        return cls.gain * a - b

    @staticmethod
    def static(a: int, b: int) -> int:
        return 3 * a - b


def plain(a: int, b: int) -> int:
    return 3 * a - b


def swapped(b: int, a: int) -> int:
    return 3 * a - b


def positional_only(b: int, a: int, /) -> int:
    return 3 * a - b


def keyword_only(*, b: int, a: int) -> int:
    return 3 * a - b


def mixed(b: int, /, gap: int = 0, *, a: int) -> int:
    return 3 * a - b + gap


def rest(**everything: int) -> int:
    return 3 * everything["a"] - everything["b"]


def some_and_rest(b: int, *ignored: int, **others: int) -> int:
    assert not ignored
    return 3 * others["a"] - b


def defaulted(a: int = 100, b: int = 100, c: int = 0) -> int:
    return 3 * a - b + c


def after_a_gap(a: int, c: int = 0, b: int = 100) -> int:
    return 3 * a - b + c


def scaled(scale: int, a: int, b: int) -> int:
    return scale * a - b


@functools.wraps(plain)
def wrapped(*args: int, **kwargs: int) -> int:
    return plain(*args, **kwargs)


@functools.lru_cache
def cached(b: int, a: int) -> int:
    return 3 * a - b


@pytest.mark.parametrize(
    "function",
    [
        plain,
        swapped,
        positional_only,
        keyword_only,
        mixed,
        rest,
        some_and_rest,
        defaulted,
        after_a_gap,
        wrapped,
        cached,
        Plant(),
        Plant().method,
        Plant.of_class,
        Plant.static,
        lambda a, b: 3 * a - b,
        functools.partial(scaled, 3),
        functools.partial(scaled, scale=3),
        functools.partial(functools.partial(scaled, a=7), scale=3),
    ],
)
def test_parameters_arrive_by_name_however_a_simulator_takes_them(
    function: Callable[..., Any],
) -> None:
    expected = [3 * a - b for a in (1, 2) for b in (10, 20)]
    assert evaluated(function, GRID) == (expected, {})
    assert evaluated(function, sk.grid(b=[10, 20], a=[2]))[0] == [-4, -14]


@pytest.mark.parametrize(
    ("function", "grid", "expected"),
    [
        (pow, sk.grid(base=[2, 3], exp=[2]), [4, 9]),
        (math.atan2, sk.grid(x=[1.0], y=[0.0]), [0.0]),
        (np.add, sk.grid(x1=[1], x2=[2, 3]), [3, 4]),
        (operator.sub, sk.grid(b=[1], a=[5]), [4]),
        (dict, sk.grid(result=[1, 2]), [1, 2]),
        (complex, sk.grid(real=[1.0], imag=[2.0]), [1 + 2j]),
    ],
)
def test_builtin_functions_are_simulators(function: Any, grid: Grid, expected: list[Any]) -> None:
    assert evaluated(function, grid)[0] == expected


def test_a_function_that_tells_nothing_of_its_arguments_gets_keywords() -> None:
    assert call_of(max, GRID) == Call((), ("a", "b"), frozenset())


def test_a_default_stands_for_what_the_grid_leaves_out() -> None:
    assert evaluated(defaulted, sk.grid(a=[1, 2]))[0] == [-97, -94]


def test_a_parameter_outweighs_what_a_partial_has_set() -> None:
    assert evaluated(functools.partial(plain, b=0), GRID)[0] == [-7, -17, -4, -14]


def test_replicates_are_handed_over_only_if_asked_for() -> None:
    grid = sk.grid(a=[5], replicates=3)
    assert evaluated(lambda a: a, grid)[0] == [5, 5, 5]
    assert evaluated(lambda a, replicate: a + replicate, grid)[0] == [5, 6, 7]
    assert evaluated(lambda **everything: len(everything), grid)[0] == [2, 2, 2]


def test_derived_coordinates_are_handed_over_only_if_asked_for() -> None:
    grid = sk.grid(a=[1, 2]).derive(double="a * 2")
    assert evaluated(lambda a: a, grid)[0] == [1, 2]
    assert evaluated(lambda a, double: a + double, grid)[0] == [3.0, 6.0]
    assert evaluated(lambda **everything: len(everything), grid)[0] == [1, 1]


def test_labels_bring_their_objects_and_vectors_come_whole() -> None:
    grid = sk.grid(
        law={"square": lambda x: x**2, "sum": sum},
        x0=sk.values([[1.0, 2.0], [3.0, 4.0]], dims=("case", "state")),
    )
    assert evaluated(lambda law, x0: float(np.sum(law(x0))), grid)[0] == [5.0, 25.0, 3.0, 7.0]


# --- what does not fit ---------------------------------------------------------------------------


async def coroutine(a: int, b: int) -> int:
    return a + b


def generator(a: int, b: int) -> Iterator[int]:
    yield a + b


class Asynchronous:
    async def __call__(self, a: int, b: int) -> int:
        return a + b


def gapped(a: int, gap: int = 0, b: int = 0, /) -> int:
    return a + b + gap


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            lambda a, b, c: a,
            r"simulator '<lambda>' needs 'c', which is no parameter of the grid \(a, b\); add it",
        ),
        (
            lambda a: a,
            r"parameter 'b' is no argument of simulator '<lambda>' \(a\); rename one of them",
        ),
        (lambda: 1, r"parameter 'a' is no argument of simulator '<lambda>' \(it takes none\)"),
        (lambda *args: args, "parameter 'a' is no argument of simulator '<lambda>'"),
        (Plant.method, "simulator 'method' needs 'self', which is no parameter of the grid"),
        (functools.partial(scaled, 3, 4), "parameter 'a' is no argument of simulator 'scaled'"),
        (gapped, "argument 'b' of simulator 'gapped' is positional only and follows one that"),
        (coroutine, "simulator 'coroutine' is a coroutine function; give a plain function"),
        (Asynchronous(), "simulator 'Asynchronous' is a coroutine function"),
        (generator, "simulator 'generator' is a generator function; give a plain function"),
        (3, "the simulator is 3, of type int; give a function of the parameters"),
        (None, "the simulator is None, of type NoneType; give a function"),
        ("cartpole", "the simulator is 'cartpole', of type str; give a function"),
    ],
)
def test_a_simulator_that_does_not_fit_the_grid_is_refused(function: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call_of(function, GRID)


# --- what is injected ----------------------------------------------------------------------------


def test_rng_and_seed_are_handed_over_if_asked_for() -> None:
    grid = sk.grid(a=[1, 2])
    assert evaluated(lambda a, rng: isinstance(rng, np.random.Generator), grid)[0] == [True, True]
    assert evaluated(lambda a, seed: type(seed) is int and seed < 2**32, grid)[0] == [True, True]
    seeds = evaluated(lambda a, *, seed=None: seed, grid)[0]
    assert len(set(seeds)) == 2
    assert seeds == evaluated(lambda seed, rng, a: seed, grid)[0]
    assert call_of(lambda **everything: 1, grid).injected == frozenset()


def test_rng_draws_the_same_each_time_and_not_the_same_in_each_run() -> None:
    grid = sk.grid(a=[1, 2], replicates=2)
    drawn = evaluated(lambda a, rng: rng.random(), grid)[0]
    assert len(set(drawn)) == 4
    assert drawn == evaluated(lambda a, rng: rng.random(), grid)[0]


def test_a_default_that_says_something_is_left_alone() -> None:
    grid = sk.grid(a=[1, 2])
    assert evaluated(lambda a, seed=7, rng=3: seed + rng, grid)[0] == [10, 10]


@pytest.mark.parametrize("name", ["seed", "rng", "scratch"])
def test_a_declared_parameter_wins_over_what_would_be_injected(name: str) -> None:
    grid = sk.grid({name: [5, 6]})
    function = {
        "seed": lambda seed: seed,
        "rng": lambda rng: rng,
        "scratch": lambda scratch: scratch,
    }[name]
    assert call_of(function, grid).injected == frozenset()
    assert evaluated(function, grid)[0] == [5, 6]


def test_a_parameter_called_seed_stands_beside_an_injected_rng() -> None:
    grid = sk.grid({"seed": [5, 6]})
    values, errors = evaluated(lambda seed, rng: seed + 0 * rng.random(), grid)
    assert (values, errors) == ([5.0, 6.0], {})


@pytest.mark.parametrize("name", ["n", "dim", "size", "self", "function", "index", "match"])
def test_parameters_of_any_name_reach_the_simulator(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def simulate({name}): return {name}", scope)
    assert evaluated(scope["simulate"], sk.grid({name: [1, 2]}))[0] == [1, 2]


def test_each_run_gets_a_scratch_folder_of_its_own_that_goes_away(tmp_path: Any) -> None:
    import os

    seen: list[str] = []

    def write(a: int, scratch: str) -> int:
        seen.append(scratch)
        with open(os.path.join(scratch, "out"), "w") as file:
            file.write("x" * a)
        return len(os.listdir(scratch))

    grid = sk.grid(a=[1, 2])
    task = Task(write, call_of(write, grid), grid, {}, 0, "independent", {})
    station = Station(TextCapture(), contained=False, scratch=str(tmp_path))
    done = evaluate(task, np.arange(2), station)
    assert done.columns["result"][0].values.tolist() == [1, 1]
    assert len(set(seen)) == 2
    assert os.listdir(tmp_path) == []


def test_an_error_of_one_run_is_its_own() -> None:
    values, errors = evaluated(lambda a, b: b // (a - 1), GRID)
    assert values == [None, None, 10, 20]
    assert set(errors) == {0, 1}
    assert errors[0].startswith("ZeroDivisionError: ")


# --- its name, its randomness, its text ----------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (plain, "plain"),
        (lambda: 1, "<lambda>"),
        (functools.partial(functools.partial(scaled, 3), 4), "scaled"),
        (Plant(), "Plant"),
        (Plant().method, "method"),
        (cached, "cached"),
        (max, "max"),
    ],
)
def test_a_simulator_has_a_name_for_people(function: Any, name: str) -> None:
    assert simulator_name(function) == name


def draws_globally(a: int) -> float:
    return float(np.random.normal()) + a


def draws_through_a_helper(a: int) -> float:
    return draws_globally(a)


def draws_from_its_own(a: int, rng: np.random.Generator) -> float:
    return rng.normal() + a


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (draws_globally, True),
        (draws_through_a_helper, True),
        (functools.partial(draws_through_a_helper, a=1), True),
        (lambda a: draws_globally(a), True),
        (draws_from_its_own, False),
        (plain, False),
        (max, False),
    ],
)
def test_the_use_of_global_random_numbers_is_seen(function: Any, found: bool) -> None:
    assert uses_global_random(function) is found


def test_sources_of_notebook_cells_go_along_and_those_of_files_do_not() -> None:
    code = "def helper(a):\n    return a\n\ndef simulate(a):\n    return helper(a)\n"
    name = "<ipython-input-test-simulator>"
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    scope: dict[str, Any] = {}
    exec(compile(code, name, "exec"), scope)
    assert cell_sources(scope["simulate"]) == {name: code}
    assert cell_sources(plain) == {}

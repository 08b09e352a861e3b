"""Limits that move: comparing codes with a stop is comparing values with a limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from sweepkit.requirements import requirement
from sweepkit.verdicts import failed
from sweepkit.views.levers import lever, with_stop


def runs(values: Any, **more: Any) -> xr.Dataset:
    values = np.asarray(values, dtype=float)
    variables = {"y": ("a", values), **{name: ("a", one) for name, one in more.items()}}
    return xr.Dataset(variables, coords={"a": np.arange(len(values))})


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("whole", [True, False])
def test_each_stop_judges_as_the_requirement_with_that_limit_does(op: str, whole: bool) -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 60, 500).astype(float) if whole else rng.normal(0, 1e-3, 500)
    values[:5] = np.nan
    limit = 20.0 if whole else 2.5e-4
    ds = runs(values)
    made = lever(ds, requirement(f"y {op} {limit!r}"), ("a",))
    assert made.movable
    assert made.stops[made.declared] == limit
    for stop in range(0, len(made.stops), 7):
        moved = made.moved(stop)
        assert moved is not None
        expected = failed(ds, [moved]).values == 0
        np.testing.assert_array_equal(made.holds(stop), expected, err_msg=moved.text)


def test_a_compound_requirement_moves_by_its_margin_and_is_itself_at_rest() -> None:
    ds = runs([0.0, 1.0, 2.0, 3.0], z=[0.0, 0.5, 2.0, -1.0])
    made = lever(ds, requirement("y > 1 and z < 1"), ("a",))
    assert made.of_margin
    expected = failed(ds, ["y > 1 and z < 1"]).values == 0
    np.testing.assert_array_equal(made.holds(made.declared), expected)
    loose = made.stop(-0.5)
    np.testing.assert_array_equal(made.holds(loose), [False, True, False, True])


@pytest.mark.parametrize("text", ["y == 1", "y != 1"])
def test_equality_has_no_place_to_move_a_limit_to_but_judges(text: str) -> None:
    ds = runs([0.0, 1.0, np.nan])
    made = lever(ds, requirement(text), ("a",))
    expected = failed(ds, [text]).values == 0
    np.testing.assert_array_equal(made.holds(made.declared), expected)


def test_code_and_booleans_judge_without_a_limit() -> None:
    ds = runs([0.0, 1.0, 2.0], ok=[True, False, True])
    made = lever(ds, requirement("ok"), ("a",))
    assert made.holds(0).tolist() == [True, False, True]

    def odd(outputs: xr.Dataset) -> xr.DataArray:
        return outputs["y"] % 2 == 1

    made = lever(ds, requirement(odd), ("a",))
    assert not made.movable
    assert made.holds(0).tolist() == [False, True, False]


def test_outputs_that_are_all_nan_or_all_equal_keep_their_limit() -> None:
    for values in ([np.nan, np.nan], [3.0, 3.0]):
        made = lever(runs(values), requirement("y >= 3"), ("a",))
        assert made.stops[made.declared] == 3.0
        assert made.holds(made.declared).tolist() == [v == 3.0 for v in values]


def test_a_limit_between_stops_becomes_one_and_a_fixed_one_says_so() -> None:
    made = lever(runs(np.arange(100.0)), requirement("y >= 50"), ("a",))
    finer = with_stop(made, 50.25)
    stop = int(np.flatnonzero(finer.stops == 50.25)[0])
    assert finer.holds(stop).sum() == 49
    assert finer.stops[finer.declared] == 50.0
    fixed = lever(runs([0.0, 1.0], ok=[True, False]), requirement("ok"), ("a",))
    with pytest.raises(ValueError, match="requirement 'ok' has no limit that moves"):
        with_stop(fixed, 1.0)

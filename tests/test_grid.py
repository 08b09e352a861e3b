from __future__ import annotations

import dataclasses
import itertools
import pickle
import tracemalloc
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import sweepkit as sk
from sweepkit.expressions import ExpressionError
from sweepkit.grid import Grid, random_prefix
from sweepkit.streams import run_keys
from tests.waiting import counted


def points(grid: Grid) -> list[dict[str, Any]]:
    """All points that satisfy the masks, as the simulator gets them."""
    index = grid.index(np.arange(grid.size))
    valid = grid.valid(index)
    columns = {
        name: list(map(str, grid[name].values))
        if grid[name].kind not in ("number", "str", "label", "bool")
        else grid[name].values.tolist()
        for name in grid
    }
    return [
        {name: columns[name][index[grid[name].dim][at]] for name in grid}
        for at in np.flatnonzero(valid).tolist()
    ]


def distinct(grid: Grid) -> set[tuple[Any, ...]]:
    return {tuple(point[name] for name in sorted(point)) for point in points(grid)}


# --- crossing ------------------------------------------------------------------------------------


def test_the_grid_of_the_readme() -> None:
    grid = sk.grid(
        effort=[0.0, 0.1, 1.0],
        length=sk.scenario(np.linspace(0.1, 2.0, 20), units="m", long_name="pole half-length"),
        masspole=sk.scenario([0.05, 0.1, 0.5], units="kg"),
        delay=sk.scenario([0, 1, 2, 4], units="steps"),
        replicates=14,
    )
    assert grid.sizes == {"effort": 3, "length": 20, "masspole": 3, "delay": 4, "replicate": 14}
    assert grid.size == 10_080
    roles = {name: grid[name].role for name in grid}
    assert roles["effort"] == "design"
    assert roles["length"] == roles["masspole"] == roles["delay"] == "scenario"
    assert roles["replicate"] == "replicate"


def test_parameters_of_their_own_dims_are_crossed_in_c_order() -> None:
    grid = sk.grid(a=[1, 2], b=["x", "y", "z"])
    expected = [{"a": a, "b": b} for a, b in itertools.product([1, 2], "xyz")]
    assert points(grid) == expected


def test_replicates_come_last_whatever_is_added_later() -> None:
    first = sk.grid(a=[1, 2], replicates=3)
    assert sk.grid(first, b=[1, 2]).dims == ("a", "b", "replicate")


def test_parameters_may_be_given_in_a_mapping_and_bear_any_name() -> None:
    names = ["n", "seed", "dim", "size", "rng", "replicates", "parameters", "batches", "self"]
    grid = sk.grid({name: [1, 2] for name in names}, replicates=3)
    assert grid.names == (*names, "replicate")
    assert grid.size == 2 ** len(names) * 3
    paired = sk.paired({"dim": [1, 2], "parameters": [3, 4]}, dim="case")
    assert paired.names == ("dim", "parameters")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: sk.grid(), ValueError, "the grid has no parameters; give some, or replicates=1"),
        (lambda: sk.grid(a=[1], replicates=0), ValueError, "replicates is 0; give at least 1"),
        (lambda: sk.grid(a=[1], replicates=True), TypeError, "True is no whole number"),
        (lambda: sk.grid(a=[1], replicates=2.0), TypeError, r"sk.grid\(\{'replicates': \[...\]\}"),
        (lambda: sk.grid([1, 2]), TypeError, r"\[1, 2\] is a list; give grids, mappings from"),
        (lambda: sk.grid({"n": [1]}, n=[2]), ValueError, "parameter 'n' is given twice; drop one"),
        (
            lambda: sk.grid(replicate=[1], replicates=2),
            ValueError,
            "parameter 'replicate' is given twice",
        ),
        (
            lambda: sk.grid(sk.paired(a=[1], b=[2]), case=[1, 2]),
            ValueError,
            "parameter 'case' has 2 values but 'a', along the same dim 'case', has 1",
        ),
        (
            lambda: sk.grid(a=sk.values([1, 2], dims="b"), b=sk.values([1, 2], dims="c")),
            ValueError,
            "parameter 'b' varies along dim 'c' but is also the name of a dim; rename one",
        ),
        (lambda: sk.grid(a=[1])["b"], KeyError, "no parameter 'b'; there are a"),
    ],
)
def test_what_makes_no_grid_is_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


# --- a billion points ----------------------------------------------------------------------------


def billion() -> Grid:
    return sk.grid(
        a=np.linspace(0, 1, 1000),
        b=range(1000),
        c=sk.scenario(np.arange(100)),
        replicates=10,
    )


def test_declaring_a_billion_points_enumerates_nothing() -> None:
    with counted() as calls:
        grid = billion()
    tracemalloc.start()
    try:
        masked = billion().where("a * b < 0.5").derive(d="a + b")
        assert "1,000,000,000 runs" in repr(masked)
        assert "1,000,000,000 runs" in masked._repr_html_()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grid.size == masked.size == 10**9
    assert peak < 2_000_000
    assert len(calls) < 20_000  # of its 2,110 values a few each


def test_points_of_a_huge_grid_are_had_a_few_at_a_time() -> None:
    grid = sk.grid(billion(), d=range(10**6))
    runs = np.array([0, grid.size - 1], dtype=np.int64)
    columns = grid.columns(grid.index(runs), ("b", "d"))
    assert columns["b"].tolist() == [0, 999]
    assert columns["d"].tolist() == [0, 10**6 - 1]


# --- parameters that share a dim -----------------------------------------------------------------


def test_paired_parameters_vary_together_and_are_crossed_with_the_rest() -> None:
    corners = sk.paired({"a": [1, 2], "b": [8, 9]}, dim="corner")
    grid = sk.grid(corners, c=[0, 1])
    assert grid.sizes == {"corner": 2, "c": 2}
    assert distinct(grid) == {(1, 8, 0), (1, 8, 1), (2, 9, 0), (2, 9, 1)}


def test_paired_parameters_keep_role_units_and_objects() -> None:
    grid = sk.paired(
        law=sk.values({"p": 1, "q": len}), mass=sk.scenario([1.0, 2.0], units="kg"), dim="case"
    )
    assert list(grid["law"].handed(np.array([1]))) == [len]
    assert (grid["mass"].role, grid["mass"].units) == ("scenario", "kg")


def test_values_may_repeat_among_pairs_while_no_point_does() -> None:
    assert sk.paired(a=[1, 1, 2], b=["x", "y", "x"]).size == 3
    assert sk.paired(a=[0.3, 0.1 + 0.2], b=[1, 1]).size == 2


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: sk.paired(a=[1, 2], b=[1]),
            ValueError,
            "parameter 'b' has 1 values but 'a', along the same dim 'case', has 2; give 'b' a dim",
        ),
        (
            lambda: sk.paired(a=[1, 2, 1], b=["x", "y", "x"], dim="pair"),
            ValueError,
            "1 of the 3 points along dim 'pair' repeat another, such as a=1, b='x'; .*replicates=",
        ),
        (lambda: sk.paired(case=[1], b=[1]), ValueError, "dim 'case' has the name of a parameter"),
        (lambda: sk.paired(), ValueError, "no parameters are given to vary together along dim"),
        (lambda: sk.paired(a=[1], dim="a b"), ValueError, "dim name 'a b' is no identifier"),
        (lambda: sk.paired([("a", [1])]), TypeError, "is a list; give a mapping from names"),
        (lambda: sk.paired({"a": [1]}, a=[2]), ValueError, "'a' is given in the mapping and by ke"),
    ],
)
def test_what_makes_no_pairs_is_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


# --- vectors -------------------------------------------------------------------------------------


def test_a_vector_is_one_value() -> None:
    x0 = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    grid = sk.grid(x0=sk.values(x0, dims=("case", "state")), gain=[1, 2])
    assert grid.sizes == {"case": 2, "gain": 2}
    assert grid.scalars == ("gain",)
    at = grid.index(np.array([3]))
    assert grid["x0"].handed(at["case"])[0].tolist() == [3.0, 4.0, 5.0]
    assert grid.columns(at)["x0"].shape == (1, 3)
    assert grid.to_dataset()["x0"].dims == ("case", "state")


def test_vectors_vary_together_with_scalars_along_their_dim() -> None:
    x0 = sk.values(np.eye(2), dims=("case", "state"))
    assert sk.grid(x0=x0, label=sk.values(["p", "q"], dims="case")).sizes == {"case": 2}
    assert sk.paired(x0=x0, label=["p", "q"], dim="start").sizes == {"start": 2}
    assert sk.paired(x0=xr.DataArray(np.eye(2), dims=("i", "j")), dim="start")["x0"].dims == (
        "start",
        "j",
    )


def test_vectors_of_text_and_of_two_dims_are_values() -> None:
    grid = sk.grid(
        names=sk.values([["a", "b"], ["a", "c"]], dims=("case", "part")),
        matrix=sk.values(np.arange(8).reshape(2, 2, 2), dims=("k", "i", "j")),
    )
    assert grid.size == 4
    assert "vectors of 2 x 2" in repr(grid)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x0: sk.grid(x0=x0, state=[1, 2]),
            "dim 'state' lies within the values of 'x0' and is also varied by 'state'; rename one",
        ),
        (
            lambda x0: sk.grid(x0=x0, state=sk.values([1, 2], dims="case")),
            "parameter 'state' has the name of a dim within the values of 'x0'; rename one",
        ),
        (
            lambda x0: sk.grid(x0=x0, v=sk.values([[1, 2, 3]] * 1, dims=("k", "state"))),
            "dim 'state' has 3 entries in 'v' and 2 in 'x0'",
        ),
        (
            lambda x0: sk.grid(x0=sk.values([[0, 1], [0, 1]], dims=("case", "state"))),
            r"1 of the 2 points along dim 'case' repeat another, such as x0=\[0, 1\]",
        ),
        (
            lambda x0: sk.grid(x0=x0, a=[1]).derive(state="a"),
            "derived coordinate 'state' has the name of a parameter, a dim or another",
        ),
        (
            lambda x0: sk.grid(x0=sk.values([[1.0, np.nan]], dims=("case", "state"))),
            "a value of parameter 'x0' is NaN",
        ),
    ],
)
def test_vectors_that_clash_are_refused(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call(sk.values(np.eye(2), dims=("case", "state")))


# --- xarray --------------------------------------------------------------------------------------


def test_coordinates_of_a_dataset_make_a_grid() -> None:
    ds = xr.Dataset(
        coords={
            "a": ("a", [1, 2], {"role": "scenario", "units": "m"}),
            "b": ("pair", [1, 2]),
            "c": ("pair", ["x", "y"]),
            "x0": (("case", "state"), np.eye(2)),
            "state": ["position", "speed"],
            "g": 9.81,
        }
    )
    grid = sk.grid(ds, replicates=2)
    assert grid.sizes == {"a": 2, "pair": 2, "case": 2, "g": 1, "replicate": 2}
    assert (grid["a"].role, grid["a"].units) == ("scenario", "m")
    assert "state" not in grid


@pytest.mark.parametrize(
    "given",
    [
        xr.DataArray(np.zeros((2, 3)), coords={"a": [1, 2], "b": [3, 4, 5]}),
        xr.Coordinates({"a": [1, 2], "b": [3, 4, 5]}),
        xr.Dataset({"y": (("a", "b"), np.zeros((2, 3)))}, coords={"a": [1, 2], "b": [3, 4, 5]}),
    ],
)
def test_any_holder_of_coordinates_makes_the_same_grid(given: Any) -> None:
    assert distinct(sk.grid(given)) == distinct(sk.grid(a=[1, 2], b=[3, 4, 5]))


def test_levels_of_a_multiindex_vary_together() -> None:
    index = pd.MultiIndex.from_product([[1, 2], ["x", "y"]], names=["u", "v"])
    grid = sk.grid(xr.Coordinates.from_pandas_multiindex(index, "point"))
    assert grid.names == ("u", "v")
    assert grid.sizes == {"point": 4}


def test_dataarrays_along_one_dim_vary_together() -> None:
    a, b = (xr.DataArray([1, 2], dims="corner") for _ in "ab")
    assert sk.grid(a=a, b=b).sizes == {"corner": 2}
    assert sk.grid(a=xr.DataArray([1, 2]), b=xr.DataArray([1, 2])).sizes == {"a": 2, "b": 2}


def test_a_grid_survives_the_way_to_a_dataset_and_back() -> None:
    grid = sk.grid(
        sk.paired(p=[1, 2], q=sk.scenario(["x", "y"], units="m", weights="trapezoid"), dim="pair"),
        x0=sk.values(np.eye(2), dims=("case", "state")),
        t=pd.date_range("2020", periods=2),
        replicates=3,
    )
    back = sk.grid(grid.to_dataset())
    assert back.sizes == grid.sizes
    for name in grid:
        assert back[name].attrs == grid[name].attrs
        assert back[name].keys().tolist() == grid[name].keys().tolist()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (xr.Dataset(), ValueError, "there are no coordinates to take parameters from"),
        (xr.Dataset({"y": ("x", [1])}), ValueError, r"has variables \(y\) .*use .set_coords"),
        (xr.Dataset(coords={"a": [1.0, np.nan]}), ValueError, "parameter 'a' is NaN"),
        (
            xr.Dataset(coords={"a": ("a", [1], {"units": 3})}),
            TypeError,
            "units of parameter 'a' is",
        ),
        (
            xr.Dataset(coords={"a": pd.date_range("2020", periods=2, tz="UTC")}),
            TypeError,
            "'a' carry the time zone UTC",
        ),
        (
            xr.Dataset(coords={"x0": (("c", "s"), np.eye(2)), "u": ("s", [1, 2]), "s": [1, 2]}),
            ValueError,
            r"coordinate '(u|s)' lies along dim 's', which is within the values of another",
        ),
    ],
)
def test_coordinates_that_are_no_parameters_are_refused(
    given: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        sk.grid(given)


# --- masks ---------------------------------------------------------------------------------------


def test_a_mask_in_text_leaves_points_out() -> None:
    grid = sk.grid(length=[0.5, 1.0, 2.0], masspole=[0.1, 0.5]).where("length * masspole < 0.5")
    assert distinct(grid) == {(0.5, 0.1), (0.5, 0.5), (1.0, 0.1), (2.0, 0.1)}
    assert grid.size == 6


def test_masks_add_up() -> None:
    grid = sk.grid(a=range(10)).where("a > 2").where(lambda a: a < 6).where("a != 4")
    assert distinct(grid) == {(3,), (5,)}


def test_a_conditional_parameter_is_said_by_a_mask() -> None:
    grid = sk.grid(law=["pid", "lqr"], effort=[0.0, 0.1, 1.0])
    conditional = grid.where("law == 'lqr' or effort == 0")
    assert distinct(conditional) == {
        (0.0, "pid"),
        (0.0, "lqr"),
        (0.1, "lqr"),
        (1.0, "lqr"),
    }


@pytest.mark.parametrize(
    "mask",
    [
        lambda a, b: a <= b,
        lambda b, a: a <= b,
        lambda *, a, b: a <= b,
        lambda a, b, slack=0: a <= b + slack,
        lambda **all_: all_["a"] <= all_["b"],
        lambda a, b: [x <= y for x, y in zip(a, b, strict=True)],
    ],
)
def test_a_mask_may_be_a_function_of_parameters_by_name(mask: Any) -> None:
    grid = sk.grid(a=[1, 2], b=[1, 2], c=[0]).where(mask)
    assert distinct(grid) == {(1, 1, 0), (1, 2, 0), (2, 2, 0)}


def test_a_mask_sees_labels_vectors_and_derived_coordinates() -> None:
    laws = sk.grid(law={"pid": 1, "lqr": 2}).where("law != 'pid'")
    assert distinct(laws) == {("lqr",)}
    x0 = sk.grid(x0=sk.values(np.eye(2), dims=("case", "state")))
    assert x0.where(lambda x0: x0[:, 0] > 0).valid(x0.index(np.arange(2))).tolist() == [True, False]
    derived = sk.grid(a=[1, 2, 3]).derive(double="a * 2")
    assert distinct(derived.where("double < 5")) == {(1,), (2,)}
    assert distinct(derived.where(lambda double: double > 5)) == {(3,)}


def test_masks_are_evaluated_on_the_points_asked_for_alone() -> None:
    seen: list[int] = []

    def mask(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        seen.append(len(a))
        return a < b

    grid = sk.grid(a=range(10_000), b=range(10_000)).where(mask)
    grid.valid(grid.index(np.arange(100)))
    assert sum(seen) < 200


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        ("b < 1", ExpressionError, "there is no 'b'"),
        ("a <", ExpressionError, "cannot read this"),
        ("s < 3", ExpressionError, r"cannot compare 's' \(str\) with 3"),
        ("__import__('os').getcwd() == 1", ExpressionError, "__import__"),
        (3, TypeError, "mask 3 is neither text nor a function of the parameters"),
        (lambda c: c, TypeError, r"wants 'c', which is no parameter .* \(there are a, s\)"),
        (lambda a: a, TypeError, r"gave int64 of shape \(2,\) for 2 points; a mask gives one bool"),
        (lambda a: a.max() < 3, TypeError, r"gave bool of shape \(\) for 2 points"),
        (lambda a: a > 0 and a < 2, TypeError, "does not take arrays .*write & | ~ for and or not"),
        (max, TypeError, "mask 'max' does not tell its arguments; wrap it in a lambda"),
    ],
)
def test_a_mask_that_cannot_work_is_refused_when_it_is_given(
    mask: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        sk.grid(a=[1, 2], s=["p", "q"]).where(mask)


# --- derived coordinates -------------------------------------------------------------------------


def test_derived_coordinates_have_the_dims_of_what_they_are_computed_from() -> None:
    ds = sk.grid(a=[1, 2], b=[3, 4], c=[0]).derive(product="a * b", half="b / 2").to_dataset()
    assert ds["product"].dims == ("a", "b")
    assert ds["product"].values.tolist() == [[3.0, 4.0], [6.0, 8.0]]
    assert ds["half"].dims == ("b",)
    assert ds["product"].attrs["long_name"] == "a * b"


def test_derived_coordinates_are_columns_like_any_other() -> None:
    grid = sk.grid(a=[1, 2, 3]).derive({"double": "a * 2"})
    columns = grid.columns(grid.index(np.array([2, 0])), ("double",))
    assert {name: values.tolist() for name, values in columns.items()} == {"double": [6.0, 2.0]}


@pytest.mark.parametrize(
    ("expressions", "error", "text"),
    [
        ({"a": "a * 2"}, ValueError, "derived coordinate 'a' has the name of a parameter"),
        ({"b": "z * 2"}, ExpressionError, "there is no 'z'"),
        ({"a b": "a"}, ValueError, "derived coordinate name 'a b' is no identifier"),
        ({"b": 2}, ExpressionError, "an expression is a str, not int"),
        ([("b", "a")], TypeError, "is a list; give a mapping from names"),
    ],
)
def test_what_cannot_be_derived_is_refused(
    expressions: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        sk.grid(a=[1]).derive(expressions)


# --- union ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "sizes"),
    [
        (sk.grid(a=[1, 2], b=[1]), sk.grid(a=[2, 3], b=[1]), {"a": 3, "b": 1}),
        (sk.grid(a=[1, 2]), sk.grid(a=[2.0, 2.5]), {"a": 3}),
        (sk.grid(a=[1, 2]), sk.grid(a=[2, 1]), {"a": 2}),
        (sk.grid(a=["x"]), sk.grid(a=["y"]), {"a": 2}),
        (sk.grid(a=[1, 2], b=[1]), sk.grid(b=[1], a=[3]), {"a": 3, "b": 1}),
        (sk.grid(a=[1, 2], b=[1]), sk.grid(a=[2, 3], b=[2]), {"point": 4}),
        (sk.grid(a=[1, 2], b=[1, 2]), sk.grid(a=[2, 3], b=[2, 3]), {"point": 7}),
        (sk.paired(a=[1, 2], b=[1, 2]), sk.paired(a=[2, 3], b=[2, 9]), {"case": 3}),
        (sk.paired(a=[1, 2], b=[1, 2]), sk.grid(a=[1, 5], b=[1]), {"point": 3}),
        (sk.grid(a=[1, 2]).where("a < 2"), sk.grid(a=[3]).where("a < 9"), {"point": 2}),
        (sk.grid(a=[1, 2]).where("a < 9"), sk.grid(a=[3]).where("a < 9"), {"a": 3}),
        (sk.grid(a=[1]) | sk.grid(a=[2]), sk.grid(a=[3]) | sk.grid(a=[1]), {"a": 3}),
        (
            sk.grid(x=sk.values(np.eye(2), dims=("c", "s"))),
            sk.grid(x=sk.values([[1.0, 0.0], [3.0, 4.0]], dims=("c", "s"))),
            {"c": 3},
        ),
        (
            sk.grid(a=[1, 2], b=[1], m=[7, 8], replicates=5),
            sk.grid(a=[2, 3], b=[2], m=[7, 8], replicates=5),
            {"point": 4, "m": 2, "replicate": 5},
        ),
        (
            sk.grid(a=[1, 2], b=[1], m=[7, 8], replicates=2).where("a < m"),
            sk.grid(a=[2, 3], b=[2], m=[7, 8], replicates=2),
            {"point": 8, "replicate": 2},
        ),
        (sk.grid(a=[1], b=[1], replicates=2), sk.grid(a=[2], b=[2], replicates=3), {"point": 5}),
        (
            sk.latin_hypercube(a=(0, 1), size=4),
            sk.latin_hypercube(a=(0, 1), size=4, seed=1),
            {"sample": 8},
        ),
        (sk.latin_hypercube(a=(0, 1), size=4), sk.grid(a=[0.5]), {"point": 5}),
    ],
)
def test_a_union_has_the_points_of_both_and_no_other(
    left: Grid, right: Grid, sizes: dict[str, int]
) -> None:
    union = left | right
    assert union.sizes == sizes
    if "x" not in union:
        assert distinct(union) == distinct(left) | distinct(right)
        assert len(points(union)) == len(distinct(union))


def test_the_left_grid_s_values_come_first_and_say_the_role() -> None:
    union = sk.grid(a=sk.scenario([3, 1], units="m")) | sk.grid(a=[2, 1])
    assert union["a"].values.tolist() == [3, 1, 2]
    assert (union["a"].role, union["a"].units) == ("scenario", "m")


def test_a_union_keeps_objects_and_derived_coordinates() -> None:
    same = object()
    left = sk.grid(law={"pid": same}, b=[1]).derive(c="b * 2")
    right = sk.grid(law={"lqr": len, "pid": same}, b=[2]).derive(d="b * 3")
    union = left | right
    assert {law: union["law"].objects[at] for at, law in enumerate(union["law"].values)} == {  # type: ignore[index]
        "pid": same,
        "lqr": len,
    }
    assert [name for name, _ in union.derived] == ["c", "d"]


@pytest.mark.parametrize(
    ("left", "right", "error", "text"),
    [
        (
            sk.grid(a=[1], c=[1]),
            sk.grid(b=[1], c=[1]),
            ValueError,
            "do not have the same parameters: a, b in one only",
        ),
        (sk.grid(a=[1]), sk.grid(a=["x"]), TypeError, "'a' is a number in one grid and a str in"),
        (sk.grid(a={"x": 1}), sk.grid(a=["x"]), TypeError, "'a' is a label in one grid and a str"),
        (
            sk.grid(a={"x": 1}),
            sk.grid(a={"x": 2, "y": 3}),
            ValueError,
            "label 'x' of parameter 'a' stands for 1 in one grid and for 2 in the other",
        ),
        (
            sk.grid(a={"x": np.zeros(2)}, b=[1]),
            sk.grid(a={"x": np.zeros(2)}, b=[2]),
            ValueError,
            "label 'x' of parameter 'a' stands for",
        ),
        (
            sk.grid(a=[2**53 + 1]),
            sk.grid(a=[0.5]),
            ValueError,
            r"parameter 'a' has integers beyond 2\*\*53 in one grid",
        ),
        (sk.grid(a=[0.3]), sk.grid(a=[0.1 + 0.2]), ValueError, "0.3 and 0.30000000000000004 of"),
        (
            sk.grid(a=range(10**4), b=range(10**4)),
            sk.grid(a=range(5), b=range(5)),
            ValueError,
            "a grid of 100,000,000 points is too large to be listed; unite grids that differ",
        ),
        (
            sk.grid(a=[1], b=[1]).where("a < 0"),
            sk.grid(a=[2], b=[2]).where("a < 0"),
            ValueError,
            "the union has no points",
        ),
        (
            sk.grid(x=sk.values([[1, 2]], dims=("c", "s"))),
            sk.grid(x=sk.values([[1, 2, 3]], dims=("c", "s"))),
            ValueError,
            r"'x' has values of shape \(2,\) in one grid and of \(3,\) in the other",
        ),
        (
            sk.grid(a=[1]).derive(b="a * 2"),
            sk.grid(a=[2]).derive(b="a * 3"),
            ValueError,
            r"derived coordinate 'b' is 'a \* 2' in one grid and 'a \* 3' in the other",
        ),
        (sk.grid(a=[1]), [1], TypeError, "unsupported operand"),
    ],
)
def test_grids_that_do_not_unite_say_why(
    left: Grid, right: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        left | right


axes = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True)


@settings(deadline=None)
@given(axes, axes, axes, axes)
def test_a_union_is_one_of_sets(a: list[int], b: list[int], c: list[int], d: list[int]) -> None:
    left, right = sk.grid(x=a, y=b), sk.grid(x=c, y=d)
    union = left | right
    assert distinct(union) == distinct(left) | distinct(right) == distinct(right | left)
    assert len(points(union)) == len(distinct(union))
    assert distinct(union | left) == distinct(union)


# --- keys ----------------------------------------------------------------------------------------


def keyed(grid: Grid) -> dict[tuple[Any, ...], tuple[int, ...]]:
    index = grid.index(np.arange(grid.size))
    found = run_keys(grid, index).tolist()
    names = sorted(grid)
    return {
        tuple(point[name] for name in names): tuple(key)
        for point, key in zip(points(grid), found, strict=True)
    }


numbers = st.one_of(st.integers(-50, 50), st.floats(-50, 50).filter(lambda x: x == round(x, 6)))


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]),
        st.lists(numbers, min_size=1, max_size=4, unique=True),
        min_size=1,
    ),
    st.randoms(),
)
def test_a_run_s_key_depends_on_its_point_alone(axes: dict[str, list[float]], rnd: Any) -> None:
    shuffled = {
        name: rnd.sample(values, len(values))
        for name, values in rnd.sample(sorted(axes.items()), len(axes))
    }
    grown = {name: [*values, 99, 0.123456789] for name, values in axes.items()}
    expected = keyed(sk.grid(axes))
    assert keyed(sk.grid(shuffled)) == expected
    larger = keyed(sk.grid(grown))
    assert {point: larger[point] for point in expected} == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, unique=True))
def test_a_point_has_one_key_however_its_parameters_are_laid_out(
    pairs: list[tuple[int, int]],
) -> None:
    listed = keyed(sk.paired(a=[a for a, _ in pairs], b=[b for _, b in pairs]))
    crossed = keyed(sk.grid(a=range(10), b=range(10)))
    assert listed == {pair: crossed[pair] for pair in pairs}


def test_keys_of_many_points_do_not_collide() -> None:
    grid = sk.grid(a=range(100), b=np.linspace(0, 1, 100), c=["x", "y"], replicates=10)
    found = run_keys(grid, grid.index(np.arange(grid.size)))
    assert len(np.unique(found, axis=0)) == grid.size
    assert len(np.unique(found[:, 0])) == grid.size


def test_points_with_swapped_values_have_different_keys() -> None:
    found = keyed(sk.grid(a=[1, 2], b=[1, 2]))
    assert len(set(found.values())) == 4


# --- frozen, pickled, shown ----------------------------------------------------------------------


def test_a_grid_is_frozen() -> None:
    grid = sk.grid(a=[1, 2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        grid.parameters = ()  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        grid["a"].values[0] = 3
    with pytest.raises(TypeError):
        grid["a"] = [3]  # type: ignore[index]


def test_making_another_grid_leaves_the_first_one() -> None:
    grid = sk.grid(a=[1, 2])
    grid.where("a < 2").derive(b="a")
    assert (grid.masks, grid.derived) == ((), ())


def test_a_grid_can_be_pickled() -> None:
    grid = sk.grid(a=[1, 2], law={"p": 1, "q": 2}).where("a < 2").derive(b="a * 2")
    assert distinct(pickle.loads(pickle.dumps(grid))) == distinct(grid)


class Tags(HTMLParser):
    """Which tags there are, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words += f" {data}"


def test_the_html_shows_sizes_roles_units_and_the_number_of_runs() -> None:
    grid = sk.grid(
        effort=[0.0, 0.1],
        length=sk.scenario(np.linspace(0.1, 2, 20), units="m", long_name="half-length"),
        when=pd.date_range("2020", periods=3),
        replicates=14,
    )
    shown = grid._repr_html_()
    words = Tags(shown).words
    for part in ("1,680 runs", "effort", "length", "scenario", "20", " m", "2020-01-01", "14"):
        assert part in words
    assert "at most" not in words
    assert "half-length" in shown


def test_the_number_of_runs_is_at_most_while_a_mask_is_uncounted() -> None:
    grid = sk.grid(a=range(1000), b=range(1000)).where("a < b")
    assert "at most 1,000,000 runs" in Tags(grid._repr_html_()).words
    assert "where a < b" in Tags(grid._repr_html_()).words
    assert repr(grid).startswith("<sweepkit.Grid: at most 1,000,000 runs (a: 1,000 x b: 1,000)>")


def test_the_repr_in_text() -> None:
    grid = sk.grid(sk.paired(a=[1, 2], b=["x", "y"], dim="pair"), c=sk.scenario([0.1], units="kg"))
    assert repr(grid) == (
        "<sweepkit.Grid: 2 runs (pair: 2 x c: 1)>\n"
        "  a  design           2  (pair) 1, 2\n"
        "  b  design           2  (pair) x, y\n"
        "  c  scenario         1  0.1 kg"
    )


def test_everything_in_the_html_is_escaped() -> None:
    evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
    grid = (
        sk.grid(
            a=sk.design([1, 2], units=evil, long_name=evil),
            b=[evil, "y"],
            law={evil: 1},
        )
        .where(f"b != {evil.split('>')[0]!r}")
        .derive(c="a < 2")
    )

    def mask(a: Any) -> Any:
        return a < 9

    mask.__name__ = evil
    shown = grid.where(mask)._repr_html_()
    found = Tags(shown)
    assert "<script" not in shown
    assert not found.tags & {"script", "img"}
    assert "onerror" not in found.attributes
    assert "<script>alert" in found.words


# --- the random order ----------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 500), st.data())
def test_a_random_prefix_holds_different_runs(seed: int, size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, size))
    runs = random_prefix(seed, size, count)
    assert len(set(runs.tolist())) == count
    assert all(0 <= run < size for run in runs.tolist())
    assert runs.tolist() == random_prefix(seed, size, count).tolist()


def test_a_random_prefix_is_uniform() -> None:
    counts = np.zeros(20, dtype=int)
    for seed in range(4000):
        counts[random_prefix(seed, 20, 5)] += 1
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000 * 0.75)


def test_a_random_prefix_of_a_huge_grid_needs_no_list_of_it() -> None:
    assert random_prefix(0, 10**15, 3).tolist() == random_prefix(0, 10**15, 3).tolist()

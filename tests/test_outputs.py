from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sweepkit as sk
from sweepkit.casts import Misfit, cast_exactly, integer_of_both, joined_dtype
from sweepkit.columns import Collector, Column
from sweepkit.fit import learnt, shape_fault
from sweepkit.format1 import fill_value
from sweepkit.outputs import Output

DTYPES = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "bool",
    "str",
    "datetime64[ns]",
    "timedelta64[ns]",
]


@dataclasses.dataclass
class Flight:
    height: float
    landed: bool


Point = collections.namedtuple("Point", "x y")


class Color(enum.Enum):
    RED = 1


class Code(enum.StrEnum):
    A = "a"


class Unwilling:
    """As a tensor that needs its gradient, or lies on another device."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on a tensor that requires grad")


class Exiting:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise SystemExit(3)


class Broken(collections.abc.Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        raise LookupError("gone")

    def __iter__(self) -> Any:
        raise LookupError("gone")

    def __len__(self) -> int:
        return 1


FAR = np.datetime64("5000-01-01", "D")
LABELLED = xr.DataArray([1, 2], dims="x", coords={"x": [1, 2]})


def collect(*results: Any, **declared: Output) -> tuple[dict[str, list[Column]], dict[int, str]]:
    collector = Collector(declared)
    for row, result in enumerate(results):
        collector.take(row, result)
    return collector.columns(len(results)), collector.misfits


def one(result: Any, **declared: Output) -> dict[str, Column]:
    """Columns of a single result that fits."""
    columns, misfits = collect(result, **declared)
    assert misfits == {}
    return {name: column for name, (column,) in columns.items()}


def fault(result: Any, **declared: Output) -> str:
    """What is wrong with a single result that does not fit."""
    columns, misfits = collect(result, **declared)
    assert columns == {}
    return misfits[0]


def rows_of(columns: list[Column], count: int) -> dict[int, Any]:
    """Values by row of the batch."""
    found = {}
    for column in columns:
        rows = range(count) if column.rows is None else column.rows.tolist()
        found.update(zip(rows, column.values.tolist(), strict=True))
    return found


# --- every shape of result -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "values"),
    [
        ({"a": 1, "b": 2.5}, {"a": 1, "b": 2.5}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.UserDict(a=1), {"a": 1}),
        (Flight(3.5, True), {"height": 3.5, "landed": True}),
        (Point(1, "far"), {"x": 1, "y": "far"}),
        (xr.Dataset({"a": ("t", [1, 2]), "b": 3.5}), {"a": [1, 2], "b": 3.5}),
        (xr.DataArray([1, 2], dims="t", name="trace"), {"trace": [1, 2]}),
        (xr.DataArray(3), {"result": 3}),
        (3.5, {"result": 3.5}),
        (True, {"result": True}),
        ("landed", {"result": "landed"}),
        (np.arange(3), {"result": [0, 1, 2]}),
        (np.float32(0.5), {"result": 0.5}),
    ],
)
def test_results_of_every_shape_become_named_outputs(result: Any, values: dict[str, Any]) -> None:
    assert {name: column.values.tolist()[0] for name, column in one(result).items()} == values


def test_tuples_are_named_by_the_declaration_if_it_names_as_many() -> None:
    assert set(one((1, 2.5), a=sk.output(), b=sk.output())) == {"a", "b"}
    assert set(one(3, speed=sk.output(units="m/s"))) == {"speed"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "nothing was returned; return a dict of outputs, or a number"),
        ({}, "no outputs were returned; return a dict with at least one"),
        (xr.Dataset(), "no outputs were returned"),
        ((1, 2), "a tuple of 2 was returned; return a dict of outputs so that each has a name"),
        ([1, 2, 3], "a list of 3 was returned; return a dict of outputs"),
        (pd.DataFrame({"a": [1]}), "a pandas.DataFrame was returned; return a dict of outputs"),
        (pd.Series({"a": 1}), "a pandas.Series was returned; .*dict(series)"),
        (Flight, "output 'result' is an object of type type, which cannot be stored"),
        ({"a b": 1}, "output name 'a b' is no identifier; .*such as 'a_b'"),
        ({1: 1}, "output name 1 is of type int; give a string"),
        ({"status": 1}, "output 'status' has the name of a variable of the store; rename it"),
        ({"log": "x"}, "output 'log' has the name of a variable of the store"),
        (xr.Dataset({"duration": 1}), "output 'duration' has the name of a variable of the store"),
    ],
)
def test_results_without_usable_names_are_invalid(result: Any, text: str) -> None:
    import re

    assert re.search(text.replace("(", r"\(").replace(")", r"\)"), fault(result))


# --- every type of value -------------------------------------------------------------------------

T0 = "2020-01-01T00:00:00.000000001"
START, DAY = 1577836800 * 10**9, 86400 * 10**9


@pytest.mark.parametrize(
    ("value", "dtype", "stored"),
    [
        (1, "int64", 1),
        (2**63, "uint64", 2**63),
        (np.int8(3), "int8", 3),
        (np.uint64(2**64 - 1), "uint64", 2**64 - 1),
        (1.5, "float64", 1.5),
        (np.float16(0.5), "float16", 0.5),
        (np.float32(0.1), "float32", float(np.float32(0.1))),
        (np.longdouble(0.5), "float64", 0.5),
        (float("inf"), "float64", float("inf")),
        (1j, "complex128", 1j),
        (np.complex64(1j), "complex64", 1j),
        (True, "bool", True),
        (np.False_, "bool", False),
        ("text", "str", "text"),
        ("", "str", ""),
        ("a\0b", "str", "a\0b"),
        (np.str_("x"), "str", "x"),
        (datetime.datetime(2020, 1, 1), "datetime64[ns]", START),
        (datetime.date(2020, 1, 1), "datetime64[ns]", START),
        (np.datetime64("2020", "Y"), "datetime64[ns]", START),
        (pd.Timestamp(T0), "datetime64[ns]", START + 1),
        (pd.NaT, "datetime64[ns]", -(2**63)),
        (datetime.timedelta(1), "timedelta64[ns]", DAY),
        (pd.Timedelta("1ns"), "timedelta64[ns]", 1),
        (np.timedelta64("NaT", "s"), "timedelta64[ns]", -(2**63)),
        ([1, 2], "int64", [1, 2]),
        ((1, 2), "int64", [1, 2]),
        (range(2), "int64", [0, 1]),
        ([1, 2.5], "float64", [1.0, 2.5]),
        ([np.float32(0.5), 1], "float64", [0.5, 1.0]),
        ([2**63, 1], "uint64", [2**63, 1]),
        ([[1, 2], [3, 4]], "int64", [[1, 2], [3, 4]]),
        ([True, False], "bool", [True, False]),
        (["x", "yy"], "str", ["x", "yy"]),
        ([np.array([1, 2]), np.array([3, 4])], "int64", [[1, 2], [3, 4]]),
        ([], "float64", []),
        (np.array([1], dtype=">i4"), "int32", [1]),
        (np.array(["a"], dtype=np.dtypes.StringDType()), "str", ["a"]),
        (np.array(["a", "b"], dtype=object), "str", ["a", "b"]),
        (np.array([T0], dtype="M8[ns]"), "datetime64[ns]", [START + 1]),
        (pd.Series([1, 2]), "int64", [1, 2]),
        (pd.Categorical(["a"]), "str", ["a"]),
        (np.ma.array([1, 2]), "int64", [1, 2]),
        ([pd.Timestamp(T0), datetime.datetime(2020, 1, 1)], "datetime64[ns]", [START + 1, START]),
        ([np.datetime64("2020"), pd.NaT], "datetime64[ns]", [START, -(2**63)]),
        ([datetime.timedelta(1), np.timedelta64(1, "ns")], "timedelta64[ns]", [DAY, 1]),
        (np.zeros((0, 3)), "float64", []),
        (np.timedelta64("NaT"), "timedelta64[ns]", -(2**63)),
        (np.str_("a\0"), "str", "a\0"),
        (["a\0", "b"], "str", ["a\0", "b"]),
        ([["a\0"], [np.str_("b\0")]], "str", [["a\0"], ["b\0"]]),
        ([np.datetime64("2020", "Y"), np.datetime64(T0)], "datetime64[ns]", [START, START + 1]),
        ([np.array([T0], dtype="M8[ns]")], "datetime64[ns]", [[START + 1]]),
        ([np.array(2**53 + 1), 7], "int64", [2**53 + 1, 7]),
        ([xr.DataArray([1]), xr.DataArray([0.5])], "float64", [[1.0], [0.5]]),
        (pd.array([2**53 + 1], dtype="Int64"), "int64", [2**53 + 1]),
        (pd.arrays.SparseArray([1.5, 0.0]), "float64", [1.5, 0.0]),
        (Code.A, "str", "a"),
    ],
)
def test_values_of_every_type_are_kept_as_they_are(value: Any, dtype: str, stored: Any) -> None:
    column = one({"a": value})["a"]
    assert column.dtype == dtype
    assert column.values.tolist() == [stored]
    memory = np.dtype(object if dtype == "str" else "int64" if "[ns]" in dtype else dtype)
    assert column.values.dtype == memory


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "output 'a' is None; return np.nan for a missing number, '' for text"),
        (2**64, f"output 'a' is {2**64}, which 64 bits cannot hold; return it as text"),
        (-(2**63) - 1, "which 64 bits cannot hold"),
        (np.longdouble("0.1"), "output 'a' has dtype float128, which cannot be stored without"),
        (datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "output 'a' carries a time zone; con"),
        (datetime.datetime(1, 1, 1), "output 'a' is outside the years 1678 to 2261"),
        (np.timedelta64(3, "M"), "output 'a' is a timedelta of dtype timedelta64[M], and months"),
        (np.timedelta64(3), "output 'a' is a timedelta without a unit"),
        ("\ud800", "output 'a' is text with half a character (a lone surrogate)"),
        (["ok", "\ud800"], "half a character"),
        ([1, "x"], "output 'a' is a list of mixed types (int, str); return an array of one type"),
        ([1, True], "output 'a' is a list of mixed types (bool, int)"),
        ([[1, "x"], [2, 3]], "output 'a' is a list of mixed types (int, str)"),
        (
            [datetime.datetime(2020, 1, 1), datetime.timedelta(1)],
            "output 'a' is a list of mixed types (datetime, timedelta)",
        ),
        (
            pd.Series([1, 2], ["b", "a"]),
            "output 'a' is a pandas.Series with an index, which would be lost; return series.to_x",
        ),
        (pd.Series([1, 2], [1, 2]), "with an index, which would be lost"),
        (pd.date_range("2020", periods=2, tz="UTC"), "output 'a' carries a time zone"),
        (("x", None), "output 'a' is a tuple of mixed types (NoneType, str)"),
        ([2**53 + 1, 0.5], f"output 'a' holds {2**53 + 1} beside other numbers, and no type holds"),
        ([2**63, -1], f"output 'a' holds {2**63} beside other numbers"),
        ([[2**63, -1]], f"output 'a' holds {2**63} beside other numbers"),
        ([2**64, 1], f"output 'a' holds {2**64} beside"),
        ([[1], [2, 3]], "output 'a' is a list that makes no array"),
        (np.ma.array([1, 2], mask=[0, 1]), "output 'a' is masked in places; fill it"),
        (np.array([], dtype=object), "output 'a' is empty and tells no type"),
        (decimal.Decimal("1"), "output 'a' is an object of type decimal.Decimal, which cannot be"),
        (fractions.Fraction(1), "output 'a' is an object of type fractions.Fraction"),
        (Color.RED, "output 'a' is an object of type tests.test_outputs.Color"),
        ({1}, "output 'a' is an object of type set"),
        ({"b": 1}, "output 'a' is an object of type dict"),
        (object(), "output 'a' is an object of type object"),
        (pd.NA, "output 'a' is an object of type pandas"),
        ((i for i in [1]), "output 'a' is an object of type generator"),
        ([object()], "output 'a' holds an object of type object"),
        (b"x", "output 'a' has dtype |S1, which cannot be stored without loss"),
        (np.zeros(1, dtype=[("x", int)]), "output 'a' has dtype [('x', '<i8')]"),
        ([FAR, np.datetime64(T0)], "output 'a' is outside the years 1678 to 2261"),
        ([np.timedelta64(10**6, "D"), np.timedelta64(1, "ns")], "outside the years 1678 to 2261"),
        ([np.timedelta64(5), np.timedelta64(3, "s")], "output 'a' is a timedelta without a unit"),
        ([np.array(2**53 + 1), 0.5], "output 'a' is a list of arrays of float64 and int64, and no"),
        ([[np.array([2**53 + 1])], [np.array([0.5])]], "arrays of float64 and int64, and no type"),
        (
            [np.array([1, 2]), np.array([3])],
            "output 'a' is a list of arrays of int64 of shape (2,) and int64 of shape (1,)",
        ),
        ([np.array([True]), np.array([2])], "of bool of shape (1,) and int64 of shape (1,)"),
        ([np.ma.array([1, 2], mask=[0, 1]), np.array([1, 2])], "output 'a' is masked in places"),
        ([LABELLED, LABELLED[::-1]], "output 'a' is a list of arrays with coordinates, which woul"),
        (
            pd.array([2**53 + 1, None], dtype="Int64"),
            "output 'a' is a pandas.arrays.IntegerArray with missing entries (null or <NA>); fill",
        ),
        (pd.Series([2**53 + 1, None], dtype="Int64"), "output 'a' is a pandas.Series with missing"),
        (pd.Categorical([2**53 + 1, None]), "output 'a' is a pandas.Categorical with missing"),
        (
            xr.DataArray(pd.array([2**53 + 1, None], dtype="Int64"), dims="x"),
            "IntegerArray with missing entries",
        ),
        (
            Unwilling(),
            "Unwilling that makes no array (RuntimeError: Can't call numpy() on a tensor",
        ),
        ([Unwilling()], "that makes no array (RuntimeError: Can't call numpy()"),
        (
            Exiting(),
            "output 'a' is a tests.test_outputs.Exiting that makes no array (SystemExit: 3",
        ),
    ],
)
def test_values_that_cannot_be_stored_without_loss_are_invalid(value: Any, text: str) -> None:
    assert text in fault({"a": value})


scalars = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)),
    st.timedeltas(datetime.timedelta(-30000), datetime.timedelta(30000)),
)


def test_a_result_that_raises_when_it_is_taken_apart_spoils_its_own_row_alone() -> None:
    columns, misfits = collect({"a": 1.0}, {"a": Unwilling()}, Broken(), {"a": 4.0})
    assert sorted(misfits) == [1, 2]
    assert "that makes no array (RuntimeError: Can't call" in misfits[1]
    assert "Broken that makes no array (LookupError: gone)" in misfits[2]
    assert rows_of(columns["a"], 4) == {0: 1.0, 3: 4.0}


@settings(deadline=None)
@given(st.lists(scalars, min_size=1, max_size=12))
def test_what_goes_in_comes_out_in_its_row(values: list[Any]) -> None:
    columns, misfits = collect(*({"a": value, "row": row} for row, value in enumerate(values)))
    assert misfits == {}
    assert rows_of(columns["row"], len(values)) == dict(enumerate(range(len(values))))
    found: dict[int, Any] = {}
    for column in columns["a"]:
        rows = range(len(values)) if column.rows is None else column.rows.tolist()
        found.update(
            (row, (column.dtype, value))
            for row, value in zip(rows, column.values.tolist(), strict=True)
        )
    for row, value in enumerate(values):
        dtype, stored = found[row]
        if "[ns]" in dtype:
            unit = {"d": "M8[ns]", "t": "m8[ns]"}[dtype[0]]
            assert stored == np.array(value, dtype=unit).astype("int64")
        else:
            assert type(stored) is type(value)
            assert stored == value


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_nan_is_a_value_like_any_other(values: list[float]) -> None:
    columns, misfits = collect(*({"a": value} for value in values))
    assert misfits == {}
    assert np.array_equal(columns["a"][0].values, np.array(values), equal_nan=True)


# --- many results --------------------------------------------------------------------------------


def test_results_of_one_kind_are_one_column_of_all_rows() -> None:
    columns, _ = collect(*({"a": i / 7, "b": i, "c": i > 1, "d": str(i)} for i in range(4)))
    assert {name: [(c.rows, c.dtype) for c in found] for name, found in columns.items()} == {
        "a": [(None, "float64")],
        "b": [(None, "int64")],
        "c": [(None, "bool")],
        "d": [(None, "str")],
    }


def test_results_of_mixed_types_are_a_column_for_each() -> None:
    columns, misfits = collect({"a": 1}, {"a": 1.5}, {"a": True}, {"a": "x"}, {"a": 2})
    assert misfits == {}
    found = {column.dtype: column for column in columns["a"]}
    assert set(found) == {"int64", "float64", "bool", "str"}
    assert rows_of(columns["a"], 5) == {0: 1, 1: 1.5, 2: True, 3: "x", 4: 2}


def test_an_integer_beyond_64_bits_spoils_its_own_row_alone() -> None:
    columns, misfits = collect({"a": 1}, {"a": 2**70}, {"a": 2**63}, {"a": 3})
    assert set(misfits) == {1}
    assert rows_of(columns["a"], 4) == {0: 1, 2: 2**63, 3: 3}


def test_a_result_that_does_not_fit_spoils_its_own_row_alone() -> None:
    columns, misfits = collect({"a": 1.0}, None, {"a": object()}, {"a b": 1}, {"a": 2.0})
    assert set(misfits) == {1, 2, 3}
    assert rows_of(columns["a"], 5) == {0: 1.0, 4: 2.0}


def test_dicts_in_another_order_or_with_more_keys_keep_their_values() -> None:
    columns, misfits = collect({"a": 1, "b": 2}, {"b": 3, "a": 4}, {"a": 5, "b": 6, "c": 7})
    assert misfits == {}
    assert rows_of(columns["a"], 3) == {0: 1, 1: 4, 2: 5}
    assert rows_of(columns["b"], 3) == {0: 2, 1: 3, 2: 6}
    assert rows_of(columns["c"], 3) == {2: 7}


def test_a_simulator_may_hand_out_the_same_dict_and_array_every_time() -> None:
    trace, outputs = np.zeros(2), {"a": 0.0}
    collector, plain_collector = Collector({}), Collector({})
    for row in range(3):
        trace[:] = row
        outputs["a"] = float(row)
        collector.take(row, {"trace": trace})
        plain_collector.take(row, outputs)
    assert collector.columns(3)["trace"][0].values.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert plain_collector.columns(3)["a"][0].values.tolist() == [0.0, 1.0, 2.0]


def test_a_type_that_changes_gets_a_column_of_its_own() -> None:
    columns, misfits = collect({"a": 1.0, "b": 1}, {"a": 2, "b": 2}, {"a": 3.0, "b": 3})
    assert misfits == {}
    assert {one.dtype: one.values.tolist() for one in columns["a"]} == {
        "float64": [1.0, 3.0],
        "int64": [2],
    }
    swapped, _ = collect({"a": 1.0, "b": 1}, {"a": 1, "b": 1.0})
    assert {one.dtype for one in swapped["a"]} == {one.dtype for one in swapped["b"]}
    assert rows_of(columns["b"], 3) == {0: 1, 1: 2, 2: 3}


def test_one_array_handed_out_again_where_numbers_came_first_is_refused() -> None:
    buffer = np.array(0.0)
    collector = Collector({})
    for row, result in enumerate([1.0, buffer, buffer]):
        buffer[()] = row
        collector.take(row, {"a": result})
    columns = collector.columns(3)
    assert rows_of(columns["a"], 3) == {0: 1.0}
    assert set(collector.misfits) == {1, 2}
    assert "very object that another run returned" in collector.misfits[1]


def test_no_results_are_no_columns() -> None:
    assert collect() == ({}, {})


# --- dims, sizes, padding ------------------------------------------------------------------------


def test_dims_come_from_the_declaration_the_dataarray_or_the_name() -> None:
    trace = np.zeros((2, 3))
    assert one({"a": trace}, a=sk.output(dims=("t", "k")))["a"].dims == ("t", "k")
    assert one({"a": xr.DataArray(trace, dims=("t", "k"))})["a"].dims == ("t", "k")
    assert one({"a": trace})["a"].dims == ("a_dim_0", "a_dim_1")


def test_attributes_and_coordinates_of_a_dataarray_come_along() -> None:
    trace = xr.DataArray([1, 2], dims="t", coords={"t": [0.0, 0.5]}, attrs={"units": "m"})
    column = one({"a": trace})["a"]
    assert column.attrs == {"units": "m"}
    assert column.coords["t"].tolist() == [0.0, 0.5]


def test_a_dataarray_is_transposed_to_the_declared_dims() -> None:
    trace = xr.DataArray([[1, 2, 3]], dims=("k", "t"))
    assert one({"a": trace}, a=sk.output(dims=("t", "k")))["a"].values.tolist() == [[[1], [2], [3]]]


@pytest.mark.parametrize(
    ("result", "declared", "text"),
    [
        ({"a": 3}, {"a": sk.output(dims="t")}, "output 'a' has shape (), but the sweep declares"),
        (
            {"a": [1, 2]},
            {"a": sk.output(dims="t", size=3)},
            "output 'a' has 2 entries along 't', but the sweep declares 3",
        ),
        (
            {"a": [1, 2, 3, 4]},
            {"a": sk.output(dims="t", size=3, pad=True)},
            "output 'a' has 4 entries along 't', but the sweep declares at most 3",
        ),
        (
            {"a": np.zeros((1, 3))},
            {"a": sk.output(dims=("t", "k"), size=(2, 2), pad=True)},
            "output 'a' has 3 entries along 'k', but the sweep declares 2",
        ),
        (
            {"a": xr.DataArray(np.zeros((1, 2)), dims=("k", "q"))},
            {"a": sk.output(dims=("t", "k"))},
            "output 'a' has dims (k, q), but the sweep declares (t, k)",
        ),
        ({"b": 1}, {"a": sk.output()}, "output 'a' is declared but was not returned; returned: b"),
        (
            {"y": [1.0], "y_length": 3},
            {"y": sk.output(dims="t", size=2, pad=True)},
            "output 'y_length' has the name kept for the lengths of 'y'; rename it",
        ),
        (
            {"a": xr.DataArray([1], dims="a")},
            {},
            "output 'a' has a dim 'a', which is also the name",
        ),
        (
            {"t": 1, "a": xr.DataArray([1], dims="t")},
            {},
            "'a' has a dim 't', which is also the nam",
        ),
        ({"a": xr.DataArray([1], dims="status")}, {}, "also the name of a variable of the store"),
        ({"a": xr.DataArray([1], dims="a b")}, {}, "dim name 'a b' is no identifier"),
        (
            {"a": xr.DataArray([1], dims="t"), "b": xr.DataArray([1, 2], dims="t")},
            {},
            "dim 't' has 2 entries in output 'b' and 1 in 'a'; give one of them a dim of its own",
        ),
    ],
)
def test_a_misfit_names_the_output_and_both_sides(
    result: Any, declared: dict[str, Output], text: str
) -> None:
    assert text in fault(result, **declared)


@pytest.mark.parametrize(
    ("value", "fill"),
    [
        ([1.5], float("nan")),
        ([1], 0),
        ([True], False),
        (["x"], ""),
        ([datetime.timedelta(1)], -(2**63)),
        ([datetime.datetime(2020, 1, 1)], -(2**63)),
    ],
)
def test_a_trace_that_ends_early_is_padded_by_type_and_its_length_kept(
    value: Any, fill: Any
) -> None:
    column = one({"a": value}, a=sk.output(dims="t", size=3, pad=True))["a"]
    assert (column.pad, column.dims, column.values.shape) == ("t", ("t",), (1, 3))
    assert column.lengths is not None
    assert column.lengths.tolist() == [1]
    assert all(np.isnan(x) if fill != fill else x == fill for x in column.values[0, 1:].tolist())


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=False), max_size=5), min_size=1, max_size=8))
def test_padding_keeps_each_trace_and_its_length(traces: list[list[float]]) -> None:
    said = sk.output(dims="t", size=5, pad=True)
    columns, misfits = collect(*({"a": np.array(trace)} for trace in traces), a=said)
    assert misfits == {}
    (column,) = columns["a"]
    assert column.lengths is not None
    assert column.lengths.tolist() == [len(trace) for trace in traces]
    for row, trace in zip(column.values, traces, strict=True):
        assert row[: len(trace)].tolist() == trace
        assert np.isnan(row[len(trace) :]).all()


def test_only_the_first_dim_is_padded() -> None:
    said = sk.output(dims=("t", "k"), size=(3, 2), pad=True)
    column = one({"a": np.ones((1, 2))}, a=said)["a"]
    assert np.isnan(column.values[0, 1:]).all()
    assert column.values[0, 0].tolist() == [1.0, 1.0]


# --- declared types ------------------------------------------------------------------------------


def test_floats_are_rounded_to_a_declared_dtype() -> None:
    column = one({"a": 0.1}, a=sk.output(dtype="float32"))["a"]
    assert (column.dtype, column.values.dtype) == ("float32", np.dtype("float32"))
    assert column.values.tolist() == [float(np.float32(0.1))]


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1e300, "float32", "output 'a' is float64 and too large for the declared float32"),
        (3.5, "int32", "output 'a' is float64 3.5, but the sweep stores int32, which cannot hold"),
        (float("nan"), "int32", "output 'a' is float64 nan, but the sweep stores int32"),
        (2**40, "int32", f"output 'a' is int64 {2**40}, but the sweep stores int32"),
        (-1, "uint8", "output 'a' is int64 -1, but the sweep stores uint8"),
        (1, "bool", "output 'a' is int64, but the sweep stores bool"),
        (True, "int64", "output 'a' is bool, but the sweep stores int64"),
        (1, str, "output 'a' is int64, but the sweep stores str"),
        ("1", "float64", "output 'a' is str, but the sweep stores float64"),
        (1j, "float64", "output 'a' is complex128 1j, but the sweep stores float64"),
        (2**53 + 1, "float64", f"output 'a' is int64 {2**53 + 1}, but the sweep stores float64"),
    ],
)
def test_what_a_declared_dtype_cannot_hold_is_invalid(value: Any, dtype: Any, text: str) -> None:
    assert text in fault({"a": value}, a=sk.output(dtype=dtype))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3.0, "int32"),
        (127.0, "int8"),
        (-128.0, "int8"),
        (2.0**31 - 1, "int32"),
        (-(2.0**63), "int64"),
        (np.nextafter(2.0**63, 0), "int64"),
        (255.0, "uint8"),
    ],
)
def test_integral_floats_fit_declared_integers(value: float, dtype: str) -> None:
    column = one({"a": value}, a=sk.output(dtype=dtype))["a"]
    assert (column.dtype, column.values.tolist()) == (dtype, [int(value)])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(128.0, "int8"), (2.0**31, "int32"), (2.0**63, "int64"), (2.0**64, "uint64"), (-1.0, "uint8")],
)
def test_floats_just_outside_of_declared_integers_are_invalid(value: float, dtype: str) -> None:
    assert f"but the sweep stores {dtype}" in fault({"a": value}, a=sk.output(dtype=dtype))


# --- what may be declared ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"dims": "t", "size": (3, 4)}, ValueError, r"an output has 1 dim\(s\) \(t\) and 2 size"),
        ({"size": 3}, ValueError, r"an output has 0 dim\(s\) \(\) and 1 size"),
        ({"dims": "t", "size": 0}, ValueError, "size 0 of an output is no whole number of at leas"),
        ({"dims": "t", "size": "3"}, ValueError, "size '3' of an output is no whole number"),
        ({"dims": "t", "size": True}, ValueError, "size True of an output is no whole number"),
        ({"pad": True}, ValueError, r"needs dims and size, as in output\(dims='time', size=500\)"),
        ({"dims": "t", "pad": True}, ValueError, "a padded output needs dims and size"),
        ({"dims": "a b"}, ValueError, "dim name 'a b' is no identifier"),
        ({"dims": "status"}, ValueError, "dim 'status' has the name of a variable of the store"),
        ({"dims": ("t", "t")}, ValueError, "an output names a dim twice: t, t"),
        ({"dims": 3}, TypeError, "dims are 3; give the name of a dim, or a sequence of names"),
        ({"dtype": "object"}, ValueError, "dtype 'object' of an output cannot be stored"),
        ({"dtype": "foo"}, ValueError, "dtype 'foo' of an output cannot be stored"),
        ({"dtype": np.longdouble}, ValueError, "longdouble.* of an output cannot be stored"),
        ({"units": 3}, TypeError, "units of an output is 3; give a string"),
        ({"long_name": ["x"]}, TypeError, r"long_name of an output is \['x'\]; give a string"),
    ],
)
def test_what_cannot_be_declared_is_refused(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        sk.output(**arguments)


@pytest.mark.parametrize(
    "said",
    [
        sk.output(),
        sk.output(units="m", long_name="length"),
        sk.output(dims="t"),
        sk.output(dims=("t", "k"), size=(3, 2), pad=True, dtype="float32"),
        sk.output(dtype=str),
        sk.output(dtype="datetime64[s]"),
    ],
)
def test_a_declaration_goes_to_json_and_back(said: Output) -> None:
    import json

    assert Output.from_json(json.loads(json.dumps(said.to_json()))) == said


def test_the_stored_variable_takes_type_and_shape_from_the_first_result() -> None:
    said = sk.output(dims="t", size=3, pad=True, units="rad")
    variable = learnt("a", one({"a": [1.5]}, a=said)["a"], said)
    assert (variable.dtype, variable.dims, variable.shape, variable.pad) == (
        "float64",
        ("t",),
        (3,),
        "t",
    )
    assert variable.attrs == {"units": "rad", "length": "a_length"}


def test_a_column_of_another_shape_is_told_with_both_shapes_and_the_way_on() -> None:
    first, second, scalar = (one({"a": v})["a"] for v in ([1, 2], [1, 2, 3], 1))
    variable = learnt("a", first, None)
    assert shape_fault(variable, first) is None
    told = shape_fault(variable, second)
    assert told is not None
    assert told.startswith("output 'a' is (a_dim_0: 3), but the sweep stores (a_dim_0: 2)")
    assert "outputs={'a': sk.output(dims='a_dim_0', size=..., pad=True)}" in told
    assert shape_fault(variable, scalar) == (
        "output 'a' is a scalar, but the sweep stores (a_dim_0: 2)"
    )


# --- types that hold others ----------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(DTYPES, 2)))
def test_joining_types_is_symmetric_and_idempotent(a: str, b: str) -> None:
    joined = joined_dtype(a, b)
    assert joined == joined_dtype(b, a)
    if a == b:
        assert joined == a
    if joined is not None:
        assert joined_dtype(joined, a) == joined_dtype(joined, b) == joined


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        ("int8", "int64", "int64"),
        ("uint8", "int8", "int16"),
        ("uint32", "int32", "int64"),
        ("uint64", "int8", None),
        ("int64", "float64", "float64"),
        ("int8", "float16", "float64"),
        ("float32", "float64", "float64"),
        ("float64", "complex64", "complex128"),
        ("int64", "complex64", "complex128"),
        ("bool", "int64", None),
        ("bool", "float64", None),
        ("str", "int64", None),
        ("datetime64[ns]", "timedelta64[ns]", None),
        ("datetime64[ns]", "int64", None),
    ],
)
def test_the_table_of_joined_types(a: str, b: str, joined: str | None) -> None:
    assert joined_dtype(a, b) == joined


def test_integers_that_do_not_join_are_held_by_the_type_that_the_values_ask_for() -> None:
    few, beyond = np.array([5], np.uint64), np.array([2**63 + 1], np.uint64)
    assert integer_of_both("int64", few, "uint64") == "int64"
    assert integer_of_both("int64", beyond, "uint64") == "uint64"
    assert integer_of_both("uint64", np.array([5]), "int64") == "uint64"
    assert integer_of_both("uint64", np.array([-1], np.int8), "int8") == "int64"
    assert integer_of_both("int64", np.array([0.5]), "float64") is None
    assert integer_of_both("str", few, "uint64") is None


def test_a_misfit_says_what_to_do() -> None:
    beyond = np.array(2**63 + 1, np.uint64)
    with pytest.raises(Misfit, match=r"beside negative ones: return text, or float\(...\)"):
        cast_exactly("x", beyond, "uint64", "int64")
    with pytest.raises(Misfit, match=r"declare a wider one, as in sk.output\(dtype='int64'\)"):
        cast_exactly("x", np.array(200), "int64", "int8")
    with pytest.raises(Misfit, match=r"return text, or float\(...\) in every run, which rounds"):
        cast_exactly("x", np.array(2**60 + 1), "int64", "float64")
    with pytest.raises(Misfit, match="return one type in every run"):
        cast_exactly("x", np.array(1), "int64", "str")


NUMBERS = [name for name in DTYPES if np.dtype(name if name != "str" else "O").kind in "iufc"]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether numbers are equal one by one, by exact value and with NaN equal to itself."""

    def parts(x: Any) -> Any:
        x = x.item()
        if isinstance(x, complex):
            return parts(np.float64(x.real)), parts(np.float64(x.imag))
        return "nan" if x != x else x

    def real(x: Any) -> Any:
        return x[0] if isinstance(x, tuple) and x[1] == 0 else x

    return all(real(parts(x)) == real(parts(y)) for x, y in zip(a.flat, b.flat, strict=True))


@settings(max_examples=400, deadline=None)
@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_a_cast_keeps_every_number_or_is_refused(data: st.DataObject, a: str, b: str) -> None:
    values = data.draw(hnp.arrays(a, st.integers(0, 4)))
    try:
        cast = cast_exactly("x", values, a, b)
    except Misfit as misfit:
        told = str(misfit)
        assert told.startswith(f"output 'x' is {a} ")
        assert f"but the sweep stores {b}, which cannot hold it without loss" in told
    else:
        assert cast.dtype == np.dtype(b)
        assert same(cast, values)


@settings(deadline=None)
@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_what_two_types_join_to_holds_the_values_of_both(
    data: st.DataObject, a: str, b: str
) -> None:
    joined = joined_dtype(a, b)
    if joined is None:
        return
    values = data.draw(hnp.arrays(a, st.integers(1, 4)))
    from_whole = np.dtype(a).kind in "iu" and np.dtype(joined).kind in "fc"
    if from_whole and any(abs(int(value)) > 2**53 for value in values):
        with pytest.raises(Misfit, match=f"output 'x' is {a} .*the sweep stores {joined}"):
            cast_exactly("x", values, a, joined)
        return
    assert same(cast_exactly("x", values, a, joined), values)


@pytest.mark.parametrize(
    ("a", "b"),
    [pair for pair in itertools.permutations(DTYPES, 2) if joined_dtype(*pair) is None],
)
def test_kinds_that_do_not_join_are_never_cast(a: str, b: str) -> None:
    if {a, b} <= set(NUMBERS):
        return  # uint64 and signed integers: by value
    blank = np.full(1, fill_value(a), dtype=object if a == "str" else None)
    with pytest.raises(Misfit, match=r"but the sweep stores .*, which cannot hold it without loss"):
        cast_exactly("x", blank, a, b)

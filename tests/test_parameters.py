from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import itertools
import pathlib
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import sweepkit as sk
from sweepkit.canonical import canonical, near_misses
from sweepkit.parameters import parameter


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def keys(values: Any, name: str = "x") -> list[tuple[int, ...]]:
    return [tuple(key) for key in parameter(name, values).keys().tolist()]


def stored(values: Any) -> list[Any]:
    return parameter("x", values).values.tolist()


NS = {"datetime": "datetime64[ns]", "timedelta": "timedelta64[ns]"}

# --- every kind of value comes in ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "dtype"),
    [
        ([1, 2], "number", "int64"),
        ([1.5, 2], "number", "float64"),
        ([1, 2.5, np.float32(0.5), np.int8(7)], "number", "float64"),
        ((1, 2, 3), "number", "int64"),
        (range(3), "number", "int64"),
        (range(9, 0, -2), "number", "int64"),
        ((i for i in range(3)), "number", "int64"),
        (map(float, [1, 2]), "number", "float64"),
        (collections.deque([1, 2]), "number", "int64"),
        (array.array("d", [1.0, 2.0]), "number", "float64"),
        (np.array([1, 2], dtype=">i4"), "number", "int64"),
        (np.array([1, 2], dtype=np.uint8), "number", "int64"),
        (np.array([0.1, 0.2], dtype=np.float32), "number", "float64"),
        (np.array([0.5], dtype=np.longdouble), "number", "float64"),
        (np.array([1, 2], dtype=object), "number", "int64"),
        ([np.array(1), np.array(2)], "number", "int64"),
        ([2**63, 1], "number", "uint64"),
        ([2**70, 0.5], "number", "float64"),
        ([np.inf, -np.inf, 1.0], "number", "float64"),
        ([True, False], "bool", "bool"),
        ([np.True_], "bool", "bool"),
        (["a", ""], "str", "object"),
        (np.array(["a", "b"]), "str", "object"),
        (np.array(["a", "b"], dtype=np.dtypes.StringDType()), "str", "object"),
        ([np.str_("a")], "str", "object"),
        ({"a": 1, "b": 2}.keys(), "str", "object"),
        ([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 2)], "datetime", NS["datetime"]),
        ([np.datetime64("2020"), np.datetime64("2020-02-01T01")], "datetime", NS["datetime"]),
        ([pd.Timestamp("2020-01-01")], "datetime", NS["datetime"]),
        ([datetime.timedelta(1), np.timedelta64(3, "ms")], "timedelta", NS["timedelta"]),
        (pd.RangeIndex(3), "number", "int64"),
        (pd.date_range("2020", periods=3), "datetime", NS["datetime"]),
        (pd.timedelta_range("1s", periods=3), "timedelta", NS["timedelta"]),
        (pd.Series([1.5, 2.5]), "number", "float64"),
        (pd.Series(["a", "b"]), "str", "object"),
        (pd.array(["a", "b"], dtype="string"), "str", "object"),
        (pd.array([1, 2], dtype="Int64"), "number", "int64"),
        (pd.array([1.5], dtype="Float64"), "number", "float64"),
        (pd.array([True, False], dtype="boolean"), "bool", "bool"),
        (pd.Categorical(["a", "b"]), "str", "object"),
        (pd.Categorical([3, 1]), "number", "int64"),
        (pd.CategoricalIndex(["a", "b"]), "str", "object"),
        (pd.Series(["a", "b"], dtype="category"), "str", "object"),
        (xr.DataArray([1, 2]), "number", "int64"),
        (np.ma.array([1, 2]), "number", "int64"),
        ({"pid": object(), "lqr": len}, "label", "object"),
    ],
)
def test_values_of_every_kind_become_one_of_few_dtypes(given: Any, kind: str, dtype: str) -> None:
    one = parameter("x", given)
    assert one.kind == kind
    assert one.values.dtype == np.dtype(dtype)
    assert one.dims == ("x",)
    assert not one.values.flags.writeable


@pytest.mark.parametrize(
    "given",
    [3, 2.5, True, "abc", np.float32(3), np.array(3), xr.DataArray(3), np.datetime64("2020")],
)
def test_a_single_value_is_one_value(given: Any) -> None:
    assert parameter("x", given).size == 1


def test_nanoseconds_of_pandas_are_kept() -> None:
    stamp, span = pd.Timestamp("2020-01-01T00:00:00.000000001"), pd.Timedelta("1ns")
    assert parameter("x", [stamp]).values[0] == np.datetime64("2020-01-01T00:00:00.000000001")
    assert parameter("x", [span]).values[0] == np.timedelta64(1, "ns")


def test_the_caller_s_array_is_neither_frozen_nor_shared() -> None:
    mine = np.array([1.0, 2.0])
    one = parameter("x", mine)
    mine[0] = 7.0
    assert one.values.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        one.values[0] = 3.0


def test_a_parameter_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parameter("x", [1]).name = "y"  # type: ignore[misc]


# --- what is refused -----------------------------------------------------------------------------

NAN = r"a value of parameter 'x' is NaN, which equals nothing.*leave it out"
MISSING = r"a value of parameter 'x' is missing \(<NA>\); leave it out"
NONE = r"a value of parameter 'x' is None; give it a label with sk.values\(\{'none': None"
MIXED = r"values of parameter 'x' are of mixed types: {}; make them one type, or give them labels"
UNSUPPORTED = r"value {} of parameter 'x' is of type {}, which is no coordinate value;.*label"
ZONE = r"parameter 'x' carr(y|ies) (a|the) time zone.*convert to UTC and drop it"
RANGE = r"parameter 'x' is outside the years 1678 to 2261 or finer than a nanosecond"


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ([1.0, np.nan], ValueError, NAN),
        (np.array([np.nan]), ValueError, NAN),
        (np.array([np.nan], dtype=np.longdouble), ValueError, NAN),
        (["a", np.nan], ValueError, NAN),
        (pd.Categorical(["a", None]), ValueError, NAN),
        ([np.datetime64("NaT", "ns")], ValueError, "parameter 'x' is NaT; leave it out"),
        ([pd.NaT], ValueError, "parameter 'x' is NaT; leave it out"),
        (pd.Series([pd.Timestamp("2020"), None]), ValueError, "parameter 'x' is NaT"),
        ([None], TypeError, NONE),
        (["a", None], TypeError, NONE),
        (np.array(["a", None], dtype=object), TypeError, NONE),
        (np.array(["a", None], dtype=np.dtypes.StringDType(na_object=None)), TypeError, NONE),
        ([1, pd.NA], ValueError, MISSING),
        (["a", pd.NA], ValueError, MISSING),
        (pd.array([1, None], dtype="Int64"), ValueError, MISSING),
        (np.ma.array([1, 2], mask=[False, True]), ValueError, "'x' are masked in places; leave"),
        ([1, np.ma.masked], ValueError, "'x' is masked; leave it out"),
        ([1, "a"], TypeError, MIXED.format(r"1 \(number\), 'a' \(str\)")),
        ([True, 1], TypeError, MIXED.format(r"True \(bool\), 1 \(number\)")),
        ([0, False], TypeError, MIXED.format(r"0 \(number\), False \(bool\)")),
        ([[1, "a"], [2, "b"]], TypeError, MIXED.format(r"1 \(number\), 'a' \(str\)")),
        ([np.timedelta64(1, "s"), 2], TypeError, "mixed types.*timedelta.*number"),
        ([datetime.datetime(2020, 1, 1), datetime.timedelta(1)], TypeError, "mixed types"),
        ([decimal.Decimal("1.1")], TypeError, UNSUPPORTED.format(r"Decimal\('1.1'\)", "Decimal")),
        ([fractions.Fraction(1, 3)], TypeError, UNSUPPORTED.format(".*", "Fraction")),
        ([pathlib.Path("a")], TypeError, UNSUPPORTED.format(r"PosixPath\('a'\)", "PosixPath")),
        ([1j], TypeError, UNSUPPORTED.format("1j", "complex")),
        (np.array([1j]), TypeError, UNSUPPORTED.format(".*1j.*", "complex128")),
        ([b"a"], TypeError, UNSUPPORTED.format("b'a'", "bytes")),
        (b"abc", TypeError, UNSUPPORTED.format("b'abc'", "bytes")),
        ([uuid.UUID(int=1)], TypeError, UNSUPPORTED.format("UUID.*", "UUID")),
        ([datetime.time(1)], TypeError, UNSUPPORTED.format(".*", "time")),
        ([print], TypeError, UNSUPPORTED.format(".*print.*", "builtin_function_or_method")),
        (
            pd.period_range("2020", periods=2, freq="M"),
            TypeError,
            UNSUPPORTED.format(".*", "Period"),
        ),
        (np.zeros(1, dtype=[("a", int)]), TypeError, "of parameter 'x' is of type .*'a'"),
        ([Color.RED], TypeError, r"<Color.RED: 1> of parameter 'x' is a member of the Enum Color"),
        ([Level.LOW], TypeError, r"sk.values\(\{one.name: one for one in Level\}\)"),
        ({1, 2}, TypeError, "'x' are a set, which has no order; give a list"),
        (frozenset([1]), TypeError, "'x' are a set, which has no order; give a list"),
        (pd.DataFrame({"a": [1]}), TypeError, r"'x' are a table; .*sk.paired\(dict\(table.items"),
        (pd.MultiIndex.from_product([[1], ["a"]]), TypeError, "'x' are a MultiIndex; .*sk.paired"),
        ([datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)], TypeError, ZONE),
        (pd.date_range("2020", periods=2, tz="UTC"), TypeError, ZONE),
        (pd.Series(pd.date_range("2020", periods=2, tz="UTC")), TypeError, ZONE),
        ([datetime.datetime(1, 1, 1)], ValueError, RANGE),
        ([np.datetime64("9999", "Y"), np.datetime64("2020", "ns")], ValueError, RANGE),
        (np.array([1], dtype="M8[ps]"), ValueError, RANGE),
        (
            np.array([1], "m8[M]"),
            ValueError,
            "'x' is a timedelta of dtype .* months and years diff",
        ),
        ([np.timedelta64(1, "Y")], ValueError, "months and years differ in length; give days"),
        ([np.timedelta64(3)], ValueError, "'x' is a timedelta without a unit; give it one"),
        ([2**70], ValueError, f"value {2**70} of parameter 'x' does not fit the 64 bits"),
        ([10**5000], ValueError, "value of 16610 bits of parameter 'x' does not fit the 64 bits"),
        ([2**63, -1], ValueError, f"value {2**63} of parameter 'x' .* beside negative values"),
        ([2**53 + 1, 0.5], ValueError, f"value {2**53 + 1} of parameter 'x' is no exact float"),
        ([10**400, 0.5], ValueError, "of parameter 'x' is no exact float"),
        ([np.longdouble("0.1")], ValueError, "'x' has more digits than a float64 holds; round it"),
        (np.array(["0.5", "0.1"], np.longdouble), ValueError, "0.1.* has more digits"),
        ([[1, 2], [3]], ValueError, "'x' are sequences of different lengths; give them labels"),
        (np.zeros((2, 3)), ValueError, r"shape \(2, 3\) but 1 dim\(s\) \(x\); .*dims=\('x', 'comp"),
        ([(1, 2), (3, 4)], ValueError, r"parameter 'x' has values of shape \(2, 2\)"),
        ([], ValueError, "parameter 'x' has no values; give at least one"),
        (np.array([], dtype=str), ValueError, "parameter 'x' has no values"),
        ({}, ValueError, "parameter 'x' has no values"),
        (range(0), ValueError, "parameter 'x' has no values"),
        (range(10**9), ValueError, r"'x' has 1,000,000,000 values, more than 10,000,000.*sk.sobol"),
        (["\ud800"], ValueError, "holds half a character .* mend the text"),
        (
            {1: "a"},
            TypeError,
            "label 1 of parameter 'x' is no plain string; a mapping gives labels",
        ),
        ({"": 1}, TypeError, "label '' of parameter 'x' is empty"),
        ({Color.RED: 1}, TypeError, "label <Color.RED: 1> of parameter 'x' is no plain string"),
    ],
)
def test_what_is_no_value_is_refused_by_name(given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sk.grid({"x": given})


def test_an_endless_iterable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepkit.canonical.AXIS", 1000)
    with pytest.raises(ValueError, match="'x' have not ended after 1,000; give a list of them"):
        sk.grid(x=itertools.count())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([1, 2, 1], "1"),
        ([5, 5.0], "5.0"),
        ([0.0, -0.0], "0.0"),
        (["a", "b", "a"], "'a'"),
        ([True, True], "True"),
        (np.array([1, 1], dtype=np.int8), "1"),
        ([np.datetime64("2020-01-01", "D"), np.datetime64("2020-01-01T00", "h")], "2020-01-01"),
        ([np.timedelta64(1, "s"), np.timedelta64(1000, "ms")], "1 seconds"),
        (pd.Categorical(["a", "a"]), "'a'"),
    ],
)
def test_a_value_given_twice_is_refused_as_people_write_it(given: Any, shown: str) -> None:
    text = rf"value {shown} of parameter 'x' is given twice .*leave one out .*replicates="
    with pytest.raises(ValueError, match=text):
        sk.grid(x=given)


def test_floats_that_differ_by_rounding_alone_are_refused_with_both_shown() -> None:
    with pytest.raises(ValueError, match=r"values 0.3 and 0.30000000000000004 of parameter 'x'"):
        sk.grid(x=[0.1 + 0.2, 0.3])


def test_an_infinite_value_is_near_no_finite_one() -> None:
    assert near_misses(np.array([-np.inf, -1e308, 1e308, np.inf])) == []


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_near_misses_are_pairs_of_different_floats_within_a_relative_1e_13(
    values: list[float],
) -> None:
    for low, high in near_misses(np.array(values)):
        assert low < high
        assert high - low <= 1e-13 * max(abs(low), abs(high))


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("a b", ValueError, "parameter name 'a b' is no identifier; .*such as 'a_b'"),
        ("1a", ValueError, "parameter name '1a' is no identifier; .*such as 'x1a'"),
        ("", ValueError, "parameter name '' is no identifier"),
        ("a.b", ValueError, "parameter name 'a.b' is no identifier"),
        ("a/b", ValueError, "parameter name 'a/b' is no identifier"),
        ("class", ValueError, "parameter name 'class' is no identifier; .*such as 'class_'"),
        ("None", ValueError, "parameter name 'None' is no identifier"),
        ("__x", ValueError, "parameter name '__x' starts with two underscores"),
        ("µ", ValueError, "'µ' is not written as Python writes names; give 'μ'"),
        (1, TypeError, "parameter name 1 is of type int; give a string"),
        (None, TypeError, "parameter name None is of type NoneType; give a string"),
    ],
)
def test_names_that_are_no_identifiers_are_refused(
    name: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        sk.grid({name: [1]})


@pytest.mark.parametrize("name", ["n", "seed", "dim", "size", "match", "type", "self", "λ", "_x"])
def test_any_identifier_can_name_a_parameter(name: str) -> None:
    assert sk.grid({name: [1, 2]}).names == (name,)


# --- what is said of values ----------------------------------------------------------------------


def test_role_units_and_name_are_attributes_of_the_coordinate() -> None:
    one = parameter("x", sk.scenario([1, 2], units="m", long_name="length", weights="trapezoid"))
    assert one.attrs == {
        "role": "scenario",
        "units": "m",
        "long_name": "length",
        "weights": "trapezoid",
    }
    assert parameter("x", [1]).attrs == {"role": "design"}


def test_attributes_and_dims_of_a_dataarray_are_taken() -> None:
    attrs = {"role": "scenario", "units": "kg", "long_name": "mass", "weights": "midpoint"}
    one = parameter("x", xr.DataArray([1, 2], dims="case", attrs=attrs))
    assert one.attrs == attrs
    assert one.dims == ("case",)


def test_what_is_said_outweighs_the_attributes_of_a_dataarray() -> None:
    given = xr.DataArray([1, 2], dims="case", attrs={"role": "scenario", "units": "kg"})
    one = parameter("x", sk.values(given, dims="x", units="g", role="replicate"))
    assert (one.dims, one.units, one.role) == (("x",), "g", "replicate")


def test_foreign_attributes_of_a_dataarray_are_left_alone() -> None:
    attrs = {"role": "axis", "weights": [1, 2]}
    one = parameter("x", xr.DataArray([1, 2], attrs=attrs))
    assert one.attrs == {"role": "design"}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: sk.values([1], role="plant"), ValueError, "role 'plant' is none of design, scen"),
        (lambda: sk.design([1], weights="even"), ValueError, "weights 'even' is none of midpoint"),
        (lambda: sk.design(sk.scenario([1])), TypeError, "values are wrapped twice; give the role"),
        (lambda: sk.values([1], dims=3), TypeError, "dims are 3; give the name of a dim"),
        (lambda: sk.grid(x=sk.design([1], units=3)), TypeError, "units of parameter 'x' is 3; giv"),
        (lambda: sk.grid(x=sk.values([1], dims="a b")), ValueError, "dim name 'a b' is no identif"),
        (lambda: sk.grid(x=sk.values([[1]], dims=("d", "d"))), ValueError, "'x' names a dim twice"),
        (lambda: sk.grid(x=sk.values([1], dims=())), ValueError, r"shape \(1,\) but 0 dim\(s\)"),
    ],
)
def test_what_cannot_be_said_of_values_is_refused(
    call: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


# --- what the simulator gets ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind"),
    [([1], int), ([1.5], float), ([True], bool), (["a"], str), ([2**63], int)],
)
def test_the_simulator_gets_plain_python_scalars(given: Any, kind: type) -> None:
    assert [type(value) for value in parameter("x", given).handed(np.array([0]))] == [kind]


def test_the_simulator_gets_numpy_datetimes_and_timedeltas() -> None:
    when, span = parameter("x", pd.date_range("2020", periods=2)), parameter("x", [pd.Timedelta(1)])
    assert when.handed(np.array([1])) == [np.datetime64("2020-01-02")]
    assert span.handed(np.array([0])) == [np.timedelta64(1, "ns")]


def test_the_simulator_gets_the_object_behind_a_label() -> None:
    pid, lqr = {"gain": [1.0, 2.0]}, lambda x: x
    one = parameter("controller", {"pid": pid, "lqr": lqr})
    assert one.values.tolist() == ["pid", "lqr"]
    assert list(one.handed(np.array([1, 0, 1]))) == [lqr, pid, lqr]
    assert list(one.take(np.array([1])).handed(np.array([0]))) == [lqr]


def test_each_run_gets_an_object_of_its_own() -> None:
    one = parameter("controller", {"pid": {"gain": [1.0, 2.0]}})
    first, second = one.handed(np.array([0, 0]))
    first["gain"].append(3.0)
    assert second == {"gain": [1.0, 2.0]}
    assert next(iter(one.handed(np.array([0])))) == second


def test_the_simulator_gets_a_vector_as_one_value() -> None:
    one = parameter("x0", sk.values([[0.0, 1.0], [2.0, 3.0]], dims=("case", "state")))
    (vector,) = one.handed(np.array([1]))
    assert vector.tolist() == [2.0, 3.0]


# --- identity ------------------------------------------------------------------------------------

whole = st.integers(-(2**63), 2**64 - 1)
finite = st.floats(allow_nan=False)
moments = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
spans = st.timedeltas(datetime.timedelta(-30000), datetime.timedelta(30000))
texts = st.text(st.characters(exclude_categories=["Cs"]))
one_value = st.one_of(whole, finite, st.booleans(), texts, moments, spans)


@settings(deadline=None)
@given(whole)
def test_integral_numbers_count_by_value(number: int) -> None:
    same = [[number]]
    if -(2**31) <= number < 2**31:
        same += [np.array([number], np.int32), [np.int32(number)], [float(number)]]
    if 0 <= number < 2**64:
        same += [np.array([number], np.uint64)]
    if int(float(number)) == number:
        same += [[float(number)]]
    assert len({tuple(keys(given)) for given in same}) == 1


def test_five_is_five_in_every_type() -> None:
    same: list[Any] = [5, 5.0, np.int32(5), np.uint8(5), np.float16(5), np.longdouble(5)]
    same += [pd.array([5], dtype="Int64"), pd.array([5.0], dtype="Float64"), range(5, 6)]
    same += [np.array([5], dtype=object), np.array([5], dtype=">f4"), xr.DataArray([5])]
    assert len({tuple(keys(given)) for given in same}) == 1


@settings(deadline=None)
@given(finite)
def test_floats_count_by_their_exact_float64(number: float) -> None:
    same = [[number], np.array([number]), [np.float64(number)]]
    assert len({tuple(keys(given)) for given in same}) == 1
    beside = np.nextafter(number, 0.0) if abs(number) > 1 else np.nextafter(number, 2.0)
    assert (keys([beside]) == keys([number])) == (beside == number)


def test_minus_zero_is_zero() -> None:
    assert keys([-0.0]) == keys([0.0]) == keys([0])
    assert str(parameter("x", [-0.0]).values[0]) == "0.0"


def test_a_float32_is_its_own_value_and_not_the_decimal_it_was_written_as() -> None:
    assert keys(np.array([0.1], np.float32)) != keys([0.1])
    assert keys(np.array([0.5], np.float32)) == keys([0.5])


@pytest.mark.parametrize(
    "different",
    [
        ([1], [True], ["1"], [np.timedelta64(1, "ns")], [np.datetime64(1, "ns")], {"1": 1}),
        (["a"], {"a": 1}),
        ([0], [False], [""], ["0"]),
        (["a\0b"], ["a"]),
    ],
)
def test_kinds_of_values_are_kinds_of_their_own(different: tuple[Any, ...]) -> None:
    assert len({tuple(keys(given)) for given in different}) == len(different)


def test_datetimes_count_by_their_nanosecond() -> None:
    same = [
        [datetime.date(2020, 1, 1)],
        [datetime.datetime(2020, 1, 1)],
        [pd.Timestamp("2020-01-01")],
        np.array(["2020-01-01"], dtype="M8[D]"),
        pd.DatetimeIndex(["2020-01-01"]),
    ]
    assert len({tuple(keys(given)) for given in same}) == 1


def test_a_label_counts_by_its_text_and_not_by_its_object() -> None:
    assert keys({"pid": 1}) == keys({"pid": object()})


@settings(deadline=None)
@given(texts, texts)
def test_text_counts_by_its_characters(a: str, b: str) -> None:
    assert (keys([a]) == keys([b])) == (a == b)


@settings(deadline=None)
@given(one_value, one_value)
def test_different_values_have_different_keys(a: Any, b: Any) -> None:
    alike = isinstance(a, bool) == isinstance(b, bool) and a == b
    assert (keys([a]) == keys([b])) == alike


@settings(deadline=None)
@given(st.lists(finite, min_size=1, max_size=12, unique=True), st.randoms())
def test_a_value_s_key_does_not_depend_on_the_others(values: list[float], rnd: Any) -> None:
    shuffled = rnd.sample(values, len(values))
    by_value = dict(zip(values, keys(values), strict=True))
    assert keys(shuffled) == [by_value[value] for value in shuffled]
    assert keys([*values, 0.5, "x"][:1]) == keys(values)[:1]


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(-(2**53), 2**53), finite), min_size=1, max_size=8))
def test_a_mixed_axis_leaves_the_keys_of_its_integers(values: list[float]) -> None:
    assert keys([*values, 0.5])[: len(values)] == [keys([value])[0] for value in values]


def test_the_name_is_part_of_the_key() -> None:
    assert keys([1.5], name="a") != keys([1.5], name="b")
    assert keys(["b"], name="a") != keys([""], name="ab")


def test_vectors_count_by_all_entries_and_their_shape() -> None:
    def of(rows: Any, *dims: str) -> tuple[int, ...]:
        return keys(sk.values(rows, dims=("case", *dims)))[0]

    assert of([[1, 2]], "i") == of([[1.0, 2.0]], "i") == of(np.array([[1, 2]], np.int8), "i")
    different = [
        of([[1, 2]], "i"),
        of([[2, 1]], "i"),
        of([[1, 2, 0]], "i"),
        of([[[1, 2]]], "i", "j"),
    ]
    assert len(set(different)) == 4
    assert of([["a\1sb", "c"]], "i") != of([["a", "b\1sc"]], "i")


def test_keys_of_many_numbers_do_not_collide() -> None:
    digests = parameter("x", np.arange(200_000)).keys()
    assert len(np.unique(digests[:, 0])) == len(digests)


def test_keys_at_some_positions_are_those_of_the_whole_axis() -> None:
    one = parameter("x", [1.5, 2.5, 3.5])
    at = np.array([2, 0, 2])
    assert one.keys(at).tolist() == one.keys()[at].tolist()


KNOWN = {
    "number": "5205a1cf9098d279",
    "float": "23a674fcecfde1d2",
    "bool": "d5843595e8738aec",
    "str": "b0a84984375961b2",
    "label": "d42de570456e758b",
    "time": "2637da52dde571e3",
    "span": "9e6ccf42c2b53be8",
    "vector": "71a0c6fc8d1078dc",
}


def test_known_keys_stay_what_they_are() -> None:
    """Stored sweeps rest on them: a change would rerun everything and change every seed."""
    given = {"number": [5], "float": [0.1], "bool": [True], "str": ["a"], "label": {"a": 1}}
    given |= {"time": [np.datetime64("2020")], "span": [np.timedelta64(1, "s")]}
    given |= {"vector": sk.values([[1, 2]], dims=("case", "i"))}
    found = {name: f"{keys(values)[0][0]:016x}" for name, values in given.items()}
    assert found == KNOWN


@settings(deadline=None)
@given(st.one_of(*(st.lists(kind, min_size=1, max_size=6) for kind in (whole, finite, texts))))
def test_canonical_values_are_canonical(values: list[Any]) -> None:
    try:
        once = canonical("x", values)
    except ValueError as refused:  # integers on both sides of 64 bits
        assert "beside negative values" in str(refused)  # noqa: PT017
        return
    assert np.array_equal(canonical("x", once), once)
    assert once.tolist() == [value + 0 if isinstance(value, float) else value for value in values]

from __future__ import annotations

import datetime
import functools
import json
import pickle
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepkit.expressions import ExpressionError, parse
from sweepkit.requirements import Requirement, collect, fails, margins, requirement, satisfied

NAN = float("nan")
RUN_DIMS = ("gain", "mass")


@pytest.fixture
def values() -> dict[str, xr.Variable]:
    """Two gains by three masses; a trace of four steps."""
    angle = np.array([[[0.1] * 4, [0.3] * 4, [-0.5, 0, 0, 0]], [[0.0] * 4, [NAN] * 4, [0.19] * 4]])
    return {
        "steps": xr.Variable(RUN_DIMS, [[500, 499, 501], [0, 1000, 500]]),
        "upright": xr.Variable(RUN_DIMS, [[1.0, 0.0, NAN], [1.0, 1.0, 1.0]]),
        "angle": xr.Variable((*RUN_DIMS, "time"), angle),
        "gain": xr.Variable("gain", [1.0, 2.0]),
    }


def long_enough(outputs: xr.Dataset) -> xr.DataArray:
    return outputs["steps"] >= 500


def test_a_text_and_its_parts_make_the_same_requirement() -> None:
    whole = requirement("steps >= 500")
    assert whole == Requirement("steps", ">=", 500)
    assert hash(whole) == hash(Requirement("steps", ">=", np.int32(500)))
    assert (whole.output, whole.op, whole.limit) == ("steps", ">=", 500.0)
    assert (whole.name, whole.needs_code, whole.code) == ("steps >= 500", False, None)
    assert requirement(whole) is whole
    assert requirement(parse("steps >= 500")) == whole
    assert requirement(whole, name="long").name == "long"


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (0.2, "x < 0.2"),
        (np.float64(0.2), "x < 0.2"),
        (-3, "x < -3"),
        (2**53 + 1, "x < 9007199254740993"),
        (True, "x < True"),
        ("pid", "x < 'pid'"),
        (np.datetime64("2026-01-01"), "x < '2026-01-01'"),
        (datetime.datetime(2026, 1, 1, 12), "x < '2026-01-01T12:00:00'"),
    ],
)
def test_the_text_of_parts_is_canonical(limit: object, text: str) -> None:
    assert Requirement("x", "<", limit).text == text


def test_an_output_that_is_itself_a_comparison_is_bracketed() -> None:
    made = Requirement("a < 1 or b < 1", "==", True)
    assert made.text == "(a < 1 or b < 1) == True"
    assert satisfied(made, {"a": xr.Variable((), 5), "b": xr.Variable((), 0)}, run_dims=()) == [
        True
    ]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("steps + 1",), "a requirement is a comparison, .* 'steps . 1' is a quantity"),
        (("abs(x).mean(time)",), "a requirement is a comparison"),
        (("-1",), "a requirement is a comparison"),
        (("steps >=",), "cannot read this"),
        (("steps", "=", 3), "operator '=' is not one of < <= > >= == !="),
        (("steps", "< 1 or x <", 3), "is not one of"),
        (("steps", "<"), "needs both an operator and a limit"),
        (("steps", "<", NAN), "a limit is a finite number, .* not nan"),
        (("steps", "<", np.inf), "a limit is a finite number, .* not inf"),
        (("steps", "<", [3]), "a limit is a finite number, .* not \\[3\\]"),
        (("steps", "<", "a'\"b"), "cannot be part of an expression"),
    ],
)
def test_what_is_no_comparison_is_refused(arguments: tuple[Any, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Requirement(*arguments)


def test_other_objects_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a requirement is a text .* not int"):
        requirement(3)
    with pytest.raises(ValueError, match="name is a str that is not empty, not ''"):
        requirement("x < 1", name="")
    with pytest.raises(ValueError, match="'f' is code, so it takes no operator"):
        Requirement("f", "<", 3, code=long_enough)
    with pytest.raises(ValueError, match="requirements are a list of them, not int"):
        collect(3)


def test_requirements_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two requirements are called 'steps >= 500'"):
        collect(["steps >= 500", Requirement("steps", ">=", 500)])
    assert [each.name for each in collect("a < 1")] == ["a < 1"]
    assert [each.name for each in collect(long_enough)] == ["long_enough"]
    two = collect(["a < 1", requirement("a < 1", name="again")])
    assert [each.name for each in two] == ["a < 1", "again"]


def test_check_passes_on_to_the_expression() -> None:
    with pytest.raises(
        ExpressionError, match=r"no 'stesp' \(available: 'steps'\); did you mean 'steps'"
    ):
        requirement("stesp > 1").check(["steps"])
    requirement("angle.max(time) < 1").check(["angle"], dims=["time"], run_dims=["gain"])
    requirement(long_enough).check([])


def test_each_run_is_judged_along_the_run_dims(values: dict[str, xr.Variable]) -> None:
    texts = ["steps >= 500", "abs(angle).max(time) < 0.2", "upright", "gain > 1"]
    held = satisfied(texts, values, run_dims=RUN_DIMS)
    assert held.dtype == bool
    assert held.tolist() == [
        [[True, False, True], [False, True, True]],
        [[True, False, False], [True, False, True]],
        [[True, False, False], [True, True, True]],
        [[False, False, False], [True, True, True]],
    ]
    turned = satisfied(texts, values, run_dims=("mass", "gain"))
    np.testing.assert_array_equal(turned, held.transpose(0, 2, 1))
    assert fails(texts[:3], values, run_dims=RUN_DIMS).tolist() == [
        [False, True, True],
        [True, True, False],
    ]


def test_margins_of_each_run(values: dict[str, xr.Variable]) -> None:
    found = margins(
        ["steps >= 500", "abs(angle).max() < 0.2", "upright"], values, run_dims=RUN_DIMS
    )
    np.testing.assert_allclose(found[0], [[0, -1, 1], [-500, 500, 0]])
    np.testing.assert_allclose(found[1], [[0.1, -0.1, -0.3], [0.2, NAN, 0.01]])
    assert np.isnan(found[2]).all()


def test_nothing_required_fails_nothing(values: dict[str, xr.Variable]) -> None:
    assert satisfied([], values, run_dims=RUN_DIMS).shape == (0, 2, 3)
    assert margins([], values, run_dims=RUN_DIMS).shape == (0, 2, 3)
    assert not fails([], values, run_dims=RUN_DIMS).any()


def test_one_run_has_no_run_dims() -> None:
    one = {"steps": xr.Variable((), 500), "x": xr.Variable("time", [1.0, 3.0])}
    assert satisfied(["steps >= 500", "x.max() < 3"], one, run_dims=()).tolist() == [True, False]
    assert margins(["steps >= 400", "x.max() < 3"], one, run_dims=()).tolist() == [100.0, 0.0]
    assert fails(["steps >= 500"], one, run_dims=()).item() is False


def test_lengths_leave_padding_out(values: dict[str, xr.Variable]) -> None:
    values["angle"][:, :, 2:] = NAN
    values["angle"][1, 1] = 0.1
    lengths = {"angle": ("time", xr.Variable(RUN_DIMS, [[2, 2, 2], [1, 4, 0]]))}
    held = satisfied("abs(angle).max(time) < 0.2", values, run_dims=RUN_DIMS, lengths=lengths)
    assert held[0].tolist() == [[True, False, False], [True, True, False]]


def test_an_output_that_is_not_reduced_is_refused(values: dict[str, xr.Variable]) -> None:
    with pytest.raises(
        ValueError, match=r"the dim 'time' is left; reduce over it, as in 'abs\(angle"
    ):
        satisfied("angle < 0.2", values, run_dims=RUN_DIMS)
    with pytest.raises(ValueError, match="the dim 'time' is left"):
        margins("angle < 0.2", values, run_dims=RUN_DIMS)
    with pytest.raises(ValueError, match="no value has the run dim 'seed'"):
        satisfied("steps > 1", values, run_dims=(*RUN_DIMS, "seed"))


def test_a_quantity_by_itself_is_refused_when_values_tell(values: dict[str, xr.Variable]) -> None:
    with pytest.raises(ExpressionError, match=r"'steps' \(int64\) is a quantity"):
        satisfied("steps", values, run_dims=RUN_DIMS)


def test_a_dataset_with_its_coordinates_is_judged(values: dict[str, xr.Variable]) -> None:
    dataset = xr.Dataset({"steps": values["steps"]}, coords={"gain": values["gain"]})
    held = satisfied(["steps * gain >= 1000", long_enough], dataset, run_dims=RUN_DIMS)
    assert held[0].tolist() == [[False, False, False], [False, True, True]]
    assert held[1].tolist() == [[True, False, True], [False, True, True]]


# --- code ------------------------------------------------------------------------------------


def test_a_function_is_judged_with_the_outputs(values: dict[str, xr.Variable]) -> None:
    made = requirement(long_enough)
    assert (made.name, made.text, made.needs_code, made.limit) == (
        "long_enough", "long_enough", True, None,
    )  # fmt: skip
    assert made.with_limit(3) is None
    held = satisfied([made, "steps < 501"], values, run_dims=RUN_DIMS)
    assert held[0].tolist() == [[True, False, True], [False, True, True]]
    assert np.isnan(margins(made, values, run_dims=RUN_DIMS)).all()
    with pytest.raises(ValueError, match="'long_enough' is code, so it has no expression"):
        _ = made.expression


def test_a_function_sees_padding_as_nan(values: dict[str, xr.Variable]) -> None:
    trace = np.repeat(np.array([[1, 9, 9], [1, 2, 9]])[:, None], 3, axis=1)
    values["trace"] = xr.Variable((*RUN_DIMS, "step"), trace)
    lengths = {"trace": ("step", xr.Variable("gain", [1, 2]))}
    small = requirement(lambda outputs: outputs["trace"].max("step", skipna=True) < 3, name="small")
    held = satisfied(small, values, run_dims=RUN_DIMS, lengths=lengths)
    assert held[0].tolist() == [[True] * 3, [True] * 3]
    lengths = {"trace": ("step", xr.Variable("gain", [NAN, 2.0]))}
    whole = requirement(lambda outputs: outputs["trace"].count("step") == 3, name="whole")
    held = satisfied([small, whole], values, run_dims=RUN_DIMS, lengths=lengths)
    assert held.tolist() == [[[False] * 3, [True] * 3], [[True] * 3, [False] * 3]]
    assert values["trace"].values.tolist() == [[[1, 9, 9]] * 3, [[1, 2, 9]] * 3]


def test_a_function_without_a_name_needs_one() -> None:
    for function in (lambda outputs: outputs["x"] > 1, functools.partial(long_enough)):
        with pytest.raises(ValueError, match="a function without a name needs one"):
            requirement(function)
        assert requirement(function, name="named").name == "named"


def test_a_function_returns_a_boolean_dataarray_over_the_runs(values: dict[str, Any]) -> None:
    for function, match in [
        (lambda outputs: outputs["steps"], "'f' returned int64; it returns a boolean DataArray"),
        (lambda outputs: True, "'f' returned bool; it returns a boolean DataArray"),
        (lambda outputs: outputs["angle"] < 1, "'f' is not one value for each run: the dim 'time'"),
        (
            lambda outputs: outputs["steps"].max() < 1,
            "'f' returned one value for all runs along 'g",
        ),
        (
            lambda outputs: outputs["steps"].max(RUN_DIMS[1]) < 501,
            f"one value for all runs along '{RUN_DIMS[1]}'; reduce over the output's own dims",
        ),
    ]:
        with pytest.raises(ValueError, match=match):
            satisfied(requirement(function, name="f"), values, run_dims=RUN_DIMS)


def test_a_stored_function_raises_by_name_until_it_is_given(values: dict[str, Any]) -> None:
    stored = Requirement.from_json(requirement(long_enough).to_json())
    assert stored.needs_code
    message = (
        r"^requirement 'long_enough' is code, which a store does not carry; "
        r"pass requirements=\[\.\.\.\] with the function$"
    )
    for judge in (satisfied, margins, fails):
        with pytest.raises(ValueError, match=message):
            judge(stored, values, run_dims=RUN_DIMS)


# --- storing and moving ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        requirement("steps >= 500"),
        requirement("0 <= pressure <= 1000", name="in range"),
        Requirement("kind", "==", "pid"),
        requirement("\u03b8.max(time) < 0.2"),
    ],
)
def test_a_requirement_comes_back_from_json_and_pickle(made: Requirement) -> None:
    assert Requirement.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert set(made.to_json()) == {"text", "name", "needs_code"}


def test_a_stored_requirement_needs_a_text() -> None:
    assert Requirement.from_json({"text": "steps >= 500"}).name == "steps >= 500"
    with pytest.raises(ValueError, match=r"has a 'text', which \{'name': 'a'\} lacks"):
        Requirement.from_json({"name": "a"})
    with pytest.raises(ExpressionError, match="not part of the grammar"):
        Requirement.from_json({"text": "__import__('os')", "name": "a"})


def test_a_moved_limit_keeps_the_rest() -> None:
    moved = requirement("0.2 > abs(angle).max(time)", name="calm").with_limit(0.25)
    assert moved is not None
    assert (moved.text, moved.name, moved.limit, moved.op) == (
        "0.25 > abs(angle).max(time)", "calm", 0.25, "<",
    )  # fmt: skip
    unnamed = requirement("steps >= 500").with_limit(-1)
    assert unnamed is not None
    assert (unnamed.text, unnamed.name) == ("steps >= -1", "steps >= -1")
    for text in ("0 <= x <= 1", "x < y", "a < 1 and b < 1", "upright", "kind == 'pid'"):
        assert requirement(text).limit is None
        assert requirement(text).with_limit(1) is None


@given(limit=st.floats(allow_nan=False, allow_infinity=False), op=st.sampled_from(["<", ">="]))
@settings(max_examples=100, deadline=None)
def test_a_limit_comes_back_exactly(limit: float, op: str) -> None:
    made = Requirement("x", op, limit)
    assert made.limit == limit
    moved = Requirement("x", op, 0).with_limit(limit)
    assert moved is not None
    assert moved.limit == limit

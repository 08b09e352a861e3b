from __future__ import annotations

import ast
import math
import operator
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepkit.expressions import ExpressionError, parse
from sweepkit.grammar import MAX_DEPTH, MAX_LENGTH
from tests.waiting import counted

NAN = float("nan")


def runs(*values: Any, dtype: Any = None) -> xr.Variable:
    return xr.Variable("run", np.array(values, dtype=dtype))


def held(text: str, **values: Any) -> Any:
    return parse(text).holds(values, run_dims=("run",)).values.tolist()


def margin(text: str, **values: Any) -> Any:
    return parse(text).margin(values, run_dims=("run",)).values.tolist()


def value(text: str, **values: Any) -> Any:
    return parse(text).evaluate(values, run_dims=("run",)).values.tolist()


# --- reading ---------------------------------------------------------------------------------


def test_names_and_dims_are_told_apart() -> None:
    expression = parse("abs(angle).max(time, 'axis') < limit * 2 and kind == 'pid'")
    assert expression.names == {"angle", "limit", "kind"}
    assert expression.dims == {"time", "axis"}


def test_an_expression_is_equal_hashed_and_pickled_by_its_text() -> None:
    expression = parse("  a\n< 3 ")
    assert expression.text == "a < 3"
    assert {expression, parse("a < 3")} == {expression}
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression
    assert again.names == {"a"}
    assert again.holds({"a": xr.Variable((), 1)})


@pytest.mark.parametrize(
    ("text", "place", "match"),
    [
        ("a = 3", 2, "write == to compare"),
        ("aa & b", 3, "write 'and' for &"),
        ("aa | b", 3, "write 'or' for |"),
        ("(aa) ^ b", 5, "write \\*\\* for a power"),
        ("a && b", 2, "write and, or, not"),
        ("a in b", 2, "write == and 'or'"),
        ("a is b", 2, "write == to compare"),
        ("2 * lambda < 3", 4, "'lambda' is a reserved word"),
        ("a <", 3, "cannot read this"),
        ("a < 1 and a.b < 3", 10, "not part of the grammar"),
        ("a < exec('x')", 4, "not part of the grammar"),
        ("a < (lambda: 1)()", 4, "not part of the grammar"),
        ("a[0] < 1", 0, "not part of the grammar"),
        ("a < 1j", 4, "a number is decimal"),
        ("a < 0x1F", 4, "a number is decimal"),
        ("a < 1 or .5or b", 9, "set apart from words"),
        ("a < None", 4, "not part of the grammar"),
        ("a < b''", 4, "not part of the grammar"),
        ("a == f'{b}'", 5, "not part of the grammar"),
        ("+a < 1", 0, "not part of the grammar"),
        ("a % 2 == 1", 2, "not part of the grammar"),
        ("max(a) < 1", 0, "not part of the grammar"),
        ("abs(a, b) < 1", 0, "not part of the grammar"),
        ("abs(*a) < 1", 4, "not part of the grammar"),
        ("a.max(dim=time) < 1", 0, "not part of the grammar"),
        ("a.max(*time) < 1", 6, "takes names of dims"),
        ("a.max(3) < 1", 6, "takes names of dims"),
        ("a.max(b.c) < 1", 6, "takes names of dims"),
        ("a.median(time) < 1", 0, "not part of the grammar"),
        ("(a < 1) and b + 1", 12, "join comparisons"),
        ("not 3", 4, "join comparisons"),
        ("'a' + b == 1", 0, "a string can only be compared"),
        ("a == 'b\\n'", 7, "cannot be part of an expression"),
        ("a\0 < 1", 1, "cannot be part of an expression"),
        ("a < 1  # small", 5, "comments are not allowed"),
        ("a < 18446744073709551616", 4, "at most 64 bits"),
        ("a > -9223372036854775809", 4, "at most 64 bits"),
        ("\u03b8\u03b8 < \u00e9 & b", 7, "write 'and' for &"),
        ("", 0, "is empty"),
    ],
)
def test_what_is_not_of_the_grammar_is_refused_at_its_place(
    text: str, place: int, match: str
) -> None:
    with pytest.raises(ExpressionError, match=match) as caught:
        parse(text)
    shown, caret = str(caught.value).splitlines()[1:3]
    assert shown == "  " + text.replace("\0", " ")
    assert caret.index("^") == place + 2


def test_a_refusal_says_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"allowed are names, numbers, .* \.last over dims"):
        parse("a[0] < 1")


def test_a_long_text_is_shown_around_the_place() -> None:
    text = " or ".join(["a < 1"] * 40 + ["b[0] < 1"])
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    shown, caret = str(caught.value).splitlines()[1:3]
    assert len(shown) <= 74
    assert shown[caret.index("^") :].startswith("b[0]")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 150 + "a" + ")" * 150 + "[",
        "(" * 1000,
        "-" * (MAX_LENGTH - 1) + "1",
        "not " * 900 + "a",
        "a" + "+a" * (MAX_DEPTH + 1) + " < 1",
        "a.max" + "(0)" * 900,
        "[" * 1900 + "]" * 1900,
        "a" * (MAX_LENGTH + 1),
        "9" * MAX_LENGTH,
        "\ud800 < 1",
        "a < '\ud800'",
    ],
)
def test_absurd_texts_are_refused_at_once(text: str) -> None:
    with counted() as calls, pytest.raises(ExpressionError):
        parse(text)
    assert len(calls) < 100_000


def test_nesting_up_to_the_limit_is_evaluated() -> None:
    assert value("a" + "+a" * (MAX_DEPTH - 1), a=runs(1.0)) == [MAX_DEPTH]


def test_huge_powers_of_constants_cost_nothing() -> None:
    """As whole numbers, they would take longer than anybody waits."""
    assert value("10**10**10") == math.inf
    assert value("9**9**9**9") == math.inf


@pytest.mark.parametrize("text", ["1if 2else 3", "a < 0x1for", "1or 2", "'a' 'b'(1)", "1(2)"])
def test_reading_warns_about_nothing(text: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ExpressionError):
            parse(text)
    assert caught == []


def test_numbers_are_decimal_in_any_of_their_forms() -> None:
    assert value("1e3 + 1.e-3 + .5 + 1_000 + 0.25E+2") == 1000 + 0.001 + 0.5 + 1000 + 25
    assert parse("x1e < 3 and y2 > 1e5 or kind == '1or 2'").names == {"x1e", "y2", "kind"}


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_random_text_is_read_or_refused(text: str) -> None:
    try:
        expression = parse(text)
    except ExpressionError as error:
        message = str(error).encode()
    else:
        message = None
        assert parse(expression.text) == expression
    assert message is None or b"^" in message


_PIECES = st.sampled_from(
    ["a", "b", "time", "kind", "1", "0.5", "-3", "'pid'", "'2026-01-01'", "True", "False", "None",
     "+", "-", "*", "/", "**", "<", "<=", "==", "!=", ">", "and", "or", "not", "(", ")", "abs(",
     ".max(", ".last(", ".sum()", ",", ".", "[", "]", "{", "}", ":", ":=", "lambda", "#", "'", '"',
     "__import__('os').system('exit')", "~", "@", "%", "//", "is", "in", "if", "else", "for",
     "await", "yield", "f'{a}'", "b''", "...", "1e999", "0x1F", "10**10**9"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=12), st.sampled_from(["", " "]))
@settings(max_examples=400, deadline=None)
def test_random_pieces_raise_nothing_but_the_own_error(pieces: list[str], space: str) -> None:
    values = {
        "a": xr.Variable(("run", "time"), [[1.0, NAN], [2.0, 3.0]]),
        "b": runs(True, False),
        "kind": runs("pid", "lqr"),
        "time": runs(1, 2),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            expression = parse(space.join(pieces))
        except ExpressionError:
            return
        for evaluate in (expression.evaluate, expression.holds, expression.margin):
            try:
                result = evaluate(values, run_dims=("run",))
            except ExpressionError:
                continue
            assert isinstance(result, xr.Variable)


def test_text_is_never_run() -> None:
    done: list[int] = []

    class Trap:
        def __getattr__(self, name: str) -> Any:
            done.append(1)
            raise AttributeError(name)

    for text in [
        "trap.run()",
        "trap()",
        "trap.__class__ == 1",
        "[trap for x in trap]",
        "(x := trap)",
    ]:
        with pytest.raises(ExpressionError):
            parse(text).evaluate({"trap": Trap()})
    assert done == []


# --- checking before run 0 -------------------------------------------------------------------


def test_check_points_at_an_unknown_name_and_suggests_another() -> None:
    expression = parse("mass * lenght < 3")
    with pytest.raises(ExpressionError, match=r"no 'lenght' .*; did you mean 'length'") as caught:
        expression.check(["length", "mass"])
    assert str(caught.value).splitlines()[2] == " " * 9 + "^"
    expression.check(["lenght", "mass", "other"])


def test_check_refuses_unknown_dims_and_dims_of_the_runs() -> None:
    expression = parse("a.max(tiem) < 3")
    expression.check(["a"])
    with pytest.raises(
        ExpressionError, match=r"no dim 'tiem' \(available: 'time'\); did you mean 'time'"
    ):
        expression.check(["a"], dims=["time", "run"], run_dims=["run"])
    with pytest.raises(ExpressionError, match="'run' is a dim of the runs"):
        parse("a.max(run) < 3").check(["a"], run_dims=["run"])


# --- truth -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["x > 3", "not (x > 3)", "x != 3", "x == x", "not (x == 3)", "x < 3 or x > 5",
     "not (x < 3 and True)", "0 <= x <= 9"],
)  # fmt: skip
def test_nan_satisfies_nothing(text: str) -> None:
    assert held(text, x=runs(NAN)) == [False]
    assert np.isnan(margin(text, x=runs(NAN))).all()


def test_unknown_gives_way_to_what_decides() -> None:
    x = runs(NAN)
    assert held("x > 3 or True", x=x) == [True]
    assert held("not (x > 3 and False)", x=x) == [True]
    assert held("x > 3 or y > 1", x=x, y=runs(2.0)) == [True]
    assert margin("x > 3 or y > 1", x=x, y=runs(2.5)) == [1.5]
    assert margin("x > 3 and y > 1", x=x, y=runs(0.5)) == [-0.5]
    assert np.isnan(margin("x > 3 or y > 1", x=x, y=runs(0.5))).all()
    assert np.isnan(margin("x > 3 and y > 1", x=x, y=runs(2.0))).all()


def test_nat_and_missing_strings_satisfy_nothing() -> None:
    start = runs("2026-01-02", "NaT", dtype="M8[ns]")
    assert held("start >= '2026-01-01'", start=start) == [True, False]
    assert held("start != '2026-01-01'", start=start) == [True, False]
    assert held("not (start < '2026-01-01')", start=start) == [True, False]
    for missing in (None, NAN):
        kind = xr.Variable("run", np.array(["pid", missing], dtype=object))
        assert held("kind != 'lqr'", kind=kind) == [True, False]
        assert held("not (kind == 'lqr')", kind=kind) == [True, False]
        assert held("kind >= 'a'", kind=kind) == [True, False]


def test_a_chain_is_each_of_its_comparisons() -> None:
    x = runs(-1.0, 0.0, 500.0, 1000.5, NAN)
    assert held("0 <= x <= 1000", x=x) == [False, True, True, False, False]
    assert margin("0 <= x <= 1000", x=x)[:4] == [-1.0, 0.0, 500.0, -0.5]


def test_booleans_are_true_or_false_also_as_masked_floats() -> None:
    assert held("up", up=runs(True, False)) == [True, False]
    assert held("up and x > 1", up=runs(1.0, 0.0, NAN), x=runs(2, 2, 2)) == [True, False, False]
    assert held("not up", up=runs(1.0, 0.0, NAN)) == [False, True, False]
    assert held("up + up == 2", up=runs(True, False)) == [True, False]
    assert held("(x > 1) == True", x=runs(0, 2)) == [False, True]


def test_a_quantity_is_not_true_or_false() -> None:
    with pytest.raises(
        ExpressionError, match=r"'steps' \(int64\) is a quantity, not true or false"
    ):
        held("steps and x > 1", steps=runs(3), x=runs(1))
    with pytest.raises(ExpressionError, match=r"'kind' \(str\) is not true or false"):
        held("kind", kind=runs("a"))
    with pytest.raises(ExpressionError, match=r"'kind' \(str\) is not a number"):
        held("abs(kind) > 1", kind=runs("a"))


def test_strings_compare_whatever_they_are_stored_as() -> None:
    for dtype in (object, "U3", np.dtypes.StringDType(), np.dtypes.StringDType(na_object=NAN)):
        kind = runs("pid", "lqr", dtype=dtype)
        other = runs("pid", "pid", dtype=object)
        assert held("kind == 'pid'", kind=kind) == [True, False]
        assert held("'pid' != kind", kind=kind) == [False, True]
        assert held("kind < 'm'", kind=kind) == [False, True]
        assert held("kind == other", kind=kind, other=other) == [True, False]


def test_string_against_number_names_both() -> None:
    message = r"cannot compare 'kind' \(str\) with 'gain \+ 1' \(float64\)"
    with pytest.raises(ExpressionError, match=message):
        held("kind == gain + 1", kind=runs("pid"), gain=runs(1.0))
    with pytest.raises(ExpressionError, match=r"cannot compare 'steps' \(int16\) with '5' \(str\)"):
        held("steps == '5'", steps=runs(5, dtype="i2"))
    with pytest.raises(ExpressionError, match=r"no \+ of 'kind' \(str\) and 1 \(int64\)"):
        held("kind + 1 < 2", kind=runs("pid"))


def test_a_missing_name_lists_what_is_there() -> None:
    with pytest.raises(
        ExpressionError, match=r"no 'stesp' \(available: 'steps'\); did you mean 'steps'\?"
    ):
        held("stesp > 1", steps=runs(1))
    dataset = xr.Dataset({"x": ("run", [1, 5])}, coords={"gain": ("run", [2, 2])})
    assert parse("x < gain").holds(dataset).values.tolist() == [True, False]
    with pytest.raises(ExpressionError, match="available: 'gain', 'x'"):
        parse("y < 1").holds(dataset)


def test_unicode_names_are_taken_as_written() -> None:
    for name in ("\u00b5", "\u03bc", "gr\u00f6\u00dfe", "\u0394\u03b8"):
        assert parse(f"{name} < 1").names == {name}
        assert held(f"{name} < 1", **{name: runs(0.5)}) == [True]


def test_dims_are_aligned_by_name() -> None:
    a = xr.Variable(("x", "y"), np.arange(6.0).reshape(2, 3))
    b = xr.Variable(("y", "x"), np.arange(6.0).reshape(3, 2))
    c = xr.Variable("z", [0.0, 1.0])
    result = parse("a + b * c").evaluate({"a": a, "b": b, "c": c})
    xr.testing.assert_equal(result, a + b * c)
    got = parse("a < b or c > 0").holds({"a": a, "b": b, "c": c})
    xr.testing.assert_equal(got, (a < b) | (c > 0))
    with pytest.raises(ExpressionError, match="dim 'x' has 3 cells in 'd', 2 in 'a'"):
        parse("a < d").holds({"a": a, "d": xr.Variable("x", [1, 2, 3])})


def test_the_result_of_a_bare_name_is_a_copy() -> None:
    x = runs(1.0, 2.0)
    parse("x").evaluate({"x": x})[0] = 5.0
    assert x.values.tolist() == [1.0, 2.0]


# --- numbers ---------------------------------------------------------------------------------


def test_arithmetic_does_not_wrap() -> None:
    small = runs(3, dtype="u1")
    assert value("a - b", a=small, b=runs(5, dtype="u1")) == [-2.0]
    assert value("-a", a=small) == [-3.0]
    assert value("a * 200", a=small) == [600.0]
    big = runs(2**63 - 1, dtype="i8")
    assert value("a + a", a=big) == [2.0**64]
    assert value("abs(a)", a=runs(-(2**63), dtype="i8")) == [2**63]
    assert value("abs(a)", a=runs(-128, dtype="i1")) == [128]
    assert value("2 ** a", a=runs(-1)) == [0.5]
    assert value("a.sum()", a=xr.Variable("time", np.full(300, 255, dtype="u1"))) == 76500


def test_integers_compare_exactly_and_their_margin_has_the_right_sign() -> None:
    a, b = (
        runs(2**53 + 1, -1, 2**63 - 1),
        xr.Variable("run", np.array([2**53, 2**64 - 1, 2**63], "u8")),
    )
    assert held("a > b", a=a, b=b) == [True, False, False]
    assert held("a == b", a=a, b=b) == [False, False, False]
    assert margin("a > b", a=a, b=b) == [1.0, -(2.0**64), -1.0]
    assert held("a == 9007199254740993", a=a) == [True, False, False]
    assert held("abs(a) == 9007199254740993", a=a) == [True, False, False]
    assert held("a > -9223372036854775808", a=runs(-(2**63))) == [False]


def test_division_by_zero_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert value("1 / x", x=runs(0, -0.0)) == [math.inf, -math.inf]
        assert np.isnan(value("x / x", x=runs(0))).all()
        assert value("0 ** -1") == math.inf
        assert value("1e308 * 10") == math.inf


def test_complex_is_used_through_abs() -> None:
    z = runs(3 + 4j)
    assert held("abs(z) <= 5", z=z) == [True]
    with pytest.raises(ExpressionError, match=r"cannot compare 'z' \(complex128\)"):
        held("z == 5", z=z)


def test_objects_that_are_no_strings() -> None:
    assert held("x", x=runs(True, None, False, dtype=object)) == [True, False, False]
    assert held("x > 1", x=runs(2, 0.5, None, dtype=object)) == [True, False, False]
    with pytest.raises(
        ExpressionError, match="'x' cannot be used here: it holds objects of type d"
    ):
        held("x > 1", x=runs({}, dtype=object))


@given(a=st.floats(-1e6, 1e6), b=st.integers(-50, 50), c=st.floats(0.01, 10), flag=st.booleans())
@settings(max_examples=100, deadline=None)
def test_scalars_agree_with_python(a: float, b: int, c: float, flag: bool) -> None:
    values = {"a": a, "b": b, "c": c, "flag": flag}
    variables = {name: xr.Variable((), each) for name, each in values.items()}
    for text in [
        "a + b * c - 2", "a / c", "-a ** 2", "c ** -b", "abs(a - b) * c",
        "a < b", "a <= b <= c", "not a < b and c > 1", "a > 0 or b > 0 and flag", "flag == (c > 5)",
        "a == b or a != c", "-b - -a >= 0", "(a < b) + flag", "2 ** -1 + c",
    ]:  # fmt: skip
        expected = eval(text, {"abs": abs}, dict(values))
        assert parse(text).evaluate(variables).item() == pytest.approx(expected, rel=1e-12), text


def _comparisons() -> st.SearchStrategy[str]:
    side = st.sampled_from(["x", "y", "n", "u", "-x", "abs(y)", "x - y", "2", "0.5", "-1", "x * n"])
    single = st.tuples(side, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), side).map(
        " ".join
    )
    chain = st.tuples(side, side, side).map(lambda s: f"{s[0]} < {s[1]} <= {s[2]}")
    leaf = st.one_of(single, chain, st.sampled_from(["flag", "kind == 'pid'", "True", "False"]))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
                lambda p: f"({p[0]}) {p[1]} ({p[2]})"
            ),
            inner.map(lambda p: f"not ({p})"),
        ),
        max_leaves=6,
    )


_FLOATS = [0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 5e-324, 1.7e308, -1.7e308, math.inf, -math.inf, NAN]


_OPERATORS: dict[type[ast.cmpop], Any] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _kleene(text: str, row: dict[str, Any]) -> bool | None:
    """Truth of one cell, by Python's own grammar and a plain three-valued logic."""

    def number(node: ast.expr) -> Any:
        code = compile(ast.Expression(node), "", "eval")
        with np.errstate(all="ignore"):
            return eval(code, {"abs": abs}, row)

    def truth(node: ast.expr) -> bool | None:
        match node:
            case ast.BoolOp(op=op, values=parts):
                found = [truth(part) for part in parts]
                decisive = isinstance(op, ast.Or)
                if decisive in found:
                    return decisive
                return None if None in found else not decisive
            case ast.UnaryOp(op=ast.Not(), operand=part):
                inner = truth(part)
                return None if inner is None else not inner
            case ast.Compare():
                sides = [number(side) for side in (node.left, *node.comparators)]
                pairs = [
                    None if a != a or b != b else bool(_OPERATORS[type(op)](a, b))
                    for op, a, b in zip(node.ops, sides, sides[1:], strict=False)
                ]
                return False if False in pairs else None if None in pairs else True
        return bool(number(node))

    return truth(ast.parse(text, mode="eval").body)


@given(text=_comparisons(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_truth_is_three_valued_logic_and_the_margin_has_its_sign(text: str, data: Any) -> None:
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "x": st.sampled_from(_FLOATS),
                    "y": st.sampled_from(_FLOATS),
                    "n": st.integers(-3, 3),
                    "u": st.integers(0, 3),
                    "flag": st.booleans(),
                    "kind": st.sampled_from(["pid", "lqr"]),
                }
            ),
            min_size=1,
            max_size=5,
        )
    )
    kinds = {"x": "f8", "y": "f8", "n": "i4", "u": "u1", "flag": "?", "kind": "U3"}
    values = {
        name: xr.Variable("run", np.array([row[name] for row in rows], dtype=kind))
        for name, kind in kinds.items()
    }
    expression = parse(text)
    truth = np.broadcast_to(expression.holds(values).values, len(rows))
    distance = np.broadcast_to(expression.margin(values).values, len(rows))
    floats = ("x", "y", "n")
    plain = [row | {name: np.float64(row[name]) for name in floats} for row in rows]
    known = [_kleene(text, row) for row in plain]
    assert truth.tolist() == [each is True for each in known]
    for each, found in zip(known, distance, strict=True):
        if each is None:
            assert np.isnan(found)
        elif found > 0:
            assert each is True
        elif found < 0:
            assert each is False
    assert not np.any(np.signbit(distance) & (distance == 0))


# --- margins ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 5", [2.0, -1.0]),
        ("x <= 5", [2.0, -1.0]),
        ("5 > x", [2.0, -1.0]),
        ("x >= 5", [-2.0, 1.0]),
        ("x == 5", [-2.0, -1.0]),
        ("x != 5", [2.0, 1.0]),
        ("x == 3", [0.0, -3.0]),
        ("not x < 5", [-2.0, 1.0]),
        ("x < 5 and x > 0", [2.0, -1.0]),
        ("x < 5 or x > 5.5", [2.0, 0.5]),
        ("x < 5 and x > 1 and x < 3.5", [0.5, -2.5]),
    ],
)
def test_the_margin_is_the_signed_distance(text: str, expected: list[float]) -> None:
    assert margin(text, x=runs(3.0, 6.0)) == expected


def test_what_has_no_distance_is_passed_over_unless_it_decides() -> None:
    kind, gain = runs("pid", "pid", "lqr", "lqr"), runs(3.0, 1.0, 3.0, 1.0)
    np.testing.assert_array_equal(
        margin("kind == 'pid' and gain > 2", kind=kind, gain=gain), [1.0, -1.0, NAN, NAN]
    )
    np.testing.assert_array_equal(
        margin("kind == 'pid' or gain > 2", kind=kind, gain=gain), [NAN, NAN, 1.0, -1.0]
    )
    np.testing.assert_array_equal(
        margin("not (kind != 'pid' or gain <= 2)", kind=kind, gain=gain), [1.0, -1.0, NAN, NAN]
    )
    assert np.isnan(margin("kind == 'pid'", kind=kind)).all()
    assert np.isnan(margin("up", up=runs(True, False))).all()


def test_an_infinite_distance_stays_infinite() -> None:
    x = runs(math.inf, -math.inf)
    assert margin("x < 5", x=x) == [-math.inf, math.inf]
    assert margin("x < 5 and up", x=x, up=runs(True, True)) == [-math.inf, math.inf]
    assert margin("x <= y", x=x, y=x) == [0.0, 0.0]


def test_margins_of_times_are_in_seconds() -> None:
    start = runs("2026-01-01T00:01:30.5", "NaT", dtype="M8[ns]")
    np.testing.assert_array_equal(margin("start >= '2026-01-01'", start=start), [90.5, NAN])


# --- times -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit",
    ["2026-01-01", "2026-01", "2026", "2026-01-01T00:00", "2026-01-01 00:00:00.000",
     "2026-01-01T00:00Z", "2026-01-01T01:00+01:00", "2025-12-31T22:30-0130"],
)  # fmt: skip
def test_datetimes_compare_with_iso_strings(limit: str) -> None:
    start = runs("2025-12-31T23:59:59.999999999", "2026-01-01", dtype="M8[ns]")
    assert held(f"start >= '{limit}'", start=start) == [False, True]
    assert held(f"'{limit}' > start", start=start) == [True, False]


@pytest.mark.parametrize("limit", ["now", "today", "", "NaT", "2026-13-01", "9999-01-01", "soon"])
def test_other_strings_are_no_datetimes(limit: str) -> None:
    with pytest.raises(ExpressionError, match="is not an ISO date"):
        held(f"start >= '{limit}'", start=runs("2026-01-01", dtype="M8[ns]"))


def test_durations() -> None:
    start, end = runs("2026-01-01", dtype="M8[ns]"), runs("2026-01-01T00:01:30", dtype="M8[s]")
    assert held("end - start <= '90 s'", start=start, end=end) == [True]
    assert held("'1.5 min' < end - start", start=start, end=end) == [False]
    assert held("start + (end - start) * 2 == '2026-01-01T00:03'", start=start, end=end) == [True]
    assert value("(end - start) / (start - end)", start=start, end=end) == [-1.0]
    assert held("-(start - end) / 3 == abs(start - end) / 3", start=start, end=end) == [True]
    assert margin("end - start < '2 min'", start=start, end=end) == [30.0]
    with pytest.raises(ExpressionError, match="is not a duration such as '90 s'"):
        held("end - start < '90'", start=start, end=end)
    with pytest.raises(ExpressionError, match=r"cannot compare .* with 90 \(int64\)"):
        held("end - start < 90", start=start, end=end)
    with pytest.raises(ExpressionError, match=r"no \+ of 'start'"):
        held("start + end < '2026'", start=start, end=end)


def test_times_do_not_wrap() -> None:
    early, late = runs("1700-01-01", dtype="M8[ns]"), runs("2200-01-01", dtype="M8[ns]")
    assert held("late - early > '1 s'", early=early, late=late) == [False]
    assert held("not (late - early > '1 s')", early=early, late=late) == [False]
    assert margin("late > early", early=early, late=late)[0] == pytest.approx(
        500 * 365.25 * 86400, 1e-3
    )
    with pytest.raises(ExpressionError, match="times that do not fit in nanoseconds"):
        held("start > '2026'", start=xr.Variable("run", np.array(["9999-01-01"], "M8[s]")))


# --- reductions ------------------------------------------------------------------------------


def test_reductions_over_named_dims_and_over_all_own_dims() -> None:
    data = np.arange(24.0).reshape(2, 3, 4)
    x = {"x": xr.Variable(("run", "time", "axis"), data)}
    for text, expected in {
        "x.max(time)": data.max(1),
        "x.min('axis')": data.min(2),
        "x.mean(time, 'axis')": data.mean((1, 2)),
        "x.sum(axis, time)": data.sum((1, 2)),
        "x.first(time)": data[:, 0],
        "x.last(time, axis)": data[:, -1, -1],
        "x.max()": data.max((1, 2)),
        "x.last()": data[:, -1, -1],
        "x.max(time).min(axis)": data.max(1).min(1),
        "(x > 5).mean()": (data > 5).mean((1, 2)),
        "abs(-x).max(time, time)": data.max(1),
        "x.max().max()": data.max((1, 2)),
    }.items():
        np.testing.assert_allclose(parse(text).evaluate(x, run_dims=("run",)), expected)


def test_reducing_over_a_run_dim_or_an_absent_dim_is_refused() -> None:
    x = {"x": xr.Variable(("run", "time"), np.ones((2, 3)))}
    with pytest.raises(ExpressionError, match="'run' is a dim of the runs"):
        parse("x.max(run) < 1").evaluate(x, run_dims=("run",))
    with pytest.raises(
        ExpressionError, match=r"'x' has no dim 'tme' \(it has: 'time'\); did you mean 'time'\?"
    ):
        parse("x.max(tme) < 1").evaluate(x, run_dims=("run",))
    with pytest.raises(ExpressionError, match=r"no \.max\(\) of str"):
        parse("k.max() == 'a'").evaluate({"k": xr.Variable("time", ["a"])})
    with pytest.raises(ExpressionError, match=r"no \.mean\(\) of datetime64"):
        parse("t.mean() > '2026'").evaluate(
            {"t": xr.Variable("time", np.array(["2026"], "M8[ns]"))}
        )


def test_without_lengths_nan_is_data() -> None:
    x = xr.Variable(("run", "time"), [[1.0, NAN], [1.0, 2.0]])
    for how in ("max", "min", "mean", "sum", "last"):
        assert np.isnan(value(f"x.{how}(time)", x=x)).tolist() == [True, False]
    assert held("x.max(time) < 5", x=x) == [False, True]


def test_an_empty_dim_has_no_data() -> None:
    x = {"x": xr.Variable(("run", "time"), np.ones((2, 0)))}
    for how in ("max", "min", "mean", "first", "last"):
        assert np.isnan(parse(f"x.{how}(time)").evaluate(x).values).all()
    assert parse("x.sum(time)").evaluate(x).values.tolist() == [0.0, 0.0]


def test_integers_stay_exact_through_extremes() -> None:
    x = xr.Variable(("run", "time"), [[2**53 + 1, 3]])
    assert held("x.max(time) == 9007199254740993", x=x) == [True]
    assert held("x.first() == 9007199254740993", x=x) == [True]


_CELLS = st.sampled_from([0.0, 1.0, -2.5, 7.0, 1e3, math.inf, -math.inf, NAN])


@given(data=st.data(), fill=st.sampled_from([NAN, 0.0, 99.0]))
@settings(max_examples=150, deadline=None)
def test_padded_reductions_are_those_of_each_run_by_itself(data: Any, fill: float) -> None:
    n, size, axes = data.draw(st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(1, 2)))
    counts = data.draw(st.lists(st.integers(0, size), min_size=n, max_size=n))
    shape = n * size * axes
    cells = np.array(data.draw(st.lists(_CELLS, min_size=shape, max_size=shape)), dtype=float)
    cells = cells.reshape(n, size, axes)
    for run, count in enumerate(counts):
        cells[run, count:] = fill
    values = {"x": xr.Variable(("run", "time", "axis"), cells)}
    lengths = {"x": ("time", xr.Variable("run", np.array(counts, dtype="i4")))}
    functions: dict[str, Any] = {
        "max": np.max,
        "min": np.min,
        "mean": np.mean,
        "sum": np.sum,
        "first": lambda trace, axis: trace[0],
        "last": lambda trace, axis: trace[-1],
    }
    for how, function in functions.items():
        found = parse(f"x.{how}(time)").evaluate(values, lengths=lengths, run_dims=("run",))
        assert found.dims == ("run", "axis")
        for run, count in enumerate(counts):
            with np.errstate(all="ignore"):
                empty = np.full(axes, 0.0 if how == "sum" else NAN)
                expected = function(cells[run, :count], axis=0) if count else empty
            np.testing.assert_allclose(found.values[run], expected)


def test_a_nan_inside_is_not_padding() -> None:
    angle = xr.Variable(("run", "time"), [[0.1, NAN, 0.1], [0.1, 0.1, NAN]])
    lengths = {"angle": ("time", xr.Variable("run", [3, 2]))}
    expression = parse("abs(angle).max(time) < 0.2")
    got = expression.holds({"angle": angle}, lengths=lengths, run_dims=("run",))
    assert got.values.tolist() == [False, True]
    lengths = {"angle": ("time", xr.Variable("run", [NAN, 2.0]))}  # not known: all is data
    got = expression.holds({"angle": angle}, lengths=lengths, run_dims=("run",))
    assert got.values.tolist() == [False, True]


def test_validity_travels_through_arithmetic_and_comparisons() -> None:
    a = xr.Variable(("run", "time"), np.array([[1.0, 2, 3, 4], [1, 2, 3, 4]]))
    b = xr.Variable(("time", "run"), np.ones((4, 2)))
    values = {"a": a, "b": b}
    lengths = {"a": ("time", xr.Variable("run", [3, 4])), "b": ("time", xr.Variable("run", [4, 2]))}

    def found(text: str) -> Any:
        return parse(text).evaluate(values, lengths=lengths, run_dims=("run",)).values.tolist()

    assert found("(a * b).sum(time)") == [6.0, 3.0]
    assert found("(a + 1).last(time)") == [4.0, 5.0]
    assert found("(b - a).min(time)") == [-2.0, -1.0]
    assert found("(a < 2 or b > 5).sum(time)") == [1.0, 1.0]
    assert found("(a > b).mean(time)") == [2 / 3, 1 / 2]
    assert found("a.last(time) - b.sum(time)") == [-1.0, 2.0]
    assert found("a > 0") == [[True, True, True, False], [True, True, True, True]]
    np.testing.assert_array_equal(found("a")[0], [1, 2, 3, NAN])


def test_what_fills_the_padding_of_a_boolean_output_is_not_asked() -> None:
    up = xr.Variable(("run", "time"), [[1, 1, 99], [1, 0, 1]])
    lengths = {"up": ("time", xr.Variable("run", [2, 3]))}
    got = parse("(up and True).min(time) == 1").holds({"up": up}, lengths=lengths)
    assert got.values.tolist() == [True, False]
    with pytest.raises(ExpressionError, match=r"'up' .* is a quantity"):
        parse("up and True").holds({"up": up})


def test_two_padded_dims_are_kept_apart() -> None:
    a = xr.Variable(("run", "t"), [[1.0, 2.0], [3.0, 99.0]])
    b = xr.Variable(("run", "s"), [[1.0, 99.0], [10.0, 20.0]])
    lengths = {"a": ("t", xr.Variable("run", [2, 1])), "b": ("s", xr.Variable("run", [1, 2]))}
    for text in ("(a * b).sum()", "(a * b).sum(t).sum(s)", "(a * b).sum(s).sum(t)"):
        got = parse(text).evaluate({"a": a, "b": b}, lengths=lengths, run_dims=("run",))
        assert got.values.tolist() == [3.0, 90.0]
    got = parse("(a * b).last()").evaluate({"a": a, "b": b}, lengths=lengths, run_dims=("run",))
    assert got.values.tolist() == [2.0, 60.0]


def test_one_run_by_itself_is_reduced_by_its_length() -> None:
    values = {"x": xr.Variable("time", [1, 2, 9])}
    for count, expected in ((2, 2.0), (3, 9.0)):
        lengths = {"x": ("time", xr.Variable((), count))}
        for how in ("last", "max"):
            assert parse(f"x.{how}()").evaluate(values, lengths=lengths).item() == expected


@pytest.mark.parametrize("dtype", [object, "U3", np.dtypes.StringDType()])
def test_one_run_by_itself_has_scalars_of_any_kind(dtype: Any) -> None:
    values = {
        "k": xr.Variable("time", np.array(["a", "bc"], dtype=dtype)),
        "kind": xr.Variable((), np.array("pid", dtype=dtype)),
        "t": xr.Variable("time", np.array(["2026-01-01", "2026-01-02"], "M8[ns]")),
        "start": xr.Variable((), np.datetime64("2026-01-01", "ns")),
        "n": xr.Variable((), 3),
    }
    for text in (
        "k.last() == 'bc' and k.first(time) < 'b' and kind.first() != k.last()",
        "kind == 'pid' and start == '2026-01-01' and start.max() < '2027'",
        "t.last() - t.first() == '1 d' and abs(start - t.last()) == '24 h'",
        "-(start - t.max()) / 2 == '12 h' and (t - start).sum() == '1 d'",
        "n.max() == 3 and n.mean() == 3 and n.sum() == 3 and (n > 2).last() and (-n).max() == -3",
    ):
        assert parse(text).holds(values).item() is True
        assert parse(text).margin(values).shape == ()
    for how, count in (("first", 1), ("last", 2)):
        lengths = {"k": ("time", xr.Variable((), count))}
        assert parse(f"k.{how}() != 'x'").holds(values, lengths=lengths).item() is True
    lengths = {"k": ("time", xr.Variable((), 0))}
    assert parse("k.last() != 'x'").holds(values, lengths=lengths).item() is False


def test_padded_strings_and_times() -> None:
    values = {
        "k": xr.Variable(("run", "time"), np.array([["a", "b"], ["c", ""]], dtype=object)),
        "t": xr.Variable(("run", "time"), np.array([["2026", "2027"], ["2028", "2030"]], "M8[ns]")),
    }
    lengths = {name: ("time", xr.Variable("run", [2, 1])) for name in values}
    for text, expected in {
        "k.last(time) == 'c'": [False, True],
        "t.max(time) == '2028'": [False, True],
        "t.last(time) == '2028'": [False, True],
        "(t - t.first(time)).max(time) == '365 d'": [True, False],
        "(t - t.first(time)).mean(time) == '182.5 d'": [True, False],
    }.items():
        got = parse(text).holds(values, lengths=lengths, run_dims=("run",))
        assert got.values.tolist() == expected, text
    nothing = {name: ("time", xr.Variable("run", [0, 0])) for name in values}
    for text in ("k.last() != 'z'", "t.max() > '1900'", "t.min() < '2100'", "t.last() > '1900'"):
        got = parse(text).holds(values, lengths=nothing, run_dims=("run",))
        assert got.values.tolist() == [False, False]


def test_lengths_along_a_dim_the_output_lacks_are_refused() -> None:
    with pytest.raises(ExpressionError, match="'x' has no dim 'time', along which it has lengths"):
        parse("x < 1").holds({"x": runs(1.0)}, lengths={"x": ("time", runs(1))})


# --- limits that move ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "comparison", "moved"),
    [
        ("steps >= 500", ("steps", ">=", 500), "steps >= -7"),
        (
            "0.2>abs(\u03b8).max(time)",
            ("abs(\u03b8).max(time)", "<", 0.2),
            "-7>abs(\u03b8).max(time)",
        ),
        ("a + b == (-1.5)", ("a + b", "==", -1.5), "a + b == (-7)"),
    ],
)
def test_the_limit_of_a_single_comparison_can_be_moved(
    text: str, comparison: tuple[str, str, float], moved: str
) -> None:
    expression = parse(text)
    assert expression.comparison == comparison
    other = expression.with_limit(-7.0)
    assert other is not None
    assert other.text == moved
    assert other.comparison is not None
    assert other.comparison[2] == -7


@pytest.mark.parametrize(
    "text", ["0 < x < 1", "x < y", "1 < 2", "x < 1 and y < 2", "k == 'a'", "x"]
)
def test_others_have_no_limit_to_move(text: str) -> None:
    assert parse(text).comparison is None
    assert parse(text).with_limit(1.0) is None


def test_a_limit_is_finite() -> None:
    with pytest.raises(ValueError, match="finite number, not nan"):
        parse("x < 1").with_limit(NAN)


def test_a_mask_of_a_block_takes_no_loop_over_cells() -> None:
    values = {name: xr.Variable("cell", np.linspace(0, 1, 65_000)) for name in ("length", "mass")}
    expression = parse("length * mass < 0.5")
    with counted() as calls:
        expression.holds(values)
    assert len(calls) < 1_000

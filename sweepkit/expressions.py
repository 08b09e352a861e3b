"""The one small grammar of validity masks and requirements, parsed safely."""

from __future__ import annotations

import ast
import difflib
import functools
import keyword
import math
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, NoReturn, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

__all__ = ["Expression", "ExpressionError", "parse"]

MAX_LENGTH = 4000
MAX_DEPTH = 100

Array: TypeAlias = NDArray[Any]
Cells: TypeAlias = tuple[tuple[str, ...], Array]
"""Dims and the values along them; plain, for `xr.Variable` costs 40 microseconds per operation."""
Lengths: TypeAlias = Mapping[str, tuple[str, xr.Variable | xr.DataArray]]

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_WORDS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="
}  # fmt: skip
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_REDUCTIONS = ("max", "min", "mean", "sum", "first", "last")
_HINTS: dict[type[ast.AST], str] = {
    ast.BitAnd: "write 'and' for &", ast.BitOr: "write 'or' for |", ast.Invert: "write 'not' for ~",
    ast.BitXor: "write ** for a power", ast.Is: "write == to compare",
    ast.In: "write == and 'or' for each value", ast.NotIn: "write != and 'and' for each value",
}  # fmt: skip
_ALLOWED = (
    "allowed are names, numbers, 'strings', True, False, + - * / **, comparisons, and, or, not, "
    "abs(...), and .max .min .mean .sum .first .last over dims, as in abs(angle).max(time) < 0.2"
)
_FAMILIES = dict.fromkeys("biuf", "number") | dict.fromkeys("UTO", "text")
_FAMILIES |= {"M": "datetime", "m": "duration", "c": "complex"}
_TIMES = {  # what arithmetic on datetimes (M) and durations (m) gives; n is a number
    "M-M": "m", "M-m": "M", "M+m": "M", "m+M": "M", "m+m": "m", "m-m": "m",
    "m*n": "m", "n*m": "m", "m/n": "m", "m/m": "n",
}  # fmt: skip
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_RUN_ON = re.compile(
    r"(?<![\w.])(?:\d[\d_]*+\.?+[\d_]*+|\.\d[\d_]*+)(?:[eE][+-]?\d[\d_]*+)?+(?=[^\W\d_])"
)
_MOMENT = re.compile(
    r"(\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?)?)?)"
    r"(?:Z|([+-])(\d\d):?(\d\d))?"
)
_DURATION = re.compile(r"(-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?) ?(ns|us|ms|s|min|h|d)")
_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "d": 86400e9}
_TEXT = np.dtypes.StringDType(na_object=np.nan)
_LARGEST = np.finfo(np.float64).max


class ExpressionError(ValueError):
    """A text that is not of the grammar, or does not fit the values it is given."""


def _error(message: str, text: str, place: int, *, allowed: bool = False) -> ExpressionError:
    """Error that shows at most 72 characters of `text` with a caret at character `place`."""
    start = max(0, min(place - 40, len(text) - 72))
    shown = re.sub(r"[^\S ]|[\x00-\x1f\x7f]", " ", text[start : start + 72])
    shown = shown.encode("utf-8", "backslashreplace").decode()
    caret = " " * (place - start) + "^"
    tail = f"\n{_ALLOWED}" if allowed else ""
    return ExpressionError(f"{message}\n  {shown}\n  {caret}{tail}")


def _place(text: str, node: ast.AST) -> int:
    # ast counts bytes of UTF-8; every text here is one line.
    offset: int = getattr(node, "col_offset", 0)
    return len(text.encode()[:offset].decode())


def _written(text: str, node: ast.AST) -> str:
    """The part of `text` that `node` was read from: names as written, for ast normalises them."""
    end: int | None = getattr(node, "end_col_offset", None)
    return text.encode()[getattr(node, "col_offset", 0) : end].decode()


def _suggestion(name: str, known: Iterable[Any], what: str = "available") -> str:
    names = sorted(map(str, known))
    near = difflib.get_close_matches(name, names, 1)
    shown = ", ".join(f"'{n}'" for n in names[:20]) or "none"
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f" ({what}: {shown}{more})" + (f"; did you mean '{near[0]}'?" if near else "")


def parse(text: str) -> Expression:
    """Read an expression; nothing of it is ever run as Python.

    Parameters
    ----------
    text : str
        One expression, such as ``"abs(angle).max(time) < 0.2"``. Line breaks count as spaces.

    Returns
    -------
    Expression

    Raises
    ------
    ExpressionError
        If the text is not of the grammar; the message shows the place and says what is allowed.

    Examples
    --------
    >>> sorted(parse("length * masspole < 0.5").names)
    ['length', 'masspole']
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression is a str, not {type(text).__name__}")
    text = re.sub(r"[\r\n]+", " ", text).strip()
    if not text:
        raise _error("the expression is empty", text, 0, allowed=True)
    if len(text) > MAX_LENGTH:
        raise _error(f"the expression has {len(text)} characters, more than {MAX_LENGTH}", text, 0)
    # Python's parser would warn on stderr about some escapes, and about numbers such as `1or`.
    if odd := re.search(r"[\x00\\\ud800-\udfff]", text):
        raise _error(f"{odd[0]!r} cannot be part of an expression", text, odd.start(), allowed=True)
    if odd := _RUN_ON.search(_without_strings(text)):
        raise _error("a number is decimal and set apart from words", text, odd.start())
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        place = min(error.offset - 1, len(text)) if error.offset else len(text)
        why, place = _reason(text, place)
        raise _error(f"cannot read this{why}", text, place, allowed=True) from None
    except (ValueError, RecursionError, MemoryError, OverflowError):
        raise _error("the expression is nested too deeply", text, 0, allowed=True) from None
    _check_grammar(tree, text, 0)
    if "#" in (tail := text.encode()[tree.end_col_offset :].decode()):
        raise _error("comments are not allowed", text, len(text) - len(tail), allowed=True)
    uses = list(_uses(tree))
    names = frozenset(_written(text, node) for node, is_dim in uses if not is_dim)
    dims = frozenset(_dim(text, node) for node, is_dim in uses if is_dim)
    return Expression(text, names, dims, tree)


def _without_strings(text: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", lambda quoted: " " * len(quoted[0]), text)


def _reason(text: str, place: int) -> tuple[str, int]:
    """Why Python's parser refused the text, where that can be told, and at which character."""
    bare = _without_strings(text)
    for word in re.finditer(r"\w+", bare):
        if keyword.iskeyword(word[0]) and word[0] not in {"and", "or", "not", "True", "False"}:
            return f": '{word[0]}' is a reserved word, so it cannot be a name", word.start()
    if found := re.search(r"(?<![<>=!])=(?!=)", bare):
        return ": write == to compare", found.start()
    if found := re.search(r"&&|\|\||!(?!=)", bare):
        return ": write and, or, not", found.start()
    return "", place


def _check_grammar(node: ast.AST, text: str, depth: int) -> None:
    def refuse(why: str) -> NoReturn:
        raise _error(why, text, place, allowed=True)

    place = _place(text, node)
    if depth > MAX_DEPTH:
        refuse(f"the expression is nested more than {MAX_DEPTH} deep")
    children: list[ast.expr] = []
    match node:
        case ast.Constant(value=bool() | float() | str()) | ast.Name():
            pass
        case ast.Constant(value=int(number)):
            if number >= 2**64:
                refuse("an integer has at most 64 bits; write it with an exponent, as 1e30")
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            children = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))) if number > 2**63:
            refuse("an integer has at most 64 bits; write it with an exponent, as -1e30")
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            children = [node.operand]
        case ast.BoolOp():
            children = node.values
        case ast.Compare(ops=ops) if all(type(op) in _WORDS for op in ops):
            children = [node.left, *node.comparators]
        case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
            children = [argument]
        case ast.Call(func=ast.Attribute(attr=how), args=dims, keywords=[]) if how in _REDUCTIONS:
            children = [node.func.value]  # type: ignore[attr-defined]
            for dim in dims:
                if not isinstance(getattr(dim, "value", getattr(dim, "id", None)), str):
                    raise _error(f".{how}() takes names of dims", text, _place(text, dim))
        case _:
            kinds = [type(part) for part in ast.walk(node)]
            if isinstance(node, ast.BinOp | ast.Compare):  # point at the operator
                start = len(_written(text, node.left)) + _place(text, node.left)
                place = start + len(text[start:]) - len(text[start:].lstrip(" )"))
            hint = next((f": {_HINTS[kind]}" for kind in kinds if kind in _HINTS), "")
            refuse(f"this is not part of the grammar{hint}")
    joins = isinstance(node, ast.BoolOp) or isinstance(getattr(node, "op", None), ast.Not)
    for child in children:
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            if not isinstance(node, ast.Compare):
                raise _error("a string can only be compared", text, _place(text, child))
        elif joins and _boolean(child) is False:
            raise _error("'and', 'or', 'not' join comparisons", text, _place(text, child))
        _check_grammar(child, text, depth + 1)


def _uses(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Each node that names a variable (False) or a dim (True), left to right."""
    match node:
        case ast.Name():
            yield node, False
        case ast.Call(func=ast.Attribute(value=value), args=dims):
            yield from _uses(value)
            yield from ((dim, True) for dim in dims)
        case ast.Call(args=arguments):
            yield from _uses(arguments[0])
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _uses(child)


def _dim(text: str, node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else _written(text, node)


def _boolean(node: ast.AST) -> bool | None:
    """Whether a node is true or false; None if only the values can tell."""
    match node:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=bool()):
            return True
        case ast.Name() | ast.Call(func=ast.Attribute(attr="max" | "min" | "first" | "last")):
            return None
    return False


def _number(node: ast.AST) -> int | float | None:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            return None if (size := _number(operand)) is None else -size
    return None


@dataclass(frozen=True)
class Expression:
    """A parsed expression, made by `parse`: equal and hashed by its text, safe to pickle.

    Values are compared and combined as follows.

    - Truth has three values. A comparison with NaN, NaT or a missing string is *unknown*, and so
      is its ``not``; ``unknown or True`` is true, ``unknown and False`` false. What is unknown in
      the end is not satisfied: neither ``x > 3`` nor ``not (x > 3)`` nor ``x != 3`` holds for NaN.
    - Arithmetic is in float64 whatever the dtypes (bool counts as 0 and 1), so nothing wraps;
      dividing by zero gives inf or NaN. Integers reach a comparison as they are, also through
      ``abs``, ``min``, ``max``, ``first`` and ``last``: two integers compare exactly beyond 2**53.
    - A datetime compares with an ISO string (UTC where it names a zone); the difference of two is
      a duration, which compares with a string such as ``'90 s'`` (ns, us, ms, s, min, h, d).
    - Cells beyond an output's length are no data. A reduction leaves them out but keeps a NaN
      among the data: a simulation that blew up does not pass. Over no data ``sum`` is 0 and the
      others NaN. Two outputs combined are valid as far as the shorter one.
    - A reduction without dims is over every dim that is not a run dim.

    Attributes
    ----------
    text : str
        As given, on one line.
    names, dims : frozenset of str
        The variables it needs, and the dims named in its reductions.
    """

    text: str
    names: frozenset[str] = field(compare=False)
    dims: frozenset[str] = field(compare=False)
    tree: ast.expr = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (self.text,)

    @property
    def boolean(self) -> bool | None:
        """Whether it is true or false rather than a quantity; None if only the values can tell."""
        return _boolean(self.tree)

    @property
    def comparison(self) -> tuple[str, str, int | float] | None:
        """Compared text, operator and number of a single comparison with a number, else None.

        >>> parse("0.2 > abs(angle).max(time)").comparison
        ('abs(angle).max(time)', '<', 0.2)
        """
        if (found := self._limit()) is None:
            return None
        compared, word, _, number = found
        return _written(self.text, compared), word, number

    def _limit(self) -> tuple[ast.expr, str, ast.expr, int | float] | None:
        match self.tree:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                word, above, below = _WORDS[type(op)], _number(right), _number(left)
                if above is not None and below is None:
                    return left, word, right, above
                if below is not None and above is None:
                    return right, _MIRRORED[word], left, below
        return None

    def with_limit(self, limit: float) -> Expression | None:
        """The same comparison against another number, or None where `comparison` is None."""
        if (found := self._limit()) is None:
            return None
        if not math.isfinite(limit):
            raise ValueError(f"a limit is a finite number, not {limit}")
        number = int(limit) if float(limit).is_integer() and abs(limit) < 1e15 else float(limit)
        raw, node = self.text.encode(), found[2]
        return parse(f"{raw[: node.col_offset].decode()}{number!r}"
                     f"{raw[node.end_col_offset :].decode()}")  # fmt: skip

    def check(
        self,
        names: Iterable[str],
        *,
        dims: Collection[str] | None = None,
        run_dims: Collection[str] = (),
    ) -> None:
        """Refuse unknown names and dims, before anything is run.

        Parameters
        ----------
        names : iterable of str
            The variables there will be.
        dims : collection of str, optional
            The dims there will be; not checked without.
        run_dims : collection of str
            The dims of the runs, over which nothing may be reduced.

        Raises
        ------
        ExpressionError
            With the place, and the nearest name.
        """
        known = set(names)
        for node, is_dim in _uses(self.tree):
            place = _place(self.text, node)
            if not is_dim and (name := _written(self.text, node)) not in known:
                raise _error(f"there is no '{name}'{_suggestion(name, known)}", self.text, place)
            if is_dim and (dim := _dim(self.text, node)) in run_dims:
                raise _error(_over_runs(dim), self.text, place)
            if is_dim and dims is not None and dim not in dims:
                own = set(dims) - set(run_dims)
                raise _error(f"there is no dim '{dim}'{_suggestion(dim, own)}", self.text, place)

    def evaluate(
        self,
        values: Mapping[Any, Any],
        *,
        lengths: Lengths | None = None,
        run_dims: Collection[str] = (),
    ) -> xr.Variable:
        """The value of every cell.

        Parameters
        ----------
        values : mapping of str to Variable or DataArray, or Dataset
            At least `names`.
        lengths : mapping of str to (dim, Variable of int), optional
            Padded outputs: the padded dim, and how many cells of it are data, per run. NaN says
            that it is not known, and then every cell counts as data.
        run_dims : collection of str
            Which dims tell runs apart; without, all dims count as the values' own.

        Returns
        -------
        Variable
            bool where it is true or false (False where unknown or padded), else the quantity
            (missing where padded). Its dims are those of the values, less the reduced ones.

        Raises
        ------
        ExpressionError
            If a name is not there or values do not fit together.
        """
        with np.errstate(all="ignore"):
            walk = _Walk(self.text, _variables(values), lengths or {}, run_dims)
            if self.boolean:
                return _shown(walk.truth(self.tree))
            value = walk.value(self.tree)
            dims, data, inside = _inside(value.dims, value.data, value.lengths)
            # A copy, so that writing to the result of a bare name leaves the values alone.
            return xr.Variable(dims, data.copy() if inside is None else _kept(inside, data))

    def holds(
        self,
        values: Mapping[Any, Any],
        *,
        lengths: Lengths | None = None,
        run_dims: Collection[str] = (),
    ) -> xr.Variable:
        """As `evaluate`, but always bool: a variable of only 0, 1 and NaN is true or false.

        Raises
        ------
        ExpressionError
            Also if it is a quantity.
        """
        with np.errstate(all="ignore"):
            walk = _Walk(self.text, _variables(values), lengths or {}, run_dims)
            return _shown(walk.truth(self.tree))

    def margin(
        self,
        values: Mapping[Any, Any],
        *,
        lengths: Lengths | None = None,
        run_dims: Collection[str] = (),
    ) -> xr.Variable:
        """Signed distance to the limit: positive where it holds, negative where it does not.

        ``a < b`` is ``b - a``, ``a > b`` is ``a - b``, ``==`` is ``-abs(a - b)`` and ``!=`` is
        ``abs(a - b)``; ``and`` takes the smallest, ``or`` the largest, ``not`` the negative. At
        0 the comparison itself decides. Comparisons of strings and bare booleans have no distance:
        they are passed over as long as they do not decide (``kind == 'pid' and gain > 2`` has the
        margin of ``gain`` for 'pid'), and else the margin is NaN, as it is where truth is unknown.

        Parameters
        ----------
        values, lengths, run_dims
            As for `evaluate`.

        Returns
        -------
        Variable of float64
            In the units of what is compared; seconds for datetimes and durations.
        """
        with np.errstate(all="ignore"):
            walk = _Walk(self.text, _variables(values), lengths or {}, run_dims, measured=True)
            truth = walk.truth(self.tree)
            assert truth.distance is not None
            dims, distance, inside = _inside(truth.dims, truth.distance, truth.lengths)
            undecided = np.isinf(distance) if inside is None else np.isinf(distance) | ~inside
            unbounded = np.where(np.abs(distance) == _LARGEST, np.copysign(np.inf, distance), 0.0)
            return xr.Variable(dims, np.where(undecided, np.nan, distance + unbounded))


@dataclass(frozen=True, slots=True)
class _Value:
    dims: tuple[str, ...]
    data: Array
    lengths: dict[str, Cells]
    """How many cells are data, for each padded dim."""
    dtype: str
    """As it was given, for messages."""

    @property
    def family(self) -> str:
        return _FAMILIES[self.data.dtype.kind]


@dataclass(frozen=True, slots=True)
class _Truth:
    dims: tuple[str, ...]
    holds: Array
    fails: Array
    """Unknown is neither: with `holds` and `fails` apart, NaN needs no care in comparisons."""
    distance: Array | None
    """Margin, if asked for; ±inf where there is none, and where it is infinite ±_LARGEST."""
    lengths: dict[str, Cells]


@dataclass
class _Walk:
    """One evaluation of one text."""

    text: str
    variables: Mapping[Any, Any]
    lengths: Lengths
    run_dims: Collection[str]
    measured: bool = False
    loaded: dict[str, _Value] = field(default_factory=dict)
    sizes: dict[str, tuple[int, str]] = field(default_factory=dict)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        raise _error(message, self.text, _place(self.text, node))

    def called(self, node: ast.AST, value: _Value) -> str:
        written = _written(self.text, node)
        return f"{written if isinstance(node, ast.Constant) else repr(written)} ({value.dtype})"

    def value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=constant) if not isinstance(constant, bool):
                data = np.asarray(constant)
                return _Value((), data, {}, "str" if data.dtype.kind == "U" else str(data.dtype))
            case ast.Name():
                name = _written(self.text, node)
                if name not in self.loaded:
                    self.loaded[name] = self.load(name, node)
                return self.loaded[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(node, left, op, right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                if (number := _number(node)) is not None:
                    return _Value((), np.asarray(number), {}, "number")
                return self.mapped(operand, _negated)
            case ast.Call(func=ast.Name(), args=[argument]):
                return self.mapped(argument, _absolute)
            case ast.Call(func=ast.Attribute(value=value, attr=how), args=dims):
                return self.reduced(node, self.value(value), how, dims)
        truth = self.truth(node)
        unknown_or_zero = np.where(truth.fails, 0.0, np.nan)
        data = np.where(truth.holds, 1.0, unknown_or_zero)
        return _Value(truth.dims, data, truth.lengths, "bool")

    def load(self, name: str, node: ast.expr) -> _Value:
        if name not in self.variables:
            self.refuse(node, f"there is no '{name}'{_suggestion(name, self.variables)}")
        dims, data = self.cells(name, node, self.variables[name])
        try:
            data, dtype = _normal(data)
        except (TypeError, ValueError, OverflowError) as error:
            self.refuse(node, f"'{name}' cannot be used here: {error}")
        lengths = {}
        if name in self.lengths:
            dim, length = self.lengths[name]
            if dim not in dims:
                self.refuse(node, f"'{name}' has no dim '{dim}', along which it has lengths")
            length_dims, count = self.cells(f"length of {name}", node, length)
            size = float(data.shape[dims.index(dim)])
            whole = np.nan_to_num(count.astype(np.float64), nan=size).clip(0, size)
            lengths[dim] = length_dims, whole.astype(np.int64)
        return _Value(dims, data, lengths, dtype)

    def cells(self, name: str, node: ast.expr, given: Any) -> Cells:
        variable = given.variable if isinstance(given, xr.DataArray) else xr.as_variable(given)
        dims = tuple(str(dim) for dim in variable.dims)
        for dim, size in zip(dims, variable.shape, strict=True):
            known, owner = self.sizes.setdefault(dim, (size, name))
            if known != size:
                self.refuse(node, f"dim '{dim}' has {size} cells in '{name}', {known} in '{owner}'")
        return dims, variable.values

    def mapped(self, node: ast.expr, function: Any) -> _Value:
        value = self.value(node)
        done = None if value.family in ("text", "datetime") else function(value.data)
        if done is None:
            self.refuse(node, f"{self.called(node, value)} is not a number")
        return _Value(value.dims, done, value.lengths, str(done.dtype))

    def arithmetic(
        self, node: ast.expr, left: ast.expr, op: ast.operator, right: ast.expr
    ) -> _Value:
        a, b = self.value(left), self.value(right)
        dims, (first, second) = _aligned((a.dims, a.data), (b.dims, b.data))
        data = _combined(type(op), first, second)
        if data is None:
            sides = f"{self.called(left, a)} and {self.called(right, b)}"
            self.refuse(node, f"there is no {_SIGNS[type(op)]} of {sides}")
        return _Value(dims, data, _shortest(a.lengths, b.lengths), str(data.dtype))

    def reduced(self, node: ast.expr, value: _Value, how: str, given: list[ast.expr]) -> _Value:
        over = tuple(dict.fromkeys(_dim(self.text, dim) for dim in given))
        own = [dim for dim in value.dims if dim not in self.run_dims]
        for place, dim in zip(given, over, strict=False):
            if dim in self.run_dims:
                self.refuse(place, _over_runs(dim))
            if dim not in own:
                what = f"'{_written(self.text, node.func.value)}'"  # type: ignore[attr-defined]
                self.refuse(place, f"{what} has no dim '{dim}'{_suggestion(dim, own, 'it has')}")
        kinds = {"first": "biufUTOMm", "last": "biufUTOMm", "max": "biufMm", "min": "biufMm"}
        if value.data.dtype.kind not in kinds.get(how, "biufm"):
            self.refuse(node, f"there is no .{how}() of {value.dtype}")
        reduce = {"first": _picked, "last": _picked, "max": _extreme, "min": _extreme}
        return reduce.get(how, _total)(value, how, over if given else tuple(own))

    def truth(self, node: ast.expr) -> _Truth:
        match node:
            case ast.Compare():
                nodes = [node.left, *node.comparators]
                sides = [self.value(side) for side in nodes]
                pairs = zip(node.ops, nodes, nodes[1:], sides, sides[1:], strict=False)
                return _all(
                    [self.compared(_WORDS[type(op)], n, m, a, b) for op, n, m, a, b in pairs]
                )
            case ast.BoolOp(op=op, values=parts):
                truths = [self.truth(part) for part in parts]
                if isinstance(op, ast.And):
                    return _all(truths)
                return _opposite(_all([_opposite(part) for part in truths]))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _opposite(self.truth(operand))
            case ast.Constant(value=bool(constant)):
                value = _Value((), np.asarray(constant), {}, "bool")
            case _:
                value = self.value(node)
        if value.family != "number":
            self.refuse(node, f"{self.called(node, value)} is not true or false")
        dims, data, inside = _inside(value.dims, value.data, value.lengths)
        holds, fails = data == 1, data == 0
        other = ~(holds | fails | np.isnan(data))
        if np.any(other if inside is None else other & inside):
            what = self.called(node, value)
            self.refuse(node, f"{what} is a quantity, not true or false; compare it with something")
        return _Truth(dims, holds, fails, self.unmeasurable(holds, fails), value.lengths)

    def unmeasurable(self, holds: Array, fails: Array) -> Array | None:
        if not self.measured:
            return None
        return np.where(holds, np.inf, np.where(fails, -np.inf, np.nan))

    def compared(self, word: str, left: ast.expr, right: ast.expr, a: _Value, b: _Value) -> _Truth:
        a, b = self.as_time(left, a, b), self.as_time(right, b, a)
        if a.family != b.family or a.family == "complex":
            sides = f"{self.called(left, a)} with {self.called(right, b)}"
            self.refuse(left, f"cannot compare {sides}")
        dims, (first, second) = _aligned((a.dims, a.data), (b.dims, b.data))
        if {first.dtype.kind, second.dtype.kind} in ({"T", "U"}, {"T", "O"}):
            first, second = first.astype(_TEXT), second.astype(_TEXT)
        holds, fails = _decided(word, first, second)
        lengths = _shortest(a.lengths, b.lengths)
        if a.family == "text" or not self.measured:
            return _Truth(dims, holds, fails, self.unmeasurable(holds, fails), lengths)
        gap = _gap(first, second)
        if word in ("<", "<="):
            gap = -gap
        elif word in ("==", "!="):
            gap = np.abs(gap) if word == "!=" else -np.abs(gap)
        # inf - inf is NaN although the comparison is decided: the two are equal.
        gap = np.where(np.isnan(gap), 0.0, gap).clip(-_LARGEST, _LARGEST) + 0.0
        return _Truth(dims, holds, fails, np.where(holds | fails, gap, np.nan), lengths)

    def as_time(self, node: ast.expr, value: _Value, other: _Value) -> _Value:
        """A literal string as a time, where it meets times; else `value`."""
        if not isinstance(node, ast.Constant) or other.family not in ("datetime", "duration"):
            return value
        if not isinstance(node.value, str):
            return value
        time = _moment(node.value) if other.family == "datetime" else _duration(node.value)
        if time is None:
            like = "an ISO date" if other.family == "datetime" else "a duration such as '90 s'"
            self.refuse(node, f"{node.value!r} is not {like} within 1678 to 2262")
        return _Value((), np.asarray(time), {}, str(time.dtype))


def _over_runs(dim: str) -> str:
    return f"'{dim}' is a dim of the runs; an expression judges each run by itself"


def _variables(values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    return values.variables if isinstance(values, xr.Dataset) else values


def _normal(data: Array) -> tuple[Array, str]:
    """Data in one of the dtypes that the grammar computes with, and how to call the given dtype."""
    kind = data.dtype.kind
    if kind == "f":
        return data.astype(np.float64, copy=False), str(data.dtype)
    if kind in "Mm":
        exact = data.astype(f"{kind}8[ns]")
        # numpy wraps silently; compared in their own unit, wrapped times differ.
        if not np.all((exact.astype(data.dtype) == data) | np.isnat(data)):
            raise OverflowError("it holds times that do not fit in nanoseconds")
        return exact, str(data.dtype)
    if kind == "T":
        return data.astype(_TEXT), "str"
    if kind == "O":
        return _from_objects(data)
    if kind not in _FAMILIES:
        raise TypeError(f"its dtype is {data.dtype}")
    return data, "str" if kind == "U" else str(data.dtype)


def _from_objects(data: Array) -> tuple[Array, str]:
    cells = data.ravel().tolist()
    kinds = set(map(type, cells))
    if all(issubclass(kind, str) for kind in kinds):
        return data, "str"  # converting takes longer than comparing
    if all(issubclass(kind, int | float | np.number | np.bool_ | NoneType) for kind in kinds):
        return data.astype(np.float64), "object"
    missing = [not isinstance(cell, str) for cell in cells]
    if all(cell is None or cell != cell for cell, gone in zip(cells, missing, strict=True) if gone):
        return np.where(np.reshape(missing, data.shape), np.nan, data).astype(_TEXT), "str"
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(f"it holds objects of type {names}")


def _moment(text: str) -> np.datetime64 | None:
    # np.datetime64 itself would also read "now", and would wrap silently beyond 2262.
    if (found := _MOMENT.fullmatch(text.strip())) is None:
        return None
    if not 1678 <= int(found[1][:4]) <= 2261:
        return None
    try:
        moment = np.datetime64(found[1], "ns")
    except ValueError:
        return None
    offset = int(found[3] or 0) * 60 + int(found[4] or 0)
    return moment - np.timedelta64(-offset if found[2] == "-" else offset, "m")


def _duration(text: str) -> np.timedelta64 | None:
    if (found := _DURATION.fullmatch(text.strip())) is None:
        return None
    ns = float(found[1]) * _UNITS[found[2]]
    return np.timedelta64(round(ns), "ns") if abs(ns) < 2**63 else None


def _aligned(*parts: Cells) -> tuple[tuple[str, ...], list[Array]]:
    """All dims, in order of appearance, and the arrays as views that broadcast along them."""
    dims = tuple(dict.fromkeys(dim for own, _ in parts for dim in own))
    arrays = []
    for own, data in parts:
        if own and own != dims:
            data = data.transpose([own.index(dim) for dim in dims if dim in own])
            data = data[tuple(slice(None) if dim in own else np.newaxis for dim in dims)]
        arrays.append(data)
    return dims, arrays


def _shortest(*parts: dict[str, Cells]) -> dict[str, Cells]:
    """Lengths of what is computed from several values: valid where all of them are."""
    merged: dict[str, Cells] = {}
    for dim, length in (item for part in parts for item in part.items()):
        if dim in merged:
            dims, arrays = _aligned(merged[dim], length)
            length = dims, np.minimum(*arrays)
        merged[dim] = length
    return merged


def _inside(
    dims: tuple[str, ...], data: Array, lengths: dict[str, Cells]
) -> tuple[tuple[str, ...], Array, Array | None]:
    """Dims, data, and which cells are data; None if all are."""
    masks: list[Cells] = []
    for dim, length in lengths.items():
        position = np.arange(data.shape[dims.index(dim)])
        own, (index, count) = _aligned(((dim,), position), length)
        masks.append((own, index < count))
    if not masks:
        return dims, data, None
    dims, (data, *rest) = _aligned((dims, data), *masks)
    inside = functools.reduce(operator.and_, rest)
    return dims, data, np.broadcast_to(inside, np.broadcast_shapes(inside.shape, data.shape))


def _kept(inside: Array, data: Array) -> Array:
    """Data inside, and missing elsewhere: NaN, NaT or a missing string."""
    if data.dtype.kind in "UTO":
        data = data.astype(_TEXT)
        return np.where(inside, data, np.array(np.nan, dtype=_TEXT))
    missing = np.array("NaT", data.dtype) if data.dtype.kind in "Mm" else np.array(np.nan)
    return np.where(inside, data, missing)


def _shown(truth: _Truth) -> xr.Variable:
    dims, holds, inside = _inside(truth.dims, truth.holds, truth.lengths)
    return xr.Variable(dims, holds if inside is None else holds & inside)


def _plain(data: Array) -> Array | None:
    """As float64, durations as they are; None for anything else."""
    if data.dtype.kind == "m":
        return data
    return data.astype(np.float64, copy=False) if data.dtype.kind in "biuf" else None


def _negated(data: Array) -> Array | None:
    return None if (plain := _plain(data)) is None else -plain


def _absolute(data: Array) -> Array:
    if data.dtype.kind == "i":
        # The smallest int64 has no positive int64, but as unsigned it is right.
        return np.abs(data.astype(np.int64)).view(np.uint64)
    return data if data.dtype.kind == "b" else np.abs(data)


def _nanoseconds(data: Array) -> Array:
    return np.where(np.isnat(data), np.nan, data.view(np.int64).astype(np.float64))


def _as_duration(nanoseconds: Array) -> Array:
    known = np.abs(nanoseconds) < 2.0**63
    whole = np.where(known, np.rint(nanoseconds), 0.0).astype(np.int64).view("m8[ns]")
    return np.where(known, whole, np.timedelta64("NaT"))


def _combined(op: type[ast.operator], a: Array, b: Array) -> Array | None:
    """Arithmetic on two arrays that broadcast; None if there is none for their dtypes."""
    function = _ARITHMETIC[op]
    if (first := _plain(a)) is not None and (second := _plain(b)) is not None and (
        first.dtype.kind == second.dtype.kind == "f"
    ):  # fmt: skip
        return np.asarray(function(first, second))
    kinds = [data.dtype.kind if data.dtype.kind in "MmcUTO" else "n" for data in (a, b)]
    result = _TIMES.get(f"{kinds[0]}{_SIGNS[op]}{kinds[1]}")
    if result is None:
        return None
    floats = [_nanoseconds(x) if x.dtype.kind in "Mm" else x.astype(np.float64) for x in (a, b)]
    rough = np.asarray(function(*floats))
    if result == "n":
        return rough
    if op in (ast.Mult, ast.Div):
        return _as_duration(rough)
    # Exact, but int64 wraps: where the rough result is too large there is no time.
    exact = np.asarray(function(a.view(np.int64), b.view(np.int64))).view(f"{result}8[ns]")
    return np.where(np.abs(rough) < 2.0**63, exact, np.array("NaT", exact.dtype))


def _decided(word: str, a: Array, b: Array) -> tuple[Array, Array]:
    """Where the comparison holds and where it fails; neither where a side is missing."""
    match word:
        case "<" | ">=":
            below, above = np.less(a, b), np.greater_equal(a, b)
        case "<=" | ">":
            below, above = np.less_equal(a, b), np.greater(a, b)
        case _:
            below = np.equal(a, b)
            above = ~below
            for data in (a, b):
                above = above & ~np.isnan(data) if data.dtype.kind in "fTMm" else above
    return (below, above) if word in ("<", "<=", "==") else (above, below)


def _gap(a: Array, b: Array) -> Array:
    """a - b as float64: exact before rounding for integers, in seconds for times."""
    if "f" in (a.dtype.kind, b.dtype.kind):
        return np.asarray(a.astype(np.float64, copy=False) - b.astype(np.float64, copy=False))
    seconds = 1e9 if a.dtype.kind in "Mm" else 1.0
    a, b = (x.view(np.int64) if x.dtype.kind in "Mm" else x for x in (a, b))
    rough = np.asarray(a.astype(np.float64) - b.astype(np.float64))
    # Once its sign is known, a difference below 2**64 is right in unsigned integers that wrap.
    first, second = a.astype(np.uint64), b.astype(np.uint64)
    above, below = (first - second).astype(np.float64), (second - first).astype(np.float64)
    exact = np.where(a >= b, above, -below)
    return np.where(np.abs(rough) < 2.0**63, exact, rough) / seconds


def _all(parts: list[_Truth]) -> _Truth:
    if len(parts) == 1:
        return parts[0]
    dims, holds = _aligned(*((part.dims, part.holds) for part in parts))
    _, fails = _aligned(*((part.dims, part.fails) for part in parts))
    every, some = functools.reduce(operator.and_, holds), functools.reduce(operator.or_, fails)
    distances = [(part.dims, part.distance) for part in parts if part.distance is not None]
    smallest: Array | None = None
    if distances:
        # Where truth is decided although a part is unknown, a known part has decided it.
        smallest = functools.reduce(np.fmin, _aligned(*distances)[1])
        smallest = np.where(every | some, smallest, np.nan)
    return _Truth(dims, every, some, smallest, _shortest(*(part.lengths for part in parts)))


def _opposite(part: _Truth) -> _Truth:
    distance = None if part.distance is None else 0.0 - part.distance
    return _Truth(part.dims, part.fails, part.holds, distance, part.lengths)


def _split(value: _Value, over: tuple[str, ...]) -> tuple[dict[str, Cells], dict[str, Cells]]:
    """Lengths along the dims that are reduced, and along those that stay."""
    gone = {dim: length for dim, length in value.lengths.items() if dim in over}
    return gone, {dim: length for dim, length in value.lengths.items() if dim not in over}


def _picked(value: _Value, how: str, over: tuple[str, ...]) -> _Value:
    """The first or last cell that is data."""
    dims, data = value.dims, value.data
    gone, stay = _split(value, over)
    for dim in over:
        length = gone.get(dim, ((), np.asarray(data.shape[dims.index(dim)])))
        dims, (data, count) = _aligned((dims, data), length)
        axis = dims.index(dim)
        rest = dims[:axis] + dims[axis + 1 :]
        if data.shape[axis] == 0:
            data = _kept(np.asarray(False), np.zeros(_dropped(data, axis), data.dtype))
        elif dim not in gone:
            # np.asarray, for a single string would come out as a str.
            data = np.asarray(data.take(0 if how == "first" else -1, axis), dtype=data.dtype)
        else:
            count = count.reshape(count.shape or (1,) * data.ndim)
            index = np.maximum(count - 1, 0) if how == "last" else np.zeros_like(count)
            chosen = np.take_along_axis(data, index, axis).squeeze(axis)
            data = _kept((count > 0).squeeze(axis), chosen)
        dims = rest
    return _Value(dims, data, stay, str(data.dtype))


def _dropped(data: Array, axis: int) -> tuple[int, ...]:
    return data.shape[:axis] + data.shape[axis + 1 :]


def _extreme(value: _Value, how: str, over: tuple[str, ...]) -> _Value:
    """The largest or smallest of the cells that are data."""
    gone, stay = _split(value, over)
    dims, data, inside = _inside(value.dims, value.data, gone)
    axes = tuple(dims.index(dim) for dim in over)
    rest = tuple(dim for dim in dims if dim not in over)
    function: Any = np.max if how == "max" else np.min
    if inside is None and all(data.shape[axis] for axis in axes):
        data = np.asarray(function(data, axis=axes))
        return _Value(rest, data, stay, str(data.dtype))
    if data.dtype.kind in "Mm":
        ends = {"max": -(2**63) + 1, "min": 2**63 - 1}
        start = np.array(ends[how]).view(data.dtype)
    else:
        data, start = data.astype(np.float64), np.array(-np.inf if how == "max" else np.inf)
    inside = np.ones(data.shape, dtype=bool) if inside is None else inside
    # np.max keeps a NaN among the data, which np.nanmax or a NaN outside would hide or spread.
    found = np.asarray(function(np.where(inside, data, start), axis=axes, initial=start[()]))
    data = _kept(np.asarray(inside.any(axis=axes)), found)
    return _Value(rest, data, stay, str(data.dtype))


def _total(value: _Value, how: str, over: tuple[str, ...]) -> _Value:
    """Sum or mean of the cells that are data."""
    gone, stay = _split(value, over)
    dims, data, inside = _inside(value.dims, value.data, gone)
    axes = tuple(dims.index(dim) for dim in over)
    kind = data.dtype.kind
    data = _nanoseconds(data) if kind == "m" else data.astype(np.float64, copy=False)
    count: Any = math.prod(data.shape[axis] for axis in axes)
    if inside is not None:
        data, count = np.where(inside, data, 0.0), inside.sum(axis=axes)
    total = np.asarray(data.sum(axis=axes))
    total = np.asarray(np.true_divide(total, count)) if how == "mean" else total
    total = _as_duration(total) if kind == "m" else total
    return _Value(tuple(dim for dim in dims if dim not in over), total, stay, str(total.dtype))

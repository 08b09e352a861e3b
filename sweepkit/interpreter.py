"""What a parsed expression says of given values: the walk over its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np
import xarray as xr

from sweepkit.arithmetic import (
    Cells,
    Truth,
    Value,
    absolute,
    as_quantity,
    as_truth,
    combined,
    compared,
    every,
    negated,
    normal,
    opposite,
    reduced,
)
from sweepkit.grammar import (
    SIGNS,
    WORDS,
    dim_of,
    number_of,
    over_runs,
    place_of,
    refusal,
    suggestion,
    written,
)

__all__ = ["Interpreter", "Lengths"]

Lengths: TypeAlias = Mapping[str, tuple[str, xr.Variable | xr.DataArray]]

_MOMENT = re.compile(
    r"(\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?)?)?)"
    r"(?:Z|([+-])(\d\d):?(\d\d))?"
)
_DURATION = re.compile(r"(-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?) ?(ns|us|ms|s|min|h|d)")
_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "d": 86400e9}


@dataclass
class Interpreter:
    """One evaluation of one text; with distances to the limits if `measured`."""

    text: str
    variables: Mapping[Any, Any]
    lengths: Lengths
    run_dims: Collection[str]
    measured: bool = False
    loaded: dict[str, Value] = field(default_factory=dict)
    sizes: dict[str, tuple[int, str]] = field(default_factory=dict)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        raise refusal(message, self.text, place_of(self.text, node))

    def called(self, node: ast.AST, value: Value) -> str:
        text = written(self.text, node)
        return f"{text if isinstance(node, ast.Constant) else repr(text)} ({value.dtype})"

    def value(self, node: ast.expr) -> Value:
        """Value of a part of the text, as a quantity.

        Raises
        ------
        ExpressionError
            If values are not there or do not fit together.
        """
        match node:
            case ast.Constant(value=constant) if not isinstance(constant, bool):
                data = np.asarray(constant)
                return Value((), data, {}, "str" if data.dtype.kind == "U" else str(data.dtype))
            case ast.Name():
                name = written(self.text, node)
                if name not in self.loaded:
                    self.loaded[name] = self.load(name, node)
                return self.loaded[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(node, left, op, right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                if (number := number_of(node)) is not None:
                    return Value((), np.asarray(number), {}, "number")
                return self.mapped(operand, negated)
            case ast.Call(func=ast.Name(), args=[argument]):
                return self.mapped(argument, absolute)
            case ast.Call(func=ast.Attribute(value=value, attr=how), args=dims):
                return self.reduced(node, self.value(value), how, dims)
        return as_quantity(self.truth(node))

    def load(self, name: str, node: ast.expr) -> Value:
        if name not in self.variables:
            self.refuse(node, f"there is no '{name}'{suggestion(name, self.variables)}")
        dims, data = self.cells(name, node, self.variables[name])
        try:
            data, dtype = normal(data)
        except (TypeError, ValueError) as error:
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
        return Value(dims, data, lengths, dtype)

    def cells(self, name: str, node: ast.expr, given: Any) -> Cells:
        variable = given.variable if isinstance(given, xr.DataArray) else xr.as_variable(given)
        dims = tuple(str(dim) for dim in variable.dims)
        for dim, size in zip(dims, variable.shape, strict=True):
            known, owner = self.sizes.setdefault(dim, (size, name))
            if known != size:
                self.refuse(node, f"dim '{dim}' has {size} cells in '{name}', {known} in '{owner}'")
        return dims, variable.values

    def mapped(self, node: ast.expr, function: Callable[[Value], Value | None]) -> Value:
        value = self.value(node)
        if (done := function(value)) is None:
            self.refuse(node, f"{self.called(node, value)} is not a number")
        return done

    def arithmetic(
        self, node: ast.expr, left: ast.expr, op: ast.operator, right: ast.expr
    ) -> Value:
        a, b = self.value(left), self.value(right)
        sign = SIGNS[type(op)]
        if (value := combined(sign, a, b)) is None:
            sides = f"{self.called(left, a)} and {self.called(right, b)}"
            self.refuse(node, f"there is no {sign} of {sides}")
        return value

    def reduced(self, node: ast.expr, value: Value, how: str, given: list[ast.expr]) -> Value:
        over = tuple(dict.fromkeys(dim_of(self.text, dim) for dim in given))
        own = [dim for dim in value.dims if dim not in self.run_dims]
        for place, dim in zip(given, over, strict=False):
            if dim in self.run_dims:
                self.refuse(place, over_runs(dim))
            if dim not in own:
                what = f"'{written(self.text, node.func.value)}'"  # type: ignore[attr-defined]
                self.refuse(place, f"{what} has no dim '{dim}'{suggestion(dim, own, 'it has')}")
        if (left := reduced(value, how, over if given else tuple(own))) is None:
            self.refuse(node, f"there is no .{how}() of {value.dtype}")
        return left

    def truth(self, node: ast.expr) -> Truth:
        """Truth of a part of the text; raises as `value`, and if it is a quantity."""
        match node:
            case ast.Compare():
                nodes = [node.left, *node.comparators]
                sides = [self.value(side) for side in nodes]
                pairs = zip(node.ops, nodes, nodes[1:], sides, sides[1:], strict=False)
                return every(
                    [self.compared(WORDS[type(op)], n, m, a, b) for op, n, m, a, b in pairs]
                )
            case ast.BoolOp(op=op, values=parts):
                truths = [self.truth(part) for part in parts]
                if isinstance(op, ast.And):
                    return every(truths)
                return opposite(every([opposite(part) for part in truths]))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return opposite(self.truth(operand))
            case ast.Constant(value=bool(constant)):
                value = Value((), np.asarray(constant), {}, "bool")
            case _:
                value = self.value(node)
        if value.family != "number":
            self.refuse(node, f"{self.called(node, value)} is not true or false")
        if (truth := as_truth(value, measured=self.measured)) is None:
            what = self.called(node, value)
            self.refuse(node, f"{what} is a quantity, not true or false; compare it with something")
        return truth

    def compared(self, word: str, left: ast.expr, right: ast.expr, a: Value, b: Value) -> Truth:
        a, b = self.as_time(left, a, b), self.as_time(right, b, a)
        if a.family != b.family or a.family == "complex":
            sides = f"{self.called(left, a)} with {self.called(right, b)}"
            self.refuse(left, f"cannot compare {sides}")
        return compared(word, a, b, measured=self.measured)

    def as_time(self, node: ast.expr, value: Value, other: Value) -> Value:
        """A literal string as a time, where it meets times; else `value`."""
        if not isinstance(node, ast.Constant) or other.family not in ("datetime", "duration"):
            return value
        if not isinstance(node.value, str):
            return value
        time = _moment(node.value) if other.family == "datetime" else _duration(node.value)
        if time is None:
            like = "an ISO date" if other.family == "datetime" else "a duration such as '90 s'"
            self.refuse(node, f"{node.value!r} is not {like} within 1678 to 2262")
        return Value((), np.asarray(time), {}, str(time.dtype))


def _moment(text: str) -> np.datetime64 | None:
    """The datetime that an ISO text says, within 1678 to 2262; else None."""
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
    """The duration that a text such as ``90 s`` says; None if it says none."""
    if (found := _DURATION.fullmatch(text.strip())) is None:
        return None
    ns = float(found[1]) * _UNITS[found[2]]
    return np.timedelta64(round(ns), "ns") if abs(ns) < 2**63 else None

"""Requirements: comparisons on outputs that a run passes or fails, and their margins."""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.expressions import Expression, ExpressionError, Lengths, parse

__all__ = ["Requirement", "collect", "fails", "margins", "requirement", "satisfied"]

OPERATORS = ("<", "<=", ">", ">=", "==", "!=")

Judge: TypeAlias = Callable[[xr.Dataset], xr.DataArray]


@dataclass(frozen=True, init=False)
class Requirement:
    """A comparison on a run's outputs: the run passes it or fails it.

    Parameters
    ----------
    output : str
        An output or an expression of outputs, such as ``"abs(angle).max(time)"``; without `op`
        and `limit`, the whole requirement as text or the name of a boolean output.
    op : {"<", "<=", ">", ">=", "==", "!="}, optional
    limit : number, bool, str or datetime, optional
        In the units of the output. Finite.
    name : str, optional
        How views and tables call it; the text where not given.
    code : callable, optional
        Instead of an expression: takes the Dataset of outputs and returns a boolean DataArray over
        the run dims. A store does not carry it, so `needs_code` is True; it has no margin.

    Attributes
    ----------
    text : str
        The whole requirement, as it is stored and shown.
    needs_code : bool

    Raises
    ------
    ValueError
        If it is not a comparison.

    Examples
    --------
    >>> Requirement("abs(angle).max(time)", "<", 0.2).text
    'abs(angle).max(time) < 0.2'
    >>> Requirement("steps", ">=", 500) == requirement("steps >= 500")
    True
    """

    text: str
    name: str
    needs_code: bool
    code: Judge | None = field(repr=False)
    _expression: Expression | None = field(repr=False, compare=False)

    def __init__(
        self,
        output: str,
        op: str | None = None,
        limit: object = None,
        *,
        name: str | None = None,
        code: Judge | None = None,
        needs_code: bool = False,
    ) -> None:
        needs_code = needs_code or code is not None
        if needs_code and (op is not None or limit is not None):
            raise ValueError(f"requirement '{output}' is code, so it takes no operator and limit")
        if (op is None) != (limit is None):
            raise ValueError(f"requirement on '{output}' needs both an operator and a limit")
        if name is not None and not (isinstance(name, str) and name.strip()):
            raise ValueError(f"a requirement's name is a str that is not empty, not {name!r}")
        expression = None if needs_code else _comparison(output, op, limit)
        text = output if expression is None else expression.text
        for key, value in {
            "text": text,
            "name": text if name is None else name,
            "needs_code": needs_code,
            "code": code,
            "_expression": expression,
        }.items():
            object.__setattr__(self, key, value)

    @property
    def expression(self) -> Expression:
        """The parsed text.

        Raises
        ------
        ValueError
            If it is code.
        """
        if self._expression is None:
            raise ValueError(f"requirement '{self.name}' is code, so it has no expression")
        return self._expression

    @property
    def output(self) -> str | None:
        """What is compared, if it is a single comparison with a number; else None."""
        return None if (found := self._compared()) is None else found[0]

    @property
    def op(self) -> str | None:
        """The operator with the limit at its right, if `limit` is not None."""
        return None if (found := self._compared()) is None else found[1]

    @property
    def limit(self) -> float | None:
        """The number, in the output's units, if it is a single comparison with one; else None.

        >>> requirement("0.2 > abs(angle).max(time)").limit
        0.2
        """
        return None if (found := self._compared()) is None else float(found[2])

    def _compared(self) -> tuple[str, str, int | float] | None:
        return None if self._expression is None else self._expression.comparison

    def with_limit(self, limit: float) -> Requirement | None:
        """The same requirement with another limit; None where `limit` is None.

        A name of its own is kept.

        >>> requirement("steps >= 500").with_limit(400).text
        'steps >= 400'
        """
        moved = None if self._expression is None else self._expression.with_limit(limit)
        if moved is None:
            return None
        return Requirement(moved.text, name=None if self.name == self.text else self.name)

    def check(
        self,
        names: Iterable[str],
        *,
        dims: Collection[str] | None = None,
        run_dims: Collection[str] = (),
    ) -> None:
        """Refuse outputs and dims that there will not be; see `Expression.check`. Code passes."""
        if self._expression is not None:
            self._expression.check(names, dims=dims, run_dims=run_dims)

    def to_json(self) -> dict[str, Any]:
        """As it is stored: text, name, and whether it needs code that is not stored."""
        return {"text": self.text, "name": self.name, "needs_code": self.needs_code}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Requirement:
        """What `to_json` gave; one that was code raises by name when it is evaluated.

        >>> Requirement.from_json({"text": "steps >= 500", "name": "long enough"}).name
        'long enough'
        """
        text = stored.get("text")
        if not isinstance(text, str):
            raise ValueError(f"a stored requirement has a 'text', which {dict(stored)!r} lacks")
        return cls(text, name=stored.get("name"), needs_code=bool(stored.get("needs_code", False)))


def requirement(obj: object, *, name: str | None = None) -> Requirement:
    """Make a requirement.

    Parameters
    ----------
    obj : str, Expression, Requirement or callable
        A text such as ``"steps >= 500"``, or a function that takes a Dataset of outputs, whose
        variables have the run dims, and returns a boolean DataArray.
    name : str, optional
        Else the text, or the function's name.

    Raises
    ------
    ValueError
        If the text is no comparison, or the function has no name.
    """
    match obj:
        case Requirement():
            return obj if name is None else _renamed(obj, name)
        case str():
            return Requirement(obj, name=name)
        case Expression():
            return Requirement(obj.text, name=name)
    if not callable(obj):
        raise ValueError(
            f"a requirement is a text such as 'steps >= 500', a Requirement or a function, "
            f"not {type(obj).__name__}"
        )
    own = name if name is not None else getattr(obj, "__name__", None)
    if own is None or own == "<lambda>":
        raise ValueError("a function without a name needs one: sk.requirement(function, name=...)")
    return Requirement(own, name=own, code=obj)


def collect(objs: object) -> tuple[Requirement, ...]:
    """Make each a requirement; one alone may come without a list.

    Raises
    ------
    ValueError
        If two have the same name.
    """
    single = isinstance(objs, str | Expression | Requirement) or callable(objs)
    if not single and not isinstance(objs, Iterable):
        raise ValueError(f"requirements are a list of them, not {type(objs).__name__}")
    made = tuple(requirement(obj) for obj in ([objs] if single else objs))  # type: ignore[attr-defined]
    seen: set[str] = set()
    for each in made:
        if each.name in seen:
            raise ValueError(f"two requirements are called '{each.name}'; give one another name=")
        seen.add(each.name)
    return made


def satisfied(
    requirements: object,
    values: Mapping[Any, Any],
    *,
    run_dims: Collection[str],
    lengths: Lengths | None = None,
) -> NDArray[np.bool_]:
    """Whether each run satisfies each requirement.

    Parameters
    ----------
    requirements : iterable of str, Requirement or callable
    values : mapping of str to Variable or DataArray, or Dataset
        The outputs, and the parameters if a requirement names them.
    run_dims : collection of str
        The dims that tell runs apart, in the order of the result's axes.
    lengths : mapping of str to (dim, Variable of int), optional
        Of padded outputs, as for `Expression.evaluate`.

    Returns
    -------
    array of bool, shape (n_requirements, *run sizes)
        False also where NaN leaves it unknown. Whether a run has finished is not asked here.

    Raises
    ------
    ValueError
        If outputs are missing or do not fit, a dim is left that is not a run dim, or code is
        not there.
    """
    judged = []
    for each in collect(requirements):
        if each.needs_code:
            judged.append(_from_code(each, values, lengths or {}, run_dims))
        else:
            judged.append(each.expression.holds(values, lengths=lengths, run_dims=run_dims))
        _check_dims(each, judged[-1], run_dims)
    return _stacked(judged, values, run_dims, bool)


def margins(
    requirements: object,
    values: Mapping[Any, Any],
    *,
    run_dims: Collection[str],
    lengths: Lengths | None = None,
) -> NDArray[np.float64]:
    """Signed distance of each run to the limit of each requirement; see `Expression.margin`.

    Parameters
    ----------
    requirements, values, run_dims, lengths
        As for `satisfied`.

    Returns
    -------
    array of float, shape (n_requirements, *run sizes)
        In the units of what is compared; positive where satisfied, negative where not; NaN where
        unknown or without distance, as everywhere for code.

    Raises
    ------
    ValueError
        As `satisfied`.
    """
    measured = []
    for each in collect(requirements):
        if each.needs_code:
            _called(each)
            measured.append(xr.Variable((), np.nan))
        else:
            measured.append(each.expression.margin(values, lengths=lengths, run_dims=run_dims))
        _check_dims(each, measured[-1], run_dims)
    return _stacked(measured, values, run_dims, np.float64)


def fails(
    requirements: object,
    values: Mapping[Any, Any],
    *,
    run_dims: Collection[str],
    lengths: Lengths | None = None,
) -> NDArray[np.bool_]:
    """Whether each run fails: some requirement does not hold.

    Parameters
    ----------
    requirements, values, run_dims, lengths
        As for `satisfied`.

    Returns
    -------
    array of bool, shape (*run sizes)
    """
    held = satisfied(requirements, values, run_dims=run_dims, lengths=lengths)
    return np.asarray(~held.all(axis=0))


def _comparison(output: str, op: str | None, limit: object) -> Expression:
    expression = parse(output)
    if op is not None:
        if op not in OPERATORS:
            raise ValueError(f"the operator {op!r} is not one of {' '.join(OPERATORS)}")
        # Without brackets `a or b` < 1 would read `a or (b < 1)`.
        left = f"({expression.text})" if expression.boolean else expression.text
        return parse(f"{left} {op} {_literal(limit)}")
    if expression.boolean is False:
        raise ExpressionError(
            f"a requirement is a comparison, such as 'steps >= 500', or a boolean output; "
            f"'{expression.text}' is a quantity"
        )
    return expression


def _literal(limit: object) -> str:
    match limit:
        case bool() | np.bool_():
            return repr(bool(limit))
        case numbers.Integral():
            return repr(int(limit))
        case numbers.Real() if math.isfinite(limit):
            return repr(float(limit))
        case str():
            return repr(str(limit))
        case np.datetime64() if not np.isnat(limit):
            return repr(str(limit))
        case datetime.date():
            return repr(limit.isoformat())
    raise ValueError(f"a limit is a finite number, a bool, a str or a date, not {limit!r}")


def _renamed(old: Requirement, name: str) -> Requirement:
    return Requirement(old.text, name=name, code=old.code, needs_code=old.needs_code)


def _called(each: Requirement) -> Judge:
    if each.code is None:
        raise ValueError(
            f"requirement '{each.name}' is code, which a store does not carry; "
            "pass requirements=[...] with the function"
        )
    return each.code


def _from_code(
    each: Requirement,
    values: Mapping[Any, Any],
    lengths: Lengths,
    run_dims: Collection[str],
) -> xr.Variable:
    judge = _called(each)
    outputs = values if isinstance(values, xr.Dataset) else xr.Dataset(dict(values))
    for name, (dim, length) in lengths.items():
        if name in outputs:
            count = xr.DataArray(getattr(length, "variable", length))
            index = xr.DataArray(np.arange(outputs.sizes[dim]), dims=dim)
            # Where the length is NaN every cell counts as data.
            outputs = outputs.assign({name: outputs[name].where(~(index >= count))})
    judged = judge(outputs)
    if not isinstance(judged, xr.DataArray) or judged.dtype != bool:
        kind = judged.dtype if isinstance(judged, xr.DataArray) else type(judged).__name__
        raise ValueError(
            f"requirement '{each.name}' returned {kind}; it returns a boolean DataArray over the "
            "run dims"
        )
    if gone := [dim for dim in run_dims if dim not in judged.dims]:
        raise ValueError(
            f"requirement '{each.name}' returned one value for all runs along '{gone[0]}'; "
            "reduce over the output's own dims alone, as in "
            "ds['angle'].max('time') < 0.2"
        )
    return judged.variable


def _check_dims(each: Requirement, result: xr.Variable, run_dims: Collection[str]) -> None:
    if rest := [str(dim) for dim in result.dims if dim not in run_dims]:
        raise ValueError(
            f"requirement '{each.name}' is not one value for each run: the dim '{rest[0]}' is "
            f"left; reduce over it, as in 'abs(angle).max({rest[0]}) < 0.2'"
        )


def _stacked(
    results: list[xr.Variable], values: Mapping[Any, Any], run_dims: Collection[str], dtype: Any
) -> NDArray[Any]:
    """Results along a first axis, each spread over all runs."""
    variables = values.variables if isinstance(values, xr.Dataset) else values
    sizes: dict[Any, int] = {}
    for given in [*variables.values(), *results]:
        sizes |= dict(getattr(given, "sizes", {}))
    if missing := [dim for dim in run_dims if dim not in sizes]:
        raise ValueError(f"no value has the run dim '{missing[0]}', so its size is not known")
    shape = {dim: sizes[dim] for dim in run_dims}
    stacked = np.empty((len(results), *shape.values()), dtype=dtype)
    for index, result in enumerate(results):
        own = [dim for dim in run_dims if dim in result.dims]
        spread = tuple(slice(None) if dim in own else np.newaxis for dim in run_dims)
        stacked[index] = result.transpose(*own).values[spread]
    return stacked

"""The one small grammar of validity masks and requirements, parsed safely."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from sweepkit.arithmetic import filled, margins, satisfied
from sweepkit.grammar import (
    WORDS,
    ExpressionError,
    boolean,
    dim_of,
    number_of,
    over_runs,
    place_of,
    read,
    refusal,
    suggestion,
    uses,
    written,
)
from sweepkit.interpreter import Interpreter, Lengths

__all__ = ["Expression", "ExpressionError", "Lengths", "parse"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


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
    text, tree = read(text)
    used = list(uses(tree))
    names = frozenset(written(text, node) for node, is_dim in used if not is_dim)
    dims = frozenset(dim_of(text, node) for node, is_dim in used if is_dim)
    return Expression(text, names, dims, tree)


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
        return boolean(self.tree)

    @property
    def comparison(self) -> tuple[str, str, int | float] | None:
        """Compared text, operator and number of a single comparison with a number, else None.

        >>> parse("0.2 > abs(angle).max(time)").comparison
        ('abs(angle).max(time)', '<', 0.2)
        """
        if (found := self._limit()) is None:
            return None
        compared, word, _, number = found
        return written(self.text, compared), word, number

    def _limit(self) -> tuple[ast.expr, str, ast.expr, int | float] | None:
        match self.tree:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                word, above, below = WORDS[type(op)], number_of(right), number_of(left)
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
        for node, is_dim in uses(self.tree):
            place = place_of(self.text, node)
            if not is_dim and (name := written(self.text, node)) not in known:
                raise refusal(f"there is no '{name}'{suggestion(name, known)}", self.text, place)
            if is_dim and (dim := dim_of(self.text, node)) in run_dims:
                raise refusal(over_runs(dim), self.text, place)
            if is_dim and dims is not None and dim not in dims:
                own = set(dims) - set(run_dims)
                raise refusal(f"there is no dim '{dim}'{suggestion(dim, own)}", self.text, place)

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
            told = Interpreter(self.text, _variables(values), lengths or {}, run_dims)
            if self.boolean:
                return xr.Variable(*satisfied(told.truth(self.tree)))
            # In memory of its own: writing to the result of a bare name leaves the values alone.
            return xr.Variable(*filled(told.value(self.tree)))

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
            told = Interpreter(self.text, _variables(values), lengths or {}, run_dims)
            return xr.Variable(*satisfied(told.truth(self.tree)))

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
            told = Interpreter(
                self.text, _variables(values), lengths or {}, run_dims, measured=True
            )
            return xr.Variable(*margins(told.truth(self.tree)))


def _variables(values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    return values.variables if isinstance(values, xr.Dataset) else values

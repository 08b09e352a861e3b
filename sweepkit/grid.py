"""The set of all points, masked where some are left out; never enumerated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sweepkit.distinct import check_distinct
from sweepkit.format1 import RESERVED
from sweepkit.masks import Mask, check_mask_names, is_text, mask_arguments, mask_text
from sweepkit.parameters import Parameter, check_name, named

if TYPE_CHECKING:  # workers rebuild grids, and need neither xarray nor the grammar for it
    import xarray as xr

    from sweepkit.expressions import Expression

__all__ = ["REPLICATE", "Grid", "axis_keys", "random_prefix"]

REPLICATE = "replicate"
"""Name of the parameter and dim that count repetitions under other random streams."""

MOST_POINTS = 2**62
ENUMERABLE = 10**7
"""Points beyond which what needs a list of all points is refused."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A frozen set of points: every combination of the values along its dims.

    Made by :func:`grid`, :func:`paired`, :func:`latin_hypercube` or :func:`sobol`; any of them
    can be crossed with others by :func:`grid`. Takes memory for the values along each dim, not
    for their combinations.

    Attributes
    ----------
    parameters : tuple of Parameter
        Each varies along its first dim; those that share it vary together.
    masks : tuple of Expression or callable
        Points that do not satisfy them all are skipped.
    derived : mapping of str to Expression
        Coordinates computed from the parameters.
    """

    parameters: tuple[Parameter, ...]
    masks: tuple[Mask, ...] = ()
    derived: tuple[tuple[str, Expression], ...] = ()

    def __post_init__(self) -> None:
        names: set[str] = set()
        sizes: dict[str, Parameter] = {}
        for one in self.parameters:
            if one.name in names:
                raise ValueError(f"parameter {one.name!r} is given twice; drop one or rename it")
            names.add(one.name)
            first = sizes.setdefault(one.dim, one)
            if first.size != one.size:
                raise ValueError(
                    f"parameter {one.name!r} has {one.size} values but {first.name!r}, along "
                    f"the same dim {one.dim!r}, has {first.size}; give {one.name!r} a dim of "
                    "its own"
                )
        self._check_dims(names, sizes)
        self._check_free()
        for dim in sizes:
            check_distinct(dim, [one for one in self.parameters if one.dim == dim])
        for name, expression in self.derived:
            check_name(name, "derived coordinate")
            if name in names or any(name in one.dims for one in self.parameters):
                raise ValueError(
                    f"derived coordinate {name!r} has the name of a parameter, a dim or another "
                    "derived coordinate; rename it"
                )
            check_mask_names(expression, self.scalars)
            names.add(name)
        for mask in self.masks:
            if is_text(mask):
                check_mask_names(mask, (*self.scalars, *(name for name, _ in self.derived)))

    def _check_dims(self, names: set[str], sizes: Mapping[str, Parameter]) -> None:
        inner: dict[str, tuple[str, int]] = {}
        for one in self.parameters:
            for dim, size in zip(one.dims[1:], one.values.shape[1:], strict=True):
                if dim in sizes:
                    raise ValueError(
                        f"dim {dim!r} lies within the values of {one.name!r} and is also varied "
                        f"by {sizes[dim].name!r}; rename one"
                    )
                other, known = inner.setdefault(dim, (one.name, size))
                if known != size:
                    raise ValueError(
                        f"dim {dim!r} has {size} entries in {one.name!r} and {known} in {other!r}"
                    )
        for one in self.parameters:
            if one.name in sizes and one.dim != one.name:
                raise ValueError(
                    f"parameter {one.name!r} varies along dim {one.dim!r} but is also the name "
                    f"of a dim; rename one of them"
                )
            if one.name in inner:
                raise ValueError(
                    f"parameter {one.name!r} has the name of a dim within the values of "
                    f"{inner[one.name][0]!r}; rename one of them"
                )

    def _check_free(self) -> None:
        """Refuse names under which the store keeps something of its own."""
        what = {one.name: "parameter" for one in self.parameters}
        what |= {name: "derived coordinate" for name, _ in self.derived}
        what |= {dim: "dim" for one in self.parameters for dim in one.dims if dim not in what}
        for name in sorted(RESERVED & set(what)):
            raise ValueError(
                f"{what[name]} {name!r} has the name of a variable that the store keeps of each "
                f"run ({', '.join(sorted(RESERVED))}); rename it, as in {f'{name}_'!r}"
            )

    # --- what it is ---

    @property
    def sizes(self) -> dict[str, int]:
        """Points along each dim, in the order of the dims; replicates last."""
        sizes: dict[str, int] = {}
        for one in self.parameters:
            sizes.setdefault(one.dim, one.size)
        if REPLICATE in sizes:
            sizes[REPLICATE] = sizes.pop(REPLICATE)
        return sizes

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dims."""
        return tuple(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each dim."""
        return tuple(self.sizes.values())

    @property
    def size(self) -> int:
        """Points in all, masked ones included."""
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(one.name for one in self.parameters)

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the parameters whose values are no vectors."""
        return tuple(one.name for one in self.parameters if one.values.ndim == 1)

    def __getitem__(self, name: str) -> Parameter:
        for one in self.parameters:
            if one.name == name:
                return one
        raise KeyError(f"no parameter {name!r}; there are {', '.join(self.names)}")

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    # --- other grids from it ---

    def where(self, mask: str | Callable[..., Any]) -> Grid:
        """The grid without the points that do not satisfy a condition.

        Parameters
        ----------
        mask : str or callable
            Condition on the parameters, as in ``"length * masspole < 0.5"``; or a function of
            parameters (by the names of its arguments, arrays of shape (n,)) that returns bools
            of shape (n,). Text is stored with the sweep; a function is not.

        Returns
        -------
        Grid
            Its sizes stay; the points left out are skipped when they come up. Runs of a store
            that finished before they were left out stay in it as they are.

        Raises
        ------
        ExpressionError
            If the text does not parse or names what is no parameter.
        TypeError
            If it is a function of other names than the parameters', or does not give bools.
        """
        if not isinstance(mask, str) and not callable(mask):
            raise TypeError(f"mask {mask!r} is neither text nor a function of the parameters")
        from sweepkit.expressions import parse

        masked = replace(self, masks=(*self.masks, parse(mask) if isinstance(mask, str) else mask))
        masked.valid(masked.index(np.arange(min(self.size, 2))))  # what is wrong with it shows now
        return masked

    def derive(self, expressions: Mapping[str, str] | None = None, /, **more: str) -> Grid:
        """The grid with coordinates computed from its parameters.

        Parameters
        ----------
        expressions : mapping of str to str
            Formula of each coordinate, as in ``{"tip": "2 * length"}``. They appear on the
            opened Dataset, can be used in masks and are handed to a simulator that names them.

        Returns
        -------
        Grid
            With the coordinates added.
        """
        from sweepkit.expressions import parse

        added = tuple((n, parse(text)) for n, text in named(expressions, more).items())
        return replace(self, derived=(*self.derived, *added))

    def __or__(self, other: Grid) -> Grid:
        """Union of two grids of the same parameters, without repeats.

        Where they differ along one dim only, that dim gets the values of both; otherwise the
        points of both are listed along one dim ``point``, crossed with the dims on which they
        agree, such as the replicates. Roles and units are those of the left one.

        Raises
        ------
        TypeError, ValueError
            If the grids have other parameters, or one parameter is of two types, or a label
            stands for two objects.
        """
        if not isinstance(other, Grid):
            return NotImplemented
        from sweepkit.union import union

        return union(self, other)

    def to_dataset(self) -> xr.Dataset:
        """The coordinates as an xarray Dataset, without the runs."""
        import xarray as xr

        coords: dict[str, Any] = {
            one.name: (one.dims, one.values, one.attrs) for one in self.parameters
        }
        for name, expression in self.derived:
            coords[name] = self._derived_coordinate(expression)
        return xr.Dataset(coords=coords)

    def _derived_coordinate(self, expression: Expression) -> tuple[Any, ...]:
        variables = {name: self.variable(name) for name in expression.names}
        value = expression.evaluate(variables)
        dims = tuple(dim for dim in self.dims if dim in value.dims)
        return dims, value.transpose(*dims).values, {"long_name": expression.text}

    def variable(self, name: str) -> xr.Variable:
        """The values of a parameter as a variable along its dims."""
        import xarray as xr

        one = self[name]
        return xr.Variable(one.dims, one.values)

    # --- its points, a few at a time ---

    def index(self, runs: NDArray[np.int64]) -> dict[str, NDArray[np.intp]]:
        """Positions along each dim of points given by their number in C order, shape (n,)."""
        if self.size > MOST_POINTS:
            raise ValueError(
                f"a grid of {self.size:.3g} points is too large to be numbered; leave values or "
                "parameters out, or sample with sk.latin_hypercube"
            )
        return dict(zip(self.dims, np.unravel_index(runs, self.shape), strict=True))

    def columns(
        self, index: Mapping[str, NDArray[np.intp]], names: Sequence[str] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Values of parameters and derived coordinates at some points, each of shape (n, ...)."""
        wanted = self.names if names is None else names
        derived = dict(self.derived)
        needed = set(wanted).union(*(derived[n].names for n in wanted if n in derived))
        taken = {p.name: p.values[index[p.dim]] for p in self.parameters if p.name in needed}
        for name in wanted:
            if name in derived:
                import xarray as xr

                at = {n: xr.Variable(("run",), taken[n]) for n in derived[name].names}
                value = derived[name].evaluate(at).values
                count = len(next(iter(index.values()), ()))
                taken[name] = np.broadcast_to(value, (count,))
        return {name: taken[name] for name in wanted}

    def valid(self, index: Mapping[str, NDArray[np.intp]]) -> NDArray[np.bool_]:
        """Whether points satisfy all masks, shape (n,)."""
        count = len(next(iter(index.values()), ()))
        valid = np.ones(count, dtype=bool)
        for mask in self.masks:
            if is_text(mask):
                import xarray as xr

                at = self.columns(index, tuple(mask.names))
                variables = {n: xr.Variable(("run",), v) for n, v in at.items()}
                valid &= mask.holds(variables, run_dims=("run",)).values
            else:
                valid &= self._satisfied(cast("Callable[..., Any]", mask), index, count)
        return valid

    def _satisfied(
        self, mask: Callable[..., Any], index: Mapping[str, NDArray[np.intp]], count: int
    ) -> NDArray[np.bool_]:
        known = (*self.names, *(name for name, _ in self.derived))
        columns = self.columns(index, mask_arguments(mask, known))
        try:
            result = np.asarray(mask(**columns))
        except ValueError as fault:
            if "ambiguous" not in str(fault):
                raise
            raise TypeError(
                f"mask {mask_text(mask)!r} does not take arrays ({fault}); write & | ~ for and "
                "or not, or give it as text"
            ) from fault
        if result.dtype != bool or result.shape != (count,):
            raise TypeError(
                f"mask {mask_text(mask)!r} gave {result.dtype} of shape {result.shape} for "
                f"{count} points; a mask gives one bool a point"
            )
        return result

    # --- what people see ---

    def __repr__(self) -> str:
        from sweepkit.portrait import text

        return text(self)

    def _count(self) -> str:
        from sweepkit.portrait import count

        return count(self)

    def _repr_html_(self) -> str:
        from sweepkit.portrait import html

        return html(self)

    def _parameters(self) -> str:
        from sweepkit.portrait import parameter_table

        return parameter_table(self)


def axis_keys(grid: Grid, dim: str) -> NDArray[np.uint64]:
    """Digest of each position along a dim, from all parameters there, shape (n, 2)."""
    together = [one for one in grid.parameters if one.dim == dim]
    total = np.zeros((grid.sizes[dim], 2), dtype=np.uint64)
    for one in together:
        total += one.keys()
    return total


def random_prefix(seed: int, size: int, count: int) -> NDArray[np.int64]:
    """The first ``count`` runs of a uniformly random order of ``size`` runs, shape (count,).

    The coarse pass of a sweep; a longer prefix of the same order begins with a shorter one's
    runs only if it is asked for by the same ``count``, which the store therefore records.
    """
    return np.array(random.Random(seed).sample(range(size), count), dtype=np.int64)

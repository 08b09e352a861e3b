"""The set of all points: parameters crossed, paired, sampled, masked; never enumerated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import near_misses
from sweepkit.html import Markup, box, code, escape, section
from sweepkit.html import table as html_table
from sweepkit.parameters import (
    Parameter,
    check_name,
    named,
    parameter,
    said_of,
)

if TYPE_CHECKING:  # workers rebuild grids, and need neither xarray nor the grammar for it
    import xarray as xr

    from sweepkit.expressions import Expression

__all__ = ["REPLICATE", "Grid", "grid", "paired", "random_prefix"]

REPLICATE = "replicate"
"""Name of the parameter and dim that count repetitions under other random streams."""

Mask: TypeAlias = "Expression | Callable[..., Any]"

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
        for dim in sizes:
            _check_distinct(dim, [one for one in self.parameters if one.dim == dim])
        for name, expression in self.derived:
            check_name(name, "derived coordinate")
            if name in names or any(name in one.dims for one in self.parameters):
                raise ValueError(
                    f"derived coordinate {name!r} has the name of a parameter, a dim or another "
                    "derived coordinate; rename it"
                )
            _check_names(expression, self.scalars)
            names.add(name)
        for mask in self.masks:
            if _is_text(mask):
                _check_names(mask, (*self.scalars, *(name for name, _ in self.derived)))

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
            Its sizes stay; the points left out are skipped when they come up.

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
        return _union(self, other)

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
            if _is_text(mask):
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
        columns = self.columns(index, _arguments(mask, known))
        try:
            result = np.asarray(mask(**columns))
        except ValueError as fault:
            if "ambiguous" not in str(fault):
                raise
            raise TypeError(
                f"mask {_mask_text(mask)!r} does not take arrays ({fault}); write & | ~ for and "
                "or not, or give it as text"
            ) from fault
        if result.dtype != bool or result.shape != (count,):
            raise TypeError(
                f"mask {_mask_text(mask)!r} gave {result.dtype} of shape {result.shape} for "
                f"{count} points; a mask gives one bool a point"
            )
        return result

    # --- what people see ---

    def __repr__(self) -> str:
        lines = [f"<sweepkit.Grid: {self._count()}>"]
        width = max((len(p.name) for p in self.parameters), default=0)
        for one in self.parameters:
            along = "" if one.dims == (one.name,) else f"({', '.join(one.dims)}) "
            units = f" {one.units}" if one.units else ""
            lines.append(
                f"  {one.name:<{width}}  {one.role:<9}  {one.size:>7}  {along}{_span(one)}{units}"
            )
        lines += [f"  {name} = {expression.text}" for name, expression in self.derived]
        lines += [f"  where {_mask_text(mask)}" for mask in self.masks]
        return "\n".join(lines)

    def _count(self) -> str:
        sizes = " x ".join(f"{dim}: {size:,}" for dim, size in self.sizes.items())
        runs = "run" if self.size == 1 else "runs"
        return f"{'at most ' if self.masks else ''}{self.size:,} {runs} ({sizes})"

    def _repr_html_(self) -> str:
        notes = [f"{name} = {expression.text}" for name, expression in self.derived]
        notes += [f"where {_mask_text(mask)}" for mask in self.masks]
        parts = [
            section(
                "Parameters", self._parameters(), about=f"({len(self.parameters)})", unfolded=True
            )
        ]
        if notes:
            listed = code("\n".join(notes))
            parts.append(section("Derived and masks", listed, about=f"({len(notes)})"))
        return box("sweepkit.Grid", *parts, about=self._count(), text=repr(self))

    def _parameters(self) -> str:
        """The parameters as a table in HTML."""
        rows = []
        for one in self.parameters:
            along = "" if one.dims == (one.name,) else f" ({', '.join(one.dims)})"
            role = Markup(f'<span class="sk-role">{escape(one.role)}</span>')
            span = Markup(f"<code>{escape(_span(one))}</code>")
            spacing = Markup(_dots(one))
            size = f"{one.size:,}"
            said = (one.name + along, role, one.units or "", size, span, spacing)
            rows.append((*said, one.long_name or ""))
        columns = ("Name", "Role", "Units", "n", "Values", "Spacing", "What it is")
        return html_table(columns, rows, numbers={3})


def _dots(one: Parameter) -> str:
    """Where the values of a parameter lie in their range, as a small picture."""
    if one.values.ndim > 1 or not 1 < one.size <= 60 or one.values.dtype.kind not in "iufmM":
        return ""
    numbers = one.values.astype(np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return ""
    at = 4 + 88 * (numbers - low) / (high - low)
    dots = "".join(f'<circle cx="{x:.1f}" cy="6" r="2.2" fill="currentColor"/>' for x in at)
    return (
        '<svg width="96" height="12" viewBox="0 0 96 12" aria-hidden="true"><path d="M4 6H92" '
        f'stroke="currentColor" stroke-opacity=".35"/>{dots}</svg>'
    )


def _span(one: Parameter) -> str:
    if one.values.ndim > 1:
        return f"vectors of {' x '.join(str(n) for n in one.values.shape[1:])}"
    shown = [_short(value) for value in (one.values if one.size <= 4 else one.values[[0, 1, -1]])]
    if one.size > 4:
        shown.insert(2, "...")
    return ", ".join(shown)


def _short(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = _plain(value) if isinstance(value, np.datetime64 | np.timedelta64) else str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


def _is_text(mask: Mask) -> TypeGuard[Expression]:
    return hasattr(mask, "text") and hasattr(mask, "holds")


def _mask_text(mask: Mask) -> str:
    return mask.text if _is_text(mask) else getattr(mask, "__name__", repr(mask))


def _arguments(mask: Callable[..., Any], known: Sequence[str]) -> tuple[str, ...]:
    """What a mask is to be given by name."""
    import inspect

    try:
        signature = inspect.signature(mask)
    except ValueError:
        raise TypeError(
            f"mask {_mask_text(mask)!r} does not tell its arguments; wrap it in a lambda of the "
            "parameters"
        ) from None
    wanted: list[str] = []
    for one in signature.parameters.values():
        if one.kind is one.VAR_KEYWORD:
            return tuple(known)
        if one.name in known and one.kind is not one.POSITIONAL_ONLY:
            wanted.append(one.name)
        elif one.default is one.empty and one.kind is not one.VAR_POSITIONAL:
            raise TypeError(
                f"mask {_mask_text(mask)!r} wants {one.name!r}, which is no parameter that it can "
                f"be given by name (there are {', '.join(known)})"
            )
    return tuple(wanted)


def _check_names(expression: Expression, names: Sequence[str]) -> None:
    expression.check(names)


def _check_distinct(dim: str, together: Sequence[Parameter]) -> None:
    """Refuse two equal points along a dim; for one parameter alone near-misses too."""
    flat = [one.values.reshape(one.size, -1) for one in together]
    if len(together) == 1 and flat[0].shape[1] == 1:
        only, column = together[0], flat[0][:, 0]
        unique, first = np.unique(column, return_index=True)
        if len(unique) < len(column):
            twice = column[np.setdiff1d(np.arange(len(column)), first)[0]]
            raise ValueError(
                f"value {_plain(twice)} of parameter {only.name!r} is given twice (equal numbers "
                "are one value, whatever their type); leave one out (for repeated runs say "
                "replicates=)"
            )
        if only.dims != (only.name,):  # points, among which two may be close by chance
            return
        for low, high in near_misses(only.values):
            raise ValueError(
                f"values {low!r} and {high!r} of parameter {only.name!r} differ by rounding "
                "alone; round them, or leave one out"
            )
        return
    if flat and len(flat[0]) > 1:
        if any(len(np.unique(column)) == len(column) for block in flat for column in block.T):
            return
        rows = np.stack([_ranks(column) for block in flat for column in block.T], axis=1)
        _, first = np.unique(rows, axis=0, return_index=True)
        repeats = len(rows) - len(first)
        if repeats:
            at = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            point = ", ".join(f"{one.name}={_plain(one.values[at])}" for one in together)
            raise ValueError(
                f"{repeats} of the {len(rows)} points along dim {dim!r} repeat another, such as "
                f"{point}; leave the repeats out (for repeated runs of a point say replicates=)"
            )


def _ranks(column: NDArray[Any]) -> NDArray[np.int64]:
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def _plain(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    if isinstance(value, np.timedelta64):
        units = ("D", "h", "m", "s", "ms", "us", "ns")
        whole = (value.astype(f"m8[{unit}]") for unit in units)
        return str(next(one for one in whole if one == value))
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    return repr(value.item() if isinstance(value, np.generic) else value)


# --- making grids -------------------------------------------------------------------------------


def grid(
    *parts: Grid | Mapping[str, Any] | xr.Dataset | xr.DataArray | xr.Coordinates,
    replicates: int | None = None,
    **parameters: Any,
) -> Grid:
    """Cross parameters and grids into one grid.

    Parameters
    ----------
    *parts : Grid, mapping or xarray coordinates
        Grids to be crossed with the rest, mappings from names to values, or a Dataset, DataArray
        or Coordinates whose coordinates are taken: those along a dim of their own are crossed,
        those that share a dim vary together, and of several dims the first is varied.
    replicates : int, optional
        Repetitions of each point under other random streams: adds the dim ``replicate``.
    **parameters
        Values by name: a sequence, array, pandas index or DataArray, a single value, or what
        :func:`design`, :func:`scenario` and :func:`values` return.

    Returns
    -------
    Grid
        Of ``product of sizes`` points; nothing is enumerated.

    Raises
    ------
    TypeError, ValueError
        Values given twice, NaN, mixed or of unsupported types; names that are no identifiers or
        clash. The message names the parameter.

    Examples
    --------
    >>> import sweepkit as sk
    >>> sk.grid(gain=[1.0, 2.0], mass=sk.scenario([0.1, 0.2, 0.5], units="kg"), replicates=10).size
    60
    """
    import xarray as xr

    made: list[Parameter] = []
    masks: tuple[Mask, ...] = ()
    derived: tuple[tuple[str, Expression], ...] = ()
    for part in (*parts, parameters):
        if isinstance(part, Grid):
            taken = {one.dim for one in made} & set(part.dims)
            if taken:
                dim = min(taken)
                raise ValueError(
                    f"two grids vary along the same dim {dim!r}; to cross them give one another "
                    f"dim, as in sk.paired(..., dim='other'), to vary all together make one grid"
                )
            made += part.parameters
            masks += part.masks
            derived += part.derived
        elif isinstance(part, xr.Dataset | xr.DataArray | xr.Coordinates):
            made += _from_coordinates(part)
        elif isinstance(part, Mapping):
            made += [parameter(name, given) for name, given in part.items()]
        else:
            raise TypeError(
                f"{part!r} is a {type(part).__name__}; give grids, mappings from names to values "
                "or xarray coordinates, and other parameters by keyword"
            )
    if replicates is not None:
        if isinstance(replicates, bool) or not isinstance(replicates, int | np.integer):
            raise TypeError(
                f"replicates {replicates!r} is no whole number (a parameter of that name goes "
                "into a mapping: sk.grid({'replicates': [...]}))"
            )
        if replicates < 1:
            raise ValueError(f"replicates is {replicates}; give at least 1")
        made.append(Parameter(REPLICATE, np.arange(replicates), (REPLICATE,), role="replicate"))
    if not made:
        raise ValueError("the grid has no parameters; give some, or replicates=1 for a single run")
    return Grid(tuple(made), masks, derived)


def _from_coordinates(given: xr.Dataset | xr.DataArray | xr.Coordinates) -> list[Parameter]:
    import xarray as xr

    coords = given if isinstance(given, xr.Coordinates) else given.coords
    if isinstance(given, xr.Dataset) and given.data_vars and not coords:
        raise ValueError(
            f"the Dataset has variables ({', '.join(map(str, given.data_vars))}) but no "
            "coordinates; parameters are coordinates: use .set_coords(...)"
        )
    if not coords:
        raise ValueError("there are no coordinates to take parameters from")
    made = []
    arrays = {str(name): array for name, array in coords.items()}
    inner = {str(d) for array in arrays.values() if array.ndim > 1 for d in array.dims[1:]}
    for name, array in arrays.items():
        if array.ndim == 1 and str(array.dims[0]) in inner:
            if any(
                other.ndim == 1 and other.dims == array.dims and other.name != name
                for other in arrays.values()
            ):
                raise ValueError(
                    f"coordinate {name!r} lies along dim {array.dims[0]!r}, which is within the "
                    "values of another coordinate; say which dims belong to one value with "
                    "sk.values(..., dims=(varied, within))"
                )
            continue  # labels of the entries of a vector, not a parameter
        if array.ndim == 1 and name in array.dims and getattr(array.to_index(), "nlevels", 1) > 1:
            continue  # its levels are coordinates as well
        dims = tuple(str(dim) for dim in array.dims) or (name,)
        made.append(parameter(str(name), replace(said_of(array), dims=dims)))
    return made


def paired(
    parameters: Mapping[str, Any] | None = None, /, *, dim: str = "case", **more: Any
) -> Grid:
    """Parameters that vary together along one dim.

    Parameters
    ----------
    parameters : mapping, optional
        Values by name, all of the same length; others by keyword.
    dim : str
        Name of the dim.

    Returns
    -------
    Grid
        One point for each position along ``dim``, to be run as it is or crossed with others.
        Analyses take listed points as all there are; points that stand for a space between them
        are drawn by :func:`latin_hypercube` or :func:`sobol`.

    Raises
    ------
    ValueError
        If lengths differ or a point is given twice.

    Examples
    --------
    >>> import sweepkit as sk
    >>> corners = sk.paired({"low": [1, 2], "high": [8, 9]}, dim="corner")
    >>> sk.grid(corners, gain=[0.1, 0.2, 0.3]).sizes
    {'corner': 2, 'gain': 3}
    """
    check_name(dim, "dim")
    given = named(parameters, more)
    if not given:
        raise ValueError(f"no parameters are given to vary together along dim {dim!r}")
    made = []
    for name, one in given.items():
        said = said_of(one)
        within = said.dims[1:] if said.dims is not None else ()
        made.append(parameter(name, replace(said, dims=(dim, *within))))
    if dim in given and len(given) > 1:
        raise ValueError(f"dim {dim!r} has the name of a parameter; give the dim another name")
    return Grid(tuple(made))


def _union(left: Grid, right: Grid) -> Grid:
    if set(left.names) != set(right.names):
        only = sorted(set(left.names) ^ set(right.names))
        raise ValueError(
            f"the grids do not have the same parameters: {', '.join(only)} in one only; "
            "give the other one a value for each"
        )
    for name in left.names:
        _check_objects(left[name], right[name])
        one, other = left[name].units, right[name].units
        if one != other and None not in (one, other):
            raise ValueError(
                f"parameter {name!r} is in {one} in one grid and in {other} in the other; "
                "convert one of them"
            )
    derived = dict(left.derived)
    for name, expression in right.derived:
        if derived.setdefault(name, expression).text != expression.text:
            raise ValueError(
                f"derived coordinate {name!r} is {derived[name].text!r} in one grid and "
                f"{expression.text!r} in the other; rename one"
            )
    left = replace(left, derived=tuple(derived.items()))
    same_layout = set(left.dims) == set(right.dims) and all(
        left[name].dims == right[name].dims for name in left.names
    )
    said = [[m.text if _is_text(m) else m for m in g.masks] for g in (left, right)]
    if same_layout and said[0] == said[1]:
        differing = [dim for dim in left.dims if not _same_axis(left, right, dim)]
        if len(differing) <= 1:
            merged = [
                _joined(one, right[one.name], _new_positions(left, right, one.dim))
                if one.dim in differing
                else one
                for one in left.parameters
            ]
            return replace(left, parameters=tuple(merged))
    return _listed(left, right)


def axis_keys(grid: Grid, dim: str) -> NDArray[np.uint64]:
    """Digest of each position along a dim, from all parameters there, shape (n, 2)."""
    together = [one for one in grid.parameters if one.dim == dim]
    total = np.zeros((grid.sizes[dim], 2), dtype=np.uint64)
    for one in together:
        total += one.keys()
    return total


def _same_axis(left: Grid, right: Grid, dim: str) -> bool:
    if left.sizes[dim] != right.sizes[dim]:
        return False
    return np.array_equal(axis_keys(left, dim), axis_keys(right, dim))


def _new_positions(left: Grid, right: Grid, dim: str) -> NDArray[np.intp]:
    known = set(map(tuple, axis_keys(left, dim).tolist()))
    new = [i for i, key in enumerate(axis_keys(right, dim).tolist()) if tuple(key) not in known]
    return np.array(new, dtype=np.intp)


def _joined(left: Parameter, right: Parameter, new: NDArray[np.intp]) -> Parameter:
    name = left.name
    if left.kind != right.kind:
        raise TypeError(
            f"parameter {name!r} is a {left.kind} in one grid and a {right.kind} in the other"
        )
    if left.values.shape[1:] != right.values.shape[1:]:
        raise ValueError(
            f"parameter {name!r} has values of shape {left.values.shape[1:]} in one grid and of "
            f"{right.values.shape[1:]} in the other; give them one shape"
        )
    tail = right.take(new)
    data = np.concatenate([left.values, tail.values])
    for part in (left.values, tail.values):
        if not np.array_equal(part.astype(data.dtype).astype(part.dtype), part):
            raise ValueError(
                f"parameter {name!r} has integers beyond 2**53 in one grid and values in the other "
                "that they do not share an exact type with; make them one type"
            )
    data.setflags(write=False)
    objects = None if left.objects is None else left.objects + (tail.objects or ())
    return replace(left, values=data, objects=objects)


def _check_objects(left: Parameter, right: Parameter) -> None:
    if left.objects is None or right.objects is None:
        return
    known = dict(zip(left.values, left.objects, strict=True))
    for label, thing in zip(right.values, right.objects, strict=True):
        other = known.get(label, thing)
        if other is not thing and (other == thing) is not True:
            raise ValueError(
                f"label {label!r} of parameter {left.name!r} stands for {other!r} in one grid and "
                f"for {thing!r} in the other; give them different labels, or the same object"
            )


def _agreeing(left: Grid, right: Grid) -> set[str]:
    """Dims that are the same in both grids and that no mask looks at."""
    masked: set[str] = set()
    for one in (left, right):
        known = (*one.names, *(name for name, _ in one.derived))
        for mask in one.masks:
            looked = (
                set(mask.names)
                if _is_text(mask)
                else set(_arguments(cast("Callable[..., Any]", mask), known))
            )
            for name, expression in one.derived:
                looked |= expression.names if name in looked else set()
            masked |= {one[name].dim for name in looked & set(one.names)}
    agreeing = set(left.dims) & set(right.dims) - masked
    layouts = [
        {dim: {p.name for p in one.parameters if p.dim == dim} for dim in agreeing}
        for one in (left, right)
    ]
    return {
        dim
        for dim in agreeing
        if layouts[0][dim] == layouts[1][dim] and _same_axis(left, right, dim)
    }


def _listed(left: Grid, right: Grid) -> Grid:
    """The valid points of both grids along one dim, crossed with the dims they agree on."""
    dim = "point"
    crossed = _agreeing(left, right)
    kept = []
    for one in (left, right):
        sizes = {d: n for d, n in one.sizes.items() if d not in crossed}
        count = math.prod(sizes.values())
        if count > ENUMERABLE:
            raise ValueError(
                f"a grid of {count:,} points is too large to be listed; unite grids that "
                "differ along one dim only, or run them one after the other into one store"
            )
        positions = np.unravel_index(np.arange(count), tuple(sizes.values()))
        at = dict(zip(sizes, positions, strict=True))
        firsts = {d: np.zeros(count, dtype=np.intp) for d in crossed}
        valid = one.valid({**firsts, **at})
        kept.append({d: along[valid] for d, along in at.items()})
    parameters = []
    for first in left.parameters:
        second = right[first.name]
        if first.dim in crossed:
            parameters.append(first)
            continue
        head = first.take(kept[0][first.dim])
        new = kept[1][second.dim]
        joined = _joined(head, second.take(new), np.arange(len(new)))
        parameters.append(replace(joined, dims=(dim, *first.dims[1:])))
    listed = [one for one in parameters if one.dim not in crossed]
    if not listed or not listed[0].size:
        raise ValueError("the union has no points: the masks of both grids leave none")
    keys = sum(one.keys() for one in listed)
    _, unique = np.unique(cast("NDArray[np.uint64]", keys), axis=0, return_index=True)
    order = np.sort(unique)
    return Grid(
        tuple(one if one.dim in crossed else one.take(order) for one in parameters),
        derived=left.derived,
    )


def random_prefix(seed: int, size: int, count: int) -> NDArray[np.int64]:
    """The first ``count`` runs of a uniformly random order of ``size`` runs, shape (count,).

    The coarse pass of a sweep; a longer prefix of the same order begins with a shorter one's
    runs only if it is asked for by the same ``count``, which the store therefore records.
    """
    return np.array(random.Random(seed).sample(range(size), count), dtype=np.int64)

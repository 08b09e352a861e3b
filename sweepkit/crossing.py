"""Grids from what people give: parameters crossed, and parameters that vary together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sweepkit.grid import REPLICATE, Grid
from sweepkit.masks import Mask
from sweepkit.parameters import Parameter, check_name, named, parameter, said_of

if TYPE_CHECKING:
    import xarray as xr

    from sweepkit.expressions import Expression

__all__ = ["grid", "paired"]


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

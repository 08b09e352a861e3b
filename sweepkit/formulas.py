"""Formulas of outputs and parameters: derived coordinates, outputs computed later."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from sweepkit.expressions import parse
from sweepkit.format1 import ATTRIBUTE, RESERVED

__all__ = ["derived", "lengths_of", "run_dims_of", "with_derived"]

DERIVED_LIMIT = 10**7
"""Points up to which derived coordinates are computed when a store is opened."""


def run_dims_of(ds: xr.Dataset) -> tuple[str, ...]:
    """Dims that tell runs apart: those of ``status``, else those that all variables share."""
    if "status" in ds:
        return tuple(map(str, ds["status"].dims))
    if not ds.data_vars:
        return tuple(map(str, ds.dims))
    shared = set.intersection(*(set(map(str, one.dims)) for one in ds.data_vars.values()))
    return tuple(str(dim) for dim in ds.dims if str(dim) in shared)


def lengths_of(ds: xr.Dataset) -> dict[str, tuple[str, xr.Variable]]:
    """Own dim and lengths of each padded output."""
    lengths = {}
    for name, array in ds.data_vars.items():
        said = array.attrs.get("length")
        if said in ds.data_vars:
            own = [dim for dim in array.dims if dim not in ds[said].dims]
            if own:
                lengths[str(name)] = (str(own[0]), ds[said].variable)
    return lengths


def with_derived(opened: xr.Dataset, name: str, text: str) -> xr.Dataset:
    """A Dataset with a coordinate derived from others, where these are all there."""
    expression = parse(text)
    sizes = {dim for one in expression.names if one in opened for dim in opened[one].dims}
    count = int(np.prod([opened.sizes[dim] for dim in sizes])) if sizes else 1
    if count > DERIVED_LIMIT or not expression.names <= set(opened.coords):
        return opened
    value = expression.evaluate({one: opened[one].variable for one in expression.names})
    dims = tuple(dim for dim in opened.sizes if dim in value.dims)
    value = value.transpose(*dims)
    return opened.assign_coords(
        {name: xr.Variable(value.dims, value.values, {"long_name": text, "derived": text})}
    )


def derived(ds: xr.Dataset, formula: str | Callable[[xr.Dataset], xr.DataArray]) -> xr.DataArray:
    """The value of a formula of outputs and parameters, over the runs in the order on disk.

    Raises
    ------
    ValueError
        If the result does not lie over the run dims.
    """
    dims = run_dims_of(ds)
    if isinstance(formula, str):
        expression = parse(formula)
        names = {str(name) for name in ds.variables}
        known = names - (RESERVED - expression.names)  # a formula may use them, few do
        expression.check(sorted(known), run_dims=dims)
        values = {name: ds[name].variable for name in expression.names}
        made = expression.evaluate(values, lengths=lengths_of(ds), run_dims=dims)
        array = xr.DataArray(made.values, dims=made.dims)
    else:
        given = formula(ds)
        if not isinstance(given, xr.DataArray):
            raise ValueError(f"the formula gave a {type(given).__name__}; it gives a DataArray")
        given = _at_the_same_points(given, ds, dims)
        array = xr.DataArray(given.values, dims=given.dims)
    lacking = [dim for dim in dims if dim not in array.dims]
    array = array.expand_dims({dim: ds.sizes[dim] for dim in lacking})
    for dim in dims:
        if array.sizes[dim] != ds.sizes[dim]:
            raise ValueError(
                f"the formula gave {array.sizes[dim]} entries along {dim!r}, where the sweep has "
                f"{ds.sizes[dim]}"
            )
    declaration = json.loads(ds.attrs[ATTRIBUTE])
    inverse = {
        dim: np.argsort(np.asarray(order))
        for dim, order in declaration.get("axes", {}).items()
        if dim in array.dims
    }
    own = [dim for dim in array.dims if dim not in dims]
    return array.isel(inverse).transpose(*declaration["stored"]["sizes"], *own)


def _at_the_same_points(given: xr.DataArray, ds: xr.Dataset, dims: Sequence[str]) -> xr.DataArray:
    """The result of a formula with its values at the coordinates that they belong to."""
    for dim in dims:
        if dim not in given.indexes or dim not in ds.indexes:
            continue
        have, want = given.indexes[dim], ds.indexes[dim]
        if have.equals(want) or len(have) != len(want):
            continue
        if not have.isin(want).all():
            raise ValueError(
                f"the formula gave other coordinate values along {dim!r} than the sweep has"
            )
        given = given.sel({dim: want})
    return given

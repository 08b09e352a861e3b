"""The arrays of a layout: made, then changed in place as they are extended, added, described anew.

A change gives the layout that the arrays then have. Readers see none of it until that is committed;
what was not committed is undone by the next writer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.arrays import Arrays
from sweepkit.files import replace_file
from sweepkit.format1 import Layout, Variable, coordinate, stored, stored_name
from sweepkit.parameters import Parameter
from sweepkit.places import Place

__all__ = ["added", "grown", "make_arrays", "make_variable", "noted", "relabelled"]


def make_arrays(arrays: Arrays, layout: Layout, parameters: Sequence[Parameter]) -> None:
    """Make the arrays of a layout, filled with nothing but the coordinates' values."""
    for one in parameters:
        _make_coordinate(arrays, one)
    for dim, values in layout.coords.items():
        arrays.make_own_axis(dim, values)
    for variable in layout.variables.values():
        make_variable(arrays, variable, layout)


def _make_coordinate(arrays: Arrays, one: Parameter) -> None:
    """Make the array of a parameter's values, in place of any that is there."""
    chunks = (max(one.size, 256), *one.values.shape[1:])
    arrays.make_axis(coordinate(one), chunks, one.values)


def make_variable(arrays: Arrays, variable: Variable, layout: Layout) -> None:
    """Make the array of a variable, filled with nothing."""
    # an output of no size has chunks all the same, though none is ever written
    chunk = layout.chunk(variable) + tuple(max(size, 1) for size in variable.shape)
    shape = layout.shape + variable.shape
    arrays.make(variable, shape, chunk, layout.dims + variable.dims)


def grown(arrays: Arrays, layout: Layout, parameters: Sequence[Parameter]) -> Layout:
    """Extend the axes to those given, which begin with the stored ones, and all variables."""
    sizes = dict(layout.sizes)
    for one in parameters:
        sizes[one.dim] = one.size
    layout = replace(layout, sizes=sizes)
    for one in parameters:
        array = arrays[one.name]
        dtype = stored_name(one.values)
        given = stored(one.values, dtype)
        wider = np.dtype(object) if dtype == "str" else given.dtype
        if dtype != "str" and np.dtype(array.dtype) != wider:
            _make_coordinate(arrays, one)
        elif array.shape != one.values.shape:
            array.resize(one.values.shape)
            array[...] = given
    for variable in layout.variables.values():
        shape = layout.shape + variable.shape
        if arrays[variable.name].shape != shape:
            arrays[variable.name].resize(shape)
    arrays.forget()
    return layout


def added(
    arrays: Arrays,
    layout: Layout,
    variables: Sequence[Variable],
    coords: Mapping[str, NDArray[Any]],
) -> Layout:
    """Add variables, filled with nothing, and coordinates along their own dims."""
    named = {variable.name: variable for variable in variables}
    layout = replace(
        layout,
        variables={**layout.variables, **named},
        coords={**coords, **layout.coords},
    )
    for dim, values in layout.coords.items():
        arrays.make_own_axis(dim, values)
    for variable in variables:
        make_variable(arrays, variable, layout)
    return layout


def relabelled(
    root: Place,
    arrays: Arrays,
    layout: Layout,
    parameters: Sequence[Parameter],
    outputs: Mapping[str, Mapping[str, str]],
) -> Layout:
    """Give coordinates and outputs other units and names."""
    variables = dict(layout.variables)
    named = [name for name in outputs if name in variables]
    for name in named:
        old = variables[name]
        variables[name] = replace(old, attrs={**old.attrs, **outputs[name]})
    for one in (*map(coordinate, parameters), *(variables[name] for name in named)):
        path = root / one.name / "zarr.json"
        metadata = json.loads(path.read_text())
        if metadata["attributes"] != one.stored_attrs:
            replace_file(path, json.dumps({**metadata, "attributes": one.stored_attrs}))
            arrays.forget(one.name)
    return replace(layout, variables=variables)


def noted(arrays: Arrays, layout: Layout, name: str, attrs: Mapping[str, Any]) -> Layout:
    """Add attributes to a variable."""
    variable = layout.variables[name]
    changed = replace(variable, attrs={**variable.attrs, **attrs})
    arrays[name].update_attributes(changed.stored_attrs)
    return replace(layout, variables={**layout.variables, name: changed})

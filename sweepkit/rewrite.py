"""A store made anew and swapped in: with joined parameters, wider axes, wider outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.casts import Misfit, cast_exactly
from sweepkit.columns import Column
from sweepkit.fit import Piece
from sweepkit.format1 import Layout, Variable, block_bytes, block_shape
from sweepkit.parameters import Parameter
from sweepkit.protocols import Store
from sweepkit.resume import Match
from sweepkit.status import Status

__all__ = ["copied", "rejoin", "retype"]

Convert = Callable[[Variable, tuple[slice, ...], NDArray[Any]], NDArray[Any]]


def rejoin(
    store: Store,
    found: Match,
    was: Mapping[str, Parameter],
    declaration: Mapping[str, Any],
) -> None:
    """Give a store the dims of joined parameters, at the one value that its runs had, and axes
    of other data types.

    Parameters
    ----------
    store : Store
        Open, and held by this process.
    found : Match
        What joins, and the axes as they will be.
    was : mapping
        The value that finished runs had of each joined parameter.
    declaration : mapping
        To be stored.
    """
    old = store.layout
    kept = store.parameter_values(store.declaration["parameters"])
    sizes = dict(old.sizes)
    axes = []
    for one in found.parameters:
        if one.name in found.joined:
            sizes[one.name] = 1
            values, objects = was[one.name].values, was[one.name].objects
        else:
            size = kept[one.name].size
            values = one.values[:size]
            objects = None if one.objects is None else one.objects[:size]
        axes.append(replace(one, values=values, objects=objects))
    final = {one.dim: one.size for one in found.parameters}
    per_run = block_bytes(old.variables.values())
    block = block_shape(tuple(max(n, final.get(dim, n)) for dim, n in sizes.items()), per_run)
    wide = Layout(sizes, block, old.variables, old.coords)
    extra = (1,) * (len(sizes) - len(old.sizes))

    def spread(variable: Variable, box: tuple[slice, ...], values: NDArray[Any]) -> NDArray[Any]:
        return values.reshape(values.shape[: len(old.sizes)] + extra + variable.shape)

    _copy(store, wide, axes, declaration, spread)


def retype(
    store: Store,
    variable: Variable,
    dtype: str,
    column: Column,
    unstored: Sequence[Piece],
    declaration: Mapping[str, Any],
) -> bool:
    """Store a variable in a wider data type if that holds all values, old and new, exactly.

    Returns
    -------
    bool
        Whether it was done.
    """
    layout = store.layout
    typeless = holds_nothing(store, variable)
    try:
        cast_exactly(variable.name, column.values, column.dtype, dtype)
        for _, values in unstored:
            cast_exactly(variable.name, values, variable.dtype, dtype)
        for box in () if typeless else _boxes(store, layout, variable):
            cast_exactly(variable.name, store.read(variable.name, box), variable.dtype, dtype)
    except Misfit:
        return False
    changed = replace(variable, dtype=dtype, guards=variable.guards + 1)
    wide = replace(layout, variables={**layout.variables, variable.name: changed})
    axes = store.parameter_values(declaration["parameters"])

    def cast(one: Variable, box: tuple[slice, ...], values: NDArray[Any]) -> NDArray[Any]:
        if one.name == variable.name:
            if typeless:
                return np.full(values.shape, changed.fill, dtype=changed.memory_dtype)
            with np.errstate(invalid="ignore"):  # a signalling NaN
                values = values.astype(np.dtype(dtype))
            values[store.read("status", box) != Status.DONE] = changed.fill
        return values

    _copy(store, wide, tuple(axes.values()), declaration, cast)
    return True


def copied(store: Store, axes: Sequence[Parameter], declaration: Mapping[str, Any]) -> None:
    """Make a store anew with other axes along the dims that it has."""
    _copy(store, store.layout, axes, declaration, lambda variable, box, values: values)


def holds_nothing(store: Store, variable: Variable) -> bool:
    """Whether a variable only holds traces that ended before they began, which have no type."""
    if variable.pad is None:
        return False
    boxes = (store.layout.box(block) for block in range(store.layout.n_blocks))
    return not any(store.read(f"{variable.name}_length", box).any() for box in boxes)


def _copy(
    store: Store,
    layout: Layout,
    axes: Sequence[Parameter],
    declaration: Mapping[str, Any],
    convert: Convert,
) -> None:
    dims = len(store.layout.dims)
    with store.rewriting() as fresh:
        fresh.create(layout, axes, declaration)
        for variable in layout.variables.values():
            whole = tuple(slice(0, n) for n in variable.shape)
            for box in _boxes(store, layout, variable):
                values = convert(variable, box, store.read(variable.name, box[:dims]))
                if variable.dtype == "str":
                    values = values.astype(np.dtypes.StringDType())
                fresh.write(variable.name, box + whole, values)


def _boxes(store: Store, layout: Layout, variable: Variable) -> Iterator[tuple[slice, ...]]:
    """Boxes of a new layout in which a store has values, as large as they can be held."""
    old = store.layout
    for block in range(layout.n_blocks):
        for box in layout.pieces(variable, block):
            known = old.variables[variable.name]
            index = old.chunk_index(known, box[: len(old.dims)])
            if not (variable.big and known.big) or store.has_chunk(variable.name, index):
                yield box

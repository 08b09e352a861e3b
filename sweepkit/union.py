"""Two grids as one, without repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sweepkit.grid import ENUMERABLE, Grid, axis_keys
from sweepkit.masks import is_text, mask_arguments
from sweepkit.parameters import Parameter

__all__ = ["union"]


def union(left: Grid, right: Grid) -> Grid:
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
    said = [[m.text if is_text(m) else m for m in g.masks] for g in (left, right)]
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
                if is_text(mask)
                else set(mask_arguments(cast("Callable[..., Any]", mask), known))
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

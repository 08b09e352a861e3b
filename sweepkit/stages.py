"""The grid of a store and its refinements as one flat Dataset."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from sweepkit.expressions import parse
from sweepkit.flat import GIVEN, RUN, check_names
from sweepkit.format1 import ATTRIBUTE
from sweepkit.grid import random_prefix
from sweepkit.places import Where, beneath, place
from sweepkit.root import STAGES
from sweepkit.status import Status

__all__ = ["check", "joined", "numbers"]

OF_THE_GRID = frozenset({"order", "axes", "stored", "dims"})
"""Parts of a declaration that tell where runs of the grid lie, which flat ones do not."""


def numbers(path: Where) -> list[int]:
    """Numbers of the stages of a store: those that it lists, and those that are there."""
    from sweepkit.reading import read_root

    listed = read_root(path)["consolidated_metadata"]["metadata"]
    found = {name.split("/")[1] for name in listed if name.startswith(f"{STAGES}/")}
    inner = place(path) / STAGES
    found |= {one.parent.name for one in inner.glob("*/zarr.json")}
    return sorted(int(name) for name in found if name.isdigit())


def check(path: Where) -> None:
    """See that no stage of a store has lost its root.

    Raises
    ------
    StoreError
        If one has, or it is damaged.
    """
    from sweepkit.reading import read_root

    for number in numbers(path):
        read_root(beneath(path, STAGES, str(number)))


@dataclass(frozen=True, eq=False)
class _Part:
    """The runs that one stage puts into the flat Dataset.

    Attributes
    ----------
    ds : Dataset
        The stage as it is opened.
    dims : tuple of str
        Its run dims.
    rows : array of int
        Flat positions over its run dims, in C order.
    """

    ds: xr.Dataset
    dims: tuple[str, ...]
    rows: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.ds.sizes[dim] for dim in self.dims)

    def coordinate(self, name: str) -> NDArray[Any]:
        """Values of a parameter, one row per run."""
        array = self.ds[name]
        own = [dim for dim in self.dims if dim in array.dims]
        at = np.unravel_index(self.rows, self.shape)
        index = tuple(at[self.dims.index(dim)] for dim in own)
        values: NDArray[Any] = array.transpose(*own, ...).values[index]
        return values


def joined(path: Where, *, mask: bool = True) -> xr.Dataset:
    """The runs of the grid and of all stages along one dim ``run``, skipped ones left out.

    Values are read when they are used; the parameters and statuses are read at once.
    """
    from sweepkit.reading import open as opened

    stages = numbers(path)
    grid = opened(path, mask=mask)
    declaration = json.loads(grid.attrs[ATTRIBUTE])
    names = [str(one["name"]) for one in declaration["parameters"]]
    taken_names = {*names, *declaration.get("derived", {}), *map(str, grid.data_vars)}
    check_names(path, taken_names, tuple(GIVEN) if stages else (RUN,))
    parts = [_part(grid)]
    for number in stages:
        stage = _with_joined(opened(beneath(path, STAGES, str(number)), mask=mask), grid)
        parts.append(_part(stage))
    parts = _without_repeats(parts, names)
    sizes = [len(part.rows) for part in parts]
    coords: dict[str, Any] = {}
    for name in names:
        values = np.concatenate([part.coordinate(name) for part in parts])
        coords[name] = ((RUN, *grid[name].dims[1:]), values, grid[name].attrs)
    for name, text in dict(declaration.get("derived", {})).items():
        expression = parse(text)
        taken = {n: xr.Variable(*coords[n][:2]) for n in expression.names if n in coords}
        if set(taken) == set(expression.names):
            value = expression.evaluate(taken)
            coords[name] = (value.dims, value.values, {"long_name": text, "derived": text})
    meaning = {"long_name": "0 is the grid, others refine it"}
    if "stage" not in taken_names:
        coords["stage"] = (RUN, np.repeat([0, *stages], sizes), meaning)
    outer = {dim for part in parts for dim in part.dims}
    for along, array in grid.coords.items():
        name = str(along)
        if name not in coords and not set(map(str, array.dims)) & outer:
            coords[name] = array.variable
    variables: dict[str, xr.Variable] = {}
    for part in parts:
        for name in map(str, part.ds.data_vars):
            if name not in variables:
                variables[name] = _variable(name, parts)
    told = {k: v for k, v in declaration.items() if k not in OF_THE_GRID}
    if not stages:
        told |= _random_order(parts[0], declaration)
        if declaration.get("sampled") == []:  # so these runs are all there are
            told["dims"] = [RUN]
    attrs = {**grid.attrs, ATTRIBUTE: json.dumps(told)}
    flat = xr.Dataset(variables, coords=coords, attrs=attrs)
    return _weighed(flat) if stages else flat


def _random_order(part: _Part, declaration: Mapping[str, Any]) -> dict[str, Any]:
    """The coarse pass of a grid by position among the flat runs, if it was recorded."""
    order = declaration.get("order")
    sizes = {dim: part.ds.sizes[dim] for dim in part.dims}
    if not order or not order.get("coarse") or dict(order["sizes"]) != sizes:
        return {}
    disk = random_prefix(order["seed"], math.prod(sizes.values()), int(order["coarse"]))
    places = np.unravel_index(disk, tuple(order["sizes"].values()))
    at = dict(zip(order["sizes"], places, strict=True))
    for dim, axis in declaration.get("axes", {}).items():
        if len(axis) == sizes.get(dim):  # opening sorts: place k is position axis[k] on disk
            at[dim] = np.argsort(np.asarray(axis, dtype=np.int64))[at[dim]]
    flat = np.ravel_multi_index(tuple(at[dim] for dim in part.dims), part.shape)
    found = np.searchsorted(part.rows, flat).clip(max=max(len(part.rows) - 1, 0))
    there = part.rows[found] == flat if len(part.rows) else np.zeros(len(flat), dtype=bool)
    positions = found[there].tolist()  # skipped runs are left out
    sizes = {RUN: len(part.rows)}
    return {"order": {"sizes": sizes, "coarse": len(positions), "positions": positions}}


def _part(ds: xr.Dataset) -> _Part:
    dims = tuple(map(str, ds["status"].dims))
    status = ds["status"].values.reshape(-1)
    return _Part(ds, dims, np.flatnonzero(status != Status.SKIPPED))


def _with_joined(stage: xr.Dataset, grid: xr.Dataset) -> xr.Dataset:
    """A stage made before a parameter joined the grid, with the value that its runs had."""
    told = json.loads(grid.attrs[ATTRIBUTE])
    dim = str(stage["status"].dims[0])
    for name, said in told.get("was", {}).items():
        if name not in stage.variables and name in grid.coords:
            value = np.full(stage.sizes[dim], said["value"]).astype(grid[name].dtype)
            stage = stage.assign_coords({name: (dim, value)})
    return stage


def _without_repeats(parts: Sequence[_Part], names: Sequence[str]) -> list[_Part]:
    """Runs of stages that the grid has grown over are the same runs: one of the two stays."""
    grid, *stages = parts
    gone = np.zeros(int(np.prod(grid.shape)), dtype=bool)
    kept: list[_Part] = []
    status = grid.ds["status"].values.reshape(-1)
    along: dict[str, list[str]] = {dim: [] for dim in grid.dims}
    for name in names:
        along[str(grid.ds[name].dims[0])].append(name)
    for stage in stages:
        at, on = _positions(grid, stage, along)
        pending = np.zeros(len(on), dtype=bool)
        pending[on] = status[at[on]] == Status.PENDING
        gone[at[on & pending]] = True
        kept.append(_Part(stage.ds, stage.dims, stage.rows[~on | pending]))
    return [_Part(grid.ds, grid.dims, grid.rows[~gone[grid.rows]]), *kept]


def _positions(
    grid: _Part, stage: _Part, along: Mapping[str, Sequence[str]]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Flat position on the grid of each run of a stage, and whether it has one."""
    on = np.ones(len(stage.rows), dtype=bool)
    index = []
    for dim in grid.dims:
        axis = pd.MultiIndex.from_frame(_frame(grid.ds, along[dim]))
        own = pd.MultiIndex.from_frame(_frame(stage.ds, along[dim]).iloc[stage.rows])
        found = axis.get_indexer(own)
        on &= found >= 0
        index.append(np.maximum(found, 0))
    return np.ravel_multi_index(tuple(index), grid.shape).astype(np.int64), on


def _frame(ds: xr.Dataset, names: Sequence[str]) -> pd.DataFrame:
    columns: dict[str, NDArray[Any]] = {}
    for name in names:
        values = ds[name].values
        rows = values.reshape(len(values), -1)
        columns |= {f"{name}[{k}]": rows[:, k] for k in range(rows.shape[1])}
    return pd.DataFrame(columns)


def _weighed(flat: xr.Dataset) -> xr.Dataset:
    """The same with the share of the space that each finished run stands for, where it has one."""
    from sweepkit.analysis import UnanswerableError, volumes

    unfinished = (flat["status"] != Status.DONE).values
    try:
        # What runs stand for rests on where they are and whether they ended, not on how.
        volume = volumes(flat, failed=np.where(unfinished, np.nan, 0.0))
    except UnanswerableError:
        return flat
    return flat.assign_coords(volume=volume)


# --- values read when they are used --------------------------------------------------------------


def _variable(name: str, parts: Sequence[_Part]) -> xr.Variable:
    has = [part for part in parts if name in part.ds.data_vars]
    own = tuple(d for d in map(str, has[0].ds[name].dims) if d not in has[0].dims)
    lazy = indexing.LazilyIndexedArray(_Joined(name, parts, own))
    return xr.Variable((RUN, *own), lazy, has[0].ds[name].attrs)


class _Joined(BackendArray):
    """One variable of all parts, run after run; missing or shorter values are hidden ones."""

    def __init__(self, name: str, parts: Sequence[_Part], own: tuple[str, ...]) -> None:
        self._parts = [
            (part, part.ds[name].variable.transpose(*part.dims, *own))
            if name in part.ds.data_vars
            else (part, None)
            for part in parts
        ]
        there = [variable for _, variable in self._parts if variable is not None]
        lengths = zip(*(variable.shape[-len(own) :] for variable in there), strict=True)
        self._own = tuple(max(sizes) for sizes in lengths) if own else ()
        self.shape = (sum(len(part.rows) for part in parts), *self._own)
        self.dtype = np.result_type(*(variable.dtype for variable in there))

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        wanted = np.atleast_1d(np.arange(self.shape[0])[key[0]])
        whole = np.full((len(wanted), *self._own), _hidden(self.dtype), dtype=self.dtype)
        start = 0
        for part, variable in self._parts:
            mine = (wanted >= start) & (wanted < start + len(part.rows))
            if variable is not None and mine.any():
                rows = part.rows[wanted[mine] - start]
                own = tuple(slice(0, n) for n in variable.shape[len(part.dims) :])
                where: tuple[Any, ...] = (mine, *own)
                whole[where] = _rows(variable, rows, part.shape)
            start += len(part.rows)
        for axis, one in enumerate(key[1:], 1):
            inner: tuple[Any, ...] = (slice(None),) * axis
            whole = whole[(*inner, np.atleast_1d(np.arange(self.shape[axis])[one]))]
        scalar: tuple[Any, ...] = tuple(
            0 if isinstance(one, int | np.integer) else slice(None) for one in key
        )
        return np.asarray(whole[scalar])


def _rows(variable: xr.Variable, rows: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[Any]:
    """Values of some runs, given by their flat position over the run dims."""
    at = np.unravel_index(rows, shape)
    box = tuple(slice(int(a.min()), int(a.max()) + 1) for a in at)
    values = np.asarray(variable[box].values)
    picked: NDArray[Any] = values[tuple(a - part.start for a, part in zip(at, box, strict=True))]
    return picked


def _hidden(dtype: np.dtype[Any]) -> Any:
    kind = dtype.kind
    if kind in "fc":
        return np.nan
    if kind in "mM":
        return np.array("NaT", dtype=dtype)
    return "" if kind in "OTU" else 0

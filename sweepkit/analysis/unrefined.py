"""The grid of a refined sweep alone, for what refined runs would bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.outcomes import SKIPPED, declared, refinement
from sweepkit.analysis.table import Table, table
from sweepkit.status import Status

__all__ = ["left_out", "unrefined"]

Places = NDArray[np.int64]


def unrefined(t: Table) -> tuple[Table, int]:
    """The runs of the first stage, as the grid they are if they are one, and how many are left out.

    Refined runs crowd where designs fail: shares, variances and densities of them speak of where
    was looked, not of the space.
    """
    made = refinement(t.ds)
    if "stage" not in made or len(t.dims) != 1:
        return t, 0
    (dim,) = t.dims
    stage = t.ds["stage"].values
    first = np.flatnonzero(stage == stage.min())
    there = {n: v for n, v in t.ds.variables.items() if n not in made}
    names = [name for name in there if _needed(t, str(name))]
    ds = t.ds[names].drop_vars(made, errors="ignore").isel({dim: first})
    found = _crossing(ds, dim)
    outcome = t.outcome[first]
    if found is not None:
        axes, place = found
        ds = _as_grid(ds, dim, axes, place)
        whole = np.full(int(np.prod([len(v) for v in axes.values()])), SKIPPED, dtype=np.int8)
        whole[place] = outcome
        outcome = whole
    shape = tuple(ds.sizes[d] for d in (found[0] if found is not None else [dim]))
    plain = table(ds, failed=xr.DataArray(np.zeros(shape), dims=list(found[0] if found else [dim])))
    alone = replace(plain, outcome=outcome, requirements=t.requirements)
    if t.prefix is not None and alone.prefix is None:
        rank = np.full(t.n, -1, dtype=np.int64)
        rank[first] = np.arange(len(first)) if found is None else found[1]
        alone = replace(alone, prefix=rank[t.prefix])
    return alone, t.n - len(first)


def left_out(basis: str, number: int) -> str:
    """What an answer rests on, with the refined runs that it left out."""
    return f"{basis}; of stage 0, {number} refined runs left out" if number else basis


def _needed(t: Table, name: str) -> bool:
    """Variables with one value per run, and traces that requirements look at."""
    variable = t.ds.variables[name]
    if name in t.ds.coords or variable.dims == t.dims:
        return True
    asked = {n for one in t.requirements if not one.needs_code for n in one.expression.names}
    return name in asked or any(one.needs_code for one in t.requirements)


def _crossing(ds: xr.Dataset, dim: str) -> tuple[dict[str, NDArray[Any]], Places] | None:
    """Axes of the grid that flat runs are of, and the flat place of each; None if of none."""
    told = declared(ds).get("parameters")
    if told is None:
        names = [str(name) for name, array in ds.coords.items() if array.dims == (dim,)]
    elif all(one["dims"] == [one["name"]] for one in told):
        names = [one["name"] for one in told]
    else:
        return None
    axes, codes = {}, []
    for name in names:
        code, values = pd.factorize(ds[name].values, sort=True)
        axes[name] = np.asarray(values)
        codes.append(code)
    shape = tuple(len(values) for values in axes.values())
    n, size = ds.sizes[dim], float(np.prod([float(k) for k in shape]))
    if size > (n if told is None or "status" not in ds else 20 * n):
        return None
    place = np.ravel_multi_index(tuple(codes), shape).astype(np.int64)
    return (axes, place) if len(np.unique(place)) == n else None


def _as_grid(ds: xr.Dataset, dim: str, axes: dict[str, NDArray[Any]], place: Places) -> xr.Dataset:
    shape = tuple(len(values) for values in axes.values())
    size = int(np.prod(shape, dtype=np.int64))

    def spread(name: str, array: xr.DataArray) -> tuple[Any, ...]:
        own = tuple(d for d in array.dims if d != dim)
        values = array.transpose(dim, *own).values
        fill: Any = Status.SKIPPED if name == "status" else _nothing(values.dtype)
        dtype = np.result_type(values.dtype, np.float64) if fill is None else values.dtype
        whole = np.full((size, *values.shape[1:]), np.nan if fill is None else fill, dtype=dtype)
        whole[place] = values
        return (*axes, *own), whole.reshape(*shape, *values.shape[1:]), array.attrs

    whole = size == ds.sizes[dim] and bool((np.diff(place) == 1).all())
    variables = {}
    for name, array in ds.variables.items():
        if dim not in array.dims or name in axes:
            continue
        if whole:
            own = tuple(d for d in array.dims if d != dim)
            values = array.transpose(dim, *own).values
            data = values.reshape(*shape, *values.shape[1:])
            variables[name] = ((*axes, *own), data, array.attrs)
        else:
            variables[name] = spread(str(name), ds[name])
    coords: dict[Any, Any] = {name: (name, v, ds[name].attrs) for name, v in axes.items()}
    coords |= {n: variables.pop(n) for n in list(variables) if n in ds.coords}
    return xr.Dataset(variables, coords=coords, attrs=ds.attrs)


def _nothing(dtype: np.dtype[Any]) -> Any:
    """What a run that is not there holds; None where its type has no value for it."""
    if dtype.kind in "fc":
        return np.nan
    if dtype.kind in "mM":
        return np.array("NaT", dtype=dtype)
    return "" if dtype.kind in "OTU" else None

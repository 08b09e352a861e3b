"""Which run is meant: by its place, its values, its row in the table, or a selection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.reading import run_dims_of
from sweepkit.status import Status

__all__ = ["one_run"]


def one_run(ds: xr.Dataset, run: Any) -> xr.Dataset:
    """The Dataset of one run.

    Parameters
    ----------
    ds : Dataset
        An opened store, or any Dataset of outputs over parameters.
    run : int, mapping, Series, DataFrame of one row, or Dataset
        Its place in C order over the run dims (as in ``explain``); values of its parameters (those
        with one value may be left out); its row in ``sk.runs(ds)``; or a selection of one run.

    Returns
    -------
    Dataset
        Without run dims; its parameters are scalar coordinates (vectors keep their own dims).

    Raises
    ------
    TypeError, ValueError
        If it is none of these, is not there, or is not one run; the message says what is.
    """
    dims = run_dims_of(ds)
    sizes = {dim: ds.sizes[dim] for dim in dims}
    if isinstance(run, xr.Dataset):
        own = run_dims_of(run) if "status" in run else tuple(d for d in dims if d in run.dims)
        several = {dim: run.sizes[dim] for dim in own if run.sizes[dim] != 1}
        if several:
            raise ValueError(
                f"the selection holds {int(np.prod(list(several.values())))} runs ({several}); "
                "select one, as in ds.isel(...)"
            )
        return run.isel(dict.fromkeys(own, 0))
    if isinstance(run, int | np.integer) and not isinstance(run, bool):
        total = int(np.prod(list(sizes.values())))
        if not -total <= run < total:
            raise ValueError(f"run {run} is not there; the Dataset has {total:,} runs, from 0")
        place = np.unravel_index(int(run) % total, tuple(sizes.values())) if sizes else ()
        return ds.isel(dict(zip(dims, map(int, place), strict=True)))
    if isinstance(run, pd.DataFrame):
        if len(run) != 1:
            raise ValueError(f"the table has {len(run)} rows; give one, as in table.iloc[0]")
        run = run.iloc[0]
    if isinstance(run, pd.Series):
        row = run.to_dict()
        values = {str(name): row[name] for name in ds.coords if name in row}
        at = _numbered(ds, dims, run.name)
        if at is not None and _agrees(at, values):
            return at
        run = values
    if not isinstance(run, Mapping):
        raise TypeError(
            f"run is a {type(run).__name__}; give its number, a dict of parameter values, a row of "
            "sk.runs(ds), or a selection such as ds.isel(...)"
        )
    return ds.isel(_places(ds, dims, run))


def _numbered(ds: xr.Dataset, dims: tuple[str, ...], number: object) -> xr.Dataset | None:
    """The run that a row of the whole table stands for, by the number of the row."""
    if not isinstance(number, int | np.integer) or number < 0:
        return None
    kept = np.arange(int(np.prod([ds.sizes[dim] for dim in dims])))
    if "status" in ds:
        kept = np.flatnonzero(ds["status"].values.ravel() != Status.SKIPPED)
    return one_run(ds, int(kept[number])) if number < len(kept) else None


def _agrees(one: xr.Dataset, values: Mapping[str, Any]) -> bool:
    return all(
        bool(_equal(one[name].expand_dims("run"), value).all()) for name, value in values.items()
    )


def _places(ds: xr.Dataset, dims: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, int]:
    """Position of the run along each dim."""
    coords = {str(n): c for n, c in ds.coords.items() if c.dims and c.dims[0] in dims}
    for name in values:
        if name not in coords and name not in ds.coords:
            raise ValueError(f"{name!r} is no parameter; there are {', '.join(map(repr, coords))}")
    places = {}
    for dim in dims:
        along = {name: coord for name, coord in coords.items() if dim in coord.dims}
        fits = np.ones(ds.sizes[dim], dtype=bool)
        for name, coord in along.items():
            if name in values:
                fits &= _equal(coord, values[name])
        found = np.flatnonzero(fits)
        if not len(found):
            raise ValueError(_absent(along, values))
        if len(found) > 1:
            names = ", ".join(repr(name) for name in along if name not in values) or repr(dim)
            raise ValueError(f"{len(found)} runs fit along {dim!r}; give also a value of {names}")
        places[dim] = int(found[0])
    return places


def _equal(coord: xr.DataArray, value: Any) -> NDArray[np.bool_]:
    kept = coord.values
    if kept.dtype.kind in "mM":
        value = np.asarray(value).astype(kept.dtype)
    same: NDArray[Any] = np.asarray(kept == np.asarray(value))
    if kept.ndim > 1:
        same = np.asarray(same.reshape(len(kept), -1).all(axis=1))
    return np.broadcast_to(same, (len(kept),)).astype(bool)


def _absent(along: Mapping[str, xr.DataArray], values: Mapping[str, Any]) -> str:
    said = {name: values[name] for name in along if name in values}
    given = ", ".join(f"{name}={value!r}" for name, value in said.items())
    if len(said) > 1:
        return f"no run has {given} together"
    name, coord = next((n, c) for n, c in along.items() if n in said)
    kept = coord.values
    if kept.dtype.kind in "iuf" and isinstance(said[name], int | float | np.number):
        kept = kept[np.argsort(np.abs(kept - float(said[name])), kind="stable")]
    shown = ", ".join(str(one) for one in kept[:4].tolist())
    return f"{given} is none of its {len(kept)} values; near are {shown}"

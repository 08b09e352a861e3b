"""Requirements applied to what was read: which runs fail, and by how much."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.format1 import ATTRIBUTE
from sweepkit.formulas import lengths_of, run_dims_of
from sweepkit.requirements import Requirement, collect, margins, satisfied
from sweepkit.status import Status

__all__ = ["failed", "margin", "requirements_of"]


def requirements_of(ds: xr.Dataset, requirements: Any = None) -> tuple[Requirement, ...]:
    """The requirements given, else those that the Dataset carries.

    Raises
    ------
    TypeError
        If it is no Dataset.
    ValueError
        If there are none.
    """
    if not isinstance(ds, xr.Dataset):
        raise TypeError(
            f"requirements are asked of a Dataset, not of a {type(ds).__name__}; give what "
            "sk.open(path) returns"
        )
    if requirements is not None:
        made = collect(requirements)
    else:
        text = ds.attrs.get(ATTRIBUTE)
        said = json.loads(text).get("requirements", []) if text else []
        made = tuple(Requirement.from_json(one) for one in said)
    if not made:
        raise ValueError(
            "there are no requirements, so nothing passes or fails; give some, as in "
            "requirements=['steps >= 500']"
        )
    return made


def _finished(ds: xr.Dataset) -> xr.DataArray | None:
    return ds["status"] == Status.DONE if "status" in ds else None


def _used(ds: xr.Dataset, wanted: Sequence[Requirement]) -> xr.Dataset:
    """The variables that requirements name, loaded once."""
    if any(one.needs_code for one in wanted):
        return ds
    names = {n for one in wanted for n in one.expression.names}
    lengths = {ds[n].attrs["length"] for n in names if n in ds and "length" in ds[n].attrs}
    present = [n for n in (*names, *lengths) if n in ds.variables]
    if not present:
        return ds
    used = ds[present].load()
    lacking = [
        dim for dim in run_dims_of(ds) if dim not in used.sizes
    ]  # sizes are told all the same
    return used.assign_coords({dim: np.arange(ds.sizes[dim]) for dim in lacking})


def failed(ds: xr.Dataset, requirements: Any = None) -> xr.DataArray:
    """Whether each run fails: 1 where a requirement does not hold, 0 where all do.

    Parameters
    ----------
    ds : Dataset
        An opened store, or any Dataset of outputs over parameters.
    requirements : sequence of str, Requirement or callable, optional
        Instead of those that the Dataset carries.

    Returns
    -------
    DataArray of float64
        Over the run dims; NaN where unknown: the run is unfinished, or ended in an error.

    Raises
    ------
    ValueError
        If there are no requirements, or one names what is not there.
    """
    wanted = requirements_of(ds, requirements)
    dims = run_dims_of(ds)
    if _nothing_done(ds):
        return _unknown(ds, dims, "failed", "failed")
    used = _used(ds, wanted)
    held = satisfied(wanted, used, run_dims=dims, lengths=lengths_of(used))
    values = np.asarray(~held.all(axis=0), dtype=np.float64)
    array = _over_runs(ds, dims, values)
    finished = _finished(ds)
    if finished is not None:
        array = array.where(finished)
    array.name = "failed"
    array.attrs = {"long_name": "failed", "requirements": [one.text for one in wanted]}
    return array


def _nothing_done(ds: xr.Dataset) -> bool:
    """Whether no run is done, so that outputs may not even be known."""
    return "status" in ds and not bool((ds["status"] == Status.DONE).any())


def _unknown(ds: xr.Dataset, dims: Sequence[str], name: str, long_name: str) -> xr.DataArray:
    array = _over_runs(ds, dims, np.full([ds.sizes[dim] for dim in dims], np.nan))
    array.name = name
    array.attrs = {"long_name": long_name}
    return array


def margin(ds: xr.Dataset, requirements: Any = None) -> xr.DataArray:
    """Signed distance of each run to the limit of each requirement.

    Parameters
    ----------
    ds, requirements
        As for :func:`failed`.

    Returns
    -------
    DataArray of float64
        Over the run dims and ``requirement`` (labelled by the requirements' names), in the units
        of what is compared; positive where satisfied, negative where not, NaN where unknown.

    Raises
    ------
    ValueError
        As :func:`failed`.
    """
    wanted = requirements_of(ds, requirements)
    dims = run_dims_of(ds)
    if _nothing_done(ds):
        unknown = _unknown(ds, dims, "margin", "distance to the limit")
        return unknown.expand_dims(requirement=[one.name for one in wanted], axis=-1)
    used = _used(ds, wanted)
    measured = margins(wanted, used, run_dims=dims, lengths=lengths_of(used))
    array = _over_runs(ds, dims, np.moveaxis(measured, 0, -1), "requirement")
    array = array.assign_coords(requirement=[one.name for one in wanted])
    finished = _finished(ds)
    if finished is not None:
        array = array.where(finished)
    array.name = "margin"
    array.attrs = {"long_name": "distance to the limit"}
    return array


def _over_runs(
    ds: xr.Dataset, dims: Sequence[str], values: NDArray[Any], *more: str
) -> xr.DataArray:
    coords = {n: c for n, c in ds.coords.items() if set(map(str, c.dims)) <= set(dims)}
    return xr.DataArray(values, dims=(*dims, *more), coords=coords)

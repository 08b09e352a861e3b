"""Datasets with known failures, laid out as sweepkit stores them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

DATA = Path(__file__).parent / "data"


def grid(failed: Any, status: Any = None, **parameters: Any) -> xr.Dataset:
    """A crossed grid; a parameter is its values or (role, values)."""
    coords = {}
    for name, values in parameters.items():
        role, values = values if isinstance(values, tuple) else ("design", values)
        coords[name] = xr.DataArray(np.asarray(values), dims=name, attrs={"role": role})
    shape = tuple(len(c) for c in coords.values())
    if status is None:
        status = np.ones(shape, np.int8)
    return xr.Dataset(
        {
            "failed": (tuple(coords), np.asarray(failed).reshape(shape)),
            "status": (tuple(coords), np.asarray(status, np.int8).reshape(shape)),
        },
        coords=coords,
        attrs={"sweepkit_format": 1, "sweepkit": "{}"},
    )


def sample(failed: Any, status: Any = None, **parameters: Any) -> xr.Dataset:
    """Scattered runs along one dim ``sample``."""
    coords = {}
    for name, values in parameters.items():
        role, values = values if isinstance(values, tuple) else ("design", values)
        coords[name] = ("sample", np.asarray(values), {"role": role})
    variables: dict[str, Any] = {"failed": ("sample", np.asarray(failed))}
    if status is not None:
        variables["status"] = ("sample", np.asarray(status, np.int8))
    return xr.Dataset(variables, coords=coords)


def in_random_order(ds: xr.Dataset, seed: int, coarse: int) -> xr.Dataset:
    """The same, with the record of the random order its runs are drawn in."""
    sizes = {str(d): n for d, n in ds["failed"].sizes.items()}
    order = {"seed": seed, "sizes": sizes, "coarse": coarse}
    return ds.assign_attrs(sweepkit=json.dumps({"order": order}))


def cartpole() -> xr.Dataset:
    """The CartPole grid: length, masspole, force_mag, delay and seed -> steps, failed."""
    frame = pd.read_csv(DATA / "cartpole.csv")
    names = ["length", "masspole", "force_mag", "delay", "seed"]
    ds = frame.set_index(names).to_xarray()
    for name in names:
        ds[name].attrs["role"] = "replicate" if name == "seed" else "design"
    return ds.assign(failed=ds["failed"].astype(bool))

"""What refined runs say about the whole space: shares of it, and bounds by them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.coding import Floats
from sweepkit.analysis.lattice import (
    ABSENT,
    MIXED,
    UNKNOWN,
    Lattice,
    lattice_of,
    leaves,
    required_lattice,
)
from sweepkit.analysis.outcomes import FAILED, SKIPPED, Errors, Failed, UnanswerableError
from sweepkit.analysis.table import Table, table

__all__ = ["Shares", "refined_rate", "shares", "volumes"]


@dataclass(frozen=True, eq=False)
class Shares:
    """What each run stands for; sums to 1 over all runs.

    Attributes
    ----------
    volume : array of float, shape (runs,)
        Share of the space, replicates of a point alike; of unknown runs, too.
    undecided : array of float, shape (runs,)
        The part of it in cells whose runs do not all agree, or are not all known.
    lattice : Lattice
        The cells.
    """

    volume: Floats
    undecided: Floats
    lattice: Lattice


def shares(t: Table, outcome: NDArray[np.int8]) -> Shares | None:
    """What each run of a grid and its refinements stands for; None for scattered runs.

    Each cell is split as far as its known points allow; what is left is shared equally by the
    points it holds.
    """
    try:
        lattice = lattice_of(t, outcome)
    except UnanswerableError:  # of vectors
        return None
    return None if lattice is None else _shares(t, lattice, outcome)


def _shares(t: Table, lattice: Lattice, outcome: NDArray[np.int8]) -> Shares:
    known = outcome <= FAILED
    # A point is what its finished runs say, so others of the same point stand for nothing.
    unknown = np.isnan(lattice.cube.reshape(-1))
    there = lattice.on_grid & (outcome != SKIPPED)
    here = np.flatnonzero(there)
    here = here[known[here] | unknown[lattice.place[here]]]
    refined = np.flatnonzero(known & ~lattice.on_grid)
    volume, undecided = np.zeros(t.n), np.zeros(t.n)
    for runs, points in zip((here, refined), _of_points(lattice), strict=True):
        place = lattice.place[runs]
        repeats = np.bincount(place, minlength=points.shape[1])[place]
        volume[runs], undecided[runs] = points[:, place] / repeats
    return Shares(volume, undecided, lattice)


def _of_points(lattice: Lattice) -> tuple[Floats, Floats]:
    """Share of the space, and the undecided part of it, of each point of the grid and of each
    refined one; shape (2, points) both."""
    on_grid = np.zeros((2, *lattice.cube.shape))
    number = {key: k for k, key in enumerate(lattice.extra)}
    refined = np.zeros((2, len(number)))
    cells = lattice.cell_shares()
    for group in range(lattice.n_groups):
        state = lattice.state(group, sure=True)
        plain = np.where(state == ABSENT, 0.0, cells)
        for cell, inside in lattice.touched(group).items():
            plain[cell] = 0.0
            for leaf in leaves(lattice, group, lattice.box(cell), inside):
                part = leaf.share / max(len(leaf.points), 1)
                parts = part, 0.0 if leaf.sure else part
                for x in leaf.points:
                    at, index = number.get((group, x)), lattice.index(x)
                    if at is not None:
                        refined[:, at] += parts
                    elif index is not None:
                        place: tuple[Any, ...] = (slice(None), group, *index)
                        on_grid[place] += parts
        present = lattice.present[group]
        _share_among_corners(on_grid[0, group], plain, present)
        unsure = (state == MIXED) | (state == UNKNOWN)
        _share_among_corners(on_grid[1, group], plain * unsure, present)
    total = on_grid[0].sum() + refined[0].sum()
    return on_grid.reshape(2, -1) / total, refined / total


def _share_among_corners(points: Floats, cells: Floats, present: NDArray[np.bool_]) -> None:
    """Add the share of each cell to its corners that are there, equally."""
    parts = [
        tuple(slice(o, n - 1 + o) for o, n in zip(offset, points.shape, strict=True))
        for offset in product((0, 1), repeat=cells.ndim)
    ]
    number = np.sum([present[part] for part in parts], axis=0)
    each = cells / np.maximum(number, 1)
    for part in parts:
        points[part] += each * present[part]


def volumes(
    ds: xr.Dataset | Table,
    *,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> xr.DataArray:
    """Share of the parameter space that each run of a refined grid stands for.

    Each cell is split as far as its known points allow; what is left is shared equally by the
    points it holds. Without refinement these are the weights of the trapezoid rule.

    Parameters
    ----------
    ds : Dataset or Table
        A grid, or runs of a grid and its refinements with a coordinate ``stage``.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataArray
        Over the run dims, dimensionless, with sum 1; 0 for runs whose outcome is unknown.
        ``ds.assign_coords(volume=volumes(ds))`` lets every rate weigh by it.

    Raises
    ------
    UnanswerableError
        If the runs (of the first stage) are no grid, or none has passed or failed.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [False, False, True])}, coords={"a": [0.0, 1.0, 2.0]})
    >>> volumes(ds).values.tolist()
    [0.25, 0.5, 0.25]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    outcome = t.counted(errors)
    found = _shares(t, required_lattice(t, outcome), outcome)
    flat = np.where(outcome <= FAILED, found.volume, 0.0)
    return xr.DataArray(
        (flat / flat.sum()).reshape(t.shape),
        dims=t.dims,
        name="volume",
        attrs={"units": "1", "long_name": "share of the parameter space"},
    )


def refined_rate(
    ds: xr.Dataset | Table,
    *,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """Share of the parameter space that fails, with bounds by volume.

    A cell whose known points all agree is taken to be as they are; the others are undecided. So
    the bounds hold if nothing smaller than a cell hides between points that agree.

    Parameters
    ----------
    ds : Dataset or Table
        A grid, or runs of a grid and its refinements with a coordinate ``stage``.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        One row: ``rate`` (each cell as its points on average), ``low`` (share of cells that
        fail), ``high`` (with the undecided), ``undecided``, ``plain_rate`` (share of runs that
        fail, which refinement biases), ``n_run``, ``n_failed``, ``n_unknown``, ``basis``.

    Raises
    ------
    UnanswerableError
        If the runs (of the first stage) are no grid, or none has passed or failed.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [False, False, True])}, coords={"a": [0.0, 1.0, 2.0]})
    >>> refined_rate(ds)[["rate", "low", "high"]].values.tolist()
    [[0.25, 0.0, 0.5]]
    """
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    outcome = t.counted(errors)
    found = _shares(t, required_lattice(t, outcome), outcome)
    f, ended = outcome == FAILED, outcome <= FAILED
    decided = found.volume - found.undecided
    low = float(decided[f].sum())
    undecided = max(1 - low - float(decided[ended & ~f].sum()), 0.0)
    row = {
        "rate": float(found.volume[f].sum() / found.volume[ended].sum()),
        "low": low,
        "high": min(low + undecided, 1.0),
        "undecided": undecided,
        "plain_rate": float(f.sum() / ended.sum()),
        "n_run": int(ended.sum()),
        "n_failed": int(f.sum()),
        "n_unknown": int((~ended & (outcome != SKIPPED)).sum()),
        "basis": "refined",
    }
    frame = pd.DataFrame([row])
    frame.attrs["basis"] = "volume of cells whose points agree; the others are undecided"
    return frame

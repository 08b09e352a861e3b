"""What is known of a sweep before it is run: pending runs, costs, sizes; nothing is written."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweepkit.cost import Costs
from sweepkit.format1 import block_bytes, was_from_json
from sweepkit.grid import Grid, random_prefix
from sweepkit.plan import Placement, random_order
from sweepkit.protocols import Store
from sweepkit.resume import match, neutral_parameters, settled_values
from sweepkit.status import Status
from sweepkit.sweep import Sweep

__all__ = ["Survey", "survey"]

MOST_LISTED = 2**20
"""Points up to which all pending runs are listed; of larger grids some stand for all."""
SAMPLE = 2**16
LEARNT_RUNS = 4096


@dataclass(frozen=True, eq=False)
class Survey:
    """A sweep as it lies before us.

    Attributes
    ----------
    grid : Grid
    lead, runs : array of int
        Pending runs by their number in the declared grid: those of the coarse pass in its order,
        and all; of a very large grid some, drawn at random.
    pending, finished : int
        How many runs are pending, and how many are finished.
    exact : bool
        Whether ``runs`` are all that is pending.
    costs : Costs
        Learnt from finished runs.
    disk : float
        Bytes on disk of one run; NaN while none is stored.
    block_bytes : float
        Memory of one open block; NaN while nothing is stored.
    blocks : int
    """

    grid: Grid
    lead: NDArray[np.int64]
    runs: NDArray[np.int64]
    pending: int
    finished: int
    exact: bool
    costs: Costs
    disk: float = math.nan
    block_bytes: float = math.nan
    blocks: int = 0


def survey(sweep: Sweep, store: Store | None) -> Survey:
    """Look at a sweep and at the store that holds some of its runs, if there is one.

    Parameters
    ----------
    sweep : Sweep
    store : Store or None
        That has been peeked at; it is not held, and nothing is written.

    Raises
    ------
    ValueError
        If the store holds another sweep.
    """
    if store is None:
        return _listed(sweep.grid, Placement.same(sweep.grid.sizes), sweep, [])
    declaration = store.declaration
    stored = store.parameter_values(declaration["parameters"])
    was = settled_values(
        was_from_json(declaration),
        neutral_parameters({}, sweep.grid, declaration["parameters"]),
        declaration["parameters"],
        path=store.path,
    )
    found = match(sweep, stored, declaration, was, path=store.path, snap=False)
    sizes = dict(store.layout.sizes)
    for one in found.parameters:
        sizes[one.dim] = one.size
    placement = Placement.of(found.grid.sizes, sizes, found.on_disk)
    done = list(_finished(store, placement, len(sizes)))
    seen = _listed(found.grid, placement, sweep, [runs for runs, _ in done])
    costs = seen.costs
    for runs, seconds in done:
        some = slice(None, None, max(1, len(runs) * len(done) // LEARNT_RUNS))
        told = np.isfinite(seconds[some])
        costs = costs.after(runs[some][told], seconds[some][told])
    layout = store.layout
    per_run = sum(variable.bytes_per_run for variable in layout.variables.values())
    on_disk = sum(len(runs) for runs, _ in done)
    return Survey(
        seen.grid,
        seen.lead,
        seen.runs,
        seen.pending,
        seen.finished,
        seen.exact,
        costs,
        min(_folder_bytes(store) / on_disk, per_run) if on_disk else math.nan,
        float(math.prod(layout.block) * block_bytes(layout.variables.values())),
        layout.n_blocks,
    )


def _finished(
    store: Store, placement: Placement, n_dims: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Finished runs that the sweep declares, block by block, and their durations."""
    layout = store.layout
    for number in range(layout.n_blocks):
        box = layout.box(number)
        status = store.read("status", box).ravel()
        ran = (status != Status.PENDING) & (status != Status.SKIPPED)
        if not ran.any():
            continue
        # the runs of a store lie at the first position of a dim that joins it
        runs = placement.runs(box + (slice(0, 1),) * (n_dims - len(box)))
        ran &= runs >= 0
        yield runs[ran], store.read("duration", box).ravel()[ran].astype(np.float64)


def _listed(
    grid: Grid, placement: Placement, sweep: Sweep, finished: list[NDArray[np.int64]]
) -> Survey:
    """Pending runs, all of them if they are not too many."""
    order = random_order(placement.disk_sizes)
    prefix = random_prefix(order["seed"], math.prod(order["sizes"].values()), order["coarse"])
    lead = placement.runs_at(prefix)
    lead = lead[lead >= 0]
    exact = grid.size <= MOST_LISTED
    runs = np.arange(grid.size) if exact else np.unique(random_prefix(1, grid.size, SAMPLE))
    looked = len(runs)
    done = np.concatenate(finished) if finished else np.zeros(0, dtype=np.int64)
    valid = grid.valid(grid.index(runs)) if grid.masks else np.ones(looked, dtype=bool)
    runs = runs[valid]
    count = len(runs) if exact else round(grid.size * float(valid.mean()))
    runs = runs[~np.isin(runs, done)]
    lead = lead[~np.isin(lead, done)]
    if grid.masks:
        lead = lead[grid.valid(grid.index(lead))]
    costs = Costs.of(grid, sweep.cost)
    return Survey(grid, lead, runs, max(count - len(done), 0), len(done), exact, costs)


def _folder_bytes(store: Store) -> float:
    """Size of what is stored per run, where a store is a folder; NaN elsewhere."""
    if not os.path.isdir(store.path):
        return math.nan
    total = 0
    for name in store.layout.variables:
        for folder, _, files in os.walk(os.path.join(store.path, name, "c")):
            total += sum(os.stat(os.path.join(folder, one)).st_size for one in files)
    return float(total)

"""How many runs a sharper rate would take."""

from __future__ import annotations

from typing import Any

import numpy as np

from sweepkit.analysis.bases import BOUNDS, CENSUS, CLUSTERS, NOTHING, PROGRESS, REFINED, REPLICATES
from sweepkit.analysis.coding import Codes, Floats
from sweepkit.analysis.counts import Counts
from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.outcomes import PENDING
from sweepkit.analysis.table import Table

__all__ = ["in_all", "needed"]


def needed(counts: Counts, t: Table, cell: Codes, width: float, level: float) -> Any:
    """Further runs per cell for an interval so narrow at the present rate; NaN where none is."""
    n_cells = len(counts.rate)
    known = counts.n_run
    total = in_all(np.nan_to_num(counts.rate), width, level)
    nominal = failure_interval(counts.n_failed, known, level=level)
    with np.errstate(invalid="ignore", divide="ignore"):
        # What points or weights cost or gain now, they will later.
        effect = ((counts.high - counts.low) / (nominal[:, 1] - nominal[:, 0])) ** 2
    designed = np.isin(counts.basis, (REPLICATES, CLUSTERS, REFINED))
    total = np.where(designed, np.ceil(total * np.nan_to_num(effect, nan=1.0)), total)
    more = np.maximum(total - known, 0)
    pending = np.bincount(cell[t.outcome == PENDING], minlength=n_cells)
    closed = np.isin(counts.basis, (CENSUS, PROGRESS, BOUNDS))
    more = np.where(closed, np.minimum(more, pending), more)
    more = np.where((counts.high - counts.low <= width), 0, more)
    nothing = counts.basis == NOTHING
    return np.where(nothing, np.nan, more) if nothing.any() else more.astype(np.int64)


def in_all(p: Floats, width: float, level: float) -> Floats:
    """Independent runs that make an interval so narrow, at these rates."""
    low, high = np.zeros(len(p)), np.full(len(p), 1e12)
    for _ in range(60):
        centre = np.sqrt(np.maximum(low, 1) * high)
        interval = failure_interval(p * centre, centre, level=level)
        wide = interval[:, 1] - interval[:, 0] > width
        low, high = np.where(wide, centre, low), np.where(wide, high, centre)
    total: Floats = np.ceil(high)
    return total

"""Which runs of a grid are one step apart, and what they say of each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Codes
from sweepkit.analysis.outcomes import ERRORED, FAILED, PENDING, SKIPPED
from sweepkit.analysis.table import Table

__all__ = ["axis_codes", "boundary_of", "unknown_neighbours"]


def axis_codes(t: Table, k: int) -> Codes:
    """Code of each position along the crossed axis `k`."""
    axis = t.axes[k]
    if axis is None:
        raise ValueError(f"dim {t.dims[k]!r} carries no crossed parameter")
    step = int(np.prod(t.shape[k + 1 :], dtype=np.int64))
    return axis.codes[: t.shape[k] * step : step]


def boundary_of(t: Table, outcome: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Whether a run of a grid has a neighbour along an ordered axis with the other outcome."""
    cube = outcome.reshape(t.shape)
    mixed = np.zeros(t.shape, dtype=bool)
    for here, there in _neighbours(t):
        a, b = cube[here], cube[there]
        differ = (a != b) & (a <= FAILED) & (b <= FAILED)
        mixed[here] |= differ
        mixed[there] |= differ
    return mixed.reshape(-1)


def unknown_neighbours(t: Table, outcome: NDArray[np.int8]) -> tuple[Codes, Codes]:
    """How many neighbours along ordered axes each run of a grid has, and how many are unknown."""
    cube = outcome.reshape(t.shape)
    number, unknown = np.zeros((2, *t.shape), dtype=np.int64)
    for here, there in _neighbours(t):
        a, b = cube[here], cube[there]
        for at, other in ((here, b), (there, a)):
            number[at] += other != SKIPPED
            unknown[at] += (other == PENDING) | (other == ERRORED)
    return number.reshape(-1), unknown.reshape(-1)


def _neighbours(t: Table) -> Iterator[tuple[Any, Any]]:
    """Per ordered axis of a grid, the places of runs and of those one step further."""
    for k, axis in enumerate(t.axes):
        if axis is None or not axis.ordered or t.shape[k] < 2:
            continue
        order = np.argsort(axis_codes(t, k), kind="stable")
        here: Any = order[:-1]
        there: Any = order[1:]
        if (there == here + 1).all():
            here, there = slice(None, -1), slice(1, None)
        lead = (slice(None),) * k
        yield (*lead, here), (*lead, there)

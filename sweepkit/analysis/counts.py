"""Runs counted by cell, with intervals on the basis that the runs allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.bases import (
    BASES,
    BOUNDS,
    CENSUS,
    CLUSTERS,
    MEANINGS,
    NOTHING,
    PROGRESS,
    REFINED,
)
from sweepkit.analysis.coding import Coded, Codes, Floats
from sweepkit.analysis.intervals import (
    anytime_interval,
    check_level,
    failure_interval,
)
from sweepkit.analysis.neighbours import boundary_of, unknown_neighbours
from sweepkit.analysis.outcomes import (
    ERRORED,
    FAILED,
    PASSED,
    PENDING,
    SKIPPED,
    Errors,
    UnanswerableError,
)
from sweepkit.analysis.refined import Shares
from sweepkit.analysis.slices import slice_bounds
from sweepkit.analysis.table import Table
from sweepkit.analysis.worth import drawn, listed, settled, worth_of

__all__ = ["Counts", "basis_sentence", "basis_words", "count", "finished_prefix", "run_weights"]


@dataclass(frozen=True, eq=False)
class Counts:
    """What the runs of each cell say; every array has one entry per cell."""

    n_run: NDArray[np.int64]
    n_failed: NDArray[np.int64]
    n_unknown: NDArray[np.int64]
    n_error: NDArray[np.int64]
    rate: Floats
    low: Floats
    high: Floats
    boundary: Floats
    basis: NDArray[np.int8]

    @property
    def words(self) -> NDArray[np.str_]:
        """The basis of each cell in words."""
        return np.array(BASES)[self.basis]


def count(
    t: Table,
    cell: Codes,
    n_cells: int,
    *,
    fixed: Sequence[str] = (),
    by_replicate: bool = False,
    level: float = 0.95,
    errors: Errors = "apart",
    with_boundary: bool = True,
    along: Sequence[Coded] | None = None,
    at_points: bool = False,
) -> Counts:
    """Count the runs of each cell, with intervals on the basis the runs allow.

    Parameters
    ----------
    t : Table
    cell : array of int, shape (runs,)
        Which cell each run belongs to, from 0 to `n_cells` - 1.
    fixed : sequence of str
        The run dims along which a cell does not extend.
    by_replicate : bool
        Whether cells are single replicates, so that nothing is repeated in them.
    along : sequence of Coded, optional
        The parameters whose codes tell the cells apart; with `at_points` their exact values do.
        Of refined runs the bounds are then those of the slice of the space at these values.
    """
    check_level(level)
    outcome = t.counted(errors)
    tally: NDArray[np.int64] = np.bincount(
        cell * np.int64(5) + outcome, minlength=5 * n_cells
    ).reshape(n_cells, 5)
    n_failed, n_known = tally[:, FAILED], tally[:, PASSED] + tally[:, FAILED]
    n_unknown = tally[:, PENDING] + tally[:, ERRORED]
    n_error = tally[:, ERRORED]
    if errors == "fail":
        n_error = np.bincount(cell[t.outcome == ERRORED], minlength=n_cells)
    weights = run_weights(t)
    shares = _shares(cell, outcome, n_cells, weights, tally)
    failing, known, unknown = shares
    with np.errstate(invalid="ignore", divide="ignore"):
        rate_ = failing / known
        floor, ceiling = failing / (known + unknown), (failing + unknown) / (known + unknown)

    points = drawn(t, fixed)
    exact = points is None and (by_replicate or t.points is None) and not _single(t, fixed)
    exact = exact and not t.random
    if exact:
        low, high = floor.copy(), ceiling.copy()
        basis = np.where(tally[:, PENDING] > 0, BOUNDS, CENSUS).astype(np.int8)
    else:
        basis, n_seen = worth_of(
            t, cell, outcome, n_cells, points, by_replicate, n_known, rate_, level
        )
        # A sample's interval speaks of its known runs; the unknown could all pass or all fail.
        with np.errstate(invalid="ignore"):
            k = np.nan_to_num(rate_ * n_seen).clip(0, n_seen)
            interval = failure_interval(k, n_seen, level=level)
            alike = basis == CLUSTERS
            interval[alike] = failure_interval(k[alike], n_seen[alike], level=level, method="exact")
            low = interval[:, 0] * known / (known + unknown)
            high = (interval[:, 1] * known + unknown) / (known + unknown)
    by_space = t.volume is not None and not t.repeated
    if by_space:
        basis[:] = REFINED
        low, high, rate_ = _refined(t, cell, n_cells, outcome, errors, along, at_points,
                                    (low, high, rate_))  # fmt: skip
    if t.prefix is not None and not by_space and not t.finished:
        going = tally[:, PENDING] > 0
        finite = points is None or t.points is not None
        first = _in_progress(t, cell, outcome, n_cells, tally, level, finite)
        if finite:
            first[:, 0] = np.maximum(first[:, 0], floor)
            first[:, 1] = np.minimum(first[:, 1], ceiling)
        # Where the random runs say more than what finished, the rate is theirs as the bounds are.
        random = (first[:, 0] > floor) | (first[:, 1] < ceiling)
        said = np.where(random & np.isfinite(first[:, 2]), first[:, 2], rate_)
        rate_ = np.where(going, said.clip(first[:, 0], first[:, 1]), rate_)
        low[going], high[going], basis[going] = first[going, 0], first[going, 1], PROGRESS
    nothing = n_known == 0
    low[nothing], high[nothing], basis[nothing] = 0.0, 1.0, NOTHING
    return Counts(
        n_run=n_known,
        n_failed=n_failed,
        n_unknown=n_unknown,
        n_error=n_error,
        rate=rate_,
        low=low,
        high=high,
        boundary=_boundary_share(t, cell, outcome, n_known, exact and with_boundary),
        basis=basis,
    )


def _single(t: Table, fixed: Sequence[str]) -> bool:
    """Whether cells are single runs of drawn points, of which nothing says how they scatter."""
    if settled(t):
        return False
    given = listed(t)
    at = [
        k for k, dim in enumerate(t.dims) if dim in fixed and t.axes[k] is None and dim not in given
    ]
    alone = all(dim in fixed or n == 1 for dim, n in zip(t.dims, t.shape, strict=True))
    return bool(at) and alone and any(t.shape[k] > 1 for k in at)


def _refined(
    t: Table,
    cell: Codes,
    n_cells: int,
    outcome: NDArray[np.int8],
    errors: Errors,
    along: Sequence[Coded] | None,
    at_points: bool,
    plain: tuple[Floats, Floats, Floats],
) -> tuple[Floats, Floats, Floats]:
    """Bounds and rate of refined runs: by volume, and by the scatter of replicates if any."""
    low, high, rate_ = plain
    found = t.shares(errors)
    if found is None:
        # Refined runs are no random sample, and without cells nothing bounds what lies between.
        nothing = np.zeros(n_cells), np.ones(n_cells), rate_
        return nothing if t.stage is not None else plain
    if along is None:
        least, most = _by_volume(found, cell, n_cells, outcome)
    else:
        least, most = slice_bounds(t, found.lattice, cell, n_cells, along, at_points)
        # The few runs at a refined value say less of its slice than the cells around them.
        rate_ = np.clip(rate_, least, most)
    if t.points is not None:
        least, most = np.fmin(least, low), np.fmax(most, high)
    # Of volumes given otherwise the rate may lie beyond.
    return np.fmin(least, rate_), np.fmax(most, rate_), rate_


def run_weights(t: Table) -> Floats | None:
    if t.stage is not None and t.volume is None and not t.repeated:
        raise UnanswerableError(_unweighed(t))
    return t.weights


def _unweighed(t: Table) -> str:
    """Why refined runs have no rate as they are, and which part of them or weights would have."""
    (dim,) = t.ds["stage"].dims or ("run",)
    alone = f'rate(ds.isel({dim}=(ds["stage"] == {t.ds["stage"].values.min()}).values))'
    text = (
        f"these runs hold {len(np.unique(t.ds['stage']))} stages: refined runs crowd where designs "
        "fail, so their plain share is no failure rate; "
    )
    if t.shares() is None:
        return f"{text}as these are of no grid, take those of the first stage: {alone}"
    return (
        f"{text}give each run the share of the space it stands for: "
        f"ds.assign_coords(volume=volumes(ds)), or take those of the first stage: {alone}"
    )


def _shares(
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    weights: Floats | None,
    tally: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """Failed, known and unknown weight per cell."""
    mass: Floats = tally.astype(np.float64)
    if weights is not None:
        code = cell * np.int64(5) + outcome
        mass = np.bincount(code, weights=weights, minlength=5 * n_cells).astype(np.float64)
        mass = mass.reshape(n_cells, 5)
    return (
        mass[:, FAILED],
        mass[:, PASSED] + mass[:, FAILED],
        mass[:, PENDING] + mass[:, ERRORED],
    )


def _by_volume(
    found: Shares, cell: Codes, n_cells: int, outcome: NDArray[np.int8]
) -> tuple[Floats, Floats]:
    """Bounds of deterministic runs: cells of the space whose runs agree are as these are."""
    known = outcome <= FAILED
    decided = np.where(known, found.volume - found.undecided, 0.0)
    fails = outcome == FAILED
    total = np.bincount(cell, weights=found.volume, minlength=n_cells)
    failing = np.bincount(cell[fails], weights=decided[fails], minlength=n_cells)
    sure = np.bincount(cell, weights=decided, minlength=n_cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = failing / total, 1 - (sure - failing) / total
    return low.clip(0, 1), high.clip(0, 1)


def _in_progress(
    t: Table,
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    tally: NDArray[np.int64],
    level: float,
    finite: bool,
) -> Floats:
    """Bounds, and failure rate of the random runs (NaN without any), per cell."""
    prefix = finished_prefix(t)
    at, what = cell[prefix], outcome[prefix]
    drawn = np.bincount(at, minlength=n_cells)
    failed = np.bincount(at[what == FAILED], minlength=n_cells)
    errored = np.bincount(at[what == ERRORED], minlength=n_cells)
    total = tally[:, :SKIPPED].sum(axis=1)
    bounds = anytime_interval(
        failed, drawn, total if finite else np.inf, level=level, n_unknown=errored
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        share = failed / (drawn - errored)
    return np.column_stack([bounds, share])


def finished_prefix(t: Table) -> NDArray[np.int64]:
    """Runs of the coarse pass in their random order, up to the first that is still pending."""
    if t.prefix is None:
        return np.empty(0, dtype=np.int64)
    prefix: NDArray[np.int64] = t.prefix[t.outcome[t.prefix] != SKIPPED]
    pending = np.flatnonzero(t.outcome[prefix] == PENDING)
    return prefix[: pending[0]] if len(pending) else prefix


def _boundary_share(
    t: Table, cell: Codes, outcome: NDArray[np.int8], n_known: NDArray[np.int64], exact: bool
) -> Floats:
    if not exact or not t.grid:
        return np.full(len(n_known), np.nan)
    on = t.boundary if outcome is t.outcome else boundary_of(t, outcome)
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Floats = np.bincount(cell[on], minlength=len(n_known)) / n_known
    if (outcome <= FAILED).all():
        return share
    # Few known neighbours would make a share of almost nothing of any boundary.
    known = outcome <= FAILED
    number, unknown = (
        np.bincount(cell[known], weights=n[known], minlength=len(n_known))
        for n in unknown_neighbours(t, outcome)
    )
    return np.where(2 * unknown > number, np.nan, share)


def basis_words(counts: Counts) -> str:
    """The bases of all cells in a few words, with how many runs are unknown."""
    words = ", ".join(BASES[k] for k in np.unique(counts.basis))
    unknown = int(counts.n_unknown.sum())
    return f"{words}; {unknown} unknown runs as bounds" if unknown else words


def basis_sentence(counts: Counts) -> str:
    """What the intervals rest on, with how many cells where they differ."""
    kinds, numbers = np.unique(counts.basis, return_counts=True)
    words = [f"{BASES[k]} ({MEANINGS[BASES[k]]})" for k in kinds]
    if len(words) == 1:
        text = words[0]
    else:
        text = "; ".join(f"{n} cells: {w}" for w, n in zip(words, numbers, strict=True))
    unknown = int(counts.n_unknown.sum())
    return f"{text}; {unknown} unknown runs as bounds" if unknown else text

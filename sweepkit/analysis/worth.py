"""How many independent runs the runs of a cell are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweepkit.analysis.bases import CLUSTERS, REPLICATES, SAMPLE
from sweepkit.analysis.coding import Codes, Floats, combined
from sweepkit.analysis.intervals import normal_quantile
from sweepkit.analysis.outcomes import FAILED, SKIPPED, declared
from sweepkit.analysis.table import Points, Table, dim_codes, spread

__all__ = ["drawn", "listed", "settled", "worth_of"]


def listed(t: Table) -> set[str]:
    """Run dims whose points a sweep lists one by one, so that they are all there are.

    Of a Dataset from elsewhere, of runs refined at new points and of declarations that do not say
    what was sampled none is known to be.
    """
    told = declared(t.ds)
    if "sampled" not in told:
        return set()
    if t.repeated and not told["sampled"]:
        return set(t.dims)  # flat runs, but of the points of the declared grid alone
    return (set(told.get("dims", ())) - set(told["sampled"])) & set(t.dims)


def settled(t: Table) -> bool:
    """Whether one run of a point tells all of it: the simulator is said to draw nothing."""
    return declared(t.ds).get("random") is False


def drawn(t: Table, fixed: Sequence[str]) -> tuple[NDArray[np.int64], int] | None:
    """Which drawn point each run is of, and how many there are; None where none was drawn.

    Parameters that share a dim may have been drawn together, so their points stand for others,
    unless the sweep lists them. The values of crossed parameters are all there are. Dims in
    `fixed` count as given.
    """
    parts = []
    given_points = listed(t)
    for dim, size, axis in zip(t.dims, t.shape, t.axes, strict=True):
        varied = any(p.role != "replicate" for p in t.parameters if p.dims == (dim,))
        given = axis is not None or dim in fixed or dim in given_points
        if size > 1 and varied and not given:
            parts.append((spread(dim_codes(t, dim, ("design", "scenario"))[0], dim, t), size))
    return combined(parts, t.n) if parts else None


def worth_of(
    t: Table,
    cell: Codes,
    outcome: NDArray[np.int8],
    n_cells: int,
    points: tuple[NDArray[np.int64], int] | None,
    by_replicate: bool,
    n_known: NDArray[np.int64],
    rate_: Floats,
    level: float,
) -> tuple[NDArray[np.int8], Floats]:
    """What a sampling interval of each cell rests on, and how many independent runs it is worth."""
    known = outcome <= FAILED
    basis = np.full(n_cells, SAMPLE, dtype=np.int8)
    worth = total = n_known.astype(np.float64)
    weight = np.ones(1) if t.weights is None else t.weights
    if t.weights is not None:
        total = np.bincount(cell[known], weights=weight[known], minlength=n_cells).astype(float)
        squares = np.bincount(cell[known], weights=weight[known] ** 2, minlength=n_cells)
        with np.errstate(invalid="ignore", divide="ignore"):
            worth = np.nan_to_num(total**2 / squares)  # Kish: as many runs of equal weight
    weight = np.broadcast_to(weight, (t.n,))
    repeats = None if by_replicate else t.points
    if repeats is None and not by_replicate and t.random and points is None:
        # One run of each point of a random simulator: points are strata of one run.
        repeats = Points(np.arange(t.n), np.arange(t.n))
    weighed = _Weighed(cell, outcome, n_cells, weight, total, rate_, worth)
    if repeats is not None:
        several, apart = _fixed_points(repeats, weighed)
        basis[several] = REPLICATES
        worth = np.where(several, apart, worth)
    if points is not None and (t.points is not None or points[1] < t.n):
        alike, together = _drawn_points(points, replace(weighed, plain=worth), level)
        basis[alike] = CLUSTERS
        worth = np.where(alike, together, worth)
    return basis, worth


@dataclass(frozen=True, eq=False)
class _Weighed:
    """Runs by cell, with their weights.

    Attributes
    ----------
    cell, outcome, weight : array, shape (runs,)
    n_cells : int
    total, rate, plain : array of float, shape (n_cells,)
        Weight of the known runs, the failure rate, and how many runs of equal weight they are.
    """

    cell: Codes
    outcome: NDArray[np.int8]
    n_cells: int
    weight: Floats
    total: Floats
    rate: Floats
    plain: Floats


def _fixed_points(repeats: Points, runs: _Weighed) -> tuple[NDArray[np.bool_], Floats]:
    """Cells of several points, and how many independent runs the replicates of these are worth.

    The points are strata: the variance is that of replicates within points, W. G. Cochran,
    Sampling Techniques (1977), 5.3, as an effective number of runs in Wilson's interval: X. Yan
    and X. G. Su, Stat. Biopharm. Res. 2 (2010), 329-335. A point's p (1 - p) is taken as
    (f + 1) (n - f + 1) / ((n + 1) (n + 2)), whose expectation is never below it, so that points
    of few replicates do not feign certainty; nor are runs worth less than if they were pooled.
    """
    cell, outcome, n_cells, rate_ = runs.cell, runs.outcome, runs.n_cells, runs.rate
    n_points = len(repeats.first)
    known = outcome <= FAILED
    of = repeats.of[known]
    n = np.bincount(of, minlength=n_points)
    f = np.bincount(repeats.of[outcome == FAILED], minlength=n_points)
    mass = np.bincount(of, weights=runs.weight[known], minlength=n_points)
    home = cell[repeats.first]
    declared = np.bincount(repeats.of[outcome != SKIPPED], minlength=n_points) > 0
    several = np.bincount(home[declared & (repeats.first >= 0)], minlength=n_cells) > 1
    seen = n > 0
    n, f, mass, home = n[seen], f[seen], mass[seen], home[seen]
    scatter = (f + 1) * (n - f + 1) / ((n + 1) * (n + 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        summed = np.bincount(home, weights=mass**2 * scatter / n, minlength=n_cells)
        variance = summed / runs.total**2
        worth = np.fmax(runs.plain, rate_ * (1 - rate_) / variance)
    return several, np.nan_to_num(worth)


def _drawn_points(
    points: tuple[NDArray[np.int64], int], runs: _Weighed, level: float
) -> tuple[NDArray[np.bool_], Floats]:
    """Cells of several drawn points with several runs each, and what these runs are worth.

    The variance of the rate is taken between points (a ratio estimate), turned into an effective
    number of runs and reduced for the few points it was estimated from: E. L. Korn and
    B. I. Graubard, Survey Methodology 24 (1998), 193-201, with Clopper and Pearson's interval. The
    degrees of freedom are those of F. E. Satterthwaite, Biometrics Bull. 2 (1946), 110-114: a few
    points that stand out tell less of the variance than as many even ones.
    """
    from scipy.special import stdtrit

    cell, outcome, n_cells, rate_ = runs.cell, runs.outcome, runs.n_cells, runs.rate
    of, n_points = points
    there = np.flatnonzero(outcome != SKIPPED)
    both, _ = pd.factorize(cell[there] * np.int64(n_points) + of[there])
    n_both = int(both.max(initial=-1)) + 1
    home = np.zeros(n_both, dtype=np.int64)
    home[both] = cell[there]
    n_points_declared = np.bincount(home, minlength=n_cells)
    crowded = np.bincount(home[np.bincount(both, minlength=n_both) > 1], minlength=n_cells) > 0
    alike = (n_points_declared > 1) & crowded

    known = outcome[there] <= FAILED
    fails = outcome[there] == FAILED
    w = runs.weight[there]
    mass = np.bincount(both[known], weights=w[known], minlength=n_both)
    failing = np.bincount(both[fails], weights=w[fails], minlength=n_both)
    m = np.bincount(home[mass > 0], minlength=n_cells).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.nan_to_num(failing - rate_[home] * mass)
        between = np.bincount(home, weights=residual**2, minlength=n_cells)
        variance = m / (m - 1) * between / runs.total**2
        worth = rate_ * (1 - rate_) / variance
        fourth = np.bincount(home, weights=residual**4, minlength=n_cells)
        kurtosis = np.nan_to_num(m * fourth / between**2, nan=1.0)
        most = np.maximum(m - 1, 1)
        freedom = np.clip(2 * m / (kurtosis - 1 + 2 / most), 1, most)
        shrink = (normal_quantile(level) / stdtrit(freedom, (1 + level) / 2)) ** 2
        # Points that all agree tell nothing of how runs scatter: each counts once.
        sure = (rate_ == 0) | (rate_ == 1) | (m < 2)
        worth = np.where(sure, m, np.fmin(worth, runs.plain) * shrink)
    return alike, np.nan_to_num(worth)

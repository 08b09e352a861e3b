"""Which parameters matter: variance shares and distances between passed and failed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.additive import Indices, fitted, noise_alone
from sweepkit.analysis.answerable import passed_and_failed
from sweepkit.analysis.coding import Coded, Codes, Floats, shown
from sweepkit.analysis.neighbours import axis_codes
from sweepkit.analysis.numbers import run_numbers
from sweepkit.analysis.outcomes import FAILED, PASSED, Errors, Failed, UnanswerableError
from sweepkit.analysis.table import Table, Weights, table
from sweepkit.analysis.unrefined import left_out, unrefined

__all__ = ["importance"]

RARE = 0.01
"""Below this share of the rarer outcome, variance shares rank the noise: KS ranks instead."""
N_OUTPUT_BINS = 200


def importance(
    ds: xr.Dataset | Table,
    of: str = "failed",
    *,
    weights: Weights = None,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> xr.Dataset:
    """What matters: how much of the variance of a result each parameter explains.

    On a complete grid the shares are exact, from weighted means over dims. On scattered runs S1
    and S2 of a numeric output are the explained variances of an additive model in cosines of
    each parameter's rank and of their products, less what noise would explain; ST is unknown.
    Of passing and failing, scattered runs tell KS and lift alone. A refined grid is taken without
    its refinements.

    Parameters
    ----------
    ds : Dataset or Table
    of : str
        "failed", or the name of an output with one number per run.
    weights, requirements, failed
        As in `table`.
    errors : {"apart", "fail"}
        With "fail" errors count as failures, which may complete a grid.

    Returns
    -------
    Dataset
        Over ``parameter``: ``S1`` (share explained alone), ``ST`` (share that would remain if
        all others were known), ``KS`` (largest distance between the distributions of passed and
        failed runs; over unordered values, the total variation; of an output, the largest
        distance between its distribution at one value and overall), ``lift`` (highest rate at
        one value over the overall rate) and ``lift_at``; ``rank`` from 1. Over ``parameter`` and
        ``other``: ``S2`` (share explained by a pair beyond its parts). ``noise``: the share that
        needs the replicates. All dimensionless but ``variance``, that of the finished runs.
        ``attrs["basis"]`` says what they rest on, ``attrs["ranked_by"]`` what ranks, and
        ``attrs["note"]`` why a number is NaN.

    Raises
    ------
    UnanswerableError
        If no run has finished, all have the same outcome, or the output does not vary.

    References
    ----------
    I. M. Sobol', Math. Comput. Simul. 55 (2001), 271-280, for the shares;
    R. C. Spear and G. M. Hornberger, Water Res. 14 (1980), 43-49, for KS;
    F. Pianosi and T. Wagener, Environ. Model. Softw. 67 (2015), 1-11, for KS of an output;
    S. Tarantola, D. Gatelli and T. A. Mara, Reliab. Eng. Syst. Saf. 91 (2006), 717-727, for
    harmonics along the rank.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [True, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> importance(ds)["S1"].values.tolist()
    [1.0, 0.0]
    """
    of_failed = of == "failed"
    t = table(
        ds,
        failed=failed,
        requirements=requirements,
        errors=errors if of_failed else "fail",
    )
    t, left = unrefined(t)
    t = t if weights is None else table(t, weights=weights)
    y = _failures(t, errors) if of_failed else _output(t, of)
    known = ~np.isnan(y)
    names = [p.name for p in t.parameters]
    result = Indices.empty(len(names))
    if t.grid and known.all() and t.volume is None:
        _exact(t, y, result)
        basis = "census: exact on the complete grid"
        if any(p.role == "replicate" and p.n > 1 for p in t.parameters):
            basis = "exact on the complete grid; replicates are part of it as noise"
    elif t.grid:
        missing = int((~known).sum())
        result.notes.append(
            f"S1, ST and S2 need a complete grid and {missing} of {t.n} runs are missing or "
            "unknown; KS and lift use the others"
        )
        basis = "the finished runs of an incomplete grid"
    elif of_failed:
        noise_alone(t, y, known, result)
        basis = f"distances between passed and failed of {int(known.sum())} scattered runs"
        result.notes.append(
            "S1, ST and S2 of passing and failing need a complete grid: models fitted to scattered "
            "ones and zeros misrank failures at the ends of a range; of= a numeric output has an S1"
        )
    else:
        fitted(t, y, known, result)
        basis = f"additive model of {int(known.sum())} scattered runs"
        result.notes.append("ST needs a complete grid; scattered runs do not tell it")
    ks, lift, lift_at = _distances(t, y, known, of_failed)
    share = float(np.mean(y[known])) if of_failed else 0.5
    rare = min(share, 1 - share) < RARE
    by_ks = np.isnan(result.s1).any() or (of_failed and (rare or not t.grid))
    if of_failed and rare:
        result.notes.append(
            f"only {100 * min(share, 1 - share):.2g} % of runs {'fail' if share < 0.5 else 'pass'}"
            ", where variance shares say little: ranked by KS and lift"
        )
    ranked_by = "KS" if by_ks else "ST" if t.grid else "S1"
    score = {"KS": ks, "ST": result.st, "S1": result.s1}[ranked_by]
    noise_last = np.array([p.role == "replicate" for p in t.parameters])
    order = np.lexsort((-np.nan_to_num(lift), -np.nan_to_num(score), noise_last))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(1, len(names) + 1)
    result.notes.append("S2 of a parameter with itself is NaN: a pair has two")
    if np.isnan(result.noise):
        result.notes.append("noise is NaN: no point has two known replicates")
    if np.isnan(result.variance):
        result.variance = float(np.var(y[known]))
    if not of_failed:
        result.notes.append("lift is of failures only, so it is NaN for an output")
    basis = left_out(basis, left)
    return _dataset(names, result, ks, lift, lift_at, rank, basis, ranked_by, of)


def _failures(t: Table, errors: Errors) -> Floats:
    outcome = passed_and_failed(t, errors)
    y: Floats = np.full(t.n, np.nan)
    y[outcome == PASSED], y[outcome == FAILED] = 0.0, 1.0
    return y


def _output(t: Table, of: str) -> Floats:
    if of not in t.ds:
        raise ValueError(f"of={of!r} is neither 'failed' nor a variable of this Dataset")
    y = run_numbers(t, of, lacking="which has no variance")
    y[(t.outcome > FAILED) | ~np.isfinite(y)] = np.nan
    known = y[~np.isnan(y)]
    if not len(known):
        raise UnanswerableError(f"no finished run has a finite {of!r}")
    if known.min() == known.max():
        raise UnanswerableError(
            f"{of!r} is {known[0]:g} in all {len(known)} finished runs, so nothing matters to it"
        )
    return y


def _exact(t: Table, y: Floats, result: Indices) -> None:
    """Fill in exact shares on a complete grid by averaging dims away."""
    cube = y.reshape(t.shape)
    shares = [_position_shares(t, k) for k in range(len(t.dims))]
    mean = float(_means(cube, shares, ()))
    variance = _spread_of(cube - mean, shares, tuple(range(cube.ndim)))
    result.variance = variance
    axis_of = {axis.name: k for k, axis in enumerate(t.axes) if axis is not None}
    at = {axis_of[p.name]: i for i, p in enumerate(t.parameters) if p.name in axis_of}
    others: dict[int, Floats] = {}
    ndim = cube.ndim
    for k in range(ndim):
        others[k] = np.tensordot(cube - mean, shares[k], axes=([k], [0]))
        rest = [s for j, s in enumerate(shares) if j != k]
        total = 1 - _spread_of(others[k], rest, tuple(range(ndim - 1))) / variance
        result.st[at[k]] = max(total, 0.0)
    alone = np.zeros(ndim)
    for k in range(ndim):
        alone[k] = _explained(cube - mean, shares, (k,), others) / variance
        result.s1[at[k]] = alone[k]
    for k, j in combinations(range(ndim), 2):
        both = _explained(cube - mean, shares, (k, j), others) / variance
        share = both - alone[k] - alone[j]
        result.s2[at[k], at[j]] = result.s2[at[j], at[k]] = max(share, 0.0)
    noisy = [k for k, axis in enumerate(t.axes) if axis is not None and axis.role == "replicate"]
    kept = tuple(k for k in range(ndim) if k not in noisy)
    result.noise = (
        1 - _explained(cube - mean, shares, kept, {}) / variance
        if any(t.shape[k] > 1 for k in noisy)
        else 0.0
    )
    for i, p in enumerate(t.parameters):
        if p.name not in axis_of:
            result.s1[i] = _between(p.codes, p.n, y - mean, t.weights) / variance
            result.notes.append(f"{p.name!r} follows from others: it has no ST or S2")


def _position_shares(t: Table, k: int) -> Floats:
    """Weight of each position along an axis, with sum 1."""
    axis = t.axes[k]
    if axis is None or axis.weights is None:
        return np.full(t.shape[k], 1 / t.shape[k])
    share: Floats = axis.weights[axis_codes(t, k)]
    total: float = share.sum()
    return share / total


def _means(cube: Floats, shares: Sequence[Floats], kept: tuple[int, ...]) -> Floats:
    """Weighted means over all axes but those kept."""
    for k in reversed(range(cube.ndim)):
        if k not in kept:
            cube = np.tensordot(cube, shares[k], axes=([k], [0]))
    return cube


def _spread_of(deviation: Floats, shares: Sequence[Floats], axes: tuple[int, ...]) -> float:
    """Weighted mean square over all axes."""
    return float(_means(deviation**2, [shares[k] for k in axes], ()))


def _explained(
    deviation: Floats, shares: Sequence[Floats], kept: tuple[int, ...], others: dict[int, Floats]
) -> float:
    """Variance of the mean given the kept axes, starting from a cube already one dim smaller."""
    away = [k for k in others if k not in kept]
    if away:
        k = max(away, key=lambda j: len(shares[j]))
        deviation = others[k]
        shares = [s for j, s in enumerate(shares) if j != k]
        kept = tuple(j - (j > k) for j in kept)
    means = _means(deviation, shares, kept)
    return _spread_of(means, [shares[j] for j in sorted(kept)], tuple(range(len(kept))))


def _between(codes: Codes, n: int, deviation: Floats, weights: Floats | None) -> float:
    mass = np.bincount(codes, weights=weights, minlength=n).astype(np.float64)
    w = deviation if weights is None else deviation * weights
    total = np.bincount(codes, weights=w, minlength=n)
    used = mass > 0
    return float((total[used] ** 2 / mass[used]).sum() / mass.sum())


def _distances(
    t: Table, y: Floats, known: NDArray[np.bool_], of_failed: bool
) -> tuple[Floats, Floats, list[str]]:
    """KS distance, highest lift and where, per parameter."""
    n = len(t.parameters)
    ks, lift, lift_at = np.full(n, np.nan), np.full(n, np.nan), [""] * n
    weights = t.weights
    whole = bool(known.all())
    y_known = y if whole else y[known]
    bins, n_bins = (y_known > 0, 2) if of_failed else _output_bins(y_known)
    w = None if weights is None else weights if whole else weights[known]
    bins = bins.astype(np.int64)
    for i, p in enumerate(t.parameters):
        codes = p.codes if whole else p.codes[known]
        flat = np.bincount(codes * np.int64(n_bins) + bins, weights=w, minlength=p.n * n_bins)
        mass = flat.reshape(p.n, n_bins).astype(np.float64)
        at_value, overall = mass.sum(axis=1), mass.sum(axis=0)
        if of_failed:
            apart = mass[:, 1] / overall[1] - mass[:, 0] / overall[0]
            ks[i] = np.abs(np.cumsum(apart)).max() if p.ordered else np.abs(apart).sum() / 2
            lift[i], lift_at[i] = _lift(p, mass, at_value, overall)
            continue
        used = at_value > 0
        given = np.cumsum(mass[used], axis=1) / at_value[used][:, None]
        ks[i] = np.abs(given - np.cumsum(overall) / overall.sum()).max()
    return ks, lift, lift_at


def _lift(p: Coded, mass: Floats, at_value: Floats, overall: Floats) -> tuple[float, str]:
    # A bin of few runs would win by chance, so a scattered parameter is taken in ten.
    to = np.arange(p.n) * 10 // p.n if p.binned else np.arange(p.n)
    fails = np.bincount(to, weights=mass[:, 1])
    runs = np.bincount(to, weights=at_value)
    with np.errstate(invalid="ignore", divide="ignore"):
        lift = np.nan_to_num(fails / runs) / (overall[1] / overall.sum())
    best = int(np.argmax(lift))
    if p.binned:
        members = np.flatnonzero(to == best)
        return float(lift[best]), f"{shown(p.lower[members[0]])} to {shown(p.upper[members[-1]])}"
    return float(lift[best]), p.label(best)


def _output_bins(y: Floats) -> tuple[Codes, int]:
    some = np.sort(y[:: max(1, len(y) // 100_000)])
    edges = np.unique(some[(np.arange(1, N_OUTPUT_BINS) * len(some)) // N_OUTPUT_BINS])
    return np.searchsorted(edges, y, side="right"), len(edges) + 1


def _dataset(
    names: list[str],
    result: Indices,
    ks: Floats,
    lift: Floats,
    lift_at: list[str],
    rank: NDArray[np.int64],
    basis: str,
    ranked_by: str,
    of: str,
) -> xr.Dataset:
    one = {"units": "1"}
    s1_about = {**one, "long_name": "share explained alone"}
    return xr.Dataset(
        {
            "S1": ("parameter", result.s1, s1_about),
            "ST": ("parameter", result.st, {**one, "long_name": "share with all interactions"}),
            "KS": ("parameter", ks, {**one, "long_name": "largest distance of distributions"}),
            "lift": ("parameter", lift, {**one, "long_name": "highest rate over overall rate"}),
            "lift_at": ("parameter", np.array(lift_at, dtype=object), {}),
            "rank": ("parameter", rank, {"long_name": "rank, 1 matters most"}),
            "S2": (
                ("parameter", "other"),
                result.s2,
                {**one, "long_name": "share explained by the pair beyond its parts"},
            ),
            "noise": ((), result.noise, {**one, "long_name": "share that needs the replicates"}),
            "variance": ((), result.variance, {"long_name": f"variance of {of}"}),
        },
        coords={"parameter": names, "other": names},
        attrs={
            "basis": basis,
            "ranked_by": ranked_by,
            "of": of,
            "note": "; ".join(dict.fromkeys(result.notes)),
        },
    )

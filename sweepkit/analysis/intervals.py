"""Confidence intervals of a failure rate from counts alone."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sweepkit.analysis.coding import Floats
from sweepkit.analysis.reasons import check_share

__all__ = ["anytime_interval", "check_level", "failure_interval", "normal_quantile"]

Method: TypeAlias = Literal["wilson", "wilson-cc", "exact", "jeffreys"]


def failure_interval(
    n_failed: ArrayLike, n_run: ArrayLike, *, level: float = 0.95, method: Method = "wilson"
) -> Floats:
    """Confidence interval of a failure rate from independent runs.

    Parameters
    ----------
    n_failed, n_run : array of int, shape (...)
        Failed and finished runs per design.
    level : float
        Coverage, between 0 and 1.
    method : {"wilson", "wilson-cc", "exact", "jeffreys"}
        Wilson's score (the default; close to `level` on average), the same with continuity
        correction, Clopper and Pearson's (never below `level`), or Jeffreys' with the ends at no
        failure and all failures fixed at 0 and 1.

    Returns
    -------
    array of float, shape (..., 2)
        Lower and upper bound, dimensionless; NaN where nothing has run.

    Raises
    ------
    ValueError
        If more runs failed than finished, shapes do not fit, or `level` is not between 0 and 1.

    References
    ----------
    E. B. Wilson, J. Am. Stat. Assoc. 22 (1927), 209-212. R. G. Newcombe, Statist. Med. 17 (1998),
    857-872. C. J. Clopper and E. S. Pearson, Biometrika 26 (1934), 404-413. L. D. Brown,
    T. T. Cai and A. DasGupta, Statist. Sci. 16 (2001), 101-133.

    Examples
    --------
    >>> failure_interval(3, 20).round(3).tolist()
    [0.052, 0.36]
    """
    check_level(level)
    k, n = _counts(n_failed=n_failed, n_run=n_run)
    if ((k < 0) | (k > n)).any():
        at = np.argmax(((k < 0) | (k > n)).reshape(-1))
        raise ValueError(
            f"{k.reshape(-1)[at]:g} of {n.reshape(-1)[at]:g} runs failed; between none and all can"
        )
    bounds = {"wilson": _wilson, "wilson-cc": _wilson_cc, "exact": _exact, "jeffreys": _jeffreys}
    if method not in bounds:
        raise ValueError(f"method={method!r} is none of {', '.join(map(repr, bounds))}")
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = bounds[method](k, n, level)
    low, high = np.where(k == 0, 0.0, low), np.where(k == n, 1.0, high)
    interval: Floats = np.stack([low, high], axis=-1).clip(0, 1)
    interval[n == 0] = np.nan
    return interval


def _counts(**given: ArrayLike) -> tuple[Floats, ...]:
    """Counts as floats of one shape."""
    counts = {name: np.asarray(value, dtype=np.float64) for name, value in given.items()}
    try:
        return np.broadcast_arrays(*counts.values())
    except ValueError:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in counts.items())
        raise ValueError(f"the shapes of {shapes} do not fit each other") from None


def _wilson(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    z = normal_quantile(level)
    p = k / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return centre - half, centre + half


def _wilson_cc(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    z = normal_quantile(level)
    p, q = k / n, 1 - k / n
    below = z * np.sqrt(np.maximum(z**2 - 2 - 1 / n + 4 * p * (n * q + 1), 0))
    above = z * np.sqrt(np.maximum(z**2 + 2 - 1 / n + 4 * p * (n * q - 1), 0))
    scale = 2 * (n + z**2)
    return (2 * k + z**2 - 1 - below) / scale, (2 * k + z**2 + 1 + above) / scale


def _exact(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    tail = (1 - level) / 2
    return _beta_quantile(k, n - k + 1, tail), _beta_quantile(k + 1, n - k, 1 - tail)


def _jeffreys(k: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    tail = (1 - level) / 2
    return (
        _beta_quantile(k + 0.5, n - k + 0.5, tail),
        _beta_quantile(k + 0.5, n - k + 0.5, 1 - tail),
    )


def _beta_quantile(a: Floats, b: Floats, q: float) -> Floats:
    from scipy.special import betaincinv

    return np.asarray(betaincinv(a, b, q), dtype=np.float64)


def normal_quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def check_level(level: float) -> None:
    check_share("level", level)


def anytime_interval(
    n_failed: ArrayLike,
    n_run: ArrayLike,
    n_total: ArrayLike,
    *,
    level: float = 0.95,
    n_unknown: ArrayLike = 0,
) -> Floats:
    """Interval of a failure rate that may be looked at after every run.

    With probability `level` it holds the truth at all looks together, so stopping when it looks
    good is fair. The runs must have been drawn in a uniformly random order, without replacement.

    Parameters
    ----------
    n_failed, n_run, n_total : array of int, shape (...)
        Failed among the runs drawn so far, drawn so far, and declared; infinite `n_total` is a
        sample of independent runs from a continuum.
    level : float
        Coverage over all looks, between 0 and 1.
    n_unknown : array of int, shape (...)
        How many of those drawn errored: they count as passed below and as failed above.

    Returns
    -------
    array of float, shape (..., 2)
        Lower and upper bound, dimensionless; it closes when all declared runs are drawn.

    Raises
    ------
    ValueError
        If more runs failed or are unknown than were drawn, more were drawn than are declared, or
        shapes do not fit.

    References
    ----------
    I. Waudby-Smith and A. Ramdas, Confidence sequences for sampling without replacement,
    NeurIPS 33 (2020): the prior-posterior-ratio martingale, here with a uniform prior.

    Examples
    --------
    >>> anytime_interval([0, 3], [0, 20], 20).tolist()
    [[0.0, 1.0], [0.15, 0.15]]
    """
    check_level(level)
    s, t, total, unknown = _counts(
        n_failed=n_failed, n_run=n_run, n_total=n_total, n_unknown=n_unknown
    )
    odd = ~((s >= 0) & (unknown >= 0) & (s + unknown <= t) & (t <= total))
    if odd.any():
        at = int(np.argmax(odd.reshape(-1)))
        s, unknown, t, total = (v.reshape(-1)[at] for v in (s, unknown, t, total))
        raise ValueError(
            f"{s:g} of {t:g} runs drawn failed and {unknown:g} are unknown, of {total:g} declared; "
            "counts are at least 0, and none is more than those it is among"
        )
    low = _anytime_bound(s, t, total, 1 - level, upper=False)
    high = _anytime_bound(s + unknown, t, total, 1 - level, upper=True)
    return np.stack([low, high], axis=-1)


def _anytime_bound(s: Floats, t: Floats, total: Floats, alpha: float, *, upper: bool) -> Floats:
    """The furthest rate whose posterior is above alpha times its prior, by bisection."""
    endless = np.isinf(total)
    n = np.where(endless, 1.0, total)
    rest = np.where(endless, 1.0, n - t)
    seen = np.where(t > 0, t, 1.0)

    def inside(more: Floats) -> NDArray[np.bool_]:
        known = _log_beta_binomial(more, rest, 1 + s, 1 + t - s) > np.log(alpha / (n + 1))
        if endless.any():
            known = np.where(endless, _log_beta(more, 1 + s, 1 + t - s) > np.log(alpha), known)
        return known

    mode = np.where(endless, s / seen, np.floor((rest + 1) * s / seen).clip(0, rest))
    good, bad = mode, np.where(upper, rest + 1, -1.0)
    good, bad = np.where(endless, mode, good), np.where(endless, float(upper), bad)
    steps = int(np.ceil(np.log2(max(float(np.max(rest, initial=1.0)) + 2, 2)))) + 1
    for _ in range(60 if endless.any() else steps):
        centre = (good + bad) / 2
        centre = np.where(endless, centre, np.floor(centre) if upper else np.ceil(centre))
        ok = inside(centre.clip(0, rest)) & (endless | ((centre >= 0) & (centre <= rest)))
        good, bad = np.where(ok, centre, good), np.where(ok, bad, centre)
    bound: Floats = np.where(endless, good, (s + good) / np.maximum(n, 1))
    nothing = (t == 0) | (n == 0)
    return np.where(nothing, float(upper), bound)


def _log_beta_binomial(k: Floats, n: Floats, a: Floats, b: Floats) -> Floats:
    from scipy.special import betaln, gammaln

    choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(choose + betaln(k + a, n - k + b) - betaln(a, b))


def _log_beta(p: Floats, a: Floats, b: Floats) -> Floats:
    from scipy.special import betaln, xlog1py, xlogy

    return np.asarray(xlogy(a - 1, p) + xlog1py(b - 1, -p) - betaln(a, b))

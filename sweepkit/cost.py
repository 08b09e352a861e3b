"""Cost per run in seconds: declared, or learnt from finished runs, with its uncertainty.

:class:`Cost` is the mean of all runs. :class:`Costs` tells runs apart by their parameters: a
Bayesian linear regression of the log of a run's duration. It keeps some of the runs seen, says how
sure it is, and is unsure where nothing has run. A declared cost gives the shape, what runs took
its level; beyond the values seen no trend is drawn out, only doubt grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweepkit.declared import LEAST_SECONDS, Declared, declared_seconds
from sweepkit.features import Features
from sweepkit.grid import Grid

__all__ = ["Cost", "Costs", "Total"]

Array: TypeAlias = NDArray[np.float64]

SHRINKAGE = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Prior precisions of the weights, relative to the noise, of which the likeliest is taken; but
none far above the number of runs seen: so few cannot tell that a parameter does not matter."""
SURE = 3.0
"""By how much the log of the evidence must speak for a trend in what a declared cost leaves."""
PRIOR_RUNS = 3.0
DECLARED_RUNS = 10.0
PRIOR_SPREAD = 0.3
"""The relative spread of equal runs that is assumed before any is seen, as if of so many runs; of
more if a cost is declared."""
MOST_SPREAD = 2.0
FEW = 3.0
"""How far off, by its log, a total may be at least if it is told from one run, which says nothing
of how runs differ; of more runs as many times less. A declared function says it."""
BEYOND = 0.2
"""The spread of the log of a cost for each spread of a parameter beyond its values seen."""
MOST_BEYOND = 1.5
MOST_FACTOR = 1e4
MOST_LOG = 46.0
"""A run that is expected to take longer, by the log of its seconds, is taken to take this."""
MOST_KEPT = 1024
"""Runs learnt from that are kept; of more, some stand for all."""
REFIT = 1.03
"""By which factor more runs must be known for the regression to be made anew."""
FAR = 4.0
"""A run that took less, by so many spreads of the log, than the others tell counts as if it had
taken just that."""
CLIPPINGS = 8
MOST_LEVERAGE = 0.98
CHUNK = 65_536


@dataclass(frozen=True)
class Cost:
    """Running mean and spread of the duration of runs.

    Attributes
    ----------
    count : int
        Runs seen.
    mean, squares : float
        Mean duration in seconds, and sum of squared deviations from it.
    recent : float
        Mean duration of late, in seconds, which follows a drift.
    longest : float
        Longest run, in seconds.
    """

    count: int = 0
    mean: float = math.nan
    squares: float = 0.0
    recent: float = math.nan
    longest: float = 0.0

    def after(self, durations: NDArray[np.float64]) -> Cost:
        """The cost once more runs have finished."""
        n = len(durations)
        if not n:
            return self
        mean, squares = float(durations.mean()), float(durations.var() * n)
        longest = max(self.longest, float(durations.max()))
        if not self.count:
            return Cost(n, mean, squares, mean, longest)
        total = self.count + n
        step = mean - self.mean
        weight = 0.3
        return Cost(
            total,
            self.mean + step * n / total,
            self.squares + squares + step**2 * self.count * n / total,
            self.recent * (1 - weight) + mean * weight,
            longest,
        )

    @property
    def spread(self) -> float:
        """Standard deviation of the duration, in seconds; NaN for fewer than two runs."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else math.nan

    def remaining(self, runs: int, workers: int) -> tuple[float, float, float]:
        """Wall time for more runs as (expected, low, high), in seconds; NaN while unknown.

        Low and high are as many times less and more: by two standard errors of the sum of
        ``runs`` durations, as if they were drawn like those seen, and by what the mean itself is
        uncertain.
        """
        if not self.count:
            return math.nan, math.nan, math.nan
        work = self.mean * runs
        spread = self.spread if self.count > 1 else self.mean
        error = 2 * spread * math.sqrt(runs + runs**2 / self.count)
        factor = 1 + error / work if work > 0 else 1.0
        low, high = work / factor, work * factor
        tail = self.longest if runs else 0.0
        return work / workers, low / workers, high / workers + tail * (1 - 1 / workers)


# --- learning -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Total:
    """Sums over runs, in seconds, and how uncertain they are.

    Attributes
    ----------
    seconds : float
        Expected sum of the runs' costs.
    factor : float
        Its 95 % interval is from so many times less to so many times more.
    """

    seconds: float
    factor: float

    @property
    def error(self) -> float:
        """How far above the sum its 95 % interval reaches, in seconds."""
        return self.seconds * (self.factor - 1)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The regression at a moment: mean and covariance of the weights, and the noise."""

    weights: Array
    factor: Array
    """Lower triangular L with the weights' covariance L L^T, relative to the noise."""
    noise: float
    """Variance of the log of a run's cost around what its parameters tell."""
    freedom: float
    lift: float
    """Mean cost of runs of which the regression of the log tells 1."""
    count: int
    """Runs that had been learnt from."""
    reach: Features | None = None
    """Features that go no further than the runs learnt from."""
    trend: Array | None = None
    """Slopes along the linear features as hardly shrunk: what may go on beyond these runs."""


@dataclass(frozen=True, eq=False)
class Costs:
    """What is known of the cost of each run of a grid.

    Attributes
    ----------
    features : Features
    declared : float or callable, optional
        What was said of the cost; then what is learnt is by which factor reality differs from it.
    count : int
        Runs learnt from.
    kept : array of int, shape (k,)
        Those of them that are kept: all, or of many each second, fourth, ... in their order.
    seconds, offsets : array of float, shape (k,)
        What these took, and the log of what was said of them.
    """

    features: Features
    declared: Declared | None = None
    count: int = 0
    kept: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    seconds: Array = field(default_factory=lambda: np.zeros(0))
    offsets: Array = field(default_factory=lambda: np.zeros(0))
    _before: _Fit | None = None

    @classmethod
    def of(cls, grid: Grid, declared: Declared | None = None) -> Costs:
        """What is known before any run has finished."""
        features = Features.of(grid)
        if callable(declared):  # the function carries the shape: what is learnt is a factor
            features = replace(features, singles=(), pairs=(), places=())
        return cls(features, declared)

    @property
    def known(self) -> bool:
        """Whether anything can be said."""
        return self.count > 0 or self.declared is not None

    def after(self, runs: NDArray[np.int64], seconds: Array) -> Costs:
        """What is known once more runs have finished."""
        if not len(runs):
            return self
        count = self.count + len(runs)
        before, step = _step(self.count), _step(count)
        thin = slice(None, None, step // before)
        some = np.arange(-self.count % step, len(runs), step)
        took = np.maximum(seconds[some], LEAST_SECONDS)
        return replace(
            self,
            count=count,
            kept=np.concatenate([self.kept[thin], runs[some]]),
            seconds=np.concatenate([self.seconds[thin], took]),
            offsets=np.concatenate([self.offsets[thin], self._offset(runs[some])]),
            _before=self.__dict__.get("_fit", self._before),
        )

    def _offset(self, runs: NDArray[np.int64]) -> Array:
        if self.declared is None:
            return np.zeros(len(runs))
        seconds = declared_seconds(self.declared, self.features.grid, runs)
        return np.log(seconds) - PRIOR_SPREAD**2 / 2  # what is declared is taken for the mean

    @cached_property
    def _fit(self) -> _Fit:
        """The regression; that of before while hardly more is known."""
        if self._before is not None and self.count < REFIT * self._before.count:
            return self._before
        told = self.declared is not None
        x = self.features(self.kept)
        y = np.log(self.seconds) - self.offsets
        prior = self._prior_runs
        clipped, fit = y, _regression(x, y, told=told, prior_runs=prior)
        for _ in range(CLIPPINGS):
            # A run that cost next to nothing says little of the others, but its log would.
            own = np.minimum(((x @ fit.factor) ** 2).sum(axis=1), MOST_LEVERAGE)
            alone = clipped - (clipped - x @ fit.weights) / (1 - own)  # as told by the others
            scale = 1.4826 * float(np.median(np.abs(y - alone))) if len(y) else 0.0
            least = alone - FAR * max(scale, PRIOR_SPREAD)
            before, clipped = clipped, np.maximum(y, least)
            if np.allclose(before, clipped, atol=0.01):
                break
            fit = _regression(x, clipped, told=told, prior_runs=prior)
        usual = np.exp(np.minimum(x @ fit.weights + self.offsets, MOST_LOG))
        runs, lift = self._prior_runs, math.exp(PRIOR_SPREAD**2 / 2)
        if len(usual):
            ratio = float(self.seconds.sum() / usual.sum())
            lift = (runs * lift + len(usual) * ratio) / (runs + len(usual))
        reach = self.features.within(self.kept)
        trend = _trend(x[:, self._linear], clipped)
        return replace(fit, lift=lift, count=self.count, reach=reach, trend=trend)

    @property
    def _prior_runs(self) -> float:
        """Runs that what is assumed of the spread counts for: more where much is declared.

        A number is the mean of runs and tells nothing of how they differ, once some are seen.
        """
        told = callable(self.declared) or (self.declared is not None and not self.count)
        return DECLARED_RUNS if told else PRIOR_RUNS

    @property
    def _few(self) -> float:
        """How far off a total may be, by its log, for how few runs it is told from."""
        return FEW / self.count if self.count and not callable(self.declared) else 0.0

    @property
    def _linear(self) -> list[int]:
        """Columns of the features that are linear."""
        return [1 + at for at, place in enumerate(self.features.places) if at == place]

    @property
    def noise(self) -> float:
        """Relative spread of a run's cost around what its parameters tell."""
        return math.sqrt(min(self._fit.noise, MOST_SPREAD**2)) if self.known else math.nan

    @property
    def share(self) -> float:
        """What runs took as a share of what was declared of them; NaN without either."""
        if self.declared is None or not self.count:
            return math.nan
        told = self.offsets + PRIOR_SPREAD**2 / 2
        return math.exp(float(np.median(np.log(self.seconds) - told)))

    def _log(self, runs: NDArray[np.int64]) -> tuple[Array, Array]:
        """Mean of the log of the cost, and the features that it is told from."""
        fit = self._fit
        x = (fit.reach or self.features)(runs)
        return np.minimum(x @ fit.weights + self._offset(runs), MOST_LOG), x

    def _beyond(self, runs: NDArray[np.int64], x: Array) -> Array:
        """Spread of the log of the cost for the sake of what lies beyond the values seen.

        There a trend may go on or end: it is taken for a spread, not for what is expected.
        """
        fit = self._fit
        if fit.reach is None or fit.trend is None or fit.reach is self.features:
            return np.zeros(len(runs))
        step = self.features(runs) - x
        linear = step[:, self._linear]
        variance: Array = (
            (linear @ fit.trend) ** 2
            + fit.noise * ((step @ fit.factor) ** 2).sum(axis=1)
            + BEYOND**2 * (linear**2).sum(axis=1)
        )
        return np.sqrt(np.minimum(variance, MOST_BEYOND**2))

    @property
    def _freedom_beyond(self) -> float:
        """Degrees of freedom of that spread: a declared number tells nothing of what lies there."""
        return PRIOR_RUNS + len(self.kept)

    def expected(self, runs: NDArray[np.int64]) -> Array:
        """Expected seconds of some runs, shape (n,); NaN while nothing is known."""
        if not self.known:
            return np.full(len(runs), math.nan)
        return self._fit.lift * np.concatenate(
            [np.exp(self._log(part)[0]) for part in _chunks(runs)] or [np.zeros(0)]
        )

    def bound(self, runs: NDArray[np.int64], level: float = 0.95) -> Array:
        """Seconds that each of some runs stays below with a probability, shape (n,)."""
        if not self.known:
            return np.full(len(runs), math.nan)
        quantile = _quantile(self._fit.freedom, level)
        far = _quantile(self._freedom_beyond, level)
        parts = []
        for part in _chunks(runs):
            mean, x = self._log(part)
            variance = ((x @ self._fit.factor) ** 2).sum(axis=1)
            around = quantile**2 * self._fit.noise * (1 + variance)
            reach = np.sqrt(around + (far * self._beyond(part, x)) ** 2)
            parts.append(np.exp(np.minimum(mean + math.copysign(1, quantile) * reach, 700.0)))
        return np.concatenate(parts or [np.zeros(0)])

    def total(self, runs: NDArray[np.int64]) -> Total:
        """Sum of the expected costs of some runs and its error."""
        if not self.known:
            return Total(math.nan, math.nan)
        fit = self._fit
        noise = min(fit.noise, MOST_SPREAD**2)
        seconds, own, beyond, slope = 0.0, 0.0, 0.0, np.zeros(self.features.count)
        for part in _chunks(runs):
            mean, x = self._log(part)
            each = fit.lift * np.exp(mean)
            seconds += float(each.sum())
            own += float((each**2).sum()) * math.expm1(noise)
            beyond += float(each @ self._beyond(part, x))
            slope += each @ x
        if not seconds:
            return Total(0.0, 1.0)
        shared = float(((slope @ fit.factor) ** 2).sum()) * noise
        level = seconds**2 * noise**2 / (2 * fit.freedom)  # the noise itself is uncertain, too
        spread = math.sqrt(own + shared + level) / seconds
        far = _quantile(self._freedom_beyond, 0.975) * beyond / seconds
        reach = math.hypot(_quantile(fit.freedom, 0.975) * spread, far, self._few)
        return Total(seconds, math.exp(min(reach, math.log(MOST_FACTOR))))

    def varies(self, runs: NDArray[np.int64]) -> bool:
        """Whether some runs are known to cost more than others."""
        if not self.known or not len(runs):
            return False
        few = runs[:: max(1, len(runs) // 1024)]
        return bool(np.std(np.log(self.expected(few))) > 0.05)


def _regression(x: Array, y: Array, *, told: bool, prior_runs: float) -> _Fit:
    """The regression under the prior precision that makes what was seen likeliest.

    The weights' prior is normal, that of the noise inverse gamma, so that the predictive
    distribution is Student's; see C. Bishop, Pattern Recognition and Machine Learning (2006),
    sections 3.3 and 3.5. A declared cost that no run has been seen of is trusted; once one has,
    its level is free, as a level that is held would be made up for by a trend.
    """
    gram, target, squares = x.T @ x, x.T @ y, float(y @ y)
    constant = 4.0 if told and not len(y) else 1e-4
    shape = (prior_runs + len(y)) / 2
    best: tuple[float, _Fit] | None = None
    for precision in reversed([one for one in SHRINKAGE if told or one <= 1 + len(y)]):
        prior = np.full(len(gram), precision)
        prior[0] = constant
        lower = np.linalg.cholesky(gram + np.diag(prior))
        half = np.linalg.solve(lower, target)
        left = max(squares - float(half @ half), 0.0)
        scale = (prior_runs * PRIOR_SPREAD**2 + left) / 2
        evidence = (
            0.5 * float(np.log(prior).sum())
            - float(np.log(np.diag(lower)).sum())
            - shape * math.log(scale)
        )
        if best is None:
            least = evidence + (SURE if told else 0.0)
        if best is None or evidence > max(best[0] + 1e-9, least):
            factor = np.linalg.inv(lower).T
            best = evidence, _Fit(factor @ half, factor, scale / shape, 2 * shape, 1.0, 0)
    assert best is not None  # there are precisions
    return best[1]


def _trend(x: Array, y: Array) -> Array:
    """Slopes of y over linear features, shrunk only as far as the scatter around them hides them.

    Those of the regression are told under the spread that is assumed of equal runs, which hides
    a trend over a narrow range.
    """
    n, count = x.shape
    if not n or not count:
        return np.zeros(count)
    apart, level = x - x.mean(axis=0), y - y.mean()
    gram, target = apart.T @ apart, apart.T @ level
    scatter = PRIOR_SPREAD**2
    if n > count + 1:
        left = level - apart @ np.linalg.solve(gram + 1e-9 * np.eye(count), target)
        scatter = max(float(left @ left) / (n - count - 1), 1e-9)
    made: Array = np.linalg.solve(gram + scatter * np.eye(count), target)
    return made


def _step(count: int) -> int:
    """Of so many runs each how manieth is kept: a power of two."""
    return 1 if count <= MOST_KEPT else 1 << math.ceil(math.log2(count / MOST_KEPT))


def _quantile(freedom: float, level: float) -> float:
    """Of Student's distribution."""
    from scipy.special import stdtrit  # loaded late: a session without limits needs none of it

    return float(stdtrit(freedom, level))


def _chunks(runs: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [runs[at : at + CHUNK] for at in range(0, len(runs), CHUNK)]

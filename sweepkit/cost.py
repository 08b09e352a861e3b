"""Cost per run in seconds, learnt from finished runs, with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cost"]


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

        Low and high are two standard errors of the sum of ``runs`` durations, as if they were
        drawn like those seen, and half as much again as the mean itself is uncertain.
        """
        if not self.count:
            return math.nan, math.nan, math.nan
        work = self.mean * runs
        spread = self.spread if self.count > 1 else self.mean
        error = 2 * spread * math.sqrt(runs + runs**2 / self.count)
        low, high = max(work - error, 0.0), work + error
        tail = self.longest if runs else 0.0
        return work / workers, low / workers, high / workers + tail * (1 - 1 / workers)

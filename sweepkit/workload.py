"""Pending runs with their costs as they would go out: wall time, what fits, workers needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweepkit.plan import critical, schedule

__all__ = ["START", "Work"]

START = (0.2, 0.7, 2.0)
"""Seconds until workers have started: low, expected, high."""
DISPATCH = 1e-5
"""Seconds that handing out and storing one run takes, at least."""
MOST_WORKERS = 100_000
DRAWS = 12
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Work:
    """Pending runs with their costs, and how they are handed out."""

    coarse: NDArray[np.int64]
    """Which come first, as rows of the rest."""
    seconds: Array
    bounds: Array
    noise: float
    factor: float
    """The 95 % interval of the total is from so many times less to so many times more."""
    scale: float
    """Runs that each row stands for."""

    def urgent(self, workers: int) -> NDArray[np.int64]:
        """Rows that could not wait until the coarse pass is over."""
        if len(self.seconds) > 1 and np.std(np.log(self.seconds)) <= 0.05:
            return np.zeros(0, dtype=np.int64)
        lead = float(self.seconds[self.coarse].sum())
        return critical(np.arange(len(self.seconds)), self.seconds, lead, workers)

    def order(self, workers: int, *, longest: bool) -> NDArray[np.intp]:
        """Rows in the order in which they are handed out."""
        rows = np.arange(len(self.seconds))
        urgent = self.urgent(workers) if longest else rows[:0]
        first = np.concatenate([urgent, self.coarse[~np.isin(self.coarse, urgent)]])
        rest = rows[~np.isin(rows, first)]
        sign = -1.0 if longest else 1.0
        rest = rest[np.argsort(sign * self.seconds[rest], kind="stable")]
        return np.concatenate([first, rest]).astype(np.intp)

    def walls(self, workers: int, draws: int) -> list[float]:
        """Wall times as they may come out, if each run differs from what is expected of it."""
        order = self.order(workers, longest=True)
        seconds = self.seconds[order] + DISPATCH * workers
        if self.scale > 1:
            total = float(seconds.sum()) * self.scale
            return [max(total / workers, float(seconds.max()))]
        rng = np.random.default_rng(0)
        made = []
        for _ in range(draws):
            drawn = np.exp(self.noise * rng.standard_normal(len(seconds)) - self.noise**2 / 2)
            made.append(schedule(seconds * drawn, workers).wall)
        return made

    def wall(self, workers: int, draws: int = DRAWS) -> tuple[float, float, float]:
        """Expected, low and high."""
        if not len(self.seconds):
            return 0.0, 0.0, 0.0
        walls = self.walls(workers, draws)
        low, start, high = START
        return (
            float(np.mean(walls)) + start,
            min(walls) / self.factor + low,
            max(walls) * self.factor + high,
        )

    def fitting(self, workers: int, until: float) -> NDArray[np.bool_]:
        """Which runs end in time: longest first if all do, else shortest first, as when run."""
        usable = until - START[1]
        longest = float(self.seconds.sum()) * self.scale <= usable * workers
        order = self.order(workers, longest=longest)
        seconds, bounds = self.seconds[order], self.bounds[order]
        fits = np.zeros(len(order), dtype=bool)
        if self.scale > 1:
            fits[order] = np.cumsum(seconds) * self.scale / workers + bounds <= usable
        else:
            fits[order] = schedule(seconds, workers, until=usable, bounds=bounds).fits
        return fits

    def needed(self, until: float) -> int | None:
        """The fewest workers that are done in time with the high end of the range."""
        most = min(max(int(len(self.seconds) * self.scale), 1), MOST_WORKERS)
        draws = max(1, min(DRAWS, 20_000 // max(len(self.seconds), 1)))
        if self.wall(most, draws)[2] > until:
            return None
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if self.wall(middle, draws)[2] <= until:
                high = middle
            else:
                low = middle
        return high

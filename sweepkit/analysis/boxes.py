"""The largest box without a blocked point."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count as counter

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Floats

__all__ = ["MAX_BOXES", "Blocked", "largest"]

MAX_WORK = 200_000_000
MAX_BOXES = 20_000
"""Boxes looked at before the exact search gives way to growing a box step by step."""


@dataclass(frozen=True, eq=False)
class Blocked:
    """Points that a closed box must not hold, and where its ends may lie instead.

    Attributes
    ----------
    at : array of float, shape (points, dims)
        Where they are.
    above, below : array of float, shape (points, dims)
        The nearest place for a lower end above each, and for an upper end below; infinite where
        there is none.
    step : float
        What a box is longer than the distance of its ends: 1 where it holds whole steps of a
        grid, else 0.
    """

    at: Floats
    above: Floats
    below: Floats
    step: float

    def some(self, those: NDArray[np.bool_]) -> Blocked:
        return Blocked(self.at[those], self.above[those], self.below[those], self.step)

    def volume(self, low: Floats, high: Floats) -> float:
        return float(np.prod(high - low + self.step))

    def parts(
        self, point: int, low: Floats, high: Floats, nominal: Floats | None
    ) -> list[tuple[int, bool, Floats, Floats]]:
        """The boxes left beside a point: along which dim, whether above, and their ends."""
        found = []
        for k in range(len(low)):
            for upper in (False, True):
                a, b = low.copy(), high.copy()
                if upper:
                    a[k] = self.above[point, k]
                else:
                    b[k] = self.below[point, k]
                room = b[k] - a[k] + self.step > 0
                if room and (nominal is None or a[k] <= nominal[k] <= b[k]):
                    found.append((k, upper, a, b))
        return found


def largest(
    blocked: Blocked,
    low: Floats,
    high: Floats,
    nominal: Floats | None,
    max_boxes: int,
    *,
    solid: NDArray[np.bool_] | None,
    least: float,
) -> tuple[tuple[float, Floats, Floats] | None, bool]:
    """The largest closed box without a blocked point, and whether it is proven to be.

    With `solid`, which points of a grid are blocked, only those beside free ones need be given.
    """
    number = counter()
    every = np.arange(len(blocked.at), dtype=np.int32)
    heap = [(-blocked.volume(low, high), next(number), low, high, every, -1, False)]
    seen = {(low.tobytes(), high.tobytes())}
    looked, work = 0, 0
    while heap:
        negative, _, a, b, parents, cut, above = heapq.heappop(heap)
        if -negative <= least:
            return None, True
        inside = parents
        if cut >= 0:
            at = blocked.at[parents, cut]
            inside = parents[at >= a[cut] if above else at <= b[cut]]
        if not len(inside):
            # Only failures beside a point that passed are looked at: a box of failures has none.
            if solid is not None and solid[tuple(a.astype(np.int64))]:
                continue
            return (-negative, a, b), True
        looked, work = looked + 1, work + len(inside) * len(a)
        if looked > max_boxes or work > MAX_WORK:
            return _grown(blocked, low, high, nominal, least, solid), False
        size = np.where(b > a, b - a, 1.0)
        centre = np.abs(blocked.at[inside] - (a + b) / 2) / size
        split = int(inside[np.argmin(centre.max(axis=1))])
        for k, upper, a_, b_ in blocked.parts(split, a, b, nominal):
            key = (a_.tobytes(), b_.tobytes())
            if key not in seen:
                seen.add(key)
                volume = blocked.volume(a_, b_)
                heapq.heappush(heap, (-volume, next(number), a_, b_, inside, k, upper))
    return None, True


def _grown(
    blocked: Blocked,
    low: Floats,
    high: Floats,
    nominal: Floats | None,
    least: float,
    solid: NDArray[np.bool_] | None,
) -> tuple[float, Floats, Floats] | None:
    """A good box by shrinking from several sides: at each blocked point, the cut that costs least.

    Fast, and never larger than the largest.
    """
    best: tuple[float, Floats, Floats] | None = None
    rng = np.random.default_rng(0)
    for attempt in range(20):
        a, b, inside = low.copy(), high.copy(), np.arange(len(blocked.at))
        while len(inside):
            centre = (a + b) / 2 if nominal is None else nominal
            size = np.where(b > a, b - a, 1.0)
            far = (np.abs(blocked.at[inside] - centre) / size).max(axis=1)
            far = far if attempt == 0 else far * rng.uniform(0.7, 1.3, len(far))
            cuts = blocked.parts(int(inside[np.argmin(far)]), a, b, nominal)
            if not cuts:
                break
            k, upper, a, b = max(cuts, key=lambda cut: blocked.volume(cut[2], cut[3]))
            at = blocked.at[inside, k]
            inside = inside[at >= a[k] if upper else at <= b[k]]
        volume = blocked.volume(a, b)
        hollow = solid is not None and bool(solid[tuple(a.astype(np.int64))])
        if not len(inside) and not hollow and volume > max(least, best[0] if best else 0.0):
            best = (volume, a, b)
    return best

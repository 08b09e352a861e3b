"""A box of failing runs, peeled, grown and simplified by counting codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded, Codes, Floats

__all__ = [
    "BETA_SQUARED",
    "Box",
    "EARNED_F",
    "EARNED_P",
    "LEAST_RUNS",
    "N_FIRSTS",
    "SHARES",
    "limits_of",
    "polish",
    "quality_of",
    "search",
]

SHARES = (0.02, 0.05, 0.1)
"""Shares of a box peeled at a step; patience against speed."""
BETA_SQUARED = 0.25
"""Density counts twice coverage (F with beta 1/2): a box should first of all be true."""
N_FIRSTS = 3
"""Parameters whose best limits a box is grown from."""
EARNED_P = 1e-3
EARNED_F = 0.01
LEAST_RUNS = 10


@dataclass(frozen=True, eq=False)
class Box:
    """Allowed codes per parameter, as one mask each."""

    allowed: tuple[NDArray[np.bool_], ...]

    def inside(self, codes: Sequence[Codes], but: int = -1) -> NDArray[np.bool_]:
        inside = np.ones(len(codes[0]), dtype=bool)
        for i, mask in enumerate(self.allowed):
            if i != but and not mask.all():
                inside &= mask[codes[i]]
        return inside

    def with_mask(self, i: int, mask: NDArray[np.bool_]) -> Box:
        return Box((*self.allowed[:i], mask, *self.allowed[i + 1 :]))

    @property
    def restricted(self) -> list[int]:
        return [i for i, mask in enumerate(self.allowed) if not mask.all()]


def search(
    parameters: Sequence[Coded],
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    shares: Sequence[float],
    repeats: float,
) -> tuple[Box, pd.DataFrame]:
    many = len(fails) > 100_000
    steps: list[dict[str, Any]] = []
    boxes: list[Box] = []
    for share in shares[-2:] if many else shares:
        for lenient in (True,) if many else (True, False):
            peeled = _peel(parameters, codes, fails, share, lenient)
            for step, (box, n_box, f_box) in enumerate(peeled):
                boxes.append(box)
                steps.append({"share": share, "step": step, "n_run": n_box, "n_failed": f_box})
    for step, (box, n_box, f_box) in enumerate(_grow(parameters, codes, fails)):
        boxes.append(box)
        steps.append({"share": 0.0, "step": step, "n_run": n_box, "n_failed": f_box})
    trajectory = pd.DataFrame(steps)
    n, f = trajectory["n_run"].to_numpy(), trajectory["n_failed"].to_numpy()
    trajectory["coverage"], trajectory["density"] = f / fails.sum(), f / n
    trajectory["mass"] = n / len(fails)
    trajectory["restricted"] = [len(box.restricted) for box in boxes]
    trajectory["limits"] = pd.Series([limits_of(parameters, box) for box in boxes], dtype=object)
    trajectory["front"] = _front(f / fails.sum(), f / n)
    # The best few rather than the best: where limits end up depends on where they start.
    quality = _quality(f, n, fails.sum())
    tried: list[tuple[float, Box]] = []
    for at in _distinct(quality, trajectory["share"].to_numpy()):
        box = polish(parameters, codes, fails, boxes[at])
        box = _simplify(parameters, codes, fails, box, repeats)
        tried.append((quality_of(codes, fails, box), box))
    return max(tried, key=lambda pair: (round(pair[0], 9), -len(pair[1].restricted)))[1], trajectory


def _distinct(quality: Floats, share: Floats) -> list[int]:
    best = [int(np.argmax(np.where(share == s, quality, -1))) for s in np.unique(share)]
    return list(dict.fromkeys(best))


def _quality(f: Any, n: Any, all_failed: Any) -> Any:
    return (1 + BETA_SQUARED) * f / (BETA_SQUARED * all_failed + n)


def quality_of(codes: Sequence[Codes], fails: NDArray[np.bool_], box: Box) -> float:
    inside = box.inside(codes)
    return float(_quality((inside & fails).sum(), inside.sum(), fails.sum()))


def _peel(
    parameters: Sequence[Coded],
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    share: float,
    lenient: bool,
) -> list[tuple[Box, int, int]]:
    """Boxes from all runs inwards, each with its runs and failures."""
    failing = [c[fails] for c in codes]
    passing = [c[~fails] for c in codes]
    box = Box(tuple(np.ones(p.n, dtype=bool) for p in parameters))
    n, f = len(fails), len(failing[0])
    path = [(box, n, f)]
    while f < n and n > LEAST_RUNS:
        best: tuple[float, int, NDArray[np.bool_], int, int] | None = None
        for i, p in enumerate(parameters):
            in_failing = np.bincount(failing[i], minlength=p.n)
            in_all = np.bincount(passing[i], minlength=p.n) + in_failing
            if not p.ordered:
                # Of very many categories the best at once.
                with np.errstate(invalid="ignore", divide="ignore"):
                    gain_ = (f - in_failing) / (n - in_all) - f / n
                    gain_ = gain_ * n / in_all if lenient else gain_
                fits = (in_all > 0) & (n - in_all >= LEAST_RUNS) & (in_failing < f)
                k = int(np.argmax(np.where(fits, gain_, -np.inf)))
                if fits[k] and (best is None or gain_[k] > best[0]):
                    gone = np.arange(p.n) == k
                    best = (float(gain_[k]), i, gone, int(in_all[k]), int(in_failing[k]))
                continue
            for gone in _peels(p, in_all, n, share):
                n_gone, f_gone = int(in_all[gone].sum()), int(in_failing[gone].sum())
                if not 0 < n_gone < n or n - n_gone < LEAST_RUNS or f_gone == f:
                    continue
                gain = (f - f_gone) / (n - n_gone) - f / n
                if lenient:
                    gain /= n_gone / n
                if best is None or gain > best[0]:
                    best = (gain, i, gone, n_gone, f_gone)
        if best is None or best[0] <= 0:
            break
        _, i, gone, n_gone, f_gone = best
        box = box.with_mask(i, box.allowed[i] & ~gone)
        for group in (failing, passing):
            stays = ~gone[group[i]]
            for j, c in enumerate(group):
                group[j] = c[stays]
        n, f = n - n_gone, f - f_gone
        path.append((box, n, f))
    return path


def _grow(
    parameters: Sequence[Coded], codes: Sequence[Codes], fails: NDArray[np.bool_]
) -> list[tuple[Box, int, int]]:
    """Boxes from the best limits of one parameter on, the next best limits added one by one.

    Peeling cannot pass a bad end that lies before the worst one; these begin anywhere.
    """
    whole = Box(tuple(np.ones(p.n, dtype=bool) for p in parameters))
    total = int(fails.sum())
    path = []
    firsts = sorted(
        (_limited(parameters, codes, fails, whole, i) for i in range(len(parameters))),
        key=lambda found: -found[0],
    )
    for quality, box in firsts[:N_FIRSTS]:
        while box.restricted:
            inside = box.inside(codes)
            path.append((box, int(inside.sum()), int((inside & fails).sum())))
            rest = [i for i in range(len(parameters)) if i not in box.restricted]
            found = [_limited(parameters, codes, fails, box, i) for i in rest]
            better, wider = max(found, key=lambda one: one[0], default=(0.0, box))
            if better <= quality + EARNED_F * quality or path[-1][2] == path[-1][1]:
                break
            quality, box = better, wider
    return [one for one in path if one[1] >= min(LEAST_RUNS, len(fails)) and 0 < one[2] <= total]


def _limited(
    parameters: Sequence[Coded],
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    box: Box,
    i: int,
) -> tuple[float, Box]:
    """A box with the best limits of one more parameter, and its F."""
    p = parameters[i]
    inside = box.inside(codes, but=i)
    n = np.bincount(codes[i][inside], minlength=p.n).astype(np.float64)
    f = np.bincount(codes[i][inside & fails], minlength=p.n).astype(np.float64)
    total = int(fails.sum())
    # Neither end open: the limits may lie anywhere.
    mask = _best_mask(p, np.zeros(p.n, dtype=bool), n, f, total, 0.0)
    return float(_quality(f[mask].sum(), n[mask].sum(), total)), box.with_mask(i, mask)


def _peels(p: Coded, in_all: NDArray[np.int64], n: int, share: float) -> list[NDArray[np.bool_]]:
    """What may be peeled off an ordered parameter: a low end or a high end."""
    at = np.arange(p.n)
    below = np.cumsum(in_all)
    least = max(1.0, share * n)
    low = int(np.searchsorted(below, least))
    high = int(np.searchsorted(below, n - least, side="right"))
    return [at <= low, at >= high]


def polish(
    parameters: Sequence[Coded], codes: Sequence[Codes], fails: NDArray[np.bool_], box: Box
) -> Box:
    """Move the limits of each restricted parameter to their best places, given the others."""
    total = int(fails.sum())
    best = quality_of(codes, fails, box)
    for _ in range(10):
        before = best
        for i in box.restricted:
            inside = box.inside(codes, but=i)
            p = parameters[i]
            n = np.bincount(codes[i][inside], minlength=p.n).astype(np.float64)
            f = np.bincount(codes[i][inside & fails], minlength=p.n).astype(np.float64)
            mask = _best_mask(p, box.allowed[i], n, f, total, best)
            quality = float(_quality(f[mask].sum(), n[mask].sum(), total))
            if quality > best + 1e-12:
                box, best = box.with_mask(i, mask), quality
        if best <= before + 1e-12:
            break
    return box


def _best_mask(
    p: Coded, allowed: NDArray[np.bool_], n: Floats, f: Floats, total: int, quality: float
) -> NDArray[np.bool_]:
    """Codes with the best F: a ratio, so a sequence of maximum-sum intervals (Dinkelbach).

    An end without a limit stays without.
    """
    low_open, high_open = bool(allowed[0]), bool(allowed[-1])
    mask = np.ones(p.n, dtype=bool)
    for _ in range(20):
        worth = f - quality / (1 + BETA_SQUARED) * n
        if p.ordered:
            sums = np.concatenate([[0.0], np.cumsum(worth)])
            least = np.zeros_like(sums) if low_open else np.minimum.accumulate(sums)
            stop = p.n if high_open else int(np.argmax(sums - least))
            start = 0 if low_open else int(np.argmin(sums[: stop + 1]))
            mask = (np.arange(p.n) >= start) & (np.arange(p.n) < stop)
        else:
            mask = worth > 0
        if not mask.any():
            return np.ones(p.n, dtype=bool)
        better = float(_quality(f[mask].sum(), n[mask].sum(), total))
        if better <= quality + 1e-12:
            break
        quality = better
    return mask


def _simplify(
    parameters: Sequence[Coded],
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    box: Box,
    repeats: float,
) -> Box:
    """Drop the limits that do not earn their place, the least deserving first."""
    from scipy.special import bdtr

    while True:
        inside = box.inside(codes)
        n, f = int(inside.sum()), int((inside & fails).sum())
        density = f / n
        here = float(_quality(f, n, fails.sum()))
        worst: tuple[float, Box] | None = None
        for i in box.restricted:
            for mask in _without_limit(parameters[i], box.allowed[i]):
                wider = box.with_mask(i, mask)
                added = wider.inside(codes) & ~inside
                n_added, f_added = int(added.sum()), int((added & fails).sum())
                wide = float(_quality(f + f_added, n + n_added, fails.sum()))
                # The outside of a limit that earns its place surely fails less than the inside.
                few, all_added = np.floor(f_added / repeats), np.ceil(n_added / repeats)
                chance = float(bdtr(few, int(all_added), min(density, 1 - 0.5 / n)))
                if n_added and chance < EARNED_P and wide < here * (1 - EARNED_F):
                    continue
                if worst is None or wide > worst[0]:
                    worst = (wide, wider)
        if worst is None:
            return box
        box = polish(parameters, codes, fails, worst[1])


def _without_limit(p: Coded, mask: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    if not p.ordered:
        return [np.ones(p.n, dtype=bool)]
    at = np.flatnonzero(mask)
    ends = []
    if at[0] > 0:
        ends.append(np.arange(p.n) <= at[-1])
    if at[-1] < p.n - 1:
        ends.append(np.arange(p.n) >= at[0])
    return ends


def limits_of(parameters: Sequence[Coded], box: Box) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for i in box.restricted:
        p, at = parameters[i], np.flatnonzero(box.allowed[i])
        if p.ordered:
            limits[p.name] = (p.lower[at[0]], p.upper[at[-1]])
        else:
            limits[p.name] = {p.values[k] for k in at}
    return limits


def _front(coverage: Floats, density: Floats) -> NDArray[np.bool_]:
    order = np.lexsort((-density, -coverage))
    best = np.concatenate([[-1.0], np.maximum.accumulate(density[order])[:-1]])
    front = np.zeros(len(coverage), dtype=bool)
    front[order] = density[order] > best
    return front

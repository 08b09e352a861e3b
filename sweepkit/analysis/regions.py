"""Failures as boxes: the patient rule induction method (PRIM), by counting codes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.counts import BASES, count
from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.table import (
    FAILED,
    Coded,
    Codes,
    Errors,
    Failed,
    Floats,
    Table,
    UnanswerableError,
    as_numbers,
    passed_and_failed,
    shown,
    table,
    varied,
)
from sweepkit.analysis.unrefined import left_out, unrefined
from sweepkit.html import Markup, escape, note
from sweepkit.html import box as html_box
from sweepkit.html import table as html_table

__all__ = ["Regions", "regions"]

SHARES = (0.02, 0.05, 0.1)
"""Shares of a box peeled at a step; patience against speed."""

BETA_SQUARED = 0.25
"""Density counts twice coverage (F with beta 1/2): a box should first of all be true."""

EXACT_CODES = 30_000
"""Up to here every distinct value is a limit; beyond, quantile bins are."""

MAX_SEARCHED = 40_000
MIN_FAILURES = 2_000
"""More runs than this are searched in a random part that holds so many failures; limits are then
moved to their best places among all runs, and figures are always of all."""

WINDOW = 2
"""Bins on either side of a limit in which its best place is looked for among all values."""

LEAST_COVERAGE = 0.005
"""Of boxes after the first: less is a sliver that the limits of another box left over."""

N_FIRSTS = 3
"""Parameters whose best limits a box is grown from."""

EARNED_P = 1e-3
EARNED_F = 0.01
LEAST_RUNS = 10


@dataclass(frozen=True, eq=False)
class _Box:
    """Allowed codes per parameter, as one mask each."""

    allowed: tuple[NDArray[np.bool_], ...]

    def inside(self, codes: Sequence[Codes], but: int = -1) -> NDArray[np.bool_]:
        inside = np.ones(len(codes[0]), dtype=bool)
        for i, mask in enumerate(self.allowed):
            if i != but and not mask.all():
                inside &= mask[codes[i]]
        return inside

    def with_mask(self, i: int, mask: NDArray[np.bool_]) -> _Box:
        return _Box((*self.allowed[:i], mask, *self.allowed[i + 1 :]))

    @property
    def restricted(self) -> list[int]:
        return [i for i, mask in enumerate(self.allowed) if not mask.all()]


@dataclass(frozen=True, eq=False)
class Regions:
    """Boxes of failing runs, and every box seen on the way to them.

    Attributes
    ----------
    boxes : DataFrame
        One row per box, in the order found, each among the runs outside those before it:
        ``limits`` (mapping of parameter to (low, high), both inside, or to a set of values),
        ``text``, ``coverage`` (share of all failures inside), ``density`` (share of runs inside
        that fail), ``low``, ``high`` and ``basis`` of it, ``mass`` (share of all runs inside),
        ``n_run``, ``n_failed``; on held-out runs, by a box fitted without them,
        ``held_out_density``, ``held_out_coverage``, ``held_out_n``; ``confirmed`` if by both
        densities the odds of failing are surely (99 %) twice those of the runs left.
    trajectory : DataFrame
        Every box seen: ``box``, ``share`` (peeled at a step; 0 where grown), ``step``,
        ``coverage``, ``density``, ``mass``,
        ``restricted`` (number of parameters with limits), ``limits``, ``front`` (no other box of
        the same search has both more coverage and more density).
    table : Table
        The runs.
    errors : {"apart", "fail"}
        How errors were counted.
    """

    boxes: pd.DataFrame
    trajectory: pd.DataFrame
    table: Table = field(repr=False)
    errors: Errors = "apart"

    @property
    def front_area(self) -> float:
        """Mean over coverage from 0 to 1 of the best density among boxes that cover as much."""
        first = self.trajectory[self.trajectory["box"] == 1]
        order = np.argsort(first["coverage"].to_numpy())
        coverage = first["coverage"].to_numpy()[order]
        best = np.maximum.accumulate(first["density"].to_numpy()[order][::-1])[::-1]
        wanted = np.linspace(0, 1, 1001)
        at = np.searchsorted(coverage, wanted - 1e-12)
        return float(best[np.minimum(at, len(best) - 1)].mean())

    def _repr_html_(self) -> str:
        def percent(share: float) -> str:
            return "" if np.isnan(share) else f"{100 * share:.1f} %"

        rows = [
            (
                Markup(f"<code>{escape(one['text'])}</code>"),
                percent(one["density"]),
                f"{percent(one['low'])} to {percent(one['high'])}",
                percent(one["coverage"]),
                f"{one['n_failed']:,} of {one['n_run']:,}",
                percent(one["held_out_density"]),
                "yes" if one["confirmed"] else "no",
            )
            for one in self.boxes.to_dict("records")
        ]
        columns = ("Limits", "Density", "Interval", "Coverage", "Failed", "Held out", "Confirmed")
        count = f"{len(rows)} box" if len(rows) == 1 else f"{len(rows)} boxes"
        said = "Density: share of the runs inside that fail. Coverage: share of all failures."
        basis = str(self.boxes.attrs.get("basis", ""))
        return html_box(
            "sweepkit.Regions",
            html_table(columns, rows, numbers={1, 2, 3, 4, 5})
            if rows
            else note("no box: failures are not told apart by limits of parameters"),
            note(f"{said} Intervals: {basis}." if basis else said),
            about=f"{count} of failing runs, of {len(self.trajectory):,} seen",
            text=repr(self.boxes),
        )

    def evaluate(self, limits: Mapping[str, Any], *, level: float = 0.95) -> dict[str, Any]:
        """What a box of one's own choice would cover.

        Parameters
        ----------
        limits : mapping
            Parameter to (low, high), both inside and None where open, or to a set or list of
            allowed values.
        level : float
            Coverage of the interval of the density.

        Returns
        -------
        dict
            ``coverage``, ``density``, ``low``, ``high``, ``mass`` (dimensionless), ``n_run``,
            ``n_failed``, ``n_unknown``, ``basis``. Density is NaN, with bounds 0 and 1, where
            nothing has run.

        Raises
        ------
        KeyError
            If a name is no parameter.
        """
        t = self.table
        inside = np.ones(t.n, dtype=bool)
        for name, limit in limits.items():
            inside &= _within(t, name, limit)
        counts = count(
            t, inside.astype(np.uint8), 2, level=level, errors=self.errors, with_boundary=False
        )
        return {
            "coverage": float(counts.n_failed[1] / max(counts.n_failed.sum(), 1)),
            "density": float(counts.rate[1]),
            "low": float(counts.low[1]),
            "high": float(counts.high[1]),
            "mass": float(counts.n_run[1] / max(counts.n_run.sum(), 1)),
            "n_run": int(counts.n_run[1]),
            "n_failed": int(counts.n_failed[1]),
            "n_unknown": int(counts.n_unknown[1]),
            "basis": BASES[counts.basis[1]],
        }


def regions(
    ds: xr.Dataset | Table,
    *,
    shares: Sequence[float] = SHARES,
    max_boxes: int = 5,
    seed: int = 0,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> Regions:
    """Where designs fail, as boxes of parameter limits.

    Boxes are peeled by several shares and two criteria, and grown from the best limits of single
    parameters; of all boxes seen, the one with the best F (beta 1/2) is taken, its limits are
    moved to their best places one by one, and limits whose outside does not surely fail less are
    dropped. Then the same again among the runs left.

    Parameters
    ----------
    ds : Dataset or Table
        Derived coordinates count as parameters: where failures follow a tilted edge,
        ``ds.assign_coords(ab=ds["a"] + ds["b"])`` makes it a limit.
    shares : sequence of float
        Shares of a box peeled at a step, between 0 and 1.
    max_boxes : int
        Most boxes; after the first, only confirmed ones are kept.
    seed : int
        Of the split into fitted and held-out runs (two thirds to one; replicates together).
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    Regions

    Raises
    ------
    UnanswerableError
        If fewer than 5 runs passed or failed, or no parameter has several values.

    References
    ----------
    J. H. Friedman and N. I. Fisher, Stat. Comput. 9 (1999), 123-143; the criterion that weighs a
    gain by what it removes: B. P. Bryant and R. J. Lempert, Technol. Forecast. Soc. Change 77
    (2010), 34-49, and J. H. Kwakkel, Environ. Model. Softw. 96 (2017), 239-250; limits to their
    best places: maximum-sum intervals, J. Bentley, Commun. ACM 27 (1984), 865-873.

    Examples
    --------
    >>> a, b = np.meshgrid(np.arange(20), np.arange(20), indexing="ij")
    >>> ds = xr.Dataset({"failed": (("a", "b"), (a >= 12) & (b < 5))},
    ...                 coords={"a": np.arange(20), "b": np.arange(20)})
    >>> regions(ds).boxes["text"].tolist()
    ['a >= 12 and b <= 4']
    """
    if not shares or not all(0 < share < 1 for share in shares):
        raise ValueError(f"shares={shares!r} must lie between 0 and 1, as 0.05 does")
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    t, left_aside = unrefined(t)
    outcome = passed_and_failed(t, errors, least=5)
    parameters = [_fine(t, p) for p in varied(t) if p.n > 1]
    if not parameters:
        raise UnanswerableError("no parameter has more than one value, so no limit can be drawn")
    known = outcome <= FAILED
    codes = [p.codes[known] for p in parameters]
    fails = outcome[known] == FAILED
    held = _held_out(t, known, seed)
    repeats = 1.0 if t.points is None else len(fails) / max(len(np.unique(t.points.of[known])), 1)
    left = np.ones(len(fails), dtype=bool)
    rows: list[dict[str, Any]] = []
    seen: list[pd.DataFrame] = []
    for number in range(1, max_boxes + 1):
        if fails[left].sum() < 5 or (~fails[left]).sum() == 0:
            break
        looked = _looked_at(left, fails)
        box, trajectory = _search(
            parameters, [c[looked] for c in codes], fails[looked], shares, repeats
        )
        finer, placed = list(parameters), list(codes)
        for i in box.restricted:
            if parameters[i].binned:
                finer[i], placed[i], mask = _zoomed(t, parameters[i], known, box.allowed[i])
                box = box.with_mask(i, mask)
        if any(a is not b for a, b in zip(finer, parameters, strict=True)):
            there = np.flatnonzero(left)
            box = _polish(finer, [c[there] for c in placed], fails[there], box)
        row = _figures(t, finer, box, placed, fails, left, errors)
        if number > 1 and row["coverage"] < LEAST_COVERAGE:
            break
        whole = (row["n_failed"], row["n_run"])
        row |= _confirm(parameters, codes, fails, left, held, shares, repeats, whole)
        if number > 1 and (not row["confirmed"] or not box.restricted):
            break
        trajectory.insert(0, "box", number)
        trajectory["coverage"] *= fails[left].sum() / fails.sum()
        trajectory["mass"] *= left.sum() / len(left)
        seen.append(trajectory)
        rows.append({"box": number, **row})
        left &= ~box.inside(placed)
        if not box.restricted:
            break
    boxes = pd.DataFrame(rows)
    boxes.attrs["basis"] = left_out(", ".join(boxes["basis"].unique()), left_aside)
    return Regions(boxes, pd.concat(seen, ignore_index=True), t, errors)


def _fine(t: Table, p: Coded) -> Coded:
    """A binned parameter with each distinct value as a code, where the runs are few enough."""
    if not p.binned or t.n > EXACT_CODES:
        return p
    values, codes = np.unique(t.raw(p.name), return_inverse=True)
    return Coded(
        name=p.name,
        role=p.role,
        kind=p.kind,
        units=p.units,
        dims=p.dims,
        values=values,
        lower=values,
        upper=values,
        codes=codes.astype(np.uint16),
        binned=False,
    )


def _zoomed(
    t: Table, p: Coded, known: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> tuple[Coded, Codes, NDArray[np.bool_]]:
    """A binned parameter with each value near the limits as a code of its own.

    Returns it, its codes of the known runs, and the allowed codes.
    """
    at = np.flatnonzero(allowed)
    near = np.zeros(p.n, dtype=bool)
    for limit in (at[0], at[-1] + 1):
        if 0 < limit < p.n:
            near[max(limit - WINDOW, 0) : limit + WINDOW] = True
    codes = p.codes[known]
    those = np.flatnonzero(near[codes])
    values = t.raw(p.name)[known][those]
    own = np.unique(values)
    bin_of = np.zeros(len(own), dtype=np.int64)
    bin_of[np.searchsorted(own, values)] = codes[those]
    plain = np.flatnonzero(~near)
    # Bins and single values in the order of the values.
    order = np.argsort(np.concatenate([plain, bin_of]), kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    finer = np.zeros(p.n, dtype=np.int64)
    finer[plain] = place[: len(plain)]
    new = finer[codes]
    new[those] = place[len(plain) + np.searchsorted(own, values)]

    def joined(ends: NDArray[Any]) -> NDArray[Any]:
        exact = own if p.kind == "number" else _times(own, ends.dtype)
        merged: NDArray[Any] = np.concatenate([ends[plain], exact.astype(ends.dtype)])[order]
        return merged

    zoomed = replace(
        p, values=joined(p.values), lower=joined(p.lower), upper=joined(p.upper), codes=new
    )
    return zoomed, new, np.concatenate([allowed[plain], allowed[bin_of]])[order]


def _times(seconds: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    times: NDArray[Any] = np.round(seconds * 1e9).astype(np.int64).astype(f"{dtype.kind}8[ns]")
    return times


def _held_out(t: Table, known: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    # A stream of its own: the runs may well have been drawn from default_rng(seed).
    rng = np.random.default_rng([seed, 7919])
    if t.points is None:
        return rng.random(int(known.sum())) < 1 / 3
    held: NDArray[np.bool_] = (rng.random(len(t.points.first)) < 1 / 3)[t.points.of[known]]
    return held


def _looked_at(some: NDArray[np.bool_], fails: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The runs a search counts: all, or of very many with many failures a random part."""
    runs = np.flatnonzero(some)
    if len(runs) <= MAX_SEARCHED:
        return runs
    n = max(MAX_SEARCHED, int(np.ceil(len(runs) * MIN_FAILURES / max(fails[runs].sum(), 1))))
    if n >= len(runs):
        return runs
    return np.sort(np.random.default_rng([n, 7919]).choice(runs, n, replace=False))


def _search(
    parameters: Sequence[Coded],
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    shares: Sequence[float],
    repeats: float,
) -> tuple[_Box, pd.DataFrame]:
    many = len(fails) > 100_000
    steps: list[dict[str, Any]] = []
    boxes: list[_Box] = []
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
    trajectory["limits"] = pd.Series([_limits(parameters, box) for box in boxes], dtype=object)
    trajectory["front"] = _front(f / fails.sum(), f / n)
    # The best few rather than the best: where limits end up depends on where they start.
    quality = _quality(f, n, fails.sum())
    tried: list[tuple[float, _Box]] = []
    for at in _distinct(quality, trajectory["share"].to_numpy()):
        box = _polish(parameters, codes, fails, boxes[at])
        box = _simplify(parameters, codes, fails, box, repeats)
        tried.append((_quality_of(codes, fails, box), box))
    return max(tried, key=lambda pair: (round(pair[0], 9), -len(pair[1].restricted)))[1], trajectory


def _distinct(quality: Floats, share: Floats) -> list[int]:
    best = [int(np.argmax(np.where(share == s, quality, -1))) for s in np.unique(share)]
    return list(dict.fromkeys(best))


def _quality(f: Any, n: Any, all_failed: Any) -> Any:
    return (1 + BETA_SQUARED) * f / (BETA_SQUARED * all_failed + n)


def _quality_of(codes: Sequence[Codes], fails: NDArray[np.bool_], box: _Box) -> float:
    inside = box.inside(codes)
    return float(_quality((inside & fails).sum(), inside.sum(), fails.sum()))


def _peel(
    parameters: Sequence[Coded],
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    share: float,
    lenient: bool,
) -> list[tuple[_Box, int, int]]:
    """Boxes from all runs inwards, each with its runs and failures."""
    failing = [c[fails] for c in codes]
    passing = [c[~fails] for c in codes]
    box = _Box(tuple(np.ones(p.n, dtype=bool) for p in parameters))
    n, f = len(fails), len(failing[0])
    path = [(box, n, f)]
    while f < n and n > LEAST_RUNS:
        best: tuple[float, int, NDArray[np.bool_], int, int] | None = None
        for i, p in enumerate(parameters):
            in_failing = np.bincount(failing[i], minlength=p.n)
            in_all = np.bincount(passing[i], minlength=p.n) + in_failing
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
) -> list[tuple[_Box, int, int]]:
    """Boxes from the best limits of one parameter on, the next best limits added one by one.

    Peeling cannot pass a bad end that lies before the worst one; these begin anywhere.
    """
    whole = _Box(tuple(np.ones(p.n, dtype=bool) for p in parameters))
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
    box: _Box,
    i: int,
) -> tuple[float, _Box]:
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
    """What may be peeled off a parameter: a low end, a high end, or one category."""
    at = np.arange(p.n)
    if not p.ordered:
        return [at == k for k in np.flatnonzero(in_all)]
    below = np.cumsum(in_all)
    least = max(1.0, share * n)
    low = int(np.searchsorted(below, least))
    high = int(np.searchsorted(below, n - least, side="right"))
    return [at <= low, at >= high]


def _polish(
    parameters: Sequence[Coded], codes: Sequence[Codes], fails: NDArray[np.bool_], box: _Box
) -> _Box:
    """Move the limits of each restricted parameter to their best places, given the others."""
    total = int(fails.sum())
    best = _quality_of(codes, fails, box)
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
    box: _Box,
    repeats: float,
) -> _Box:
    """Drop the limits that do not earn their place, the least deserving first."""
    from scipy.special import bdtr

    while True:
        inside = box.inside(codes)
        n, f = int(inside.sum()), int((inside & fails).sum())
        density = f / n
        here = float(_quality(f, n, fails.sum()))
        worst: tuple[float, _Box] | None = None
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
        box = _polish(parameters, codes, fails, worst[1])


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


def _figures(
    t: Table,
    parameters: Sequence[Coded],
    box: _Box,
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    left: NDArray[np.bool_],
    errors: Errors,
) -> dict[str, Any]:
    limits = _limits(parameters, box)
    inside = box.inside(codes) & left
    n, f = int(inside.sum()), int((inside & fails).sum())
    cell = np.zeros(t.n, dtype=np.uint8)
    cell[np.flatnonzero(t.counted(errors) <= FAILED)[inside]] = 1
    counts = count(t, cell, 2, errors=errors, with_boundary=False)
    return {
        "text": _text(parameters, box),
        "limits": limits,
        "coverage": f / int(fails.sum()),
        "density": f / n,
        "low": float(counts.low[1]),
        "high": float(counts.high[1]),
        "basis": BASES[counts.basis[1]],
        "mass": n / len(fails),
        "n_run": n,
        "n_failed": f,
    }


def _confirm(
    parameters: Sequence[Coded],
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    left: NDArray[np.bool_],
    held: NDArray[np.bool_],
    shares: Sequence[float],
    repeats: float,
    whole: tuple[int, int],
) -> dict[str, Any]:
    """Figures on held-out runs of a box fitted without them."""
    fitted, test = left & ~held, left & held
    blank = {
        "held_out_density": np.nan,
        "held_out_coverage": np.nan,
        "held_out_n": 0,
        "confirmed": False,
    }
    if fails[fitted].sum() < 5 or not fails[test].any() or not (~fails[fitted]).any():
        return blank
    looked = _looked_at(fitted, fails)
    box, _ = _search(parameters, [c[looked] for c in codes], fails[looked], shares, repeats)
    inside = box.inside(codes) & test
    n, f = int(inside.sum()), int((inside & fails).sum())
    return {
        "held_out_density": f / n if n else np.nan,
        "held_out_coverage": f / int(fails[test].sum()),
        "held_out_n": n,
        "confirmed": bool(box.restricted)
        and _raised(f / repeats, n / repeats, float(fails[test].mean()))
        and _raised(whole[0] / repeats, whole[1] / repeats, float(fails[left].mean())),
    }


def _raised(f: float, n: float, base: float) -> bool:
    """Whether the odds of failing are surely twice those of all runs."""
    if n < 1:
        return False
    low = float(failure_interval(f, n, level=0.99)[0])
    return low > 2 * base / (1 + base)


def _limits(parameters: Sequence[Coded], box: _Box) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for i in box.restricted:
        p, at = parameters[i], np.flatnonzero(box.allowed[i])
        if p.ordered:
            limits[p.name] = (p.lower[at[0]], p.upper[at[-1]])
        else:
            limits[p.name] = {p.values[k] for k in at}
    return limits


def _text(parameters: Sequence[Coded], box: _Box) -> str:
    parts = []
    for i in box.restricted:
        p, at = parameters[i], np.flatnonzero(box.allowed[i])
        if not p.ordered:
            parts.append(f"{p.name} in {{{', '.join(shown(p.values[k]) for k in at)}}}")
        elif at[-1] == p.n - 1:
            parts.append(f"{p.name} >= {shown(p.lower[at[0]])}")
        elif at[0] == 0:
            parts.append(f"{p.name} <= {shown(p.upper[at[-1]])}")
        else:
            parts.append(f"{shown(p.lower[at[0]])} <= {p.name} <= {shown(p.upper[at[-1]])}")
    return " and ".join(parts) or "everywhere"


def _front(coverage: Floats, density: Floats) -> NDArray[np.bool_]:
    order = np.lexsort((-density, -coverage))
    best = np.concatenate([[-1.0], np.maximum.accumulate(density[order])[:-1]])
    front = np.zeros(len(coverage), dtype=bool)
    front[order] = density[order] > best
    return front


def _within(t: Table, name: str, limit: Any) -> NDArray[np.bool_]:
    p = t[name]
    values = t.raw(name)
    if isinstance(limit, tuple) and len(limit) == 2 and p.ordered:
        inside = np.ones(t.n, dtype=bool)
        low, high = (None if v is None else _number(v, p) for v in limit)
        if low is not None:
            inside &= values >= low
        if high is not None:
            inside &= values <= high
        return inside
    if isinstance(limit, str) or not isinstance(limit, Collection):
        raise ValueError(
            f"the limit {limit!r} of {name!r} is neither (low, high) nor a set of values"
        )
    if p.ordered:
        wanted = np.array([_number(v, p) for v in limit])
        return np.isin(values, wanted)
    allowed = np.array([v in limit for v in p.values.tolist()])
    inside_: NDArray[np.bool_] = allowed[p.codes]
    return inside_


def _number(value: Any, p: Coded) -> float:
    if p.kind == "time":
        return float(as_numbers(np.asarray(value).astype(p.values.dtype)[None], "time")[0])
    return float(value)

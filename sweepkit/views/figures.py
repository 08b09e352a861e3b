"""What the views of an explorer draw: counts of the runs, as parts that travel on their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis import UnanswerableError, convergence, importance, pairs
from sweepkit.analysis.bases import BASES
from sweepkit.analysis.cells import Cells, cells
from sweepkit.analysis.coding import Coded
from sweepkit.analysis.counts import Counts, count, run_weights
from sweepkit.analysis.outcomes import FAILED, PASSED, PENDING, SKIPPED, declared
from sweepkit.analysis.table import Table
from sweepkit.views.asked import Asked
from sweepkit.views.levers import Lever
from sweepkit.views.packing import number, pack, plain
from sweepkit.views.source import BINS, Source, kept

__all__ = ["drags", "held", "map_cells", "overview", "pair_matrix", "rates", "sure"]

MAX_CUBE = 1_500_000
"""Entries of a cube sent to the browser; beyond, a moved limit is redrawn from here."""

PAIR_BINS = 12
COARSE = {0: BINS, 1: 12, 2: 8}
"""Quantile bins of an axis by the number of parameters of small multiples; these have `PANELS`."""

PANELS = 4

MAX_PAIRS = 45


@lru_cache(maxsize=8)
def _cells(t: Table, axes: tuple[str, ...], panels: tuple[str, ...] = ()) -> Cells:
    return cells(t, axes, bins=COARSE[len(panels)], coarse=dict.fromkeys(panels, PANELS))


def map_cells(asked: Asked) -> Cells:
    """The cells of the map; one if it has no axis."""
    # Which runs are where rests on no outcome.
    return _cells(asked.of.table, asked.axes, asked.panels)


def overview(asked: Asked) -> dict[str, Any]:
    """What every move redraws: tallies of all, of the selection and of the map's cells."""
    t, of = asked.table, asked.of
    layout = map_cells(asked)
    seen = kept(t, asked.sliced())
    fixed = layout.fixed + tuple(d for name in asked.at for d in of[name].dims)
    found = count(
        seen,
        layout.cell,
        layout.n,
        fixed=fixed,
        by_replicate=layout.by_replicate,
        along=layout.along,
        at_points=layout.at_points,
        with_boundary=False,
    )
    there = np.bincount(layout.cell[of.base != SKIPPED], minlength=layout.n)
    return {
        "all": _tally(t),
        "selected": _tally(asked.chosen) if asked.selected is not None else None,
        "declared": _declared_rate(of),
        "progress": _progress(of),
        "cells": {
            "pass": pack(found.n_run - found.n_failed),
            "fail": pack(found.n_failed),
            "error": pack(found.n_error),
            "pending": pack(found.n_unknown - found.n_error),
            "there": pack(there),
            "rate": pack(found.rate),
            "low": pack(found.low),
            "high": pack(found.high),
            "basis": pack(found.basis),
        },
        "axes": [list(axis) for axis in zip(layout.dims, layout.shape, strict=True)],
        "bases": list(BASES),
        "value": _value(asked, layout, seen),
        "levers": [_bars(asked, k) for k in range(len(of.levers))],
    }


def _progress(of: Source) -> dict[str, Any]:
    ended = np.bincount(of.base, minlength=5)
    total = int(ended.sum() - ended[SKIPPED])
    going = int(ended[PENDING])
    return {
        "total": total,
        "pending": going,
        "share": (total - going) / total if total else 1.0,
        "skipped": int(ended[SKIPPED]),
        "random": bool(declared(of.ds).get("random")),
    }


def plain_counts(t: Table) -> bool:
    """Whether rates are counts of runs: none is weighted, stands for a volume or is estimated."""
    going = t.prefix is not None and not t.finished
    return t.weights is None and t.volume is None and t.stage is None and not going


def _declared_rate(of: Source) -> float | None:
    if not plain_counts(of.table):
        rate: float | None = _tally(of.table)["rate"]
        return rate
    outcome = of.table.outcome
    known = int((outcome <= FAILED).sum())
    return int((outcome == FAILED).sum()) / known if known else None


def _tally(t: Table) -> dict[str, Any]:
    found = count(t, np.zeros(t.n, np.int64), 1, with_boundary=False)
    pending = int(found.n_unknown[0] - found.n_error[0])
    return {
        "pass": int(found.n_run[0] - found.n_failed[0]),
        "fail": int(found.n_failed[0]),
        "error": int(found.n_error[0]),
        "pending": pending,
        "rate": number(found.rate[0]),
        "low": number(found.low[0]),
        "high": number(found.high[0]),
        "basis": str(found.words[0]),
    }


def mean_value(
    asked: Asked, layout: Cells, seen: Table
) -> tuple[str, str, NDArray[np.int64], NDArray[np.float64]] | None:
    """Name, units, runs and sum per cell of a margin or an output, if that colours the map."""
    kind, _, name = asked.show.partition(":")
    if kind not in ("margin", "output"):
        return None
    if kind == "margin":
        k = [one.name for one in asked.of.levers].index(name)
        one = asked.of.levers[k]
        away = one.values - one.stops[asked.stops[k]]
        values = away if one.rising else -away
        units = one.units
    else:
        values = asked.of.output(name)
        units = str(asked.of.ds[name].attrs.get("units", ""))
    known = (seen.outcome <= FAILED) & np.isfinite(values)
    n = np.bincount(layout.cell[known], minlength=layout.n)
    total = np.bincount(layout.cell[known], weights=values[known], minlength=layout.n)
    return name, units, n.astype(np.int64), total.astype(np.float64)


def _value(asked: Asked, layout: Cells, seen: Table) -> dict[str, Any] | None:
    told = mean_value(asked, layout, seen)
    if told is None:
        return None
    name, units, n, total = told
    with np.errstate(invalid="ignore"):
        mean = total / n
    finite = mean[np.isfinite(mean)]
    return {
        "mean": pack(mean),
        "n": pack(n),
        "low": number(finite.min()) if len(finite) else None,
        "high": number(finite.max()) if len(finite) else None,
        "units": units,
        "name": name,
        "kind": asked.show.partition(":")[0],
    }


def _bars(asked: Asked, k: int) -> dict[str, Any]:
    """How the selected runs lie among the stops, and how many pass in all at each."""
    one = asked.of.levers[k]
    n = len(one.stops) + 1
    mine = asked.of.ended if asked.selected is None else asked.of.ended & asked.selected
    beside = asked.others_hold(k)
    if asked.selected is not None:
        beside = beside & asked.selected
    held = np.bincount(one.codes[beside], minlength=n)
    return {
        "bars": pack(np.bincount(one.codes[mine], minlength=n)),
        "passing": pack(_passing(held[None], one)[0]),
    }


def _passing(held: NDArray[Any], one: Lever) -> NDArray[Any]:
    """Runs that pass at each stop, from runs by code: the last axis becomes the stops."""
    if one.rising:
        return np.cumsum(held[..., :0:-1], axis=-1)[..., ::-1]
    return np.cumsum(held[..., :-1], axis=-1)


def drags(asked: Asked) -> dict[str, Any]:
    """Cubes with which the browser redraws the map while one limit or slider is dragged."""
    of, layout = asked.of, map_cells(asked)
    mask = asked.sliced()
    limits: list[Any] = []
    for k, one in enumerate(of.levers):
        n = len(one.stops) + 1
        if not one.movable or layout.n * n > MAX_CUBE:
            limits.append(None)
            continue
        mine = asked.others_hold(k)
        if mask is not None:
            mine = mine & mask
        code = layout.cell[mine] * np.int64(n) + one.codes[mine]
        held = np.bincount(code, minlength=layout.n * n).reshape(layout.n, n)
        limits.append(pack(_passing(held, one)))
    return {"limits": limits, "sliders": _sliders(asked, layout)}


def _sliders(asked: Asked, layout: Cells) -> dict[str, Any]:
    """Tallies of each cell by the values of each parameter that is not on an axis."""
    of = asked.of
    sliders = {}
    for p in of.parameters:
        if p.name in asked.axes or p.n < 2 or layout.n * p.n * 4 > MAX_CUBE:
            continue
        mask = asked.sliced(but=p.name)
        outcome = asked.table.outcome
        known = outcome < SKIPPED if mask is None else (outcome < SKIPPED) & mask
        code = (layout.cell[known] * np.int64(p.n) + p.codes[known]) * 4 + outcome[known]
        tally = np.bincount(code, minlength=layout.n * p.n * 4)
        sliders[p.name] = pack(tally.reshape(layout.n, p.n, 4))
    return sliders


def held(asked: Asked) -> dict[str, Any]:
    """Each parameter's strip: rates with intervals by value, and what moves with each limit."""
    of, t = asked.of, asked.chosen
    strips = []
    told = _shares(t)
    for p in of.parameters:
        if p.n < 2:
            continue
        found = _by(of, t, p)
        whole = _by(of, asked.table, p) if asked.selected is not None else found
        strips.append(
            {
                "name": p.name,
                "rate": plain(found.rate),
                "low": plain(found.low),
                "high": plain(found.high),
                "n": found.n_run.tolist(),
                "fail": found.n_failed.tolist(),
                "error": found.n_error.tolist(),
                "all": plain(whole.rate),
                "passing": [_strip_drag(asked, p, k) for k in range(len(of.levers))],
                **told["by"].get(p.name, {"S1": None, "ST": None, "KS": None}),
            }
        )

    def weight(strip: Mapping[str, Any]) -> float:
        for measure in ("ST", "S1", "KS"):
            if strip[measure] is not None:
                return float(strip[measure])
        rates = [r for r in strip["rate"] if r is not None]
        return max(rates) - min(rates) if rates else 0.0

    return {
        "strips": sorted(strips, key=weight, reverse=True),
        "why": told["why"],
        "method": told["method"],
    }


def rates(asked: Asked) -> list[tuple[Coded, NDArray[np.float64]]]:
    """The failure rate by value of each parameter, the one whose rates spread most first."""
    t = asked.chosen
    weights = run_weights(t)
    found = [(p, _rate_by(t, p, weights)) for p in asked.of.parameters if p.n > 1]

    def spread(one: tuple[Coded, NDArray[np.float64]]) -> float:
        known = one[1][np.isfinite(one[1])]
        return float(np.ptp(known)) if len(known) else -1.0

    return sorted(found, key=spread, reverse=True)


def _rate_by(t: Table, p: Coded, weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """The rate alone, which needs no interval."""
    code = p.codes.astype(np.int64) * 5 + t.outcome
    tally = np.bincount(code, weights=weights, minlength=5 * p.n).reshape(-1, 5)
    with np.errstate(invalid="ignore"):
        rate: NDArray[np.float64] = tally[:, FAILED] / (tally[:, PASSED] + tally[:, FAILED])
    return rate


def _by(of: Source, t: Table, p: Coded) -> Counts:
    layout = _cells(of.table, (p.name,))
    return count(
        t,
        layout.cell,
        layout.n,
        fixed=layout.fixed,
        by_replicate=layout.by_replicate,
        along=layout.along,
        at_points=layout.at_points,
        with_boundary=False,
    )


def _strip_drag(asked: Asked, p: Coded, k: int) -> Any:
    one = asked.of.levers[k]
    n = len(one.stops) + 1
    if not one.movable:
        return None
    mine = asked.others_hold(k)
    if asked.selected is not None:
        mine = mine & asked.selected
    code = p.codes[mine] * np.int64(n) + one.codes[mine]
    return pack(_passing(np.bincount(code, minlength=p.n * n).reshape(p.n, n), one))


def _shares(t: Table) -> dict[str, Any]:
    try:
        found = importance(t)
    except UnanswerableError as error:
        return {"by": {}, "why": str(error), "method": ""}
    by = {}
    for k, name in enumerate(found["parameter"].values.tolist()):
        by[str(name)] = {
            measure: number(found[measure].values[k])
            for measure in ("S1", "ST", "KS")
            if measure in found
        }
        for measure in ("S1", "ST", "KS"):
            by[str(name)].setdefault(measure, None)
    return {"by": by, "why": "", "method": str(found.attrs.get("basis", ""))}


def pair_matrix(asked: Asked) -> dict[str, Any]:
    """All pairs of parameters as small maps, the pair that says most jointly first."""
    of, t = asked.of, asked.chosen
    several = [p for p in of.parameters if p.n > 1 and p.role != "replicate"]
    if len(several) < 2:
        return {"pairs": [], "why": "There are fewer than two parameters with several values."}
    several = several[:12]
    joint: dict[frozenset[str], float] = {}
    why = ""
    try:
        table_ = pairs(t, bins=8)
        for row in table_.drop_duplicates("rank").itertuples():
            joint[frozenset((str(row.parameter), str(row.other)))] = float(row.joint)  # type: ignore[arg-type]
    except UnanswerableError as error:
        why = str(error)
    found: list[dict[str, Any]] = []
    for i, a in enumerate(several):
        for b in several[i + 1 :]:
            x, y = a.coarser(PAIR_BINS), b.coarser(PAIR_BINS)
            code = (y.codes * np.int64(x.n) + x.codes) * 5 + t.outcome
            tally = np.bincount(code, minlength=x.n * y.n * 5).reshape(y.n, x.n, 5)
            found.append(
                {
                    "x": a.name,
                    "y": b.name,
                    "nx": x.n,
                    "ny": y.n,
                    "tally": pack(tally[..., :SKIPPED]),
                    "excess": number(joint.get(frozenset((a.name, b.name)), np.nan)),
                }
            )
    found.sort(key=lambda one: -(one["excess"] if one["excess"] is not None else -1.0))
    total = len(found)
    said = "" if total <= MAX_PAIRS else f"The first {MAX_PAIRS} of {total} pairs."
    return {"pairs": found[:MAX_PAIRS], "why": why, "note": said}


def sure(asked: Asked) -> dict[str, Any]:
    """The failure rate as runs came in, with its band."""
    try:
        found = convergence(asked.chosen, points=40)
    except UnanswerableError as error:
        return {"why": str(error)}
    columns = {name: plain(found[name].to_numpy()) for name in ("n_run", "rate", "low", "high")}
    return {
        **columns,
        "order": str(found.attrs.get("order", "")),
        "basis": str(found.attrs.get("basis", "")),
        "total": int((asked.chosen.outcome != SKIPPED).sum()),
        "why": "",
    }

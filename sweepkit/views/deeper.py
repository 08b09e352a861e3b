"""The slower views of an explorer: kinds, islands, regions, distributions, single runs as lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis import Regions, UnanswerableError, distribution, regions
from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED, PENDING, SKIPPED
from sweepkit.views.asked import Asked
from sweepkit.views.packing import number, pack, plain, rounded
from sweepkit.views.record import trace
from sweepkit.views.selection import islands_of, kind_labels, kinds_of, mask_of
from sweepkit.views.source import Bools, kept

__all__ = ["boxes", "distributions", "island_table", "kind_table", "lines"]

MAX_ROWS = 50
MAX_LINES = 4000
MAX_TRACES = 300
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def kind_table(asked: Asked) -> dict[str, Any]:
    """What failed or errored, and how: one row a kind."""
    t = asked.table
    labels, known = kinds_of(t), kind_labels(t)
    if not known:
        ended = bool((t.outcome < PENDING).any() or (t.outcome == ERRORED).any())
        why = "No run failed or errored." if ended else "No run has ended."
        return {"rows": [], "why": why, "total": 0}
    found = t.__dict__["_kinds"]
    mask = mask_of(asked.of, t, asked.filters, but="kind")
    inside = labels if mask is None else labels[mask]
    mine = np.bincount(inside, minlength=len(known) + 1)
    first = _first_inside(labels, mask, len(known))
    rows: list[dict[str, Any]] = []
    for k, key in enumerate(known):
        rows.append(
            {
                "key": list(key),
                "text": _said(asked, key[0], key[1]),
                "family": key[0],
                "frame": key[2],
                "count": int(found["count"].values[k]),
                "selected": int(mine[k + 1]),
                "where": rounded(str(found["where"].values[k])),
                "lift": number(found["lift"].values[k]),
                "example": str(found["example"].values[k]),
                "first": int(first[k + 1]),
            }
        )
    rows.sort(key=lambda row: -row["selected"])
    return {"rows": rows[:MAX_ROWS], "total": len(rows), "why": ""}


def _said(asked: Asked, family: str, template: str) -> str:
    """A kind in words: of requirements, with the limits that are in force."""
    if family != "requirement":
        return template
    if not template:
        return "within the declared limits, beyond a moved one"
    for one, stop in zip(asked.of.levers, asked.stops, strict=True):
        moved = one.moved(stop)
        if moved is not None and one.requirement is not None and one.name == one.requirement.text:
            template = template.replace(f"not {one.name}", f"not {moved.text}")
    return template


def _first_inside(labels: NDArray[np.int64], mask: Bools | None, n: int) -> NDArray[np.int64]:
    first = np.full(n + 1, -1)
    those = np.arange(len(labels)) if mask is None else np.flatnonzero(mask)
    first[labels[those][::-1]] = those[::-1]
    return first


def island_table(asked: Asked) -> dict[str, Any]:
    """Connected regions of failing runs: one row each."""
    t = asked.table
    labels = islands_of(t)
    found = t.__dict__["_islands"]
    if found is None or not found.sizes.get("island", 0):
        return {"rows": [], "why": "No connected region fails.", "total": 0}
    n = int(found.sizes["island"])
    mask = mask_of(asked.of, t, asked.filters, but="island")
    inside = labels if mask is None else labels[mask]
    mine = np.bincount(inside, minlength=n + 1)
    first = _first_inside(labels, mask, n)
    rows = [
        {
            "island": k + 1,
            "size": int(found["size"].values[k]),
            "share": number(found["share_of_failures"].values[k]),
            "bounds": rounded(str(found["bounds"].values[k])),
            "touches": rounded(str(found["touches"].values[k])),
            "selected": int(mine[k + 1]),
            "first": int(first[k + 1]),
        }
        for k in range(min(n, MAX_ROWS))
    ]
    return {"rows": rows, "total": n, "why": "", "basis": str(found.attrs.get("basis", ""))}


def boxes(asked: Asked, found: Regions | None = None) -> dict[str, Any]:
    """Boxes of failing runs (those found, if given), and the front of coverage against density."""
    beside = mask_of(asked.of, asked.table, asked.filters, but="box")
    try:
        found = regions(kept(asked.table, beside)) if found is None else found
    except UnanswerableError as error:
        return {"boxes": [], "front": [], "why": str(error)}
    front = found.trajectory
    front = front[front["front"] & (front["box"] == front["box"].min())]
    return {
        "boxes": [_box(asked, found, row) for row in found.boxes.itertuples()],
        "front": [
            {
                "coverage": number(row.coverage),
                "density": number(row.density),
                "mass": number(row.mass),
                "limits": _limits(asked, row.limits),
            }
            for row in front.sort_values("coverage").itertuples()
        ],
        "why": "" if len(found.boxes) else "No box of limits surely fails more than the rest.",
    }


def _box(asked: Asked, found: Regions, row: Any) -> dict[str, Any]:
    return {
        "text": rounded(str(row.text)),
        "limits": _limits(asked, row.limits),
        "coverage": number(row.coverage),
        "density": number(row.density),
        "low": number(row.low),
        "high": number(row.high),
        "n": int(row.n_run),
        "failed": int(row.n_failed),
        "held_out": number(row.held_out_density),
        "confirmed": bool(row.confirmed),
    }


def _limits(asked: Asked, limits: Any) -> list[dict[str, Any]]:
    """Limits as tests of a filter, by codes of the views."""
    tests = []
    for name, limit in limits.items():
        p = asked.of[name]
        if isinstance(limit, set | frozenset):
            codes = [c for c in range(p.n) if p.values[c] in limit]
            tests.append({"of": name, "codes": codes})
        elif not p.ordered:
            tests.append({"of": name, "codes": [c for c in range(p.n) if p.values[c] in limit]})
        else:
            low, high = (_as_number(end, p.kind) for end in limit)
            if p.binned:
                tests.append({"of": name, "low": low, "high": high})
            else:
                inside = (p.numbers >= low) & (p.numbers <= high)
                tests.append({"of": name, "codes": np.flatnonzero(inside).tolist()})
    return tests


def _as_number(value: Any, kind: str) -> float:
    if kind == "time" and isinstance(value, np.datetime64 | np.timedelta64):
        return float(value.astype(f"{value.dtype.kind}8[ns]").astype(np.int64) / 1e9)
    return float(value)


# --- distributions -------------------------------------------------------------------------------


def distributions(asked: Asked, output: str, by: str, *, fan: bool = True) -> dict[str, Any]:
    """An output's distribution function with band, its quantiles by a parameter, and its traces."""
    of = asked.of
    choices = [*of.outputs, *(one.what for one in of.levers if one.what not in of.outputs)]
    movable = [one.what for one in of.levers if one.movable]
    if output not in choices:
        output = next((name for name in movable if name in choices), "") or next(iter(choices), "")
    result: dict[str, Any] = {"output": output, "choices": choices, "why": "", "by": by}
    if not output:
        return {**result, "why": "This Dataset has no output with one number a run."}
    values = of.output(output)
    dims = asked.table.dims
    array = xr.DataArray(values.reshape(asked.table.shape), dims=dims)
    chosen = asked.chosen
    shown = _judged_apart(chosen, of.ds.assign({"value": array}))
    lever = next((k for k, one in enumerate(of.levers) if one.what == output), None)
    result["lever"] = lever
    result["units"] = (
        of.levers[lever].units if lever is not None else str(of.ds[output].attrs.get("units", ""))
    )
    try:
        whole = distribution(shown, "value", points=81)
    except UnanswerableError as error:
        return {**result, "why": str(error).replace("'value'", repr(output))}
    result["ecdf"] = {
        "at": plain(whole["at"].values),
        "share": plain(whole["share"].values),
        "low": plain(whole["share_low"].values),
        "high": plain(whole["share_high"].values),
    }
    result["basis"] = str(whole.attrs.get("basis", ""))
    result["counts"] = [int(whole[n].values) for n in ("n_run", "n_unknown", "n_nan")]
    result["strips"] = _strips(asked, values, by)
    result["fan"] = _fan(asked) if fan else None
    return result


def _judged_apart(t: Any, ds: xr.Dataset) -> Any:
    from dataclasses import replace

    return replace(t, ds=ds)


def _strips(asked: Asked, values: NDArray[np.float64], by: str) -> dict[str, Any] | None:
    names = [p.name for p in asked.of.parameters if p.n > 1]
    if by not in names:
        return None
    p = asked.of[by]
    known = (asked.chosen.outcome <= FAILED) & np.isfinite(values)
    rows = []
    for code in range(p.n):
        those = values[known & (p.codes == code)]
        quantiles = np.quantile(those, QUANTILES) if len(those) else np.full(5, np.nan)
        rows.append({"q": plain(quantiles), "n": len(those)})
    return {"name": by, "rows": rows}


def _fan(asked: Asked) -> dict[str, Any] | None:
    """Quantiles of a trace over sampled selected runs."""
    of = asked.of
    if not of.traces:
        return None
    name = of.traces[0]
    known = np.flatnonzero(asked.chosen.outcome <= FAILED)
    if not len(known):
        return None
    rng = np.random.default_rng(0)
    some = np.sort(rng.choice(known, min(len(known), MAX_TRACES), replace=False))
    rows = _rows(asked, name, some)
    longest = max(len(row) for row in rows)
    if not longest:
        return None
    grid = np.full((len(rows), longest), np.nan)
    for k, row in enumerate(rows):
        grid[k, : len(row)] = row
    step = max(1, longest // 120)
    grid = grid[:, ::step]
    n = np.isfinite(grid).sum(axis=0)
    quantiles = np.full((len(QUANTILES), grid.shape[1]), np.nan)
    for j in np.flatnonzero(n):
        quantiles[:, j] = np.nanquantile(grid[:, j], QUANTILES)
    own = next(str(d) for d in of.ds[name].dims if d not in of.table.dims)
    along = np.arange(longest, dtype=np.float64)[::step]
    if own in of.ds.coords and of.ds[own].dtype.kind in "iuf":
        along = np.asarray(of.ds[own].values, np.float64)[:longest][::step]
    return {
        "name": name,
        "units": str(of.ds[name].attrs.get("units", "")),
        "along": own,
        "x": plain(along),
        "q": [plain(row) for row in quantiles],
        "n": n.tolist(),
        "drawn": len(some),
        "of": len(known),
    }


def _rows(asked: Asked, name: str, some: NDArray[np.intp]) -> list[NDArray[np.float64]]:
    of, t = asked.of, asked.table
    array = of.ds[name]
    if array.nbytes <= 200_000_000:
        own = [d for d in array.dims if d not in t.dims]
        flat = np.asarray(array.transpose(*t.dims, *own).values, np.float64)
        flat = flat.reshape(t.n, -1)[some]
        ends = [
            int(np.flatnonzero(np.isfinite(row))[-1]) + 1 if np.isfinite(row).any() else 0
            for row in flat
        ]
        return [row[:end] for row, end in zip(flat, ends, strict=True)]
    return [trace(of, name, int(run))[1] for run in some[:60]]


# --- single runs as lines ------------------------------------------------------------------------


def lines(asked: Asked) -> dict[str, Any]:
    """Runs as lines through parallel axes: all of a small set, else a sample of each outcome.

    Every outcome gets its share of the lines and no fewer than a quarter of an even one, so that
    rare failures do not vanish; counts elsewhere stay exact. What has not ended is no line, and
    takes none from the others.
    """
    of, t = asked.of, asked.table
    there = np.flatnonzero((of.base != SKIPPED) & (of.base != PENDING))
    if not len(there):
        return {"why": "No run has ended, so there is no line to draw."}
    picked = there
    if len(there) > MAX_LINES:
        picked = _sample(t.outcome, there)
    numbers = [one for one in of.levers if one.movable]
    axes = []
    for one in numbers:
        axes.append(_axis(one.what, one.title, one.units, one.values, picked, of.ended))
    for name in of.outputs:
        if all(one.what != name for one in numbers) and len(axes) < 6:
            units = str(of.ds[name].attrs.get("units", ""))
            axes.append(_axis(name, name, units, of.output(name), picked, of.ended))
    return {
        "runs": pack(picked),
        "total": len(there),
        "base": pack(of.base[picked]),
        "codes": {p.name: pack(p.codes[picked]) for p in of.parameters if p.n > 1},
        "exact": {
            p.name: pack(of.table.raw(p.name)[picked].astype(np.float32))
            for p in of.parameters
            if p.binned and p.kind == "number"
        },
        "levers": [pack(one.codes[picked]) for one in of.levers],
        "axes": axes,
        "selected": pack(
            np.ones(len(picked), bool) if asked.selected is None else asked.selected[picked]
        ),
    }


def _sample(outcome: NDArray[np.int8], there: NDArray[np.intp]) -> NDArray[np.intp]:
    rng = np.random.default_rng(0)
    groups = [there[outcome[there] == kind] for kind in (PASSED, FAILED, ERRORED)]
    groups = [group for group in groups if len(group)]
    least = MAX_LINES // (4 * len(groups))
    sizes = [min(len(g), max(least, round(MAX_LINES * len(g) / len(there)))) for g in groups]
    picks = [rng.choice(g, n, replace=False) for g, n in zip(groups, sizes, strict=True)]
    return np.sort(np.concatenate(picks))


def _axis(
    what: str,
    name: str,
    units: str,
    values: NDArray[np.float64],
    picked: NDArray[np.intp],
    ended: Bools,
) -> dict[str, Any]:
    finite = values[ended & np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return {
        "what": what,
        "name": name,
        "units": units,
        "low": low,
        "high": high if high > low else low + 1.0,
        "values": pack(values[picked].astype(np.float32)),
    }

"""Failures as boxes: the patient rule induction method (PRIM), by counting codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.answerable import passed_and_failed
from sweepkit.analysis.bases import BASES
from sweepkit.analysis.coding import Coded, Codes, Floats, shown
from sweepkit.analysis.counts import count
from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.limits import inside_limits, why_empty
from sweepkit.analysis.outcomes import FAILED, Errors, Failed, UnanswerableError
from sweepkit.analysis.peeling import (
    SHARES,
    Box,
    limits_of,
    polish,
    search,
)
from sweepkit.analysis.reasons import check_shares, reasons, whole_number
from sweepkit.analysis.table import Table, table, varied
from sweepkit.analysis.unrefined import left_out, unrefined
from sweepkit.html import Markup, escape, note
from sweepkit.html import box as html_box
from sweepkit.html import table as html_table

__all__ = ["Regions", "regions"]

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
WHY_NAN = {
    "held_out_density": "where too few failures are left to fit a box without some of them, or "
    "no held-out run lies in it",
    "held_out_coverage": "where too few failures are left to hold some out",
}


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
        ``held_out_density``, ``held_out_coverage`` (share of all failures held out),
        ``held_out_n``; ``confirmed`` if by both densities the odds of failing are surely (99 %)
        twice those of the runs left.
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
            ``n_failed``, ``n_unknown``, ``basis``, ``note``. Density is NaN, with bounds 0 and 1,
            where nothing has run; the note says so, and which limits are reversed or name a
            value that no run has.

        Raises
        ------
        KeyError
            If a name is no parameter.
        """
        t = self.table
        inside = inside_limits(t, limits)
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
            "note": why_empty(t, limits, int(counts.n_run[1])),
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
    shares = check_shares("shares", shares).tolist()
    if not shares:
        raise ValueError("shares is empty; give some between 0 and 1, as [0.05]")
    whole_number("max_boxes", max_boxes)
    whole_number("seed", seed, 0)
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
        box, trajectory = search(
            parameters, [c[looked] for c in codes], fails[looked], shares, repeats
        )
        finer, placed = list(parameters), list(codes)
        for i in box.restricted:
            if parameters[i].binned:
                finer[i], placed[i], mask = _zoomed(t, parameters[i], known, box.allowed[i])
                box = box.with_mask(i, mask)
        if any(a is not b for a, b in zip(finer, parameters, strict=True)):
            there = np.flatnonzero(left)
            box = polish(finer, [c[there] for c in placed], fails[there], box)
        row = _figures(t, finer, box, placed, fails, left, errors, [one["limits"] for one in rows])
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
    boxes.attrs["note"] = reasons(boxes, WHY_NAN)
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


def _figures(
    t: Table,
    parameters: Sequence[Coded],
    box: Box,
    codes: Sequence[Codes],
    fails: NDArray[np.bool_],
    left: NDArray[np.bool_],
    errors: Errors,
    earlier: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    limits = limits_of(parameters, box)
    inside = box.inside(codes) & left
    n, f = int(inside.sum()), int((inside & fails).sum())
    known = t.counted(errors) <= FAILED
    cell = inside_limits(t, limits)
    for other in earlier:
        cell &= ~inside_limits(t, other)
    cell[known] = inside
    counts = count(t, cell.astype(np.uint8), 2, errors=errors, with_boundary=False)
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
    box, _ = search(parameters, [c[looked] for c in codes], fails[looked], shares, repeats)
    inside = box.inside(codes) & test
    n, f = int(inside.sum()), int((inside & fails).sum())
    return {
        "held_out_density": f / n if n else np.nan,
        "held_out_coverage": f / int(fails[held].sum()),
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


def _text(parameters: Sequence[Coded], box: Box) -> str:
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

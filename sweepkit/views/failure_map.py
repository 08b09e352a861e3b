"""The failure map: any two parameters against what became of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from sweepkit.analysis import (
    Table,
    UnanswerableError,
    distribution,
    failure_rate,
    pairs,
    table,
)
from sweepkit.verdicts import margin, requirements_of
from sweepkit.views.drawing import ready, titled, with_units
from sweepkit.views.maps import RATE, STATUS, Maps, Scale
from sweepkit.views.packing import rounded

__all__ = ["failure_map"]


def failure_map(
    ds: xr.Dataset | Table,
    x: str | None = None,
    y: str | None = None,
    *,
    of: str = "failed",
    by: str | Sequence[str] = (),
    over: str | Sequence[str] | None = None,
    requirements: Any = None,
    failed: Any = None,
    level: float = 0.95,
    backend: str | None = None,
) -> Any:
    """Map of two parameters: failure rate, margin, an output, or what became of the runs.

    Values lie where they are: uneven axes are drawn uneven, positive ones that span decades in
    the logarithm, and categories side by side. A cell where nothing has run has a border and no
    colour; errored runs are hatched, by their share of the cell, and in no rate. Pointing at a
    cell tells its interval and counts.

    Parameters
    ----------
    ds : Dataset or Table
        An opened store, or any Dataset of outputs over parameters.
    x, y : str, optional
        Parameters along the axes; by default the pair that matters most jointly. Without `y`
        where there is but one parameter.
    of : str
        "failed" (the rate), "margin" (median of the smallest margin), "status" (the outcome
        that most runs have), or the name of an output (its median).
    by : str or sequence of str
        One or two further parameters, for small multiples; values that hardly repeat in four
        bins.
    over : str or sequence of str, optional
        Parameters to average over; those left then have sliders. By default all others.
    requirements, failed, level
        As in :func:`failure_rate`.
    backend : {"bokeh", "matplotlib"}, optional
        Of HoloViews, which it then stays. By default the loaded one; in notebooks run without a
        person, matplotlib.

    Returns
    -------
    HoloViews Overlay, Layout (with `by`) or HoloMap (with `over`)

    Raises
    ------
    UnanswerableError
        If nothing says which runs fail, or no finished run has a number in the output.
    ValueError
        If a name is no parameter or output, or there are too many maps.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> failure_map(ds, "gain", "mass", backend="matplotlib").kdims
    [Dimension('gain'), Dimension('mass')]
    """
    measured = of not in ("failed", "status")
    given = ds.ds if isinstance(ds, Table) else ds
    t = table(ds, failed=failed, requirements=requirements, errors="fail" if measured else "apart")
    x, y = _axes(t, x, y)
    shown = [name for name in (x, y) if name is not None]
    multiples = [by] if isinstance(by, str) else list(by)
    names = [p.name for p in t.parameters]
    averaged = [over] if isinstance(over, str) else list(over or ())
    for word, some in (("x or y", shown), ("by", multiples), ("over", averaged)):
        for name in some:
            if name not in names:
                raise ValueError(
                    f"{word}={name!r} is no parameter; there are {', '.join(map(repr, names))}"
                )
    sliders = (
        [n for n in names if n not in {*shown, *multiples, *averaged} and t[n].n > 1]
        if over is not None
        else []
    )
    if multiples:
        t = _coarser(t, shown, multiples)
    cells, scale = _cells(given, t, [*shown, *multiples, *sliders], of, level, requirements)
    rest = [n for n in names if n not in {*shown, *multiples, *sliders} and t[n].n > 1]
    for name in multiples:
        if t[name].binned:
            cells[name].attrs["labels"] = [rounded(t[name].label(k)) for k in range(t[name].n)]
    drawn = ready(backend)
    maps = Maps(cells, scale, x, y, drawn, bool(multiples))
    alone = "over the runs of each cell" if any(p.binned for p in t.parameters) else ""
    where = f"over {', '.join(rest)}" if rest else alone or "each cell one point"
    title = f"{scale.title}, {where}{maps.remark}"
    if multiples:
        return maps.multiples(multiples, sliders, title)
    if sliders:
        return maps.with_sliders(sliders, title)
    return titled(maps.one({}), title, maps.width)


def _coarser(t: Table, shown: Sequence[str], multiples: Sequence[str]) -> Table:
    """Values that hardly repeat in the bins that small maps have the room, and the runs, for."""
    bins = dict.fromkeys(shown, 12 if len(multiples) < 2 else 8) | dict.fromkeys(multiples, 4)
    found = tuple(p.coarser(bins.get(p.name, p.n)) for p in t.parameters)
    return replace(t, parameters=found)


def _axes(t: Table, x: str | None, y: str | None) -> tuple[str, str | None]:
    """The axes asked for, else the pair that matters most jointly, else the first two."""
    several = [p.name for p in t.parameters if p.n > 1 and p.role != "replicate"]
    several = several or [p.name for p in t.parameters]
    if x is not None and (y is not None or len(several) < 2):
        if x == y:
            raise ValueError(f"x and y are both {x!r}; give two parameters")
        return x, y
    if x is None and y is None:
        try:
            first = pairs(t).iloc[0]
            return str(first["parameter"]), str(first["other"])
        except UnanswerableError:  # all runs alike, or one parameter only
            return several[0], several[1] if len(several) > 1 else None
    other = next((name for name in several if name not in (x, y)), None)
    return (x, other) if x is not None else (other or several[0], y)


def _cells(
    ds: xr.Dataset, t: Table, names: list[str], of: str, level: float, requirements: Any
) -> tuple[xr.Dataset, Scale]:
    """One value per cell with its interval and counts, and how it is coloured."""
    if of in ("failed", "status"):
        rates = failure_rate(t, by=names, level=level)
        if of == "failed":
            told = rates.assign(value=100 * rates["rate"])
            return told, RATE
        tally = [rates["n_run"] - rates["n_failed"], rates["n_failed"], rates["n_error"]]
        tally.append(rates["n_unknown"] - rates["n_error"])
        stacked = xr.concat([one.reset_coords(drop=True) for one in tally], "outcome")
        some = stacked.sum("outcome") > 0
        most = stacked.argmax("outcome").astype(np.float64).where(some)
        return rates.assign(value=most), STATUS
    ds, name, label, title = _measured(ds, of, requirements)
    counts = failure_rate(t, by=names, level=level)
    spread = distribution(
        replace(t, ds=ds), name, by=names, quantiles=[0.05, 0.5, 0.95], level=level
    )
    value = spread["value"].sel(quantile=0.5, drop=True)
    told = counts.assign(
        value=value,
        lower=spread["value"].sel(quantile=0.05, drop=True),
        upper=spread["value"].sel(quantile=0.95, drop=True),
        n_run=spread["n_run"],
    )
    finite = value.values[np.isfinite(value.values)]
    limits = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if limits[0] == limits[1]:
        limits = (limits[0] - 0.5, limits[1] + 0.5)
    units = str(ds[name].attrs.get("units") or "")
    return told, Scale(title, label, "" if units == "1" else units, limits)


def _measured(ds: xr.Dataset, of: str, requirements: Any) -> tuple[xr.Dataset, str, str, str]:
    """The Dataset, the variable, its label and what it is."""
    if of in ds.data_vars:
        label = with_units(of, ds[of].attrs)
        return ds, of, label, f"Median of {of}"
    if of != "margin":
        outputs = ", ".join(repr(str(name)) for name in ds.data_vars)
        raise ValueError(
            f"of={of!r} is none of 'failed', 'margin', 'status' and no output; there are {outputs}"
        )
    measured = margin(ds, requirements)
    wanted = requirements_of(ds, requirements)
    label, title = "margin", f"Median margin of {wanted[0].name}"
    if len(wanted) > 1:
        deviation = measured.std([d for d in measured.dims if d != "requirement"])
        measured = measured / deviation.where(deviation > 0, 1.0)
        label, title = "margin, standard deviations", "Median of the smallest margin"
    smallest = measured.min("requirement", skipna=False)
    return ds.assign(smallest_margin=smallest), "smallest_margin", label, title

"""What held up: failure rate at each value of each parameter, the most important first."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis import (
    Table,
    UnanswerableError,
    held_up,
    importance,
    rate,
    table,
)
from sweepkit.views.axis import axis_of
from sweepkit.views.drawing import (
    FAIL,
    INK,
    beside,
    count_text,
    frame,
    interval_text,
    percent,
    ready,
    side_by_side,
    titled,
    value_text,
)

__all__ = ["strips"]

WIDTH, HEIGHT, LEFT = 190, 110, 52


def strips(
    ds: xr.Dataset | Table,
    *,
    requirements: Any = None,
    failed: Any = None,
    level: float = 0.95,
    backend: str | None = None,
) -> Any:
    """One strip per parameter: failure rate with interval at each of its values.

    Strips are sorted by importance; each title gives S1 (what the parameter explains alone) and
    ST (with its interactions) of the variance of failure, or KS (how far passing and failing runs
    lie apart) where these need a complete grid. The grey line is the rate of all runs.

    Parameters
    ----------
    ds : Dataset or Table
    requirements, failed, level
        As in :func:`failure_rate`.
    backend : {"bokeh", "matplotlib"}, optional
        As in :func:`failure_map`.

    Returns
    -------
    HoloViews Layout, or an Overlay for a single parameter

    Raises
    ------
    UnanswerableError
        If nothing says which runs fail.
    """
    t = table(ds, failed=failed, requirements=requirements)
    told = held_up(t, level=level)
    overall = float(rate(t)["rate"].iloc[0])
    names = list(dict.fromkeys(told["parameter"]))
    weights, note = _importance(t, names)
    names.sort(key=lambda name: weights[name][0])
    drawn = ready(backend)
    columns = min(4, len(names))
    if drawn == "bokeh":
        columns = beside(columns, LEFT, WIDTH)
    figures = []
    for number, name in enumerate(names):
        rows = told[told["parameter"] == name]
        strip = _strip(rows, _coordinate(t, name, rows["value"]), overall, drawn, level)
        strip = strip.opts(ylabel="fail, %" if number % columns == 0 else "")
        figures.append(titled(strip, weights[name][1], WIDTH))
    title = f"Failure rate by the values of each parameter; all runs {percent(overall)}"
    return side_by_side(figures, drawn, columns=columns, title=f"{title}{note}")


def _importance(t: Table, names: list[str]) -> tuple[dict[str, tuple[int, str]], str]:
    """Rank and words of each parameter, and a sentence where nothing ranks them."""
    try:
        told = importance(t)
    except UnanswerableError as fault:
        return {name: (k, name) for k, name in enumerate(names)}, f". As declared: {fault}"
    weights = {}
    for name in names:
        one = told.sel(parameter=name)
        words = f"S1 {float(one['S1']):.2f} in ST {float(one['ST']):.2f}"
        if np.isnan(one["ST"]):
            words = f"KS {float(one['KS']):.2f}"
        weights[name] = (int(one["rank"]), f"{name}: {words}")
    return weights, ""


def _coordinate(t: Table, name: str, values: pd.Series[Any]) -> xr.DataArray:
    attrs = t.ds.coords[name].attrs if name in t.ds.coords else {}
    p = t[name].coarser(len(values))
    own: NDArray[Any] = p.values if p.binned else np.asarray(values.tolist())
    return xr.DataArray(own, dims=name, name=name, attrs=attrs)


def _strip(
    rows: pd.DataFrame, coordinate: xr.DataArray, overall: float, drawn: str, level: float
) -> Any:
    axis = axis_of(coordinate)
    at = pd.DataFrame(
        {
            "at": axis.at,
            "rate": 100 * rows["rate"].to_numpy(),
            "below": 100 * (rows["rate"] - rows["low"]).to_numpy(),
            "above": 100 * (rows["high"] - rows["rate"]).to_numpy(),
            "value": [value_text(value) for value in rows["value"]],
            "shown": percent(rows["rate"].to_numpy()),
            "interval": interval_text(rows["low"].to_numpy(), rows["high"].to_numpy()),
            "failed": count_text(rows["n_failed"].to_numpy(), rows["n_run"].to_numpy()),
            "basis": rows["basis"].to_numpy(),
        }
    ).sort_values("at")
    known = at[np.isfinite(at["rate"])]
    details = ["rate", "value", "shown", "interval", "failed", "basis"]
    dots = hv.Scatter(known, kdims=["at"], vdims=details)
    along = known if coordinate.dtype.kind in "iufmM" else known[:0]  # categories have no between
    line = hv.Curve(along, kdims=["at"], vdims=["rate"])
    bars = hv.ErrorBars(known, kdims=["at"], vdims=["rate", "below", "above"])
    all_runs = hv.HLine(100 * overall)
    if drawn == "bokeh":
        tips = [
            (axis.label, "@value"),
            ("failure rate", "@shown"),
            (f"{100 * level:g} % interval", "@interval"),
            ("failed", "@failed"),
            ("interval", "@basis"),
        ]
        dots = dots.opts(color=FAIL, size=6, tools=["hover"], hover_tooltips=tips)
        line = line.opts(color=FAIL, line_width=1.2)
        bars = bars.opts(color=FAIL, line_width=1.2, lower_head=None, upper_head=None)
        all_runs = all_runs.opts(color=INK, line_width=0.8)
    else:
        dots = dots.opts(color=FAIL, s=12)
        line = line.opts(color=FAIL, linewidth=1)
        bars = bars.opts(edgecolor=FAIL, capsize=0)
        all_runs = all_runs.opts(color=INK, linewidth=0.8)
    low, high = axis.limits
    looks = frame(
        drawn,
        WIDTH,
        HEIGHT,
        alone=False,
        left=LEFT,
        xlabel=axis.label,
        ylim=(-4, 104),
        xlim=(low, high),
        xticks=axis.ticks(WIDTH),
        yticks=[0, 50, 100],
        logx=axis.logarithmic,
        show_legend=False,
    )
    return hv.Overlay([all_runs, bars, line, dots]).opts(**looks)

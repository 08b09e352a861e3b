"""How the failure rate settled as runs came in, with a band that holds at every look."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import xarray as xr

from sweepkit.analysis import Table, convergence, rate, table
from sweepkit.views.drawing import (
    FAIL,
    INK,
    count_text,
    interval_text,
    overlaid,
    percent,
    ready,
)

__all__ = ["how_sure"]

WIDTH, HEIGHT = 480, 260


def how_sure(
    ds: xr.Dataset | Table,
    *,
    points: int = 60,
    requirements: Any = None,
    failed: Any = None,
    level: float = 0.95,
    backend: str | None = None,
) -> Any:
    """Failure rate against the number of finished runs, with its anytime band.

    The band holds at all looks together, so one may watch a sweep and stop when it is narrow.

    Parameters
    ----------
    ds : Dataset or Table
    points : int
        Looks, spaced evenly in the logarithm of the number of runs.
    requirements, failed, level
        As in :func:`failure_rate`.
    backend : {"bokeh", "matplotlib"}, optional
        As in :func:`failure_map`.

    Returns
    -------
    HoloViews Overlay

    Raises
    ------
    UnanswerableError
        If no run has passed or failed yet, or runs carry unequal weights.
    """
    t = table(ds, failed=failed, requirements=requirements)
    looks = convergence(t, points=points, level=level)
    whole = rate(t, level=level).iloc[0]
    looks = looks[looks["n_run"] > 0].drop_duplicates("n_run", keep="last")
    looks = looks.assign(
        percent_=100 * looks["rate"],
        low_=100 * looks["low"],
        high_=100 * looks["high"],
        shown=percent(looks["rate"]),
        band=interval_text(looks["low"], looks["high"]),
        failed=count_text(looks["n_failed"], looks["n_run"]),
    )
    drawn = ready(backend)
    band = hv.Area(looks, kdims=["n_run"], vdims=["low_", "high_"])
    line = hv.Curve(looks, kdims=["n_run"], vdims=["percent_"])
    dots = hv.Scatter(looks, kdims=["n_run"], vdims=["percent_", "shown", "band", "failed"])
    if drawn == "bokeh":
        tips = [
            ("finished runs", "@n_run{0,0}"),
            ("failure rate", "@shown"),
            (f"{100 * level:g} % at every look", "@band"),
            ("failed", "@failed"),
        ]
        band = band.opts(color=FAIL, alpha=0.25, line_color=None)
        line = line.opts(color=FAIL, line_width=2)
        dots = dots.opts(color=FAIL, size=4, tools=["hover"], hover_tooltips=tips)
    else:
        band = band.opts(facecolor=FAIL, alpha=0.25, edgecolor="none")
        line = line.opts(color=FAIL, linewidth=1.8)
        dots = dots.opts(color=FAIL, s=6)
    at = hv.HLine(100 * float(whole["rate"]))
    style = "line_width" if drawn == "bokeh" else "linewidth"
    at = at.opts(**{"color": INK, style: 0.8})
    now = f"{percent(whole['rate'])} fail, {interval_text(whole['low'], whole['high'])}"
    title = f"{now} ({whole['basis']}); band in {looks.attrs['order']}"
    return overlaid(
        [band, at, line, dots],
        drawn,
        WIDTH,
        HEIGHT,
        title,
        xlabel="finished runs",
        ylabel="fail, %",
        ylim=(-2, 102),
        logx=bool(looks["n_run"].max() > 200),
        show_legend=False,
    )

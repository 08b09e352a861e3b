"""Traces as a fan: quantiles at each step, of passing and failing runs, and single runs."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import xarray as xr

from sweepkit.analysis import Table, table
from sweepkit.analysis.traces import traces
from sweepkit.views.drawing import FAIL, PASS, overlaid, ready, with_units

__all__ = ["fan"]

WIDTH, HEIGHT = 480, 300
COLOURS = {"pass": PASS, "fail": FAIL}


def fan(
    ds: xr.Dataset | Table,
    output: str,
    *,
    singles: int = 0,
    most: int = 5_000,
    seed: int = 0,
    requirements: Any = None,
    failed: Any = None,
    backend: str | None = None,
) -> Any:
    """Fan chart of a trace: median, the middle half and nine in ten runs, at each step.

    Passing and failing runs have a fan each. A run counts at the steps that it reaches.

    Parameters
    ----------
    ds : Dataset or Table
    output : str
        An output with one dim of its own.
    singles : int
        Single runs drawn of each outcome.
    most : int
        Runs read of each outcome; of more, a random sample is, which the title says.
    seed : int
        Of what is sampled.
    requirements, failed
        As in :func:`failure_rate`; where nothing says which runs fail, there is one fan.
    backend : {"bokeh", "matplotlib"}, optional
        As in :func:`failure_map`.

    Returns
    -------
    HoloViews Overlay

    Raises
    ------
    UnanswerableError
        If no finished run has a number in the output.
    ValueError
        If the output is no trace.
    """
    t = table(ds, failed=failed, requirements=requirements, errors="fail")
    told = traces(t, output, singles=singles, most=most, seed=seed)
    own = str(told.attrs["dim"])
    drawn = ready(backend)
    layers: list[Any] = []
    words = []
    for outcome in ("pass", "fail"):
        one = told.sel(outcome=outcome)
        if not int(one["n_read"]):
            continue
        read, all_ = int(one["n_read"]), int(one["n_run"])
        some = f"{read:,} of {all_:,}" if read < all_ else f"{all_:,}"
        words.append(f"{some} runs {outcome}")
        layers += _one_fan(one, own, outcome, drawn)
    for outcome in ("pass", "fail"):
        layers += _singles(told.sel(outcome=outcome), own, outcome, drawn)
    along = told[own].attrs if own in told.coords else {}
    title = f"{output}: {', '.join(words)}. Line: median; bands: half and nine tenths of the runs"
    return overlaid(
        layers,
        drawn,
        WIDTH,
        HEIGHT,
        title,
        xlabel=with_units(own, along),
        ylabel=with_units(output, t.ds[output].attrs),
        show_legend=True,
        legend_position="right",
    )


def _one_fan(one: xr.Dataset, own: str, outcome: str, drawn: str) -> list[Any]:
    at = one[own].values if own in one.coords else np.arange(one.sizes[own])
    columns = {f"q{k}": one["value"].isel(quantile=k).values for k in range(5)}
    rows = pd.DataFrame({own: at, **columns, "n": one["n"].values})
    rows = rows[rows["n"] > 0]
    colour = COLOURS[outcome]
    layers = []
    for low, high, alpha in (("q0", "q4", 0.15), ("q1", "q3", 0.25)):
        band = hv.Area(rows, kdims=[own], vdims=[low, high])
        if drawn == "bokeh":
            layers.append(band.opts(color=colour, alpha=alpha, line_color=None))
        else:
            layers.append(band.opts(facecolor=colour, alpha=alpha, edgecolor="none"))
    line = hv.Curve(rows, kdims=[own], vdims=["q2", "q0", "q1", "q3", "q4", "n"], label=outcome)
    if drawn == "bokeh":
        tips = [
            (own, f"@{{{own}}}"),
            ("median", "@q2"),
            ("half of the runs", "@q1 to @q3"),
            ("nine tenths", "@q0 to @q4"),
            ("runs that reach", "@n{0,0}"),
        ]
        dash = "solid" if outcome == "pass" else "dashed"
        line = line.opts(
            color=colour, line_width=2, line_dash=dash, tools=["hover"], hover_tooltips=tips
        )
    else:
        line = line.opts(
            color=colour, linewidth=1.6, linestyle="solid" if outcome == "pass" else "dashed"
        )
    return [*layers, line]


def _singles(one: xr.Dataset, own: str, outcome: str, drawn: str) -> list[Any]:
    at = one[own].values if own in one.coords else np.arange(one.sizes[own])
    lines = []
    for k in range(one.sizes["single"]):
        if int(one["run"][k]) < 0:
            continue
        rows = pd.DataFrame({own: at, "value": one["trace"].isel(single=k).values}).dropna()
        rows["run"] = int(one["run"][k])
        line = hv.Curve(rows, kdims=[own], vdims=["value", "run"])
        if drawn == "bokeh":
            tips = [("run", "@run"), (own, f"@{{{own}}}"), ("value", "@value")]
            line = line.opts(
                color=COLOURS[outcome],
                line_width=0.8,
                alpha=0.8,
                tools=["hover"],
                hover_tooltips=tips,
            )
        else:
            line = line.opts(color=COLOURS[outcome], linewidth=0.6, alpha=0.8)
        lines.append(line)
    return lines

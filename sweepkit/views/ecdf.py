"""Distribution function of an output, with its band and the limits of requirements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import xarray as xr

from sweepkit.analysis import Table, distribution, table
from sweepkit.requirements import Requirement
from sweepkit.verdicts import requirements_of
from sweepkit.views.drawing import (
    DASHES,
    INK,
    SERIES,
    interval_text,
    overlaid,
    percent,
    ready,
    value_text,
    with_units,
)

__all__ = ["ecdf"]

WIDTH, HEIGHT = 480, 300
MAX_LINES = 12


def ecdf(
    ds: xr.Dataset | Table,
    output: str,
    by: str | Sequence[str] | None = None,
    *,
    points: int = 201,
    requirements: Any = None,
    level: float = 0.95,
    backend: str | None = None,
) -> Any:
    """Share of runs at or below each value of an output, with limits where requirements set any.

    Parameters
    ----------
    ds : Dataset or Table
    output : str
        An output with one number per run.
    by : str or sequence of str, optional
        One line for each of their values; by default all runs together.
    points : int
        Values at which the function is drawn.
    requirements, level
        As in :func:`failure_rate`; requirements only for their limits.
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
        If the output is not there, or `by` makes more than 12 lines.
    """
    t = table(ds, requirements=requirements, errors="fail")
    given = t.ds
    told = distribution(t, output, by=by, points=points, level=level)
    names = [str(dim) for dim in told["n_run"].dims]
    number = int(np.prod([told.sizes[name] for name in names]))
    if number > MAX_LINES:
        raise ValueError(
            f"by={by!r} makes {number} lines; at most {MAX_LINES} are drawn. Select values first, "
            f"as in ds.sel({names[0]}=[...])"
        )
    drawn = ready(backend)
    label = with_units(output, given[output].attrs)
    layers, missing = [], []
    at = told["at"].values
    spare = 0.04 * (float(np.ptp(at)) or abs(float(at[0])) or 1.0)
    ends = (float(at.min()) - spare, float(at.max()) + spare)
    limits = [one for one in _limits(given, requirements) if one.output == output]
    for one in limits:
        assert one.limit is not None
        ends = (min(ends[0], one.limit - spare), max(ends[1], one.limit + spare))
    for k, place in enumerate(np.ndindex(*(told.sizes[name] for name in names))):
        where = dict(zip(names, place, strict=True))
        cell = told.isel(where)
        words = ", ".join(f"{n} {_shown(told, n, i)}" for n, i in where.items()) or "all runs"
        if not int(cell["n_run"]):
            missing.append(words)
            continue
        layers += _line(cell, output, words, k, drawn, ends, band=number <= 4)
    layers += [_limit(one, drawn) for one in limits]
    words = f"{int(told['n_run'].sum()):,} runs with a number"
    if int(told["n_nan"].sum()):
        words += f", {int(told['n_nan'].sum()):,} with NaN"
    if int(told["n_unknown"].sum()):
        words += f", {int(told['n_unknown'].sum()):,} unknown (in the band)"
    words += f"; no number for {', '.join(missing)}" if missing else ""
    drawn_limits = "; ".join(f"limit: {one.text}" for one in limits)
    title = f"{output}: {words}" + (f"\n{drawn_limits}" if drawn_limits else "")
    return overlaid(
        layers,
        drawn,
        WIDTH,
        HEIGHT,
        title,
        xlabel=label,
        ylabel="runs at or below, %",
        ylim=(-2, 102),
        xlim=ends,
        show_legend=number > 1,
        legend_position="right",
    )


def _limits(ds: xr.Dataset, requirements: Any) -> list[Requirement]:
    try:
        wanted = requirements_of(ds, requirements)
    except ValueError:
        if requirements is not None:
            raise
        return []
    return [one for one in wanted if one.limit is not None]


def _shown(told: xr.Dataset, name: str, k: int) -> str:
    units = str(told[name].attrs.get("units") or "")
    return f"{value_text(told[name].values[k])} {units}".strip()


def _line(
    one: xr.Dataset,
    output: str,
    words: str,
    k: int,
    drawn: str,
    ends: tuple[float, float],
    *,
    band: bool,
) -> list[Any]:
    """Steps and band of one distribution function, from the left end to the right."""
    colour = SERIES[k % len(SERIES)]
    dash = DASHES[k // len(SERIES) % len(DASHES)]
    at = np.concatenate([[ends[0]], one["at"].values, [ends[1]]])
    share, low, high = (
        np.concatenate([[first], one[name].values, [one[name].values[-1]]])
        for name, first in (
            ("share", 0.0),
            ("share_low", 0.0),
            ("share_high", float(one["share_high"].values[0])),
        )
    )
    frame_ = pd.DataFrame({output: at, "share": 100 * share, "low": 100 * low, "high": 100 * high})
    frame_ = frame_[np.isfinite(frame_["share"])].drop_duplicates(output, keep="last")
    frame_["shown"] = percent(frame_["share"] / 100)
    frame_["band"] = interval_text(frame_["low"] / 100, frame_["high"] / 100)
    frame_["of"] = words
    line = hv.Curve(frame_, kdims=[output], vdims=["share", "shown", "band", "of"], label=words)
    layers = []
    if band and len(frame_):
        steps = frame_.loc[np.repeat(frame_.index, 2)].reset_index(drop=True)
        steps[output] = np.append(steps[output].to_numpy()[1:], ends[1])
        area = hv.Area(steps, kdims=[output], vdims=["low", "high"])
        if drawn == "bokeh":
            layers.append(area.opts(color=colour, alpha=0.18, line_color=None))
        else:
            layers.append(area.opts(facecolor=colour, alpha=0.18, edgecolor="none"))
    if drawn == "bokeh":
        tips = [
            ("", "@of"),
            (output, f"@{{{output}}}"),
            ("at or below", "@shown"),
            ("band", "@band"),
        ]
        line = line.opts(
            color=colour,
            line_dash=dash,
            line_width=2,
            interpolation="steps-post",
            tools=["hover"],
            hover_tooltips=tips,
        )
    else:
        line = line.opts(color=colour, linestyle=dash, linewidth=1.6, interpolation="steps-post")
    return [*layers, line]


def _limit(one: Requirement, drawn: str) -> Any:
    """The limit of a requirement as a dashed line; its words are in the title."""
    line = hv.VLine(one.limit)
    if drawn == "bokeh":
        return line.opts(color=INK, line_dash="dashed", line_width=1.5)
    return line.opts(color=INK, linestyle="dashed", linewidth=1.2)

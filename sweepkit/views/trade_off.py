"""Designs against each other: how each does over scenarios, and which are worth choosing."""

from __future__ import annotations

from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import xarray as xr

from sweepkit.analysis import Table, robustness, table
from sweepkit.views.drawing import (
    INK,
    LINE,
    PASS,
    interval_text,
    overlaid,
    percent,
    ready,
    value_text,
    with_units,
)

__all__ = ["trade_off"]

WIDTH, HEIGHT = 480, 340
MOST_BARS = 100
"""Designs whose intervals are drawn; of more they cover each other, and pointing tells them."""

MEASURES = ("pass_share", "worst", "cvar", "mean", "regret", "distance")


def trade_off(
    ds: xr.Dataset | Table,
    x: str = "pass_share",
    y: str | None = None,
    *,
    of: str | None = None,
    goal: str = "max",
    requirements: Any = None,
    failed: Any = None,
    level: float = 0.95,
    backend: str | None = None,
) -> Any:
    """Each design by two measures of robustness, the Pareto front marked.

    Parameters
    ----------
    ds : Dataset or Table
    x, y : {"pass_share", "worst", "cvar", "mean", "regret", "distance"}
        Measures, as in :func:`robustness`; `y` is "cvar" by default, or "worst" where that is
        unknown. The front weighs these two.
    of, goal, requirements, failed, level
        As in :func:`robustness`.
    backend : {"bokeh", "matplotlib"}, optional
        As in :func:`failure_map`.

    Returns
    -------
    HoloViews Overlay

    Raises
    ------
    UnanswerableError
        If there is no design parameter, or no run has passed or failed.
    ValueError
        If a measure is none of the above, or unknown for all designs.
    """
    for word, name in (("x", x), ("y", y or "cvar")):
        if name not in MEASURES:
            raise ValueError(f"{word}={name!r} is none of {', '.join(map(repr, MEASURES))}")
    y = y or ("cvar" if x != "cvar" else "pass_share")
    t = table(ds, failed=failed, requirements=requirements)
    told = robustness(t, of, goal=goal, criteria=(x, y), level=level)
    rows = _rows(told, x, y)
    known = rows[np.isfinite(rows[x]) & np.isfinite(rows[y])]
    if known.empty:
        why = f": {told.attrs['note']}" if told.attrs["note"] else ""
        raise ValueError(f"{x!r} and {y!r} are known together for none of the designs{why}")
    drawn = ready(backend)
    front = known[known["pareto"]].sort_values(x)
    rest = known[~known["pareto"]]
    layers = []
    if x == "pass_share" and len(known) <= MOST_BARS:
        layers.append(hv.ErrorBars(known, kdims=[x], vdims=[y, "below", "above"], horizontal=True))
        width = "line_width" if drawn == "bokeh" else "linewidth"
        colour = "line_color" if drawn == "bokeh" else "edgecolor"
        heads = {"lower_head": None, "upper_head": None} if drawn == "bokeh" else {"capsize": 0}
        layers = [layers[0].opts(**{colour: LINE, width: 0.8}, **heads)]
    layers += _marks(rest, front, told, x, y, drawn)
    shown = "\n".join(front["design"].head(4)) + ("\nand more" if len(front) > 4 else "")
    dropped = len(rows) - len(known)
    title = f"{len(front)} of {len(rows)} designs on the Pareto front"
    title += f" ({dropped} unknown or infinite, not drawn)" if dropped else ""
    return overlaid(
        layers,
        drawn,
        WIDTH,
        HEIGHT,
        f"{title}:\n{shown}",
        xlabel=_label(told, x),
        ylabel=_label(told, y),
        padding=0.08,
        show_legend=True,
        legend_position="right",
    )


def _label(told: xr.Dataset, name: str) -> str:
    if name == "pass_share":
        return "runs that pass, %"
    words = {
        "worst": f"worst {told.attrs['of']}",
        "cvar": f"mean of the worst tenth, {told.attrs['of']}",
        "mean": f"mean {told.attrs['of']}",
        "regret": "largest regret",
        "distance": "distance to the nearest failing design",
    }
    return with_units(words[name], told[name].attrs)


def _rows(told: xr.Dataset, x: str, y: str) -> pd.DataFrame:
    """One row per design: its measures and its values in words."""
    dims = tuple(told["pareto"].dims)
    at = [one.ravel() for one in np.indices(told["pareto"].shape)]
    rows: dict[str, Any] = {
        name: told[name].transpose(*dims).values.ravel()
        for name in (*MEASURES, "low", "high", "pareto", "n_run", "n_unknown")
    }
    words: list[str] = []
    for k in range(len(rows["pareto"])):
        here = {dim: int(index[k]) for dim, index in zip(dims, at, strict=True)}
        said = []
        for name, coord in told.coords.items():
            if coord.dims and set(coord.dims) <= set(dims):
                value = coord.isel({dim: here[dim] for dim in coord.dims}).values[()]
                units = str(coord.attrs.get("units") or "")
                said.append(f"{name} {value_text(value)} {units}".strip())
        words.append(", ".join(said))
    frame_ = pd.DataFrame(rows).assign(design=words)
    frame_["shown"] = percent(frame_["pass_share"])
    frame_["interval"] = interval_text(frame_["low"], frame_["high"])
    frame_["below"] = 100 * (frame_["pass_share"] - frame_["low"])
    frame_["above"] = 100 * (frame_["high"] - frame_["pass_share"])
    frame_["pass_share"] = 100 * frame_["pass_share"]
    return frame_


def _marks(
    rest: pd.DataFrame, front: pd.DataFrame, told: xr.Dataset, x: str, y: str, drawn: str
) -> list[Any]:
    details = [y, "design", "shown", "interval", "n_run", "n_unknown"]
    details = list(dict.fromkeys(details))
    other = hv.Scatter(rest, kdims=[x], vdims=details, label="other designs")
    best = hv.Scatter(front, kdims=[x], vdims=details, label="Pareto front")
    line = hv.Curve(front, kdims=[x], vdims=[y])
    if drawn == "bokeh":
        tips = [
            ("design", "@design"),
            ("pass", "@shown"),
            ("interval", "@interval"),
            (_label(told, y), f"@{y}"),
            ("runs", "@n_run, @n_unknown unknown"),
        ]
        other = other.opts(color=LINE, size=6, alpha=0.7, tools=["hover"], hover_tooltips=tips)
        best = best.opts(
            color=PASS, marker="diamond", size=12, tools=["hover"], hover_tooltips=tips
        )
        line = line.opts(color=INK, line_width=1, line_dash="dotted")
    else:
        other = other.opts(color=LINE, s=16, alpha=0.7)
        best = best.opts(color=PASS, marker="D", s=40)
        line = line.opts(color=INK, linewidth=1, linestyle="dotted")
    return [other, line, best] if len(rest) else [line, best]

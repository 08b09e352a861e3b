"""Parallel coordinates: one line a run across all parameters and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis import Table, table
from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED
from sweepkit.verdicts import requirements_of
from sweepkit.views.axis import axis_of
from sweepkit.views.drawing import ERROR, FAIL, LINE, PASS, overlaid, ready, value_text, with_units

__all__ = ["parallel_coordinates"]

MOST = 3_000
HEIGHT = 300
MOST_TICKS = 9
JITTER = 0.018
"""Share of an axis by which lines are moved apart, so that equal runs are seen as many."""

OUTCOMES = {"pass": (PASSED, PASS), "fail": (FAILED, FAIL), "error": (ERRORED, ERROR)}


def parallel_coordinates(
    ds: xr.Dataset | Table,
    names: Sequence[str] | None = None,
    *,
    most: int = MOST,
    seed: int = 0,
    requirements: Any = None,
    failed: Any = None,
    backend: str | None = None,
) -> Any:
    """One line a run across parameters and outputs, coloured by outcome.

    Of more runs than `most`, a sample is drawn: of each outcome its share, but at least a third
    of the lines where there are as many, so that rare failures stay in sight; the rarest outcome
    lies on top, and the title says how many of how many are drawn.

    Parameters
    ----------
    ds : Dataset or Table
    names : sequence of str, optional
        Parameters and outputs with one number per run, in their order; by default all that
        have several values.
    most : int
        Lines drawn.
    seed : int
        Of the sample.
    requirements, failed
        As in :func:`failure_rate`; where nothing says which runs fail, all are of one colour.
    backend : {"bokeh", "matplotlib"}, optional
        As in :func:`failure_map`.

    Returns
    -------
    HoloViews Overlay

    Raises
    ------
    ValueError
        If a name is neither a parameter nor an output with one number per run, or fewer than two
        are left.
    """
    if most < 3:
        raise ValueError(f"most={most!r}; at least 3 lines are drawn")
    judged = _judged(ds, failed, requirements)
    t = table(ds, failed=failed, requirements=requirements, errors="apart" if judged else "fail")
    names = _names(t, names)
    drawn_runs, counts = _sample(t, most, seed)
    drawn = ready(backend)
    width = max(480, min(1000, 130 * (len(names) - 1)))
    scales = [_scaled(t, name) for name in names]
    layers: list[Any] = []
    order = sorted(drawn_runs, key=lambda word: -counts[word])
    for word in order:
        runs = drawn_runs[word]
        height = np.stack([scale[0][runs] for scale in scales], axis=1)
        height = np.where(np.isfinite(height), height, -0.08)
        height += np.random.default_rng([seed, len(runs)]).uniform(-JITTER, JITTER, height.shape)
        alpha = float(np.clip(80 / max(len(runs), 1), 0.05, 0.7))
        layers += _lines(height, word, OUTCOMES[word][1], alpha, drawn)
    layers += _axes(scales, names, drawn)
    total = sum(counts.values())
    shown = sum(len(runs) for runs in drawn_runs.values())
    title = ", ".join(f"{word} {counts[word]:,}" for word in order)
    title += f"; {shown:,} of {total:,} runs drawn" if shown < total else "; all runs drawn"
    some = np.concatenate(list(drawn_runs.values()))
    if any(np.isnan(scale[0][some]).any() for scale in scales):
        title += "; below an axis: no number"
    return overlaid(
        layers,
        drawn,
        width,
        HEIGHT,
        title,
        xlabel="",
        yaxis=None,
        xticks=[(float(k), _label(t, name)) for k, name in enumerate(names)],
        xlim=(-0.3, len(names) - 0.45),
        ylim=(-0.13, 1.06),
        show_legend=True,
        legend_position="right",
    )


def _judged(ds: xr.Dataset | Table, failed: Any, requirements: Any) -> bool:
    """Whether something says which runs fail."""
    if isinstance(ds, Table) or failed is not None or "failed" in ds:
        return True
    try:
        requirements_of(ds, requirements)
    except ValueError:
        if requirements is not None:
            raise
        return False
    return True


def _names(t: Table, names: Sequence[str] | None) -> list[str]:
    parameters = [p.name for p in t.parameters]
    outputs = [
        str(name)
        for name, one in t.ds.data_vars.items()
        if set(one.dims) == set(t.dims) and one.dtype.kind in "biuf"
    ]
    if names is None:
        kept = {"status", "attempts", "code", "duration", "log_size"}
        lengths = {one.attrs.get("length") for one in t.ds.data_vars.values()}
        names = [p.name for p in t.parameters if p.n > 1 and p.role != "replicate"]
        names += [name for name in outputs if name not in kept and name not in lengths]
    for name in names:
        if name not in parameters and name not in outputs:
            raise ValueError(
                f"{name!r} is neither a parameter nor an output with one number per run; there are "
                f"{', '.join(map(repr, [*parameters, *outputs]))}"
            )
    if len(names) < 2:
        raise ValueError(f"{len(names)} axes have several values; lines need at least two")
    return list(names)


def _sample(t: Table, most: int, seed: int) -> tuple[dict[str, NDArray[np.intp]], dict[str, int]]:
    """Runs drawn by outcome, and how many there are."""
    random = np.random.default_rng([seed, 50021])
    all_ = {word: np.flatnonzero(t.outcome == code) for word, (code, _) in OUTCOMES.items()}
    all_ = {word: runs for word, runs in all_.items() if len(runs)}
    counts = {word: len(runs) for word, runs in all_.items()}
    total = sum(counts.values())
    if not total:
        raise ValueError(f"none of {t.n} runs is finished, so there is no line to draw")
    if total <= most:
        return all_, counts
    left, chosen = most, {}
    for rank, (word, runs) in enumerate(sorted(all_.items(), key=lambda item: len(item[1]))):
        fair = max(round(most * len(runs) / total), left // (3 if rank < 2 else 1))
        number = min(len(runs), fair, left)
        chosen[word] = np.sort(random.choice(runs, number, replace=False))
        left -= number
    return chosen, counts


def _scaled(t: Table, name: str) -> tuple[NDArray[np.float64], list[tuple[float, str]]]:
    """Heights of all runs on an axis from 0 to 1, and its ticks."""
    if name in t.ds.data_vars:
        values = t.ds[name].transpose(*t.dims).values.reshape(-1).astype(np.float64)
        values = np.where(t.outcome <= FAILED, values, np.nan)
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        reach = high - low or 1.0
        ticks = [(k / 4, value_text(low + k / 4 * reach)) for k in range(5)]
        if high == low:
            return np.where(np.isfinite(values), 0.5, np.nan), [(0.5, value_text(low))]
        return (values - low) / reach, ticks
    p = t[name]
    coordinate = xr.DataArray(p.values, dims=name, name=name)
    axis = axis_of(coordinate)
    at = np.log(axis.at) if axis.logarithmic else axis.at
    low, high = float(at.min()), float(at.max())
    reach = high - low or 1.0
    shown = axis.ticks(HEIGHT, along=False)
    if len(shown) > MOST_TICKS:
        shown = shown[:: -(-len(shown) // MOST_TICKS)]
    scaled = (at - low) / reach if high > low else np.full(len(at), 0.5)
    place = dict(zip(axis.at.tolist(), scaled.tolist(), strict=True))
    return scaled[p.codes], [(place[where], text) for where, text in shown]


def _label(t: Table, name: str) -> str:
    variable = t.ds[name] if name in t.ds.variables else None
    return with_units(name, variable.attrs if variable is not None else {})


def _lines(
    height: NDArray[np.float64], word: str, colour: str, alpha: float, drawn: str
) -> list[Any]:
    """The lines of one outcome, each a stroke of its own, so that many make a denser colour."""
    x = np.broadcast_to(np.arange(height.shape[1], dtype=np.float64), height.shape)
    ends = [
        part.ravel()
        for one in (slice(None, -1), slice(1, None))
        for part in (x[:, one], height[:, one])
    ]
    lines = hv.Segments(tuple(ends), ["axis", "height", "axis1", "height1"])
    legend = hv.Curve([(-9.0, 0.0), (-9.0, 1.0)], "axis", "height", label=word)  # out of sight
    dash = "dashed" if word == "error" else "solid"
    if drawn == "bokeh":
        lines = lines.opts(color=colour, alpha=alpha, line_width=1, line_dash=dash)
        return [lines, legend.opts(color=colour, line_width=2, line_dash=dash)]
    lines = lines.opts(color=colour, alpha=alpha, linewidth=0.7, linestyle=dash)
    return [lines, legend.opts(color=colour, linewidth=1.6, linestyle=dash)]


def _axes(
    scales: list[tuple[NDArray[np.float64], list[tuple[float, str]]]], names: list[str], drawn: str
) -> list[Any]:
    rows = [(k + 0.03, at, text) for k, scale in enumerate(scales) for at, text in scale[1]]
    posts = hv.Segments([(k, 0.0, k, 1.0) for k in range(len(names))], ["x0", "y0", "x1", "y1"])
    words = hv.Labels(pd.DataFrame(rows, columns=["axis", "height", "text"]), ["axis", "height"])
    if drawn == "bokeh":
        return [
            posts.opts(color=LINE, line_width=1),
            words.opts(
                text_color="#18202B",
                text_font_size="11px",
                text_align="left",
                background_fill_color="white",
                background_fill_alpha=0.8,
            ),
        ]
    return [
        posts.opts(color=LINE, linewidth=1),
        words.opts(color="#18202B", size=7.5, horizontalalignment="left", hooks=[_on_white]),
    ]


def _on_white(plot: Any, _: Any) -> None:
    """Texts on a light ground, to be read over many lines."""
    for text in plot.handles["axis"].texts:
        text.set_bbox({"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5})

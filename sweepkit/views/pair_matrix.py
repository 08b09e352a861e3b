"""All pairs of parameters as small failure maps, the pair that matters most jointly first."""

from __future__ import annotations

from typing import Any

import xarray as xr

from sweepkit.analysis import Table, failure_rate, pairs, table
from sweepkit.views.drawing import beside, ready, side_by_side, titled
from sweepkit.views.maps import RATE, Maps

__all__ = ["pair_matrix"]


def pair_matrix(
    ds: xr.Dataset | Table,
    *,
    top: int = 12,
    requirements: Any = None,
    failed: Any = None,
    backend: str | None = None,
) -> Any:
    """Failure rate over every pair of parameters, as small maps.

    They are sorted by how much of the variance of failure the pair explains beyond its two
    parameters, which each title says.

    Parameters
    ----------
    ds : Dataset or Table
    top : int
        Pairs drawn at most.
    requirements, failed
        As in :func:`failure_rate`.
    backend : {"bokeh", "matplotlib"}, optional
        As in :func:`failure_map`.

    Returns
    -------
    HoloViews Layout, or an Overlay for a single pair

    Raises
    ------
    UnanswerableError
        If fewer than two parameters have several values, or all outcomes are the same.
    """
    if top < 1:
        raise ValueError(f"top={top!r}; at least one pair is drawn")
    t = table(ds, failed=failed, requirements=requirements)
    ranked = pairs(t).drop_duplicates("rank")
    drawn = ready(backend)
    chosen = ranked.head(top)
    maps = []
    for one in chosen.to_dict("records"):
        x, y = str(one["parameter"]), str(one["other"])
        rates = failure_rate(t, by=[x, y])
        maps.append(Maps(rates.assign(value=100 * rates["rate"]), RATE, x, y, drawn, True))
    left = max(one.left for one in maps)
    columns = min(4, len(maps))
    if drawn == "bokeh":
        columns = beside(columns, left, maps[0].width)
    figures = [
        titled(one.one({}, last=k == columns - 1, left=left), f"excess {joint:.3f}", 190)
        for k, (one, joint) in enumerate(zip(maps, chosen["joint"], strict=True))
    ]
    more = len(ranked) - len(chosen)
    title = "Failure rate by pairs, over all other parameters"
    title += f"; the first {len(chosen)} of {len(ranked)} pairs" if more else ""
    return side_by_side(figures, drawn, columns=columns, title=title)

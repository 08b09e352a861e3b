"""All pairs of parameters as small failure maps, the pair that matters most jointly first."""

from __future__ import annotations

from typing import Any

import xarray as xr

from sweepkit.analysis import Table, failure_rate, pairs, table
from sweepkit.views.drawing import ready, side_by_side, titled
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
    figures = []
    chosen = ranked.head(top)
    columns = min(4, len(chosen))
    for number, one in enumerate(chosen.to_dict("records")):
        x, y = str(one["parameter"]), str(one["other"])
        rates = failure_rate(t, by=[x, y])
        cells = rates.assign(value=100 * rates["rate"])
        map_ = Maps(cells, RATE, x, y, drawn, True).one({}, last=number == columns - 1)
        figures.append(titled(map_, f"excess {one['joint']:.3f}", 190))
    left = len(ranked) - len(chosen)
    title = "Failure rate by pairs, over all other parameters"
    title += f"; the first {len(chosen)} of {len(ranked)} pairs" if left else ""
    return side_by_side(figures, drawn, columns=columns, title=title)

"""A sweep's first answers as a file: one HTML page, Markdown or JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from sweepkit.files import replace_file
from sweepkit.places import Given, where
from sweepkit.views.findings import as_json, findings
from sweepkit.views.markdown import markdown
from sweepkit.views.paper import page
from sweepkit.views.source import Filling

__all__ = ["report"]

KINDS = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
}


def report(
    ds: xr.Dataset | Given | Filling,
    path: str | os.PathLike[str] = "report.html",
    *,
    requirements: Any = None,
    title: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Path:
    """Write what a sweep says to one file.

    Parameters
    ----------
    ds : Dataset, path or job
        A store, finished or still being filled, what :func:`sweepkit.open` gave, or any Dataset
        whose coordinates are parameters.
    path : path
        What to write; its ending says how. ``.html`` is one page that asks nothing of the network:
        in a browser its limits, axes and sliders move without Python, and it prints. ``.md`` and
        ``.json`` hold the same facts; the keys of the JSON are those of ``report.schema.json`` in
        this package, ``version`` tells their meaning, shares are between 0 and 1, and what is NaN
        or infinite is null.
    requirements : optional
        In place of the stored ones, such as ``["steps >= 500"]``.
    title : str, optional
        Of the page; by default the name of the store, else of the sweep.
    storage_options : mapping, optional
        As of :func:`sweepkit.open`, where ``ds`` is a URL.

    Returns
    -------
    Path
        Of the file, which is replaced at once if it was there.

    Raises
    ------
    ValueError
        If the ending is none of these, there are no runs, or a requirement does not fit the
        Dataset.
    OSError
        If the file cannot be written.

    Notes
    -----
    Words are those of :mod:`sweepkit.analysis`, each with what it rests on; where an analysis
    refuses, its reason is the sentence. A page of 10^5 runs has about 1 MB; where the runs take
    more than about 2 MB, limits move in fewer steps, then a random sample of the runs stands for
    all of them in the figures that move, and the page says so.

    Examples
    --------
    >>> ds = xr.Dataset({"y": ("gain", [1.0, 2.0, 3.0])}, coords={"gain": [1, 2, 4]})
    >>> report(ds, "gain.html", requirements=["y < 3"])  # doctest: +SKIP
    PosixPath('gain.html')
    """
    target = Path(path)
    kind = KINDS.get(target.suffix.lower())
    if kind is None:
        raise ValueError(
            f"{target.name!r} does not end in .html, .md or .json, which says how the report is "
            "written"
        )
    if target.is_dir():
        raise ValueError(f"{str(target)!r} is a folder; name a file in it")
    if not target.parent.is_dir():
        raise ValueError(f"there is no folder {str(target.parent)!r} to write {target.name!r} to")
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title is {title!r}; give text")
    if storage_options is not None and not isinstance(ds, xr.Dataset):
        ds = where(ds, storage_options)
    said = findings(ds, requirements)
    name = title or said.of.name
    if kind == "json":
        text = as_json({**said.facts, "name": name})
    elif kind == "markdown":
        text = markdown(said.facts, name)
    else:
        text = page(said, title=name)
    replace_file(target, text)
    return target

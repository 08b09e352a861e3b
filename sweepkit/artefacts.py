"""Files that runs left beside a store, found by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sweepkit.format1 import was_from_json
from sweepkit.grid import Grid
from sweepkit.parameters import Parameter
from sweepkit.places import Given
from sweepkit.reading import source_of
from sweepkit.streams import run_keys
from sweepkit.targets import target

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["artefacts"]

PIECE = 65_536


def artefacts(store: Given | xr.Dataset) -> pd.DataFrame:
    """Files that runs of external commands left, as their ``keep`` says.

    Parameters
    ----------
    store : path or Dataset
        Of the store, or what :func:`sweepkit.open` or :func:`sweepkit.run` gave.

    Returns
    -------
    DataFrame
        One row for each file: the parameters of its run, ``file`` (its name within the run's
        folder), ``path`` and ``bytes``. Those of stages follow those of the grid.

    Raises
    ------
    ValueError
        If a Dataset does not say where it is from.
    StoreError
        If there is no sweep at the path.
    """
    import pandas as pd

    whole = target(_path(store))
    whole.peek()
    was = was_from_json(whole.declaration)
    rows: list[dict[str, Any]] = []
    columns: dict[str, None] = {}
    for one in (whole, *(whole.stage(number) for number in whole.stages)):
        one.peek()
        grid = Grid(tuple(one.parameter_values(one.declaration["parameters"]).values()))
        columns |= dict.fromkeys(grid.names)
        kept = one.beside / "artefacts"
        rows += _rows(grid, was, kept) if isinstance(kept, Path) else ()
    return pd.DataFrame(rows, columns=[*columns, "file", "path", "bytes"])


def _path(store: Given | xr.Dataset) -> Given:
    if not isinstance(store, xr.Dataset):
        return store
    source = source_of(store)
    if source is None:
        raise ValueError(
            "the Dataset does not say which store it is from; give the path of the store"
        )
    return source


def _rows(grid: Grid, was: Mapping[str, Parameter], folder: Path) -> Iterator[dict[str, Any]]:
    """Files by run, in the order of the runs."""
    left = {one.name for one in folder.iterdir()} if folder.is_dir() else set()
    at = 0
    while left and at < grid.size:
        runs = np.arange(at, min(at + PIECE, grid.size), dtype=np.int64)
        index = grid.index(runs)
        keys = run_keys(grid, index, was=was).tolist()
        names = [f"{high:016x}{low:016x}" for high, low in keys]
        for row in [row for row, name in enumerate(names) if name in left]:
            left.discard(names[row])
            one = {dim: positions[row : row + 1] for dim, positions in index.items()}
            values = {name: column[0] for name, column in grid.columns(one).items()}
            for path in sorted((folder / names[row]).rglob("*")):
                if path.is_file():
                    file = str(path.relative_to(folder / names[row]))
                    yield {**values, "file": file, "path": str(path), "bytes": path.stat().st_size}
        at += PIECE

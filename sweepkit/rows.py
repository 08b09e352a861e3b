"""Runs as rows: the columns of some runs, one row a run or one row a step, for Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.export import arrow
from sweepkit.status import Status

__all__ = ["boxes", "by_step", "schema_of", "to_arrow"]

Columns = Mapping[str, NDArray[Any]]
"""Arrays whose first axis is the rows."""


def boxes(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Boxes of a grid, in C order, that hold at most so many points each, and all of them once.

    Examples
    --------
    >>> list(boxes((2, 5), 3))[:2]
    [(slice(0, 1, None), slice(0, 3, None)), (slice(0, 1, None), slice(3, 5, None))]
    """
    cut = next((k for k in range(len(shape)) if np.prod(shape[k + 1 :]) <= most), len(shape) - 1)
    step = max(most // int(np.prod(shape[cut + 1 :])), 1)
    rest = tuple(slice(0, n) for n in shape[cut + 1 :])
    for lead in np.ndindex(*shape[:cut]):
        for first in range(0, shape[cut], step):
            last = min(first + step, shape[cut])
            yield (*(slice(i, i + 1) for i in lead), slice(first, last), *rest)


def by_step(part: xr.Dataset, traces: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Columns with one row a step, as far as each run's traces reach.

    Parameters
    ----------
    part : Dataset
        Columns along the dim ``row``; the traces lie along ``row`` and one dim of steps, which is
        theirs together.
    traces : sequence of str

    Returns
    -------
    dict of array
        What is one value a run is repeated. ``step`` counts from 0; a run without steps keeps one
        row, at step -1, in which traces are NaN.
    """
    lengths = np.zeros(part.sizes["row"], dtype=np.int64)
    for name in traces:
        said = part[name].attrs.get("length")
        full = part[name].shape[1]
        reach = part[said].values if said in part else np.full(len(lengths), full)
        lengths = np.maximum(lengths, np.nan_to_num(np.asarray(reach, float)).astype(np.int64))
    lengths[(part["status"] != Status.DONE).values] = 0
    rows = np.maximum(lengths, 1)
    of = np.repeat(np.arange(len(rows)), rows)
    at = np.arange(len(of)) - np.repeat(np.cumsum(rows) - rows, rows)
    at[(lengths == 0)[of]] = -1
    columns: dict[str, NDArray[Any]] = {}
    for key, one in part.items():
        if key not in traces:
            columns[str(key)] = one.values[of]
    first = {"run": columns.pop("run"), "step": at}
    for name in traces:
        values = part[name].values
        there = at >= 0
        column = np.full((len(of), *values.shape[2:]), np.nan)
        column[there] = values[of[there], at[there]]
        columns[name] = column
    return first | columns


def schema_of(columns: Columns) -> Any:
    """The Arrow schema of columns, from their dtypes alone, so that all slabs have one."""
    pyarrow, _ = arrow()
    return pyarrow.schema([(name, _type(values)) for name, values in columns.items()])


def to_arrow(columns: Columns, schema: Any) -> Any:
    """Columns as an Arrow table: vectors and traces as lists, text as strings."""
    pyarrow, _ = arrow()
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _type(values: NDArray[Any]) -> Any:
    pyarrow, _ = arrow()
    kind = values.dtype.kind
    if kind in "mM":
        own = pyarrow.timestamp("ns") if kind == "M" else pyarrow.duration("ns")
    else:
        own = pyarrow.string() if kind in "OUT" else pyarrow.from_numpy_dtype(values.dtype)
    for _ in values.shape[1:]:
        own = pyarrow.list_(own)
    return own


def _array(values: NDArray[Any], wanted: Any) -> Any:
    pyarrow, _ = arrow()
    flat = values.reshape(-1)
    own = wanted
    for _ in values.shape[1:]:
        own = own.value_type
    if flat.dtype.kind in "OUT":
        found = pyarrow.array(flat.astype(object), own, from_pandas=True)
    else:
        exact = flat.astype(f"{flat.dtype.kind}8[ns]") if flat.dtype.kind in "mM" else flat
        found = pyarrow.array(exact, own)
    for axis in range(values.ndim - 1, 0, -1):
        ends = np.arange(int(np.prod(values.shape[:axis])) + 1) * values.shape[axis]
        found = pyarrow.ListArray.from_arrays(ends.astype(np.int32), found)
    return found

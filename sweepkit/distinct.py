"""Points that are given twice along a dim, found and told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import near_misses
from sweepkit.parameters import Parameter

__all__ = ["check_distinct", "value_text"]


def check_distinct(dim: str, together: Sequence[Parameter]) -> None:
    """Refuse two equal points along a dim; for one parameter alone near-misses too."""
    flat = [one.values.reshape(one.size, -1) for one in together]
    if len(together) == 1 and flat[0].shape[1] == 1:
        only, column = together[0], flat[0][:, 0]
        unique, first = np.unique(column, return_index=True)
        if len(unique) < len(column):
            twice = column[np.setdiff1d(np.arange(len(column)), first)[0]]
            raise ValueError(
                f"value {value_text(twice)} of parameter {only.name!r} is given twice (equal "
                "numbers are one value, whatever their type); leave one out (for repeated runs say "
                "replicates=)"
            )
        if only.dims != (only.name,):  # points, among which two may be close by chance
            return
        for low, high in near_misses(only.values):
            raise ValueError(
                f"values {low!r} and {high!r} of parameter {only.name!r} differ by rounding "
                "alone; round them, or leave one out"
            )
        return
    if flat and len(flat[0]) > 1:
        if any(len(np.unique(column)) == len(column) for block in flat for column in block.T):
            return
        rows = np.stack([_ranks(column) for block in flat for column in block.T], axis=1)
        _, first = np.unique(rows, axis=0, return_index=True)
        repeats = len(rows) - len(first)
        if repeats:
            at = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            point = ", ".join(f"{one.name}={value_text(one.values[at])}" for one in together)
            raise ValueError(
                f"{repeats} of the {len(rows)} points along dim {dim!r} repeat another, such as "
                f"{point}; leave the repeats out (for repeated runs of a point say replicates=)"
            )


def _ranks(column: NDArray[Any]) -> NDArray[np.int64]:
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def value_text(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    if isinstance(value, np.timedelta64):
        units = ("D", "h", "m", "s", "ms", "us", "ns")
        whole = (value.astype(f"m8[{unit}]") for unit in units)
        return str(next(one for one in whole if one == value))
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    return repr(value.item() if isinstance(value, np.generic) else value)

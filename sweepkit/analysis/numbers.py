"""An output as one number for each run."""

from __future__ import annotations

import numpy as np

from sweepkit.analysis.coding import Floats
from sweepkit.analysis.table import Table

__all__ = ["run_numbers"]


def run_numbers(t: Table, output: str, *, lacking: str = "not a number") -> Floats:
    """The number that an output is of each run, flat in C order, whatever became of the run.

    Raises
    ------
    ValueError
        If it is not one number per run; of another data type it says what that is `lacking`.
    """
    array = t.ds[output]
    if set(array.dims) != set(t.dims):
        raise ValueError(
            f"output {output!r} lies along {array.dims}, the runs along {t.dims}; reduce it to "
            f"one number per run first, as in ds.assign(peak=ds[{output!r}].max('step'))"
        )
    if array.dtype.kind not in "bfiu":
        raise ValueError(f"output {output!r} is {array.dtype}, {lacking}")
    numbers: Floats = array.transpose(*t.dims).values.reshape(-1).astype(np.float64)
    return numbers

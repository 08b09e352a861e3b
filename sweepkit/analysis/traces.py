"""How a trace runs over its own dim: quantiles at each step, of passing and failing runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.outcomes import FAILED, PASSED, Failed, UnanswerableError
from sweepkit.analysis.table import Table, table

__all__ = ["traces"]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MAX_RUNS = 5_000
OUTCOMES = {"pass": PASSED, "fail": FAILED}


def traces(
    ds: xr.Dataset | Table,
    output: str,
    *,
    quantiles: Sequence[float] = QUANTILES,
    most: int = MAX_RUNS,
    singles: int = 0,
    seed: int = 0,
    requirements: Any = None,
    failed: Failed = None,
) -> xr.Dataset:
    """Quantiles of a trace at each of its steps, of passing and of failing runs.

    Parameters
    ----------
    ds : Dataset or Table
    output : str
        An output with one dim of its own.
    quantiles : sequence of float
        Between 0 and 1.
    most : int
        Runs read of each outcome; more are sampled.
    singles : int
        Single runs of each outcome given beside the quantiles, drawn at random.
    seed : int
        Of what is sampled.
    requirements, failed
        As in `failure_rate`; where nothing says which runs fail, all finished runs count as pass.

    Returns
    -------
    Dataset
        Over ``outcome`` ("pass", "fail"), the trace's own dim and ``quantile``: ``value``, in the
        output's units, NaN where no run reaches; ``n`` (runs that reach the step, among those
        read), ``n_run`` (finished) and ``n_read`` per outcome; with ``single``: ``trace`` and
        ``run`` (flat position in C order; -1 where there are fewer).

    Raises
    ------
    UnanswerableError
        If no finished run has a number in the output.
    ValueError
        If the output is not there, is not numeric, or has no dim or several dims of its own.
    """
    t = table(ds, failed=failed, requirements=requirements, errors="fail")
    own = _own_dim(t, output)
    array = t.ds[output].transpose(*t.dims, own)
    size = array.sizes[own]
    q = np.asarray(quantiles, dtype=np.float64)
    value = np.full((2, size, len(q)), np.nan)
    trace, run = np.full((2, singles, size), np.nan), np.full((2, singles), -1)
    n, n_run, n_read = np.zeros((2, size), int), np.zeros(2, int), np.zeros(2, int)
    random = np.random.default_rng([seed, 60013])
    for k, code in enumerate(OUTCOMES.values()):
        mine = np.flatnonzero(t.outcome == code)
        n_run[k] = len(mine)
        if len(mine) > most:
            mine = np.sort(random.choice(mine, most, replace=False))
        n_read[k] = len(mine)
        if not len(mine):
            continue
        read = _read(array, t, mine)
        there = np.isfinite(read)
        n[k] = there.sum(axis=0)
        some = n[k] > 0
        if not some.any():
            continue
        value[k, some] = np.nanquantile(read[:, some], q, axis=0).T
        chosen = random.permutation(len(mine))[:singles]
        trace[k, : len(chosen)], run[k, : len(chosen)] = read[chosen], mine[chosen]
    if not n.any():
        raise UnanswerableError(f"no finished run of {t.n} has a number in {output!r}")
    coords = {own: t.ds[output].coords[own]} if own in t.ds[output].coords else {}
    return xr.Dataset(
        {
            "value": (("outcome", own, "quantile"), value, dict(t.ds[output].attrs)),
            "n": (("outcome", own), n),
            "n_run": ("outcome", n_run),
            "n_read": ("outcome", n_read),
            "trace": (("outcome", "single", own), trace, dict(t.ds[output].attrs)),
            "run": (("outcome", "single"), run),
        },
        coords={**coords, "outcome": list(OUTCOMES), "quantile": q},
        attrs={"of": output, "dim": own},
    )


def _own_dim(t: Table, output: str) -> str:
    if output not in t.ds.data_vars:
        names = ", ".join(repr(str(name)) for name in t.ds.data_vars)
        raise ValueError(f"{output!r} is no output; there are {names}")
    array = t.ds[output]
    own = [str(dim) for dim in array.dims if dim not in t.dims]
    if len(own) != 1:
        traced = [
            str(name)
            for name, one in t.ds.data_vars.items()
            if len(set(one.dims) - set(t.dims)) == 1 and set(t.dims) <= set(one.dims)
        ]
        hint = f"; traces are {', '.join(map(repr, traced))}" if traced else "; there is no trace"
        raise ValueError(f"output {output!r} has {len(own)} dims of its own; a trace has one{hint}")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"output {output!r} is {array.dtype}, not a number")
    return own[0]


def _read(array: xr.DataArray, t: Table, mine: NDArray[np.intp]) -> NDArray[np.float64]:
    """Traces of some runs, shape (runs, steps), read in slabs along the first run dim."""
    at = np.unravel_index(mine, t.shape)
    read = np.empty((len(mine), array.sizes[array.dims[-1]]))
    for first in np.unique(at[0]):
        here = np.flatnonzero(at[0] == first)
        slab = np.asarray(array.isel({t.dims[0]: int(first)}).values, dtype=np.float64)
        read[here] = slab[tuple(axis[here] for axis in at[1:])]
    return read

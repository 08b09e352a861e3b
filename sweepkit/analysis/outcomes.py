"""What is known of each run."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sweepkit.requirements import Requirement
from sweepkit.status import Status

if TYPE_CHECKING:
    pass
from sweepkit.analysis.coding import spread_dims

__all__ = [
    "ERRORED",
    "Errors",
    "FAILED",
    "Failed",
    "PASSED",
    "PENDING",
    "SKIPPED",
    "UnanswerableError",
    "declared",
    "outcome_of",
    "refinement",
    "required_by",
    "run_dims",
    "unmasked",
]

Errors: TypeAlias = Literal["apart", "fail"]
Failed: TypeAlias = str | xr.DataArray | ArrayLike | None
PASSED, FAILED, PENDING, ERRORED, SKIPPED = range(5)
"""What is known of a run; ``ERRORED`` takes error, timeout, crashed and invalid together."""
_OUTCOME_OF_STATUS = np.array(
    [PENDING, PASSED, ERRORED, ERRORED, ERRORED, ERRORED, SKIPPED], dtype=np.int8
)


class UnanswerableError(ValueError):
    """The runs cannot answer the question; the message says why and what would."""


def run_dims(ds: xr.Dataset, failed: Any = None) -> tuple[str, ...]:
    """The dims that number the runs."""
    if "status" in ds:
        return tuple(str(d) for d in ds["status"].dims)
    if isinstance(failed, xr.DataArray):
        return tuple(str(d) for d in failed.dims)
    variables = list(ds.data_vars.values())
    if not variables:
        return tuple(str(d) for d in ds.sizes)
    shared: set[Hashable] = set(variables[0].dims)
    for variable in variables[1:]:
        shared &= set(variable.dims)
    return tuple(str(d) for d in variables[0].dims if d in shared)


def declared(ds: xr.Dataset) -> dict[str, Any]:
    """The declaration in ``attrs["sweepkit"]``; empty where the Dataset is not from sweepkit."""
    text = ds.attrs.get("sweepkit")
    if not isinstance(text, str):
        return {}
    content = json.loads(text)
    return content if isinstance(content, dict) else {}


def refinement(ds: xr.Dataset) -> frozenset[str]:
    """Which of ``stage`` and ``volume`` are what refinement gave the runs.

    A sweep may declare a parameter or an output of that name, which is then that alone.
    """
    told = declared(ds)
    own = {str(one["name"]) for one in told.get("parameters", ())} | set(told.get("derived", {}))
    there = ds.coords if told else ds.variables
    return frozenset(name for name in ("stage", "volume") if name in there and name not in own)


def required_by(
    ds: xr.Dataset, failed: Any, requirements: Any, errors: Errors
) -> tuple[Requirement, ...]:
    """The requirements that decide; none where `failed` is given or only errors fail."""
    if failed is not None:
        return ()
    if requirements is None and not declared(ds).get("requirements"):
        if errors == "fail":
            return ()
        raise UnanswerableError(
            "this Dataset declares no requirements, so nothing says which runs fail; give "
            "requirements=['angle < 0.2'], failed='the name of a boolean variable', or "
            "errors='fail' to count only runs that error"
        )
    from sweepkit.verdicts import requirements_of

    return requirements_of(ds, requirements)


def outcome_of(
    ds: xr.Dataset,
    failed: Any,
    required: tuple[Requirement, ...],
    dims: tuple[str, ...],
    shape: tuple[int, ...],
) -> NDArray[np.int8]:
    n = int(np.prod(shape, dtype=np.int64))
    if "status" in ds:
        status = np.asarray(ds["status"].values).reshape(-1)
        if status.dtype.kind == "f":
            status = np.where(np.isnan(status), float(Status.PENDING), status)
        outcome = _OUTCOME_OF_STATUS[status.astype(np.int8)]
    else:
        outcome = np.full(n, PASSED, dtype=np.int8)
    if failed is None and not required:
        return outcome
    fails = _failed(ds, failed, required, dims, shape)
    if fails.dtype.kind == "b":
        outcome[fails & (outcome == PASSED)] = FAILED
        return outcome
    done = outcome == PASSED
    with np.errstate(invalid="ignore"):
        odd = done & ~((fails == 0) | (fails == 1) | np.isnan(fails))
    if odd.any():
        raise ValueError(
            f"'failed' holds {fails[odd][0].item()!r}; it says of each run 1 (fails), 0 (passes) "
            "or NaN (unknown)"
        )
    outcome[done & (fails == 1)] = FAILED
    outcome[done & np.isnan(fails)] = PENDING
    return outcome


def unmasked(ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which points the sweep's masks keep, as far as these are text.

    A run that a mask leaves out is marked as skipped when its block comes up, so until then it
    looks like one that is still to come.
    """
    from sweepkit.expressions import parse

    kept = np.ones(shape, dtype=bool)
    for mask in declared(ds).get("masks", ()):
        if "text" not in mask:
            continue
        expression = parse(mask["text"])
        if not all(name in ds.variables for name in expression.names):
            continue
        at = {name: ds[name].variable for name in expression.names}
        holds = expression.holds(at, run_dims=dims)
        own = tuple(d for d in dims if d in holds.dims)
        kept &= spread_dims(holds.transpose(*own).values, own, dims, shape).reshape(shape)
    return kept.reshape(-1)


def _failed(
    ds: xr.Dataset,
    failed: Any,
    required: tuple[Requirement, ...],
    dims: tuple[str, ...],
    shape: tuple[int, ...],
) -> NDArray[Any]:
    """1, 0 or NaN per run, flat."""
    if failed is None:
        from sweepkit.verdicts import failed as failed_of

        failed = failed_of(ds, required)
    if isinstance(failed, xr.DataArray):
        if set(failed.dims) != set(dims):
            raise ValueError(f"'failed' lies along {failed.dims}, the runs along {dims}")
        failed = failed.transpose(*dims).values
    values = np.asarray(failed)
    if values.shape != shape and values.size != int(np.prod(shape)):
        raise ValueError(f"'failed' has shape {values.shape}, the runs have {shape}")
    if values.dtype.kind not in "bfiu":
        raise ValueError(f"'failed' is {values.dtype}; it says of each run true, false or NaN")
    values = values.reshape(-1)
    return values if values.dtype.kind == "b" else values.astype(np.float64)

"""The runs of a Dataset, coded once so that everything else is counting.

Every parameter becomes small integers (its values in order, or up to 240 quantile bins) and every
run one outcome, so a table, a pair, a triple or a box is one ``np.bincount``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sweepkit.analysis.coding import (
    Coded,
    Codes,
    Floats,
    as_numbers,
    by_name,
    coded_parameters,
    combined,
    components_of,
    split_component,
    spread_dims,
    value_weights,
)
from sweepkit.analysis.outcomes import (
    ERRORED,
    FAILED,
    PENDING,
    SKIPPED,
    Errors,
    Failed,
    UnanswerableError,
    declared,
    outcome_of,
    refinement,
    required_by,
    run_dims,
    unmasked,
)
from sweepkit.requirements import Requirement

if TYPE_CHECKING:
    from sweepkit.analysis.refined import Shares

__all__ = [
    "Points",
    "Table",
    "Weights",
    "along",
    "dim_codes",
    "spread",
    "spread_over",
    "table",
    "varied",
]

Weights: TypeAlias = str | Mapping[str, str | ArrayLike] | None


@dataclass(frozen=True, eq=False)
class Points:
    """The design and scenario points that runs repeat.

    Attributes
    ----------
    of : array of int, shape (runs,)
        Point of each run.
    first : array of int, shape (points,)
        First run of each point; -1 where a number stands for none.
    """

    of: NDArray[np.int64]
    first: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """The runs of a Dataset, coded: what every analysis counts.

    Attributes
    ----------
    ds : Dataset
        Where it comes from.
    dims, shape : tuple
        The run dims and their sizes; everything flat is in C order over them.
    parameters : tuple of Coded
        In the order of the Dataset's coordinates.
    outcome : array of int8, shape (runs,)
        0 passed, 1 failed, 2 pending, 3 errored, 4 skipped.
    axes : tuple of (Coded or None)
        Per run dim, the one parameter it crosses with the others; None where several vary
        together, or none does.
    requirements : tuple of Requirement
        What runs were judged by; empty where `failed` was given.
    prefix : array of int, or None
        Flat positions of the runs of the coarse pass in their random order, if one is recorded.
    stage : array of int, shape (runs,), or None
        Which refinement a run belongs to, if there is more than one.
    volume : array of float, shape (runs,), or None
        Share of the parameter space that a run stands for, if declared.
    """

    ds: xr.Dataset
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: tuple[Coded, ...]
    outcome: NDArray[np.int8]
    axes: tuple[Coded | None, ...]
    requirements: tuple[Requirement, ...] = ()
    prefix: NDArray[np.int64] | None = None
    stage: NDArray[np.int64] | None = None
    volume: Floats | None = None

    @property
    def random(self) -> bool:
        """Whether the simulator draws random numbers, so that one run of a point is a sample."""
        return bool(declared(self.ds).get("random"))

    @property
    def n(self) -> int:
        """Number of runs, skipped ones included."""
        return len(self.outcome)

    @property
    def grid(self) -> bool:
        """Whether the runs are the crossing of one parameter per dim."""
        return bool(self.axes) and all(axis is not None for axis in self.axes)

    @property
    def finished(self) -> bool:
        """Whether no run is pending."""
        return not bool((self.outcome == PENDING).any())

    @property
    def complete(self) -> bool:
        """Whether this is a grid whose every run passed or failed."""
        return self.grid and bool((self.outcome <= FAILED).all())

    @cached_property
    def points(self) -> Points | None:
        """Which design and scenario point each run repeats; None where nothing is repeated.

        Runs along a dim without a parameter repeat a point, too.
        """
        bare = [d for d in self.dims if not any(d in p.dims for p in self.parameters)]
        if all(self.shape[self.dims.index(d)] == 1 for d in bare) and not any(
            p.role == "replicate" and p.n > 1 for p in self.parameters
        ):
            return None
        parts = []
        for dim in self.dims:
            codes, n = dim_codes(self, dim, ("design", "scenario"))
            parts.append((spread(codes, dim, self), n))
        of, n_points = combined(parts, self.n)
        first = np.full(n_points, -1)
        first[of[::-1]] = np.arange(self.n)[::-1]
        return Points(of, first)

    @cached_property
    def repeated(self) -> bool:
        """Whether refinements only added replicates of points that the first stage has."""
        if self.stage is None or self.points is None:
            return False
        first = np.zeros(len(self.points.first), dtype=bool)
        first[self.points.of[self.stage == self.stage.min()]] = True
        return bool(first[self.points.of].all())

    @cached_property
    def boundary(self) -> NDArray[np.bool_]:
        """Whether a run of a grid has a neighbour along an ordered axis with the other outcome."""
        from sweepkit.analysis.neighbours import boundary_of  # which stands on this module

        return boundary_of(self, self.outcome)

    @property
    def design(self) -> tuple[Coded, ...]:
        """The parameters whose role is design."""
        return tuple(p for p in self.parameters if p.role == "design")

    @cached_property
    def weights(self) -> Floats | None:
        """Weight of each run, from its volume or its values' weights; None where all are equal.

        Of points that were repeated where they were least sure each weighs as before.
        """
        weights: Floats | None = None
        if self.repeated and self.points is not None:
            of = self.points.of
            runs = np.bincount(of[self.outcome != SKIPPED], minlength=len(self.points.first))
            weights = 1 / np.maximum(runs, 1)[of]
        elif self.volume is not None:
            return self.volume
        for p in self.parameters:
            if p.weights is not None:
                share = p.weights[p.codes]
                weights = share if weights is None else weights * share
        return weights

    def __getitem__(self, name: str) -> Coded:
        return by_name(self.parameters, name)

    def counted(self, errors: Errors = "apart") -> NDArray[np.int8]:
        """The outcome of each run with errors apart, or counted as failures."""
        if errors == "apart":
            return self.outcome
        if errors != "fail":
            raise ValueError(f"errors={errors!r} is neither 'apart' nor 'fail'")
        return np.where(self.outcome == ERRORED, np.int8(FAILED), self.outcome)

    def shares(self, errors: Errors = "apart") -> Shares | None:
        """What each run of a grid and its refinements stands for; None for scattered runs."""
        from sweepkit.analysis.refined import shares  # which stands on this module

        if errors == "apart":
            return self._shares
        return shares(self, self.counted(errors))

    @cached_property
    def _shares(self) -> Shares | None:
        from sweepkit.analysis.refined import shares

        return shares(self, self.outcome)

    def point(self, run: int) -> dict[str, Any]:
        """Values of the parameters of one run, by flat position."""
        index = np.unravel_index(run, self.shape) if self.shape else ()
        at = dict(zip(self.dims, index, strict=True))
        point = {}
        for p in self.parameters:
            name, component = split_component(p.name, self.ds)
            value = self.ds[name].isel({d: i for d, i in at.items() if d in self.ds[name].dims})
            point[p.name] = np.asarray(value.values).reshape(-1)[component]
        return point

    def raw(self, name: str) -> NDArray[Any]:
        """A parameter's own values, one per run (numbers as float64)."""
        p = self[name]
        base, component = split_component(name, self.ds)
        array = self.ds[base]
        values = components_of(array, p.dims)[component]
        if p.ordered:
            values = as_numbers(values, p.kind)
        return spread_dims(values, p.dims, self.dims, self.shape)


def table(
    ds: xr.Dataset | Table,
    *,
    failed: Failed = None,
    requirements: Any = None,
    errors: Errors = "apart",
    weights: Weights = None,
) -> Table:
    """Code the runs of a Dataset, once for any number of analyses.

    Every analysis takes the result in place of the Dataset.

    Parameters
    ----------
    ds : Dataset or Table
        A store opened with ``sk.open``, or any Dataset whose coordinates are the parameters.
        Coordinates added later (``ds.assign_coords(ab=ds["a"] + ds["b"])``) count as parameters.
    failed : str or array, optional
        Which runs fail: the name of a variable, or an array over the run dims; true, false or
        NaN for unknown. By default the stored requirements decide.
    requirements : optional
        Requirements in place of the stored ones.
    errors : {"apart", "fail"}
        With "fail" a Dataset without requirements is accepted: only errors fail.
    weights : str or mapping of parameter to str or array, optional
        How much of a parameter's range each value stands for: "midpoint" (equal), "trapezoid"
        (half the way to each neighbour), or one number per value. By default the coordinate's
        ``attrs["weights"]``, else equal.

    Returns
    -------
    Table

    Raises
    ------
    UnanswerableError
        If nothing says which runs fail, or there are no runs.
    ValueError
        If no coordinate is a parameter, or sizes disagree.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("gain", [False, False, True])}, coords={"gain": [1, 2, 4]})
    >>> t = table(ds)
    >>> t["gain"].codes.tolist(), t.outcome.tolist(), t.complete
    ([0, 1, 2], [0, 0, 1], True)
    """
    if isinstance(ds, Table):
        if failed is None and requirements is None:
            return ds if weights is None else _weighted(ds, weights)
        return table(ds.ds, failed=failed, requirements=requirements, errors=errors)
    if not isinstance(ds, xr.Dataset):
        raise TypeError(f"ds is a {type(ds).__name__}; give a Dataset, as sk.open returns")
    if isinstance(failed, str):
        if failed not in ds:
            raise ValueError(f"failed={failed!r} is not a variable of this Dataset")
        failed = ds[failed]
    elif failed is None and requirements is None and "failed" in ds.data_vars:
        failed = ds["failed"]
    dims = run_dims(ds, failed)
    shape = tuple(ds.sizes[d] for d in dims)
    if 0 in shape:
        raise UnanswerableError(f"the Dataset holds no runs: its sizes are {dict(ds.sizes)}")
    required = required_by(ds, failed, requirements, errors)
    outcome = outcome_of(ds, failed, required, dims, shape)
    if (outcome == PENDING).any():
        outcome[(outcome == PENDING) & ~unmasked(ds, dims, shape)] = SKIPPED
    coded = Table(
        ds=ds,
        dims=dims,
        shape=shape,
        parameters=coded_parameters(ds, dims, shape, refinement(ds)),
        outcome=outcome,
        axes=(),
        requirements=required,
        stage=_stage(ds, dims, shape),
        volume=_volume(ds, dims, shape),
    )
    coded = replace(coded, axes=_axes(coded), prefix=_prefix(coded))
    return _weighted(coded, weights)


def dim_codes(t: Table, dim: str, roles: Sequence[str]) -> tuple[Codes, int]:
    """Which distinct point of the parameters with `roles` a run has along one dim."""
    there = [p for p in t.parameters if p.dims == (dim,)]
    kept = [p for p in there if p.role in roles]
    axis = t.dims.index(dim)
    size = t.shape[axis]
    if not kept:
        return np.zeros(1, dtype=np.int64), 1
    if len(kept) == len(there):
        return np.arange(size), size
    rows = [pd.factorize(along(t, p.name))[0] for p in kept]
    codes, _ = pd.factorize(combined([(r, int(r.max()) + 1) for r in rows], size)[0])
    return codes, int(codes.max()) + 1 if size else 0


def spread(codes: Codes, dim: str, t: Table) -> Codes:
    """Codes along one dim, repeated for each run."""
    if len(codes) != t.shape[t.dims.index(dim)]:
        return np.broadcast_to(codes, (t.n,))
    return spread_dims(codes, (dim,), t.dims, t.shape)


def along(t: Table, name: str) -> NDArray[Any]:
    """A parameter's own values over the run dims that it lies along."""
    base, component = split_component(name, t.ds)
    values: NDArray[Any] = components_of(t.ds[base], t[name].dims)[component]
    return values


def spread_over(t: Table, dims: tuple[str, ...], values: NDArray[Any]) -> NDArray[Any]:
    """Values over some of the run dims, one per run."""
    return spread_dims(values, dims, t.dims, t.shape)


def _axes(t: Table) -> tuple[Coded | None, ...]:
    axes: list[Coded | None] = []
    for dim, size in zip(t.dims, t.shape, strict=True):
        index = [p for p in t.parameters if p.name == dim and p.n == size and not p.binned]
        axes.append(index[0] if index else None)
    return tuple(axes)


def _stage(ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> Any:
    if "stage" not in refinement(ds) or not set(ds["stage"].dims) <= set(dims):
        return None
    array = ds["stage"]
    stage = spread_dims(np.asarray(array.values), tuple(map(str, array.dims)), dims, shape)
    return stage.astype(np.int64) if len(np.unique(stage)) > 1 else None


def _volume(ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> Floats | None:
    if "volume" not in refinement(ds) & set(ds.coords) or not ds["volume"].dims:
        return None
    array = ds["volume"]
    return spread_dims(
        np.asarray(array.values, dtype=np.float64), tuple(map(str, array.dims)), dims, shape
    )


def _prefix(t: Table) -> NDArray[np.int64] | None:
    """Flat positions of the coarse pass in order, where the record still fits the Dataset."""
    declaration = declared(t.ds)
    order = declaration.get("order")
    if not isinstance(order, dict) or not order.get("coarse"):
        return None
    sizes = {str(d): int(n) for d, n in dict(order["sizes"]).items()}
    # A grown sweep has runs that its first order could not draw, and a selection lacks some.
    if sizes != dict(zip(t.dims, t.shape, strict=True)):
        return None
    if "positions" in order:  # of flat runs, which lie in no grid
        return np.asarray(order["positions"], dtype=np.int64)
    from sweepkit.grid import random_prefix

    disk = random_prefix(order["seed"], t.n, int(order["coarse"]))
    index = dict(zip(sizes, np.unravel_index(disk, tuple(sizes.values())), strict=True))
    for dim, at in dict(declaration.get("axes", {})).items():
        # Opening sorts: position k of the Dataset is position at[k] on disk.
        if dim in index and len(at) == sizes[dim]:
            index[dim] = np.argsort(np.asarray(at, dtype=np.int64))[index[dim]]
    flat = np.ravel_multi_index(tuple(index[d] for d in t.dims), t.shape)
    return np.asarray(flat, dtype=np.int64)


def _weighted(t: Table, weights: Weights) -> Table:
    if not isinstance(weights, str | Mapping | None):
        raise TypeError(
            f"weights is {weights!r}; give 'midpoint', 'trapezoid', or a mapping of parameters to "
            "these or to one number per value"
        )
    if isinstance(weights, Mapping):
        unknown = [name for name in weights if name not in {p.name for p in t.parameters}]
        if unknown:
            raise ValueError(f"weights name {unknown[0]!r}, which is no parameter")
    parameters = []
    for p in t.parameters:
        how: Any = t.ds[p.name].attrs.get("weights") if p.name in t.ds.coords else None
        if isinstance(weights, str):
            how = weights if p.ordered and not p.binned else None
        elif weights is not None:
            how = weights.get(p.name, how)
        parameters.append(replace(p, weights=p.weights if how is None else value_weights(p, how)))
    coded = replace(t, parameters=tuple(parameters))
    return replace(coded, axes=_axes(coded))


def varied(t: Table) -> tuple[Coded, ...]:
    """The design and scenario parameters, which are what a failure can be laid to."""
    return tuple(p for p in t.parameters if p.role != "replicate")

"""The runs of a Dataset, coded once so that everything else is counting.

Every parameter becomes small integers (its values in order, or up to 240 quantile bins) and every
run one outcome, so a table, a pair, a triple or a box is one ``np.bincount``.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sweepkit.requirements import Requirement
from sweepkit.status import Status

if TYPE_CHECKING:
    from sweepkit.analysis.refined import Shares

__all__ = ["Coded", "UnanswerableError", "Table", "table"]

Errors: TypeAlias = Literal["apart", "fail"]
Codes: TypeAlias = NDArray[np.integer[Any]]
Floats: TypeAlias = NDArray[np.float64]
Failed: TypeAlias = "str | xr.DataArray | ArrayLike | None"
Weights: TypeAlias = "str | Mapping[str, str | ArrayLike] | None"

PASSED, FAILED, PENDING, ERRORED, SKIPPED = range(5)
"""What is known of a run; ``ERRORED`` takes error, timeout, crashed and invalid together."""

N_BINS = 240
"""Quantile bins of a value that hardly repeats; 240 because coarser tables divide it evenly."""

MAX_COMPONENTS = 16
PER_RUN = frozenset({"status", "duration", "attempts", "code", "error", "log", "failed"})
BOOKKEEPING = frozenset({"stage", "volume"})

_OUTCOME_OF_STATUS = np.array(
    [PENDING, PASSED, ERRORED, ERRORED, ERRORED, ERRORED, SKIPPED], dtype=np.int8
)


class UnanswerableError(ValueError):
    """The runs cannot answer the question; the message says why and what would."""


@dataclass(frozen=True, eq=False)
class Coded:
    """One parameter as codes.

    Attributes
    ----------
    name, role, units : str
        As in the Dataset; `units` is empty where none are given.
    kind : {"number", "time", "boolean", "category"}
        Numbers and times are ordered, so they have neighbours, limits and bins.
    dims : tuple of str
        The run dims it lies along.
    values : array, shape (n,)
        Value of each code; of a bin, its middle.
    lower, upper : array, shape (n,)
        Ends of each code; equal to `values` where it is not binned.
    codes : array of uint8 or uint16, shape (runs,)
        Code of each run, in C order over the run dims.
    binned : bool
        Whether codes are quantile bins.
    weights : array of float, shape (n,), or None
        Share of the parameter's range each value stands for; None is equal shares.
    """

    name: str
    role: str
    kind: str
    units: str
    dims: tuple[str, ...]
    values: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    codes: Codes
    binned: bool
    weights: Floats | None = None

    @property
    def n(self) -> int:
        """Number of codes."""
        return len(self.values)

    @property
    def ordered(self) -> bool:
        """Whether neighbouring codes are neighbouring values."""
        return self.kind in ("number", "time")

    @property
    def numbers(self) -> Floats:
        """The values as floats; times in seconds since the epoch, categories by their code."""
        return as_numbers(self.values, self.kind)

    def coarser(self, n: int) -> Coded:
        """The same parameter in at most `n` bins, where it is binned; itself otherwise."""
        if not self.binned or self.n <= n:
            return self
        to: Codes = (np.arange(self.n) * n // self.n).astype(np.uint8 if n < 256 else np.uint16)
        first = np.searchsorted(to, np.arange(n), side="left")
        last = np.searchsorted(to, np.arange(n), side="right") - 1
        lower, upper = self.lower[first], self.upper[last]
        return replace(
            self, values=middle(lower, upper), lower=lower, upper=upper, codes=to[self.codes]
        )

    def label(self, code: int) -> str:
        """How the value of a code is shown: ``0.25`` or, for a bin, ``0.25 to 0.5``."""
        if self.binned:
            return f"{shown(self.lower[code])} to {shown(self.upper[code])}"
        return shown(self.values[code])


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
    def boundary(self) -> NDArray[np.bool_]:
        """Whether a run of a grid has a neighbour along an ordered axis with the other outcome."""
        return boundary_of(self, self.outcome)

    @property
    def design(self) -> tuple[Coded, ...]:
        """The parameters whose role is design."""
        return tuple(p for p in self.parameters if p.role == "design")

    @property
    def weights(self) -> Floats | None:
        """Weight of each run, from its volume or its values' weights; None where all are equal."""
        if self.volume is not None:
            return self.volume
        weights: Floats | None = None
        for p in self.parameters:
            if p.weights is not None:
                share = p.weights[p.codes]
                weights = share if weights is None else weights * share
        return weights

    def __getitem__(self, name: str) -> Coded:
        for p in self.parameters:
            if p.name == name:
                return p
        raise KeyError(
            f"no parameter {name!r}; there are {', '.join(repr(p.name) for p in self.parameters)}"
        )

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
        values = _components(array, p.dims)[component]
        if p.ordered:
            values = as_numbers(values, p.kind)
        return _spread(values, p.dims, self.dims, self.shape)


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
    required = _required(ds, failed, requirements, errors)
    outcome = _outcome(ds, failed, required, dims, shape)
    if (outcome == PENDING).any():
        outcome[(outcome == PENDING) & ~_unmasked(ds, dims, shape)] = SKIPPED
    coded = Table(
        ds=ds,
        dims=dims,
        shape=shape,
        parameters=_parameters(ds, dims, shape),
        outcome=outcome,
        axes=(),
        requirements=required,
        stage=_stage(ds, dims, shape),
        volume=_volume(ds, dims, shape),
    )
    coded = replace(coded, axes=_axes(coded), prefix=_prefix(coded))
    return _weighted(coded, weights)


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


def shown(value: Any) -> str:
    """A value as text for labels."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value))
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return str(value)


def middle(lower: NDArray[Any], upper: NDArray[Any]) -> NDArray[Any]:
    """Middle between two arrays of numbers or times."""
    middle_: NDArray[Any] = lower + (upper - lower) / 2
    return middle_.astype(lower.dtype) if lower.dtype.kind in "mM" else middle_


def as_numbers(values: NDArray[Any], kind: str) -> Floats:
    """Values as float64: times in seconds, booleans 0 and 1, categories by position."""
    if kind == "time":
        seconds: Floats = values.astype(f"{values.dtype.kind}8[ns]").astype(np.int64) / 1e9
        return seconds
    if kind == "category":
        return np.arange(len(values), dtype=np.float64)
    return values.astype(np.float64)


def split_component(name: str, ds: xr.Dataset) -> tuple[str, int]:
    """``x0[3]`` as the coordinate ``x0`` and its component 3."""
    if name in ds.coords:
        return name, 0
    base, _, rest = name.rpartition("[")
    return base, int(rest[:-1])


def combined(parts: Iterable[tuple[Codes, int]], n: int) -> tuple[NDArray[np.int64], int]:
    """One code for several, in mixed radix, and how many there are."""
    code = np.zeros(n, dtype=np.int64)
    size = 1
    for codes, count in parts:
        code *= count
        code += codes
        size *= count
    return code, size


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
    return _spread(codes, (dim,), t.dims, t.shape)


def boundary_of(t: Table, outcome: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Whether a run of a grid has a neighbour along an ordered axis with the other outcome."""
    cube = outcome.reshape(t.shape)
    mixed = np.zeros(t.shape, dtype=bool)
    for k, axis in enumerate(t.axes):
        if axis is None or not axis.ordered or t.shape[k] < 2:
            continue
        order = np.argsort(axis_codes(t, k), kind="stable")
        here: Any = order[:-1]
        there: Any = order[1:]
        if (there == here + 1).all():
            here, there = slice(None, -1), slice(1, None)
        lead = (slice(None),) * k
        a, b = cube[(*lead, here)], cube[(*lead, there)]
        differ = (a != b) & (a <= FAILED) & (b <= FAILED)
        mixed[(*lead, here)] |= differ
        mixed[(*lead, there)] |= differ
    return mixed.reshape(-1)


def axis_codes(t: Table, k: int) -> Codes:
    """Code of each position along the crossed axis `k`."""
    axis = t.axes[k]
    if axis is None:
        raise ValueError(f"dim {t.dims[k]!r} carries no crossed parameter")
    step = int(np.prod(t.shape[k + 1 :], dtype=np.int64))
    return axis.codes[: t.shape[k] * step : step]


def along(t: Table, name: str) -> NDArray[Any]:
    """A parameter's own values over the run dims that it lies along."""
    base, component = split_component(name, t.ds)
    values: NDArray[Any] = _components(t.ds[base], t[name].dims)[component]
    return values


def spread_over(t: Table, dims: tuple[str, ...], values: NDArray[Any]) -> NDArray[Any]:
    """Values over some of the run dims, one per run."""
    return _spread(values, dims, t.dims, t.shape)


def _components(array: xr.DataArray, dims: tuple[str, ...]) -> NDArray[Any]:
    """The components of a coordinate, each over its run dims."""
    values = np.asarray(array.transpose(*dims, ...).values)
    components: NDArray[Any] = values.reshape(*values.shape[: len(dims)], -1)
    return components.transpose(components.ndim - 1, *range(len(dims)))


def _spread(
    values: NDArray[Any], dims: tuple[str, ...], onto: tuple[str, ...], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Values over some of the run dims, repeated over the others and made flat."""
    order = [d for d in onto if d in dims]
    values = values.transpose([dims.index(d) for d in order])
    index = tuple(slice(None) if d in dims else None for d in onto)
    flat: NDArray[Any] = np.broadcast_to(values[index], shape).reshape(-1)
    return flat


def _required(
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
    from sweepkit.reading import requirements_of

    return requirements_of(ds, requirements)


def _outcome(
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
            f"'failed' holds {fails[odd][0]!r}; it says of each run 1 (fails), 0 (passes) or "
            "NaN (unknown)"
        )
    outcome[done & (fails == 1)] = FAILED
    outcome[done & np.isnan(fails)] = PENDING
    return outcome


def _unmasked(ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[np.bool_]:
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
        kept &= _spread(holds.transpose(*own).values, own, dims, shape).reshape(shape)
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
        from sweepkit.reading import failed as failed_of

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


def _parameters(ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> tuple[Coded, ...]:
    found: list[Coded] = []
    names = [str(name) for name in ds.coords]
    for name in names:
        array = ds[name]
        own = tuple(str(d) for d in array.dims if d in dims)
        if not own or name in BOOKKEEPING:
            continue
        alone = all(ds[o].dims[:1] != (name,) for o in names if o != name)
        if name in dims and not alone and "role" not in array.attrs and _counts(array):
            continue
        components = _components(array, own)
        if len(components) > MAX_COMPONENTS:
            continue
        single = array.ndim == len(own)
        for k, values in enumerate(components):
            label = name if single else f"{name}[{k}]"
            found.append(_coded(label, array, values, own, dims, shape))
    if not found:
        raise ValueError(
            f"no coordinate of this Dataset lies along its runs {dims}; the parameters must be "
            "coordinates: ds.assign_coords(...)"
        )
    return tuple(found)


def _counts(array: xr.DataArray) -> bool:
    """Whether an index only numbers its positions."""
    values = array.values
    return values.dtype.kind in "iu" and bool((values == np.arange(len(values))).all())


def _coded(
    name: str,
    array: xr.DataArray,
    values: NDArray[Any],
    own: tuple[str, ...],
    dims: tuple[str, ...],
    shape: tuple[int, ...],
) -> Coded:
    kinds = {"b": "boolean", "i": "number", "u": "number", "f": "number", "m": "time", "M": "time"}
    kind = kinds.get(values.dtype.kind, "category")
    flat = values.reshape(-1)
    crossed = own == (name,)
    if kind in ("number", "time") and not crossed and _hardly_repeats(flat):
        codes, lower, upper = _binned(flat)
        levels, binned = middle(lower, upper), True
    else:
        ordered = kind in ("number", "time", "boolean")
        inverse, unique = pd.factorize(flat, sort=ordered, use_na_sentinel=False)
        levels, binned = np.asarray(unique), False
        if len(levels) > 65535:
            raise ValueError(f"parameter {name!r} has {len(levels)} values; at most 65535 counted")
        codes = inverse.astype(np.uint8 if len(levels) <= 256 else np.uint16)
        lower = upper = levels
    return Coded(
        name=name,
        role=str(array.attrs.get("role", "design")),
        kind=kind,
        units=str(array.attrs.get("units", "")),
        dims=own,
        values=levels,
        lower=lower,
        upper=upper,
        codes=_spread(codes.reshape(values.shape), own, dims, shape),
        binned=binned,
    )


def _hardly_repeats(values: NDArray[Any]) -> bool:
    """Whether a value is better binned: more than 255 distinct ones."""
    if len(values) <= 255:
        return False
    if len(np.unique(values[:2000])) > 255:
        return True
    return len(pd.unique(values)) > 255


def _binned(values: NDArray[Any]) -> tuple[Codes, NDArray[Any], NDArray[Any]]:
    step = max(1, len(values) // 100_000)
    some = np.sort(values[::step])
    edges = np.unique(some[(np.arange(1, N_BINS) * len(some)) // N_BINS])
    codes = np.searchsorted(edges, values, side="right").astype(np.uint8)
    lower = np.concatenate([[values.min()], edges])
    upper = np.concatenate([edges, [values.max()]])
    return codes, lower, upper


def _axes(t: Table) -> tuple[Coded | None, ...]:
    axes: list[Coded | None] = []
    for dim, size in zip(t.dims, t.shape, strict=True):
        index = [p for p in t.parameters if p.name == dim and p.n == size and not p.binned]
        axes.append(index[0] if index else None)
    return tuple(axes)


def _stage(ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> Any:
    if "stage" not in ds.variables or not set(ds["stage"].dims) <= set(dims):
        return None
    array = ds["stage"]
    stage = _spread(np.asarray(array.values), tuple(map(str, array.dims)), dims, shape)
    return stage.astype(np.int64) if len(np.unique(stage)) > 1 else None


def _volume(ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> Floats | None:
    if "volume" not in ds.coords or not ds["volume"].dims:
        return None
    array = ds["volume"]
    return _spread(
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
        parameters.append(replace(p, weights=p.weights if how is None else _weights(p, how)))
    coded = replace(t, parameters=tuple(parameters))
    return replace(coded, axes=_axes(coded))


def _weights(p: Coded, how: Any) -> Floats | None:
    if not isinstance(how, str):
        given: Floats = np.array(how, dtype=np.float64)
        if given.shape != (p.n,) or not (given >= 0).all() or not given.sum() > 0:
            raise ValueError(f"weights of {p.name!r} must be {p.n} numbers >= 0 with a sum > 0")
        given /= given.sum()
        return given
    if how == "midpoint":
        return None
    if how != "trapezoid":
        raise ValueError(f"weights {how!r} of {p.name!r} are neither 'midpoint' nor 'trapezoid'")
    if not p.ordered or p.binned:
        raise ValueError(f"parameter {p.name!r} has no order to take trapezoid weights along")
    if p.n == 1:
        return None
    gaps = np.diff(p.numbers)
    shares = (np.concatenate([[0.0], gaps]) + np.concatenate([gaps, [0.0]])) / 2
    total: Floats = shares / shares.sum()
    return total


def varied(t: Table) -> tuple[Coded, ...]:
    """The design and scenario parameters, which are what a failure can be laid to."""
    return tuple(p for p in t.parameters if p.role != "replicate")


def passed_and_failed(t: Table, errors: Errors = "apart", *, least: int = 1) -> NDArray[np.int8]:
    """The outcome of each run, where at least `least` passed and `least` failed.

    Raises
    ------
    UnanswerableError
        Where they did not.
    """
    outcome = t.counted(errors)
    passed, failed = int((outcome == PASSED).sum()), int((outcome == FAILED).sum())
    if passed + failed == 0:
        status = ", ".join(
            f"{n} {word}"
            for n, word in zip(
                np.bincount(outcome, minlength=5),
                ("", "", "pending", "errored", "skipped"),
                strict=True,
            )
            if n
        )
        raise UnanswerableError(
            f"no run has passed or failed yet ({status}); errors='fail' counts errors as failures"
        )
    if min(passed, failed) < least:
        kind, n = ("failed", failed) if failed < passed else ("passed", passed)
        raise UnanswerableError(
            f"{n} of {passed + failed} finished runs {kind}; at least {least} must have, and as "
            "many of the other kind, for anything to tell them apart"
        )
    return outcome

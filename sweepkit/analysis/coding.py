"""Parameters as small integers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

__all__ = [
    "Coded",
    "Codes",
    "Floats",
    "MAX_COMPONENTS",
    "N_BINS",
    "as_numbers",
    "by_name",
    "coded_parameters",
    "combined",
    "components_of",
    "middle",
    "placed",
    "shown",
    "split_component",
    "spread_dims",
    "value_weights",
]

Codes: TypeAlias = NDArray[np.integer[Any]]
Floats: TypeAlias = NDArray[np.float64]
N_BINS = 240
"""Quantile bins of a value that hardly repeats; 240 because coarser tables divide it evenly."""
MANY = 50_000
N_EVEN = 4096
MOST_EDGES = 4
CHUNK = 1 << 16
"""Even cells that many numbers are thrown into before they are compared with edges."""

MAX_COMPONENTS = 16


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


def by_name(parameters: Iterable[Coded], name: str) -> Coded:
    """The parameter of a name.

    Raises
    ------
    KeyError
        If there is none; names those there are.
    """
    names = []
    for p in parameters:
        if p.name == name:
            return p
        names.append(p.name)
    raise KeyError(f"no parameter {name!r}; there are {', '.join(map(repr, names))}")


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


def components_of(array: xr.DataArray, dims: tuple[str, ...]) -> NDArray[Any]:
    """The components of a coordinate, each over its run dims."""
    values = np.asarray(array.transpose(*dims, ...).values)
    components: NDArray[Any] = values.reshape(*values.shape[: len(dims)], -1)
    return components.transpose(components.ndim - 1, *range(len(dims)))


def spread_dims(
    values: NDArray[Any], dims: tuple[str, ...], onto: tuple[str, ...], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Values over some of the run dims, repeated over the others and made flat."""
    order = [d for d in onto if d in dims]
    values = values.transpose([dims.index(d) for d in order])
    index = tuple(slice(None) if d in dims else None for d in onto)
    flat: NDArray[Any] = np.broadcast_to(values[index], shape).reshape(-1)
    return flat


def coded_parameters(
    ds: xr.Dataset, dims: tuple[str, ...], shape: tuple[int, ...], apart: Collection[str] = ()
) -> tuple[Coded, ...]:
    """The coordinates along the runs, but for those in `apart`."""
    found: list[Coded] = []
    names = [str(name) for name in ds.coords]
    for name in names:
        array = ds[name]
        own = tuple(str(d) for d in array.dims if d in dims)
        if not own or name in apart:
            continue
        alone = all(ds[o].dims[:1] != (name,) for o in names if o != name)
        if name in dims and not alone and "role" not in array.attrs and _counts(array):
            continue
        components = components_of(array, own)
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
        codes=spread_dims(codes.reshape(values.shape), own, dims, shape),
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
    codes = placed(edges, values)
    lower = np.concatenate([[values.min()], edges])
    upper = np.concatenate([edges, [values.max()]])
    return codes, lower, upper


def placed(edges: NDArray[Any], values: NDArray[Any]) -> Codes:
    """How many edges lie at or below each value, as ``np.searchsorted`` with side right.

    Very many numbers are first thrown into even cells: most hold one edge or none, and then one
    comparison tells.
    """
    if len(values) < MANY or values.dtype.kind != "f" or not len(edges):
        return np.searchsorted(edges, values, side="right").astype(np.uint8)
    low, high = float(edges[0]), float(edges[-1])
    if not (np.isfinite(high - low) and high > low and np.isfinite(N_EVEN / (high - low))):
        return np.searchsorted(edges, values, side="right").astype(np.uint8)
    scale = N_EVEN / (high - low)
    # The same arithmetic for edges and values, so that rounding moves neither past the other.
    of_edge = ((edges - low) * scale).clip(0, N_EVEN).astype(np.int32)
    most = int(np.bincount(of_edge).max())
    if most > MOST_EDGES:
        return np.searchsorted(edges, values, side="right").astype(np.uint8)
    before = np.searchsorted(of_edge, np.arange(N_EVEN + 1), side="left").astype(np.uint8)
    beyond = np.append(edges, np.full(most, np.inf))
    codes = np.empty(len(values), dtype=np.uint8)
    for start in range(0, len(values), CHUNK):
        some = values[start : start + CHUNK]
        with np.errstate(invalid="ignore", over="ignore"):
            cell = np.nan_to_num((some - low) * scale, nan=N_EVEN).clip(0, N_EVEN)
        code = before[cell.astype(np.int32)]
        for _ in range(most):
            # A NaN sorts last, beyond every edge.
            code += ~(some < beyond[code]) & (code < len(edges))
        codes[start : start + CHUNK] = code
    return codes


def value_weights(p: Coded, how: Any) -> Floats | None:
    if not isinstance(how, str):
        given: Floats = np.array(how, dtype=np.float64)
        sound = given.shape == (p.n,) and bool((np.isfinite(given) & (given >= 0)).all())
        if not sound or not given.sum() > 0:
            raise ValueError(
                f"weights of {p.name!r} must be {p.n} finite numbers >= 0 with a sum > 0"
            )
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

"""The result of one run, checked and taken apart by output."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.casts import Misfit, as_declared
from sweepkit.format1 import RESERVED, fill_value
from sweepkit.outputs import Output, coordinate, name_fault
from sweepkit.parameters import check_name
from sweepkit.parcels import Parcel
from sweepkit.returned import check_present, plain_array, type_name

__all__ = ["Seen", "as_mapping", "check_dims", "names_fault", "seen_value"]

RESULT = "result"
"""Name of the output of a simulator that returns a bare value."""


@dataclass(frozen=True)
class Seen:
    """One value, taken apart."""

    array: NDArray[Any] | Parcel
    dtype: str
    dims: tuple[str, ...]
    pad: str | None
    length: int
    attrs: Mapping[str, Any]
    coords: Mapping[str, NDArray[Any]]

    @property
    def key(self) -> tuple[Any, ...]:
        coords = tuple(
            (dim, a.dtype.str, a.tobytes() if a.dtype.kind != "O" else tuple(a.tolist()))
            for dim, a in self.coords.items()
        )
        return type(self.array), self.dtype, self.dims, self.array.shape, coords


def as_mapping(result: Any, declared: Mapping[str, Output]) -> Mapping[str, Any]:
    """Whatever a simulator returned as a mapping from output to value."""
    if isinstance(result, Mapping):
        if all(type(name) is str for name in result):
            return result
        return {str(name) if isinstance(name, str) else name: result[name] for name in result}
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return dict(zip(result._fields, result, strict=True))
    if hasattr(result, "data_vars") and hasattr(result, "dims"):
        return {str(name): result[name] for name in result.data_vars}
    if hasattr(result, "send") and hasattr(result, "throw"):
        raise Misfit("a generator was returned; return what it would give, as in list(...)")
    if result is None:
        raise Misfit("nothing was returned; return a dict of outputs, or a number")
    if hasattr(result, "to_dict") and hasattr(result, "iloc"):
        raise Misfit(
            f"a {type_name(result)} was returned; return a dict of outputs, as in "
            "dict(series), or frame.to_xarray()"
        )
    if isinstance(result, tuple | list):
        if declared and len(result) == len(declared):
            return dict(zip(declared, result, strict=True))
        raise Misfit(
            f"a {type(result).__name__} of {len(result)} was returned; "
            "return a dict of outputs so that each has a name"
        )
    name = getattr(result, "name", None) if hasattr(result, "dims") else None
    only = next(iter(declared)) if len(declared) == 1 else RESULT
    return {str(name) if name is not None else only: result}


def names_fault(result: Mapping[str, Any], declared: Mapping[str, Output]) -> str | None:
    for name in declared:
        if name not in result:
            return (
                f"output {name!r} is declared but was not returned; "
                f"returned: {', '.join(map(str, result)) or 'nothing'}"
            )
        if declared[name].pad and f"{name}_length" in result:
            return (
                f"output '{name}_length' has the name kept for the lengths of {name!r}; rename it"
            )
    for name in result:
        wrong = name_fault(name)
        if wrong is not None:
            return wrong
    return None if result else "no outputs were returned; return a dict with at least one"


def check_dims(seen: Mapping[str, Seen]) -> None:
    """Refuse dims that a returned DataArray brought and that the store cannot have."""
    sizes: dict[str, tuple[str, int]] = {}
    for name, one in seen.items():
        for dim, size in zip(one.dims, one.array.shape, strict=True):
            other, known = sizes.setdefault(dim, (name, size))
            if known != size:
                raise Misfit(
                    f"dim {dim!r} has {size} entries in output {name!r} and {known} in {other!r}; "
                    "give one of them a dim of its own"
                )
            if dim in seen or dim in RESERVED:
                raise Misfit(
                    f"output {name!r} has a dim {dim!r}, which is also the name of "
                    f"{'an output' if dim in seen else 'a variable of the store'}; rename one"
                )
            try:
                check_name(dim, "dim")
            except ValueError as fault:
                raise Misfit(f"output {name!r} cannot be stored: {fault}") from None


def seen_value(name: str, value: Any, said: Output | None) -> Seen:
    attrs: Mapping[str, Any] = {}
    coords: dict[str, NDArray[Any]] = {}
    dims: tuple[str, ...] | None = None
    if hasattr(value, "dims") and hasattr(value, "values") and hasattr(value, "attrs"):
        dims = tuple(str(dim) for dim in value.dims)
        attrs = {k: v for k, v in value.attrs.items() if isinstance(v, str | int | float)}
        for dim in dims:
            if dim in getattr(value, "coords", ()):
                coords[dim] = _carried(dim, value.coords[dim].values)
        check_present(name, getattr(value, "data", None))
        value = value.values
    elif hasattr(value, "index") and hasattr(value, "iloc"):
        _check_unlabelled(name, value)
    array, dtype = plain_array(name, value)
    if said is not None and said.dims is not None and (said.dims or said.size):
        if dims is not None and set(dims) == set(said.dims) and dims != said.dims:
            array = array.transpose([dims.index(dim) for dim in said.dims])
        elif dims is not None and dims != said.dims:
            raise Misfit(
                f"output {name!r} has dims ({', '.join(dims)}), but the sweep declares "
                f"({', '.join(said.dims)})"
            )
        dims = said.dims
        if array.ndim != len(dims):
            raise Misfit(
                f"output {name!r} has shape {array.shape}, but the sweep declares the dims "
                f"({', '.join(dims)})"
            )
    elif dims is None:
        dims = tuple(f"{name}_dim_{at}" for at in range(array.ndim))
    length, pad = -1, None
    if said is not None and said.size is not None and said.dims:
        array, length, pad = _sized(name, array, dtype, said)
    if said is not None and said.dtype is not None and said.dtype != dtype:
        array, dtype = as_declared(name, array, dtype, said.dtype), said.dtype
    return Seen(array, dtype, dims, pad, length, attrs, coords)


def _check_unlabelled(name: str, series: Any) -> None:
    """Refuse a Series whose index says more than its places: it would be lost."""
    index = series.index
    if type(index).__name__ != "RangeIndex" or (index.start, index.step) != (0, 1):
        raise Misfit(
            f"output {name!r} is a {type_name(series)} with an index, which would be lost; return "
            "series.to_xarray() to keep it, dict(series) for outputs of these names, or "
            "series.to_numpy() for the values alone"
        )


def _carried(dim: str, values: Any) -> NDArray[Any]:
    try:
        return np.array(coordinate(dim, values))
    except ValueError as fault:
        raise Misfit(str(fault)) from None


def _sized(
    name: str, array: NDArray[Any], dtype: str, said: Output
) -> tuple[NDArray[Any], int, str | None]:
    sizes = said.size or ()
    for at, (dim, size) in enumerate(zip(said.dims or (), sizes, strict=True)):
        padded = dim == said.pad
        if array.shape[at] > size or (array.shape[at] < size and not padded):
            most = "at most " if padded else ""
            raise Misfit(
                f"output {name!r} has {array.shape[at]} entries along {dim!r}, but the sweep "
                f"declares {most}{size}"
            )
    if said.pad is None:
        return array, -1, None
    length = array.shape[0]
    whole = np.full((sizes[0], *array.shape[1:]), fill_value(dtype), dtype=array.dtype)
    whole[:length] = array
    return whole, length, said.pad

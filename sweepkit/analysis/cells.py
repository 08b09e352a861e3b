"""How runs fall into the cells of a result."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from sweepkit.analysis.coding import Coded, Codes, combined
from sweepkit.analysis.naming import freed, renamed
from sweepkit.analysis.table import Table, dim_codes, spread

__all__ = ["Cells", "MAX_CELLS", "beside", "cells", "kept"]

MAX_CELLS = 10_000_000


@dataclass(frozen=True, eq=False)
class Cells:
    """How runs fall into the cells of a result."""

    cell: Codes
    n: int
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: dict[str, xr.DataArray]
    fixed: tuple[str, ...]
    by_replicate: bool
    along: tuple[Coded, ...]
    at_points: bool
    renamed: str = ""


def cells(
    t: Table, by: Sequence[str] | None, *, bins: int = 20, coarse: Mapping[str, int] | None = None
) -> Cells:
    """The cells of a result by these parameters, or by design where none are named.

    Values that hardly repeat are taken in `bins`, those of parameters in `coarse` in as many as
    that says.
    """

    def binned(name: str) -> Coded:
        return t[name].coarser((coarse or {}).get(name, bins))

    parts: list[tuple[Codes, int]] = []
    dims: list[str] = []
    coords: dict[str, xr.DataArray] = {}
    fixed: list[str] = []
    if by is None:
        for dim in t.dims:
            codes, n = dim_codes(t, dim, ("design",))
            own = [p for p in t.parameters if p.dims == (dim,) and p.role == "design"]
            if not own:
                continue
            # The first run of each design carries its values.
            _, first = np.unique(codes, return_index=True)
            for name, array in t.ds.coords.items():
                design = array.attrs.get("role", "design") == "design"
                if array.dims[:1] == (dim,) and set(array.dims) & set(t.dims) == {dim} and design:
                    coords[str(name)] = array.isel({dim: first}).reset_coords(drop=True)
            parts.append((spread(codes, dim, t), n))
            dims.append(dim)
            # A scenario that was drawn with each design is a sample of one.
            if n == t.shape[t.dims.index(dim)] and not _moves(t, dim, "scenario"):
                fixed.append(dim)
    else:
        for name in by:
            p = binned(name)
            parts.append((p.codes, p.n))
            dims.append(p.name)
            coords[p.name] = _coordinate(p, t)
        for dim in t.dims:
            own = [p for p in t.parameters if dim in p.dims and p.role != "replicate"]
            own = own or [p for p in t.parameters if dim in p.dims]
            axis = t.axes[t.dims.index(dim)]
            told = all(p.name in by and binned(p.name) is p for p in own)
            if (own and told) or (axis is not None and axis.name in by):
                fixed.append(dim)
    shape = tuple(n for _, n in parts)
    if np.prod([float(n) for n in shape]) > MAX_CELLS:
        raise ValueError(
            f"{' x '.join(map(str, shape))} cells by {', '.join(map(repr, dims))} are more than "
            f"{MAX_CELLS}; name fewer parameters in by="
        )
    cell, n_cells = combined(parts, t.n)
    return Cells(
        cell=cell,
        n=n_cells,
        dims=tuple(dims),
        shape=shape,
        coords=coords,
        fixed=tuple(fixed),
        by_replicate=by is not None and any(t[name].role == "replicate" for name in by),
        along=t.design if by is None else tuple(binned(name) for name in by),
        at_points=by is None,
    )


def beside(split: Cells, taken: Collection[str]) -> Cells:
    """The same cells with names that a result has for itself `freed` of dims and coordinates."""
    inner = [str(d) for array in split.coords.values() for d in array.dims]
    new = freed([*split.dims, *split.coords, *inner], taken)
    if all(name == one for name, one in new.items()):
        return split
    coords = {
        new[name]: xr.DataArray(
            array.values, dims=[new[str(d)] for d in array.dims], attrs=array.attrs
        )
        for name, array in split.coords.items()
    }
    dims = tuple(new[d] for d in split.dims)
    return replace(split, dims=dims, coords=coords, renamed=renamed(new))


def _moves(t: Table, dim: str, role: str) -> bool:
    return any(p.dims == (dim,) and p.role == role and p.n > 1 for p in t.parameters)


def _coordinate(p: Coded, t: Table) -> xr.DataArray:
    attrs = dict(t.ds.coords[p.name].attrs) if p.name in t.ds.coords else {}
    if p.binned:
        attrs["binned"] = f"middle of {p.n} quantile bins"
    return xr.DataArray(p.values, dims=p.name, name=p.name, attrs=attrs)


def kept(
    t: Table, by: str | Sequence[str] | None, over: str | Sequence[str] | None
) -> list[str] | None:
    """The parameters that a result keeps; None is the design."""
    if by is not None and over is not None:
        raise ValueError("give by= (what to keep) or over= (what to average over), not both")
    if over is not None:
        dropped = _parameters_of(t, over, "over")
        return [p.name for p in t.parameters if p.name not in dropped]
    if by is None:
        return None
    return _parameters_of(t, by, "by")


def _parameters_of(t: Table, given: str | Sequence[str], word: str) -> list[str]:
    """Names of parameters, each there and given once."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{word} is {given!r}; give names of parameters")
    names = list(names)
    known = [p.name for p in t.parameters]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            what = "is an output" if name in t.ds.data_vars else "is no parameter"
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{word}={name!r} {what}; the parameters are {', '.join(known)}{hint}")
    if len(set(names)) < len(names):
        raise ValueError(f"{word}={names!r} names a parameter twice")
    return names

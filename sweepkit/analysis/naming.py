"""Parameters named as what a result holds: both have their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import xarray as xr

from sweepkit.analysis.table import Table

__all__ = ["freed", "renamed", "run_coords"]


def freed(names: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """What names of parameters and dims become in a result that has names of its own.

    One that the result needs has an underscore more there (``low`` is ``low_``), so that what is
    said of a result's columns always holds.
    """
    given = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    for name in given:
        new = name
        while new in taken or new in found.values() or (new != name and new in given):
            new += "_"
        found[name] = new
    return found


def run_coords(t: Table, taken: set[str]) -> tuple[tuple[str, ...], dict[str, xr.Variable], str]:
    """The run dims and their coordinates for a result that has names of its own, `freed`; and
    which that changed."""
    there = {
        str(name): array
        for name, array in t.ds.coords.items()
        if array.dims and set(array.dims) <= set(t.dims)
    }
    new = freed([*t.dims, *there], taken)
    coords = {
        new[name]: xr.Variable([new[str(d)] for d in array.dims], array.values, array.attrs)
        for name, array in there.items()
    }
    return tuple(new[d] for d in t.dims), coords, renamed(new)


def renamed(new: Mapping[str, str]) -> str:
    """Which names `freed` had to change, in words; empty where none."""
    return "; ".join(
        f"{name!r} is {one!r} here, as {name!r} is of the result"
        for name, one in new.items()
        if name != one
    )

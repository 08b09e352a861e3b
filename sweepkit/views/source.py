"""What an explorer looks at: the runs coded once, and the limits that judge them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit import reading
from sweepkit.analysis.coding import Coded, by_name
from sweepkit.analysis.counts import run_weights
from sweepkit.analysis.outcomes import FAILED, PASSED, SKIPPED, declared, run_dims
from sweepkit.analysis.table import Table, table
from sweepkit.places import Given, KeyPath, Where, place, where
from sweepkit.requirements import Requirement
from sweepkit.requirements import requirement as as_requirement
from sweepkit.root import UnreachableError
from sweepkit.status import ENDINGS, Progress
from sweepkit.verdicts import requirements_of
from sweepkit.views.levers import Lever, lever, outcome_lever

__all__ = ["BINS", "Filling", "Source", "judged", "kept", "marks", "source", "store_of"]

Bools: TypeAlias = NDArray[np.bool_]

BINS = 24
"""Quantile bins of a parameter whose values hardly repeat, on every axis."""

FIRST_RUN_SECONDS = 60.0
"""How long is waited for the first run of a job to be stored."""

KEEPING = frozenset(
    {"status", "duration", "attempts", "code", "error", "log", "log_size", "failed"}
)


@runtime_checkable
class Filling(Protocol):
    """A job, as far as its store is waited for here."""

    @property
    def where(self) -> Where:
        """Where its store is."""

    @property
    def progress(self) -> Progress:
        """How far it is."""

    def news(self, seen: int, timeout: float) -> int:
        """Wait for more news than some seen; returns how much there is."""


@dataclass(frozen=True, eq=False)
class Source:
    """The runs of a Dataset, ready to be counted at any limits.

    Attributes
    ----------
    ds : Dataset
    name : str
    path : str or KeyPath
        Where the store is; empty for a Dataset in memory.
    table : Table
        Judged by the declared limits.
    parameters : tuple of Coded
        As the views count them: in at most `BINS` bins where values hardly repeat.
    levers : tuple of Lever
    base : array of int8, shape (runs,)
        Outcome of each run before it is judged: what is done has passed.
    seen : tuple
        What `marks` said of the store before it was read.
    """

    ds: xr.Dataset
    name: str
    path: Where
    table: Table
    parameters: tuple[Coded, ...]
    levers: tuple[Lever, ...]
    base: NDArray[np.int8]
    seen: tuple[Any, ...] = ()

    def __getitem__(self, name: str) -> Coded:
        return by_name(self.parameters, name)

    @cached_property
    def ended(self) -> Bools:
        """Whether a run is done, so that its outputs can be judged."""
        return np.asarray(self.base == PASSED)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Outputs with one number a run."""
        dims = set(self.table.dims)
        return tuple(
            str(name)
            for name, one in self.ds.data_vars.items()
            if set(map(str, one.dims)) == dims
            and name not in KEEPING
            and "length_of" not in one.attrs
            and one.dtype.kind in "biuf"
        )

    @cached_property
    def traces(self) -> tuple[str, ...]:
        """Outputs with one row of numbers a run."""
        dims = set(self.table.dims)
        return tuple(
            str(name)
            for name, one in self.ds.data_vars.items()
            if set(map(str, one.dims)) > dims
            and one.ndim == len(dims) + 1
            and one.dtype.kind in "biuf"
        )

    def output(self, name: str) -> NDArray[np.float64]:
        """An output or what a lever compares, one number a run."""
        for one in self.levers:
            if name == one.what and name not in self.outputs:
                return one.values
        array = self.ds[name].transpose(*self.table.dims)
        values: NDArray[np.float64] = np.asarray(array.values, np.float64).reshape(-1)
        return values


def store_of(given: Given | Filling) -> Where:
    """Place of a store; of a job its store, for which is waited until it has begun.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if not isinstance(given, Filling):
        try:
            return where(given)
        except TypeError:
            raise TypeError(
                f"this is a {type(given).__name__}; give a Dataset, the path of a store, or a job"
            ) from None
    end, seen = time.monotonic() + FIRST_RUN_SECONDS, 0
    root = place(given.where)
    while not (root.is_file() or (root / "zarr.json").exists()):
        if given.progress.state in ENDINGS or time.monotonic() > end:
            break  # opening it says that nothing is there
        seen = given.news(seen, 1.0)
    return given.where


def source(data: xr.Dataset | Given | Filling, requirements: Any = None) -> Source:
    """Open and code what is to be explored.

    Parameters
    ----------
    data : Dataset, path or job
    requirements : optional
        In place of the stored ones.

    Raises
    ------
    ValueError
        If there are no runs to show, a requirement does not fit the Dataset, or refined runs lack
        their volumes.
    """
    path: Where = ""
    seen: tuple[Any, ...] = ()
    if not isinstance(data, xr.Dataset):
        path = store_of(data)
        seen = marks(path)  # before: what is written while it is read is looked for again
        data = reading.open(path)
    ds = _with_parameters(data)
    asked = requirements is not None or bool(declared(ds).get("requirements"))
    dims = run_dims(ds)
    levers: tuple[Lever, ...] = ()
    if asked:
        wanted = requirements_of(ds, requirements)
        loaded = _loaded(ds, wanted)
        levers = tuple(lever(loaded, one, dims) for one in wanted)
        plain = table(ds, failed=_unjudged(ds, dims))
    elif "failed" in ds.data_vars:
        fails = np.asarray(ds["failed"].transpose(*dims).values, np.float64).reshape(-1)
        plain = table(ds, failed="failed")
        levers = (outcome_lever("failed", fails),)
    else:
        plain = table(ds, errors="fail")
    run_weights(plain)  # refuses runs of several stages without their volumes
    base = np.where(plain.outcome <= FAILED, np.int8(PASSED), plain.outcome)
    said = declared(ds).get("name") or ds.attrs.get("title") or "Dataset"
    name = PurePosixPath(str(path)).stem if path else str(said)
    made = Source(
        ds=ds,
        name=name,
        path=path,
        table=plain,
        parameters=tuple(p.coarser(BINS) for p in plain.parameters),
        levers=levers,
        base=base,
        seen=seen,
    )
    return replace(made, table=judged(made, [one.declared for one in levers]))


def judged(of: Source, stops: Sequence[int]) -> Table:
    """The runs with each limit at one of its stops."""
    outcome = of.base
    requirements: list[Requirement] = []
    if of.levers:
        passes = of.levers[0].holds(stops[0])
        for one, stop in zip(of.levers[1:], stops[1:], strict=True):
            passes = passes & one.holds(stop)
        outcome = np.where(of.ended & ~passes, np.int8(FAILED), of.base)
        for one, stop in zip(of.levers, stops, strict=True):
            requirement = one.moved(stop) or one.requirement
            if requirement is not None:
                # Under its declared name, by which kinds of failures are told apart.
                requirements.append(as_requirement(requirement, name=one.name))
    return _with_outcome(of.table, outcome, tuple(requirements))


def kept(t: Table, mask: Bools | None) -> Table:
    """The same with the runs outside a mask left out of every count."""
    if mask is None:
        return t
    return _with_outcome(t, np.where(mask, t.outcome, np.int8(SKIPPED)), t.requirements)


def _with_outcome(
    t: Table, outcome: NDArray[np.int8], requirements: tuple[Requirement, ...]
) -> Table:
    made = replace(t, outcome=outcome, requirements=requirements)
    if "points" in t.__dict__:
        made.__dict__["points"] = t.points  # which points runs repeat does not depend on outcomes
    return made


def marks(path: Where) -> tuple[Any, ...]:
    """What changes when a store is written: times and sizes of its root and its statuses."""
    found: list[Any] = []
    if isinstance(path, KeyPath):
        try:
            keys = path.store.keys_below((path / "status" / "c").key)
            return (*keys, *path.store.stamps([(path / "zarr.json").key, *keys]))
        except UnreachableError:
            return (None,)
    root = Path(path)
    if root.is_file():
        stat = root.stat()
        return (stat.st_mtime_ns, stat.st_size)
    for name in ("zarr.json", "status"):
        try:
            found.append((root / name).stat().st_mtime_ns)
        except OSError:
            found.append(None)
    chunks = root / "status" / "c"
    for folder, _, files in os.walk(chunks):
        for name in sorted(files):
            try:
                stat = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            found.append((folder, name, stat.st_mtime_ns, stat.st_ino))
    return tuple(found)


def _with_parameters(ds: xr.Dataset) -> xr.Dataset:
    """Positions as coordinates along the run dims that no coordinate tells of."""
    if not ds.data_vars:
        raise ValueError(
            "this Dataset has no variables, so there is nothing to explore; give one whose "
            "variables lie over the parameters"
        )
    dims = run_dims(ds)
    if not dims:
        raise ValueError(
            "the variables of this Dataset share no dim, so nothing tells runs apart: its sizes "
            f"are {dict(ds.sizes)}"
        )
    told = {str(d) for coord in ds.coords.values() for d in coord.dims}
    bare = [d for d in dims if d not in told]
    if not bare or len(bare) < len(dims):
        return ds
    return ds.assign_coords({d: (d, np.arange(ds.sizes[d])) for d in bare})


def _loaded(ds: xr.Dataset, wanted: Sequence[Requirement]) -> xr.Dataset:
    """The Dataset with what the requirements name in memory, read once for all of them."""
    if any(one.needs_code for one in wanted):
        return ds
    names = {n for one in wanted for n in one.expression.names if n in ds.data_vars}
    names |= {str(ds[n].attrs["length"]) for n in names if ds[n].attrs.get("length") in ds}
    names |= {"status"} & set(map(str, ds.data_vars))
    size = sum(ds[n].nbytes for n in names)
    if size > 500_000_000:
        return ds
    return ds.assign({n: ds[n].load() for n in names})


def _unjudged(ds: xr.Dataset, dims: Sequence[str]) -> xr.DataArray:
    """No run fails: what is left is what became of each."""
    shape = tuple(ds.sizes[d] for d in dims)
    return xr.DataArray(np.zeros(shape, dtype=bool), dims=tuple(dims))

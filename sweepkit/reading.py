"""A store as a Dataset and as a table."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.axes import way_back
from sweepkit.files import lost_chunks, read_bytes
from sweepkit.format1 import ATTRIBUTE, KEEPING, RESERVED
from sweepkit.formulas import derived, run_dims_of, with_derived
from sweepkit.lazy import Texts, are_moments, lazy, moments, plain
from sweepkit.places import Given, KeyPath, Where, beneath, place, where
from sweepkit.root import (
    FAULTS,
    DamagedError,
    NotASweepError,
    OutdatedError,
    checked,
    damaged_root,
    lost_root,
    next_call,
    root_bytes,
    side_folder,
)
from sweepkit.status import NAMES, Status
from sweepkit.stored import Place, Statuses, Stored, stamp
from sweepkit.verdicts import failed

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "declaration_of",
    "derived",
    "open",
    "run_dims_of",
    "runs",
    "status_counts",
]

KEPT_INSIDE = frozenset({"codes", "environment", "objects"})
"""Parts of a store's declaration that are too long to be shown with the Dataset."""

ENDED_BADLY = (Status.ERROR, Status.TIMEOUT, Status.CRASHED, Status.INVALID)
ENDED = (Status.DONE, *ENDED_BADLY)
WITNESSES = ("attempts", "duration", "code", "log_size")
"""Scalars of which a block that was run has a chunk."""

TRIES = 5
"""Times that a store is opened again because it was changed meanwhile."""


def open(
    path: Given,
    *,
    mask: bool = True,
    chunks: Any = None,
    stages: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    snapshot: str | None = None,
) -> xr.Dataset:
    """Open a store, finished or still being filled, as a lazy Dataset.

    Parameters
    ----------
    path : path, URL or Zarr store
        Of the store: a folder, a zip that :func:`pack` made, a URL such as "s3://bucket/a.zarr",
        or a store object of ``zarr.storage``.
    mask : bool
        Hide what unfinished runs hold: floats become NaN, datetimes NaT, text "", and integers
        and bools arrive as float64 whatever the progress. Only an output with integers beyond 2**53
        keeps its integer dtype: in it, runs without a result read 0, which its attribute ``note``
        says, so look at ``status``. Without, stored values come as they are, fill values included.
    chunks : optional
        As in ``xarray.open_zarr``: with dask, variables become dask arrays.
    stages : bool
        The runs of the grid and of its refinements together along one dim ``run``, skipped ones
        left out, with the parameters, ``stage`` (0 is the grid) and, where a grid was refined,
        ``volume`` (share of the parameter space that a run stands for) as coordinates.
    storage_options : mapping, optional
        For the file system of a URL, as fsspec takes them: endpoint, credentials and the like.
    snapshot : str, optional
        Of an Icechunk repository a version that is not the last: what :func:`snapshots` lists.

    Returns
    -------
    Dataset
        Without `stages`, dims are the grid's, in declared order; outputs, ``status``,
        ``duration`` (s), ``attempts``, ``code``, ``error``, ``log``; values are read when they
        are used. Of a sweep that goes on, runs are shown as they were when they were first looked
        at, all variables alike; open it again to see more.

    Raises
    ------
    StoreError
        If there is no sweep at the path, it is of a newer format, or a part of it is damaged or
        lost; a value that is damaged or lost raises it when it is read. (It is a ValueError too.)
        Also if the place cannot be reached.
    """
    here = _present(where(path, storage_options, snapshot))
    if stages:
        from sweepkit.stages import joined

        together = joined(here, mask=mask)
        _note_source(together, here)
        return _chunked(together, chunks)
    place, found = _opened(here)
    declaration = dict(json.loads(found.attrs[ATTRIBUTE]))  # of the same root as the arrays
    run_dims = tuple(declaration["stored"]["sizes"])
    axes = {
        dim: np.asarray(order, dtype=np.int64)
        for dim, order in declaration.get("axes", {}).items()
        if dim in found.sizes and len(order) == found.sizes[dim]
    }
    order = [dim for dim in declaration["dims"] if dim in run_dims]
    order += [dim for dim in run_dims if dim not in order]
    stored = {
        str(name): Stored(place, str(name), found[name].variable, run_dims)
        for name in found.variables
    }
    coords = {str(name): _coordinate(found[name], stored[str(name)], axes) for name in found.coords}
    parameters = {one["name"] for one in declaration["parameters"]}
    for name in parameters & {str(name) for name in found.data_vars}:
        # As an older store has them: along one run dim, and no index.
        coords[name] = _coordinate(found[name], stored[name], axes)
    statuses = Statuses(stored["status"], [stored[name] for name in WITNESSES])
    if chunks is not None:  # dask may read in other processes, which have no record in common
        statuses.seen(tuple(slice(0, n) for n in stored["status"].shape))
    data: dict[str, xr.Variable] = {}
    for name in (str(name) for name in found.data_vars if str(name) not in coords):
        if set(run_dims) <= set(stored[name].dims):
            data[name] = _of_runs(name, stored, statuses, axes, order, mask=mask)
        else:
            data[name] = plain(stored[name])
    names = [str(one["name"]) for one in declaration["stored"]["outputs"]]
    names += [variable.name for variable in KEEPING]  # as returned, then what the store keeps
    data = {**{name: data[name] for name in names if name in data}, **data}
    shown = {name: said for name, said in declaration.items() if name not in KEPT_INSIDE}
    attrs = {**found.attrs, ATTRIBUTE: json.dumps(shown)}
    declared = [one["name"] for one in declaration["parameters"] if one["name"] in coords]
    coords = {name: coords[name] for name in (*declared, *(set(coords) - set(declared)))}
    opened = xr.Dataset(data, coords=coords, attrs=attrs)
    for name, text in declaration.get("derived", {}).items():
        opened = with_derived(opened, name, text)
    _note_source(opened, here)
    return _chunked(opened, chunks)


def _note_source(ds: xr.Dataset, here: Where) -> None:
    """Note where a Dataset is from, as xarray does; of a keyed store also how it is reached."""
    if isinstance(here, KeyPath):
        ds.encoding |= {"source": str(here), "place": here}
    else:
        ds.encoding["source"] = os.path.abspath(here)


def source_of(ds: xr.Dataset) -> Where | None:
    """Where a Dataset is from, if it says so."""
    source = ds.encoding.get("place", ds.encoding.get("source"))
    return source if isinstance(source, str | KeyPath) else None


def declaration_of(ds: xr.Dataset | Given) -> dict[str, Any]:
    """Everything a store says of itself; of a Dataset whose store is gone, what that carries.

    A Dataset that is not from sweepkit says nothing.
    """
    source = source_of(ds) if isinstance(ds, xr.Dataset) else where(ds)
    carried = {}
    if isinstance(ds, xr.Dataset):
        text = ds.attrs.get(ATTRIBUTE)
        carried = dict(json.loads(text)) if text else {}
        if not carried or source is None or not place(beneath(source, "zarr.json")).exists():
            return carried
    assert source is not None
    root = read_root(source)
    return {**json.loads(root["attributes"][ATTRIBUTE]), **carried}


def _chunked(opened: xr.Dataset, chunks: Any) -> xr.Dataset:
    if chunks is None:
        return opened
    try:
        return opened.chunk(chunks)
    except ImportError as fault:
        raise ImportError(
            f"chunks={chunks!r} needs dask, which is not installed; pip install 'sweepkit[dask]', "
            "or leave chunks out: values are read when they are used all the same"
        ) from fault


def _present(path: Where) -> Where:
    """Where a store is; while it is being replaced in two steps, where it has been set aside."""
    if isinstance(path, KeyPath):
        if (path / "zarr.json").is_file():
            return path
        made = side_folder(path) / "rewrite"  # stays until all of it is in its place
        swapping = (side_folder(path) / "rewrite-ready").exists()
        waiting = swapping and (made / "zarr.json").exists()
        return made if waiting and isinstance(made, KeyPath) else path
    if os.path.exists(path):
        return path
    kept = side_folder(place(path))
    aside = os.path.join(str(kept), "replaced")
    ready = os.path.join(str(kept), "rewrite-ready")
    waiting = os.path.exists(ready) and os.path.exists(os.path.join(aside, "zarr.json"))
    return aside if waiting else path


def _as_xarray(path: Where, **options: Any) -> xr.Dataset:
    if isinstance(path, KeyPath):
        from sweepkit.rooted import Rooted

        there = Rooted(path.store, path.key)
        keyed: xr.Dataset = xr.open_zarr(
            there, chunks=None, consolidated=True, zarr_format=3, **options
        )
        return keyed
    opened: xr.Dataset = xr.open_zarr(path, chunks=None, consolidated=True, **options)
    return opened


def _opened(path: Where) -> tuple[Place, xr.Dataset]:
    """The store as xarray opens it, with errors that say what is damaged and what to do."""
    root_path = beneath(path, "zarr.json")
    for _ in range(TRIES):
        seen = stamp(root_path)
        root = read_root(path)
        metadata = root["consolidated_metadata"]["metadata"]
        try:
            _check_coordinates(path, root)
            found = _as_xarray(path)
        except DamagedError:
            raise
        except FAULTS as fault:
            if stamp(root_path) != seen:
                continue
            despite = _with_damaged_moments(path)
            if despite is None:
                raise DamagedError(
                    f"{path} cannot be opened{_of_which(path)}: {fault}; "
                    f"sk.verify({str(path)!r}) names what is damaged, "
                    f"and {next_call(path)} restores or computes just that again"
                ) from fault
            found = despite
        if stamp(root_path) == seen:
            return Place(path, metadata, seen), found
    raise OutdatedError(f"{path} is being changed again and again; open it later")


def _with_damaged_moments(path: Where) -> xr.Dataset | None:
    """The store as xarray would open it, if it did not look at the first and last datetimes.

    None if something else keeps it from being opened.
    """
    try:
        raw = _as_xarray(path, decode_times=False)
        late = {
            str(name): moments(one)
            for name, one in raw.variables.items()
            if name not in raw.xindexes and are_moments(one)
        }
        found = _as_xarray(path, drop_variables=list(late))
    except FAULTS:
        return None
    opened = xr.Dataset({**found.variables, **late}, attrs=raw.attrs)
    return opened.set_coords([name for name in raw.coords if name in opened])


def _of_which(path: Where) -> str:
    """Which coordinates cannot be read: opening reads those that are indexes."""
    try:
        raw = _as_xarray(path, decode_times=False, create_default_indexes=False)
    except FAULTS:
        return ""
    bad = []
    for name, one in raw.variables.items():
        if one.dims == (name,):
            try:
                np.asarray(one.values)
            except FAULTS:
                bad.append(repr(str(name)))
    return f", as coordinate {', '.join(bad)} is damaged" if bad else ""


def read_root(path: Where) -> dict[str, Any]:
    """The root of a store as it was committed.

    Raises
    ------
    StoreError
        If it is damaged, of a newer format, or no sweep.
    """
    if isinstance(path, str) and os.path.isfile(path):
        raise NotASweepError(f"{path} is a file and no sweep")
    here = place(path)
    content = root_bytes(here)
    copy = read_bytes(side_folder(here) / "root.json")
    if content is None and lost_root(here, copy):
        raise damaged_root(path, "is missing", copy)
    return checked(content, path, copy)


def _check_coordinates(path: Where, root: Mapping[str, Any]) -> None:
    """Refuse coordinates that lost a chunk, which would read as other values."""
    told = json.loads(root["attributes"][ATTRIBUTE])
    names = [one["name"] for one in told["parameters"]] + list(told["stored"].get("coords", ()))
    here = place(path)
    for name in names:
        for lost in lost_chunks(here / name, root["consolidated_metadata"]["metadata"][name]):
            raise DamagedError(
                f"{path}: coordinate {name!r} lost a chunk, {lost}; "
                f"{way_back(here, side_folder(here), name)}"
            )


def _coordinate(
    array: xr.DataArray, stored: Stored, axes: Mapping[str, NDArray[np.int64]]
) -> xr.Variable:
    if str(array.name) in array.indexes:
        variable = array.variable
        if variable.dtype.kind == "T":
            variable = variable.astype(object)
    else:
        variable = plain(stored)
    at = {dim: order for dim, order in axes.items() if dim in variable.dims}
    return variable.isel(at) if at else variable


def _of_runs(
    name: str,
    stored: Mapping[str, Stored],
    statuses: Statuses,
    axes: Mapping[str, NDArray[np.int64]],
    order: Sequence[str],
    *,
    mask: bool,
) -> xr.Variable:
    """A variable of the runs: as stored, or hidden where it is no result."""
    one = stored[name]
    if name == "status":
        return lazy(statuses, statuses, (), axes, order)
    if name == "error":
        return lazy(Texts(one, statuses, ENDED_BADLY), statuses, (), axes, order)
    if name == "log":
        texts = Texts(one, statuses, ENDED, stored["log_size"])
        return lazy(texts, statuses, (), axes, order)
    if name in RESERVED:
        return lazy(one, statuses, ENDED, axes, order)
    lengths = stored.get(str(one.attrs.get("length")))
    return lazy(one, statuses, (Status.DONE,), axes, order, masked=mask, lengths=lengths)


def status_counts(ds: xr.Dataset) -> dict[str, int]:
    """Runs of a Dataset by status."""
    if "status" not in ds:
        return {"done": int(np.prod([ds.sizes[dim] for dim in run_dims_of(ds)]))}
    counts = np.bincount(ds["status"].values.ravel().astype(int), minlength=len(Status))
    return {NAMES[at]: int(count) for at, count in enumerate(counts) if count}


# --- the table -----------------------------------------------------------------------------------


def runs(
    ds: xr.Dataset | Given,
    requirements: Any = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """The Dataset as a tidy table, one row a run.

    Parameters
    ----------
    ds : Dataset or path
        An opened store, or any Dataset of outputs over parameters; of a path, all stages.
    requirements : sequence of str, Requirement or callable, optional
        As for :func:`failed`; where there are any, the table has a column ``failed``.
    storage_options : mapping, optional
        As in :func:`open`, for a URL.

    Returns
    -------
    DataFrame
        Parameters (a vector ``x0`` as ``x0[0]``, ``x0[1]``, ...), scalar outputs, ``status`` as
        a word, ``failed`` (1, 0 or NaN), ``duration`` (s), ``attempts``, ``error``, ``log``.
        Outputs with dims of their own stay out; their lengths are in. Skipped runs are left out.
    """
    import pandas as pd

    if not isinstance(ds, xr.Dataset):
        from sweepkit.stages import numbers

        here = where(ds, storage_options)
        ds = open(here, stages=bool(numbers(here)))
    dims = run_dims_of(ds)
    shape = tuple(ds.sizes[dim] for dim in dims)
    columns: dict[str, Any] = {}
    for name, coord in ds.coords.items():
        own = [dim for dim in dims if dim in coord.dims]
        if own:
            spread = [coord.sizes[dim] if dim in coord.dims else 1 for dim in dims]
            parts = int(np.prod([n for dim, n in coord.sizes.items() if dim not in dims]))
            values = coord.transpose(*own, ...).values.reshape(*spread, parts)
            for part in range(parts):
                one = str(name) if len(own) == coord.ndim else f"{name}[{part}]"
                columns[one] = np.broadcast_to(values[..., part], shape).ravel()
    scalars = [n for n, one in ds.data_vars.items() if set(map(str, one.dims)) == set(dims)]
    loaded = ds[scalars].load() if scalars else ds
    last = ["status", "duration", "attempts", "code", "log_size", "error", "log"]
    for name in [n for n in scalars if n not in last] + [n for n in last if n in scalars]:
        values = loaded[name].transpose(*dims).values.ravel()
        if values.dtype.kind == "T":
            values = values.astype(object)
        columns[str(name)] = values
    keep: Any = slice(None)
    if "status" in columns:
        codes = columns["status"].astype(int)
        keep = codes != Status.SKIPPED
        columns["status"] = pd.Categorical.from_codes(codes, categories=pd.Index(NAMES))
    try:
        columns["failed"] = failed(ds, requirements).values.ravel()
    except ValueError:
        if requirements is not None:
            raise
    table: pd.DataFrame = pd.DataFrame(columns)[keep].reset_index(drop=True)
    return table

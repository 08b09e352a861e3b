"""A store as a Dataset and as a table; requirements applied."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from sweepkit.expressions import parse
from sweepkit.format1 import ATTRIBUTE, CODECS, FORMAT, KEEPING, WIDE_NOTE
from sweepkit.requirements import Requirement, collect, margins, satisfied
from sweepkit.status import NAMES, Status

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["failed", "margin", "open", "requirements_of", "runs", "status_counts"]

DERIVED_LIMIT = 10**7
KEPT_INSIDE = frozenset({"codes", "environment", "objects"})
"""Parts of a store's declaration that are too long to be shown with the Dataset."""

ENDED_BADLY = tuple(
    int(one) for one in (Status.ERROR, Status.TIMEOUT, Status.CRASHED, Status.INVALID)
)


class NotASweepError(ValueError):
    """What is there cannot be read as a sweep."""


class DamagedError(ValueError):
    """A part of a store cannot be decoded."""


def open(
    path: str | os.PathLike[str],
    *,
    mask: bool = True,
    chunks: Any = None,
    stages: bool = False,
) -> xr.Dataset:
    """Open a store, finished or still being filled, as a lazy Dataset.

    Parameters
    ----------
    path : path
        Of the store.
    mask : bool
        Hide what unfinished runs hold: floats become NaN, datetimes NaT, text "", and integers
        and bools arrive as float64 whatever the progress (integers beyond 2**53 keep their dtype,
        which their attributes say). Without, stored values come as they are, fill values included.
    chunks : optional
        As in ``xarray.open_zarr``: with dask, variables become dask arrays.
    stages : bool
        The runs of the grid and of its refinements together along one dim ``run``, skipped ones
        left out, with the parameters, ``stage`` (0 is the grid) and, where a grid was refined,
        ``volume`` (share of the parameter space that a run stands for) as coordinates.

    Returns
    -------
    Dataset
        Without `stages`, dims are the grid's, in declared order; outputs, ``status``,
        ``duration`` (s), ``attempts``, ``code``, ``error``, ``log``; values are read when they
        are used.

    Raises
    ------
    ValueError
        If there is no sweep at the path, or it is of a newer format.
    """
    where = os.fspath(path)
    _declaration(where)
    if stages:
        from sweepkit.stages import joined

        together = joined(where, mask=mask)
        return together if chunks is None else together.chunk(chunks)
    plain = _plain(where)
    declaration = dict(json.loads(plain.attrs[ATTRIBUTE]))  # of the same root as the arrays
    axes = {
        dim: np.asarray(order, dtype=np.int64)
        for dim, order in declaration.get("axes", {}).items()
        if dim in plain.sizes and len(order) == plain.sizes[dim]
    }
    run_dims = tuple(declaration["stored"]["sizes"])
    order = [dim for dim in declaration["dims"] if dim in run_dims]
    order += [dim for dim in run_dims if dim not in order]
    coords = {
        str(name): _sorted_variable(array.variable, axes) for name, array in plain.coords.items()
    }
    keeping = {variable.name for variable in KEEPING}
    status = plain["status"].variable
    data: dict[str, xr.Variable] = {}
    parameters = {one["name"] for one in declaration["parameters"]}
    for name, array in plain.data_vars.items():
        variable = array.variable
        if str(name) in parameters:  # as an older store has them: along one run dim, and no index
            coords[str(name)] = _sorted_variable(variable, axes)
            continue
        if name == "error":
            variable = _text(variable, status, ENDED_BADLY)
        elif name == "log":
            variable = _text(variable, plain["log_size"].variable, None)
        if set(run_dims) <= set(map(str, variable.dims)):
            hides = mask and name not in keeping
            lengths = plain.get(variable.attrs.get("length"))
            data[str(name)] = _lazy(
                variable,
                status if hides else None,
                axes,
                run_dims,
                order,
                None if lengths is None else lengths.variable,
            )
        else:
            data[str(name)] = variable
    names = [str(one["name"]) for one in declaration["stored"]["outputs"]]
    names += [variable.name for variable in KEEPING]  # as returned, then what the store keeps
    data = {**{name: data[name] for name in names if name in data}, **data}
    shown = {name: said for name, said in declaration.items() if name not in KEPT_INSIDE}
    attrs = {**plain.attrs, ATTRIBUTE: json.dumps(shown)}
    declared = [one["name"] for one in declaration["parameters"] if one["name"] in coords]
    coords = {name: coords[name] for name in (*declared, *(set(coords) - set(declared)))}
    opened = xr.Dataset(data, coords=coords, attrs=attrs)
    for name, text in declaration.get("derived", {}).items():
        opened = _with_derived(opened, name, text)
    opened.encoding["source"] = os.path.abspath(where)  # as xarray says where a Dataset is from
    return opened if chunks is None else opened.chunk(chunks)


def _plain(path: str) -> xr.Dataset:
    """The store as xarray opens it, with errors that say what is damaged and what to do."""
    try:
        plain: xr.Dataset = xr.open_zarr(path, chunks=None, consolidated=True)
    except (ValueError, RuntimeError, OSError) as fault:
        raise NotASweepError(
            f"{path} cannot be read: {fault}; sk.verify({path!r}) names what is damaged, and the "
            "next sk.run restores or runs just that again"
        ) from fault
    told = {name: _told(array.variable, name, path) for name, array in plain.data_vars.items()}
    return plain.assign(told)


def _told(variable: xr.Variable, name: object, path: str) -> xr.Variable:
    lazy = indexing.LazilyIndexedArray(_Told(variable, str(name), path))
    return xr.Variable(variable.dims, lazy, variable.attrs, variable.encoding)


def _declaration(path: str) -> dict[str, Any]:
    where = os.path.join(path, "zarr.json")
    try:
        with io.open(where, encoding="utf-8") as file:  # noqa: UP020  (open is ours here)
            root = json.load(file)
        attributes = root["attributes"]
        version = attributes.get("sweepkit_format")
    except FileNotFoundError:
        raise NotASweepError(f"{path} holds no sweep; sk.run(sweep, {path!r}) makes one") from None
    except NotADirectoryError:
        raise NotASweepError(f"{path} is a file and no sweep") from None
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise NotASweepError(f"{path}: zarr.json is damaged: {fault}") from fault
    if version is None:
        raise NotASweepError(f"{path} is a Zarr group but no sweep; use xarray.open_zarr")
    if version != FORMAT:
        raise NotASweepError(
            f"{path} is of format {version}, and this sweepkit knows format {FORMAT}; "
            "update sweepkit"
        )
    for name, array in root["consolidated_metadata"]["metadata"].items():
        if array.get("node_type") == "group":
            continue
        unknown = {one["name"] for one in array["codecs"]} - CODECS
        if unknown:
            raise NotASweepError(
                f"{path}: variable {name!r} is encoded by {', '.join(sorted(unknown))}, which no "
                "sweep uses and which may run code; it is not opened"
            )
    return dict(json.loads(attributes[ATTRIBUTE]))


def _sorted_variable(variable: xr.Variable, axes: Mapping[str, NDArray[np.int64]]) -> xr.Variable:
    if variable.dtype.kind == "T":
        variable = variable.astype(object)
    at = {dim: order for dim, order in axes.items() if dim in variable.dims}
    return variable.isel(at) if at else variable


class OutdatedError(ValueError):
    """The store was made anew since it was opened."""


class _Told(BackendArray):
    """Values of a variable; where they are damaged, the error names it and what to do."""

    def __init__(self, variable: xr.Variable, name: str, path: str) -> None:
        self._variable = variable
        self._name = name
        self._path = path
        self.shape = variable.shape
        self.dtype = variable.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        try:
            values = np.asarray(self._variable[key].values)
        except (ValueError, RuntimeError, OSError) as fault:
            self._check_layout()
            raise DamagedError(
                f"{self._path}: variable {self._name!r} is damaged ({fault}); "
                f"sk.verify({self._path!r}) names every damaged run, and the next sk.run runs just "
                "those again"
            ) from fault
        self._check_layout()
        return values

    def _layout(self) -> dict[str, Any]:
        """Metadata of the array as it is now; of the root's copy where its own is damaged."""
        for parts in ((self._name, "zarr.json"), ("zarr.json",)):
            with suppress(OSError, ValueError):
                said = json.loads(Path(self._path, *parts).read_text())
                if len(parts) == 1:
                    said = said["consolidated_metadata"]["metadata"].get(self._name, {})
                return dict(said)
        return {}

    def _check_layout(self) -> None:
        """Refuse values of an array made anew since: decoded as before, they are other values."""
        kept = self._variable.encoding
        then = [kept["dtype"].name if kept["dtype"].kind in "biufc" else None, *kept["chunks"]]
        said = self._layout()
        chunks = said["chunk_grid"]["configuration"]["chunk_shape"] if said else []
        now = [said["data_type"] if then[0] is not None else None, *chunks] if said else []
        if now != then:
            raise OutdatedError(
                f"{self._path}: variable {self._name!r} was stored anew since this Dataset was "
                "opened, in another layout or data type; open it again with sk.open"
            )


class _Texts(BackendArray):
    """Texts of runs, of which few have any: only chunks that hold some are read."""

    def __init__(
        self, variable: xr.Variable, tells: xr.Variable, among: Sequence[int] | None
    ) -> None:
        self._variable = variable
        self._tells = tells
        self._among = among
        self.shape = variable.shape
        self.dtype = np.dtype(object)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        tells = np.asarray(self._tells[key].values)
        texts: NDArray[Any] = np.full(tells.shape, "", dtype=self.dtype)
        there = tells > 0 if self._among is None else np.isin(tells, self._among)
        if not there.any():
            return texts
        extents = self._variable.encoding.get("chunks") or self.shape
        axes = [np.arange(n)[part] for n, part in zip(self.shape, key, strict=True)]
        scalar = [not isinstance(part, slice) for part in key]
        at = np.nonzero(
            there.reshape([1 if s else len(a) for s, a in zip(scalar, axes, strict=True)])
        )
        cells = [np.atleast_1d(axis)[where] for axis, where in zip(axes, at, strict=True)]
        chunks = np.stack([c // e for c, e in zip(cells, extents, strict=True)], axis=1)
        shaped = texts.reshape([1 if s else len(a) for s, a in zip(scalar, axes, strict=True)])
        for chunk in np.unique(chunks, axis=0):
            mine = (chunks == chunk).all(axis=1)
            box = tuple(
                slice(int(c) * e, min((int(c) + 1) * e, n))
                for c, e, n in zip(chunk, extents, self.shape, strict=True)
            )
            read = np.asarray(self._variable[box].values)
            inner = tuple(c[mine] - part.start for c, part in zip(cells, box, strict=True))
            shaped[tuple(a[mine] for a in at)] = read[inner]
        return shaped.reshape(texts.shape)


class _Masked(BackendArray):
    """Values of a variable in declared order, read lazily.

    Hidden where runs are unfinished and, of traces, beyond their length.
    """

    def __init__(
        self,
        variable: xr.Variable,
        status: xr.Variable | None,
        orders: Mapping[str, NDArray[np.int64]],
        run_dims: Sequence[str],
        lengths: xr.Variable | None,
    ) -> None:
        self._variable = variable
        self._status = status
        self._lengths = lengths
        self._orders = orders
        self._run_dims = run_dims
        self.shape = variable.shape
        self.dtype = _shown_dtype(variable) if status is not None else variable.dtype
        if self.dtype.kind == "T":
            self.dtype = np.dtype(object)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Read the bounding box of what is asked for, then pick from it in memory."""
        boxes, picks = [], []
        for dim, part, size in zip(self._variable.dims, key, self.shape, strict=True):
            box, pick = _bounding(part, size, self._orders.get(str(dim)))
            boxes.append(box)
            picks.append(pick)
        if self._status is None:
            values = _picked(np.asarray(self._variable[tuple(boxes)].values), picks)
            return values.astype(self.dtype, copy=False)
        dims = self._variable.dims
        kept = [at for at, dim in enumerate(dims) if dim in self._run_dims]
        where = {str(dims[at]): boxes[at] for at in kept}
        # Status first: a run that finishes between the two reads is hidden, not shown half.
        status = self._status[tuple(where[str(dim)] for dim in self._status.dims)].values
        status = _picked(np.asarray(status), [picks[at] for at in kept])
        values = _picked(np.asarray(self._variable[tuple(boxes)].values), picks)
        unfinished = status != Status.DONE
        scalar_axes = sum(1 for at in kept if isinstance(picks[at], int))
        ndim_runs = len(kept) - scalar_axes
        hidden = unfinished.reshape(unfinished.shape + (1,) * (values.ndim - ndim_runs))
        if self._lengths is not None:
            lengths = self._lengths[tuple(where[str(dim)] for dim in self._lengths.dims)].values
            lengths = _picked(np.asarray(lengths), [picks[at] for at in kept])
            at = np.arange(self.shape[len(kept)])[key[len(kept)]]  # along the padded dim
            beyond = at >= lengths.reshape(lengths.shape + (1,) * np.ndim(at))
            hidden = hidden | beyond.reshape(beyond.shape + (1,) * (values.ndim - beyond.ndim))
        return _hidden(values, self.dtype, np.broadcast_to(hidden, values.shape))


def _text(variable: xr.Variable, tells: xr.Variable, among: Sequence[int] | None) -> xr.Variable:
    lazy = indexing.LazilyIndexedArray(_Texts(variable, tells, among))
    return xr.Variable(variable.dims, lazy, variable.attrs)


def _bounding(part: Any, size: int, order: NDArray[np.int64] | None) -> tuple[slice, Any]:
    """A slice on disk that holds what an indexer picks, and what to pick from it."""
    if isinstance(part, int | np.integer):
        at = int(part if order is None else order[part])
        at = at % size
        return slice(at, at + 1), 0
    if order is None and isinstance(part, slice):
        start, stop, step = part.indices(size)
        if step == 1:
            return slice(start, max(stop, start)), slice(None)
    wanted = np.arange(size)[part]
    if order is not None:
        wanted = order[wanted]
    if not len(wanted):
        return slice(0, 0), slice(None)
    low, high = int(wanted.min()), int(wanted.max()) + 1
    return slice(low, high), wanted - low


def _picked(values: NDArray[Any], picks: Sequence[Any]) -> NDArray[Any]:
    for axis in range(len(picks) - 1, -1, -1):
        pick = picks[axis]
        if isinstance(pick, int):
            values = values.take([pick], axis=axis).squeeze(axis)  # an array, also of one string
        elif not isinstance(pick, slice):
            values = values.take(pick, axis=axis)
    return values


def _shown_dtype(variable: xr.Variable) -> np.dtype[Any]:
    kind = variable.dtype.kind
    if kind == "T":
        return np.dtype(object)  # plain str objects, which everything downstream takes
    if kind in "iub" and WIDE_NOTE not in variable.attrs:
        return np.dtype(np.float64)
    shown: np.dtype[Any] = variable.dtype
    return shown


def _hidden(
    values: NDArray[Any], dtype: np.dtype[Any], unfinished: NDArray[np.bool_]
) -> NDArray[Any]:
    if values.dtype != dtype:
        values = values.astype(dtype)
    elif unfinished.any():
        values = values.copy()
    if not unfinished.any():
        return values
    kind = dtype.kind
    if kind in "fc":
        values[unfinished] = np.nan
    elif kind in "mM":
        values[unfinished] = np.array("NaT", dtype=dtype)
    elif kind in "OTU":
        values[unfinished] = ""
    else:
        values[unfinished] = 0
    return values


def _lazy(
    variable: xr.Variable,
    status: xr.Variable | None,
    axes: Mapping[str, NDArray[np.int64]],
    run_dims: Sequence[str],
    order: Sequence[str],
    lengths: xr.Variable | None,
) -> xr.Variable:
    orders = {dim: positions for dim, positions in axes.items() if dim in variable.dims}
    if status is not None or orders:
        masked = _Masked(variable, status, orders, run_dims, lengths)
        shown = xr.Variable(variable.dims, indexing.LazilyIndexedArray(masked), variable.attrs)
    else:
        shown = variable
    own = [dim for dim in variable.dims if dim not in run_dims]
    wanted = (*order, *own)
    return shown if shown.dims == wanted else shown.transpose(*wanted)


def _with_derived(opened: xr.Dataset, name: str, text: str) -> xr.Dataset:
    expression = parse(text)
    sizes = {dim for one in expression.names if one in opened for dim in opened[one].dims}
    count = int(np.prod([opened.sizes[dim] for dim in sizes])) if sizes else 1
    if count > DERIVED_LIMIT or not expression.names <= set(opened.coords):
        return opened
    value = expression.evaluate({one: opened[one].variable for one in expression.names})
    dims = tuple(dim for dim in opened.sizes if dim in value.dims)
    value = value.transpose(*dims)
    return opened.assign_coords(
        {name: xr.Variable(value.dims, value.values, {"long_name": text, "derived": text})}
    )


def derived(ds: xr.Dataset, formula: str | Callable[[xr.Dataset], xr.DataArray]) -> xr.DataArray:
    """The value of a formula of outputs and parameters, over the runs in the order on disk.

    Raises
    ------
    ValueError
        If the result does not lie over the run dims.
    """
    dims = run_dims_of(ds)
    if isinstance(formula, str):
        expression = parse(formula)
        expression.check([str(name) for name in ds.variables], run_dims=dims)
        values = {name: ds[name].variable for name in expression.names}
        made = expression.evaluate(values, lengths=_lengths(ds), run_dims=dims)
        array = xr.DataArray(made.values, dims=made.dims)
    else:
        given = formula(ds)
        if not isinstance(given, xr.DataArray):
            raise ValueError(f"the formula gave a {type(given).__name__}; it gives a DataArray")
        given = _at_the_same_points(given, ds, dims)
        array = xr.DataArray(given.values, dims=given.dims)
    lacking = [dim for dim in dims if dim not in array.dims]
    array = array.expand_dims({dim: ds.sizes[dim] for dim in lacking})
    for dim in dims:
        if array.sizes[dim] != ds.sizes[dim]:
            raise ValueError(
                f"the formula gave {array.sizes[dim]} entries along {dim!r}, where the sweep has "
                f"{ds.sizes[dim]}"
            )
    declaration = json.loads(ds.attrs[ATTRIBUTE])
    inverse = {
        dim: np.argsort(np.asarray(order))
        for dim, order in declaration.get("axes", {}).items()
        if dim in array.dims
    }
    own = [dim for dim in array.dims if dim not in dims]
    return array.isel(inverse).transpose(*declaration["stored"]["sizes"], *own)


def _at_the_same_points(given: xr.DataArray, ds: xr.Dataset, dims: Sequence[str]) -> xr.DataArray:
    """The result of a formula with its values at the coordinates that they belong to."""
    for dim in dims:
        if dim not in given.indexes or dim not in ds.indexes:
            continue
        have, want = given.indexes[dim], ds.indexes[dim]
        if have.equals(want) or len(have) != len(want):
            continue
        if not have.isin(want).all():
            raise ValueError(
                f"the formula gave other coordinate values along {dim!r} than the sweep has"
            )
        given = given.sel({dim: want})
    return given


# --- requirements --------------------------------------------------------------------------------


def run_dims_of(ds: xr.Dataset) -> tuple[str, ...]:
    """Dims that tell runs apart: those of ``status``, else those that all variables share."""
    if "status" in ds:
        return tuple(map(str, ds["status"].dims))
    if not ds.data_vars:
        return tuple(map(str, ds.dims))
    shared = set.intersection(*(set(map(str, one.dims)) for one in ds.data_vars.values()))
    return tuple(str(dim) for dim in ds.dims if str(dim) in shared)


def requirements_of(ds: xr.Dataset, requirements: Any = None) -> tuple[Requirement, ...]:
    """The requirements given, else those that the Dataset carries.

    Raises
    ------
    ValueError
        If there are none.
    """
    if requirements is not None:
        made = collect(requirements)
    else:
        text = ds.attrs.get(ATTRIBUTE)
        said = json.loads(text).get("requirements", []) if text else []
        made = tuple(Requirement.from_json(one) for one in said)
    if not made:
        raise ValueError(
            "there are no requirements, so nothing passes or fails; give some, as in "
            "requirements=['steps >= 500']"
        )
    return made


def _lengths(ds: xr.Dataset) -> dict[str, tuple[str, xr.Variable]]:
    lengths = {}
    for name, array in ds.data_vars.items():
        said = array.attrs.get("length")
        if said in ds.data_vars:
            own = [dim for dim in array.dims if dim not in ds[said].dims]
            if own:
                lengths[str(name)] = (str(own[0]), ds[said].variable)
    return lengths


def _finished(ds: xr.Dataset) -> xr.DataArray | None:
    return ds["status"] == Status.DONE if "status" in ds else None


def _used(ds: xr.Dataset, wanted: Sequence[Requirement]) -> xr.Dataset:
    """The variables that requirements name, loaded once."""
    if any(one.needs_code for one in wanted):
        return ds
    names = {n for one in wanted for n in one.expression.names}
    lengths = {ds[n].attrs["length"] for n in names if n in ds and "length" in ds[n].attrs}
    present = [n for n in (*names, *lengths) if n in ds.variables]
    return ds[present].load() if present else ds


def failed(ds: xr.Dataset, requirements: Any = None) -> xr.DataArray:
    """Whether each run fails: 1 where a requirement does not hold, 0 where all do.

    Parameters
    ----------
    ds : Dataset
        An opened store, or any Dataset of outputs over parameters.
    requirements : sequence of str, Requirement or callable, optional
        Instead of those that the Dataset carries.

    Returns
    -------
    DataArray of float64
        Over the run dims; NaN where unknown: the run is unfinished, or ended in an error.

    Raises
    ------
    ValueError
        If there are no requirements, or one names what is not there.
    """
    wanted = requirements_of(ds, requirements)
    dims = run_dims_of(ds)
    if _nothing_done(ds):
        return _unknown(ds, dims, "failed", "failed")
    used = _used(ds, wanted)
    held = satisfied(wanted, used, run_dims=dims, lengths=_lengths(used))
    values = np.asarray(~held.all(axis=0), dtype=np.float64)
    array = _over_runs(ds, dims, values)
    finished = _finished(ds)
    if finished is not None:
        array = array.where(finished)
    array.name = "failed"
    array.attrs = {"long_name": "failed", "requirements": [one.text for one in wanted]}
    return array


def _nothing_done(ds: xr.Dataset) -> bool:
    """Whether no run is done, so that outputs may not even be known."""
    return "status" in ds and not bool((ds["status"] == Status.DONE).any())


def _unknown(ds: xr.Dataset, dims: Sequence[str], name: str, long_name: str) -> xr.DataArray:
    array = _over_runs(ds, dims, np.full([ds.sizes[dim] for dim in dims], np.nan))
    array.name = name
    array.attrs = {"long_name": long_name}
    return array


def margin(ds: xr.Dataset, requirements: Any = None) -> xr.DataArray:
    """Signed distance of each run to the limit of each requirement.

    Parameters
    ----------
    ds, requirements
        As for :func:`failed`.

    Returns
    -------
    DataArray of float64
        Over the run dims and ``requirement`` (labelled by the requirements' names), in the units
        of what is compared; positive where satisfied, negative where not, NaN where unknown.

    Raises
    ------
    ValueError
        As :func:`failed`.
    """
    wanted = requirements_of(ds, requirements)
    dims = run_dims_of(ds)
    if _nothing_done(ds):
        unknown = _unknown(ds, dims, "margin", "distance to the limit")
        return unknown.expand_dims(requirement=[one.name for one in wanted], axis=-1)
    used = _used(ds, wanted)
    measured = margins(wanted, used, run_dims=dims, lengths=_lengths(used))
    array = _over_runs(ds, dims, np.moveaxis(measured, 0, -1), "requirement")
    array = array.assign_coords(requirement=[one.name for one in wanted])
    finished = _finished(ds)
    if finished is not None:
        array = array.where(finished)
    array.name = "margin"
    array.attrs = {"long_name": "distance to the limit"}
    return array


def _over_runs(
    ds: xr.Dataset, dims: Sequence[str], values: NDArray[Any], *more: str
) -> xr.DataArray:
    coords = {n: c for n, c in ds.coords.items() if set(map(str, c.dims)) <= set(dims)}
    return xr.DataArray(values, dims=(*dims, *more), coords=coords)


def status_counts(ds: xr.Dataset) -> dict[str, int]:
    """Runs of a Dataset by status."""
    if "status" not in ds:
        return {"done": int(np.prod([ds.sizes[dim] for dim in run_dims_of(ds)]))}
    counts = np.bincount(ds["status"].values.ravel().astype(int), minlength=len(Status))
    return {NAMES[at]: int(count) for at, count in enumerate(counts) if count}


# --- the table -----------------------------------------------------------------------------------


def runs(ds: xr.Dataset | str | os.PathLike[str], requirements: Any = None) -> pd.DataFrame:
    """The Dataset as a tidy table, one row a run.

    Parameters
    ----------
    ds : Dataset or path
        An opened store, or any Dataset of outputs over parameters; of a path, all stages.
    requirements : sequence of str, Requirement or callable, optional
        As for :func:`failed`; where there are any, the table has a column ``failed``.

    Returns
    -------
    DataFrame
        Parameters, scalar outputs, ``status`` as a word, ``failed`` (1, 0 or NaN), ``duration``
        (s), ``attempts``, ``error``, ``log``. Outputs with dims of their own stay out; their
        lengths are in. Skipped runs are left out.
    """
    import pandas as pd

    if not isinstance(ds, xr.Dataset):
        from sweepkit.stages import numbers

        ds = open(ds, stages=bool(numbers(os.fspath(ds))))
    dims = run_dims_of(ds)
    shape = tuple(ds.sizes[dim] for dim in dims)
    columns: dict[str, Any] = {}
    for name, coord in ds.coords.items():
        if coord.dims and set(map(str, coord.dims)) <= set(dims):
            own = [dim for dim in dims if dim in coord.dims]
            spread = [coord.sizes[dim] if dim in coord.dims else 1 for dim in dims]
            values = coord.transpose(*own).values.reshape(spread)
            columns[str(name)] = np.broadcast_to(values, shape).ravel()
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

"""Values of an opened store, read when they are used, in declared order: hidden or missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from sweepkit.format1 import WIDE_NOTE, encoding_attrs
from sweepkit.status import Status
from sweepkit.stored import Box, Statuses, Stored

__all__ = ["Texts", "are_moments", "lazy", "moments", "plain"]

MOMENTS = encoding_attrs("datetime64[ns]")
"""Attributes of datetimes on disk."""

TRIES = 3
"""Times that values are read again because their statuses changed meanwhile."""


class Source(Protocol):
    """A variable on disk, or what stands for it."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: dict[Any, Any]
    dtype: np.dtype[Any]

    def read(self, box: Box) -> NDArray[Any]:
        """Values in a box."""

    def demand(self, needed: NDArray[np.bool_], box: Box) -> None:
        """See that chunks of runs that have a value here are there."""


class Texts:
    """Texts of runs, of which few have any: only chunks that hold some are read."""

    def __init__(
        self,
        stored: Stored,
        statuses: Statuses,
        among: Sequence[Status],
        sizes: Stored | None = None,
    ) -> None:
        self._stored = stored
        self._statuses = statuses
        self._among = [int(one) for one in among]
        self._sizes = sizes
        self.dims = stored.dims
        self.shape = stored.shape
        self.attrs = stored.attrs
        self.dtype: np.dtype[Any] = np.dtype(object)

    def demand(self, needed: NDArray[np.bool_], box: Box) -> None:
        """Nothing more: chunks that hold texts are demanded when they are read."""

    def read(self, box: Box) -> NDArray[Any]:
        """Texts in a box."""
        there = np.isin(self._statuses.seen(box), self._among)
        if self._sizes is not None and there.any():
            sizes = self._sizes.read(box)
            self._sizes.demand(there, box)
            there &= sizes > 0
        texts: NDArray[Any] = np.full(there.shape, "", dtype=object)
        if not there.any():
            return texts
        self._stored.demand(there, box)
        extents = self._stored.extents
        at = np.nonzero(there)
        cells = [a + part.start for a, part in zip(at, box, strict=True)]
        chunks = np.stack([c // e for c, e in zip(cells, extents, strict=True)], axis=1)
        for chunk in np.unique(chunks, axis=0):
            mine = (chunks == chunk).all(axis=1)
            part = self._stored.chunk_box(tuple(map(int, chunk)))
            inner = tuple(c[mine] - p.start for c, p in zip(cells, part, strict=True))
            texts[tuple(a[mine] for a in at)] = self._stored.read(part)[inner]
        return texts


class _Values(BackendArray):
    """Values of a variable in declared order, read lazily.

    Parameters
    ----------
    source : Source
    statuses : Statuses
    ended : sequence of Status
        Runs that end so have a value here.
    orders : mapping
        For dims that are not declared in the order on disk, the position there of each place.
    masked : bool
        Whether values of other runs are hidden and, of traces, what is beyond their length.
    lengths : Stored or None
        Lengths of traces.
    """

    def __init__(
        self,
        source: Source,
        statuses: Statuses,
        ended: Sequence[Status],
        orders: Mapping[str, NDArray[np.int64]],
        *,
        masked: bool,
        lengths: Stored | None,
    ) -> None:
        self._source = source
        self._statuses = statuses
        self._ended = [int(one) for one in ended]
        self._orders = orders
        self._masked = masked
        self._lengths = lengths if masked else None
        self._n = len(statuses.stored.shape)
        self.shape = source.shape
        self.dtype = _shown_dtype(source) if masked else source.dtype
        if self.dtype.kind == "T":
            self.dtype = np.dtype(object)  # plain str objects, which everything downstream takes

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Read the bounding box of what is asked for, then pick from it in memory."""
        boxes, picks = [], []
        for dim, part, size in zip(self._source.dims, key, self.shape, strict=True):
            box, pick = _bounding(part, size, self._orders.get(str(dim)))
            boxes.append(box)
            picks.append(pick)
        where, whole = tuple(boxes[: self._n]), tuple(boxes)
        status = self._statuses.seen(where)
        has = np.isin(status, self._ended)
        values = self._whole(whole, where, has)
        self._source.demand(has, where)
        values = _picked(values, picks)
        if not self._masked:
            return values.astype(self.dtype, copy=False)
        finished = _picked(has, picks[: self._n])
        hidden = ~finished.reshape(finished.shape + (1,) * (values.ndim - finished.ndim))
        if self._lengths is not None:
            hidden = hidden | self._beyond(key, where, has, picks, values.ndim)
        return _hidden(values, self.dtype, np.broadcast_to(hidden, values.shape))

    def _whole(self, whole: Box, where: Box, has: NDArray[np.bool_]) -> NDArray[Any]:
        """Values of the runs as they are while these count as ended."""
        if not has.any():
            return self._source.read(whole)
        for _ in range(TRIES):
            before = self._statuses.confirm(where)
            values = self._source.read(whole)
            if self._statuses.stamps(where) == before:
                return values
        self._statuses.confirm(where)
        return values

    def _beyond(
        self,
        key: tuple[Any, ...],
        where: Box,
        has: NDArray[np.bool_],
        picks: Sequence[Any],
        ndim: int,
    ) -> NDArray[np.bool_]:
        """What is beyond the lengths of traces, along the first own dim."""
        assert self._lengths is not None
        lengths = _picked(self._lengths.read(where), picks[: self._n])
        self._lengths.demand(has, where)
        at = np.arange(self.shape[self._n])[key[self._n]]
        beyond = at >= lengths.reshape(lengths.shape + (1,) * np.ndim(at))
        return np.asarray(beyond.reshape(beyond.shape + (1,) * (ndim - beyond.ndim)))


class _Status(BackendArray):
    """Statuses in declared order, as the Dataset's other variables are masked by."""

    def __init__(self, statuses: Statuses, orders: Mapping[str, NDArray[np.int64]]) -> None:
        self._statuses = statuses
        self._orders = orders
        self.shape = statuses.stored.shape
        self.dtype = np.dtype(np.int8)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        dims = self._statuses.stored.dims
        bounds = [
            _bounding(part, size, self._orders.get(dim))
            for dim, part, size in zip(dims, key, self.shape, strict=True)
        ]
        status = self._statuses.seen(tuple(box for box, _ in bounds))
        return _picked(status, [pick for _, pick in bounds]).copy()


class _Plain(BackendArray):
    """Values of a coordinate as they are; where they are damaged, the error names it."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self.shape = stored.shape
        self.dtype = np.dtype(object) if stored.dtype.kind == "T" else stored.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        bounds = [_bounding(part, size, None) for part, size in zip(key, self.shape, strict=True)]
        values = self._stored.read(tuple(box for box, _ in bounds))
        return _picked(values.astype(self.dtype, copy=False), [pick for _, pick in bounds])


def plain(stored: Stored) -> xr.Variable:
    """A variable that is not one of the runs, lazily."""
    data = indexing.LazilyIndexedArray(_Plain(stored))
    return xr.Variable(stored.dims, data, stored.attrs, stored.variable.encoding)


class _Moments(BackendArray):
    """Datetimes that are integers on disk, decoded when they are used.

    To know their type xarray looks at the first and the last; here it is known.
    """

    def __init__(self, raw: xr.Variable) -> None:
        self._raw = raw
        self.shape = raw.shape
        self.dtype = np.dtype("datetime64[ns]")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        decoded: NDArray[Any] = np.asarray(self._raw[key].values).astype(self.dtype)
        return decoded


def are_moments(raw: xr.Variable) -> bool:
    """Whether a variable that is not decoded has datetimes as stores have them."""
    told = {word: raw.attrs.get(word) for word in MOMENTS}
    return told == MOMENTS and raw.dtype == np.int64


def moments(raw: xr.Variable) -> xr.Variable:
    """The datetimes of such a variable, lazily."""
    attrs = {word: said for word, said in raw.attrs.items() if word not in MOMENTS}
    data = indexing.LazilyIndexedArray(_Moments(raw))
    return xr.Variable(raw.dims, data, attrs, {**raw.encoding, **MOMENTS})


def lazy(
    source: Source | Statuses,
    statuses: Statuses,
    ended: Sequence[Status],
    axes: Mapping[str, NDArray[np.int64]],
    order: Sequence[str],
    *,
    masked: bool = False,
    lengths: Stored | None = None,
) -> xr.Variable:
    """A variable of the runs, in declared order; see the parameters of the values' class."""
    backed: BackendArray
    if isinstance(source, Statuses):
        dims, attrs = source.stored.dims, source.stored.attrs
        backed = _Status(source, axes)
    else:
        dims, attrs = source.dims, source.attrs
        backed = _Values(source, statuses, ended, axes, masked=masked, lengths=lengths)
    shown = xr.Variable(dims, indexing.LazilyIndexedArray(backed), attrs)
    wanted = (*order, *(dim for dim in dims if dim not in order))
    return shown if shown.dims == wanted else shown.transpose(*wanted)


# --- indexers and dtypes -------------------------------------------------------------------------


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


def _shown_dtype(source: Source) -> np.dtype[Any]:
    if source.dtype.kind in "iub" and WIDE_NOTE not in source.attrs:
        return np.dtype(np.float64)
    return source.dtype


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
        values[unfinished] = np.nan if kind == "f" else complex(np.nan, np.nan)
    elif kind in "mM":
        values[unfinished] = np.array("NaT", dtype=dtype)
    elif kind in "OTU":
        values[unfinished] = ""
    else:
        values[unfinished] = 0
    return values

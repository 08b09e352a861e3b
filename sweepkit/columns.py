"""Results of many runs as columns: collected run by run, or taken whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.capture import told
from sweepkit.casts import Misfit, as_declared
from sweepkit.format1 import fill_value
from sweepkit.outputs import Output, name_fault
from sweepkit.parcels import Outbox, Parcel
from sweepkit.results import Seen, as_mapping, check_dims, names_fault, seen_value
from sweepkit.returned import check_present, plain_array, unmade

__all__ = ["FOREIGN", "Collector", "Column", "put_apart", "whole_column"]


FOREIGN = (Exception, SystemExit)
"""What code of a result's own may raise while it is taken apart, as ``__array__`` of a tensor."""


@dataclass(frozen=True)
class Column:
    """Values of one output for some rows of a batch, all of one type and shape.

    Attributes
    ----------
    rows : array of int, shape (n,), or None
        Rows of the batch; None means all of them.
    values : array, shape (n, ...)
        Strings as objects, datetimes and timedeltas as int64 nanoseconds. Of what a worker has
        written itself one :class:`~sweepkit.parcels.Parcel` a row.
    dtype : str
        Stored data type (see :class:`~sweepkit.format1.Variable`).
    dims : tuple of str
        Own dims.
    pad : str or None
        Own dim along which values were padded.
    lengths : array of int, shape (n,), or None
        Entries before the padding.
    attrs, coords : mapping
        What a returned DataArray carried.
    """

    rows: NDArray[np.intp] | None
    values: NDArray[Any]
    dtype: str
    dims: tuple[str, ...] = ()
    pad: str | None = None
    lengths: NDArray[np.int32] | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    coords: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def variable(self) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """Data type, own dims and own shape."""
        return self.dtype, self.dims, self.shape

    @property
    def written(self) -> bool:
        """Whether a worker has written the values, and here are receipts."""
        return self.dtype != "str" and self.values.dtype.hasobject

    @property
    def shape(self) -> tuple[int, ...]:
        """Own shape, of one run's value."""
        return tuple(self.values[0].shape) if self.written else self.values.shape[1:]


PLAIN: dict[type, str] = {
    float: "float64",
    np.float64: "float64",
    np.float32: "float32",
    int: "int64",
    np.int64: "int64",
    np.int32: "int32",
    bool: "bool",
    np.bool_: "bool",
    str: "str",
}
"""Immutable types of which a whole column is made at once, and their stored data type."""


class Collector:
    """Results of the runs of a batch, taken one by one and turned into columns at the end.

    A simulator may hand out the same dict or array every time and change it in the next run, so
    a result is taken apart or copied as it comes. Dicts of plain numbers, bools and strings with
    the keys of the first such one are kept value after value in one list, which is fast; their
    types are compared at the end.

    Reading an object that a simulator made runs code of its class, such as ``__array__``: what
    that raises makes the run invalid, but for a KeyboardInterrupt of a person who ``interrupted``.
    """

    def __init__(
        self,
        declared: Mapping[str, Output],
        outbox: Outbox | None = None,
        claim: Callable[[int], None] | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._declared = declared
        self._outbox = outbox
        self._claim = claim
        self._interrupted = interrupted
        self._names: list[str] | None = None
        self._kinds: tuple[type, ...] = ()
        self._rows: list[int] = []
        self._values: list[Any] = []
        self._groups: dict[str, dict[Any, list[tuple[int, Seen]]]] = {}
        self.misfits: dict[int, str] = {}
        """What is wrong with results that cannot be stored, by row."""
        self.traces: dict[int, str] = {}
        """Tracebacks of what results raised when they were read, by row."""
        self.misnamed: str | None = None
        """An output of a name that no store can have, in words."""

    def take(self, row: int, result: Any) -> None:
        """Take the result of one run."""
        if type(result) is dict:
            try:
                same = [*result] == self._names
                first = not same and self._names is None and self._is_plain(result)
            except BaseException as fault:  # of keys that are no plain text: they are made so
                self._heed(fault)
                same = first = False
            if first:
                self._names = [*result]
                self._kinds = tuple(map(type, result.values()))
            if same or first:
                self._rows.append(row)
                self._values.extend(result.values())
                return
        self._apart(row, result)

    def spoil(self, rows: Iterable[int], fault: BaseException) -> None:
        """Note that results do not fit, or what they raised when they were read."""
        self._heed(fault)
        cause: BaseException | None = fault
        if isinstance(fault, Misfit):
            said, cause = str(fault), fault.__cause__
        else:
            said = f"what was returned cannot be read: it raises {told(fault)[0]}"
        if cause is not None:
            self.traces |= dict.fromkeys(rows, told(cause)[1])
        self.misfits |= dict.fromkeys(rows, said)

    def _heed(self, fault: BaseException) -> None:
        if isinstance(fault, KeyboardInterrupt) and self._interrupted():
            raise fault

    def _is_plain(self, result: Mapping[Any, Any]) -> bool:
        kinds = set(map(type, result.values()))
        if not PLAIN.keys() >= kinds or set(map(type, result)) != {str}:
            return False
        if names_fault(result, self._declared) is not None:
            return False
        said = [self._declared[name] for name in result if name in self._declared]
        return all(not one.dims and one.dtype is None for one in said)

    def apart(self, result: Any) -> dict[str, Seen]:
        """The result of one run, taken apart.

        Raises
        ------
        Misfit
            If it cannot be stored.
        """
        try:
            named = as_mapping(result, self._declared)
            wrong = names_fault(named, self._declared)
        except Misfit:
            raise
        except FOREIGN as fault:
            raise unmade("what was returned", result, fault) from fault
        if wrong is not None:
            if any(name_fault(name) is not None for name in named):
                self.misnamed = wrong
            raise Misfit(wrong)
        seen = {}
        for name, value in named.items():
            try:
                seen[name] = seen_value(name, value, self._declared.get(name))
            except Misfit:
                raise
            except FOREIGN as fault:
                raise unmade(f"output {name!r}", value, fault) from fault
        check_dims(seen)
        return seen

    def _apart(self, row: int, result: Any) -> None:
        try:
            seen = self.apart(result)
        except BaseException as fault:  # of code that the simulator gave along
            self.spoil((row,), fault)
            return
        for name, one in seen.items():
            if self._outbox is not None and isinstance(one.array, np.ndarray):
                parcel = self._outbox.put(name, one.array)
                one = one if parcel is None else dataclasses.replace(one, array=parcel)
            self._groups.setdefault(name, {}).setdefault(one.key, []).append((row, one))

    def _claim_again(self, row: int) -> None:
        """Say that a result is read behind other runs: what it does then is its run's doing."""
        if self._claim is not None:
            self._claim(row)

    def columns(self, count: int) -> dict[str, list[Column]]:
        """The results of a batch of ``count`` runs as columns, one for each type and shape."""
        columns = self._plain_columns(count)
        for name, groups in self._groups.items():
            columns.setdefault(name, []).extend(_stacked(group) for group in groups.values())
        return columns

    def _plain_columns(self, count: int) -> dict[str, list[Column]]:
        if self._names is None:
            return {}
        kinds, step = self._kinds, len(self._names)
        seen = set(map(type, self._values))
        if seen - set(kinds) or (len(seen) > 1 and self._mixed()):
            self._part_odd()
        if not self._rows:
            return {}
        rows = None if len(self._rows) == count else np.array(self._rows, dtype=np.intp)
        columns = {}
        try:
            for at, (name, kind) in enumerate(zip(self._names, kinds, strict=True)):
                items, dtype = self._values[at::step], PLAIN[kind]
                if dtype == "str":
                    "".join(items).encode()
                values = np.array(items, dtype=object if dtype == "str" else dtype)
                columns[name] = [Column(rows, values, dtype)]
        except (OverflowError, UnicodeEncodeError):  # one value does not fit: look at each
            for row, taken in self._taken():
                self._claim_again(row)
                self._apart(row, taken)
            return {}
        return columns

    def _mixed(self) -> bool:
        """Whether an output has values of another type than its first."""
        step = len(self._kinds)
        return any(
            set(map(type, self._values[at::step])) != {kind} for at, kind in enumerate(self._kinds)
        )

    def _taken(self) -> Iterator[tuple[int, dict[str, Any]]]:
        names = self._names or []
        step = len(names)
        for at, row in enumerate(self._rows):
            yield row, dict(zip(names, self._values[at * step : (at + 1) * step], strict=True))

    def _part_odd(self) -> None:
        """Take results apart that have other types than the first; the others stay."""
        taken = list(self._taken())
        self._rows, self._values = [], []
        owners: dict[int, int] = {}
        odd = [one for one in taken if tuple(map(type, one[1].values())) != self._kinds]
        for row, result in odd:
            self._claim_again(row)
            try:
                self._look_for_doubles(row, result, owners)
            except BaseException as fault:  # of code that the simulator gave along
                self.spoil((row,), fault)
        for row, result in taken:
            if tuple(map(type, result.values())) == self._kinds:
                self._rows.append(row)
                self._values.extend(result.values())
            elif row not in self.misfits:
                self._claim_again(row)
                self._apart(row, result)

    def _look_for_doubles(
        self, row: int, result: Mapping[str, Any], owners: dict[int, int]
    ) -> None:
        """Spoil runs that handed out one object twice: it may have been changed in between."""
        for name, value in result.items():
            if _may_change(value):
                first = owners.setdefault(id(value), row)
                if first != row:
                    fault = (
                        f"output {name!r} is the very object that another run returned, "
                        f"a {type(value).__name__}; return a copy"
                    )
                    self.misfits |= dict.fromkeys((row, first), fault)


def _may_change(value: object) -> bool:
    """Whether a simulator could change a value after it has handed it out."""
    kind = type(value)  # of the value itself, looking might run code of its own
    if issubclass(kind, list | dict | bytearray):
        return True
    return hasattr(kind, "__array__") and not issubclass(kind, np.generic)


def _stacked(members: Iterable[tuple[int, Seen]]) -> Column:
    rows, seen = zip(*members, strict=True)
    first: Seen = seen[0]
    arrays = [one.array for one in seen]
    parcels = [one for one in arrays if isinstance(one, Parcel)]
    values = _receipts(parcels) if parcels else np.stack(arrays)
    lengths = None
    if first.pad is not None:
        lengths = np.array([one.length for one in seen], dtype=np.int32)
    return Column(
        np.array(rows, dtype=np.intp),
        values,
        first.dtype,
        first.dims,
        first.pad,
        lengths,
        first.attrs,
        first.coords,
    )


def _receipts(parcels: Sequence[Parcel]) -> NDArray[Any]:
    listed = np.empty(len(parcels), dtype=object)
    listed[:] = parcels
    return listed


def put_apart(name: str, column: Column, outbox: Outbox) -> Column:
    """A column with receipts in the place of values, if they are big and can be written."""
    parcels = []
    for value in column.values:
        parcel = outbox.put(name, np.asarray(value))
        if parcel is None:
            return column
        parcels.append(parcel)
    return dataclasses.replace(column, values=_receipts(parcels)) if parcels else column


def whole_column(
    name: str,
    value: Any,
    said: Output | None,
    first: Seen,
    rows: NDArray[np.intp],
    lengths: NDArray[np.int32] | None = None,
) -> Column:
    """An output of several runs at once, whose first dim is theirs, as a column.

    ``first`` is what the first of them gave, which is of the dims, shape and type of all; padded
    ones end at ``lengths``.

    Raises
    ------
    Misfit
        If some of it does not fit.
    """
    own = tuple(map(str, value.dims[1:])) if hasattr(value, "dims") else first.dims
    if hasattr(value, "dims"):
        check_present(name, getattr(value, "data", None))
        value = getattr(value, "values", value)
    array, dtype = plain_array(name, value)
    if own != first.dims and len(own) == len(first.dims):
        array = array.transpose(0, *(1 + own.index(dim) for dim in first.dims))
    ends = None
    if first.pad is not None:
        given = array[:, : first.array.shape[0]]
        size = np.full(len(rows), array.shape[1], dtype=np.int32)
        ends = size if lengths is None else lengths
        array = np.full((len(rows), *first.array.shape), fill_value(dtype), dtype=array.dtype)
        array[:, : given.shape[1]] = given
        array[np.arange(array.shape[1]) >= ends[:, None]] = fill_value(dtype)
        if (ends > array.shape[1]).any():
            raise Misfit(f"output {name!r} is longer than declared")
    if said is not None and said.dtype is not None and said.dtype != dtype:
        array, dtype = as_declared(name, array, dtype, said.dtype), said.dtype
    if dtype != first.dtype or array.shape[1:] != first.array.shape:
        raise Misfit(f"output {name!r} is {dtype} of shape {array.shape[1:]} in places")
    return Column(rows, array, dtype, first.dims, first.pad, ends, first.attrs, first.coords)

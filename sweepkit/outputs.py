"""What a simulator returns: declared, learnt from the first result, and every result checked."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.format1 import RESERVED, Variable, fill_value
from sweepkit.parameters import check_name, nanoseconds
from sweepkit.parcels import Outbox, Parcel

__all__ = ["Column", "Misfit", "Output", "Collector", "joined_dtype", "output", "whole_column"]

TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)

RESULT = "result"
"""Name of the output of a simulator that returns a bare value."""


class Misfit(Exception):
    """What a run returned does not fit: the run is invalid."""


@dataclass(frozen=True)
class Output:
    """What is said of an output before the first run; see :func:`output`."""

    dims: tuple[str, ...] | None = None
    size: tuple[int, ...] | None = None
    pad: str | None = None
    dtype: str | None = None
    units: str | None = None
    long_name: str | None = None
    coords: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of the stored variable."""
        said = {"units": self.units, "long_name": self.long_name}
        return {name: text for name, text in said.items() if text is not None}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del plain["coords"]
        return {name: v for name, v in plain.items() if v is not None}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Output:
        """From plain data."""
        lists: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()
        }
        return cls(**lists)


def output(
    *,
    dims: str | Sequence[str] = (),
    size: int | Sequence[int] | None = None,
    pad: bool = False,
    dtype: Any = None,
    units: str | None = None,
    long_name: str | None = None,
    coords: Mapping[str, Any] | None = None,
) -> Output:
    """What is known of an output before the first run.

    Parameters
    ----------
    dims : str or sequence of str
        Names of its own dims; none for a scalar.
    size : int or sequence of int, optional
        Entries along each dim; learnt from the first result where left out.
    pad : bool
        Results may end early along the first dim: they are padded up to ``size`` (NaN, NaT, "",
        0 or False by type) and their lengths kept as ``<output>_length``.
    dtype : dtype, optional
        To be stored: floats are rounded to it, other results that it cannot hold without loss
        are invalid. Learnt from the first result otherwise.
    units, long_name : str, optional
        Stored with the variable.
    coords : mapping of str to array, optional
        Values along its own dims, such as the times of a trace; an array for a dim of known size.
        Taken from the first result if that is a DataArray with coordinates.

    Returns
    -------
    Output
        To be given to ``Sweep(outputs={name: ...})``.

    Raises
    ------
    ValueError
        If sizes do not match dims, or ``pad`` lacks a dim or size.
    """
    if not isinstance(dims, str | Sequence):
        raise TypeError(f"dims are {dims!r}; give the name of a dim, or a sequence of names")
    named = (dims,) if isinstance(dims, str) else tuple(dims)
    for dim in named:
        check_name(dim, "dim")
        if dim in RESERVED:
            raise ValueError(f"dim {dim!r} has the name of a variable of the store; rename it")
    if len(set(named)) != len(named):
        raise ValueError(f"an output names a dim twice: {', '.join(named)}")
    sizes = None if size is None else (size,) if isinstance(size, int | np.integer) else tuple(size)
    if sizes is not None:
        if len(sizes) != len(named):
            raise ValueError(
                f"an output has {len(named)} dim(s) ({', '.join(named)}) and {len(sizes)} size(s)"
            )
        for one in sizes:
            if isinstance(one, bool) or not isinstance(one, int | np.integer) or one < 1:
                raise ValueError(f"size {one!r} of an output is no whole number of at least 1")
        sizes = tuple(int(one) for one in sizes)
    if pad and (not named or sizes is None):
        raise ValueError("a padded output needs dims and size, as in output(dims='time', size=500)")
    for word, text in (("units", units), ("long_name", long_name)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{word} of an output is {text!r}; give a string")
    try:
        name = None if dtype is None else _dtype_name(np.dtype(dtype))
    except TypeError:
        name = None
    if dtype is not None and name is None:
        raise ValueError(f"dtype {dtype!r} of an output cannot be stored")
    along = {dim: _coordinate(dim, values) for dim, values in (coords or {}).items()}
    for dim, array in along.items():
        if dim not in named:
            raise ValueError(f"coords are given along {dim!r}, which is no dim of the output")
        if sizes is None or sizes[named.index(dim)] != len(array):
            raise ValueError(f"coords along {dim!r} have {len(array)} values; say size= to match")
    return Output(named, sizes, named[0] if pad else None, name, units, long_name, along)


def _coordinate(dim: str, given: Any) -> NDArray[Any]:
    """Values along a dim in a data type that is stored."""
    array = np.asarray(given)
    if array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    name = _dtype_name(array.dtype)
    if array.ndim != 1 or name is None:
        raise ValueError(
            f"coords along {dim!r} are {array.dtype} of shape {array.shape}; give numbers, text "
            "or datetimes along one dim"
        )
    if name.endswith("[ns]"):
        return array.astype(name)
    return array.astype(object) if name == "str" else array.astype(name)


def _dtype_name(dtype: np.dtype[Any]) -> str | None:
    """Name of the stored data type for a numpy dtype, None where there is none."""
    if dtype.kind in "UT":
        return "str"
    if dtype.kind == "M":
        return "datetime64[ns]"
    if dtype.kind == "m":
        return "timedelta64[ns]"
    if dtype.kind in "biu" or (dtype.kind in "fc" and dtype.itemsize <= 16):
        if dtype.kind == "f" and dtype.itemsize > 8:
            return None
        return dtype.newbyteorder("=").name
    return None


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
    """

    def __init__(self, declared: Mapping[str, Output], outbox: Outbox | None = None) -> None:
        self._declared = declared
        self._outbox = outbox
        self._names: list[str] | None = None
        self._kinds: tuple[type, ...] = ()
        self._rows: list[int] = []
        self._values: list[Any] = []
        self._groups: dict[str, dict[Any, list[tuple[int, _Seen]]]] = {}
        self.misfits: dict[int, str] = {}
        """What is wrong with results that cannot be stored, by row."""
        self.misnamed: str | None = None
        """An output of a name that no store can have, in words."""

    def take(self, row: int, result: Any) -> None:
        """Take the result of one run."""
        if type(result) is dict:
            if [*result] == self._names:
                self._rows.append(row)
                self._values.extend(result.values())
                return
            if self._names is None and self._is_plain(result):
                self._names = [*result]
                self._kinds = tuple(map(type, result.values()))
                self._rows.append(row)
                self._values.extend(result.values())
                return
        self._apart(row, result)

    def _is_plain(self, result: Mapping[Any, Any]) -> bool:
        kinds = set(map(type, result.values()))
        if not PLAIN.keys() >= kinds or _names_fit(result, self._declared) is not None:
            return False
        said = [self._declared[name] for name in result if name in self._declared]
        return all(not one.dims and one.dtype is None for one in said)

    def apart(self, result: Any) -> dict[str, _Seen]:
        """The result of one run, taken apart.

        Raises
        ------
        Misfit
            If it cannot be stored.
        """
        named = as_mapping(result, self._declared)
        wrong = _names_fit(named, self._declared)
        if wrong is not None:
            if any(name_fault(name) is not None for name in named):
                self.misnamed = wrong
            raise Misfit(wrong)
        seen = {name: _seen(name, value, self._declared.get(name)) for name, value in named.items()}
        _check_dims(seen)
        return seen

    def _apart(self, row: int, result: Any) -> None:
        try:
            seen = self.apart(result)
        except Misfit as misfit:
            self.misfits[row] = str(misfit)
            return
        for name, one in seen.items():
            if self._outbox is not None and isinstance(one.array, np.ndarray):
                parcel = self._outbox.put(name, one.array)
                one = one if parcel is None else dataclasses.replace(one, array=parcel)
            self._groups.setdefault(name, {}).setdefault(one.key, []).append((row, one))

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
        for row, result in taken:
            for name, value in result.items():
                if _may_change(value):
                    first = owners.setdefault(id(value), row)
                    if first != row:
                        # One object handed out twice may have been changed in between.
                        fault = (
                            f"output {name!r} is the very object that another run returned, "
                            f"a {type(value).__name__}; return a copy"
                        )
                        self.misfits[row] = self.misfits[first] = fault
        for row, result in taken:
            if tuple(map(type, result.values())) == self._kinds:
                self._rows.append(row)
                self._values.extend(result.values())
            elif row not in self.misfits:
                self._apart(row, result)


def _may_change(value: object) -> bool:
    """Whether a simulator could change a value after it has handed it out."""
    if isinstance(value, list | dict | bytearray):
        return True
    return hasattr(value, "__array__") and not isinstance(value, np.generic)


def _names_fit(result: Mapping[str, Any], declared: Mapping[str, Output]) -> str | None:
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


def name_fault(name: object) -> str | None:
    """Why a string cannot name an output; None if it can."""
    try:
        checked = check_name(name, "output")
    except (TypeError, ValueError) as fault:
        return str(fault)
    if checked in RESERVED:
        return f"output {checked!r} has the name of a variable of the store; rename it"
    return None


def as_mapping(result: Any, declared: Mapping[str, Output]) -> Mapping[str, Any]:
    """Whatever a simulator returned as a mapping from output to value."""
    if isinstance(result, Mapping):
        return result
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
            f"a {_type_name(result)} was returned; return a dict of outputs, as in "
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


@dataclass(frozen=True)
class _Seen:
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


def _check_dims(seen: Mapping[str, _Seen]) -> None:
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


def _seen(name: str, value: Any, said: Output | None) -> _Seen:
    attrs: Mapping[str, Any] = {}
    coords: dict[str, NDArray[Any]] = {}
    dims: tuple[str, ...] | None = None
    if hasattr(value, "dims") and hasattr(value, "values") and hasattr(value, "attrs"):
        dims = tuple(str(dim) for dim in value.dims)
        attrs = {k: v for k, v in value.attrs.items() if isinstance(v, str | int | float)}
        for dim in dims:
            if dim in getattr(value, "coords", ()):
                coords[dim] = _carried(dim, value.coords[dim].values)
        value = value.values
    elif hasattr(value, "index") and hasattr(value, "iloc"):
        _check_unlabelled(name, value)
    array, dtype = _plain(name, value)
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
        array, dtype = _as_declared(name, array, dtype, said.dtype), said.dtype
    return _Seen(array, dtype, dims, pad, length, attrs, coords)


def _check_unlabelled(name: str, series: Any) -> None:
    """Refuse a Series whose index says more than its places: it would be lost."""
    index = series.index
    if type(index).__name__ != "RangeIndex" or (index.start, index.step) != (0, 1):
        raise Misfit(
            f"output {name!r} is a {_type_name(series)} with an index, which would be lost; return "
            "series.to_xarray() to keep it, dict(series) for outputs of these names, or "
            "series.to_numpy() for the values alone"
        )


def _as_declared(name: str, array: NDArray[Any], given: str, wanted: str) -> NDArray[Any]:
    """Values in a declared dtype: floats are rounded to it, all else is kept exactly."""
    if given.startswith("float") and wanted.startswith("float"):
        with np.errstate(over="ignore"):
            rounded = array.astype(wanted)
        if not np.array_equal(np.isinf(rounded), np.isinf(array)):
            raise Misfit(f"output {name!r} is {given} and too large for the declared {wanted}")
        return rounded
    return cast_exactly(name, array, given, wanted)


def _carried(dim: str, values: Any) -> NDArray[Any]:
    try:
        return np.array(_coordinate(dim, values))
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


def _plain(name: str, value: Any) -> tuple[NDArray[Any], str]:
    """A value as an array in memory and the name of its stored dtype."""
    if isinstance(value, bool | np.bool_):
        return np.array(value, dtype=bool), "bool"
    if isinstance(value, int) and not isinstance(value, np.generic):
        return _whole(name, value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return np.array(value, dtype=np.float64), "float64"
    if isinstance(value, str):
        return _strings(name, np.array(value, dtype=object)), "str"
    if isinstance(value, datetime.datetime | datetime.date | datetime.timedelta):
        if getattr(value, "tzinfo", None) is not None:
            raise Misfit(f"output {name!r} carries a time zone; convert to UTC and drop it")
        if type(value).__name__ == "NaTType":
            return np.array(np.datetime64("NaT", "ns").astype("int64")), "datetime64[ns]"
        if hasattr(value, "to_numpy"):
            return _plain(name, value.to_numpy())
        if isinstance(value, datetime.timedelta):
            return _plain(name, np.timedelta64(value))
        return _plain(name, np.datetime64(value))
    if value is None:
        raise Misfit(f"output {name!r} is None; return np.nan for a missing number, '' for text")
    return _array(name, value)


def _whole(name: str, value: int) -> tuple[NDArray[Any], str]:
    if -(2**63) <= value < 2**63:
        return np.array(value, dtype=np.int64), "int64"
    if 0 <= value < 2**64:
        return np.array(value, dtype=np.uint64), "uint64"
    raise Misfit(f"output {name!r} is {value}, which 64 bits cannot hold; return it as text")


def _array(name: str, value: Any) -> tuple[NDArray[Any], str]:
    if isinstance(value, list | tuple | range):
        value = _from_sequence(name, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise Misfit(f"output {name!r} is masked in places; fill it, as in .filled(np.nan)")
    try:
        array = np.array(value)  # a copy: the simulator may change its own in the next run
    except (ValueError, TypeError) as fault:
        raise Misfit(
            f"output {name!r} is a {_type_name(value)} that makes no array ({fault})"
        ) from None
    if array.dtype.kind == "O":
        if array.size and all(isinstance(item, str) for item in array.flat):
            return _strings(name, array), "str"
        if array.size and all(isinstance(item, TIMES) for item in array.flat):
            parts = [_plain(name, item) for item in array.flat]
            if len({dtype for _, dtype in parts}) == 1:
                return np.array([part for part, _ in parts]).reshape(array.shape), parts[0][1]
        inner = next((item for item in array.flat if not isinstance(item, str)), None)
        if not array.size:
            raise Misfit(f"output {name!r} is empty and tells no type; give it a dtype")
        what = f"{'holds' if array.ndim else 'is'} an object of type {_type_name(inner)}"
        raise Misfit(
            f"output {name!r} {what}, which cannot be stored; return numbers, bools, text, "
            "datetimes, or arrays of them"
        )
    dtype = _dtype_name(array.dtype)
    if dtype is None and array.dtype.kind in "fc":
        narrow = array.astype(np.float64 if array.dtype.kind == "f" else np.complex128)
        if np.array_equal(narrow.astype(array.dtype), array, equal_nan=True):
            return narrow, narrow.dtype.name
    if dtype is None:
        raise Misfit(
            f"output {name!r} has dtype {array.dtype}, which cannot be stored without loss"
        )
    if dtype == "str":
        return _strings(name, array.astype(object)), dtype
    if dtype in ("datetime64[ns]", "timedelta64[ns]"):
        return _exact_nanoseconds(name, array), dtype
    return array.astype(array.dtype.newbyteorder("="), copy=False), dtype


def _from_sequence(name: str, value: Sequence[Any]) -> Any:
    """Lists, nested ones too, as an array of the one type that they hold; numpy would cast."""
    entries = np.array(value, dtype=object).ravel().tolist()
    kinds = {_sort(kind) for kind in set(map(type, entries))}
    if kinds & {"list", "tuple", "ndarray"}:  # ragged, of which numpy tells more
        return value
    if len(kinds) > 1 and not kinds <= {"int", "float"}:
        raise Misfit(
            f"output {name!r} is a {type(value).__name__} of mixed types "
            f"({', '.join(sorted(kinds))}); return an array of one type"
        )
    if "int" not in kinds:
        return value
    whole = [int(one) for one in entries if not isinstance(one, float | np.floating)]
    low, high = min(whole), max(whole)
    if kinds == {"int"} and low >= -(2**63) and high < 2**63:
        return np.array(value, dtype=np.int64)
    if kinds == {"int"} and low >= 0 and high < 2**64:
        return np.array(value, dtype=np.uint64)
    if max(-low, high) > 2**53:
        beyond = low if -low > high else high
        raise Misfit(
            f"output {name!r} holds {beyond} beside other numbers, and no type holds all of them "
            "without loss; return it as text"
        )
    return np.array(value, dtype=np.float64)


def _sort(kind: type) -> str:
    if issubclass(kind, bool | np.bool_):
        return "bool"
    if issubclass(kind, TIMES):  # numpy's timedelta is an np.integer as well
        return "timedelta" if issubclass(kind, np.timedelta64 | datetime.timedelta) else "datetime"
    if issubclass(kind, int | np.integer):
        return "int"
    if issubclass(kind, float | np.floating):
        return "float"
    return "str" if issubclass(kind, str) else kind.__name__


def _type_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


def _strings(name: str, array: NDArray[Any]) -> NDArray[Any]:
    plain = np.array([str(item) for item in array.ravel()], dtype=object).reshape(array.shape)
    for text in plain.flat:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Misfit(
                f"output {name!r} is text with half a character (a lone surrogate): {text!r}"
            ) from None
    return plain


def _exact_nanoseconds(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype == "timedelta64":
        raise Misfit(
            f"output {name!r} is a timedelta without a unit; give it one, as in "
            "np.timedelta64(3, 's')"
        )
    if (exact := nanoseconds(array)) is None:
        raise Misfit(
            f"output {name!r} has dtype {array.dtype} and a value outside the years 1678 to 2261 "
            "or finer than a nanosecond; return a number from an epoch of your own"
        )
    return exact.astype("int64")


def _stacked(members: Iterable[tuple[int, _Seen]]) -> Column:
    rows, seen = zip(*members, strict=True)
    first: _Seen = seen[0]
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
    first: _Seen,
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
    array, dtype = _plain(
        name, getattr(value, "values", value) if hasattr(value, "dims") else value
    )
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
        array, dtype = _as_declared(name, array, dtype, said.dtype), said.dtype
    if dtype != first.dtype or array.shape[1:] != first.array.shape:
        raise Misfit(f"output {name!r} is {dtype} of shape {array.shape[1:]} in places")
    return Column(rows, array, dtype, first.dims, first.pad, ends, first.attrs, first.coords)


# --- types that hold others without loss --------------------------------------------------------


def joined_dtype(stored: str, given: str) -> str | None:
    """The narrowest data type that may hold values of both; None where there is none.

    Integers join floats as float64 (values beyond 2**53 are checked when they are cast).
    Bools, text, datetimes and timedeltas join nothing but themselves.
    """
    if stored == given:
        return stored
    plain = {"str", "bool", "datetime64[ns]", "timedelta64[ns]"}
    if stored in plain or given in plain:
        return None
    a, b = np.dtype(stored), np.dtype(given)
    if {a.kind, b.kind} == {"i", "u"}:
        wide = np.promote_types(a, b)
        return wide.name if wide.kind in "iu" else None
    if a.kind in "iu" and b.kind in "iu":
        return np.promote_types(a, b).name
    if "c" in (a.kind, b.kind):
        return "complex128" if a != b else a.name
    if a.kind in "iu" or b.kind in "iu":
        return "float64"
    return np.promote_types(a, b).name


def cast_exactly(name: str, array: NDArray[Any], given: str, wanted: str) -> NDArray[Any]:
    """Values in another data type, or a Misfit naming both if that would lose something."""
    if given == wanted:
        return array
    plain = {"str", "bool", "datetime64[ns]", "timedelta64[ns]"}
    if given not in plain and wanted not in plain:
        with np.errstate(all="ignore"):
            source, target = np.dtype(given).kind, np.dtype(wanted).kind
            if source == "c" and target != "c":
                cast, same = array.real.astype(wanted), np.zeros(array.shape, dtype=bool)
            else:
                cast = array.astype(wanted)
                same = _survived(array, cast)
        if np.all(same):
            return cast
        at = np.unravel_index(int(np.argmin(np.broadcast_to(same, array.shape))), array.shape)
        value = f" {array[at].item()!r}" if array.ndim else f" {array.item()!r}"
    else:
        value = ""
    raise Misfit(
        f"output {name!r} is {given}{value}, but the sweep stores {wanted}, "
        "which cannot hold it without loss"
    )


def _survived(array: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers a cast to another type has kept exactly."""
    source, target = array.dtype.kind, cast.dtype.kind
    if target == "c":
        real = _survived(array.real, cast.real)
        return real & _survived(array.imag, cast.imag) if source == "c" else real
    if source in "iu" and target == "f":
        return _ints_survive(array, cast)
    if source == "f" and target in "iu":
        limits = np.iinfo(cast.dtype)
        inside = (array >= float(limits.min)) & (array < float(limits.max + 1))
        return np.asarray(inside & (cast == array))
    same = cast.astype(array.dtype) == array
    if source == "f":
        return np.asarray(same | (np.isnan(cast) & np.isnan(array)))
    return np.asarray(same & ((cast < 0) == (array < 0)))  # -1 and 255 are each other's cast


def _ints_survive(array: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether integers are kept by a cast to floats: always up to 2**mantissa, else by value."""
    digits = np.finfo(cast.dtype).nmant + 1
    limit = 2**digits
    return np.asarray((array <= limit) & (array >= -limit if array.dtype.kind == "i" else True))


def learnt(name: str, column: Column, said: Output | None) -> Variable:
    """The stored variable for an output, from its first column and what was declared."""
    attrs = {k: v for k, v in column.attrs.items() if k in ("units", "long_name")}
    attrs |= said.attrs if said is not None else {}
    if column.pad is not None:
        attrs["length"] = f"{name}_length"
    return Variable(name, column.dtype, column.dims, column.shape, column.pad, attrs)


def learnt_coords(
    columns: Mapping[str, list[Column]], declared: Mapping[str, Output]
) -> dict[str, NDArray[Any]]:
    """Coordinates along own dims: as declared, else as the first results carry them."""
    coords: dict[str, NDArray[Any]] = {}
    for name, groups in columns.items():
        said = declared[name].coords if name in declared else {}
        for dim, values in {**groups[0].coords, **said}.items():
            if groups[0].pad != dim or dim in said:  # a trace that ends early tells only a part
                coords.setdefault(dim, values)
    return coords


def coords_fault(name: str, column: Column, stored: Mapping[str, NDArray[Any]]) -> str | None:
    """Why the coordinates that results carry are not those stored; None if they are."""
    for dim, values in column.coords.items():
        known = stored.get(dim)
        if known is None or column.pad == dim:
            continue
        if known.shape != values.shape or not np.all(known == values):
            return (
                f"output {name!r} has other coordinate values along {dim!r} than the first run; "
                "return them as an output of their own"
            )
    return None


def shape_fault(variable: Variable, column: Column) -> str | None:
    """Why the dims or shape of a column do not fit the stored variable; None if they do."""
    if column.dims == variable.dims and column.shape == variable.shape:
        return None
    given = _shape_text(column.dims, column.shape)
    stored = _shape_text(variable.dims, variable.shape)
    hint = ""
    if len(column.dims) == len(variable.dims) == 1 and all(variable.shape):
        hint = (
            f"; where lengths vary, declare outputs={{{variable.name!r}: sk.output(dims="
            f"{variable.dims[0]!r}, size=..., pad=True)}}"
        )
    return f"output {variable.name!r} is {given}, but the sweep stores {stored}{hint}"


def _shape_text(dims: tuple[str, ...], shape: tuple[int, ...]) -> str:
    if not dims:
        return "a scalar"
    return "(" + ", ".join(f"{dim}: {size}" for dim, size in zip(dims, shape, strict=True)) + ")"

"""What varies: the values of a parameter, their role, units and dims, and their identity."""

from __future__ import annotations

import copy
import datetime
import enum
import hashlib
import keyword
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Parameter",
    "Values",
    "design",
    "kind_of",
    "nanoseconds",
    "parameter",
    "scenario",
    "values",
]

ROLES = ("design", "scenario", "replicate")
WEIGHTS = ("midpoint", "trapezoid")

AXIS = 10**7
"""Values beyond which what is counted out one by one is refused: it is endless or a mistake."""

Kind = str
"""One of ``bool``, ``number``, ``str``, ``datetime``, ``timedelta``, ``label``."""


@dataclass(frozen=True)
class Values:
    """Values of one parameter before it has a name: what :func:`design` and the like return."""

    data: Any
    role: str = "design"
    units: str | None = None
    long_name: str | None = None
    dims: tuple[str, ...] | None = None
    weights: str | None = None
    sampled: str | None = None


def design(
    values: Any,
    *,
    units: str | None = None,
    long_name: str | None = None,
    weights: str | None = None,
) -> Values:
    """Values of a parameter that one may choose, such as the gain of a controller.

    Parameters
    ----------
    values : sequence, mapping of label to object, or range for a sampler
        See :func:`sweepkit.values` for what is accepted.
    units, long_name : str, optional
        Shown with the parameter and stored with its coordinate.
    weights : {"midpoint", "trapezoid"}, optional
        How analyses integrate over the axis: all values weigh the same ("midpoint", the default)
        or as in the trapezoid rule.

    Returns
    -------
    Values
        To be given to :func:`sweepkit.grid` or a sampler under the parameter's name.
    """
    return _values(values, "design", units, long_name, None, weights)


def scenario(
    values: Any,
    *,
    units: str | None = None,
    long_name: str | None = None,
    weights: str | None = None,
) -> Values:
    """Values of a parameter that the world sets, such as the mass of a plant.

    Failure rates average over scenarios unless told otherwise. Parameters as :func:`design`.
    """
    return _values(values, "scenario", units, long_name, None, weights)


def values(
    data: Any,
    *,
    dims: str | Sequence[str] | None = None,
    role: str = "design",
    units: str | None = None,
    long_name: str | None = None,
    weights: str | None = None,
) -> Values:
    """Values of a parameter, said in full.

    Parameters
    ----------
    data : sequence, array or mapping
        Numbers, bools, strings, datetimes or timedeltas, each different and none NaN; or a
        mapping from labels to any Python objects: the labels become the coordinate and the
        simulator gets the object.
    dims : str or sequence of str, optional
        Dim of the values. With several, the first is varied and the others belong to one value:
        ``values(x0, dims=("case", "state"))`` is one run per ``case``, and the simulator gets
        the vector along ``state``.
    role : {"design", "scenario", "replicate"}
        What the parameter is for.
    units, long_name : str, optional
        Shown with the parameter and stored with its coordinate.
    weights : {"midpoint", "trapezoid"}, optional
        How analyses integrate over the axis.

    Returns
    -------
    Values
        To be given to :func:`sweepkit.grid` under the parameter's name.

    Raises
    ------
    ValueError
        If the role or the weights are none of those named.
    """
    if dims is not None and not isinstance(dims, str | Sequence):
        raise TypeError(f"dims are {dims!r}; give the name of a dim, or a sequence of names")
    named = (dims,) if isinstance(dims, str) else None if dims is None else tuple(dims)
    return _values(data, role, units, long_name, named, weights)


def _values(
    data: Any,
    role: str,
    units: str | None,
    long_name: str | None,
    dims: tuple[str, ...] | None,
    weights: str | None,
) -> Values:
    if isinstance(data, Values):
        raise TypeError("values are wrapped twice; give the role, units and dims in one call")
    if role not in ROLES:
        raise ValueError(f"role {role!r} is none of {', '.join(ROLES)}")
    if weights is not None and weights not in WEIGHTS:
        raise ValueError(f"weights {weights!r} is none of {', '.join(WEIGHTS)}")
    return Values(data, role, units, long_name, dims, weights)


@dataclass(frozen=True, eq=False)
class Parameter:
    """A named parameter: values along a dim.

    Attributes
    ----------
    name : str
        An identifier.
    values : array, shape (n,) or (n, ...)
        float64, int64, uint64, bool, datetime64[ns], timedelta64[ns], or object holding str.
    dims : tuple of str
        The dim that is varied, then the dims within one value.
    role : {"design", "scenario", "replicate"}
        What the parameter is for.
    units, long_name, weights : str or None
        See :func:`values`.
    objects : tuple or None
        What the simulator gets in place of each label.
    sampled : str or None
        How the values were drawn from a space that they stand for; None where they are listed,
        so that they are all there are.
    """

    name: str
    values: NDArray[Any]
    dims: tuple[str, ...]
    role: str = "design"
    units: str | None = None
    long_name: str | None = None
    weights: str | None = None
    objects: tuple[Any, ...] | None = field(default=None, repr=False)
    sampled: str | None = None

    @property
    def dim(self) -> str:
        """The dim along which the parameter varies."""
        return self.dims[0]

    @property
    def size(self) -> int:
        """How many values."""
        return len(self.values)

    @property
    def kind(self) -> Kind:
        """Kind of the values, as identity sees them."""
        return "label" if self.objects is not None else kind_of(self.values)

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of the coordinate."""
        said = {
            "role": self.role,
            "units": self.units,
            "long_name": self.long_name,
            "weights": self.weights,
            "sampled": self.sampled,
        }
        return {name: text for name, text in said.items() if text is not None}

    def take(self, index: NDArray[np.intp] | slice) -> Parameter:
        """The same parameter with the values at some positions."""
        objects = self.objects
        if objects is not None:
            objects = tuple(objects[i] for i in np.arange(self.size)[index])
        return replace(self, values=self.values[index], objects=objects)

    def handed(self, index: NDArray[np.intp]) -> Iterable[Any]:
        """The values at some positions as the simulator gets them: Python scalars or arrays."""
        if self.objects is not None:  # a copy each: what one run does to it, no other sees
            return (_copied(self.objects[i]) for i in index.tolist())
        chosen = self.values[index]
        if self.values.ndim > 1 or self.values.dtype.kind in "mM":
            return list(chosen)
        return cast("list[Any]", chosen.tolist())

    def keys(self, index: NDArray[np.intp] | None = None) -> NDArray[np.uint64]:
        """Digest of the name and each value, shape (n, 2): equal values, equal digests.

        Integral numbers count by value (5, 5.0 and ``np.int32(5)`` are one), other floats by
        their exact float64, -0.0 as 0.0; bool, str, datetime, timedelta and label are kinds of
        their own. Neither the dtype of the axis nor the other values take part.
        """
        chosen = self.values if index is None else self.values[index]
        head = self.name.encode() + b"\0"
        blake = hashlib.blake2b
        digests = b"".join(
            blake(head + token, digest_size=16).digest() for token in _tokens(chosen, self.kind)
        )
        return np.frombuffer(digests, dtype="<u8").astype(np.uint64).reshape(-1, 2)


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except (TypeError, ValueError, AttributeError, NotImplementedError, copy.Error):
        return value  # a lock, an open file: there is one


def kind_of(array: NDArray[Any]) -> Kind:
    """Kind of a canonical array of values."""
    return {"b": "bool", "O": "str", "M": "datetime", "m": "timedelta", "T": "str"}.get(
        array.dtype.kind, "number"
    )


def _tokens(array: NDArray[Any], kind: Kind) -> Iterable[bytes]:
    if array.ndim > 1:
        for row in array:
            entries = b"".join(b"%d:%b" % (len(one), one) for one in _tokens(row.ravel(), kind))
            yield b"v" + repr(row.shape).encode() + entries
    elif kind == "number":
        for number in array.tolist():
            yield number_token(number)
    elif kind == "bool":
        for truth in array.tolist():
            yield b"b1" if truth else b"b0"
    elif kind in ("str", "label"):
        mark = kind[:1].encode()
        for text in array.tolist():
            yield mark + text.encode()
    else:
        mark = b"t" if kind == "datetime" else b"d"
        for nanoseconds in array.astype("int64").tolist():
            yield mark + str(nanoseconds).encode()


def number_token(number: float) -> bytes:
    """Bytes that are the same for equal numbers of any type."""
    if isinstance(number, int) or number.is_integer():
        return b"i%d" % int(number)
    return b"f" + struct.pack(">d", number)


# --- from what people give to a Parameter ------------------------------------------------------


def check_name(name: object, what: str) -> str:
    """Refuse what cannot be the name of a parameter, dim or output."""
    if not isinstance(name, str):
        raise TypeError(f"{what} name {name!r} is of type {type(name).__name__}; give a string")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            f"{what} name {name!r} is no identifier; use letters, digits and underscores, "
            f"such as {_identifier(name)!r}"
        )
    if name.startswith("__"):
        raise ValueError(f"{what} name {name!r} starts with two underscores; give another name")
    if unicodedata.normalize("NFKC", name) != name:  # Python's own names are, in arguments too
        raise ValueError(
            f"{what} name {name!r} is not written as Python writes names; give "
            f"{unicodedata.normalize('NFKC', name)!r}, which looks the same"
        )
    return name


def _identifier(name: str) -> str:
    letters = "".join(c if c.isalnum() or c == "_" else "_" for c in name).strip("_") or "x"
    letters = letters if not letters[0].isdigit() else f"x{letters}"
    return f"{letters}_" if keyword.iskeyword(letters) else letters


def parameter(name: object, given: Any) -> Parameter:
    """A parameter from a name and whatever a person gave as its values.

    Raises
    ------
    TypeError, ValueError
        If the values are of mixed or unsupported types, NaN or given twice; the message names
        the parameter, the value and what to do.
    """
    name = check_name(name, "parameter")
    said = said_of(given)
    data, units, long_name = said.data, said.units, said.long_name
    objects: tuple[Any, ...] | None = None
    if isinstance(data, Mapping):
        objects = tuple(data.values())
        data = _labels(name, data)
    array = canonical(name, data)
    dims = said.dims if said.dims is not None else (name,)
    for dim in dims:
        check_name(dim, "dim")
    if len(set(dims)) != len(dims):
        raise ValueError(f"parameter {name!r} names a dim twice: {', '.join(dims)}")
    if array.ndim != len(dims):
        raise ValueError(
            f"parameter {name!r} has values of shape {array.shape} but {len(dims)} dim(s) "
            f"({', '.join(dims)}); where one value is a vector, say "
            f"sk.values(..., dims=({name!r}, 'component'))"
        )
    if array.shape[0] == 0 or array.size == 0:
        raise ValueError(f"parameter {name!r} has no values; give at least one")
    for word, text in (("units", units), ("long_name", long_name)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{word} of parameter {name!r} is {text!r}; give a string")
    return Parameter(
        name, array, dims, said.role, units, long_name, said.weights, objects, said.sampled
    )


def said_of(given: Any) -> Values:
    """Values with what is said of them, by :func:`values` or an xarray object's dims and attrs."""
    said = given if isinstance(given, Values) else Values(given)
    data = said.data
    dims = tuple(str(dim) for dim in getattr(data, "dims", ()))
    if said.dims is None and dims and dims[0] != "dim_0":  # which xarray makes up
        said = replace(said, dims=dims)
    attrs = getattr(data, "attrs", None)
    if not isinstance(attrs, Mapping):
        return said
    role = attrs.get("role") if said.data is given else None
    weights, sampled = attrs.get("weights"), attrs.get("sampled")
    return replace(
        said,
        role=role if role in ROLES else said.role,
        units=attrs.get("units") if said.units is None else said.units,
        long_name=attrs.get("long_name") if said.long_name is None else said.long_name,
        weights=weights if said.weights is None and weights in WEIGHTS else said.weights,
        sampled=sampled if said.sampled is None and isinstance(sampled, str) else said.sampled,
    )


def named(given: object, more: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters given as a mapping and by keyword, as one mapping."""
    if given is None:
        return dict(more)
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{_cut(repr(given))} is a {type(given).__name__}; give a mapping from names, or "
            "keywords"
        )
    for name in given:
        if name in more:
            raise ValueError(f"{name!r} is given in the mapping and by keyword; drop one")
    return {**given, **more}


def _labels(name: str, data: Mapping[Any, Any]) -> list[str]:
    for label in data:
        if isinstance(label, enum.Enum) or not isinstance(label, str) or not label:
            wrong = "empty" if label == "" else "no plain string"
            raise TypeError(
                f"label {label!r} of parameter {name!r} is {wrong}; "
                "a mapping gives labels to objects, as in {'pid': pid, 'lqr': lqr}"
            )
    return list(data)


def canonical(name: str, data: Any) -> NDArray[Any]:
    """Values as one of the dtypes that a parameter may have, or an error that names the misfit."""
    if hasattr(data, "dims") and hasattr(data, "to_index"):  # of xarray
        data = data.to_index() if data.ndim == 1 else data.values
    if isinstance(data, str | bytes) or not isinstance(data, Iterable) or _is_one(data):
        data = [data]
    if isinstance(data, set | frozenset):
        raise TypeError(f"values of parameter {name!r} are a set, which has no order; give a list")
    if hasattr(data, "columns") and hasattr(data, "dtypes"):
        raise TypeError(
            f"values of parameter {name!r} are a table; give one column, or let its columns vary "
            "together with sk.paired(dict(table.items()))"
        )
    if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
        raise ValueError(f"values of parameter {name!r} are masked in places; leave those out")
    if isinstance(data, range):
        if len(data) > AXIS:
            raise ValueError(
                f"parameter {name!r} has {len(data):,} values, more than {AXIS:,} along one dim; "
                "give fewer, or draw from the range with sk.sobol or sk.latin_hypercube"
            )
        return _settle(name, np.array(data))
    dtype = getattr(data, "dtype", None)
    if dtype is not None and getattr(dtype, "tz", None) is not None:
        raise TypeError(
            f"values of parameter {name!r} carry the time zone {dtype.tz}; "
            "convert to UTC and drop it, as in .tz_convert(None)"
        )
    if getattr(data, "nlevels", 1) > 1:
        raise TypeError(
            f"values of parameter {name!r} are a MultiIndex; let its levels vary together with "
            "sk.paired(dict(index.to_frame().items()))"
        )
    if isinstance(dtype, np.dtype):
        array = np.asarray(data)
        if array.dtype.kind == "T":  # it may hold missing values
            array = array.astype(object)
    else:  # items, those of a pandas extension type too, one by one
        array = _from_items(name, _listed(name, data))
    return _settle(name, array)


def _is_one(data: Any) -> bool:
    return getattr(data, "ndim", None) == 0


def _listed(name: str, data: Iterable[Any]) -> list[Any]:
    if isinstance(data, Sized):
        return list(data)
    items = list(islice(data, AXIS + 1))
    if len(items) > AXIS:
        raise ValueError(
            f"values of parameter {name!r} have not ended after {AXIS:,}; give a list of them"
        )
    return items


def _from_items(name: str, items: list[Any]) -> NDArray[Any]:
    items = [item[()] if isinstance(item, np.ndarray) and not item.ndim else item for item in items]
    if items and all(isinstance(item, np.ndarray | list | tuple) for item in items):
        return _from_vectors(name, items)
    kinds: dict[Kind, Any] = {}
    for item in items:
        kinds.setdefault(_item_kind(name, item), item)
    if len(kinds) > 1:
        pairs = ", ".join(f"{item!r} ({kind})" for kind, item in kinds.items())
        raise TypeError(
            f"values of parameter {name!r} are of mixed types: {pairs}; "
            "make them one type, or give them labels with sk.values({'label': object, ...})"
        )
    kind = next(iter(kinds), "number")
    if kind == "str":
        return np.array([str(item) for item in items], dtype=object)
    if kind in ("datetime", "timedelta"):
        times = [np.asarray(_nanoseconds(name, item)) for item in items]
        return np.array([_exact_nanoseconds(name, time)[()] for time in times])
    if kind == "number":
        return _from_numbers(name, items)
    return np.array(items)


def _from_vectors(name: str, items: list[Any]) -> NDArray[Any]:
    rows = [np.asarray(item, None if isinstance(item, np.ndarray) else object) for item in items]
    if len({row.shape for row in rows}) > 1:
        raise ValueError(
            f"values of parameter {name!r} are sequences of different lengths; "
            "give them labels, as in sk.values({'short': [1, 2], 'long': [1, 2, 3]})"
        )
    if len({row.dtype for row in rows}) == 1 and rows[0].dtype != object:
        return np.stack(rows)
    entries = [entry for row in rows for entry in row.flat]
    return _from_items(name, entries).reshape(len(rows), *rows[0].shape)


def _from_numbers(name: str, items: list[Any]) -> NDArray[Any]:
    if not any(isinstance(item, float | np.floating) for item in items):
        whole = [int(item) for item in items]
        low, high = min(whole, default=0), max(whole, default=0)
        if low < -(2**63) or high >= 2**64 or (low < 0 and high >= 2**63):
            widest = low if high < 2**63 else high
            raise ValueError(
                f"value {_integer(widest)} of parameter {name!r} does not fit the 64 bits that "
                "integers have"
                + (" beside negative values" if -(2**63) <= widest < 2**64 else "")
                + "; give it as a float or a label"
            )
        return np.array(whole, dtype=np.uint64 if high >= 2**63 else np.int64)
    for item in items:
        if not isinstance(item, float | np.floating) and not _is_float(int(item)):
            raise ValueError(
                f"value {_integer(int(item))} of parameter {name!r} is no exact float, "
                "and the other values are floats; make them one type"
            )
        if isinstance(item, np.longdouble) and item == item and np.longdouble(float(item)) != item:
            _refuse_longdouble(name, item)
    return np.array([float(item) for item in items])


def _integer(whole: int) -> str:
    """An integer as text; Python refuses to write out very long ones."""
    return str(whole) if whole.bit_length() < 200 else f"of {whole.bit_length()} bits"


def _is_float(whole: int) -> bool:
    try:
        return int(float(whole)) == whole
    except OverflowError:
        return False


def _item_kind(name: str, item: Any) -> Kind:
    if isinstance(item, bool | np.bool_):
        return "bool"
    if isinstance(item, enum.Enum):
        kind = type(item).__name__
        raise TypeError(
            f"value {item!r} of parameter {name!r} is a member of the Enum {kind}; give each a "
            f"label, as in sk.values({{one.name: one for one in {kind}}})"
        )
    if isinstance(item, np.timedelta64 | datetime.timedelta):  # numpy's is an np.integer as well
        return "timedelta"
    if isinstance(item, float | np.floating) and item != item:
        _refuse_nan(name)
    if isinstance(item, int | float | np.integer | np.floating):
        return "number"
    if isinstance(item, str):
        return "str"
    if isinstance(item, np.datetime64 | datetime.date):
        return "datetime"
    if item is None:
        raise TypeError(
            f"a value of parameter {name!r} is None; give it a label with "
            "sk.values({'none': None, ...})"
        )
    if type(item).__name__ in ("NAType", "NaTType"):
        raise ValueError(f"a value of parameter {name!r} is missing ({item!r}); leave it out")
    if isinstance(item, np.ma.core.MaskedConstant):
        raise ValueError(f"a value of parameter {name!r} is masked; leave it out")
    raise TypeError(_advice(name, item, type(item).__qualname__))


def _advice(name: str, item: object, what: str) -> str:
    return (
        f"value {_cut(repr(item))} of parameter {name!r} is of type {what}, which is no coordinate "
        "value; give numbers, bools, strings or datetimes, or give each object a label with "
        "sk.values({'label': object, ...})"
    )


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_nan(name: str) -> None:
    raise ValueError(
        f"a value of parameter {name!r} is NaN, which equals nothing, itself included; "
        "leave it out, or stand a string or a label in for it"
    )


def _nanoseconds(name: str, item: Any) -> np.datetime64 | np.timedelta64:
    if getattr(item, "tzinfo", None) is not None:
        raise TypeError(
            f"value {item!s} of parameter {name!r} carries a time zone; "
            "convert to UTC and drop it, as in .astimezone(UTC).replace(tzinfo=None)"
        )
    if hasattr(item, "to_numpy"):  # pandas: its nanoseconds are not in datetime's fields
        item = item.to_numpy()
    is_span = isinstance(item, np.timedelta64 | datetime.timedelta)
    return np.timedelta64(item) if is_span else np.datetime64(item)


def _refuse_longdouble(name: str, item: object) -> None:
    raise ValueError(
        f"value {item!r} of parameter {name!r} has more digits than a float64 holds; round it"
    )


def _settle(name: str, array: NDArray[Any]) -> NDArray[Any]:
    kind = array.dtype.kind
    if kind == "O":
        shape = array.shape
        array = _from_items(name, list(array.ravel())).reshape(shape)
        kind = array.dtype.kind
    if kind in "UT" or (kind == "O" and all(type(item) is str for item in array.flat)):
        settled: NDArray[Any] = np.array(
            [str(item) for item in array.ravel()], dtype=object
        ).reshape(array.shape)
        for text in settled.flat:
            _check_text(name, text)
    elif kind == "b":
        settled = array.astype(bool)
    elif kind in "iu":
        big = array.dtype.kind == "u" and array.size > 0 and int(array.max()) > 2**63 - 1
        settled = array.astype(np.uint64 if big else np.int64)
    elif kind == "f":
        settled = array.astype(np.float64)
        if array.dtype.itemsize > 8 and not np.array_equal(
            settled.astype(array.dtype), array, equal_nan=True
        ):
            _refuse_longdouble(name, array[settled.astype(array.dtype) != array][0])
        if np.isnan(settled).any():
            _refuse_nan(name)
        settled = settled + 0.0  # -0.0 becomes 0.0: they are one value
    elif kind in "mM":
        settled = _exact_nanoseconds(name, array)
    else:
        raise TypeError(_advice(name, array.flat[0] if array.size else array, str(array.dtype)))
    settled.setflags(write=False)
    return settled


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"value {text!r} of parameter {name!r} holds half a character (a lone surrogate), "
            "which cannot be stored; mend the text"
        ) from None


def nanoseconds(times: NDArray[Any]) -> NDArray[Any] | None:
    """Datetimes or timedeltas counted in nanoseconds; None if one does not fit exactly."""
    try:
        exact = times.astype(f"{times.dtype.kind}8[ns]")
        same = (exact.astype(times.dtype) == times) | np.isnat(times)
    except OverflowError:  # from numpy 2.5 on; before, they wrap silently
        return None
    return exact if np.all(same) else None


def _exact_nanoseconds(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if np.isnat(array).any():
        raise ValueError(f"a value of parameter {name!r} is NaT; leave it out")
    if array.dtype == "timedelta64":
        raise ValueError(
            f"values of parameter {name!r} are timedeltas without a unit; give them one, as in "
            "np.timedelta64(3, 's')"
        )
    if (settled := nanoseconds(array)) is None:
        raise ValueError(
            f"a value of parameter {name!r} is outside the years 1678 to 2261 or finer than a "
            f"nanosecond (dtype {array.dtype}), which nanoseconds in 64 bits cannot hold; "
            "count in numbers from an epoch of your own"
        )
    return settled


def near_misses(array: NDArray[Any]) -> list[tuple[float, float]]:
    """Pairs of floats that differ by a few units in the last place: 0.1 + 0.2 and 0.3.

    Meant for the values along one axis, where such a pair is one value computed in two ways.
    """
    if array.dtype.kind != "f" or array.ndim > 1 or len(array) < 2:
        return []
    ordered = np.sort(array[np.isfinite(array)])
    left, right = ordered[:-1], ordered[1:]
    with np.errstate(over="ignore"):
        close = (right > left) & (right - left <= 1e-13 * np.maximum(abs(left), abs(right)))
    return [(float(a), float(b)) for a, b in zip(left[close], right[close], strict=True)]

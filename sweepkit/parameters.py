"""What varies: the values of a parameter, their role, units and dims, and what identifies a value."""

from __future__ import annotations

import datetime
import decimal
import enum
import hashlib
import keyword
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["Parameter", "Values", "design", "kind_of", "parameter", "scenario", "values"]

ROLES = ("design", "scenario", "replicate")
WEIGHTS = ("midpoint", "trapezoid")

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
    """

    name: str
    values: NDArray[Any]
    dims: tuple[str, ...]
    role: str = "design"
    units: str | None = None
    long_name: str | None = None
    weights: str | None = None
    objects: tuple[Any, ...] | None = field(default=None, repr=False)

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
        }
        return {name: text for name, text in said.items() if text is not None}

    def take(self, index: NDArray[np.intp] | slice) -> Parameter:
        """The same parameter with the values at some positions."""
        objects = self.objects
        if objects is not None:
            objects = tuple(objects[i] for i in np.arange(self.size)[index])
        return replace(self, values=self.values[index], objects=objects)

    def handed(self, index: NDArray[np.intp]) -> list[Any]:
        """The values at some positions as the simulator gets them: Python scalars or arrays."""
        if self.objects is not None:
            return [self.objects[i] for i in index]
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


def kind_of(array: NDArray[Any]) -> Kind:
    """Kind of a canonical array of values."""
    return {"b": "bool", "O": "str", "M": "datetime", "m": "timedelta", "T": "str"}.get(
        array.dtype.kind, "number"
    )


def _tokens(array: NDArray[Any], kind: Kind) -> Iterable[bytes]:
    if array.ndim > 1:
        for row in array:
            yield b"v" + repr(row.shape).encode() + b"\1".join(_tokens(row.ravel(), kind))
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
        raise TypeError(f"{what} name {name!r} is a {type(name).__name__}; give a string")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            f"{what} name {name!r} is no identifier; use letters, digits and underscores, "
            f"such as {_identifier(name)!r}"
        )
    if name.startswith("__"):
        raise ValueError(f"{what} name {name!r} starts with two underscores; give another name")
    return name


def _identifier(name: str) -> str:
    letters = "".join(c if c.isalnum() or c == "_" else "_" for c in name).strip("_") or "x"
    letters = letters if not letters[0].isdigit() else f"x{letters}"
    return f"{letters}_" if keyword.iskeyword(letters) else letters


def parameter(name: str, given: Any) -> Parameter:
    """A parameter from a name and whatever a person gave as its values.

    Raises
    ------
    TypeError, ValueError
        If the values are of mixed or unsupported types, NaN or given twice; the message names
        the parameter, the value and what to do.
    """
    check_name(name, "parameter")
    said = given if isinstance(given, Values) else Values(given)
    data, dims = said.data, said.dims
    units, long_name, weights, role = said.units, said.long_name, said.weights, said.role
    attrs = getattr(data, "attrs", None)
    if isinstance(attrs, Mapping):
        units = units if units is not None else attrs.get("units")
        long_name = long_name if long_name is not None else attrs.get("long_name")
        weights = weights if weights is not None else attrs.get("weights")
        if not isinstance(given, Values) and attrs.get("role") in ROLES:
            role = attrs["role"]
        if dims is None and getattr(data, "ndim", 0) > 1 and hasattr(data, "dims"):
            dims = tuple(str(dim) for dim in data.dims)
    objects: tuple[Any, ...] | None = None
    if isinstance(data, Mapping):
        objects = tuple(data.values())
        data = _labels(name, data)
    array = canonical(name, data)
    dims = dims if dims is not None else (name,)
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
    return Parameter(name, array, dims, role, units, long_name, weights, objects)


def _labels(name: str, data: Mapping[Any, Any]) -> list[str]:
    for label in data:
        if not isinstance(label, str) or not label:
            raise TypeError(
                f"label {label!r} of parameter {name!r} is no string; "
                "a mapping gives labels to objects, as in {'pid': pid, 'lqr': lqr}"
            )
    return list(data)


def canonical(name: str, data: Any) -> NDArray[Any]:
    """Values as one of the dtypes that a parameter may have, or an error that names the misfit."""
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        data = [data]
    if isinstance(data, set | frozenset):
        raise TypeError(f"values of parameter {name!r} are a set, which has no order; give a list")
    dtype = getattr(data, "dtype", None)
    if dtype is not None and getattr(dtype, "tz", None) is not None:
        raise TypeError(
            f"values of parameter {name!r} carry the time zone {dtype.tz}; "
            "convert to UTC and drop it, as in .tz_convert(None)"
        )
    if isinstance(dtype, np.dtype):
        array = np.asarray(data)
    elif dtype is not None:  # a pandas extension type: take the values one by one
        array = _from_items(name, list(data))
    else:
        array = _from_items(name, list(data))
    return _settle(name, array)


def _from_items(name: str, items: list[Any]) -> NDArray[Any]:
    if items and all(isinstance(item, np.ndarray | list | tuple) for item in items):
        try:
            return np.asarray(items)
        except ValueError:
            raise ValueError(
                f"values of parameter {name!r} are sequences of different lengths; "
                "give them labels, as in sk.values({'short': [1, 2], 'long': [1, 2, 3]})"
            ) from None
    kinds = {_item_kind(name, item): item for item in items}
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
        return np.array([_nanoseconds(name, item) for item in items])
    if kind == "number" and any(isinstance(item, float | np.floating) for item in items):
        for item in items:
            if not isinstance(item, float | np.floating) and int(float(item)) != int(item):
                raise ValueError(
                    f"value {item!r} of parameter {name!r} is no exact float, "
                    "and the other values are floats; make them one type"
                )
            if isinstance(item, np.longdouble) and np.longdouble(float(item)) != item:
                _refuse_longdouble(name, item)
        return np.array([float(item) for item in items])
    return np.array(items)


def _item_kind(name: str, item: Any) -> Kind:
    if isinstance(item, bool | np.bool_):
        return "bool"
    if isinstance(item, enum.Enum):
        raise TypeError(_advice(name, item, "Enum member"))
    if isinstance(item, int | float | np.integer | np.floating):
        return "number"
    if isinstance(item, str):
        return "str"
    if isinstance(item, np.datetime64 | datetime.date):
        return "datetime"
    if isinstance(item, np.timedelta64 | datetime.timedelta):
        return "timedelta"
    if item is None:
        raise TypeError(
            f"a value of parameter {name!r} is None; give it a label with "
            "sk.values({'none': None, ...})"
        )
    if type(item).__name__ in ("NAType", "NaTType"):
        raise ValueError(f"a value of parameter {name!r} is missing ({item!r}); leave it out")
    what = {decimal.Decimal: "Decimal", complex: "complex number"}.get(type(item))
    if isinstance(item, os.PathLike):
        what = "path"
    raise TypeError(_advice(name, item, what or f"{type(item).__module__}.{type(item).__name__}"))


def _advice(name: str, item: object, what: str) -> str:
    shown = repr(item)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return (
        f"value {shown} of parameter {name!r} is a {what}, which is no coordinate value; "
        "give numbers, bools, strings or datetimes, or give each object a label with "
        "sk.values({'label': object, ...})"
    )


def _nanoseconds(name: str, item: Any) -> np.datetime64 | np.timedelta64:
    if getattr(item, "tzinfo", None) is not None:
        raise TypeError(
            f"value {item!s} of parameter {name!r} carries a time zone; "
            "convert to UTC and drop it, as in .astimezone(UTC).replace(tzinfo=None)"
        )
    if hasattr(item, "to_numpy") and hasattr(item, "nanosecond" if hasattr(item, "year") else "ns"):
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
        if array.dtype.itemsize > 8 and not np.array_equal(settled.astype(array.dtype), array):
            _refuse_longdouble(name, array.flat[0])
        if np.isnan(settled).any():
            raise ValueError(
                f"a value of parameter {name!r} is NaN, which equals nothing, itself included; "
                "leave it out, or stand a string or a label in for it"
            )
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


def _exact_nanoseconds(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if np.isnat(array).any():
        raise ValueError(f"a value of parameter {name!r} is NaT; leave it out")
    target = f"{array.dtype.kind}8[ns]"
    settled = array.astype(target)
    if not np.array_equal(settled.astype(array.dtype), array):
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
    ordered = np.sort(array)
    left, right = ordered[:-1], ordered[1:]
    with np.errstate(invalid="ignore"):
        close = (right > left) & (right - left <= 1e-13 * np.maximum(abs(left), abs(right)))
    return [(float(a), float(b)) for a, b in zip(left[close], right[close], strict=True)]

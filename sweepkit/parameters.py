"""What varies: the values of a parameter, their role, units and dims, and their identity."""

from __future__ import annotations

import copy
import enum
import hashlib
import keyword
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import Kind, canonical, cut, kind_of

__all__ = [
    "Parameter",
    "Values",
    "design",
    "parameter",
    "scenario",
    "values",
]

ROLES = ("design", "scenario", "replicate")
WEIGHTS = ("midpoint", "trapezoid")


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
            f"{cut(repr(given))} is a {type(given).__name__}; give a mapping from names, or "
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

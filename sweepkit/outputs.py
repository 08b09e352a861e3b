"""What is said of a simulator's outputs before the first run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import nanoseconds
from sweepkit.format1 import RESERVED
from sweepkit.parameters import check_name
from sweepkit.returned import dtype_name

__all__ = ["Output", "coordinate", "name_fault", "output"]


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
        name = None if dtype is None else dtype_name(np.dtype(dtype))
    except TypeError:
        name = None
    if dtype is not None and name is None:
        raise ValueError(f"dtype {dtype!r} of an output cannot be stored")
    along = {dim: coordinate(dim, values) for dim, values in (coords or {}).items()}
    for dim, array in along.items():
        if dim not in named:
            raise ValueError(f"coords are given along {dim!r}, which is no dim of the output")
        if sizes is None or sizes[named.index(dim)] != len(array):
            raise ValueError(f"coords along {dim!r} have {len(array)} values; say size= to match")
    return Output(named, sizes, named[0] if pad else None, name, units, long_name, along)


def coordinate(dim: str, given: Any) -> NDArray[Any]:
    """Values along a dim in a data type that is stored."""
    array = np.asarray(given)
    texts = array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat)
    name = "str" if texts else dtype_name(array.dtype)
    if array.ndim != 1 or name is None:
        raise ValueError(
            f"coords along {dim!r} are {array.dtype} of shape {array.shape}; give numbers, text "
            "or datetimes along one dim"
        )
    if name.endswith("[ns]"):
        try:
            return nanoseconds(array)
        except ValueError as fault:
            raise ValueError(f"coords along {dim!r} have a value that is {fault}") from None
    return array.astype(object) if name == "str" else array.astype(name)


def name_fault(name: object) -> str | None:
    """Why a string cannot name an output; None if it can."""
    try:
        checked = check_name(name, "output")
    except (TypeError, ValueError) as fault:
        return str(fault)
    if checked in RESERVED:
        return f"output {checked!r} has the name of a variable of the store; rename it"
    return None

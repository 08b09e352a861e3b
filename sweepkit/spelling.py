"""How a value is spelled: text that is the same for equal values, in every process and Python."""

from __future__ import annotations

import os
import re
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sweepkit.digest import digest_of
from sweepkit.objects import name_of, type_name

__all__ = ["Spelling", "TooLargeError"]

_MOST_ITEMS = 1_000_000
_DEEPEST = 60
_PANDAS_SCALARS = {"Timestamp", "Timedelta", "Period", "Interval", "NaTType", "NAType"}


class TooLargeError(Exception):
    """The value has too many items, or is nested too deeply, to be compared."""


class Spelling:
    """Canonical text of a value; what is not plain data goes to `other(value, path)`."""

    def __init__(
        self, other: Callable[[object, str], str] = lambda value, path: type_name(value)
    ) -> None:
        self.other = other
        self.n_left = _MOST_ITEMS
        self.open: list[int] = []

    def __call__(self, value: object, path: str = "") -> str:
        self.n_left -= 1
        if self.n_left < 0 or len(self.open) > _DEEPEST:
            raise TooLargeError
        kind = type(value)
        scalar = _scalar(kind, value)
        if scalar is not None:
            return scalar
        if id(value) in self.open:
            return f"cycle {len(self.open) - self.open.index(id(value))}"
        self.open.append(id(value))
        try:
            library = kind.__module__.partition(".")[0]
            text = None
            if library in ("builtins", "collections", "types", "functools"):
                text = self.container(kind, value, path)
            elif library == "numpy":
                text = self.array(kind, value, path)
            elif library in ("xarray", "pandas"):
                text = self.labelled(kind, value, path)
            return self.other(value, path) if text is None else text
        finally:
            self.open.pop()

    def items(self, values: Iterable[object], path: str) -> str:
        return ",".join([self(value, f"{path}[{i}]") for i, value in enumerate(values)])

    def container(self, kind: type, value: Any, path: str) -> str | None:
        """Text of a built-in container; read by the built-in type's own methods."""
        for ordered in (tuple, list, deque):
            if issubclass(kind, ordered):
                return f"{ordered.__name__}({self.items(ordered.__iter__(value), path)})"
        for unordered in (set, frozenset):
            if issubclass(kind, unordered):
                # By name, not number: the order of a set is another in every process.
                told = [self(v, f"{path}{{{_tag(v)}}}") for v in unordered.__iter__(value)]
                return f"set({','.join(sorted(told))})"
        if issubclass(kind, dict):
            pairs = []
            for key, item in dict.items(value):
                name = self(key, f"{path}{{{_tag(key)}}}") + _tag(key)
                pairs.append(f"{name}:{self(item, f'{path}[{name}]')}")
            if not issubclass(kind, OrderedDict):
                pairs.sort()
            factory = self(value.default_factory, path + ".factory") if kind is defaultdict else ""
            return f"dict{factory}({','.join(pairs)})"
        if kind is types.SimpleNamespace:
            return f"namespace({self(vars(value), path)})"
        if kind is slice:
            return f"slice({self.items((value.start, value.stop, value.step), path)})"
        return None

    def array(self, kind: type, value: Any, path: str) -> str | None:
        """Text of a NumPy array, by dtype, shape and bytes."""
        if issubclass(kind, np.dtype):
            return f"dtype {value!r}"
        if not issubclass(kind, np.ndarray):
            return None
        if value is np.ma.masked:  # whose fill value may not even be looked up
            return "masked"
        if issubclass(kind, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(value)
            return f"masked({self(value.filled(), path)},{self(mask, path)})"
        data = value.view(np.ndarray)
        if data.dtype.names:  # padding between fields holds anything
            return f"fields({self({name: data[name] for name in data.dtype.names}, path)})"
        if data.dtype.hasobject or data.dtype.kind == "T":
            return f"objects {data.shape}({self.items(data.ravel().tolist(), path)})"
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return f"array {data.dtype.str} {data.shape} {digest_of(raw.data)}"

    def labelled(self, kind: type, value: Any, path: str) -> str | None:
        """Text of an xarray or pandas object, by values and names, without attrs."""
        name = kind.__name__
        inside: tuple[object, ...]
        if name in ("DataArray", "Variable", "IndexVariable"):
            if value.chunks is not None:
                return None  # reading it would compute it
            coords = dict(value.coords.variables) if name == "DataArray" else {}
            label = value.name if name == "DataArray" else None
            inside = (label, value.dims, np.asarray(value.values), coords)
        elif name == "Dataset":
            if value.chunks:
                return None
            inside = (dict(value.variables), sorted(map(str, value.coords)))
        elif name == "DataFrame":
            columns = [(str(c.dtype), c.to_numpy()) for _, c in value.items()]
            inside = (value.columns, value.index, columns)
        elif name == "Series":
            inside = (value.name, str(value.dtype), value.index, value.to_numpy())
        elif name.endswith("Index"):
            inside = (list(value.names), str(value.dtype), value.to_numpy())
        else:
            return None
        return f"{name}({self(inside, path)})"


def _tag(value: object) -> str:
    return name_of(value) if type(value) in (types.FunctionType, type) else ""


def _scalar(kind: type, value: Any) -> str | None:
    """Text of a value without parts, the same in every process; None for anything else."""
    if value is None or value is Ellipsis or value is NotImplemented or kind is bool:
        return str(value)
    if kind is int:
        return hex(value)
    if kind is float:
        return float.hex(value)
    if kind is complex:
        return f"complex({value.real.hex()},{value.imag.hex()})"
    if kind is str:
        return ascii(value)
    if kind in (bytes, bytearray):
        return f"bytes {digest_of(bytes(value))}"
    if kind is range:
        return repr(value)
    if kind is re.Pattern:
        return f"pattern({value.pattern!a},{value.flags})"
    if issubclass(kind, np.generic) and kind.__module__ == "numpy":
        if issubclass(kind, (np.datetime64, np.timedelta64, np.longdouble, np.clongdouble)):
            return f"{value.dtype.str} {value!s}"
        if not issubclass(kind, np.void):
            plain = value.item()
            return _scalar(type(plain), plain)
    module = kind.__module__.partition(".")[0]
    if module == "datetime":
        zone = getattr(value, "tzinfo", None)
        if zone is None or type(zone).__module__ in ("datetime", "zoneinfo"):
            return repr(value)
    if module in ("zoneinfo", "decimal", "fractions", "uuid", "ipaddress"):
        return repr(value)
    if module == "pathlib":
        return f"path {os.fspath(value)!a}"
    if module == "pandas" and kind.__name__ in _PANDAS_SCALARS:
        return f"{kind.__name__} {value!r}"
    return None

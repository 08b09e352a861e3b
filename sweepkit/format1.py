"""The stored layout, format 1: names, encodings, attributes, versions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.parameters import Parameter
from sweepkit.status import NAMES, Status

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_RUNS",
    "FORMAT",
    "KEEPING",
    "Layout",
    "Variable",
    "block_bytes",
    "block_shape",
    "is_big",
    "subdivided",
]

FORMAT = 1
"""Version of the layout, stored as ``attrs["sweepkit_format"]``."""

ATTRIBUTE = "sweepkit"
"""Attribute with the declaration, one JSON string."""

CODECS = frozenset({"bytes", "vlen-utf8", "zstd", "crc32c", "sharding_indexed", "transpose"})
"""Encodings of a store; others, such as pickle, might run code when they are read."""

BLOCK_RUNS = 65_536
BLOCK_BYTES = 32 * 2**20
CHUNK_BYTES = 2**20
TEXT_RUNS = 256
ROOM = 1_024

WIDE_NOTE = "note"
WIDE_TEXT = (
    "holds integers beyond 2**53, so it is not shown as float64; unfinished runs read 0: "
    "look at status"
)
"""Attribute of variables whose integers a float64 cannot hold."""

ZARR_DTYPES = {
    "str": "string",
    "datetime64[ns]": "int64",
    "timedelta64[ns]": "int64",
}
NAT = -(2**63)
AXIS_GUARDS = {"float64": 1, "uint64": 2}
"""Guards of axes by data type: one that other numbers join is stored in another of the size."""


def is_big(size: int) -> bool:
    """Whether so many bytes of a run are a chunk of their own, which a worker may write."""
    return size > CHUNK_BYTES // 2


@dataclass(frozen=True)
class Variable:
    """One stored variable over all runs, without its values.

    Attributes
    ----------
    name : str
        An identifier.
    dtype : str
        A numpy dtype name, ``str``, ``datetime64[ns]`` or ``timedelta64[ns]``.
    dims, shape : tuple
        Its own dims, behind those of the runs.
    pad : str or None
        The own dim along which results may end early.
    attrs : mapping
        Units, long name.
    text : bool
        Whether it is chunked by few runs and rewritten only where text is new.
    guards : int
        Times it was stored in another data type before. So many checksums are within the
        compression, so that who opened it as it was gets an error and no other values.
    """

    name: str
    dtype: str
    dims: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    pad: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    text: bool = False
    guards: int = 0

    @property
    def stored_dtype(self) -> str:
        """Data type on disk."""
        return ZARR_DTYPES.get(self.dtype, self.dtype)

    @property
    def memory_dtype(self) -> np.dtype[Any]:
        """Data type of arrays in memory: strings are objects, datetimes their nanoseconds."""
        return np.dtype(object) if self.dtype == "str" else np.dtype(self.stored_dtype)

    @property
    def fill(self) -> Any:
        """Value of cells that nothing was written to; never shown as a result."""
        return fill_value(self.dtype)

    @property
    def stored_attrs(self) -> dict[str, Any]:
        """Attributes on disk, with the encoding of datetimes in CF terms."""
        return {**self.attrs, **encoding_attrs(self.dtype)}

    @property
    def bytes_per_run(self) -> int:
        """Size of one run's values in memory (strings by a guess of 16 bytes)."""
        item = 16 if self.dtype == "str" else self.memory_dtype.itemsize
        return item * math.prod(self.shape)

    @property
    def big(self) -> bool:
        """Whether each run has a chunk of its own, so that blocks need not hold it."""
        return bool(self.shape) and self.dtype != "str" and is_big(self.bytes_per_run)


def fill_value(dtype: str) -> Any:
    """Value of cells that nothing was written to, by data type."""
    if dtype == "str":
        return ""
    if dtype in ("datetime64[ns]", "timedelta64[ns]"):
        return NAT
    kind = np.dtype(dtype).kind
    if kind == "f":
        return float("nan")
    if kind == "c":
        return complex("nan+nanj")
    return False if kind == "b" else 0


def encoding_attrs(dtype: str) -> dict[str, str]:
    """CF attributes that let any reader decode a datetime or timedelta to the nanosecond."""
    if dtype == "datetime64[ns]":
        return {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
    if dtype == "timedelta64[ns]":
        return {"units": "nanoseconds", "dtype": "timedelta64[ns]"}
    return {}


STATUS = Variable(
    "status",
    "int8",
    attrs={
        "long_name": "what became of the run",
        "flag_values": [int(status) for status in Status],
        "flag_meanings": " ".join(NAMES),
    },
)
KEEPING: tuple[Variable, ...] = (
    STATUS,
    Variable("duration", "float64", attrs={"long_name": "time of the run", "units": "s"}),
    Variable("attempts", "int16", attrs={"long_name": "times the run was tried"}),
    Variable("code", "int16", attrs={"long_name": "version of the code that ran"}),
    Variable("log_size", "int32", attrs={"long_name": "characters in the log"}),
    Variable("error", "str", attrs={"long_name": "error in one line"}, text=True),
    Variable("log", "str", attrs={"long_name": "captured output and traceback"}, text=True),
)
"""What the store keeps of every run beside its outputs."""

RESERVED = frozenset(variable.name for variable in KEEPING)


def coordinate(one: Parameter) -> Variable:
    """A parameter as it is stored."""
    dtype = stored_name(one.values)
    guards = AXIS_GUARDS.get(dtype, 0)
    return Variable(one.name, dtype, one.dims, one.values.shape, attrs=one.attrs, guards=guards)


def stored_name(values: NDArray[Any]) -> str:
    """Name of the data type in which values in memory are stored."""
    kinds = {"M": "datetime64[ns]", "m": "timedelta64[ns]", "O": "str", "U": "str", "T": "str"}
    return kinds.get(values.dtype.kind, values.dtype.name)


def stored(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Values in memory as they go to disk."""
    if dtype in ("datetime64[ns]", "timedelta64[ns]"):
        return values.astype(dtype).astype("int64")
    if dtype == "str":
        return values.astype(np.dtypes.StringDType())
    return values


def axis(said: Mapping[str, Any], values: NDArray[Any]) -> Parameter:
    """A parameter from what a declaration says of it and its values on disk."""
    if values.dtype.kind in "UT":
        values = values.astype(object)
    if said["kind"] in ("datetime", "timedelta"):
        values = values.astype(f"{said['kind']}64[ns]")
    return Parameter(
        said["name"],
        values,
        tuple(said["dims"]),
        said.get("role", "design"),
        said.get("units"),
        said.get("long_name"),
        said.get("weights"),
        tuple(values.tolist()) if said["kind"] == "label" else None,
        said.get("sampled"),
    )


def was_from_json(declaration: Mapping[str, Any]) -> dict[str, Parameter]:
    """The values told when parameters joined, from a stored declaration."""
    made = {}
    roles = {said["name"]: said for said in declaration["parameters"]}
    for name, said in declaration.get("was", {}).items():
        kinds = {"datetime": "datetime64[ns]", "timedelta": "timedelta64[ns]"}
        value = said["value"]
        if said["kind"] in kinds:
            values = np.array([value], dtype="int64").astype(kinds[said["kind"]])
        elif said["kind"] in ("str", "label"):
            values = np.array([value], dtype=object)
        else:
            values = np.array([value])
        objects = (value,) if said["kind"] == "label" else None
        dims = tuple(roles[name]["dims"]) if name in roles else (name,)
        made[name] = Parameter(name, values, dims, objects=objects)
    return made


def length_variable(of: Variable) -> Variable:
    """The variable with the lengths of a padded output."""
    return Variable(
        f"{of.name}_length",
        "int32",
        attrs={"long_name": f"entries of {of.name} along {of.pad}", "length_of": of.name},
    )


@dataclass(frozen=True)
class Layout:
    """Where runs lie in a store.

    Attributes
    ----------
    sizes : mapping of str to int
        Positions along each dim, in order of arrival.
    block : tuple of int
        Runs along each dim of a block, one chunk of the scalars.
    variables : mapping of str to Variable
        Everything stored per run.
    coords : mapping of str to array
        Coordinates along outputs' own dims, the same for all runs: strings as objects, datetimes
        and timedeltas in nanoseconds.
    """

    sizes: Mapping[str, int]
    block: tuple[int, ...]
    variables: Mapping[str, Variable]
    coords: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the run dims."""
        return tuple(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Positions along each run dim."""
        return tuple(self.sizes.values())

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks along each dim."""
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block, strict=True))

    @property
    def n_blocks(self) -> int:
        """Blocks in all."""
        return math.prod(self.blocks)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The variables that the simulator returned, without lengths and bookkeeping."""
        return tuple(
            v
            for v in self.variables.values()
            if v.name not in RESERVED and "length_of" not in v.attrs
        )

    def box(self, block: int) -> tuple[slice, ...]:
        """Positions of a block along each dim, clipped to the store."""
        at = np.unravel_index(block, self.blocks) if self.blocks else ()
        return tuple(
            slice(int(i) * b, min((int(i) + 1) * b, n))
            for i, b, n in zip(at, self.block, self.shape, strict=True)
        )

    def pieces(self, variable: Variable, block: int) -> Iterator[tuple[slice, ...]]:
        """Boxes of a block in which a variable can be held: the block, or runs if it is big."""
        box = self.box(block)
        if not variable.big:
            yield box
            return
        for corner in product(*(range(part.start, part.stop) for part in box)):
            yield tuple(slice(at, at + 1) for at in corner)

    def chunk_index(self, variable: Variable, box: tuple[slice, ...]) -> tuple[int, ...]:
        """Index in the store of the chunk of a variable in which a box begins."""
        extents = self.chunk(variable)
        along = (part.start // extent for part, extent in zip(box, extents, strict=True))
        return (*along, *(0 for _ in variable.shape))

    def chunk(self, variable: Variable) -> tuple[int, ...]:
        """Runs along each dim of one chunk of a variable: an integer subdivision of a block."""
        if variable.text:
            return subdivided(self.block, TEXT_RUNS)
        if variable.shape:
            return subdivided(self.block, max(1, CHUNK_BYTES // max(variable.bytes_per_run, 1)))
        return self.block


def layout_json(layout: Layout) -> dict[str, Any]:
    """The part of a declaration that tells the layout."""
    return {
        "stored": {
            "sizes": dict(layout.sizes),
            "block": list(layout.block),
            "coords": sorted(layout.coords),
            "outputs": [
                {
                    "name": v.name,
                    "dtype": v.dtype,
                    "dims": list(v.dims),
                    "shape": list(v.shape),
                    "pad": v.pad,
                    "attrs": dict(v.attrs),
                    **({"guards": v.guards} if v.guards else {}),
                }
                for v in layout.variables.values()
                if v.name not in RESERVED
            ],
        }
    }


def layout_of(declaration: Mapping[str, Any]) -> Layout:
    """The layout that a declaration tells."""
    said = declaration["stored"]
    variables = {variable.name: variable for variable in KEEPING}
    for one in said["outputs"]:
        variables[one["name"]] = Variable(
            one["name"],
            one["dtype"],
            tuple(one["dims"]),
            tuple(one["shape"]),
            one["pad"],
            one["attrs"],
            guards=one.get("guards", 0),
        )
    return Layout(said["sizes"], tuple(said["block"]), variables)


def subdivided(block: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """A box of at most ``limit`` runs that divides a block evenly along each dim."""
    chunk = list(block)
    for at, extent in enumerate(block):
        others = math.prod(chunk) // extent
        if others * extent <= limit:
            break
        room = max(1, limit // others)
        chunk[at] = max(d for d in range(1, room + 1) if extent % d == 0)
    return tuple(chunk)


def block_bytes(variables: Iterable[Variable]) -> int:
    """Size of what a block holds in memory of one run."""
    return sum(variable.bytes_per_run for variable in variables if not variable.big)


def block_shape(shape: tuple[int, ...], bytes_per_run: int) -> tuple[int, ...]:
    """Runs along each dim of a block: the last dims whole, the first that does not fit cut.

    A block holds at most 65,536 runs and about 32 MB. Long extents are rounded so that
    they divide well, and a small store gets room to grow into its first block.
    """
    limit = int(max(1, min(BLOCK_RUNS, BLOCK_BYTES // max(bytes_per_run, 1))))
    block = [1] * len(shape)
    taken = 1
    for at in range(len(shape) - 1, -1, -1):
        room = limit // taken
        if room <= 1:
            break
        if shape[at] <= room:
            rounded = _divisible(shape[at], up=True)
            block[at] = rounded if rounded <= room else shape[at]
        else:
            pieces = -(-shape[at] // _divisible(room, up=False))
            rounded = _divisible(-(-shape[at] // pieces), up=True)
            block[at] = rounded if rounded <= room else _divisible(room, up=False)
        taken *= block[at]
    while block and math.prod(block) * 2 <= min(limit, ROOM):
        at = block.index(min(block))
        block[at] *= 2
    return tuple(block)


def _divisible(extent: int, *, up: bool) -> int:
    step = 256 if extent > 1024 else 16 if extent > 64 else 1
    return -(-extent // step) * step if up else extent // step * step


def same_values(stored: NDArray[Any], given: NDArray[Any]) -> bool:
    """Whether two axes hold equal values in the same order."""
    return stored.shape == given.shape and bool(np.all(stored == given))

"""Blocks under way: results gathered in memory until a block, or what is new of it, is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sweepkit.format1 import Layout, Variable
from sweepkit.parcels import Parcel
from sweepkit.status import Status

__all__ = ["Blocks", "Cells"]

Box = tuple[slice, ...]


class Boxes(Protocol):
    """What blocks are written to: the part of a Store that moves values."""

    @property
    def layout(self) -> Layout:
        """Where runs lie."""

    def read(self, name: str, box: Box) -> NDArray[Any]:
        """Values of a variable in a box of runs."""

    def write(self, name: str, box: Box, values: NDArray[Any]) -> None:
        """Write values to a box of whole chunks."""

    def deliver(self, name: str, index: tuple[int, ...], parcel: Parcel) -> None:
        """Make what a worker has written the chunk of a variable."""


@dataclass(frozen=True)
class Cells:
    """Results for some cells of a block, typed as the store has them.

    Attributes
    ----------
    cells : array of int, shape (n,)
        Flat positions in the block's box.
    values : mapping of str to (rows, array)
        Values of variables for some rows, or all where rows is None.
    texts : mapping of str to mapping of int to str
        Texts of ``error`` and ``log`` by row.
    tries : int
        How often the runs were begun for these results.
    parcels : mapping of str to (rows, array of Parcel)
        What workers have written themselves, by variable.
    """

    cells: NDArray[np.int64]
    status: NDArray[np.int8]
    values: Mapping[str, tuple[NDArray[np.intp] | None, NDArray[Any]]]
    texts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    tries: int = 1
    parcels: Mapping[str, tuple[NDArray[np.intp], NDArray[Any]]] = field(default_factory=dict)


@dataclass
class _Chunked:
    """The chunks of one variable within a block: those in memory, and those not yet written."""

    variable: Variable
    extents: tuple[int, ...]
    held: dict[int, NDArray[Any]] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)


class Block:
    """One block: status and values in memory, written whole, status last."""

    def __init__(self, store: Boxes, number: int) -> None:
        self.store = store
        self.box = store.layout.box(number)
        self.shape = tuple(part.stop - part.start for part in self.box)
        self.size = math.prod(self.shape)
        self.status = np.ascontiguousarray(store.read("status", self.box)).ravel().astype(np.int8)
        self.attempts = np.array(self._read_scalar("attempts"), dtype=np.int16)
        self.tried = self.attempts > 0
        self.fresh = not self.status.any()
        self.dirty = False
        self._chunked = {
            v.name: _Chunked(v, store.layout.chunk(v))
            for v in store.layout.variables.values()
            if v.name != "status"
        }

    def _read_scalar(self, name: str) -> NDArray[Any]:
        return np.ascontiguousarray(self.store.read(name, self.box)).ravel()

    # --- chunks of a variable ---

    def _split(self, extents: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-n // e) for n, e in zip(self.shape, extents, strict=True))

    def _chunk_box(self, extents: tuple[int, ...], number: int) -> Box:
        """Box of a chunk within the block."""
        at = np.unravel_index(number, self._split(extents)) if extents else ()
        return tuple(
            slice(int(i) * e, min((int(i) + 1) * e, n))
            for i, e, n in zip(at, extents, self.shape, strict=True)
        )

    def _absolute(self, box: Box) -> Box:
        return tuple(
            slice(part.start + whole.start, part.stop + whole.start)
            for part, whole in zip(box, self.box, strict=True)
        )

    def _where(
        self, chunked: _Chunked, cells: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of the chunk of each cell and its flat position in it."""
        at = np.unravel_index(cells, self.shape)
        outer = tuple(a // e for a, e in zip(at, chunked.extents, strict=True))
        numbers = np.ravel_multi_index(outer, self._split(chunked.extents))
        inner = np.empty(len(cells), dtype=np.int64)
        for number in np.unique(numbers):
            mine = numbers == number
            box = self._chunk_box(chunked.extents, int(number))
            shape = tuple(part.stop - part.start for part in box)
            local = tuple(a[mine] - part.start for a, part in zip(at, box, strict=True))
            inner[mine] = np.ravel_multi_index(local, shape)
        return numbers.astype(np.int64), inner

    def _hold(self, chunked: _Chunked, number: int) -> NDArray[Any]:
        """A chunk's values in memory, flat over its runs; read back if any of them counts."""
        if number in chunked.held:
            return chunked.held[number]
        variable = chunked.variable
        box = self._chunk_box(chunked.extents, number)
        shape = tuple(part.stop - part.start for part in box)
        count = math.prod(shape)
        mine = self.status.reshape(self.shape)[box]
        if not self.fresh and mine.any():
            read = self.store.read(variable.name, self._absolute(box))
            values = np.array(read, dtype=variable.memory_dtype).reshape(count, *variable.shape)
        else:
            values = np.full((count, *variable.shape), variable.fill, dtype=variable.memory_dtype)
        chunked.held[number] = values
        return values

    # --- filling and writing ---

    def put(self, given: Cells) -> None:
        """Take results into memory."""
        cells = given.cells
        for name, (rows, values) in given.values.items():
            chunked = self._chunked[name]
            target = cells if rows is None else cells[rows]
            if chunked.extents == self.store.layout.block:
                self._hold(chunked, 0)[target] = values
                chunked.dirty.add(0)
                continue
            numbers, inner = self._where(chunked, target)
            for number in np.unique(numbers):
                mine = numbers == number
                self._hold(chunked, int(number))[inner[mine]] = values[mine]
                chunked.dirty.add(int(number))
        for name, (these, parcels) in given.parcels.items():
            self._deliver(self._chunked[name], cells[these], parcels)
        for name, texts in given.texts.items():
            chunked = self._chunked[name]
            stale = np.flatnonzero(self.tried[cells]).tolist() if self.tried.any() else []
            all_texts = {**dict.fromkeys(stale, ""), **texts}
            if not all_texts:
                continue
            at = np.array(list(all_texts), dtype=np.intp)
            numbers, inner = self._where(chunked, cells[at])
            for number, position, text in zip(numbers, inner, all_texts.values(), strict=True):
                self._hold(chunked, int(number))[position] = text
                chunked.dirty.add(int(number))
        for chunked in self._chunked.values():
            if "derived" in chunked.variable.attrs:
                self._empty(chunked, cells)
        chunked = self._chunked["attempts"]
        self.attempts[cells] += given.tries
        self.tried[cells] = True
        chunked.held[0] = self.attempts
        chunked.dirty.add(0)
        self.status[cells] = given.status
        self.dirty = True

    def _deliver(self, chunked: _Chunked, cells: NDArray[np.int64], parcels: NDArray[Any]) -> None:
        """Have what workers have written put in its place: data first, the status follows."""
        numbers, _ = self._where(chunked, cells)
        for number, parcel in zip(numbers.tolist(), parcels, strict=True):
            box = self._absolute(self._chunk_box(chunked.extents, number))
            index = self.store.layout.chunk_index(chunked.variable, box)
            self.store.deliver(chunked.variable.name, index, parcel)
            chunked.held.pop(number, None)
            chunked.dirty.discard(number)

    def _empty(self, chunked: _Chunked, cells: NDArray[np.int64]) -> None:
        """Forget what was derived from other results of some runs."""
        numbers, inner = self._where(chunked, cells)
        for number in np.unique(numbers):
            values = self._hold(chunked, int(number))
            values[inner[numbers == number]] = chunked.variable.fill
            chunked.dirty.add(int(number))

    def mark(self, cells: NDArray[np.int64], status: Status) -> None:
        """Set the status of cells that are not run."""
        if len(cells) and (self.status[cells] != status).any():
            self.status[cells] = status
            self.dirty = True

    def flush(self) -> int:
        """Write what is new, status last; returns how many chunks were written."""
        return sum(1 for _ in self.writes())

    def writes(self) -> Iterator[None]:
        """Write what is new, status last, chunk by chunk; nothing may be put in meanwhile.

        A block that holds nothing yet has its status written first too: where values are and no
        status is, it was lost, and is not that of a writer killed between the two.
        """
        if not self.dirty:
            return
        if self._first:
            self.store.write("status", self.box, np.zeros(self.shape, dtype=np.int8))
            yield
        for chunked in self._chunked.values():
            for number in sorted(chunked.dirty):
                box = self._chunk_box(chunked.extents, number)
                shape = tuple(part.stop - part.start for part in box)
                values = chunked.held[number].reshape(shape + chunked.variable.shape)
                if chunked.variable.dtype == "str":
                    values = values.astype(np.dtypes.StringDType())
                whole = tuple(slice(0, n) for n in chunked.variable.shape)
                self.store.write(chunked.variable.name, self._absolute(box) + whole, values)
                yield
            chunked.dirty.clear()
            if chunked.variable.shape or chunked.variable.text:
                self._forget_full(chunked)
        self.store.write("status", self.box, self.status.reshape(self.shape))
        self.dirty = False
        self.fresh = False
        yield

    @property
    def unwritten(self) -> int:
        """Chunks that are to be written."""
        dirty = sum(len(one.dirty) for one in self._chunked.values())
        return dirty + self.dirty + self._first

    @property
    def _first(self) -> bool:
        """Whether the first values of the block are to be written."""
        return self.fresh and any(one.dirty for one in self._chunked.values())

    def _forget_full(self, chunked: _Chunked) -> None:
        """Let go of large chunks of which every run is settled."""
        for number in list(chunked.held):
            box = self._chunk_box(chunked.extents, number)
            if (self.status.reshape(self.shape)[box] != Status.PENDING).all():
                del chunked.held[number]

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.status.nbytes + sum(
            values.nbytes for one in self._chunked.values() for values in one.held.values()
        )


@dataclass
class Blocks:
    """The blocks that are open in memory.

    Attributes
    ----------
    store : Store
        Where they are written.
    expected : mapping of int to int
        Runs of each block that are still to come in this session; a block is written and let go
        when there are none.
    """

    store: Boxes
    open: dict[int, Block] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)
    _leaving: dict[int, tuple[Block, Iterator[None]]] = field(default_factory=dict)

    def get(self, number: int) -> Block:
        """A block, read from the store if it is not open."""
        if number in self._leaving:
            self._leave(number)
        if number not in self.open:
            self.open[number] = Block(self.store, number)
        return self.open[number]

    def put(self, number: int, given: Cells) -> None:
        """Take results; a block that is complete is let go, to be written by ``step``."""
        block = self.get(number)
        block.put(given)
        left = self.expected.get(number)
        if left is not None:
            self.expected[number] = left - len(given.cells)
            if self.expected[number] <= 0:
                self.settle(number)

    def settle(self, number: int) -> None:
        """Let a block go of which nothing more is expected."""
        block = self.open.pop(number)
        self.expected.pop(number, None)
        if block.dirty:
            self._leaving[number] = block, block.writes()

    def step(self) -> bool:
        """Write one chunk of the blocks let go; whether there was one.

        A whole block takes so long to write that fast runs would wait for the driver meanwhile.
        """
        while self._leaving:
            number, (block, writes) = next(iter(self._leaving.items()))
            if next(writes, self) is None:
                return True
            del self._leaving[number]
            if block.dirty:  # an interrupt ended the writing
                self._leaving[number] = block, block.writes()
        return False

    @property
    def leaving(self) -> int:
        """Blocks let go that are not wholly written."""
        return len(self._leaving)

    def _leave(self, number: int) -> int:
        block, writes = self._leaving[number]
        written = sum(1 for _ in writes) + block.flush()
        del self._leaving[number]
        return written

    def trim(self) -> None:
        """Write blocks that are not being filled, and let them go."""
        for number in [one for one in self.open if one not in self.expected]:
            self.settle(number)
        self.drain()

    def drain(self) -> int:
        """Write the blocks let go; returns the chunks written."""
        return sum(self._leave(number) for number in list(self._leaving))

    @property
    def nbytes(self) -> int:
        """Memory held."""
        leaving = sum(block.nbytes for block, _ in self._leaving.values())
        return leaving + sum(block.nbytes for block in self.open.values())

    @property
    def unwritten(self) -> int:
        """Chunks of open blocks that are to be written."""
        return sum(block.unwritten for block in self.open.values())

    def flush(self) -> int:
        """Write everything new; blocks stay open. Returns the chunks written."""
        return self.drain() + sum(block.flush() for block in self.open.values())

    def close(self) -> None:
        """Write everything new and let go."""
        self.flush()
        self.open.clear()
        self.expected.clear()

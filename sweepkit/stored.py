"""A store as it was opened: its arrays on disk, their chunks, and what became of its runs.

All variables of a Dataset share one record of the statuses: that of a block is read before any
value of its runs, and kept. So what is shown as done has its values, also while the store is being
written, and what counts as done and has lost its chunk is told instead of shown as a fill value.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.files import Stamp, present, read_bytes, stamps
from sweepkit.places import Where, beneath, place
from sweepkit.root import (
    FAULTS,
    DamagedError,
    OutdatedError,
    checked,
    layout_words,
    next_call,
    root_bytes,
    side_folder,
)
from sweepkit.status import Status

__all__ = ["Box", "Place", "Statuses", "Stored", "stamp"]

Box: TypeAlias = tuple[slice, ...]
Index: TypeAlias = tuple[int, ...]


def stamp(path: Where) -> Stamp:
    """What tells a file from the one that replaces it; None where there is none, or a folder."""
    return stamps([path])[0]


class Place:
    """A store as it was opened.

    Parameters
    ----------
    path : str or KeyPath
        Of the store.
    metadata : mapping
        Of its arrays, as its root lists them.
    seen : stamp
        Of the root, from before it was read.
    """

    def __init__(self, path: Where, metadata: Mapping[str, Any], seen: Stamp) -> None:
        self.path = path
        self.metadata = metadata
        self._seen = seen

    @property
    def root(self) -> Where:
        """Path of the root."""
        return beneath(self.path, "zarr.json")

    def check(self, name: str) -> None:
        """Refuse values of an array made anew since: decoded as before, they are other values.

        Raises
        ------
        OutdatedError
            If the store is another, or the array lies or is typed otherwise.
        DamagedError
            If the root cannot be read any more.
        """
        now = stamp(self.root)
        if now == self._seen:
            return
        if now is None:
            raise OutdatedError(
                f"{self.path} was moved, removed or is being replaced since this Dataset was "
                "opened; open it again with sk.open"
            )
        where = place(self.path)
        copy = read_bytes(side_folder(where) / "root.json")
        root = checked(root_bytes(where), self.path, copy)
        listed = root["consolidated_metadata"]["metadata"]
        if layout_words(listed.get(name)) != layout_words(self.metadata[name]):
            raise OutdatedError(
                f"{self.path}: variable {name!r} was stored anew since this Dataset was "
                "opened, in another layout or data type; open it again with sk.open"
            )
        if all(layout_words(listed.get(n)) == layout_words(m) for n, m in self.metadata.items()):
            self._seen = now


class Stored:
    """One variable as it lies on disk, read by boxes.

    Parameters
    ----------
    place : Place
    name : str
    variable : Variable
        As xarray opens it.
    run_dims : sequence of str
        Dims along which runs lie; the first ones of the variable.
    """

    def __init__(
        self, place: Place, name: str, variable: xr.Variable, run_dims: Sequence[str]
    ) -> None:
        self.place = place
        self.name = name
        self.variable = variable
        self.dims = tuple(map(str, variable.dims))
        self.shape = variable.shape
        self.attrs = variable.attrs
        self.dtype: np.dtype[Any] = variable.dtype
        chunks = place.metadata[name]["chunk_grid"]["configuration"]["chunk_shape"]
        self.extents: Index = tuple(map(int, chunks))
        self.run_dims = tuple(dim for dim in self.dims if dim in run_dims)

    def read(self, box: Box) -> NDArray[Any]:
        """Values in a box.

        Raises
        ------
        DamagedError
            If they cannot be decoded; names the variable, the runs and what to do.
        OutdatedError
            If the store was made anew since it was opened.
        """
        try:
            values = np.asarray(self.variable[box].values)
        except FAULTS as fault:
            self.place.check(self.name)
            runs = self._positions(box)
            told = f" in some of the runs at positions {runs} on disk" if runs else ""
            raise DamagedError(
                f"{self.place.path}: variable {self.name!r} is damaged{told} ({fault}); "
                f"{self.way_on()}"
            ) from fault
        self.place.check(self.name)
        return values

    def way_on(self) -> str:
        """What to do about damage."""
        if "derived" in self.attrs:
            return "compute it again with sk.derive"
        return (
            f"sk.verify({str(self.place.path)!r}) names everything that is missing or damaged, and "
            f"{next_call(self.place.path)} restores or computes just that again"
        )

    def chunk(self, index: Index) -> Where:
        """Path of a chunk."""
        return beneath(self.place.path, self.name, "c", *map(str, index))

    def indices(self, box: Box) -> list[Index]:
        """Chunks along the run dims that a box touches."""
        spans = [
            range(part.start // e, -(-part.stop // e)) if part.start < part.stop else range(0)
            for part, e in zip(box, self.extents, strict=False)
        ]
        return list(itertools.product(*spans))

    def chunk_box(self, index: Index) -> Box:
        """Runs of a chunk, clipped to what there is."""
        return tuple(
            slice(i * e, min((i + 1) * e, n))
            for i, e, n in zip(index, self.extents, self.shape, strict=False)
        )

    def demand(self, needed: NDArray[np.bool_], box: Box) -> None:
        """See that the chunks of runs that have a value here are there.

        Parameters
        ----------
        needed : array of bool
            Over the box of runs.
        box : tuple of slice
            Along the run dims.

        Raises
        ------
        DamagedError
            If one is missing; names the file, the variable and the runs.
        """
        if not needed.any() or 0 in self.shape:  # an array of no size has no chunks
            return
        own = (0,) * (len(self.shape) - len(box))
        first = [part.start // e for part, e in zip(box, self.extents, strict=False)]
        for axis, (part, e) in enumerate(zip(box, self.extents, strict=False)):
            edges = range(part.start // e, -(-part.stop // e))
            needed = np.logical_or.reduceat(
                needed, [max(at * e, part.start) - part.start for at in edges], axis=axis
            )
        indices = [
            tuple(int(a + f) for a, f in zip(at, first, strict=True)) for at in np.argwhere(needed)
        ]
        there = present([self.chunk((*index, *own)) for index in indices])
        for index, found in zip(indices, there, strict=True):
            if not found:
                self.place.check(self.name)
                raise self.lost(index, own)

    def _positions(self, box: Box) -> str:
        """A box of runs in words."""
        return ", ".join(
            f"{dim} {part.start}"
            if part.stop - part.start == 1
            else f"{dim} {part.start} to {part.stop - 1}"
            for dim, part in zip(self.run_dims, box, strict=False)
        )

    def lost(self, index: Index, own: Index = ()) -> DamagedError:
        """The error for a chunk that is gone though runs that ended are in it."""
        runs = self._positions(self.chunk_box(index))
        return DamagedError(
            f"{self.place.path}: a chunk of variable {self.name!r} is missing, "
            f"{self.chunk((*index, *own))}, with values of runs that ended, at positions {runs} "
            f"on disk; {self.way_on()}"
        )


class Statuses:
    """What became of each run, block by block as it was first looked at in this Dataset.

    Parameters
    ----------
    stored : Stored
        The status on disk.
    witnesses : sequence of Stored
        Variables of the same chunks that are written after a block's status was first, and before
        any of its runs counts as ended: where they have a chunk, a missing status is lost.
    """

    def __init__(self, stored: Stored, witnesses: Sequence[Stored]) -> None:
        self.stored = stored
        self._witnesses = witnesses
        self._seen = np.zeros(stored.shape, dtype=np.int8)
        self._known: dict[Index, Stamp] = {}
        self._confirmed: dict[Index, Stamp] = {}
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            kept = ("stored", "_witnesses", "_seen", "_known", "_confirmed")
            return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def seen(self, box: Box) -> NDArray[np.int8]:
        """Statuses in a box of runs.

        Raises
        ------
        DamagedError
            If those of a block are lost.
        """
        with self._lock:
            new = [one for one in self.stored.indices(box) if one not in self._known]
            if new:
                self._look(new)
            return self._seen[box]

    def _look(self, new: Sequence[Index]) -> None:
        marks = dict(zip(new, stamps([self.stored.chunk(one) for one in new]), strict=True))
        boxes = {one: self.stored.chunk_box(one) for one in new}
        hull = tuple(
            slice(min(p.start for p in parts), max(p.stop for p in parts))
            for parts in zip(*boxes.values(), strict=True)
        )
        values = self.stored.read(hull)
        for one, part in boxes.items():
            if marks[one] is None:
                self._check_never_written(one)
            inner = tuple(
                slice(p.start - h.start, p.stop - h.start) for p, h in zip(part, hull, strict=True)
            )
            self._seen[part] = values[inner]
        self._known |= marks
        self._confirmed |= marks

    def _check_never_written(self, index: Index) -> None:
        witnesses = [one.chunk(index) for one in self._witnesses]
        if any(present(witnesses)) and not present([self.stored.chunk(index)])[0]:
            raise self.stored.lost(index)

    def stamps(self, box: Box) -> list[Stamp]:
        """What tells the statuses on disk now from others."""
        return stamps([self.stored.chunk(one) for one in self.stored.indices(box)])

    def confirm(self, box: Box) -> list[Stamp]:
        """See that what was done is so on disk now; returns its stamps from before.

        Raises
        ------
        OutdatedError
            If runs that were done have been set back, so that their values may be others.
        """
        with self._lock:
            marks = self.stamps(box)
            for one, now in zip(self.stored.indices(box), marks, strict=True):
                if now == self._confirmed[one]:
                    continue
                if now is None:
                    raise self.stored.lost(one)
                part = self.stored.chunk_box(one)
                status = self.stored.read(part)
                if ((self._seen[part] == Status.DONE) & (status != Status.DONE)).any():
                    raise OutdatedError(
                        f"{self.stored.place.path}: runs that were done are being run again since "
                        "this Dataset was opened; open it again with sk.open"
                    )
                self._confirmed[one] = now
            return marks

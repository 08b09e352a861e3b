"""What is done to a store beside running: damage found and undone, outputs computed later."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.format1 import (
    RESERVED,
    WIDE_NOTE,
    WIDE_TEXT,
    Layout,
    Variable,
    stored,
    stored_name,
)
from sweepkit.outputs import name_fault
from sweepkit.protocols import Store, StoreError, UnreachableError
from sweepkit.root import next_call
from sweepkit.status import Status

__all__ = ["Damage", "add_derived", "damage", "restore"]

Box = tuple[slice, ...]
DAMAGED = "damaged.json"
ENDED_BADLY = (Status.ERROR, Status.TIMEOUT, Status.CRASHED, Status.INVALID)


@dataclass(frozen=True)
class Damage:
    """A chunk that cannot be read, with the runs that lost a value by it.

    Attributes
    ----------
    variable : str
        Whose chunk it is.
    box : tuple of slice
        Positions on disk along each dim.
    runs : int
        Finished runs in it.
    where : str
        The box in words.
    reason : str
        What is wrong with it.
    """

    variable: str
    box: Box
    runs: int
    where: str
    reason: str


def damage(store: Store) -> list[Damage]:
    """Read everything that counts as done; note beside the store what cannot be read.

    Raises
    ------
    StoreError
        If there is no sweep, or its root is damaged.
    """
    store.peek()
    found = list(_damaged(store, thorough=True))
    comes_back = f"; {next_call(store.path)} restores it"
    restored = [
        Damage(name, (), 0, f"all of it{comes_back}", reason)
        for name, reason in store.damaged_metadata().items()
    ]
    for name, reason in store.damaged_axes().items():
        way = comes_back if store.restorable(name) else ", to be put back"
        restored.append(Damage(name, (), 0, f"all of it{way}", reason))
    rerun = [one for one in found if not _derived(store.layout, one.variable)]
    boxes = [
        {"variable": one.variable, "box": [[part.start, part.stop] for part in one.box]}
        for one in rerun
    ]
    with suppress(OSError, UnreachableError):
        store.set_memo(DAMAGED, json.dumps(boxes) if boxes else None)
    return restored + found


def restore(store: Store) -> int:
    """Set runs that lost a value back to pending; returns how many there were.

    Chunks that are gone are noticed here, and statuses that cannot be decoded, whose runs are then
    pending; so are other chunks that do not fit their checksums, where looking costs little. In a
    large store, or behind a network, those are known from :func:`damage`, which reads them.
    """
    noted = _noted(store)
    layout = store.layout
    count = 0
    for block in range(layout.n_blocks):
        box = layout.box(block)
        hit = [one for one in noted if _overlap(one[1], box) is not None]
        readable = not _status_lost(store, box)
        try:
            status = store.read("status", box)
        except UnreachableError:
            raise
        except StoreError as fault:
            if not hit and isinstance(fault.__cause__, OSError | None):
                raise  # not damaged: it cannot be reached now
            readable = False
            status = np.zeros([part.stop - part.start for part in box], dtype=np.int8)
        missing = list(_damaged_in(store, block, status, thorough=False))
        hit += [(m.variable, m.box) for m in missing if not _derived(layout, m.variable)]
        before = int((status != Status.PENDING).sum())
        emptied = _set_back(store, box, status, hit)
        lost = before - int((status != Status.PENDING).sum())
        if lost or not readable:
            store.write("status", box, status)
        emptied += [(m.variable, m.box) for m in missing if _derived(layout, m.variable)]
        for name, chunk in emptied:
            _write_nothing(store, layout.variables[name], chunk)
        if hit and not status.any():
            store.write("attempts", box, np.zeros(status.shape, dtype=np.int16))
        elif not readable:  # they may be damaged likewise
            store.write("attempts", box, _quiet_read(store, "attempts", box).astype(np.int16))
        count += lost
    store.set_memo(DAMAGED, None)
    return count


def _noted(store: Store) -> list[tuple[str, Box]]:
    """Variables and boxes that were found damaged, as noted beside the store."""
    noted: list[tuple[str, Box]] = []
    with suppress(ValueError):
        for one in json.loads(store.memo(DAMAGED) or "[]"):
            # A list is an older note, without the variable: all runs in it are run again.
            name, box = (one["variable"], one["box"]) if isinstance(one, dict) else ("status", one)
            noted.append((name, tuple(slice(*part) for part in box)))
    return noted


def _set_back(
    store: Store, box: Box, status: NDArray[np.int8], hit: list[tuple[str, Box]]
) -> list[tuple[str, Box]]:
    """Set runs of a block that lost a value back to pending; returns chunks to be emptied.

    Other runs in the same chunk that have no value of that variable are kept (such as the done
    ones of a lost ``error``); their chunk is emptied, so that it can be read when values join it.
    """
    ended = status.copy()
    emptied = []
    for name, chunk in hit:
        shared = _overlap(chunk, box)
        if shared is None:
            continue
        inner = tuple(
            slice(s.start - b.start, s.stop - b.start) for s, b in zip(shared, box, strict=True)
        )
        needed = _needed(store, name, box, ended)[inner]
        if name == "status" or (needed == _ran(ended)[inner]).all():
            status[inner] = Status.PENDING
        else:
            status[inner][needed] = Status.PENDING
            emptied.append((name, shared))
    return emptied


def _ran(status: NDArray[np.int8]) -> NDArray[np.bool_]:
    ran: NDArray[np.bool_] = (status != Status.PENDING) & (status != Status.SKIPPED)
    return ran


def _needed(store: Store, name: str, box: Box, status: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which runs of a block have a value of a variable, as their statuses say."""
    if name == "error":
        badly: NDArray[np.bool_] = np.isin(status, ENDED_BADLY)
        return badly
    if name == "log":
        logged: NDArray[np.bool_] = _quiet_read(store, "log_size", box) > 0
        return _ran(status) & logged
    return _ran(status) if name in RESERVED else status == Status.DONE


def _derived(layout: Layout, name: str) -> bool:
    """Whether a variable was computed from others, so that no run gives it."""
    return "derived" in layout.variables[name].attrs


def _write_nothing(store: Store, variable: Variable, box: Box) -> None:
    """A chunk with the fill value, as of runs that nothing was derived for."""
    shape = tuple(part.stop - part.start for part in box) + variable.shape
    values = stored(np.full(shape, variable.fill, dtype=variable.memory_dtype), variable.dtype)
    store.write(variable.name, (*box, *(slice(0, n) for n in variable.shape)), values)


def _overlap(a: Box, b: Box) -> Box | None:
    shared = tuple(
        slice(max(x.start, y.start), min(x.stop, y.stop)) for x, y in zip(a, b, strict=False)
    )
    return shared if all(part.start < part.stop for part in shared) else None


def _damaged(store: Store, *, thorough: bool) -> Iterator[Damage]:
    layout = store.layout
    for block in range(layout.n_blocks):
        box = layout.box(block)
        shape = tuple(part.stop - part.start for part in box)
        try:
            status = store.read("status", box)
        except UnreachableError:
            raise
        except StoreError as fault:
            yield Damage("status", box, math.prod(shape), _words(layout, box), _reason(fault))
            continue
        yield from _damaged_in(store, block, status, thorough=thorough)
        if _status_lost(store, box):
            yield Damage("status", box, math.prod(shape), _words(layout, box), "is missing")


def _status_lost(store: Store, box: Box) -> bool:
    """Whether a block has values and no status, which is written before them and after."""
    layout = store.layout
    return not store.has_chunk("status", _chunk_index(layout, "status", box)) and any(
        store.has_chunk(v.name, _chunk_index(layout, v.name, box))
        for v in layout.variables.values()
        if not (v.text or v.shape or v.name == "status" or "derived" in v.attrs)
    )


def _damaged_in(
    store: Store, block: int, status: NDArray[np.int8], *, thorough: bool
) -> Iterator[Damage]:
    """Chunks of one block that are missing, or that cannot be decoded if looked at thoroughly."""
    layout = store.layout
    box = layout.box(block)
    if not _ran(status).any():
        return
    unreadable: set[str] = set()
    for variable in _scalars_first(layout):
        if variable.name == "status" or 0 in variable.shape:  # arrays of no size have no chunks
            continue
        if variable.name == "log" and "log_size" in unreadable:
            continue
        needed = _needed(store, variable.name, box, status)
        for chunk in _chunks(layout, variable, box):
            inner = tuple(
                slice(c.start - b.start, c.stop - b.start) for c, b in zip(chunk, box, strict=True)
            )
            count = int(needed[inner].sum())
            if not count:
                continue
            reason = _fault(store, layout, variable, chunk, thorough=thorough)
            if reason is not None:
                unreadable.add(variable.name)
                yield Damage(variable.name, chunk, count, _words(layout, chunk), reason)


def _scalars_first(layout: Layout) -> list[Variable]:
    return sorted(layout.variables.values(), key=lambda v: (v.text, bool(v.shape), v.name))


def _quiet_read(store: Store, name: str, box: Box) -> NDArray[Any]:
    try:
        return store.read(name, box)
    except UnreachableError:
        raise
    except StoreError:
        return np.zeros([part.stop - part.start for part in box], dtype=np.int32)


def _fault(
    store: Store, layout: Layout, variable: Variable, chunk: Box, *, thorough: bool
) -> str | None:
    index = _chunk_index(layout, variable.name, chunk)
    if not store.has_chunk(variable.name, index):
        return "is missing"
    if not thorough and "derived" not in variable.attrs and not store.sound(variable.name, index):
        return "does not fit its checksum"
    if thorough:
        try:
            store.read(variable.name, chunk)
        except UnreachableError:
            raise
        except StoreError as fault:
            return _reason(fault)
    return None


def _reason(fault: StoreError) -> str:
    return f"cannot be decoded: {fault.__cause__ or fault}"


def _chunk_index(layout: Layout, name: str, box: Box) -> tuple[int, ...]:
    return layout.chunk_index(layout.variables[name], box)


def _chunks(layout: Layout, variable: Variable, box: Box) -> Iterator[Box]:
    extents = layout.chunk(variable)
    starts = [range(part.start, part.stop, e) for part, e in zip(box, extents, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(
            slice(c, min(c + e, part.stop)) for c, e, part in zip(corner, extents, box, strict=True)
        )


def _words(layout: Layout, box: Box) -> str:
    return ", ".join(
        f"{dim} {part.start}"
        if part.stop - part.start == 1
        else f"{dim} {part.start} to {part.stop - 1}"
        for dim, part in zip(layout.dims, box, strict=True)
    )


# --- outputs computed later ----------------------------------------------------------------------


def add_derived(store: Store, name: str, array: xr.DataArray, attrs: Mapping[str, Any]) -> None:
    """Store an output computed from others; it is committed once it is written whole.

    Parameters
    ----------
    store : Store
        Open, and held by this process.
    name : str
        Of the output.
    array : DataArray
        Over all run dims on disk's order, own dims behind.
    attrs : mapping
        Stored with it.

    Raises
    ------
    ValueError
        If the name is taken or cannot be used.
    """
    wrong = name_fault(name)
    if wrong is not None:
        raise ValueError(wrong)
    layout = store.layout
    old = layout.variables.get(name)
    declaration = store.declaration
    axes = {one["name"] for one in declaration["parameters"]}
    if (old is not None and "derived" not in old.attrs) or name in axes | set(layout.dims):
        raise ValueError(f"{name!r} is there already and was not derived; choose another name")
    _check_objects(name, array)
    array = _as_float(store, array)
    dtype = stored_name(array.values)
    noted = {WIDE_NOTE: WIDE_TEXT} if _is_wide(array) else {}
    own = tuple(map(str, array.dims[len(layout.dims) :]))
    sizes = tuple(array.sizes[dim] for dim in own)
    variable = Variable(name, dtype, own, sizes, attrs={**attrs, **noted})
    if old is not None:
        anew = (old.dtype, old.shape) != (dtype, sizes)
        variable = replace(variable, guards=old.guards + int(anew))
    values = stored(array.values, dtype)
    wide = replace(layout, variables={**layout.variables, name: variable})
    store.make(variable, wide)
    for block in range(wide.n_blocks):
        for chunk in _chunks(wide, variable, wide.box(block)):
            store.write(name, (*chunk, *(slice(0, n) for n in variable.shape)), values[chunk])
    store.layout = wide
    declaration.pop("stored", None)
    store.commit(declaration)


def _check_objects(name: str, array: xr.DataArray) -> None:
    """Refuse Python objects that are no text: as text they would be something else."""
    if array.dtype.kind != "O":
        return
    for one in array.values.flat:
        if not isinstance(one, str) and one == one and one is not None:
            raise ValueError(
                f"{name!r} has Python objects such as {one!r} ({type(one).__name__}); give numbers "
                "as they are, with .astype(float), or text, with .astype(str)"
            )


def _is_wide(array: xr.DataArray) -> bool:
    """Whether there are integers that a float64 cannot hold."""
    if array.dtype.kind not in "iu" or not array.size:
        return False
    return int(array.values.max()) > 2**53 or int(array.values.min()) < -(2**53)


def _as_float(store: Store, array: xr.DataArray) -> xr.DataArray:
    """Integers and truths as numbers that are NaN where a run is not done, as other outputs read.

    So runs that finish later, which nothing is derived for, do not read as 0 or False.
    """
    if array.dtype.kind not in "iub" or _is_wide(array):
        return array
    whole = tuple(slice(0, n) for n in store.layout.shape)
    done = store.read("status", whole) == Status.DONE
    return array.astype(np.float64).where(xr.DataArray(done, dims=array.dims[: done.ndim]))

"""The Zarr arrays of a group, in a folder or a keyed store: made, read, written, found damaged."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from sweepkit.axes import same_encoding
from sweepkit.files import clear_way, loads, lost_chunks, same_files
from sweepkit.format1 import Variable, fill_value, stored, stored_name
from sweepkit.places import KeyPath, Place
from sweepkit.protocols import StoreError
from sweepkit.root import FAULTS, UnreachableError, check_codecs, difference, next_call
from sweepkit.rooted import Rooted

__all__ = ["Arrays"]

Box = tuple[slice, ...]

LOOKED_AT = 2**27
"""Bytes of a store up to which each chunk is compared with its checksum: a tenth of a second."""

CHECKSUM_BYTES = 4


class Arrays:
    """The arrays of a group, opened when they are used.

    Parameters
    ----------
    root : Path or KeyPath
        Of the group.
    """

    def __init__(self, root: Place) -> None:
        self.root = root
        self.metadata: dict[str, Any] = {}
        """Of each array, as it was committed."""
        self._open: dict[str, zarr.Array[Any]] = {}
        self._peeked: zarr.Group | None = None
        self._chunks: dict[str, set[str]] = {}
        self._light: bool | None = None

    def committed(self, metadata: Mapping[str, Any], *, peek: bool = False) -> None:
        """Take these metadata for committed; who only peeks opens arrays as the root lists them."""
        self.metadata = dict(metadata)
        self._open.clear()
        self._chunks.clear()
        self._light = None
        group = zarr.open_group(_opened(self.root), mode="r") if peek else None
        self._peeked = group

    def forget(self, name: str | None = None) -> None:
        """Open an array, or all, anew when it is used next."""
        if name is None:
            self._open.clear()
        else:
            self._open.pop(name, None)

    def __getitem__(self, name: str) -> zarr.Array[Any]:
        """The Zarr array of a variable or coordinate.

        Raises
        ------
        StoreError
            If it is not there, or encoded in a way that might run code.
        """
        if name in self._open:
            return self._open[name]
        if self._peeked is not None:
            found = self._peeked.get(name)
            if not isinstance(found, zarr.Array):
                raise StoreError(f"{self.root} lists no array {name!r}")
            self._open[name] = found
            return found
        place = self.root / name
        try:
            check_codecs(str(place), loads(place / "zarr.json"))
        except (TypeError, KeyError) as fault:
            raise StoreError(f"{place / 'zarr.json'} is missing or damaged") from fault
        self._open[name] = zarr.open_array(_opened(place), mode="r+", zarr_format=3).with_config(
            {"write_empty_chunks": True}
        )
        return self._open[name]

    def make(
        self,
        variable: Variable,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dims: tuple[str, ...],
    ) -> zarr.Array[Any]:
        """Make an array, in the place of an older one of its name."""
        array = zarr.create_array(
            _opened(self.root / variable.name),  # by name within the root, it would make a root
            shape=shape,
            chunks=chunks,
            dtype=str if variable.dtype == "str" else variable.stored_dtype,
            dimension_names=dims,
            fill_value=fill_value(variable.dtype),
            attributes=variable.stored_attrs,
            compressors=[
                *(Crc32cCodec() for _ in range(variable.guards)),
                ZstdCodec(level=1),
                Crc32cCodec(),
            ],
            config={"write_empty_chunks": True},
            zarr_format=3,
            overwrite=True,
        )
        self._open[variable.name] = array
        return array

    def make_axis(self, variable: Variable, chunks: tuple[int, ...], values: NDArray[Any]) -> None:
        """Make a coordinate and write it whole."""
        array = self.make(variable, values.shape, chunks, variable.dims)
        array[...] = stored(values, variable.dtype)

    def make_own_axis(self, dim: str, values: NDArray[Any]) -> None:
        """Make a coordinate along an own dim of outputs."""
        variable = Variable(dim, stored_name(values), (dim,), values.shape)
        self.make_axis(variable, values.shape, values)

    def own_axis(self, dim: str) -> NDArray[Any]:
        """A coordinate along an own dim of outputs: strings as objects."""
        values, attrs = np.asarray(self[dim][...]), self[dim].attrs
        if attrs.get("calendar"):
            return values.astype("datetime64[ns]")
        if attrs.get("dtype") == "timedelta64[ns]":
            return values.astype("timedelta64[ns]")
        return values.astype(object) if values.dtype.kind in "UT" else values

    # --- values ---

    def has_chunk(self, name: str, index: tuple[int, ...]) -> bool:
        """Whether a chunk of a variable is there."""
        chunk = self.root.joinpath(name, "c", *map(str, index))
        if isinstance(chunk, KeyPath):  # one listing for all chunks of a variable
            if name not in self._chunks:
                inner = chunk.key.removesuffix("/".join(("", "c", *map(str, index))))
                self._chunks[name] = set(chunk.store.keys_below(inner))
            return chunk.key in self._chunks[name]
        return chunk.is_file()

    def sound(self, name: str, index: tuple[int, ...]) -> bool:
        """Whether a chunk fits the checksum at its end; True where it is not looked at.

        Only stores in folders are looked at, and only as long as all of it is read in a moment.
        """
        chunk = self.root.joinpath(name, "c", *map(str, index))
        if self._light is None:
            self._light = isinstance(self.root, Path) and _weighs_less(self.root, LOOKED_AT)
        if not self._light or self.metadata[name]["codecs"][-1]["name"] != "crc32c":
            return True
        try:
            content = chunk.read_bytes()
        except OSError:  # which reading it tells
            return True
        told = int.from_bytes(content[-CHECKSUM_BYTES:], "little")
        return len(content) > CHECKSUM_BYTES and told == google_crc32c.value(
            content[:-CHECKSUM_BYTES]
        )

    def read(self, name: str, box: Box, path: str) -> NDArray[Any]:
        """Values of a variable in a box, in memory's data type.

        Raises
        ------
        StoreError
            If a chunk is damaged; names the store at ``path``, the variable and the box.
        """
        try:
            values = np.asarray(self[name][box])
        except FAULTS as fault:
            runs = ", ".join(f"{part.start}:{part.stop}" for part in box)
            raise StoreError(
                f"{path}: variable {name!r} is damaged in the runs {runs} ({fault}); "
                f"sk.verify({path!r}) names every damaged run, and {next_call(path)} runs just "
                "those again"
            ) from fault
        return values.astype(object) if values.dtype.kind in "UT" else values

    def write(self, name: str, box: Box, values: NDArray[Any]) -> None:
        """Write values to a box that covers whole chunks; what is in a chunk's place goes."""
        self._chunks.pop(name, None)
        try:
            self[name][box] = values
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            extents = self[name].chunks
            spans = [
                range(part.start // extent, -(-part.stop // extent))
                for part, extent in zip(box, extents, strict=False)
            ]
            spans += [
                range(-(-n // extent)) for n, extent in zip(self[name].shape, extents, strict=True)
            ][len(spans) :]
            for index in itertools.product(*spans):
                if isinstance(self.root, Path):
                    clear_way(self.root / name, "c", *map(str, index))
            self[name][box] = values

    # --- damage ---

    def damaged_axes(self, names: list[str], path: str) -> dict[str, str]:
        """Coordinates that cannot be read, each with what is wrong with it."""
        found = {}
        for name in names:
            try:
                self.forget(name)
                self.read(name, tuple(slice(0, n) for n in self[name].shape), path)
            except UnreachableError:
                raise
            except StoreError as fault:
                found[name] = f"cannot be decoded: {fault.__cause__ or fault}"
            else:
                if lost_chunks(self.root / name, self.metadata[name]):
                    found[name] = "is missing"
        return found

    def changed_axes(self, names: Iterable[str], kept: Place) -> dict[str, str]:
        """Coordinates that can be read and say otherwise than their copies, with that in words.

        A copy may be shorter, of before a growth.
        """
        found, copies = {}, Arrays(kept)
        for name in names:
            place, copy = self.root / name, kept / name
            known = loads(copy / "zarr.json")
            if not same_encoding(loads(place / "zarr.json"), known):
                continue
            if lost_chunks(copy, known) or lost_chunks(place, loads(place / "zarr.json")):
                continue  # half a copy or a lost axis, which is told elsewhere
            try:
                if same_files(place / "c", copy / "c"):
                    continue
                values, then = (np.asarray(one[name][...]) for one in (self, copies))
                n = min(len(values), len(then))
                same = np.array_equal(values[:n], then[:n])
            except FAULTS:  # damaged, which is told elsewhere
                continue
            if not same:
                found[name] = f"was changed since it was committed: it differs from its copy {copy}"
        return found

    def damaged_metadata(self) -> dict[str, str]:
        """Arrays whose metadata are not as committed, each with what is wrong with it."""
        found = {}
        for name, metadata in self.metadata.items():
            path = self.root / name / "zarr.json"
            wrong = difference(loads(path), metadata) if path.exists() else "is missing"
            if wrong is not None:
                found[name] = f"its zarr.json {wrong}"
        return found


def _weighs_less(folder: Path, most: int) -> bool:
    """Whether the files in a folder have at most so many bytes together."""
    size = 0
    for outer, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.stat(os.path.join(outer, name)).st_size
        if size > most:
            return False
    return True


def _opened(place: Place) -> LocalStore | Rooted:
    """A place as zarr takes it."""
    if isinstance(place, KeyPath):
        return Rooted(place.store, place.key)
    return LocalStore(place)


@contextmanager
def writing(path: str, what: str, beside: Place) -> Iterator[None]:
    """Within, an error of the system is told as one of a store, with what is free."""
    try:
        yield
    except OSError as fault:
        free = ""
        if isinstance(beside, Path):
            with suppress(OSError):
                free = f"; {shutil.disk_usage(beside).free:,} bytes are free there"
        raise StoreError(
            f"{path}: {what} cannot be written: {fault.strerror or fault}{free}; "
            "what counted as done stays, and sk.run goes on from there once it can write"
        ) from fault


@contextmanager
def reaching(path: str) -> Iterator[None]:
    """Within, a file or folder of a store that may not be read or replaced is told as that."""
    try:
        yield
    except PermissionError as fault:
        raise StoreError(
            f"{path}: {fault.filename} cannot be read or replaced: {fault.strerror}; mend its "
            "permissions"
        ) from fault

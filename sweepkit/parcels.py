"""Parcels: big values that workers write themselves, so that only receipts of them travel.

A parcel is a file beside the store, encoded as the chunk that it is to be. The driver, which alone
writes to the store, renames it to its place there, all at once, and says afterwards that the run is
done. A parcel whose receipt never came is nobody's, and goes with its depot.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sweepkit.format1 import Variable, is_big
from sweepkit.places import Place

__all__ = [
    "Depot",
    "FolderDepot",
    "Outbox",
    "Parcel",
    "ParcelError",
    "clear_parcels",
    "deliver",
    "depot_beside",
    "folder_depot",
    "unpacked",
]

MARKER = "depot"
"""File by which a worker knows that the folder it sees is the driver's."""

PARCELS = "parcels"
"""Folder beside a store that workers put big values into."""

LEVEL = 1
"""Of the compression, as of other chunks."""

NOTE_BEYOND = 2**53


class ParcelError(OSError):
    """A parcel is not there, or is not what its receipt says."""


@dataclass(frozen=True)
class Parcel:
    """The receipt for one value of one run.

    Attributes
    ----------
    place : str
        Where it is.
    dtype : str
        Data type in memory, as numpy names it.
    shape : tuple of int
    guards : int
        Checksums within the compression, as of the variable that it was packed for.
    size : int
        Bytes of the file.
    checksum : bytes
        Of all that is before it in the file, where it comes last.
    wide : bool
        Whether there are integers that a float64 cannot hold.
    """

    place: str
    dtype: str
    shape: tuple[int, ...]
    guards: int
    size: int
    checksum: bytes
    wide: bool = False


class Depot(Protocol):
    """Where workers put parcels; pickled with the task."""

    @property
    def guards(self) -> Mapping[str, int]:
        """Guards of the outputs that are stored, as known when workers are held."""

    @property
    def reached(self) -> bool:
        """Whether this process can put parcels there."""

    def put(self, values: NDArray[Any], guards: int) -> Parcel:
        """Write a value whole; raises OSError where that cannot be done."""


@dataclass
class Outbox:
    """Where a worker puts what is big.

    Attributes
    ----------
    depot : Depot
    before : callable
        Called before anything is written.
    """

    depot: Depot
    before: Callable[[], object]

    def put(self, name: str, values: NDArray[Any]) -> Parcel | None:
        """A receipt for a value of an output; None if it travels as it is.

        What cannot be written, as on a full disk, travels, too: the driver tells.
        """
        if values.dtype.hasobject or not values.ndim or not is_big(values.nbytes):
            return None
        self.before()
        try:
            return self.depot.put(values, self.depot.guards.get(name, 0))
        except OSError:
            return None


@dataclass
class FolderDepot:
    """A folder that workers put parcels into: see :class:`Depot`.

    Attributes
    ----------
    path : str
    token : str
        What its marker says.
    guards : mapping of str to int
    """

    path: str
    token: str
    guards: Mapping[str, int] = field(default_factory=dict)
    _reached: bool | None = None

    @property
    def reached(self) -> bool:
        """Whether this process sees the folder that the driver made."""
        if self._reached is None:
            try:
                self._reached = Path(self.path, MARKER).read_text() == self.token
            except OSError:
                self._reached = False
        return self._reached

    def put(self, values: NDArray[Any], guards: int) -> Parcel:
        """See :class:`Depot`."""
        place = os.path.join(self.path, f"{os.getpid()}-{secrets.token_hex(8)}")
        content = packed(values, guards)
        try:
            with open(place, "xb") as file:
                file.write(content)
        except OSError:
            with suppress(OSError):
                os.unlink(place)
            raise
        size, checksum = len(content), bytes(content[-4:])
        return Parcel(
            place, values.dtype.name, values.shape, guards, size, checksum, wide=_wide(values)
        )


def _wide(values: NDArray[Any]) -> bool:
    if values.dtype.name not in ("int64", "uint64") or not values.size:
        return False
    return int(values.max()) > NOTE_BEYOND or int(values.min()) < -NOTE_BEYOND


def packed(values: NDArray[Any], guards: int) -> memoryview:
    """A value as the content of a chunk: see ``Arrays.make``."""
    from numcodecs.zstd import compress

    plain = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    for _ in range(guards):
        plain = np.append(plain, np.frombuffer(_crc(plain), dtype=np.uint8))
    content = compress(plain, LEVEL)
    return memoryview(b"".join((content, _crc(content))))


def unpacked(parcel: Parcel) -> NDArray[Any]:
    """The value in a parcel.

    Raises
    ------
    ParcelError
        If it is gone or damaged.
    """
    from numcodecs.zstd import decompress

    try:
        content = Path(parcel.place).read_bytes()
    except OSError as fault:
        raise _gone(parcel) from fault
    inner, checksum = content[:-4], content[-4:]
    if len(content) != parcel.size or not _crc(inner) == checksum == parcel.checksum:
        raise _gone(parcel)
    plain = np.frombuffer(decompress(inner), dtype=np.uint8)
    plain = plain[: len(plain) - 4 * parcel.guards]
    return plain.view(parcel.dtype).reshape(parcel.shape)


def _crc(content: Any) -> bytes:
    import google_crc32c

    return int(google_crc32c.value(content)).to_bytes(4, "little")


def _gone(parcel: Parcel) -> ParcelError:
    return ParcelError(
        errno.ENOENT, "what a worker wrote there is gone or damaged", str(Path(parcel.place).parent)
    )


def deliver(parcel: Parcel, place: Path) -> None:
    """Make a parcel the chunk at a place, all at once.

    Raises
    ------
    ParcelError
        If it is gone or damaged.
    """
    try:
        with open(parcel.place, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - 4, 0))
            same = size == parcel.size and file.read(4) == parcel.checksum
    except OSError as fault:
        raise _gone(parcel) from fault
    if not same:
        raise _gone(parcel)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    try:
        os.replace(parcel.place, place)
    except OSError as fault:
        if fault.errno != errno.EXDEV:
            raise
        partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
        shutil.copyfile(parcel.place, partial)
        os.replace(partial, place)
        os.unlink(parcel.place)


@contextmanager
def folder_depot(folder: Path, guards: Mapping[str, int]) -> Iterator[FolderDepot | None]:
    """A depot in a folder, in the place of one that a killed session left; None if disk is full.

    What is in it when it is left is no run's, and is removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    token = secrets.token_hex(16)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(token)
    except OSError:
        yield None
        return
    try:
        yield FolderDepot(str(folder), token, dict(guards))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def depot_beside(
    beside: Place, variables: Iterable[Variable]
) -> AbstractContextManager[FolderDepot | None]:
    """A depot in the folder beside a store; None where that has no path, or the disk is full."""
    if not isinstance(beside, Path):
        return nullcontext()
    guards = {one.name: one.guards for one in variables if one.guards}
    return folder_depot(beside / PARCELS, guards)


def clear_parcels(beside: Place) -> None:
    """Remove what workers of a killed session have left: nobody has a receipt for it."""
    if isinstance(beside, Path):
        shutil.rmtree(beside / PARCELS, ignore_errors=True)

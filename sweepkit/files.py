"""Files and folders replaced so that a reader, or a kill, finds the old or the new."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

__all__ = [
    "exchanged",
    "link_tree",
    "loads",
    "lost_chunks",
    "read_bytes",
    "replace_file",
    "same_files",
    "swap",
]

AT_FDCWD = -100
RENAME_EXCHANGE = 2
RENAME_SWAP = 2
"""Flags of Linux' renameat2 and of macOS' renamex_np."""


def replace_file(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a file so that readers see the old text or the new; if durable, after a power cut."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(text.encode())
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
        if durable:
            _keep_entry(path.parent)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _keep_entry(folder: Path) -> None:
    """Have the names in a folder on disk, where the file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as fault:
        if fault.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def swap(fresh: Path, place: Path, old: Path) -> None:
    """Put a folder in the place of another, which becomes ``old``, if there is any.

    All at once where the system can exchange two names; else there is a moment in which only
    ``old`` and ``fresh`` are there.
    """
    if not place.exists():
        fresh.rename(place)
        return
    shutil.rmtree(old, ignore_errors=True)
    if exchanged(fresh, place):
        fresh.rename(old)
        return
    place.rename(old)
    fresh.rename(place)


def exchanged(a: Path, b: Path) -> bool:
    """Exchange the names of two folders at once; False where the system does not know how."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(a), os.fsencode(b)
    sys.audit("os.rename", *names, -1, -1)  # as every other change of a name
    if hasattr(library, "renameat2"):
        done = library.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)
    elif hasattr(library, "renamex_np"):
        done = library.renamex_np(names[0], names[1], RENAME_SWAP)
    else:
        return False
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(b))


def link_tree(source: Path, target: Path) -> None:
    """A folder once more, of the same files where they can be linked; else of copies.

    Files of a store are replaced and never changed, so both may go on from there.
    """

    def link(a: str, b: str) -> None:
        try:
            os.link(a, b)
        except OSError:
            shutil.copy2(a, b)

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=link)


def same_files(a: Path, b: Path) -> bool:
    """Whether two folders hold the same."""
    mine, theirs = ({one.relative_to(path) for one in path.rglob("*")} for path in (a, b))
    return mine == theirs and all(
        (a / one).is_dir() or (a / one).read_bytes() == (b / one).read_bytes() for one in mine
    )


def lost_chunks(folder: Path, metadata: Mapping[str, Any]) -> list[Path]:
    """Chunks of an array written whole that are not there."""
    extents = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    counts = [-(-n // e) for n, e in zip(metadata["shape"], extents, strict=True)]
    chunks = (folder.joinpath("c", *map(str, at)) for at in product(*map(range, counts)))
    return [one for one in chunks if not one.is_file()]


def read_bytes(path: Path) -> bytes | None:
    """What a file holds, None if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def loads(path: Path) -> Any:
    """The JSON in a file, None if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None

"""Files and folders replaced so that a reader, or a kill, finds the old or the new.

What is done to folders is done to names in a keyed store, too: there each object is replaced all at
once, and nothing can be renamed.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from stat import S_ISDIR
from typing import Any, TypeAlias

from sweepkit.places import KeyPath, Place, Where

__all__ = [
    "clear_name",
    "clear_way",
    "Stamp",
    "copy_tree",
    "drop_partials",
    "exchanged",
    "link_tree",
    "loads",
    "lost_chunks",
    "move_tree",
    "present",
    "read_bytes",
    "remove_tree",
    "replace_file",
    "replace_tree",
    "same_files",
    "stamps",
    "swap",
]

Stamp: TypeAlias = tuple[Any, ...] | None

AT_FDCWD = -100
RENAME_EXCHANGE = 2
RENAME_SWAP = 2
"""Flags of Linux' renameat2 and of macOS' renamex_np."""


def replace_file(path: Place, text: str, *, durable: bool = False) -> None:
    """Write a file so that readers see the old text or the new; if durable, after a power cut."""
    if isinstance(path, KeyPath):
        path.write_bytes(text.encode())
        return
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


def swap(fresh: Place, place: Place, old: Place) -> None:
    """Put a folder in the place of another, which becomes ``old``, if there is any.

    All at once where the system can exchange two names; else there is a moment in which only
    ``old`` and ``fresh`` are there. In a keyed store the root goes first and comes back last; in
    between only ``fresh`` is there, which stays, and the same call again goes on after a kill.
    """
    if isinstance(place, KeyPath):
        (place / "zarr.json").unlink(missing_ok=True)
        remove_tree(place, but=fresh.parent)  # in which it may lie, where a store has no name
        copy_tree(fresh, place)
        return
    assert isinstance(fresh, Path)
    assert isinstance(old, Path)
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


def link_tree(source: Place, target: Place) -> None:
    """A folder once more, of the same files where they can be linked; else of copies.

    Files of a store are replaced and never changed, so both may go on from there.
    """
    if isinstance(source, KeyPath):
        replace_tree(source, target)
        return

    def link(a: str, b: str) -> None:
        try:
            os.link(a, b)
        except OSError:
            shutil.copy2(a, b)

    assert isinstance(target, Path)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=link)


def remove_tree(path: Place, *, ignore_errors: bool = False, but: Place | None = None) -> None:
    """Remove all that is within a folder, and itself; of a keyed store not what is in another."""
    if isinstance(path, KeyPath):
        keys = path.store.keys_below(path.key)
        if isinstance(but, KeyPath):
            keys = [key for key in keys if not key.startswith(f"{but.key}/")]
        # A root goes first: what is left of a store whose removal was ended is no store.
        first = [key for key in keys if key.rpartition("/")[2] == "zarr.json"]
        path.store.delete_all(first)
        path.store.delete_all([key for key in keys if key not in set(first)])
        return
    shutil.rmtree(path, ignore_errors=ignore_errors)


def clear_way(array: Path, *inner: str) -> None:
    """Remove what keeps a file of an array from being made: in its place, or its folders'."""
    place = array.joinpath(*inner)
    for one in (*reversed(place.parents), place):
        if one != array and array not in one.parents:
            continue
        if os.path.lexists(one) and not (one.is_file() if one == place else one.is_dir()):
            clear_name(one)


def clear_name(path: Path) -> None:
    """Remove what has a name that a file is to have: a folder, or a link to nowhere."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy_tree(source: Place, target: Place) -> None:
    """Copy all that is within a folder into another, over what is there."""
    if isinstance(source, KeyPath) and isinstance(target, KeyPath):
        root = (target / "zarr.json").key
        pairs = [
            (key, target.joinpath(key.removeprefix(f"{source.key}/")).key)
            for key in source.store.keys_below(source.key)
        ]
        for last in (True, False):  # metadata first, by which chunks have a place; the root last
            named = [p for p in pairs if p[1].endswith("/zarr.json") is last and p[1] != root]
            source.store.copy(named)
        source.store.copy([p for p in pairs if p[1] == root])
        return
    assert isinstance(source, Path)
    assert isinstance(target, Path)
    for one in source.rglob("*"):
        spot = target / one.relative_to(source)
        if one.is_file() and not spot.is_file():  # a folder, or a link to nowhere, in its place
            clear_name(spot)
    shutil.copytree(source, target, dirs_exist_ok=True)


def replace_tree(source: Place, target: Place) -> None:
    """Have a copy of a folder in the place of another, which is never seen half."""
    if isinstance(target, KeyPath):
        remove_tree(target)
        copy_tree(source, target)
        return
    half = target.with_name(f"{target.name}.partial")
    shutil.rmtree(half, ignore_errors=True)
    assert isinstance(source, Path)
    shutil.copytree(source, half)
    shutil.rmtree(target, ignore_errors=True)
    half.rename(target)


def move_tree(source: Place, target: Place) -> None:
    """Give a folder another name, which nothing has."""
    if isinstance(source, KeyPath):
        replace_tree(source, target)
        remove_tree(source)
        return
    assert isinstance(target, Path)
    source.rename(target)


def drop_partials(root: Place) -> None:
    """Remove what writers that were killed left half written; keyed stores have none of that."""
    if isinstance(root, Path):
        for partial in root.rglob("*.partial"):
            clear_name(partial)


def same_files(a: Place, b: Place) -> bool:
    """Whether two folders hold the same."""
    if isinstance(a, KeyPath) or isinstance(b, KeyPath):
        return _contents(a) == _contents(b)
    mine, theirs = ({one.relative_to(path) for one in path.rglob("*")} for path in (a, b))
    return mine == theirs and all(
        (a / one).is_dir() or (a / one).read_bytes() == (b / one).read_bytes() for one in mine
    )


def _contents(folder: Place) -> dict[str, bytes | None]:
    """What is within a name of a keyed store."""
    assert isinstance(folder, KeyPath)
    keys = folder.store.keys_below(folder.key)
    names = [key.removeprefix(f"{folder.key}/") for key in keys]
    return dict(zip(names, folder.store.read_all(keys), strict=True))


def lost_chunks(folder: Place, metadata: Mapping[str, Any]) -> Sequence[Place]:
    """Chunks of an array written whole that are not there."""
    extents = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    counts = [-(-n // e) for n, e in zip(metadata["shape"], extents, strict=True)]
    chunks = [folder.joinpath("c", *map(str, at)) for at in product(*map(range, counts))]
    if isinstance(folder, KeyPath):
        there = set(folder.store.keys_below((folder / "c").key)) if chunks else set()
        return [one for one in chunks if isinstance(one, KeyPath) and one.key not in there]
    return [one for one in chunks if not one.is_file()]


def stamps(paths: Sequence[Where]) -> list[Stamp]:
    """What tells each file from the one that replaces it; None where there is none, or a folder."""
    if paths and isinstance(paths[0], KeyPath):
        return paths[0].store.stamps([one.key for one in paths if isinstance(one, KeyPath)])
    return [_stamp(path) for path in paths if isinstance(path, str)]


def _stamp(path: str) -> Stamp:
    try:
        told = os.stat(path)
    except OSError:
        return None
    if S_ISDIR(told.st_mode):
        return None
    return told.st_ino, told.st_mtime_ns, told.st_size


def present(paths: Sequence[Where]) -> list[bool]:
    """Whether each file is there."""
    if paths and isinstance(paths[0], KeyPath):
        return paths[0].store.there([one.key for one in paths if isinstance(one, KeyPath)])
    return [os.path.isfile(path) for path in paths if isinstance(path, str)]


def read_bytes(path: Place) -> bytes | None:
    """What a file holds, None if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def loads(path: Place) -> Any:
    """The JSON in a file, None if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None

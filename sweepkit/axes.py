"""Copies of a store's coordinates beside it, and their way back to the place of damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sweepkit.files import copy_tree, loads, lost_chunks, replace_tree, same_files
from sweepkit.places import Place
from sweepkit.root import DamagedError, next_call

__all__ = ["has_copy", "keep_axes", "mend_axes", "same_encoding", "way_back"]


def keep_axes(root: Place, beside: Place, names: Iterable[str]) -> None:
    """Keep a copy of the coordinates beside a store."""
    kept = beside / "axes"
    for name in names:
        place, copy = root / name, kept / name
        with suppress(OSError):  # a copy is not worth failing for on a full disk
            if not same_files(place, copy):
                replace_tree(place, copy)


def mend_axes(
    root: Place,
    beside: Place,
    names: Iterable[str],
    damaged: Callable[[], Mapping[str, str]],
    changed: Callable[[], Mapping[str, str]],
) -> None:
    """Put copies of coordinates in the place of those that are damaged, then keep copies.

    Raises
    ------
    DamagedError
        If a damaged coordinate has no copy, or one was changed since it was copied.
    """
    kept = beside / "axes"
    found = damaged()
    for name in found:
        copy, place = kept / name, root / name
        alike = same_encoding(loads(copy / "zarr.json"), loads(place / "zarr.json"))
        if alike and (copy / "c").is_dir():
            copy_tree(copy / "c", place / "c")
    for name, reason in damaged().items() if found else ():
        raise DamagedError(f"{root}: coordinate {name!r} {reason}; {way_back(root, beside, name)}")
    for name, reason in changed().items():
        raise DamagedError(
            f"{root}: coordinate {name!r} {reason}: with it, values of runs would stand at other "
            f"points. Put the copy in the place of {root / name}; if the change is meant, remove "
            "the copy"
        )
    keep_axes(root, beside, names)


def way_back(root: Place, beside: Place, name: str) -> str:
    """Where a coordinate that is damaged may come from."""
    if has_copy(root, beside, name):
        return f"{next_call(root)} restores it from its copy"
    return (
        f"there is no whole copy of it in {beside / 'axes'}, so take {root / name} from a copy of "
        "the store"
    )


def has_copy(root: Place, beside: Place, name: str) -> bool:
    """Whether a coordinate has a whole copy, encoded as it is."""
    copy, metadata = beside / "axes" / name, loads(root / name / "zarr.json")
    known = loads(copy / "zarr.json")
    return (
        known is not None
        and not lost_chunks(copy, known)
        and (metadata is None or same_encoding(known, metadata))
    )


def same_encoding(a: Any, b: Any) -> bool:
    """Whether chunks of two arrays are encoded alike, by their metadata."""
    words = ("data_type", "chunk_grid", "codecs", "fill_value")
    return a is not None and b is not None and all(a.get(word) == b.get(word) for word in words)

"""Copies of a store's coordinates beside it, and their way back to the place of damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweepkit.files import loads, same_files
from sweepkit.root import DamagedError

__all__ = ["keep_axes", "mend_axes"]


def keep_axes(root: Path, beside: Path, names: Iterable[str]) -> None:
    """Keep a copy of the coordinates beside a store."""
    kept = beside / "axes"
    for name in names:
        place, copy = root / name, kept / name
        with suppress(OSError):  # a copy is not worth failing for on a full disk
            if not same_files(place, copy):
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(place, copy)


def mend_axes(
    root: Path, beside: Path, names: Iterable[str], damaged: Callable[[], Mapping[str, str]]
) -> None:
    """Put copies of coordinates in the place of those that are damaged, then keep copies.

    Raises
    ------
    DamagedError
        If a damaged coordinate has no copy.
    """
    kept = beside / "axes"
    found = damaged()
    for name in found:
        copy, place = kept / name, root / name
        if _same_encoding(loads(copy / "zarr.json"), loads(place / "zarr.json")):
            for one in (copy / "c").rglob("*"):
                spot = place / one.relative_to(copy)
                if one.is_file() and spot.is_dir():
                    shutil.rmtree(spot)
            shutil.copytree(copy / "c", place / "c", dirs_exist_ok=True)
    for name, reason in damaged().items() if found else ():
        raise DamagedError(
            f"{root}: coordinate {name!r} {reason}; there is no copy of it in {kept}, so "
            f"take {root / name} from a copy of the store"
        )
    keep_axes(root, beside, names)


def _same_encoding(a: Any, b: Any) -> bool:
    words = ("data_type", "chunk_grid", "codecs", "fill_value")
    return a is not None and b is not None and all(a.get(word) == b.get(word) for word in words)

"""Keyed stores by what people give for them: a URL, a zip, a store object of zarr."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, ZipStore

from sweepkit.keyed import Keyed
from sweepkit.places import KeyPath, Where
from sweepkit.root import StoreError

__all__ = ["of_store", "of_url", "of_zip"]

CONNECT_SECONDS, READ_SECONDS = 5, 20
"""How long S3 is waited for, at each attempt, unless storage_options say otherwise."""


def of_url(url: str, given: Mapping[str, Any]) -> KeyPath:
    """A place by its URL.

    Raises
    ------
    ValueError
        If it names no place within a bucket, or a protocol that is not known.
    ImportError
        If the package of its protocol is not installed.
    """
    try:
        from fsspec.core import split_protocol
        from fsspec.registry import get_filesystem_class
    except ModuleNotFoundError:
        raise ImportError(
            f"{url} needs fsspec, which is not installed; pip install 'sweepkit[s3]'"
        ) from None
    protocol, inner = split_protocol(url)
    outer, _, name = inner.rstrip("/").rpartition("/")
    if not name or (not outer and protocol != "memory"):
        raise ValueError(
            f"{url} names a bucket and no place in it; give one, as in "
            f"'{protocol}://{name or 'bucket'}/a.zarr'"
        )
    try:
        get_filesystem_class(protocol)
    except ValueError:
        raise ValueError(
            f"{url} is of protocol {protocol!r}, which fsspec does not know; give a path, or a URL "
            "such as 's3://bucket/a.zarr'"
        ) from None
    except ImportError:
        package = "sweepkit[s3]" if protocol in ("s3", "s3a") else "the package that fsspec names"
        raise ImportError(
            f"{url} needs a package that is not installed; pip install {package!r} "
            f"(see https://filesystem-spec.readthedocs.io for {protocol})"
        ) from None
    options = {"use_listings_cache": False, **given}  # of what other machines write, too
    shown = f"{protocol}://{outer}" if outer else f"{protocol}:/"
    try:
        if protocol in ("s3", "s3a"):
            waits = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
            said = {**waits, **options.get("config_kwargs", {})}
            # Else it asks for the size of each object before it reads it.
            options = {"max_concurrency": 1, **options, "config_kwargs": said}
        store = FsspecStore.from_url(f"{protocol}://{outer}", storage_options=options)
    except (TypeError, ValueError) as fault:
        names = ", ".join(sorted(map(str, given)))
        raise ValueError(f"storage_options ({names}) do not fit {protocol!r}: {fault}") from fault
    return KeyPath(Keyed(store, shown), name)


def of_zip(path: str | os.PathLike[str]) -> KeyPath:
    """A packed store.

    Raises
    ------
    StoreError
        If it is no zip.
    """
    file = Path(path).absolute()
    store = ZipStore(file, mode="r")
    try:
        sync(store._open())
    except (OSError, zipfile.BadZipFile) as fault:
        raise StoreError(
            f"{file} cannot be read as a zip: {fault}; sk.pack(store, {str(path)!r}) makes one"
        ) from fault
    return KeyPath(Keyed(store, str(file)), "")


def of_store(given: Any) -> Where:
    """The place that a store object of zarr stands for.

    Raises
    ------
    TypeError
        If it is none.
    """
    if isinstance(given, Keyed):
        return KeyPath(given, "")
    if isinstance(given, LocalStore):
        return str(given.root)
    if isinstance(given, ZipStore):
        return of_zip(given.path)
    if isinstance(given, FsspecStore):
        outer, _, name = given.path.rstrip("/").rpartition("/")
        if name:
            above = FsspecStore(given.fs, read_only=given.read_only, path=outer)
            return KeyPath(Keyed(above, given.fs.unstrip_protocol(outer).rstrip("/")), name)
    if isinstance(given, Store):
        return KeyPath(Keyed(given, str(given).rstrip("/")), "")
    raise TypeError(
        f"{given!r} is no store; give a path, a URL such as 's3://bucket/a.zarr', or a store of "
        "zarr.storage"
    )

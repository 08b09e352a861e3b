"""Icechunk repositories on this machine as keyed stores: versions of all that is in them."""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from sweepkit.keyed import Keyed
from sweepkit.places import KeyPath
from sweepkit.root import NotASweepError, StoreError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BRANCH", "Versions", "of_icechunk", "repository", "snapshots"]

BESIDE = ".sweepkit"
"""Name of what lies beside a store that has no name: in a folder, which has no versions."""

BRANCH = "main"


def repository(path: str, *, make: bool = False) -> Any:
    """The repository in a folder, None if there is none and none is to be made.

    Raises
    ------
    ImportError
        If icechunk is not installed.
    StoreError
        If what is there is no repository.
    """
    try:
        import icechunk
    except ModuleNotFoundError:
        raise ImportError(
            f"{path} needs icechunk, which is not installed; pip install 'sweepkit[icechunk]'"
        ) from None
    # It warns that commits on a disk are not safe alone; here a lock of the system guards them.
    icechunk.set_logs_filter("error")
    there = os.path.isdir(path) and bool(os.listdir(path))
    if not there and not make:
        return None
    storage = icechunk.local_filesystem_storage(path)
    try:
        if there:
            return icechunk.Repository.open(storage)
        return icechunk.Repository.create(storage)
    except icechunk.IcechunkError as fault:
        raise StoreError(
            f"{path} cannot be opened as an Icechunk repository: {_line(fault)}; choose another "
            "path"
        ) from fault


def _line(fault: Exception) -> str:
    return " ".join(str(fault).partition("context:")[0].replace("|", " ").split()).strip("x ")


class Versions(Store):
    """One version of a repository, and a folder for what lies beside it.

    Parameters
    ----------
    path : str
        Of the repository.
    snapshot : str, optional
        The version to be read; by default the last one.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, path: str, snapshot: str | None = None) -> None:
        super().__init__(read_only=False)
        self.path = path
        self.snapshot = snapshot
        self._is_open = True
        self._beside = LocalStore(f"{path}{BESIDE}")
        self._beside._is_open = True  # opening it would make the folder, also to read only
        self._main: Store | None = None
        self.look()

    def look(self) -> None:
        """Read what is the last version now.

        Raises
        ------
        NotASweepError
            If there is no version of the name that was asked for.
        """
        found = repository(self.path)
        if found is None:
            self._main = None
            return
        if self.snapshot is None:
            self._main = found.readonly_session(branch=BRANCH).store
            return
        import icechunk

        try:
            self._main = found.readonly_session(snapshot_id=self.snapshot).store
        except icechunk.IcechunkError as fault:
            known = ", ".join(one.id for one in list(found.ancestry(branch=BRANCH))[:3])
            raise NotASweepError(
                f"{self.path} has no snapshot {self.snapshot!r} ({_line(fault)}); the last ones "
                f"are {known}"
            ) from fault

    def turn(self, store: Store) -> None:
        """Read and write another version from now on."""
        self._main = store

    def with_read_only(self, read_only: bool = False) -> Versions:
        """The same version, to be read alone or not."""
        made = copy.copy(self)
        made._read_only = read_only
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and (self.path, self.snapshot) == (
            other.path,
            other.snapshot,
        )

    def _of(self, key: str) -> tuple[Store | None, str]:
        """Where a key is kept, and under which."""
        if key == BESIDE or key.startswith(f"{BESIDE}/"):
            return self._beside, key.removeprefix(BESIDE).lstrip("/")
        return self._main, key

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """What is kept under a key."""
        store, inner = self._of(key)
        return None if store is None else await store.get(inner, prototype, byte_range)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Parts of what is kept under some keys."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        """Whether something is kept under a key."""
        store, inner = self._of(key)
        return store is not None and await store.exists(inner)

    async def set(self, key: str, value: Buffer) -> None:
        """Keep something under a key."""
        store, inner = self._of(key)
        if store is None:
            raise OSError(30, "it can only be read", self.path)
        await store.set(inner, value)

    async def delete(self, key: str) -> None:
        """Forget what is kept under a key."""
        store, inner = self._of(key)
        if store is not None:
            await store.delete(inner)

    async def list(self) -> AsyncIterator[str]:
        """All keys of the version."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Keys within a name."""
        name = prefix.rstrip("/")
        store, inner = self._of(name)
        if store is None:
            return
        if store is self._beside:
            async for key in store.list_prefix(inner):
                yield f"{BESIDE}/{key}"
            return
        for key in await _below(store, inner):
            if not name or key.startswith(f"{name}/"):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly within a name."""
        name = prefix.rstrip("/")
        cut = len(name) + 1 if name else 0
        for one in sorted({key[cut:].partition("/")[0] async for key in self.list_prefix(name)}):
            yield one


async def _below(store: Store, name: str) -> Sequence[str]:
    """Keys in the nearest group or array that a name is in, which alone can be listed."""
    import icechunk

    while True:
        try:
            return [key async for key in store.list_prefix(name)]
        except icechunk.IcechunkError:
            if not name:
                return []  # no group is there yet
            name = name.rpartition("/")[0]


def of_icechunk(path: str, snapshot: str | None = None) -> KeyPath:
    """The place of a repository.

    Raises
    ------
    NotASweepError
        If there is no such snapshot.
    """
    where = str(Path(path).absolute())
    return KeyPath(Keyed(Versions(where, snapshot), where), "")


def snapshots(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The versions of a store in an Icechunk repository, the last one first.

    Parameters
    ----------
    path : path
        Of the repository, which ends in ".icechunk".

    Returns
    -------
    DataFrame
        One row for each commit: ``snapshot`` (for :func:`open`), ``written`` (UTC) and
        ``message``.

    Raises
    ------
    StoreError
        If there is none.
    """
    import pandas as pd

    shown = os.fspath(path)
    found = repository(shown) if shown.rstrip("/").endswith(".icechunk") else None
    if found is None:
        raise NotASweepError(
            f"{shown} is no Icechunk repository, whose folder ends in .icechunk, and keeps no "
            "versions"
        )
    rows = [(one.id, one.written_at, one.message) for one in found.ancestry(branch=BRANCH)]
    return pd.DataFrame(rows, columns=["snapshot", "written", "message"])

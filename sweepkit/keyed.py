"""Bytes by key: a Zarr store of any kind, reached synchronously, with errors that say where.

What a sweep's store needs beyond Zarr's own contract is here: a key made only if nobody has made
it, what tells an object from its replacement, and listings that are never from a cache.
"""

from __future__ import annotations

import asyncio
import errno
import sys
import zipfile
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, WrapperStore

from sweepkit.root import StoreError, UnreachableError

__all__ = ["Keyed"]

T = TypeVar("T")

AT_ONCE = 16
"""Requests under way at the same time."""
BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError)
"""What a zip raises whose bytes have changed."""


@dataclass
class Known:
    """What is kept within some names that one writer alone changes.

    Attributes
    ----------
    inside : tuple of str
        These names.
    but : str
        A name within, of which nothing is known.
    keys : set of str
        All keys.
    texts : dict of str to bytes
        What is kept under some of those that end in ".json".
    """

    inside: tuple[str, ...]
    but: str
    keys: set[str]
    texts: dict[str, bytes]

    def covers(self, key: str) -> bool:
        """Whether a key is one of these."""
        return not f"{key}/".startswith(f"{self.but}/") and any(
            not one or f"{key}/".startswith(f"{one}/") for one in self.inside
        )

    def note(self, key: str, value: Buffer) -> None:
        """Take notice of what is kept under a key."""
        self.keys.add(key)
        if key.endswith(".json"):
            self.texts[key] = value.to_bytes()


class Keyed(WrapperStore[Store]):
    """A Zarr store, and what else a sweep needs of it.

    Parameters
    ----------
    store : zarr.abc.store.Store
        What is wrapped.
    shown : str
        Where it is, for people; what is in it is shown behind a slash.
    """

    def __init__(self, store: Store, shown: str = "") -> None:
        super().__init__(store)
        self.shown = shown
        self.allowed: Callable[[], float] | None = None
        """Called before each change: seconds in which it may be made; raises if it may not."""
        self._known: Known | None = None

    def _with_store(self, store: Store) -> Keyed:
        return Keyed(store, self.shown)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "allowed": None, "_known": None}

    def __str__(self) -> str:
        return self.shown

    # --- as Zarr uses it ---

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """What is kept under a key."""
        known = self._of(key)
        if known is not None:
            if key not in known.keys:
                return None
            if key in known.texts and byte_range is None:
                return prototype.buffer.from_bytes(known.texts[key])
        with self._reached(key):
            found = await self._store.get(key, prototype, byte_range)
        if known is not None and found is not None and byte_range is None:
            known.note(key, found)
        return found

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for request in requests:
            yield request[0], await self.get(*request)

    async def set(self, key: str, value: Buffer) -> None:
        """Keep something under a key."""
        known = self._of(key)
        if known is not None:  # whether it fails or not, it may be there
            known.keys.add(key)
            known.texts.pop(key, None)
        with self._reached(key):
            async with asyncio.timeout(self._time()):
                await self._store.set(key, value)
        if known is not None:
            known.note(key, value)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await asyncio.gather(*(self.set(key, value) for key, value in values))

    async def delete(self, key: str) -> None:
        """Forget what is kept under a key."""
        await self._delete([key])

    async def _delete(self, keys: Sequence[str]) -> None:
        gone = [key for key in keys if (k := self._of(key)) is None or key in k.keys]
        if not gone:
            return
        with self._reached(gone[0]):
            async with asyncio.timeout(self._time()):
                if isinstance(self._store, FsspecStore):
                    with suppress(FileNotFoundError):
                        await self._store.fs._rm([self._full(key) for key in gone])
                else:
                    await asyncio.gather(*map(self._store.delete, gone))
        for key in gone:
            known = self._of(key)
            if known is not None:
                known.keys.discard(key)
                known.texts.pop(key, None)

    async def delete_dir(self, prefix: str) -> None:
        """Forget everything within a name."""
        await self._delete(await self._keys_below(prefix))

    async def exists(self, key: str) -> bool:
        """Whether something is kept under a key."""
        return await self._stamp(key) is not None

    async def is_empty(self, prefix: str) -> bool:
        """Whether nothing is kept within a name."""
        return not await self._children(prefix.rstrip("/"))

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Keys that begin so, where that is a whole name."""
        for key in await self._keys_below(prefix.rstrip("/")):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly within a name."""
        for name in await self._children(prefix.rstrip("/")):
            yield name

    # --- what the only writer knows ---

    def remember(self, inside: Sequence[str], but: str) -> None:
        """Know what is within some names, which nobody else changes now, but for one of them."""
        keys = {key for one in inside for key in self.keys_below(one)}
        self._known = Known(tuple(inside), but, keys, {})

    def forget(self) -> None:
        """Know nothing any more."""
        self._known = None

    def _of(self, key: str) -> Known | None:
        """What is known of a key, if it is of those that are known."""
        known = self._known
        return known if known is not None and known.covers(key) else None

    def _time(self) -> float | None:
        return None if self.allowed is None else self.allowed()

    @contextmanager
    def _reached(self, key: str) -> Iterator[None]:
        """Within, what a file system raises is told as an error of the place."""
        try:
            yield
        except (FileExistsError, FileNotFoundError):
            raise
        except BROKEN as fault:  # as a disk tells it, and so it is met as damage
            shown = "/".join((self.shown, key))
            raise OSError(errno.EIO, f"the zip is damaged: {fault}", shown) from fault
        except (TypeError, ValueError) as fault:
            if not isinstance(self._store, FsspecStore) or isinstance(fault, StoreError):
                raise
            raise ValueError(
                f"{'/'.join((self.shown, key))} cannot be asked for: {fault}; see whether "
                "storage_options are as fsspec takes them for it"
            ) from fault
        except _raised() as fault:
            raise UnreachableError(
                f"{'/'.join((self.shown, key))} cannot be reached: {_words(fault)}; what counted "
                "as done stays, and the same call goes on once it can be reached"
            ) from fault

    # --- as stores use it ---

    def read(self, key: str) -> bytes | None:
        """What is kept under a key, None if nothing is."""
        found = sync(self.get(key, default_buffer_prototype()))
        return None if found is None else found.to_bytes()

    def read_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """What is kept under each of some keys."""

        async def one(key: str) -> bytes | None:
            found = await self.get(key, default_buffer_prototype())
            return None if found is None else found.to_bytes()

        return sync(self._each([one(key) for key in keys]))

    def write(self, key: str, content: bytes) -> None:
        """Keep something under a key, all at once."""
        self._check_written()
        sync(self.set(key, _buffer(content)))

    def create(self, key: str, content: bytes) -> bool:
        """Keep something under a key that nobody has used; whether it was so."""
        return sync(self.create_async(key, content))

    async def create_async(self, key: str, content: bytes) -> bool:
        """The same, to be awaited."""
        with self._reached(key):
            if isinstance(self._store, FsspecStore):
                try:
                    path = self._full(key)
                    await self._store.fs._pipe_file(path, content, mode="create")
                except FileExistsError:
                    return False
                return True
            await self._store.set_if_not_exists(key, _buffer(content))
        kept = await self.get(key, default_buffer_prototype())
        return kept is not None and kept.to_bytes() == content

    def delete_all(self, keys: Sequence[str]) -> None:
        """Forget what is kept under some keys."""
        self._check_written()
        sync(self._delete(keys))

    def _check_written(self) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, "it can only be read", self.shown)

    def copy(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Keep what is under each first key under the second, too."""

        async def one(source: str, target: str) -> None:
            found = await self.get(source, default_buffer_prototype())
            if found is not None:
                await self.set(target, found)

        sync(self._each([one(*pair) for pair in pairs]))

    def children(self, key: str) -> list[str]:
        """Names directly within a name."""
        return sorted(sync(self._children(key)))

    async def _children(self, key: str) -> frozenset[str]:
        if self._of(f"{key}/" if key else "") is not None:
            cut = len(key) + 1 if key else 0
            return frozenset(k[cut:].partition("/")[0] for k in await self._keys_below(key))
        with self._reached(key):
            if isinstance(self._store, FsspecStore):
                path = self._full(key)
                try:
                    listed = await self._store.fs._ls(path, detail=False)
                except FileNotFoundError:
                    return frozenset()
                inner = [str(one).strip("/") for one in listed]
                names = [one.rpartition("/")[2] for one in inner if one != path.strip("/")]
            else:
                names = [name.strip("/") async for name in self._store.list_dir(key)]
        return frozenset(names) - {""}

    def holds(self, key: str) -> bool:
        """Whether there is anything within a name."""
        return bool(sync(self._children(key)))

    def keys_below(self, key: str) -> list[str]:
        """Keys within a name, however deep."""
        return sync(self._keys_below(key))

    async def _keys_below(self, key: str) -> list[str]:
        inside = f"{key}/" if key else ""
        known = self._of(inside)
        if known is not None:
            return sorted(one for one in known.keys if one.startswith(inside))
        with self._reached(key):
            if isinstance(self._store, FsspecStore):
                root = self._store.path.strip("/")
                found = await self._store.fs._find(self._full(key), detail=False, withdirs=False)
                cut = len(root) + 1 if root else 0
                keys = [str(one).strip("/")[cut:] for one in found]
            else:
                keys = [one async for one in self._store.list_prefix(inside)]
        return sorted(one for one in keys if one.startswith(inside))

    def there(self, keys: Sequence[str]) -> list[bool]:
        """Whether something is kept under each of some keys."""
        known = [self._of(key) for key in keys]
        asked = [key for key, one in zip(keys, known, strict=True) if one is None]
        seen = dict(zip(asked, self.stamps(asked), strict=True))
        return [
            seen[key] is not None if one is None else key in one.keys
            for key, one in zip(keys, known, strict=True)
        ]

    def stamps(self, keys: Sequence[str]) -> list[tuple[Any, ...] | None]:
        """What tells each object from the one that replaces it; None where there is none."""
        return sync(self._each([self._stamp(key) for key in keys]))

    async def _stamp(self, key: str) -> tuple[Any, ...] | None:
        known = self._of(key)
        if not key or (known is not None and key not in known.keys):
            return None
        if not isinstance(self._store, FsspecStore):
            try:
                found = await self.get(key, default_buffer_prototype())
            except OSError:
                return ("it is there, and cannot be read",)
            if found is None:
                return None
            content = found.to_bytes()
            return zlib.crc32(content), len(content)
        with self._reached(key):
            try:
                told = await self._store.fs._info(self._full(key))
            except FileNotFoundError:
                return None
        if told.get("type") != "file":
            return None
        words = ("ETag", "etag", "generation", "LastModified", "mtime", "created", "size")
        return tuple(str(told[word]) for word in words if word in told)

    async def _each(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Await all of something, a few at the same time."""
        free = asyncio.Semaphore(AT_ONCE)

        async def one(each: Coroutine[Any, Any, T]) -> T:
            async with free:
                return await each

        return await asyncio.gather(*map(one, work))

    def _full(self, key: str) -> str:
        root = getattr(self._store, "path", "")
        return "/".join(filter(None, (str(root).rstrip("/"), key)))


def _buffer(content: bytes) -> Buffer:
    return default_buffer_prototype().buffer.from_bytes(content)


def _raised() -> tuple[type[Exception], ...]:
    """What file systems raise, also where it is no OSError, of the libraries that are loaded."""
    names = (
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
        ("aiohttp", "ClientError"),
        ("obstore.exceptions", "BaseError"),
        ("icechunk", "IcechunkError"),
    )
    loaded = ((sys.modules.get(module), name) for module, name in names)
    return (OSError, *(getattr(one, name) for one, name in loaded if one is not None))


def _words(fault: BaseException) -> str:
    if isinstance(fault, PermissionError):
        said = fault.strerror or str(fault)
        return f"permission denied ({said}); check credentials and rights"
    if isinstance(fault, TimeoutError):
        return "there was no answer in time"
    said = str(getattr(fault, "strerror", None) or fault).strip().partition("\n")[0]
    return said.rstrip(".") or type(fault).__name__

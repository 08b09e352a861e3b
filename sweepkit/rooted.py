"""A place within a keyed store as a Zarr store of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import WrapperStore

from sweepkit.keyed import Keyed

__all__ = ["Rooted"]


class Rooted(WrapperStore[Keyed]):
    """A place within a keyed store as a Zarr store of its own, so that nothing above it counts.

    Parameters
    ----------
    store : Keyed
    root : str
        Its key.
    """

    def __init__(self, store: Keyed, root: str) -> None:
        super().__init__(store)
        self.root = root

    def _with_store(self, store: Keyed) -> Rooted:
        return Rooted(store, self.root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rooted) and (self._store, self.root) == (other._store, other.root)

    def __str__(self) -> str:
        return self._key("")

    def _key(self, key: str) -> str:
        return "/".join(filter(None, (self.root, key)))

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """What is kept under a key."""
        return await self._store.get(self._key(key), prototype, byte_range)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Parts of what is kept under some keys."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for request in requests:
            yield request[0], await self.get(*request)

    async def exists(self, key: str) -> bool:
        """Whether something is kept under a key."""
        return await self._store.exists(self._key(key))

    async def is_empty(self, prefix: str) -> bool:
        """Whether nothing is kept within a name."""
        return await self._store.is_empty(self._key(prefix))

    async def set(self, key: str, value: Buffer) -> None:
        """Keep something under a key."""
        await self._store.set(self._key(key), value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Keep something under a key that nobody has used."""
        await self._store.create_async(self._key(key), value.to_bytes())

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await asyncio.gather(*(self.set(key, value) for key, value in values))

    async def delete(self, key: str) -> None:
        """Forget what is kept under a key."""
        await self._store.delete(self._key(key))

    async def delete_dir(self, prefix: str) -> None:
        """Forget everything within a name."""
        await self._store.delete_dir(self._key(prefix))

    async def clear(self) -> None:
        """Forget everything."""
        await self._store.delete_dir(self.root)

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Keys that begin so, where that is a whole name."""
        async for key in self._store.list_prefix(self._key(prefix)):
            yield key.removeprefix(f"{self.root}/") if self.root else key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly within a name."""
        async for name in self._store.list_dir(self._key(prefix)):
            yield name

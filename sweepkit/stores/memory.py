"""This process's memory as the ground of a store, and any store object of zarr.

What is kept is gone with the process, and no other process sees it: a second writer is refused in
this process alone. Of a store object that keeps its bytes elsewhere nothing more is promised than
it promises itself: each object is replaced all at once, and of two processes that make the same
object one is told that it was first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweepkit.ground import Apart
from sweepkit.lease import leased
from sweepkit.places import KeyPath, Place

__all__ = ["Memory"]


class Memory:
    """Objects by key, near: locked by a lease, written at once."""

    keeps_files = False
    chunk_seconds = 0.001
    pause_seconds = 0.0

    def __init__(self) -> None:
        self._apart = Apart()

    @contextmanager
    def hold(self, root: Place, beside: Place) -> Iterator[None]:
        """Be the only writer."""
        assert isinstance(root, KeyPath)
        assert isinstance(beside, KeyPath)
        with leased(root, beside):
            try:
                yield
            finally:
                self._apart.leave()

    def look(self) -> None:
        """What is read is what is there."""

    def publish(self, message: str) -> None:
        """Each write shows at once."""

    def write(self, work: Callable[[], None]) -> None:
        """Do it now."""
        work()

    def settle(self) -> None:
        """Nothing is under way."""

    def folder(self, beside: Place, name: str) -> str:
        """A folder of this machine, while the store is held."""
        return self._apart.folder(name)

"""A zip, or another store that can only be read: its runs are kept, and none is added."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from sweepkit.places import Place
from sweepkit.protocols import UnwritableError

__all__ = ["Packed"]


class Packed:
    """What can be read alone."""

    keeps_files = False
    chunk_seconds = 0.001
    pause_seconds = 0.0

    def __init__(self) -> None:
        self._shown = "the store"

    def hold(self, root: Place, beside: Place) -> AbstractContextManager[None]:
        """Refused.

        Raises
        ------
        UnwritableError
            Always; says what to do.
        """
        self._shown = str(root)
        raise self._refusal()

    def look(self) -> None:
        """What is read is what is there."""

    def publish(self, message: str) -> None:
        """Each write shows at once."""

    def write(self, work: Callable[[], None]) -> None:
        """Refused."""
        raise self._refusal()

    def settle(self) -> None:
        """Nothing is under way."""

    def folder(self, beside: Place, name: str) -> str:
        """None."""
        raise self._refusal()

    def _refusal(self) -> UnwritableError:
        told = "can only be read"
        if self._shown.endswith(".zip"):
            told = "is a zip, and zips are only read"
        return UnwritableError(
            f"{self._shown} {told}: run into a folder or a bucket, and pack that with sk.pack"
        )

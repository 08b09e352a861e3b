"""What stores stand on: a folder of this machine, and what those need that are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from sweepkit.lock import held
from sweepkit.places import Place
from sweepkit.premises import Premises

__all__ = ["Apart", "Folder"]


class Folder:
    """A folder: locked by the system, written at once."""

    keeps_files = True
    chunk_seconds = 0.002
    pause_seconds = 0.0

    def hold(self, root: Place, beside: Place) -> AbstractContextManager[None]:
        """Be the only writer."""
        assert isinstance(root, Path)
        assert isinstance(beside, Path)
        return held(root, beside)

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
        """A folder beside the sweep."""
        return str(beside / name)


class Apart:
    """A folder of this machine, for a while, where nothing can be kept beside the store."""

    def __init__(self) -> None:
        self._premises: Premises | None = None

    def folder(self, name: str) -> str:
        """Path of a folder in it."""
        if self._premises is None:
            self._premises = Premises()
        return os.path.join(self._premises.path, name)

    def leave(self) -> None:
        """Remove it."""
        if self._premises is not None:
            self._premises.leave()
            self._premises = None

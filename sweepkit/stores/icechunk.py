"""An Icechunk repository as the ground of a store: each flush is a commit, all of them are kept.

Commits to a disk are not safe against each other by themselves, so that who writes holds the same
lock of the system as for a folder. What is written shows with its commit; a killed writer leaves
what it committed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import icechunk

from sweepkit.ground import Apart
from sweepkit.lock import held
from sweepkit.places import KeyPath, Place
from sweepkit.protocols import StoreBusyError
from sweepkit.versioned import BRANCH, Versions, repository

__all__ = ["Icechunk"]


class Icechunk:
    """A repository on this machine: locked by the system, shown by commits.

    Parameters
    ----------
    versions : Versions
        What is read and written.
    """

    keeps_files = False
    chunk_seconds = 0.003
    pause_seconds = 1.0

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._session: Any = None
        self._apart = Apart()

    @contextmanager
    def hold(self, root: Place, beside: Place) -> Iterator[None]:
        """Be the only writer, from the last version on."""
        assert isinstance(root, KeyPath)
        path = Path(self._versions.path)
        with held(path, path.with_name(f"{path.name}.sweepkit")):
            self._repository = repository(str(path), make=True)
            self._begin()
            root.store.remember([root.key], but=".sweepkit")
            try:
                yield
            finally:
                root.store.forget()
                self.publish("the end of a session")
                self._session = None
                self._versions.look()
                self._apart.leave()

    def _begin(self) -> None:
        self._session = self._repository.writable_session(BRANCH)
        self._versions.turn(self._session.store)

    def look(self) -> None:
        """See the last version, unless it is being written here."""
        if self._session is None:
            self._versions.look()

    def publish(self, message: str) -> None:
        """Commit what was written, if anything was.

        Raises
        ------
        StoreBusyError
            If somebody else committed meanwhile.
        """
        if self._session is None or not self._session.has_uncommitted_changes:
            return
        try:
            self._session.commit(message)
        except icechunk.ConflictError as fault:
            raise StoreBusyError(
                f"{self._versions.path} was written by another process meanwhile, past its lock "
                f"({fault}); what was committed before stays, and sk.run goes on from there"
            ) from fault
        self._begin()

    def write(self, work: Callable[[], None]) -> None:
        """Do it now."""
        work()

    def settle(self) -> None:
        """Nothing is under way."""

    def folder(self, beside: Place, name: str) -> str:
        """A folder of this machine, while the store is held."""
        return self._apart.folder(name)

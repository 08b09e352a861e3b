"""A bucket as the ground of a store: S3 and what speaks like it, and other keyed stores.

Requests take a round trip each, so that values of several chunks travel at the same time; whoever
needs them there, such as the status that counts them, waits for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from sweepkit.ground import Apart
from sweepkit.lease import leased
from sweepkit.places import KeyPath, Place
from sweepkit.protocols import StoreError

__all__ = ["Objects"]

AT_ONCE = 8
"""Chunks that travel at the same time."""


class Objects:
    """Objects by key: locked by a lease, written several at a time."""

    keeps_files = False
    chunk_seconds = 0.02
    pause_seconds = 2.0

    def __init__(self) -> None:
        self._crew: ThreadPoolExecutor | None = None
        self._travelling: list[Future[None]] = []
        self._fault: BaseException | None = None
        self._apart = Apart()

    @contextmanager
    def hold(self, root: Place, beside: Place) -> Iterator[None]:
        """Be the only writer, by a lease."""
        assert isinstance(root, KeyPath)
        assert isinstance(beside, KeyPath)
        with leased(root, beside), ThreadPoolExecutor(AT_ONCE, "sweepkit-write") as crew:
            self._crew, self._fault = crew, None
            try:
                yield
                self.settle()
            finally:
                with suppress(StoreError):
                    self.settle()
                self._crew = None
                self._apart.leave()

    def look(self) -> None:
        """What is read is what is there."""

    def publish(self, message: str) -> None:
        """Each write shows at once."""

    def write(self, work: Callable[[], None]) -> None:
        """Do it soon.

        Raises
        ------
        StoreError
            If something before could not be done: what it wrote is missing, and nothing that may
            rest on it is done any more.
        """
        if self._fault is not None:
            raise self._fault
        if self._crew is None:
            work()
            return
        self._travelling.append(self._crew.submit(work))
        if len(self._travelling) > 2 * AT_ONCE:  # memory is not without end
            self._wait(self._travelling.pop(0))

    def settle(self) -> None:
        """Wait until all is there.

        Raises
        ------
        StoreError
            If something could not be written.
        """
        travelling, self._travelling = self._travelling, []
        for one in travelling:
            self._wait(one)
        if self._fault is not None:
            raise self._fault

    def _wait(self, one: Future[None]) -> None:
        fault = one.exception()
        if fault is not None:
            self._fault = self._fault or fault
            raise fault

    def folder(self, beside: Place, name: str) -> str:
        """A folder of this machine, while the store is held: workers cannot write beside it."""
        return self._apart.folder(name)

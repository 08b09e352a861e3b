"""The contracts that executors and stores keep, and what passes between them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sweepkit.columns import Column
from sweepkit.format1 import Layout, Variable
from sweepkit.parameters import Parameter
from sweepkit.parcels import Depot, Parcel
from sweepkit.places import Place, Where
from sweepkit.root import StoreError, UnreachableError

__all__ = [
    "Awaited",
    "Batch",
    "ComputeLostError",
    "Crew",
    "Executor",
    "Ground",
    "Holder",
    "Outcome",
    "Result",
    "Share",
    "Store",
    "StoreBusyError",
    "StoreError",
    "UnreachableError",
    "UnwritableError",
    "everyone",
]


@dataclass(frozen=True)
class Batch:
    """Runs that travel to a worker together; all lie in one block of the store.

    Attributes
    ----------
    block : int
        Number of the block.
    cells : array of int, shape (n,)
        Positions within the block, flat in C order.
    runs : array of int, shape (n,)
        Numbers of the runs in the declared grid, in C order.
    seconds : float
        How long the batch is expected to take on one worker.
    lost : int
        How often before these runs were begun, and their results lost with their worker.
    """

    block: int
    cells: NDArray[np.int64]
    runs: NDArray[np.int64]
    seconds: float = 0.0
    lost: int = 0

    def __len__(self) -> int:
        return len(self.runs)

    def part(self, rows: slice) -> Batch:
        """Some of the runs."""
        share = len(self.runs[rows]) / max(len(self.runs), 1)
        return replace(
            self, cells=self.cells[rows], runs=self.runs[rows], seconds=self.seconds * share
        )

    def begun(self) -> Batch:
        """The same after its runs were begun and their results lost."""
        return replace(self, lost=self.lost + 1)


@dataclass(frozen=True)
class Result:
    """What became of the first runs of a batch, as columns.

    Attributes
    ----------
    status : array of int8, shape (n,)
        n is less than the length of the batch if it was stopped early.
    duration : array of float, shape (n,)
        Seconds of each run.
    columns : mapping of str to list of Column
        Outputs of the runs that are done.
    errors, logs : mapping of int to str
        Error in one line and captured text, by row, where there is any.
    notes : tuple of str
        What runs did to the process around them, such as a changed working directory.
    misnamed : str or None
        What is wrong with an output's name that no store can have, if there is such a one.
    """

    status: NDArray[np.int8]
    duration: NDArray[np.float64]
    columns: Mapping[str, list[Column]] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    logs: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    misnamed: str | None = None

    def __len__(self) -> int:
        return len(self.status)


@dataclass(frozen=True)
class Outcome:
    """A batch and what became of it."""

    batch: Batch
    result: Result


Share: TypeAlias = Callable[[int], int]
"""How many workers a crew may have, given how many it has; asked often, answered at once."""


def everyone(using: int) -> int:
    """The share of a crew that need not share."""
    return sys.maxsize


class Crew(Protocol):
    """Held workers."""

    def map(
        self,
        batches: Iterator[Batch],
        stopping: Callable[[], bool],
        share: Share = everyone,
    ) -> Iterator[Outcome | None]:
        """Run batches, pulled as workers come free, and yield outcomes as they come, unordered.

        None is yielded at least each second while there is no outcome, so that whoever iterates
        can report and write meanwhile; where runs share the caller's thread, between batches.

        While the crew has more workers than its share, no batch is pulled, and a worker is let go
        when what it was given is done; with a share of 0 all wait until it is more.

        An outcome may be of the first runs of a batch, with the others in later ones. Every run
        pulled is in exactly one outcome, unless ``stopping()`` became true: then no more is
        pulled, runs in flight may be given up, and the iterator ends soon. A run that ends its
        worker has the status crashed or timeout and costs no other run its outcome.
        """


@runtime_checkable
class Awaited(Protocol):
    """A crew whose workers may have to be waited for, as in a queue."""

    def waiting(self) -> str:
        """Why there is no worker, in a sentence; empty while there is one. Asked often.

        While there is none nothing is metered, and the job is queued.
        """


class Executor(Protocol):
    """Compute that can be held."""

    @property
    def workers(self) -> int:
        """Runs that go on at the same time."""

    def hold(
        self, task: Any, *, timeout: Callable[[], float | None] | None
    ) -> AbstractContextManager[Crew]:
        """Hold workers for a task and release them at the end, also when it fails.

        ``timeout()`` is the time limit of a run in seconds, None while it is not known yet.

        Raises
        ------
        ValueError
            If a time limit is asked for and a run cannot be killed here.
        """


class ComputeLostError(RuntimeError):
    """Compute that was held is gone, or none can be had; what was counted is kept."""


@dataclass(frozen=True)
class Holder:
    """Who writes to a store."""

    pid: int
    host: str
    since: str


class StoreBusyError(StoreError):
    """Another process writes to the store."""


class UnwritableError(StoreError):
    """Nothing can be written at the path of a store."""


class Ground(Protocol):
    """What a store in a Zarr group stands on: how it is locked, and written."""

    keeps_files: bool
    """Whether workers may leave files beside a store."""
    chunk_seconds: float
    """What writing a chunk takes, in seconds, as far as is known beforehand."""
    pause_seconds: float
    """Least time between two flushes, also where each run is slow."""

    def hold(self, root: Place, beside: Place) -> AbstractContextManager[None]:
        """Be the only writer; raises StoreBusyError or UnwritableError as a store does."""

    def look(self) -> None:
        """See what is there now, unless it is being written here."""

    def publish(self, message: str) -> None:
        """Show readers what was written, where not each write shows at once."""

    def write(self, work: Callable[[], None]) -> None:
        """Do a write, now or soon; what is given to it must not be changed before it is settled.

        Raises
        ------
        StoreError
            If it, or one before, cannot be done; then none after it is done either.
        """

    def settle(self) -> None:
        """Wait until all writes are done; raises StoreError if one was not."""

    def folder(self, beside: Place, name: str) -> str:
        """Path of a folder that workers on this machine may write to while it is held."""


class Store(Protocol):
    """Where a sweep is kept: boxes of variables over the runs, axes, and a declaration.

    Whatever fails for want of the store raises StoreError with the path and what to do.
    """

    layout: Layout
    """As it is committed, or about to be."""

    @property
    def path(self) -> str:
        """Where it is, for people."""

    @property
    def where(self) -> Where:
        """Where it is, for readers."""

    @property
    def declaration(self) -> dict[str, Any]:
        """What was committed last, as plain data."""

    @property
    def chunk_seconds(self) -> float:
        """What writing a chunk takes, in seconds, as far as is known beforehand."""

    @property
    def pause_seconds(self) -> float:
        """Least time between two flushes, also where each run is slow."""

    @property
    def keeps_files(self) -> bool:
        """Whether workers may leave files beside it, and they are kept."""

    # --- one writer ---

    def hold(self) -> AbstractContextManager[None]:
        """Be the only writer; raises StoreBusyError naming the other.

        Raises UnwritableError where nothing can be written.
        """

    def exists(self) -> bool:
        """Whether a layout was committed; what a killed writer began is finished or undone."""

    def open(self) -> None:
        """Read the committed layout, as its writer: an uncommitted growth is undone."""

    def peek(self) -> None:
        """Read the committed layout without being its writer."""

    # --- the layout; readers see a change once it is committed ---

    def create(
        self, layout: Layout, parameters: Sequence[Parameter], declaration: Mapping[str, Any]
    ) -> None:
        """Make all arrays, then commit."""

    def grow(self, parameters: Sequence[Parameter], declaration: Mapping[str, Any]) -> None:
        """Extend the axes to those given, which begin with the stored ones, then commit."""

    def add(
        self,
        variables: Sequence[Variable],
        coords: Mapping[str, NDArray[Any]],
        declaration: Mapping[str, Any],
    ) -> None:
        """Add variables and coordinates along their own dims, then commit."""

    def make(self, variable: Variable, layout: Layout) -> None:
        """Make the array of one variable."""

    def relabel(
        self, parameters: Sequence[Parameter], outputs: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Give coordinates and outputs other units and names."""

    def note(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Add attributes to a variable, then commit."""

    def commit(self, declaration: Mapping[str, Any] | None = None) -> None:
        """Make the layout and the declaration visible, all at once."""

    def rewriting(self) -> AbstractContextManager[Store]:
        """A new store to be filled that takes this one's place at the end, all at once."""

    # --- values ---

    def parameter_values(self, parameters: Sequence[Mapping[str, Any]]) -> dict[str, Parameter]:
        """The axes, in order of arrival."""

    def read(self, name: str, box: tuple[slice, ...]) -> NDArray[Any]:
        """Values of a variable in a box of runs."""

    def write(self, name: str, box: tuple[slice, ...], values: NDArray[Any]) -> None:
        """Write values; the box must cover whole chunks, or what is left of them at the edge.

        Writes may be under way when it returns; a status is written when all before it are.
        """

    def depot(self) -> AbstractContextManager[Depot | None]:
        """Where workers put big values themselves, for as long as it is held.

        None where they cannot: their results then bring the values.
        """

    def unpacked(self, parcel: Parcel) -> NDArray[Any]:
        """The value that a worker put into the depot."""

    def deliver(self, name: str, index: tuple[int, ...], parcel: Parcel) -> None:
        """Make a parcel the chunk of a variable at an index, all at once."""

    def has_chunk(self, name: str, index: tuple[int, ...]) -> bool:
        """Whether a chunk of a variable is there."""

    def sound(self, name: str, index: tuple[int, ...]) -> bool:
        """Whether a chunk that is there fits its checksum; True where looking costs much."""

    def damaged_axes(self) -> dict[str, str]:
        """Coordinates that cannot be read or were changed, each with what is wrong with it."""

    def restorable(self, name: str) -> bool:
        """Whether a coordinate that cannot be read is restored by who opens the store to write."""

    def damaged_metadata(self) -> dict[str, str]:
        """Variables whose metadata are not as committed, each with what is wrong with it."""

    def publish(self, message: str) -> None:
        """Show readers what was written, where not each write shows at once.

        Stores that keep versions make one, with the message; a layout that is committed, and what
        was written when the store is let go, are shown without being asked for.
        """

    # --- beside the sweep ---

    def memo(self, name: str) -> str | None:
        """A small text kept beside the sweep, None if there is none."""

    def set_memo(self, name: str, text: str | None) -> None:
        """Keep a small text beside the sweep, or with None forget it.

        May raise OSError or UnreachableError.
        """

    def memos(self, folder: str) -> list[str]:
        """Names of the small texts in a folder beside the sweep, in order."""

    def folder(self, name: str) -> str:
        """Path of a folder that workers may write to; where files are kept, beside the sweep."""

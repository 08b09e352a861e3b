"""A sweep in a Zarr v3 group: created, grown, written by one, read by any.

It may lie in a folder or, on other ground, in a keyed store; see the siblings of this module.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.arrays import Arrays, reaching, writing
from sweepkit.commit import (
    attributes_of,
    composed,
    listed_stages,
    make_stages,
    mend_arrays,
    mend_root,
    own_arrays,
    read_root,
    refuse_dangling,
    refuse_foreign,
    stage_arrays,
    stage_numbers,
    warn_of_lost,
)
from sweepkit.coordinates import Coordinates
from sweepkit.files import clear_way, drop_partials, loads, remove_tree, replace_file
from sweepkit.format1 import ATTRIBUTE, Layout, Variable, axis, layout_of
from sweepkit.ground import Folder
from sweepkit.growth import added, grown, make_arrays, make_variable, noted, relabelled
from sweepkit.memos import keep_memo, memo_names, read_memo, stage_memo
from sweepkit.parameters import Parameter
from sweepkit.parcels import (
    FolderDepot,
    Parcel,
    clear_parcels,
    deliver,
    depot_beside,
    unpacked,
)
from sweepkit.places import KeyPath, Where, place
from sweepkit.protocols import Ground
from sweepkit.root import CHECKSUM, STAGES, side_folder
from sweepkit.swap import Swap

__all__ = ["STAGES", "ZarrStore"]


class ZarrStore:
    """A sweep in a Zarr group.

    Parameters
    ----------
    path : path or KeyPath
        Of the group; locks, receipts and the like go to ``<path>.sweepkit`` beside it.
    whole : ZarrStore, optional
        The store of which this is a stage: it lists the stage, and is held by whoever writes.
    ground : Ground, optional
        What it stands on; by default a folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | KeyPath,
        *,
        whole: ZarrStore | None = None,
        ground: Ground | None = None,
    ) -> None:
        self.root = place(path)  # runs in this process may change its working directory
        self.whole = whole
        self.ground = Folder() if ground is None else ground
        self.beside = side_folder(self.root)
        if whole is not None:
            self.beside = whole.beside / STAGES / self.root.name
        self.arrays = Arrays(self.root)
        self.layout = Layout({}, (), {})
        self.attributes: dict[str, Any] = {}
        self._copied = True

    @property
    def path(self) -> str:
        """Where it is, for people."""
        return str(self.root)

    @property
    def where(self) -> Where:
        """Where it is, for readers."""
        return self.root if isinstance(self.root, KeyPath) else str(self.root)

    @property
    def keeps_files(self) -> bool:
        """Whether workers may leave files beside it."""
        return self.ground.keeps_files

    @property
    def chunk_seconds(self) -> float:
        """What writing a chunk takes, as far as is known beforehand."""
        return self.ground.chunk_seconds

    @property
    def pause_seconds(self) -> float:
        """Least time between two flushes."""
        return self.ground.pause_seconds

    # --- one writer ---

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only writer.

        Raises
        ------
        StoreBusyError
            If another process writes; names its pid, host and since when.
        UnwritableError
            If the path cannot be written.
        """
        if self.whole is None:
            with self.ground.hold(self.root, self.beside):
                clear_parcels(self.beside)
                yield
        else:  # one lock for all: who writes a stage holds the whole store
            self.beside.mkdir(parents=True, exist_ok=True)
            clear_parcels(self.beside)
            yield

    # --- the layout ---

    def exists(self) -> bool:
        """Whether a layout was committed here."""
        with reaching(self.path):
            refuse_dangling(self.root)
            self.ground.look()
            self._finish_swap()
            mend_root(self.root, self.beside)
            if (self.root / "zarr.json").exists():
                return True
            refuse_foreign(self.root, self.beside)
            return False

    def create(
        self,
        layout: Layout,
        parameters: Sequence[Parameter],
        declaration: Mapping[str, Any],
    ) -> None:
        """Make the arrays, then commit the layout by the root, last."""
        self.layout = layout
        remove_tree(self.beside / "axes", ignore_errors=True)  # of a store that is gone
        self.root.mkdir(parents=True, exist_ok=True)
        make_arrays(self.arrays, layout, parameters)
        self.commit(declaration)

    def make(self, variable: Variable, layout: Layout) -> None:
        """Make the array of a variable; readers see it once the layout is committed."""
        make_variable(self.arrays, variable, layout)

    def commit(
        self,
        declaration: Mapping[str, Any] | None = None,
        *,
        unlisted: str = "",
        token: str = "",
        stages: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the root with the layout as it is now: from here on readers see it.

        Stages are listed as they are on disk, but for the one named to be ``unlisted``, or as
        given; a ``token`` tells this root from others.
        """
        if declaration is not None:
            self.attributes = attributes_of(declaration, self.layout)
        self.ground.settle()
        listed = self._listed(unlisted) if stages is None else stages
        text = composed(self.root, self.attributes, listed, token)
        if self._copied:
            with suppress(OSError):
                replace_file(self.beside / "root.json", text, durable=True)
        with self._writing("the layout"):
            replace_file(self.root / "zarr.json", text, durable=True)
        if self.whole is not None:
            self.whole.commit()
        self.ground.publish("the layout")

    def publish(self, message: str) -> None:
        """Show readers what was written, where not each write shows at once."""
        self.ground.settle()
        self.ground.publish(message)

    # --- stages ---

    @property
    def stages(self) -> list[int]:
        """Numbers of the stages: refinements of the sweep, each a store within this one."""
        with reaching(self.path):
            return stage_numbers(self.root, self.beside)

    def stage(self, number: int) -> ZarrStore:
        """A stage, to be made by who holds this store if it is not there yet."""
        return ZarrStore(self.root / STAGES / str(number), whole=self, ground=self.ground)

    def _listed(self, unlisted: str = "") -> dict[str, Any]:
        numbers = [number for number in self.stages if str(number) != unlisted]
        return listed_stages(self.root, self.beside, numbers)

    @property
    def declaration(self) -> dict[str, Any]:
        """The declaration as it was committed."""
        return dict(json.loads(self.attributes[ATTRIBUTE]))

    def open(self) -> None:
        """Read the committed layout, as its writer: an uncommitted growth is undone.

        Raises
        ------
        StoreError
            If it is no sweep, of a newer format, or its root is damaged.
        """
        with reaching(self.path):
            self._open()

    def _open(self) -> None:
        self.ground.look()
        mend_root(self.root, self.beside)
        root = read_root(self.root, self.beside)
        own_copy = loads(self.beside / "root.json") == root
        if not own_copy:  # of before a swap, or never committed
            with suppress(OSError):
                replace_file(self.beside / "root.json", json.dumps(root))
        self.attributes = root["attributes"]
        mend_arrays(self.root, root)
        drop_partials(self.root)
        self.arrays.committed(own_arrays(root))
        self._coordinates().mend(own_copy)
        self.arrays.forget()
        self.layout = self._committed_layout()
        listed, now = root["consolidated_metadata"], self._listed()
        if now:
            make_stages(self.root / STAGES)
        group = STAGES in listed["metadata"] or not now
        warn_of_lost(self.root, self.beside, stage_arrays(root), now)
        if stage_arrays(root) != now or CHECKSUM not in listed or not group:
            self.commit()  # a stage was made or changed, and its writer killed before it was listed

    def _coordinates(self) -> Coordinates:
        said = self.declaration
        along = list(said["stored"].get("coords", ()))
        names = [one["name"] for one in said["parameters"]] + along
        return Coordinates(self.root, self.beside, self.arrays, names)

    def damaged_axes(self) -> dict[str, str]:
        """Coordinates that cannot be read or were changed, each with what is wrong with it."""
        return self._coordinates().damaged()

    def restorable(self, name: str) -> bool:
        """Whether a coordinate that cannot be read is restored by who opens the store to write."""
        return self._coordinates().restorable(name)

    def damaged_metadata(self) -> dict[str, str]:
        """Variables whose metadata are not as committed, each with what is wrong with it."""
        return self.arrays.damaged_metadata()

    def peek(self) -> None:
        """Read the committed layout without being its writer.

        Raises
        ------
        StoreError
            As :meth:`open`.
        """
        self.ground.look()
        root = read_root(self.root, self.beside)
        self.attributes = root["attributes"]
        self.arrays.committed(own_arrays(root), peek=True)
        self.layout = self._committed_layout()

    def _committed_layout(self) -> Layout:
        said = self.declaration
        along = list(said["stored"].get("coords", ()))
        lost = self.arrays.damaged_axes(along, self.path)  # only who peeks meets any
        coords = {dim: self.arrays.own_axis(dim) for dim in along if dim not in lost}
        return replace(layout_of(said), coords=coords)

    # --- values ---

    def has_chunk(self, name: str, index: tuple[int, ...]) -> bool:
        """Whether a chunk of a variable is there."""
        self.ground.settle()
        return self.arrays.has_chunk(name, index)

    def sound(self, name: str, index: tuple[int, ...]) -> bool:
        """Whether a chunk that is there fits its checksum; True where looking would cost much."""
        return self.arrays.sound(name, index)

    def read(self, name: str, box: tuple[slice, ...]) -> NDArray[Any]:
        """Values of a variable in a box of runs, in memory's data type.

        Raises
        ------
        StoreError
            If a chunk is damaged; names the variable and the box.
        """
        self.ground.settle()
        return self.arrays.read(name, box, self.path)

    def write(self, name: str, box: tuple[slice, ...], values: NDArray[Any]) -> None:
        """Write values to a box of runs that covers whole chunks.

        Raises
        ------
        StoreError
            If the disk is full or gone; says how much is free.
        """
        if name == "status":  # what it counts must be there
            self.ground.settle()
        self.ground.write(partial(self._write, name, box, values))
        if name == "status":
            self.ground.settle()

    def _write(self, name: str, box: tuple[slice, ...], values: NDArray[Any]) -> None:
        with self._writing(f"variable {name!r}"):
            self.arrays.write(name, box, values)

    # --- what workers write ---

    def depot(self) -> AbstractContextManager[FolderDepot | None]:
        """A folder beside the store that workers put big values into; none where it has no path."""
        return depot_beside(self.beside, self.layout.variables.values())

    def unpacked(self, parcel: Parcel) -> NDArray[Any]:
        """The value that a worker put into the depot."""
        with self._writing("what a worker wrote"):
            return unpacked(parcel)

    def deliver(self, name: str, index: tuple[int, ...], parcel: Parcel) -> None:
        """Make a parcel the chunk of a variable at an index, all at once.

        Raises
        ------
        StoreError
            If the parcel is gone, or cannot be put there.
        """
        with self._writing(f"variable {name!r}"):
            array, inner = Path(self.path, name), ("c", *map(str, index))
            clear_way(array, *inner)
            deliver(parcel, array.joinpath(*inner))

    def _writing(self, what: str) -> AbstractContextManager[None]:
        return writing(self.path, what, self.beside)

    def parameter_values(self, parameters: Sequence[Mapping[str, Any]]) -> dict[str, Parameter]:
        """The stored axes, in order of arrival."""
        return {
            said["name"]: axis(said, np.asarray(self.arrays[said["name"]][...]))
            for said in parameters
        }

    # --- beside the sweep ---

    def memo(self, name: str) -> str | None:
        """A small text kept beside the sweep, None if there is none or it is damaged."""
        return read_memo(self.beside, name)

    def set_memo(self, name: str, text: str | None) -> None:
        """Keep a small text beside the sweep, or with None forget it."""
        if self.whole is not None and name.startswith("sessions/"):
            self.whole.set_memo(stage_memo(name, self.root.name), text)  # all in one place
        else:
            keep_memo(self.beside, name, text)

    def memos(self, folder: str) -> list[str]:
        """Names of the small texts in a folder beside the sweep, in order."""
        return memo_names(self.beside, folder)

    def folder(self, name: str) -> str:
        """Path of a folder beside the sweep that workers may write to."""
        return self.ground.folder(self.beside, name)

    # --- growth ---

    def grow(self, parameters: Sequence[Parameter], declaration: Mapping[str, Any]) -> None:
        """Extend the axes to those given, which begin with the stored ones, and commit.

        Children first, the root last: a growth that was not committed is undone when the next
        writer opens the store.
        """
        with self._writing("the axes"):
            self.layout = grown(self.arrays, self.layout, parameters)
        self.commit(declaration)
        self._coordinates().keep()

    def add(
        self,
        variables: Sequence[Variable],
        coords: Mapping[str, NDArray[Any]],
        declaration: Mapping[str, Any],
    ) -> None:
        """Add variables, filled with nothing, and coordinates along their own dims, and commit."""
        with self._writing("the layout"):
            self.layout = added(self.arrays, self.layout, variables, coords)
        self.commit(declaration)
        self._coordinates().keep()

    def relabel(
        self, parameters: Sequence[Parameter], outputs: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Give coordinates and outputs the units and names declared now.

        Readers see them once the layout is committed.
        """
        self.layout = relabelled(self.root, self.arrays, self.layout, parameters, outputs)

    def note(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Add attributes to a variable and commit."""
        with self._writing(f"variable {name!r}"):
            self.layout = noted(self.arrays, self.layout, name, attrs)
        said = self.declaration
        said.pop("stored", None)
        self.commit(said)

    # --- rewriting whole ---

    @contextmanager
    def rewriting(self) -> Iterator[ZarrStore]:
        """A new store to be filled; it takes this one's place, if any, at the end, all at once.

        A kill at any moment leaves the old store or the new one; the swap is finished by whoever
        opens the store next.
        """
        self.ground.settle()
        made = Swap(self.root, self.beside)
        fresh = ZarrStore(made.fresh, ground=self.ground)
        fresh._copied = False  # that of this store is what a swap is checked by
        made.clear()
        with self._writing("the store"):
            yield fresh
            if self.whole is None:
                made.link_stages()
            token = made.new_token()
            stages = self._listed() if self.whole is None else None  # also those that are lost
            fresh.commit(token=token, stages=stages)
            made.announce(token)
            self._finish_swap()
        self.open()

    def _finish_swap(self) -> None:
        """Put what was made anew in this one's place, unless it is there already."""
        made = Swap(self.root, self.beside)
        if not made.announced:
            return
        if made.due:
            if self.whole is not None:
                self._make_room(self.whole)
            made.make()
            self.ground.publish("the store made anew")
        made.keep_stages()
        if self.whole is not None:
            self.whole.commit()
        made.end()

    def _make_room(self, whole: ZarrStore) -> None:
        """Before a stage takes its place, or another's: what is listed must be as it is listed."""
        make_stages(self.root.parent)
        if self.root.exists():
            whole.commit(unlisted=self.root.name)

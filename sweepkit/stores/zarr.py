"""A sweep in a Zarr v3 group: created, grown, written by one, read by any.

It may lie in a folder or, on other ground, in a keyed store; see the siblings of this module.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.arrays import Arrays, writing
from sweepkit.axes import RESTORED, keep_axes, mend_axes, way_back
from sweepkit.commit import (
    composed,
    is_group,
    listed_stages,
    mend_root,
    own_arrays,
    read_root,
    token_of,
)
from sweepkit.files import (
    drop_partials,
    link_tree,
    loads,
    move_tree,
    read_bytes,
    remove_tree,
    replace_file,
    swap,
)
from sweepkit.format1 import (
    ATTRIBUTE,
    FORMAT,
    Layout,
    Variable,
    axis,
    coordinate,
    layout_json,
    layout_of,
    stored,
    stored_name,
)
from sweepkit.ground import Folder
from sweepkit.parameters import Parameter
from sweepkit.parcels import FolderDepot, Parcel, deliver, folder_depot, unpacked
from sweepkit.places import KeyPath, Where, place
from sweepkit.protocols import Ground, StoreError
from sweepkit.root import CHECKSUM, STAGES, side_folder

__all__ = ["STAGES", "ZarrStore"]

PARCELS = "parcels"
"""Folder beside the store that workers put big values into."""


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
                self._clear_parcels()
                yield
        else:  # one lock for all: who writes a stage holds the whole store
            self.beside.mkdir(parents=True, exist_ok=True)
            self._clear_parcels()
            yield

    def _clear_parcels(self) -> None:
        """Remove what workers of a killed session have left: nobody has a receipt for it."""
        if isinstance(self.beside, Path):
            remove_tree(self.beside / PARCELS, ignore_errors=True)

    # --- the layout ---

    def exists(self) -> bool:
        """Whether a layout was committed here."""
        if isinstance(self.root, Path) and self.root.is_symlink() and not self.root.exists():
            raise StoreError(
                f"{self.path} is a link to {os.readlink(self.root)}, which is not there; remove "
                "the link or choose another path"
            )
        self.ground.look()
        self._finish_swap()
        mend_root(self.root, self.beside)
        if (self.root / "zarr.json").exists():
            return True
        if self.root.exists():
            foreign = (
                sorted(one.name for one in self.root.iterdir())
                if self.root.is_dir()
                else [self.root.name]
            )
            foreign = [name for name in foreign if name != self.beside.name]
            if foreign:
                raise StoreError(
                    f"{self.path} exists and is no sweep (it holds {', '.join(foreign[:3])}); "
                    "choose another path"
                )
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
        for one in parameters:
            self._make_coordinate(one)
        for dim, values in layout.coords.items():
            self.arrays.make_own_axis(dim, values)
        for variable in layout.variables.values():
            self.make(variable, layout)
        self.commit(declaration)

    def _make_coordinate(self, one: Parameter) -> None:
        chunks = (max(one.size, 256), *one.values.shape[1:])
        self.arrays.make_axis(coordinate(one), chunks, one.values)

    def make(self, variable: Variable, layout: Layout) -> None:
        """Make the array of a variable; readers see it once the layout is committed."""
        chunk = layout.chunk(variable) + variable.shape
        shape = layout.shape + variable.shape
        self.arrays.make(variable, shape, chunk, layout.dims + variable.dims)

    def commit(
        self,
        declaration: Mapping[str, Any] | None = None,
        *,
        unlisted: str = "",
        token: str = "",
    ) -> None:
        """Replace the root with the layout as it is now: from here on readers see it.

        Stages are listed as they are on disk, but for the one named to be ``unlisted``; a
        ``token`` tells this root from others.
        """
        if declaration is not None:
            self.attributes = {
                "sweepkit_format": FORMAT,
                ATTRIBUTE: json.dumps({**declaration, **layout_json(self.layout)}),
            }
            shared = [p["name"] for p in declaration["parameters"] if p["dims"] != [p["name"]]]
            if shared:  # any reader then knows them for coordinates, as CF says it
                self.attributes["coordinates"] = " ".join(shared)
        self.ground.settle()
        text = composed(self.root, self.attributes, self._listed(unlisted), token)
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
        found = {one.parent for one in (self.root / STAGES).glob("*/zarr.json")}
        copies = (self.beside / STAGES).glob("*/root.json")  # of which one may have lost its root
        found |= {self.root / STAGES / one.parent.name for one in copies}
        return sorted(int(one.name) for one in found if one.name.isdigit() and one.is_dir())

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
        self.ground.look()
        mend_root(self.root, self.beside)
        root = read_root(self.root, self.beside)
        own_copy = loads(self.beside / "root.json") == root
        if not own_copy:  # of before a swap, or never committed
            with suppress(OSError):
                replace_file(self.beside / "root.json", json.dumps(root))
        self.attributes = root["attributes"]
        committed = root["consolidated_metadata"]["metadata"]
        for path in self.root.glob("*/zarr.json"):
            if path.parent.name not in committed and not is_group(path.parent):
                remove_tree(path.parent)
        own = own_arrays(root)
        for name, metadata in own.items():
            path = self.root / name / "zarr.json"
            if loads(path) != metadata:
                path.parent.mkdir(exist_ok=True)
                replace_file(path, json.dumps(metadata))
        drop_partials(self.root)
        self.arrays.committed(own)
        changed = self._changed_axes if own_copy else dict
        mend_axes(self.root, self.beside, self._axes(), self._unreadable_axes, changed)
        self.arrays.forget()
        self.layout = self._committed_layout()
        listed = {n: said for n, said in committed.items() if "/" in n}
        if listed != self._listed() or CHECKSUM not in root["consolidated_metadata"]:
            self.commit()  # a stage was made or changed, and its writer killed before it was listed

    def _axes(self) -> list[str]:
        """Names of all coordinates: of the parameters, and along own dims of outputs."""
        said = self.declaration
        return [one["name"] for one in said["parameters"]] + list(said["stored"].get("coords", ()))

    def _unreadable_axes(self) -> dict[str, str]:
        return self.arrays.damaged_axes(self._axes(), self.path)

    def damaged_axes(self) -> dict[str, str]:
        """Coordinates that cannot be read or were changed, each with what is wrong with it."""
        found = self._unreadable_axes()
        own_copy = loads(self.beside / "root.json") == loads(self.root / "zarr.json")
        return {**(self._changed_axes() if own_copy else {}), **found}

    def _changed_axes(self) -> dict[str, str]:
        return self.arrays.changed_axes(self._axes(), self.beside / "axes")

    def restorable(self, name: str) -> bool:
        """Whether a coordinate that cannot be read is restored by who opens the store to write."""
        unreadable = name in self._unreadable_axes()
        return unreadable and way_back(self.root, self.beside, name) == RESTORED

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
        if not isinstance(self.beside, Path):
            return nullcontext()
        guards = {name: one.guards for name, one in self.layout.variables.items() if one.guards}
        return folder_depot(self.beside / PARCELS, guards)

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
            deliver(parcel, Path(self.path, name, "c", *map(str, index)))

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
        try:
            return (self.beside / name).read_text()
        except (OSError, ValueError):  # it is no text any more, or a zip's checksum disagrees
            return None

    def set_memo(self, name: str, text: str | None) -> None:
        """Keep a small text beside the sweep, or with None forget it."""
        if self.whole is not None and name.startswith("sessions/"):
            stem, dot, ending = name.rpartition(".")  # receipts of all stages in one place
            self.whole.set_memo(f"{stem}-stage-{self.root.name}{dot}{ending}", text)
            return
        path = self.beside / name
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text)

    def memos(self, folder: str) -> list[str]:
        """Names of the small texts in a folder beside the sweep, in order."""
        return sorted(one.name for one in (self.beside / folder).glob("*.json"))

    def folder(self, name: str) -> str:
        """Path of a folder beside the sweep that workers may write to."""
        return self.ground.folder(self.beside, name)

    # --- growth ---

    def grow(self, parameters: Sequence[Parameter], declaration: Mapping[str, Any]) -> None:
        """Extend the axes to those given, which begin with the stored ones, and commit.

        Children first, the root last: a growth that was not committed is undone when the next
        writer opens the store.
        """
        sizes = dict(self.layout.sizes)
        for one in parameters:
            sizes[one.dim] = one.size
        self.layout = replace(self.layout, sizes=sizes)
        with self._writing("the axes"):
            for one in parameters:
                array = self.arrays[one.name]
                dtype = stored_name(one.values)
                given = stored(one.values, dtype)
                wider = np.dtype(object) if dtype == "str" else given.dtype
                if dtype != "str" and np.dtype(array.dtype) != wider:
                    self._make_coordinate(one)
                elif array.shape != one.values.shape:
                    array.resize(one.values.shape)
                    array[...] = given
            for variable in self.layout.variables.values():
                shape = self.layout.shape + variable.shape
                if self.arrays[variable.name].shape != shape:
                    self.arrays[variable.name].resize(shape)
        self.arrays.forget()
        self.commit(declaration)
        keep_axes(self.root, self.beside, self._axes())

    def add(
        self,
        variables: Sequence[Variable],
        coords: Mapping[str, NDArray[Any]],
        declaration: Mapping[str, Any],
    ) -> None:
        """Add variables, filled with nothing, and coordinates along their own dims, and commit."""
        named = {variable.name: variable for variable in variables}
        self.layout = replace(
            self.layout,
            variables={**self.layout.variables, **named},
            coords={**coords, **self.layout.coords},
        )
        for dim, values in self.layout.coords.items():
            self.arrays.make_own_axis(dim, values)
        with self._writing("the layout"):
            for variable in variables:
                self.make(variable, self.layout)
        self.commit(declaration)
        keep_axes(self.root, self.beside, self._axes())

    def relabel(
        self, parameters: Sequence[Parameter], outputs: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Give coordinates and outputs the units and names declared now.

        Readers see them once the layout is committed.
        """
        variables = dict(self.layout.variables)
        for name, attrs in outputs.items():
            if name in variables:
                old = variables[name]
                variables[name] = replace(old, attrs={**old.attrs, **attrs})
        self.layout = replace(self.layout, variables=variables)
        for one in (
            *map(coordinate, parameters),
            *(variables[n] for n in outputs if n in variables),
        ):
            path = self.root / one.name / "zarr.json"
            metadata = json.loads(path.read_text())
            if metadata["attributes"] != one.stored_attrs:
                replace_file(path, json.dumps({**metadata, "attributes": one.stored_attrs}))
                self.arrays.forget(one.name)

    def note(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Add attributes to a variable and commit."""
        variable = self.layout.variables[name]
        changed = replace(variable, attrs={**variable.attrs, **attrs})
        variables = {**self.layout.variables, name: changed}
        self.layout = replace(self.layout, variables=variables)
        with self._writing(f"variable {name!r}"):
            self.arrays[name].update_attributes(changed.stored_attrs)
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
        fresh = ZarrStore(self.beside / "rewrite", ground=self.ground)
        fresh._copied = False  # that of this store is what a swap is checked by
        remove_tree(fresh.root, ignore_errors=True)
        with self._writing("the store"):
            yield fresh
            if self.whole is None and is_group(self.root / STAGES):
                link_tree(self.root / STAGES, fresh.root / STAGES)
            token = secrets.token_hex(8)
            fresh.commit(token=token)
            replace_file(self.beside / "rewrite-ready", token)
            self._finish_swap()
        self.open()

    def _finish_swap(self) -> None:
        """Put what was made anew in this one's place, unless it is there already."""
        token = read_bytes(self.beside / "rewrite-ready")
        if token is None:
            return
        old, fresh = self.beside / "replaced", self.beside / "rewrite"
        swapped = token_of(self.root) == token.decode() != ""
        if fresh.exists() and not swapped:
            if self.whole is not None:
                self._make_room(self.whole)
            swap(fresh, self.root, old)
            self.ground.publish("the store made anew")
        if is_group(old / STAGES) and not (self.root / STAGES).exists():
            move_tree(old / STAGES, self.root / STAGES)
        if self.whole is not None:
            self.whole.commit()
        (self.beside / "rewrite-ready").unlink()
        remove_tree(old, ignore_errors=True)
        remove_tree(fresh, ignore_errors=True)

    def _make_room(self, whole: ZarrStore) -> None:
        """Before a stage takes its place, or another's: what is listed must be as it is listed."""
        self.root.parent.mkdir(exist_ok=True)
        group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
        if not (self.root.parent / "zarr.json").exists():
            replace_file(self.root.parent / "zarr.json", json.dumps(group))
        if self.root.exists():
            whole.commit(unlisted=self.root.name)

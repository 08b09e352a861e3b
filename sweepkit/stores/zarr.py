"""A sweep in a Zarr v3 group in a folder: created, grown, written by one, read by any."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from sweepkit.format1 import (
    ATTRIBUTE,
    CODECS,
    FORMAT,
    KEEPING,
    Layout,
    Variable,
    fill_value,
)
from sweepkit.parameters import Parameter
from sweepkit.protocols import Holder, StoreBusyError, StoreError

__all__ = ["STAGES", "ZarrStore"]

STAGES = "stages"
"""Group in which the refinements of a sweep are, each a group named by its number."""


class ZarrStore:
    """A sweep in a Zarr group on a file system.

    Parameters
    ----------
    path : path
        Of the group; locks, receipts and the like go to ``<path>.sweepkit`` beside it.
    whole : ZarrStore, optional
        The store of which this is a stage: it lists the stage, and is held by whoever writes.
    """

    def __init__(self, path: str | os.PathLike[str], *, whole: ZarrStore | None = None) -> None:
        self.root = Path(path).absolute()  # runs in this process may change its working directory
        self.beside = self.root.with_name(self.root.name + ".sweepkit")
        self.whole = whole
        if whole is not None:
            self.beside = whole.beside / STAGES / self.root.name
        self._arrays: dict[str, zarr.Array[Any]] = {}
        self.layout = Layout({}, (), {})
        self.attributes: dict[str, Any] = {}

    @property
    def path(self) -> str:
        """Where it is, for people."""
        return str(self.root)

    # --- one writer ---

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only writer.

        Raises
        ------
        StoreBusyError
            If another process writes; names its pid, host and since when.
        StoreError
            If the path cannot be written.
        """
        if self.whole is not None:  # one lock for all: who writes a stage holds the whole store
            self.beside.mkdir(parents=True, exist_ok=True)
            yield
            return
        try:
            self.beside.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.beside / "lock", timeout=0)
            lock.acquire()
        except filelock.Timeout:
            raise StoreBusyError(self._busy()) from None
        except OSError as fault:
            raise StoreError(
                f"{self.path} cannot be written: {fault.strerror or fault}; "
                "choose another path or mend its permissions"
            ) from fault
        try:
            for folder in (self.beside, self.beside / "sessions"):
                for partial in folder.glob("*.partial"):
                    partial.unlink(missing_ok=True)  # left by a writer that was killed
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
            with suppress(OSError):
                replace_file(self.beside / "holder.json", json.dumps(holder))
            yield
        finally:
            lock.release()

    def _busy(self) -> str:
        try:
            said = json.loads((self.beside / "holder.json").read_text())
            who = Holder(said["pid"], said["host"], said["since"])
            by = f"process {who.pid} on {who.host}, since {who.since}"
        except (OSError, ValueError, KeyError):
            by = "another process"
        return (
            f"{self.path} is being written by {by}; wait for it, stop it, or use another path "
            "(reading it with sk.open is fine)"
        )

    # --- the layout ---

    def exists(self) -> bool:
        """Whether a layout was committed here."""
        self._finish_swap()
        self._mend_root()
        if (self.root / "zarr.json").exists():
            return True
        if self.root.exists():
            foreign = (
                sorted(one.name for one in self.root.iterdir())
                if self.root.is_dir()
                else [self.root.name]
            )
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
        self.root.mkdir(parents=True, exist_ok=True)
        for one in parameters:
            self._make_coordinate(one)
        for dim, values in layout.coords.items():
            self._make_own_coordinate(dim, values)
        for variable in layout.variables.values():
            self.make(variable, layout)
        self.commit(declaration)

    def _make_own_coordinate(self, dim: str, values: NDArray[Any]) -> None:
        dtype = _dtype_of(values)
        array = self._create_array(
            Variable(dim, dtype, (dim,), values.shape), values.shape, values.shape, (dim,)
        )
        array[...] = stored(values, dtype)

    def _make_coordinate(self, one: Parameter) -> None:
        variable = _coordinate(one)
        chunks = (max(one.size, 256), *one.values.shape[1:])
        array = self._create_array(variable, one.values.shape, chunks, one.dims)
        array[...] = stored(one.values, variable.dtype)

    def make(self, variable: Variable, layout: Layout) -> None:
        """Make the array of a variable; readers see it once the layout is committed."""
        chunk = layout.chunk(variable) + variable.shape
        shape = layout.shape + variable.shape
        self._create_array(variable, shape, chunk, layout.dims + variable.dims)

    def _create_array(
        self,
        variable: Variable,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dims: tuple[str, ...],
    ) -> zarr.Array[Any]:
        array = zarr.create_array(
            LocalStore(self.root / variable.name),  # by name within the root, it would make a root
            shape=shape,
            chunks=chunks,
            dtype=str if variable.dtype == "str" else variable.stored_dtype,
            dimension_names=dims,
            fill_value=fill_value(variable.dtype),
            attributes=variable.stored_attrs,
            compressors=[ZstdCodec(level=1), Crc32cCodec()],
            config={"write_empty_chunks": True},
            zarr_format=3,
            overwrite=True,
        )
        self._arrays[variable.name] = array
        return array

    def commit(self, declaration: Mapping[str, Any] | None = None, *, unlisted: str = "") -> None:
        """Replace the root with the layout as it is now: from here on readers see it.

        Stages are listed as they are on disk, but for the one named to be ``unlisted``.
        """
        if declaration is not None:
            self.attributes = {
                "sweepkit_format": FORMAT,
                ATTRIBUTE: json.dumps({**declaration, **_layout_json(self.layout)}),
            }
            shared = [p["name"] for p in declaration["parameters"] if p["dims"] != [p["name"]]]
            if shared:  # any reader then knows them for coordinates, as CF says it
                self.attributes["coordinates"] = " ".join(shared)
        names = sorted(p.parent.name for p in self.root.glob("*/zarr.json"))
        metadata = {
            name: json.loads((self.root / name / "zarr.json").read_text()) for name in names
        }
        metadata |= self._listed(unlisted)
        root = {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": self.attributes,
            "consolidated_metadata": {
                "kind": "inline",
                "must_understand": False,
                "metadata": metadata,
            },
        }
        text = json.dumps(root)
        with suppress(OSError):
            replace_file(self.beside / "root.json", text)
        content = default_buffer_prototype().buffer.from_bytes(text.encode())
        with self._writing("the layout"):
            sync(LocalStore(self.root).set("zarr.json", content))
        if self.whole is not None:
            self.whole.commit()

    # --- stages ---

    @property
    def stages(self) -> list[int]:
        """Numbers of the stages: refinements of the sweep, each a store within this one."""
        found = (self.root / STAGES).glob("*/zarr.json")
        return sorted(int(one.parent.name) for one in found if one.parent.name.isdigit())

    def stage(self, number: int) -> ZarrStore:
        """A stage, to be made by who holds this store if it is not there yet."""
        return ZarrStore(self.root / STAGES / str(number), whole=self)

    def _listed(self, unlisted: str = "") -> dict[str, Any]:
        """The stages' groups and arrays as the root lists them, so that any reader finds them."""
        listed: dict[str, Any] = {}
        for number in self.stages:
            group = _loads(self.root / STAGES / str(number) / "zarr.json")
            if group is None or str(number) == unlisted:  # a damaged one is mended by its writer
                continue
            arrays = group.pop("consolidated_metadata")["metadata"]
            listed[f"{STAGES}/{number}"] = group
            listed |= {f"{STAGES}/{number}/{name}": said for name, said in arrays.items()}
        return listed

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
        self._mend_root()
        root = read_root(self.root)
        if _loads(self.beside / "root.json") != root:  # of before a swap, or never committed
            with suppress(OSError):
                replace_file(self.beside / "root.json", json.dumps(root))
        self.attributes = root["attributes"]
        committed = root["consolidated_metadata"]["metadata"]
        for path in self.root.glob("*/zarr.json"):
            if path.parent.name not in committed and not _is_group(path.parent):
                shutil.rmtree(path.parent)
        own = {n: m for n, m in committed.items() if m.get("node_type") != "group" and "/" not in n}
        for name, metadata in own.items():
            path = self.root / name / "zarr.json"
            if _loads(path) != metadata:
                path.parent.mkdir(exist_ok=True)
                replace_file(path, json.dumps(metadata))
        for partial in self.root.rglob("*.partial"):
            partial.unlink(missing_ok=True)  # left by a writer that was killed
        self._arrays.clear()
        self.layout = self._committed_layout()
        self._mend_axes()
        if {n: said for n, said in committed.items() if "/" in n} != self._listed():
            self.commit()  # a stage was made or changed, and its writer killed before it was listed

    def _mend_root(self) -> None:
        """Put the copy of the root in the place of one that is gone or no JSON any more."""
        path, copy = self.root / "zarr.json", _loads(self.beside / "root.json")
        if copy is None or _loads(path) is not None:
            return
        if any((self.root / name).is_dir() for name in copy["consolidated_metadata"]["metadata"]):
            replace_file(path, json.dumps(copy))

    def damaged_axes(self) -> dict[str, str]:
        """Coordinates that cannot be read, each with what is wrong with it."""
        found = {}
        for said in self.declaration["parameters"]:
            name = said["name"]
            try:
                array = self.array(name)
                counts = [-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True)]
                self.read(name, tuple(slice(0, n) for n in array.shape))
            except StoreError as fault:
                found[name] = f"cannot be decoded: {fault.__cause__ or fault}"
            else:
                if not all(self.has_chunk(name, index) for index in np.ndindex(*counts)):
                    found[name] = "is missing"
        return found

    def _mend_axes(self) -> None:
        """Keep a copy of the coordinates beside the store, and put it in the place of damage."""
        kept = self.beside / "axes"
        damaged = self.damaged_axes()
        for name in damaged:
            copy, place = kept / name, self.root / name
            if _same_encoding(_loads(copy / "zarr.json"), _loads(place / "zarr.json")):
                shutil.copytree(copy / "c", place / "c", dirs_exist_ok=True)
                self._arrays.pop(name, None)
        for name, reason in self.damaged_axes().items() if damaged else ():
            raise StoreError(
                f"{self.path}: coordinate {name!r} {reason}; there is no copy of it in {kept}, so "
                f"take {self.root / name} from a copy of the store"
            )
        self._keep_axes()

    def _keep_axes(self) -> None:
        kept = self.beside / "axes"
        for said in self.declaration["parameters"]:
            place, copy = self.root / said["name"], kept / said["name"]
            with suppress(OSError):  # a copy is not worth failing for on a full disk
                if not _same_files(place, copy):
                    shutil.rmtree(copy, ignore_errors=True)
                    shutil.copytree(place, copy)

    def peek(self) -> None:
        """Read the committed layout without being its writer.

        Raises
        ------
        StoreError
            As :meth:`open`.
        """
        self.attributes = read_root(self.root)["attributes"]
        self._arrays.clear()
        self.layout = self._committed_layout()

    def _committed_layout(self) -> Layout:
        said = self.declaration
        coords = {}
        for dim in said["stored"].get("coords", ()):
            values = np.asarray(self.array(dim)[...])
            attrs = self.array(dim).attrs
            if attrs.get("calendar"):
                values = values.astype("datetime64[ns]")
            elif attrs.get("dtype") == "timedelta64[ns]":
                values = values.astype("timedelta64[ns]")
            coords[dim] = values.astype(object) if values.dtype.kind in "UT" else values
        return replace(layout_of(said), coords=coords)

    # --- values ---

    def has_chunk(self, name: str, index: tuple[int, ...]) -> bool:
        """Whether a chunk of a variable is there."""
        return self.root.joinpath(name, "c", *map(str, index)).exists()

    def array(self, name: str) -> zarr.Array[Any]:
        """The Zarr array of a variable or coordinate."""
        if name not in self._arrays:
            _check_codecs(self.root / name, _loads(self.root / name / "zarr.json"))
            self._arrays[name] = zarr.open_array(
                LocalStore(self.root / name), mode="r+", zarr_format=3
            ).with_config({"write_empty_chunks": True})
        return self._arrays[name]

    def read(self, name: str, box: tuple[slice, ...]) -> NDArray[Any]:
        """Values of a variable in a box of runs, in memory's data type.

        Raises
        ------
        StoreError
            If a chunk is damaged; names the variable and the box.
        """
        try:
            values = np.asarray(self.array(name)[box])
        except (ValueError, RuntimeError, OSError) as fault:
            raise StoreError(
                f"{self.path}: variable {name!r} is damaged in the runs {_box_text(box)} "
                f"({fault}); sk.verify({self.path!r}) names every damaged run, and the next sk.run "
                "runs just those again"
            ) from fault
        if values.dtype.kind in "UT":
            values = values.astype(object)
        return values

    def write(self, name: str, box: tuple[slice, ...], values: NDArray[Any]) -> None:
        """Write values to a box of runs that covers whole chunks.

        Raises
        ------
        StoreError
            If the disk is full or gone; says how much is free.
        """
        with self._writing(f"variable {name!r}"):
            self.array(name)[box] = values

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Within, an error of the system is told as one of this store, with what is free."""
        try:
            yield
        except OSError as fault:
            raise self._refusal(what, fault) from fault

    def _refusal(self, what: str, fault: OSError) -> StoreError:
        free = ""
        with suppress(OSError):
            free = f"; {shutil.disk_usage(self.beside).free:,} bytes are free there"
        return StoreError(
            f"{self.path}: {what} cannot be written: {fault.strerror or fault}{free}; "
            "what counted as done stays, and sk.run goes on from there once it can write"
        )

    def parameter_values(self, parameters: Sequence[Mapping[str, Any]]) -> dict[str, Parameter]:
        """The stored axes, in order of arrival."""
        made = {}
        for said in parameters:
            name = said["name"]
            values = np.asarray(self.array(name)[...])
            if values.dtype.kind in "UT":
                values = values.astype(object)
            target = {"datetime": "datetime64[ns]", "timedelta": "timedelta64[ns]"}
            if said["kind"] in target:
                values = values.astype(target[said["kind"]])
            objects = tuple(values.tolist()) if said["kind"] == "label" else None
            made[name] = Parameter(
                name,
                values,
                tuple(said["dims"]),
                said.get("role", "design"),
                said.get("units"),
                said.get("long_name"),
                said.get("weights"),
                objects,
            )
        return made

    # --- beside the sweep ---

    def memo(self, name: str) -> str | None:
        """A small text kept beside the sweep, None if there is none."""
        try:
            return (self.beside / name).read_text()
        except OSError:
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
        return str(self.beside / name)

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
                array = self.array(one.name)
                dtype = {"M": "datetime64[ns]", "m": "timedelta64[ns]", "O": "str"}.get(
                    one.values.dtype.kind, one.values.dtype.name
                )
                given = stored(one.values, dtype)
                wider = np.dtype(object) if dtype == "str" else given.dtype
                if dtype != "str" and np.dtype(array.dtype) != wider:
                    self._make_coordinate(one)
                elif array.shape != one.values.shape:
                    array.resize(one.values.shape)
                    array[...] = given
            for variable in self.layout.variables.values():
                shape = self.layout.shape + variable.shape
                if self.array(variable.name).shape != shape:
                    self.array(variable.name).resize(shape)
        self._arrays.clear()
        self.commit(declaration)
        self._keep_axes()

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
            self._make_own_coordinate(dim, values)
        with self._writing("the layout"):
            for variable in variables:
                self.make(variable, self.layout)
        self.commit(declaration)

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
            *map(_coordinate, parameters),
            *(variables[n] for n in outputs if n in variables),
        ):
            path = self.root / one.name / "zarr.json"
            metadata = json.loads(path.read_text())
            if metadata["attributes"] != one.stored_attrs:
                replace_file(path, json.dumps({**metadata, "attributes": one.stored_attrs}))
                self._arrays.pop(one.name, None)

    def note(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Add attributes to a variable and commit."""
        variable = self.layout.variables[name]
        changed = replace(variable, attrs={**variable.attrs, **attrs})
        variables = {**self.layout.variables, name: changed}
        self.layout = replace(self.layout, variables=variables)
        with self._writing(f"variable {name!r}"):
            self.array(name).update_attributes(changed.stored_attrs)
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
        fresh = ZarrStore(self.beside / "rewrite")
        shutil.rmtree(fresh.root, ignore_errors=True)
        with self._writing("the store"):
            yield fresh
            replace_file(self.beside / "rewrite-ready", "")
            self._finish_swap()
        self.open()

    def _finish_swap(self) -> None:
        ready, old = self.beside / "rewrite-ready", self.beside / "replaced"
        fresh = self.beside / "rewrite"
        if ready.exists():
            if fresh.exists():
                if self.whole is not None:
                    self._make_room(self.whole)
                if self.root.exists():
                    shutil.rmtree(old, ignore_errors=True)
                    self.root.rename(old)
                fresh.rename(self.root)
            if _is_group(old / STAGES):
                (old / STAGES).rename(self.root / STAGES)
            if self.whole is not None:
                self.whole.commit()
            ready.unlink()
            shutil.rmtree(old, ignore_errors=True)

    def _make_room(self, whole: ZarrStore) -> None:
        """Before a stage takes its place, or another's: what is listed must be as it is listed."""
        self.root.parent.mkdir(exist_ok=True)
        group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
        if not (self.root.parent / "zarr.json").exists():
            replace_file(self.root.parent / "zarr.json", json.dumps(group))
        if self.root.exists():
            whole.commit(unlisted=self.root.name)


# --- helpers of the layout -----------------------------------------------------------------------


def _coordinate(one: Parameter) -> Variable:
    """A parameter as it is stored."""
    kind = {"M": "datetime64[ns]", "m": "timedelta64[ns]", "O": "str"}
    dtype = kind.get(one.values.dtype.kind, one.values.dtype.name)
    return Variable(one.name, dtype, one.dims, one.values.shape, attrs=one.attrs)


def _dtype_of(values: NDArray[Any]) -> str:
    """Stored data type of values in memory."""
    kinds = {"M": "datetime64[ns]", "m": "timedelta64[ns]", "O": "str"}
    return kinds.get(values.dtype.kind, values.dtype.name)


def stored(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Values in memory as they go to disk."""
    if dtype in ("datetime64[ns]", "timedelta64[ns]"):
        return values.astype("int64")
    if dtype == "str":
        return values.astype(np.dtypes.StringDType())
    return values


def _layout_json(layout: Layout) -> dict[str, Any]:
    keeping = {variable.name for variable in KEEPING}
    return {
        "stored": {
            "sizes": dict(layout.sizes),
            "block": list(layout.block),
            "coords": sorted(layout.coords),
            "outputs": [
                {
                    "name": v.name,
                    "dtype": v.dtype,
                    "dims": list(v.dims),
                    "shape": list(v.shape),
                    "pad": v.pad,
                    "attrs": dict(v.attrs),
                }
                for v in layout.variables.values()
                if v.name not in keeping
            ],
        }
    }


def layout_of(declaration: Mapping[str, Any]) -> Layout:
    """The layout that a declaration tells."""
    said = declaration["stored"]
    variables = {variable.name: variable for variable in KEEPING}
    for one in said["outputs"]:
        variables[one["name"]] = Variable(
            one["name"],
            one["dtype"],
            tuple(one["dims"]),
            tuple(one["shape"]),
            one["pad"],
            one["attrs"],
        )
    return Layout(said["sizes"], tuple(said["block"]), variables)


def read_root(path: Path) -> dict[str, Any]:
    """The root of a store of this format, or an error that says what is there instead."""
    try:
        root = json.loads((path / "zarr.json").read_text())
        version = root["attributes"].get("sweepkit_format")
        root["consolidated_metadata"]["metadata"]
    except FileNotFoundError:
        raise StoreError(f"{path} holds no sweep; sk.run(sweep, {str(path)!r}) makes one") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise StoreError(
            f"{path}: the root of the store, zarr.json, is damaged: {fault}"
        ) from fault
    if version is None:
        raise StoreError(f"{path} is a Zarr group but no sweep; choose another path")
    if version != FORMAT:
        raise StoreError(
            f"{path} is of format {version}, and this sweepkit knows format {FORMAT}; "
            "update sweepkit"
        )
    for name, metadata in root["consolidated_metadata"]["metadata"].items():
        if metadata.get("node_type") != "group" or not _of_stages(name):
            _check_codecs(path / name, metadata)
    return dict(root)


def _of_stages(name: str) -> bool:
    return name.partition("/")[0] == STAGES


def _is_group(path: Path) -> bool:
    return (_loads(path / "zarr.json") or {}).get("node_type") == "group"


def _check_codecs(path: Path, said: Any) -> None:
    """Refuse an array whose decoding might run code: it was not written by sweepkit."""
    try:
        names = {one["name"] for one in said["codecs"]}
    except (TypeError, KeyError) as fault:
        raise StoreError(f"{path / 'zarr.json'} is missing or damaged") from fault
    unknown = names - CODECS
    if unknown:
        raise StoreError(
            f"{path} is encoded by {', '.join(sorted(unknown))}, which no sweep uses and which may "
            "run code; it is not read"
        )


def _same_encoding(a: Any, b: Any) -> bool:
    words = ("data_type", "chunk_grid", "codecs", "fill_value")
    return a is not None and b is not None and all(a.get(word) == b.get(word) for word in words)


def _same_files(a: Path, b: Path) -> bool:
    mine, theirs = ({one.relative_to(path) for one in path.rglob("*")} for path in (a, b))
    return mine == theirs and all(
        (a / one).is_dir() or (a / one).read_bytes() == (b / one).read_bytes() for one in mine
    )


def _loads(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def replace_file(path: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text)
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _box_text(box: tuple[slice, ...]) -> str:
    return ", ".join(f"{part.start}:{part.stop}" for part in box)

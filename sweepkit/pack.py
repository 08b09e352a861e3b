"""A store as one file: a zip that is read as it is, with its receipts inside."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit import stages
from sweepkit.places import Given, KeyPath, Place
from sweepkit.protocols import StoreError, UnwritableError
from sweepkit.quantities import bytes_text
from sweepkit.root import OutdatedError, root_bytes, side_folder
from sweepkit.status import Status
from sweepkit.stores.zarr import ZarrStore
from sweepkit.targets import target

__all__ = ["copy_store", "pack"]

INSIDE = ".sweepkit"
"""Folder in the zip for what lies beside a store: as for any keyed store that has no name."""

STAYS = ("lock", "holder.json", "inputs", "scratch", "rewrite", "rewrite-ready", "replaced")
"""What lies beside a store and is of no use without it."""

EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(
    store: Given,
    path: str | os.PathLike[str],
    *,
    partial: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Pack a store, with its receipts, into one zip, which :func:`open` reads as it is.

    Packing the same content again gives the same bytes.

    Parameters
    ----------
    store : path, URL or Zarr store
        Of the store.
    path : path
        Of the zip to make, with the ending ``.zip``.
    partial : bool
        Pack also a store with pending runs, even while another process writes to it.
    overwrite : bool
        Put it in the place of a zip that is there.
    storage_options : mapping, optional
        As in :func:`run`.

    Returns
    -------
    str
        The path.

    Raises
    ------
    ValueError
        If the ending is another, or runs are pending and it is not to be partial.
    FileExistsError
        If something is there already.
    StoreError
        If there is no sweep, it is damaged, or another process writes to it.

    Examples
    --------
    >>> import tempfile, sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> sweep = sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[1.62, 9.81]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ds = sk.run(sweep, f"{folder}/fall.zarr", backend="sequential", progress=False)
    ...     packed = sk.pack(f"{folder}/fall.zarr", f"{folder}/fall.zarr.zip")
    ...     sk.open(packed)["time"].sel(height=2.0, gravity=9.81).round(3).item()
    0.639
    """
    aim = Path(path).absolute()
    if aim.suffix != ".zip":
        raise ValueError(f"{aim.name!r} does not end in .zip, by which zips are known; rename it")
    if aim.exists() and not overwrite:
        raise FileExistsError(
            f"{aim} is there already; remove it, choose another path, or say overwrite=True"
        )
    if not aim.parent.is_dir():
        raise FileNotFoundError(f"folder {str(aim.parent)!r} is not there; make it first")
    source = target(store, storage_options)
    with ExitStack() as held:
        if not partial:
            with suppress(UnwritableError):  # then nobody else writes there either
                held.enter_context(source.hold())
        source.peek()
        stages.check(source.where)  # nobody could restore one in a zip
        pending = _pending(source)
        if pending and not partial:
            raise ValueError(
                f"{source.path} has {pending:,} pending runs; finish it with sk.run, or say "
                "partial=True to pack it as it is"
            )
        part = aim.with_name(f".{aim.name}.{os.getpid()}.part")
        try:
            _write(source, part)
            os.replace(part, aim)
        finally:
            part.unlink(missing_ok=True)
    return str(path)


def copy_store(source: ZarrStore, folder: Path, most: int, *, logs: bool) -> None:
    """Copy a store, wherever it lies, to a folder, and what is beside it to beside that.

    Texts of ``log`` stay away unless ``logs``.

    Raises
    ------
    ValueError
        If it has more than so many bytes.
    StoreBusyError
        If another process writes to it.
    """
    total = 0
    with ExitStack() as held:
        with suppress(UnwritableError):  # then nobody else writes there either
            held.enter_context(source.hold())
        for name, place in _names(source).items():
            if not logs and "/log/c/" in f"/{name}":
                continue
            content = place.read_bytes()
            total += len(content)
            if total > most:
                raise ValueError(
                    f"{source.path} has more than the {bytes_text(most)} that hosts of git take; "
                    f"{'leave out what runs printed with logs=False, or ' if logs else ''}"
                    "run a coarser grid or fewer outputs into a store of its own"
                )
            beside = name.startswith(f"{INSIDE}/")
            aim = side_folder(folder) if beside else folder
            copy = Path(str(aim), name.removeprefix(f"{INSIDE}/") if beside else name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _pending(source: ZarrStore) -> int:
    boxes = map(source.layout.box, range(source.layout.n_blocks))
    return sum(int((source.read("status", box) == Status.PENDING).sum()) for box in boxes)


def _write(source: ZarrStore, part: Path) -> None:
    """Write all of a store to a zip, statuses first: what they count as done is there then.

    Raises
    ------
    OutdatedError
        If the store was made anew, or done runs were set back, meanwhile.
    """
    root = root_bytes(source.root)
    names = _names(source)
    before = _done(source)
    held = {name: _bytes(place) for name, place in names.items() if _is_status(name)}
    before = [a | b for a, b in zip(before, _done(source), strict=True)]
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as packed:
        for name in sorted(names):
            content = held[name] if name in held else _bytes(names[name])
            if content is not None:
                told = zipfile.ZipInfo(name, EPOCH)
                told.external_attr = 0o644 << 16
                packed.writestr(told, content)
    back = [a & ~b for a, b in zip(before, _done(source), strict=True)]
    if root_bytes(source.root) != root or any(one.any() for one in back):
        raise OutdatedError(f"{source.path} was changed while it was packed; pack it again")


def _done(source: ZarrStore) -> list[NDArray[np.bool_]]:
    boxes = map(source.layout.box, range(source.layout.n_blocks))
    return [source.read("status", box) == Status.DONE for box in boxes]


def _is_status(name: str) -> bool:
    return "/status/c/" in f"/{name}"


def _names(source: ZarrStore) -> dict[str, Place]:
    """What goes into the zip, by its name there."""
    found = {name: one for name, one in _below(source.root) if not name.startswith(f"{INSIDE}/")}
    for name, one in _below(source.beside):
        first = name.partition("/")[0]
        if first not in STAYS and not name.endswith(".partial"):
            found[f"{INSIDE}/{name}"] = one
    if "zarr.json" not in found:
        raise StoreError(f"{source.path} holds no sweep to pack")
    return found


def _below(folder: Place) -> Iterator[tuple[str, Place]]:
    if isinstance(folder, KeyPath):
        inside = f"{folder.key}/" if folder.key else ""
        for one in folder.rglob("*"):
            yield one.key.removeprefix(inside), one
        return
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith(".partial"):
            yield path.relative_to(folder).as_posix(), path


def _bytes(place: Place) -> bytes | None:
    try:
        return place.read_bytes()
    except FileNotFoundError:  # replaced meanwhile, which is seen at the end
        return None

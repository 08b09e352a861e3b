"""A store handed on as a folder that Binder opens: explorer, results, environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import xarray as xr

import sweepkit as sk
from sweepkit import sharing, stages
from sweepkit.headless import execute
from sweepkit.pack import copy_store
from sweepkit.pins import pinned, write_wheel
from sweepkit.places import Given, KeyPath, Where, where
from sweepkit.protocols import UnwritableError
from sweepkit.quantities import bytes_text
from sweepkit.root import side_folder
from sweepkit.status import Status
from sweepkit.stores.zarr import ZarrStore
from sweepkit.targets import target as target_of

__all__ = ["share"]

MOST_BYTES = 100_000_000
"""What git hosts take, per file and as a rule of thumb per repository."""

EXTRAS = ("explore", "headless", "analysis")
ALSO = ("jupyter-server-proxy",)
OWN = {"lock", "holder.json", "scratch", "rewrite", "rewrite-ready", "replaced"}
"""What lies beside a store for its writer alone."""

SOURCE = re.compile(r"git\+(https|ssh)://[^\s'\"\\$`;|&<>]+")


def share(
    store: Given,
    folder: str | os.PathLike[str],
    *,
    source: str | None = None,
    logs: bool = True,
    unfinished: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Path:
    """Write a folder that is a Binder repository by itself: anyone explores the sweep from a link.

    In it are the store, a notebook that explores it (executed, so that it is readable where
    nothing runs), the versions in use as pins, sweepkit itself, and a README that says how to
    publish it. Nothing is sent anywhere.

    Parameters
    ----------
    store : path, URL or Zarr store
        Of a sweep that nobody writes to. What is no folder, such as the zip that
        :func:`sweepkit.pack` makes, goes along as one. So does its provenance: who ran it, and
        the path of the simulator's file.
    folder : path
        To be made; or empty.
    source : str, optional
        Where the folder gets sweepkit from, as in
        ``"git+https://github.com/OWNER/sweepkit@v0.1.0"``; by default the one that runs here
        goes along as a wheel.
    logs : bool
        Whether what runs printed goes along; tracebacks tell paths of the machine.
    unfinished : bool
        Share the store also if runs are pending.
    storage_options : mapping, optional
        As of :func:`run`, where the store is a URL.

    Returns
    -------
    path
        Of the folder.

    Raises
    ------
    ValueError
        If the folder is not empty, runs are pending, the store is too big for git (100 MB), or
        the source is none that pip reads.
    StoreError
        If there is no sweep, or somebody is writing to it.

    Examples
    --------
    >>> sk.share("pendulum.zarr", "pendulum-explorer")  # doctest: +SKIP
    PosixPath('pendulum-explorer')
    """
    place = Path(folder).absolute()
    _check_place(place)
    if source is not None and not SOURCE.fullmatch(source):
        raise ValueError(
            f"source is {source!r}; give an address that pip installs from, as in "
            "'git+https://github.com/OWNER/sweepkit@v0.1.0'"
        )
    pins = pinned(EXTRAS, ALSO)
    given = where(store, storage_options)
    sk.open(given)  # what is wrong with it is told before anything is made
    stages.check(given)
    with ExitStack() as stack:
        origin = _as_folder(given, stack, logs=logs)
        with suppress(UnwritableError):  # where nobody can write, nobody does
            stack.enter_context(ZarrStore(origin).hold())
        ds = sk.open(origin)
        _check_store(origin, ds, str(given), unfinished=unfinished, logs=logs)
        place.parent.mkdir(parents=True, exist_ok=True)
        made = stack.enter_context(
            tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-")
        )
        fresh = Path(made) / "fresh"
        name = _copied(origin, fresh, logs=logs)
        _write(fresh, ds, name, pins, source)
        if place.exists():  # it may be the current folder, which stays what it is
            for one in fresh.iterdir():
                one.rename(place / one.name)
        else:
            fresh.rename(place)
    return Path(folder)


def _as_folder(given: Where, stack: ExitStack, *, logs: bool) -> Path:
    """The folder of a store, or one for a while with a copy of a store that lies elsewhere."""
    if not isinstance(given, KeyPath):
        return Path(given)
    name = PurePosixPath(str(given)).name.removesuffix(".zip").removesuffix(".icechunk")
    made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweepkit-")))
    aim = made / (name if name.endswith(".zarr") else f"{name}.zarr")
    copy_store(target_of(given), aim, MOST_BYTES, logs=logs)
    return aim


def _check_place(place: Path) -> None:
    if place.is_dir() and any(place.iterdir()):
        held = ", ".join(sorted(one.name for one in place.iterdir())[:3])
        raise ValueError(
            f"folder {place} is not empty (it holds {held}); give one that is not there yet"
        )
    if (place.exists() or place.is_symlink()) and not place.is_dir():
        raise ValueError(f"{place} is no folder; give one that is not there yet")


def _check_store(store: Path, ds: xr.Dataset, given: str, *, unfinished: bool, logs: bool) -> None:
    pending = int((ds["status"].values == Status.PENDING).sum())
    if pending and not unfinished:
        raise ValueError(
            f"{pending:,} of {ds['status'].size:,} runs in {given} are pending; run the sweep to "
            "its end, or share it as it is with unfinished=True"
        )
    files = [*_files(store, logs=logs), *_files(_beside(store), logs=logs)]
    size = sum(one.stat().st_size for one in files)
    if size > MOST_BYTES:
        ways = [] if not logs else ["leave out what runs printed with logs=False"]
        ways += [
            "run a coarser grid or fewer outputs into a store of its own",
            "put the store where Binder downloads it from (a release, Zenodo, a bucket), share a "
            "small one, and say in its binder/postBuild where the other is",
        ]
        raise ValueError(
            f"{given} has {bytes_text(size)}, and hosts of git take up to "
            f"{bytes_text(MOST_BYTES)}: {'; or '.join(ways)}"
        )


def _beside(store: Path) -> Path:
    return Path(str(side_folder(store.absolute())))


def _files(folder: Path, *, logs: bool) -> Iterator[Path]:
    """Files of a store, or of what lies beside it, that are shared."""
    for root, names, files in os.walk(folder):
        here = Path(root)
        names[:] = [one for one in names if one not in OWN]
        if not logs and here.name == "log":
            names[:] = [one for one in names if one != "c"]
        for one in files:
            if one not in OWN and not one.endswith(".partial"):
                yield here / one


def _copied(store: Path, place: Path, *, logs: bool) -> str:
    """Copy a store and what lies beside it; returns its name there."""
    name = re.sub(r"[^\w.-]+", "-", store.absolute().name).lstrip(".-") or "store.zarr"
    sides = (store, place / name), (_beside(store), place / f"{name}.sweepkit")
    for source, target in sides:
        target.mkdir(parents=True)
        for one in _files(source, logs=logs):
            copy = target / one.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one, copy)
    if not logs:
        whole = ZarrStore(place / name)
        with whole.hold():
            whole.open()
            for part in (whole, *(whole.stage(number) for number in whole.stages)):
                _forget_logs(part)
        for left in OWN - {"scratch"}:
            (place / f"{name}.sweepkit" / left).unlink(missing_ok=True)
    return name


def _forget_logs(store: ZarrStore) -> None:
    """Say of every run that it printed nothing; the texts themselves were not copied."""
    store.open()
    for block in range(store.layout.n_blocks):
        box = store.layout.box(block)
        store.write("log_size", box, np.zeros([s.stop - s.start for s in box], dtype=np.int32))


def _write(place: Path, ds: xr.Dataset, name: str, pins: Sequence[str], source: str | None) -> None:
    """Everything beside the store."""
    binder = place / "binder"
    binder.mkdir()
    own = source or f"binder/{write_wheel(binder).name}"
    title = str(json.loads(ds.attrs["sweepkit"]).get("name") or name)
    written = {
        "README.md": sharing.readme(title, name, ds, sk.provenance(ds), own),
        ".gitignore": sharing.IGNORED,
        "binder/requirements.txt": "".join(f"{one}\n" for one in pins),
        "binder/runtime.txt": f"python-{sys.version_info.major}.{sys.version_info.minor}\n",
        "binder/postBuild": sharing.post_build(shlex.quote(own), shlex.quote(name)),
        "explore.ipynb": json.dumps(sharing.notebook(title, name, ds), indent=1),
    }
    for path, text in written.items():
        (place / path).write_text(text, encoding="utf-8")
    (place / "binder" / "postBuild").chmod(0o755)
    notebook = place / "explore.ipynb"
    execute(notebook, notebook, {}, cwd=place, quiet=True)
    notebook.write_text(sharing.tidied(notebook.read_text(encoding="utf-8")), encoding="utf-8")
    for beside in place.glob("*.sweepkit"):
        for left in ("lock", "holder.json"):
            (beside / left).unlink(missing_ok=True)

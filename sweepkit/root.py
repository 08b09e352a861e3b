"""The root of a store: what commits its layout, sealed, checked, compared with its copy."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepkit.format1 import ATTRIBUTE, CODECS, FORMAT
from sweepkit.places import Place, Where, place

__all__ = [
    "DamagedError",
    "NotASweepError",
    "OutdatedError",
    "StoreError",
    "UnreachableError",
    "checked",
    "layout_words",
    "listed_stage",
    "lost_root",
    "next_call",
    "root_bytes",
    "sealed",
    "side_folder",
    "spare",
    "stages_said",
]

CHECKSUM = "sweepkit_checksum"
"""Word of the consolidated metadata, which other writers of the root leave out."""

STAGES = "stages"
"""Group in which the refinements of a sweep are, each a group named by its number."""

LAYOUT_WORDS = ("data_type", "chunk_grid", "chunk_key_encoding", "codecs")
"""Words of an array's metadata that tell how its values are found and decoded."""

FAULTS = (ValueError, TypeError, AttributeError, LookupError, RuntimeError, OSError)
"""What reading damaged metadata or chunks raises, somewhere in the libraries."""


class StoreError(Exception):
    """A store cannot be read or written as it is; says where and what to do."""


class UnreachableError(StoreError):
    """A place cannot be reached now: no connection, or no right; nothing is known to be damaged."""


class NotASweepError(StoreError, ValueError):
    """What is there cannot be read as a sweep."""


class DamagedError(StoreError, ValueError):
    """A part of a store is lost or cannot be decoded."""


class OutdatedError(StoreError, ValueError):
    """The store was changed since it was opened; open it again."""


def side_folder(path: Place) -> Place:
    """The folder beside a store, or in it that of a stage, for what is no part of the sweep."""
    if path.parent.name == "stages" and path.name.isdigit():
        whole = path.parent.parent
        return whole.with_name(f"{whole.name}.sweepkit") / "stages" / path.name
    return path.with_name(f"{path.name}.sweepkit")


def sealed(root: Mapping[str, Any]) -> dict[str, Any]:
    """A root with the checksum of all that it says."""
    listed = {**root["consolidated_metadata"], CHECKSUM: ""}
    listed[CHECKSUM] = _checksum({**root, "consolidated_metadata": listed})
    return {**root, "consolidated_metadata": listed}


def _checksum(root: Mapping[str, Any]) -> str:
    listed = {n: said for n, said in root["consolidated_metadata"].items() if n != CHECKSUM}
    plain = {**root, "consolidated_metadata": listed}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def root_bytes(root: Place) -> bytes | None:
    """What the root's file holds, None where there is none.

    Raises
    ------
    DamagedError
        If it is there and cannot be read.
    """
    try:
        return (root / "zarr.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        if fault.errno == errno.ENAMETOOLONG:
            return None
        raise DamagedError(
            f"{root}: zarr.json cannot be read: {fault.strerror or fault}; mend its permissions "
            "or the disk"
        ) from fault


def checked(content: bytes | None, path: Where, copy: bytes | None = None) -> dict[str, Any]:
    """The root of a store of this format.

    Parameters
    ----------
    content : bytes or None
        Of the root's file; None where there is none.
    path : str or KeyPath
        Of the store, for the errors.
    copy : bytes or None
        Of the copy beside the store, if there is one.

    Raises
    ------
    DamagedError
        If it is not what was committed; a root that another program wrote is compared with the
        copy, where one a writer was killed at may be older than the copy.
    NotASweepError
        If it is no sweep, of a newer format, or has encodings that may run code.
    """
    if content is None:
        raise NotASweepError(f"{path} holds no sweep; sk.run(sweep, {str(path)!r}) makes one")
    try:
        root = json.loads(content)
        attributes = root["attributes"]
        version = attributes.get("sweepkit_format")
        listed = root["consolidated_metadata"]
        said = listed.get(CHECKSUM)
        arrays = listed["metadata"]
        _check_arrays(arrays)
    except FAULTS as fault:
        raise damaged_root(path, f"cannot be read ({fault!r})", copy) from fault
    sound = said is None or said == _checksum(root)
    if isinstance(version, int) and version > FORMAT:  # a newer one may be sealed otherwise
        kept = side_folder(place(path)) / "root.json"
        mended = f" (if none wrote it, zarr.json is damaged: put its copy there, {kept})"
        raise NotASweepError(
            f"{path} is of format {version}, and this sweepkit knows format {FORMAT}; "
            f"update sweepkit{'' if sound else mended}"
        )
    if not sound:
        raise damaged_root(path, "was changed or damaged since it was committed", copy)
    if version is None:
        raise NotASweepError(
            f"{path} is a Zarr group but no sweep; use xarray.open_zarr to read it, and another "
            "path for a sweep"
        )
    if version != FORMAT:
        raise NotASweepError(f"{path} is of format {version!r}, which no sweepkit writes")
    try:
        for name, array in arrays.items():
            if array.get("node_type") != "group":
                check_codecs(f"{path}: variable {name!r}", array)
        _check_declaration(root)
    except NotASweepError:
        raise
    except FAULTS as fault:
        raise damaged_root(path, f"cannot be read ({fault!r})", copy) from fault
    if said is None and copy is not None:
        _compare(root, path, copy)
    return dict(root)


def _check_arrays(arrays: Mapping[str, Any]) -> None:
    for name, array in arrays.items():
        if not isinstance(array, dict):
            raise TypeError(f"{name!r} has no metadata")


def _check_declaration(root: Mapping[str, Any]) -> None:
    told = json.loads(root["attributes"][ATTRIBUTE])
    if not told["dims"] or not all(int(size) > 0 for size in told["stored"]["sizes"].values()):
        raise ValueError("no dims are declared")
    for one in told["parameters"]:
        root["consolidated_metadata"]["metadata"][one["name"]]["shape"]


def check_codecs(what: str, said: Mapping[str, Any]) -> None:
    """Refuse an array whose decoding might run code: it was not written by sweepkit.

    Raises
    ------
    NotASweepError
        That names the encodings.
    """
    unknown = {str(one["name"]) for one in said["codecs"]} - CODECS
    if unknown:
        raise NotASweepError(
            f"{what} is encoded by {', '.join(sorted(unknown))}, which no sweep uses and which may "
            "run code; it is not read"
        )


def _compare(root: Mapping[str, Any], path: Where, copy: bytes) -> None:
    """Compare a root that another program wrote with the sealed copy beside it."""
    try:
        kept = checked(copy, path)
    except StoreError:
        return
    if CHECKSUM not in kept["consolidated_metadata"]:
        return  # of an older sweepkit, whose writer may have been killed between the two
    for name, then in kept["consolidated_metadata"]["metadata"].items():
        now = root["consolidated_metadata"]["metadata"].get(name, {})
        words = ("shape", "dimension_names", *LAYOUT_WORDS)
        if any(now.get(word) != then.get(word) for word in words):
            raise damaged_root(path, f"says other things of {name!r}", copy)
    if root["attributes"][ATTRIBUTE] != kept["attributes"][ATTRIBUTE]:
        raise damaged_root(path, "has another declaration", copy)


def next_call(path: Where | Place) -> str:
    """The call that makes good what a store, or a stage of it, has lost, in words."""
    stage = re.fullmatch(rf"(.+)/{STAGES}/\d+", str(path))
    return f"sk.refine(sweep, {stage[1]!r})" if stage else "the next sk.run"


def lost_root(root: Place, copy: bytes | None) -> bool:
    """Whether a sweep's arrays are where its root is missing.

    In a keyed store arrays are made before their root, so there only a copy tells that there was
    one. Of a stage whose folder is gone the store's own root tells.
    """
    if listed_stage(root):
        return True
    if isinstance(root, Path):  # of any name, also one that is too long
        return all(os.path.isdir(root / name) for name in ("status", "attempts"))
    return copy is not None and (root / "status").is_dir()


def stages_said(root: Place) -> dict[str, Any]:
    """Stages and their arrays as the root of a store lists them; none where it cannot be read."""
    try:
        said = json.loads(root_bytes(root) or b"")
        listed = said["consolidated_metadata"]
        if listed.get(CHECKSUM) not in (None, _checksum(said)):
            return {}
        return {n: one for n, one in listed["metadata"].items() if n.startswith(f"{STAGES}/")}
    except FAULTS:  # whatever is wrong with the store is told of the store
        return {}


def _is_stage(root: Place) -> bool:
    return root.parent.name == STAGES and root.name.isdigit()


def listed_stage(root: Place) -> bool:
    """Whether a place is that of a stage that the root of its store lists."""
    return _is_stage(root) and f"{STAGES}/{root.name}" in stages_said(root.parent.parent)


def spare(root: Place, kept: Place, copy: bytes | None) -> bytes | None:
    """What a root that is lost or damaged is restored from; None where nothing is left of it.

    Its copy in the folder ``kept``, else of a stage what the root of its store says of it; neither
    brings back a stage of which a coordinate is gone with its copy.
    """
    ways = [(copy, str(root))]
    if _is_stage(root):
        ways.append((_as_listed(root), str(root.parent.parent)))
    for content, path in ways:
        try:
            said = checked(content, path)
        except StoreError:
            continue
        told = json.loads(said["attributes"][ATTRIBUTE])
        names = [str(one["name"]) for one in told["parameters"]] if len(ways) > 1 else []
        if all((root / name).is_dir() or (kept / "axes" / name).is_dir() for name in names):
            return content
    return None


def _as_listed(root: Place) -> bytes | None:
    """The root of a stage, made of what that of its store says of it."""
    said, name = stages_said(root.parent.parent), f"{STAGES}/{root.name}"
    if name not in said:
        return None
    arrays = {
        n.removeprefix(f"{name}/"): one for n, one in said.items() if n.startswith(f"{name}/")
    }
    listed = {"kind": "inline", "must_understand": False, "metadata": arrays}
    return json.dumps(sealed({**said[name], "consolidated_metadata": listed})).encode()


def damaged_root(path: Where, what: str, copy: bytes | None) -> DamagedError:
    """The error for a root that is not what was committed."""
    here = place(path)
    kept = side_folder(here) / "root.json"
    found = spare(here, side_folder(here), copy)
    if found is not None:
        source = f"its copy, {kept}" if found is copy else "what the root of the store says of it"
        ways = f"{next_call(path)} restores it from {source}"
    else:
        lost = f"there is no copy of it in {kept}"
        if copy is not None:
            lost = f"its copy, {kept}, is damaged, too"
        ways = f"{lost}, so take it from a copy of the store"
        if _is_stage(here):
            ways = (
                f"neither it nor its coordinates are whole in {kept.parent}, so take {path} from a "
                "copy of the store; the next sk.run goes on without it, and warns"
            )
    return DamagedError(f"{path}: the root of the store, zarr.json, is damaged: it {what}; {ways}")


def difference(now: Any, committed: Mapping[str, Any]) -> str | None:
    """What is wrong with an array's own metadata; more room and other names are no damage.

    A growth resizes arrays, and a renaming renames them, before either is committed.
    """
    if not isinstance(now, dict):
        return "cannot be read"
    grown = ("shape", "attributes", "consolidated_metadata")
    for word in sorted({*now, *committed} - set(grown)):
        if now.get(word) != committed.get(word):
            return f"says {word} {now.get(word)!r} instead of {committed.get(word)!r}"
    sizes, then = now.get("shape"), committed["shape"]
    if not isinstance(sizes, list) or len(sizes) != len(then):
        return f"says {len(then)} dims otherwise: shape {sizes!r} instead of {then!r}"
    if any(not isinstance(n, int) or n < m for n, m in zip(sizes, then, strict=True)):
        return f"says shape {sizes!r} instead of {then!r}"
    return None


def layout_words(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What tells how values of an array are found and decoded."""
    return {word: metadata.get(word) for word in LAYOUT_WORDS} if metadata else {}

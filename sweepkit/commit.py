"""The root of a store on disk: composed of what is there, read, put back from its copy."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sweepkit.files import clear_way, loads, read_bytes, remove_tree, replace_file
from sweepkit.format1 import ATTRIBUTE, FORMAT, Layout, layout_json
from sweepkit.places import KeyPath, Place, Where
from sweepkit.root import (
    STAGES,
    DamagedError,
    StoreError,
    UnreachableError,
    checked,
    damaged_root,
    listed_stage,
    lost_root,
    root_bytes,
    sealed,
    side_folder,
    spare,
    stages_said,
)

__all__ = [
    "attributes_of",
    "composed",
    "is_group",
    "is_own_copy",
    "listed_stages",
    "make_stages",
    "mend_arrays",
    "mend_root",
    "own_arrays",
    "read_root",
    "refuse_dangling",
    "refuse_foreign",
    "stage_arrays",
    "stage_numbers",
    "token_of",
    "warn_of_lost",
]

TOKEN = "sweepkit_token"
"""Word of the consolidated metadata that tells a root made anew from the one it replaces."""

GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
"""What the group says that stages are in."""


def attributes_of(declaration: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """Attributes of a root that holds a declaration and a layout."""
    attributes: dict[str, Any] = {
        "sweepkit_format": FORMAT,
        ATTRIBUTE: json.dumps({**declaration, **layout_json(layout)}),
    }
    shared = [p["name"] for p in declaration["parameters"] if p["dims"] != [p["name"]]]
    if shared:  # any reader then knows them for coordinates, as CF says it
        attributes["coordinates"] = " ".join(shared)
    return attributes


def composed(
    root: Place, attributes: Mapping[str, Any], stages: Mapping[str, Any], token: str = ""
) -> str:
    """The text of a root that lists the arrays in a folder as they are, and stages."""
    names = sorted(p.parent.name for p in root.glob("*/zarr.json"))
    metadata = dict(zip(names, _said(root, names), strict=True))
    if stages:  # no reader opens what lists these without their group
        metadata.setdefault(STAGES, GROUP)
    listed = {"kind": "inline", "must_understand": False, "metadata": {**metadata, **stages}}
    if token:
        listed[TOKEN] = token
    said = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
        "consolidated_metadata": listed,
    }
    return json.dumps(sealed(said))


def _said(root: Place, names: list[str]) -> list[Any]:
    """Metadata of some arrays."""
    paths = [root / name / "zarr.json" for name in names]
    if isinstance(root, KeyPath):
        found = root.store.read_all([one.key for one in paths if isinstance(one, KeyPath)])
        return [json.loads(content or b"") for content in found]
    return [json.loads(one.read_text()) for one in paths]


def stage_numbers(root: Place, kept: Place) -> list[int]:
    """Numbers of a store's stages: those on disk, and those that are lost and can be restored."""
    found = {one.parent.name for one in (root / STAGES).glob("*/zarr.json")}
    copies = {one.parent.name for one in (kept / STAGES).glob("*/root.json")}
    listed = {name.split("/")[1] for name in stages_said(root)}
    found |= {n for n in copies - found if (root / STAGES / n).is_dir()}  # not of a store now gone
    for name in sorted(listed - found):
        one, beside = root / STAGES / name, kept / STAGES / name
        if spare(one, beside, read_bytes(beside / "root.json")) is not None:
            found.add(name)
    return sorted(int(name) for name in found if name.isdigit())


def make_stages(group: Place) -> None:
    """Make the group that stages are in, also where it is lost or damaged."""
    if is_group(group):
        return
    if isinstance(group, Path):
        clear_way(group, "zarr.json")
    group.mkdir(exist_ok=True)
    replace_file(group / "zarr.json", json.dumps(GROUP))


def listed_stages(root: Place, kept: Place, numbers: Iterable[int]) -> dict[str, Any]:
    """The stages' groups and arrays as the root lists them, so that any reader finds them."""
    listed: dict[str, Any] = {}
    for number in numbers:
        try:
            group = read_root(root / STAGES / str(number), kept / STAGES / str(number))
        except UnreachableError:
            raise
        except StoreError as fault:  # a damaged one is mended by its writer
            if not isinstance(fault, DamagedError):
                continue
            one, beside = root / STAGES / str(number), kept / STAGES / str(number)
            found = spare(one, beside, read_bytes(beside / "root.json"))
            if found is None:
                continue
            group = json.loads(found)
        arrays = group.pop("consolidated_metadata")["metadata"]
        listed[f"{STAGES}/{number}"] = group
        listed |= {f"{STAGES}/{number}/{name}": said for name, said in arrays.items()}
    return listed


def warn_of_lost(
    root: Place, kept: Place, listed: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Say which stages were listed that nothing brings back: the root will list them no longer."""
    for name in sorted(name for name in listed if name.count("/") == 1 and name not in now):
        warnings.warn(
            f"{root}: {name} is lost with its copy in {kept / name}, and the store goes on without "
            f"it; take {root / name} from a copy of the store, or run its points again with "
            "sk.refine(sweep, store, points)",
            stacklevel=2,
        )


def read_root(root: Place, kept: Place | None = None) -> dict[str, Any]:
    """The root of a store as it was committed.

    Raises
    ------
    StoreError
        If it is damaged, of a newer format, or no sweep.
    """
    copy = read_bytes((side_folder(root) if kept is None else kept) / "root.json")
    content = root_bytes(root)
    if content is None and lost_root(root, copy):
        raise damaged_root(_where(root), "is missing", copy)
    return checked(content, _where(root), copy)


def _where(root: Place) -> Where:
    return root if isinstance(root, KeyPath) else str(root)


def mend_root(root: Place, kept: Place) -> None:
    """Put the copy of a root, or its like, in the place of one that is lost or damaged."""
    path, copy = root / "zarr.json", read_bytes(kept / "root.json")
    if copy is None and root.parent.name != STAGES:
        return
    if path.exists():
        try:
            read_root(root, kept)
        except DamagedError:
            pass
        except UnreachableError:
            raise
        except StoreError:
            return
        else:
            return
    found = spare(root, kept, copy)
    if found is None:
        return
    if listed_stage(root):
        if isinstance(root, Path):
            clear_way(root.parent.parent, STAGES, root.name, "zarr.json")
        make_stages(root.parent)
        root.mkdir(exist_ok=True)
        replace_file(path, found.decode())
    elif any((root / name).is_dir() for name in own_arrays(json.loads(found))):
        if isinstance(root, Path):
            clear_way(root, "zarr.json")
        replace_file(path, found.decode())


def mend_arrays(root: Place, said: Mapping[str, Any]) -> None:
    """Make a store's own arrays those that its root says: what was not committed is undone."""
    committed = said["consolidated_metadata"]["metadata"]
    for path in root.glob("*/zarr.json"):
        if path.parent.name not in committed and not is_group(path.parent):
            remove_tree(path.parent)
    for name, metadata in own_arrays(said).items():
        path = root / name / "zarr.json"
        if loads(path) != metadata:
            if isinstance(root, Path):
                clear_way(root / name, "zarr.json")
            path.parent.mkdir(exist_ok=True)
            replace_file(path, json.dumps(metadata))


def refuse_dangling(root: Place) -> None:
    """See that the path of a store is no link to what is gone.

    Raises
    ------
    StoreError
        If it is.
    """
    if isinstance(root, Path) and root.is_symlink() and not root.exists():
        raise StoreError(
            f"{root} is a link to {os.readlink(root)}, which is not there; remove the link or "
            "choose another path"
        )


def refuse_foreign(root: Place, kept: Place) -> None:
    """See that nothing but a store may be where one without a root is to be made.

    Raises
    ------
    StoreError
        If something else is there.
    """
    if not root.exists():
        return
    held = sorted(one.name for one in root.iterdir()) if root.is_dir() else [root.name]
    foreign = [name for name in held if name != kept.name]
    if foreign and lost_root(root, read_bytes(kept / "root.json")):
        raise damaged_root(_where(root), "is missing", read_bytes(kept / "root.json"))
    if foreign:
        raise StoreError(
            f"{root} exists and is no sweep (it holds {', '.join(foreign[:3])}); "
            "choose another path"
        )


def own_arrays(root: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a store's own arrays, without those of its stages."""
    listed = root["consolidated_metadata"]["metadata"]
    return {n: m for n, m in listed.items() if m.get("node_type") != "group" and "/" not in n}


def stage_arrays(root: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of the stages' groups and arrays, as a root lists them."""
    listed = root["consolidated_metadata"]["metadata"]
    return {name: said for name, said in listed.items() if "/" in name}


def token_of(path: Place) -> str:
    """What tells a root that was made anew from others; empty where it is not told."""
    root = loads(path / "zarr.json")
    listed = root.get("consolidated_metadata") if isinstance(root, dict) else None
    return str(listed.get(TOKEN, "")) if isinstance(listed, dict) else ""


def is_group(path: Place) -> bool:
    """Whether a Zarr group is there."""
    root = loads(path / "zarr.json")
    return isinstance(root, dict) and root.get("node_type") == "group"


def is_own_copy(root: Place, kept: Place) -> bool:
    """Whether the copy of a root is that of the one that is there now."""
    return bool(loads(kept / "root.json") == loads(root / "zarr.json"))

"""The root of a store on disk: composed of what is there, read, put back from its copy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sweepkit.files import loads, read_bytes, replace_file
from sweepkit.places import KeyPath, Place, Where
from sweepkit.root import (
    STAGES,
    DamagedError,
    StoreError,
    UnreachableError,
    checked,
    root_bytes,
    sealed,
    side_folder,
)

__all__ = ["composed", "is_group", "mend_root", "own_arrays", "read_root", "token_of"]

TOKEN = "sweepkit_token"
"""Word of the consolidated metadata that tells a root made anew from the one it replaces."""


def composed(
    root: Place, attributes: Mapping[str, Any], stages: Mapping[str, Any], token: str = ""
) -> str:
    """The text of a root that lists the arrays in a folder as they are, and stages."""
    names = sorted(p.parent.name for p in root.glob("*/zarr.json"))
    metadata = dict(zip(names, _said(root, names), strict=True))
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


def listed_stages(root: Place, kept: Place, numbers: Iterable[int]) -> dict[str, Any]:
    """The stages' groups and arrays as the root lists them, so that any reader finds them."""
    listed: dict[str, Any] = {}
    for number in numbers:
        try:
            group = read_root(root / STAGES / str(number), kept / STAGES / str(number))
        except UnreachableError:
            raise
        except StoreError:  # a damaged one is mended by its writer
            continue
        arrays = group.pop("consolidated_metadata")["metadata"]
        listed[f"{STAGES}/{number}"] = group
        listed |= {f"{STAGES}/{number}/{name}": said for name, said in arrays.items()}
    return listed


def read_root(root: Place, kept: Place | None = None) -> dict[str, Any]:
    """The root of a store as it was committed.

    Raises
    ------
    StoreError
        If it is damaged, of a newer format, or no sweep.
    """
    copy = read_bytes((side_folder(root) if kept is None else kept) / "root.json")
    return checked(root_bytes(root), _where(root), copy)


def _where(root: Place) -> Where:
    return root if isinstance(root, KeyPath) else str(root)


def mend_root(root: Place, kept: Place) -> None:
    """Put the copy of a root in the place of one that is lost or damaged."""
    path, copy = root / "zarr.json", read_bytes(kept / "root.json")
    if copy is None:
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
    with suppress(StoreError):
        said = checked(copy, _where(root))
        if any((root / name).is_dir() for name in own_arrays(said)):
            replace_file(path, copy.decode())


def own_arrays(root: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a store's own arrays, without those of its stages."""
    listed = root["consolidated_metadata"]["metadata"]
    return {n: m for n, m in listed.items() if m.get("node_type") != "group" and "/" not in n}


def token_of(path: Place) -> str:
    """What tells a root that was made anew from others; empty where it is not told."""
    root = loads(path / "zarr.json")
    listed = root.get("consolidated_metadata") if isinstance(root, dict) else None
    return str(listed.get(TOKEN, "")) if isinstance(listed, dict) else ""


def is_group(path: Place) -> bool:
    """Whether a Zarr group is there."""
    root = loads(path / "zarr.json")
    return isinstance(root, dict) and root.get("node_type") == "group"

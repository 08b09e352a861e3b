"""Who holds a store, and whether a sweep came of it: what locks of either kind go by and say."""

from __future__ import annotations

from typing import Any

from sweepkit.files import read_bytes
from sweepkit.places import Place
from sweepkit.protocols import Holder

__all__ = ["begun", "busy", "holder_of"]


def holder_of(said: Any) -> Holder | None:
    """Who a lock's text names, as it was read from JSON; None if it names nobody."""
    if isinstance(said, dict) and {"pid", "host", "since"} <= said.keys():
        return Holder(said["pid"], said["host"], said["since"])
    return None


def busy(root: Place, holder: Holder | None) -> str:
    """That a store is being written, by whom, and what to do."""
    by = "another process"
    if holder is not None:
        by = f"process {holder.pid} on {holder.host}, since {holder.since}"
    return (
        f"{root} is being written by {by}; wait for it, stop it, or use another path "
        "(reading it with sk.open is fine)"
    )


def begun(root: Place, beside: Place) -> bool:
    """Whether a sweep was stored, or is about to be."""
    kept = any((beside / name).is_file() for name in ("root.json", "rewrite-ready"))
    return kept or b"sweepkit_format" in (read_bytes(root / "zarr.json") or b"")

"""What a session did, with what, accounted for beside the store."""

from __future__ import annotations

import json
import platform
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sweepkit.protocols import Store

__all__ = ["environment", "write_declaration", "write_receipt"]

PACKAGES = ("sweepkit", "numpy", "xarray", "zarr", "joblib")


def environment() -> dict[str, str]:
    """What runs are made with: Python, platform, packages."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return {
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        **found,
    }


def write_declaration(store: Store, said: dict[str, Any]) -> None:
    """Keep the document of a sweep beside its store, as far as there is room."""
    with suppress(OSError):
        if said["cost"] is None:  # of a session that ran nothing
            with suppress(ValueError, KeyError):
                said = {**said, "cost": json.loads(store.memo("declaration.json") or "{}")["cost"]}
        store.set_memo("declaration.json", json.dumps(said, indent=1, ensure_ascii=False))


def write_receipt(store: Store, began: float, said: dict[str, Any]) -> None:
    """Write the account of a session that began at a time (seconds since 1970).

    One JSON file for each session, in ``sessions``. A full disk does not make a session fail
    that is otherwise at its end.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(began))
    name = f"{stamp}-{began % 1:.6f}".replace("-0.", "-")
    text = json.dumps({"began": began, "ended": time.time(), **said}, indent=1)
    with suppress(OSError):
        store.set_memo(f"sessions/{name}.json", text)

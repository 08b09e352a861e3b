"""The store that a person names, to be written: the plug for where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sweepkit.places import Given, KeyPath, is_url, where
from sweepkit.stores.memory import Memory
from sweepkit.stores.objects import Objects
from sweepkit.stores.packed import Packed
from sweepkit.stores.zarr import ZarrStore

__all__ = ["target"]


def target(given: Given, storage_options: Mapping[str, Any] | None = None) -> ZarrStore:
    """The store at a path, a URL or in a store object of zarr.

    Raises
    ------
    TypeError, ValueError
        If it names no place, or options do not fit it.
    """
    if isinstance(given, ZarrStore):
        return given
    place = where(given, storage_options)
    if isinstance(place, KeyPath) and str(place).endswith(".icechunk"):
        from sweepkit.stores.icechunk import Icechunk
        from sweepkit.versioned import Versions

        return ZarrStore(place, ground=Icechunk(cast(Versions, place.store._store)))
    if not isinstance(place, KeyPath):
        return ZarrStore(place, ground=Packed() if place.endswith(".zip") else None)
    if place.store.read_only:
        return ZarrStore(place, ground=Packed())
    remote = is_url(str(place)) and not str(place).startswith("memory://")
    return ZarrStore(place, ground=Objects() if remote else Memory())

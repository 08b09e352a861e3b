"""The code that a store's finished runs were made by, version by version, against the code now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sweepkit.grid import Grid
from sweepkit.identity import Identity, changes, identify

__all__ = [
    "StaleCodeError",
    "changed_objects",
    "code_number",
    "object_identities",
    "stale_codes",
]


class StaleCodeError(RuntimeError):
    """Finished runs were made by code that has changed since; nothing is deleted."""


def stale_codes(codes: Sequence[Mapping[str, Any]], now: Identity) -> list[tuple[int, list[str]]]:
    """Numbers of the stored code versions that differ from the code now, and what changed.

    Versions whose runs were kept beside those of the code now are not told again; those kept
    beside another version's are.
    """
    said = []
    for number, stored in enumerate(codes):
        if now.digest in (stored.get("accepted") or ()):
            continue
        told = changes(Identity.from_json(stored["identity"]), now)
        if told:
            said.append((number, told))
    return said


def object_identities(grid: Grid) -> dict[str, dict[str, Any]]:
    """Identity of the object behind each label, as plain data, by parameter and label."""
    return {
        one.name: {
            label: identify(partial(_handed, thing)).to_json()
            for label, thing in zip(one.values.tolist(), one.objects, strict=True)
        }
        for one in grid.parameters
        if one.objects is not None
    }


def _handed(thing: object) -> None:
    """Stands for whatever is given an object, so that the object has an identity."""


def changed_objects(
    stored: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Parameters and labels that stand for another object than when their runs were made."""
    return [
        (name, label)
        for name, labels in now.items()
        for label, said in labels.items()
        if label in stored.get(name, {})
        and changes(Identity.from_json(stored[name][label]), Identity.from_json(said))
    ]


def code_number(codes: Sequence[Mapping[str, Any]], now: Identity) -> int | None:
    """Number of the stored code version that is the code now; None if it is new."""
    for number, stored in enumerate(codes):
        if not changes(Identity.from_json(stored["identity"]), now):
            return number
    return None

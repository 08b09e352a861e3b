"""Digests of the parts of a document, by which a later edit is told; no guard against forgery."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sweepkit.digest import digest_of

__all__ = ["edited", "sealed"]

DIGESTS = "digests"


def sealed(said: Mapping[str, Any]) -> dict[str, Any]:
    """A document with the digests of its parts."""
    parts = {word: one for word, one in said.items() if word != DIGESTS}
    return {**parts, DIGESTS: {word: _digest(one) for word, one in parts.items()}}


def edited(said: Mapping[str, Any]) -> list[str]:
    """Parts that are not what their digests tell, or have none; none where there are no digests."""
    told = said.get(DIGESTS)
    if told is None:
        return []
    parts = {word: one for word, one in said.items() if word != DIGESTS}
    wrong = [word for word, one in parts.items() if told.get(word) != _digest(one)]
    return wrong + [word for word in told if word not in parts]


def _digest(one: Any) -> str:
    """Of what a part says, however it is laid out."""
    return digest_of(json.dumps(_plain(one), sort_keys=True, ensure_ascii=True))


def _plain(one: Any) -> Any:
    """Numbers by value, as a writer of JSON may drop the point of 2.0."""
    if isinstance(one, Mapping):
        return {str(name): _plain(value) for name, value in one.items()}
    if isinstance(one, list | tuple):
        return [_plain(value) for value in one]
    if isinstance(one, float) and one.is_integer():
        return int(one)
    return one

"""What a session wrote of itself, read again: a file may be damaged, edited, or of before."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["account"]


def account(text: str | None) -> tuple[dict[str, Any], bool]:
    """A session as it was written, and whether all of it is as it must be."""
    try:
        said = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}, False
    if not isinstance(said, dict):
        return {}, False
    sound = {name: one for name, one in said.items() if KINDS.get(name, _anything)(one)}
    return sound, len(sound) == len(said)


def _anything(_: object) -> bool:
    return True


def _number(one: object, most: float = 1e15) -> bool:
    return isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= most


def _moment(one: object) -> bool:
    return _number(one, 2.5e11)  # of the year 9892: a calendar ends with 9999


def _count(one: object) -> bool:
    return isinstance(one, int) and _number(one)


def _word(one: object) -> bool:
    return isinstance(one, str)


def _counts(one: object) -> bool:
    return isinstance(one, dict) and all(map(_count, one.values()))


def _words(one: object) -> bool:
    return isinstance(one, dict) and all(map(_word, one.values()))


KINDS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("began", "ended"), _moment),
    **dict.fromkeys(("queued_seconds", "held_seconds", "used_seconds", "wasted_seconds"), _number),
    **dict.fromkeys(("pid", "stage", "workers", "failed", "wasted"), _count),
    **dict.fromkeys(("host", "user", "state", "executor", "code", "left"), _word),
    **dict.fromkeys(("runs", "errors", "notes"), _counts),
    "environment": _words,
    "request": lambda one: isinstance(one, dict),
}
"""What each part of a session must be to be counted: a file may be damaged or edited."""

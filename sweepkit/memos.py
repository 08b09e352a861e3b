"""Small texts kept beside a store: receipts, notes, what was told of it."""

from __future__ import annotations

from sweepkit.files import replace_file
from sweepkit.places import Place

__all__ = ["keep_memo", "memo_names", "read_memo", "stage_memo"]


def read_memo(beside: Place, name: str) -> str | None:
    """A text, None if there is none or it is damaged."""
    try:
        return (beside / name).read_text()
    except (OSError, ValueError):  # it is no text any more, or a zip's checksum disagrees
        return None


def keep_memo(beside: Place, name: str, text: str | None) -> None:
    """Keep a text, or with None forget it."""
    path = beside / name
    if text is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)


def memo_names(beside: Place, folder: str) -> list[str]:
    """Names of the texts in a folder, in order."""
    return sorted(one.name for one in (beside / folder).glob("*.json"))


def stage_memo(name: str, stage: str) -> str:
    """Name that a text of a stage has beside the whole store."""
    stem, dot, ending = name.rpartition(".")
    return f"{stem}-stage-{stage}{dot}{ending}"

"""The browser's part of the explorer: its modules joined into one, with the style sheet in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

__all__ = ["MODULES", "joined", "module"]

STATIC = Path(__file__).parent / "static"

MODULES = (
    "draw.js",
    "moved.js",
    "app.js",
    "chips.js",
    "header.js",
    "requirements.js",
    "cells.js",
    "choices.js",
    "map.js",
    "held.js",
    "pairs.js",
    "trace.js",
    "point.js",
    "run.js",
    "kinds.js",
    "sure.js",
    "distribution.js",
    "brush.js",
    "parallel.js",
    "regions.js",
    "explorer.js",
)
"""In the order in which they build on each other; the last one is the widget."""

_IMPORT = re.compile(r"^import\b[^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def module() -> str:
    """One ES module that asks for nothing: notebooks load it from a blob, which has no siblings."""
    style = f"const STYLE = {json.dumps((STATIC / 'explorer.css').read_text())};\n"
    return f"{style}\n{joined(MODULES)}"


def joined(names: Iterable[str]) -> str:
    """Modules put together as one, without what they import from and export to each other."""
    parts = []
    for name in names:
        text = (STATIC / name).read_text(encoding="utf-8")
        parts.append(f"// {name}\n" + _EXPORT.sub("", _IMPORT.sub("", text)))
    return "\n".join(parts)

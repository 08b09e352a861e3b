"""The browser's part of the explorer: its modules joined into one, with the style sheet in it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

__all__ = ["MODULES", "module"]

STATIC = Path(__file__).parent / "static"

MODULES = (
    "draw.js",
    "app.js",
    "header.js",
    "requirements.js",
    "cells.js",
    "map.js",
    "held.js",
    "pairs.js",
    "trace.js",
    "run.js",
    "kinds.js",
    "sure.js",
    "distribution.js",
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
    parts = [f"const STYLE = {json.dumps((STATIC / 'explorer.css').read_text())};\n"]
    for name in MODULES:
        text = (STATIC / name).read_text()
        parts.append(f"// {name}\n" + _EXPORT.sub("", _IMPORT.sub("", text)))
    return "\n".join(parts)

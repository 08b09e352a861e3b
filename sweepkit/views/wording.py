"""Figures of answers in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sweepkit.analysis.coding import shown
from sweepkit.views.source import Source

__all__ = [
    "counted",
    "interval",
    "label",
    "listed",
    "percent",
    "shortened",
    "stretches",
    "value",
]


def percent(share: Any, digits: int = 1) -> str:
    """A share as text: ``19.9 %``; never 0 or 100 % where it is not."""
    share = float(share)
    if math.isnan(share):
        return "unknown"
    text = f"{100 * share:.{digits}f}"
    if (share > 0 and float(text) == 0) or (share < 1 and float(text) == 100):
        edge = 10.0**-digits
        return f"below {edge:g} %" if share < 0.5 else f"above {100 - edge:g} %"
    return f"{text} %"


def interval(row: Mapping[str, Any]) -> str:
    """Bounds of a rate in brackets, and what kind of bounds they are."""
    low, high, basis = float(row["low"]), float(row["high"]), str(row["basis"])
    if math.isnan(low) or math.isnan(high):
        return ""
    if basis == "census" and high - low < 1e-9:
        return "(exact on this grid)"
    ends = f"{100 * low:.1f} to {100 * high:.1f} %"
    if basis in ("census", "bounds"):
        return f"({ends}, whatever the unknown runs do)"
    if basis == "in progress":
        return f"({ends}, a band that holds at every look)"
    return f"({ends}, bounds by volume)" if basis == "refined" else f"({ends}, 95 % interval)"


def value(of: Source, name: str, text: Any) -> str:
    """A parameter with a value and its units: ``length 0.5 m``."""
    units = of[name].units
    word = text if isinstance(text, str) else shown(text)
    return f"{name} {word}{f' {units}' if units and units != '1' else ''}"


def counted(n: Any, word: str = "run") -> str:
    """A number of things: ``1 run``, ``2,000 runs``."""
    return f"{int(n):,} {word}{'' if int(n) == 1 else 's'}"


def listed(items: Sequence[str], most: int = 4) -> str:
    """Items in a row: ``a, b and c``, the rest counted."""
    some = list(items[:most])
    if len(items) > most:
        return f"{', '.join(some)} and {len(items) - most:,} more"
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} and {some[-1]}"


def stretches(rows: pd.DataFrame, ordered: bool) -> list[str]:
    """The values that held up; neighbours of an ordered parameter together, as in ``1 to 4``."""
    words = [label(v) for v in rows["value"]]
    held = rows["held"].tolist()
    if not ordered:
        return [word for word, ok in zip(words, held, strict=True) if ok]
    found: list[list[str]] = []
    for k, ok in enumerate(held):
        if ok and k and held[k - 1]:
            found[-1].append(words[k])
        elif ok:
            found.append([words[k]])
    return [
        one[0] if len(one) == 1 else f"{one[0].split(' to ')[0]} to {one[-1].split(' to ')[-1]}"
        for one in found
    ]


def label(one: Any) -> str:
    """A value as it is shown."""
    return one if isinstance(one, str) else shown(one)


def shortened(text: str, most: int = 240) -> str:
    """The beginning of a long text."""
    return text if len(text) <= most else f"{text[: most - 2].rstrip()} …"

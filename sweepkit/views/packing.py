"""Arrays and numbers as JSON that a browser unpacks without loss."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["number", "pack", "plain", "rounded"]


def pack(array: NDArray[Any]) -> dict[str, Any]:
    """An array as base64 of the smallest type that holds it: u1, u2, u4 or f4."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind in "iub":
        top = int(flat.max(initial=0))
        kind = "u1" if top < 256 else "u2" if top < 65536 else "u4"
    else:
        kind = "f4"
    coded = base64.b64encode(flat.astype(f"<{kind}").tobytes()).decode("ascii")
    return {"t": kind, "b": coded, "shape": list(array.shape)}


def number(value: Any) -> float | None:
    """A number for JSON, which has no NaN and no infinity."""
    value = float(value)
    return value if math.isfinite(value) else None


def plain(values: NDArray[Any]) -> list[float | None]:
    """Numbers for JSON."""
    return [number(v) for v in np.asarray(values, np.float64).reshape(-1)]


_LONG = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")


def rounded(text: str) -> str:
    """A text whose long decimal numbers have three digits, as far as they are read at a glance."""

    def short(found: re.Match[str]) -> str:
        value = float(found[0])
        if sum(letter.isdigit() for letter in found[0].partition("e")[0]) < 5:
            return found[0]
        return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"

    return _LONG.sub(short, text)

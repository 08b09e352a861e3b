"""What benchmarks share: one measurement in a process of its own, and a table."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]


def peak_mb() -> float:
    """Largest memory that this process has held, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def apart(module: str, *arguments: str) -> dict[str, Any]:
    """What a benchmark module prints as JSON when it is run on one case in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="sweepkit-benchmark-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
            timeout=1800,
        )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def repeated(
    count: int,
    cases: Sequence[Callable[[], dict[str, Any]]],
    of: Callable[[Iterable[Any]], Any] = median,
) -> list[dict[str, Any]]:
    """Cases measured in turns, so that a noisy moment hits them alike; medians of numbers."""
    rounds = [[case() for case in cases] for _ in range(count)]
    return [
        {
            name: of(one[at][name] for one in rounds) if isinstance(value, int | float) else value
            for name, value in rounds[0][at].items()
        }
        for at in range(len(cases))
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as aligned text."""
    cells = [list(head), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = [
        "  ".join(
            c.ljust(w) if not at else c.rjust(w)
            for at, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.2f}" if abs(cell) < 100 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)

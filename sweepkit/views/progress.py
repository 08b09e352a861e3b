"""How far a sweep is: a bar in a terminal or notebook, lines in a log."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from sweepkit.status import ENDINGS, Progress

__all__ = [
    "bar",
    "duration_text",
    "headless",
    "in_notebook",
    "lines",
    "sentence",
    "shown",
    "silent",
]

LINE_SECONDS = 10.0


def silent(progress: Progress) -> None:
    """Show nothing."""


def shown(name: str) -> Callable[[Progress], None]:
    """The view that suits where this runs: lines in a log, else a bar.

    A notebook run by papermill or nbconvert has nobody at the screen: it gets lines.
    """
    if in_notebook():
        return lines(name) if headless() else bar(name)
    return bar(name) if sys.stderr.isatty() else lines(name)


def in_notebook() -> bool:
    """Whether this runs in a kernel that a notebook talks to."""
    shell = sys.modules.get("IPython")
    active = shell.get_ipython() if shell is not None else None
    return active is not None and getattr(active, "kernel", None) is not None


def headless() -> bool:
    """Whether the kernel's client said that nobody answers its questions (papermill, nbconvert)."""
    shell = sys.modules["IPython"].get_ipython()
    request: Mapping[str, Any] = getattr(shell, "parent_header", None) or {}
    content = request.get("content") or {}
    return bool(os.environ.get("SWEEPKIT_LOG")) or content.get("allow_stdin") is False


def bar(name: str) -> Callable[[Progress], None]:
    """A progress bar by tqdm, in a terminal or a notebook."""
    from tqdm.auto import tqdm

    state: dict[str, Any] = {}

    def show(progress: Progress) -> None:
        if not progress.total:
            sys.stderr.write(f"{name}: {sentence(progress)}\n")
            return
        if "bar" not in state:
            state["bar"] = tqdm(
                total=progress.total,
                desc=name,
                unit="run",
                dynamic_ncols=True,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}",
            )
        drawn = state["bar"]
        drawn.n = min(progress.finished, progress.total)
        drawn.set_postfix_str(_details(progress), refresh=False)
        drawn.refresh()
        if progress.state in ENDINGS:
            drawn.close()
            if in_notebook():  # a saved notebook keeps text, but not the widget's last state
                sys.stdout.write(f"{name}: {sentence(progress)}\n")

    return show


def lines(name: str) -> Callable[[Progress], None]:
    """One line at the beginning, at the end, and every ten seconds, to standard output."""
    state = {"last": -math.inf}

    def show(progress: Progress) -> None:
        ending = progress.state in ENDINGS
        now = time.monotonic()
        if ending or now - state["last"] >= LINE_SECONDS:
            state["last"] = now
            sys.stdout.write(f"{name}: {sentence(progress)}\n")
            sys.stdout.flush()

    return show


def sentence(progress: Progress) -> str:
    """Progress in one line of plain text."""
    total = progress.total
    if not total and progress.state == "done":
        return "nothing to run, every run is finished"
    share = progress.finished / total if total else 1.0
    head = f"{progress.finished:,} of {total:,} runs ({share:.0%})"
    word = {"done": "done", "cancelled": "stopped", "failed": "ended early"}.get(progress.state)
    details = _details(progress)
    if word is not None:
        head = f"{word}, {head} in {duration_text(progress.elapsed)}"
    note = f"; left: {progress.note}" if progress.note else ""
    return (f"{head}, {details}" if details else head) + note


def _details(progress: Progress) -> str:
    parts = []
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    parts += [f"{count:,} {kind}" for kind, count in progress.errors.items()][:4]
    skipped = progress.counts.get("skipped", 0)
    if skipped:
        parts.append(f"{skipped:,} skipped")
    if not math.isnan(progress.rate):
        parts.append(
            f"{progress.rate:,.3g} runs/s"
            if progress.rate < 1000
            else f"{progress.rate:,.0f} runs/s"
        )
    if progress.waiting:
        parts.append(progress.waiting)
    expected, low, high = progress.remaining
    if progress.state == "running" and not math.isnan(expected) and progress.finished:
        parts.append(f"{_range_text(low, high)} to go")
    return ", ".join(parts)


def _range_text(low: float, high: float) -> str:
    low_text, high_text = duration_text(low), duration_text(high)
    return low_text if low_text == high_text else f"{low_text} - {high_text}"


def duration_text(seconds: float) -> str:
    """A duration for people: 3 s, 4 min, 2 h 10 min."""
    if math.isnan(seconds):
        return "?"
    if seconds < 1:
        return "under 1 s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 99.5:
        return f"{minutes:.0f} min"
    hours, rest = divmod(round(minutes), 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours / 24:.1f} days"

"""A grid as it shows itself: text, and a table in HTML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sweepkit.distinct import value_text
from sweepkit.html import Markup, box, code, escape, section
from sweepkit.html import table as html_table
from sweepkit.masks import mask_text
from sweepkit.parameters import Parameter

if TYPE_CHECKING:
    from sweepkit.grid import Grid

__all__ = ["count", "html", "parameter_table", "text"]


def text(grid: Grid) -> str:
    """In plain text, a line a parameter."""
    lines = [f"<sweepkit.Grid: {count(grid)}>"]
    width = max((len(p.name) for p in grid.parameters), default=0)
    for one in grid.parameters:
        along = "" if one.dims == (one.name,) else f"({', '.join(one.dims)}) "
        units = f" {one.units}" if one.units else ""
        lines.append(
            f"  {one.name:<{width}}  {one.role:<9}  {one.size:>7}  {along}{_span(one)}{units}"
        )
    lines += [f"  {name} = {expression.text}" for name, expression in grid.derived]
    lines += [f"  where {mask_text(mask)}" for mask in grid.masks]
    return "\n".join(lines)


def count(grid: Grid) -> str:
    """How many points there are, and along which dims."""
    sizes = " x ".join(f"{dim}: {size:,}" for dim, size in grid.sizes.items())
    runs = "run" if grid.size == 1 else "runs"
    return f"{'at most ' if grid.masks else ''}{grid.size:,} {runs} ({sizes})"


def html(grid: Grid) -> str:
    """In HTML."""
    notes = [f"{name} = {expression.text}" for name, expression in grid.derived]
    notes += [f"where {mask_text(mask)}" for mask in grid.masks]
    parts = [
        section(
            "Parameters", parameter_table(grid), about=f"({len(grid.parameters)})", unfolded=True
        )
    ]
    if notes:
        listed = code("\n".join(notes))
        parts.append(section("Derived and masks", listed, about=f"({len(notes)})"))
    return box("sweepkit.Grid", *parts, about=count(grid), text=text(grid))


def parameter_table(grid: Grid) -> str:
    """The parameters as a table in HTML."""
    rows = []
    for one in grid.parameters:
        along = "" if one.dims == (one.name,) else f" ({', '.join(one.dims)})"
        role = Markup(f'<span class="sk-role">{escape(one.role)}</span>')
        span = Markup(f"<code>{escape(_span(one))}</code>")
        spacing = Markup(_dots(one))
        size = f"{one.size:,}"
        said = (one.name + along, role, one.units or "", size, span, spacing)
        rows.append((*said, one.long_name or ""))
    columns = ("Name", "Role", "Units", "n", "Values", "Spacing", "What it is")
    return html_table(columns, rows, numbers={3})


def _dots(one: Parameter) -> str:
    """Where the values of a parameter lie in their range, as a small picture."""
    if one.values.ndim > 1 or not 1 < one.size <= 60 or one.values.dtype.kind not in "iufmM":
        return ""
    numbers = one.values.astype(np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return ""
    at = 4 + 88 * (numbers - low) / (high - low)
    dots = "".join(f'<circle cx="{x:.1f}" cy="6" r="2.2" fill="currentColor"/>' for x in at)
    return (
        '<svg width="96" height="12" viewBox="0 0 96 12" aria-hidden="true"><path d="M4 6H92" '
        f'stroke="currentColor" stroke-opacity=".35"/>{dots}</svg>'
    )


def _span(one: Parameter) -> str:
    if one.values.ndim > 1:
        return f"vectors of {' x '.join(str(n) for n in one.values.shape[1:])}"
    shown = [_short(value) for value in (one.values if one.size <= 4 else one.values[[0, 1, -1]])]
    if one.size > 4:
        shown.insert(2, "...")
    return ", ".join(shown)


def _short(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = value_text(value) if isinstance(value, np.datetime64 | np.timedelta64) else str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."

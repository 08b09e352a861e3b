"""The frame in which results are shown: facts, tables and notes, as text and as HTML.

In HTML colours follow the theme of the notebook or page around, light or dark, and everything is
escaped. Neither needs a script, a server or the network.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Card", "Fact", "Table"]

INK = "var(--jp-ui-font-color1,var(--vscode-foreground,currentColor))"
LINE = "1px solid color-mix(in srgb,currentColor 25%,transparent)"
FRAME = (
    f"border:{LINE};border-radius:6px;color:{INK};max-width:1000px;overflow-x:auto;"
    "font-variant-numeric:tabular-nums;line-height:1.4"
)


@dataclass(frozen=True)
class Fact:
    """One number with its name and what qualifies it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text under a head; columns after the first are set to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Card:
    """What is shown of a result.

    Attributes
    ----------
    kind, about : str
        What it is, and of what.
    badge : str
        The one thing to see first.
    facts : sequence of Fact
    tables : sequence of Table
    notes : sequence of str
        Sentences.
    """

    kind: str
    about: str
    badge: str = ""
    facts: Sequence[Fact] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = field(default=())

    def text(self) -> str:
        """As plain text."""
        badge = f": {self.badge}" if self.badge else ""
        lines = [f"<sweepkit.{self.kind} {self.about}{badge}>"]
        width = max((len(one.name) for one in self.facts), default=0)
        for one in self.facts:
            note = f"  ({one.note})" if one.note else ""
            lines.append(f"  {one.name:<{width}}  {one.value}{note}")
        for table in self.tables:
            rows = [list(table.head), *map(list, table.rows)]
            widths = [max(len(row[at]) for row in rows) for at in range(len(table.head))]
            for row in rows:
                cells = [row[0].ljust(widths[0])]
                cells += [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
                lines.append("  " + "  ".join(cells).rstrip())
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    def html(self) -> str:
        """As HTML."""
        badge = (
            f'<span style="margin-left:auto;border:{LINE};border-radius:11px;padding:1px 8px">'
            f"{html.escape(self.badge)}</span>"
            if self.badge
            else ""
        )
        head = (
            f'<div style="display:flex;gap:10px;padding:6px 12px;align-items:center">'
            f"<b>{html.escape(self.kind)}</b>"
            f'<span style="opacity:.75">{html.escape(self.about)}</span>{badge}</div>'
        )
        inside = "".join(map(_table, self.tables)) + "".join(
            f'<div style="padding:4px 12px">{html.escape(note)}</div>' for note in self.notes
        )
        if inside:
            inside = f'<div style="border-top:{LINE};padding:4px 0">{inside}</div>'
        return (
            f'<div class="sweepkit-card" style="{FRAME}">{head}{_facts(self.facts)}{inside}</div>'
        )


ALONE = "float:none;width:auto"
"""On a line of its own: pages of notebooks float names of definition lists beside their text."""


def _facts(facts: Sequence[Fact]) -> str:
    if not facts:
        return ""
    cells = "".join(
        f'<div style="padding:6px 12px;min-width:110px;flex:1">'
        f'<dt style="{ALONE};font-size:.85em;font-weight:400;opacity:.75">'
        f"{html.escape(one.name)}</dt>"
        f'<dd style="{ALONE};margin:0"><b style="font-size:1.1em">{html.escape(one.value)}</b>'
        f'<div style="font-size:.85em">{html.escape(one.note)}</div></dd></div>'
        for one in facts
    )
    return (
        f'<dl style="display:flex;flex-wrap:wrap;margin:0;border-top:{LINE};'
        f'background:transparent">{cells}</dl>'
    )


def _table(table: Table) -> str:
    style = [f"padding:2px 12px;text-align:{'right' if at else 'left'}" for at in range(99)]
    head = "".join(
        f'<th scope="col" style="{s};font-weight:400;opacity:.75">{html.escape(one)}</th>'
        for s, one in zip(style, table.head, strict=False)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td style="{s}">{html.escape(one)}</td>' for s, one in zip(style, row, strict=False)
        )
        + "</tr>"
        for row in table.rows
    )
    return (
        f'<table style="color:inherit;font:inherit"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )

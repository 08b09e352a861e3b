"""What objects look like in a notebook: escaped, collapsible, and at home in any theme.

Nothing is fetched and no colour of text is fixed: every line, ground and word is mixed from the
colour that the surrounding page gives its text, so a light or dark theme needs no telling.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence

__all__ = [
    "COLOURS",
    "CSS",
    "Markup",
    "bar",
    "box",
    "code",
    "escape",
    "facts",
    "mark",
    "note",
    "section",
    "sentence",
    "table",
]

COLOURS = {"pass": "#0F7AC0", "fail": "#E69F00", "error": "#C2185B"}
"""Fills of the outcomes: apart for the colour-blind, too; words and glyphs always go with them."""

CSS = """
.sk-box{--sk-ink:var(--jp-ui-font-color1,var(--vscode-editor-foreground,
var(--panel-on-background-color,var(--mui-palette-text-primary,currentColor))));
--sk-ink-2:color-mix(in srgb,var(--sk-ink) 72%,transparent);
--sk-line:color-mix(in srgb,var(--sk-ink) 20%,transparent);
--sk-sunk:color-mix(in srgb,var(--sk-ink) 6%,transparent);
--sk-pass:#0F7AC0;--sk-fail:#E69F00;--sk-error:#C2185B;
--sk-pending:color-mix(in srgb,var(--sk-ink) 34%,transparent);
color:var(--sk-ink);font:400 13px/1.4 var(--jp-ui-font-family,"Inter",system-ui,sans-serif);
font-variant-numeric:tabular-nums;border:1px solid var(--sk-line);border-radius:6px;
max-width:1120px;overflow:hidden;box-sizing:border-box;margin:4px 0}
.sk-box *{box-sizing:border-box}
.sk-box .sk-head{display:flex;flex-wrap:wrap;align-items:center;gap:4px 10px;padding:8px 12px;
min-height:38px}
.sk-box .sk-head b{font-weight:600;overflow-wrap:anywhere}.sk-box .sk-about{color:var(--sk-ink-2);
font-size:12px;overflow-wrap:anywhere}
.sk-box .sk-aside{margin-left:auto;color:var(--sk-ink-2);font-size:12px}
.sk-box details{border-top:1px solid var(--sk-line);padding:0 12px}
.sk-box details[open]{padding-bottom:8px}
.sk-box summary{cursor:pointer;list-style:none;display:flex;flex-wrap:wrap;align-items:center;
gap:4px 6px;min-height:28px;font-size:12px;font-weight:500}
.sk-box summary::-webkit-details-marker{display:none}
.sk-box summary::before{content:"";border:4px solid transparent;border-left:5px solid
var(--sk-ink-2);border-right:0;margin:0 3px 0 2px;flex:none}
.sk-box details[open]>summary::before{transform:rotate(90deg)}
.sk-box summary:focus-visible{outline:2px solid var(--sk-ink);outline-offset:-2px}
.sk-box summary span,.sk-box .sk-note{color:var(--sk-ink-2);font-weight:400}
.sk-box .sk-note{font-size:12px;padding:6px 12px;margin:0;border-top:1px solid var(--sk-line);
overflow-wrap:anywhere}
.sk-box details .sk-note{border-top:0;padding:2px 0}
.sk-box .sk-scroll{overflow-x:auto}.sk-box>.sk-scroll{padding:0 12px;
border-top:1px solid var(--sk-line)}
.sk-box.sk-box table.sk-table{border-collapse:collapse;width:100%;font-size:12px;margin:0;
table-layout:auto;border:0;color:inherit}
.sk-box.sk-box table.sk-table thead{border:0;vertical-align:baseline}
.sk-box.sk-box table.sk-table tbody tr,.sk-box.sk-box table.sk-table tbody tr:hover{
background:transparent}
.sk-box.sk-box table.sk-table th{font-weight:500;color:var(--sk-ink-2);font-size:11px;
background:transparent;white-space:nowrap}
.sk-box.sk-box table.sk-table td,.sk-box.sk-box table.sk-table th{text-align:left;
padding:4px 16px 4px 0;border:0;border-bottom:1px solid var(--sk-line);vertical-align:middle;
max-width:420px;overflow-wrap:break-word}
.sk-box.sk-box table.sk-table td{white-space:normal}
.sk-box.sk-box table.sk-table tbody tr:last-child td{border-bottom:0}
.sk-box.sk-box table.sk-table th.sk-n,.sk-box.sk-box table.sk-table td.sk-n{text-align:right;
white-space:nowrap}
.sk-box.sk-box table.sk-table th:last-child,.sk-box.sk-box table.sk-table td:last-child{
padding-right:0}
.sk-box code,.sk-box pre{font-family:var(--jp-code-font-family,ui-monospace,"DejaVu Sans Mono",
Menlo,Consolas,monospace);font-size:11.5px;color:inherit;background:transparent}
.sk-box pre{margin:4px 0 0;padding:8px 10px;border-radius:4px;background:var(--sk-sunk);
white-space:pre-wrap;overflow-wrap:anywhere;max-height:320px;overflow-y:auto}
.sk-box dl.sk-facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));
margin:0;border-top:1px solid var(--sk-line)}
.sk-box dl.sk-facts div{padding:8px 12px;box-shadow:-1px 0 0 var(--sk-line)}
.sk-box dl.sk-facts dt,.sk-box dl.sk-facts dd{float:none;width:auto;display:block}
.sk-box dl.sk-facts dt{font-size:11px;font-weight:400;color:var(--sk-ink-2);line-height:16px}
.sk-box dl.sk-facts dd{margin:0;font-size:15px;font-weight:600;line-height:22px;
overflow-wrap:anywhere}
.sk-box dl.sk-facts small{display:block;font-size:11px;font-weight:400;color:var(--sk-ink-2);
line-height:16px}
.sk-box .sk-role{font-size:11px;border:1px solid var(--sk-line);border-radius:3px;padding:0 5px;
line-height:16px;display:inline-block;white-space:nowrap}
.sk-box .sk-bar{display:flex;height:10px;background:var(--sk-sunk);border-radius:2px;gap:1px;
overflow:hidden;margin:2px 12px 8px}
.sk-box .sk-bar i{display:block;min-width:2px}
.sk-box .sk-st{display:inline-flex;gap:5px;align-items:center;white-space:nowrap}
.sk-box .sk-st svg{width:14px;height:14px;flex:none}
.sk-box .sk-st.sk-pass{color:color-mix(in srgb,var(--sk-pass) 60%,var(--sk-ink))}
.sk-box .sk-st.sk-fail{color:color-mix(in srgb,var(--sk-fail) 50%,var(--sk-ink))}
.sk-box .sk-st.sk-error{color:color-mix(in srgb,var(--sk-error) 65%,var(--sk-ink))}
.sk-box+pre.sk-text{display:none}
"""
"""Rules of everything below, each under ``.sk-box``; about 4 kB."""

_GLYPHS = {
    "pass": '<circle cx="7" cy="7" r="6.5" fill="#0F7AC0"/><path d="M3.8 7.2 6.1 9.5 10.3 4.9" '
    'fill="none" stroke="#fff" stroke-width="1.7"/>',
    "fail": '<rect x=".8" y=".8" width="12.4" height="12.4" fill="#E69F00"/><path '
    'd="M4 4 10 10M10 4 4 10" stroke="#18202B" stroke-width="1.8"/>',
    "error": '<path d="M7 1 13.4 12.8H.6Z" fill="#C2185B"/><path d="M7 4.6V9" stroke="#fff" '
    'stroke-width="1.7"/><circle cx="7" cy="11" r="1" fill="#fff"/>',
    "pending": '<circle cx="7" cy="7" r="5.8" fill="none" stroke="currentColor" '
    'stroke-width="1.4" stroke-dasharray="2.4 2"/>',
    "running": '<circle cx="7" cy="7" r="5.6" fill="none" stroke="currentColor" '
    'stroke-width="1.4"/><path d="M7 3.6V7l2.4 1.6" fill="none" stroke="currentColor" '
    'stroke-width="1.4"/>',
}


class Markup(str):
    """Text that is HTML already; everything else is escaped where it is put in."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """A value as HTML text; `Markup` stays as it is."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def box(
    title: object, *parts: str, about: object = "", aside: object = "", text: str = ""
) -> Markup:
    """The whole of an object's repr, with its style.

    Parameters
    ----------
    title : str
        What it is, bold.
    *parts : Markup
        What `section`, `table`, `facts`, `bar` or `note` gave, below the title.
    about, aside : str
        Behind the title, and at the right.
    text : str
        The plain repr, for viewers that drop style sheets; hidden in all others.
    """
    plain = f'<pre class="sk-text">{escape(text)}</pre>' if text else ""
    right = f'<span class="sk-aside">{escape(aside)}</span>' if aside else ""
    said = f'<span class="sk-about">{escape(about)}</span>' if about else ""
    head = f'<div class="sk-head"><b>{escape(title)}</b>{said}{right}</div>'
    body = "".join(escape(part) for part in parts)
    return Markup(f'<style>{CSS}</style><div class="sk-box">{head}{body}</div>{plain}')


def section(title: object, body: object, *, about: object = "", unfolded: bool = False) -> Markup:
    """A part that folds away; `about` is read also while it is folded."""
    said = f"<span>{escape(about)}</span>" if about != "" else ""
    state = " open" if unfolded else ""
    return Markup(
        f"<details{state}><summary>{escape(title)}{said}</summary>{escape(body)}</details>"
    )


def table(
    columns: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[int] = (),
    limit: int = 100,
) -> Markup:
    """A table that scrolls where it is too wide.

    Parameters
    ----------
    columns : sequence of str
        Its head.
    rows : iterable of sequences
        Cells; whatever is no `Markup` is escaped.
    numbers : collection of int
        Columns that are set to the right.
    limit : int
        Rows shown; a sentence tells of those left out.
    """
    rows = list(rows)
    side = [' class="sk-n"' if k in numbers else "" for k in range(len(columns))]
    head = "".join(f"<th{s}>{escape(c)}</th>" for s, c in zip(side, columns, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{s}>{escape(c)}</td>" for s, c in zip(side, row, strict=True))
        + "</tr>"
        for row in rows[:limit]
    )
    left = len(rows) - limit
    more = note(f"{left:,} more rows") if left > 0 else ""
    return Markup(
        f'<div class="sk-scroll"><table class="sk-table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )


def facts(told: Iterable[tuple[object, object, object]]) -> Markup:
    """Figures side by side: what, how much, and a small line below."""
    cells = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(much)}<small>{escape(small)}</small></dd></div>"
        for what, much, small in told
    )
    return Markup(f'<dl class="sk-facts">{cells}</dl>')


def mark(outcome: str, words: object = "") -> Markup:
    """Glyph and word of an outcome: pass, fail, error, pending or running."""
    return Markup(
        f'<span class="sk-st sk-{escape(outcome)}"><svg viewBox="0 0 14 14" aria-hidden="true">'
        f"{_GLYPHS[outcome]}</svg>{escape(words or outcome)}</span>"
    )


def bar(shares: Iterable[tuple[str, float]]) -> Markup:
    """A bar cut by outcome (pass, fail, error, pending); sizes in any unit."""
    shares = [(name, much) for name, much in shares if much > 0]
    total = sum(much for _, much in shares) or 1.0
    parts = "".join(
        f'<i style="width:{100 * much / total:.3f}%;background:var(--sk-{escape(name)})"></i>'
        for name, much in shares
    )
    words = ", ".join(f"{much:,.0f} {name}" for name, much in shares)
    return Markup(f'<div class="sk-bar" role="img" aria-label="{escape(words)}">{parts}</div>')


def code(text: object) -> Markup:
    """Lines of code or of a log, wrapped and scrolled."""
    return Markup(f"<pre>{escape(text)}</pre>")


def note(text: object) -> Markup:
    """A sentence in small type."""
    return Markup(f'<p class="sk-note">{escape(text)}</p>')


def sentence(items: Sequence[object], most: int = 6) -> str:
    """Items in a row, the rest counted."""
    shown = ", ".join(map(str, items[:most]))
    return f"{shown} and {len(items) - most:,} more" if len(items) > most else shown

"""What an explorer leaves in an executed notebook: a picture and a short table."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.bases import MEANINGS
from sweepkit.analysis.coding import Coded
from sweepkit.analysis.outcomes import ERRORED, FAILED, PASSED
from sweepkit.views import deeper, figures
from sweepkit.views.asked import Asked
from sweepkit.views.captions import short_labels
from sweepkit.views.engine import Engine
from sweepkit.views.raster import EDGE, INK, Picture, cividis, reads_on
from sweepkit.views.source import kept

__all__ = ["still"]

PASS, ERROR = "#0F7AC0", "#C2185B"

LABEL = 16
"""Letters of a label, at most."""

WIDTH, HEIGHT = 960, 400
TOP, FOOT = 36, 348
"""Where the plots begin and end, from the top of the picture."""

MAX_GROUPED = 200_000
"""Runs whose kinds are in the table; of more, grouping them would hold up the display."""


def still(engine: Engine) -> tuple[str, str, str]:
    """PNG as base64, HTML and plain text of the present state."""
    asked = engine.asked()
    overview = figures.overview(asked)
    png = _picture(engine, asked)
    return png, _html(engine, asked, overview, png), _text(engine, overview)


def _text(engine: Engine, overview: dict[str, Any]) -> str:
    tally = overview["selected"] or overview["all"]
    return f"Explorer of {engine.source.name}: {engine.source.table.n:,} runs; {_sentence(tally)}"


def _sentence(tally: dict[str, Any]) -> str:
    known = tally["pass"] + tally["fail"]
    parts = [f"{tally['fail']:,} of {known:,} finished runs fail"]
    if tally["rate"] is not None:
        weighted = known and abs(tally["rate"] - tally["fail"] / known) > 1e-9
        going = tally["basis"] == "in progress"
        what = "" if not weighted else "of all runs about " if going else "weighted "
        parts[0] += f" ({what}{100 * tally['rate']:.1f} %)"
    if tally["error"]:
        parts.append(f"{tally['error']:,} errors")
    if tally["pending"]:
        parts.append(f"{tally['pending']:,} pending")
    return ", ".join(parts)


def _html(engine: Engine, asked: Asked, overview: dict[str, Any], png: str) -> str:
    source = engine.source
    tally = overview["selected"] or overview["all"]
    escape = html.escape
    limits = [
        f"{one.what} {one.op} {one.stops[stop]:g}{' ' + one.units if one.units else ''}"
        for one, stop in zip(source.levers, asked.stops, strict=True)
        if one.movable
    ]
    rows = []
    if source.levers and source.table.n <= MAX_GROUPED:
        for row in deeper.kind_table(asked)["rows"][:6]:
            where = f"{row['where']} ({row['lift']:.1f} times)" if row["lift"] else ""
            rows.append(
                f"<tr><td>{escape(row['text'])}</td><td style='text-align:right'>"
                f"{row['count']:,}</td><td>{escape(where)}</td></tr>"
            )
    picture = (
        f"<img style='max-width:100%' width='{WIDTH}' alt='failure map' "
        f"src='data:image/png;base64,{png}'>"
    )
    chips = "; ".join(str(one.get("text", "")) for one in engine.state.filters)
    return (
        "<div style='font-family:system-ui,sans-serif;font-size:13px;max-width:900px'>"
        f"<p><b>{escape(source.name)}</b>: {source.table.n:,} runs. {escape(_sentence(tally))}. "
        f"<i>{escape(MEANINGS.get(str(tally['basis']), ''))}</i></p>"
        + (f"<p>Selected: {escape(chips)}</p>" if chips else "")
        + (f"<p>Limits: {escape(', '.join(limits))}</p>" if limits else "")
        + picture
        + (
            "<table><thead><tr><th>What happened</th><th>Runs</th><th>Most over-represented</th>"
            f"</tr></thead><tbody>{''.join(rows)}</tbody></table>"
            if rows
            else ""
        )
        + "<p style='opacity:.7'>A still picture of sk.explore; in a running notebook it is "
        "interactive.</p></div>"
    )


def _picture(engine: Engine, asked: Asked) -> str:
    """The map and the strips of the most telling parameters, in colours for light and dark."""
    drawn = Picture(WIDTH, HEIGHT)
    _map(drawn, _cells(engine, asked))
    _strips(drawn, asked)
    return base64.b64encode(drawn.png()).decode("ascii")


@dataclass(frozen=True, eq=False)
class _Cells:
    """What is drawn of each cell: `value` as a share of the scale, with its text."""

    x: Coded
    y: Coded | None
    value: NDArray[np.float64]
    text: Callable[[int, int], str]
    errors: NDArray[np.float64]
    there: NDArray[np.bool_]
    scale: tuple[str, str, str]


def _cells(engine: Engine, asked: Asked) -> _Cells:
    """The cells of the map, over all small multiples."""
    layout = figures.map_cells(asked)
    x, *rest = layout.along[::-1]
    y = rest[0] if engine.state.y else None
    shape = (-1, y.n if y is not None else 1, x.n)
    seen = kept(asked.table, asked.sliced())
    code = layout.cell * 5 + seen.outcome
    tally = np.bincount(code, minlength=5 * layout.n).reshape(*shape, 5).sum(axis=0)
    known = tally[..., PASSED] + tally[..., FAILED]
    with np.errstate(invalid="ignore"):
        errors = np.nan_to_num(tally[..., ERRORED] / (tally[..., ERRORED] + known))
        value = tally[..., FAILED] / known
    rate = value
    scale, text = ("0", "100", "% fail"), lambda j, i: f"{100 * rate[j, i]:.0f}"
    told = figures.mean_value(asked, layout, seen)
    if told is not None:
        name, units, n, total = told
        with np.errstate(invalid="ignore"):
            mean = total.reshape(shape).sum(axis=0) / n.reshape(shape).sum(axis=0)
        finite = mean[np.isfinite(mean)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        value = (mean - low) / (high - low) if high > low else mean * 0
        scale = (f"{low:.3g}", f"{high:.3g}", f"mean {name}{', ' + units if units else ''}")
        text = lambda j, i: f"{mean[j, i]:.3g}"  # noqa: E731
    return _Cells(x, y, value, text, errors, known + tally[..., ERRORED] > 0, scale)


def _map(drawn: Picture, cells: _Cells) -> None:
    x, y, tall = cells.x, cells.y, FOOT - TOP
    ny, nx = cells.value.shape
    rows = [text[:LABEL] for text in short_labels(y)] if y is not None else []
    left = 34 + max((drawn.length(row) for row in rows), default=0)
    width, height = (470 - left) / nx, tall / ny
    drawn.text(left, TOP - 12, "Failure map", size=13, colour=INK, bold=True)
    for j in range(ny):
        for i in range(nx):
            at, top = left + i * width, FOOT - (j + 1) * height
            gap = 1 if min(width, height) > 6 else 0
            box = (at, top, width - gap, height - gap)
            share, wrong = cells.value[j, i], cells.errors[j, i]
            if np.isfinite(share):
                drawn.box(*box, cividis(share))
            elif not cells.there[j, i]:
                drawn.frame(*box, "#E7EAEF")
            if wrong:
                drawn.hatched(at, top + box[3] * (1 - wrong), box[2], box[3] * wrong, ERROR)
            words = cells.text(j, i) if np.isfinite(share) and nx * ny <= 400 else ""
            if words and drawn.length(words) < width - 4 and height * (1 - wrong) > 13:
                place = (at + width / 2, top + height * (1 - wrong) / 2)
                drawn.text(*place, words, anchor="mm", colour=reads_on(share))
    _labels(drawn, [text[:LABEL] for text in short_labels(x)], left, width)
    drawn.text((left + 470) / 2, FOOT + 36, _titled(x), anchor="ms", colour=INK)
    last = FOOT + 99.0
    for k, row in enumerate(rows):
        at = FOOT - (k + 0.5) * height
        if last - at >= 12:
            drawn.text(left - 6, at, row, anchor="rm")
            last = at
    if y is not None:
        drawn.upwards(14, (TOP + FOOT) / 2, _titled(y))
    _bar(drawn, *cells.scale)


def _labels(drawn: Picture, texts: list[str], left: float, width: float) -> None:
    """Labels along the foot, as many as fit beside each other."""
    last = -99.0
    for k, text in enumerate(texts):
        middle, half = left + (k + 0.5) * width, drawn.length(text) / 2
        if middle - half > last + 6:
            drawn.text(middle, FOOT + 16, text, anchor="ms")
            last = middle + half


def _bar(drawn: Picture, low: str, high: str, label: str) -> None:
    for k in range(64):
        step = (FOOT - TOP) / 64
        drawn.box(482, FOOT - (k + 1) * step, 12, step + 0.5, cividis(k / 63))
    drawn.text(498, FOOT, low)
    drawn.text(498, TOP + 9, high)
    drawn.upwards(508, (TOP + FOOT) / 2, label[:40])


def _titled(p: Coded) -> str:
    return f"{p.name}, {p.units}" if p.units else p.name


def _strips(drawn: Picture, asked: Asked) -> None:
    found = figures.rates(asked)[:6]
    left = 546 + max((drawn.length(p.name[:LABEL]) for p, _ in found), default=0)
    title = "Held up: pass rate by value, %"
    drawn.text(left, TOP - 12, title, size=13, colour=INK, bold=True)
    if not found:
        drawn.text(left, TOP + 40, "no parameter varies")
        return
    step = (FOOT - TOP) / max(len(found), 3)
    for k, (p, rate) in enumerate(found):
        top, foot = TOP + k * step + 6, TOP + (k + 1) * step - 8
        drawn.text(left - 8, (top + foot) / 2, p.name[:LABEL], anchor="rm", colour=INK)
        for at, text in ((top, "100"), (foot, "0")):
            drawn.line([(left, at), (WIDTH - 40, at)], "#E7EAEF")
            drawn.text(WIDTH - 10, at, text, anchor="rm", colour=EDGE)
        across = np.linspace(left + 4, WIDTH - 44, len(rate)) if len(rate) > 1 else [left + 4]
        places = [
            (float(at), top + (foot - top) * float(r))
            for at, r in zip(across, rate, strict=True)
            if np.isfinite(r)
        ]
        if len(places) > 1 and p.ordered:
            drawn.line(places, PASS)
        for place in places:
            drawn.dot(*place, 2.5, PASS)
    foot = TOP + len(found) * step + 12
    drawn.text(left, foot, "lowest value")
    drawn.text(WIDTH - 40, foot, "highest", anchor="rs")

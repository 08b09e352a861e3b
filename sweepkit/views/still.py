"""What an explorer leaves in an executed notebook: a picture and a short table."""

from __future__ import annotations

import base64
import html
import io
import warnings
from typing import Any

import numpy as np

from sweepkit.analysis.bases import MEANINGS
from sweepkit.views import deeper, figures
from sweepkit.views.captions import short_label
from sweepkit.views.engine import Engine
from sweepkit.views.source import kept

__all__ = ["still"]

PASS, ERROR = "#0F7AC0", "#C2185B"

LABEL = 16
"""Letters of a label, at most."""

MAX_GROUPED = 200_000
"""Runs whose kinds are in the table; of more, grouping them would hold up the display."""


def still(engine: Engine) -> tuple[str | None, str, str]:
    """PNG as base64 (None without matplotlib), HTML and plain text of the present state."""
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
        parts[0] += f" ({100 * tally['rate']:.1f} %)"
    if tally["error"]:
        parts.append(f"{tally['error']:,} errors")
    if tally["pending"]:
        parts.append(f"{tally['pending']:,} pending")
    return ", ".join(parts)


def _html(engine: Engine, asked: figures.Asked, overview: dict[str, Any], png: str | None) -> str:
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
        f"<img style='max-width:100%' alt='failure map' src='data:image/png;base64,{png}'>"
        if png
        else ""
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


def _picture(engine: Engine, asked: figures.Asked) -> str | None:
    """The map and the strips of the most telling parameters, in colours for light and dark."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(10, 4.2), dpi=96, facecolor="white")
    FigureCanvasAgg(figure)
    # Places by the lengths of labels: a layout that measures draws everything twice.
    y = engine.source[engine.state.y] if engine.state.y else None
    rows = [short_label(y, k)[:LABEL] for k in range(y.n)] if y is not None else []
    names = [p.name[:LABEL] for p in engine.source.parameters]
    left = 0.05 + 0.0075 * max(map(len, rows), default=0)
    right = 0.615 + 0.0078 * max(map(len, names), default=0)
    _map(
        figure.add_axes((left, 0.15, 0.5 - left, 0.76)),
        figure.add_axes((0.51, 0.15, 0.015, 0.76)),
        engine,
        asked,
    )
    _strips(figure.add_axes((right, 0.15, 0.98 - right, 0.76)), asked)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names may hold letters that matplotlib's font lacks; boxes for them are no reason to warn.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _map(ax: Any, bar: Any, engine: Engine, asked: figures.Asked) -> None:
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    source = engine.source
    x = source[engine.state.x]
    y = source[engine.state.y] if engine.state.y else None
    layout = figures.map_cells(asked)
    nx, ny = x.n, y.n if y is not None else 1
    seen = kept(asked.table, asked.sliced())
    tally = np.bincount(layout.cell * 5 + seen.outcome, minlength=5 * layout.n).reshape(
        -1, ny, nx, 5
    )
    tally = tally.sum(axis=0)
    known = tally[..., 0] + tally[..., 1]
    value, label, norm = _colour(asked, layout, seen, tally, known, ny, nx)
    image = ax.pcolormesh(value, cmap="cividis", norm=norm or Normalize(0, 100), edgecolors="white")
    errors = tally[..., 3]
    for j, i in np.argwhere(errors > 0)[:2000]:
        share = errors[j, i] / (errors[j, i] + known[j, i])
        ax.add_patch(
            Rectangle((i, j), 1, share, facecolor="white", edgecolor=ERROR, hatch="//////", lw=0)
        )
    if nx * ny <= 160:
        for j in range(ny):
            for i in range(nx):
                if known[j, i] and np.isfinite(value[j, i]):
                    share = image.norm(value[j, i])
                    ax.text(
                        i + 0.5,
                        j + (1 + errors[j, i] / (errors[j, i] + known[j, i])) / 2,
                        f"{value[j, i]:.3g}" if norm else f"{value[j, i]:.0f}",
                        ha="center",
                        va="center",
                        fontsize=8,
                        color="#10161D" if share > 0.52 else "white",
                    )
    step = max(1, nx // 10)
    ax.set_xticks(
        np.arange(nx)[::step] + 0.5, [short_label(x, k)[:LABEL] for k in range(0, nx, step)]
    )
    if y is not None:
        step = max(1, ny // 12)
        ax.set_yticks(
            np.arange(ny)[::step] + 0.5, [short_label(y, k)[:LABEL] for k in range(0, ny, step)]
        )
        ax.set_ylabel(_plain(f"{y.name}{', ' + y.units if y.units else ''}"))
    else:
        ax.set_yticks([])
    ax.set_xlabel(_plain(f"{x.name}{', ' + x.units if x.units else ''}"))
    ax.set_title("Failure map", loc="left", fontsize=11, fontweight="bold")
    ax.figure.colorbar(image, cax=bar, label=_plain(label))


def _colour(
    asked: figures.Asked, layout: Any, seen: Any, tally: Any, known: Any, ny: int, nx: int
) -> tuple[Any, str, Any]:
    from matplotlib.colors import Normalize

    kind, _, name = asked.show.partition(":")
    if kind == "output":
        values = asked.of.output(name)
        good = (seen.outcome <= 1) & np.isfinite(values)
        n = np.bincount(layout.cell[good], minlength=layout.n)
        total = np.bincount(layout.cell[good], weights=values[good], minlength=layout.n)
        with np.errstate(invalid="ignore"):
            mean = np.ma.masked_invalid(
                total.reshape(-1, ny, nx).sum(axis=0) / n.reshape(-1, ny, nx).sum(axis=0)
            )
        low = float(mean.min()) if mean.count() else 0.0
        high = float(mean.max()) if mean.count() else 1.0
        return mean, f"mean {name}", Normalize(low, high if high > low else low + 1)
    with np.errstate(invalid="ignore"):
        return np.ma.masked_invalid(100 * tally[..., 1] / known), "% fail", None


def _plain(text: str) -> str:
    return text.replace("$", r"\$")


def _strips(ax: Any, asked: figures.Asked) -> None:
    found = figures.rates(asked)[:6]
    ax.set_title("Held up: pass rate by value, %", loc="left", fontsize=11, fontweight="bold")
    ax.set_ylim(len(found) - 0.4 if found else 1, -0.6)
    for k, (_, rate) in enumerate(found):
        ax.plot(np.linspace(0, 1, len(rate)), k - 0.35 + 0.7 * rate, "o-", color=PASS, ms=3, lw=1)
        for level in (-0.35, 0.35):
            ax.axhline(k + level, color="#E7EAEF", lw=0.8, zorder=0)
    ax.set_yticks(range(len(found)), [_plain(p.name[:LABEL]) for p, _ in found])
    ax.set_xticks([0, 1], ["lowest value", "highest"])
    ax.set_xlim(-0.04, 1.04)
    if not found:
        ax.text(0.5, 0.5, "no parameter varies", ha="center", transform=ax.transAxes)
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)

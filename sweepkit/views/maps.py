"""Maps of cells over two parameters, alike wherever they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.views.axis import Axis, axis_of
from sweepkit.views.drawing import (
    ERROR,
    FAIL,
    LINE,
    PASS,
    beside,
    count_text,
    frame,
    hatched,
    interval_text,
    percent,
    side_by_side,
    titled,
    value_text,
)

__all__ = ["RATE", "STATUS", "Maps", "Scale"]

MAX_MAPS = 24
MAX_FRAMES = 200

OUTCOMES = ("pass", "fail", "error", "pending")
OUTCOME_COLOURS = (PASS, FAIL, ERROR, "#AEB7C3")


@dataclass(frozen=True)
class Scale:
    """What cells are coloured by: its title, its label, units and range."""

    title: str
    label: str
    units: str
    limits: tuple[float, float]


RATE = Scale("Failure rate", "fail, %", "%", (0.0, 100.0))
STATUS = Scale("Most frequent outcome", "most runs", "", (-0.5, 3.5))


def _cut(text: str, most: int = 12) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


class Maps:
    """Draws maps of some cells, alike in size, colours and axes."""

    def __init__(
        self,
        cells: xr.Dataset,
        scale: Scale,
        x: str,
        y: str | None,
        backend: str,
        small: bool,
    ) -> None:
        self.cells, self.scale, self.x, self.y, self.backend = cells, scale, x, y, backend
        self.across = axis_of(cells[x])
        self.up = axis_of(cells[y]) if y is not None else None
        self.small = small
        self.width = 190 if small else 480
        self.height = (170 if small else 360) if y is not None else 90
        self.left = 0
        if small and self.up is not None:
            self.up = replace(self.up, texts=tuple(_cut(text) for text in self.up.texts))
            ticks = self.up.ticks(self.height, along=False)
            self.left = 34 + int(6.2 * max(len(text) for _, text in ticks))
        total = int(cells["n_run"].sum())
        n_failed = int(cells["n_failed"].sum())
        self.remark = ""
        if not total and not int(cells["n_error"].sum()):
            self.remark = "; nothing has run yet"
        elif scale is RATE and n_failed == 0:
            self.remark = f"; none of {total:,} finished runs fails"
        elif scale is RATE and n_failed == total:
            self.remark = f"; all of {total:,} finished runs fail"

    def one(
        self, at: dict[str, int], *, first: bool = True, last: bool = True, left: int = 0
    ) -> Any:
        """The map at some values of the other dims; in a row, the first and last say more.

        `left` is the room that its labels share with those of other maps.
        """
        rows = self._rows(self.cells.isel(at))
        known = rows[np.isfinite(rows["value"])]
        errors = rows[rows["n_error"] > 0]
        bare = rows[~np.isfinite(rows["value"])]
        layers = [self._coloured(known, last), self._bare(bare), self._errors(errors)]
        if self._roomy() and self.scale is not STATUS:
            layers += self._texts(known)
        return hv.Overlay(layers).opts(**self._looks(first, left or self.left))

    def multiples(self, names: Sequence[str], sliders: Sequence[str], title: str) -> Any:
        """Small maps, one for each value of one or two parameters."""
        if sliders:
            raise ValueError(
                "by= and over= leave sliders over small multiples; average over all that is left, "
                f"or name {', '.join(map(repr, sliders))} in over="
            )
        sizes = [self.cells.sizes[name] for name in names]
        if np.prod(sizes) > MAX_MAPS:
            raise ValueError(
                f"by={list(names)!r} makes {int(np.prod(sizes))} maps; at most {MAX_MAPS} are "
                f"drawn. Select values first, as in ds.sel({names[0]}=[...])"
            )
        figures: list[Any] = []
        columns = sizes[-1] if len(sizes) > 1 and sizes[-1] <= 5 else min(4, int(np.prod(sizes)))
        if self.backend == "bokeh":
            columns = beside(columns, self.left, self.width)
        for number, place in enumerate(product(*(range(n) for n in sizes))):
            at = dict(zip(names, place, strict=True))
            words = ", ".join(f"{n} {self._shown(n, k)}" for n, k in at.items())
            one = self.one(
                at,
                first=number % columns == 0,
                last=number == columns - 1,
            )
            figures.append(titled(one, words, self.width))
        return side_by_side(figures, self.backend, columns=columns, title=title)

    def with_sliders(self, names: Sequence[str], title: str) -> Any:
        """One map with a slider for each of some parameters."""
        sizes = [self.cells.sizes[name] for name in names]
        if np.prod(sizes) > MAX_FRAMES:
            raise ValueError(
                f"sliders over {', '.join(map(repr, names))} have {int(np.prod(sizes)):,} "
                f"positions; at most {MAX_FRAMES} are drawn. Name more parameters in over="
            )
        frames = {}
        for place in product(*(range(n) for n in sizes)):
            at = dict(zip(names, place, strict=True))
            key = tuple(self._key(name, k) for name, k in at.items())
            frames[key if len(key) > 1 else key[0]] = titled(self.one(at), title, self.width)
        return hv.HoloMap(frames, kdims=list(names))

    def _key(self, name: str, k: int) -> Any:
        value = self.cells[name].values[k]
        return value.item() if value.dtype.kind in "iufb" else value_text(value)

    def _shown(self, name: str, k: int) -> str:
        about = self.cells[name].attrs
        text = about["labels"][k] if "labels" in about else value_text(self.cells[name].values[k])
        return f"{text} {about.get('units') or ''}".strip()

    def _rows(self, cells: xr.Dataset) -> pd.DataFrame:
        """One row per cell that has runs or could have: ends, value and words."""
        n, m = len(self.across.at), 1 if self.up is None else len(self.up.at)
        i, j = (one.ravel() for one in np.meshgrid(np.arange(n), np.arange(m), indexing="ij"))
        dims = (self.x,) if self.y is None else (self.x, self.y)

        def flat(name: str) -> NDArray[Any]:
            return cells[name].transpose(*dims).values.reshape(-1)

        one = np.zeros(1)
        up = self.up or Axis("", "", one, one - 0.5, one + 0.5, ("",))
        n_run, n_error, n_unknown = flat("n_run"), flat("n_error"), flat("n_unknown")
        there = n_run + n_unknown
        value = flat("value").astype(np.float64)
        rows = {
            self.x: self.across.lower[i],
            self.y or "_": up.lower[j],
            "x1": self.across.upper[i],
            "y1": up.upper[j],
            "value": value,
            "n_error": n_error,
            "share": np.divide(n_error, there, out=np.zeros(len(there)), where=there > 0),
            "x_text": np.array(self.across.texts, object)[i],
            "y_text": np.array(up.texts, object)[j],
            "x_at": self.across.at[i],
            "y_at": up.at[j],
            "shown": self._words(value, flat),
            "failed": count_text(flat("n_failed"), n_run),
            "unfinished": [
                f"{int(a)} errors, {int(b - a)} pending"
                for a, b in zip(n_error, n_unknown, strict=True)
            ],
            "basis": flat("basis"),
        }
        table: pd.DataFrame = pd.DataFrame(rows)[there > 0]
        return table

    def _words(self, value: NDArray[np.float64], flat: Any) -> NDArray[np.object_]:
        """What a cell is pointed at for."""
        if self.scale is RATE:
            texts: list[str] = [
                f"{a} ({b})"
                for a, b in zip(
                    percent(flat("rate")), interval_text(flat("low"), flat("high")), strict=True
                )
            ]
        elif self.scale is STATUS:
            texts = ["" if np.isnan(v) else OUTCOMES[int(v)] for v in value]
        else:
            ends = zip(value, flat("lower"), flat("upper"), strict=True)
            units = f" {self.scale.units}" if self.scale.units else ""
            texts = [f"{v:.4g}{units} (9 in 10 runs: {a:.4g} to {b:.4g})" for v, a, b in ends]
        return np.array(texts, dtype=object)

    def _rectangles(self, rows: pd.DataFrame) -> Any:
        details = ["value", "x_text", "y_text", "shown", "failed", "unfinished", "basis"]
        return hv.Rectangles(rows, kdims=[self.x, self.y or "_", "x1", "y1"], vdims=details)

    def _roomy(self) -> bool:
        """Whether each cell has the room to say its value."""
        narrow = 22 if self.scale.units == "%" else 38
        return not self.small and all(
            axis is None or self._least(axis, length) >= least
            for axis, length, least in (
                (self.across, self.width, narrow),
                (self.up, self.height, 16),
            )
        )

    @staticmethod
    def _least(axis: Axis, length: int) -> float:
        """Size of the smallest cell along an axis, in pixels."""
        low, high = axis.limits
        if axis.logarithmic:
            return float(np.log(axis.upper / axis.lower).min() / np.log(high / low) * length)
        return float((axis.upper - axis.lower).min() / (high - low) * length)

    def _coloured(self, rows: pd.DataFrame, bar: bool) -> Any:
        categorical = self.scale is STATUS
        opts: dict[str, Any] = {
            "color": "value",
            "cmap": list(OUTCOME_COLOURS) if categorical else "cividis",
            "clim": self.scale.limits,
            "colorbar": bar and (len(rows) > 0 or self.backend == "bokeh"),
        }
        if self.backend == "bokeh":
            opts |= {
                "line_color": None,
                "tools": ["hover"],
                "hover_tooltips": self._tooltips(),
                "clabel": self.scale.label,
                "colorbar_opts": {"title_standoff": 8, **self._bar_ticks()},
            }
        else:
            opts |= {"linewidth": 0, "clabel": self.scale.label}
            if categorical:
                opts["cbar_ticks"] = list(enumerate(OUTCOMES))
        return self._rectangles(rows).opts(**opts)

    def _bar_ticks(self) -> dict[str, Any]:
        opts: dict[str, Any] = {"width": 10}
        if self.scale is STATUS:
            from bokeh.models import FixedTicker

            labels: dict[float | str, Any] = dict(enumerate(OUTCOMES))
            opts |= {"ticker": FixedTicker(ticks=[0, 1, 2, 3]), "major_label_overrides": labels}
        return opts

    def _tooltips(self) -> list[tuple[str, str]]:
        tips = [(self.across.label, "@x_text")]
        if self.up is not None:
            tips.append((self.up.label, "@y_text"))
        tips += [(self.scale.title.lower(), "@shown"), ("failed", "@failed")]
        return [*tips, ("unfinished", "@unfinished"), ("interval", "@basis")]

    def _bare(self, rows: pd.DataFrame) -> Any:
        """Cells without a value: a border and no colour."""
        bare = self._rectangles(rows)
        if self.backend == "bokeh":
            return bare.opts(
                fill_alpha=0,
                line_color=LINE,
                line_alpha=0.5,
                line_width=0.7,
                tools=["hover"],
                hover_tooltips=self._tooltips(),
            )
        return bare.opts(facecolor="none", edgecolor=LINE, linewidth=0.5)

    def _errors(self, rows: pd.DataFrame) -> Any:
        """Errored runs, by their share of the cell from its foot, hatched."""
        part = self._rectangles(rows.assign(y1=self._height(rows, rows["share"])))
        bokeh, matplotlib = hatched(ERROR)
        if self.backend == "bokeh":
            return part.opts(fill_color="white", line_color=ERROR, line_width=0.7, hooks=[bokeh])
        return part.opts(facecolor="white", hooks=[matplotlib])

    def _height(self, rows: pd.DataFrame, share: Any) -> Any:
        """Where some share of a cell's height is, from its foot."""
        low, high = rows[self.y or "_"], rows["y1"]
        if self.up is not None and self.up.logarithmic:
            return low * (high / low) ** share
        return low + (high - low) * share

    def _texts(self, rows: pd.DataFrame) -> list[Any]:
        """The value in each cell, in the ink that its colour leaves readable."""
        low, high = self.scale.limits
        bright = (rows["value"] - low) / (high - low) > 0.5
        words = [f"{v:.0f}" if self.scale.units == "%" else f"{v:.3g}" for v in rows["value"]]
        rows = rows.assign(word=words, y_at=self._height(rows, (1 + rows["share"]) / 2))
        layers = []
        size = {"text_font_size": "10px"} if self.backend == "bokeh" else {"size": 6.5}
        for colour, some in (("#18202B", rows[bright]), ("#FFFFFF", rows[~bright])):
            labels = hv.Labels(some, kdims=["x_at", "y_at"], vdims=["word"])
            key = "text_color" if self.backend == "bokeh" else "color"
            layers.append(labels.opts(**{key: colour}, **size))
        return layers

    def _looks(self, first: bool, left: int) -> dict[str, Any]:
        across, up = self.across, self.up
        looks = frame(
            self.backend,
            self.width,
            self.height,
            alone=not self.small,
            left=left,
            xlabel=across.label,
            ylabel=up.label if up is not None and first else "",
            xticks=across.ticks(self.width),
            yticks=up.ticks(self.height, along=False) if up is not None else 0,
            xlim=across.limits,
            ylim=up.limits if up is not None else (-0.5, 0.5),
            logx=across.logarithmic,
            logy=up is not None and up.logarithmic,
            show_legend=False,
        )
        if up is None:
            looks["yaxis"] = None
        return looks

"""What the figures share: backend, colours, looks, words.

Every figure is an ordinary HoloViews object, styled for the backend in use; grounds are transparent
and text is of a grey that reads on light and dark alike.
"""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import holoviews as hv
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from sweepkit.html import COLOURS, escape

__all__ = [
    "beside",
    "count_text",
    "frame",
    "interval_text",
    "overlaid",
    "percent",
    "ready",
    "sentence",
    "side_by_side",
    "titled",
    "value_text",
    "with_units",
]

INK = "#6B7789"
"""Text and lines: 4.5 to 1 on white, 4 to 1 on a dark ground."""

LINE = "#8A94A3"
PASS, FAIL, ERROR = COLOURS["pass"], COLOURS["fail"], COLOURS["error"]
SERIES = ("#0F7AC0", "#E69F00", "#7B5EA7", "#2E8B7A", "#B4513B", "#6B7789")
"""Lines of one figure that are not outcomes; apart for the colour-blind, too."""

DASHES = ("solid", "dashed", "dotted", "dashdot")
ROW = 600
"""Pixels that a row of figures may take: with a colour bar, the width of a window of 700."""

LABEL = 22
"""Characters of a tick's label, at most."""

Hook: TypeAlias = Callable[[Any, Any], None]


def ready(backend: str | None) -> str:
    """Load a plotting backend of HoloViews and make it the current one.

    Parameters
    ----------
    backend : {"bokeh", "matplotlib"}, optional
        By default the one that is loaded; else matplotlib where nobody is at the screen (papermill,
        nbconvert), whose pictures stay readable everywhere, and bokeh elsewhere.

    Raises
    ------
    ValueError
        If it is another.
    """
    if backend not in (None, "bokeh", "matplotlib"):
        raise ValueError(f"backend={backend!r} is neither 'bokeh' nor 'matplotlib'")
    loaded = dict(hv.Store.renderers)
    if backend is None and loaded:
        backend = hv.Store.current_backend
    if backend is None:
        backend = "matplotlib" if _nobody_looks() else "bokeh"
    if backend not in loaded:
        _load(backend)
    if hv.Store.current_backend != backend:
        hv.Store.set_current_backend(backend)
    return backend


def _load(backend: str) -> None:
    """Load a backend; into a notebook that is looked at, its script with it, of nothing outside."""
    if backend == "bokeh":
        import holoviews.plotting.bokeh
    else:
        import holoviews.plotting.mpl  # noqa: F401
    shell = _kernel_shell()
    if shell is None:
        hv.Store.set_current_backend(backend)
        return
    if backend == "bokeh":
        import panel

        panel.extension(inline=True)  # before all else, or its style sheets come from outside
    # A picture needs no script: the hooks that show objects suffice, and the cell stays small.
    from holoviews.core.dimension import LabelledData

    hv.Store.set_current_backend(backend)
    hv.Store.output_settings.initialize(list(hv.Store.renderers))
    hv.Store.display_formats = ["html", "png"]
    hv.Store.set_display_hook("html+js", LabelledData, _shown)
    hv.Store.set_display_hook("png", LabelledData, _picture)


def _shown(figure: Any) -> Any:
    """A figure as HTML: of bokeh by panel, which takes its style sheets from inside, too."""
    from holoviews.ipython.display_hooks import pprint_display

    if hv.Store.current_backend != "bokeh":
        with _any_letter():
            return pprint_display(figure)
    import panel

    return panel.panel(figure, widget_location="bottom_left")._repr_mimebundle_()  # type: ignore[attr-defined]


def _picture(figure: Any) -> Any:
    """A PNG of a figure beside its HTML, by matplotlib alone: bokeh would need a browser for it."""
    from holoviews.ipython.display_hooks import png_display

    with _any_letter():
        return png_display(figure) if hv.Store.current_backend == "matplotlib" else None


@contextmanager
def _any_letter() -> Iterator[None]:
    """Letters that the font lacks are boxes in the picture, and no page of warnings beside it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        yield


def _kernel_shell() -> Any:
    shell = sys.modules.get("IPython")
    active = shell.get_ipython() if shell is not None else None
    return active if getattr(active, "kernel", None) is not None else None


def _nobody_looks() -> bool:
    """Whether this is a notebook whose client said that nobody answers its questions."""
    shell = _kernel_shell()
    content = (getattr(shell, "parent_header", None) or {}).get("content") or {}
    return content.get("allow_stdin") is False


# --- words ---------------------------------------------------------------------------------------


def percent(share: ArrayLike) -> NDArray[np.object_]:
    """Shares as text, as in ``54.5 %``; "unknown" where NaN."""
    flat = np.asarray(share, dtype=np.float64)
    texts = np.array(
        ["unknown" if np.isnan(s) else f"{100 * s:.3g} %" for s in flat.ravel()], dtype=object
    )
    return texts.reshape(flat.shape)


def interval_text(low: ArrayLike, high: ArrayLike) -> NDArray[np.object_]:
    """Two bounds as text, as in ``52.3 to 56.8 %``."""
    lower, upper = np.asarray(low, np.float64), np.asarray(high, np.float64)
    pairs = zip(lower.ravel(), upper.ravel(), strict=True)
    texts = [f"{100 * a:.3g} to {100 * b:.3g} %" for a, b in pairs]
    return np.array(texts, dtype=object).reshape(lower.shape)


def count_text(k: ArrayLike, n: ArrayLike) -> NDArray[np.object_]:
    """How many of how many, as in ``12 of 30``."""
    some, all_ = np.asarray(k), np.asarray(n)
    texts = [f"{a:,.0f} of {b:,.0f}" for a, b in zip(some.ravel(), all_.ravel(), strict=True)]
    return np.array(texts, dtype=object).reshape(all_.shape)


def value_text(value: Any) -> str:
    """A value of a parameter as people read it."""
    if isinstance(value, np.datetime64):
        stamp = pd.Timestamp(value)
        return str(stamp.date()) if stamp == stamp.normalize() else str(stamp)
    if isinstance(value, np.timedelta64):
        return str(pd.Timedelta(value))
    if isinstance(value, float | np.floating):
        return f"{float(value):.4g}"
    text = str(value)
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}\u2026"


def with_units(name: str, attrs: Any) -> str:
    """A label with units, as in ``length, m``."""
    units = str(attrs.get("units") or "")
    return f"{name}, {units}" if units and units != "1" else name


def sentence(text: str, width: int, size: float = 11) -> str:
    """Text broken into lines that fit a width in pixels."""
    characters = max(int(width / (0.56 * size)), 16)
    return "\n".join(
        line for part in text.split("\n") for line in textwrap.wrap(part, characters) or [""]
    )


# --- looks ---------------------------------------------------------------------------------------


def frame(
    backend: str, width: int, height: int, *, alone: bool = True, left: int = 0, **more: Any
) -> dict[str, Any]:
    """Options of a plot whose frame has a size in pixels, for `opts`; `alone` is not in a row.

    `left` is the room for labels in pixels, the same for all in a layout: bokeh lines up what
    stands in a column, and takes it from the frames of those with shorter labels.
    """
    if backend == "bokeh":
        more.setdefault("hooks", [])
        own = [_bordered(left)] if left else []
        return {
            "frame_width": width,
            "frame_height": height,
            "toolbar": "above",
            "fontsize": {"title": "12px", "labels": "11px", "ticks": "11px", "legend": "11px"},
            **more,
            "hooks": [*more["hooks"], _bokeh_looks, *own],
        }
    more = {k: v for k, v in more.items() if k not in ("tools", "active_tools", "hover_tooltips")}
    more.setdefault("hooks", [])
    return {
        "fig_inches": ((width + 130) / 90, (height + 90) / 90),
        "aspect": width / height,
        "fontsize": {"title": 9, "labels": 8, "ticks": 8, "legend": 8},
        "fig_alpha": 0,
        "fig_rcparams": {"savefig.transparent": True, "figure.facecolor": "none"},
        **more,
        "hooks": [*more["hooks"], _matplotlib_looks, _filling if alone else _boxed(height / width)],
    }


def _bokeh_looks(plot: Any, _: Any) -> None:
    figure = plot.state
    figure.sizing_mode = None  # "fixed" wants a width, which a frame of fixed size leaves open
    figure.background_fill_color = None
    figure.border_fill_color = None
    figure.outline_line_color = None
    figure.toolbar.logo = None
    figure.toolbar.autohide = True
    figure.title.text_color = INK
    figure.title.text_font_style = "bold"
    for axis in figure.axis:
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_label_text_font_style = "normal"
        axis.axis_line_color = axis.major_tick_line_color = LINE
        axis.minor_tick_line_color = None
    for legend in figure.legend:
        legend.background_fill_color = legend.border_line_color = None
        legend.label_text_color = INK
    for bar in (
        one for side in ("left", "right", "above", "below") for one in getattr(figure, side)
    ):
        if type(bar).__name__ == "ColorBar":
            bar.background_fill_color = None
            bar.major_label_text_color = bar.title_text_color = INK
            bar.title_text_font_style = "normal"


def _bordered(left: int) -> Hook:
    """A hook that keeps so many pixels for what stands left of the frame."""

    def keep(plot: Any, _: Any) -> None:
        plot.state.min_border_left = left
        plot.state.min_border_right = 16

    return keep


def _matplotlib_looks(plot: Any, _: Any) -> None:
    axes = plot.handles["axis"]
    axes.set_facecolor("none")
    axes.tick_params(colors=INK, which="both")
    axes.minorticks_off()
    for part in (axes.xaxis.label, axes.yaxis.label, axes.title):
        part.set_color(INK)
    axes.title.set_fontweight("bold")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(LINE)
    legend = axes.get_legend()
    if legend is not None:
        legend.get_frame().set_alpha(0)
        for text in legend.get_texts():
            text.set_color(INK)
    for bar in plot.handles["fig"].axes:
        if bar.get_label() == "<colorbar>" or getattr(bar, "_colorbar", None) is not None:
            bar.tick_params(colors=INK)
            bar.yaxis.label.set_color(INK)
            for spine in bar.spines.values():
                spine.set_color(LINE)


def _filling(plot: Any, _: Any) -> None:
    """Axes that fill the picture, and the colour bar beside them; HoloViews makes them square."""
    axes = plot.handles["axis"]
    axes.set_aspect("auto")
    axes.set_position((0.12, 0.12, 0.74, 0.78))
    for bar in plot.handles["fig"].axes:
        if bar is not axes:
            bar.set_position((0.88, 0.12, 0.02, 0.78))


def _boxed(ratio: float) -> Hook:
    """A hook that keeps the shape of axes, also of logarithmic ones."""

    def keep(plot: Any, _: Any) -> None:
        axes = plot.handles["axis"]
        axes.set_aspect("auto")
        axes.set_box_aspect(ratio)

    return keep


def titled(figure: Any, title: str, width: int) -> Any:
    """A figure with a title that is broken into lines of its width."""
    return figure.opts(title=sentence(title, width, 11.5))


def overlaid(
    layers: Sequence[Any], backend: str, width: int, height: int, title: str, **looks: Any
) -> Any:
    """Layers in one frame of a size in pixels, with a title."""
    return titled(hv.Overlay(layers).opts(**frame(backend, width, height, **looks)), title, width)


def beside(most: int, left: int, width: int) -> int:
    """How many figures stand in a row, each with a frame of a width and room left of it."""
    return max(1, min(most, ROW // (width + left + 24)))


def side_by_side(figures: Sequence[Any], backend: str, *, columns: int, title: str = "") -> Any:
    """Figures in rows; one alone stays itself."""
    if len(figures) == 1:
        return figures[0]
    layout = hv.Layout(list(figures)).cols(columns)
    if backend == "bokeh":  # which puts a layout's title in as HTML
        text = f'<span style="color:{INK}">{escape(title)}</span>' if title else ""
        return layout.opts(
            shared_axes=False, merge_tools=True, title=text, fontsize={"title": "12px"}
        )
    return layout.opts(
        shared_axes=False,
        sublabel_format="",
        title=title,
        hspace=0.35,
        vspace=0.55,
        fontsize={"title": 10},
        fig_rcparams={"savefig.transparent": True, "text.color": INK},
        tight=True,
    )


def hatched(colour: str) -> tuple[Hook, Hook]:
    """Hooks that hatch rectangles, for bokeh and for matplotlib."""

    def bokeh(plot: Any, _: Any) -> None:
        glyph = plot.handles["glyph"]
        glyph.hatch_pattern = "right_diagonal_line"
        glyph.hatch_color = colour
        glyph.hatch_weight = 1.5
        glyph.hatch_scale = 9

    def matplotlib(plot: Any, _: Any) -> None:
        plot.handles["artist"].set_hatch("/////")
        plot.handles["artist"].set_edgecolor(colour)
        plot.handles["artist"].set_linewidth(0)

    return bokeh, matplotlib

"""The explorer as a web page: the same module as in a notebook, inside a Panel page."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import panel as pn
import param
import xarray as xr
from panel_material_ui.template.base import Page

from sweepkit.places import Given
from sweepkit.views.bundle import module
from sweepkit.views.engine import Engine
from sweepkit.views.source import Filling

__all__ = ["component", "page", "serve"]

HERE = "127.0.0.1"
"""Where the page is served: to this machine alone."""


class Component(pn.custom.AnyWidgetComponent):
    """The explorer's module in a Panel page; `ask` holds the last messages of the browser."""

    _esm = module()
    first = param.String(default="")
    views = param.List(default=[])
    ask = param.String(default="")


class Preference(pn.custom.AnyWidgetComponent):
    """What the browser prefers, which only the browser knows; nothing is to be seen of it."""

    _esm = """
    function render({ model }) {
      const preferred = matchMedia("(prefers-color-scheme: dark)");
      const tell = () => {
        model.set("dark", preferred.matches);
        model.save_changes();
      };
      preferred.addEventListener("change", tell);
      tell();
      return () => preferred.removeEventListener("change", tell);
    }
    export default { render };
    """
    dark = param.Boolean(default=False)


def component(engine: Engine) -> pn.viewable.Viewable:
    """An engine's explorer for a Panel layout."""
    shown = Component(first=json.dumps(engine.first()), sizing_mode="stretch_width")
    document = pn.state.curdoc

    def tell(message: dict[str, Any]) -> None:
        if document is not None and document.session_context is not None:
            document.add_next_tick_callback(partial(shown.send, message))
        else:
            shown.send(message)

    last: dict[str, int] = {}

    def heard(event: Any) -> None:
        for message in json.loads(event.new):
            if message["n"] > last.get(message["me"], 0):
                last[message["me"]] = message["n"]
                engine.handle(message)

    engine.listen(tell)
    shown.param.watch(heard, "ask")
    engine.follow()
    if document is not None and document.session_context is not None:
        document.on_session_destroyed(lambda _context: engine.close())
    return shown


def page(
    ds: xr.Dataset | Given | Filling,
    *,
    requirements: Any = None,
    replay: Callable[[int], Any] | None = None,
    theme: str = "auto",
) -> pn.viewable.Viewable:
    """A page that explores a sweep, to be served by Panel.

    Parameters
    ----------
    ds, requirements, replay
        As of `sweepkit.views.explorer.explore`.
    theme : {"auto", "light", "dark"}
        "auto" is what the browser prefers, and follows the page's own switch.

    Returns
    -------
    Page
        Its title is the name of the sweep; ``.servable()`` puts it up.

    Raises
    ------
    ValueError
        If there are no runs to show, or a requirement does not fit.
    """
    engine = Engine(ds, requirements=requirements, replay=replay)
    engine.state.theme = theme
    preference = Preference(width=0, height=0, margin=0)
    made = Page(
        title=engine.source.name,
        main=[component(engine), *([preference] if theme == "auto" else [])],
        dark_theme=theme == "dark",
        theme_config={
            "light": {"palette": {"primary": {"main": "#18202B"}}},
            "dark": {"palette": {"primary": {"main": "#98A4B3"}}},
        },
    )
    preference.param.watch(lambda event: made.param.update(dark_theme=event.new), "dark")
    shown: pn.viewable.Viewable = made
    return shown


def serve(
    ds: xr.Dataset | Given | Filling,
    *,
    requirements: Any = None,
    port: int = 0,
    show: bool = True,
    theme: str = "auto",
    origins: Sequence[str] = (),
) -> Any:
    """Serve the page on this machine alone, until it is interrupted.

    Parameters
    ----------
    ds, requirements
        As of `page`.
    port : int
        0 for any that is free.
    show : bool
        Whether to open a browser.
    theme : {"auto", "light", "dark"}
        As of `page`.
    origins : sequence of str
        Hosts under whose names a proxy shows the page; "*" for any. By default this machine's.

    Raises
    ------
    OSError
        If the port is in use.
    """

    def made() -> pn.viewable.Viewable:  # a partial would be shown as text
        return page(ds, requirements=requirements, theme=theme)

    if port:  # tornado would leave a socket open where the port is taken
        socket.create_server((HERE, port)).close()
    allowed = {"websocket_origin": list(origins)} if origins else {}
    return pn.serve({"/": made}, address=HERE, port=port, show=show, **allowed)

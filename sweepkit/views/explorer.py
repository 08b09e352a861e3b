"""The linked explorer of a sweep, in a notebook."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anywidget
import numpy as np
import traitlets
import xarray as xr

from sweepkit.analysis import Suggestion
from sweepkit.places import Given, where
from sweepkit.views.bundle import module
from sweepkit.views.engine import Engine
from sweepkit.views.source import Filling
from sweepkit.views.state import State
from sweepkit.views.still import still

__all__ = ["Explorer", "VIEWS", "explore"]

VIEWS = (
    "requirements",
    "map",
    "held",
    "pairs",
    "distribution",
    "parallel",
    "kinds",
    "sure",
    "islands",
    "regions",
    "run",
)
"""The views there are, in the order in which they stand."""


class Explorer(anywidget.AnyWidget):
    """Views of a sweep around one state, in a notebook; made by `explore`.

    Attributes
    ----------
    state : State
        What is shown, selected and filtered, and the limits in force. Each of its parameters can
        be set and watched; the views follow.
    """

    _esm = module()
    first = traitlets.Unicode("").tag(sync=True)  # type: ignore[var-annotated,unused-ignore]
    views = traitlets.List(traitlets.Unicode()).tag(sync=True)  # type: ignore[var-annotated,unused-ignore]

    def __init__(self, engine: Engine, views: Sequence[str] = ()) -> None:
        # Its first state travels with it, so that it shows while the kernel is busy with a cell.
        super().__init__(first=json.dumps(engine.first()), views=list(views))
        self._engine = engine
        engine.listen(self.send)
        self.on_msg(self._heard)
        engine.follow()

    def _heard(self, _widget: Any, message: Mapping[str, Any], _buffers: Any) -> None:
        self._engine.handle(message)

    @property
    def state(self) -> State:
        """What is shown, selected and filtered, and the limits in force."""
        return self._engine.state

    @property
    def ds(self) -> xr.Dataset:
        """The Dataset as it was last read."""
        return self._engine.source.ds

    @property
    def selection(self) -> xr.DataArray:
        """Which runs the filters leave: a mask over the run dims, all true where none filters."""
        t = self._engine.source.table
        coords = {
            name: c for name, c in self.ds.coords.items() if set(map(str, c.dims)) <= set(t.dims)
        }
        return xr.DataArray(
            np.reshape(self._engine.selected(), t.shape),
            dims=t.dims,
            coords=coords,
            name="selection",
        )

    def code(self) -> str:
        """An xarray expression for the same mask, over ``ds``, with ``sk``, ``np`` and ``xr``."""
        return self._engine.code()

    def suggest(self, n: int = 100, goal: str = "boundary") -> Suggestion:
        """Points to run next, within the selected parameters and at the limits in force.

        Of refined runs (``stages=True``) within all parameters.

        Parameters
        ----------
        n : int
            Points, at most.
        goal : {"boundary", "rate", "confirm", "replicate"}
            As of `sweepkit.suggest`.

        Returns
        -------
        Suggestion
            Its ``grid`` is what a sweep of the same simulator takes.
        """
        return self._engine.suggest(n, goal)

    def close(self) -> None:
        """Take the explorer off the page and stop following the store."""
        self._engine.close()
        super().close()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and beside it a picture and figures for viewers that run no widget."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        png, html, text = still(self._engine)
        fallback = {"image/png": png, "text/html": html, "text/plain": text}
        shown = {} if _headless() else dict(data or {})
        return {**shown, **fallback}, metadata


def _headless() -> bool:
    """Whether the kernel's client said that nobody answers its questions (papermill, nbconvert).

    A widget that is saved there is blank wherever its notebook is read later. Voila says the same,
    but shows widgets.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    request: Mapping[str, Any] = getattr(shell, "parent_header", None) or {}
    silent = (request.get("content") or {}).get("allow_stdin") is False
    return silent and "voila" not in os.environ.get("SERVER_SOFTWARE", "")


def explore(
    ds: xr.Dataset | Given | Filling,
    *,
    requirements: Any = None,
    views: Sequence[str] = (),
    replay: Callable[[int], Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Explorer:
    """Look at a sweep: where designs fail, why this one, and what would make it pass.

    Requirements are sliders, and every view follows a moved limit; a click on a cell, a brush or
    a row selects runs everywhere. A store that is still being filled, by a job of this kernel or
    by another process, is followed. A Dataset is a snapshot: what ``job.dataset`` or ``sk.open``
    gave does not change, so give the job or the path to follow it.

    Parameters
    ----------
    ds : Dataset, path or job
        A store, the job that fills it (whose first run is waited for), or any Dataset of outputs
        over parameters.
    requirements : sequence of str, Requirement or callable, optional
        In place of the stored ones.
    views : sequence of str
        Some of `VIEWS` alone; by default all.
    replay : callable, optional
        For the button "Run again": takes a run's flat position in C order and runs it again, such
        as ``lambda run: sk.replay(sweep, ds, run)``.
    storage_options : mapping, optional
        As of `sweepkit.open`, where ``ds`` is a URL.

    Returns
    -------
    Explorer
        A widget with ``selection`` (a mask), ``code()``, ``suggest()`` and ``state``.

    Raises
    ------
    ValueError
        If there are no runs to show, a requirement does not fit, or there is no such view.
    """
    unknown = [name for name in views if name not in VIEWS]
    if unknown:
        raise ValueError(f"no view {unknown[0]!r}; there are {', '.join(map(repr, VIEWS))}")
    if storage_options is not None and not isinstance(ds, xr.Dataset):
        ds = where(ds, storage_options)
    return Explorer(Engine(ds, requirements=requirements, replay=replay), views)

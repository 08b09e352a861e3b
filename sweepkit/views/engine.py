"""What stands behind an explorer, wherever it is shown: it answers the browser, follows a store."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis import Suggestion, UnanswerableError, suggest
from sweepkit.analysis.outcomes import FAILED, PENDING
from sweepkit.analysis.table import Table
from sweepkit.places import Given
from sweepkit.root import UnreachableError
from sweepkit.views import captions, deeper, figures
from sweepkit.views.asides import Asides
from sweepkit.views.asked import Asked
from sweepkit.views.levers import on_the_stops_of, with_stop
from sweepkit.views.record import record
from sweepkit.views.selection import check_axes, checked, code_of, mask_of, remapped
from sweepkit.views.source import Filling, Source, judged, marks, source
from sweepkit.views.state import State

__all__ = ["Engine"]

log = logging.getLogger(__name__)

POLL_SECONDS = 1.5

ERRORS_ASIDE = "; errors='fail' counts errors as failures"
"""An advice of the analyses that an explorer has no button for."""

AXES = ("x", "y", "by", "by2")
STATE_NAMES = (*AXES, "at", "show", "filters", "run", "output")

Send = Callable[[dict[str, Any]], None]


class Engine:
    """The runs, the state and the answers of one explorer.

    Parameters
    ----------
    data : Dataset, path or job
    requirements : optional
        In place of the stored ones.
    replay : callable, optional
        Takes the flat position of a run, runs it again, and gives what came out as text or as a
        mapping with ``text`` and, if known, ``same``.
    """

    def __init__(
        self,
        data: xr.Dataset | Given | Filling,
        *,
        requirements: Any = None,
        replay: Callable[[int], Any] | None = None,
    ) -> None:
        self.requirements = requirements
        self.replay = replay
        self.source = source(data, requirements)
        self.state = State()
        self.state.x, self.state.y = captions.defaults(self.source)
        if not self.source.levers and self.source.outputs:
            self.state.show = f"output:{self.source.outputs[0]}"
        self._lock = threading.RLock()
        self._send: list[Send] = []
        self._judged: tuple[Source, tuple[int, ...], Table] | None = None
        self._slow = Asides(lambda part, message: self._tell(self._reply(part, message)))
        self._from_browser = False
        self._closed = threading.Event()
        self._follower: threading.Thread | None = None
        self.state.param.watch(self._changed, [*STATE_NAMES, "limits", "theme"])

    # --- what it says --------------------------------------------------------------------------

    @property
    def stops(self) -> tuple[int, ...]:
        """The stop of each lever's limit."""
        found = []
        for one in self.source.levers:
            limit = self.state.limits.get(one.name)
            found.append(one.declared if limit is None else one.stop(float(limit)))
        return tuple(found)

    @property
    def table(self) -> Table:
        """The runs judged by the limits in force."""
        with self._lock:
            stops = self.stops
            last = self._judged
            if last is None or last[0] is not self.source or last[1] != stops:
                same = stops == tuple(one.declared for one in self.source.levers)
                t = self.source.table if same else judged(self.source, stops)
                self._judged = last = (self.source, stops, t)
            return last[2]

    def selected(self) -> NDArray[np.bool_]:
        """Which runs the filters leave, flat in C order."""
        mask = mask_of(self.source, self.table, self.state.filters)
        return np.ones(self.source.table.n, bool) if mask is None else mask

    def code(self) -> str:
        """An expression over ``ds`` for the selected runs."""
        return code_of(self.source, self.stops, self.state.filters)

    def suggest(self, n: int, goal: Any) -> Suggestion:
        """Points to run next, within the selected values and at the limits in force.

        Filters on what came out are left aside: runs of one outcome have no edge. So are all of
        refined runs, whose cells reach over the selected.
        """
        t = self.table
        if t.stage is not None:
            return suggest(t, n, goal)
        tests = [test for each in self.state.filters for test in each["tests"]]
        picked: dict[str, NDArray[np.intp]] = {}
        for test in tests:
            along = [d for d in self.source[test["of"]].dims if d in t.dims] if "of" in test else []
            mask = mask_of(self.source, t, [{"tests": [test]}])
            if len(along) != 1 or mask is None:
                continue
            others = tuple(k for k, d in enumerate(t.dims) if d != along[0])
            inside = np.flatnonzero(mask.reshape(t.shape).any(axis=others))
            picked[along[0]] = np.intersect1d(picked.get(along[0], inside), inside)
        if not picked:
            return suggest(t, n, goal)
        fails = np.where(t.outcome <= FAILED, t.outcome, np.nan).reshape(t.shape)
        ds = t.ds.isel(picked)
        return suggest(ds, n, goal, failed=xr.DataArray(fails, dims=t.dims).isel(picked))

    def asked(self) -> Asked:
        """The runs as they are judged, selected and shown now."""
        state = self.state
        known = {p.name for p in self.source.parameters}
        panels = tuple(name for name in (state.by, state.by2) if name)
        axes = (*panels, *(name for name in (state.y, state.x) if name))
        at = {
            name: int(code)
            for name, code in state.at.items()
            if name in known and code is not None and 0 <= code < self.source[name].n
        }
        return Asked.make(
            self.source, self.table, self.stops, state.filters, axes, panels, at, self._shown()
        )

    def _shown(self) -> str:
        kind, _, name = self.state.show.partition(":")
        there = {
            "margin": [one.name for one in self.source.levers],
            "output": list(self.source.outputs),
        }.get(kind)
        return self.state.show if there is None or name in there else "rate"

    # --- talking with the browser --------------------------------------------------------------

    def listen(self, send: Send) -> None:
        """Answers and news also go to this callable from now on."""
        self._send.append(send)

    def close(self) -> None:
        """Stop following the store, and answer no more."""
        self._closed.set()
        self._slow.close()

    def first(self) -> dict[str, Any]:
        """Everything a browser needs to begin."""
        with self._lock:
            return {
                "meta": self._meta(),
                "state": self._state(),
                "overview": self._answer("overview", {}),
            }

    def _meta(self) -> dict[str, Any]:
        replayed = self.replay is not None
        return {**captions.meta(self.source), "replay": replayed, "theme": self.state.theme}

    def _state(self) -> dict[str, Any]:
        state = {name: getattr(self.state, name) for name in STATE_NAMES}
        return {**state, "stops": list(self.stops)}

    def handle(self, message: Mapping[str, Any]) -> None:
        """Take one message of the browser: a state, and the parts it wants for it."""
        with self._lock:
            try:
                if "state" in message:
                    self._take(message["state"])
                parts = message.get("want", [])
                if "hello" in message:
                    self._tell({"hello": self.first(), "to": message["hello"]})
            except (ValueError, KeyError, UnanswerableError) as error:
                self._tell({"problem": str(error).strip("'\"")})
                return
            for part in parts:
                if part in ("overview", "run"):
                    self._tell(self._reply(part, message))
            slow = [part for part in parts if part not in ("overview", "run")]
        if slow:
            self._slow.ask(slow, dict(message))

    def _take(self, given: Mapping[str, Any]) -> None:
        """The browser's state becomes ours; Python's watchers hear of it, the browser does not."""
        filters = [dict(one) for one in given.get("filters", self.state.filters)]
        checked(self.source, filters)
        limits = dict(self.state.limits)
        for one, stop in zip(self.source.levers, given.get("stops", ()), strict=False):
            if 0 <= stop < len(one.stops):
                limits[one.name] = float(one.stops[stop])
                if stop == one.declared:
                    limits.pop(one.name)
        changes = {name: given[name] for name in STATE_NAMES if name in given}
        check_axes(self.source, {name: given.get(name, getattr(self.state, name)) for name in AXES})
        self._quietly({**changes, "filters": filters, "limits": limits})

    def _answer(self, part: str, message: Mapping[str, Any]) -> Any:
        answers: dict[str, Callable[[], Any]] = {
            "overview": lambda: figures.overview(self.asked()),
            "drags": lambda: figures.drags(self.asked()),
            "held": lambda: figures.held(self.asked()),
            "pairs": lambda: figures.pair_matrix(self.asked()),
            "sure": lambda: figures.sure(self.asked()),
            "kinds": lambda: deeper.kind_table(self.asked()),
            "islands": lambda: deeper.island_table(self.asked()),
            "regions": lambda: deeper.boxes(self.asked()),
            "lines": lambda: deeper.lines(self.asked()),
            "distribution": self._distribution,
            "run": self._record,
            "first": self._first_run,
            "code": self._code,
            "suggest": self._suggested,
            "replay": lambda: self._replayed(int(message["run"])),
        }
        if part not in answers:
            raise ValueError(f"no part {part!r} of an explorer")
        try:
            told = answers[part]()
        except UnanswerableError as error:
            told = {"why": str(error)}
        if isinstance(told, dict) and told.get("why"):
            told = {**told, "why": self._reason(part, str(told["why"]))}
        return told

    def _reason(self, part: str, why: str) -> str:
        """Why there is nothing to show, in terms of what the person sees: runs and filters."""
        but = {"regions": "box", "kinds": "kind", "islands": "island"}.get(part)
        filters = [one for one in self.state.filters if one.get("src") != but]
        mask = mask_of(self.source, self.table, filters)
        if mask is not None and not (self.table.outcome[mask] <= FAILED).any():
            return f"None of the {int(mask.sum()):,} selected runs has passed or failed."
        return why.removesuffix(ERRORS_ASIDE)

    def _record(self) -> dict[str, Any] | None:
        run = self.state.run
        if run is None or not 0 <= run < self.source.table.n:
            return None
        mask = mask_of(self.source, self.table, self.state.filters)
        return record(self.source, self.table, run, self.stops, mask)

    def _first_run(self) -> dict[str, Any]:
        """The first failing run of the selection, else the first that errored, else any."""
        outcome = np.where(self.selected(), self.table.outcome, -1)
        for kind in (FAILED, 3, 0, PENDING):
            those = np.flatnonzero(outcome == kind)
            if len(those):
                return {"run": int(those[0])}
        return {"run": None}

    def _code(self) -> dict[str, Any]:
        return {"text": self.code()}

    def _suggested(self) -> dict[str, Any]:
        found = self.suggest(100, "boundary")
        names = [name for name in found.points.columns if name not in ("reason", "score")]
        rows = [
            [str(value) for value in row] for row in found.points[names].head(8).to_numpy().tolist()
        ]
        return {
            "n": len(found.points),
            "names": names,
            "rows": rows,
            "method": found.method,
            "why": "",
        }

    def _distribution(self) -> dict[str, Any]:
        asked = self.asked()
        by = self.state.x
        return deeper.distributions(asked, self.state.output, by)

    def _replayed(self, run: int) -> dict[str, Any]:
        if self.replay is None:
            return {"run": run, "text": "no simulator at hand: sk.explore(ds, replay=...)"}
        try:
            came = self.replay(run)
        except Exception as error:  # whatever the user's simulator raises is the answer
            sys.last_type, sys.last_value, sys.last_traceback = (  # for %debug
                type(error),
                error,
                error.__traceback__,
            )
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            told = record(self.source, self.table, run, self.stops, None)["error"]
            same = bool(told) and text == told
            return {"run": run, "text": f"raised {text}; %debug opens it", "same": same}
        if isinstance(came, Mapping):
            return {"run": run, "text": str(came.get("text", "")), "same": came.get("same")}
        same = getattr(came, "reproduced", None)
        text = ". ".join([getattr(came, "verdict", str(came)), *getattr(came, "differs", ())])
        return {"run": run, "text": text, "same": same}

    def _tell(self, message: dict[str, Any]) -> None:
        for send in list(self._send):
            send(message)

    def _reply(self, part: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """A part as a message; one that cannot be made is a sentence with the reason.

        Whatever it is that went wrong: else its view would say for ever that it counts, and with
        this thread all others would.
        """
        key = message.get("key")
        try:
            return {"part": part, "key": key, "data": self._answer(part, message)}
        except Exception as error:  # the end of this thread's work: told in the view and logged
            log.warning("part %r could not be made", part, exc_info=True)
            said = f"{type(error).__name__}: {error}".removesuffix(": ")
            if part == "overview":
                return {"problem": f"The runs could not be counted: {said}"}
            return {"part": part, "key": key, "data": {"why": f"This could not be made: {said}"}}

    # --- from Python, and from the store ---------------------------------------------------------

    def _changed(self, *events: Any) -> None:
        """Someone set the state: where that was Python, the browser follows.

        What names nothing that is there is refused, and the state stays as it was.
        """
        if self._from_browser:
            return
        with self._lock:
            try:
                self._swap_axes(events)
                check_axes(self.source, {name: getattr(self.state, name) for name in AXES})
                checked(self.source, self.state.filters)
                self._own_limits()
            except ValueError:
                self._quietly({event.name: event.old for event in events})
                raise
            self._tell({"state": self._state(), "theme": self.state.theme})

    def _swap_axes(self, events: Sequence[Any]) -> None:
        """A parameter that moves to an axis leaves the one it was on to what was there."""
        if len(events) != 1 or events[0].name not in AXES or not events[0].new:
            return
        for name in AXES:
            if name != events[0].name and getattr(self.state, name) == events[0].new:
                self._quietly({name: events[0].old})

    def _quietly(self, changes: Mapping[str, Any]) -> None:
        """Set the state without telling the browser."""
        self._from_browser = True
        try:
            self.state.param.update(**changes)
        finally:
            self._from_browser = False

    def _own_limits(self) -> None:
        """Limits that are no stops become stops."""
        levers = list(self.source.levers)
        known = {one.name for one in levers}
        for name, limit in self.state.limits.items():
            if name not in known:
                raise ValueError(
                    f"no requirement {name!r}; there are {', '.join(map(repr, sorted(known)))}"
                )
            k = [one.name for one in levers].index(name)
            if float(limit) not in levers[k].stops:
                levers[k] = with_stop(levers[k], float(limit))
        if any(a is not b for a, b in zip(levers, self.source.levers, strict=True)):
            self.source = replace(self.source, levers=tuple(levers))
            self._tell({"meta": self._meta()})

    def follow(self) -> None:
        """Watch the store, if it is still being filled, and tell the browser what is new."""
        pending = bool((self.source.base == PENDING).any())
        if not self.source.path or not pending or self._follower is not None:
            return
        self._follower = threading.Thread(
            target=self._follow, name="sweepkit explorer follows", daemon=True
        )
        self._follower.start()

    def _follow(self) -> None:
        pause = POLL_SECONDS
        while not self._closed.wait(pause):
            began = time.monotonic()
            pending = self.refresh()
            pause = max(POLL_SECONDS, 5 * (time.monotonic() - began))
            if not pending:
                return

    def refresh(self) -> bool:
        """Read the store again if it has changed; whether runs are still to come."""
        if marks(self.source.path) == self.source.seen:
            return bool((self.source.base == PENDING).any())
        try:
            new = source(self.source.path, self.requirements)
        except (OSError, ValueError, KeyError, json.JSONDecodeError, UnreachableError):
            log.debug("the store cannot be read just now", exc_info=True)
            return True
        with self._lock:
            old = self.source
            levers = zip(new.levers, old.levers, strict=True)
            self.source = replace(new, levers=tuple(on_the_stops_of(a, b) for a, b in levers))
            self._quietly({"filters": remapped(old, new, self.state.filters)})
            if old.table.shape != new.table.shape:
                self._quietly({"run": None, "at": {}})
            self._own_limits()
            self._tell({"news": self.first()})
        return bool((new.base == PENDING).any())

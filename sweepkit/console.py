"""What commands print: in colour on a terminal, plain in a pipe or a log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sweepkit as sk
from sweepkit.cards import Card
from sweepkit.places import Where
from sweepkit.quantities import time_text
from sweepkit.stages import numbers
from sweepkit.status import NAMES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["State", "show_card", "show_frame", "show_state", "state_of", "watch"]

COLOURS = {
    "done": "#0F7AC0",
    "pass": "#0F7AC0",
    "fail": "#E69F00",
    "error": "#C2185B",
    "pending": "grey50",
}
GLYPHS = {"done": "━", "pass": "━", "fail": "━", "error": "━", "pending": "╌"}
WIDTH = 60
UNSUCCESSFUL = ("error", "timeout", "crashed", "invalid")
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class State:
    """How far a store is, and who is at it.

    Attributes
    ----------
    store : str
    runs : mapping of str to int
        Runs by status.
    failed : int or None
        Those of the done ones that do not satisfy a requirement; None where there is none to be
        judged by, or judging needs the sweep's code.
    session : mapping
        The last session as it was written: ``state`` is "running" while it is alive.
    stages : int
        Refinements that the store has beside its grid.
    """

    store: str
    runs: Mapping[str, int]
    failed: int | None
    session: Mapping[str, Any]
    stages: int = 0

    @property
    def total(self) -> int:
        """Runs there are."""
        return sum(self.runs.values())

    @property
    def finished(self) -> int:
        """Runs that are not pending."""
        return self.total - self.runs.get("pending", 0)

    @property
    def alive(self) -> bool:
        """Whether a session is at work."""
        return self.session.get("state") in ("queued", "running", "paused")

    @property
    def rate(self) -> float:
        """Runs per second of the last session; NaN before its first."""
        made = sum(self.session.get("runs", {}).values())
        seconds = self.session.get("ended", 0.0) - self.session.get("began", 0.0)
        return made / seconds if made and seconds > 0 else float("nan")

    def words(self) -> dict[str, int]:
        """Runs by what became of them, those done as pass and fail."""
        done = self.runs.get("done", 0)
        errors = sum(self.runs.get(word, 0) for word in UNSUCCESSFUL)
        judged = {"done": done}
        if self.failed is not None:
            judged = {"pass": done - self.failed, "fail": self.failed}
        return {**judged, "error": errors, "pending": self.runs.get("pending", 0)}

    def json(self) -> dict[str, Any]:
        """For programs."""
        kept = ("state", "pid", "host", "began", "ended", "workers", "executor", "left", "runs")
        return {
            "store": self.store,
            "runs": dict(self.runs),
            "failed": self.failed,
            "finished": self.finished,
            "total": self.total,
            "running": self.alive,
            "stages": self.stages,
            "session": {name: self.session[name] for name in kept if name in self.session},
        }

    def lines(self) -> list[str]:
        """For people."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.runs.items()) or "no runs"
        failing = "" if self.failed is None else f"; {self.failed:,} of those done fail"
        said = [
            f"{self.store}: {self.finished:,} of {self.total:,} runs are finished",
            f"  {counts}{failing}",
        ]
        if self.stages:
            said.append(f"  and {self.stages} refinement{'' if self.stages == 1 else 's'}")
        said.append(f"  {self._session_words()}")
        return said

    def _session_words(self) -> str:
        one = self.session
        if not one:
            return "no session has been noted beside it"
        who = f"process {one.get('pid', '?')} on {one.get('host', '?')}"
        if not self.alive:
            ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.get("ended", 0.0)))
            left = f"; left: {one['left']}" if one.get("left") else ""
            return f"last session: {one.get('state', 'done')}, {who}, {ended}{left}"
        workers = f"{one.get('workers', '?')} workers"
        if not self.rate > 0:
            return f"{one['state']}: {who}, {workers}"
        left = time_text(self.runs.get("pending", 0) / self.rate)
        return f"{one['state']}: {who}, {workers}, {self.rate:,.3g} runs/s, about {left} to go"


def state_of(store: Where) -> State:
    """How far a store is now, and who is at it."""
    import numpy as np

    ds = sk.open(store)
    codes, counts = np.unique(ds["status"].values.astype(int), return_counts=True)
    runs = {NAMES[code]: int(count) for code, count in zip(codes, counts, strict=True)}
    records = sk.receipt(store).records
    stages = len(numbers(store))
    judges = json.loads(ds.attrs["sweepkit"]).get("requirements", [])
    failing = None
    if judges and not any(one.get("needs_code") for one in judges):
        failing = int((sk.failed(ds) == 1).sum())
    return State(str(store), runs, failing, records[-1] if records else {}, stages)


def show_state(state: State) -> None:
    """Print how far a store is."""
    if not sys.stdout.isatty():
        print("\n".join(state.lines()))
        return
    from rich.console import Console

    Console(highlight=False).print(_picture(state))


def watch(look: Callable[[], State]) -> State:
    """Show how far a store is until nobody is at work on it: redrawn, or lines in a log."""
    state = look()
    if not sys.stdout.isatty():
        told = ""
        while True:
            told, before = "\n".join(state.lines()), told
            if told != before:
                print(told, flush=True)
            if not state.alive:
                return state
            time.sleep(LOOK_SECONDS)
            state = look()
    from rich.live import Live

    with Live(_picture(state), auto_refresh=False, transient=False) as live:
        while state.alive:
            time.sleep(LOOK_SECONDS)
            state = look()
            live.update(_picture(state), refresh=True)
    return state


def _picture(state: State) -> Any:
    """A bar by outcome, the counts, and who is at work."""
    from rich.text import Text

    head, _, *rest = state.lines()
    store, _, told = head.rpartition(": ")
    picture = Text(store, style="bold")
    picture.append(f"  {told}\n", style="not bold")
    counts = state.words()
    widths = _widths(list(counts.values()))
    for word, width in zip(counts, widths, strict=True):
        picture.append(GLYPHS[word] * width, style=COLOURS[word])
    picture.append("\n")
    for word, count in counts.items():
        if count:
            picture.append(f"{GLYPHS[word]} ", style=COLOURS[word])
            picture.append(f"{count:,} {word}  ", style="not bold")
    for line in rest:
        picture.append(f"\n{line.strip()}", style="not bold")
    return picture


def _widths(counts: Sequence[int]) -> list[int]:
    """Characters of a bar for each count; what is there at all has one."""
    total = sum(counts) or 1
    return [max(1, round(WIDTH * one / total)) if one else 0 for one in counts]


def show_card(card: Card) -> None:
    """Print facts, tables and notes."""
    if not sys.stdout.isatty():
        print(card.text())
        return
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    grid = Table.grid(padding=(0, 2))
    for one in card.facts:
        grid.add_row(Text(one.name, style="dim"), Text(one.value, style="bold"), Text(one.note))
    parts.append(grid)
    for table in card.tables:
        parts += [Text(""), _table(table.head, table.rows)]
    parts += [Text(f"\n{note}") for note in card.notes]
    title = Text(f"{card.kind} ", style="bold").append(card.about, style="not bold")
    badge = Text(card.badge) if card.badge else None
    shown = Panel(Group(*parts), title=title, subtitle=badge, title_align="left", expand=False)
    Console(highlight=False).print(shown)


def show_frame(frame: pd.DataFrame) -> None:
    """Print a table."""
    if not sys.stdout.isatty():
        print(frame.to_string(index=False))
        return
    from rich.console import Console

    rows = [[str(value) for value in row] for row in frame.itertuples(index=False)]
    Console(highlight=False).print(_table([str(name) for name in frame.columns], rows))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for at, name in enumerate(head):
        table.add_column(Text(name), justify="left" if at == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table

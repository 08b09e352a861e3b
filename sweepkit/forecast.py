"""What a sweep will take, before it is paid for: cost, compute, wall time, disk and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sweepkit.cards import Card, Fact, Table
from sweepkit.grid import Grid
from sweepkit.pilot import Survey
from sweepkit.quantities import bytes_text, core_text, moment_text, range_text, time_text
from sweepkit.workload import START, Work

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Plan", "forecast"]

MOST_LOOKED_AT = 4096
MOST_SHARE = 0.5
"""Errors up to this share are told as ± a share: below and above they are about the same."""
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """What running a sweep will take. Shown in a notebook; every number is an attribute.

    NaN stands for what is not known, such as costs if nothing has run and none is declared.

    Attributes
    ----------
    name : str
        Of the sweep.
    path : str or None
        Of the store, if one is given.
    workers : int
        Runs at the same time.
    runs, pending : int
        Points to be run in all, and those that are pending now.
    exact : bool
        Whether these are counted; of very large grids some points stand for all.
    pilot : int
        Runs that were run for this plan.
    kept : bool
        Whether their results are in the store, so that they count as done.
    source : str
        What costs are known from.
    assumed : bool
        Whether no run has been seen, so that how far costs are off from those declared is assumed.
    cost, cost_error : float
        Mean seconds of a pending run, and how far above it its 95 % interval reaches; of any run
        of the grid where none is pending. Below it the interval reaches by the same factor.
    cost_low, cost_high : float
        Seconds between which 90 % of these runs lie.
    compute, compute_low, compute_high : float
        Core-seconds of all pending runs, with a 95 % range; one worker counts as one core.
    wall, wall_low, wall_high : float
        Seconds until the last run ends on these workers, with a range.
    longest, tail : float
        Seconds of the longest pending run, and seconds at the end in which some worker has
        nothing left to do.
    disk, memory, worker_memory : float
        Bytes of the whole store; of driver and workers together, and of one worker.
    deadline : datetime or None
        When to be done.
    workers_needed : int or None
        How many workers are needed for that, with the high end of the range; None if no number
        of them is enough, or no deadline is given.
    budget : float or None
        Core-seconds that may be held.
    fit, left : int or None
        Runs that end within deadline and budget on these workers, and those that do not; None
        without either.
    left_runs : array of int or None
        Their numbers in the grid, in C order; None if they are too many to be listed.
    """

    name: str
    path: str | None
    workers: int
    runs: int
    pending: int
    exact: bool
    pilot: int
    kept: bool
    source: str
    cost: float
    cost_error: float
    cost_low: float
    cost_high: float
    compute: float
    compute_low: float
    compute_high: float
    wall: float
    wall_low: float
    wall_high: float
    longest: float
    tail: float
    disk: float
    memory: float
    worker_memory: float
    deadline: datetime | None = None
    workers_needed: int | None = None
    budget: float | None = None
    fit: int | None = None
    left: int | None = None
    left_runs: NDArray[np.int64] | None = field(default=None, repr=False)
    assumed: bool = False
    order: Sequence[tuple[str, int, float]] = field(default=(), repr=False)
    """What is run when: words, runs and core-seconds of each part."""
    grid: Grid | None = field(default=None, repr=False)

    def left_points(self) -> pd.DataFrame:
        """The runs that do not fit, one row each with its parameters; empty if all fit."""
        import pandas as pd

        if self.grid is None or self.left_runs is None:
            return pd.DataFrame()
        columns = self.grid.columns(self.grid.index(self.left_runs), self.grid.scalars)
        return pd.DataFrame(columns, index=pd.Index(self.left_runs, name="run"))

    def _card(self) -> Card:
        workers = f"{self.workers} worker{'' if self.workers == 1 else 's'}"
        about = f"{self.name}, {self.path or 'no store'}, {workers}"
        sure = "" if self.exact else "about "
        badge = f"pending {sure}{self.pending:,} of {self.runs:,}"
        return Card("Plan", about, badge, self._facts(workers), self._tables(), self._notes())

    def _facts(self, workers: str) -> tuple[Fact, ...]:
        spread = f"{_range(time_text, self.cost_low, self.cost_high)}, 90 % of runs"
        error = _error_text(self.cost_error / self.cost) if self.cost_error > 0 else ""
        if self.assumed:
            spread = f"declared;{error} assumed until runs are seen"
            error = ""
        per_worker = f"{bytes_text(self.worker_memory)} per worker"
        return (
            Fact("Cost per run", time_text(self.cost) + error, spread),
            Fact(
                "Compute",
                core_text(self.compute),
                _range(core_text, self.compute_low, self.compute_high),
            ),
            Fact(
                "Wall time",
                time_text(self.wall),
                f"{_range(time_text, self.wall_low, self.wall_high)} with {workers}",
            ),
            Fact("Disk", bytes_text(self.disk), "all runs, with their logs"),
            Fact("Memory", bytes_text(self.memory), per_worker),
            Fact("Tail", time_text(self.tail), f"longest run {time_text(self.longest)}"),
        )

    def _tables(self) -> tuple[Table, ...]:
        rows = [
            (words, f"{runs:,} run{'' if runs == 1 else 's'}", core_text(seconds))
            for words, runs, seconds in self.order
        ]
        return (Table(("order of work", "", ""), rows),) if rows else ()

    def _notes(self) -> list[str]:
        notes = [f"costs {self.source}"] if self.source else []
        if self.pilot:
            kept = "kept in the store" if self.kept else "not kept: there is no store"
            notes.append(f"pilot of {self.pilot:,} runs, {kept}")
        if self.deadline is not None:
            notes.append(f"done by {moment_text(self.deadline)}: {self._needed()}")
        if self.budget is not None:
            notes.append(f"budget of {core_text(self.budget)}")
        if self.fit is not None and self.left is not None:
            if not self.left:
                notes.append(f"all {self.fit:,} pending runs fit")
            else:
                notes.append(f"{self.fit:,} runs fit, {self.left:,} are left{self._where()}")
        return notes

    def _needed(self) -> str:
        if math.isnan(self.wall):
            return "how many workers that takes is not known without costs"
        if self.workers_needed is None:
            takes = f"the longest run takes {time_text(self.longest)}"
            return f"no number of workers is enough: {takes}, workers some seconds to start"
        return f"{self.workers_needed} worker{'' if self.workers_needed == 1 else 's'} needed"

    def _where(self) -> str:
        """Where in the grid what is left lies, if that is narrower than the grid."""
        if self.grid is None or self.left_runs is None or not len(self.left_runs):
            return ""
        columns = self.grid.columns(self.grid.index(self.left_runs), self.grid.scalars)
        said = []
        for name, column in columns.items():
            one = self.grid[name]
            found = np.unique(column)
            if one.role == "replicate" or len(found) == len(np.unique(one.values)):
                continue
            if len(found) <= 3 or column.dtype.kind not in "iuf":
                said.append(f"{name} {', '.join(map(str, found[:6]))}")
            else:
                said.append(f"{name} {found[0]:g} to {found[-1]:g}")
        return f", at {'; '.join(said)}" if said else ""

    def __repr__(self) -> str:
        return self._card().text()

    def _repr_html_(self) -> str:
        return self._card().html()


def _error_text(share: float) -> str:
    """How far off a number may be, as a share of it while that is small, else as a factor."""
    return f" ± {share:.0%}" if share <= MOST_SHARE else f" within a factor of {1 + share:.2g}"


def _range(text: Callable[[float], str], low: float, high: float) -> str:
    return range_text(text(low), text(high))


def forecast(
    name: str,
    seen: Survey,
    *,
    path: str | None,
    workers: int,
    pilot: int,
    kept: bool,
    source: str,
    driver_memory: float,
    worker_memory: float,
    deadline: datetime | None = None,
    now: datetime | None = None,
    budget: float | None = None,
) -> Plan:
    """A plan from what is known of a sweep; pure.

    Parameters
    ----------
    name : str
    seen : Survey
        Pending runs and what is known of their costs.
    path, workers, pilot, kept, source, deadline, budget
        As of a Plan.
    driver_memory, worker_memory : float
        Bytes that this process and a worker take; NaN where not known.
    now : datetime, optional
        The present, if there is a deadline.
    """
    costs = seen.costs
    seconds, bounds = costs.expected(seen.runs), costs.bound(seen.runs)
    total = costs.total(seen.runs)
    scale = seen.pending / len(seen.runs) if len(seen.runs) and not seen.exact else 1.0
    places = np.searchsorted(seen.runs, seen.lead)
    coarse = places[np.isin(seen.lead, seen.runs)] if seen.exact else np.zeros(0, dtype=np.int64)
    work = Work(coarse, seconds, bounds, costs.noise, total.factor, scale)
    known = costs.known and len(seconds) > 0
    wall = work.wall(workers) if known else _nothing(seen)
    compute = total.seconds * scale if known else _nothing(seen)[0]
    low, high = _spread(seconds, costs.noise) if known else _nothing(seen)[:2]
    each = compute / seen.pending if seen.pending else math.nan
    each_error = (total.factor - 1) * each if known else math.nan
    if not seen.pending and costs.known:  # what they took tells what more of them would
        each, each_error, low, high = _of_any(seen)
    memory = driver_memory + workers * worker_memory + _open_memory(seen, workers)
    made = Plan(
        name=name,
        path=path,
        workers=workers,
        runs=seen.pending + seen.finished,
        pending=seen.pending,
        exact=seen.exact,
        pilot=pilot,
        kept=kept,
        source=source,
        assumed=costs.known and not costs.count,
        cost=each,
        cost_error=each_error,
        cost_low=low,
        cost_high=high,
        compute=compute,
        compute_low=compute / total.factor if known else compute,
        compute_high=compute * total.factor if known else compute,
        wall=wall[0],
        wall_low=wall[1],
        wall_high=wall[2],
        longest=float(seconds.max()) if known else wall[0],
        tail=max(wall[0] - START[1] - compute / workers, 0.0) if known else wall[0],
        disk=seen.disk * (seen.pending + seen.finished),
        memory=memory,
        worker_memory=worker_memory,
        order=_parts(work, workers) if known else (),
        grid=seen.grid,
    )
    return _limited(made, seen, work, known, deadline, now, budget)


def _of_any(seen: Survey) -> tuple[float, float, float, float]:
    """Mean cost of the runs of a grid, its error, and seconds between which 90 % of them lie."""
    runs = np.unique(np.linspace(0, seen.grid.size - 1, MOST_LOOKED_AT).astype(np.int64))
    if seen.grid.masks:
        runs = runs[seen.grid.valid(seen.grid.index(runs))]
    if not len(runs):
        return (math.nan,) * 4
    total, seconds = seen.costs.total(runs), seen.costs.expected(runs)
    low, high = _spread(seconds, seen.costs.noise)
    return total.seconds / len(runs), total.error / len(runs), low, high


def _nothing(seen: Survey) -> tuple[float, float, float]:
    """Times where nothing is known: none if nothing is pending."""
    return (math.nan,) * 3 if seen.pending else (0.0, 0.0, 0.0)


def _open_memory(seen: Survey, workers: int) -> float:
    return seen.block_bytes * min(max(seen.blocks, 1), 2 * workers)


def _spread(seconds: Array, noise: float) -> tuple[float, float]:
    """Seconds between which 90 % of runs lie, the scatter around what is expected included."""
    few = seconds[:: max(1, len(seconds) // 4096)]
    around = np.exp(noise * np.linspace(-1.9, 1.9, 21) - noise**2 / 2)
    weights = np.exp(-(np.linspace(-1.9, 1.9, 21) ** 2) / 2)
    every = (few[:, None] * around).ravel()
    order = np.argsort(every)
    share = np.cumsum(np.tile(weights, len(few))[order])
    at = np.searchsorted(share / share[-1], [0.05, 0.95])
    return float(every[order[at[0]]]), float(every[order[min(at[1], len(order) - 1)]])


def _parts(work: Work, workers: int) -> tuple[tuple[str, int, float], ...]:
    """What is run when."""
    rows, urgent = work.order(workers, longest=True), work.urgent(workers)
    ends = (len(urgent), len(np.union1d(urgent, work.coarse)), len(rows))
    words = ("the longest, which decide when it ends", "coarse pass over the grid", "longest first")
    made, at = [], 0
    for word, end in zip(words, ends, strict=True):
        if end > at:
            seconds = float(work.seconds[rows[at:end]].sum()) * work.scale
            made.append((word, round((end - at) * work.scale), seconds))
        at = max(at, end)
    return tuple(made)


def _limited(
    plan: Plan,
    seen: Survey,
    work: Work,
    known: bool,
    deadline: datetime | None,
    now: datetime | None,
    budget: float | None,
) -> Plan:
    """A plan with what a deadline or a budget means for it."""
    if deadline is None and budget is None:
        return plan
    plan = replace(plan, deadline=deadline, budget=budget)
    if not known:
        nothing = None if seen.pending else 0
        return replace(plan, workers_needed=nothing, fit=nothing, left=nothing)
    until, needed = math.inf, None
    if deadline is not None and now is not None:
        until = (deadline - now).total_seconds()
        needed = work.needed(until)
    if budget is not None:
        until = min(until, budget / plan.workers)
    fits = work.fitting(plan.workers, until)
    fit = round(float(fits.sum()) * work.scale)
    return replace(
        plan,
        workers_needed=needed,
        fit=fit,
        left=seen.pending - fit,
        left_runs=seen.runs[~fits] if seen.exact else None,
    )

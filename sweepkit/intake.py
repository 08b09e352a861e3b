"""Results taken as they come: outcomes, judged by the policies, into blocks and the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweepkit.blocks import Blocks, Cells
from sweepkit.casts import integer_of_both, joined_dtype
from sweepkit.columns import Column
from sweepkit.cost import Cost, Costs
from sweepkit.course import Course
from sweepkit.fit import Fit, Piece, Rows, learnt_coords, learnt_outputs
from sweepkit.format1 import (
    KEEPING,
    WIDE_NOTE,
    WIDE_TEXT,
    Layout,
    Variable,
    block_bytes,
    block_shape,
)
from sweepkit.handout import OPEN_BYTES
from sweepkit.judge import (
    Opened,
    RunError,
    TooManyErrorsError,
    error_kind,
    failing,
    past_errors,
    told_too_many,
    too_many,
)
from sweepkit.meet import Met, check_outputs, check_requirements, without_stored
from sweepkit.plan import by_block
from sweepkit.protocols import Batch, Outcome, Store
from sweepkit.rewrite import holds_nothing, retype
from sweepkit.settings import Settings
from sweepkit.status import Example, Status
from sweepkit.sweep import Sweep
from sweepkit.vectorized import CallCost, Vectorized

__all__ = ["Intake"]

Coords: TypeAlias = Mapping[str, NDArray[Any]]

SLOW = 0.1
"""Runs that take longer, in seconds, are written to the store at once."""
RESTS = 10.0
"""How many times as long as writing took nothing is written again, unless a block is complete."""
MOST_LEAVING = 2
"""Complete blocks that may wait to be written, chunk by chunk between results."""
LEARNT_RUNS = 32
"""Runs of a batch, at most, from which costs are learnt."""


class Intake:
    """Takes outcomes, makes the store when the first result is in, and keeps it up to date.

    Parameters
    ----------
    sweep : Sweep
    store : Store
        Held.
    settings : Settings
    met : Met
        How the sweep lies in the store.
    course : Course
        Where runs are counted, and which is ended if the failure policy says so.

    Attributes
    ----------
    blocks : Blocks
        Open ones; others once the layout has changed.
    created : bool
        Whether there is a store.
    cost, usual : Cost
        Of a run, and of one that is done.
    calls : CallCost
        Of a batch.
    costs : Costs
        As a function of the parameters.
    """

    def __init__(
        self, sweep: Sweep, store: Store, settings: Settings, met: Met, course: Course
    ) -> None:
        self.sweep = sweep
        self.store = store
        self.settings = settings
        self.met = met
        self.course = course
        self.grid = met.grid
        self.tally = course.tally
        self.blocks = Blocks(store)
        self.created = met.created
        self.cost = Cost()
        self.usual = Cost()
        self.calls = CallCost()
        self.costs = Costs.of(met.grid, sweep.cost)
        self._first = "the first run"
        self._early: list[Outcome] = []
        self._again: list[NDArray[np.int64]] = []
        self._tries: Counter[int] = Counter()
        self._aside: Counter[str] = Counter()
        self._unwidened: set[tuple[str, str]] = set()
        self._flushed = time.monotonic()
        self._flush_pause = 0.0

    # --- outcomes ---

    def take(self, outcome: Outcome) -> None:
        """Take the results of a batch."""
        result = outcome.result
        self.cost = self.cost.after(result.duration)
        self.usual = self.usual.after(result.duration[result.status == Status.DONE])
        self.calls = self.calls.after(len(result), float(result.duration.sum()))
        self._learn(outcome)
        self.tally.busy_seconds += float(result.duration.sum())
        self.tally.wasted_seconds += float(result.duration[result.status != Status.DONE].sum())
        self.tally.notes.update(result.notes)
        if self.created:
            self._settle(outcome)
            return
        if result.misnamed is not None:
            raise ValueError(f"simulator {self.sweep.name!r}: {result.misnamed}")
        self._early.append(outcome)
        if (result.status == Status.DONE).any():
            self.create(*self._learnt(outcome))

    def _learn(self, outcome: Outcome) -> None:
        """Learn the cost of runs, from some of them if they are many."""
        result = outcome.result
        step = -(-len(result) // LEARNT_RUNS)
        rows = np.arange(0, len(result), step)
        rows = rows[result.status[rows] != Status.CRASHED]
        self.costs = self.costs.after(outcome.batch.runs[rows], result.duration[rows])

    def size_of_call(self, left: int, *, workers: int) -> int:
        """Runs of the next batch of a vectorized simulator, when so many are left."""
        simulator = self.sweep.simulator
        most = simulator.max_batch if isinstance(simulator, Vectorized) else 1
        return self.calls.next(left, workers, most)

    @property
    def probing(self) -> bool:
        """Whether calls of a vectorized simulator are still made larger to see what they cost."""
        simulator = self.sweep.simulator
        return isinstance(simulator, Vectorized) and self.calls.probing(simulator.max_batch)

    def _learnt(self, outcome: Outcome) -> tuple[tuple[Variable, ...], Coords]:
        columns, declared = outcome.result.columns, self.sweep.outputs
        done = outcome.batch.runs[outcome.result.status == Status.DONE]
        if done.size:
            self._first = f"the first run ({self._point(int(done[0]))})"
        return learnt_outputs(columns, declared), learnt_coords(columns, declared)

    def _settle(self, outcome: Outcome) -> None:
        batch, result = outcome.batch, outcome.result
        if not self.store.layout.outputs and result.columns:
            self._add_outputs(*self._learnt(outcome))
        status, errors, logs = result.status.copy(), dict(result.errors), dict(result.logs)
        fit = Fit(self.store.layout, status, errors, self._widen, self.store.unpacked, self._first)
        values = fit.values(result.columns)
        for invalid in np.flatnonzero(status == Status.INVALID).tolist():
            logs.setdefault(invalid, f"{errors[invalid]}\n")
        sizes = np.zeros(len(status), dtype=np.int32)
        for row, text in logs.items():
            sizes[row] = len(text)
        self._note_wide(values, fit.parcels)
        values["duration"] = (None, result.duration)
        values["code"] = (None, np.full(len(status), self.met.code, dtype=np.int16))
        values["log_size"] = (None, sizes)
        block, cells = batch.block, batch.cells
        if block < 0:
            disk = self.met.placement.disk(batch.runs)
            block, cells, _ = next(iter(by_block(self.store.layout, disk)))
        self.tally.failed += failing(
            self.sweep.requirements,
            self.grid,
            self.store.layout,
            batch,
            status,
            values,
            Opened(fit.parcels, self.store.unpacked),
        )
        texts = {"error": errors, "log": logs}
        self.blocks.put(block, Cells(cells, status, values, texts, 1 + batch.lost, fit.parcels))
        self.tally.add(status)
        if errors and self.settings.retry:
            errors = self._set_aside(batch, status, errors)
        if errors:
            for kind, row in self.tally.add_errors(status, errors).items():
                where = self._point(int(batch.runs[row]))
                self.course.examples.append(Example(kind, errors[row], where, logs.get(row, "")))
            self._judge(batch, errors, logs)

    def create(self, outputs: Sequence[Variable], coords: Coords) -> None:
        """Make the store for the outputs known by now and put the early results in."""
        variables = {variable.name: variable for variable in (*KEEPING, *outputs)}
        per_run = block_bytes(variables.values())
        sizes = self.grid.sizes
        layout = Layout(sizes, block_shape(tuple(sizes.values()), per_run), variables, coords)
        if outputs:
            check_outputs(self.grid, layout)
            check_requirements(self.sweep, self.grid, layout)
        with self.store.rewriting() as fresh:
            fresh.create(layout, self.grid.parameters, self.met.declaration(self.sweep, {}, sizes))
        self.created = True
        self.blocks = Blocks(self.store)
        early, self._early = self._early, []
        for outcome in early:
            self._settle(outcome)

    def _add_outputs(self, outputs: tuple[Variable, ...], coords: Coords) -> None:
        """Add outputs to a store whose first runs had none."""
        variables = {**self.store.layout.variables, **{one.name: one for one in outputs}}
        layout = replace(self.store.layout, variables=variables)
        check_outputs(self.grid, layout)
        check_requirements(self.sweep, self.grid, layout)
        self.blocks.flush()
        self.store.add(outputs, coords, without_stored(self.store.declaration))
        self._reopen_blocks()

    def _reopen_blocks(self) -> None:
        expected = self.blocks.expected
        self.blocks = Blocks(self.store, expected=expected)

    def _note_wide(self, values: Mapping[str, Rows], parcels: Mapping[str, Piece]) -> None:
        """Mark variables that hold integers which a float64 cannot."""
        for name, (_, receipts) in parcels.items():
            known = WIDE_NOTE in self.store.layout.variables[name].attrs
            if not known and any(one.wide for one in receipts):
                self.store.note(name, {WIDE_NOTE: WIDE_TEXT})
        for name, (_, column) in values.items():
            variable = self.store.layout.variables[name]
            if variable.dtype not in ("int64", "uint64") or WIDE_NOTE in variable.attrs:
                continue
            if column.size and (int(column.max()) > 2**53 or int(column.min()) < -(2**53)):
                self.store.note(name, {WIDE_NOTE: WIDE_TEXT})

    def _widen(self, variable: Variable, column: Column, unstored: Sequence[Piece]) -> Variable:
        """Store a variable in a wider data type if that holds old and new values exactly."""
        said = self.sweep.outputs.get(variable.name)
        pair = (variable.name, column.dtype)
        if pair in self._unwidened or (said is not None and said.dtype is not None):
            return variable
        joined = joined_dtype(variable.dtype, column.dtype)
        wide = joined or integer_of_both(variable.dtype, column.values, column.dtype)
        if wide == variable.dtype and variable.pad is None:
            return variable
        self.blocks.flush()
        if holds_nothing(self.store, variable):
            wide = joined = column.dtype
        if wide == variable.dtype and joined is None:  # later values may not fit
            return variable
        declaration = without_stored(self.store.declaration)
        if (
            wide is None
            or wide == variable.dtype
            or not retype(self.store, variable, wide, column, unstored, declaration)
        ):
            self._unwidened.add(pair)
            return variable
        self._reopen_blocks()
        return self.store.layout.variables[variable.name]

    def _judge(self, batch: Batch, errors: Mapping[int, str], logs: Mapping[int, str]) -> None:
        """End the session if the failure policy says so."""
        if self.course.ending is not None:
            return
        if self.settings.on_error == "raise":
            row = min(errors)
            point = self._point(int(batch.runs[row]))
            self.course.ending = RunError(
                f"the run at {point} ended with {errors[row]}\n{logs.get(row, '')}\n"
                f"what is done is kept in {str(self.store.path)!r}; rerun= tries this run again, "
                "and sk.replay raises here what it raised"
            )
        else:
            self.course.ending = self._too_many()
        if self.course.ending is not None:
            self.course.stop()

    def _set_aside(
        self, batch: Batch, status: NDArray[np.int8], errors: Mapping[int, str]
    ) -> dict[int, str]:
        """Note runs that are to be tried again; returns the errors of the others."""
        final = {}
        for row, text in errors.items():
            run, became = int(batch.runs[row]), Status(status[row])
            if self._tries[run] < self.settings.retry.get(became, 0):
                self._tries[run] += 1
                self._again.append(batch.runs[row : row + 1])
                self._aside[error_kind(became, text)] += 1
            else:
                final[row] = text
        return final

    @property
    def aside(self) -> bool:
        """Whether runs are to be tried again."""
        return bool(self._again)

    def judge_stored(self) -> None:
        """End before the first run if what the store has kept is more than the policy allows."""
        if self.settings.on_error == "raise":
            self.course.ending = past_errors(self.met.settled)
        else:
            self.course.ending = self._too_many()
        if self.course.ending is not None:
            self.course.stop()

    def conclude(self) -> None:
        """Count runs whose retry did not come, and the error to end with anew."""
        self.tally.errors.update(self._aside)
        most = self.settings.max_errors
        if isinstance(self.course.ending, TooManyErrorsError) and most is not None:
            self.course.ending = told_too_many(self.tally, most, self.met.settled)
        elif self.course.ending is None and not self.course.stop_wishes:
            self.course.ending = self._too_many()

    def _too_many(self) -> TooManyErrorsError | None:
        most = self.settings.max_errors
        return too_many(self.tally, most, self.course.total, self.met.settled)

    def retried(self) -> Iterator[Batch]:
        """Runs set aside, one a batch; on disk they are pending again before they are run."""
        runs = np.concatenate(self._again)
        self._again = []
        self._aside.clear()
        placed = list(by_block(self.store.layout, self.met.placement.disk(runs)))
        for number, cells, _ in placed:
            block = self.blocks.get(number)
            self.tally.add(block.status[cells], -1)
            self.tally.repeated += len(cells)
            block.mark(cells, Status.PENDING)
            block.flush()
        for number, cells, rows in placed:
            for at in range(len(cells)):
                part = slice(at, at + 1)
                yield Batch(number, cells[part], runs[rows[part]], self.cost.recent)

    def _point(self, run: int) -> str:
        index = self.grid.index(np.array([run]))
        named = self.grid.columns(index, self.grid.scalars)
        return ", ".join(f"{name}={_short(values[0])}" for name, values in named.items())

    # --- writing ---

    def keep_up(self, account: Callable[[], None]) -> None:
        """Write what is due to be written; an account is given after all of it was."""
        now = time.monotonic()
        slow = self.cost.recent > SLOW
        pause = 0.0 if slow else max(1.0, 10 * self.store.chunk_seconds * self.blocks.unwritten)
        if now - self._flushed >= max(pause, self._flush_pause, self.store.pause_seconds):
            self.blocks.flush()
            self.store.publish(f"{self.tally.settled:,} runs of this session")
            account()
            after = time.monotonic()
            self._flush_pause = RESTS * (after - now)
            self._flushed = after
        while self.blocks.step():
            if self.blocks.leaving <= MOST_LEAVING and self.cost.recent < SLOW:
                break
        if self.blocks.nbytes > OPEN_BYTES:
            self.blocks.trim()
            if self.blocks.nbytes > OPEN_BYTES:
                self.blocks.flush()


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""Where plan, executor and store meet: one session of a sweep."""

from __future__ import annotations

import json
import math
import platform
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.amend import restore
from sweepkit.blocks import Blocks, Cells
from sweepkit.cost import Cost
from sweepkit.evaluate import Task
from sweepkit.format1 import (
    KEEPING,
    WIDE_NOTE,
    WIDE_TEXT,
    Layout,
    Variable,
    block_shape,
    length_variable,
)
from sweepkit.grid import random_prefix
from sweepkit.outputs import Column, Misfit, cast_exactly, joined_dtype, learnt, shape_fault
from sweepkit.parameters import Parameter
from sweepkit.plan import Placement, batch_size, by_block, coarse_runs, cut
from sweepkit.protocols import Batch, Crew, Executor, Outcome
from sweepkit.resume import (
    Match,
    StaleCodeError,
    code_number,
    match,
    neutral_parameters,
    stale_codes,
)
from sweepkit.simulator import cell_sources, patchable, uses_global_random
from sweepkit.status import NAMES, Progress, Status
from sweepkit.stores.zarr import ZarrStore, replace_file
from sweepkit.sweep import Sweep

__all__ = ["MAX_RUNS", "RunError", "Session", "Settings", "TooManyErrorsError"]

MAX_RUNS = 10**6
ORDER_SEED = 0
UNSUCCESSFUL = (Status.ERROR, Status.TIMEOUT, Status.CRASHED, Status.INVALID)
REPORT_SECONDS = 0.2
SLOW = 0.1
"""Runs that take longer, in seconds, are written to the store at once."""
OPEN_BYTES = 512 * 2**20
LEAST_LIMIT = 1.0
"""Smallest time limit, in seconds, that follows from a factor of the mean duration."""


class RunError(RuntimeError):
    """A run raised, and the sweep was asked to stop at the first; what is done is kept."""


class TooManyErrorsError(RuntimeError):
    """More runs ended in errors than were allowed; what is done is kept."""


@dataclass(frozen=True)
class Settings:
    """What a session is asked to do beside running what is pending.

    Attributes
    ----------
    timeout : tuple of float or None
        Seconds that a run may take, or a factor of the mean duration so far.
    rerun : tuple of Status
        Statuses of finished runs to be tried again.
    retry : mapping of Status to int
        How often runs that end so are tried again within the session.
    keep_scratch : bool
        Whether folders given to runs are kept beside the store.
    on_error : {"collect", "raise"}
        Whether to go on after a run that did not succeed.
    max_errors : int, float or None
        Stop when so many runs (int) or such a share of those finished (float) did not succeed.
    max_runs : int
        Refuse grids with more points.
    was : mapping
        Value that finished runs had of a parameter that joins now.
    stale : {"ask", "keep", "rerun"}
        What to do with runs made by code that has changed since.
    snap : bool
        Take stored values for those that differ by rounding alone.
    """

    timeout: tuple[float | None, float | None] = (None, None)
    rerun: tuple[Status, ...] = ()
    retry: Mapping[Status, int] = field(default_factory=dict)
    keep_scratch: bool = False
    on_error: str = "collect"
    max_errors: float | None = None
    max_runs: int = MAX_RUNS
    was: Mapping[str, Any] = field(default_factory=dict)
    stale: str = "ask"
    snap: bool = False


class Session:
    """One session: hold the store, run what is pending, write, account.

    Parameters
    ----------
    sweep : Sweep
    store : ZarrStore
    executor : Executor
    settings : Settings
    report : callable
        Called with a Progress now and then.
    """

    def __init__(
        self,
        sweep: Sweep,
        store: ZarrStore,
        executor: Executor,
        settings: Settings,
        report: Callable[[Progress], None],
    ) -> None:
        self.sweep = sweep
        self.store = store
        self.executor = executor
        self.settings = settings
        self.report = report
        self.grid = sweep.grid
        self.cost = Cost()
        self.counts: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.failed = 0
        self.total = 0
        self.given_out = 0
        self.stop_wishes = 0
        self.interrupted = False
        self.ending: Exception | None = None
        self._blocks = Blocks(store)
        self._early: list[Outcome] = []
        self._again: list[NDArray[np.int64]] = []
        self._tries: Counter[int] = Counter()
        self._created = False
        self._codes: list[dict[str, Any]] = []
        self._code = 0
        self._was: dict[str, Parameter] = {}
        self._masks_changed = True
        self._unwidened: set[tuple[str, str]] = set()
        self._started = self._flushed = self._reported = time.monotonic()
        self._flush_pause = 1.0
        self._busy_seconds = 0.0
        self._first_start = time.time()

    # --- the session ---

    def run(self) -> None:
        """Run what is pending.

        Raises
        ------
        ValueError
            If the grid is too large, or the store holds another sweep.
        StoreError
            If the store cannot be read or written, or is being written by another.
        RunError, TooManyErrorsError
            If the failure policy says so; what is done is kept.
        KeyboardInterrupt
            If a person interrupted; what is done is kept.
        """
        self._check_size()
        with self.store.hold():
            self._prepare()
            if self.total:
                with self._listening():
                    self._hold_and_run()
            elif not self._created:
                self._create(())
            self._account()
        if self.interrupted:
            raise KeyboardInterrupt
        if self.ending is not None:
            raise self.ending

    def stop(self) -> None:
        """Ask the session to end soon; runs in flight become pending."""
        self.stop_wishes += 1

    def _stopping(self) -> bool:
        return self.stop_wishes > 0

    def _check_size(self) -> None:
        size = self.grid.size
        if size > self.settings.max_runs:
            longest = sorted(self.grid.sizes.items(), key=lambda item: -item[1])[:3]
            axes = ", ".join(f"{dim} ({n:,})" for dim, n in longest)
            raise ValueError(
                f"the grid has {size:,} points, more than max_runs={self.settings.max_runs:,}; "
                f"its longest axes are {axes}; shorten them, sample with sk.latin_hypercube, or "
                f"allow it with max_runs={size}"
            )

    def _hold_and_run(self) -> None:
        task = Task(
            self.sweep.simulator,
            self.sweep.call,
            replace(self.grid, masks=()),
            self.sweep.outputs,
            self.sweep.entropy,
            self.sweep.streams,
            self._was,
            self.sweep.threads,
            uses_global_random(self.sweep.simulator),
            cell_sources(self.sweep.simulator),
            str(self.store.beside / "scratch") if self.settings.keep_scratch else None,
            patchable(self.sweep.simulator),
        )
        limited = any(one is not None for one in self.settings.timeout)
        with self.executor.hold(task, timeout=self._limit if limited else None) as crew:
            self._started = time.monotonic()
            self._tell("running", at_once=True)
            try:
                self._drive(crew)
            except BaseException:
                with suppress(Exception):
                    self._tell("failed", at_once=True)
                raise
        self._tell("collecting", at_once=True)
        if not self._created:
            self._create(())
        self._blocks.close()
        self._tell("cancelled" if self.stop_wishes else "done", at_once=True)

    def _limit(self) -> float | None:
        """Seconds that a run may take, None while they are not known."""
        seconds, factor = self.settings.timeout
        if factor is None:
            return seconds
        return max(factor * self.cost.mean, LEAST_LIMIT) if self.cost.count else None

    def _drive(self, crew: Crew) -> None:
        self._map(crew, self._batches())
        for _ in range(max(self.settings.retry.values(), default=0)):
            if self._stopping() or not self._again:
                break
            self._map(crew, self._retried())

    def _map(self, crew: Crew, batches: Iterator[Batch]) -> None:
        outcomes = crew.map(batches, self._stopping)
        try:
            for outcome in outcomes:
                self._take(outcome)
                self._maybe_flush()
                self._tell("running")
        finally:
            close = getattr(outcomes, "close", None)
            if close is not None:
                close()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Turn SIGINT and SIGTERM into a wish to stop, where this thread receives them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        terminated = False

        def wish(number: int, _: object) -> None:
            nonlocal terminated
            self.stop()
            if number == signal.SIGINT:
                self.interrupted = True
                if getattr(self.executor, "running_here", lambda: False)():
                    raise KeyboardInterrupt
            else:
                terminated = True

        before = {}
        for number, usual in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, signal.SIG_DFL),
        ):
            if signal.getsignal(number) is usual:
                before[number] = signal.signal(number, wish)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if terminated:
                signal.raise_signal(signal.SIGTERM)

    # --- before the first run ---

    def _prepare(self) -> None:
        now = self.sweep.identity
        if not self.store.exists():
            self._codes = [{"identity": now.to_json(), "accepted": False}]
            self._was = neutral_parameters(self.settings.was, self.grid, ())
            self._set_placement(
                {dim: np.arange(n, dtype=np.int64) for dim, n in self.grid.sizes.items()},
                self.grid.sizes,
            )
            self.total = self.grid.size
            return
        self.store.open()
        declaration = self.store.declaration
        self._was = _was_of(declaration) | neutral_parameters(
            self.settings.was, self.grid, declaration["parameters"]
        )
        stored = self.store.parameter_values(declaration["parameters"])
        found = match(
            self.sweep,
            stored,
            declaration,
            self._was,
            path=self.store.path,
            snap=self.settings.snap,
        )
        self.grid = found.grid
        self._codes = declaration["codes"]
        stale = self._judge_code(now)
        self._masks_changed = declaration["masks"] != self.sweep.declaration()["masks"] or any(
            "code" in mask for mask in declaration["masks"]
        )
        self._created = True
        self._settle_layout(found, declaration)
        self._check_outputs(self.store.layout)
        self._reset(stale)
        self._settle_outputs()

    def _settle_outputs(self) -> None:
        if self.store.layout.outputs:
            self._check_requirements(self.store.layout)

    def _judge_code(self, now: Any) -> tuple[int, ...]:
        """Which code versions are to be run again; a changed one is asked about first."""
        stale = stale_codes(self._codes, now)
        rerun: tuple[int, ...] = ()
        if stale and self.settings.stale == "ask" and self._any_made_by([n for n, _ in stale]):
            told = "\n".join(f"  - {one}" for one in stale[-1][1])
            raise StaleCodeError(
                f"the code of {self.sweep.name!r} has changed since runs in {self.store.path} "
                f"were made:\n{told}\nnothing was deleted; say sk.run(..., stale='keep') to keep "
                "those runs, stale='rerun' to run them again, or use another path"
            )
        if self.settings.stale == "keep":
            for number, _ in stale:
                self._codes[number]["accepted"] = True
        elif self.settings.stale == "rerun":
            rerun = tuple(number for number, _ in stale)
        known = code_number(self._codes, now)
        if known is None:
            self._codes.append({"identity": now.to_json(), "accepted": False})
            known = len(self._codes) - 1
        self._code = known
        return rerun

    def _any_made_by(self, numbers: Sequence[int]) -> bool:
        layout = self.store.layout
        for block in range(layout.n_blocks):
            box = layout.box(block)
            finished = self.store.read("status", box) > 0
            finished &= self.store.read("status", box) != Status.SKIPPED
            if finished.any() and np.isin(self.store.read("code", box)[finished], numbers).any():
                return True
        return False

    def _settle_layout(self, found: Match, declaration: Mapping[str, Any]) -> None:
        """Grow the store to the declared grid and write the declaration as it is now."""
        order = _declared_order(found, declaration)
        fresh = self._declaration(order)
        if found.joined or found.retyped:
            self._rewrite(found, fresh)
        if found.grows:
            self.store.grow(found.parameters, fresh)
        elif _without_stored(self.store.declaration) != json.loads(json.dumps(fresh)):
            self.store.commit(fresh)
        self._blocks = Blocks(self.store)
        self._set_placement(dict(found.on_disk), self.store.layout.sizes)

    def _declaration(self, order: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self.sweep.declaration(),
            "order": self._order,
            "axes": dict(order),
            "codes": self._codes,
            "was": {
                name: {"kind": one.kind, "value": _json_value(one.values[0])}
                for name, one in self._was.items()
                if one.values.ndim == 1
            },
            "environment": environment(),
        }

    @property
    def _order(self) -> dict[str, Any]:
        sizes = dict(self.store.layout.sizes) if self._created else self.grid.sizes
        return {
            "seed": ORDER_SEED,
            "sizes": sizes,
            "coarse": coarse_runs(math.prod(sizes.values())),
        }

    def _set_placement(
        self, on_disk: dict[str, NDArray[np.int64]], sizes: Mapping[str, int]
    ) -> None:
        self._on_disk = on_disk
        self._placement = Placement.of(
            tuple(sizes) if self._created else self.grid.dims, on_disk, sizes
        )
        self._strides = {}
        stride = self.grid.size
        for dim, n in self.grid.sizes.items():
            stride //= n
            self._strides[dim] = stride

    def _runs_in(self, box: tuple[slice, ...]) -> NDArray[np.int64]:
        """Number in the declared grid of each cell of a box on disk; -1 where not declared."""
        dims = self.store.layout.dims
        runs: NDArray[np.int64] = np.zeros((1,) * len(box), dtype=np.int64)
        missing = np.zeros((1,) * len(box), dtype=bool)
        for at, (dim, part) in enumerate(zip(dims, box, strict=True)):
            shape = [-1 if other == at else 1 for other in range(len(box))]
            positions = self._placement.declared[at][part].reshape(shape)
            runs = runs + positions * self._strides[dim]
            missing = missing | (positions < 0)
        return np.where(missing, -1, runs).ravel()

    def _rewrite(self, found: Match, declaration: Mapping[str, Any]) -> None:
        """Make the store anew with joined parameters or wider axes, then swap it in."""
        layout = self.store.layout
        old_dims = layout.dims
        sizes = dict(layout.sizes)
        kept = self.store.parameter_values(self.store.declaration["parameters"])
        axes = []
        for one in found.parameters:
            if one.name in found.joined:
                sizes[one.name] = 1
                axes.append(
                    replace(
                        self._was[one.name],
                        units=one.units,
                        role=one.role,
                        long_name=one.long_name,
                        weights=one.weights,
                    )
                )
            else:
                old = kept[one.name]
                axes.append(
                    replace(
                        one,
                        values=one.values[: old.size].astype(one.values.dtype),
                        objects=None if one.objects is None else one.objects[: old.size],
                    )
                )
        per_run = sum(variable.bytes_per_run for variable in layout.variables.values())
        final = {dim: max(n, self.grid.sizes.get(dim, n)) for dim, n in sizes.items()}
        wide = Layout(sizes, block_shape(tuple(final.values()), per_run), layout.variables)
        extra = len(sizes) - len(old_dims)
        with self.store.rewriting() as fresh:
            fresh.create(wide, axes, declaration)
            for block in range(wide.n_blocks):
                box = wide.box(block)
                for variable in wide.variables.values():
                    values = self.store.read(variable.name, box[: len(old_dims)])
                    shape = values.shape[: len(old_dims)] + (1,) * extra + variable.shape
                    if variable.dtype == "str":
                        values = values.astype(np.dtypes.StringDType())
                    whole = tuple(slice(0, n) for n in variable.shape)
                    fresh.write(variable.name, box + whole, values.reshape(shape))

    def _reset(self, stale: tuple[int, ...]) -> None:
        """Set runs that are to be tried again back to pending, on disk, and count what is."""
        layout = self.store.layout
        self.total = 0
        restore(self.store)
        for block in range(layout.n_blocks):
            box = layout.box(block)
            status = self.store.read("status", box)
            declared = self._runs_in(box).reshape(status.shape) >= 0
            again = declared & np.isin(status, [int(one) for one in self.settings.rerun])
            if stale:
                finished = (status != Status.PENDING) & (status != Status.SKIPPED)
                again |= declared & finished & np.isin(self.store.read("code", box), stale)
            if again.any():
                status = np.where(again, np.int8(Status.PENDING), status).astype(np.int8)
                self.store.write("status", box, status)
            pending = status == Status.PENDING
            if self._masks_changed:
                pending |= status == Status.SKIPPED
            self.total += int((pending & declared).sum())

    # --- handing out ---

    def _size(self) -> tuple[int, float]:
        left = max(self.total - self.given_out, 1)
        started = self.cost.count > 0 and time.monotonic() - self._started > 1.0
        count = batch_size(self.cost.recent, left, self.executor.workers, started=started)
        return count, self.cost.recent

    def _batches(self) -> Iterator[Batch]:
        lead = self._lead()
        at = 0
        while not self._created and at < len(lead):
            yield Batch(-1, np.zeros(1, dtype=np.int64), lead[at : at + 1], math.inf)
            self.given_out += 1
            at += 1
        if not self._created:
            self._create(())
        handed = np.sort(lead[:at])
        yield from self._coarse(lead[at:])
        handed = np.union1d(handed, lead)
        for block in range(self.store.layout.n_blocks):
            yield from self._block_batches(block, handed)

    def _lead(self) -> NDArray[np.int64]:
        """Runs of the coarse pass in their order, by number in the declared grid."""
        order = self._order
        sizes = tuple(order["sizes"].values())
        disk = random_prefix(order["seed"], math.prod(sizes), order["coarse"])
        dims = tuple(order["sizes"])
        at = dict(zip(dims, np.unravel_index(disk, sizes), strict=True))
        runs = np.zeros(len(disk), dtype=np.int64)
        declared = np.ones(len(disk), dtype=bool)
        for number, dim in enumerate(dims):
            positions = self._placement.declared[number][at[dim]]
            declared &= positions >= 0
            runs += positions * self._strides[dim]
        runs = runs[declared]
        if self._created:
            runs = runs[self._pending(runs)]
        return runs[self.grid.valid(self.grid.index(runs))] if self.grid.masks else runs

    def _pending(self, runs: NDArray[np.int64]) -> NDArray[np.bool_]:
        pending = np.zeros(len(runs), dtype=bool)
        disk = self._disk(runs)
        lookup = {int(one): at for at, one in enumerate(disk)}
        layout = self.store.layout
        for number, cells in by_block(layout, disk):
            box = layout.box(number)
            status = self.store.read("status", box).ravel()[cells]
            shape = tuple(part.stop - part.start for part in box)
            inner = np.unravel_index(cells, shape)
            outer = tuple(i + part.start for i, part in zip(inner, box, strict=True))
            flat = np.ravel_multi_index(outer, layout.shape)
            rows = np.array([lookup[int(one)] for one in flat], dtype=np.intp)
            pending[rows] = status == Status.PENDING
        return pending

    def _disk(self, runs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Flat position on disk of declared runs."""
        index = self.grid.index(runs)
        dims = self.store.layout.dims
        at = tuple(self._on_disk[dim][index[dim]] for dim in dims)
        return np.ravel_multi_index(at, self.store.layout.shape).astype(np.int64)

    def _coarse(self, runs: NDArray[np.int64]) -> Iterator[Batch]:
        at = 0
        while at < len(runs):
            count, _ = self._size()
            piece = runs[at : at + max(64, count * self.store.layout.n_blocks)]
            at += len(piece)
            for block, cells in by_block(self.store.layout, self._disk(piece)):
                numbers = self._runs_in(self.store.layout.box(block))[cells]
                yield from self._counted(cut(block, cells, numbers, self._size))

    def _block_batches(self, number: int, handed: NDArray[np.int64]) -> Iterator[Batch]:
        block = self._blocks.get(number)
        runs = self._runs_in(block.box)
        pending = block.status == Status.PENDING
        if self._masks_changed:
            pending |= block.status == Status.SKIPPED
        cells = np.flatnonzero(pending & (runs >= 0))
        if len(cells) and self.grid.masks:
            valid = self.grid.valid(self.grid.index(runs[cells]))
            block.mark(cells[~valid], Status.SKIPPED)
            self.counts[Status.SKIPPED] += int((~valid).sum())
            cells = cells[valid]
        if len(cells):
            block.mark(cells, Status.PENDING)
        self._blocks.expected[number] = len(cells)
        if not len(cells):
            self._blocks.settle(number)
        if len(handed):
            cells = cells[~np.isin(runs[cells], handed, assume_unique=True)]
        yield from self._counted(cut(number, cells, runs[cells], self._size))

    def _counted(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self.given_out += len(batch)
            yield batch

    # --- taking results ---

    def _take(self, outcome: Outcome) -> None:
        result = outcome.result
        self.cost = self.cost.after(result.duration)
        self._busy_seconds += float(result.duration.sum())
        self.notes.update(result.notes)
        if self._created:
            self._settle(outcome)
            return
        self._early.append(outcome)
        if (result.status == Status.DONE).any():
            self._create(self._learn(outcome))

    def _learn(self, outcome: Outcome) -> tuple[Variable, ...]:
        made: list[Variable] = []
        for name, groups in outcome.result.columns.items():
            variable = learnt(name, groups[0], self.sweep.outputs.get(name))
            made.append(variable)
            if variable.pad is not None:
                made.append(length_variable(variable))
        return tuple(made)

    def _create(self, outputs: Sequence[Variable]) -> None:
        """Make the store for the outputs known by now and put the early results in."""
        variables = {variable.name: variable for variable in (*KEEPING, *outputs)}
        per_run = sum(variable.bytes_per_run for variable in variables.values())
        sizes = self.grid.sizes
        layout = Layout(sizes, block_shape(tuple(sizes.values()), per_run), variables)
        if outputs:
            self._check_outputs(layout)
            self._check_requirements(layout)
        with self.store.rewriting() as fresh:
            fresh.create(layout, self.grid.parameters, self._declaration({}))
        self._created = True
        self._blocks = Blocks(self.store)
        early, self._early = self._early, []
        for outcome in early:
            self._settle(outcome)

    def _check_outputs(self, layout: Layout) -> None:
        taken = {*self.grid.names, *self.grid.dims, *(name for name, _ in self.grid.derived)}
        taken |= {dim for one in self.grid.parameters for dim in one.dims}
        for variable in layout.variables.values():
            for clash in {variable.name, *variable.dims} & taken:
                raise ValueError(
                    f"output {variable.name!r} has a name or dim, {clash!r}, of a parameter or "
                    "dim of the grid; rename one"
                )

    def _check_requirements(self, layout: Layout) -> None:
        names = [variable.name for variable in layout.outputs] + list(self.grid.scalars)
        dims = {dim for variable in layout.outputs for dim in variable.dims}
        for one in self.sweep.requirements:
            one.check(names, dims=dims | set(self.grid.dims), run_dims=self.grid.dims)

    def _settle(self, outcome: Outcome) -> None:
        batch, result = outcome.batch, outcome.result
        if not self.store.layout.outputs and result.columns:
            self._add_outputs(self._learn(outcome))
        status = result.status.copy()
        errors = dict(result.errors)
        logs = dict(result.logs)
        values = self._fitted(result.columns, status, errors)
        for invalid in np.flatnonzero(status == Status.INVALID).tolist():
            logs.setdefault(invalid, f"{errors[invalid]}\n")
        n = len(status)
        sizes = np.zeros(n, dtype=np.int32)
        for row, text in logs.items():
            sizes[row] = len(text)
        values["duration"] = (None, result.duration)
        values["code"] = (None, np.full(n, self._code, dtype=np.int16))
        values["log_size"] = (None, sizes)
        block, cells = batch.block, batch.cells
        if block < 0:
            block, cells = next(iter(by_block(self.store.layout, self._disk(batch.runs))))
        self._blocks.put(block, Cells(cells, status, values, {"error": errors, "log": logs}))
        for one, count in zip(*np.unique(status, return_counts=True), strict=True):
            self.counts[int(one)] += int(count)
        if errors and self.settings.retry:
            errors = self._set_aside(batch, status, errors)
        if errors:
            self._judge_errors(batch, status, errors, logs)
        self._count_failures(batch, status, values)

    def _add_outputs(self, outputs: tuple[Variable, ...]) -> None:
        """Add outputs to a store whose first runs had none."""
        variables = {**self.store.layout.variables, **{one.name: one for one in outputs}}
        layout = replace(self.store.layout, variables=variables)
        self._check_outputs(layout)
        self._check_requirements(layout)
        self._blocks.flush()
        self.store.add(outputs, _without_stored(self.store.declaration))
        self._reopen_blocks()

    def _reopen_blocks(self) -> None:
        expected = self._blocks.expected
        self._blocks = Blocks(self.store, expected=expected)

    def _fitted(
        self,
        columns: Mapping[str, list[Column]],
        status: NDArray[np.int8],
        errors: dict[int, str],
    ) -> dict[str, tuple[NDArray[np.intp] | None, NDArray[Any]]]:
        """Columns typed as the store has them; rows that do not fit become invalid."""
        known = {
            variable.name: variable
            for variable in self.store.layout.outputs
            if "derived" not in variable.attrs
        }
        parts: dict[str, list[tuple[NDArray[np.intp], NDArray[Any]]]] = {}
        whole: dict[str, tuple[None, NDArray[Any]]] = {}
        done = status == Status.DONE
        for name, groups in columns.items():
            for column in groups:
                rows = np.arange(len(status)) if column.rows is None else column.rows
                if name not in known:
                    told = f"output {name!r} was not returned by the first run; outputs are " + (
                        ", ".join(known) or "none"
                    )
                    _invalidate(rows, told, status, errors)
                    continue
                variable = known[name]
                told_shape = shape_fault(variable, column)
                if told_shape is not None:
                    _invalidate(rows, told_shape, status, errors)
                    continue
                if column.dtype != variable.dtype:
                    self._widen_for(variable, column)
                    variable = self.store.layout.variables[name]
                if column.dtype == variable.dtype:
                    values = column.values
                    kept = np.ones(len(rows), dtype=bool)
                else:
                    values, kept = _cast_rows(name, column, variable.dtype, rows, status, errors)
                if column.rows is None and kept.all():
                    whole[name] = (None, values)
                else:
                    parts.setdefault(name, []).append((rows[kept], values[kept]))
                if column.lengths is not None:
                    lengths = f"{name}_length"
                    parts.setdefault(lengths, []).append((rows[kept], column.lengths[kept]))
        joined: dict[str, tuple[NDArray[np.intp] | None, NDArray[Any]]] = dict(whole)
        for name, pieces in parts.items():
            joined[name] = (
                np.concatenate([rows for rows, _ in pieces]),
                np.concatenate([values for _, values in pieces]),
            )
        for name in known:
            if name in joined and known[name].dtype in ("int64", "uint64"):
                self._note_wide(name, joined[name][1])
            if name in whole:
                continue
            present = np.zeros(len(status), dtype=bool)
            for rows, _ in parts.get(name, ()):
                present[rows] = True
            lacking = np.flatnonzero(done & ~present & (status == Status.DONE))
            _invalidate(lacking, f"output {name!r} was not returned", status, errors)
        return joined

    def _note_wide(self, name: str, values: NDArray[Any]) -> None:
        """Mark a variable that holds integers which a float64 cannot."""
        variable = self.store.layout.variables[name]
        if WIDE_NOTE in variable.attrs or not values.size:
            return
        if int(values.max()) > 2**53 or int(values.min()) < -(2**53):
            self.store.note(name, {WIDE_NOTE: WIDE_TEXT})

    def _widen_for(self, variable: Variable, column: Column) -> None:
        """Store a variable in a wider data type if that holds old and new values exactly."""
        said = self.sweep.outputs.get(variable.name)
        wide = joined_dtype(variable.dtype, column.dtype)
        if (
            wide is None
            or wide == variable.dtype
            or (said is not None and said.dtype is not None)
            or (variable.name, wide) in self._unwidened
        ):
            return
        self._blocks.flush()
        layout = self.store.layout
        try:
            cast_exactly(variable.name, column.values, column.dtype, wide)
            for block in range(layout.n_blocks):
                values = self.store.read(variable.name, layout.box(block))
                cast_exactly(variable.name, values, variable.dtype, wide)
        except Misfit:
            self._unwidened.add((variable.name, wide))
            return
        declaration = _without_stored(self.store.declaration)
        changed = replace(variable, dtype=wide)
        variables = {**layout.variables, variable.name: changed}
        axes = self.store.parameter_values(declaration["parameters"])
        with self.store.rewriting() as fresh:
            fresh.create(replace(layout, variables=variables), tuple(axes.values()), declaration)
            for block in range(layout.n_blocks):
                box = layout.box(block)
                for one in layout.variables.values():
                    values = self.store.read(one.name, box)
                    if one.name == variable.name:
                        values = values.astype(np.dtype(wide))
                        if changed.fill != variable.fill:
                            empty = self.store.read("status", box) != Status.DONE
                            values[empty] = changed.fill
                    if one.dtype == "str":
                        values = values.astype(np.dtypes.StringDType())
                    whole = tuple(slice(0, n) for n in one.shape)
                    fresh.write(one.name, box + whole, values)
        self._reopen_blocks()

    def _judge_errors(
        self,
        batch: Batch,
        status: NDArray[np.int8],
        errors: Mapping[int, str],
        logs: Mapping[int, str],
    ) -> None:
        for row, text in errors.items():
            if status[row] == Status.ERROR:
                self.errors[text.partition(":")[0]] += 1
            else:
                self.errors[Status(status[row]).word] += 1
        if self.ending is not None:
            return
        if self.settings.on_error == "raise":
            row = min(errors)
            point = self._point(int(batch.runs[row]))
            self.ending = RunError(
                f"the run at {point} ended with {errors[row]}\n{logs.get(row, '')}"
            )
            self.stop()
        elif self._too_many():
            count = sum(self.errors.values())
            top = ", ".join(f"{kind} ({n})" for kind, n in self.errors.most_common(3))
            self.ending = TooManyErrorsError(
                f"{count} of {self._settled()} runs did not succeed, more than "
                f"max_errors={self.settings.max_errors!r} allows: {top}"
            )
            self.stop()

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
            else:
                final[row] = text
        return final

    def _retried(self) -> Iterator[Batch]:
        """Runs set aside, one a batch; on disk they are pending again before they are run."""
        runs = np.concatenate(self._again)
        self._again = []
        placed = list(by_block(self.store.layout, self._disk(runs)))
        for number, cells in placed:
            block = self._blocks.get(number)
            for one in block.status[cells].tolist():
                self.counts[one] -= 1
            block.mark(cells, Status.PENDING)
            block.flush()
        for number, cells in placed:
            numbers = self._runs_in(self.store.layout.box(number))[cells]
            for at in range(len(cells)):
                part = slice(at, at + 1)
                yield Batch(number, cells[part], numbers[part], self.cost.recent)

    def _settled(self) -> int:
        return sum(n for one, n in self.counts.items() if one != Status.SKIPPED)

    def _too_many(self) -> bool:
        limit = self.settings.max_errors
        if limit is None:
            return False
        count = sum(self.errors.values())
        if isinstance(limit, float):
            return self._settled() >= min(20, self.total) and count > limit * self._settled()
        return count > limit

    def _point(self, run: int) -> str:
        index = self.grid.index(np.array([run]))
        named = self.grid.columns(index, self.grid.scalars)
        return ", ".join(f"{name}={values[0]}" for name, values in named.items())

    def _count_failures(
        self,
        batch: Batch,
        status: NDArray[np.int8],
        values: Mapping[str, tuple[NDArray[np.intp] | None, NDArray[Any]]],
    ) -> None:
        wanted = [one for one in self.sweep.requirements if not one.needs_code]
        done = np.flatnonzero(status == Status.DONE)
        if not wanted or not len(done):
            return
        import xarray as xr

        from sweepkit.requirements import fails

        names = set().union(*(one.expression.names for one in wanted))
        handed: dict[str, xr.Variable] = {}
        lengths: dict[str, tuple[str, xr.Variable]] = {}
        for name in names:
            if name in self.grid:
                index = self.grid.index(batch.runs[: len(status)][done])
                column = self.grid.columns(index, (name,))[name]
                handed[name] = xr.Variable(("run",), column)
                continue
            variable = self.store.layout.variables[name]
            picked = _rows_of(values[name], done, len(status))
            if variable.dtype in ("datetime64[ns]", "timedelta64[ns]"):
                picked = picked.astype(variable.dtype)
            handed[name] = xr.Variable(("run", *variable.dims), picked)
            if variable.pad is not None:
                length = _rows_of(values[f"{name}_length"], done, len(status))
                lengths[name] = (variable.pad, xr.Variable(("run",), length))
        self.failed += int(fails(wanted, handed, run_dims=("run",), lengths=lengths).sum())

    # --- writing and telling ---

    def _maybe_flush(self) -> None:
        if not self._created:
            return
        now = time.monotonic()
        slow = self.cost.recent > SLOW
        pause = 0.0 if slow else 1.0
        if now - self._flushed >= max(pause, self._flush_pause):
            self._blocks.flush()
            after = time.monotonic()
            self._flush_pause = 10 * (after - now)
            self._flushed = after
        if self._blocks.nbytes > OPEN_BYTES:
            self._blocks.trim()

    def progress(self, state: str = "running") -> Progress:
        """How far the session is."""
        elapsed = time.monotonic() - self._started
        counts = {NAMES[one]: count for one, count in sorted(self.counts.items()) if count}
        ran = self._settled()
        left = max(self.total - sum(self.counts.values()), 0)
        workers = self.executor.workers
        expected, low, high = self.cost.remaining(left, workers)
        if elapsed > 1 and ran:
            by_rate = left * elapsed / ran
            factor = by_rate / expected if expected and expected > 0 else 1.0
            factor = max(factor, 1.0)
            expected, low, high = expected * factor, low * factor, high * factor
        rate = ran / elapsed if elapsed > 0 and ran else math.nan
        return Progress(
            self.total,
            counts,
            self.failed,
            elapsed,
            rate,
            (expected, low, high),
            dict(self.errors),
            state,
        )

    def _tell(self, state: str, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._reported >= REPORT_SECONDS:
            self._reported = now
            self.report(self.progress(state))

    def _account(self) -> None:
        """Write this session's account beside the store."""
        said = {
            "began": self._first_start,
            "ended": time.time(),
            "workers": self.executor.workers,
            "executor": type(self.executor).__name__,
            "runs": {NAMES[one]: count for one, count in sorted(self.counts.items()) if count},
            "failed": self.failed,
            "used_seconds": self._busy_seconds,
            "errors": dict(self.errors.most_common(50)),
            "notes": dict(self.notes.most_common(50)),
            "interrupted": self.interrupted,
            "environment": environment(),
        }
        folder = self.store.beside / "sessions"
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._first_start))
        name = f"{stamp}-{self._first_start % 1:.6f}".replace("-0.", "-")
        with suppress(OSError):  # an account is not worth failing for on a full disk
            folder.mkdir(exist_ok=True)
            replace_file(folder / f"{name}.json", json.dumps(said, indent=1))


def _invalidate(
    rows: NDArray[np.intp], told: str, status: NDArray[np.int8], errors: dict[int, str]
) -> None:
    for row in rows.tolist():
        if status[row] == Status.DONE:
            status[row] = Status.INVALID
            errors[row] = told


def _cast_rows(
    name: str,
    column: Column,
    dtype: str,
    rows: NDArray[np.intp],
    status: NDArray[np.int8],
    errors: dict[int, str],
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    kept = np.ones(len(rows), dtype=bool)
    try:
        return cast_exactly(name, column.values, column.dtype, dtype), kept
    except Misfit:
        pass
    target = (
        np.dtype(object)
        if dtype == "str"
        else np.dtype("int64" if dtype.endswith("[ns]") else dtype)
    )
    values = np.zeros(column.values.shape, dtype=target)
    for at, row in enumerate(rows.tolist()):
        try:
            values[at] = cast_exactly(name, column.values[at], column.dtype, dtype)
        except Misfit as misfit:
            kept[at] = False
            _invalidate(np.array([row]), str(misfit), status, errors)
    return values, kept


def _rows_of(
    given: tuple[NDArray[np.intp] | None, NDArray[Any]], wanted: NDArray[np.intp], n: int
) -> NDArray[Any]:
    rows, values = given
    if rows is None:
        return values[wanted]
    at = np.zeros(n, dtype=np.intp)
    at[rows] = np.arange(len(rows))
    return values[at[wanted]]


def _declared_order(found: Match, declaration: Mapping[str, Any]) -> dict[str, Any]:
    """For each dim the positions on disk in declared order, where it is not the same.

    Values of the store that are not declared any more follow the one that they followed before.
    """
    order: dict[str, Any] = {}
    old = declaration.get("axes", {})
    for dim, positions in found.on_disk.items():
        size = max(one.size for one in found.parameters if one.dim == dim)
        listed = _merged(old.get(dim), positions.tolist(), size)
        if listed != list(range(size)):
            order[dim] = listed
    return order


def _merged(before: list[int] | None, declared: list[int], size: int) -> list[int]:
    if len(declared) == size:
        return declared
    wanted = set(declared)
    earlier = before if before is not None else range(size)
    followers: dict[int | None, list[int]] = {}
    last: int | None = None
    for position in [*earlier, *sorted(set(range(size)) - set(earlier))]:
        if position in wanted:
            last = position
        else:
            followers.setdefault(last, []).append(position)
    merged = list(followers.get(None, []))
    for position in declared:
        merged.append(position)
        merged += followers.get(position, [])
    return merged


def _without_stored(declaration: Mapping[str, Any]) -> dict[str, Any]:
    return {name: said for name, said in declaration.items() if name != "stored"}


def _was_of(declaration: Mapping[str, Any]) -> dict[str, Parameter]:
    made = {}
    roles = {said["name"]: said for said in declaration["parameters"]}
    for name, said in declaration.get("was", {}).items():
        kinds = {"datetime": "datetime64[ns]", "timedelta": "timedelta64[ns]"}
        value = said["value"]
        if said["kind"] in kinds:
            values = np.array([value], dtype="int64").astype(kinds[said["kind"]])
        elif said["kind"] in ("str", "label"):
            values = np.array([value], dtype=object)
        else:
            values = np.array([value])
        objects = (value,) if said["kind"] == "label" else None
        dims = tuple(roles[name]["dims"]) if name in roles else (name,)
        made[name] = Parameter(name, values, dims, objects=objects)
    return made


def _json_value(value: Any) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        return int(value.astype("int64"))
    return value.item() if isinstance(value, np.generic) else value


def environment() -> dict[str, str]:
    """What the runs are made with."""
    from importlib.metadata import version

    packages = ("sweepkit", "numpy", "xarray", "zarr", "joblib")
    found = {}
    for name in packages:
        with suppress(ImportError):
            found[name] = version(name)
    return {
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        **found,
    }

"""Where plan, executor and store meet: one session of a sweep."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweepkit import packages
from sweepkit.amend import restore
from sweepkit.blocks import Blocks, Cells
from sweepkit.cost import Cost, Costs
from sweepkit.declaration import MOST_VALUES, document
from sweepkit.equipment import equipped
from sweepkit.evaluate import Task
from sweepkit.fit import Fit, Piece, Rows, learnt_outputs
from sweepkit.format1 import KEEPING, WIDE_NOTE, WIDE_TEXT, Layout, Variable, block_shape
from sweepkit.handout import OPEN_BYTES, Handout
from sweepkit.judge import (
    RunError,
    Tally,
    TooManyErrorsError,
    error_kind,
    failing,
    told_too_many,
    too_many,
)
from sweepkit.outputs import Column, joined_dtype, learnt_coords
from sweepkit.parameters import Parameter
from sweepkit.plan import Placement, by_block, random_order
from sweepkit.protocols import (
    Batch,
    Crew,
    Executor,
    Outcome,
    Store,
    StoreError,
    UnwritableError,
    everyone,
)
from sweepkit.receipt import Meter, SessionAccount, environment, write_declaration
from sweepkit.request import Request
from sweepkit.resume import (
    Match,
    StaleCodeError,
    changed_objects,
    code_number,
    declared_order,
    match,
    neutral_parameters,
    object_identities,
    settled_values,
    stale_codes,
    was_from_json,
    was_to_json,
)
from sweepkit.rewrite import holds_nothing, rejoin, retype
from sweepkit.simulator import (
    cell_sources,
    patchable,
    refuse_own_store_of,
    unsettles,
    uses_global_random,
)
from sweepkit.status import Example, Progress, Status
from sweepkit.sweep import Sweep
from sweepkit.vectorized import CallCost, Vectorized

__all__ = ["MAX_RUNS", "Session", "Settings"]

Coords: TypeAlias = Mapping[str, NDArray[Any]]

MAX_RUNS = 10**6
UNSUCCESSFUL = (Status.ERROR, Status.TIMEOUT, Status.CRASHED, Status.INVALID)
REPORT_SECONDS = 0.2
SLOW = 0.1
"""Runs that take longer, in seconds, are written to the store at once."""
CHUNK_SECONDS = 0.002
"""What writing a chunk takes, in seconds, as far as is known beforehand."""
MOST_LEAVING = 2
"""Complete blocks that may wait to be written, chunk by chunk between results."""
LEARNT_RUNS = 32
"""Runs of a batch, at most, from which costs are learnt."""
LEAST_LIMIT = 1.0
"""Smallest time limit, in seconds, that follows from a factor of the mean duration."""
FIRST_LIMIT = 600.0
"""Time limit, in seconds, while no run is done from which a factor could tell one."""


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
    request : Request or None
        Limits at which to stop.
    pilot : int or None
        Run only so many runs, far apart.
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
    request: Request | None = None
    pilot: int | None = None


class Session:
    """One session: hold the store, run what is pending, write, account.

    Parameters
    ----------
    sweep : Sweep
    store : Store
    executor : Executor
    settings : Settings
    report : callable
        Called with a Progress now and then.
    """

    def __init__(
        self,
        sweep: Sweep,
        store: Store,
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
        self._usual = Cost()
        self._calls = CallCost()
        self.costs = Costs.of(sweep.grid, sweep.cost)
        self.meter = Meter()
        self.tally = Tally()
        self.total = 0
        self.state = "declared"
        self.pausing = False
        self.stop_wishes = 0
        self.interrupted = False
        self.ending: Exception | None = None
        self._blocks = Blocks(store)
        self._placement = Placement.same(sweep.grid.sizes)
        self._early: list[Outcome] = []
        self._again: list[NDArray[np.int64]] = []
        self._tries: Counter[int] = Counter()
        self._aside: Counter[str] = Counter()
        self._created = False
        self._codes: list[dict[str, Any]] = []
        self._objects: dict[str, dict[str, Any]] = {}
        self._code = 0
        self._was: dict[str, Parameter] = {}
        self._unwidened: set[tuple[str, str]] = set()
        self._limited = settings.request is not None and settings.request.limited
        self._pilot: NDArray[np.int64] | None = None
        self._asked = time.monotonic()
        self._queued = 0.0
        self._environment = {**environment(), **packages.used(sweep)}
        self.account = SessionAccount(store, time.time())
        self._started = self._flushed = self._reported = time.monotonic()
        self._flush_pause = 0.0
        self._paused_at: float | None = None
        self._paused_seconds = 0.0
        self._examples: list[Example] = []

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
        refuse_own_store_of(self.sweep.simulator, self.store.path)
        try:
            with self.store.hold():
                self._prepare()
                self._reckon()
                try:
                    self._run_pending()
                except BaseException:
                    self._account("failed", at_once=True)
                    raise
                self._account(self._ending(), at_once=True)
                known = document(self.sweep, cost=self.cost, most_values=MOST_VALUES)
                write_declaration(self.store, known)
        except UnwritableError:
            if not self._complete():
                raise
            self._enter("done")
        if self.interrupted:
            raise KeyboardInterrupt
        if self.ending is not None:
            raise self.ending

    def _reckon(self) -> None:
        """See what is to be run, and what it is known to cost."""
        self._handout = self._new_handout()
        self.costs = Costs.of(self.grid, self.sweep.cost)
        if self._created:
            for runs, seconds in self._handout.stored():
                self.costs = self.costs.after(runs, seconds)
        if self.settings.pilot is not None:
            self._pilot = self._handout.pilot(self.settings.pilot, created=self._created)
            self.total = len(self._pilot)
        self.account.close_killed()

    def _run_pending(self) -> None:
        if self.total:
            with self._listening():
                self._hold_and_run()
        else:
            if not self._created:
                self._create((), {})
            self._enter("cancelled" if self.stop_wishes else "done")
        self.tally.errors.update(self._aside)  # for a retry that did not come
        most = self.settings.max_errors
        if isinstance(self.ending, TooManyErrorsError) and most is not None:
            self.ending = told_too_many(self.tally, most)

    def declared(self) -> dict[str, NDArray[np.int64]]:
        """For dims of which the store holds more, positions of what the sweep declares.

        Positions are in the order in which the store is opened.
        """
        if not self._created:
            return {}  # the store is not looked at yet
        orders = self.store.declaration.get("axes", {})
        chosen = {}
        for dim, positions in self._placement.on_disk.items():
            size = self.store.layout.sizes[dim]
            if len(positions) < size:
                order = np.asarray(orders.get(dim, range(size)))
                chosen[dim] = np.argsort(order)[positions]
        return chosen

    def stop(self) -> None:
        """Ask the session to end soon; runs in flight become pending."""
        self.stop_wishes += 1

    def pause(self) -> None:
        """Ask that no more runs are begun; those in flight end, and workers are let go."""
        self.pausing = True

    def resume(self) -> None:
        """Ask to go on after a pause."""
        self.pausing = False

    def outlook(self) -> tuple[int, float]:
        """Runs that are still to be finished, and the seconds that one takes; NaN while unknown."""
        return max(self.total - self.tally.counts.total(), 0), self.cost.mean

    def _stopping(self) -> bool:
        return self.stop_wishes > 0 or (self._limited and self._time_left()[0] <= 0)

    def _share(self, using: int) -> int:
        """Workers that may be used: none during a pause; a crew asks now and then."""
        paused = self.pausing and not self.stop_wishes
        if paused != (self._paused_at is not None):
            now = time.monotonic()
            if self._paused_at is not None:
                self._paused_seconds += now - self._paused_at
            self._paused_at = now if paused else None
            self._enter("paused" if paused else "running")
        if paused:
            self._maybe_flush()  # a pause may be long, and a kill may end it
        self._tell()
        return 0 if paused else everyone(using)

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
            self.store.folder("scratch") if self.settings.keep_scratch else None,
            patchable(self.sweep.simulator),
            unsettles(self.sweep.simulator),
            self.settings.on_error == "raise" and not self.settings.retry,
        )
        limited = any(one is not None for one in self.settings.timeout)
        self._enter("queued")
        self._account("queued", at_once=True)
        try:
            self._hold(task, self._limit if limited else None)
        finally:
            self.meter.stop()
        self._enter("collecting")
        if not self._created:
            self._create((), {})
        self._blocks.close()
        self._enter("cancelled" if self.stop_wishes else "done")

    def _hold(self, task: Task, timeout: Callable[[], float | None] | None) -> None:
        """Hold compute and run on it; the meter runs while it is held."""
        with (
            equipped(task, self.sweep, self.store) as task,
            self.executor.hold(task, timeout=timeout) as crew,
        ):
            self.meter.start()
            self._started = time.monotonic()
            self._queued = self._started - self._asked
            self._account("running", at_once=True)
            self._enter("held")
            try:
                self._drive(crew)
            except BaseException:
                if self._created:
                    with suppress(StoreError):  # finished runs are kept, unless it is the store
                        self._blocks.flush()
                with suppress(Exception):
                    self._enter("failed")
                raise

    def _limit(self) -> float | None:
        """Seconds that a run may take; a factor is one of the mean of those that are done."""
        seconds, factor = self.settings.timeout
        if factor is None:
            return seconds
        if not self._usual.count:
            return FIRST_LIMIT
        vectorized = isinstance(self.sweep.simulator, Vectorized)
        mean = self._calls.seconds if vectorized else self._usual.mean  # of what is killed at once
        return max(factor * mean, LEAST_LIMIT)

    def _drive(self, crew: Crew) -> None:
        self._map(crew, self._batches())
        for _ in range(max(self.settings.retry.values(), default=0)):
            if self._stopping() or not self._again:
                break
            self._map(crew, self._handout.fitting(self._retried()))

    def _map(self, crew: Crew, batches: Iterator[Batch]) -> None:
        outcomes = crew.map(self._begun(batches), self._stopping, self._share)
        try:
            for outcome in outcomes:
                if outcome is not None:
                    self._take(outcome)
                self._maybe_flush()
                self._tell()
        finally:
            close = getattr(outcomes, "close", None)
            if close is not None:
                close()

    def _begun(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if self.state == "held":
                self._enter("running")
            yield batch

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Turn SIGINT, SIGTERM and SIGHUP into a wish to stop, where this thread gets them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ended_by: int | None = None

        def wish(number: int, _: object) -> None:
            nonlocal ended_by
            self.stop()
            if number == signal.SIGINT:
                self.interrupted = True
                if getattr(self.executor, "running_here", lambda: False)():
                    raise KeyboardInterrupt
            else:
                ended_by = number

        before = {}
        for number, usual in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, signal.SIG_DFL),
            (signal.SIGHUP, signal.SIG_DFL),
        ):
            if signal.getsignal(number) is usual:
                before[number] = signal.signal(number, wish)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if ended_by is not None:
                signal.raise_signal(ended_by)

    # --- before the first run ---

    def _prepare(self) -> None:
        now = self.sweep.identity
        if not self.store.exists():
            self._codes = [{"identity": now.to_json(), "accepted": []}]
            self._objects = object_identities(self.grid)
            self._was = neutral_parameters(self.settings.was, self.grid, ())
            self.total = self.grid.size
            return
        self.store.open()
        declaration = self.store.declaration
        restore(self.store)  # before anything reads statuses, which may be damaged
        found, stale, relabelled = self._meet(declaration)
        fresh = self.sweep.declaration()
        if any(declaration[word] != fresh[word] for word in ("masks", "derived")) or any(
            "code" in mask for mask in declaration["masks"]
        ):
            self._unskip()
        self._created = True
        self._settle_layout(found, declaration)
        self._check_outputs(self.store.layout)
        if self.store.layout.outputs:
            self._check_requirements(self.store.layout)
        self._reset(stale, relabelled)

    def _meet(
        self, declaration: Mapping[str, Any]
    ) -> tuple[Match, tuple[int, ...], dict[str, NDArray[np.intp]]]:
        """How the sweep lies in the store; which of its runs are to be made again."""
        now = self.sweep.identity
        self._was = settled_values(
            was_from_json(declaration),
            neutral_parameters(self.settings.was, self.grid, declaration["parameters"]),
            declaration["parameters"],
            path=self.store.path,
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
        return found, stale, self._judge_objects(declaration.get("objects", {}), stored)

    def _complete(self) -> bool:
        """Whether a store that cannot be written holds all that is asked for, as it is."""
        try:
            self.store.peek()
        except StoreError:
            return False
        layout, declaration = self.store.layout, self.store.declaration
        found, stale, relabelled = self._meet(declaration)
        grown = {**layout.sizes, **{one.dim: one.size for one in found.parameters}}
        order = declared_order(found, declaration)
        # Another machine may read it, whose packages are others.
        fresh = self._declaration(order, grown, declaration["environment"])
        where = {"simulator", "setup"}  # the code is found tells nothing of what it computes
        kept = {k: v for k, v in _without_stored(declaration).items() if k not in where}
        fresh = {k: v for k, v in json.loads(json.dumps(fresh)).items() if k not in where}
        if found.joined or found.retyped or found.grows or stale or relabelled or fresh != kept:
            return False
        self._placement = Placement.of(self.grid.sizes, layout.sizes, found.on_disk)
        unsettled = [int(one) for one in (Status.PENDING, *self.settings.rerun)]
        for block in range(layout.n_blocks):
            box = layout.box(block)
            status = self.store.read("status", box)
            declared = self._placement.runs(box).reshape(status.shape) >= 0
            if (declared & np.isin(status, unsettled)).any():
                return False
        return True

    def _judge_code(self, now: Any) -> tuple[int, ...]:
        """Which code versions are to be run again; a changed one is asked about first."""
        stale = stale_codes(self._codes, now)
        rerun: tuple[int, ...] = ()
        asked = stale if self.settings.stale == "ask" else ()
        made = [changed for number, changed in asked if self._any_made_by([number])]
        if made:
            told = "\n".join(f"  - {one}" for one in made[-1])
            raise StaleCodeError(
                f"the code of {self.sweep.name!r} has changed since runs in {self.store.path} "
                f"were made:\n{told}\nnothing was deleted; say sk.run(..., stale='keep') to keep "
                "those runs, stale='rerun' to run them again, or use another path"
            )
        if self.settings.stale == "keep":
            for number, _ in stale:
                kept = self._codes[number].get("accepted") or []
                self._codes[number]["accepted"] = [*kept, now.digest]
        elif self.settings.stale == "rerun":
            told_or_not = [{**one, "accepted": []} for one in self._codes]
            rerun = tuple(number for number, _ in stale_codes(told_or_not, now))
        known = code_number(self._codes, now)
        if known is None:
            self._codes.append({"identity": now.to_json(), "accepted": []})
            known = len(self._codes) - 1
        self._code = known
        return rerun

    def _judge_objects(
        self, before: Mapping[str, Any], stored: Mapping[str, Parameter]
    ) -> dict[str, NDArray[np.intp]]:
        """Positions on disk, by dim, of labels whose runs are to be made again."""
        now = object_identities(self.grid)
        self._objects = {
            name: {**before.get(name, {}), **now.get(name, {})} for name in {*before, *now}
        }
        positions: dict[str, NDArray[np.intp]] = {}
        for name, label in changed_objects(before, now):
            at = np.flatnonzero(stored[name].values == label)
            if self.settings.stale == "ask" and self._any_finished(stored[name].dim, at):
                raise StaleCodeError(
                    f"label {label!r} of parameter {name!r} stands for another object than when "
                    f"runs in {self.store.path} were made; nothing was deleted: give the new "
                    "object another label, or say sk.run(..., stale='keep') to keep those runs "
                    "or stale='rerun' to run them again"
                )
            if self.settings.stale == "rerun":
                dim = stored[name].dim
                positions[dim] = np.union1d(positions.get(dim, at), at).astype(np.intp)
        return positions

    def _any_finished(self, dim: str, positions: NDArray[np.intp]) -> bool:
        layout = self.store.layout
        axis = layout.dims.index(dim)
        for block in range(layout.n_blocks):
            box = layout.box(block)
            here = np.isin(np.arange(box[axis].start, box[axis].stop), positions)
            status = np.compress(here, self.store.read("status", box), axis=axis)
            if ((status != Status.PENDING) & (status != Status.SKIPPED)).any():
                return True
        return False

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
        order = declared_order(found, declaration)
        grown = dict(self.store.layout.sizes)
        for one in found.parameters:
            grown[one.dim] = one.size
        fresh = self._declaration(order, grown)
        if found.joined or found.retyped:
            rejoin(self.store, found, self._was, fresh)
        self.store.relabel(found.parameters, {n: o.attrs for n, o in self.sweep.outputs.items()})
        if found.grows:
            self.store.grow(found.parameters, fresh)
        elif _without_stored(self.store.declaration) != json.loads(json.dumps(fresh)):
            self.store.commit(fresh)
        self._blocks = Blocks(self.store)
        self._placement = Placement.of(self.grid.sizes, self.store.layout.sizes, found.on_disk)

    def _declaration(
        self,
        order: Mapping[str, Any],
        sizes: Mapping[str, int],
        made_with: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return {
            **self.sweep.declaration(),
            "order": random_order(sizes),
            "axes": dict(order),
            "codes": self._codes,
            "objects": self._objects,
            "was": was_to_json(self._was),
            "environment": self._environment if made_with is None else made_with,
        }

    def _reset(self, stale: tuple[int, ...], relabelled: Mapping[str, NDArray[np.intp]]) -> None:
        """Set runs that are to be tried again back to pending, on disk, and count what is."""
        layout = self.store.layout
        self.total = 0
        for block in range(layout.n_blocks):
            box = layout.box(block)
            status = self.store.read("status", box)
            declared = self._placement.runs(box).reshape(status.shape) >= 0
            again = declared & np.isin(status, [int(one) for one in self.settings.rerun])
            if stale:
                finished = (status != Status.PENDING) & (status != Status.SKIPPED)
                again |= declared & finished & np.isin(self.store.read("code", box), stale)
            for dim, positions in relabelled.items():
                axis = layout.dims.index(dim)
                here = np.isin(np.arange(box[axis].start, box[axis].stop), positions)
                shape = [-1 if at == axis else 1 for at in range(status.ndim)]
                finished = (status != Status.PENDING) & (status != Status.SKIPPED)
                again |= declared & finished & here.reshape(shape)
            if again.any():
                self._throw_away(box, again & (status == Status.DONE))
                status = np.where(again, np.int8(Status.PENDING), status).astype(np.int8)
                self.store.write("status", box, status)
            self.total += int(((status == Status.PENDING) & declared).sum())

    def _throw_away(self, box: tuple[slice, ...], done: NDArray[np.bool_]) -> None:
        """Account for results that are made again."""
        if done.any():
            seconds = self.store.read("duration", box)[done]
            self.tally.wasted_seconds += float(np.nansum(seconds))
            self.tally.repeated += int(done.sum())

    def _unskip(self) -> None:
        """Set what masks of before left out to pending, on disk, before those of now are told.

        So no interruption, and no session that declares a part, leaves a point to an old mask.
        """
        layout = self.store.layout
        for block in range(layout.n_blocks):
            box = layout.box(block)
            status = self.store.read("status", box)
            skipped = status == Status.SKIPPED
            if skipped.any():
                status[skipped] = Status.PENDING
                self.store.write("status", box, status)

    # --- handing out ---

    def _new_handout(self) -> Handout:
        seconds, _ = self.settings.timeout
        return Handout(
            self.grid,
            self.store,
            self._placement,
            self.tally,
            self.total,
            self.executor.workers,
            lambda: self._blocks,
            lambda: self.cost,
            lambda: self.costs,
            lambda: self._time_left()[0],
            math.inf if seconds is None else seconds,
            self._size_of_call if isinstance(self.sweep.simulator, Vectorized) else None,
        )

    def _size_of_call(self, left: int) -> int:
        """Runs of the next batch of a vectorized simulator."""
        assert isinstance(self.sweep.simulator, Vectorized)
        return self._calls.next(left, self.executor.workers, self.sweep.simulator.max_batch)

    def _batches(self) -> Iterator[Batch]:
        handout = self._handout
        first = self._pilot
        if first is None:
            first = handout.first(created=self._created)
        handed: list[NDArray[np.int64]] = []
        at = 0
        while not self._created and at < len(first):
            for batch in handout.single(first[at : at + 1]):
                handed.append(batch.runs)
                yield batch
            at += 1
        if not self._created:
            self._create((), {})
        for batch in handout.coarse(first[at:]):
            handed.append(batch.runs)
            yield batch
        if self._pilot is None:
            known = np.sort(np.concatenate(handed)) if handed else np.zeros(0, dtype=np.int64)
            yield from handout.rest(known)

    def _time_left(self) -> tuple[float, str]:
        """Seconds until the first limit of the request, and what it is."""
        request = self.settings.request
        if request is None or not self._limited:
            return math.inf, ""
        return request.left(self.meter.seconds, self.executor.workers)

    # --- taking results ---

    def _take(self, outcome: Outcome) -> None:
        result = outcome.result
        self.cost = self.cost.after(result.duration)
        self._usual = self._usual.after(result.duration[result.status == Status.DONE])
        self._calls = self._calls.after(len(result), float(result.duration.sum()))
        self._learn(outcome)
        self.tally.busy_seconds += float(result.duration.sum())
        self.tally.wasted_seconds += float(result.duration[result.status != Status.DONE].sum())
        self.tally.notes.update(result.notes)
        if self._created:
            self._settle(outcome)
            return
        if result.misnamed is not None:
            raise ValueError(f"simulator {self.sweep.name!r}: {result.misnamed}")
        self._early.append(outcome)
        if (result.status == Status.DONE).any():
            self._create(*self._learnt(outcome))

    def _learn(self, outcome: Outcome) -> None:
        """Learn the cost of runs, from some of them if they are many."""
        result = outcome.result
        step = -(-len(result) // LEARNT_RUNS)
        rows = np.arange(0, len(result), step)
        rows = rows[result.status[rows] != Status.CRASHED]
        self.costs = self.costs.after(outcome.batch.runs[rows], result.duration[rows])

    def _learnt(self, outcome: Outcome) -> tuple[tuple[Variable, ...], Coords]:
        columns, declared = outcome.result.columns, self.sweep.outputs
        return learnt_outputs(columns, declared), learnt_coords(columns, declared)

    def _create(self, outputs: Sequence[Variable], coords: Coords) -> None:
        """Make the store for the outputs known by now and put the early results in."""
        variables = {variable.name: variable for variable in (*KEEPING, *outputs)}
        per_run = sum(variable.bytes_per_run for variable in variables.values())
        sizes = self.grid.sizes
        layout = Layout(sizes, block_shape(tuple(sizes.values()), per_run), variables, coords)
        if outputs:
            self._check_outputs(layout)
            self._check_requirements(layout)
        with self.store.rewriting() as fresh:
            fresh.create(layout, self.grid.parameters, self._declaration({}, sizes))
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
            self._add_outputs(*self._learnt(outcome))
        status, errors, logs = result.status.copy(), dict(result.errors), dict(result.logs)
        values = Fit(self.store.layout, status, errors, self._widen).values(result.columns)
        for invalid in np.flatnonzero(status == Status.INVALID).tolist():
            logs.setdefault(invalid, f"{errors[invalid]}\n")
        sizes = np.zeros(len(status), dtype=np.int32)
        for row, text in logs.items():
            sizes[row] = len(text)
        self._note_wide(values)
        values["duration"] = (None, result.duration)
        values["code"] = (None, np.full(len(status), self._code, dtype=np.int16))
        values["log_size"] = (None, sizes)
        block, cells = batch.block, batch.cells
        if block < 0:
            disk = self._placement.disk(batch.runs)
            block, cells, _ = next(iter(by_block(self.store.layout, disk)))
        texts = {"error": errors, "log": logs}
        self._blocks.put(block, Cells(cells, status, values, texts, 1 + batch.lost))
        self.tally.add(status)
        if errors and self.settings.retry:
            errors = self._set_aside(batch, status, errors)
        if errors:
            for kind, row in self.tally.add_errors(status, errors).items():
                where = self._point(int(batch.runs[row]))
                self._examples.append(Example(kind, errors[row], where, logs.get(row, "")))
            self._judge(batch, errors, logs)
        self.tally.failed += failing(
            self.sweep.requirements, self.grid, self.store.layout, batch, status, values
        )

    def _add_outputs(self, outputs: tuple[Variable, ...], coords: Coords) -> None:
        """Add outputs to a store whose first runs had none."""
        variables = {**self.store.layout.variables, **{one.name: one for one in outputs}}
        layout = replace(self.store.layout, variables=variables)
        self._check_outputs(layout)
        self._check_requirements(layout)
        self._blocks.flush()
        self.store.add(outputs, coords, self._stored_declaration())
        self._reopen_blocks()

    def _stored_declaration(self) -> dict[str, Any]:
        return _without_stored(self.store.declaration)

    def _reopen_blocks(self) -> None:
        expected = self._blocks.expected
        self._blocks = Blocks(self.store, expected=expected)

    def _note_wide(self, values: Mapping[str, Rows]) -> None:
        """Mark variables that hold integers which a float64 cannot."""
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
        self._blocks.flush()
        typeless = holds_nothing(self.store, variable)
        wide = column.dtype if typeless else joined_dtype(variable.dtype, column.dtype)
        declaration = self._stored_declaration()
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
        if self.ending is not None:
            return
        if self.settings.on_error == "raise":
            row = min(errors)
            point = self._point(int(batch.runs[row]))
            self.ending = RunError(
                f"the run at {point} ended with {errors[row]}\n{logs.get(row, '')}"
            )
        else:
            self.ending = too_many(self.tally, self.settings.max_errors, self.total)
        if self.ending is not None:
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
                self._aside[error_kind(became, text)] += 1
            else:
                final[row] = text
        return final

    def _retried(self) -> Iterator[Batch]:
        """Runs set aside, one a batch; on disk they are pending again before they are run."""
        runs = np.concatenate(self._again)
        self._again = []
        self._aside.clear()
        placed = list(by_block(self.store.layout, self._placement.disk(runs)))
        for number, cells, _ in placed:
            block = self._blocks.get(number)
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

    # --- writing and telling ---

    def _maybe_flush(self) -> None:
        if not self._created:
            return
        now = time.monotonic()
        slow = self.cost.recent > SLOW
        pause = 0.0 if slow else max(1.0, 10 * CHUNK_SECONDS * self._blocks.unwritten)
        if now - self._flushed >= max(pause, self._flush_pause):
            self._blocks.flush()
            self._account("running")
            after = time.monotonic()
            self._flush_pause = 10 * (after - now)
            self._flushed = after
        while self._blocks.step():
            if self._blocks.leaving <= MOST_LEAVING and self.cost.recent < SLOW:
                break
        if self._blocks.nbytes > OPEN_BYTES:
            self._blocks.trim()

    def progress(self) -> Progress:
        """How far the session is."""
        now = time.monotonic() if self._paused_at is None else self._paused_at
        elapsed = now - self._started - self._paused_seconds
        ran = self.tally.settled
        left = max(self.total - sum(self.tally.counts.values()), 0)
        workers = self.executor.workers
        expected, low, high = self.cost.remaining(left, workers)
        if elapsed > 1 and ran and expected > 0:  # as slow as it has been, at least
            factor = max(left * elapsed / ran / expected, 1.0)
            expected, low, high = expected * factor, low * factor, high * factor
        return Progress(
            self.total,
            self.tally.by_name,
            self.tally.failed,
            elapsed,
            ran / elapsed if elapsed > 0 and ran else math.nan,
            (expected, low, high),
            dict(self.tally.errors),
            self.state,
            self.tally.busy_seconds,
            workers,
            bool(self.sweep.requirements),
            tuple(self._examples),
            self.left if self.state == "done" and self.settings.request is not None else "",
        )

    def _enter(self, state: str) -> None:
        self.state = state
        self._tell(at_once=True)

    def _tell(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._reported >= REPORT_SECONDS:
            self._reported = now
            self.report(self.progress())

    def _ending(self) -> str:
        """How the session came to its end, in one word."""
        if self.ending is not None:
            return "failed"
        if self.interrupted or self.stop_wishes:
            return "cancelled"
        return "limit" if self._limited and self.unfinished else "done"

    @property
    def unfinished(self) -> int:
        """Runs of this session that are still pending; at most, while a mask is uncounted."""
        return max(self.total - sum(self.tally.counts.values()), 0)

    @property
    def left(self) -> str:
        """What is left and why; empty if nothing is."""
        if not self.unfinished:
            return ""
        runs = f"{self.unfinished:,} run{'' if self.unfinished == 1 else 's'}"
        if self.ending is not None:
            return f"{runs}: the session ended with {type(self.ending).__name__}"
        if self.interrupted or self.stop_wishes:
            return f"{runs}: the session was stopped"
        seconds, limit = self._time_left()
        if seconds <= 0:
            return f"{runs}: {limit} is reached"
        if self._handout.dropped:
            return f"{runs}: none of them is sure to end within {limit}"
        return runs

    def _account(self, state: str, *, at_once: bool = False) -> None:
        """Write this session's receipt beside the store, if that is due."""
        if not (at_once or self.account.due):
            return
        runs = self.tally.by_name
        said = {
            "state": state,
            "workers": self.executor.workers,
            "executor": type(self.executor).__name__,
            "runs": runs,
            "failed": self.tally.failed,
            "queued_seconds": self._queued,
            "held_seconds": self.meter.seconds * self.executor.workers,
            "used_seconds": self.tally.busy_seconds,
            "wasted": sum(runs.get(one.word, 0) for one in UNSUCCESSFUL) + self.tally.repeated,
            "wasted_seconds": self.tally.wasted_seconds,
            "errors": dict(self.tally.errors.most_common(50)),
            "notes": dict(self.tally.notes.most_common(50)),
            "interrupted": self.interrupted,
            "environment": self._environment,
        }
        if self.settings.request is not None:
            said["request"] = self.settings.request.to_json()
        if state not in ("queued", "running"):
            said["left"] = self.left
        if self._codes:
            said["code"] = self._codes[self._code]["identity"]["digest"]
        self.account.write(said)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _without_stored(declaration: Mapping[str, Any]) -> dict[str, Any]:
    return {name: said for name, said in declaration.items() if name != "stored"}

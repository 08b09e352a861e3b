"""Where plan, executor and store meet: one session of a sweep."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sweepkit import packages
from sweepkit.cost import Costs
from sweepkit.course import Course
from sweepkit.declaration import MOST_VALUES, document
from sweepkit.equipment import equipped
from sweepkit.evaluate import Task
from sweepkit.handout import Handout
from sweepkit.intake import Intake
from sweepkit.meet import Met, check_size, complete, meet
from sweepkit.plan import Placement
from sweepkit.protocols import (
    Awaited,
    Batch,
    Crew,
    Executor,
    Store,
    StoreError,
    UnwritableError,
    everyone,
)
from sweepkit.receipt import SessionAccount, environment, write_declaration
from sweepkit.settings import Settings
from sweepkit.setup import SetupError
from sweepkit.signals import listening
from sweepkit.simulator import (
    cell_sources,
    patchable,
    refuse_own_store_of,
    unsettles,
    uses_global_random,
)
from sweepkit.status import Progress
from sweepkit.sweep import Sweep
from sweepkit.vectorized import Vectorized

__all__ = ["Session"]

REPORT_SECONDS = 0.2
WAIT_SECONDS = 0.05
"""How long, in seconds, until it is looked again whether a worker has come."""
LEAST_LIMIT = 1.0
"""Smallest time limit, in seconds, that follows from a factor of the mean duration."""
FIRST_LIMIT = 600.0
"""Time limit, in seconds, while no run is done from which a factor could tell one."""


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
        self.course = Course(settings.request)
        made_with = {**environment(), **packages.used(sweep)}
        self._met = Met(sweep.grid, Placement.same(sweep.grid.sizes), made_with)
        self._intake = Intake(sweep, store, settings, self._met, self.course)
        self._pilot: NDArray[np.int64] | None = None
        self._receipt = SessionAccount(store, time.time())
        self._reported = time.monotonic()

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
        check_size(self.sweep.grid, self.settings.max_runs)
        refuse_own_store_of(self.sweep.simulator, self.store.path)
        course = self.course
        try:
            with self.store.hold():
                self._prepare()
                self._reckon()
                try:
                    self._run_pending()
                except BaseException:
                    self._account("failed", at_once=True)
                    raise
                self._account(course.outcome, at_once=True)
                known = document(self.sweep, cost=self._intake.cost, most_values=MOST_VALUES)
                write_declaration(self.store, known)
        except UnwritableError:
            whole = complete(self.sweep, self.store, self.settings, self._met.environment)
            if whole is None:
                raise
            self._met = whole
            self._intake = Intake(self.sweep, self.store, self.settings, whole, course)
            self._intake.judge_stored()
            self._enter(self._end_state)
        if course.interrupted:
            raise KeyboardInterrupt
        if course.ending is not None:
            raise course.ending

    def _prepare(self) -> None:
        """Let sweep and store meet."""
        course, made_with = self.course, self._met.environment
        self._met = meet(self.sweep, self.store, self.settings, made_with)
        self._intake = Intake(self.sweep, self.store, self.settings, self._met, course)
        course.total = self._met.pending
        course.tally.repeated += self._met.repeated
        course.tally.wasted_seconds += self._met.wasted_seconds

    def _reckon(self) -> None:
        """See what is to be run, and what it is known to cost."""
        self._handout = self._new_handout()
        intake = self._intake
        if intake.created:
            for runs, seconds in self._handout.stored():
                intake.costs = intake.costs.after(runs, seconds)
        if self.settings.pilot is not None:
            self._pilot = self._handout.pilot(self.settings.pilot, created=intake.created)
            self.course.total = len(self._pilot)
        request = self.settings.request
        if self.course.total and request is not None and request.past:
            raise ValueError(
                f"the deadline of the request, {request.ends:%Y-%m-%d %H:%M:%S}, is past, and "
                f"{self.course.total:,} runs are pending; give a later one"
            )
        self._receipt.close_killed()
        intake.judge_stored()

    def _run_pending(self) -> None:
        if self.course.total and self.course.ending is None:
            with listening(self._signalled):
                self._hold_and_run()
        else:
            if not self._intake.created:
                self._intake.create((), {})
            self._enter(self._end_state)
        self._intake.conclude()

    @property
    def _end_state(self) -> str:
        return "cancelled" if self.course.stop_wishes else "done"

    def _signalled(self, number: int) -> None:
        self.stop()
        if number == signal.SIGINT:
            self.course.interrupted = True
            if getattr(self.executor, "running_here", lambda: False)():
                raise KeyboardInterrupt

    def declared(self) -> dict[str, NDArray[np.int64]]:
        """For dims of which the store holds more, positions of what the sweep declares.

        Positions are in the order in which the store is opened.
        """
        if not self._met.created and not self._intake.created:
            return {}  # the store is not looked at yet
        orders = self.store.declaration.get("axes", {})
        chosen = {}
        for dim, positions in self._met.placement.on_disk.items():
            size = self.store.layout.sizes[dim]
            if len(positions) < size:
                order = np.asarray(orders.get(dim, range(size)))
                chosen[dim] = np.argsort(order)[positions]
        return chosen

    def stop(self) -> None:
        """Ask the session to end soon; runs in flight become pending."""
        self.course.stop()

    def pause(self) -> None:
        """Ask that no more runs are begun; those in flight end, and workers are let go."""
        self.course.pausing = True

    def resume(self) -> None:
        """Ask to go on after a pause."""
        self.course.pausing = False

    @property
    def stop_wishes(self) -> int:
        """How often it was asked to end."""
        return self.course.stop_wishes

    @property
    def pausing(self) -> bool:
        """Whether it was asked to begin no more runs for now."""
        return self.course.pausing

    @property
    def costs(self) -> Costs:
        """What runs cost, as far as is known."""
        return self._intake.costs

    def outlook(self) -> tuple[int, float]:
        """Runs that are still to be finished, and the seconds that one takes; NaN while unknown."""
        return self.course.unfinished, self._intake.cost.mean

    def _stopping(self) -> bool:
        return self.course.stop_wishes > 0 or self._seconds_left() <= 0

    def _seconds_left(self) -> float:
        if not self.course.limited:
            return math.inf
        return self.course.time_left(self.executor.workers)[0]

    def _share(self, using: int) -> int:
        """Workers that may be used: none during a pause; a crew asks now and then."""
        paused = self.course.pausing and not self.course.stop_wishes
        if self.course.pause(paused):
            self._enter("paused" if paused else "running")
            self._account(self.course.going, at_once=True)
        held = getattr(self.executor, "holding", self.executor.workers)
        self.course.meter.hold(0 if self.course.waiting else using if paused else held)
        if paused:
            self._keep_up()  # a pause may be long, and a kill may end it
        self._tell()
        return 0 if paused else everyone(using)

    def _hold_and_run(self) -> None:
        task = Task(
            self.sweep.simulator,
            self.sweep.call,
            replace(self._met.grid, masks=()),
            self.sweep.outputs,
            self.sweep.entropy,
            self.sweep.streams,
            self._met.was,
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
            self.course.meter.hold(0)
        self._enter("collecting")
        if not self._intake.created:
            self._intake.create((), {})
        self._intake.blocks.close()
        self.store.publish(f"{self.course.tally.settled:,} runs of this session, its end")
        self._enter(self._end_state)

    def _hold(self, task: Task, timeout: Callable[[], float | None] | None) -> None:
        """Hold compute and run on it; the meter runs while it is held."""
        parts = self._met.codes[self._met.code]["identity"]["parts"]
        with (
            equipped(task, self.sweep, self.store, parts) as task,
            self.executor.hold(task, timeout=timeout) as crew,
        ):
            while self._lacking(crew) and not self._stopping():
                time.sleep(WAIT_SECONDS)
                self._tell()
                self._account("queued")
            self.course.held(0 if self.course.waiting else self.executor.workers)
            self._account("running", at_once=True)
            self._enter("held")
            try:
                self._drive(crew)
                self._check_begun()
            except BaseException:
                if self._intake.created:
                    with suppress(StoreError):  # finished runs are kept, unless it is the store
                        self._intake.blocks.flush()
                with suppress(Exception):
                    self._enter("failed")
                raise

    def _lacking(self, crew: Crew) -> bool:
        """Whether workers are waited for: that is queued, and not metered."""
        before, now = self.course.waiting, crew.waiting() if isinstance(crew, Awaited) else ""
        self.course.waiting = now
        if now and not before and self.course.state in ("held", "running"):
            self.course.meter.hold(0)
            self._enter("queued")
        elif before and not now and self.course.state == "queued":
            self._enter("running" if self.course.tally.settled else "held")
        return bool(now)

    def _check_begun(self) -> None:
        """Say so if the time went by in setting up."""
        if not self.sweep.setup or self._intake.cost.count or self.course.stop_wishes:
            return
        left, limit = self.course.time_left(self.executor.workers)
        if left <= 0:
            names = ", ".join(map(repr, self.sweep.setup))
            raise SetupError(
                f"{limit} is reached and no run has ended: each worker sets up {names} first; give "
                "it more time, or see whether setting up comes to an end"
            )

    def _limit(self) -> float | None:
        """Seconds that a run may take; a factor is one of the mean of those that are done."""
        seconds, factor = self.settings.timeout
        if factor is None:
            return seconds
        intake = self._intake
        if not intake.usual.count:
            return FIRST_LIMIT
        together = isinstance(self.sweep.simulator, Vectorized)
        mean = intake.calls.seconds if together else intake.usual.mean  # of what is killed at once
        return max(factor * mean, LEAST_LIMIT)

    def _drive(self, crew: Crew) -> None:
        self._map(crew, self._batches())
        for _ in range(max(self.settings.retry.values(), default=0)):
            if self._stopping() or not self._intake.aside:
                break
            self._map(crew, self._handout.fitting(self._intake.retried()))

    def _map(self, crew: Crew, batches: Iterator[Batch]) -> None:
        outcomes = crew.map(self._begun(batches), self._stopping, self._share)
        try:
            for outcome in outcomes:
                if outcome is not None:
                    self._intake.take(outcome)
                self._lacking(crew)
                self._keep_up()
                self._tell()
        finally:
            close = getattr(outcomes, "close", None)
            if close is not None:
                close()

    def _begun(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if self.course.state == "held":
                self._enter("running")
            yield batch

    # --- handing out ---

    def _new_handout(self) -> Handout:
        seconds, _ = self.settings.timeout
        intake, together = self._intake, isinstance(self.sweep.simulator, Vectorized)
        return Handout(
            self._met.grid,
            self.store,
            self._met.placement,
            self.course.tally,
            self.course.total,
            self.executor.workers,
            lambda: intake.blocks,
            lambda: intake.cost,
            lambda: intake.costs,
            self._seconds_left,
            math.inf if seconds is None else seconds,
            partial(intake.size_of_call, workers=self.executor.workers) if together else None,
            lambda: intake.probing,
        )

    def _batches(self) -> Iterator[Batch]:
        handout, intake = self._handout, self._intake
        first = self._pilot
        if first is None:
            first = handout.first(created=intake.created)
        handed: list[NDArray[np.int64]] = []
        at = 0
        while not intake.created and at < len(first):
            for batch in handout.single(first[at : at + 1]):
                handed.append(batch.runs)
                yield batch
            at += 1
        if not intake.created:
            intake.create((), {})
        for batch in handout.coarse(first[at:]):
            handed.append(batch.runs)
            yield batch
        if self._pilot is None:
            known = np.sort(np.concatenate(handed)) if handed else np.zeros(0, dtype=np.int64)
            yield from handout.rest(known)

    # --- writing and telling ---

    def _keep_up(self) -> None:
        if self._intake.created:
            self._intake.keep_up(lambda: self._account(self.course.going))

    def progress(self) -> Progress:
        """How far the session is."""
        judged = bool(self.sweep.requirements)
        return self.course.progress(self._intake.cost, self.executor.workers, judged=judged)

    def _enter(self, state: str) -> None:
        self.course.state = state
        self._tell(at_once=True)

    def _tell(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._reported >= REPORT_SECONDS:
            self._reported = now
            self.report(self.progress())

    def _account(self, state: str, *, at_once: bool = False) -> None:
        """Write this session's receipt beside the store, if that is due."""
        if not (at_once or self._receipt.due):
            return
        said = {
            **self.course.account(state, self.executor.workers),
            "executor": type(self.executor).__name__,
            "environment": self._met.environment,
        }
        if self._met.codes:
            said["code"] = self._met.codes[self._met.code]["identity"]["digest"]
        self._receipt.write(said)

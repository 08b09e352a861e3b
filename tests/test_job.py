"""start: a job that is watched, paused, cancelled, found again, and ends with its process."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.executors.joblib import JoblibExecutor
from sweepkit.job import _jobs as jobs_of_this_process
from sweepkit.job import begun
from sweepkit.jobs import _job as made
from sweepkit.protocols import Crew
from sweepkit.status import ENDINGS, STATES, Progress, Status
from sweepkit.targets import target as target_of
from tests.clock import Clock
from tests.conftest import Start

LIMIT = 90.0
"""Seconds that a job may take to do what it was asked."""


def doubled(a: int) -> int:
    return 2 * a


def slow(a: int) -> int:
    time.sleep(0.02)
    return 2 * a


def third_raises(a: int) -> int:
    if a % 3 == 0:
        raise ValueError(f"no {a}")
    return a


def done(ds: xr.Dataset) -> int:
    return int((ds["status"] == Status.DONE).sum())


class Told:
    """Progress as a job tells it, and a way to wait for some of it."""

    def __init__(self) -> None:
        self.all: list[Progress] = []
        self._news = threading.Condition()

    def __call__(self, progress: Progress) -> None:
        with self._news:
            self.all.append(progress)
            self._news.notify_all()

    def wait(self, fact: Callable[[Progress], bool]) -> Progress:
        """The first progress told from now on of which a fact holds."""
        with self._news:
            seen = len(self.all)
            met = lambda: [one for one in self.all[seen:] if fact(one)]  # noqa: E731
            assert self._news.wait_for(met, LIMIT), f"not met by {self.all[-1]}"
            return met()[0]

    @property
    def states(self) -> list[str]:
        """The states in their order, without repetitions."""
        states = [one.state for one in self.all]
        return states[:1] + [now for before, now in pairwise(states) if now != before]


def soon(fact: Callable[[], bool]) -> None:
    """Wait for a fact of which no news tells."""
    end = time.monotonic() + LIMIT
    while not fact():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


def started(store: str, simulator: Any = slow, n: int = 1000, **options: Any) -> sk.Job:
    sweep = sk.Sweep(simulator, sk.grid(a=range(n)))
    return sk.start(sweep, store, **{"n_jobs": 2, "backend": "threading", **options})


@pytest.fixture(autouse=True)
def _no_job_is_left() -> Iterator[None]:
    yield
    for job in list(jobs_of_this_process.values()):
        job.cancel()
        assert job.wait(LIMIT)


# --- from beginning to end -----------------------------------------------------------------------


def test_a_job_gives_what_run_gives(store: str, tmp_path: Path) -> None:
    job = started(store, doubled, 50)
    there = sk.run(
        sk.Sweep(doubled, sk.grid(a=range(50))), tmp_path / "b.zarr", n_jobs=1, progress=False
    )
    assert job.wait(LIMIT)
    xr.testing.assert_equal(job.result()[["result", "status"]], there[["result", "status"]])
    assert (job.state, job.error) == ("done", "")
    assert "done, 50 of 50 runs" in repr(job)


def test_start_returns_at_once_and_the_dataset_is_live(store: str) -> None:
    told = Told()
    job = started(store, progress=told)
    assert job.state not in ENDINGS
    told.wait(lambda now: now.finished >= 20)
    told.wait(lambda _: 0 < done(job.dataset) < 1000)  # written about once a second
    assert job.dataset.sizes == {"a": 1000}
    job.cancel()
    assert job.wait(LIMIT)
    with pytest.warns(
        UserWarning, match=r"cancelled with \d+ of 1,000 runs pending, which are NaN"
    ):
        assert 20 <= done(job.result(LIMIT)) < 1000
    assert job.state == "cancelled"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job.result()  # said once


def test_it_is_paused_and_its_workers_are_let_go_and_resumed(store: str, tmp_path: Path) -> None:
    told, quick = Told(), tmp_path / "quick"

    def simulate(a: int) -> int:
        return doubled(a) if quick.exists() else slow(a)

    job = started(store, simulate, 2000, backend="loky", progress=told)
    told.wait(lambda now: now.finished >= 4)
    job.pause()
    told.wait(lambda now: now.state == "paused")
    told.wait(lambda _: not workers())
    soon(lambda: job.session.course.meter._workers == 0)  # it has seen that they are gone
    still, held = job.progress.finished, job.session.course.meter.core_seconds
    assert still < 2000
    told.wait(lambda _: done(job.dataset) == still)  # all of it is on disk
    assert held == job.session.course.meter.core_seconds > 0
    assert told.wait(lambda now: now.state == "paused").finished == still
    assert not job.wait(0)
    quick.touch()
    job.resume()
    assert (job.result(LIMIT)["result"] == 2 * job.dataset["a"]).all()
    assert told.states == ["queued", "held", "running", "paused", "running", "collecting", "done"]


def test_a_pause_is_not_metered_and_takes_nothing_of_the_duration(store: str, clock: Clock) -> None:
    told = Told()
    begin, ran = threading.Semaphore(0), list[int]()

    def simulate(a: int) -> int:
        assert begin.acquire(timeout=LIMIT)
        clock.pass_by(0.02)
        ran.append(a)
        return a

    request = sk.Request(duration=1)
    job = started(store, simulate, request=request, backend="sequential", n_jobs=1, progress=told)
    begin.release(10)
    soon(lambda: len(ran) == 10)
    job.pause()
    begin.release(1000)
    soon(lambda: job.state == "paused")
    soon(lambda: sk.receipt(store).records[-1]["state"] == "paused")
    meter = job.session.course.meter
    soon(lambda: meter._workers == 0)
    still, held = job.progress.finished, meter.core_seconds
    news = len(told.all)
    clock.pass_by(10)  # ten times what may be held
    soon(lambda: len(told.all) > news)
    assert (job.state, meter.core_seconds) == ("paused", held)
    assert job.progress.finished == still == len(ran) < 50
    job.resume()
    assert 40 < done(job.result(LIMIT)) <= 50  # in one second of the clock
    assert "the duration of 1 s" in job.progress.note
    assert sk.receipt(store).held_seconds <= 1


def workers() -> list[psutil.Process]:
    """Worker processes of this one."""
    found = []
    for one in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "sweepkit.worker" in one.cmdline():
                found.append(one)
    return found


def test_a_paused_job_can_be_cancelled(store: str) -> None:
    told = Told()
    job = started(store, progress=told)
    told.wait(lambda now: now.finished >= 4)
    job.pause()
    told.wait(lambda now: now.state == "paused")
    job.cancel()
    assert job.wait(LIMIT)
    assert job.state == "cancelled"


def test_it_goes_on_from_the_store(store: str) -> None:
    told = Told()
    first = started(store, progress=told)
    told.wait(lambda now: now.finished >= 10)
    first.cancel()
    kept = done(first.result(LIMIT))
    second = started(store)
    assert second is not first
    second.cancel()
    assert second.result(LIMIT) is not None
    assert second.progress.total == 1000 - kept


def test_await_gives_the_result_and_leaves_the_loop_free(store: str) -> None:
    go = threading.Event()

    def held(a: int) -> int:
        assert go.wait(LIMIT)
        return a

    async def both() -> tuple[xr.Dataset, int]:
        ticks = 0
        waiting = asyncio.ensure_future(awaited(started(store, held, n=40)))
        while not waiting.done():
            await asyncio.sleep(0.001)
            ticks += 1
            if ticks == 5:
                go.set()
        return waiting.result(), ticks

    async def awaited(job: sk.Job) -> xr.Dataset:
        return await job

    ds, ticks = asyncio.run(both())
    assert ds.sizes == {"a": 40}
    assert ticks >= 5


# --- how it ends ---------------------------------------------------------------------------------


def test_what_does_not_fit_is_raised_by_its_result(store: str) -> None:
    sk.run(sk.Sweep(doubled, sk.grid(a=[1])), store, backend="sequential", progress=False)
    job = started(store, third_raises, 4)
    with pytest.raises(sk.StaleCodeError, match="the code of 'third_raises' has changed"):
        job.result(LIMIT)
    assert job.state == "failed"
    assert job.error.startswith("StaleCodeError: the code")


def test_a_job_that_is_stopped_by_its_failure_policy_has_failed(store: str) -> None:
    told = Told()
    job = started(store, third_raises, 9, on_error="raise", backend="sequential", progress=told)
    for _ in range(2):
        with pytest.raises(sk.RunError, match=r"ValueError: no \d"):
            job.result(LIMIT)
    assert job.state == "failed"


def test_the_first_run_of_each_kind_of_error_is_shown(store: str) -> None:
    job = started(store, third_raises, 9, backend="sequential")
    job.result(LIMIT)
    (example,) = job.progress.examples
    assert example.kind == "ValueError"
    assert example.where.startswith("a=")
    assert "Traceback" in example.log
    assert job.progress.errors == {"ValueError": 3}
    assert repr(job).endswith("done, 9 of 9 runs, 3 ValueError>")


@pytest.mark.parametrize(
    ("timeout", "error"), [("1 s", TypeError), (True, TypeError), (math.nan, ValueError)]
)
def test_what_is_no_time_to_wait_is_refused(
    store: str, timeout: Any, error: type[Exception]
) -> None:
    job = started(store, n=2)
    with pytest.raises(error, match=r"timeout is .*; give seconds, or None"):
        job.result(timeout)
    assert job.wait(LIMIT)


def test_a_result_that_takes_too_long_says_so(store: str) -> None:
    job = started(store)
    with pytest.raises(TimeoutError, match=r"a\.zarr is \w+ after 0\.01 s; wait longer"):
        job.result(0.01)
    job.cancel()
    job.wait(LIMIT)


# --- states --------------------------------------------------------------------------------------


class Gated:
    """An executor that holds compute when told so, and starts no run before told again."""

    def __init__(self) -> None:
        self.inner = JoblibExecutor(1, "sequential")
        self.granted, self.go = threading.Event(), threading.Event()

    @property
    def workers(self) -> int:
        return 1

    @contextmanager
    def hold(self, task: Any, *, timeout: Any) -> Iterator[Crew]:
        assert self.granted.wait(LIMIT)
        with self.inner.hold(task, timeout=timeout) as crew:
            yield _Gate(crew, self.go)


class _Gate:
    def __init__(self, crew: Crew, go: threading.Event) -> None:
        self.crew, self.go = crew, go

    def map(self, *args: Any) -> Iterator[Any]:
        assert self.go.wait(LIMIT)
        yield from self.crew.map(*args)


def test_each_state_is_reached(store: str, tmp_path: Path) -> None:
    gate, reached = Gated(), set()
    began, may_begin = threading.Event(), threading.Event()

    def simulator(a: int) -> int:
        began.set()
        assert may_begin.wait(LIMIT)
        return a

    def state(word: str) -> None:
        soon(lambda: job.state == word)  # it may be told before one listens, and once
        reached.add(word)

    told = Told()
    sweep = sk.Sweep(simulator, sk.grid(a=[1, 2]))
    job = made(sweep, target_of(store), {"progress": told}, gate)
    reached.add(job.state)
    assert begun(job) is job
    state("queued")
    gate.granted.set()
    state("held")
    gate.go.set()
    assert began.wait(LIMIT)
    state("running")
    job.pause()
    may_begin.set()
    state("paused")
    job.resume()
    job.result(LIMIT)
    reached |= set(told.states)
    told, gate = Told(), Gated()
    job = started(
        str(tmp_path / "b.zarr"), doubled, executor=gate, progress=told, n_jobs=None, backend=None
    )
    job.cancel()
    gate.granted.set()
    gate.go.set()
    assert job.wait(LIMIT)
    reached.add(job.state)
    job = started(store, third_raises, 4, backend="sequential")
    assert job.wait(LIMIT)
    reached.add(job.state)
    assert reached == set(STATES)


# --- found again ---------------------------------------------------------------------------------


def test_the_same_call_gives_the_live_job(store: str) -> None:
    job = started(store)
    assert started(store, timeout=None) is job
    with pytest.raises(ValueError, match=r"was started otherwise; now there is timeout 3 instead"):
        started(store, timeout=3)
    with pytest.raises(ValueError, match="another dims"):
        started(store, n=1001)
    with pytest.raises(ValueError, match="other code of the simulator"):
        started(store, doubled)
    with pytest.raises(ValueError, match=r"cancel it first \(job\.cancel\(\); job\.wait\(\)\)"):
        started(store, on_error="raise")
    job.cancel()
    assert job.wait(LIMIT)


def test_a_word_that_is_no_option_is_refused_and_the_near_one_named(store: str) -> None:
    with pytest.raises(TypeError, match="start has no option 'njobs'; did you mean 'n_jobs'"):
        sk.start(sk.Sweep(doubled, sk.grid(a=[1])), store, njobs=2)  # type: ignore[call-arg]


# --- with its process ----------------------------------------------------------------------------

DRIVER = """
    import time
    import sweepkit as sk

    def slow(a):
        time.sleep(0.02)
        return a

    def until(job, finished):
        while job.progress.finished < finished:
            job.news(0, 0.05)

    if __name__ == "__main__":
        job = sk.start(sk.Sweep(slow, sk.grid(a=range(5000))), "a.zarr", n_jobs=2)
        until(job, 20)
        try:
            print("on", flush=True)
            job.wait()
        except KeyboardInterrupt:
            until(job, job.progress.finished + 20)
            print(job.state, flush=True)
"""


def test_an_interrupt_leaves_the_job_alone_and_an_exit_ends_it_cleanly(
    start: Start, tmp_path: Path
) -> None:
    process = start(DRIVER)
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (0, "running\n", "")
    _, alive = psutil.wait_procs(family, timeout=LIMIT)
    assert not alive
    status = sk.open(tmp_path / "a.zarr", mask=False)["status"].values
    assert set(status.tolist()) == {Status.DONE, Status.PENDING}
    assert 40 <= int((status == Status.DONE).sum()) < 5000


def test_the_main_thread_stays_free_while_a_sweep_of_short_runs_goes_on(store: str) -> None:
    told = Told()
    job = started(store, doubled, 2_000_000, max_runs=2_000_000, backend="loky", progress=told)
    told.wait(lambda now: now.finished > 1000)
    before, turns = job.progress.finished, 0
    while turns < 50 or job.progress.finished == before:  # this thread has turns, and so has it
        threading.Event().wait(0.01)
        turns += 1
        assert job.state not in ENDINGS
    job.cancel()
    assert job.wait(LIMIT)

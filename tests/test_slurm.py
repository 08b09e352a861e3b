"""Sweeps through a real queue: SLURM on this machine, jobs by dask-jobqueue."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import sweepkit as sk
from tests.conftest import ROOT
from tests.slurm import Slurm, slurm, slurm_or_skip

dask = pytest.importorskip("dask", reason="needs 'sweepkit[queue]'")
usual = signal.getsignal(signal.SIGINT)
jobqueue = pytest.importorskip("dask_jobqueue", reason="needs 'sweepkit[queue]'")
leaving = signal.signal(signal.SIGINT, usual)  # importing it makes an interrupt leave Python

LIMIT = 120.0
"""Seconds after which what a test waits for does not come."""


@pytest.fixture(scope="module")
def started() -> Iterator[Slurm]:
    slurm_or_skip()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with slurm() as queue:
        yield queue


@pytest.fixture
def queue(started: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A queue without a job, and as it was afterwards."""
    monkeypatch.setenv("SLURM_CONF", started.environment["SLURM_CONF"])
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", search)  # jobs are given it
    yield started
    wait_for(lambda: not started.jobs())
    wait_for(lambda: not workers_of(started))


def workers_of(queue: Slurm) -> list[int]:
    """Processes that jobs of the queue have started and that still run."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get("SLURM_JOB_ID") and one.environ()["SLURM_CONF"] == str(
                queue.folder / "slurm.conf"
            ):
                found.append(one.pid)
        except (psutil.Error, KeyError):
            continue
    return found


def executor(queue: Slurm, *, workers: int | None = 1, walltime: str = "00:10:00") -> Any:
    """Workers on the queue, reached on loopback alone."""

    def cluster() -> Any:
        return jobqueue.SLURMCluster(
            cores=1,
            processes=1,
            memory="500 MB",
            walltime=walltime,
            interface="lo",
            local_directory=str(queue.folder),
            log_directory=str(queue.folder / "logs"),
            scheduler_options={"dashboard_address": None, "host": "127.0.0.1"},
        )

    return sk.DaskExecutor(cluster=cluster, workers=workers)


def noisy(a: int, rng: np.random.Generator) -> dict[str, float]:
    return {"y": a + rng.normal()}


def slow(a: int) -> float:
    time.sleep(0.1)
    return a * 1.0


def wait_for(event: Callable[[], Any]) -> None:
    end = time.monotonic() + LIMIT
    while not event():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


class Watch:
    """What a sweep tells of itself, and what is done once it tells something."""

    def __init__(self, when: Callable[[sk.Progress], bool], then: Callable[[], Any]) -> None:
        self.states: list[str] = []
        self.said: list[str] = []
        self.when, self.then, self.met = when, then, False
        self.since = math.inf

    def __call__(self, progress: sk.Progress) -> None:
        self.since = min(self.since, time.monotonic())
        if not self.states or self.states[-1] != progress.state:
            self.states.append(progress.state)
        if progress.waiting and progress.waiting not in self.said:
            self.said.append(progress.waiting)
        if not self.met and self.when(progress):
            self.met = True
            self.then()


def test_a_drained_queue_is_waited_for_unmetered_and_a_sweep_gives_the_same_bits(
    queue: Slurm, tmp_path: Path
) -> None:
    sweep = sk.Sweep(noisy, sk.grid(a=range(20), replicates=2))
    began = time.monotonic()
    drained: list[float] = []

    def undrain() -> None:
        drained.append(time.monotonic())
        queue.undrain()

    queue.drain()
    watch = Watch(lambda told: "PENDING" in told.waiting, undrain)
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor(queue), progress=watch)
    ended = time.monotonic()
    assert (ds["status"] == 1).all()
    here = sk.run(sweep, tmp_path / "here.zarr", backend="sequential", progress=False)
    np.testing.assert_array_equal(ds["y"].values, here["y"].values)
    said = [one for one in watch.said if "PENDING" in one]
    assert said[0].startswith("waiting for a worker of SLURMCluster: job "), said
    assert watch.said[0].startswith("waiting for a worker of SLURMCluster")
    assert watch.states[0] == "queued"
    receipt = sk.receipt(tmp_path / "s.zarr")
    assert receipt.queued_seconds >= drained[0] - watch.since
    assert receipt.held_seconds <= ended - drained[0]
    assert receipt.queued_seconds + receipt.held_seconds <= ended - began


@pytest.mark.slow
def test_jobs_killed_by_their_walltime_are_asked_for_again_and_the_sweep_goes_on(
    queue: Slurm, tmp_path: Path
) -> None:
    sweep = sk.Sweep(slow, sk.grid(a=range(1000)))  # 100 s; walltime is 60, looked at every 30
    watch = Watch(lambda _: False, lambda: None)
    slow_queue = executor(queue, walltime="00:01:00")
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=slow_queue, progress=watch)
    assert (ds["status"] == 1).all()
    assert ds["result"].values.tolist() == [float(a) for a in range(1000)]
    assert ds["attempts"].values.max() <= 2
    assert watch.states.count("queued") >= 2, watch.states  # while the next job was awaited
    logs = [one.read_text() for one in (queue.folder / "logs").glob("*.err")]
    assert any("DUE TO TIME LIMIT" in one for one in logs)


@pytest.mark.slow
def test_a_sweep_whose_jobs_were_taken_away_goes_on_in_another_session(
    queue: Slurm, tmp_path: Path
) -> None:
    sweep = sk.Sweep(slow, sk.grid(a=range(60)))

    def take_away() -> None:
        queue.drain()
        queue.ask("scancel", "--partition=debug")

    watch = Watch(lambda told: told.counts.get("done", 0) > 10, take_away)
    job = sk.start(sweep, tmp_path / "s.zarr", executor=executor(queue), progress=watch)
    wait_for(lambda: watch.met and job.progress.state == "queued")
    held = job.session.course.meter.core_seconds
    wait_for(lambda: "PENDING" in job.progress.waiting)
    job.cancel()
    wait_for(lambda: job.progress.state == "cancelled")
    queue.undrain()
    receipt = sk.receipt(tmp_path / "s.zarr")
    assert receipt.held_seconds == held  # what is waited for is not metered
    kept = int((sk.open(tmp_path / "s.zarr")["status"] == 1).sum())
    assert 10 < kept < 60
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor(queue), progress=False)
    assert (ds["status"] == 1).all()
    assert ds["attempts"].values.max() <= 2


@pytest.mark.slow
def test_a_queue_that_refuses_jobs_is_asked_again_and_says_why(
    queue: Slurm, tmp_path: Path
) -> None:
    sweep = sk.Sweep(noisy, sk.grid(a=range(10)))
    queue.refuse()
    watch = Watch(lambda told: "refused" in told.waiting, queue.accept)
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor(queue), progress=watch)
    assert (ds["status"] == 1).all()
    said = next(one for one in watch.said if "refused" in one)
    assert "are asked for again: sbatch: error" in said


@pytest.mark.slow
def test_jobs_that_end_before_their_worker_joins_end_the_call(queue: Slurm, tmp_path: Path) -> None:
    def broken() -> Any:
        return jobqueue.SLURMCluster(
            cores=1,
            memory="500 MB",
            python="false",
            interface="lo",
            log_directory=str(queue.folder / "logs"),
            scheduler_options={"dashboard_address": None, "host": "127.0.0.1"},
        )

    sweep = sk.Sweep(noisy, sk.grid(a=range(10)))
    given = sk.DaskExecutor(cluster=broken, workers=1)
    with pytest.raises(sk.ComputeLostError, match="3 times in a row the jobs of SLURMCluster"):
        sk.run(sweep, tmp_path / "s.zarr", executor=given, progress=False)


@pytest.mark.slow
def test_workers_are_released_when_the_sweep_fails_or_is_cancelled_in_the_queue(
    queue: Slurm, tmp_path: Path
) -> None:
    def bad(a: int) -> float:
        raise ValueError("no")

    with pytest.raises(sk.RunError):
        sk.run(
            sk.Sweep(bad, sk.grid(a=range(10))),
            tmp_path / "bad.zarr",
            executor=executor(queue),
            on_error="raise",
            progress=False,
        )
    wait_for(lambda: not queue.jobs() and not workers_of(queue))
    queue.drain()
    told = threading.Event()
    watch = Watch(lambda told: "PENDING" in told.waiting, told.set)
    sweep = sk.Sweep(noisy, sk.grid(a=range(10)))
    job = sk.start(sweep, tmp_path / "s.zarr", executor=executor(queue), progress=watch)
    assert told.wait(LIMIT)
    wait_for(lambda: job.progress.state == "queued")
    held = job.session.course.meter.core_seconds  # until the first look at the queue
    job.cancel()
    wait_for(lambda: job.progress.state == "cancelled")
    queue.undrain()
    receipt = sk.receipt(tmp_path / "s.zarr")
    assert receipt.held_seconds == held  # what is waited for is not metered
    assert receipt.queued_seconds > 0


@pytest.mark.slow
def test_a_cluster_that_nobody_asked_for_workers_is_refused(queue: Slurm, tmp_path: Path) -> None:
    sweep = sk.Sweep(noisy, sk.grid(a=range(10)))
    with pytest.raises(ValueError, match=r"SLURMCluster without workers; say how many with"):
        sk.run(sweep, tmp_path / "s.zarr", executor=executor(queue, workers=None), progress=False)


def test_an_interrupt_stops_the_sweep_and_not_python_once_it_is_imported(store: str) -> None:
    def interrupted(a: int) -> int:
        if a == 7:
            signal.raise_signal(signal.SIGINT)
        return a

    sweep = sk.Sweep(interrupted, sk.grid(a=range(20)))
    before = signal.signal(signal.SIGINT, leaving)
    try:
        with pytest.raises(KeyboardInterrupt):
            sk.run(sweep, store, backend="sequential", progress=False)
        assert signal.getsignal(signal.SIGINT) is leaving
    finally:
        signal.signal(signal.SIGINT, before)
    assert 0 < int((sk.open(store)["status"] == 1).sum()) < 20

"""Sweeps on a real dask cluster: what it loses costs no run its result."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import psutil
import pytest

import sweepkit as sk
from sweepkit.intake import Intake
from sweepkit.views.progress import sentence
from tests.conftest import Start
from tests.contracts import ExecutorContract, batches_of, task_of
from tests.waiting import LIMIT, until

dask = pytest.importorskip("dask", reason="needs 'sweepkit[dask]'")
distributed = pytest.importorskip("distributed", reason="needs 'sweepkit[dask]'")

QUIET: dict[str, Any] = {"progress": False}


@contextmanager
def cluster_of(workers: int = 2) -> Iterator[Any]:
    """Worker processes on this machine that only it can reach."""
    with distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """A loaded machine takes long to connect."""
    with dask.config.set({"distributed.comm.timeouts.connect": f"{LIMIT:g}s"}):
        yield


@pytest.fixture(scope="module")
def client(patient: None) -> Iterator[Any]:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with cluster_of() as cluster, distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=LIMIT)
        yield client


class TestDask(ExecutorContract):
    @pytest.fixture
    def executor(self, client: Any) -> sk.DaskExecutor:
        return sk.DaskExecutor(client)


def test_results_are_those_of_this_machine_bit_for_bit(client: Any, tmp_path: Path) -> None:
    def noisy(a: int, b: float, rng: np.random.Generator) -> dict[str, float]:
        return {"y": a * b + rng.normal()}

    sweep = sk.Sweep(noisy, sk.grid(a=range(40), b=[0.5, 1.5], replicates=3))
    there = sk.run(sweep, tmp_path / "there.zarr", executor=sk.DaskExecutor(client), **QUIET)
    here = sk.run(sweep, tmp_path / "here.zarr", backend="sequential", **QUIET)
    assert (there["status"] == 1).all()
    np.testing.assert_array_equal(there["y"].values, here["y"].values)


def test_calls_that_look_alike_are_each_made(client: Any, tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def counted(a: int) -> float:
        with calls.open("a") as file:
            file.write("x")
        return 1.0

    sweep = sk.Sweep(counted, sk.grid(a=[1, 2], replicates=30))
    executor = sk.DaskExecutor(client)
    sk.run(sweep, tmp_path / "s.zarr", executor=executor, **QUIET)
    sk.run(sweep, tmp_path / "again.zarr", executor=executor, **QUIET)
    assert calls.read_text() == "x" * 120


def test_big_outputs_are_written_by_workers_and_receipts_come_back(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    take = Intake.take

    def seen(self: Intake, outcome: Any) -> None:
        taken.append(outcome.result.columns["y"][0])
        take(self, outcome)

    monkeypatch.setattr(Intake, "take", seen)
    sweep = sk.Sweep(lambda a: {"y": np.full(2**17, float(a))}, sk.grid(a=range(12)))
    executor = sk.DaskExecutor(client)
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor, **QUIET)
    assert (ds["y"].values == np.arange(12.0)[:, None]).all()
    assert all(column.written for column in taken)


class Heavy:
    """A big constant that tells when it arrives somewhere."""

    def __init__(self, arrivals: Path) -> None:
        self.arrivals = arrivals
        self.values = np.ones(20 * 2**20 // 8)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with self.arrivals.open("a") as file:
            file.write(f"{os.getpid()}\n")


def test_a_big_constant_travels_once_to_each_worker(client: Any, tmp_path: Path) -> None:
    heavy = Heavy(tmp_path / "arrivals")

    def uses(a: int) -> float:
        time.sleep(0.01)
        return float(heavy.values[a])

    sweep = sk.Sweep(uses, sk.grid(a=range(200)))
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=sk.DaskExecutor(client), **QUIET)
    assert (ds["result"] == 1.0).all()
    arrivals = heavy.arrivals.read_text().split()
    assert len(arrivals) == len(set(arrivals)) <= 2


def test_runs_that_die_or_hang_are_convicted_alone(client: Any, tmp_path: Path) -> None:
    sleep = ["sleep", f"600.{os.getpid()}"]

    def dangerous(a: int) -> float:
        if a == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        if a == 11:
            os._exit(3)
        if a == 13:
            subprocess.run(sleep)
        if a == 17:
            sys.exit(2)
        return a * 1.0

    sweep = sk.Sweep(dangerous, sk.grid(a=range(40)))
    pids = client.run(os.getpid)
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=sk.DaskExecutor(client), timeout=2.0, **QUIET)
    bad = sk.runs(ds)[lambda table: table["status"] != "done"]
    assert dict(zip(bad["a"], bad["status"], strict=True)) == {
        7: "crashed",
        11: "crashed",
        13: "timeout",
        17: "error",
    }
    assert "SIGKILL" in bad.set_index("a").loc[7, "error"]
    assert "exit code 3" in bad.set_index("a").loc[11, "error"]
    assert client.run(os.getpid) == pids
    until(lambda: sleep not in [one.info["cmdline"] for one in psutil.process_iter(["cmdline"])])


def test_a_dask_worker_killed_from_outside_costs_no_run_its_status(
    client: Any, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def slow(a: int) -> float:
        with begun.open("a") as file:
            file.write("x")
        time.sleep(0.05)
        return a * 1.0

    victim = next(iter(client.run(os.getpid).values()))
    killed = False

    def kill_once(progress: sk.Progress) -> None:
        nonlocal killed
        if not killed and begun.exists() and len(begun.read_text()) > 20:
            killed = True
            os.kill(victim, signal.SIGKILL)

    sweep = sk.Sweep(slow, sk.grid(a=range(150)))
    executor = sk.DaskExecutor(client)
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor, progress=kill_once)
    assert killed
    assert (ds["status"] == 1).all()
    assert ds["result"].values.tolist() == [float(a) for a in range(150)]
    until(lambda: len(there := client.run(os.getpid)) == 2 and victim not in there.values())


def test_a_cluster_that_is_made_is_held_for_the_job_and_released(tmp_path: Path) -> None:
    before = children()
    seen: list[int] = []

    def made() -> Any:
        return distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )

    def watch(_: sk.Progress) -> None:
        seen.append(len(children() - before))

    sweep = sk.Sweep(lambda a: a * 2.0, sk.grid(a=range(20)))
    executor = sk.DaskExecutor(cluster=made)
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor, progress=watch)
    assert (ds["status"] == 1).all()
    assert max(seen) > 0
    assert_gone(before)

    def bad(a: int) -> float:
        raise ValueError("no")

    with pytest.raises(sk.RunError):
        sk.run(
            sk.Sweep(bad, sk.grid(a=range(20))),
            tmp_path / "bad.zarr",
            executor=sk.DaskExecutor(cluster=made),
            on_error="raise",
            **QUIET,
        )
    assert_gone(before)


def test_jobs_that_never_say_they_are_closed_are_given_back(tmp_path: Path) -> None:
    """As those of dask-jobqueue: a cluster refuses to close while anything refers to one."""
    from distributed.deploy.spec import ProcessInterface, SpecCluster

    asked: list[Any] = []

    class Job(ProcessInterface):  # type: ignore[misc]
        """The first is refused, the last is long in coming."""

        def __init__(self, scheduler: str, name: int) -> None:
            super().__init__(name=name)
            self.scheduler, self.name, self.process = scheduler, name, None
            asked.append(self)

        async def start(self) -> None:
            if self is asked[0]:
                raise RuntimeError("refused")
            if self is asked[-1]:
                await asyncio.sleep(1.0)
            worker = [sys.executable, "-m", "distributed.cli.dask_worker", self.scheduler]
            options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", str(self.name)]
            self.process = subprocess.Popen([*worker, *options], stderr=subprocess.DEVNULL)
            await super().start()

        async def close(self) -> None:
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    def cluster() -> Any:
        scheduler = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        return SpecCluster(
            scheduler={"cls": distributed.Scheduler, "options": scheduler},
            worker={"cls": Job, "options": {}},
            silence_logs=logging.CRITICAL,
        )

    before = children()
    sweep = sk.Sweep(lambda a: a * 2.0, sk.grid(a=range(20)))
    executor = sk.DaskExecutor(cluster=cluster, workers=3)
    ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor, progress=False)
    assert (ds["status"] == 1).all()
    assert len(asked) == 3
    assert_gone(before)


@pytest.mark.slow
def test_a_pause_gives_back_the_workers_of_a_cluster_that_is_held(tmp_path: Path) -> None:
    made: list[Any] = []

    def cluster() -> Any:
        made.append(
            distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        )
        return made[-1]

    quick = tmp_path / "quick"

    def slow(a: int) -> float:
        time.sleep(0.0 if quick.exists() else 0.02)
        return a * 1.0

    executor = sk.DaskExecutor(cluster=cluster)
    job = sk.start(sk.Sweep(slow, sk.grid(a=range(2000))), tmp_path / "s.zarr", executor=executor)
    try:
        until(lambda: job.progress.finished > 0)
        job.pause()
        until(lambda: job.state == "paused" and not made[0].workers)
        until(lambda: job.session.course.meter._workers == 0)
        still, held = job.progress.finished, job.session.course.meter.core_seconds
        assert still < 2000
        assert job.session.course.meter.core_seconds == held
        quick.touch()
        job.resume()
        assert (job.result(LIMIT)["status"] == 1).all()
    finally:
        job.cancel()
        job.wait(LIMIT)


def children() -> set[int]:
    """Processes below this one, but for trackers that live as long as it does."""
    found = set()
    for one in psutil.Process().children(recursive=True):
        try:
            tracker = any("resource_tracker import" in word for word in one.cmdline())
            if not tracker and one.status() != "zombie":
                found.add(one.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def assert_gone(before: set[int]) -> None:
    until(lambda: children() <= before)


def test_a_cluster_that_grows_and_shrinks_loses_nothing(tmp_path: Path) -> None:
    def slow(a: int) -> float:
        time.sleep(0.02)
        return a * 1.0

    with cluster_of(0) as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="100ms")
        with distributed.Client(cluster, set_as_default=False) as client:
            scaled = False
            said: list[str] = []

            def shrink(progress: sk.Progress) -> None:
                nonlocal scaled
                said.append(sentence(progress))
                if not scaled and progress.counts.get("done", 0) > 20:
                    scaled = True
                    client.retire_workers(n=1)

            sweep = sk.Sweep(slow, sk.grid(a=range(120)))
            executor = sk.DaskExecutor(client)
            ds = sk.run(sweep, tmp_path / "s.zarr", executor=executor, progress=shrink)
    assert (ds["status"] == 1).all()
    assert ds["result"].values.tolist() == [float(a) for a in range(120)]
    waited = "0 of 120 runs (0%), waiting for a worker to join the dask scheduler"
    assert waited in said


def test_an_active_joblib_configuration_for_dask_is_honoured(client: Any, tmp_path: Path) -> None:
    pids = set(client.run(os.getpid).values())
    sweep = sk.Sweep(lambda a: os.getppid(), sk.grid(a=range(8)))
    with joblib.parallel_config("dask", client=client):
        ds = sk.run(sweep, tmp_path / "s.zarr", **QUIET)
    assert set(ds["result"].values.astype(int)) <= pids


def graced(seconds: float) -> float:
    """Have runs of a dask worker so long to end once they are asked to; what it was."""
    import sweepkit.fleet

    before, sweepkit.fleet.GRACE = sweepkit.fleet.GRACE, seconds
    return before


def test_batches_in_flight_are_asked_to_end_and_give_what_they_have_done(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    monkeypatch.setattr("sweepkit.executors.dispatch.GRACE", LIMIT)
    grace = client.run(graced, LIMIT)  # what is on ends, however slow the machine

    def slow(a: int) -> float:
        begun.touch()
        time.sleep(0.05)
        return a * 1.0

    sweep = sk.Sweep(slow, sk.grid(a=range(2000)))
    with sk.DaskExecutor(client).hold(task_of(sweep), timeout=None) as crew:
        outcomes = list(crew.map(batches_of(2000, 2000), begun.exists))
    client.run(graced, min(grace.values()))
    assert 0 < sum(len(one.batch) for one in outcomes if one is not None) < 2000


SCHEDULER = """
import logging, threading
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        threading.Event().wait()
"""


@pytest.mark.slow
def test_a_scheduler_that_is_lost_ends_the_call_and_the_next_one_goes_on(
    start: Start, tmp_path: Path
) -> None:
    process = start(SCHEDULER)
    assert process.stdout is not None
    address = process.stdout.readline().strip()

    def slow(a: int) -> float:
        time.sleep(0.02)
        return a * 1.0

    def kill(progress: sk.Progress) -> None:
        if progress.counts.get("done", 0) > 5 and process.poll() is None:
            client = executor._client
            assert client is not None
            client._timeout = 1  # for which it tries to connect again
            process.kill()
            process.wait()

    sweep = sk.Sweep(slow, sk.grid(a=range(300)))
    executor = sk.DaskExecutor(address)
    with pytest.raises(sk.ComputeLostError, match="scheduler was lost"):
        sk.run(sweep, tmp_path / "s.zarr", executor=executor, progress=kill)
    kept = int((sk.open(tmp_path / "s.zarr")["status"] == 1).sum())
    assert kept > 5
    ds = sk.run(sweep, tmp_path / "s.zarr", backend="sequential", **QUIET)
    assert (ds["status"] == 1).all()
    assert ds["attempts"].values.max() <= 2


DRIVER = """
import logging, os, sys, time
import sweepkit as sk
logging.getLogger("distributed").setLevel(logging.CRITICAL)
address, alive = sys.argv[1:]
def endless(a):
    while True:
        with open(alive, "a") as file:
            file.write("x")
        time.sleep(0.1)
if __name__ == "__main__":
    sk.run(sk.Sweep(endless, sk.grid(a=[1, 2])), "s.zarr", executor=sk.DaskExecutor(address),
           progress=False)
"""


def test_nothing_computes_on_for_a_killed_driver(start: Start, client: Any, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    process = start(DRIVER, client.scheduler.address, alive)
    until(lambda: alive.exists() and alive.stat().st_size > 3)
    process.kill()
    process.wait()

    def still() -> bool:
        size = alive.stat().st_size
        time.sleep(0.5)  # five times as long as a sign of life takes
        return alive.stat().st_size == size

    until(still)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"client": 3}, "client is a int"),
        ({"cluster": 3}, "give a function that makes one"),
        ({"client": "tcp://127.0.0.1:1", "cluster": list}, "not both"),
        ({"workers": 3}, "give cluster=, too"),
        ({"cluster": list, "workers": 0}, "workers is 0"),
        ({"cluster": list, "workers": True}, "workers is True"),
        ({"client": "tcp://127.0.0.1:1", "n_jobs": 1.5}, "n_jobs is 1.5"),
        ({}, "there is no dask client"),
    ],
)
def test_what_is_no_cluster_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        sk.DaskExecutor(**given)


def test_a_cluster_that_cannot_be_reached_is_told_at_once(tmp_path: Path) -> None:
    sweep = sk.Sweep(lambda a: a, sk.grid(a=[1]))
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(sk.ComputeLostError, match="no dask scheduler answers at tcp"),
    ):
        sk.run(sweep, tmp_path / "s.zarr", executor=sk.DaskExecutor("tcp://127.0.0.1:1"), **QUIET)
    with pytest.raises(TypeError, match="made a list, which is no dask cluster"):
        sk.run(sweep, tmp_path / "s.zarr", executor=sk.DaskExecutor(cluster=list), **QUIET)
    assert not (tmp_path / "s.zarr").exists()

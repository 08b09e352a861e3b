"""One run goes wrong, in each way and on each backend: it alone is told, neighbours are done."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.status import Status
from tests.faults import acts, zoo
from tests.faults.zoo import FAULTY, RUNS, Fault
from tests.waiting import LIMIT, until

TRACKER = "resource_tracker"


def family() -> set[int]:
    """Processes begun by this one, but for loky's tracker, which lives as long as this one."""
    found = set()
    for one in psutil.process_iter(["pid", "ppid", "cmdline", "status"]):
        line = " ".join(one.info["cmdline"] or ())
        marked = "time.sleep(600.25" in line
        mine = one.info["ppid"] == os.getpid() and TRACKER not in line
        if (mine or marked) and one.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(one.pid)
    return found


def surroundings() -> dict[str, Any]:
    """What a sweep must leave as it was in the process that runs it."""
    return {
        "working directory": os.getcwd(),
        # but for what threadpoolctl and loky set when they are first used
        "environment": {k: v for k, v in os.environ.items() if not k.startswith("KMP_")},
        "numpy's generator": [str(one) for one in np.random.get_state()],
        "python's generator": random.getstate(),
        "standard output": (sys.stdout, sys.stderr),
        # but for the one that xarray puts there when it opens a store
        "filters of warnings": [f for f in warnings.filters if "decode_timedelta" not in str(f[1])],
        "float errors": np.geterr(),
        "square root": math.sqrt,
        "handlers": [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)],
    }


@contextmanager
def unharmed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, drawn_from: bool = False
) -> Iterator[None]:
    """No process, no temporary folder and no change of the process is left.

    A scheduler of dask in this process draws from Python's generator, whatever we do.
    """
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(math, "sqrt", math.sqrt)
    processes, before = family(), surroundings()
    yield
    after = surroundings()
    for name, value in before.items():
        if drawn_from and name == "python's generator":
            continue
        assert after[name] == value, name
    until(lambda: family() <= processes)
    until(lambda: not os.listdir(temporary))


ROWS = [
    pytest.param(fault, backend, id=f"{fault.name}-{backend}")
    for fault in zoo.FAULTS
    for backend in fault.backends
]


@pytest.mark.parametrize(("fault", "backend"), ROWS)
def test_a_fault_costs_its_own_run_only(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, fault: Fault, backend: str
) -> None:
    function = zoo.simulator(fault.act, alone=backend in zoo.HERE)
    sweep = sk.Sweep(function, sk.grid(i=range(RUNS)), version="1")
    if fault.act is not acts.is_deaf_to_the_stack_signal:
        monkeypatch.setattr("sweepkit.member.STACK_SECONDS", LIMIT)
    with unharmed(tmp_path, monkeypatch):
        before = family()
        ds = sk.run(sweep, store, n_jobs=2, backend=backend, progress=False, **fault.options).load()
        if fault.leaves and backend not in zoo.IN_PROCESSES:
            left = [psutil.Process(pid) for pid in family() - before]
            assert left
            for one in left:
                one.kill()
    check(ds, fault, store)


def check(ds: xr.Dataset, fault: Fault, store: str) -> None:
    """The faulty run alone is told, as it is to be."""
    expected = np.full(RUNS, Status.DONE)
    expected[FAULTY] = fault.status
    told = {int(i): str(ds["error"][i].values) for i in np.flatnonzero(ds["status"] != expected)}
    assert ds["status"].values.tolist() == expected.tolist(), told
    others = np.arange(RUNS) != FAULTY
    assert ds["y"].values[others].tolist() == [float(i**2) for i in range(RUNS) if i != FAULTY]
    assert (ds["error"].values[others] == "").all()
    run = ds.isel(i=FAULTY)
    if fault.status != Status.DONE:
        assert np.isnan(run["y"])
        assert re.search(fault.error, str(run["error"].values)), str(run["error"].values)
    log = str(run["log"].values)
    for wanted in fault.log:
        assert re.search(wanted, log), (wanted, log[:3000])
    assert len(log) < 40_000
    if fault.notes:
        (session,) = Path(f"{store}.sweepkit", "sessions").iterdir()
        notes = json.loads(session.read_text())["notes"]
        for wanted in fault.notes:
            assert any(re.search(wanted, one) for one in notes), (wanted, notes)


# --- on a dask cluster ---------------------------------------------------------------------------

SAMPLED = {"is_killed", "sleeps_in_c_holding_the_interpreter", "exits_politely", "returns_a_lock"}
"""Faults of each kind that are tried on a cluster in the quick suite."""

ON_DASK = [
    pytest.param(
        fault,
        id=fault.name,
        marks=() if fault.name in SAMPLED else pytest.mark.slow,
    )
    for fault in zoo.FAULTS
]


@dataclass(frozen=True)
class Cluster:
    """A dask cluster of this machine, and the folder for temporary files of its workers."""

    client: Any
    temporary: Path

    def below(self) -> set[int]:
        """Processes that its workers have started, but for loky's trackers."""
        found = set()
        for pid in self.client.run(os.getpid).values():
            for one in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if TRACKER not in " ".join(one.cmdline()) and one.status() != "zombie":
                        found.add(one.pid)
        return found


def more_time_for_stacks() -> None:
    """A loaded machine may take longer to write one than people are to wait."""
    import sweepkit.member

    sweepkit.member.STACK_SECONDS = 5.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    distributed = pytest.importorskip("distributed", reason="needs 'sweepkit[dask]'")
    temporary = tmp_path_factory.mktemp("workers")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with (
        pytest.MonkeyPatch.context() as patch,
        distributed.LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
            silence_logs=logging.CRITICAL,
        ) as made,
        distributed.Client(made, set_as_default=False) as client,
    ):
        patch.setenv("TMPDIR", str(temporary))
        made.scale(2)
        client.wait_for_workers(2, timeout=LIMIT)
        client.run(more_time_for_stacks)
        yield Cluster(client, temporary)


@pytest.mark.parametrize("fault", ON_DASK)
def test_a_fault_on_a_cluster_costs_its_own_run_only(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, fault: Fault
) -> None:
    sweep = sk.Sweep(zoo.simulator(fault.act, alone=True), sk.grid(i=range(RUNS)), version="1")
    executor = sk.DaskExecutor(cluster.client)
    workers = cluster.client.run(os.getpid)
    with unharmed(tmp_path, monkeypatch, drawn_from=True):
        ds = sk.run(sweep, store, executor=executor, progress=False, **fault.options).load()
    check(ds, fault, store)
    assert cluster.client.run(os.getpid) == workers
    until(lambda: not cluster.below())
    until(lambda: not os.listdir(cluster.temporary))

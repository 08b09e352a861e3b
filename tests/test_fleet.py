"""Worker processes: what ends one, what replaces one, and what never notices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import psutil
import pytest

import sweepkit as sk
from sweepkit.fleet import Fleet, WorkerStartError, pickled
from sweepkit.protocols import Batch
from sweepkit.status import Status
from tests.contracts import task_of
from tests.plain import counts, kill_self, overdue, run, workers
from tests.waiting import LIMIT, gone, hang, until

Start = Callable[..., "Popen[str]"]


# --- who gets what ---


def test_no_run_waits_for_a_worker_that_is_still_starting() -> None:
    task = task_of(sk.Sweep(lambda a: a, sk.grid(a=range(4))))
    batches = [Batch(0, np.array([at]), np.array([at]), 0.0) for at in range(4)]
    with Fleet(pickled(task), 1, 2) as fleet:
        done = 0
        for outcome in fleet.map(iter(batches), lambda: False):
            assert all(member.ready or not member.inflight for member in fleet._members)
            done += 0 if outcome is None else len(outcome.batch)
        assert done == 4


def test_a_worker_that_is_let_go_takes_its_daemons_along(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def f(a: int) -> int:
        daemon = f"setsid sh -c 'echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 600.5' &"
        subprocess.run(["sh", "-c", daemon], check=True)
        until(mark.exists)
        return a

    task = task_of(sk.Sweep(f, sk.grid(a=[1])))
    batch = Batch(0, np.array([0]), np.array([0]), 0.0)
    done: list[Batch] = []

    def share(_: int) -> int:
        return 1 - len(done)

    with Fleet(pickled(task), 1, 1) as fleet:
        for outcome in fleet.map(iter([batch]), lambda: False, share):
            done += [] if outcome is None else [outcome.batch]
        assert not fleet._members
        pid = int(mark.read_text())
        gone(psutil.Process(pid) for _ in range(psutil.pid_exists(pid)))


# --- what comes while runs go on ---------------------------------------------------------------


def test_progress_is_reported_while_every_run_hangs(tmp_path: Path, store: str) -> None:
    seen: list[sk.Progress] = []

    def report(progress: sk.Progress) -> None:
        seen.append(progress)
        if sum(p.state == "running" and not p.finished for p in seen) == 4:
            (tmp_path / "go on").touch()

    def f(i: int) -> float:
        until((tmp_path / "go on").exists)
        return float(i)

    for backend in ("loky", "threading"):
        seen.clear()
        (tmp_path / "go on").unlink(missing_ok=True)
        ds = run(f, f"{store}.{backend}", 2, backend=backend, progress=report)
        assert counts(ds) == {"done": 2}
        assert sum(p.state == "running" and not p.finished for p in seen) >= 4


@pytest.mark.parametrize("how", ["hangs", "dies"])
def test_what_is_finished_of_a_batch_outlives_its_worker(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = overdue(tmp_path, monkeypatch)
    ledger = tmp_path / "ledger"
    ledger.touch()

    def f(i: int) -> float:
        with open(ledger, "a") as file:
            file.write(f"{i}\n")
        time.sleep(0.03)
        if i == 7:
            if how == "hangs":
                hang(mark)
            os._exit(3)
        return float(i)

    sweep = sk.Sweep(f, sk.grid(i=range(12)))
    runs = np.arange(12)
    limit = (lambda: LIMIT) if how == "hangs" else None
    became = Status.TIMEOUT if how == "hangs" else Status.CRASHED
    lost: dict[int, int] = {}
    with sk.JoblibExecutor(1, "loky").hold(task_of(sweep), timeout=limit) as crew:
        for outcome in crew.map(iter([Batch(0, runs, runs)]), lambda: False):
            if outcome is not None:
                for run, status in zip(outcome.batch.runs, outcome.result.status, strict=True):
                    assert status == (became if run == 7 else Status.DONE)
                lost |= dict.fromkeys(outcome.batch.runs.tolist(), outcome.batch.lost)
    begun = Counter(int(line) for line in ledger.read_text().split())
    assert set(lost) == set(range(12))
    assert {i: times + 1 for i, times in lost.items()} == begun
    assert sum(count > 1 for count in begun.values()) <= 1  # of what took long, little is lost


def test_attempts_tell_how_often_runs_were_begun(tmp_path: Path, store: str) -> None:
    ledger = tmp_path / "ledger"

    def f(i: int) -> float:
        file = os.open(ledger, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, b"%d\n" % i)
        os.close(file)
        if i in (71, 333):
            kill_self()
        return float(i)

    ds = run(f, store, 400)
    assert counts(ds) == {"done": 398, "crashed": 2}
    begun = Counter(int(line) for line in ledger.read_text().split())
    assert ds["attempts"].values.tolist() == [begun[i] for i in range(400)]
    assert ds["attempts"].sel(i=71) == 2


def test_a_sweep_that_raises_stops_within_the_batch(tmp_path: Path, store: str) -> None:
    ledger = tmp_path / "ledger"

    def f(i: int) -> float:
        with open(ledger, "a") as file:
            file.write(f"{i}\n")
        if ledger.read_text().count("\n") == 300:
            raise ValueError("no more")
        return float(i)

    for backend in ("loky", "sequential"):
        ledger.unlink(missing_ok=True)
        with pytest.raises(sk.RunError, match="ValueError: no more"):
            run(f, f"{store}.{backend}", 2000, backend=backend, n_jobs=1, on_error="raise")
        status = sk.open(f"{store}.{backend}", mask=False)["status"].values
        assert len(ledger.read_text().split()) == 300
        assert np.bincount(status)[:3].tolist() == [1700, 299, 1]


@pytest.mark.parametrize("retry", [0, 1])
def test_too_many_errors_are_counted_as_they_are_stored(store: str, retry: int) -> None:
    def f(i: int) -> float:
        raise ValueError

    with pytest.raises(sk.TooManyErrorsError) as caught:
        run(f, store, 4000, max_errors=0.1, retry=retry, timeout=60)
    status = sk.open(store, mask=False)["status"].values
    stored = int((status == Status.ERROR).sum())
    assert stored >= 20
    assert str(caught.value) == (
        f"{stored} of {stored} runs of this session did not succeed, more than max_errors=0.1 "
        f"allows: ValueError ({stored}); what is done is kept: mend the cause and run it again "
        'with rerun="error", or allow more'
    )


# --- workers that cannot start -----------------------------------------------------------------


def test_a_closure_that_cannot_be_sent_is_refused_by_name(tmp_path: Path, store: str) -> None:
    lock = threading.Lock()

    def f(i: int) -> float:
        with lock:
            return float(i)

    with pytest.raises(TypeError, match=r"cannot be sent to worker processes because of.*lock"):
        run(f, store, 3)
    assert not Path(store).exists()
    assert workers() == []


class Unloadable:
    """A simulator that turns to bytes, and not back."""

    def __call__(self, i: int) -> float:
        return float(i)

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_workers_that_cannot_load_the_simulator_are_told_once(store: str) -> None:
    with pytest.raises(WorkerStartError, match=r"(?s)before they run anything.*ValueError"):
        run(Unloadable(), store, 3)
    assert workers() == []


# --- recycling ---------------------------------------------------------------------------------


def test_a_worker_is_replaced_after_so_many_runs(store: str) -> None:
    def f(i: int) -> dict[str, float]:
        return {"pid": float(os.getpid())}

    ds = run(f, store, 23, recycle_after=5)
    by_worker = Counter(ds["pid"].values.tolist())
    assert max(by_worker.values()) <= 5
    assert counts(ds) == {"done": 23}


def test_a_worker_is_replaced_once_it_has_grown(store: str) -> None:
    kept: list[Any] = []

    def f(i: int) -> dict[str, float]:
        kept.append(np.ones(5 * 2**20))
        return {"pid": float(os.getpid()), "held": float(len(kept))}

    ds = run(f, store, 24, recycle_after="150 MB")
    assert counts(ds) == {"done": 24}
    assert len(set(ds["pid"].values.tolist())) >= 3
    assert ds["held"].max() <= 12


@pytest.mark.parametrize("given", [0, -1, True, "5", "5 apples", "-3 MB", 2.5])
def test_nonsense_to_recycle_after_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="number of runs, or memory as in '500 MB'"):
        sk.JoblibExecutor(2, "loky", recycle_after=given)


# --- standing still ----------------------------------------------------------------------------


def test_a_worker_that_stands_still_for_a_while_goes_on(store: str) -> None:
    stopped: list[psutil.Process] = []
    resumed = threading.Event()

    def go_on() -> None:
        stopped[0].resume()
        resumed.set()

    def stop(progress: sk.Progress) -> None:
        if progress.finished and not stopped:
            stopped.append(workers()[0])
            stopped[0].suspend()
            threading.Timer(1.5, go_on).start()

    def f(i: int) -> float:
        time.sleep(0.05)
        return float(i)

    ds = run(f, store, 60, progress=stop)
    assert resumed.wait(LIMIT)
    assert counts(ds) == {"done": 60}


def test_a_closed_laptop_costs_no_run_its_time_limit(tmp_path: Path, start: Start) -> None:
    driver = start(
        """
        import json, time
        import sweepkit as sk

        def f(i):
            time.sleep(0.2)
            return float(i)

        said = []
        def progress(p):
            if p.finished >= 2 and not said:
                said.append(print("running", flush=True))

        ds = sk.run(sk.Sweep(f, sk.grid(i=range(16))), "a.zarr", n_jobs=2, timeout=3.0,
                    progress=progress)
        print(json.dumps(ds["status"].values.tolist()))
        """
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "running\n"
    all_ = [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]
    for one in all_:
        one.suspend()
    time.sleep(3.5)  # longer than the time limit: that is the point
    for one in reversed(all_):
        one.resume()
    out, err = driver.communicate(timeout=LIMIT)
    assert json.loads(out) == [Status.DONE] * 16, err


# --- what a run is given -----------------------------------------------------------------------


def scratch_user(seen: Path, act: Callable[[int], None]) -> Callable[..., float]:
    def f(i: int, scratch: str) -> float:
        assert os.listdir(scratch) == []
        Path(scratch, "out.txt").write_text(str(i))
        Path(seen, str(i)).write_text(str(scratch))
        act(i)
        return float(Path(scratch, "out.txt").read_text())

    return f


def end_badly(i: int, mark: Path) -> None:
    if i == 4:
        hang(mark)
    if i == 2:
        raise ValueError
    if i == 3:
        os._exit(3)


def nothing(i: int) -> None:
    pass


@pytest.mark.parametrize("backend", ["sequential", "threading", "loky"])
def test_scratch_folders_are_fresh_and_removed(
    tmp_path: Path, store: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = overdue(tmp_path, monkeypatch)
    seen = tmp_path / "seen"
    seen.mkdir()
    options: dict[str, Any] = {"timeout": LIMIT, "n_jobs": 1} if backend == "loky" else {}
    act = partial(end_badly, mark=mark) if backend == "loky" else nothing
    ds = run(scratch_user(seen, act), store, 8, backend=backend, **options)
    assert ds["result"].values[5:].tolist() == [5.0, 6.0, 7.0]
    folders = [one.read_text() for one in seen.iterdir()]
    assert len(set(folders)) == len(folders) == 8
    assert not any(map(os.path.exists, folders))


def test_scratch_folders_are_kept_if_asked_for(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = partial(end_badly, mark=overdue(tmp_path, monkeypatch))
    seen = tmp_path / "seen"
    seen.mkdir()
    run(scratch_user(seen, act), store, 8, timeout=LIMIT, n_jobs=1, keep_scratch=True)
    folders = {int(one.name): Path(one.read_text()) for one in seen.iterdir()}
    assert len(set(folders.values())) == 8
    for i, folder in folders.items():
        assert folder.parent == Path(f"{store}.sweepkit", "scratch")
        assert Path(folder, "out.txt").read_text() == str(i)


def test_linear_algebra_in_workers_uses_the_threads_of_the_sweep(store: str) -> None:
    def f(i: int) -> dict[str, float]:
        from threadpoolctl import threadpool_info

        np.ones((20, 20)) @ np.ones((20, 20))
        return {"threads": float(max(one["num_threads"] for one in threadpool_info()))}

    assert run(f, store, 2)["threads"].values.tolist() == [1.0, 1.0]


def test_an_interrupt_sent_to_a_worker_does_not_reach_runs_and_is_left_to_their_children(
    store: str,
) -> None:
    def f(i: int) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGINT)
        code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
        out = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, check=True)
        return {"deaf": float(out.stdout.strip() == b"True")}

    ds = run(f, store, 2)
    assert counts(ds) == {"done": 2}
    assert ds["deaf"].values.tolist() == [0.0, 0.0]


def test_workers_have_the_flags_of_the_interpreter(store: str) -> None:
    code = (
        "import sys, sweepkit as sk\n"
        "def flags(i): return {'optimized': sys.flags.optimize, 'dev': sys.flags.dev_mode}\n"
        f"ds = sk.run(sk.Sweep(flags, sk.grid(i=[0])), {store!r}, backend='loky', progress=False)\n"
        "print(int(ds['optimized'][0]), bool(ds['dev'][0]))"
    )
    command = [sys.executable, "-O", "-X", "dev", "-W", "ignore", "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT)
    assert told.stdout.split() == ["1", "True"], told.stderr

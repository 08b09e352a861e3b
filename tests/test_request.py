"""Requests: what is asked for, and sessions that stop at it."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.course import Course
from sweepkit.status import Progress, Status
from tests.clock import Clock
from tests.waiting import LIMIT

THREADS: dict[str, Any] = {"backend": "threading", "progress": False}
HERE: dict[str, Any] = {"backend": "sequential", "progress": False}


def napping(a: int, b: int, rng: Any) -> dict[str, float]:
    time.sleep(0.006 * (1 + a))
    return {"y": a * b + rng.normal()}


GRID = sk.grid(a=range(8), b=range(8))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.zarr")


def counted(ds: xr.Dataset) -> int:
    return int((ds["status"] == Status.DONE).sum())


# --- what is asked for ---


def test_limits_are_read_when_they_are_asked_for() -> None:
    before = datetime.now().astimezone()
    request = sk.Request(workers=3, duration="2 min", budget="1 core-hour", deadline="2 h")
    assert (request.seconds, request.core_seconds) == (120, 3600)
    assert request.ends is not None
    asked = request.ends - timedelta(hours=2)
    assert before <= asked <= datetime.now().astimezone()
    assert request.limited
    assert not sk.Request(workers=3).limited
    assert "duration='2 min'" in repr(request)


def test_the_first_limit_counts() -> None:
    request = sk.Request(duration=100, budget=60)
    assert request.left(10, 1) == (50, "the budget of 60 core-s")
    assert request.left(10, 4) == (5, "the budget of 60 core-s")
    assert sk.Request(duration=100).left(10, 4) == (90, "the duration of 100 s")
    assert sk.Request().left(10, 4)[0] == float("inf")


def test_bad_requests_are_refused() -> None:
    past = datetime.now() - timedelta(seconds=1)
    with pytest.raises(ValueError, match="is past"):
        sk.Request(deadline=past)
    with pytest.raises(ValueError, match="workers is 0"):
        sk.Request(workers=0)
    with pytest.raises(ValueError, match=r"budget is 'a lot'.*'4 core-hours'"):
        sk.Request(budget="a lot")
    with pytest.raises(ValueError, match="duration is -1"):
        sk.Request(duration=-1)


@pytest.mark.parametrize("deadline", ["1e9 h", "1e999 h", timedelta.max])
def test_a_deadline_beyond_the_calendar_is_refused(deadline: Any) -> None:
    with pytest.raises(ValueError, match="further off than a calendar reaches; give an earlier"):
        sk.Request(deadline=deadline)


@pytest.mark.parametrize("span", [1e300, 10**400, float("inf"), float("nan"), "1e30 h"])
def test_a_limit_without_end_is_refused(span: Any) -> None:
    with pytest.raises(ValueError, match=r"duration is .*of at most 1e.15 s"):
        sk.Request(duration=span)
    with pytest.raises(ValueError, match=r"budget is .*of at most 1e.15 core-seconds"):
        sk.Request(budget=span)


def test_a_deadline_that_passed_since_is_told_before_a_store_is_made(store: str) -> None:
    request = sk.Request(deadline=timedelta(seconds=0.02))
    threading.Event().wait(0.03)
    sweep = sk.Sweep(lambda a: a, sk.grid(a=[1, 2]))
    with pytest.raises(ValueError, match=r"deadline of the request, .*, is past, and 2 runs are"):
        sk.run(sweep, store, request=request, **THREADS)
    assert not Path(store).exists()
    job = sk.start(sweep, store, request=request, backend="threading")
    assert job.wait(LIMIT)
    assert "is past, and 2 runs are pending; give a later one" in job.error
    assert not Path(store).exists()
    sk.run(sweep, store, **THREADS)
    assert counted(sk.run(sweep, store, request=request, **THREADS)) == 2  # nothing is left to do


def test_a_request_that_contradicts_the_call_is_refused(store: str) -> None:
    sweep = sk.Sweep(napping, GRID)
    with pytest.raises(ValueError, match="asks for 2 workers, and the call for 3"):
        sk.run(sweep, store, n_jobs=3, request=sk.Request(workers=2))
    with pytest.raises(TypeError, match=r"request is \{'workers': 2\}"):
        sk.run(sweep, store, request={"workers": 2})  # type: ignore[arg-type]
    assert not Path(store).exists()


# --- sessions under one ---


@pytest.mark.parametrize(
    "limits", [{"duration": "1 s"}, {"deadline": timedelta(seconds=1)}, {"budget": 1}]
)
def test_a_session_stops_at_its_limit_and_goes_on_later(
    store: str, limits: dict[str, Any], clock: Clock
) -> None:
    def simulate(a: int, b: int) -> float:
        clock.pass_by(0.012 * (1 + a))
        return 1.0

    sweep = sk.Sweep(simulate, GRID, cost=lambda a: 0.012 * (1 + a), version="1")
    shown: list[Progress] = []
    request = sk.Request(workers=1, **limits)
    ds = sk.run(sweep, store, request=request, backend="sequential", progress=shown.append)
    done = counted(ds)
    assert 10 < done < GRID.size
    assert (ds["attempts"] <= 1).all()
    assert shown[-1].state == "done"
    assert f"{GRID.size - done} runs" in shown[-1].note
    receipt = sk.receipt(store)
    assert receipt.left == shown[-1].note
    assert receipt.sessions["state"].tolist() == ["limit"]
    assert 0.8 < receipt.held_seconds <= 1
    ds = sk.run(sweep, store, n_jobs=8, **THREADS)
    assert counted(ds) == GRID.size
    assert (ds["attempts"] == 1).all()


def test_a_limit_is_ended_for_before_it_as_workers_are_held_until_they_have_ended() -> None:
    for seconds, workers, least in ((60, 2, 0.15), (60, 8, 0.3), (0.2, 2, 0.02)):
        course = Course(sk.Request(duration=seconds))
        left, limit = course.time_left(workers)
        assert least - 1e-9 <= seconds - left <= 0.1 * seconds + 1e-9
        assert limit.startswith("the duration")


def test_no_run_is_begun_whose_bound_overruns_the_limit(store: str, clock: Clock) -> None:
    begun: list[int] = []

    def simulate(a: int) -> float:
        begun.append(a)
        clock.pass_by(0.02 if a < 20 else 30)
        return 1.0

    sweep = sk.Sweep(simulate, sk.grid(a=range(24)), cost=lambda a: 0.02 if a < 20 else 30.0)
    ds = sk.run(sweep, store, request=sk.Request(duration="5 s"), **HERE)
    assert sorted(begun) == list(range(20))
    assert counted(ds) == 20
    left = sk.receipt(store).left
    assert left == "4 runs: none of them is sure to end within the duration of 5 s"


def test_runs_end_before_a_deadline_as_their_costs_are_learnt(store: str, clock: Clock) -> None:
    def simulate(a: int, b: int) -> dict[str, float]:
        clock.pass_by(0.03 * (1 + a))
        return {"ended": clock.time()}

    ends = datetime.now() + timedelta(seconds=4)
    request = sk.Request(deadline=ends)
    ds = sk.run(sk.Sweep(simulate, GRID), store, request=request, **HERE)
    assert 16 <= counted(ds) < GRID.size
    late = ds["ended"].values[np.isfinite(ds["ended"].values)] - ends.timestamp()
    assert (late <= 0).all(), np.sort(late)[-5:]


def test_without_a_store_yet_nothing_is_begun_that_cannot_end(store: str) -> None:
    begun = threading.Event()

    def simulate(a: int) -> float:
        begun.set()
        return 1.0

    sweep = sk.Sweep(simulate, sk.grid(a=range(4)), cost=3600)
    ds = sk.run(sweep, store, request=sk.Request(workers=1, duration="1 min"), **THREADS)
    assert not begun.is_set()
    assert counted(ds) == 0
    assert sk.receipt(store).pending == 4


def test_many_workers_for_a_short_time_or_few_for_longer_give_the_same_bits(
    tmp_path: Path,
) -> None:
    sweep = sk.Sweep(napping, GRID)
    made = []
    for workers, seconds in ((8, 0.15), (3, 0.3), (1, 60)):
        path = tmp_path / f"{workers}.zarr"
        sessions = before = 0
        while True:
            request = sk.Request(workers=workers, duration=seconds)
            ds = sk.run(sweep, path, request=request, **THREADS)
            sessions += 1
            if counted(ds) == GRID.size:
                break
            if counted(ds) == before:  # the machine is so busy that no run is sure to fit
                seconds *= 2
            before = counted(ds)
            assert sessions < 40
        assert (ds["attempts"] == 1).all() or sessions > 1
        assert len(sk.receipt(path).sessions) == sessions
        made.append(ds[["y", "status"]].load())
    for other in made[1:]:
        xr.testing.assert_identical(made[0], other)


def test_worker_processes_stop_at_a_limit_too(store: str) -> None:
    def simulate(a: int) -> int:
        time.sleep(0.05)
        return a

    sweep = sk.Sweep(simulate, sk.grid(a=range(400)))
    ds = sk.run(sweep, store, request=sk.Request(workers=2, duration="1 s"), progress=False)
    assert counted(ds) < 400  # two workers take ten seconds, on the quickest machine
    assert sk.receipt(store).sessions["state"].tolist() == ["limit"]

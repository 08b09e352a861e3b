"""Several jobs in one pool: shares, queueing, deaths, and the end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit.policies import Standing, fair_finish, fair_share, first_come
from sweepkit.pool import SLICE, Seat, Slots
from sweepkit.status import ENDINGS, Status
from tests.test_job import Told, soon, workers
from tests.waiting import LIMIT


def slow(a: int) -> int:
    time.sleep(0.02)
    return 2 * a


def doubled(a: int) -> int:
    return 2 * a


def quick(a: int) -> int:
    time.sleep(0.01)
    return a


def dies_at_seven(a: int) -> int:
    if a == 7:
        os.abort()
    return a


def sweep(simulator: Any, n: int) -> sk.Sweep:
    return sk.Sweep(simulator, sk.grid(a=range(n)))


@pytest.fixture
def pool() -> Iterator[sk.Pool]:
    made = sk.Pool(n_jobs=2)
    yield made
    made.close(cancel=True)


# --- slots, with a clock by hand -----------------------------------------------------------------


class Hand:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def seat(slots: Slots, pending: int = 100, cost: float = 1.0, **options: Any) -> Seat:
    given = {"weight": 1.0, "priority": 0, "deadline": math.inf, **options}
    made = Seat(**given, outlook=lambda: (pending, cost), arrived=slots.clock())
    slots.join(made)
    return made


def test_one_job_has_all_slots_and_a_second_waits_until_one_is_let_go() -> None:
    clock = Hand()
    slots = Slots(2, fair_share, clock)
    first = seat(slots)
    assert slots.share(first, 0) == 2
    clock.now = 2 * SLICE
    second = seat(slots)
    assert slots.share(second, 0) == 0
    assert slots.share(first, 2) == 1
    assert slots.share(second, 0) == 0
    assert slots.share(first, 1) == 1
    assert slots.share(second, 0) == 1
    slots.leave(first)
    assert slots.share(second, 1) == 2


def test_a_worker_that_was_just_given_is_kept_for_a_while() -> None:
    clock = Hand()
    slots = Slots(2, fair_share, clock)
    first = seat(slots)
    slots.share(first, 0)
    second = seat(slots)
    assert slots.share(first, 2) == 2
    clock.now = SLICE
    assert slots.share(first, 2) == 1
    assert slots.share(second, 0) == 0


def test_queued_time_is_not_metered_and_what_is_held_is() -> None:
    clock = Hand()
    slots = Slots(4, first_come, clock)
    first, second = seat(slots), seat(slots)
    slots.share(first, 0)
    slots.share(first, 4)
    assert slots.share(second, 0) == 0
    clock.now = 10.0
    slots.share(second, 0)
    assert (first.held, second.held) == (40.0, 0.0)
    assert second.entitled == pytest.approx(20.0, rel=0.1)


def test_a_job_of_unknown_cost_gets_one_worker_to_try() -> None:
    slots = Slots(4, fair_finish, Hand())
    big, new = seat(slots), seat(slots, cost=math.nan)
    assert slots.share(new, 0) == 1
    assert slots.share(big, 0) == 3


def test_a_policy_that_names_no_job_is_told_so() -> None:
    slots = Slots(2, lambda _: 5, Hand())
    with pytest.raises(ValueError, match="the policy returned 5 for 1 jobs; return the position"):
        slots.share(seat(slots), 0)


# --- jobs ----------------------------------------------------------------------------------------


def test_a_short_sweep_behind_a_long_one_gets_its_share_at_once(
    pool: sk.Pool, tmp_path: Path
) -> None:
    told = Told()
    long = pool.start(sweep(slow, 100_000), tmp_path / "long.zarr", progress=told)
    told.wait(lambda now: now.finished > 100)
    short = pool.start(sweep(quick, 20), tmp_path / "short.zarr")
    ds = short.result(LIMIT)
    assert ds["result"].values.tolist() == list(range(20))
    assert long.state not in ENDINGS
    finished = long.progress.finished
    assert told.wait(lambda now: now.finished > finished + 20)
    assert "short.zarr: done, 20 of 20 runs, 0 workers" in repr(pool)


def test_a_death_in_one_job_is_none_in_another_and_workers_are_let_go_at_the_end(
    pool: sk.Pool, tmp_path: Path
) -> None:
    jobs = [
        pool.start(sweep(dies_at_seven, 20), tmp_path / "a.zarr"),
        pool.start(sweep(quick, 50), tmp_path / "b.zarr"),
    ]
    dying, other = (job.result(LIMIT)["status"].values for job in jobs)
    assert np.flatnonzero(dying == Status.CRASHED).tolist() == [7]
    assert (other == Status.DONE).all()
    assert pool.wait(0)
    assert not workers()


def test_a_queued_job_can_be_cancelled_and_holds_nothing(tmp_path: Path) -> None:
    with sk.Pool(n_jobs=1, policy=first_come, backend="threading") as pool:
        told = Told()
        first = pool.start(sweep(slow, 100_000), tmp_path / "a.zarr", progress=told)
        told.wait(lambda now: now.finished > 5)
        second = pool.start(sweep(slow, 10), tmp_path / "b.zarr")
        soon(lambda: second.state != "declared")
        assert second.state == "queued"
        second.cancel()
        assert second.wait(LIMIT)
        assert (second.state, second.progress.finished) == ("cancelled", 0)
        first.cancel()
    assert first.state == "cancelled"


def test_a_policy_of_ones_own_decides(tmp_path: Path) -> None:
    def last_come(jobs: Standing) -> int:
        return int(np.argmax(jobs.arrived))

    with sk.Pool(n_jobs=1, policy=last_come, backend="threading") as pool:
        told = Told()
        first = pool.start(sweep(slow, 100_000), tmp_path / "a.zarr", progress=told)
        told.wait(lambda now: now.finished > 5)
        second = pool.start(sweep(slow, 20), tmp_path / "b.zarr")
        second.result(LIMIT)
        assert first.state not in ENDINGS
        first.cancel()


def test_leaving_by_an_error_cancels_the_jobs_and_a_closed_pool_takes_none(tmp_path: Path) -> None:
    pool = sk.Pool(n_jobs=1, backend="threading")

    def interrupted() -> None:
        with pool:
            pool.start(sweep(slow, 100_000), tmp_path / "a.zarr")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [job.state for job in pool.jobs] == ["cancelled"]
    with pytest.raises(ValueError, match="the pool is closed; make another one"):
        pool.start(sweep(slow, 2), tmp_path / "b.zarr")


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"weight": 0}, "weight is 0; give a number between 1e-06 and 1e.06"),
        ({"weight": -1.0}, "weight is -1.0; give"),
        ({"weight": math.inf}, "weight is inf; give"),
        ({"weight": math.nan}, "weight is nan; give"),
        ({"weight": 1e-300}, "weight is 1e-300; give"),
        ({"weight": "2"}, "weight is '2'; give a number"),
        ({"weight": True}, "weight is True; give a number"),
        ({"priority": "high"}, "priority is 'high'; give a whole number"),
        ({"priority": math.nan}, "priority is nan; give a whole number"),
        ({"priority": 0.5}, "priority is 0.5; give a whole number"),
        ({"priority": 2**70}, "priority is 1180591620717411303424; give a whole number between"),
        ({"deadline": -1}, "deadline is -1; give seconds above 0"),
        ({"deadline": math.nan}, "deadline is nan; give seconds above 0"),
        ({"deadline": "soon"}, "deadline is 'soon'; give a time of day"),
        ({"deadline": "2020-01-01"}, "deadline '2020-01-01' is past"),
        ({"deadline": [1]}, r"deadline is \[1\]; give a time of day"),
    ],
)
def test_what_a_policy_could_not_weigh_is_refused_when_a_job_is_started(
    tmp_path: Path, option: dict[str, Any], match: str
) -> None:
    pool = sk.Pool(n_jobs=1, backend="sequential")
    with pytest.raises((TypeError, ValueError), match=match):
        pool.start(sweep(slow, 2), tmp_path / "a.zarr", **option)
    assert pool.jobs == ()
    assert not (tmp_path / "a.zarr").exists()


def test_weights_and_deadlines_of_all_kinds_are_taken(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with sk.Pool(n_jobs=2, backend="threading") as pool:
        for number, option in enumerate(
            (
                {"weight": 1e-6, "priority": np.int64(-3)},
                {"weight": np.float32(1e6), "deadline": "2 h"},
                {"weight": 2, "deadline": timedelta(minutes=60)},
                {"deadline": 3600},
            )
        ):
            pool.start(sweep(doubled, 4), tmp_path / f"{number}.zarr", **option)  # type: ignore[arg-type]
    assert [job.state for job in pool.jobs] == ["done"] * 4
    assert not recwarn.list


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        ("fair", "policy is 'fair'; give a function of a Standing"),
        (lambda jobs: 2, "the policy returned 2 for 2 jobs; return the position"),
        (lambda jobs: 0.0, "the policy returned 0.0 for 2 jobs"),
        (lambda jobs: None, "the policy returned None for 2 jobs"),
        (lambda jobs: True, "the policy returned True for 2 jobs"),
        (lambda: 0, "takes 0 positional arguments"),
    ],
)
def test_a_policy_that_names_no_job_is_refused_by_the_pool(policy: Any, match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        sk.Pool(n_jobs=1, policy=policy)


def test_options_of_compute_belong_to_the_pool(pool: sk.Pool, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="start has no option 'n_jobs'"):
        pool.start(sweep(slow, 2), tmp_path / "a.zarr", n_jobs=3)  # type: ignore[call-arg]

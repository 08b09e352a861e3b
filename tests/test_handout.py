"""Order of a session's runs: coarse pass, longest first, few blocks open, learnt on resume."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit import format1
from sweepkit.cost import Costs
from sweepkit.executors.joblib import JoblibExecutor
from sweepkit.plan import coarse_runs
from sweepkit.run import Session
from sweepkit.settings import Settings
from sweepkit.status import Status
from sweepkit.stores.zarr import ZarrStore
from sweepkit.views.progress import silent
from tests.clock import Clock

THREADS: dict[str, Any] = {"backend": "threading", "progress": False}


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick runs are handed out as slow ones are."""
    monkeypatch.setattr(sys.modules["sweepkit.handout"], "QUICK", 0.0)
    monkeypatch.setattr(sys.modules["sweepkit.plan"], "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(sys.modules["sweepkit.plan"], "BATCH_SECONDS", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.zarr")


def order_of(sweep: sk.Sweep, store: str, ran: list[int], **options: Any) -> list[int]:
    ran.clear()
    sk.run(sweep, store, backend="sequential", progress=False, **options)
    return list(ran)


def recording(ran: list[int]) -> Any:
    def simulate(i: int) -> float:
        ran.append(i)
        return 1.0

    return simulate


@pytest.mark.usefixtures("one_by_one")
def test_after_the_coarse_pass_the_longest_runs_go_first(store: str) -> None:
    ran: list[int] = []
    n = 300
    cost = np.random.default_rng(0).permutation(n) + 10.0
    sweep = sk.Sweep(recording(ran), sk.grid(i=range(n)), cost=lambda i: cost[i])
    order = order_of(sweep, store, ran)
    assert sorted(order) == list(range(n))
    rest = [cost[i] for i in order[coarse_runs(n) :]]
    assert rest == sorted(rest, reverse=True)
    coarse = [cost[i] for i in order[: coarse_runs(n)]]
    assert coarse != sorted(coarse, reverse=True)


def test_runs_that_decide_the_end_do_not_wait_for_the_coarse_pass(store: str) -> None:
    ran: list[int] = []
    sweep = sk.Sweep(
        recording(ran), sk.grid(i=range(300)), cost=lambda i: 500.0 if i in (7, 99) else 1.0
    )
    ran.clear()
    sk.run(sweep, store, n_jobs=4, **THREADS)
    assert {7, 99} <= set(ran[:4])


def test_quick_calls_of_many_runs_are_not_cut_by_pieces_of_the_coarse_pass(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format1, "BLOCK_RUNS", 1000)
    grid = sk.grid(i=range(40_000))
    sweep = sk.Sweep(sk.vectorized(lambda i: i * 1.0), grid)
    held = ZarrStore(store)
    session = Session(sweep, held, JoblibExecutor(1, "sequential"), Settings(pilot=1), silent)
    session.run()
    handout = session._new_handout()
    handout.batch_of, handout.probing = lambda left: 32, lambda: True
    lead = handout.lead(created=True)
    with held.hold():
        batches = list(handout.coarse(lead))
        handout.probing = lambda: False
        assert len(batches) < len(list(handout.coarse(lead)))
    assert sorted(int(run) for one in batches for run in one.runs) == sorted(lead.tolist())
    width = held.layout.block[0]
    share = np.bincount(lead // width)
    assert len(batches) == int(np.ceil(share / 32).sum())
    assert all(len(set(one.runs // width)) == 1 for one in batches)


def test_costs_learnt_in_the_coarse_pass_order_the_rest(store: str, clock: Clock) -> None:
    ran: list[tuple[int, int]] = []

    def simulate(a: int, b: int) -> float:
        ran.append((a, b))
        clock.pass_by(0.002 * (1 + a))
        return 1.0

    sweep = sk.Sweep(simulate, sk.grid(a=range(8), b=range(20)))
    sk.run(sweep, store, backend="sequential", progress=False)
    rest = np.array([a for a, _ in ran[coarse_runs(160) :]])
    assert len(set(ran)) == 160
    half = len(rest) // 2
    assert rest[:half].mean() > rest[half:].mean() + 2


def test_durations_of_earlier_sessions_teach_the_next(store: str, clock: Clock) -> None:
    def simulate(a: int, b: int) -> float:
        clock.pass_by(0.003 * (1 + a))
        return 1.0

    grid = sk.grid(a=range(6), b=range(10))
    sk.run(sk.Sweep(simulate, grid), store, backend="sequential", progress=False)
    ran: list[int] = []

    def next_one(a: int, b: int) -> float:
        ran.append(a)
        return 1.0

    grown = sk.grid(a=range(6), b=range(40))
    target = ZarrStore(store)
    sweep = sk.Sweep(next_one, grown)
    settings = Settings(stale="keep")
    session = Session(sweep, target, JoblibExecutor(1, "sequential"), settings, silent)
    session.run()
    expected = session.costs.expected(np.array([0, grown.size - 1]))
    assert session.costs.count > 60
    assert np.isfinite(expected).all()
    ds = sk.open(store)
    assert (ds["status"] == Status.DONE).all()


@pytest.mark.usefixtures("one_by_one")
def test_many_blocks_are_filled_few_at_a_time(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format1, "BLOCK_RUNS", 16)
    monkeypatch.setattr(format1, "ROOM", 1)
    monkeypatch.setattr(sys.modules["sweepkit.handout"], "SLOW", 1e9)
    ran: list[int] = []
    cost = np.random.default_rng(1).lognormal(0, 1.5, 640)
    grid = sk.grid(i=range(640))
    sweep = sk.Sweep(recording(ran), grid, cost=lambda i: cost[i])
    order = order_of(sweep, store, ran)
    assert sorted(order) == list(range(640))
    rest = order[coarse_runs(640) :]
    assert rest != sorted(rest)
    layout = ZarrStore(store)
    layout.peek()
    assert layout.layout.n_blocks == 40
    block = [i // layout.layout.block[0] for i in rest]
    first, last = (
        {one: at for at, one in pairs}
        for pairs in (reversed(list(enumerate(block))), enumerate(block))
    )
    for at in range(len(block)):
        assert sum(first[one] <= at < last[one] for one in first) <= 2
    ds = sk.open(store)
    assert (ds["attempts"] == 1).all()


@pytest.mark.usefixtures("one_by_one")
def test_masks_hold_in_any_order(store: str) -> None:
    ran: list[int] = []
    grid = sk.grid(i=range(300)).where(lambda i: i % 3 > 0)
    sweep = sk.Sweep(recording(ran), grid, cost=lambda i: 1.0 + i)
    order = order_of(sweep, store, ran)
    assert sorted(order) == [i for i in range(300) if i % 3]
    ds = sk.open(store)
    assert int((ds["status"] == Status.SKIPPED).sum()) == 100
    assert int((ds["status"] == Status.DONE).sum()) == 200


def test_declared_costs_change_no_result(tmp_path: Path) -> None:
    def simulate(a: int, b: float, rng: Any) -> float:
        return a * b + float(rng.normal())

    grid = sk.grid(a=range(20), b=[0.5, 1.5], replicates=4)
    plain = sk.run(sk.Sweep(simulate, grid), tmp_path / "a.zarr", n_jobs=2, **THREADS)
    sweep = sk.Sweep(simulate, grid, cost=lambda a, b: 1 + a * b)
    told = sk.run(sweep, tmp_path / "b.zarr", n_jobs=3, **THREADS)
    np.testing.assert_array_equal(plain["result"], told["result"])


def test_quick_runs_lie_in_batches_as_they_lie_in_the_store(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 1e-6)  # a microsecond for each run, however slow the machine
    monkeypatch.setattr("sweepkit.evaluate.perf_counter", lambda: next(clock))
    ran: list[int] = []
    sweep = sk.Sweep(recording(ran), sk.grid(i=range(2000)))
    order = order_of(sweep, store, ran)
    rest = order[coarse_runs(2000) :]
    assert rest == sorted(rest)


def test_costs_are_learnt_with_bounded_work_for_each_batch(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 1e-6)
    monkeypatch.setattr("sweepkit.evaluate.perf_counter", lambda: next(clock))
    sweep = sk.Sweep(lambda i: 1.0, sk.grid(i=range(20_000)))
    session = Session(sweep, ZarrStore(store), JoblibExecutor(1, "sequential"), Settings(), silent)
    session.run()
    assert isinstance(session.costs, Costs)
    assert 0 < session.costs.count < 5_000

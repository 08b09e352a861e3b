"""Plans: what a sweep will take, before it is paid for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweepkit as sk
from sweepkit.forecast import forecast
from sweepkit.pilot import survey
from sweepkit.status import Status
from sweepkit.workload import START
from tests.clock import Clock, clocked

HERE: dict[str, Any] = {"backend": "sequential", "progress": False}
GRID = sk.grid(size=np.linspace(1, 10, 10), solver=["lu", "qr"], replicates=6)


CLOCKS: list[Clock] = []


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Runs take just what they say, however busy the machine is."""
    CLOCKS.append(clocked(monkeypatch))
    yield CLOCKS[-1]
    CLOCKS.clear()


def napping(size: float, solver: str) -> dict[str, float]:
    CLOCKS[-1].pass_by(0.002 * size * (2 if solver == "qr" else 1))
    return {"y": size}


def seconds(size: Any, solver: Any) -> Any:
    return 2.0 * size * np.where(solver == "qr", 2.0, 1.0)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.zarr")


def planned(**options: Any) -> sk.Plan:
    return sk.plan(sk.Sweep(napping, GRID, cost=seconds), **{"n_jobs": 4, **options})


# --- the pilot ---


def test_a_pilot_is_kept_in_the_store_and_counts_as_done(store: str) -> None:
    sweep = sk.Sweep(napping, GRID, version="1")
    plan = sk.plan(sweep, store, **HERE)
    assert (plan.pilot, plan.kept, plan.pending, plan.runs) == (16, True, 104, 120)
    ds = sk.open(store)
    done = ds["status"] == Status.DONE
    assert int(done.sum()) == 16
    assert {1.0, 10.0} <= set(ds["size"].values[done.any(["solver", "replicate"])].tolist())
    ds = sk.run(sweep, store, **HERE)
    assert (ds["attempts"] == 1).all()


def test_a_plan_of_a_store_with_runs_needs_no_pilot(store: str) -> None:
    sweep = sk.Sweep(napping, GRID)
    sk.run(sk.Sweep(napping, sk.grid(size=[1.0, 4.0, 10.0], solver=["lu", "qr"], replicates=6)),
           store, **HERE)  # fmt: skip
    before = sorted(Path(store).rglob("*"))
    plan = sk.plan(sweep, store, **HERE)
    assert (plan.pilot, plan.pending) == (0, 84)
    assert plan.compute == pytest.approx(0.002 * 1.5 * 6 * 2 * (55 - 15), rel=0.1)
    assert sorted(Path(store).rglob("*")) == before


def test_a_plan_of_a_finished_store_tells_what_runs_cost(store: str) -> None:
    sweep = sk.Sweep(napping, GRID)
    sk.run(sweep, store, **HERE)
    plan = sk.plan(sweep, store, deadline="1 h", budget=10, **HERE)
    assert (plan.pending, plan.compute, plan.wall, plan.fit) == (0, 0, 0, 0)
    assert plan.cost == pytest.approx(0.002 * 1.5 * 5.5, rel=0.4)
    assert plan.cost_low < plan.cost < plan.cost_high
    assert "?" not in repr(plan).partition("Compute")[0]


def test_a_plan_is_not_led_by_runs_that_were_next_to_free(store: str, clock: Clock) -> None:
    def simulate(a: int) -> float:
        clock.pass_by(0.02 if a else 1e-6)
        return a

    plan = sk.plan(sk.Sweep(simulate, sk.grid(a=range(100))), store, **HERE)
    assert plan.compute == pytest.approx(84 * 0.02, rel=0.25)


def test_without_a_pilot_nothing_is_run_made_or_written(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def simulate(size: float, solver: str) -> float:
        raise AssertionError("it was run")

    plan = sk.plan(sk.Sweep(simulate, GRID), store, pilot=0, **HERE)
    assert os.listdir(tmp_path) == []
    assert plan.pending == 120
    assert all(math.isnan(one) for one in (plan.cost, plan.compute, plan.wall, plan.disk))
    assert "not known" in repr(plan)


def test_without_a_store_a_pilot_is_not_kept_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = sk.plan(sk.Sweep(napping, GRID), **HERE)
    assert os.listdir(tmp_path) == []
    assert (plan.pilot, plan.kept, plan.pending) == (16, False, 120)
    assert "not kept" in repr(plan)
    assert 0 < plan.disk < 1e6
    assert plan.compute == pytest.approx(float(seconds(*_columns(GRID)).sum()) / 1000, rel=0.1)


def test_a_pilot_whose_runs_err_is_no_reason_to_fail(store: str) -> None:
    def simulate(size: float, solver: str) -> float:
        raise ValueError("no")

    plan = sk.plan(sk.Sweep(simulate, GRID), store, **HERE)
    assert plan.pilot == 16
    assert plan.pending == 104


def _columns(grid: sk.Grid) -> tuple[Any, Any]:
    at = grid.columns(grid.index(np.arange(grid.size)))
    return at["size"], at["solver"]


# --- its numbers ---


def test_declared_costs_make_a_plan_at_once() -> None:
    plan = planned()
    true = seconds(*_columns(GRID))
    assert plan.pilot == 0
    assert plan.compute == pytest.approx(true.sum(), rel=0.06)
    assert plan.cost == pytest.approx(true.mean(), rel=0.06)
    assert plan.longest == pytest.approx(40, rel=0.06)
    assert plan.compute_low < true.sum() < plan.compute_high
    assert plan.wall_low < true.sum() / 4 < plan.wall_high
    assert plan.cost_low < plan.cost < plan.cost_high
    assert "declared" in plan.source


def test_a_cost_in_the_call_counts_instead_of_the_sweeps() -> None:
    assert planned(cost=10).compute == pytest.approx(1200, rel=0.06)


@pytest.mark.parametrize("cost", [0.0002, 0.02, 100])
def test_finished_runs_tell_the_level_of_a_declared_cost(
    store: str, cost: float, clock: Clock
) -> None:
    def simulate(a: float) -> float:
        clock.pass_by(0.02)
        return a

    def sweep(size: int) -> sk.Sweep:
        return sk.Sweep(simulate, sk.grid(a=[float(i) for i in range(size)]), cost=cost)

    sk.run(sweep(12), store, **HERE)
    plan = sk.plan(sweep(112), store, pilot=0, n_jobs=1)
    assert 1 < plan.compute < 4
    assert 0.1 < plan.compute_low < 2.1 < plan.compute_high < 20
    assert 0.01 < plan.longest < 0.06
    assert ("times what was declared" in plan.source) == (cost != 0.02)
    assert not plan.assumed


def test_the_error_of_a_declared_cost_is_said_to_be_assumed() -> None:
    plan = planned(cost=10)
    assert plan.assumed
    assert "declared; ± 41% assumed until runs are seen" in repr(plan)


def test_large_errors_are_told_as_a_factor_and_no_bound_is_nothing() -> None:
    seen = survey(sk.Sweep(napping, GRID), None)
    took = np.array([0.01, 0.5, 20.0])
    plan = forecast(
        "x", replace(seen, costs=seen.costs.after(np.arange(3), took)), path=None, workers=4,
        pilot=0, kept=False, source="", driver_memory=0.0, worker_memory=0.0,
    )  # fmt: skip
    assert "within a factor of" in repr(plan)
    assert 0 < plan.compute_low < plan.compute < plan.compute_high


def test_wall_times_lie_in_their_range(store: str, clock: Clock) -> None:
    """The whole chain: what is planned from a pilot is what a run then takes."""
    grid = sk.grid(size=np.linspace(2, 20, 10), solver=["lu", "qr"], replicates=3)
    sweep = sk.Sweep(napping, grid, version="1")
    plan = sk.plan(sweep, store, **HERE)
    began = clock.monotonic()
    sk.run(sweep, store, **HERE)
    took = clock.monotonic() - began + START[1]  # no worker had to start
    assert plan.wall_low < took < plan.wall_high
    assert plan.wall_high < 6 * plan.wall_low


def test_more_workers_are_needed_for_an_earlier_deadline() -> None:
    true = float(seconds(*_columns(GRID)).sum())
    needed = []
    for share in (2, 1, 0.5, 0.25, 0.1):
        plan = planned(deadline=timedelta(seconds=true * share + 5))
        assert plan.workers_needed is not None
        needed.append(plan.workers_needed)
        assert plan.workers_needed >= 1 / share
    assert needed == sorted(needed)
    assert len(set(needed)) == 5
    assert f"{plan.workers_needed} workers needed" in repr(plan)


def test_no_number_of_workers_shortens_the_longest_run() -> None:
    plan = planned(deadline="30 s")
    assert plan.workers_needed is None
    assert "no number of workers is enough" in repr(plan)
    assert plan.fit is not None
    assert plan.left is not None
    assert plan.fit + plan.left == 120


def test_a_deadline_by_the_clock_is_the_next_such_time() -> None:
    plan = planned(deadline="07:00")
    assert plan.deadline is not None
    now = datetime.now().astimezone()
    assert timedelta(0) < plan.deadline - now <= timedelta(days=1, hours=1)
    assert (plan.deadline.hour, plan.deadline.minute) == (7, 0)


def test_a_budget_says_which_runs_fit_and_which_are_left() -> None:
    true = seconds(*_columns(GRID))
    whole = planned(budget=float(true.sum()) * 1.5)
    assert (whole.fit, whole.left) == (120, 0)
    assert "all 120 pending runs fit" in repr(whole)
    part = planned(budget=float(true.sum()) / 2)
    assert part.fit is not None
    assert part.left is not None
    assert part.left_runs is not None
    assert 60 <= part.fit < 120
    assert part.fit + part.left == 120
    assert len(part.left_runs) == part.left
    points = part.left_points()
    assert list(points.columns) == ["size", "solver", "replicate"]
    assert points["size"].mean() > GRID["size"].values.mean()
    assert f"{part.fit} runs fit, {part.left} are left" in repr(part)
    assert true[part.left_runs].sum() > true.sum() * 0.4


def test_what_fits_a_budget_is_what_a_session_then_runs(store: str, clock: Clock) -> None:
    def simulate(size: float, solver: str) -> float:
        clock.pass_by(0.02 * size)
        return size

    grid = sk.grid(size=range(1, 9), solver=["lu", "qr"], replicates=8)
    sweep = sk.Sweep(simulate, grid, cost=lambda size: 0.02 * size)
    plan = sk.plan(sweep, n_jobs=1, budget=8, pilot=0)
    assert plan.fit is not None
    ds = sk.run(sweep, store, request=sk.Request(budget=8), **HERE)
    done = int((ds["status"] == Status.DONE).sum())
    assert 0.25 * grid.size < done < grid.size
    assert done == pytest.approx(plan.fit, abs=0.1 * grid.size)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"deadline": datetime(2020, 1, 1)}, "is past"),
        ({"deadline": "teatime"}, "deadline is 'teatime'"),
        ({"budget": "4 apples"}, "budget is '4 apples'"),
        ({"pilot": -1}, "pilot is -1"),
        ({"pilot": True}, "pilot is True"),
        ({"cost": "cheap"}, "cost is 'cheap'"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    store: str, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        sk.plan(sk.Sweep(napping, GRID), store, **options)
    assert not Path(store).exists()


def test_what_is_no_sweep_is_refused() -> None:
    with pytest.raises(TypeError, match="is no Sweep"):
        sk.plan(GRID)  # type: ignore[arg-type]


# --- grids of all sizes ---


def test_masked_points_are_not_planned() -> None:
    sweep = sk.Sweep(napping, GRID.where("size > 5"), cost=1)
    plan = sk.plan(sweep, n_jobs=1, pilot=0)
    assert plan.pending == 60
    assert plan.compute == pytest.approx(60, rel=0.06)


def test_a_huge_grid_is_planned_from_a_part_of_it() -> None:
    grid = sk.grid(a=np.linspace(1, 2, 1000), b=range(1000), c=range(1000))
    sweep = sk.Sweep(lambda a, b, c: a, grid, cost=lambda a: 0.001 * a)
    plan = sk.plan(sweep, n_jobs=100, budget="1 core-hour", deadline="30 days")
    assert (plan.pending, plan.exact) == (10**9, False)
    assert plan.compute == pytest.approx(1.5e6, rel=0.06)
    assert plan.wall == pytest.approx(1.5e4 + 1e4, rel=0.9)
    assert plan.fit == pytest.approx(3.5e6, rel=0.1)
    assert plan.left_runs is None
    assert "about 1,000,000,000" in repr(plan)


def test_nothing_pending_takes_nothing(store: str) -> None:
    sweep = sk.Sweep(napping, sk.grid(size=[1.0], solver=["lu"]))
    sk.run(sweep, store, **HERE)
    plan = sk.plan(sweep, store, deadline="1 h", budget="1 h", **HERE)
    assert (plan.pending, plan.pilot, plan.wall, plan.compute) == (0, 0, 0, 0)
    assert (plan.fit, plan.left, plan.workers_needed) == (0, 0, 0)


def test_a_plan_is_shown_as_text_and_escaped_html(store: str) -> None:
    sweep = sk.Sweep(napping, GRID, cost=seconds, name="<script>x</script>")
    plan = sk.plan(sweep, store, n_jobs=4, budget="10 min", deadline="07:00")
    shown = plan._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    for word in ("Cost per run", "Compute", "Wall time", "Disk", "Memory", "Tail", "coarse pass"):
        assert word in shown
        assert word in repr(plan)


Costs = Callable[[Any], Any]


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_ranges_of_wall_time_hold_what_happens(noise: float) -> None:
    """A pilot of 16 runs of synthetic costs, then the schedule that its session would make."""
    from sweepkit.plan import schedule, spread

    inside = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes, solvers = _columns(GRID)
        true = seconds(sizes, solvers) * np.exp(noise * rng.standard_normal(GRID.size))
        seen = survey(sk.Sweep(napping, GRID), None)
        some = spread(GRID, seen.lead, 16)
        seen = replace(seen, costs=seen.costs.after(some, true[some]))
        plan = forecast(
            "x", seen, path=None, workers=4, pilot=0, kept=False, source="",
            driver_memory=0.0, worker_memory=0.0,
        )  # fmt: skip
        order = np.argsort(-seen.costs.expected(np.arange(GRID.size)))
        inside += plan.wall_low < schedule(true[order], 4).wall < plan.wall_high
    assert inside >= 17

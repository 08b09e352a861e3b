"""What every executor and every store must do; each one's test class takes the suite over."""

from __future__ import annotations

import importlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.evaluate import Task
from sweepkit.format1 import KEEPING, Layout, Variable
from sweepkit.protocols import Batch, Executor, Outcome, Store, StoreBusyError
from sweepkit.simulator import uses_global_random
from sweepkit.status import Status
from sweepkit.targets import target as target_of

# --- simulators, at module level so that any process can find them -----------------------------


def draw(a: int, rng: np.random.Generator, seed: int) -> dict[str, Any]:
    return {"y": a * 2.0, "n": a, "drawn": rng.random(), "seed_seen": seed}


def fail_at_three(a: int) -> float:
    print("looking at", a)
    if a == 3:
        raise ValueError("three is no good")
    return a * 1.0


class TwoArgumentError(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} and {two}")


def raise_unpicklable(a: int) -> float:
    if a == 4:
        raise TwoArgumentError("this", threading.Lock())
    return float(a)


def leave(a: int) -> float:
    if a == 2:
        raise SystemExit(3)
    return float(a)


def warn_and_change(a: int) -> float:
    warnings.warn("careful", stacklevel=1)
    os.environ["SWEEPKIT_TEST_LEAK"] = str(a)
    return float("SWEEPKIT_TEST_LEAK" in os.environ)


def global_draw(a: int) -> float:
    return float(np.random.random())


def threads_of_blas(a: int) -> int:
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    counts = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    return max(counts, default=1)


def task_of(sweep: sk.Sweep) -> Task:
    return Task(
        sweep.simulator,
        sweep.call,
        sweep.grid,
        sweep.outputs,
        sweep.entropy,
        sweep.streams,
        {},
        sweep.threads,
        uses_global_random(sweep.simulator),
    )


def batches_of(total: int, size: int) -> Iterator[Batch]:
    for at in range(0, total, size):
        runs = np.arange(at, min(at + size, total), dtype=np.int64)
        yield Batch(0, runs, runs)


def never() -> bool:
    return False


class ExecutorContract:
    """For classes with a fixture ``executor``."""

    def outcomes(
        self,
        executor: Executor,
        simulator: Callable[..., Any],
        *,
        total: int = 12,
        size: int = 5,
        stopping: Callable[[], bool] = never,
    ) -> list[Outcome]:
        sweep = sk.Sweep(simulator, sk.grid(a=range(total)))
        with executor.hold(task_of(sweep), timeout=None) as crew:
            outcomes = crew.map(batches_of(total, size), stopping)
            return [one for one in outcomes if one is not None]

    @staticmethod
    def runs(outcomes: list[Outcome]) -> list[int]:
        return sorted(int(run) for one in outcomes for run in one.batch.runs)

    @staticmethod
    def by_run(outcomes: list[Outcome], name: str) -> dict[int, Any]:
        found = {}
        for one in outcomes:
            for column in one.result.columns.get(name, []):
                rows = np.arange(len(one.result)) if column.rows is None else column.rows
                found |= dict(
                    zip(one.batch.runs[rows].tolist(), column.values.tolist(), strict=True)
                )
        return found

    def test_it_has_workers(self, executor: Executor) -> None:
        assert executor.workers >= 1

    def test_every_run_is_in_exactly_one_outcome(self, executor: Executor) -> None:
        outcomes = self.outcomes(executor, draw)
        assert self.runs(outcomes) == list(range(12))
        assert all(len(one.batch) == len(one.result) for one in outcomes)
        assert self.by_run(outcomes, "y") == {run: run * 2.0 for run in range(12)}

    def test_no_batches_give_no_outcomes(self, executor: Executor) -> None:
        assert self.outcomes(executor, draw, total=0 + 1, size=1)[0].result.status.tolist() == [1]
        sweep = sk.Sweep(draw, sk.grid(a=[1]))
        with executor.hold(task_of(sweep), timeout=None) as crew:
            assert [one for one in crew.map(iter(()), never) if one is not None] == []

    def test_batches_are_pulled_as_needed_and_not_all_at_once(self, executor: Executor) -> None:
        pulled = 0

        def source() -> Iterator[Batch]:
            nonlocal pulled
            for one in batches_of(10_000, 1):
                pulled += 1
                yield one

        sweep = sk.Sweep(draw, sk.grid(a=range(10_000)))
        with executor.hold(task_of(sweep), timeout=None) as crew:
            outcomes = crew.map(source(), never)
            next(iter(outcomes))
            assert pulled < 200
            outcomes.close()  # type: ignore[attr-defined]

    def test_it_serves_again_after_it_was_released(self, executor: Executor) -> None:
        first = self.by_run(self.outcomes(executor, draw), "drawn")
        assert self.by_run(self.outcomes(executor, draw), "drawn") == first

    def test_streams_do_not_depend_on_batches(self, executor: Executor) -> None:
        small = self.outcomes(executor, draw, size=1)
        large = self.outcomes(executor, draw, size=12)
        for name in ("drawn", "seed_seen"):
            assert self.by_run(small, name) == self.by_run(large, name)
        assert len(set(self.by_run(small, "drawn").values())) == 12

    def test_a_run_that_raises_is_an_error_and_its_neighbours_are_done(
        self, executor: Executor
    ) -> None:
        outcomes = self.outcomes(executor, fail_at_three)
        status = {
            int(run): int(one.result.status[row])
            for one in outcomes
            for row, run in enumerate(one.batch.runs)
        }
        assert status == {run: Status.ERROR if run == 3 else Status.DONE for run in range(12)}
        (hit,) = [one for one in outcomes if one.result.errors]
        (row,) = hit.result.errors
        assert hit.batch.runs[row] == 3
        assert hit.result.errors[row] == "ValueError: three is no good"
        assert "looking at 3" in hit.result.logs[row]
        assert 'raise ValueError("three is no good")' in hit.result.logs[row]

    def test_prints_are_in_the_log_and_not_on_screen(
        self, executor: Executor, capfd: pytest.CaptureFixture[str]
    ) -> None:
        outcomes = self.outcomes(executor, fail_at_three)
        logs = {
            int(o.batch.runs[row]): text for o in outcomes for row, text in o.result.logs.items()
        }
        assert {run: text for run, text in logs.items() if run != 3} == {
            run: f"looking at {run}\n" for run in range(12) if run != 3
        }
        said = capfd.readouterr()
        assert (said.out, said.err) == ("", "")

    def test_an_exception_that_cannot_travel_costs_its_own_run(self, executor: Executor) -> None:
        outcomes = self.outcomes(executor, raise_unpicklable)
        assert self.runs(outcomes) == list(range(12))
        errors = [text for one in outcomes for text in one.result.errors.values()]
        (error,) = errors
        assert error.startswith("TwoArgumentError: this and")

    def test_leaving_the_interpreter_costs_its_own_run(self, executor: Executor) -> None:
        outcomes = self.outcomes(executor, leave)
        assert self.runs(outcomes) == list(range(12))
        assert [text for one in outcomes for text in one.result.errors.values()] == [
            "SystemExit: 3"
        ]

    def test_the_callers_environment_is_as_it_was(self, executor: Executor) -> None:
        for module in ("joblib", "threadpoolctl"):  # they set variables when they are imported
            importlib.import_module(module)
        before = dict(os.environ)
        self.outcomes(executor, warn_and_change)
        os.environ.pop("SWEEPKIT_TEST_LEAK", None)
        assert dict(os.environ) == before

    def test_a_wish_to_stop_ends_it_soon(self, executor: Executor) -> None:
        wished = threading.Event()
        sweep = sk.Sweep(draw, sk.grid(a=range(100_000)))
        with executor.hold(task_of(sweep), timeout=None) as crew:
            taken = 0
            for outcome in crew.map(batches_of(100_000, 10), wished.is_set):
                if outcome is not None:
                    taken += len(outcome.batch)
                    wished.set()
        assert 10 <= taken < 20_000

    def test_without_a_share_it_waits_and_with_one_it_goes_on(self, executor: Executor) -> None:
        asked: list[int] = []

        def share(using: int) -> int:
            asked.append(using)
            return 0 if 1 < len(asked) < 5 else 1

        sweep = sk.Sweep(draw, sk.grid(a=range(12)))
        with executor.hold(task_of(sweep), timeout=None) as crew:
            given = crew.map(batches_of(12, 1), never, share)
            outcomes = [one for one in given if one is not None]
        assert self.runs(outcomes) == list(range(12))
        assert len(asked) >= 5
        assert max(asked[1:]) <= 1

    def test_linear_algebra_has_the_threads_said(self, executor: Executor) -> None:
        counts = set(self.by_run(self.outcomes(executor, threads_of_blas), "result").values())
        assert counts == {1}


# --- stores ------------------------------------------------------------------------------------


class StoreContract:
    """For classes with a fixture ``place``, where a store may be.

    Or with fixtures of their own: ``target``, a store, and ``other``, another on the same path.
    """

    @pytest.fixture
    def target(self, place: Any) -> Store:
        return target_of(place)

    @pytest.fixture
    def other(self, place: Any) -> Store:
        return target_of(place)

    layout = Layout(
        {"a": 5, "b": 3},
        (2, 4),
        {
            variable.name: variable
            for variable in (
                *KEEPING,
                Variable("y", "float64"),
                Variable("n", "int32"),
                Variable("ok", "bool"),
                Variable("text", "str"),
                Variable("when", "datetime64[ns]"),
                Variable("z", "complex128"),
                Variable("trace", "float32", ("time",), (7,)),
            )
        },
    )
    values: ClassVar[dict[str, Any]] = {
        "y": lambda shape: np.arange(np.prod(shape), dtype=float).reshape(shape),
        "n": lambda shape: np.arange(np.prod(shape), dtype=np.int32).reshape(shape),
        "ok": lambda shape: np.ones(shape, dtype=bool),
        "text": lambda shape: np.full(shape, "日本", dtype=np.dtypes.StringDType()),
        "when": lambda shape: np.full(shape, 10**18 + 1, dtype=np.int64),
        "z": lambda shape: np.full(shape, 1 - 2j),
        "trace": lambda shape: np.full((*shape, 7), 1 / 3, dtype=np.float32),
    }

    def plain(self, target: Any) -> xr.Dataset:
        """The store as xarray opens it by itself."""
        opened: xr.Dataset = xr.open_zarr(target.path)
        return opened

    @staticmethod
    def declaration(grid: sk.Grid) -> dict[str, Any]:
        return {
            "name": "s",
            "parameters": [
                {"name": p.name, "dims": list(p.dims), "kind": p.kind, **p.attrs}
                for p in grid.parameters
            ],
            "dims": grid.sizes,
        }

    def made(self, target: Any) -> sk.Grid:
        grid = sk.grid(a=range(5), b=["x", "y", "z"])
        target.create(self.layout, grid.parameters, self.declaration(grid))
        return grid

    def test_it_exists_once_it_is_created(self, target: Any) -> None:
        with target.hold():
            assert not target.exists()
            self.made(target)
            assert target.exists()

    def test_what_is_written_is_read(self, target: Any, other: Any) -> None:
        with target.hold():
            self.made(target)
            for name, make in self.values.items():
                box = self.layout.box(1)
                shape = tuple(part.stop - part.start for part in box)
                own = tuple(slice(0, n) for n in self.layout.variables[name].shape)
                target.write(name, box + own, make(shape))
        other.open()
        for name, make in self.values.items():
            read = other.read(name, self.layout.box(1))
            expected = make(read.shape[:2])
            assert read.tolist() == expected.tolist(), name

    def test_what_was_never_written_reads_as_fill(self, target: Any) -> None:
        with target.hold():
            self.made(target)
            assert (target.read("status", self.layout.box(0)) == Status.PENDING).all()
            assert np.isnan(target.read("y", self.layout.box(0))).all()
            assert (target.read("text", self.layout.box(0)) == "").all()

    def test_an_edge_block_holds_what_is_left_of_it(self, target: Any) -> None:
        with target.hold():
            self.made(target)
            box = self.layout.box(2)
            assert box == (slice(4, 5), slice(0, 3))
            target.write("y", box, np.ones((1, 3)))
            assert (target.read("y", box) == 1).all()
            assert np.isnan(target.read("y", self.layout.box(1))).all()

    def test_the_second_writer_is_told_who_writes(self, target: Any, other: Any) -> None:
        with (
            target.hold(),
            pytest.raises(StoreBusyError, match=rf"process {os.getpid()} on \S+, since 20\d\d-"),
            other.hold(),
        ):
            pass
        with other.hold():
            pass

    def test_the_declaration_comes_back(self, target: Any, other: Any) -> None:
        with target.hold():
            grid = self.made(target)
        other.open()
        said = other.declaration
        assert said["parameters"] == self.declaration(grid)["parameters"]
        assert other.layout == self.layout
        axes = other.parameter_values(said["parameters"])
        assert axes["a"].values.tolist() == list(range(5))
        assert axes["b"].values.tolist() == ["x", "y", "z"]

    def test_added_variables_and_grown_axes_keep_what_was_there(
        self, target: Any, other: Any
    ) -> None:
        with target.hold():
            self.made(target)
            box = self.layout.box(2)
            target.write("y", box, np.ones((1, 3)))
            late = [Variable("late", "int64", ("step",), (2,))]
            target.add(late, {"step": np.array([0.5, 1.5])}, target.declaration)
            grid = sk.grid(a=range(7), b=["x", "y", "z", "w"])
            target.grow(grid.parameters, self.declaration(grid))
        other.open()
        assert other.layout.shape == (7, 4)
        assert other.layout.variables["late"].dims == ("step",)
        assert other.layout.coords["step"].tolist() == [0.5, 1.5]
        read = other.read("y", (slice(4, 7), slice(0, 4)))
        assert (read[0, :3] == 1).all()
        assert np.isnan(read[1:]).all()
        assert np.isnan(read[:, 3]).all()

    def test_plain_xarray_opens_it_without_a_warning(self, target: Any) -> None:
        with target.hold():
            self.made(target)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.plain(target) as plain:
                assert plain.sizes == {"a": 5, "b": 3, "time": 7}
                assert plain["b"].values.tolist() == ["x", "y", "z"]

"""Whatever happens to a store, in any order: a state machine against a plain record of it.

What counts as done can be read, is right, and is not run again; the next session runs the rest.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import sweepkit as sk
from sweepkit import format1
from sweepkit.status import Status
from sweepkit.stores.zarr import ZarrStore
from tests.conftest import EXHAUSTIVE

SESSION: Any = importlib.import_module("sweepkit.run")
Point = tuple[int, float]
B = (0.5, 1.5, -2.0)


class Simulator:
    """Notes each run, and does to some of them, once, what it is told."""

    def __init__(self, ledger: Path, version: int, faults: dict[Point, str]) -> None:
        self.ledger = ledger
        self.version = version
        self.faults = faults

    def __call__(self, a: int, b: float) -> dict[str, Any]:
        with open(self.ledger, "a") as file:
            file.write(f"{a} {b} {self.version}\n")
        fault = self.faults.get((a, b))
        if fault == "error":
            raise ValueError(f"at {a}, {b}")
        if fault == "interrupt":
            signal.raise_signal(signal.SIGINT)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit":
            os._exit(3)
        return {"y": value(a, b, self.version), "trace": np.full(3, a + b), "text": f"{a} {b}"}


def value(a: int, b: float, version: int) -> float:
    return 1000.0 * version + 10 * a + b


class Machine(RuleBasedStateMachine):
    """A store, and what is known of it."""

    @initialize()
    def begin(self) -> None:
        self.usual = format1.BLOCK_RUNS, SESSION.REPORT_SECONDS
        format1.BLOCK_RUNS, SESSION.REPORT_SECONDS = 4, 0.0
        self.folder = Path(tempfile.mkdtemp(prefix="sweepkit-machine-"))
        self.store = str(self.folder / "a.zarr")
        self.ledger = self.folder / "ledger"
        self.ledger.touch()
        self.a = [2, 0, 5]
        self.version = 0
        self.settled: dict[Point, Status] = {}
        """What has become of each point, as far as the store has acknowledged it."""
        self.crashes = 0
        self.damaged = False

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            format1.BLOCK_RUNS, SESSION.REPORT_SECONDS = self.usual
            shutil.rmtree(self.folder)

    # --- looking ---

    @property
    def points(self) -> list[Point]:
        return [(a, b) for a in self.a for b in B]

    def executed(self) -> list[tuple[int, float, int]]:
        lines = [line.split() for line in self.ledger.read_text().splitlines()]
        return [(int(a), float(b), int(version)) for a, b, version in lines]

    def seen(self) -> dict[Point, Status]:
        """What the store says now; what is done is compared with what was last run there."""
        if not Path(self.store, "zarr.json").exists():
            return {}
        ds = sk.open(self.store).load()
        last = {(a, b): version for a, b, version in self.executed()}
        found = {}
        for a in ds["a"].values.tolist():
            for b in ds["b"].values.tolist():
                run = ds.sel(a=a, b=b)
                status = Status(int(run["status"]))
                if status == Status.PENDING:
                    assert "y" not in ds or np.isnan(run["y"])
                    continue
                found[a, b] = status
                if status == Status.DONE:
                    assert float(run["y"]) == value(a, b, last[a, b])
                    assert run["trace"].values.tolist() == [a + b] * 3
                    assert str(run["text"].values) == f"{a} {b}"
                else:
                    assert str(run["error"].values)
        return found

    def session(
        self, faults: dict[Point, str] | None = None, *, again: set[Point] | None = None, **how: Any
    ) -> set[Point]:
        """One session; returns what it executed. ``again`` is what it may execute a second time."""
        simulator = Simulator(self.ledger, self.version, faults or {})
        sweep = sk.Sweep(
            simulator, sk.grid(a=self.a, b=list(B)), version=str(self.version), name="machine"
        )
        before = len(self.executed())
        options = {"backend": "sequential", "progress": False, "stale": "keep", **how}
        try:
            sk.run(sweep, self.store, **options)
        finally:
            now = [(a, b) for a, b, _ in self.executed()[before:]]
            exits = {p for p, f in (faults or {}).items() if f == "exit"}
            once = [p for p in now if p not in exits]
            if options["backend"] == "sequential":
                assert len(set(once)) == len(once), "run twice in a session"
            repeated = set(now) & set(self.settled)
            assert repeated <= (again or set()), f"settled, and run again: {repeated}"
            self.acknowledge(again or set())
        return set(now)

    def acknowledge(self, again: set[Point]) -> None:
        seen = self.seen()
        lost = {p for p in self.settled if p not in again and seen.get(p) != self.settled[p]}
        assert not lost, f"acknowledged, and not there any more: {lost}"
        self.settled = seen

    @invariant()
    def what_was_acknowledged_can_be_read(self) -> None:
        if hasattr(self, "settled") and not self.damaged:
            assert self.seen() == self.settled

    def pending(self) -> list[Point]:
        return [p for p in self.points if p not in self.settled]

    def some(self, data: Any, count: int) -> list[Point]:
        pending = self.pending()
        if not pending:
            return []
        picks = data.draw(st.lists(st.sampled_from(pending), max_size=count, unique=True))
        return list(picks)

    # --- what happens ---

    @rule()
    def run_to_the_end(self) -> None:
        executed = self.session(again=self.lost() if self.damaged else None)
        self.damaged = False
        assert set(self.points) <= set(self.settled)
        assert len(executed) <= len(self.points)

    def lost(self) -> set[Point]:
        return set(self.points)

    @precondition(lambda self: not self.damaged)
    @rule(data=st.data())
    def interrupt(self, data: Any) -> None:
        at = self.some(data, 1)
        if at:
            with pytest.raises(KeyboardInterrupt):
                self.session({at[0]: "interrupt"})
            assert at[0] not in self.settled

    @precondition(lambda self: not self.damaged)
    @rule(count=st.integers(0, 9))
    def interrupt_by_a_progress_that_raises(self, count: int) -> None:
        def progress(p: sk.Progress) -> None:
            if p.state == "running" and p.finished >= count:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            self.session(progress=progress)
        assert len(self.settled) >= min(count, len(self.points))

    @precondition(lambda self: not self.damaged)
    @rule(data=st.data())
    def err(self, data: Any) -> None:
        chosen = self.some(data, 3)
        self.session(dict.fromkeys(chosen, "error"))
        assert all(self.settled[p] == Status.ERROR for p in chosen)

    @precondition(lambda self: not self.damaged)
    @rule()
    def run_errors_again(self) -> None:
        wrong = {p for p, one in self.settled.items() if one != Status.DONE}
        self.session(again=wrong, rerun="unsuccessful")
        declared = {p: one for p, one in self.settled.items() if p in self.points}
        assert set(declared.values()) <= {Status.DONE}

    @precondition(lambda self: not self.damaged and self.crashes < 1)
    @rule(data=st.data())
    def crash_workers(self, data: Any) -> None:
        chosen = self.some(data, 2)
        if chosen:
            self.crashes += 1
            self.session(dict.fromkeys(chosen, "exit"), backend="loky", n_jobs=2)
            assert all(self.settled[p] == Status.CRASHED for p in chosen)
            assert set(self.points) <= set(self.settled)

    @precondition(lambda self: not self.damaged)
    @rule(data=st.data())
    def kill_the_driver(self, data: Any) -> None:
        at = self.some(data, 1)
        if not at:
            return
        pid = os.fork()
        if not pid:
            try:
                self.session({at[0]: "kill"})
            finally:
                os._exit(1)
        _, code = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(code), code
        assert os.WTERMSIG(code) == signal.SIGKILL
        self.acknowledge(set())
        assert at[0] not in self.settled

    @rule(new=st.lists(st.integers(-3, 9), min_size=1, max_size=2, unique=True), data=st.data())
    def grow(self, new: list[int], data: Any) -> None:
        grown = list(dict.fromkeys([*self.a, *new]))
        if len(grown) <= 8:
            self.a = data.draw(st.permutations(grown))

    @precondition(lambda self: not self.damaged)
    @rule()
    def a_second_writer_comes(self) -> None:
        before = self.executed()
        with ZarrStore(self.store).hold(), pytest.raises(sk.StoreBusyError, match=str(os.getpid())):
            self.session(stale="ask")
        assert self.executed() == before

    @precondition(lambda self: self.settled and not self.damaged)
    @rule(data=st.data(), how=st.sampled_from(["delete", "truncate", "flip"]))
    def damage_a_chunk(self, data: Any, how: str) -> None:
        root = Path(self.store)
        names = ["status", "y", "trace", "text", "duration", "a", "b"]
        chunks = sorted(p for n in names for p in root.glob(f"{n}/c/**/*") if p.is_file())
        path = data.draw(st.sampled_from(chunks))
        name = path.relative_to(root).parts[0]
        content = bytearray(path.read_bytes())
        if how == "delete":
            path.unlink()
        elif how == "truncate":
            path.write_bytes(bytes(content[: len(content) // 2]))
        else:
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(
                st.integers(0, 7)
            )
            path.write_bytes(bytes(content))
        found = sk.verify(self.store)
        needed = name in ("status", "a", "b") or not found.empty
        if needed:  # a chunk of runs that hold nothing there is not missed
            assert set(found["variable"]) == {name}
        if name in ("a", "b"):
            self.session()
        else:
            self.damaged = True

    @precondition(lambda self: not self.damaged)
    @rule(keep=st.booleans())
    def change_the_code(self, keep: bool) -> None:
        self.version += 1
        if self.settled:
            with pytest.raises(sk.StaleCodeError, match="has changed"):
                self.session(stale="ask")
        if keep:
            self.session(stale="keep")
        else:
            self.session(stale="rerun", again=set(self.points))


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=6,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
class TestMachineLong(Machine.TestCase):  # type: ignore[misc,name-defined]
    settings = settings(
        max_examples=60 if EXHAUSTIVE else 16,
        stateful_step_count=20,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

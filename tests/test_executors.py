"""The contract of executors, kept by every way in which joblib computes."""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import pytest
from joblib._parallel_backends import ThreadingBackend

import sweepkit as sk
from sweepkit.evaluate import Station
from sweepkit.executors.joblib import JoblibExecutor
from tests.conftest import ROOT
from tests.contracts import ExecutorContract


class TestSequential(ExecutorContract):
    @pytest.fixture
    def executor(self) -> JoblibExecutor:
        return JoblibExecutor(backend="sequential")


class TestThreading(ExecutorContract):
    @pytest.fixture
    def executor(self) -> JoblibExecutor:
        return JoblibExecutor(2, "threading")


class TestLoky(ExecutorContract):
    @pytest.fixture
    def executor(self) -> JoblibExecutor:
        return JoblibExecutor(2, "loky")


class Someones(ThreadingBackend):  # type: ignore[misc]
    """A backend that joblib does not bring along."""


class TestRegistered(ExecutorContract):
    @pytest.fixture
    def executor(self) -> JoblibExecutor:
        joblib.register_parallel_backend("someones", Someones)
        return JoblibExecutor(2, "someones")


class TestMultiprocessing(ExecutorContract):
    @pytest.fixture
    def executor(self) -> JoblibExecutor:
        return JoblibExecutor(2, "multiprocessing")


def shown(**other: Any) -> Any:
    """The executor of the README, as it is printed there, or with other names."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [one for one in blocks if "class PoolExecutor" in one]
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    names.update(other)
    return names["PoolExecutor"]()


@pytest.mark.slow  # its processes are started for each test
class TestOfTheReadme(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Any:
        return shown()


class TestOfTheReadmeOnThreads(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Any:
        return shown(ProcessPoolExecutor=ThreadPoolExecutor)


def test_a_pool_that_breaks_ends_the_sweep_and_keeps_what_was_counted(
    store: str, tmp_path: Path
) -> None:
    harmless = tmp_path / "harmless"

    def deadly(a: int) -> float:
        if a == 30 and not harmless.exists():
            os._exit(3)
        return a * 1.0

    sweep = sk.Sweep(deadly, sk.grid(a=range(40)))
    with pytest.raises(sk.ComputeLostError, match="the pool of workers is broken"):
        sk.run(sweep, store, executor=shown(), progress=False)
    harmless.touch()
    ds = sk.run(sweep, store, executor=shown(), stale="keep", progress=False)
    assert (ds["status"] == 1).all()
    with pytest.raises(ValueError, match="a run cannot be killed here"):
        sk.run(sweep, tmp_path / "t.zarr", executor=shown(), timeout=3, progress=False)


def test_threads_that_end_at_once_do_not_take_each_other_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(self: Station, other: object) -> bool:
        threading.Event().wait(0.002)  # others come and go while one is looked for
        return self is other

    def simulate(i: int) -> int:
        threading.Event().wait(0.003)
        return i

    monkeypatch.setattr(Station, "__eq__", same)
    sweep = sk.Sweep(simulate, sk.grid(i=range(200)), cost=1.0, version="1")
    ds = sk.run(sweep, tmp_path / "a.zarr", n_jobs=8, backend="threading", progress=False)
    assert (ds["result"] == ds["i"]).all()

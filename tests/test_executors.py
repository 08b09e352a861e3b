"""The contract of executors, kept by every way in which joblib computes."""

from __future__ import annotations

import joblib
import pytest
from joblib._parallel_backends import ThreadingBackend

from sweepkit.executors.joblib import JoblibExecutor
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

"""A clock that runs move, so that what rests on time is the same on a busy machine."""

from __future__ import annotations

import importlib
import threading
import time
from typing import Any

import pytest

TOLD = ("course", "handout", "intake", "receipt", "request", "run")
"""Modules that ask what time it is while a session goes on."""
MEASURED = ("evaluate", "batchwise")
"""Modules that measure what runs take."""


class Clock:
    """Stands for the module ``time``: it stands still until it is moved on."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._began = time.time()
        self._lock = threading.Lock()

    def pass_by(self, seconds: float) -> None:
        """So much time goes by: what a run, or a wait, takes."""
        with self._lock:
            self._passed += seconds

    def monotonic(self) -> float:
        return 1e6 + self._passed

    perf_counter = monotonic

    def time(self) -> float:
        return self._began + self._passed

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def clocked(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have sessions in this process go by a clock of their own."""
    clock = Clock()
    for name in TOLD:
        monkeypatch.setattr(importlib.import_module(f"sweepkit.{name}"), "time", clock)
    for name in MEASURED:
        module = importlib.import_module(f"sweepkit.{name}")
        monkeypatch.setattr(module, "perf_counter", clock.perf_counter)
    return clock

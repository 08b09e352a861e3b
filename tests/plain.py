"""Sweeps of a plain function in worker processes: run, hung, killed, counted."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import sweepkit as sk
from sweepkit.status import Status
from tests.waiting import Leap


def run(function: Callable[..., Any], store: str, n: int, **options: Any) -> Any:
    sweep = sk.Sweep(function, sk.grid(i=range(n)), version="1")
    options = {"n_jobs": 2, "backend": "loky", "progress": False, **options}
    return sk.run(sweep, store, **options).load()


def workers() -> list[psutil.Process]:
    """The worker processes of sweeps of this process."""
    found = []
    for one in psutil.Process().children():
        try:
            if "sweepkit.worker" in one.cmdline():
                found.append(one)
        except psutil.NoSuchProcess:
            pass
    return found


def overdue(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mark for runs that hang, by which they are overdue at once."""
    mark = folder / "hangs"
    monkeypatch.setattr("sweepkit.fleet.perf_counter", Leap(mark))
    return mark


def counts(ds: Any) -> dict[str, int]:
    return {Status(s).word: n for s, n in Counter(ds["status"].values.astype(int)).items()}


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

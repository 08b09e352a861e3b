"""What the workers of a session need beside the task itself: inputs staged, set-up, a place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sweepkit.evaluate import Task
from sweepkit.inputs import staged
from sweepkit.protocols import Store
from sweepkit.sweep import Sweep

__all__ = ["equipped"]


@contextmanager
def equipped(task: Task, sweep: Sweep, store: Store) -> Iterator[Task]:
    """The task with inputs staged beside the store, which are removed at the end."""
    with staged(sweep.inputs, store.folder("inputs")) as inputs:
        yield replace(task, inputs=inputs, setup=sweep.setup, artefacts=store.folder("artefacts"))

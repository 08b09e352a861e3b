"""What the workers of a session need beside the task itself: inputs staged, set-up, a place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sweepkit.command import Command
from sweepkit.evaluate import Task
from sweepkit.inputs import InputFile, staged
from sweepkit.protocols import Store
from sweepkit.sweep import Sweep

__all__ = ["equipped"]


@contextmanager
def equipped(task: Task, sweep: Sweep, store: Store) -> Iterator[Task]:
    """The task with inputs staged beside the store, which are removed at the end."""
    files: dict[str, Any] = {}
    if isinstance(sweep.simulator, Command):
        files = {f"file {at}": InputFile(path) for at, path in enumerate(sweep.simulator.inputs)}
    with (
        staged({**sweep.inputs, **files}, store.folder("inputs")) as made,
        store.depot() as depot,
    ):
        if isinstance(sweep.simulator, Command):
            copies = tuple(made.pop(name).path for name in files)
            task = replace(task, function=replace(sweep.simulator, inputs=copies))
        yield replace(
            task,
            inputs=made,
            setup=sweep.setup,
            artefacts=store.folder("artefacts"),
            depot=depot,
        )

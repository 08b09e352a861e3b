"""What the workers of a session need beside the task itself: inputs staged, set-up, a place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
def equipped(
    task: Task, sweep: Sweep, store: Store, parts: Mapping[str, str] | None = None
) -> Iterator[Task]:
    """The task with inputs staged beside the store, which are removed at the end.

    ``parts`` are the digests by which the store knows the code that its runs are made by.

    Raises
    ------
    ValueError
        If runs leave files, and they cannot be kept beside the store; if an input is no longer
        what the store knows it by.
    """
    kept = isinstance(sweep.simulator, Command) and sweep.simulator.keep
    if (kept or task.kept_scratch is not None) and not store.keeps_files:
        raise ValueError(
            f"files that runs leave are kept beside a store in a folder alone, and {store.path} is "
            f"none: leave out {'keep= of the command' if kept else 'keep_scratch='}, or run into a "
            "local path such as 's.zarr', which sk.pack makes one file of"
        )
    files: dict[str, Any] = {}
    if isinstance(sweep.simulator, Command):
        files = {f"file {at}": InputFile(path) for at, path in enumerate(sweep.simulator.inputs)}
    known = {n: (parts or {}).get(f"input {n}") for n in sweep.inputs}
    digests = {name: one for name, one in known.items() if one is not None}
    with (
        staged({**sweep.inputs, **files}, store.folder("inputs"), digests) as made,
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

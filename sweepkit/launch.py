"""What ``sweepkit run`` runs: a sweep into its store, or a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import sweepkit as sk
from sweepkit import shell
from sweepkit.headless import NotebookFailedError, execute
from sweepkit.notebook import declared, unknown_words
from sweepkit.places import Where

__all__ = ["run_notebook", "run_sweep"]


def run_sweep(sweep: sk.Sweep, store: Where | None, said: Mapping[str, Any]) -> Where:
    """Run what is pending of a sweep, as the options say; returns where."""
    where = store if store is not None else f"{sweep.name}.zarr"
    options: dict[str, Any] = {
        name: said[name] for name in ("n_jobs", "backend", "on_error", "stale")
    }
    options |= {"rerun": list(said["rerun"]), "progress": not said["quiet"]}
    options["timeout"] = shell.number(said["timeout"])
    options["retry"] = shell.counts(said["retry"])
    options["max_errors"] = shell.number(said["max_errors"])
    limits = {name: said[name] for name in ("deadline", "duration", "budget") if said[name]}
    if limits:
        options["request"] = sk.Request(**limits)
    sk.run(sweep, where, **options)
    return where


def run_notebook(
    context: click.Context,
    notebook: Path,
    store: str | None,
    values: Mapping[str, Any],
    said: Mapping[str, Any],
    output: Path | None,
) -> str | None:
    """Run a notebook; returns where its runs are, as far as its parameters say it."""
    if not notebook.is_file():
        raise ValueError(f"{notebook} is not there")
    given: dict[str, Any] = {} if store is None else {"store": store}
    for name in said:
        source = context.get_parameter_source(name)
        if name != "quiet" and source is click.core.ParameterSource.COMMANDLINE:
            option = said[name]
            read = shell.counts if name == "retry" else shell.number
            given[name] = list(option) if isinstance(option, tuple) else read(option)
    twice = sorted(set(given) & set(values))
    if twice:
        raise ValueError(f"{twice[0]!r} is given twice: as an option and with -p")
    known = declared(notebook)
    unknown = [name for name in (*given, *values) if name not in known]
    if unknown:
        raise ValueError(unknown_words(unknown, list(known)))
    executed = output or Path(f"{notebook.stem}.executed.ipynb")
    try:
        execute(notebook, executed, {**given, **values}, quiet=said["quiet"])
    except NotebookFailedError as stopped:
        code = shell.UNSUCCESSFUL if stopped.by_policy else shell.REFUSED
        code = shell.INTERRUPTED if stopped.raised == "KeyboardInterrupt" else code
        raise shell.Ended(str(stopped), code) from None
    click.echo(str(executed))
    where = {**known, **given, **values}.get("store")
    return where if isinstance(where, str) and Path(where).exists() else None

"""The command line: run, watch and hand on sweeps from a shell."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sweepkit as sk
from sweepkit.status import NAMES, Status

try:
    import click
except ModuleNotFoundError as fault:
    raise ModuleNotFoundError(
        "the command line needs the package 'click'; pip install 'sweepkit[headless]'"
    ) from fault

__all__ = ["main"]

REFUSED, DAMAGED, UNSUCCESSFUL, LEFT, INTERRUPTED = 1, 3, 4, 5, 130
"""Exit codes, beside 0 and click's 2 for a wrong call; the help of ``sweepkit`` says them."""

TOLD = (ValueError, TypeError, OSError, ImportError, RuntimeError, LookupError, sk.StoreError)
"""What is said in one line instead of a traceback."""


@contextmanager
def _told() -> Iterator[None]:
    """Within, an error of the call is told in words, with its exit code."""
    try:
        yield
    except (sk.RunError, sk.TooManyErrorsError) as stopped:
        raise _Ended(str(stopped), UNSUCCESSFUL) from None
    except KeyboardInterrupt:
        raise _Ended("interrupted; finished runs are kept", INTERRUPTED) from None
    except click.ClickException:
        raise
    except TOLD as fault:
        raise _Ended(str(fault), REFUSED) from None


class _Ended(click.ClickException):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code  # type: ignore[misc]


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 refused, with the reason; 2 wrong call; 3 damage found; "
    "4 stopped by the failure policy; 5 runs are left, at a limit; 130 interrupted.",
)
@click.version_option(sk.__version__, prog_name="sweepkit")
def main() -> None:
    """Run simulation sweeps, look at their stores, hand them on."""


def _parameters(_: Any, __: Any, given: tuple[str, ...]) -> dict[str, Any]:
    """Parameters from ``name=value``; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{one!r} is no name=value with a name that is an identifier")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


STORE = click.argument("store", type=click.Path(path_type=Path))
TARGET = click.argument("target")
INTO = click.option(
    "--store", type=click.Path(path_type=Path), help="Where runs are kept; else <name>.zarr."
)
VALUES = click.option(
    "-p",
    "--parameter",
    "values",
    multiple=True,
    callback=_parameters,
    metavar="NAME=VALUE",
    help="For a function that makes the sweep, or a notebook; JSON or text.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")


def _sweep(target: str, values: Mapping[str, Any]) -> sk.Sweep:
    """A sweep by ``module:name``, or from a declaration."""
    if target.endswith(".json"):
        if values:
            raise ValueError("a declaration takes no parameters")
        return sk.Sweep.from_json(Path(target))
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise ValueError(
            f"{target!r} is no sweep; give module:name, a notebook.ipynb or a declaration.json"
        )
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as fault:
        raise ValueError(f"module {module!r} is not found here: {fault}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"module {module!r} has no {name!r}")
        found = getattr(found, part)
    if callable(found) and not isinstance(found, sk.Sweep):
        found = found(**values)
    elif values:
        raise ValueError(f"{target} is a sweep and takes no parameters; make it a function of them")
    if not isinstance(found, sk.Sweep):
        raise ValueError(f"{target} is a {type(found).__name__} and no Sweep")
    return found


@main.command()
@TARGET
@INTO
@VALUES
@click.option("--n-jobs", type=int, help="Runs at the same time; -1 for all cores.")
@click.option("--backend", help="loky, threading, sequential, or another that joblib knows.")
@click.option("--timeout", help="Seconds that a run may take, or a factor such as 20x.")
@click.option("--deadline", help="When to be done, such as 07:00 or '2 h'.")
@click.option("--duration", help="How long to run, such as '30 min'.")
@click.option("--budget", help="Compute that may be held, such as '4 core-hours'.")
@click.option("--retry", type=int, default=0, help="How often runs without success are retried.")
@click.option("--rerun", multiple=True, help="Statuses to be tried again, such as error.")
@click.option("--max-errors", help="Stop after more errors: a count, or a share as in 0.05.")
@click.option("--on-error", type=click.Choice(["collect", "raise"]), default="collect")
@click.option("--stale", type=click.Choice(["ask", "keep", "rerun"]), default="ask")
@click.option("--quiet", is_flag=True, help="No progress.")
def run(target: str, store: Path | None, values: dict[str, Any], **said: Any) -> None:
    """Run what is pending of TARGET: module:sweep, notebook.ipynb or declaration.json.

    The same call goes on after an interruption.
    """
    with _told():
        if target.endswith(".ipynb"):
            _run_notebook(target, store, values, said)
            return
        sweep = _sweep(target, values)
        where = store or Path(f"{sweep.name}.zarr")
        options: dict[str, Any] = {
            name: said[name] for name in ("n_jobs", "backend", "on_error", "stale", "retry")
        }
        options |= {"rerun": list(said["rerun"]), "progress": not said["quiet"]}
        options |= {"timeout": _number(said["timeout"]), "max_errors": _number(said["max_errors"])}
        limits = {name: said[name] for name in ("deadline", "duration", "budget") if said[name]}
        if limits:
            options["request"] = sk.Request(**limits)
        ds = sk.run(sweep, where, **options)
    counts = _counts(ds)
    click.echo(f"{where}: {_words(counts)}")
    if counts.get("pending"):
        sys.exit(LEFT)


def _number(text: str | None) -> Any:
    """A number where text is one; text such as 20x stays."""
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _run_notebook(
    target: str, store: Path | None, values: Mapping[str, Any], said: Mapping[str, Any]
) -> None:
    try:
        import papermill
    except ModuleNotFoundError:
        raise ValueError("notebooks need papermill; pip install 'sweepkit[headless]'") from None
    given = dict(values)
    given |= {} if store is None else {"store": str(store)}
    given |= {} if said["n_jobs"] is None else {"n_jobs": said["n_jobs"]}
    source = Path(target)
    if not source.exists():
        raise ValueError(f"{target} is not there")
    executed = Path.cwd() / f"{source.stem}.executed.ipynb"
    try:
        papermill.execute_notebook(
            target, str(executed), given, kernel_name="python3", progress_bar=not said["quiet"]
        )
    except papermill.PapermillExecutionError as stopped:
        text = f"{stopped.ename}: {stopped.evalue}; see {executed}"
        raise _Ended(text, UNSUCCESSFUL) from None
    click.echo(str(executed))


def _counts(ds: Any) -> dict[str, int]:
    import numpy as np

    codes, counts = np.unique(ds["status"].values.astype(int), return_counts=True)
    return {NAMES[code]: int(count) for code, count in zip(codes, counts, strict=True)}


def _words(counts: Mapping[str, int]) -> str:
    shown = [f"{count:,} {name}" for name, count in counts.items()]
    return ", ".join(shown) or "no runs"


@main.command()
@STORE
@AS_JSON
def status(store: Path, as_json: bool) -> None:
    """How far the sweep in STORE is, also while another process runs it."""
    with _told():
        ds = sk.open(store)
        counts = _counts(ds)
        failing = int((sk.failed(ds) == 1).sum())
    if as_json:
        click.echo(json.dumps({"store": str(store), "runs": counts, "failed": failing}))
        return
    total = sum(counts.values())
    finished = total - counts.get(Status.PENDING.word, 0)
    click.echo(f"{store}: {finished:,} of {total:,} runs are finished")
    click.echo(f"  {_words(counts)}; {failing:,} of those done fail")


@main.command()
@TARGET
@INTO
@VALUES
@click.option("--n-jobs", type=int, help="Workers to plan for.")
@click.option("--deadline", help="How many workers it takes to be done by then.")
@click.option("--budget", help="How many runs fit, such as '4 core-hours'.")
@click.option("--pilot", type=int, help="Runs that tell the cost; 0 runs and writes nothing.")
def plan(
    target: str,
    store: Path | None,
    values: dict[str, Any],
    n_jobs: int | None,
    deadline: str | None,
    budget: str | None,
    pilot: int | None,
) -> None:
    """What running TARGET will take: compute, wall time, disk, memory."""
    with _told():
        made = sk.plan(
            _sweep(target, values),
            store,
            n_jobs=n_jobs,
            deadline=deadline,
            budget=budget,
            pilot=pilot,
            progress=False,
        )
        click.echo(repr(made))


@main.command()
@STORE
@AS_JSON
def receipt(store: Path, as_json: bool) -> None:
    """What all sessions of STORE took, and what was wasted."""
    with _told():
        told = sk.receipt(store)
        if as_json:
            click.echo(told.sessions.to_json(orient="records", date_format="iso"))
        else:
            click.echo(repr(told))


@main.command()
@STORE
@AS_JSON
def verify(store: Path, as_json: bool) -> None:
    """Name every missing or damaged chunk of STORE; the next run makes just those anew."""
    with _told():
        found = sk.verify(store)
        if as_json:
            click.echo(found.to_json(orient="records", default_handler=str))
        elif len(found):
            click.echo(found.to_string(index=False))
        else:
            click.echo(f"{store}: all is well")
    if len(found):
        sys.exit(DAMAGED)


@main.command()
@STORE
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--stages", is_flag=True, help="Refined runs, too.")
def export(store: Path, path: Path, stages: bool) -> None:
    """Write the runs of STORE to PATH: .parquet, .csv, .json or .nc, one row a run."""
    with _told():
        sk.export(sk.open(store, stages=stages), path)
    click.echo(str(path))


@main.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
def compare(before: Path, after: Path) -> None:
    """What changed from one store to another: parameters, code, outcomes."""
    with _told():
        found = sk.compare(before, after)
    click.echo(repr(found))
    for title, part in (
        ("declared otherwise", found.declared),
        ("outcomes, rows before and columns after", found.outcomes),
        ("runs that changed", found.flipped),
    ):
        if len(part):
            click.echo(f"\n{title}\n{part.to_string()}")


@main.command()
@TARGET
@STORE
@click.argument("run", type=int)
@VALUES
def replay(target: str, store: Path, run: int, values: dict[str, Any]) -> None:
    """Execute run number RUN of STORE again, in the open, with the simulator of TARGET."""
    with _told():
        ds = sk.open(store)
        sweep = _sweep(target, values)
    done = sk.replay(sweep, ds, run)  # what it raises is the answer, traceback and all
    click.echo(repr(done))
    if not done.reproduced:
        sys.exit(REFUSED)


@main.command()
@STORE
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File that ends in .html, .md or .json, by default report.html; may be given again.",
)
@click.option(
    "--require", multiple=True, help="In place of the stored requirements; again for more."
)
@click.option("--title", help="By default the name of the store.")
def report(
    store: Path, outputs: tuple[Path, ...], require: tuple[str, ...], title: str | None
) -> None:
    """Write what STORE says, also while it is being filled: a page, Markdown or JSON."""
    with _told():
        for path in outputs or (Path("report.html"),):
            click.echo(str(sk.report(store, path, requirements=list(require) or None, title=title)))


@main.command()
@STORE
@click.option("--port", type=int, default=0, help="On loopback; by default a free one.")
@click.option("--theme", type=click.Choice(["auto", "light", "dark"]), default="auto")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def explore(store: Path, port: int, theme: str, no_browser: bool) -> None:
    """Explore STORE as a web page on this machine, also while it is being filled."""
    with _told():
        sk.open(store)  # what is wrong with it is told before the page
        try:
            from sweepkit.views.page import serve
        except ModuleNotFoundError as fault:
            text = f"{fault}; pip install 'sweepkit[explore]'"
            raise ValueError(text) from None
        serve(store, port=port, theme=theme, show=not no_browser)

"""The command line: run, watch and hand on sweeps from a shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import sweepkit as sk
from sweepkit import shell
from sweepkit.console import show_card, show_frame, show_state, state_of, watch
from sweepkit.launch import run_notebook, run_sweep
from sweepkit.outgoing import explore, export, pack, report, share
from sweepkit.places import Where, is_url, where
from sweepkit.shell import (
    INTO,
    REACHED,
    SNAPSHOT,
    STATUSES,
    STORE,
    TARGET,
    VALUES,
    Place,
    click,
    told,
)

__all__ = ["main"]


@click.group(
    commands=[explore, export, pack, report, share],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{shell.EXIT_CODES}  Completion of words: sweepkit completion --help.",
)
@click.version_option(sk.__version__, prog_name="sweepkit")
def main() -> None:
    """Run simulation sweeps, look at their stores, hand them on.

    \b
    Examples:
      sweepkit run model:sweep --n-jobs 8      runs it into <name>.zarr; again goes on
      sweepkit status s.zarr --follow          also from another terminal
      sweepkit explore s.zarr                  where designs fail, in the browser
    """


@main.command()
@TARGET
@INTO
@REACHED
@VALUES
@click.option("--n-jobs", type=int, help="Runs at the same time; -1 for all cores.")
@click.option("--backend", help="loky, threading, sequential, or another that joblib knows.")
@click.option("--timeout", help="Seconds that a run may take, or a factor such as 20x.")
@click.option("--deadline", help="When to be done, such as 07:00 or '2 h'.")
@click.option("--duration", help="How long to run, such as '30 min'.")
@click.option("--budget", help="Compute that may be held, such as '4 core-hours'.")
@click.option(
    "--retry", help="How often runs without success are retried: 2, or crashed=2,error=1."
)
@click.option("--rerun", type=STATUSES, multiple=True, help="Statuses to be tried again.")
@click.option("--max-errors", help="Stop after more errors: a count, or a share as in 0.05.")
@click.option(
    "--on-error",
    type=click.Choice(["collect", "raise"]),
    default="collect",
    help="'raise' stops after the first run without success.",
)
@click.option(
    "--stale",
    type=click.Choice(["ask", "keep", "rerun"]),
    default="ask",
    help="What becomes of finished runs if the simulator's code has changed.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Of a notebook: executed.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_context
def run(
    context: click.Context,
    /,
    target: str,
    store: str | None,
    storage: Any,
    values: dict[str, Any],
    output: Path | None,
    **said: Any,
) -> None:
    """Run what is pending of TARGET: module:sweep, notebook.ipynb or declaration.json.

    The same call goes on after an interruption; one that errors stopped goes on with --rerun, or
    with more of them allowed. A notebook gets --store, --n-jobs, limits and
    -p as parameters, if it takes them.

    \b
    Examples:
      sweepkit run model:sweep --n-jobs 8 --deadline 07:00
      sweepkit run model:make_sweep -p mass=0.3 -p law='"pid"' --store s.zarr
      sweepkit run cartpole.ipynb --store c.zarr -p lengths=8 -o done.ipynb
      sweepkit run declaration.json --max-errors 0.05
    """
    with told():
        if target.endswith(".ipynb"):
            if storage:
                raise ValueError("--storage-option is for a sweep; a notebook takes parameters: -p")
            ran: Where | None = run_notebook(context, Path(target), store, values, said, output)
        else:
            if output is not None:
                raise ValueError("-o is for a notebook; sweepkit export writes runs to a file")
            into = None if store is None else where(store, storage)
            stale = "ask" if said["stale"] == "ask" else "keep"
            ran = run_sweep(shell.sweep_of(target, values, stale), into, said)
        state = None if ran is None else state_of(ran)
    if state is None:
        return
    click.echo(f"{ran}: {', '.join(f'{n:,} {name}' for name, n in state.runs.items())}")
    if state.runs.get("pending"):
        sys.exit(shell.LEFT)


@main.command()
@shell.reads_as_text_or_json
@SNAPSHOT
@click.option("-f", "--follow", is_flag=True, help="Until nobody is at work on it.")
def status(store: str, storage: Any, snapshot: str | None, as_json: bool, follow: bool) -> None:
    """How far the sweep in STORE is, also while another process runs it.

    \b
    Examples:
      sweepkit status s.zarr --follow
      sweepkit status s.zarr --json | jq .finished
    """
    with told():
        reached = where(store, storage, snapshot)
        state = state_of(reached)
    if as_json:
        click.echo(json.dumps(state.json()))
    elif follow:
        with told():
            watch(lambda: state_of(reached))
    else:
        show_state(state)


@main.command()
@TARGET
@INTO
@REACHED
@VALUES
@click.option("--n-jobs", type=int, help="Workers to plan for.")
@click.option("--deadline", help="How many workers it takes to be done by then.")
@click.option("--budget", help="How many runs fit, such as '4 core-hours'.")
@click.option("--pilot", type=int, help="Runs that tell the cost; 0 runs and writes nothing.")
def plan(
    target: str,
    store: str | None,
    storage: Any,
    values: dict[str, Any],
    n_jobs: int | None,
    deadline: str | None,
    budget: str | None,
    pilot: int | None,
) -> None:
    """What running TARGET will take: compute, wall time, disk, memory.

    \b
    Examples:
      sweepkit plan model:sweep --n-jobs 8
      sweepkit plan model:sweep --store s.zarr --budget '4 core-hours'
      sweepkit plan model:sweep --pilot 0
    """
    with told():
        made = sk.plan(
            shell.sweep_of(target, values),
            None if store is None else where(store, storage),
            n_jobs=n_jobs,
            deadline=deadline,
            budget=budget,
            pilot=pilot,
            progress=False,
        )
    show_card(made._card())


@main.command()
@shell.reads_as_text_or_json
def receipt(store: str, storage: Any, as_json: bool) -> None:
    """What all sessions of STORE took, and what was wasted.

    \b
    Example:
      sweepkit receipt s.zarr
    """
    with told():
        made = sk.receipt(where(store, storage))
        text = made.sessions.to_json(orient="records", date_format="iso") if as_json else ""
    if as_json:
        click.echo(text)
    else:
        show_card(made._card())


@main.command()
@shell.reads_as_text_or_json
def provenance(store: str, storage: Any, as_json: bool) -> None:
    """Who computed STORE: sessions, code, packages, platform, cost.

    \b
    Example:
      sweepkit provenance s.zarr --json
    """
    with told():
        made = sk.provenance(where(store, storage))
    if as_json:
        click.echo(json.dumps(made.json()))
    else:
        show_card(made._card())


@main.command()
@shell.reads_as_text_or_json
def verify(store: str, storage: Any, as_json: bool) -> None:
    """Name every missing or damaged chunk of STORE; the next run makes just those anew.

    \b
    Example:
      sweepkit verify s.zarr || sweepkit run model:sweep --store s.zarr
    """
    with told():
        found = sk.verify(where(store, storage))
    if as_json:
        click.echo(found.to_json(orient="records", default_handler=str))
    elif len(found):
        show_frame(found)
    else:
        click.echo(f"{store}: all is well")
    if len(found):
        sys.exit(shell.DAMAGED)


@main.command()
@STORE
@shell.AS_JSON
def snapshots(store: str, as_json: bool) -> None:
    """The versions kept in the Icechunk repository STORE, the last one first.

    \b
    Example:
      sweepkit snapshots s.icechunk
      sweepkit report s.icechunk --snapshot 5YZGXN8VJ1K1B9PRD67G
    """
    with told():
        found = sk.snapshots(store)
    if as_json:
        click.echo(found.to_json(orient="records", date_format="iso"))
    else:
        show_frame(found)


@main.command()
@click.argument("before", type=Place())
@click.argument("after", type=Place())
@REACHED
def compare(before: str, after: str, storage: Any) -> None:
    """What changed from one store to another: parameters, code, outcomes.

    \b
    Example:
      sweepkit compare last-week.zarr today.zarr
    """
    with told():
        sides = [where(one, storage if is_url(one) else None) for one in (before, after)]
        found = sk.compare(*sides)
    click.echo(repr(found))
    for title, part in (
        ("declared otherwise", found.declared),
        ("outcomes, rows before and columns after", found.outcomes.reset_index(names="")),
        ("runs that changed", found.flipped),
    ):
        if len(part):
            click.echo(f"\n{title}")
            show_frame(part)


@main.command()
@TARGET
@shell.reads
@SNAPSHOT
@click.argument("run", type=int)
@VALUES
def replay(
    target: str,
    store: str,
    storage: Any,
    snapshot: str | None,
    run: int,
    values: dict[str, Any],
) -> None:
    """Execute run number RUN of STORE again, in the open, with the simulator of TARGET.

    What the simulator prints and raises appears, traceback and all: it is the answer.

    \b
    Example:
      sweepkit replay model:sweep s.zarr 17
    """
    with told():
        ds = sk.open(where(store, storage, snapshot))
        sweep = shell.sweep_of(target, values)
        if not 0 <= run < ds["status"].size:
            raise ValueError(f"run {run} is not there; {store} has 0 to {ds['status'].size - 1:,}")
    done = sk.replay(sweep, ds, run)
    click.echo(repr(done))
    if not done.reproduced:
        sys.exit(shell.REFUSED)


@main.command()
@click.argument("shell_name", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell_name: str) -> None:
    """Print what makes SHELL complete the words of sweepkit: bash, zsh or fish.

    \b
    Put it where the shell reads it when it starts:
      sweepkit completion bash >> ~/.bashrc
      sweepkit completion zsh >> ~/.zshrc
      sweepkit completion fish > ~/.config/fish/completions/sweepkit.fish
    """
    made = click.shell_completion.get_completion_class(shell_name)
    assert made is not None, "click knows bash, zsh and fish"
    click.echo(made(main, {}, "sweepkit", "_SWEEPKIT_COMPLETE").source())

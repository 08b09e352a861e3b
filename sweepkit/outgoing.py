"""The commands that hand a store on: a file, a zip, a repository, a report, a page to explore."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import sweepkit as sk
from sweepkit import shell
from sweepkit.places import where
from sweepkit.shell import SNAPSHOT, click, told

__all__ = ["explore", "export", "pack", "report", "share"]


@click.command()
@shell.reads
@SNAPSHOT
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--stages/--no-stages", default=True, help="With or without refined runs; by default with."
)
def export(store: str, storage: Any, snapshot: str | None, path: Path, stages: bool) -> None:
    """Write the runs of STORE to PATH: .parquet, .csv, .json or .nc, one row a run.

    \b
    Example:
      sweepkit export s.zarr runs.parquet
    """
    with told():
        place = where(store, storage, snapshot)
        sk.export(place if stages else sk.open(place), path)
    click.echo(str(path))


@click.command()
@shell.reads
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--partial", is_flag=True, help="Also with pending runs, as it is now.")
@click.option("--overwrite", is_flag=True, help="In the place of a zip that is there.")
def pack(store: str, storage: Any, path: Path, partial: bool, overwrite: bool) -> None:
    """Pack STORE with its receipts into one zip at PATH, which every command reads.

    \b
    Example:
      sweepkit pack s.zarr s.zarr.zip
    """
    with told():
        sk.pack(where(store, storage), path, partial=partial, overwrite=overwrite)
    click.echo(str(path))


@click.command()
@shell.reads
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--source", help="Where sweepkit comes from, as in git+https://...; else a wheel.")
@click.option("--no-logs", is_flag=True, help="Leave out what runs printed.")
@click.option("--unfinished", is_flag=True, help="Also with runs that are pending.")
def share(
    store: str,
    storage: Any,
    folder: Path,
    source: str | None,
    no_logs: bool,
    unfinished: bool,
) -> None:
    """Write FOLDER, a repository that Binder opens with an explorer of STORE.

    \b
    Example:
      sweepkit share s.zarr pendulum-explorer --no-logs
    """
    with told():
        place = where(store, storage)
        made = sk.share(place, folder, source=source, logs=not no_logs, unfinished=unfinished)
    click.echo(f"{made}: publish it as its README.md says")


@click.command()
@shell.reads
@SNAPSHOT
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
    store: str,
    storage: Any,
    snapshot: str | None,
    outputs: tuple[Path, ...],
    require: tuple[str, ...],
    title: str | None,
) -> None:
    """Write what STORE says, also while it is being filled: a page, Markdown or JSON.

    \b
    Example:
      sweepkit report s.zarr -o report.html -o report.md
    """
    with told():
        place = where(store, storage, snapshot)
        for path in outputs or (Path("report.html"),):
            written = sk.report(place, path, requirements=list(require) or None, title=title)
            click.echo(str(written))


@click.command()
@shell.reads
@SNAPSHOT
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="By default a free one.")
@click.option("--theme", type=click.Choice(["auto", "light", "dark"]), default="auto")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--origin", multiple=True, help="Host that a proxy shows it under; '*' for any.")
def explore(
    store: str,
    storage: Any,
    snapshot: str | None,
    port: int,
    theme: str,
    no_browser: bool,
    origin: tuple[str, ...],
) -> None:
    """Explore STORE as a web page on this machine, also while it is being filled.

    \b
    Example:
      sweepkit explore s.zarr --port 5006 --no-browser
    """
    with told():
        place = where(store, storage, snapshot)
        sk.open(place)  # what is wrong with it is told before the page
        try:
            from sweepkit.views.page import serve
        except ModuleNotFoundError as fault:
            raise ValueError(f"{fault}; pip install 'sweepkit[explore]'") from None
        try:
            serve(place, port=port, theme=theme, show=not no_browser, origins=origin)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                raise
            raise ValueError(f"port {port} is in use; leave --port out for a free one") from None

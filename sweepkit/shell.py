"""What the commands of the shell share: sweeps by name, parameters, exit codes, errors in words."""

from __future__ import annotations

import importlib
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sweepkit as sk

try:
    import click
    import click.shell_completion
except ModuleNotFoundError as fault:
    raise ModuleNotFoundError(
        "the command line needs the package 'click'; pip install 'sweepkit[headless]'"
    ) from fault

__all__ = [
    "DAMAGED",
    "EXIT_CODES",
    "Ended",
    "INTERRUPTED",
    "INTO",
    "LEFT",
    "REACHED",
    "REFUSED",
    "SNAPSHOT",
    "STATUSES",
    "STORE",
    "TARGET",
    "UNSUCCESSFUL",
    "VALUES",
    "click",
    "counts",
    "number",
    "Place",
    "reads",
    "reads_as_text_or_json",
    "parameters_of",
    "sweep_of",
    "told",
]

REFUSED, DAMAGED, UNSUCCESSFUL, LEFT, INTERRUPTED = 1, 3, 4, 5, 130
"""Exit codes, beside 0 and click's 2 for a wrong call."""

EXIT_CODES = (
    "Exit codes: 0 done; 1 refused, or a notebook's cell raised, with the reason; 2 wrong call; "
    "3 damage found; 4 stopped by the failure policy (--on-error, --max-errors); 5 runs are left, "
    "at a limit; 130 interrupted, finished runs are kept."
)

LIBRARIES = (*map(sysconfig.get_path, ("stdlib", "platlib", "purelib")), *sk.__path__)
"""Where code lies that is not the person's own."""

IN_A_SHELL = {
    "overwrite=True": "--overwrite",
    "unfinished=True": "--unfinished",
    "partial=True": "--partial",
    "logs=False": "--no-logs",
}
"""Options that errors name as Python has them."""

TOLD = (ValueError, TypeError, OSError, ImportError, RuntimeError, LookupError, sk.StoreError)
"""What is said in one line instead of a traceback."""


class Ended(click.ClickException):
    """The end of a command, with a line that says why and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code  # type: ignore[misc]


@contextmanager
def told() -> Iterator[None]:
    """Within, an error of the call is told in words, with its exit code."""
    try:
        yield
    except (sk.RunError, sk.TooManyErrorsError) as stopped:
        raise Ended(str(stopped), UNSUCCESSFUL) from None
    except KeyboardInterrupt:
        raise Ended("interrupted; finished runs are kept", INTERRUPTED) from None
    except click.ClickException:
        raise
    except TOLD as fault:
        text = str(fault) or type(fault).__name__
        for python, option in IN_A_SHELL.items():
            text = text.replace(python, option)
        raise Ended(text, REFUSED) from None


def parameters_of(_: Any, __: Any, given: tuple[str, ...]) -> dict[str, Any]:
    """Parameters from ``name=value``; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{one!r} is no name=value with a name that is an identifier")
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


class _Target(click.ParamType[str]):
    """A sweep; completion offers notebooks and declarations, and sees module:name as typed."""

    name = "target"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        folder, _, start = incomplete.rpartition("/")
        items = click.shell_completion.CompletionItem
        found = []
        for path in sorted(Path(folder or ".").glob("*")):
            shown = f"{folder}/{path.name}" if folder else path.name
            if path.name.startswith(start) and not path.name.startswith("."):
                if path.is_dir() and path.suffix != ".zarr":
                    found.append(items(f"{shown}/"))
                elif path.suffix in (".ipynb", ".json"):
                    found.append(items(shown))
        return found


class Place(click.Path):
    """A path, or a URL as it is."""

    name = "store"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if str(value).startswith("memory://"):
            told = "what is in memory is gone with this command; give a path or another URL"
            self.fail(told, param, ctx)
        if not str(value).strip():
            self.fail("the path is empty", param, ctx)
        return str(value)


Command = TypeVar("Command", bound=Callable[..., Any])

STORE = click.argument("store", type=Place())
TARGET = click.argument("target", type=_Target())
INTO = click.option(
    "--store", type=Place(), help="Where runs are kept, a path or URL; else <name>.zarr."
)
REACHED = click.option(
    "--storage-option",
    "storage",
    multiple=True,
    callback=parameters_of,
    metavar="NAME=VALUE",
    help="For the file system of a URL, such as endpoint_url=http://127.0.0.1:9000.",
)
SNAPSHOT = click.option(
    "--snapshot", help="Version of an Icechunk repository, of those that 'snapshots' lists."
)
VALUES = click.option(
    "-p",
    "--parameter",
    "values",
    multiple=True,
    callback=parameters_of,
    metavar="NAME=VALUE",
    help="For a function that makes the sweep, or a notebook; JSON or text.",
)
STATUSES = click.Choice(["error", "timeout", "crashed", "invalid", "done", "unsuccessful"])
AS_JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")


def reads(command: Command) -> Command:
    """A command about one store, wherever it lies."""
    return STORE(REACHED(command))


def reads_as_text_or_json(command: Command) -> Command:
    """A command about one store whose answer is for people or for programs."""
    return reads(AS_JSON(command))


def number(text: str | None) -> Any:
    """A number where text is one; text such as 20x stays."""
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def counts(given: str | None) -> Any:
    """A count, or counts by status as in ``crashed=2,error=1``, from an option."""
    if given is None or "=" not in given:
        return 0 if given is None else number(given)
    pairs = [one.partition("=") for one in given.split(",")]
    return {word.strip(): number(count.strip()) for word, _, count in pairs}


def sweep_of(target: str, values: Mapping[str, Any], stale: str = "keep") -> sk.Sweep:
    """A sweep by ``module:name``, or from a declaration.

    Raises
    ------
    ValueError
        If there is none, or making it raises: what, and in which line.
    """
    if target.endswith(".ipynb"):
        raise ValueError(
            f"{target} is a notebook, which only 'sweepkit run' takes; give module:name or a "
            "declaration.json"
        )
    if target.endswith(".json"):
        return _declared(Path(target), values, stale)
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise ValueError(
            f"{target!r} is no sweep; give module:name, a notebook.ipynb or a declaration.json"
        )
    found = _named(module, name)
    if callable(found) and not isinstance(found, sk.Sweep):
        making = found
        found = _users(lambda: making(**values), f"making {target}")
    elif values:
        raise ValueError(f"{target} is a sweep and takes no parameters; make it a function of them")
    if not isinstance(found, sk.Sweep):
        raise ValueError(f"{target} is no Sweep but of type {type(found).__name__}")
    return found


def _declared(path: Path, values: Mapping[str, Any], stale: str) -> sk.Sweep:
    if values:
        raise ValueError("a declaration takes no parameters")
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    _here()
    return sk.Sweep.from_json(path, stale=stale)


def _here() -> None:
    """Let modules of the current folder be found, as python -m does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _named(module: str, name: str) -> Any:
    if module.endswith(".py"):
        raise ValueError(f"{module!r} is a file; give the module's name, {module[:-3]!r}")
    _here()
    try:
        found = _users(lambda: importlib.import_module(module), f"importing {module!r}")
    except ModuleNotFoundError as fault:
        raise ValueError(f"module {module!r} is not found here: {fault}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"module {module!r} has no {name!r}")
        found = getattr(found, part)
    return found


def _users(act: Callable[[], Any], doing: str) -> Any:
    """What the person's own code gives; what it raises is told with its line, and no traceback."""
    try:
        return act()
    except ModuleNotFoundError:
        raise
    except sk.StoreError:
        raise
    except SyntaxError as fault:
        where = f"{Path(fault.filename or '?').name}, line {fault.lineno}"
        raise ValueError(f"{doing}: {fault.msg} ({where})") from None
    except Exception as fault:  # whatever the person's own module or function raises
        lines = traceback.extract_tb(fault.__traceback__)
        frames = [one for one in lines if not one.filename.startswith("<frozen")][2:]
        frames = [one for one in frames if not one.filename.startswith(LIBRARIES)] or frames
        where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        raise ValueError(f"{doing}: {type(fault).__name__}: {fault}{where}") from None

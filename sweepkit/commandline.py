"""An external program as people give it: its text, readers and files, checked and taken apart."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from sweepkit.command import Command
from sweepkit.outputs import name_fault
from sweepkit.readers import Reader
from sweepkit.template import Template, template

__all__ = ["command"]

SHELL = frozenset({"|", "||", "&", "&&", ";", "<", "<<", ">", ">>", "2>", "2>&1", "&>"})
"""Words that only a shell understands."""


def command(
    text: str | Sequence[str],
    *,
    outputs: Reader | Mapping[str, Reader],
    inputs: Sequence[str | os.PathLike[str]] = (),
    templates: Mapping[str, str | os.PathLike[str]] | None = None,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    ok_codes: int | Sequence[int] = 0,
    keep: str | Sequence[str] = (),
) -> Command:
    r"""An external program as a simulator: one call of it for each run.

    There is no shell. The text is split into words once, as a shell would split it; then values
    take the place of ``{names}`` within single words, so no value, whatever is in it, becomes two
    words or a command of its own. Only where a word is itself a program, as awk's is, text in it
    is that language's: hand text over by an option or ``env`` there.

    Parameters
    ----------
    text : str or sequence of str
        Program and arguments, as in ``"./sim --gain {gain:.3f} --out {scratch}/out.json"``, or
        the words one by one. Names are those of parameters, derived coordinates and the sweep's
        ``inputs``, and ``{scratch}`` and ``{seed}``; vectors have commas between their entries. A
        program with a slash in it is a file, relative to the folder where this is called; others
        are looked for on PATH.
    outputs : Reader or mapping of str to Reader
        Where the outputs are: :func:`from_json`, :func:`from_csv`, :func:`from_netcdf`,
        :func:`from_stdout`, one for all or one for each.
    inputs : sequence of path
        Files that are copied into each run's folder under their own names. Large ones are better
        given to the sweep: ``Sweep(..., inputs={"model": path})``, with ``{model}`` in the text.
    templates : mapping of str to str or path
        Files to be written into each run's folder: by name, the text (a str) or the file that
        holds it (a ``pathlib.Path``), with ``{names}`` in it.
    stdin : str, optional
        What the program reads from standard input, with ``{names}`` in it.
    env : mapping of str to str, optional
        Environment variables beside those there are, with ``{names}`` in them.
    ok_codes : int or sequence of int
        Exit codes of runs that went well. With another, the run is an ``error``, told with the
        last line of its standard error.
    keep : str or sequence of str
        Patterns of files of the run's folder that are kept beside the store, as in ``"*.png"``;
        :func:`artefacts` finds them. Those of a run that is killed are not.

    Returns
    -------
    Command
        To be given to :class:`Sweep`. Each run has a folder of its own as working directory,
        removed afterwards; what the program prints goes to ``log``. A time limit ends the program
        and what it started. A changed program (given by path), script, template or text marks
        finished runs as made by other code.

    Raises
    ------
    TypeError, ValueError
        If the text cannot be split, is meant for a shell, or something is of another type.

    Examples
    --------
    >>> import sweepkit as sk
    >>> power = sk.command("awk 'BEGIN {{ print \"y=\" {base} ^ {exponent} }}'",
    ...                    outputs={"y": sk.from_stdout(r"y=(\S+)")})
    >>> power(base=2, exponent=10)
    y=1024
    {'y': 1024.0}
    """
    words = _words(text)
    shown = text if isinstance(text, str) else shlex.join(words)
    program = template(words[0], "the program")
    if program.literal is None:
        raise ValueError(
            f"program {words[0]!r} depends on values; give one program, and let it or a script "
            "choose"
        )
    name = program.literal
    name = os.path.abspath(name) if os.sep in name else name
    files = tuple(os.path.abspath(os.fspath(path)) for path in _listed("inputs", inputs))
    written = _written(templates or {})
    _check_apart(files, written)
    return Command(
        shown,
        name,
        tuple(template(word, f"argument {at}") for at, word in enumerate(words[1:], 1)),
        _readers(outputs),
        files,
        written,
        None if stdin is None else template(stdin, "stdin"),
        _variables(env),
        _codes(ok_codes),
        tuple(map(os.fspath, _listed("keep", keep))),
    )


def _words(text: str | Sequence[str]) -> list[str]:
    if not isinstance(text, str):
        words = list(text)
        if not all(isinstance(word, str) for word in words):
            raise TypeError(f"words of a command are {words!r}; give strings")
    else:
        try:
            words = shlex.split(text)
        except ValueError as fault:
            raise ValueError(f"command {text!r} cannot be split into words: {fault}") from None
        for word in words:
            if word in SHELL:
                raise ValueError(
                    f"{word!r} in command {text!r} is for a shell, and there is none; put the "
                    "line into a script, or use stdin= and sk.from_stdout"
                )
    if not words or not words[0]:
        raise ValueError("the command is empty; give a program and its arguments")
    return words


def _listed(word: str, given: Any) -> list[Any]:
    listed = [given] if isinstance(given, str | os.PathLike) else list(given)
    for one in listed:
        if not isinstance(one, str | os.PathLike):
            raise TypeError(f"{word} of a command has {one!r}; give text or a path")
    return listed


def _readers(outputs: object) -> Reader | dict[str, Reader]:
    if isinstance(outputs, Reader):
        return outputs
    if not isinstance(outputs, Mapping) or not outputs:
        raise TypeError(
            f"outputs of a command are {outputs!r}; say where each is, as in "
            "{'energy': sk.from_json('out.json', 'energy')}"
        )
    for name, one in outputs.items():
        wrong = name_fault(name)
        if wrong is not None:
            raise ValueError(wrong)
        if not isinstance(one, Reader):
            raise TypeError(
                f"output {name!r} of a command is {one!r}; say where it is with sk.from_json, "
                "sk.from_csv, sk.from_netcdf or sk.from_stdout"
            )
    return dict(outputs)


def _written(templates: Mapping[str, str | os.PathLike[str]]) -> dict[str, Template]:
    made = {}
    for name, given in templates.items():
        if isinstance(given, os.PathLike):
            with open(given, encoding="utf-8") as file:
                given = file.read()
        made[name] = template(given, f"template {name!r}")
    return made


def _check_apart(files: Sequence[str], written: Mapping[str, Template]) -> None:
    """Refuse files that would lie in each other's place in a run's folder."""
    there: dict[str, str] = {}
    for path in files:
        name = os.path.basename(path)
        if there.get(name, path) != path:
            raise ValueError(
                f"inputs {there[name]!r} and {path!r} of a command are both {name!r} in a run's "
                "folder; rename one, or give it to the sweep: Sweep(..., inputs={'name': path})"
            )
        there[name] = path
    for name in written:
        path = there.get(os.path.normpath(name), "")
        if path:
            raise ValueError(
                f"template {name!r} and input {path!r} of a command are one file in a run's "
                "folder; rename one"
            )


def _variables(env: object) -> dict[str, Template]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(
            f"env of a command is {env!r}; give a mapping, as in {{'OMP_NUM_THREADS': '1'}}"
        )
    made = {}
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(
                f"environment variable {name!r} of a command has no name that a system takes; "
                "give its name and its value apart, as in {'NAME': 'value'}"
            )
        made[name] = template(value, f"variable {name!r}")
    return made


def _codes(given: int | Sequence[int]) -> tuple[int, ...]:
    codes = (given,) if isinstance(given, int) else tuple(given)
    if not codes:
        raise ValueError(
            "ok_codes is empty, so that no run could go well; give exit codes, as 0 or [0, 1]"
        )
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, int):
            raise TypeError(f"exit code {code!r} is no whole number")
        if code < 0 and -code not in set(signal.Signals):
            raise ValueError(f"exit code {code} is no signal; signals are negative numbers")
    return codes

"""A simulator that is an external program: no shell, a folder of its own for each run."""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweepkit.digest import digest_of
from sweepkit.grid import Grid
from sweepkit.identity import Identity
from sweepkit.inputs import InputFile
from sweepkit.programs import execute, signal_name
from sweepkit.readers import Reader
from sweepkit.simulator import Call
from sweepkit.template import Template, check_format, template

__all__ = ["Command", "CommandError"]

INJECTED = ("scratch", "seed")
"""What may stand in a template beside parameters, inputs and what is set up."""
SCRIPTS = frozenset({".py", ".sh", ".jl", ".m", ".r", ".pl", ".rb", ".lua", ".js", ".awk"})
"""How files end that a program is likely to read and not to write."""


class CommandError(RuntimeError):
    """A program did not end as it should, or did not write what it should."""


@dataclass(frozen=True, eq=False)
class Command:
    """An external program as a simulator; made by :func:`sweepkit.command`.

    Attributes
    ----------
    text : str
        As it was given.
    program : str
        Name to be found on PATH, or absolute path.
    arguments : tuple of Template
        What the program is given.
    outputs : Reader or mapping of str to Reader
        Where the outputs are.
    inputs : tuple of str
        Absolute paths of files that are copied into each run's folder.
    templates : mapping of str to Template
        Files written into each run's folder, with values in place of names.
    stdin : Template
        What the program reads from standard input.
    env : mapping of str to Template
        Environment variables beside those of the worker.
    ok_codes : tuple of int
        Exit codes of runs that went well.
    keep : tuple of str
        Patterns of files of a run's folder that are kept.
    """

    text: str
    program: str
    arguments: tuple[Template, ...]
    outputs: Reader | Mapping[str, Reader]
    inputs: tuple[str, ...] = ()
    templates: Mapping[str, Template] | None = None
    stdin: Template | None = None
    env: Mapping[str, Template] | None = None
    ok_codes: tuple[int, ...] = (0,)
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = [("keep", one) for one in self.keep]
        for what, name in [*named, *(("template", one) for one in self.templates or {})]:
            if not isinstance(name, str) or os.path.isabs(name) or ".." in name.split(os.sep):
                raise ValueError(
                    f"{what} {name!r} of a command names nothing within a run's folder; give a "
                    "path or pattern relative to it"
                )

    @property
    def __name__(self) -> str:
        return os.path.basename(self.program)

    # --- what it needs ---

    def _templates(self) -> Iterator[tuple[str, Template]]:
        """Everything with names in it, and how it is spoken of."""
        for number, argument in enumerate(self.arguments, 1):
            yield f"argument {number}", argument
        if self.stdin is not None:
            yield "stdin", self.stdin
        for name, one in (self.env or {}).items():
            yield f"environment variable {name!r}", one
        for name, one in (self.templates or {}).items():
            yield f"template {name!r}", one
        for reader in self._readers():
            if reader.path is not None:
                yield "path of an output file", reader.path

    def _readers(self) -> Collection[Reader]:
        return [self.outputs] if isinstance(self.outputs, Reader) else self.outputs.values()

    def call(self, grid: Grid, constant: Mapping[str, Any]) -> Call:
        """How it is called on the points of a grid.

        Raises
        ------
        TypeError, ValueError
            If a name stands for nothing, a parameter or input is used nowhere, a format does not
            fit, an output has the name of a parameter, or the program or a file is not there.
        """
        derived = [name for name, _ in grid.derived]
        known = [*grid.names, *derived, *constant, *INJECTED]
        used: dict[str, None] = {}
        for what, one in self._templates():
            for name, spec in one.formats():
                if name not in known:
                    there = ", ".join([*grid.names, *derived, *constant]) or "none"
                    raise ValueError(
                        f"{what} of command {self.__name__!r} names {{{name}}}, which is no "
                        f"parameter or input ({there}) and not {{scratch}} or {{seed}}; double "
                        "braces that are no names: {{ }}"
                    )
                used[name] = None
                if name in grid:
                    self._check_value(grid, name, spec, what)
        self._check_all_used(grid, constant, used)
        self._check_names(grid, constant)
        self.check()
        handed = [name for name in used if name not in INJECTED or name in grid or name in derived]
        injected = {"scratch", *(["artefacts"] if self.keep else [])}
        if "seed" in used and "seed" not in handed:
            injected.add("seed")
        return Call(
            (),
            (*handed, *sorted(injected)),
            frozenset(injected),
            frozenset(name for name in handed if name in constant),
        )

    def _check_value(self, grid: Grid, name: str, spec: str, what: str) -> None:
        one = grid[name]
        for thing in one.objects or ():
            if not isinstance(thing, str | int | float | os.PathLike):
                raise TypeError(
                    f"parameter {name!r} stands for objects of type {type(thing).__name__}, which "
                    "no program can be given; let labels stand for text, numbers or paths"
                )
        first = one.objects[0] if one.objects is not None else one.values[0]
        plain = one.values.ndim == 1 and one.values.dtype.kind not in "mM"
        wrong = check_format(first.item() if plain and hasattr(first, "item") else first, spec)
        if wrong is not None:
            raise ValueError(
                f"{what} of command {self.__name__!r} has {{{name}:{spec}}}, which does not fit "
                f"the values of {name!r}: {wrong}"
            )

    def _check_all_used(
        self, grid: Grid, constant: Mapping[str, Any], used: Collection[str]
    ) -> None:
        for one in grid.parameters:
            if one.name not in used and one.role != "replicate":
                raise TypeError(
                    f"parameter {one.name!r} stands nowhere in command {self.text!r}; write "
                    f"{{{one.name}}} in an argument, stdin, env or a template, or leave it out"
                )
        for name, thing in constant.items():
            if name not in used:
                raise TypeError(
                    f"input {name!r} stands nowhere in command {self.text!r}; write {{{name}}} "
                    "where its path belongs, or leave it out"
                )
            if not isinstance(thing, InputFile) and not callable(thing):
                if isinstance(thing, str | int | float):
                    continue
                raise TypeError(
                    f"input {name!r} is a {type(thing).__name__}, which no program can be given; "
                    "give the path of a file that holds it"
                )

    def _check_names(self, grid: Grid, constant: Mapping[str, Any]) -> None:
        if isinstance(self.outputs, Reader):
            return
        for name in self.outputs:
            if name in grid or name in grid.dims or name in constant:
                raise ValueError(
                    f"output {name!r} of command {self.__name__!r} has the name of a parameter "
                    "or input; rename one"
                )

    def check(self) -> None:
        """Refuse a program or file that is not there.

        Raises
        ------
        ValueError
            That names it.
        """
        path = self.program if os.path.isabs(self.program) else shutil.which(self.program)
        if path is None:
            raise ValueError(
                f"program {self.program!r} is not installed: it is on no folder of PATH; install "
                "it, or give its path, as in './sim'"
            )
        if not os.path.isfile(path):
            raise ValueError(f"program {path!r} is not there; build it, or mend its path")
        if not os.access(path, os.X_OK):
            raise ValueError(f"program {path!r} may not be executed; allow it with chmod +x")
        for file in self.inputs:
            if not os.path.isfile(file):
                raise ValueError(f"input file {file!r} of {self.__name__!r} is not there")
        there = {os.path.basename(file) for file in self.inputs} | set(self.templates or {})
        for argument in self.arguments:
            word = argument.literal
            if word is None or os.path.isabs(word) or os.path.normpath(word) in there:
                continue
            if os.path.splitext(word)[1].lower() in SCRIPTS and os.path.isfile(word):
                raise ValueError(
                    f"script {word!r} of command {self.__name__!r} lies in the folder where this "
                    "runs, and each run has a folder of its own: add "
                    f"inputs=[{word!r}] and name it {os.path.basename(word)!r}, or give its whole "
                    "path"
                )

    # --- who it is ---

    def identity(self, version: str | None) -> Identity:
        """Digest of its text, of what it reads, and of files given by path.

        A program that is named without a path counts by its name, as installed packages do.

        Raises
        ------
        ValueError
            If the program or a file is no longer there.
        """
        self.check()
        if version is not None:
            return Identity(digest_of(f"version {version}"), version=version)
        said = self.to_json()
        parts = {"command": ("command", digest_of(ascii([a.text for a in self.arguments])))}
        for word in ("env", "stdin", "ok_codes", "outputs"):
            if said[word]:
                parts[f"command {word}"] = (f"{word} of the command", digest_of(ascii(said[word])))
        for name, one in (self.templates or {}).items():
            parts[f"template {name}"] = (f"template {name!r}", digest_of(one.text))
        name = self.__name__
        program = InputFile(self.program).digest if os.path.isabs(self.program) else name
        parts["program"] = (f"program {name!r}", program)
        for path in self.inputs:
            name = os.path.basename(path)
            parts[f"file {name}"] = (f"input file {name!r}", InputFile(path).digest)
        return Identity(digest_of("command")).beside(parts)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        outputs: Any = (
            self.outputs.to_json()
            if isinstance(self.outputs, Reader)
            else {name: one.to_json() for name, one in self.outputs.items()}
        )
        return {
            "text": self.text,
            "program": self.program,
            "arguments": [one.text for one in self.arguments],
            "outputs": outputs,
            "inputs": list(self.inputs),
            "templates": {name: one.text for name, one in (self.templates or {}).items()},
            "stdin": None if self.stdin is None else self.stdin.text,
            "env": {name: one.text for name, one in (self.env or {}).items()},
            "ok_codes": list(self.ok_codes),
            "keep": list(self.keep),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Command:
        """From plain data."""
        said = plain["outputs"]
        one = isinstance(said.get("format"), str)
        return cls(
            plain["text"],
            plain["program"],
            tuple(template(text, "an argument") for text in plain["arguments"]),
            Reader.from_json(said) if one else {n: Reader.from_json(r) for n, r in said.items()},
            tuple(plain["inputs"]),
            {n: template(text, f"template {n!r}") for n, text in plain["templates"].items()},
            None if plain["stdin"] is None else template(plain["stdin"], "stdin"),
            {n: template(text, f"variable {n!r}") for n, text in plain["env"].items()},
            tuple(plain["ok_codes"]),
            tuple(plain["keep"]),
        )

    # --- a run ---

    def __call__(
        self, *, scratch: str | None = None, artefacts: str | None = None, **values: Any
    ) -> dict[str, Any]:
        """Run the program once; returns its outputs.

        Without ``scratch`` it runs in a temporary folder that is removed afterwards.
        """
        if scratch is None:
            with tempfile.TemporaryDirectory(prefix="sweepkit-run-") as folder:
                return self(scratch=folder, artefacts=artefacts, **values)
        values["scratch"] = scratch
        for path in self.inputs:
            copy = shutil.copy(path, scratch)
            os.chmod(copy, os.stat(copy).st_mode | stat.S_IWUSR)  # its own, to be written to
        for name, one in (self.templates or {}).items():
            path = os.path.join(scratch, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(one.fill(values))
        more = {name: one.fill(values) for name, one in (self.env or {}).items()}
        given = "" if self.stdin is None else self.stdin.fill(values)
        try:
            ended = execute(
                [self.program, *(one.fill(values) for one in self.arguments)],
                folder=scratch,
                env={**os.environ, **more},
                given=given.encode(),
            )
        except OSError as fault:
            if fault.filename != self.program:
                raise
            raise CommandError(
                f"program {self.program!r} cannot be started: {fault.strerror} (a script begins "
                "with #! and its interpreter)"
            ) from fault
        finally:
            if artefacts is not None:
                _keep(scratch, artefacts, self.keep)
        if ended.code not in self.ok_codes:
            raise CommandError(self._told(ended.code, ended.complaint))
        if isinstance(self.outputs, Reader):
            found = self.outputs.read(scratch, values, ended.printed)
            return found if not isinstance(found, float | int | str) else {"result": found}
        return {
            name: reader.read(scratch, values, ended.printed)
            for name, reader in self.outputs.items()
        }

    def _told(self, code: int, complaint: str) -> str:
        how = f"exit code {code}" if code >= 0 else signal_name(-code)
        return f"{self.__name__} ended with {how}{f': {complaint}' if complaint else ''}"


def _keep(folder: str, target: str, patterns: Sequence[str]) -> None:
    """Copy files of a run's folder that match one of some patterns, below their relative paths."""
    for pattern in patterns:
        for name in glob.glob(pattern, root_dir=folder, recursive=True, include_hidden=True):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                copy = os.path.join(target, name)
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                shutil.copyfile(path, copy)

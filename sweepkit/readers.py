"""What a program wrote to outputs: JSON, CSV, NetCDF, and text by regular expressions."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sweepkit.template import Template, template

if TYPE_CHECKING:  # a worker reads NetCDF only if it is asked to
    import xarray as xr

__all__ = ["Reader", "UnreadableError", "from_csv", "from_json", "from_netcdf", "from_stdout"]

FORMATS = ("json", "csv", "netcdf", "text")
KINDS: dict[str, type] = {"float": float, "int": int, "str": str}


class UnreadableError(Exception):
    """What a program wrote is not there, or not what was asked for; names it."""


@dataclass(frozen=True)
class Reader:
    """Where an output is, or all of them; made by :func:`from_json` and the like.

    Attributes
    ----------
    format : {"json", "csv", "netcdf", "text"}
        What is read.
    path : Template or None
        File, in the run's folder unless it is absolute; None for what the program printed.
    part : str or None
        Key, column, variable or pattern; None for all there are.
    row : int or None
        Row of a table; None for the whole column.
    kind : {"float", "int", "str"}
        What a matched text becomes.
    separator : str or None
        Between the entries of a table; None for white space.
    """

    format: str
    path: Template | None
    part: str | None = None
    row: int | None = None
    kind: str = "float"
    separator: str | None = ","

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        path = None if self.path is None else self.path.text
        return {
            "format": self.format,
            "path": path,
            "part": self.part,
            "row": self.row,
            "kind": self.kind,
            "separator": self.separator,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Reader:
        """From plain data."""
        path = plain["path"]
        where = None if path is None else template(path, "path of an output file")
        words = ("part", "row", "kind", "separator")
        return cls(plain["format"], where, *(plain[word] for word in words))

    def read(self, folder: str, values: Mapping[str, Any], printed: str) -> Any:
        """The output, or a mapping of all outputs.

        Raises
        ------
        UnreadableError
            If the file, key, column, variable or text is not there.
        """
        if self.path is None:
            return _matched(printed, self, "standard output")
        name = self.path.fill(values)
        path = os.path.join(folder, name)
        shown = os.path.relpath(path, folder) if path.startswith(folder) else name
        if not os.path.isfile(path):
            there = ", ".join(sorted(os.listdir(folder))[:8]) or "nothing"
            raise UnreadableError(
                f"output file {shown!r} was not written; in the run's folder: {there}"
            )
        return READ[self.format](path, self, shown)


def from_json(path: str, key: str | None = None) -> Reader:
    """Outputs from a JSON file that a program writes.

    Parameters
    ----------
    path : str
        In the run's folder; may hold ``{names}``, as in ``"{scratch}/out.json"``.
    key : str, optional
        One value, with dots for keys within keys, as in ``"result.energy"``. Without, the file
        holds an object whose items are the outputs.

    Returns
    -------
    Reader
        For the ``outputs`` of :func:`sweepkit.command`.
    """
    return Reader("json", template(path, "path of an output file"), _optional("key", key))


def from_csv(
    path: str,
    column: str | None = None,
    *,
    row: int | None = -1,
    separator: str | None = ",",
) -> Reader:
    """Outputs from a table as text whose first line names the columns.

    Parameters
    ----------
    path : str
        In the run's folder; may hold ``{names}``.
    column : str, optional
        One column; without, each is an output of its name.
    row : int or None
        Row below the head, the last by default; None gives the whole column, of shape (rows,).
    separator : str or None
        What stands between entries; None for white space.

    Returns
    -------
    Reader
        For the ``outputs`` of :func:`sweepkit.command`. Columns of numbers become floats, others
        text.
    """
    if row is not None and (isinstance(row, bool) or not isinstance(row, int)):
        raise TypeError(f"row is {row!r}; give a whole number, or None for the whole column")
    where = template(path, "path of an output file")
    if separator is not None and (not isinstance(separator, str) or len(separator) != 1):
        raise ValueError(f"separator is {separator!r}; give one character, or None for white space")
    return Reader("csv", where, _optional("column", column), row, separator=separator)


def from_netcdf(path: str, variable: str | None = None) -> Reader:
    """Outputs from a NetCDF file, with their dims, coordinates and units.

    Parameters
    ----------
    path : str
        In the run's folder; may hold ``{names}``.
    variable : str, optional
        One variable; without, all of them.

    Returns
    -------
    Reader
        For the ``outputs`` of :func:`sweepkit.command`.
    """
    where = template(path, "path of an output file")
    return Reader("netcdf", where, _optional("variable", variable))


def from_stdout(pattern: str, *, kind: type = float, path: str | None = None) -> Reader:
    r"""Outputs from what a program prints, by a regular expression.

    Parameters
    ----------
    pattern : str
        With one group, as in ``r"E=(\S+)"``; the last match counts. As the only reader of a
        command it may have named groups instead, each an output.
    kind : {float, int, str}
        What the matched text becomes.
    path : str, optional
        A text file in the run's folder to search instead.

    Returns
    -------
    Reader
        For the ``outputs`` of :func:`sweepkit.command`.

    Examples
    --------
    >>> import sweepkit as sk
    >>> sk.from_stdout(r"E=(\S+)").read("", {}, "E=1.5\nE=2.5\n")
    2.5
    """
    try:
        compiled = re.compile(pattern)
    except re.error as fault:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {fault}") from None
    if compiled.groups < 1 or (compiled.groups > 1 and not compiled.groupindex):
        raise ValueError(
            f"pattern {pattern!r} has {compiled.groups} groups; put the one wanted in "
            "parentheses, or name them, as in (?P<energy>...)"
        )
    name = next((word for word, one in KINDS.items() if one is kind), None)
    if name is None:
        raise ValueError(f"kind is {kind!r}; give float, int or str")
    where = None if path is None else template(path, "path of an output file")
    return Reader("text", where, pattern, None, name)


def _optional(word: str, given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{word} is {given!r}; give a string")
    return given


# --- reading -----------------------------------------------------------------------------------


def _json(path: str, reader: Reader, shown: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except ValueError as fault:
        raise UnreadableError(f"output file {shown!r} is no JSON: {fault}") from None
    if reader.part is None:
        if not isinstance(found, dict):
            raise UnreadableError(f"output file {shown!r} holds no object, whose items have names")
        return found
    for key in reader.part.split("."):
        if not isinstance(found, dict) or key not in found:
            there = ", ".join(found) if isinstance(found, dict) else type(found).__name__
            raise UnreadableError(
                f"output file {shown!r} has no {reader.part!r}; there is {there or 'nothing'}"
            )
        found = found[key]
    return found


def _csv(path: str, reader: Reader, shown: str) -> Any:
    with open(path, encoding="utf-8-sig", newline="") as file:
        if reader.separator is None:
            lines = [line.split() for line in file if line.strip()]
        else:
            table = csv.reader(file, delimiter=reader.separator, skipinitialspace=True)
            lines = [line for line in table if line]
    head, rows = (lines[0], lines[1:]) if lines else ([], [])
    names = [name.strip() for name in head]
    for name in dict.fromkeys(names):
        if names.count(name) > 1 and reader.part in (None, name):
            raise UnreadableError(
                f"output file {shown!r} has {names.count(name)} columns {name!r}; their names "
                "tell them apart, so give each its own"
            )
    for number, row in enumerate(rows, 1):
        if len(row) != len(head):
            raise UnreadableError(
                f"row {number} of output file {shown!r} has {len(row)} entries, its head "
                f"{len(head)}"
            )
    columns = {name: _typed(list(c)) for name, *c in zip(names, *rows, strict=True)}
    if reader.row is not None:
        at = reader.row
        if not -len(rows) <= at < len(rows):
            raise UnreadableError(f"output file {shown!r} has {len(rows)} rows, and no row {at}")
        columns = {name: column[at] for name, column in columns.items()}
    if reader.part is None:
        return columns
    if reader.part not in columns:
        raise UnreadableError(
            f"output file {shown!r} has no column {reader.part!r}; there is "
            f"{', '.join(columns) or 'nothing'}"
        )
    return columns[reader.part]


def _typed(column: Sequence[str]) -> Any:
    try:
        return np.array([float(text) for text in column], dtype=np.float64)
    except ValueError:
        return np.array(column, dtype=object)


def _netcdf(path: str, reader: Reader, shown: str) -> Any:
    import xarray as xr

    try:
        with xr.open_dataset(path) as opened:
            ds: xr.Dataset = opened.load()
    except (ValueError, OSError) as fault:
        raise UnreadableError(f"output file {shown!r} cannot be read: {fault}") from None
    if reader.part is None:
        return ds
    if reader.part not in ds.variables:
        raise UnreadableError(
            f"output file {shown!r} has no variable {reader.part!r}; there is "
            f"{', '.join(map(str, ds.variables))}"
        )
    return ds[reader.part]


def _text(path: str, reader: Reader, shown: str) -> Any:
    with open(path, encoding="utf-8", errors="backslashreplace") as file:
        return _matched(file.read(), reader, f"output file {shown!r}")


def _matched(text: str, reader: Reader, where: str) -> Any:
    pattern = re.compile(reader.part or "")
    last = None
    for last in pattern.finditer(text):  # noqa: B007
        pass
    if last is None:
        raise UnreadableError(f"{where} has nothing that matches {pattern.pattern!r}")
    if pattern.groupindex:
        found = {name: _kind(last[name], reader, where) for name in pattern.groupindex}
        return found if len(found) > 1 or pattern.groups > 1 else next(iter(found.values()))
    return _kind(last[1], reader, where)


def _kind(text: str | None, reader: Reader, where: str) -> Any:
    try:
        return KINDS[reader.kind](text or "")
    except ValueError:
        raise UnreadableError(
            f"{where} has {text!r} where {reader.part!r} matches, which is no {reader.kind}"
        ) from None


READ = {"json": _json, "csv": _csv, "netcdf": _netcdf, "text": _text}

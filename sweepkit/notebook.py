"""What a notebook was given from outside, in the types of its defaults."""

from __future__ import annotations

import ast
import difflib
import json
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sweepkit.html as html
from sweepkit.typed import NotThatTypeError, restored, type_words

__all__ = ["Given", "declared", "parameters", "unknown_words"]

HEAD = "# Parameters"
"""First line of the cell that papermill puts in."""


@dataclass(frozen=True)
class Given:
    """Parameters of a notebook that were given from outside.

    Attributes
    ----------
    values : mapping of str to object
        Those that were given, in the types of their defaults.
    defaults : mapping of str to object
        All that the notebook takes, as the cell tagged ``parameters`` has them.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = []
        for name, default in self.defaults.items():
            value = self.values.get(name, default)
            given = _short(value) if name in self.values else ""
            rows.append((name, given, _short(default), type_words(value)))
        return rows

    def __repr__(self) -> str:
        if not self.values:
            return "<sweepkit.parameters: none given, the notebook's own are in force>"
        lines = [f"<sweepkit.parameters: {len(self.values)} given>"]
        lines += [
            f"  {name} = {given}  ({kind}, default {default})"
            for name, given, default, kind in self._rows()
            if name in self.values
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.values:
            return html.note("No parameters were given: those of the notebook are in force.")
        shown = html.table(("Parameter", "Given", "Default", "Type"), self._rows())
        return html.box(
            "sweepkit.parameters", shown, about=f"{len(self.values)} given", text=repr(self)
        )


def parameters(namespace: MutableMapping[str, Any] | None = None) -> Given:
    """Give what papermill passed to this notebook the types of the notebook's own values.

    Call it in a cell below the one tagged ``parameters``. Papermill hands over text, numbers,
    lists and mappings, and makes text of everything else: ``np.int64(4)`` arrives as ``"4"``, a
    date as ``"2026-03-01 00:00:00"``, an array as what it prints. The values in the tagged cell
    say what was meant. Run by a person, or with nothing passed, it changes nothing.

    Parameters
    ----------
    namespace : mapping, optional
        The notebook's variables, with ``In``, its cells; by default those of the running one.

    Returns
    -------
    Given
        What was given and what the defaults are; shown in the executed notebook.

    Raises
    ------
    ValueError
        If a value does not fit its default (what arrived and what was expected), a name is none
        of the notebook's, or is no identifier: papermill runs names as code.

    Examples
    --------
    >>> given = {"In": ["", "n = 20", "# Parameters\\nn = '4'"], "n": "4"}
    >>> parameters(given)
    <sweepkit.parameters: 1 given>
      n = 4  (int, default 20)
    >>> given["n"]
    4
    """
    own = _running() if namespace is None else namespace
    cells = [str(one) for one in own.get("In", ())]
    at = max((k for k, one in enumerate(cells) if one.lstrip().startswith(HEAD)), default=None)
    names = [] if at is None else _passed_names(cells[at])
    if at is None or not names:
        return Given({}, {})
    source = _defaults_source(cells[:at], names)
    defaults = _evaluated(source, own)
    unknown = [name for name in names if name not in defaults]
    if unknown:
        raise ValueError(unknown_words(unknown, list(defaults)))
    values, wrong = {}, []
    for name in names:
        try:
            values[name] = restored(defaults[name], own[name])
        except NotThatTypeError as expected:
            wrong.append(
                f"parameter {name!r} arrived as {_short(own[name])} ({type_words(own[name])}); "
                f"its default {_short(defaults[name])} ({type_words(defaults[name])}) asks for "
                f"{expected}"
            )
    if wrong:
        raise ValueError("; ".join(wrong))
    own.update(values)
    return Given(values, defaults)


def declared(notebook: Path) -> dict[str, Any]:
    """What a notebook takes, from the assignments in its cell tagged ``parameters``.

    Returns
    -------
    dict of str to object
        By name the value, or None where it is no plain number, text, list or the like.

    Raises
    ------
    ValueError
        If the file is no notebook, or has no such cell.
    """
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        tagged = [
            "".join(one["source"])
            for one in cells
            if one["cell_type"] == "code" and "parameters" in one["metadata"].get("tags", ())
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{notebook} is no notebook that can be read") from None
    if not tagged:
        raise ValueError(f"{notebook} takes no parameters: it has no cell tagged 'parameters'")
    found: dict[str, Any] = {}
    for node in _statements(tagged[0]):
        value = None
        with suppress(ValueError, TypeError, AttributeError):  # no assignment, or no literal
            value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
        found.update(dict.fromkeys(_targets(node), value))
    return found


def unknown_words(unknown: Sequence[str], known: Sequence[str]) -> str:
    """That a notebook has no such parameters, and which were meant."""
    told = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, 1)
        told.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    takes = ", ".join(known) or "none: no cell is tagged 'parameters'"
    return f"the notebook has no parameter {', '.join(told)}; it takes {takes}"


def _running() -> MutableMapping[str, Any]:
    """Variables of the notebook that runs this; none in a script."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    found: MutableMapping[str, Any] = {} if shell is None else shell.user_ns
    return found


def _passed_names(source: str) -> list[str]:
    """Names that papermill assigned; anything else in its cell came from a name that is code."""
    names = []
    for node in _statements(source):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        plain = isinstance(node, ast.Assign) and len(node.targets) == 1 and node.col_offset == 0
        if not plain or not isinstance(target, ast.Name):
            text = (ast.get_source_segment(source, node) or "").splitlines()
            raise ValueError(
                f"a parameter's name is no identifier, and papermill has run it as code: "
                f"{text[0] if text else source!r}"
            )
        names.append(target.id)
    return list(dict.fromkeys(names))


def _statements(source: str) -> list[ast.stmt]:
    """Statements of a cell, without IPython's own commands."""
    lines = source.splitlines()
    plain = ["" if one.lstrip().startswith(("%", "!")) else one for one in lines]
    try:
        return ast.parse("\n".join(plain)).body
    except SyntaxError:
        return []


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        found = [one for target in node.targets for one in ast.walk(target)]
        return [one.id for one in found if isinstance(one, ast.Name)]
    if isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _assigned(source: str) -> list[str]:
    return list(dict.fromkeys(name for node in _statements(source) for name in _targets(node)))


def _defaults_source(cells: Sequence[str], names: Sequence[str]) -> str:
    """The cell that papermill's stands below: the last before it that assigns one of the names.

    Where none does, the one just before: cells are run in any order in the hands of a person.
    """
    for source in reversed(cells):
        if set(_assigned(source)) & set(names):
            return source
    return cells[-1] if cells else ""


def _evaluated(source: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell's assignments give, beside the notebook's variables and not in them."""
    kinds = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
    body: list[ast.stmt] = [node for node in _statements(source) if isinstance(node, kinds)]
    beside = dict(namespace)
    exec(compile(ast.Module(body, []), "<cell tagged parameters>", "exec"), beside)
    return {name: beside[name] for node in body for name in _targets(node)}


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."

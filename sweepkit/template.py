"""Text with ``{names}`` in it, filled in from the values of a run."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Template", "template"]


@dataclass(frozen=True)
class Template:
    """Text with names in braces.

    Attributes
    ----------
    text : str
        As it was given.
    pieces : tuple of (str, str or None, str)
        Literal text, then the name that follows it, None at the end, and its format.
    """

    text: str
    pieces: tuple[tuple[str, str | None, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names in it, each once."""
        return tuple(dict.fromkeys(name for _, name, _ in self.pieces if name is not None))

    @property
    def literal(self) -> str | None:
        """The text, if there is no name in it."""
        return None if self.names else "".join(text for text, _, _ in self.pieces)

    def fill(self, values: Mapping[str, Any]) -> str:
        """The text with values in place of the names."""
        return "".join(
            text if name is None else text + _formatted(values[name], spec)
            for text, name, spec in self.pieces
        )

    def formats(self) -> Iterator[tuple[str, str]]:
        """Each name with its format."""
        return ((name, spec) for _, name, spec in self.pieces if name is not None)


def template(text: object, what: str) -> Template:
    """Read a text with names in braces; doubled braces stand for themselves.

    Raises
    ------
    TypeError, ValueError
        If it is no text, or what stands in braces is no name; says what in which text.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} is {text!r}, of type {type(text).__name__}; give a string")
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as fault:
        raise ValueError(
            f"{what} {text!r} cannot be read ({fault}); double braces that are no names: {{{{ }}}}"
        ) from None
    pieces = []
    for literal, name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or conversion or "{" in (spec or "")):
            raise ValueError(
                f"{what} {text!r} has {{{name}}}, which is no name of a value with a plain "
                "format, as in {gain:.3f}; double braces that are no names: {{ }}"
            )
        pieces.append((literal, name, spec or ""))
    return Template(text, tuple(pieces))


def _formatted(value: Any, spec: str) -> str:
    """A value as text: entries of vectors with commas between, times as in ISO 8601."""
    if isinstance(value, np.ndarray):
        return ",".join(_formatted(one, spec) for one in value.ravel().tolist())
    if isinstance(value, np.datetime64):
        return format(value.astype("datetime64[us]").item(), spec) if spec else str(value)
    if isinstance(value, np.timedelta64):
        return format(value / np.timedelta64(1, "s"), spec) if spec else str(value)
    return format(value, spec)


def check_format(value: Any, spec: str) -> str | None:
    """Why a value cannot be formatted so; None if it can."""
    try:
        _formatted(value, spec)
    except (ValueError, TypeError) as fault:
        return str(fault)
    return None

"""What a function computes, as a digest, and the name of what changed in it.

The code is read from bytecode, which is what runs: a file that was edited since it was imported,
or a cell whose text is gone, cannot mislead it. Each code object is reduced to its smallest
equivalent automaton, and the graph of functions, classes and values in the same way, so that two
equal copies of a helper count as one.

What counts as a change: code, names of local variables and arguments, defaults, closure
variables, globals read, methods and attributes of classes used. What does not: positions,
comments, formatting, docstrings, annotations, the function's own name, the module it lives in,
and the version of any installed package. ``import`` inside a function takes in the whole module
where that module is the user's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sweepkit.digest import digest_of
from sweepkit.objects import type_name
from sweepkit.pickling import pickling_culprit
from sweepkit.reach import Reach

__all__ = ["Identity", "changes", "identify", "pickling_culprit"]

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Identity:
    """What a function computes; compare two with `changes`, which also copes with two Pythons.

    Attributes
    ----------
    digest : str
        Hex digest of everything below; bytecode, hence comparable within one Python minor version.
    parts : mapping of str to str
        Digest of each part by name, such as ``helper``, ``GRAVITY``, ``physics.rollout``,
        ``Controller.step``, ``closure k``; "unresolved" for a global that does not exist.
    labels : mapping of str to str
        How each part is spoken of, such as ``function 'helper'``.
    sources : mapping of str to str
        Digest of the normalised source of each part that is code; "" where there is no source.
    opaque : tuple of str
        Parts seen only by the name of their type: changes inside them are not seen.
    version : str or None
        The version that was declared and then alone decides.
    python : str
        Python's minor version.
    """

    digest: str
    parts: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    opaque: tuple[str, ...] = ()
    version: str | None = None
    python: str = _PYTHON

    def beside(self, parts: Mapping[str, tuple[str, str]]) -> Identity:
        """This identity with further parts: by name, how each is spoken of and its digest."""
        if not parts:
            return self
        told = sorted((name, digest) for name, (_, digest) in parts.items())
        return replace(
            self,
            digest=digest_of(ascii((self.digest, told))),
            parts={**self.parts, **{name: digest for name, (_, digest) in parts.items()}},
            labels={**self.labels, **{name: label for name, (label, _) in parts.items()}},
        )

    def within(self, name: str) -> Identity:
        """The same identity with its parts told as those of something named."""
        return replace(
            self,
            parts={f"{name}: {part}": digest for part, digest in self.parts.items()},
            labels={f"{name}: {part}": f"{said} of {name}" for part, said in self.labels.items()},
            sources={f"{name}: {part}": digest for part, digest in self.sources.items()},
            opaque=tuple(f"{name}: {part}" for part in self.opaque),
        )

    def joined(self, other: Identity) -> Identity:
        """This identity with that of something it goes with."""
        return replace(
            self,
            digest=digest_of(ascii((self.digest, other.digest))),
            parts={**self.parts, **other.parts},
            labels={**self.labels, **other.labels},
            sources={**self.sources, **other.sources},
            opaque=(*self.opaque, *other.opaque),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary, ready for ``json.dumps``."""
        return asdict(self) | {"opaque": list(self.opaque)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """Identity from what `to_json` gave."""
        return cls(**(dict(data) | {"opaque": tuple(data["opaque"])}))


def identify(function: Callable[..., object], *, version: str | None = None) -> Identity:
    """Identity of what a function computes, with all it uses of the user's own code and globals.

    Reads, never calls, user code. Installed packages count by name only, except that a `function`
    which itself is installed or compiled also counts by its package's version.

    Parameters
    ----------
    function : callable
        Function, lambda, method, partial, callable instance, class, or a wrapper around one.
    version : str, optional
        Decides alone, in place of the code.

    Raises
    ------
    TypeError
        If `function` is not callable.

    Examples
    --------
    >>> identify(lambda x: x + 1).digest == identify(lambda x: (x + 1)).digest
    True
    >>> changes(identify(len, version="1"), identify(len, version="2"))
    ["version '1' -> '2'"]
    """
    if not callable(function):
        raise TypeError(
            f"only a callable has an identity, got {type_name(function)}; give a function"
        )
    if version is not None:
        return Identity(digest_of(f"version {version}"), version=version)
    reached = Reach(function)
    return Identity(
        reached.digest(),
        reached.parts(),
        reached.labels,
        reached.sources,
        tuple(reached.opaque),
    )


def changes(old: Identity, new: Identity) -> list[str]:
    """Sentences, by name, on what changed from `old` to `new`; empty where they compute the same.

    Identities from two Python minor versions are compared by source; code without source is told
    as not comparable.
    """
    if old.version is not None or new.version is not None:
        if old.version is None:
            return [f"version {new.version!r} is declared now"]
        if new.version is None:
            return [f"version {old.version!r} is no longer declared"]
        if old.version != new.version:
            return [f"version {old.version!r} -> {new.version!r}"]
    if old.digest == new.digest:
        return []
    before, after = dict(old.parts), dict(new.parts)
    pairs = [(name, name) for name in after if name in before]
    gone = [name for name in before if name not in after]
    for name in [name for name in after if name not in before]:
        # A part that moved between a cell and a module is still the same part.
        alike = [
            other
            for other in gone
            if other.rpartition(".")[2] == name.rpartition(".")[2]
            and ("." not in other or "." not in name or before[other] == after[name])
        ]
        if len(alike) == 1:
            gone.remove(alike[0])
            pairs.append((alike[0], name))
    paired = {b: a for a, b in pairs}
    other_python = old.python != new.python
    said = []
    for name in after:
        if name not in paired:
            said.append(f"{name!r} is used now")
            continue
        same = before[paired[name]] == after[name]
        if other_python and name in new.sources:
            sources = old.sources.get(paired[name], ""), new.sources[name]
            same = sources[0] == sources[1]
            if not all(sources):
                said.append(
                    f"{new.labels[name]}: Python {old.python} -> {new.python}: "
                    "code cannot be compared"
                )
                continue
        if not same:
            said.append(f"{new.labels[name]} changed")
    said += [f"{name!r} is no longer used" for name in gone]
    if not said and not other_python:
        said.append("the same parts are used under other names")
    return said

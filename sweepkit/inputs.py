"""Files and objects that all runs of a sweep share: named, known by their content, staged once."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sweepkit.digest import digest_of
from sweepkit.identity import identify
from sweepkit.parameters import check_name

__all__ = ["InputFile", "Staged", "described", "digests", "settled", "staged"]

SETTLED = 2.0
"""Seconds since its last change after which a file that looks the same is the same."""
MOST_KNOWN = 1024

_known: dict[tuple[str, tuple[int, ...]], str] = {}
"""Cache of digests, by path and by what tells a changed file."""


@dataclass(frozen=True)
class InputFile:
    """A file, or a folder of files, by its absolute path.

    Attributes
    ----------
    path : str
    kind : str, optional
        What it was when it was named: "file" or "folder".
    """

    path: str
    kind: str | None = None

    @property
    def files(self) -> list[str]:
        """The file, or those within the folder and what it links to, in order of their names.

        Raises
        ------
        ValueError
            If a folder holds a link to one that it lies in.
        """
        if not os.path.isdir(self.path):
            return [self.path]
        found = []
        for where, folders, names in os.walk(self.path, followlinks=True, onerror=_raised):
            found += [os.path.join(where, name) for name in names]
            real = os.path.realpath(where)
            for one in folders:
                inner = os.path.join(where, one)
                if os.path.islink(inner) and _within(real, os.path.realpath(inner)):
                    raise ValueError(f"{inner!r} is a link to a folder that it lies in; remove it")
        return sorted(found)

    @property
    def bytes(self) -> int:
        """Size of the content."""
        return sum(os.stat(path).st_size for path in self.files)

    @property
    def digest(self) -> str:
        """Digest of the content, and of the names within a folder."""
        if not os.path.isdir(self.path):
            return _file_digest(self.path)
        told = [(os.path.relpath(one, self.path), _file_digest(one)) for one in self.files]
        return digest_of(ascii(told))

    def check(self, name: str) -> None:
        """Refuse one that is not there, is no longer what it was, or cannot be read.

        Raises
        ------
        ValueError
            That names it.
        """
        if not os.path.exists(self.path):
            if self.kind is None:
                raise ValueError(
                    f"input {name!r} is the file {self.path!r}, which is not there; mend the path "
                    "(text itself is given to the simulator by functools.partial)"
                )
            raise ValueError(
                f"input {name!r} is the {self.kind} {self.path!r}, which is no longer there; "
                "bring it back, or make the sweep anew with where it is now"
            )
        kind = _kind(self.path)
        if kind not in ("file", "folder"):
            raise ValueError(
                f"input {name!r}: {self.path!r} is neither a file nor a folder, so it has no "
                "content that all runs share; give a file with what is to be read"
            )
        if self.kind not in (None, kind):
            raise ValueError(
                f"input {name!r} is the {self.kind} {self.path!r}, where a {kind} is now; bring "
                f"the {self.kind} back, or make the sweep anew"
            )
        with _told(name, self.path):
            files = self.files
        for path in files:
            if not os.access(path, os.R_OK):
                raise ValueError(
                    f"input {name!r}: file {path!r} may not be read; allow it, or leave it out"
                )
            if not os.path.isfile(path):
                raise ValueError(
                    f"input {name!r}: {path!r} is no file, so it has no content that all runs "
                    "share; leave it out"
                )


def _kind(path: str) -> str:
    if os.path.isdir(path):
        return "folder"
    return "file" if os.path.isfile(path) else "other"


def _within(inner: str, outer: str) -> bool:
    return os.path.commonpath([inner, outer]) == outer


def _raised(fault: OSError) -> None:
    raise fault


@contextmanager
def _told(name: str, path: str) -> Iterator[None]:
    """Name the input of what goes wrong with its files."""
    try:
        yield
    except OSError as fault:
        where = fault.filename if isinstance(fault.filename, str) else path
        raise ValueError(
            f"input {name!r}: {where!r} cannot be read ({fault.strerror or fault}); bring it "
            "back, or make the sweep anew with where it is now"
        ) from fault
    except ValueError as fault:
        raise ValueError(f"input {name!r}: {fault}") from fault


@dataclass(frozen=True)
class Staged:
    """A read-only copy of an input file, by a path that is valid in workers."""

    path: str


def _file_digest(path: str) -> str:
    seen = os.stat(path)
    told = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    digest = _known.get((path, told))
    if digest is None:
        began = time.time()
        digest = _content_digest(path)
        # A file that changes twice within a tick of its clock shows one time: not yet to be relied
        # on. The change time is the system's own, so no program sets it back.
        if began - max(seen.st_mtime, seen.st_ctime) > SETTLED:
            while len(_known) >= MOST_KNOWN:
                _known.pop(next(iter(_known)), None)
            _known[path, told] = digest
    return digest


def _content_digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def settled(given: object) -> dict[str, Any]:
    """Inputs by name, paths made absolute.

    Raises
    ------
    TypeError, ValueError
        If they are no mapping from identifiers, or a file is not there.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"inputs are {given!r}; give a mapping from names, as in {{'model': 'model.xml'}}"
        )
    made: dict[str, Any] = {}
    for name, one in given.items():
        check_name(name, "input")
        if isinstance(one, str | os.PathLike):
            path = os.path.abspath(os.fspath(one))
            one = InputFile(path)
            one.check(name)
            one = InputFile(path, _kind(path))
        made[name] = one
    return made


def digests(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Digest of the content of each input.

    Raises
    ------
    ValueError
        If a file is no longer there, or can no longer be read.
    """
    return {name: _digest(name, one) for name, one in inputs.items()}


def _digest(name: str, one: object) -> str:
    if isinstance(one, InputFile):
        one.check(name)
        with _told(name, one.path):
            return one.digest
    return identify(partial(_handed, one)).digest


def _handed(thing: object) -> None:
    """Stands for whatever is given an object, so that the object has an identity."""


def described(inputs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each input is, its size and the digest of its content, as plain data.

    Raises
    ------
    ValueError
        If a file is no longer there, or can no longer be read.
    """
    found = {}
    for name, one in inputs.items():
        said: dict[str, Any]
        digest = _digest(name, one)
        if isinstance(one, InputFile):
            with _told(name, one.path):
                said = {"kind": _kind(one.path), "path": one.path, "bytes": one.bytes}
        else:
            size = getattr(one, "nbytes", None)
            said = {
                "kind": type(one).__name__,
                "bytes": int(size) if isinstance(size, int | np.integer) else None,
            }
        found[name] = {**said, "digest": digest}
    return found


@contextmanager
def staged(
    inputs: Mapping[str, Any], folder: str, known: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Inputs as they are sent to workers: of each file a read-only copy, removed at the end.

    So all runs of a session see the content that the sweep declares, whatever a person or a run
    does to the original meanwhile.

    Parameters
    ----------
    inputs : mapping of str to InputFile or object
    folder : str
        Where copies are put.
    known : mapping of str to str, optional
        Digests of those whose content has been noted down already, as the store's is.

    Raises
    ------
    ValueError
        If a file is no longer there, cannot be copied, or has changed meanwhile.
    """
    made: dict[str, Any] = {}
    try:
        for name, one in inputs.items():
            if isinstance(one, InputFile):
                digest = _digest(name, one)
                one = Staged(_copied(name, one, folder, (known or {}).get(name, digest)))
            made[name] = one
        yield made
    finally:
        for name, one in inputs.items():
            if isinstance(one, InputFile):
                _removed(os.path.join(folder, name))
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)


def _copied(name: str, one: InputFile, folder: str, digest: str) -> str:
    place = os.path.join(folder, name)
    _removed(place)  # left by a session that was killed
    copy = os.path.join(place, os.path.basename(one.path))
    try:
        os.makedirs(place)
        if os.path.isdir(one.path):
            shutil.copytree(one.path, copy)
        else:
            shutil.copyfile(one.path, copy)
            shutil.copymode(one.path, copy)
    except OSError as fault:
        raise ValueError(
            f"input {name!r}: {one.path!r} cannot be copied to {place!r}, where runs would read "
            f"it: {fault}"
        ) from fault
    if InputFile(copy).digest != digest:
        raise ValueError(
            f"input {name!r}: {one.path!r} changes while the sweep begins; run again once it is "
            "left alone"
        )
    for path in InputFile(copy).files:
        os.chmod(path, os.stat(path).st_mode & ~0o222)
    return copy


def _removed(place: str) -> None:
    if os.path.isdir(place):
        for path in InputFile(place).files:
            os.chmod(path, os.stat(path).st_mode | stat.S_IWUSR)
        shutil.rmtree(place, ignore_errors=True)


def as_handed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as a worker hands them to runs: files by their path, arrays so that they stay."""
    handed = {}
    for name, one in inputs.items():
        if isinstance(one, Staged):
            one = one.path
        elif type(one) is np.ndarray:
            one = one.view()
            one.flags.writeable = False
        handed[name] = one
    return handed

"""Where a store lies: a folder, or names in a keyed store such as a bucket, memory or a zip."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from sweepkit.keyed import Keyed

__all__ = ["Given", "KeyPath", "Place", "Where", "beneath", "is_url", "place", "where"]


class KeyPath:
    """A name in a keyed store; speaks like a ``pathlib.Path``, as far as stores need it.

    Parameters
    ----------
    store : Keyed
        Gives and takes bytes by key.
    key : str
        Names joined by slashes; "" is the whole store.
    """

    __slots__ = ("key", "store")

    def __init__(self, store: Keyed, key: str) -> None:
        self.store = store
        self.key = key

    def __str__(self) -> str:
        return "/".join(filter(None, (self.store.shown, self.key)))

    def __repr__(self) -> str:
        return f"KeyPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: KeyPath) -> bool:
        return self.key < other.key

    def __getstate__(self) -> tuple[Keyed, str]:
        return self.store, self.key

    def __setstate__(self, state: tuple[Keyed, str]) -> None:
        self.store, self.key = state

    # --- names ---

    @property
    def name(self) -> str:
        """The last name."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> KeyPath:
        """What it is in."""
        return KeyPath(self.store, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> KeyPath:
        """Another name in the same place."""
        return self.parent / name

    def joinpath(self, *names: str) -> KeyPath:
        """A name further in."""
        return KeyPath(self.store, "/".join(filter(None, (self.key, *names))))

    def __truediv__(self, name: str) -> KeyPath:
        return self.joinpath(name)

    def absolute(self) -> KeyPath:
        """Itself: it does not depend on the working directory."""
        return self

    # --- what is there ---

    def is_symlink(self) -> bool:
        """Whether it is a link: there are none."""
        return False

    def is_file(self) -> bool:
        """Whether something is kept under this very name."""
        return self.store.there([self.key])[0]

    def is_dir(self) -> bool:
        """Whether there is something within."""
        return self.store.holds(self.key)

    def exists(self) -> bool:
        """Whether it is one of the two."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[KeyPath]:
        """What is directly within, in order of names."""
        return (self / name for name in self.store.children(self.key))

    def rglob(self, pattern: str) -> Iterator[KeyPath]:
        """What is kept within, however deep, whose last name fits a pattern."""
        for key in self.store.keys_below(self.key):
            one = KeyPath(self.store, key)
            if fnmatch.fnmatchcase(one.name, pattern):
                yield one

    def glob(self, pattern: str) -> Iterator[KeyPath]:
        """What is kept within under names that fit a pattern, name by name."""
        found = [self]
        *outer, last = pattern.split("/")
        for part in outer:
            found = [inner for one in found for inner in _fitting(one, part)]
        if "*" in last:
            yield from (inner for one in found for inner in _fitting(one, last))
            return
        named = [one / last for one in found]
        there = self.store.there([one.key for one in named])
        yield from (one for one, seen in zip(named, there, strict=True) if seen)

    # --- bytes ---

    def read_bytes(self) -> bytes:
        """What is kept.

        Raises
        ------
        FileNotFoundError
            If nothing is.
        """
        found = self.store.read(self.key)
        if found is None:
            raise FileNotFoundError(2, "No such object", str(self))
        return found

    def read_text(self, encoding: str = "utf-8") -> str:
        """The same as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Keep something, all at once, in the place of what was there."""
        self.store.write(self.key, content)

    def unlink(self, missing_ok: bool = False) -> None:
        """Forget it, whether it is there or not."""
        self.store.delete_all([self.key])

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: names need no folder."""


def _fitting(one: KeyPath, pattern: str) -> Iterator[KeyPath]:
    return (inner for inner in one.iterdir() if fnmatch.fnmatchcase(inner.name, pattern))


Place: TypeAlias = Path | KeyPath
"""Where a store, or a part of it, lies."""

Where: TypeAlias = str | KeyPath
"""The same, with folders as they were given."""

ONE_SLASH = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)")
"""How a URL begins that lost a slash."""

Given: TypeAlias = Any
"""What people give for a store: a path, a URL, a zip, or a Zarr store object."""


def is_url(text: str) -> bool:
    """Whether a text names a place by a protocol."""
    return "://" in text


def where(
    given: Given,
    storage_options: Mapping[str, Any] | None = None,
    snapshot: str | None = None,
) -> Where:
    """The place that a person means.

    Parameters
    ----------
    given : path, str or Zarr store
        A folder; a URL such as "s3://bucket/a.zarr" or "memory://a.zarr"; the path of a zip, or of
        an Icechunk repository, which ends in ".icechunk"; or a store object of zarr.
    storage_options : mapping, optional
        For the file system of a URL: endpoint, credentials and the like.
    snapshot : str, optional
        A version of an Icechunk repository; by default the last one.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If options are given for what is no URL, or a URL names no place within its bucket.
    """
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise TypeError(
            f"storage_options is a {type(storage_options).__name__}; give a mapping, as in "
            "{'endpoint_url': 'http://127.0.0.1:9000'}"
        )
    if snapshot is not None and not isinstance(snapshot, str):
        raise TypeError(
            f"snapshot is {snapshot!r}; give the text that names it, from the column 'snapshot' of "
            "sk.snapshots"
        )
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    versioned = text is not None and text.rstrip("/").endswith(".icechunk") and not is_url(text)
    if snapshot is not None and not versioned:
        raise ValueError(
            f"snapshot={snapshot!r} is for Icechunk repositories, whose folder ends in .icechunk; "
            f"{text or type(given).__name__!r} keeps no versions"
        )
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if text is not None and (slip := ONE_SLASH.match(text)):
        raise ValueError(
            f"{text!r} has one slash where a URL has two: '{slip[1]}://{text[slip.end() :]}'; a "
            f"folder of that name is './{text}'"
        )
    if text is not None and is_url(text) and not text.startswith("file://"):
        from sweepkit.addresses import of_url

        return of_url(text, storage_options or {})
    if storage_options:
        named = text if text is not None else type(given).__name__
        raise ValueError(
            f"storage_options ({', '.join(map(str, storage_options))}) are for URLs such as "
            f"'s3://bucket/a.zarr', and {named!r} is none; leave them out, or give the URL"
        )
    if text is not None:
        text = text.removeprefix("file://")
        if versioned:
            from sweepkit.versioned import of_icechunk

            return of_icechunk(text, snapshot)
        if text.endswith(".zip") and os.path.isfile(text):
            from sweepkit.addresses import of_zip

            return of_zip(text)
        return text
    if isinstance(given, KeyPath):
        return given
    from sweepkit.addresses import of_store

    return of_store(given)


def place(where: str | os.PathLike[str] | KeyPath) -> Place:
    """The same to work with, which does not change with the working directory."""
    return where if isinstance(where, KeyPath) else Path(where).absolute()


def beneath(where: Where, *names: str) -> Where:
    """A name further in."""
    return where.joinpath(*names) if isinstance(where, KeyPath) else os.path.join(where, *names)

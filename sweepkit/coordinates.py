"""The coordinates of a store against the copies beside it: damage found, told and undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweepkit.arrays import Arrays
from sweepkit.axes import has_copy, keep_axes, mend_axes
from sweepkit.commit import is_own_copy
from sweepkit.places import Place

__all__ = ["Coordinates"]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates of a store.

    Attributes
    ----------
    root, beside : Place
        Of the store, and of the folder beside it, which has the copies.
    arrays : Arrays
        Those of the store.
    names : sequence of str
        Of the parameters, and along own dims of outputs.
    """

    root: Place
    beside: Place
    arrays: Arrays
    names: Sequence[str]

    def damaged(self) -> dict[str, str]:
        """Those that cannot be read or were changed, each with what is wrong with it."""
        found = self._unreadable()
        return {**(self._changed() if is_own_copy(self.root, self.beside) else {}), **found}

    def restorable(self, name: str) -> bool:
        """Whether one that cannot be read is restored by who opens the store to write."""
        return name in self._unreadable() and has_copy(self.root, self.beside, name)

    def mend(self, own_copy: bool) -> None:
        """Put copies in the place of those that are damaged, then keep copies.

        Copies are compared with what can be read where the copy of the root is this root's own.

        Raises
        ------
        DamagedError
            If a damaged one has no copy, or one was changed since it was copied.
        """
        changed = self._changed if own_copy else dict
        mend_axes(self.root, self.beside, self.names, self._unreadable, changed)

    def keep(self) -> None:
        """Keep copies of them as they are."""
        keep_axes(self.root, self.beside, self.names)

    def _unreadable(self) -> dict[str, str]:
        return self.arrays.damaged_axes(list(self.names), str(self.root))

    def _changed(self) -> dict[str, str]:
        return self.arrays.changed_axes(self.names, self.beside / "axes")

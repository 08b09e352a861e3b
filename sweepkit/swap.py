"""A store made anew beside the one whose place it takes, all at once, whatever is killed meanwhile.

The new one is announced once it is complete; from then on whoever opens the store finishes the
swap. A token in the new root tells on which side of the swap the two are.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sweepkit.commit import is_group, token_of
from sweepkit.files import link_tree, move_tree, read_bytes, remove_tree, replace_file, swap
from sweepkit.places import Place
from sweepkit.root import STAGES

__all__ = ["Swap"]


@dataclass(frozen=True)
class Swap:
    """Where the two stores of a swap are.

    Attributes
    ----------
    root : Place
        Of the store that is replaced.
    beside : Place
        The folder beside it.
    """

    root: Place
    beside: Place

    @property
    def fresh(self) -> Place:
        """Where the new store is made."""
        return self.beside / "rewrite"

    @property
    def announced(self) -> bool:
        """Whether a new store is complete and the swap not over."""
        return self._token() is not None

    @property
    def due(self) -> bool:
        """Whether the new store, announced, has still to take its place."""
        return self.fresh.exists() and not token_of(self.root) == self._token() != ""

    @property
    def _mark(self) -> Place:
        return self.beside / "rewrite-ready"

    @property
    def _old(self) -> Place:
        return self.beside / "replaced"

    def _token(self) -> str | None:
        token = read_bytes(self._mark)
        return None if token is None else token.decode()

    def clear(self) -> None:
        """Make room for a new store; one that was never announced is nobody's."""
        remove_tree(self.fresh, ignore_errors=True)

    def new_token(self) -> str:
        """What the root of the new store is to be told by."""
        return secrets.token_hex(8)

    def link_stages(self) -> None:
        """Give the new store the stages of the one it replaces."""
        if is_group(self.root / STAGES):
            link_tree(self.root / STAGES, self.fresh / STAGES)

    def announce(self, token: str) -> None:
        """Say that the new store, whose root has the token, is complete."""
        replace_file(self._mark, token)

    def make(self) -> None:
        """Put the new store in the place of the old one."""
        swap(self.fresh, self.root, self._old)

    def keep_stages(self) -> None:
        """Move stages from the old store that the new one came without."""
        if is_group(self._old / STAGES) and not (self.root / STAGES).exists():
            move_tree(self._old / STAGES, self.root / STAGES)

    def end(self) -> None:
        """Nothing is left to finish; the old store goes."""
        self._mark.unlink()
        remove_tree(self._old, ignore_errors=True)
        remove_tree(self.fresh, ignore_errors=True)

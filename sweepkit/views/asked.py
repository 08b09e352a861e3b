"""A source of runs seen in one state of an explorer: as they are judged, selected and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweepkit.analysis.table import Table
from sweepkit.views.selection import mask_of
from sweepkit.views.source import Bools, Source, kept

__all__ = ["Asked"]


@dataclass(frozen=True, eq=False)
class Asked:
    """A source seen in one state: the runs as they are judged, selected and shown.

    Attributes
    ----------
    stops : tuple of int
        Of each lever.
    axes : tuple of str
        Parameters of the map from the slowest to the fastest: multiples, y, x.
    panels : tuple of str
        Those among them that have a map for each value.
    at : mapping of str to int
        Positions of parameters that are not averaged over.
    """

    of: Source
    stops: tuple[int, ...]
    filters: Sequence[Mapping[str, Any]]
    axes: tuple[str, ...]
    panels: tuple[str, ...]
    at: Mapping[str, int]
    show: str
    table: Table
    selected: Bools | None
    beside_map: Bools | None

    @classmethod
    def make(
        cls,
        of: Source,
        t: Table,
        stops: Sequence[int],
        filters: Sequence[Mapping[str, Any]],
        axes: Sequence[str],
        panels: Sequence[str],
        at: Mapping[str, int],
        show: str,
    ) -> Asked:
        selected = mask_of(of, t, filters)
        own = any(each.get("src") == "map" for each in filters)
        beside = mask_of(of, t, filters, but="map") if own else selected
        at = {name: code for name, code in at.items() if name not in axes}
        axes = tuple(axes)
        return cls(of, tuple(stops), filters, axes, tuple(panels), at, show, t, selected, beside)

    @property
    def chosen(self) -> Table:
        """The selected runs."""
        return kept(self.table, self.selected)

    def sliced(self, but: str = "") -> Bools | None:
        """The runs that the map counts: those its filters and its sliders leave."""
        mask = self.beside_map
        for name, code in self.at.items():
            if name != but:
                one = self.of[name].codes == code
                mask = one if mask is None else mask & one
        return mask

    def others_hold(self, but: int) -> Bools:
        """Whether a run is done and satisfies all requirements but one."""
        mask = self.of.ended
        for k, one in enumerate(self.of.levers):
            if k != but:
                mask = mask & one.holds(self.stops[k])
        return mask

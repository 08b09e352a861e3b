"""The names that runs of a grid and of its refinements have besides, laid flat along one dim."""

from __future__ import annotations

from collections.abc import Collection

from sweepkit.places import Where
from sweepkit.root import StoreError

__all__ = ["GIVEN", "RUN", "check_names"]

RUN = "run"
"""The dim."""

GIVEN = {
    "stage": "which refinement each run is of",
    "volume": "the share of the space that each run stands for",
    RUN: "the dim of the runs of grid and refinements together",
}
"""What flat runs of a grid and its refinements have besides their own."""


def check_names(path: Where, names: Collection[str], given: Collection[str] = tuple(GIVEN)) -> None:
    """Refuse parameters and outputs with the name of what flat runs have besides.

    Raises
    ------
    StoreError
        If there is one.
    """
    for name in given:
        if name in names:
            raise StoreError(
                f"{path} has a parameter or output {name!r}, which is also what names "
                f"{GIVEN[name]}; rename it in the simulator and run the grid into a new store"
            )

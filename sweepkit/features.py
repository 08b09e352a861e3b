"""Numbers by which the cost of a run is told from its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweepkit.grid import Grid
from sweepkit.parameters import Parameter

__all__ = ["Features"]

Array: TypeAlias = NDArray[np.float64]

MOST_FEATURES = 64
MOST_CATEGORIES = 32


@dataclass(frozen=True)
class Features:
    """Numbers by which the cost of a run is told: a constant, then columns of about unit spread.

    Attributes
    ----------
    grid : Grid
    singles : tuple
        For each feature of one parameter its dim and its number at each position, shape (n,).
    pairs : tuple of (int, int)
        Which of the linear ones are multiplied.
    places : tuple of int
        For each single feature the linear one of the same parameter; -1 for a category.
    """

    grid: Grid
    singles: tuple[tuple[str, Array], ...]
    pairs: tuple[tuple[int, int], ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, grid: Grid) -> Features:
        """For the parameters of a grid that are no replicates and no vectors."""
        singles: list[tuple[str, Array]] = []
        linear: list[int] = []
        curved: list[tuple[str, Array]] = []
        places: list[int] = []
        bases: list[int] = []
        for one in grid.parameters:
            if one.role == "replicate" or one.values.ndim > 1 or one.size < 2:
                continue
            if one.values.dtype.kind in "iufbmM":
                base = _spread(_numbers(one))
                if base is None:
                    continue
                linear.append(len(singles))
                places.append(len(singles))
                singles.append((one.dim, base))
                square = _spread(base**2)
                if len(np.unique(base)) > 2 and square is not None:
                    curved.append((one.dim, square))
                    bases.append(linear[-1])
            else:
                singles += [(one.dim, column) for column in _categories(one)]
                places += [-1] * (len(singles) - len(places))
        places = (places + bases)[:MOST_FEATURES]
        singles = (singles + curved)[:MOST_FEATURES]
        linear = [at for at in linear if at < len(singles)]
        pairs = [(a, b) for i, a in enumerate(linear) for b in linear[i + 1 :]]
        few = tuple(pairs[: MOST_FEATURES - len(singles)])
        return cls(grid, tuple(singles), few, tuple(places))

    def within(self, runs: NDArray[np.int64]) -> Features:
        """The same, but of a value beyond those of some runs what is told of the nearest of them.

        Without runs, or where they span all values, these features themselves.
        """
        if not len(runs) or not self.singles:
            return self
        index, nearest = self.grid.index(runs), {}
        for at in sorted({place for place in self.places if place >= 0}):
            dim, column = self.singles[at]
            seen = np.unique(index[dim])
            least, most = seen[np.argmin(column[seen])], seen[np.argmax(column[seen])]
            positions = np.arange(len(column))
            positions[column < column[least]] = least
            positions[column > column[most]] = most
            nearest[at] = positions
        if all((n == np.arange(len(n))).all() for n in nearest.values()):
            return self
        singles = tuple(
            (dim, column if place < 0 else column[nearest[place]])
            for (dim, column), place in zip(self.singles, self.places, strict=True)
        )
        return replace(self, singles=singles)

    @property
    def count(self) -> int:
        """Columns, the constant included."""
        return 1 + len(self.singles) + len(self.pairs)

    def __call__(self, runs: NDArray[np.int64]) -> Array:
        """Features of some runs, shape (n, count)."""
        index = self.grid.index(runs)
        made = np.ones((len(runs), self.count))
        for at, (dim, column) in enumerate(self.singles, 1):
            made[:, at] = column[index[dim]]
        for at, (a, b) in enumerate(self.pairs, 1 + len(self.singles)):
            made[:, at] = made[:, 1 + a] * made[:, 1 + b]
        return made


def _numbers(one: Parameter) -> Array:
    """Values of a parameter as numbers; their logs if they are positive and span a factor of 3."""
    values = one.values
    numbers = (values.astype("int64") if values.dtype.kind in "mM" else values).astype(np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    return np.log(numbers) if low > 0 and high >= 3 * low else numbers


def _spread(numbers: Array) -> Array | None:
    """Numbers of mean 0 and unit spread; None if they are all the same, or not all finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(numbers.std())
    if not math.isfinite(deviation) or deviation <= 1e-12 * float(np.abs(numbers).max()):
        return None
    spread: Array = (numbers - numbers.mean()) / deviation
    return spread


def _categories(one: Parameter) -> list[Array]:
    """One column for each value of a parameter that has few."""
    values = one.values.astype(str)
    known = np.unique(values)
    if len(known) > MOST_CATEGORIES:
        return []
    return [(values == value).astype(np.float64) for value in known]

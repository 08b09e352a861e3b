"""Where the values of a parameter lie on the axis of a figure, true to their distances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.views.drawing import value_text, with_units

__all__ = ["Axis", "axis_of"]

LOG_RATIO = 20.0
"""A positive axis that spans more, and is more even in the logarithm, is drawn so."""


@dataclass(frozen=True, eq=False)
class Axis:
    """Where the values of a parameter lie on an axis, true to their distances.

    Attributes
    ----------
    name, label : str
        The parameter, and what stands along the axis.
    at, lower, upper : array of float, shape (n,)
        Middle and ends of each value's cell.
    texts : sequence of str
        Each value as text.
    logarithmic : bool
        Whether the axis is to be drawn so.
    """

    name: str
    label: str
    at: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    texts: tuple[str, ...]
    logarithmic: bool = False

    @property
    def limits(self) -> tuple[float, float]:
        """From end to end."""
        return float(self.lower.min()), float(self.upper.max())

    def ticks(self, length: int, *, along: bool = True) -> list[tuple[float, str]]:
        """Values with labels that do not run into each other on an axis of so many pixels."""
        low, high = self.limits
        scale = np.log if self.logarithmic else np.asarray
        place = (scale(self.at) - scale(low)) / (scale(high) - scale(low)) * length
        kept: list[int] = []
        end = -np.inf
        for k in np.argsort(place, kind="stable"):
            need = 7.0 * len(self.texts[k]) if along else 14.0
            if place[k] - need / 2 > end + 6:
                kept.append(int(k))
                end = place[k] + need / 2
        return [(float(self.at[k]), self.texts[k]) for k in kept]


def axis_of(coord: xr.DataArray) -> Axis:
    """The axis of a parameter's values, sorted or not, numbers, times or categories."""
    values = coord.values
    name = str(coord.name)
    label = with_units(name, coord.attrs)
    texts = tuple(value_text(value) for value in values)
    kind = values.dtype.kind
    if kind in "mM":
        numbers = values.astype(f"{kind}8[ns]").astype(np.int64) / 1e9
    elif kind in "iuf":
        numbers = values.astype(np.float64)
    else:
        numbers = np.arange(len(values), dtype=np.float64)
        return Axis(name, label, numbers, numbers - 0.5, numbers + 0.5, texts)
    finite = numbers[np.isfinite(numbers)]
    if len(finite) < len(numbers) or len(np.unique(finite)) < len(numbers):
        numbers = np.arange(len(values), dtype=np.float64)
    if kind in "iuf" and numbers.min() == 0 and _even_in_logarithm(np.sort(numbers)[1:]):
        rest = np.sort(numbers)[1:]
        ratio = float(np.median(rest[1:] / rest[:-1]))
        numbers = np.where(numbers == 0, rest[0] / ratio, numbers)
        label += " (0 set apart)"
    logarithmic = kind in "iuf" and _even_in_logarithm(numbers)
    lower, upper = _ends(np.log(numbers) if logarithmic else numbers)
    if logarithmic:
        lower, upper = np.exp(lower), np.exp(upper)
    return Axis(name, label, numbers, lower, upper, texts, logarithmic)


def _even_in_logarithm(numbers: NDArray[np.float64]) -> bool:
    ordered = np.sort(numbers)
    if len(ordered) < 3 or ordered[0] <= 0 or ordered[-1] / ordered[0] < LOG_RATIO:
        return False
    steps, ratios = np.diff(ordered), np.diff(np.log(ordered))
    return bool(ratios.max() / ratios.min() < steps.max() / steps.min())


def _ends(at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of cells whose neighbours meet half-way."""
    order = np.argsort(at)
    ordered = at[order]
    if len(ordered) == 1:
        half = abs(ordered[0]) * 0.05 or 0.5
        return ordered - half, ordered + half
    between = (ordered[1:] + ordered[:-1]) / 2
    edges = np.concatenate(
        [[2 * ordered[0] - between[0]], between, [2 * ordered[-1] - between[-1]]]
    )
    lower, upper = np.empty_like(at), np.empty_like(at)
    lower[order], upper[order] = edges[:-1], edges[1:]
    return lower, upper

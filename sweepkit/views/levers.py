"""Requirements whose limits may move: each output coded once by the stops of its limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.requirements import Requirement
from sweepkit.verdicts import failed, margin

__all__ = ["Lever", "lever", "on_the_stops_of", "outcome_lever", "with_stop"]

Floats: TypeAlias = NDArray[np.float64]

N_STOPS = 200
"""Places of a limit, at most about; a bar chart of them fits a screen, a code of them a byte."""

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, eq=False)
class Lever:
    """One requirement and the places that its limit can take.

    Attributes
    ----------
    requirement : Requirement or None
        As declared; None for a variable that says which runs fail.
    name, what, op, units : str
        What is compared, how, and in which units.
    values : array of float, shape (runs,)
        What is compared; NaN where unknown.
    stops : array of float, shape (n,)
        Limits to choose from, rising; one alone where the limit cannot move.
    declared : int
        The stop of the declared limit.
    codes : array of uint8 or uint16, shape (runs,)
        Where a value lies among the stops.
    of_margin : bool
        Whether a compound requirement moves by its margin, whose declared limit is 0.
    """

    requirement: Requirement | None
    name: str
    what: str
    op: str
    units: str
    values: Floats
    stops: Floats
    declared: int
    codes: NDArray[np.unsignedinteger[Any]]
    of_margin: bool = False

    @property
    def movable(self) -> bool:
        """Whether there is more than one stop."""
        return len(self.stops) > 1

    @property
    def rising(self) -> bool:
        """Whether large values pass: a run passes stop j if its code is above j, else up to j."""
        return self.op in (">", ">=")

    @property
    def title(self) -> str:
        """How it is called where space is short: its own name, else what it compares."""
        named = self.requirement is not None and self.name != self.requirement.text
        return self.name if named else self.what

    def holds(self, stop: int) -> NDArray[np.bool_]:
        """Whether each run satisfies the requirement with its limit at a stop."""
        return self.codes > stop if self.rising else self.codes <= stop

    def stop(self, limit: float) -> int:
        """The stop nearest to a limit."""
        return int(np.argmin(np.abs(self.stops - limit)))

    def moved(self, stop: int) -> Requirement | None:
        """The requirement with its limit at a stop; None where its text cannot say that."""
        if self.requirement is None or stop == self.declared:
            return self.requirement
        return None if self.of_margin else self.requirement.with_limit(float(self.stops[stop]))

    def code(self, stop: int) -> str:
        """An expression over ``ds`` for the runs known to pass, or to fail, at a stop: 0 or 1."""
        if self.requirement is None:
            return f"ds[{self.name!r}]"
        moved = self.moved(stop)
        if moved is not None:
            return f"sk.failed(ds, [{moved.text!r}])"
        limit = float(self.stops[stop])
        away = f"sk.margin(ds, [{self.requirement.text!r}]).isel(requirement=0, drop=True)"
        return f"({away} < {limit!r}).where(sk.failed(ds, [{self.requirement.text!r}]).notnull())"


def lever(ds: xr.Dataset, requirement: Requirement, dims: tuple[str, ...]) -> Lever:
    """Code what a requirement compares by the stops of its limit.

    A comparison with a number moves that number; a compound requirement moves the limit of its
    margin, away from 0; one without a margin does not move.
    """
    if requirement.limit is not None and requirement.op in FLIPPED:
        at_zero = requirement.with_limit(0.0)
        if at_zero is not None:
            away = _flat(margin(ds, [at_zero]).isel(requirement=0, drop=True), dims)
            values = away if requirement.op in (">", ">=") else -away
            values = values + 0.0  # no negative zero
            return _coded(
                Lever(
                    requirement,
                    requirement.name,
                    str(requirement.output),
                    str(requirement.op),
                    _units(ds, requirement),
                    values,
                    _stops(values, requirement.limit),
                    0,
                    np.empty(0, np.uint8),
                ),
                requirement.limit,
            )
    known = _flat(failed(ds, [requirement]), dims)
    away = _flat(margin(ds, [requirement]).isel(requirement=0, drop=True), dims)
    if not np.isfinite(away).any():
        return _fixed(requirement, requirement.name, known)
    # On the limit itself the comparison decides, which the sign of a zero margin cannot say.
    away = np.where((known == 1) & (away >= 0), -np.finfo(float).tiny, away)
    away = np.where((known == 0) & ~(away >= 0), np.inf, away)
    made = Lever(
        requirement,
        requirement.name,
        f"margin of {requirement.text}",
        ">=",
        "",
        away,
        _stops(away, 0.0),
        0,
        np.empty(0, np.uint8),
        of_margin=True,
    )
    return _coded(made, 0.0)


def outcome_lever(name: str, fails: Floats) -> Lever:
    """A variable that says which runs fail, as a lever that does not move."""
    return _fixed(None, name, fails)


def with_stop(made: Lever, limit: float) -> Lever:
    """The same lever with one more place for its limit.

    Raises
    ------
    ValueError
        If the limit cannot move, or is not finite.
    """
    if not made.movable:
        raise ValueError(f"requirement {made.name!r} has no limit that moves")
    if not math.isfinite(limit):
        raise ValueError(f"the limit of {made.name!r} is {limit}; it is a finite number")
    stops = np.unique(np.append(made.stops, limit))
    return _coded(replace(made, stops=stops), float(made.stops[made.declared]))


def on_the_stops_of(made: Lever, old: Lever) -> Lever:
    """The same lever with another's stops where these span it, so that its scale does not move."""
    same = made.requirement == old.requirement and made.movable and old.movable
    if not same or old.stops[0] > made.stops[0] or old.stops[-1] < made.stops[-1]:
        return made
    limit = float(made.stops[made.declared])
    return _coded(replace(made, stops=np.unique(np.append(old.stops, limit))), limit)


def _fixed(requirement: Requirement | None, name: str, known: Floats) -> Lever:
    codes = (known == 0).astype(np.uint8)
    return Lever(
        requirement, name, name, ">", "", np.where(known == 0, 1.0, 0.0), np.zeros(1), 0, codes
    )


def _coded(made: Lever, limit: float) -> Lever:
    """Codes such that comparing them with a stop is comparing the value with its limit."""
    side: Any = "right" if made.op in (">=", "<") else "left"
    codes = np.searchsorted(made.stops, made.values, side=side)
    codes[np.isnan(made.values)] = 0 if made.rising else len(made.stops)
    dtype = np.uint8 if len(made.stops) < 255 else np.uint16
    return replace(made, codes=codes.astype(dtype), declared=made.stop(limit))


def _stops(values: Floats, limit: float) -> Floats:
    """Evenly spaced round numbers over the bulk of the values, and the limit itself."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.array([limit])
    some = finite[:: max(1, len(finite) // 200_000)]
    low, high = np.quantile(some, [0.005, 0.995])
    low, high = min(float(low), limit), max(float(high), limit)
    if low == high:
        width = abs(low) / 2 or 1.0
        low, high = low - width, high + width
    step = _round_step((high - low) / N_STOPS)
    if (some == np.round(some)).all() and limit == round(limit):
        step = max(1.0, float(np.ceil(step)))
    first, last = math.floor(low / step), math.ceil(high / step)
    digits = max(0, -math.floor(math.log10(step))) + 1
    stops = np.round(np.arange(first, last + 1) * step, digits)
    return np.unique(np.append(stops[np.abs(stops - limit) > step / 4], limit))


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= step * 0.999)


def _units(ds: xr.Dataset, requirement: Requirement) -> str:
    """Units of the one output that is compared, as far as its text keeps them."""
    names = [name for name in requirement.expression.names if name in ds.variables]
    if len(names) != 1 or "*" in str(requirement.output) or "/" in str(requirement.output):
        return ""
    return str(ds[names[0]].attrs.get("units", ""))


def _flat(array: xr.DataArray, dims: tuple[str, ...]) -> Floats:
    values: Floats = np.asarray(array.transpose(*dims).values, dtype=np.float64).reshape(-1)
    return values

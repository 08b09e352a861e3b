"""What is said of the cost of a run before it is run: a number, or a function of parameters."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweepkit.grid import Grid

__all__ = ["LEAST_SECONDS", "Declared", "checked_cost", "declared_seconds"]

Declared: TypeAlias = float | Callable[..., Any]
Array: TypeAlias = NDArray[np.float64]

LEAST_SECONDS = 1e-7
"""A cost below it counts as this."""
MOST_SECONDS = 1e10
"""Three hundred years: more is a slip of the pen, and its sums would not be finite."""
TRIED = 64
"""Runs, spread over the grid, for which a function is tried when it is declared."""


def checked_cost(cost: object, grid: Grid) -> Declared | None:
    """A declared cost, once it is known to fit the grid.

    Raises
    ------
    TypeError, ValueError
        If it is neither a number above 0 nor a function of parameters that gives one.
    """
    if cost is None:
        return None
    if callable(cost):
        few = np.unique(np.linspace(0, grid.size - 1, min(grid.size, TRIED)).astype(np.int64))
        declared_seconds(cost, grid, few[grid.valid(grid.index(few))] if grid.masks else few)
        return cost
    number = isinstance(cost, int | float | np.integer | np.floating) and not isinstance(cost, bool)
    if not number or not 0 < cost <= MOST_SECONDS:  # type: ignore[operator]
        raise ValueError(
            f"cost is {cost!r}; give the seconds that a run takes, above 0 and at most "
            f"{MOST_SECONDS:g}, or a function of the parameters that returns them"
        )
    return float(cost)  # type: ignore[arg-type]


def declared_seconds(cost: Declared, grid: Grid, runs: NDArray[np.int64]) -> Array:
    """What is declared of the cost of some runs, in seconds, shape (n,).

    Raises
    ------
    TypeError, ValueError
        If the function raises or gives no cost: says for which run.
    """
    if not callable(cost):
        return np.full(len(runs), float(cost))
    names = _arguments(cost, grid)
    seconds = _together(cost, grid, names, runs) if len(runs) > 8 else None
    if seconds is None:
        seconds = _one_by_one(cost, grid, names, runs)
    bad = np.flatnonzero(~((seconds >= 0) & (seconds <= MOST_SECONDS)))
    if len(bad):
        where = _point(grid, names, runs[bad[0]])
        raise ValueError(
            f"cost gave {seconds[bad[0]]} s for the run at {where}; a cost is a number of "
            f"seconds from 0 to {MOST_SECONDS:g}"
        )
    return np.maximum(seconds, LEAST_SECONDS)


def _point(grid: Grid, names: Sequence[str], run: np.int64) -> str:
    """The parameters that a cost is told from, of one run."""
    at = grid.columns(grid.index(np.array([run])), names or grid.scalars)
    return ", ".join(f"{name}={values[0]}" for name, values in at.items())


def _arguments(cost: Callable[..., Any], grid: Grid) -> tuple[str, ...]:
    known = (*grid.names, *(name for name, _ in grid.derived))
    try:
        arguments = inspect.signature(cost).parameters.values()
    except (TypeError, ValueError) as fault:
        raise TypeError(
            f"cost {cost!r} does not tell its arguments; give a function of parameters by name"
        ) from fault
    if any(one.kind is one.VAR_KEYWORD for one in arguments):
        return known
    names = [one.name for one in arguments if one.name in known]
    for one in arguments:
        if (
            one.name not in known
            and one.default is one.empty
            and one.kind is not one.VAR_POSITIONAL
        ):
            raise TypeError(
                f"cost needs {one.name!r}, which is no parameter of the grid "
                f"({', '.join(known) or 'none'})"
            )
    return tuple(names)


def _one_by_one(
    cost: Callable[..., Any], grid: Grid, names: Sequence[str], runs: NDArray[np.int64]
) -> Array:
    index = grid.index(runs)
    derived = [name for name in names if name not in grid.names]
    columns: dict[str, Any] = {
        name: list(values) for name, values in grid.columns(index, derived).items()
    }
    columns |= {n: list(grid[n].handed(index[grid[n].dim])) for n in names if n in grid.names}
    given = [{name: columns[name][row] for name in names} for row in range(len(runs))]
    made = np.zeros(len(runs))
    for row, one in enumerate(given):
        try:
            said = cost(**one)
        except Exception as fault:  # around a function of the user's: it is told for which run
            where = _point(grid, names, runs[row])
            raise ValueError(
                f"cost raised {type(fault).__name__}: {fault}, for the run at {where}; give a "
                "function that returns seconds for each run of the grid"
            ) from fault
        try:
            made[row] = _number(said)
        except (TypeError, ValueError, OverflowError) as fault:
            where = _point(grid, names, runs[row])
            raise TypeError(
                f"cost gave {reprlib.repr(said)} for the run at {where}; a cost is a number of "
                "seconds"
            ) from fault
    return made


def _number(said: Any) -> float:
    """Seconds that a function gave: text that reads as a number is none."""
    if isinstance(said, str | bytes | bool | np.bool_):
        raise TypeError
    return float(said)


def _together(
    cost: Callable[..., Any], grid: Grid, names: Sequence[str], runs: NDArray[np.int64]
) -> Array | None:
    """What a function gives for arrays, if for some it gives what it gives for their entries."""
    few = runs[np.linspace(0, len(runs) - 1, 8).astype(np.intp)]
    single = _one_by_one(cost, grid, names, few)
    try:
        with np.errstate(all="ignore"):  # what comes of it is looked at
            some = np.asarray(cost(**grid.columns(grid.index(few), names)), dtype=np.float64)
            if some.shape != single.shape or not np.allclose(some, single):
                return None
            made = np.asarray(cost(**grid.columns(grid.index(runs), names)), dtype=np.float64)
    except Exception:  # around a function of the user's: it branches on a value, or looks one up
        return None
    return made if made.shape == runs.shape else None

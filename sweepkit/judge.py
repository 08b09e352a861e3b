"""Results judged as they come: statuses counted, requirements applied, the failure policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.fit import Piece, Rows, rows_of
from sweepkit.format1 import Layout
from sweepkit.grid import Grid
from sweepkit.parcels import Parcel
from sweepkit.protocols import Batch
from sweepkit.status import NAMES, UNSUCCESSFUL, Status

if TYPE_CHECKING:
    from sweepkit.requirements import Requirement

__all__ = [
    "Opened",
    "RunError",
    "Tally",
    "TooManyErrorsError",
    "error_kind",
    "failing",
    "past_errors",
    "told_too_many",
    "too_many",
]

LEAST_SHARE = 20
"""Runs after which a share of errors begins to count."""


class RunError(RuntimeError):
    """A run raised, and the sweep was asked to stop at the first; what is done is kept."""


class TooManyErrorsError(RuntimeError):
    """More runs ended in errors than were allowed; what is done is kept."""


@dataclass(frozen=True)
class Opened:
    """Values that workers have written themselves, read back where they are judged.

    Attributes
    ----------
    by_name : mapping of str to (rows, array of Parcel)
    unpacked : callable
        Gives the value in a parcel.
    """

    by_name: Mapping[str, Piece]
    unpacked: Callable[[Parcel], NDArray[Any]]

    def row(self, name: str, row: NDArray[np.intp]) -> NDArray[Any] | None:
        """The value of one row, with a dim of size 1 before its own; None if it is not here."""
        rows, parcels = self.by_name.get(name, (row[:0], ()))
        at = np.flatnonzero(rows == row[0])
        return self.unpacked(parcels[int(at[0])])[None] if len(at) else None


@dataclass
class Tally:
    """Counts of a session.

    Attributes
    ----------
    counts : Counter of Status
        Runs by what became of them.
    errors : Counter of str
        Runs that did not succeed, by kind: the exception's type, or the status.
    notes : Counter of str
        What runs did to the process around them.
    failed : int
        Runs that are done and do not satisfy a requirement.
    busy_seconds, wasted_seconds : float
        Time of all runs together, and of those that gave no result that is kept.
    repeated : int
        Runs whose earlier outcome was thrown away to try them again.
    dropped : int
        Runs that were not begun because they might have overrun a limit.
    """

    counts: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    busy_seconds: float = 0.0
    wasted_seconds: float = 0.0
    repeated: int = 0
    dropped: int = 0

    def add(self, status: NDArray[np.int8], sign: int = 1) -> None:
        """Count runs, or with -1 take them back."""
        for one, count in zip(*np.unique(status, return_counts=True), strict=True):
            self.counts[int(one)] += sign * int(count)

    def add_errors(self, status: NDArray[np.int8], errors: Mapping[int, str]) -> dict[str, int]:
        """Count errors of a batch by kind; returns the row of each kind that is new."""
        new: dict[str, int] = {}
        for row, text in errors.items():
            kind = error_kind(Status(status[row]), text)
            if kind not in self.errors:
                new[kind] = row
            self.errors[kind] += 1
        return new

    @property
    def settled(self) -> int:
        """Runs that were run and came to an end."""
        return sum(n for one, n in self.counts.items() if one != Status.SKIPPED)

    @property
    def by_name(self) -> dict[str, int]:
        """Runs by status, in words."""
        return {NAMES[one]: count for one, count in sorted(self.counts.items()) if count}


def error_kind(became: Status, text: str) -> str:
    """What an error is counted as: the exception's type, or the status."""
    return text.partition(":")[0] if became == Status.ERROR else became.word


def too_many(
    tally: Tally, limit: int | float | None, total: int, before: Mapping[int, int]
) -> TooManyErrorsError | None:
    """The error to end with if more runs did not succeed than a count or a share allows.

    Judged are the runs of the session, and those with what the store has kept of earlier ones: a
    sweep that was stopped does not go well by being run again, and one that grows is stopped as
    early as a new one.

    Parameters
    ----------
    tally : Tally
    limit : int, float or None
    total : int
        Runs that were pending when the session began.
    before : mapping of int to int
        Runs of earlier sessions that stay as they are, by status.
    """
    if limit is None:
        return None
    kept, count = sum(before.values()), sum(tally.errors.values())
    over = _over(count, tally.settled, limit, total)
    earlier = sum(_unsuccessful(before).values())
    if earlier:
        count += earlier
        over = over or _over(count, tally.settled + kept, limit, total + kept)
    return told_too_many(tally, limit, before) if over else None


def _over(count: int, settled: int, limit: int | float, total: int) -> bool:
    if isinstance(limit, float):
        return settled >= min(LEAST_SHARE, total) and count > limit * settled
    return count > limit


def told_too_many(
    tally: Tally, limit: int | float, before: Mapping[int, int]
) -> TooManyErrorsError:
    """The error with the counts as they are: runs in flight may have come in since it was due."""
    kept, count = _unsuccessful(before), sum(tally.errors.values())
    allows = f"more than max_errors={limit!r} allows"
    top = ", ".join(f"{kind} ({n})" for kind, n in tally.errors.most_common(3))
    if not kept:
        return TooManyErrorsError(
            f"{count} of {tally.settled} runs of this session did not succeed, {allows}: {top}; "
            "what is done is kept: mend the cause and run it again with "
            f"rerun={_listed(_unsuccessful(tally.counts))}, or allow more"
        )
    earlier = sum(kept.values())
    settled = tally.settled + sum(before.values())
    this = f", {count} of them of this session: {top}" if count else ""
    return TooManyErrorsError(
        f"{count + earlier} of {settled} runs in the store did not succeed, {allows}{this}; "
        f"{_way_on(kept)}, or allow more"
    )


def past_errors(before: Mapping[int, int]) -> RunError | None:
    """The error to end with where no run may err, and the store has kept some that did."""
    kept = _unsuccessful(before)
    if not kept:
        return None
    count = sum(kept.values())
    return RunError(
        f"{count} run{'' if count == 1 else 's'} in the store did not succeed, and "
        f'on_error="raise" goes on past none; {_way_on(kept)}, or go on with on_error="collect"'
    )


def _way_on(kept: Mapping[str, int]) -> str:
    """How runs of earlier sessions that did not succeed are tried again."""
    counts = ", ".join(f"{n} {word}" for word, n in kept.items())
    return f"run those of earlier sessions ({counts}) again with rerun={_listed(kept)}"


def _listed(statuses: Iterable[str]) -> str:
    """Words of statuses as one types them: one, or a list."""
    quoted = [f'"{word}"' for word in statuses]
    return quoted[0] if len(quoted) == 1 else f"[{', '.join(quoted)}]"


def _unsuccessful(before: Mapping[int, int]) -> dict[str, int]:
    """How many runs of earlier sessions did not succeed, by the word of their status."""
    return {one.word: before[one] for one in UNSUCCESSFUL if before.get(one)}


def failing(
    requirements: Sequence[Requirement],
    grid: Grid,
    layout: Layout,
    batch: Batch,
    status: NDArray[np.int8],
    values: Mapping[str, Rows],
    parcels: Opened,
) -> int:
    """How many runs of a batch are done and do not satisfy a requirement that is text."""
    wanted = [one for one in requirements if not one.needs_code]
    done = np.flatnonzero(status == Status.DONE)
    if not wanted or not len(done):
        return 0
    names = set().union(*(one.expression.names for one in wanted))
    one_by_one = not names.isdisjoint(parcels.by_name)
    return sum(
        _failing(wanted, names, grid, layout, batch, rows, len(status), values, parcels)
        for rows in (np.split(done, len(done)) if one_by_one else [done])
    )


def _failing(
    wanted: Sequence[Requirement],
    names: Set[str],
    grid: Grid,
    layout: Layout,
    batch: Batch,
    rows: NDArray[np.intp],
    count: int,
    values: Mapping[str, Rows],
    parcels: Opened,
) -> int:
    import xarray as xr

    from sweepkit.requirements import fails

    handed: dict[str, xr.Variable] = {}
    lengths: dict[str, tuple[str, xr.Variable]] = {}
    for name in names:
        if name in grid:
            index = grid.index(batch.runs[:count][rows])
            handed[name] = xr.Variable(("run",), grid.columns(index, (name,))[name])
            continue
        variable = layout.variables[name]
        picked = parcels.row(name, rows)
        if picked is None:
            picked = rows_of(values[name], rows, count)
        if variable.dtype.endswith("[ns]"):
            picked = picked.astype(variable.dtype)
        handed[name] = xr.Variable(("run", *variable.dims), picked)
        if variable.pad is not None:
            length = rows_of(values[f"{name}_length"], rows, count)
            lengths[name] = (variable.pad, xr.Variable(("run",), length))
    return int(fails(wanted, handed, run_dims=("run",), lengths=lengths).sum())

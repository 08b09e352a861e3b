"""What fails jointly: pairs of parameters, and the smallest failing combinations of values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations as choose
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.answerable import passed_and_failed
from sweepkit.analysis.coding import Coded, Floats
from sweepkit.analysis.counts import count
from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.outcomes import FAILED, Errors, Failed, UnanswerableError
from sweepkit.analysis.reasons import reasons, whole_number
from sweepkit.analysis.table import Table, table, varied
from sweepkit.analysis.unrefined import left_out, unrefined

__all__ = ["combinations", "pairs"]

MAX_CELLS = 200_000


def pairs(
    ds: xr.Dataset | Table,
    *,
    bins: int = 8,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """Failure rates by every pair of parameters, the pair that matters most jointly first.

    Parameters
    ----------
    ds : Dataset or Table
    bins : int
        Quantile bins of a parameter whose values hardly repeat.
    requirements, failed, level, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        One row per pair and values: ``rank`` of the pair, ``parameter``, ``other``, ``joint``
        (share of the variance of failure that the pair explains beyond its parts: S2 on a
        complete grid; elsewhere less what noise alone would explain), ``value``, ``other_value``,
        and the columns of `failure_rate`. Cells without runs are left out.

    Raises
    ------
    UnanswerableError
        If there are fewer than two parameters with several values, or all outcomes are the same.

    Examples
    --------
    >>> failed = ("gain", "mass"), [[False, False], [False, True]]
    >>> ds = xr.Dataset({"failed": failed}, coords={"gain": [1, 2], "mass": [5.0, 6.0]})
    >>> pairs(ds)["joint"].round(3).unique().tolist()
    [0.333]
    """
    whole_number("bins", bins, 2)
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    t, left = unrefined(t)
    passed_and_failed(t, errors)
    parameters = [p.coarser(bins) for p in _several(t, 2)]
    whole = {p.name: p for p in t.parameters}
    frames = []
    for a, b in choose(parameters, 2):
        if a.n * b.n > MAX_CELLS:
            raise UnanswerableError(
                f"{a.name!r} x {b.name!r} has {a.n} x {b.n} cells; at most {MAX_CELLS} are counted"
            )
        cell = a.codes.astype(np.int32) * np.int32(b.n) + b.codes
        fixed = [p.name for p in (a, b) if whole[p.name] in t.axes]
        counts = count(
            t,
            cell,
            a.n * b.n,
            fixed=fixed,
            level=level,
            errors=errors,
            with_boundary=False,
        )
        joint = _joint(counts.n_failed, counts.n_run, a, b, exact=t.complete)
        at = np.flatnonzero(counts.n_run + counts.n_unknown)
        i, j = np.divmod(at, b.n)
        frames.append(
            pd.DataFrame(
                {
                    "parameter": a.name,
                    "other": b.name,
                    "joint": joint,
                    "value": _labels(a)[i],
                    "other_value": _labels(b)[j],
                    "n_run": counts.n_run[at],
                    "n_failed": counts.n_failed[at],
                    "n_unknown": counts.n_unknown[at],
                    "rate": counts.rate[at],
                    "low": counts.low[at],
                    "high": counts.high[at],
                    "basis": counts.words[at],
                }
            )
        )
    frames.sort(key=lambda frame: -float(frame["joint"].iloc[0]))
    for rank, frame in enumerate(frames, 1):
        frame.insert(0, "rank", rank)
    result = pd.concat(frames, ignore_index=True)
    result.attrs["basis"] = left_out(", ".join(result["basis"].unique()), left)
    result.attrs["note"] = reasons(result, {"rate": "where nothing has passed or failed"})
    return result


def _several(t: Table, least: int) -> list[Coded]:
    several = [p for p in varied(t) if p.n > 1]
    if len(several) < least:
        raise UnanswerableError(
            f"{len(several)} parameters have more than one value; {least} are needed to combine"
        )
    return several


def _labels(p: Coded) -> NDArray[Any]:
    labels = np.empty(p.n, dtype=object)
    labels[:] = [p.label(k) for k in range(p.n)] if p.binned else list(p.values)
    return labels


def _joint(
    n_failed: NDArray[np.int64], n_run: NDArray[np.int64], a: Coded, b: Coded, *, exact: bool
) -> float:
    """Share of the variance that a pair of parameters explains beyond its parts."""
    shape = (a.n, b.n)
    weight = n_run.reshape(shape).astype(np.float64)
    if exact and (a.weights is not None or b.weights is not None):
        one = [np.full(p.n, 1 / p.n) if p.weights is None else p.weights for p in (a, b)]
        weight = np.outer(one[0], one[1])
    total = weight.sum()
    if total == 0:
        return float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        cell = np.nan_to_num(n_failed.reshape(shape) / n_run.reshape(shape))
        mean = float((weight * cell).sum() / total)
        first = np.nan_to_num((weight * cell).sum(axis=1) / weight.sum(axis=1))
        second = np.nan_to_num((weight * cell).sum(axis=0) / weight.sum(axis=0))
    beyond = cell - first[:, None] - second[None, :] + mean
    explained = float((weight * beyond**2).sum() / total)
    variance = mean * (1 - mean)
    if variance == 0:
        return 0.0
    if not exact:
        within = float((weight * cell * (1 - cell)).sum() / total)
        explained -= within * (a.n - 1) * (b.n - 1) / max(float(n_run.sum()), 1.0)
    return max(explained / variance, 0.0)


@dataclass(frozen=True, eq=False)
class _Cube:
    """Runs and failures by a set of parameters, with the bounds of their rate."""

    n: Floats
    f: Floats
    low: Floats
    high: Floats

    @property
    def rate(self) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            rate: Floats = self.f / self.n
        return rate


def combinations(
    ds: xr.Dataset | Table,
    order: int = 3,
    *,
    bins: int = 4,
    top: int = 50,
    requirements: Any = None,
    failed: Failed = None,
    level: float = 0.95,
    errors: Errors = "apart",
) -> pd.DataFrame:
    """The smallest combinations of values that fail more than any part of them does.

    A combination is kept if its rate is above that of each combination with one value fewer, by
    intervals that hold for all combinations at once (Wilson at a Bonferroni level). Replicates
    of a point count once.

    Parameters
    ----------
    ds : Dataset or Table
    order : int
        Most values combined, from 1 to 4.
    bins : int
        Quantile bins of a parameter whose values hardly repeat.
    top : int
        Most combinations returned.
    requirements, failed, level, errors
        As in `failure_rate`.

    Returns
    -------
    DataFrame
        By falling ``excess_low``: ``order``, ``parameters`` and ``values`` (tuples),
        ``combination`` (as text), ``n_run``, ``n_failed``, ``rate``, ``low``, ``high``,
        ``best_part`` (as text), ``best_part_rate``, ``excess`` (rate over that of the best
        part), ``excess_low`` (the least it could be), ``part_of`` (a combination above
        it without whose runs it fails no more than its parts; empty where it stands alone).

    Raises
    ------
    UnanswerableError
        If all outcomes are the same or no parameter has several values.

    References
    ----------
    The idea of minimal failure-causing schemas: C. Nie and H. Leung, ACM Trans. Softw. Eng.
    Methodol. 20 (2011), 15; here with rates in place of certainty.

    Examples
    --------
    >>> failed = np.zeros((4, 4, 20), bool)
    >>> failed[1, 2] = True
    >>> ds = xr.Dataset({"failed": (("a", "b", "c"), failed)},
    ...                 coords={"a": range(4), "b": range(4), "c": range(20)})
    >>> combinations(ds)["combination"].tolist()
    ['a = 1 and b = 2']
    """
    if whole_number("order", order) > 4:
        raise ValueError(f"order={order!r} must lie between 1 and 4")
    whole_number("bins", bins, 2)
    whole_number("top", top)
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    t, left = unrefined(t)
    outcome = passed_and_failed(t, errors)
    parameters = [p.coarser(bins) for p in _several(t, 1)]
    keep = np.flatnonzero(outcome <= FAILED)
    fails = (outcome[keep] == FAILED).astype(np.float64)
    share = _share_of_point(t, keep)
    sets = [
        s
        for k in range(1, min(order, len(parameters)) + 1)
        for s in choose(range(len(parameters)), k)
        if np.prod([float(parameters[i].n) for i in s]) <= MAX_CELLS
    ]
    n_cells = sum(int(np.prod([parameters[i].n for i in s])) for s in sets)
    strict = 1 - (1 - level) / n_cells
    cubes: dict[tuple[int, ...], _Cube] = {(): _cube(t, parameters, (), keep, fails, share, strict)}
    codes = [p.codes[keep] if len(keep) < t.n else p.codes for p in parameters]
    coded = {i: c.astype(np.int32) for i, c in enumerate(codes)}
    for s in sets:
        cubes[s] = _cube(t, parameters, s, keep, fails, share, strict, coded)
    found = [row for s in sets for row in _minimal(cubes, s)]
    found.sort(key=lambda row: (-row[0], len(row[1])))
    found = found[:top]
    part_of = _accounted(parameters, found, codes, fails, share, strict)
    rows = [
        (*_row(cubes, parameters, row, level), said)
        for row, said in zip(found, part_of, strict=True)
    ]
    columns = [
        "order", "parameters", "values", "combination", "n_run", "n_failed", "rate", "low",
        "high", "best_part", "best_part_rate", "excess", "excess_low", "part_of",
    ]  # fmt: skip
    result = pd.DataFrame(rows, columns=columns)
    result.attrs["basis"] = left_out(
        f"{n_cells} combinations of up to {order} values, intervals at {100 * level:g} % for all "
        "of them together",
        left,
    )
    if not rows:
        result.attrs["note"] = "no combination fails surely more than its parts"
    return result


def _share_of_point(t: Table, keep: NDArray[np.intp]) -> Floats | None:
    """1 / (replicates of its point) for each run, so that a point counts once."""
    if t.points is None:
        return None
    of = t.points.of[keep]
    number = np.bincount(of)
    share: Floats = 1.0 / number[of]
    return share


def _cube(
    t: Table,
    parameters: list[Coded],
    s: tuple[int, ...],
    keep: NDArray[np.intp],
    fails: Floats,
    share: Floats | None,
    strict: float,
    coded: dict[int, NDArray[np.int32]] | None = None,
) -> _Cube:
    shape = tuple(parameters[i].n for i in s)
    size = int(np.prod(shape, dtype=np.int64))
    code = np.zeros(len(keep), dtype=np.int32)
    for i in s:
        code *= np.int32(parameters[i].n)
        code += coded[i] if coded else 0
    n = np.bincount(code, weights=share, minlength=size).astype(np.float64)
    failing = fails > 0
    w = None if share is None else share[failing]
    f = np.bincount(code[failing], weights=w, minlength=size).astype(np.float64)
    interval = failure_interval(np.minimum(f, n), n, level=strict)
    low, high = np.nan_to_num(interval[:, 0]), np.nan_to_num(interval[:, 1], nan=1.0)
    return _Cube(n.reshape(shape), f.reshape(shape), low.reshape(shape), high.reshape(shape))


def _minimal(
    cubes: dict[tuple[int, ...], _Cube], s: tuple[int, ...]
) -> list[tuple[float, tuple[int, ...], tuple[int, ...]]]:
    """Cells of a set of parameters that surely fail more than each of their parts."""
    cube = cubes[s]
    best = np.zeros(cube.n.shape)
    for drop in range(len(s)):
        part = s[:drop] + s[drop + 1 :]
        if part in cubes:
            best = np.maximum(best, np.expand_dims(cubes[part].high, drop))
    excess = np.where(cube.n > 0, cube.low - best, -1.0)
    at = np.argwhere(excess > 0)
    return [(float(excess[tuple(i)]), s, tuple(int(k) for k in i)) for i in at]


def _row(
    cubes: dict[tuple[int, ...], _Cube],
    parameters: list[Coded],
    row: tuple[float, tuple[int, ...], tuple[int, ...]],
    level: float,
) -> tuple[Any, ...]:
    excess_low, s, at = row
    cube = cubes[s]
    n, f = float(cube.n[at]), float(cube.f[at])
    parts = [
        (s[:k] + s[k + 1 :], at[:k] + at[k + 1 :])
        for k in range(len(s))
        if s[:k] + s[k + 1 :] in cubes
    ]
    best_s, best_at = max(parts, key=lambda part: float(cubes[part[0]].rate[part[1]]))
    best = float(cubes[best_s].rate[best_at])
    low, high = failure_interval(min(f, n), n, level=level)
    return (
        len(s),
        tuple(parameters[i].name for i in s),
        tuple(_labels(parameters[i])[k] for i, k in zip(s, at, strict=True)),
        _text(parameters, s, at),
        n,
        f,
        f / n,
        float(low),
        float(high),
        _text(parameters, best_s, best_at) or "any",
        best,
        f / n - best,
        excess_low,
    )


def _accounted(
    parameters: list[Coded],
    found: list[tuple[float, tuple[int, ...], tuple[int, ...]]],
    codes: list[NDArray[Any]],
    fails: Floats,
    share: Floats | None,
    strict: float,
) -> list[str]:
    """For each combination, the better one without whose runs it fails no more than its parts."""
    failing = fails > 0
    covered = np.zeros(len(fails), dtype=bool)
    chosen: list[tuple[str, NDArray[np.bool_]]] = []
    said = []

    def outside(s: tuple[int, ...], at: tuple[int, ...]) -> tuple[float, float, Floats]:
        inside = ~covered & _runs_of(codes, s, at)
        w = np.ones(1) if share is None else share[inside]
        n = float(inside.sum() if share is None else w.sum())
        f = float((inside & failing).sum() if share is None else w[failing[inside]].sum())
        return n, f, failure_interval(min(f, n), n, level=strict)

    for _, s, at in found:
        n, _, own = outside(s, at)
        best = 0.0
        for k in range(len(s) if chosen else 0):
            part = outside(s[:k] + s[k + 1 :], at[:k] + at[k + 1 :])[2]
            best = max(best, float(np.nan_to_num(part[1])))
        if chosen and (n == 0 or own[0] <= best):
            mine = _runs_of(codes, s, at) & failing
            said.append(max(chosen, key=lambda other: int((mine & other[1]).sum()))[0])
            continue
        said.append("")
        runs = _runs_of(codes, s, at)
        chosen.append((_text(parameters, s, at), runs))
        covered |= runs
    return said


def _runs_of(
    codes: list[NDArray[Any]], s: tuple[int, ...], at: tuple[int, ...]
) -> NDArray[np.bool_]:
    inside = np.ones(len(codes[0]), dtype=bool)
    for i, k in zip(s, at, strict=True):
        inside &= codes[i] == k
    return inside


def _text(parameters: list[Coded], s: tuple[int, ...], at: tuple[int, ...]) -> str:
    sign = ["in" if parameters[i].binned else "=" for i in s]
    return " and ".join(
        f"{parameters[i].name} {o} {parameters[i].label(k)}"
        for i, o, k in zip(s, sign, at, strict=True)
    )

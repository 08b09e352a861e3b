"""How many separate regions fail."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sweepkit.analysis.answerable import placed_runs
from sweepkit.analysis.coding import Coded, Floats, shown
from sweepkit.analysis.naming import run_coords
from sweepkit.analysis.neighbours import axis_codes
from sweepkit.analysis.outcomes import FAILED, PASSED, Errors, Failed, UnanswerableError
from sweepkit.analysis.reasons import check_share, whole_number
from sweepkit.analysis.table import Table, table, varied

__all__ = ["islands"]

EDGE = 0.01
"""Scattered runs touch an edge within this share of the runs nearest to it."""


def islands(
    ds: xr.Dataset | Table,
    *,
    connectivity: int = 1,
    neighbours: int | None = None,
    share: float = 0.5,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> xr.Dataset:
    """How many regions fail: failing runs that are connected through failing neighbours.

    On a grid, neighbours share a face: they differ by one step along one ordered parameter
    (through corners, noise alone would connect everything). Unordered and boolean values have no
    neighbours. Scattered runs are neighbours where one is among the nearest of the other, of all
    runs whether failed or not, by rank along each ordered parameter.

    Parameters
    ----------
    ds : Dataset or Table
    connectivity : int
        On a grid, along how many parameters neighbours may differ at once, of those that are
        ordered; of scattered runs 1.
    neighbours : int, optional
        Of scattered runs, how many nearest are looked at; by default 4 + 2 per ordered parameter.
    share : float
        A point with replicates fails where at least this share of the known ones does.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    Dataset
        Over the run dims: ``label``, 0 where the run's point does not fail or is unknown, then
        from 1 by falling size. Over ``island``: ``size`` (points), ``share_of_failures``,
        ``bounds`` (text: the box around it), ``touches`` (text: which ends of ordered parameters
        it reaches, so may go on beyond; empty if none), and over ``parameter`` too ``low`` and
        ``high`` (as numbers; unordered values by position). ``attrs["basis"]`` says what
        neighbours are, ``attrs["note"]`` how many runs are unknown.

    Raises
    ------
    UnanswerableError
        If no run has passed or failed, or no parameter is ordered.
    ValueError
        If `connectivity` is more than there are ordered parameters, or `neighbours` is given for
        a grid or `connectivity` for scattered runs.

    References
    ----------
    Connected components of a graph: J. Hopcroft and R. Tarjan, Commun. ACM 16 (1973), 372-378.

    Examples
    --------
    >>> failed = ("a", [True, True, False, False, True])
    >>> ds = xr.Dataset({"failed": failed}, coords={"a": [1, 2, 3, 4, 5]})
    >>> islands(ds)["label"].values.tolist(), islands(ds)["bounds"].values.tolist()
    ([1, 1, 0, 0, 2], ['a 1 to 2', 'a 5'])
    """
    whole_number("connectivity", connectivity)
    if neighbours is not None:
        whole_number("neighbours", neighbours)
    if share != 1:
        check_share("share", share)
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    outcome = t.counted(errors)
    if not (outcome <= FAILED).any():
        raise UnanswerableError(
            f"none of {t.n} runs has passed or failed, so there are no regions to tell apart"
        )
    ordered = [p for p in varied(t) if p.ordered and p.n > 1]
    if not ordered and t.n > 1:
        raise UnanswerableError("no ordered parameter has several values, so no run has neighbours")
    on_grid = t.grid and all(p.name in {a.name for a in t.axes if a} for p in ordered)
    _check_ways(connectivity, neighbours, len(ordered), on_grid)
    placed_runs(t, ordered)
    of, first, n_points = _points(t)
    fails = _failing_points(outcome, of, n_points, share)
    if on_grid:
        edges = _faces(t, fails, of, connectivity)
        basis = f"neighbours differ along at most {connectivity} ordered parameters"
    else:
        k = neighbours or 4 + 2 * len(ordered)
        edges = _nearest(t, ordered, fails, first, k)
        basis = f"graph of the {k} nearest runs"
    label = _components(edges, fails)
    label_of_run = label[of]
    unknown = int((outcome > FAILED).sum())
    return _described(t, label, first, label_of_run, basis, unknown)


def _check_ways(connectivity: int, neighbours: int | None, ordered: int, on_grid: bool) -> None:
    if on_grid and neighbours is not None:
        raise ValueError(
            f"neighbours={neighbours} is for scattered runs; these are a grid, where connectivity= "
            "says what neighbours are"
        )
    if not on_grid and connectivity != 1:
        raise ValueError(
            f"connectivity={connectivity} is for a grid; of scattered runs neighbours= says how "
            "many nearest are looked at"
        )
    if connectivity > max(ordered, 1):
        raise ValueError(
            f"connectivity={connectivity} is more than the {ordered} ordered parameters with "
            "several values"
        )


def _points(t: Table) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Point of each run and first run of each point; points are runs where nothing repeats."""
    if t.points is None:
        return np.arange(t.n), np.arange(t.n), t.n
    return t.points.of, t.points.first, len(t.points.first)


def _failing_points(
    outcome: NDArray[np.int8], of: NDArray[np.int64], n_points: int, share: float
) -> NDArray[np.bool_]:
    f = np.bincount(of[outcome == FAILED], minlength=n_points)
    n = f + np.bincount(of[outcome == PASSED], minlength=n_points)
    fails: NDArray[np.bool_] = (n > 0) & (f >= share * n) & (f > 0)
    return fails


def _faces(
    t: Table, fails: NDArray[np.bool_], of: NDArray[np.int64], connectivity: int
) -> NDArray[np.int64]:
    """Pairs of failing points that are neighbours on the grid, shape (2, pairs)."""
    cube = of.reshape(t.shape)
    axes = []
    for k, axis in enumerate(t.axes):
        if axis is None or axis.role == "replicate":
            cube = cube[(slice(None),) * k + (slice(0, 1),)]
            continue
        order = np.argsort(axis_codes(t, k), kind="stable")
        if (np.diff(order) != 1).any():
            cube = np.take(cube, order, axis=k)
        if axis.ordered and t.shape[k] > 1:
            axes.append(k)
    found = []
    for size in range(1, min(connectivity, len(axes)) + 1):
        for chosen in combinations(axes, size):
            # The first sign is fixed: the opposite offset joins the same pairs.
            for signs in product((1,), *((1, -1),) * (size - 1)):
                here: list[Any] = [slice(None)] * cube.ndim
                there: list[Any] = [slice(None)] * cube.ndim
                for k, sign in zip(chosen, signs, strict=True):
                    ends = (slice(None, -1), slice(1, None))
                    here[k], there[k] = ends if sign > 0 else ends[::-1]
                a, b = cube[tuple(here)].reshape(-1), cube[tuple(there)].reshape(-1)
                both = fails[a] & fails[b]
                found.append(np.stack([a[both], b[both]]))
    return np.concatenate(found, axis=1) if found else np.empty((2, 0), dtype=np.int64)


def _nearest(
    t: Table, ordered: list[Coded], fails: NDArray[np.bool_], first: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    """Pairs of failing points where one is among the nearest of the other."""
    from scipy.spatial import cKDTree

    used = np.flatnonzero(first >= 0)
    runs = first[used]
    if not ordered:  # one run alone
        return np.empty((2, 0), dtype=np.int64)
    axes = [_rank(t.raw(p.name)[runs]) for p in ordered]
    kinds = [p.codes[runs].astype(np.int64) for p in varied(t) if not p.ordered]
    apart = [2.0 * len(ordered) * kind for kind in kinds]
    tree = cKDTree(np.stack([*axes, *apart], axis=1))
    failing = np.flatnonzero(fails[used])
    if not len(failing):
        return np.empty((2, 0), dtype=np.int64)
    _, near = tree.query(tree.data[failing], k=min(k + 1, len(used)))
    near = near.reshape(len(failing), -1)
    a, b = np.repeat(failing, near.shape[1]), near.reshape(-1)
    both = fails[used[b]] & (a != b)
    for kind in kinds:
        both &= kind[a] == kind[b]
    return np.stack([used[a[both]], used[b[both]]])


def _rank(values: Floats) -> Floats:
    """Values as shares of the runs at or below them, ties alike."""
    _, inverse, number = np.unique(values, return_inverse=True, return_counts=True)
    upto = np.cumsum(number) - number / 2
    rank: Floats = (upto / max(len(values), 1))[inverse]
    return rank


def _components(edges: NDArray[np.int64], fails: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Label per point from 1 by falling size, then by first point; 0 where it does not fail."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    failing = np.flatnonzero(fails)
    number = np.zeros(len(fails), dtype=np.int64)
    number[failing] = np.arange(len(failing))
    a, b = number[edges]
    graph = coo_array((np.ones(len(a), dtype=bool), (a, b)), shape=(len(failing), len(failing)))
    n, of = connected_components(graph, directed=False) if len(failing) else (0, np.array([], int))
    size = np.bincount(of, minlength=n)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(-size, kind="stable")] = np.arange(1, n + 1)
    label = np.zeros(len(fails), dtype=np.int64)
    label[failing] = rank[of]
    return label


def _described(
    t: Table,
    label: NDArray[np.int64],
    first: NDArray[np.int64],
    label_of_run: NDArray[np.int64],
    basis: str,
    unknown: int,
) -> xr.Dataset:
    n = int(label.max(initial=0))
    points = np.flatnonzero(label)
    size = np.bincount(label[points], minlength=n + 1)[1:]
    parameters = varied(t)
    low, high = np.full((n, len(parameters)), np.inf), np.full((n, len(parameters)), -np.inf)
    texts: list[list[str]] = [[] for _ in range(n)]
    touches: list[list[str]] = [[] for _ in range(n)]
    for j, p in enumerate(parameters):
        values = (t.raw(p.name) if p.ordered else p.codes.astype(np.float64))[first[points]]
        np.minimum.at(low[:, j], label[points] - 1, values)
        np.maximum.at(high[:, j], label[points] - 1, values)
        ends = _ends(t, p) if p.ordered and p.n > 1 else (-np.inf, np.inf)
        kinds = _kinds(p, p.codes[first[points]], label[points], n) if not p.ordered else None
        for k in range(n):
            texts[k].append(_bounds(p, low[k, j], high[k, j], kinds[k] if kinds else ""))
            touches[k] += [f"{p.name} low"] if low[k, j] <= ends[0] else []
            touches[k] += [f"{p.name} high"] if high[k, j] >= ends[1] else []
    own = {"units": "1"}
    note = f"{unknown} runs are unknown and connect nothing" if unknown else ""
    variables: dict[str, Any] = {
        "size": ("island", size, {**own, "long_name": "failing points"}),
        "share_of_failures": ("island", size / max(int(size.sum()), 1), own),
        "bounds": ("island", _texts([", ".join(x) for x in texts])),
        "touches": ("island", _texts([", ".join(x) for x in touches])),
        "low": (("island", "parameter"), low),
        "high": (("island", "parameter"), high),
    }
    dims, coords, other = run_coords(t, {"label", "island", "parameter", *variables})
    return xr.Dataset(
        {
            "label": (dims, label_of_run.reshape(t.shape), {"long_name": "island, 0 is none"}),
            **variables,
        },
        coords={
            **coords,
            "island": np.arange(1, n + 1),
            "parameter": [p.name for p in parameters],
        },
        attrs={"basis": basis, "note": "; ".join(x for x in (note, other) if x), "n_islands": n},
    )


def _texts(texts: list[str]) -> NDArray[Any]:
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def _ends(t: Table, p: Coded) -> tuple[float, float]:
    if not p.binned and p.n <= 255:
        numbers = p.numbers
        return float(numbers[0]), float(numbers[-1])
    low, high = np.quantile(t.raw(p.name), [EDGE, 1 - EDGE])
    return float(low), float(high)


def _kinds(p: Coded, codes: NDArray[Any], label: NDArray[np.int64], n: int) -> list[str]:
    present = np.zeros((n, p.n), dtype=bool)
    present[label - 1, codes] = True
    return [", ".join(shown(p.values[k]) for k in np.flatnonzero(row)) for row in present]


def _bounds(p: Coded, low: float, high: float, kinds: str) -> str:
    if not p.ordered:
        return f"{p.name} {kinds}"
    if p.kind == "time":
        at = np.array([low, high]) * 1e9
        low_, high_ = (shown(v) for v in at.astype(np.int64).astype(p.values.dtype.kind + "8[ns]"))
    else:
        low_, high_ = shown(low), shown(high)
    return f"{p.name} {low_}" if low_ == high_ else f"{p.name} {low_} to {high_}"

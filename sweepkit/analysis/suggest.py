"""Where to run next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

from sweepkit.analysis.answerable import measured_ranges, passed_and_failed, placed_runs
from sweepkit.analysis.candidates import (
    Asked,
    Wanted,
    as_run,
    boundary_of_sample,
    candidates,
    key_of,
)
from sweepkit.analysis.coding import shown
from sweepkit.analysis.intervals import failure_interval
from sweepkit.analysis.lattice import lattice_of, own_parameters
from sweepkit.analysis.naming import freed, renamed
from sweepkit.analysis.outcomes import (
    ERRORED,
    FAILED,
    PENDING,
    Errors,
    Failed,
    UnanswerableError,
    declared,
)
from sweepkit.analysis.reasons import check_share, whole_number
from sweepkit.analysis.regions import regions
from sweepkit.analysis.splitting import MAX_SPLIT_DIMS, bisect, explored, split, undecided
from sweepkit.analysis.table import Table, table
from sweepkit.crossing import grid, paired
from sweepkit.expressions import parse
from sweepkit.grid import Grid
from sweepkit.html import box, note, section
from sweepkit.html import table as html_table
from sweepkit.parameters import values

__all__ = ["Suggestion", "suggest"]

Goal: TypeAlias = Literal["boundary", "rate", "confirm", "replicate"]

MAX_COMPARED = 200_000
MOST = 100_000
"""Points suggested at once."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Points to run next.

    Attributes
    ----------
    grid : Grid
        The points along one dim (crossed with the replicates of the runs, if any): what a
        `Sweep` of the same simulator accepts.
    points : DataFrame
        One row per point: its parameters, ``reason`` and ``score`` (larger is more wanted).
    goal : str
        What they are for.
    method : str
        How they were found, and what they rest on.
    """

    grid: Grid = field(repr=False)
    points: pd.DataFrame
    goal: str
    method: str

    def __repr__(self) -> str:
        shown_ = self.points.head(10).to_string(index=False, max_colwidth=None)
        more = f"\n... of {len(self.points)} points" if len(self.points) > 10 else ""
        return f"Suggestion for the {self.goal}: {self.method}\n{shown_}{more}"

    def _repr_html_(self) -> str:
        units = {one.name: one.units for one in self.grid.parameters}
        names = [str(name) for name in self.points.columns]
        columns = [f"{name}, {units[name]}" if units.get(name) else name for name in names]
        rows = [[shown(value) for value in row] for row in self.points.itertuples(index=False)]
        right = {k for k, name in enumerate(names) if self.points[name].dtype.kind in "iuf"}
        reasons = self.points["reason"].value_counts()
        return box(
            "sweepkit.Suggestion",
            section(
                "Points",
                html_table(columns, rows, numbers=right, limit=20),
                about=f"({len(rows)}; the most wanted first)",
                unfolded=len(rows) <= 8,
            ),
            section(
                "Reasons",
                html_table(("Reason", "Points"), list(reasons.items()), numbers={1}, limit=10),
                about=f"({len(reasons)})",
            ),
            note(self.method),
            about=f"for the {self.goal}: {self.grid._count()}",
            text=repr(self.points),
        )


def suggest(
    ds: xr.Dataset | Table,
    n: int,
    goal: Goal = "boundary",
    *,
    explore: float = 0.1,
    dim: str = "point",
    seed: int = 0,
    requirements: Any = None,
    failed: Failed = None,
    errors: Errors = "apart",
) -> Suggestion:
    """Points to run next, each with its reason.

    Parameters
    ----------
    ds : Dataset or Table
    n : int
        Points, at most, up to 100,000; fewer where no more are worth running.
    goal : {"boundary", "rate", "confirm", "replicate"}
        "boundary": where passing turns into failing. On a grid, cells whose corners disagree are
        split, the largest first, and where fewer points than that takes are left, edges between
        disagreeing corners halved (a corner that errored or is pending disagrees with nothing); of
        scattered runs with a margin of continuous parameters, up to
        1,000 of them, a Gaussian process says where its sign is least sure (straddle); otherwise
        Extra-Trees say where the outcome is least sure. "rate": where the overall failure rate is
        undecided. "confirm": in the boxes that `regions` finds and just outside their limits.
        "replicate": more replicates of the points whose failure rate is least sure.
    explore : float
        Share of the points kept for where nothing has been seen, between 0 and 1.
    dim : str
        Dim of the suggested grid.
    seed : int
        Of what is drawn.
    requirements, failed, errors
        As in `failure_rate`.

    Returns
    -------
    Suggestion

    Raises
    ------
    UnanswerableError
        If what is known does not tell where: all pass, all fail, nothing has run, no replicates,
        or a parameter's ends are farther apart than the largest number.
    ImportError
        If scikit-learn, which scattered runs need, is not installed.

    References
    ----------
    B. Bryan et al., NIPS 18 (2005), 163-170, for straddle; P. Geurts, D. Ernst and L. Wehenkel,
    Mach. Learn. 63 (2006), 3-42, for Extra-Trees.

    Examples
    --------
    >>> ds = xr.Dataset({"failed": ("a", [False, False, True])}, coords={"a": [0.0, 1.0, 2.0]})
    >>> suggest(ds, 1, explore=0).points["a"].tolist()
    [1.5]
    """
    n = whole_number("n", n)
    if n > MOST:
        raise ValueError(
            f"n={n} points; at most {MOST:,} are suggested at once, each with its reason. A space "
            "is filled with more by sk.latin_hypercube or sk.sobol"
        )
    check_share("explore", explore, ends=True)
    whole_number("seed", seed, 0)
    t = table(ds, failed=failed, requirements=requirements, errors=errors)
    ways: dict[str, Callable[[Asked], tuple[list[Wanted], str]]] = {
        "boundary": _boundary,
        "rate": _rate,
        "confirm": _confirm,
        "replicate": _replicate,
    }
    if goal not in ways:
        raise ValueError(f"goal={goal!r} is none of {', '.join(map(repr, ways))}")
    outcome = t.counted(errors)
    placed_runs(t, own_parameters(t))
    measured_ranges(t, own_parameters(t))
    asked = Asked(t, outcome, n, explore, np.random.default_rng([seed, 104729]), errors)
    points, method = ways[goal](asked)
    points = _new(t, points)
    if not points:
        raise UnanswerableError(_nothing(asked))
    return _suggestion(t, points[:n], goal, method, dim)


def _nothing(asked: Asked) -> str:
    """Why there is no point to suggest."""
    pending = int((asked.outcome == PENDING).sum())
    errored = int((asked.outcome == ERRORED).sum())
    unknown = " and ".join(
        f"{number} runs {word}"
        for number, word in ((pending, "are pending"), (errored, "errored"))
        if number
    )
    if unknown:
        elsewhere = ", or explore=1 to look elsewhere" if asked.explore < 1 else ""
        return (
            "no two known neighbours disagree with values left between them, and "
            f"{unknown}: finish or mend these{elsewhere}"
        )
    return (
        "no new point is worth running: what is undecided is as small as the parameters' values "
        "allow, or has run already"
    )


def _completed(t: Table, points: list[Wanted]) -> list[Wanted]:
    """The points with the parameters of one value only, which a run is given as well."""
    derived = set(declared(t.ds).get("derived", {}))
    roles = any("role" in array.attrs for array in t.ds.coords.values())
    fixed = {}
    for name, array in t.ds.coords.items():
        role = array.attrs.get("role")
        given = role in ("design", "scenario") if roles else array.ndim == 1
        if array.size == 1 and given and name not in derived and name not in points[0].at:
            fixed[str(name)] = array.values.reshape(-1)[0]
    return [replace(point, at={**point.at, **fixed}) for point in points] if fixed else points


def _new(t: Table, points: list[Wanted]) -> list[Wanted]:
    """The points without repeats and without those that have run or are going to."""
    names = list(points[0].at) if points else []
    if not names or t.n > MAX_COMPARED:
        there = set()
    else:
        columns = as_run(t, tuple(t[name] for name in names))
        there = set(zip(*(columns[name].tolist() for name in names), strict=True))
    new = []
    for point in points:
        key = tuple(np.asarray(v).tolist() if isinstance(v, np.generic) else v
                    for v in point.at.values())  # fmt: skip
        if key not in there:
            there.add(key)
            new.append(point)
    return _unmasked(t, _completed(t, new)) if new else new


def _unmasked(t: Table, points: list[Wanted]) -> list[Wanted]:
    """The points that the masks of the sweep do not leave out, as far as these are text."""
    told = declared(t.ds)
    masks = [parse(mask["text"]) for mask in told.get("masks", ()) if "text" in mask]
    if not masks or not points:
        return points
    at = {name: xr.Variable("run", [p.at[name] for p in points]) for name in points[0].at}
    for name, text in told.get("derived", {}).items():
        at[name] = parse(text).evaluate(at)
    kept = np.ones(len(points), dtype=bool)
    for mask in masks:
        kept &= mask.holds(at, run_dims=("run",)).values
    return [point for point, stays in zip(points, kept, strict=True) if stays]


def _suggestion(t: Table, points: list[Wanted], goal: str, method: str, dim: str) -> Suggestion:
    names = list(points[0].at)
    # A dim that is named as one of its several parameters would be the index of them.
    dim = freed([dim], [p.name for p in t.parameters])[dim]
    columns: dict[str, Any] = {}
    for name in names:
        array = t.ds.coords[name]
        data = np.array([p.at[name] for p in points], dtype=object)
        if array.dtype.kind in "biufmM":
            data = data.astype(array.dtype)
        columns[name] = data
    frame = pd.DataFrame(columns).rename(columns=freed(names, ("reason", "score")))
    frame.attrs["note"] = renamed(freed(names, ("reason", "score")))
    frame["reason"] = [p.reason for p in points]
    frame["score"] = [p.score for p in points]

    def described(name: str, data: Any) -> Any:
        attrs = t.ds.coords[name].attrs
        return values(
            data if data.dtype.kind != "O" else data.tolist(),
            role=str(attrs.get("role", "design")),
            units=attrs.get("units"),
            long_name=attrs.get("long_name"),
        )

    listed = paired({name: described(name, columns[name]) for name in names}, dim=dim)
    # They stand for a space between them: run alone, they are no census of it.
    together = replace(
        listed, parameters=tuple(replace(p, sampled="suggested") for p in listed.parameters)
    )
    repeated = [p for p in t.parameters if p.role == "replicate" and p.name not in names]
    crossed = {p.name: described(p.name, p.values) for p in repeated}
    if not crossed:
        return Suggestion(together, frame, goal, method)
    if list(crossed) == ["replicate"] and repeated[0].values.tolist() == list(range(repeated[0].n)):
        return Suggestion(grid(together, replicates=repeated[0].n), frame, goal, method)
    return Suggestion(grid(together, crossed), frame, goal, method)


def _boundary(asked: Asked) -> tuple[list[Wanted], str]:
    passed_and_failed(asked.t, asked.errors)
    lattice = lattice_of(asked.t, asked.outcome)
    if lattice is None:
        return boundary_of_sample(asked)
    points = explored(asked, lattice, asked.n_explore)
    taken = {key_of(p.at) for p in points}
    wanted = asked.n - len(points)
    whole = len(lattice.ordered) <= MAX_SPLIT_DIMS
    points = [*(split if whole else bisect)(asked, lattice, wanted, taken), *points]
    how = "split" if whole else "bisected along their edges"
    return points, f"cells whose corners disagree are {how}, the largest first"


def _rate(asked: Asked) -> tuple[list[Wanted], str]:
    t = asked.t
    lattice = lattice_of(t, asked.outcome)
    known = asked.outcome <= FAILED
    if lattice is None:
        own = own_parameters(t)
        drawn = candidates(asked, own, asked.n)
        f, m = int((asked.outcome == FAILED).sum()), int(known.sum())
        now = np.diff(failure_interval(f, m))[0] if m else 1.0
        then = np.diff(failure_interval(f / m * (m + asked.n) if m else 0, m + asked.n))[0]
        reason = f"independent sample: the interval's width goes from {now:.2g} to about {then:.2g}"
        points = [
            Wanted({p.name: drawn[p.name][k] for p in own}, reason, float(now - then))
            for k in range(asked.n)
        ]
        return points, "independent runs, each parameter spread as it was run"
    some = undecided(lattice, 1, asked.rng)
    points = explored(asked, lattice, asked.n_explore if some else asked.n)
    taken = {key_of(p.at) for p in points}
    points = [*split(asked, lattice, asked.n - len(points), taken), *points]
    return points, "the undecided cells, the largest first: their volume is what bounds the rate"


def _confirm(asked: Asked) -> tuple[list[Wanted], str]:
    t = asked.t
    found = regions(t, errors=asked.errors)
    boxes = [b for b in found.boxes["limits"] if b]
    if not boxes:
        raise UnanswerableError("no box of failures was found, so there is none to confirm")
    own = own_parameters(t)
    inside, outside = (asked.n + 1) // 2, asked.n // 2
    points: list[Wanted] = []
    for k in range(asked.n):
        limits = boxes[k % len(boxes)]
        text = found.boxes["text"].iloc[k % len(boxes)]
        drawn = {name: v[0] for name, v in candidates(asked, own, 1).items()}
        for name, limit in limits.items():
            if name in drawn:
                drawn[name] = _inside(asked, t, name, limit)
        reason = f"inside the box {text}"
        ends = _open_ends(t, limits, drawn)
        if k >= inside and ends:
            name, low, high = ends[(k - inside) // len(boxes) % len(ends)]
            drawn[name] = _cast(t, name, asked.rng.uniform(low, high))
            reason = f"just outside the limit on {name} of the box {text}"
        points.append(Wanted(drawn, reason, float(found.boxes["density"].iloc[k % len(boxes)])))
    return points, f"{inside} points inside and up to {outside} just outside {len(boxes)} boxes"


def _inside(asked: Asked, t: Table, name: str, limit: Any) -> Any:
    if isinstance(limit, tuple):
        if t[name].kind != "number":
            return limit[int(asked.rng.integers(2))]
        return _cast(t, name, asked.rng.uniform(float(limit[0]), float(limit[1])))
    some = sorted(limit, key=str)
    return some[int(asked.rng.integers(len(some)))]


def _open_ends(
    t: Table, limits: dict[str, Any], drawn: dict[str, Any]
) -> list[tuple[str, float, float]]:
    """Where one may step just outside a box: parameter, from, to."""
    ends = []
    for name, limit in limits.items():
        p = t[name]
        if name not in drawn or p.kind != "number" or not isinstance(limit, tuple):
            continue
        least, most = float(p.lower[0]), float(p.upper[-1])
        low, high = float(limit[0]), float(limit[1])
        step = 0.1 * (most - least)
        if low > least:
            ends.append((name, max(low - step, least), low))
        if high < most:
            ends.append((name, high, min(high + step, most)))
    return ends


def _cast(t: Table, name: str, value: float) -> Any:
    return round(value) if t.ds.coords[name].dtype.kind in "iu" else value


def _replicate(asked: Asked) -> tuple[list[Wanted], str]:
    t = asked.t
    repeated = [p for p in t.parameters if p.role == "replicate"]
    if len(repeated) != 1 or t.points is None:
        raise UnanswerableError(
            f"{len(repeated)} parameters have the role 'replicate'; one with several values is "
            "needed to repeat points"
        )
    replicate = repeated[0]
    if t.ds.coords[replicate.name].dtype.kind not in "iu":
        raise UnanswerableError(f"replicate {replicate.name!r} is not numbered by integers")
    own = own_parameters(t)
    n_points = len(t.points.first)
    n = np.bincount(t.points.of[asked.outcome <= FAILED], minlength=n_points)
    f = np.bincount(t.points.of[asked.outcome == FAILED], minlength=n_points)
    pending = np.bincount(t.points.of[asked.outcome == PENDING], minlength=n_points)
    usable = (n > 0) & (pending == 0)
    if not usable.any():
        raise UnanswerableError("no point has finished all its replicates")
    number = t.raw(replicate.name)
    next_ = np.zeros(n_points, dtype=np.int64)
    np.maximum.at(next_, t.points.of, number.astype(np.int64) + 1)
    more = np.zeros(n_points, dtype=np.int64)
    width = _widths(f, n)
    width = np.where(usable, width, -np.inf)
    points = []
    names = [p.name for p in own]
    for _ in range(asked.n):
        k = int(np.argmax(width))
        at = {name: t.point(int(t.points.first[k]))[name] for name in names}
        now = _widths(f[k], n[k])
        reason = f"{f[k]} of {n[k]} replicates failed: the interval is {now:.2g} wide"
        at[replicate.name] = int(next_[k] + more[k])
        points.append(Wanted(at, reason, float(width[k])))
        more[k] += 1
        # The next goes where the interval would then be widest, at the rates seen so far.
        m = n[k] + more[k]
        width[k] = _widths(f[k] / n[k] * m, m)
    return points, "more replicates where the interval of a point is widest (Wilson)"


def _widths(f: Any, n: Any) -> Any:
    interval = failure_interval(f, n)
    return interval[..., 1] - interval[..., 0]

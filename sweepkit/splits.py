"""Honest splits of runs: what is tested on was not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import as_numbers, combined, split_component
from sweepkit.analysis.table import Table, dim_codes, spread

__all__ = ["SPLITS", "Split", "split_runs"]

SPLITS = ("train", "validation", "test")
WAYS = ("design", "block", "scenario")
CHUNKS = (4, 3, 2)
"""Parts that each parameter's values are cut into for blocks: fewer where designs are few."""

ENOUGH = 4
"""Designs that a block is to hold on average, or a block would be little more than one design."""


@dataclass(frozen=True, eq=False)
class Split:
    """Which run goes where.

    Attributes
    ----------
    of : array of int, shape (runs,)
        0 train, 1 validation, 2 test, -1 left out.
    design : array of int, shape (runs,)
        Which design a run is of.
    words : str
        How it was split, for people.
    left_out : int
        Runs left out so that no design is in two splits.
    """

    of: NDArray[np.int8]
    design: NDArray[np.int64]
    words: str
    left_out: int

    @property
    def apart(self) -> bool:
        """Whether no design is in two splits."""
        there = [np.unique(self.design[self.of == k]) for k in range(len(SPLITS))]
        return sum(map(len, there)) == len(np.unique(np.concatenate(there)))


def split_runs(
    t: Table,
    used: NDArray[np.bool_],
    by: str | Mapping[str, Any],
    shares: Sequence[float],
    designs: str,
    seed: int,
) -> Split:
    """Assign runs to train, validation and test.

    Parameters
    ----------
    t : Table
    used : array of bool, shape (runs,)
        Runs to be assigned; others are left out and not counted.
    by : {"design", "block", "scenario"}, name of a parameter, or mapping
        Designs at random; neighbouring designs together; scenarios at random; the values of one
        parameter at random; or limits of a region, (low, high) or a list of values per parameter,
        that is the test.
    shares : sequence of 3 floats
        Of the groups, for train, validation and test; of a region only the first two count.
    designs : {"apart", "shared"}
        Whether splits by scenario or region may hold the same design.
    seed : int

    Raises
    ------
    ValueError
        If there are too few groups, or an argument is not as above; if a region is one of
        replicates, by which runs of one point would be on both sides.
    """
    if designs not in ("apart", "shared"):
        raise ValueError(f"designs={designs!r} is neither 'apart' nor 'shared'")
    given = np.asarray(shares, dtype=np.float64)
    shared = given.shape == (3,) and (given >= 0).all() and given[0] > 0
    if not shared or abs(given.sum() - 1) > 1e-6:
        raise ValueError(
            f"shares={tuple(shares)!r}; give three shares for train, validation and test that sum "
            "to 1, as (0.8, 0.1, 0.1)"
        )
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed={seed!r} is no whole number from 0 on")
    random = np.random.default_rng([seed, 70001])
    design = _groups(t, ("design",))
    varied = len(np.unique(design[used])) > 1
    if not varied:  # what one may choose is one thing: the points take its place
        design = _groups(t, ("design", "scenario"))
    what = "designs" if varied else "points (there is one design)"
    if by == "design":
        of = _dealt(design, used, given, random, what)
        return Split(of, design, f"{what} at random, seed {seed}", 0)
    if by == "block":
        wanted = int((given > 0).sum())
        block, cuts = _blocks(t, "design" if varied else "scenario", design, used, wanted)
        of = _dealt(block, used, given, random, "blocks")
        each = len(np.unique(design[used])) / len(np.unique(block[used]))
        words = f"blocks of neighbouring {what} at random, seed {seed}: each parameter's values "
        words = f"{words}cut into {cuts}, a block of {each:.3g} on average goes whole"
        return Split(of, design, words, 0)
    if isinstance(by, Mapping):
        inside = _inside(t, by)
        both = [bool((inside & used).any()), bool((~inside & used).any())]
        if not all(both):
            raise ValueError(f"the region {dict(by)!r} holds {'all' if both[0] else 'no'} runs")
        own = np.where(inside, 2, 0).astype(np.int8)
        words = f"region {', '.join(f'{n} in {v!r}' for n, v in by.items())} is the test"
        within = given * [1, 1, 0]
        apart = varied and designs == "apart" and _mixed(design, inside, used)
        if not apart:
            rest = _dealt(design, used & ~inside, within / within.sum(), random, what)
            of = np.where(inside, own, rest).astype(np.int8)
            of[~used] = -1
            return Split(of, design, f"{words}; the rest by {what} at random, seed {seed}", 0)
        mine = _dealt(design, used, given, random, what)
        of = np.where(inside == (mine == 2), mine, -1).astype(np.int8)
        return _apart(of, used, design, f"{words}; designs at random, seed {seed}")
    if by == "scenario" or by in [p.name for p in t.parameters]:
        whole = _groups(t, ("scenario",)) if by == "scenario" else _values(t, by)
        what_of = "scenarios" if by == "scenario" else f"values of {by}"
        own = _dealt(whole, used, given, random, what_of)
        words = f"{what_of} at random, seed {seed}"
        if not varied or designs == "shared" or not _several(design, own, used):
            return Split(own, design, words, 0)
        mine = _dealt(design, used, given, random, what)
        of = np.where(own == mine, own, -1).astype(np.int8)
        return _apart(of, used, design, words)
    raise ValueError(
        f"split={by!r} is none of {', '.join(map(repr, WAYS))}, no parameter and no region such as "
        "{'length': (1.5, None)}"
    )


def _apart(
    of: NDArray[np.int8], used: NDArray[np.bool_], design: NDArray[np.int64], words: str
) -> Split:
    of[~used] = -1
    left = int((used & (of < 0)).sum())
    told = f"{words}; and designs apart, for which {left:,} runs are left out"
    return Split(of, design, told, left)


def _groups(t: Table, roles: tuple[str, ...]) -> NDArray[np.int64]:
    """Which distinct point of the parameters with these roles each run is of."""
    parts = []
    for dim in t.dims:
        codes, n = dim_codes(t, dim, roles)
        parts.append((spread(codes, dim, t), n))
    several = [p for p in t.parameters if len(p.dims) != 1 and p.role in roles]
    parts += [(p.codes, p.n) for p in several]
    _, of = np.unique(combined(parts, t.n)[0], return_inverse=True)
    return of.astype(np.int64)


def _blocks(
    t: Table, role: str, design: NDArray[np.int64], used: NDArray[np.bool_], wanted: int
) -> tuple[NDArray[np.int64], int]:
    """Which box of neighbouring values each run is in, and the cuts that make the boxes.

    Of the cuts that make as many blocks as are wanted, the finest whose blocks hold enough
    designs, else the coarsest.
    """
    varied = [p for p in t.parameters if p.role == role and p.n > 1]
    designs = len(np.unique(design[used]))
    found: list[tuple[NDArray[np.int64], int]] = []
    for cuts in CHUNKS:
        parts = [(p.codes.astype(np.int64) * min(cuts, p.n) // p.n, min(cuts, p.n)) for p in varied]
        _, of = np.unique(combined(parts, t.n)[0], return_inverse=True)
        n = len(np.unique(of[used]))
        if found and n < wanted:
            break
        found.append((of.astype(np.int64), cuts))
        if designs >= ENOUGH * n:
            break
    return found[-1]


def _values(t: Table, name: str) -> NDArray[np.int64]:
    """Which value of one parameter each run has."""
    if t[name].role == "replicate":
        raise ValueError(
            f"split={name!r} would part the replicates of one point; split by design, block, "
            "scenario or another parameter"
        )
    return np.asarray(t[name].codes, dtype=np.int64)


def _several(design: NDArray[np.int64], of: NDArray[np.int8], used: NDArray[np.bool_]) -> bool:
    """Whether some design is in more than one split."""
    pairs = np.unique(np.stack([design[used], of[used].astype(np.int64)]), axis=1)
    return int(pairs.shape[1]) > len(np.unique(design[used]))


def _mixed(design: NDArray[np.int64], inside: NDArray[np.bool_], used: NDArray[np.bool_]) -> bool:
    """Whether some design has runs on both sides."""
    return bool(len(np.intersect1d(design[inside & used], design[~inside & used])))


def _inside(t: Table, limits: Mapping[str, Any]) -> NDArray[np.bool_]:
    if not limits:
        raise ValueError("split={} is no region; say which, as in {'length': (1.5, None)}")
    inside = np.ones(t.n, dtype=bool)
    for name, limit in limits.items():
        known = [p.name for p in t.parameters]
        if name not in known:
            raise ValueError(
                f"split names {name!r}, which is no parameter; there are "
                f"{', '.join(map(repr, known))}"
            )
        if t[name].role == "replicate":
            raise ValueError(
                f"split by {name!r} would part the replicates of one point; hold out designs, "
                "scenarios or a region of them"
            )
        inside &= _within(t, name, limit)
    return inside


def _within(t: Table, name: str, limit: Any) -> NDArray[np.bool_]:
    """Which runs lie between two limits of a parameter, or at one of some values."""
    p, values = t[name], t.raw(name)
    if isinstance(limit, tuple) and len(limit) == 2 and p.ordered:
        low, high = (None if one is None else _number(t, name, one) for one in limit)
        above = values >= (-np.inf if low is None else low)
        within: NDArray[np.bool_] = above & (values <= (np.inf if high is None else high))
        return within
    wanted = [limit] if isinstance(limit, str) or np.ndim(limit) == 0 else list(limit)
    if p.ordered:
        wanted = [_number(t, name, one) for one in wanted]
    else:
        values, wanted = values.astype(str), [str(one) for one in wanted]
    missing = [one for one in wanted if one not in values]
    if missing:
        raise ValueError(
            f"split holds out {name!r} at {missing[0]!r}, which is none of its values; give a "
            f"stretch as a tuple, as in {{{name!r}: (low, high)}}, where any value in it will do"
        )
    return np.isin(values, wanted)


def _number(t: Table, name: str, value: Any) -> float:
    """A limit as the parameter's values are coded."""
    stored = t.ds[split_component(name, t.ds)[0]].dtype
    try:
        if stored.kind in "mM":
            exact = np.array(value, dtype=f"{stored.kind}8[ns]")
            return float(as_numbers(exact.reshape(1), "time")[0])
        return float(value)
    except (TypeError, ValueError) as fault:
        raise ValueError(
            f"split gives {value!r} for {name!r}, whose values are {stored}: {fault}"
        ) from None


def _dealt(
    group: NDArray[np.int64],
    used: NDArray[np.bool_],
    shares: NDArray[np.float64],
    random: np.random.Generator,
    what: str,
) -> NDArray[np.int8]:
    """Whole groups dealt to the splits, each split with a share getting at least one."""
    there = random.permutation(np.unique(group[used]))
    wanted = int((shares > 0).sum())
    if len(there) < wanted:
        raise ValueError(
            f"{len(there)} {what} cannot make {wanted} splits; give shares of 0 for some, as in "
            "shares=(0.5, 0, 0.5), or split in another way"
        )
    ends = np.round(np.cumsum(shares / shares.sum()) * len(there)).astype(int)
    sizes = np.diff(ends, prepend=0)
    for k in np.flatnonzero((shares > 0) & (sizes == 0)):
        sizes[np.argmax(sizes)] -= 1
        sizes[k] += 1
    of_group = np.full(int(group.max()) + 1, -1, dtype=np.int8)
    of_group[there] = np.repeat(np.arange(3), sizes).astype(np.int8)
    of: NDArray[np.int8] = np.where(used, of_group[group], np.int8(-1)).astype(np.int8)
    return of

"""The runs of a sweep as small columns, which a page counts at any limits without Python."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded
from sweepkit.analysis.outcomes import SKIPPED
from sweepkit.analysis.table import Table, dim_codes
from sweepkit.analysis.worth import drawn, listed
from sweepkit.views.captions import meta
from sweepkit.views.levers import Lever
from sweepkit.views.packing import plain
from sweepkit.views.source import Source

__all__ = ["BUDGET", "Columns", "columns", "thinned"]

BUDGET = 2_200_000
"""Letters that the columns take in a page, at most."""

STOPS = (64, 32, 16, 8)
"""Places of each limit where all of them take too much room."""

LEVELS = 254
NONE = 255
MAX_OUTPUTS = 8
LEAST_SAMPLE = 20_000


@dataclass(frozen=True, eq=False)
class Columns:
    """What travels: columns by name, and what they leave out.

    Attributes
    ----------
    meta : mapping
        Parameters, requirements and outputs, as the explorer's views want them.
    packed : mapping
        Columns, compressed, with what tells how to read them.
    notes : tuple of str
        What is coarser in the page than in the store, in sentences.
    """

    meta: Mapping[str, Any]
    packed: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())

    @property
    def size(self) -> int:
        """Letters of all columns."""
        return _size(self.packed)


def columns(of: Source, budget: int = BUDGET) -> Columns:
    """Code the runs of a source into at most so many letters.

    Limits keep their exact places as long as there is room. Then means of outputs are left out,
    limits move in fewer steps (counts at each stay exact), and last a random sample of the runs
    stands for all of them.
    """
    names = of.outputs[:MAX_OUTPUTS]
    notes: list[str] = []
    packed = _packed(of, names)
    few = names
    if _size(packed) > budget:
        few = () if of.levers else names[:1]
    if len(few) < len(of.outputs):
        notes.append(f"The map shows means of {len(few)} of {len(of.outputs)} outputs.")
    if len(few) < len(names):
        packed = _packed(of, few)
    whole = of
    for most in (*STOPS, STOPS[0]):  # where even the fewest are too many, a sample has the most
        if _size(packed) > budget and any(len(one.stops) > most for one in whole.levers):
            of = replace(whole, levers=tuple(thinned(one, most) for one in whole.levers))
            packed = _packed(of, few)
    if of is not whole:
        steps = ", ".join(f"{one.title} in {len(one.stops)}" for one in of.levers if one.movable)
        notes.append(f"Limits move in few steps ({steps}); counts at each are exact.")
    total = there = np.flatnonzero(of.base != SKIPPED)
    while _size(packed) > budget and len(there) > LEAST_SAMPLE:
        n = max(LEAST_SAMPLE, int(0.9 * len(there) * budget / _size(packed)))
        there = np.sort(np.random.default_rng(0).choice(total, n, replace=False))
        packed = _packed(of, few, there)
    if packed["sampled"]:
        notes.append(
            f"Figures that move are counted on a random sample of {len(there):,} of "
            f"{len(total):,} runs: a share of all is off by at most about "
            f"{100 / np.sqrt(len(there)):.2g} % points. Words and tables are of all runs."
        )
    said = {**meta(of), "path": "", "outputs": [_titled(of, name) for name in few]}
    return Columns(said, packed, tuple(notes))


def thinned(one: Lever, most: int) -> Lever:
    """The same lever with at most so many places for its limit, the declared one among them."""
    n = len(one.stops)
    if n <= most:
        return one
    kept = np.unique(np.append(np.linspace(0, n - 1, most - 1).round().astype(int), one.declared))
    return replace(
        one,
        stops=one.stops[kept],
        declared=int(np.searchsorted(kept, one.declared)),
        codes=np.searchsorted(kept, one.codes, side="left").astype(np.uint8),
    )


def _titled(of: Source, name: str) -> list[str]:
    return [name, str(of.ds[name].attrs.get("units", ""))]


# --- packing -------------------------------------------------------------------------------------


def _packed(
    of: Source, names: tuple[str, ...], rows: NDArray[np.intp] | None = None
) -> dict[str, Any]:
    t = of.table
    every: Any = slice(None) if rows is None else rows
    weights = t.weights
    return {
        "n": t.n if rows is None else len(rows),
        "of": t.n,
        "shape": list(t.shape),
        "sampled": rows is not None,
        "base": _deflated(of.base[every].astype(np.uint8)),
        "params": [_parameter(t, p, rows) for p in of.parameters],
        "levers": [_deflated(one.codes[every]) for one in of.levers],
        "outputs": [_levels(of.output(name), every) for name in names],
        "weights": None if weights is None else _deflated(weights[every].astype(np.float32)),
        "worth": _worth(of, sampled=rows is not None),
    }


def _parameter(t: Table, p: Coded, rows: NDArray[np.intp] | None) -> dict[str, Any]:
    """Codes along the dims that a parameter lies along; of a sample one a run."""
    if rows is not None:
        return {"dims": None, "codes": _deflated(p.codes[rows])}
    codes = p.codes.reshape(t.shape)
    at = tuple(slice(None) if dim in p.dims else 0 for dim in t.dims)
    if 0 in t.shape:
        return {"dims": None, "codes": _deflated(p.codes)}
    own = [k for k, dim in enumerate(t.dims) if dim in p.dims]
    return {"dims": own, "codes": _deflated(np.ascontiguousarray(codes[at]))}


def _levels(values: NDArray[np.float64], every: Any) -> dict[str, Any]:
    """A number a run as a byte: exact where there are few values, else by quantile bins."""
    values = values[every]
    known = np.isfinite(values)
    there = np.unique(values[known])
    if len(there) > LEVELS:
        some = values[known]
        some = some[:: max(1, len(some) // 400_000)]
        ends = np.unique(np.quantile(some, np.linspace(0, 1, LEVELS + 1)[1:-1]))
        codes = np.searchsorted(ends, values, side="right")
        n = np.bincount(codes[known], minlength=len(ends) + 1)
        total = np.bincount(codes[known], weights=values[known], minlength=len(ends) + 1)
        levels = total / np.maximum(n, 1)
        exact = False
    else:
        codes, levels, exact = np.searchsorted(there, values), there, True
    codes = np.where(known, codes, NONE).astype(np.uint8)
    return {"levels": plain(levels), "codes": _deflated(codes), "exact": exact}


def _deflated(array: NDArray[Any]) -> dict[str, Any]:
    kind = array.dtype.str[1:]
    flat = np.ascontiguousarray(array).reshape(-1)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    raw = packer.compress(flat.astype(f"<{kind}").tobytes()) + packer.flush()
    return {"t": kind, "z": base64.b64encode(raw).decode("ascii")}


def _size(packed: Any) -> int:
    if isinstance(packed, str):
        return len(packed)
    if isinstance(packed, Mapping):
        return sum(_size(one) for one in packed.values())
    return sum(map(_size, packed)) if isinstance(packed, list | tuple) else 0


# --- what an interval rests on -------------------------------------------------------------------


def _worth(of: Source, *, sampled: bool = False) -> dict[str, Any]:
    """How a page may tell intervals at other limits by itself, as `count` does.

    Bounds of a deterministic grid, replicates of given points as strata, and drawn points of one
    run each as the sample that they are, also if the page carries some of them. Of drawn points of
    several runs, of weighted and refined ones, and while a sweep is in progress, it tells rates
    alone.
    """
    t = of.table
    given = listed(t)
    told = all(
        axis is not None
        or dim in given
        or size == 1
        or not any(dim in p.dims for p in t.parameters)
        for dim, size, axis in zip(t.dims, t.shape, t.axes, strict=True)
    )
    going = t.prefix is not None and not t.finished
    unknown = t.weights is not None or t.volume is not None or going
    points = drawn(t, ())
    if not unknown and points is not None and t.points is None and points[1] == t.n:
        return {"kind": "sample", "random": t.random, "points": None}
    if sampled or unknown or not told or points is not None:
        return {"kind": "none"}
    repeated = t.points is not None
    kind = "strata" if repeated or t.random else "bounds"
    if not repeated:
        return {"kind": kind, "random": t.random, "points": None}
    parts = []
    for dim in t.dims:
        codes, n = dim_codes(t, dim, ("design", "scenario"))
        parts.append({"n": int(n), "codes": _deflated(_small(codes))})
    return {"kind": kind, "random": t.random, "points": parts}


def _small(codes: NDArray[Any]) -> NDArray[Any]:
    if int(codes.max(initial=0)) < 256:
        return codes.astype(np.uint8)
    if int(codes.max(initial=0)) < 65_536:
        return codes.astype(np.uint16)
    return codes.astype(np.uint32)

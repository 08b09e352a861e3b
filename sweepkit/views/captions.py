"""What an explorer calls things: parameters, requirements, outputs, and what is odd in them."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.bases import MEANINGS
from sweepkit.analysis.coding import Coded, shown
from sweepkit.analysis.outcomes import FAILED, PENDING
from sweepkit.places import place
from sweepkit.views.levers import Lever
from sweepkit.views.packing import plain
from sweepkit.views.source import Source

__all__ = ["defaults", "meta", "short_label", "short_labels"]


def meta(of: Source) -> dict[str, Any]:
    """What does not change with the state: parameters, requirements, outputs."""
    t = of.table
    return {
        "name": of.name,
        "path": str(of.path),
        "n": t.n,
        "dims": [[d, n] for d, n in zip(t.dims, t.shape, strict=True)],
        "params": [_parameter(of, p) for p in of.parameters],
        "levers": [_lever(one) for one in of.levers],
        "outputs": [[n, str(of.ds[n].attrs.get("units", ""))] for n in of.outputs],
        "traces": [[n, str(of.ds[n].attrs.get("units", ""))] for n in of.traces],
        "notes": _notes(of),
        "bases": dict(MEANINGS),
        "local": t.weights is None and t.volume is None and t.stage is None,
    }


def _notes(of: Source) -> list[str]:
    notes = []
    going = int((of.base == PENDING).sum())
    if going and not of.path:
        stored = str(of.ds.encoding.get("source") or "")
        name = repr(PurePosixPath(stored).name) if stored else "'sweep.zarr'"
        notes.append(
            f"A snapshot: {going:,} runs were pending when this Dataset was opened, and it does "
            f"not change. To follow the sweep, give the store or the job: sk.explore({name})."
        )
    if of.path and (place(of.path) / "stages").is_dir() and of.table.stage is None:
        notes.append(
            "The grid alone: runs that refined it are left out. With them: "
            f"sk.explore(sk.open({PurePosixPath(str(of.path)).name!r}, stages=True))."
        )
    if not of.levers:
        notes.append(
            "Nothing says which runs fail: this Dataset has no requirements. Give some, as in "
            "sk.explore(ds, requirements=['steps >= 500']); the map shows outputs until then."
        )
    for one in of.levers:
        if not np.isfinite(one.values[of.ended]).any() and of.ended.any():
            notes.append(f"{one.what} is NaN in every run, and NaN satisfies no requirement.")
    single = [p for p in of.parameters if p.n == 1]
    if single and len(single) < len(of.parameters):
        said = ", ".join(f"{p.name} {p.label(0)} {p.units}".strip() for p in single)
        notes.append(f"Not varied: {said}.")
    if all(p.n == 1 for p in of.parameters):
        notes.append("No parameter has more than one value, so there is one cell.")
    return notes


def _parameter(of: Source, p: Coded) -> dict[str, Any]:
    base = p.name if p.name in of.ds.coords else p.name.rpartition("[")[0]
    numbers = p.numbers
    labels, exact = short_labels(p), [p.label(c) for c in range(p.n)]
    ends = [_ends(p, p.lower), _ends(p, p.upper)] if p.binned else None
    return {
        "name": p.name,
        "units": p.units,
        "role": p.role,
        "kind": p.kind,
        "about": str(of.ds[base].attrs.get("long_name", "")),
        "n": p.n,
        "labels": labels,
        "full": exact if exact != labels else None,
        "numbers": plain(numbers) if p.ordered else None,
        "ends": ends,
        "log": _is_log(p),
    }


def _ends(p: Coded, values: NDArray[Any]) -> list[float | None]:
    if p.kind == "time":
        return plain(values.astype(f"{values.dtype.kind}8[ns]").astype(np.int64) / 1e9)
    return plain(values)


def short_label(p: Coded, code: int) -> str:
    """A label for an axis: of a bin its middle."""
    if p.binned and p.kind == "number":
        return f"{float(p.values[code]):.3g}"
    if p.kind == "time" and p.values.dtype.kind == "M":
        text = shown(p.values[code])
        return text[:10] if text.endswith("00:00:00") else text
    return shown(p.values[code])


def short_labels(p: Coded) -> list[str]:
    """Labels of all values for an axis: of numbers as few digits as tell them apart."""
    if p.kind != "number" or p.binned or p.values.dtype.kind != "f":
        return [short_label(p, code) for code in range(p.n)]
    for digits in (3, 4, 5):
        texts = [f"{float(value):.{digits}g}" for value in p.values]
        if len(set(texts)) == p.n and not any("e+" in text for text in texts):
            return texts
    return [short_label(p, code) for code in range(p.n)]


def _is_log(p: Coded) -> bool:
    """Whether values are better told apart on a logarithmic axis."""
    if p.kind != "number" or p.n < 3:
        return False
    values = np.sort(np.concatenate([p.lower[:1], p.upper]) if p.binned else p.numbers)
    values = values[np.isfinite(values)].astype(np.float64)
    if len(values) < 3 or values[0] <= 0 or values[-1] / values[0] < 10:
        return False
    straight, log = np.diff(values), np.diff(np.log(values))
    return bool(np.std(log) / np.mean(log) < np.std(straight) / np.mean(straight))


def _lever(one: Lever) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.title,
        "what": one.what,
        "op": one.op,
        "units": one.units,
        "stops": plain(one.stops),
        "declared": one.declared,
        "movable": one.movable,
        "rising": one.rising,
        "of_margin": one.of_margin,
        "text": one.requirement.text if one.requirement is not None else one.name,
    }


def defaults(of: Source) -> tuple[str, str]:
    """The two parameters that tell most about failing, for the axes of the first map."""
    several = [p for p in of.parameters if p.n > 1]
    if not several:
        return of.parameters[0].name, ""
    main = [p for p in several if p.role != "replicate"] or several
    if len(main) == 1:
        rest = [p for p in several if p is not main[0]]
        return main[0].name, rest[0].name if rest else ""
    known = of.table.outcome <= FAILED
    failing = (of.table.outcome == FAILED).astype(np.float64)
    told = {}
    for p in main:
        n = np.bincount(p.codes[known], minlength=p.n)
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = np.bincount(p.codes[known], weights=failing[known], minlength=p.n) / n
            mean = np.average(np.nan_to_num(rate), weights=n) if n.sum() else 0.0
        told[p.name] = float(np.sum(n * (np.nan_to_num(rate) - mean) ** 2))
    x, y = sorted(main, key=lambda p: (-told[p.name], of.parameters.index(p)))[:2]
    if y.role == "design" and x.role != "design":
        x, y = y, x
    return x.name, y.name

"""What a sweep and the store it meets have in common: nothing to do, growth, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.canonical import canonical, near_misses
from sweepkit.grid import REPLICATE, Grid
from sweepkit.parameters import Parameter
from sweepkit.sweep import Sweep

__all__ = [
    "DifferentSweepError",
    "Match",
    "NearMissError",
    "declared_order",
    "match",
    "neutral_parameters",
    "settled_values",
    "was_to_json",
]


class DifferentSweepError(ValueError):
    """The store holds another sweep; names the differences and the ways on."""


class NearMissError(ValueError):
    """A value differs from a stored one by rounding alone."""


@dataclass(frozen=True)
class Match:
    """How a sweep lies in a store.

    Attributes
    ----------
    grid : Grid
        The declared grid, with stored values where it was asked to snap to them.
    on_disk : mapping of str to array of int
        For each dim the position on disk of each declared position.
    parameters : tuple of Parameter
        The axes on disk once the store has grown: the stored values, then the new ones.
    joined : tuple of str
        Parameters that the store does not have yet, each with the one value its runs had.
    grows : bool
        Whether the store has to grow.
    retyped : bool
        Whether an axis needs another data type on disk.
    """

    grid: Grid
    on_disk: Mapping[str, NDArray[np.int64]]
    parameters: tuple[Parameter, ...]
    joined: tuple[str, ...]
    grows: bool
    retyped: bool


def match(
    sweep: Sweep,
    stored: Mapping[str, Parameter],
    declaration: Mapping[str, Any],
    was: Mapping[str, Parameter],
    *,
    path: str,
    snap: bool,
) -> Match:
    """Place a sweep's points among those of a store.

    Raises
    ------
    DifferentSweepError
        If parameters, dims, kinds, declared outputs or random streams differ.
    NearMissError
        If a value differs from a stored one by rounding alone, unless ``snap``.
    """
    differences = _differences(sweep, stored, declaration, was)
    if differences:
        listed = "\n".join(f"  - {one}" for one in differences)
        raise DifferentSweepError(
            f"{path} holds another sweep ({declaration.get('name')!r}):\n{listed}\n"
            "use another path, or change the declaration back"
        )
    joined = tuple(one.name for one in sweep.grid.parameters if one.name not in stored)
    known = dict(stored)
    for name in joined:
        known[name] = was[name]
    grid = _snapped(sweep.grid, known) if snap else sweep.grid
    on_disk: dict[str, NDArray[np.int64]] = {}
    parameters: dict[str, Parameter] = {}
    for dim in grid.dims:
        here = [one for one in grid.parameters if one.dim == dim]
        there = [known[one.name] for one in here]
        positions, new = _positions(here, there)
        if len(new) and len(here) == 1:
            _check_near(here[0], there[0], new, path)
        on_disk[dim] = positions
        for one, old in zip(here, there, strict=True):
            parameters[one.name] = _extended(old, one, new)
    return Match(
        grid,
        on_disk,
        tuple(parameters[one.name] for one in grid.parameters),
        joined,
        grows=any(parameters[name].size != old.size for name, old in known.items()) or bool(joined),
        retyped=any(
            parameters[name].values.dtype != old.values.dtype for name, old in known.items()
        ),
    )


def _differences(
    sweep: Sweep,
    stored: Mapping[str, Parameter],
    declaration: Mapping[str, Any],
    was: Mapping[str, Parameter],
) -> list[str]:
    said = []
    for one in sweep.grid.parameters:
        old = stored.get(one.name)
        if old is None:
            if one.name not in was:
                said.append(
                    f"parameter {one.name!r} is not in the store; if its finished runs had one "
                    f"value of it, say which: sk.run(..., was={{{one.name!r}: value}})"
                )
            elif one.dims != (one.name,):
                said.append(
                    f"parameter {one.name!r} is not in the store and shares dim {one.dim!r}; "
                    "a parameter joins a store along a dim of its own"
                )
            continue
        if old.dims != one.dims:
            said.append(
                f"parameter {one.name!r} varies along ({', '.join(one.dims)}), in the store "
                f"along ({', '.join(old.dims)})"
            )
        elif old.values.shape[1:] != one.values.shape[1:]:
            said.append(
                f"values of parameter {one.name!r} have shape {one.values.shape[1:]}, in the "
                f"store {old.values.shape[1:]}"
            )
        elif old.kind != one.kind:
            said.append(f"parameter {one.name!r} is a {one.kind}, in the store a {old.kind}")
    said += [
        f"parameter {name!r} of the store is not varied any more; give it a value"
        for name in stored
        if name not in sweep.grid
    ]
    for word in ("entropy", "streams", "threads"):
        now, then = getattr(sweep, word), declaration.get(word)
        if now != then:
            said.append(f"{word} is {now!r}, in the store {then!r}")
    said += _output_differences(sweep, declaration)
    return said


def _output_differences(sweep: Sweep, declaration: Mapping[str, Any]) -> list[str]:
    outputs = {one["name"]: one for one in declaration["stored"]["outputs"]}
    said = []
    if not outputs:
        return []
    for name, declared in sweep.outputs.items():
        old = outputs.get(name)
        if old is None:
            said.append(
                f"output {name!r} is declared and not in the store; compute it from stored ones "
                "with sk.derive, or use another path"
            )
            continue
        given = {
            "dims": list(declared.dims) if declared.dims else None,
            "shape": list(declared.size) if declared.size else None,
            "pad": declared.pad,
            "dtype": declared.dtype,
        }
        for word, now in given.items():
            if now is not None and now != old[word]:
                said.append(f"{word} of output {name!r} is {now}, in the store {old[word]}")
    return said


def _rows(parameters: Sequence[Parameter]) -> NDArray[np.uint64]:
    total = np.zeros((parameters[0].size, 2), dtype=np.uint64)
    for one in parameters:
        total += one.keys()
    return total


def _positions(
    here: Sequence[Parameter], there: Sequence[Parameter]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Position on disk of each declared point along a dim, and which of them are new."""
    size = there[0].size
    if all(_equal(a, b) for a, b in zip(here, there, strict=True)):
        return np.arange(size, dtype=np.int64), np.array([], dtype=np.intp)
    known = {tuple(key): at for at, key in enumerate(_rows(there).tolist())}
    positions = np.empty(here[0].size, dtype=np.int64)
    new: list[int] = []
    for at, key in enumerate(_rows(here).tolist()):
        found = known.get(tuple(key))
        if found is None:
            found = size + len(new)
            new.append(at)
        positions[at] = found
    return positions, np.array(new, dtype=np.intp)


def _equal(a: Parameter, b: Parameter) -> bool:
    return a.values.shape == b.values.shape and bool(np.all(a.values == b.values))


def _extended(old: Parameter, one: Parameter, new: NDArray[np.intp]) -> Parameter:
    """A stored axis with the new values behind its own; roles, units and labels as declared now."""
    base = replace(
        old, role=one.role, units=one.units, long_name=one.long_name, weights=one.weights,
        sampled=one.sampled,
    )  # fmt: skip
    if not len(new):
        return base
    tail = one.take(new).values
    if tail.dtype != old.values.dtype:
        values = _joint(one.name, old.values, tail)
    else:
        values = np.concatenate([old.values, tail])
    objects = None if old.objects is None else tuple(values.tolist())
    return replace(base, values=values, objects=objects)


def _joint(name: str, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Stored and new numbers along one axis, in a data type that holds them all exactly."""
    joint = np.promote_types(old.dtype, new.dtype)
    if {old.dtype.kind, new.dtype.kind} == {"i", "u"}:
        joint = np.dtype(np.uint64 if min(old.min(), new.min()) >= 0 else np.int64)
    for values in (old, new):
        for value in values.ravel().tolist():
            exact = isinstance(value, float) or int(np.asarray(value).astype(joint)) == value
            if not exact:
                raise ValueError(
                    f"value {value} of parameter {name!r} is no exact {joint}, which the other "
                    "values along the axis need; use another path"
                )
    return np.concatenate([old.astype(joint), new.astype(joint)])


def _tiny(values: NDArray[np.float64]) -> float:
    """Magnitude up to which a value stands for zero: lost against the next larger ones."""
    sizes = np.unique(np.abs(values[values != 0]))
    return float(sizes[0]) if len(sizes) > 1 and sizes[0] <= 1e-15 * sizes[1] else 0.0


def _check_near(one: Parameter, old: Parameter, new: NDArray[np.intp], path: str) -> None:
    values = one.values[new]
    if values.dtype.kind != "f" and old.values.dtype.kind != "f":
        return
    if one.values.ndim > 1:
        return
    fresh = values.astype(np.float64)
    joint = np.concatenate([old.values.astype(np.float64), fresh])
    pairs = near_misses(joint)
    if (joint == 0).any():
        zeros = joint[(joint != 0) & (np.abs(joint) <= _tiny(joint))]
        pairs += [(0.0, float(tiny)) for tiny in zeros]
    added = set(fresh.tolist())
    for low, high in pairs:
        if low in added or high in added:
            given, kept = (low, high) if low in added else (high, low)
            raise NearMissError(
                f"value {given!r} of parameter {one.name!r} differs from {kept!r}, which {path} "
                f"has, by rounding alone; give {kept!r} itself, or take the stored value with "
                "sk.run(..., snap=True)"
            )


def _snapped(grid: Grid, known: Mapping[str, Parameter]) -> Grid:
    """The grid with values that differ from stored ones by rounding replaced by those."""
    parameters = []
    for one in grid.parameters:
        old = known[one.name]
        alone = sum(other.dim == one.dim for other in grid.parameters) == 1
        if alone and one.values.dtype.kind == "f" and one.values.ndim == 1:
            values = one.values.copy()
            stored = np.sort(old.values.astype(np.float64))
            lost = _tiny(np.concatenate([stored, values]))
            at = np.clip(np.searchsorted(stored, values), 1, max(len(stored) - 1, 1))
            for side in (at - 1, np.minimum(at, len(stored) - 1)):
                near = stored[side]
                close = np.abs(near - values) <= 1e-13 * np.maximum(np.abs(near), np.abs(values))
                tiny = (near == 0) & (np.abs(values) <= lost)
                values[close | tiny] = near[close | tiny]
            values.setflags(write=False)
            one = replace(one, values=values)
        parameters.append(one)
    return replace(grid, parameters=tuple(parameters))


def neutral_parameters(
    was: Mapping[str, Any], declared: Grid, stored: Sequence[Mapping[str, Any]]
) -> dict[str, Parameter]:
    """The one value that finished runs had of each parameter that joined later.

    Replicates may always join: what was run before is replicate 0.
    """
    made = {}
    for name, value in was.items():
        if name not in declared:
            raise ValueError(
                f"was= names {name!r}, which is no parameter of the grid "
                f"({', '.join(declared.names)})"
            )
        one = declared[name]
        values = canonical(name, value)
        if len(values) != 1:
            raise ValueError(f"was= gives {len(values)} values for {name!r}; finished runs had one")
        labels = tuple(values.tolist()) if one.objects is not None else None
        made[name] = replace(one, values=values, objects=labels)
        if made[name].kind != one.kind:
            raise TypeError(f"was= gives a {made[name].kind} for {name!r}, which is a {one.kind}")
    known = {said["name"] for said in stored}
    if REPLICATE in declared and declared[REPLICATE].role == "replicate" and REPLICATE not in known:
        made.setdefault(REPLICATE, declared[REPLICATE].take(np.array([0])))
    return made


def settled_values(
    told: Mapping[str, Parameter],
    given: Mapping[str, Parameter],
    stored: Sequence[Mapping[str, Any]],
    *,
    path: str,
) -> dict[str, Parameter]:
    """What a store was told of values before parameters joined, and what is told now.

    Raises
    ------
    ValueError
        If the two contradict each other: the seeds of finished runs rest on the first.
    """
    known = {said["name"] for said in stored}
    for name, one in given.items():
        old = told.get(name)
        if old is None and name in known:
            raise ValueError(
                f"was= names parameter {name!r}, which {path} has had from the beginning; "
                "leave it out"
            )
        if old is not None and not np.array_equal(old.keys(), one.keys()):
            now, then = one.values[0], old.values[0]
            raise ValueError(
                f"was= gives {now} for parameter {name!r}, but {path} was told {then} when it "
                "joined, and seeds rest on that; leave it out"
            )
    return {**given, **told}


def declared_order(found: Match, declaration: Mapping[str, Any]) -> dict[str, Any]:
    """For each dim the positions on disk in declared order, where it is not the same.

    Values of the store that are not declared any more follow the one that they followed before.
    """
    order: dict[str, Any] = {}
    old = declaration.get("axes", {})
    for dim, positions in found.on_disk.items():
        size = max(one.size for one in found.parameters if one.dim == dim)
        listed = _merged(old.get(dim), positions.tolist(), size)
        if listed != list(range(size)):
            order[dim] = listed
    return order


def _merged(before: list[int] | None, declared: list[int], size: int) -> list[int]:
    if len(declared) == size:
        return declared
    wanted = set(declared)
    earlier = before if before is not None else range(size)
    followers: dict[int | None, list[int]] = {}
    last: int | None = None
    for position in [*earlier, *sorted(set(range(size)) - set(earlier))]:
        if position in wanted:
            last = position
        else:
            followers.setdefault(last, []).append(position)
    merged = list(followers.get(None, []))
    for position in declared:
        merged.append(position)
        merged += followers.get(position, [])
    return merged


def was_to_json(was: Mapping[str, Parameter]) -> dict[str, Any]:
    """The values told when parameters joined, as plain data."""
    return {
        name: {"kind": one.kind, "value": _json_value(one.values[0])}
        for name, one in was.items()
        if one.values.ndim == 1
    }


def _json_value(value: Any) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        return int(value.astype("int64"))
    return value.item() if isinstance(value, np.generic) else value

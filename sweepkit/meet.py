"""A sweep meets its store before the first run: the same, grown, made by other code, or another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.amend import restore
from sweepkit.codes import (
    StaleCodeError,
    changed_objects,
    code_number,
    object_identities,
    stale_codes,
)
from sweepkit.format1 import Layout, was_from_json
from sweepkit.grid import Grid
from sweepkit.identity import Identity
from sweepkit.parameters import Parameter
from sweepkit.plan import Placement, random_order
from sweepkit.protocols import Store, StoreError
from sweepkit.resume import (
    Match,
    declared_order,
    match,
    neutral_parameters,
    settled_values,
    was_to_json,
)
from sweepkit.rewrite import rejoin
from sweepkit.settings import Settings
from sweepkit.status import Status
from sweepkit.sweep import Sweep

__all__ = [
    "Met",
    "check_outputs",
    "check_requirements",
    "check_size",
    "complete",
    "meet",
    "without_stored",
]


@dataclass(frozen=True, eq=False)
class Met:
    """A sweep and the store that it is run into, as they are before the first run.

    Attributes
    ----------
    grid : Grid
        The declared grid, with stored values where it was asked to snap to them.
    placement : Placement
        Where each run lies on disk.
    environment : mapping of str to str
        What runs are made with.
    created : bool
        Whether there is a store.
    codes : sequence of dict
        Versions of the code that runs were made by, with those they are kept beside.
    code : int
        Which of them is that of now.
    objects : mapping
        Identity of the object behind each label, by parameter and label.
    was : mapping of str to Parameter
        The one value that finished runs had of each parameter that joined later.
    pending : int
        Declared points that are to be run, those that a mask leaves out among them.
    repeated : int
        Results that are made again.
    wasted_seconds : float
        What those took.
    settled : mapping of int to int
        Declared runs of earlier sessions that stay as they are, by status.
    """

    grid: Grid
    placement: Placement
    environment: Mapping[str, str]
    created: bool = False
    codes: Sequence[dict[str, Any]] = ()
    code: int = 0
    objects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    was: Mapping[str, Parameter] = field(default_factory=dict)
    pending: int = 0
    repeated: int = 0
    wasted_seconds: float = 0.0
    settled: Mapping[int, int] = field(default_factory=dict)

    def declaration(
        self,
        sweep: Sweep,
        order: Mapping[str, Any],
        sizes: Mapping[str, int],
        made_with: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """What the store says of the sweep."""
        return {
            **sweep.declaration(),
            "order": random_order(sizes),
            "axes": dict(order),
            "codes": list(self.codes),
            "objects": dict(self.objects),
            "was": was_to_json(self.was),
            "environment": self.environment if made_with is None else made_with,
        }


@dataclass(frozen=True, eq=False)
class _Again:
    """Finished runs that are made again: by code version, and by position of relabelled objects."""

    codes: tuple[int, ...]
    labels: Mapping[str, NDArray[np.intp]]


def meet(sweep: Sweep, store: Store, settings: Settings, environment: Mapping[str, str]) -> Met:
    """Make a store ready for a sweep: grown to it, runs that are made again pending on disk.

    Parameters
    ----------
    sweep : Sweep
    store : Store
        Held.
    settings : Settings
    environment : mapping of str to str
        What runs are made with.

    Raises
    ------
    ValueError
        If the store holds another sweep, or its outputs have names of the grid.
    StaleCodeError
        If finished runs were made by other code, and nothing was said about that.
    StoreError
        If the store cannot be read or written.
    """
    if not store.exists():
        return Met(
            sweep.grid,
            Placement.same(sweep.grid.sizes),
            environment,
            codes=[{"identity": sweep.identity.to_json(), "accepted": []}],
            objects=object_identities(sweep.grid),
            was=neutral_parameters(settings.was, sweep.grid, ()),
            pending=sweep.grid.size,
        )
    store.open()
    declaration = store.declaration
    restore(store)  # before anything reads statuses, which may be damaged
    met, found, again = _matched(sweep, store, settings, environment)
    fresh = sweep.declaration()
    if any(declaration[word] != fresh[word] for word in ("masks", "derived")) or any(
        "code" in mask for mask in declaration["masks"]
    ):
        _unskip(store)
    _settle_layout(sweep, store, met, found, declaration)
    met = replace(
        met, placement=Placement.of(met.grid.sizes, store.layout.sizes, found.on_disk), created=True
    )
    check_outputs(met.grid, store.layout)
    if store.layout.outputs:
        check_requirements(sweep, met.grid, store.layout)
    return _reset(store, settings, met, again)


def complete(
    sweep: Sweep, store: Store, settings: Settings, environment: Mapping[str, str]
) -> Met | None:
    """How a sweep lies in a store that cannot be written; None unless it holds all of it."""
    try:
        store.peek()
    except StoreError:
        return None
    layout, declaration = store.layout, store.declaration
    met, found, again = _matched(sweep, store, settings, environment)
    grown = {**layout.sizes, **{one.dim: one.size for one in found.parameters}}
    order = declared_order(found, declaration)
    # Another machine may read it, whose packages are others.
    fresh = met.declaration(sweep, order, grown, declaration["environment"])
    apart = {"codes", "simulator", "setup"}  # judged above; and where code is, is not what it does
    kept = {k: v for k, v in without_stored(declaration).items() if k not in apart}
    fresh = {k: v for k, v in json.loads(json.dumps(fresh)).items() if k not in apart}
    changed = found.joined or found.retyped or found.grows or again.codes or again.labels
    if changed or fresh != kept:
        return None
    placement = Placement.of(met.grid.sizes, layout.sizes, found.on_disk)
    unsettled = [int(one) for one in (Status.PENDING, *settings.rerun)]
    settled: Counter[int] = Counter()
    for block in range(layout.n_blocks):
        box = layout.box(block)
        status = store.read("status", box)
        declared = placement.runs(box).reshape(status.shape) >= 0
        if (declared & np.isin(status, unsettled)).any():
            return None
        settled += _settled(status[declared])
    return replace(met, placement=placement, created=True, settled=settled)


def without_stored(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration without what the layout says of itself."""
    return {name: said for name, said in declaration.items() if name != "stored"}


# --- what they have in common ---


def _matched(
    sweep: Sweep, store: Store, settings: Settings, environment: Mapping[str, str]
) -> tuple[Met, Match, _Again]:
    """How the sweep lies in the store; which of its runs are to be made again."""
    declaration = store.declaration
    was = settled_values(
        was_from_json(declaration),
        neutral_parameters(settings.was, sweep.grid, declaration["parameters"]),
        declaration["parameters"],
        path=store.path,
    )
    stored = store.parameter_values(declaration["parameters"])
    found = match(sweep, stored, declaration, was, path=store.path, snap=settings.snap)
    codes, code, stale = _judged_code(sweep, store, settings, declaration["codes"])
    before = declaration.get("objects", {})
    objects = object_identities(found.grid)
    labels = _judged_objects(store, settings, before, objects, stored)
    met = Met(
        found.grid,
        Placement.same(found.grid.sizes),
        environment,
        codes=codes,
        code=code,
        objects={
            name: {**before.get(name, {}), **objects.get(name, {})} for name in {*before, *objects}
        },
        was=was,
    )
    return met, found, _Again(stale, labels)


def _judged_code(
    sweep: Sweep, store: Store, settings: Settings, codes: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int, tuple[int, ...]]:
    """Code versions, that of now among them, its number, and those whose runs are made again.

    A changed one is asked about first.
    """
    now: Identity = sweep.identity
    codes = [dict(one) for one in codes]
    stale = stale_codes(codes, now)
    rerun: tuple[int, ...] = ()
    asked = stale if settings.stale == "ask" else ()
    made = [changed for number, changed in asked if _any_made_by(store, [number])]
    if made:
        told = "\n".join(f"  - {one}" for one in made[-1])
        raise StaleCodeError(
            f"the code of {sweep.name!r} has changed since runs in {store.path} "
            f"were made:\n{told}\nnothing was deleted; say sk.run(..., stale='keep') to keep "
            "those runs, stale='rerun' to run them again, or use another path"
        )
    if settings.stale == "keep":
        for number, _ in stale:
            kept = codes[number].get("accepted") or []
            codes[number]["accepted"] = [*kept, now.digest]
    elif settings.stale == "rerun":
        told_or_not = [{**one, "accepted": []} for one in codes]
        rerun = tuple(number for number, _ in stale_codes(told_or_not, now))
    known = code_number(codes, now)
    if known is None:
        codes.append({"identity": now.to_json(), "accepted": []})
        known = len(codes) - 1
    return codes, known, rerun


def _judged_objects(
    store: Store,
    settings: Settings,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    stored: Mapping[str, Parameter],
) -> dict[str, NDArray[np.intp]]:
    """Positions on disk, by dim, of labels whose runs are to be made again."""
    positions: dict[str, NDArray[np.intp]] = {}
    for name, label in changed_objects(before, now):
        at = np.flatnonzero(stored[name].values == label)
        if settings.stale == "ask" and _any_finished(store, stored[name].dim, at):
            raise StaleCodeError(
                f"label {label!r} of parameter {name!r} stands for another object than when "
                f"runs in {store.path} were made; nothing was deleted: give the new "
                "object another label, or say sk.run(..., stale='keep') to keep those runs "
                "or stale='rerun' to run them again"
            )
        if settings.stale == "rerun":
            dim = stored[name].dim
            positions[dim] = np.union1d(positions.get(dim, at), at).astype(np.intp)
    return positions


def _any_finished(store: Store, dim: str, positions: NDArray[np.intp]) -> bool:
    layout = store.layout
    axis = layout.dims.index(dim)
    for block in range(layout.n_blocks):
        box = layout.box(block)
        here = np.isin(np.arange(box[axis].start, box[axis].stop), positions)
        status = np.compress(here, store.read("status", box), axis=axis)
        if ((status != Status.PENDING) & (status != Status.SKIPPED)).any():
            return True
    return False


def _any_made_by(store: Store, numbers: Sequence[int]) -> bool:
    layout = store.layout
    for block in range(layout.n_blocks):
        box = layout.box(block)
        finished = store.read("status", box) > 0
        finished &= store.read("status", box) != Status.SKIPPED
        if finished.any() and np.isin(store.read("code", box)[finished], numbers).any():
            return True
    return False


# --- what is done about it ---


def _settle_layout(
    sweep: Sweep, store: Store, met: Met, found: Match, declaration: Mapping[str, Any]
) -> None:
    """Grow the store to the declared grid and write the declaration as it is now."""
    order = declared_order(found, declaration)
    grown = dict(store.layout.sizes)
    for one in found.parameters:
        grown[one.dim] = one.size
    fresh = met.declaration(sweep, order, grown)
    if found.joined or found.retyped:
        rejoin(store, found, met.was, fresh)
    store.relabel(found.parameters, {n: o.attrs for n, o in sweep.outputs.items()})
    if found.grows:
        store.grow(found.parameters, fresh)
    elif without_stored(store.declaration) != json.loads(json.dumps(fresh)):
        store.commit(fresh)


def _unskip(store: Store) -> None:
    """Set what masks of before left out to pending, on disk, before those of now are told.

    So no interruption, and no session that declares a part, leaves a point to an old mask.
    """
    layout = store.layout
    for block in range(layout.n_blocks):
        box = layout.box(block)
        status = store.read("status", box)
        skipped = status == Status.SKIPPED
        if skipped.any():
            status[skipped] = Status.PENDING
            store.write("status", box, status)


def _reset(store: Store, settings: Settings, met: Met, redone: _Again) -> Met:
    """Set runs that are to be tried again back to pending, on disk, and count what is."""
    layout = store.layout
    pending, repeated, wasted = 0, 0, 0.0
    settled: Counter[int] = Counter()
    for block in range(layout.n_blocks):
        box = layout.box(block)
        status = store.read("status", box)
        declared = met.placement.runs(box).reshape(status.shape) >= 0
        again = declared & np.isin(status, [int(one) for one in settings.rerun])
        finished = (status != Status.PENDING) & (status != Status.SKIPPED)
        if redone.codes:
            again |= declared & finished & np.isin(store.read("code", box), redone.codes)
        for dim, positions in redone.labels.items():
            axis = layout.dims.index(dim)
            here = np.isin(np.arange(box[axis].start, box[axis].stop), positions)
            shape = [-1 if at == axis else 1 for at in range(status.ndim)]
            again |= declared & finished & here.reshape(shape)
        if again.any():
            done = again & (status == Status.DONE)
            if done.any():
                repeated += int(done.sum())
                wasted += float(np.nansum(store.read("duration", box)[done]))
            status = np.where(again, np.int8(Status.PENDING), status).astype(np.int8)
            store.write("status", box, status)
        pending += int(((status == Status.PENDING) & declared).sum())
        settled += _settled(status[declared])
    return replace(met, pending=pending, repeated=repeated, wasted_seconds=wasted, settled=settled)


def _settled(status: NDArray[np.int8]) -> Counter[int]:
    """How many runs came to an end, by status."""
    counts = np.bincount(status.ravel(), minlength=len(Status))
    left_out = (Status.PENDING, Status.SKIPPED)
    return Counter({int(one): int(counts[one]) for one in Status if one not in left_out})


# --- what may be declared ---


def check_size(grid: Grid, most: int) -> None:
    """Refuse a grid of more points than are allowed."""
    if grid.size <= most:
        return
    longest = sorted(grid.sizes.items(), key=lambda item: -item[1])[:3]
    axes = ", ".join(f"{dim} ({n:,})" for dim, n in longest)
    raise ValueError(
        f"the grid has {grid.size:,} points, more than max_runs={most:,}; its longest axes are "
        f"{axes}; shorten them, sample with sk.latin_hypercube, or allow it with "
        f"max_runs={grid.size}"
    )


def check_outputs(grid: Grid, layout: Layout) -> None:
    """Refuse variables named as a parameter or a dim of the grid."""
    taken = {*grid.names, *grid.dims, *(name for name, _ in grid.derived)}
    taken |= {dim for one in grid.parameters for dim in one.dims}
    for variable in layout.variables.values():
        for clash in {variable.name, *variable.dims} & taken:
            raise ValueError(
                f"output {variable.name!r} has a name or dim, {clash!r}, of a parameter or "
                "dim of the grid; rename one"
            )


def check_requirements(sweep: Sweep, grid: Grid, layout: Layout) -> None:
    """Refuse requirements on what is no output and no scalar of the grid."""
    names = [variable.name for variable in layout.outputs] + list(grid.scalars)
    dims = {dim for variable in layout.outputs for dim in variable.dims}
    for one in sweep.requirements:
        one.check(names, dims=dims | set(grid.dims), run_dims=grid.dims)

"""Further points of a sweep as stages of its store: groups beside the grid, each along one dim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.codes import StaleCodeError, stale_codes
from sweepkit.flat import check_names
from sweepkit.format1 import Layout, was_from_json
from sweepkit.grid import REPLICATE, Grid, axis_keys
from sweepkit.outputs import Output
from sweepkit.parameters import Parameter
from sweepkit.protocols import Executor, StoreError
from sweepkit.resume import match, neutral_parameters, settled_values, was_to_json
from sweepkit.rewrite import copied
from sweepkit.root import lost_root
from sweepkit.run import Session
from sweepkit.settings import Settings
from sweepkit.status import Progress, Status
from sweepkit.stores.zarr import STAGES, ZarrStore
from sweepkit.streams import run_keys
from sweepkit.sweep import Sweep

__all__ = ["listed", "refine"]


@dataclass(frozen=True)
class Whole:
    """The store that is refined, as far as its stages rest on it.

    Attributes
    ----------
    grid : Grid
        The axes on disk, in order of arrival.
    was : mapping
        The one value that finished runs had of each parameter that joined later.
    layout : Layout
        Of the grid's runs.
    """

    grid: Grid
    was: Mapping[str, Parameter]
    layout: Layout


def refine(
    sweep: Sweep,
    store: ZarrStore,
    points: Grid | None,
    executor: Executor,
    settings: Settings,
    report: Callable[[Progress], None],
) -> None:
    """Run points into a store as a stage; those of an earlier stage are resumed there.

    Parameters
    ----------
    sweep : Sweep
        What the store holds.
    store : ZarrStore
    points : Grid or None
        The points along one dim, crossed with replicates or not; without, what is pending in the
        stages there are. Points that the grid or an earlier stage has are not run anew.
    executor, settings, report
        As of a Session.

    Raises
    ------
    ValueError
        If the points lack a parameter of the sweep, or have others.
    StoreError
        If there is no store to refine, or another process writes to it.
    """
    wanted = None if points is None else listed(points, sweep.grid)
    with store.hold():
        if not store.exists():
            raise StoreError(
                f"{store.path} holds no sweep to refine; run its grid first: sk.run(sweep, "
                f"{store.path!r})"
            )
        store.open()
        whole = _whole(sweep, store, settings)
        left = settings.request
        for number, grid in _stages(sweep, store, whole, wanted):
            if settings.request is not None and left is None:
                return  # the same call goes on with the stages that are left
            stage = replace(sweep, grid=grid, outputs=_outputs(sweep, whole.layout))
            was = {**_first_replicate(grid), **{n: p.values[0] for n, p in whole.was.items()}}
            own = replace(settings, was=was, request=left)
            session = Session(stage, store.stage(number), executor, own, report)
            session.run()
            if left is not None:
                left = left.after(session.course.meter.seconds, session.course.meter.core_seconds)


def listed(points: Grid, grid: Grid) -> Grid:
    """Points along one dim, replicates unrolled, as points of a sweep over a grid.

    Parameters
    ----------
    points : Grid
        Of the same parameters; all but replicates along one dim.
    grid : Grid
        Of the sweep: its roles, units, labels, masks and derived coordinates hold for the points.

    Raises
    ------
    ValueError
        If a parameter is missing, is none of the sweep, or points are crossed.
    """
    lacking = [name for name in grid.names if name not in points]
    other = [name for name in points.names if name not in grid]
    if lacking or other:
        said = [f"lack parameter {name!r}" for name in lacking]
        said += [f"have a parameter {name!r} that the sweep has not" for name in other]
        raise ValueError(
            f"the points {' and '.join(said)}; a refinement has the parameters of its sweep "
            f"({', '.join(grid.names)})"
        )
    dims = {one.dim for one in points.parameters if grid[one.name].role != "replicate"}
    if len(dims) > 1:
        raise ValueError(
            f"the points are crossed, along {', '.join(sorted(dims))}; give a list of points along "
            "one dim, as sk.paired makes it (more values on an axis are run by sk.run)"
        )
    index = points.index(np.arange(points.size))
    made = []
    for one in grid.parameters:
        given = points[one.name]
        if given.values.shape[1:] != one.values.shape[1:]:
            raise ValueError(
                f"values of parameter {one.name!r} have shape {given.values.shape[1:]} in the "
                f"points, in the sweep {one.values.shape[1:]}"
            )
        values = given.values[index[given.dim]]
        values.setflags(write=False)
        labels = _objects(one, given, values)
        inner = one.dims[1:]
        placed = replace(one, values=values, dims=("point", *inner), objects=labels, weights=None)
        if placed.kind != one.kind:
            raise ValueError(
                f"parameter {one.name!r} is a {placed.kind} in the points, in the sweep a "
                f"{one.kind}"
            )
        made.append(placed)
    return Grid(tuple(made), grid.masks, grid.derived)


def _objects(one: Parameter, given: Parameter, values: NDArray[Any]) -> tuple[Any, ...] | None:
    """What the labels of points stand for, as the sweep has it."""
    if one.objects is None:
        return None
    known = dict(zip(one.values.tolist(), one.objects, strict=True))
    if given.objects is not None:
        known = {**dict(zip(given.values.tolist(), given.objects, strict=True)), **known}
    for label in values.tolist():
        if label not in known:
            raise ValueError(
                f"label {label!r} of parameter {one.name!r} stands for no object of the sweep "
                f"({', '.join(map(repr, known))})"
            )
    return tuple(known[label] for label in values.tolist())


def _whole(sweep: Sweep, store: ZarrStore, settings: Settings) -> Whole:
    """The store, once it is known to hold this sweep by this code."""
    declaration = store.declaration
    if STAGES in {*store.layout.variables, *(p["name"] for p in declaration["parameters"])}:
        raise StoreError(
            f"{store.path} has a variable {STAGES!r}, where refinements would go; rename it"
        )
    stored = store.parameter_values(declaration["parameters"])
    named = {str(one["name"]) for one in declaration["parameters"]}
    named |= {*store.layout.variables, *declaration.get("derived", ())}
    check_names(store.path, named)
    was = settled_values(
        was_from_json(declaration),
        neutral_parameters({}, sweep.grid, declaration["parameters"]),
        declaration["parameters"],
        path=store.path,
    )
    found = match(sweep, stored, declaration, was, path=store.path, snap=settings.snap)
    if found.joined:
        raise ValueError(
            f"parameter {found.joined[0]!r} is not in {store.path} yet; run the grid first: "
            f"sk.run(sweep, {store.path!r})"
        )
    stale = stale_codes(declaration["codes"], sweep.identity)
    if stale and settings.stale == "ask" and _made_by(store, [number for number, _ in stale]):
        told = "\n".join(f"  - {one}" for one in stale[-1][1])
        raise StaleCodeError(
            f"the code of {sweep.name!r} has changed since the runs in {store.path} were made:\n"
            f"{told}\nrefined runs would not be of one kind with them; run the grid first with "
            "sk.run(..., stale='rerun') or stale='keep', or say stale='keep' here"
        )
    return Whole(Grid(tuple(stored.values())), was, store.layout)


def _made_by(store: ZarrStore, codes: Sequence[int]) -> bool:
    """Whether a finished run was made by one of some code versions."""
    for block in range(store.layout.n_blocks):
        box = store.layout.box(block)
        status = store.read("status", box)
        finished = (status != Status.PENDING) & (status != Status.SKIPPED)
        if finished.any() and np.isin(store.read("code", box)[finished], codes).any():
            return True
    return False


def _stages(
    sweep: Sweep, store: ZarrStore, whole: Whole, wanted: Grid | None
) -> Iterator[tuple[int, Grid]]:
    """Stages to be run, each with its points: those that have some of what is wanted, and a new
    one for the rest."""
    keys = [] if wanted is None else _keys(wanted, whole.was)
    new = np.zeros(0, dtype=bool) if wanted is None else ~_on_axes(wanted, whole.grid)
    numbers = store.stages
    for number in numbers:
        stage = store.stage(number)
        stage.exists()
        stage.open()
        stored = stage.parameter_values(stage.declaration["parameters"])
        known = set(_keys(Grid(tuple(stored.values())), whole.was))
        there = np.array([key in known for key in keys], dtype=bool)
        new &= ~there
        if wanted is None or there.any():
            joined = set(sweep.grid.names) - set(stored)
            if joined:  # it was made before they joined the grid
                _join(stage, stored, {name: whole.was[name] for name in joined}, sweep.grid)
                stored = stage.parameter_values(stage.declaration["parameters"])
            yield number, _as_declared(sweep.grid, stored)
    if wanted is not None and new.any():
        number = max(numbers, default=0) + 1
        while lost_root(store.stage(number).root, None):  # what is left of one that is lost
            number += 1
        taken = [one.take(np.flatnonzero(new)) for one in wanted.parameters]
        along = [replace(one, dims=(f"point_{number}", *one.dims[1:])) for one in taken]
        yield number, replace(wanted, parameters=tuple(along))


def _join(
    stage: ZarrStore,
    stored: Mapping[str, Parameter],
    was: Mapping[str, Parameter],
    grid: Grid,
) -> None:
    """Give the points of a stage the one value that they had of parameters that joined later."""
    dims = (next(iter(stored.values())).dim,)
    told = stage.declaration
    kept = {said["name"]: said for said in told["parameters"]}
    axes, said = [], []
    for one in grid.parameters:
        if one.name in stored:
            axes.append(stored[one.name])
            said.append(kept[one.name])
            continue
        size = next(iter(stored.values())).size
        values = np.repeat(was[one.name].values, size, axis=0)
        objects = tuple(values.tolist()) if one.objects is not None else None
        values = values.astype(one.values.dtype)
        made = replace(one, values=values, dims=(*dims, *one.dims[1:]), objects=objects)
        axes.append(replace(made, weights=None))
        said.append({"name": one.name, "dims": list(made.dims), "kind": made.kind, **one.attrs})
    earlier = {**told.get("was", {}), **was_to_json(was)}
    declaration = {name: one for name, one in told.items() if name != "stored"}
    copied(stage, axes, {**declaration, "parameters": said, "was": earlier})


def _as_declared(grid: Grid, stored: Mapping[str, Parameter]) -> Grid:
    """A stage's points with the roles, units and labels that the sweep declares now."""
    made = []
    for one in grid.parameters:
        old = stored[one.name]
        objects = _objects(one, replace(old, objects=None), old.values)
        made.append(
            replace(old, role=one.role, units=one.units, long_name=one.long_name, objects=objects)
        )
    return Grid(tuple(made), grid.masks, grid.derived)


def _keys(grid: Grid, was: Mapping[str, Parameter]) -> list[tuple[int, int]]:
    """Key of each point, the same as of the same point of any other grid of the sweep."""
    keys = run_keys(grid, grid.index(np.arange(grid.size)), was=was)
    return list(map(tuple, keys.tolist()))


def _on_axes(points: Grid, grid: Grid) -> NDArray[np.bool_]:
    """Which points are points of a grid."""
    on = np.ones(points.size, dtype=bool)
    for dim in grid.dims:
        names = [one.name for one in grid.parameters if one.dim == dim]
        given = np.zeros((points.size, 2), dtype=np.uint64)
        for name in names:
            given += points[name].keys()
        known = set(map(tuple, axis_keys(grid, dim).tolist()))
        on &= np.array([tuple(key) in known for key in given.tolist()], dtype=bool)
    return on


def _first_replicate(grid: Grid) -> dict[str, Any]:
    """The replicate that takes no part in a key: not the first of the points, but number 0."""
    numbered = REPLICATE in grid and grid[REPLICATE].role == "replicate"
    return {REPLICATE: 0} if numbered else {}


def _outputs(sweep: Sweep, layout: Layout) -> dict[str, Output]:
    """The outputs as the grid's runs gave them, so that all stages have the same dims."""
    known = dict(sweep.outputs)
    for one in layout.outputs:
        if "derived" not in one.attrs:
            coords = {dim: layout.coords[dim] for dim in one.dims if dim in layout.coords}
            known[one.name] = replace(
                known.get(one.name, Output()),
                dims=one.dims,
                size=one.shape,
                pad=one.pad,
                coords=coords,
            )
    return known

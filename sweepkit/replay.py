"""One run again, here and in the open: same arguments, same random numbers, nothing caught."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sweepkit import html
from sweepkit.batchwise import arrays_of, only_run
from sweepkit.casts import Misfit
from sweepkit.columns import Collector
from sweepkit.evaluate import Task
from sweepkit.format1 import KEEPING
from sweepkit.grid import Grid
from sweepkit.inputs import staged
from sweepkit.parameters import Parameter
from sweepkit.setup import prepared
from sweepkit.simulator import uses_global_random
from sweepkit.status import NAMES, Status
from sweepkit.streams import seeds
from sweepkit.sweep import Sweep
from sweepkit.vectorized import Vectorized

__all__ = ["Replay", "point_grid", "rerun"]


@dataclass(frozen=True, eq=False)
class Replay:
    """What a run returned when it was executed again, beside what is stored of it.

    Attributes
    ----------
    point : mapping
        The values of the run's parameters.
    seed : int
        What a simulator that asks for ``seed`` got; ``rng`` follows from the same point.
    outputs : Dataset
        What the simulator returned, without run dims.
    result : object
        The same as the simulator handed it over.
    differs : tuple of str
        Sentences on what is not as stored, bit for bit; empty where all is.
    reproduced : bool or None
        Whether all outputs are as stored; None where nothing is.
    code : str
        Whether the code is the one that made the stored run.
    seconds : float
        How long it took, in s.
    """

    point: Mapping[str, Any]
    seed: int
    outputs: xr.Dataset
    result: Any = field(repr=False)
    differs: tuple[str, ...]
    reproduced: bool | None
    code: str
    seconds: float

    @property
    def verdict(self) -> str:
        """In words whether it reproduces."""
        if self.reproduced is None:
            return self.differs[0] if self.differs else "nothing is stored to compare with"
        return "as stored, bit for bit" if self.reproduced else "not as stored"

    def __repr__(self) -> str:
        at = ", ".join(f"{name}={value}" for name, value in self.point.items())
        lines = [f"<sweepkit.Replay {at}: {self.verdict}>", f"  {self.code}", *self.differs]
        lines += [f"  {name}: {_short(one.values)}" for name, one in self.outputs.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        good = {True: "pass", False: "fail", None: "pending"}[self.reproduced]
        rows = [
            (name, _short(one.values), one.attrs.get("units", ""))
            for name, one in self.outputs.items()
        ]
        differing = html.table(("What differs",), [(one,) for one in self.differs])
        return html.box(
            "sweepkit.Replay",
            *([differing] if self.differs and self.reproduced is False else []),
            html.section("Outputs", html.table(("Name", "Value", "Units"), rows), unfolded=True),
            html.section(
                "Parameters",
                html.table(("Name", "Value"), [(n, _short(v)) for n, v in self.point.items()]),
                about=f"({len(self.point)})",
            ),
            html.note(f"{self.code}; seed {self.seed}; {self.seconds:.3g} s"),
            about=html.mark(good, self.verdict),
            text=repr(self),
        )


def _short(value: Any) -> str:
    array = np.asarray(value)
    if array.ndim == 0:
        return str(array[()])
    shape = " x ".join(map(str, array.shape))
    return f"{shape} {array.dtype}: {np.array2string(array.ravel()[:4], separator=', ')[:-1]}, ..."


def point_grid(grid: Grid, values: Mapping[str, Any]) -> Grid:
    """A grid of the one point with these values, which need not be one of the grid's.

    Raises
    ------
    ValueError
        If a parameter is missing, is none of the grid, or a label stands for no object.
    """
    lacking = [p.name for p in grid.parameters if p.name not in values and p.size > 1]
    other = [name for name in values if name not in grid]
    if lacking or other:
        said = [f"lacks {', '.join(map(repr, lacking))}"] if lacking else []
        said += [f"has {', '.join(map(repr, other))}, none of the sweep's"] if other else []
        raise ValueError(
            f"the run {' and '.join(said)}; the sweep's parameters are "
            f"{', '.join(map(repr, grid.names))}"
        )
    made = tuple(_only(p, values.get(p.name, p.values[0])) for p in grid.parameters)
    return Grid(made, derived=grid.derived)


def _only(p: Parameter, value: Any) -> Parameter:
    given = np.asarray(value)
    if p.values.dtype == object:
        single: NDArray[Any] = np.empty(1, dtype=object)
        single[0] = given.item() if given.ndim == 0 else value
    else:
        single = given.astype(p.values.dtype)[np.newaxis]
        if not np.array_equal(single[0], given):
            raise ValueError(
                f"{p.name}={value!r} cannot be a value of the sweep's {p.kind} parameter exactly"
            )
    if p.objects is None:
        return replace(p, values=single)
    at = np.flatnonzero(p.values == single[0])
    if not len(at):
        raise ValueError(
            f"label {single[0]!r} of parameter {p.name!r} stands for no object in this sweep; its "
            f"labels are {', '.join(map(repr, p.values.tolist()))}"
        )
    return replace(p, values=single, objects=(p.objects[int(at[0])],))


def rerun(
    sweep: Sweep,
    values: Mapping[str, Any],
    stored: xr.Dataset | None,
    *,
    was: Mapping[str, Parameter],
    code: str,
    entropy: int | None = None,
    streams: str | None = None,
) -> Replay:
    """Execute one run in this process and compare it with what is stored.

    Whatever the simulator raises comes through, with its traceback; prints go where prints go.

    Parameters
    ----------
    sweep : Sweep
    values : mapping
        Of all parameters with several values.
    stored : Dataset, optional
        The run as it is stored, without run dims.
    was : mapping
        As the store tells, so that the random numbers are those of the stored run.
    code : str
        What is known of the code that made it.
    entropy, streams : optional
        As the store tells; by default the sweep's.
    """
    grid = point_grid(sweep.grid, values)
    drawn = sweep.entropy if entropy is None else entropy
    kind = sweep.streams if streams is None else streams
    together = isinstance(sweep.simulator, Vectorized)
    index = {dim: np.zeros(1, dtype=np.intp) for dim in grid.sizes}
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(sweep.threads))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sweepkit-replay-"))
        task = Task(sweep.simulator, sweep.call, grid, sweep.outputs, drawn, kind, was)
        task = replace(task, artefacts=os.path.join(folder, "artefacts"))
        keys = task.keys(index)
        seed = next(seeds(keys, drawn))
        inputs = stack.enter_context(staged(sweep.inputs, os.path.join(folder, "inputs")))
        handed = stack.enter_context(prepared(inputs, sweep.setup))
        if together:
            given = tuple(arrays_of(task, index, keys, handed))
        else:
            arguments = task.arguments(index, keys, folder, handed)
            given = next(arguments)
        if uses_global_random(sweep.simulator):
            import random

            np.random.seed(seed)
            random.seed(seed)
        named = dict(zip(sweep.call.keyword, given[len(sweep.call.positional) :], strict=True))
        started = perf_counter()
        result = sweep.simulator(*given[: len(sweep.call.positional)], **named)
        seconds = perf_counter() - started
    outputs = _outputs(sweep, result, stored, together=together)
    differs, reproduced = _compared(outputs, stored)
    point = {p.name: p.values[0] for p in grid.parameters}
    return Replay(point, seed, outputs, result, differs, reproduced, code, seconds)


def _outputs(sweep: Sweep, result: Any, stored: xr.Dataset | None, *, together: bool) -> xr.Dataset:
    """What a run returned as the store would take it.

    Raises
    ------
    ValueError
        If it cannot be stored; the message names both sides.
    """
    if together:
        try:
            result = only_run(result, sweep.outputs)
        except Misfit as misfit:
            raise ValueError(f"the run returned what cannot be stored: {misfit}") from None
    collector = Collector(sweep.outputs)
    collector.take(0, result)
    if 0 in collector.misfits:
        raise ValueError(f"the run returned what cannot be stored: {collector.misfits[0]}")
    taken: dict[str, Any] = {}
    for name, columns in collector.columns(1).items():
        one = columns[0]
        values = one.values[0]
        if one.pad is not None and one.lengths is not None:  # as returned, without the padding
            reach = [slice(None)] * len(one.dims)
            reach[one.dims.index(one.pad)] = slice(int(one.lengths[0]))
            values = values[tuple(reach)]
        if one.dtype.startswith(("datetime64", "timedelta64")):
            values = np.asarray(values).astype(one.dtype)
        said = stored[name].attrs if stored is not None and name in stored else {}
        taken[name] = (one.dims, values, {**said, **one.attrs})
    return xr.Dataset(taken)


def _compared(
    outputs: xr.Dataset, stored: xr.Dataset | None
) -> tuple[tuple[str, ...], bool | None]:
    """What is not as stored, and whether all is."""
    if stored is None:
        return (), None
    status = int(stored["status"]) if "status" in stored else int(Status.DONE)
    if status in (Status.PENDING, Status.SKIPPED):
        return (f"the stored run is {NAMES[status]}, so there is nothing to compare with",), None
    if status != Status.DONE:
        why = str(stored["error"].values) if "error" in stored else ""
        return (f"the stored run ended as {NAMES[status]}: {why}; here it returned",), False
    differs = []
    kept = {variable.name for variable in KEEPING}
    lengths = {str(one.attrs["length"]) for one in stored.values() if "length" in one.attrs}
    derived = {str(n) for n, one in stored.items() if "derived" in one.attrs}
    expected = [str(n) for n in stored if n not in kept | lengths | derived]
    for name in expected:
        if name not in outputs:
            differs.append(f"{name}: stored, and not returned here")
    for name in map(str, outputs):
        if name not in stored:
            differs.append(f"{name}: returned here, and not stored")
            continue
        said = _difference(name, outputs[name].values, stored)
        if said:
            differs.append(said)
    return tuple(differs), not differs


def _difference(name: str, here: NDArray[Any], stored: xr.Dataset) -> str:
    """How a value differs from the stored one; empty where it does not."""
    there = np.asarray(stored[name].values)
    length = stored[name].attrs.get("length")
    if length in stored and here.ndim == there.ndim:
        axis = [d for d in range(here.ndim) if here.shape[d] != there.shape[d]] or [0]
        there = there.take(np.arange(int(stored[str(length)])), axis=axis[0])
    if here.shape != there.shape:
        return f"{name}: shape {here.shape} here, {there.shape} stored"
    if here.dtype.kind in "biuf" and there.dtype.kind in "biuf":
        mine, theirs = np.asarray(here, there.dtype), there
        same = (mine == theirs) & (np.signbit(mine) == np.signbit(theirs))
        if there.dtype.kind == "f":
            same |= np.isnan(mine) & np.isnan(theirs)
    elif here.dtype.kind == "c":
        same = (here == there) | (np.isnan(here) & np.isnan(there))
    else:
        same = np.asarray(here == there) | (_missing(here) & _missing(there))
    if bool(np.all(same)):
        return ""
    if here.ndim == 0:
        return f"{name}: {here[()]!s} here, {there[()]!s} stored"
    first = tuple(int(i) for i in np.argwhere(~same)[0])
    at = ", ".join(map(str, first))
    return (
        f"{name}: {int((~same).sum()):,} of {same.size:,} entries, first at [{at}]: "
        f"{here[first]!s} here, {there[first]!s} stored"
    )


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnat(values) if values.dtype.kind in "mM" else np.zeros(values.shape, dtype=bool)

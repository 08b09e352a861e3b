"""A sweep: simulator, grid and requirements, declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweepkit.cost import Declared, checked_cost
from sweepkit.expressions import Expression
from sweepkit.format1 import RESERVED
from sweepkit.grid import Grid, grid
from sweepkit.html import box, code, note, section
from sweepkit.html import table as html_table
from sweepkit.identity import Identity, identify
from sweepkit.outputs import Output, name_fault
from sweepkit.requirements import collect
from sweepkit.simulator import Call, call_of, simulator_name, uses_global_random
from sweepkit.streams import STREAMS

__all__ = ["Sweep"]


@dataclass(frozen=True, eq=False)
class Sweep:
    """A simulator, the grid of its inputs, and what is required of its outputs.

    Parameters
    ----------
    simulator : callable
        A function of the parameters by name. If it has arguments ``rng`` (numpy Generator),
        ``seed`` (int, 32 bits) or ``scratch`` (path of a folder of its own, removed afterwards)
        that are no parameters, they are handed over. It returns a dict of outputs, a dataclass,
        a namedtuple, a DataArray, a Dataset, or one value (named ``result``).
    grid : Grid, mapping or xarray coordinates
        What varies; see :func:`sweepkit.grid`.
    outputs : mapping of str to Output, optional
        What is known of outputs; the rest is learnt from the first run.
    requirements : sequence of str, Requirement or callable
        Comparisons on outputs, as in ``"steps >= 500"``.
    entropy : int
        Chosen once for a sweep: other entropy, other random numbers.
    streams : {"independent", "common"}
        With "common" the same scenario and replicate draw the same numbers whatever the design.
    threads : int
        Threads that linear algebra may use within one run; results can differ in their last bits
        between one and two.
    version : str, optional
        Stands for the simulator's code: as long as it stays, the code counts as unchanged.
    name : str, optional
        For people; the simulator's name by default.
    cost : float or callable, optional
        Seconds that a run takes: a number, or a function of parameters by name. What is not said
        is learnt; it decides the order of the runs and no result.

    Raises
    ------
    TypeError, ValueError
        If the simulator and the grid do not fit, a name clashes, or a requirement does not parse.

    Examples
    --------
    >>> import sweepkit as sk
    >>> def fall(height, gravity):
    ...     return {"time": (2 * height / gravity) ** 0.5}
    >>> sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[1.62, 9.81]), requirements=["time < 1"])
    <sweepkit.Sweep 'fall': 4 runs (height: 2 x gravity: 2), 1 requirement>
    """

    simulator: Callable[..., Any]
    grid: Grid
    outputs: Mapping[str, Output] = field(default_factory=dict, kw_only=True)
    requirements: Sequence[Any] = field(default=(), kw_only=True)
    entropy: int = field(default=0, kw_only=True)
    streams: str = field(default="independent", kw_only=True)
    threads: int = field(default=1, kw_only=True)
    version: str | None = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    cost: Declared | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        def settle(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        declared: Any = self.grid
        settle("grid", declared if isinstance(declared, Grid) else grid(declared))
        settle("name", _text("name", self.name) or simulator_name(self.simulator))
        settle("requirements", collect(self.requirements))
        settle("outputs", _mapping(self.outputs))
        self._check_names()
        if self.streams not in STREAMS:
            raise ValueError(f"streams {self.streams!r} is none of {', '.join(STREAMS)}")
        for word, number, least in (("entropy", self.entropy, 0), ("threads", self.threads, 1)):
            whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
            if not whole or number < least:
                raise ValueError(f"{word} is {number!r}; give a whole number of at least {least}")
            settle(word, int(number))
        _text("version", self.version or "")
        settle("call", call_of(self.simulator, self.grid))
        settle("cost", checked_cost(self.cost, self.grid))

    call: Call = field(init=False, repr=False)

    def _check_names(self) -> None:
        taken = {*self.grid.names, *self.grid.dims, *(n for n, _ in self.grid.derived)}
        taken |= {dim for one in self.grid.parameters for dim in one.dims}
        for one in sorted(taken & RESERVED):
            raise ValueError(
                f"{one!r} is the name of a variable of the store; rename the parameter or dim"
            )
        sizes: dict[str, tuple[str, int]] = {}
        for name, said in self.outputs.items():
            wrong = name_fault(name)
            if wrong is not None:
                raise ValueError(wrong)
            if not isinstance(said, Output):
                raise TypeError(
                    f"output {name!r} is declared by {said!r}; use sk.output(dims=..., size=...)"
                )
            own = {name, f"{name}_length"} if said.pad else {name}
            for clash in (own & taken) | (set(said.dims or ()) & taken):
                raise ValueError(
                    f"output {name!r} has a name or dim, {clash!r}, of a parameter or dim of the "
                    "grid; rename one"
                )
            for dim in said.dims or ():
                if dim in own or dim in self.outputs:
                    raise ValueError(
                        f"output {name!r} has a dim {dim!r}, which is also the name of an output; "
                        "rename one"
                    )
            for dim, size in zip(said.dims or (), said.size or (), strict=False):
                other, known = sizes.setdefault(dim, (name, size))
                if known != size:
                    raise ValueError(
                        f"dim {dim!r} has {size} entries in output {name!r} and {known} in "
                        f"{other!r}; give one of them a dim of its own"
                    )
            if f"{name}_length" in self.outputs and said.pad:
                raise ValueError(
                    f"output '{name}_length' has the name kept for the lengths of {name!r}; "
                    "rename it"
                )

    @property
    def identity(self) -> Identity:
        """What the simulator's code computes now, as a digest by parts; read anew each time."""
        return identify(self.simulator, version=self.version)

    @property
    def random(self) -> bool:
        """Whether runs draw random numbers that we know of: ``rng``, ``seed``, global ones."""
        return bool({"rng", "seed"} & self.call.injected) or uses_global_random(self.simulator)

    def declaration(self) -> dict[str, Any]:
        """The sweep as plain data, without the values along its dims and without code."""
        return {
            "name": self.name,
            "parameters": [
                {"name": p.name, "dims": list(p.dims), "kind": p.kind, **p.attrs}
                for p in self.grid.parameters
            ],
            "dims": self.grid.sizes,
            "masks": [
                {"text": m.text}
                if isinstance(m, Expression)
                else {"code": getattr(m, "__name__", repr(m))}
                for m in self.grid.masks
            ],
            "derived": {name: expression.text for name, expression in self.grid.derived},
            "outputs": {name: said.to_json() for name, said in self.outputs.items()},
            "requirements": [one.to_json() for one in self.requirements],
            "entropy": self.entropy,
            "streams": self.streams,
            "threads": self.threads,
            "version": self.version,
            "random": self.random,
        }

    def __repr__(self) -> str:
        count = len(self.requirements)
        plural = "" if count == 1 else "s"
        return f"<sweepkit.Sweep {self.name!r}: {self.grid._count()}, {count} requirement{plural}>"

    def _repr_html_(self) -> str:
        wanted = "\n".join(one.text for one in self.requirements)
        outputs = [
            (name, ", ".join(said.dims or ()) or "", said.units or "", said.long_name or "")
            for name, said in self.outputs.items()
        ]
        random = f"{self.streams}, entropy {self.entropy}" if self.random else "none drawn"
        said = [("random streams", random), ("threads in a run", self.threads)]
        said += [("version", self.version)] if self.version else []
        parameters = self.grid.parameters
        return box(
            "sweepkit.Sweep",
            section(
                "Requirements",
                code(wanted) if wanted else note("none, so no run passes or fails"),
                about=f"({len(self.requirements)})",
                unfolded=True,
            ),
            section(
                "Parameters", self.grid._parameters(), about=f"({len(parameters)})", unfolded=True
            ),
            section(
                "Outputs",
                html_table(("Name", "Dims", "Units", "What it is"), outputs)
                if outputs
                else note("learnt from the first run"),
                about=f"({len(outputs)} declared)",
            ),
            section("Settings", html_table(("", ""), said)),
            about=f"{self.name}: {self.grid._count()}",
            text=repr(self),
        )


def _text(word: str, given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{word} of the sweep is {given!r}; give a string")
    return given


def _mapping(outputs: object) -> dict[Any, Any]:
    if not isinstance(outputs, Mapping):
        raise TypeError(
            f"outputs are {outputs!r}; give a mapping from names, as in "
            "{'angle': sk.output(dims='time')}"
        )
    return dict(outputs)

"""A sweep: simulator, grid and requirements, declared."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweepkit.command import Command
from sweepkit.crossing import grid
from sweepkit.declared import Declared, checked_cost
from sweepkit.expressions import Expression
from sweepkit.grid import Grid
from sweepkit.html import box, code, note, section
from sweepkit.html import table as html_table
from sweepkit.identity import Identity, identify
from sweepkit.inputs import described, digests, settled
from sweepkit.outputs import Output, name_fault
from sweepkit.references import reference_of
from sweepkit.request import Request
from sweepkit.requirements import collect
from sweepkit.setup import settled_setup
from sweepkit.simulator import INJECTED, Call, call_of, simulator_name, uses_global_random
from sweepkit.streams import STREAMS
from sweepkit.vectorized import Vectorized

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
        a namedtuple, a DataArray, a Dataset, or one value (named ``result``). Coordinates of a
        result's own dims are kept with it, once for all runs; scalar and 2-D ones are not: return
        them as outputs.
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
    inputs : mapping of str to path or object, optional
        What all runs share, handed over by name: a path (str or path) of a file or folder as the
        path of a read-only copy of it, anything else as it is, arrays read-only. It goes to each
        worker once and counts by its content: with another, finished runs are stale.
    setup : mapping of str to callable, optional
        What each worker sets up once before its first run, as in ``{"model": load_model}``: the
        function may take inputs by name, and what it returns is handed to runs by the name given;
        a context manager is entered for it and left when the worker ends, unless that is killed.
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
    inputs: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    setup: Mapping[str, Callable[..., Any]] = field(default_factory=dict, kw_only=True)
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
        settle("inputs", settled(self.inputs))
        settle("setup", settled_setup(self.setup, self.inputs))
        constant = self._constant()
        if isinstance(self.simulator, Command):
            settle("call", self.simulator.call(self.grid, constant))
        else:
            settle("call", call_of(self.simulator, self.grid, constant, self.outputs))
        if isinstance(self.simulator, Vectorized) and "scratch" in self.call.injected:
            raise TypeError(
                f"vectorized simulator {self.name!r} asks for scratch, but the runs of a batch "
                "share one call; make a folder in it with tempfile"
            )
        settle("cost", checked_cost(self.cost, self.grid))

    call: Call = field(init=False, repr=False)

    def _constant(self) -> dict[str, Any]:
        """What all runs share, by name."""
        known = {*self.grid.names, *(name for name, _ in self.grid.derived), *INJECTED}
        known |= {*self.outputs}
        for word, names in (("input", self.inputs), ("setup", self.setup)):
            for name in names:
                if name in known:
                    raise ValueError(
                        f"{word} {name!r} has the name of a parameter, an output, an input or of "
                        f"what runs are given anyway ({', '.join(INJECTED)}); rename it"
                    )
                known.add(name)
        return {**self.inputs, **self.setup}

    def _check_names(self) -> None:
        taken = {*self.grid.names, *self.grid.dims, *(n for n, _ in self.grid.derived)}
        taken |= {dim for one in self.grid.parameters for dim in one.dims}
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
        simulator = self.simulator
        if isinstance(simulator, Command):
            own = simulator.identity(self.version)
        elif isinstance(simulator, Vectorized):
            own = identify(simulator.function, version=self.version)
        else:
            own = identify(simulator, version=self.version)
        for name, function in self.setup.items() if self.version is None else ():
            own = own.joined(identify(function).within(f"setup {name!r}"))
        shared = digests(self.inputs)
        return own.beside({f"input {n}": (f"input {n!r}", shared[n]) for n in shared})

    @property
    def random(self) -> bool:
        """Whether runs draw random numbers that we know of: ``rng``, ``seed``, global ones."""
        if {"rng", "seed"} & self.call.injected:
            return True
        return not isinstance(self.simulator, Command) and uses_global_random(self.simulator)

    def declaration(self) -> dict[str, Any]:
        """The sweep as plain data, without the values along its dims and without code."""
        return {
            "name": self.name,
            "parameters": [
                {"name": p.name, "dims": list(p.dims), "kind": p.kind, **p.attrs}
                for p in self.grid.parameters
            ],
            "dims": self.grid.sizes,
            "sampled": sorted({p.dim for p in self.grid.parameters if p.sampled is not None}),
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
            "simulator": reference_of(self.simulator),
            "inputs": described(self.inputs),
            "setup": {name: reference_of(one) for name, one in self.setup.items()},
        }

    def to_json(
        self, *, memory: int | None = None, request: Request | Mapping[str, Any] | None = None
    ) -> str:
        """The sweep as a JSON document: what a scheduler must know, and what makes it again.

        Parameters
        ----------
        memory : int, optional
            Bytes that a worker needs.
        request : Request or mapping, optional
            Compute that is asked for.

        Returns
        -------
        str
            Runs, exact values, roles, units, masks, outputs and requirements, inputs with sizes
            and digests, cost where it is declared, identity of the code, and where the simulator
            is found again: by import, as a command, or not ("needs_code"). Its schema is in
            ``sweepkit/declaration.schema.json``; :func:`sweepkit.run` keeps one beside the store.

        Examples
        --------
        >>> import json, sweepkit as sk
        >>> sweep = sk.Sweep(abs, sk.grid(x=[1.0, -2.5]))
        >>> json.loads(sweep.to_json())["grid"]["parameters"][0]["values"]
        [1.0, -2.5]
        """
        from sweepkit.declaration import document

        asked = Request(**request) if isinstance(request, Mapping) else request
        said = document(self, memory=memory, request=None if asked is None else asked.to_json())
        return json.dumps(said, indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(
        cls,
        given: str | os.PathLike[str] | Mapping[str, Any],
        *,
        simulator: Callable[..., Any] | None = None,
        objects: Mapping[str, Mapping[str, Any]] | None = None,
        inputs: Mapping[str, Any] | None = None,
        setup: Mapping[str, Callable[..., Any]] | None = None,
        requirements: Sequence[Any] | None = None,
        cost: Declared | None = None,
        stale: str = "ask",
    ) -> Sweep:
        """A sweep from the document that :meth:`to_json` gave.

        What it names by import is imported, so take documents from those you trust.

        Parameters
        ----------
        given : str, path or mapping
            The document, the path of its file, or of a store, which has one beside it.
        simulator : callable, optional
            Instead of the one that is named; needed for one of a notebook.
        objects : mapping, optional
            By parameter, what its labels stand for.
        inputs, setup : mapping, optional
            By name, instead of those named.
        requirements : sequence, optional
            Instead of those named.
        cost : float or callable, optional
            Instead of the one named.
        stale : {"ask", "keep"}
            With "keep" the code is taken as it is found here, be it other than what was declared.

        Raises
        ------
        ValueError
            If it is no such document, was changed since it was written, its parts disagree, an
            input is not what was declared, or it names code or objects that it cannot bring along
            and that are not passed. What is changed on purpose is taken without "digests".
        StaleCodeError
            If the code found here is another than what was declared, unless it is passed.
        """
        from sweepkit.declaration import read_document, sweep_of

        return sweep_of(
            read_document(given),
            simulator=simulator,
            objects=objects,
            inputs=inputs,
            setup=setup,
            requirements=requirements,
            cost=cost,
            stale=stale,
        )

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

"""A sweep as one JSON document: what a scheduler must know, and what makes the sweep again."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepkit.agreement import check_agreement, check_code, decoded, exact_array
from sweepkit.cost import Cost
from sweepkit.declared import Declared
from sweepkit.grid import Grid
from sweepkit.inputs import described
from sweepkit.outputs import Output
from sweepkit.parameters import Parameter
from sweepkit.receipt import environment
from sweepkit.references import NeedsCodeError, reference_of, resolved
from sweepkit.requirements import Requirement
from sweepkit.schema import faults
from sweepkit.seal import edited, sealed
from sweepkit.sweep import Sweep

__all__ = ["VERSION", "document", "read_document", "sweep_of"]

VERSION = 1
"""Of the document."""

MEMO = "declaration.json"
"""Name of the document beside a store."""

MOST_VALUES = 100_000
"""Values of a parameter up to which they are written into the document beside a store."""


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    text = files("sweepkit").joinpath("declaration.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


# --- writing -----------------------------------------------------------------------------------


def document(
    sweep: Sweep,
    *,
    cost: Cost | None = None,
    memory: int | None = None,
    request: Mapping[str, Any] | None = None,
    most_values: float = math.inf,
) -> dict[str, Any]:
    """The document of a sweep, as plain data; values of longer axes are left out."""
    grid = sweep.grid
    said = {
        "sweepkit_declaration": VERSION,
        "name": sweep.name,
        "runs": {"points": grid.size, "sizes": grid.sizes, "masked": bool(grid.masks)},
        "grid": {
            "parameters": [_parameter(one, most_values) for one in grid.parameters],
            "masks": [
                {"code": reference_of(mask)} if not hasattr(mask, "text") else {"text": mask.text}
                for mask in grid.masks
            ],
            "derived": {name: expression.text for name, expression in grid.derived},
        },
        "simulator": reference_of(sweep.simulator),
        "code": sweep.identity.to_json(),
        "outputs": {name: _output(said) for name, said in sweep.outputs.items()},
        "requirements": [_requirement(one) for one in sweep.requirements],
        "inputs": described(sweep.inputs),
        "setup": {name: reference_of(one) for name, one in sweep.setup.items()},
        "entropy": sweep.entropy,
        "streams": sweep.streams,
        "threads": sweep.threads,
        "version": sweep.version,
        "random": sweep.random,
        "cost": _cost(sweep.cost, cost),
        "memory": memory,
        "request": None if request is None else dict(request),
        "environment": environment(),
    }
    return sealed(said)


def _parameter(one: Parameter, most_values: float) -> dict[str, Any]:
    objects: dict[str, Any] = {}
    if one.objects is not None:
        listed = zip(one.values.tolist(), one.objects, strict=True)
        objects["objects"] = {label: reference_of(thing) for label, thing in listed}
    return {
        "name": one.name,
        "dims": list(one.dims),
        "kind": one.kind,
        "dtype": "str" if one.values.dtype.kind == "O" else one.values.dtype.name,
        "values": _plain(one.values) if one.values.size <= most_values else None,
        **one.attrs,
        **objects,
    }


def _plain(values: NDArray[Any]) -> list[Any]:
    """Values as JSON has them: infinities as text, times in nanoseconds."""
    if values.dtype.kind in "mM":
        values = values.astype("int64")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        values = values.astype(object)
        for at in np.ndindex(values.shape):
            if not math.isfinite(values[at]):
                values[at] = repr(values[at])
    return list(values.tolist())


def _output(said: Output) -> dict[str, Any]:
    coords = {
        dim: {
            "dtype": "str" if along.dtype.kind == "O" else along.dtype.name,
            "values": _plain(along),
        }
        for dim, along in said.coords.items()
    }
    return said.to_json() | ({"coords": coords} if coords else {})


def _requirement(one: Requirement) -> dict[str, Any]:
    return one.to_json() | ({} if one.code is None else {"code": reference_of(one.code)})


def _cost(declared: Any, learnt: Cost | None) -> dict[str, Any] | None:
    """Seconds of a run as declared, and as learnt from runs that have finished."""
    said: dict[str, Any] = {}
    if callable(declared):
        said |= {"function": reference_of(declared), "declared": True}
    elif declared is not None:
        said |= {"seconds": float(declared), "declared": True}
    if learnt is not None and learnt.count:
        spread = learnt.spread
        said |= {"runs": learnt.count, "spread": spread if math.isfinite(spread) else None}
        said.setdefault("seconds", learnt.mean)
    return said or None


# --- reading -----------------------------------------------------------------------------------


def read_document(given: Any) -> dict[str, Any]:
    """A document from its text, a file, the folder of a store, or plain data; checked.

    Raises
    ------
    ValueError
        If it is not there, no JSON, of a newer version, or not as its schema says.
    """
    where = "the declaration"
    if isinstance(given, os.PathLike) or (
        isinstance(given, str) and not given.lstrip().startswith("{")
    ):
        path = os.fspath(given)
        if os.path.isdir(path):
            path = os.path.join(f"{path.rstrip(os.sep)}.sweepkit", MEMO)
        where = path
        try:
            with open(path, encoding="utf-8") as file:
                given = file.read()
        except OSError as fault:
            if len(path) < 256 and not isinstance(fault, FileNotFoundError):
                raise
            raise ValueError(
                f"there is no declaration at {_short(path)!r}; sweep.to_json() writes one, and "
                "sk.run keeps one beside the store (the text of one begins with a brace)"
            ) from None
        except UnicodeDecodeError:
            raise ValueError(f"{where} is no JSON: it is no text in UTF-8") from None
    if isinstance(given, str):
        given = decoded(given, where)
    if not isinstance(given, Mapping):
        raise TypeError(f"{where} is a {type(given).__name__}; give text, a path, or a mapping")
    version = given.get("sweepkit_declaration")
    if isinstance(version, int) and version > VERSION:
        raise ValueError(
            f"{where} is of version {version}, newer than the {VERSION} that is known here; "
            "update sweepkit"
        )
    wrong = list(faults(dict(given), schema()))
    if wrong:
        more = f" (and {len(wrong) - 5} more)" if len(wrong) > 5 else ""
        raise ValueError(f"{where} is no declaration of a sweep: {'; '.join(wrong[:5])}{more}")
    return dict(given)


def _short(path: str) -> str:
    return path if len(path) <= 300 else f"{path[:100]}..."


def sweep_of(
    said: Mapping[str, Any],
    *,
    simulator: Any = None,
    objects: Mapping[str, Mapping[str, Any]] | None = None,
    inputs: Mapping[str, Any] | None = None,
    setup: Mapping[str, Any] | None = None,
    requirements: Sequence[Any] | None = None,
    cost: Declared | None = None,
    stale: str = "ask",
) -> Sweep:
    """The sweep of a checked document; see :meth:`Sweep.from_json`."""
    if stale not in ("ask", "keep"):
        raise ValueError(f"stale={stale!r} is none of ask, keep")
    passed = {"simulator": simulator, "inputs": inputs, "setup": setup, "objects": objects}
    given = [word for word, one in passed.items() if one is not None]
    if simulator is None:
        what = f"simulator {said['name']!r}"
        simulator = resolved(said["simulator"], what, "pass simulator=")
    if requirements is None:
        requirements = [_made_requirement(one) for one in said["requirements"]]
    if cost is None:
        cost = _made_cost(said["cost"] or {})
    sweep = Sweep(
        simulator,
        _made_grid(said["grid"], objects or {}),
        outputs={name: _made_output(name, one) for name, one in said["outputs"].items()},
        requirements=requirements,
        inputs=_made_inputs(said["inputs"], inputs or {}),
        setup={
            name: resolved(one, f"setup {name!r}", f"pass setup={{{name!r}: ...}}")
            for name, one in said["setup"].items()
            if name not in (setup or {})
        }
        | dict(setup or {}),
        **{word: said[word] for word in ("entropy", "streams", "threads", "version", "name")},
        cost=cost,
    )
    if stale == "keep":
        given.append("simulator")
    elif not {"simulator", "inputs", "setup"} & set(given):
        check_code(said, sweep)
    check_agreement(said, sweep, given)
    wrong = edited(said)
    if wrong:
        raise ValueError(
            f"the declaration was changed after it was written, in {', '.join(wrong)}: that is not "
            "what its digests tell; write it anew with sweep.to_json(), or, if the change is "
            "meant, take 'digests' out of it"
        )
    return sweep


def _made_grid(said: Mapping[str, Any], objects: Mapping[str, Mapping[str, Any]]) -> Grid:
    from sweepkit.expressions import parse

    masks = [
        parse(mask["text"])
        if "text" in mask
        else resolved(mask["code"], "a mask", "make the grid anew and pass it to sk.Sweep")
        for mask in said["masks"]
    ]
    return Grid(
        tuple(_made_parameter(one, objects.get(one["name"], {})) for one in said["parameters"]),
        tuple(masks),
        tuple((name, parse(text)) for name, text in said["derived"].items()),
    )


def _made_parameter(said: Mapping[str, Any], objects: Mapping[str, Any]) -> Parameter:
    name = said["name"]
    if said["values"] is None:
        raise ValueError(
            f"values of parameter {name!r} are too many for the copy beside the store; write the "
            "document with sweep.to_json()"
        )
    values = said["values"]
    if not values:
        raise ValueError(f"parameter {name!r} has no values in the declaration; give at least one")
    made = Parameter(
        name,
        exact_array(said["dtype"], values, f"values of parameter {name!r}"),
        tuple(said["dims"]),
        said["role"],
        said.get("units"),
        said.get("long_name"),
        said.get("weights"),
        sampled=said.get("sampled"),
    )
    if "objects" not in said:
        return made
    instead = f"pass objects={{{name!r}: {{label: object, ...}}}}"
    things = tuple(
        objects[label]
        if label in objects
        else resolved(
            said["objects"].get(label, {"needs_code": "is not there"}),
            f"label {label!r} of parameter {name!r}",
            instead,
        )
        for label in made.values.tolist()
    )
    return replace(made, objects=things)


def _made_output(name: str, said: Mapping[str, Any]) -> Output:
    known = {one.name for one in fields(Output)}
    for word in said:
        if word not in known:
            raise ValueError(f"output {name!r} of the declaration has {word!r}, which none has")
    plain = {word: value for word, value in said.items() if word != "coords"}
    coords = {
        dim: exact_array(one["dtype"], one["values"], f"coordinates {dim!r} of output {name!r}")
        for dim, one in said.get("coords", {}).items()
    }
    return replace(Output.from_json(plain), coords=coords)


def _made_requirement(said: Mapping[str, Any]) -> Requirement:
    if "code" in said:
        what = f"requirement {said['name']!r}"
        code = resolved(said["code"], what, "pass requirements= without it")
        return Requirement(said["text"], name=said["name"], code=code)
    return Requirement.from_json(said)


def _made_cost(said: Mapping[str, Any]) -> Declared | None:
    """What was declared of the cost; nothing if it was learnt alone."""
    if "function" in said:
        function: Declared = resolved(said["function"], "the cost of a run", "pass cost=")
        return function
    seconds: float | None = said.get("seconds")
    return seconds if said.get("declared", "runs" not in said) else None


def _made_inputs(said: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(given)
    for name, one in said.items():
        if name in made:
            continue
        if "path" not in one:
            raise NeedsCodeError(
                f"input {name!r} is a {one['kind']}, which no document carries; pass "
                f"inputs={{{name!r}: ...}}"
            )
        made[name] = one["path"]
    return made

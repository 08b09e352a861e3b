from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.expressions import ExpressionError


def fall(height: float, gravity: float) -> dict[str, float]:
    return {"time": (2 * height / gravity) ** 0.5}


GRID = sk.grid(height=[1.0, 2.0], gravity=sk.scenario([1.62, 9.81]))


def test_a_sweep_is_simulator_grid_and_requirements() -> None:
    sweep = sk.Sweep(fall, GRID, requirements=["time < 1"])
    assert (sweep.name, sweep.entropy, sweep.streams, sweep.threads) == (
        "fall",
        0,
        "independent",
        1,
    )
    assert [one.text for one in sweep.requirements] == ["time < 1"]
    assert repr(sweep) == (
        "<sweepkit.Sweep 'fall': 4 runs (height: 2 x gravity: 2), 1 requirement>"
    )


@pytest.mark.parametrize(
    "grid",
    [
        {"height": [1.0, 2.0], "gravity": [9.81]},
        xr.Dataset(coords={"height": [1.0, 2.0], "gravity": [9.81]}),
        xr.Coordinates({"height": [1.0, 2.0], "gravity": [9.81]}),
        sk.paired(height=[1.0, 2.0], gravity=[9.81, 1.62]),
    ],
)
def test_the_grid_may_be_a_mapping_or_coordinates(grid: Any) -> None:
    assert sk.Sweep(fall, grid).grid.size == 2


@pytest.mark.parametrize(
    "requirements",
    ["time < 1", ["time < 1"], ("time < 1",), sk.Requirement("time", "<", 1)],
)
def test_requirements_may_come_alone_or_in_a_sequence(requirements: Any) -> None:
    assert [one.text for one in sk.Sweep(fall, GRID, requirements=requirements).requirements] == [
        "time < 1"
    ]


def test_a_sweep_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        sk.Sweep(fall, GRID).entropy = 1  # type: ignore[misc]


def test_declared_outputs_are_copied() -> None:
    outputs = {"time": sk.output(units="s")}
    sweep = sk.Sweep(fall, GRID, outputs=outputs)
    outputs["speed"] = sk.output()
    assert set(sweep.outputs) == {"time"}


def test_whole_numbers_of_numpy_are_numbers() -> None:
    sweep = sk.Sweep(fall, GRID, entropy=np.int64(3), threads=np.int32(2))  # type: ignore[arg-type]
    assert (type(sweep.entropy), type(sweep.threads)) == (int, int)
    json.dumps(sweep.declaration())


def state(x0: Any) -> float:
    return float(np.sum(x0))


X0 = sk.values(np.eye(2), dims=("case", "state"))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: sk.Sweep(fall, sk.grid(height=[1.0])),
            TypeError,
            "simulator 'fall' needs 'gravity', which is no parameter of the grid",
        ),
        (
            lambda: sk.Sweep(fall, sk.grid(GRID, drag=[0.1])),
            TypeError,
            "parameter 'drag' is no argument of simulator 'fall'",
        ),
        (lambda: sk.Sweep(fall, [1, 2]), TypeError, r"\[1, 2\] is a list; give grids, mappings"),
        (lambda: sk.Sweep(GRID, fall), TypeError, "<function fall .*is a function; give grids"),
        (
            lambda: sk.Sweep(lambda status: 1, sk.grid(status=[1])),
            ValueError,
            "parameter 'status' has the name of a variable that the store keeps of each run",
        ),
        (
            lambda: sk.Sweep(state, sk.grid(x0=sk.values([1], dims="log"))),
            ValueError,
            "dim 'log' has the name of a variable that the store keeps",
        ),
        (
            lambda: sk.Sweep(state, sk.grid(x0=sk.values(np.eye(2), dims=("case", "error")))),
            ValueError,
            "dim 'error' has the name of a variable that the store keeps",
        ),
        (
            lambda: sk.Sweep(fall, GRID.derive(duration="height * 2")),
            ValueError,
            "derived coordinate 'duration' has the name of a variable that the store keeps",
        ),
        (
            lambda: sk.Sweep(fall, GRID, outputs={"height": sk.output()}),
            ValueError,
            "output 'height' has a name or dim, 'height', of a parameter or dim of the grid; rena",
        ),
        (
            lambda: sk.Sweep(fall, GRID, outputs={"trace": sk.output(dims="gravity")}),
            ValueError,
            "output 'trace' has a name or dim, 'gravity', of a parameter",
        ),
        (
            lambda: sk.Sweep(state, sk.grid(x0=X0), outputs={"trace": sk.output(dims="state")}),
            ValueError,
            "output 'trace' has a name or dim, 'state', of a parameter",
        ),
        (
            lambda: sk.Sweep(fall, GRID.derive(tip="height * 2"), outputs={"tip": sk.output()}),
            ValueError,
            "output 'tip' has a name or dim, 'tip', of a parameter",
        ),
        (
            lambda: sk.Sweep(fall, GRID, outputs={"status": sk.output()}),
            ValueError,
            "output 'status' has the name of a variable of the store; rename it",
        ),
        (
            lambda: sk.Sweep(fall, GRID, outputs={"a b": sk.output()}),
            ValueError,
            "output name 'a b' is no identifier",
        ),
        (
            lambda: sk.Sweep(fall, GRID, outputs={"time": sk.output(dims="time")}),
            ValueError,
            "output 'time' has a dim 'time', which is also the name of an output; rename one",
        ),
        (
            lambda: sk.Sweep(
                fall, GRID, outputs={"t": sk.output(), "trace": sk.output(dims="t", size=3)}
            ),
            ValueError,
            "output 'trace' has a dim 't', which is also the name of an output",
        ),
        (
            lambda: sk.Sweep(
                fall,
                GRID,
                outputs={
                    "one": sk.output(dims="t", size=3),
                    "two": sk.output(dims=("k", "t"), size=(2, 4)),
                },
            ),
            ValueError,
            "dim 't' has 4 entries in output 'two' and 3 in 'one'; give one of them a dim of its",
        ),
        (
            lambda: sk.Sweep(
                fall,
                GRID,
                outputs={"y": sk.output(dims="t", size=3, pad=True), "y_length": sk.output()},
            ),
            ValueError,
            "output 'y_length' has the name kept for the lengths of 'y'; rename it",
        ),
        (
            lambda: sk.Sweep(fall, GRID, outputs={"time": {"units": "s"}}),  # type: ignore[dict-item]
            TypeError,
            r"output 'time' is declared by \{'units': 's'\}; use sk.output\(dims=...",
        ),
        (
            lambda: sk.Sweep(fall, GRID, outputs=["time"]),  # type: ignore[arg-type]
            TypeError,
            r"outputs are \['time'\]; give a mapping from names",
        ),
        (
            lambda: sk.Sweep(fall, GRID, requirements=["time <"]),
            ExpressionError,
            "cannot read this",
        ),
        (
            lambda: sk.Sweep(fall, GRID, requirements=["time < 1", "time < 1"]),
            ValueError,
            "two requirements are called 'time < 1'",
        ),
        (lambda: sk.Sweep(fall, GRID, requirements=[3]), ValueError, "not int"),
        (lambda: sk.Sweep(fall, GRID, requirements=3), ValueError, "not int"),  # type: ignore[arg-type]
        (lambda: sk.Sweep(fall, GRID, entropy=-1), ValueError, "entropy is -1; give a whole numb"),
        (lambda: sk.Sweep(fall, GRID, entropy=1.0), ValueError, "entropy is 1.0; give a whole"),  # type: ignore[arg-type]
        (lambda: sk.Sweep(fall, GRID, threads=0), ValueError, "threads is 0; .* at least 1"),
        (lambda: sk.Sweep(fall, GRID, threads=True), ValueError, "threads is True; give a whole"),
        (
            lambda: sk.Sweep(fall, GRID, streams="shared"),
            ValueError,
            "streams 'shared' is none of independent, common",
        ),
        (lambda: sk.Sweep(fall, GRID, version=3), TypeError, "version of the sweep is 3; give a"),  # type: ignore[arg-type]
        (lambda: sk.Sweep(fall, GRID, name=3), TypeError, "name of the sweep is 3; give a string"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sweep_is_refused_before_anything_runs(
    call: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


def test_the_declaration_is_plain_data_without_code_and_values() -> None:
    def mask(height: Any) -> Any:
        return height > 0

    sweep = sk.Sweep(
        fall,
        GRID.where("height < 3").where(mask).derive(double="height * 2"),
        outputs={"time": sk.output(units="s")},
        requirements=["time < 1"],
        version="1",
    )
    told = json.loads(json.dumps(sweep.declaration()))
    assert told["parameters"][1] == {
        "name": "gravity",
        "dims": ["gravity"],
        "kind": "number",
        "role": "scenario",
    }
    assert told["dims"] == {"height": 2, "gravity": 2}
    assert told["masks"] == [{"text": "height < 3"}, {"code": "mask"}]
    assert told["derived"] == {"double": "height * 2"}
    assert told["outputs"]["time"]["units"] == "s"
    assert told["requirements"][0]["text"] == "time < 1"
    assert "1.62" not in json.dumps(told)


def test_the_declaration_does_not_grow_with_the_grid() -> None:
    sizes = [
        len(json.dumps(sk.Sweep(fall, sk.grid(height=range(n), gravity=[1])).declaration()))
        for n in (10, 10_000)
    ]
    assert sizes[1] - sizes[0] < 10


def test_the_version_stands_for_the_code() -> None:
    one = sk.Sweep(fall, GRID, version="1").identity
    other = sk.Sweep(lambda height, gravity: 1, GRID, version="1").identity
    assert one.digest == other.digest
    assert one.digest != sk.Sweep(fall, GRID, version="2").identity.digest
    assert one.digest != sk.Sweep(fall, GRID).identity.digest


def test_everything_in_the_html_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    shown = sk.Sweep(
        fall,
        sk.grid(height=sk.design([1.0], units=evil), gravity=[1.0]),
        requirements=["time < 1"],
        name=evil,
    )._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "time &lt; 1" in shown

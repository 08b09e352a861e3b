"""The declaration: what it tells, that it makes the same sweep again, and what it cannot bring."""

from __future__ import annotations

import importlib
import json
import linecache
import math
import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.declaration import schema
from sweepkit.schema import faults
from sweepkit.status import Status

OPTIONS: dict[str, Any] = {"backend": "sequential", "progress": False}


def simulate(a: float, mode: str, seed: int) -> dict[str, float]:
    return {"y": a + len(mode), "drawn": float(seed)}


def arrays(a: Any) -> Any:
    return a * 2.0


def calm(ds: xr.Dataset) -> xr.DataArray:
    return ds["y"] < 3


def low(a: Any) -> Any:
    return a < 5


def load() -> int:
    return 3


class Controllers:
    @staticmethod
    def pid(a: float) -> float:
        return a


def full_sweep() -> sk.Sweep:
    grid = sk.grid(
        sk.latin_hypercube(a=sk.scenario((0.1, 9.7), units="kg"), size=7),
        mode=["x", "日本", "a\nb"],
        n=[0, -3, 2**62],
        when=np.array(["2030-01-01T00:00:00.000000001"], dtype="datetime64[ns]"),
        took=np.array([3], dtype="timedelta64[s]"),
        edge=[math.inf, -math.inf, 0.1, 5e-324],
        flag=[True, False],
        x0=sk.values([[0.1, 0.2], [0.3, 1e300]], dims=("case", "state"), role="scenario"),
        replicates=2,
    )
    grid = grid.where("a * n < 100").derive(twice="2 * a")

    def everything(a, mode, n, when, took, edge, flag, x0, seed) -> float:  # type: ignore[no-untyped-def]
        return 1.0

    return sk.Sweep(
        everything,
        grid,
        outputs={
            "trace": sk.output(dims="t", size=3, pad=True, units="m", coords={"t": [0.0, 0.1, 0.2]})
        },
        requirements=["trace.last(t) < 3", sk.requirement("trace.max(t) < 5", name="bounded")],
        entropy=7,
        streams="common",
        threads=2,
        version="1.2",
        name="all kinds",
    )


def test_it_is_valid_json_by_its_schema() -> None:
    said = json.loads(full_sweep().to_json(memory=10**9, request={"workers": 8}))
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(said, schema(), cls=jsonschema.Draft202012Validator)
    assert list(faults(said, schema())) == []
    assert said["sweepkit_declaration"] == 1
    assert said["runs"]["points"] == 7 * 3 * 3 * 4 * 2 * 2 * 2
    assert said["runs"]["masked"] is True
    assert said["memory"] == 10**9
    assert said["request"] == {"workers": 8}
    assert "within a function" in said["simulator"]["needs_code"]


def test_values_come_back_bit_for_bit() -> None:
    sweep = full_sweep()
    again = sk.Sweep.from_json(sweep.to_json(), simulator=sweep.simulator)
    assert again.grid.names == sweep.grid.names
    for name in sweep.grid.names:
        before, after = sweep.grid[name], again.grid[name]
        assert after.values.dtype == before.values.dtype
        assert after.values.tolist() == before.values.tolist()
        assert np.array_equal(after.keys(), before.keys())
        assert (after.dims, after.attrs) == (before.dims, before.attrs)
    assert json.loads(again.to_json()) == json.loads(sweep.to_json())
    assert again.declaration() == sweep.declaration()
    coords = again.outputs["trace"].coords["t"]
    assert coords.tolist() == [0.0, 0.1, 0.2]


@pytest.mark.parametrize("wrong", ["missing", "extra", "type", "enum", "items"])
def test_own_check_and_jsonschema_agree(wrong: str) -> None:
    said = json.loads(full_sweep().to_json())
    if wrong == "missing":
        del said["runs"]
    elif wrong == "extra":
        said["more"] = 1
    elif wrong == "type":
        said["entropy"] = "0"
    elif wrong == "enum":
        said["streams"] = "same"
    else:
        said["grid"]["parameters"][0]["dims"] = [1]
    assert list(faults(said, schema()))
    assert not jsonschema.Draft202012Validator(schema()).is_valid(said)
    with pytest.raises(ValueError, match="is no declaration of a sweep: "):
        sk.Sweep.from_json(said)


def test_a_sweep_of_a_module_is_the_same_sweep_again(tmp_path: Path, store: str) -> None:
    grid = sk.grid(a=[0.1, 0.2], mode=["x", "yy"], replicates=2)
    sweep = sk.Sweep(simulate, grid, requirements=["y < 3"])
    assert json.loads(sweep.to_json())["simulator"]["import"] == f"{__name__}:simulate"
    path = tmp_path / "sweep.json"
    path.write_text(sweep.to_json(), encoding="utf-8")
    again = sk.Sweep.from_json(path)
    assert again.identity == sweep.identity
    ds = sk.run(sweep, store, **OPTIONS).load()
    other = sk.run(again, f"{store}2", **OPTIONS).load()
    xr.testing.assert_equal(ds.drop_vars("duration"), other.drop_vars("duration"))
    assert (sk.run(again, store, **OPTIONS)["attempts"] == 1).all()


def test_it_runs_again_in_another_process_and_folder(tmp_path: Path, store: str) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    (home / "my_physics.py").write_text(
        textwrap.dedent(
            """
            import sweepkit as sk

            def fall(height, table):
                return {"y": height * len(open(table).read())}

            if __name__ == "__main__":
                import my_physics
                sweep = sk.Sweep(my_physics.fall, sk.grid(height=[1.5, 2.5]),
                                 inputs={"table": "table.txt"})
                open("../sweep.json", "w").write(sweep.to_json())
                sweep = sk.Sweep(fall, sweep.grid, inputs=sweep.inputs)  # as in a notebook
                open("../main.json", "w").write(sweep.to_json())
            """
        )
    )
    (home / "table.txt").write_text("four")
    root = str(Path(__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    subprocess.run([sys.executable, "my_physics.py"], cwd=home, env=env, check=True, timeout=120)
    code = (
        "import sys, sweepkit as sk\n"
        "sweep = sk.Sweep.from_json(sys.argv[1])\n"
        "ds = sk.run(sweep, sys.argv[2], n_jobs=1, progress=False)\n"
        "print(ds['y'].values.tolist())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "sweep.json"), store]
    with pytest.raises(sk.NeedsCodeError, match="which cannot be imported here") as lost:
        sk.Sweep.from_json(tmp_path / "sweep.json")
    assert "simulator 'fall' is my_physics:fall" in str(lost.value)
    assert f"was in {home}/my_physics.py; put its folder on PYTHONPATH" in str(lost.value)
    with pytest.raises(sk.NeedsCodeError, match=r"'fall' is defined in __main__ .*simulator="):
        sk.Sweep.from_json(tmp_path / "main.json")
    env["PYTHONPATH"] = os.pathsep.join([root, str(home)])
    done = subprocess.run(command, cwd=away, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[6.0, 10.0]", done.stderr


def test_a_command_is_made_again_from_it(tmp_path: Path, store: str) -> None:
    command = sk.command(
        "echo y={a:.2f}",
        outputs={"y": sk.from_stdout(r"y=(\S+)")},
        templates={"deck": "{a}"},
        stdin="x",
        env={"A": "{a}"},
        ok_codes=[0, 1],
        keep="deck",
    )
    sweep = sk.Sweep(command, sk.grid(a=[1.0, 2.0]))
    again = sk.Sweep.from_json(sweep.to_json())
    assert again.identity == sweep.identity
    assert again.to_json() == sweep.to_json()
    assert sk.run(again, store, **OPTIONS)["y"].values.tolist() == [1.0, 2.0]


def test_vectorized_simulators_setups_masks_and_requirements_are_found_by_import() -> None:
    from sweepkit.vectorized import Vectorized

    def both(a: Any, model: Any) -> Any:
        return a

    vectorized = sk.Sweep(sk.vectorized(arrays, max_batch=9), sk.grid(a=[1.0, 7.0]).where(low))
    again = sk.Sweep.from_json(vectorized.to_json())
    assert isinstance(again.simulator, Vectorized)
    assert (again.simulator.function, again.simulator.max_batch) == (arrays, 9)
    assert again.grid.masks == (low,)
    sweep = sk.Sweep(
        both,
        sk.grid(a={"pid": Controllers.pid, "abs": abs}),
        setup={"model": load},
        requirements=[calm],
    )
    again = sk.Sweep.from_json(sweep.to_json(), simulator=both)
    assert again.setup == {"model": load}
    assert again.requirements[0].code is calm
    assert again.grid["a"].objects == (Controllers.pid, abs)


def test_what_it_cannot_bring_is_named_with_what_to_pass(tmp_path: Path, store: str) -> None:
    def local(a: Any, weather: Any, model: Any) -> float:
        return float(a["gain"] + weather.sum() + model)

    sweep = sk.Sweep(
        local,
        sk.grid(a={"low": {"gain": 1}}),
        inputs={"weather": np.ones(3)},
        setup={"model": partial(int, 5)},
        requirements=[sk.requirement(lambda ds: ds["result"] > 1, name="large")],
    )
    said, given = sweep.to_json(), {}
    for told, passed in [
        ("simulator 'local' is defined within a function, which no", "simulator"),
        ("requirement 'large' is a lambda, which no document carries", "requirements"),
        (r"label 'low' of parameter 'a' is a dict, .*pass objects=\{'a'", "objects"),
        ("input 'weather' is a ndarray, which no document carries", "inputs"),
        ("setup 'model' is a partial", "setup"),
    ]:
        with pytest.raises(sk.NeedsCodeError, match=told):
            sk.Sweep.from_json(said, **given)
        given[passed] = {
            "simulator": local,
            "requirements": ["result > 1"],
            "objects": {"a": {"low": {"gain": 1}}},
            "inputs": {"weather": np.ones(3)},
            "setup": {"model": partial(int, 5)},
        }[passed]
    ds = sk.run(sk.Sweep.from_json(said, **given), store, **OPTIONS)
    assert ds["result"].item() == 9.0


def test_every_store_has_one_beside_it_and_tells_the_same_within(
    tmp_path: Path, store: str
) -> None:
    table = tmp_path / "table"
    table.write_text("12345")

    def read(a: int, table: str) -> int:
        return a

    sweep = sk.Sweep(read, sk.grid(a=[1, 2, 3]), inputs={"table": table})
    sk.run(sweep, store, **OPTIONS)
    beside = json.loads(Path(f"{store}.sweepkit/declaration.json").read_text())
    assert list(faults(beside, schema())) == []
    assert beside["cost"]["runs"] == 3
    assert beside["cost"]["seconds"] >= 0
    within = json.loads(sk.open(store).attrs["sweepkit"])
    for word in ("simulator", "inputs", "setup", "outputs", "entropy"):
        assert within[word] == beside[word]
    assert within["inputs"]["table"]["bytes"] == 5
    sk.run(sweep, store, **OPTIONS)  # runs nothing, and forgets nothing
    assert (
        json.loads(Path(f"{store}.sweepkit/declaration.json").read_text())["cost"]
        == (beside["cost"])
    )
    again = sk.Sweep.from_json(store, simulator=read)
    assert (sk.run(again, store, **OPTIONS)["status"] == Status.DONE).all()


def test_what_is_no_declaration_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no declaration at .*nowhere.json'; sweep.to_json"):
        sk.Sweep.from_json(tmp_path / "nowhere.json")
    (tmp_path / "text").write_text("no json")
    with pytest.raises(ValueError, match="is no JSON"):
        sk.Sweep.from_json(tmp_path / "text")
    said = json.loads(full_sweep().to_json())
    with pytest.raises(ValueError, match="is of version 99, newer than the 1 that is known"):
        sk.Sweep.from_json({**said, "sweepkit_declaration": 99})
    with pytest.raises(TypeError, match="is a int"):
        sk.Sweep.from_json(3)  # type: ignore[arg-type]


# --- parts that disagree ---


def flat(a: float, b: int, seed: int) -> float:
    return a * b


def by_a(a: float) -> float:
    return 2 * a


def document(**more: Any) -> dict[str, Any]:
    grid = sk.grid(a=[0.5, 1.5, 2.0], b=[1, 2])
    return dict(json.loads(sk.Sweep(flat, grid, **more).to_json()))


@pytest.mark.parametrize(
    ("place", "value", "match"),
    [
        ("runs.points", 99, r"runs.points is 99, but .* make 6"),
        ("runs.sizes", {"a": 7, "b": 2}, r"runs.sizes is \{'a': 7, 'b': 2\}, but .*'a': 3"),
        ("runs.masked", True, "runs.masked is True, but .* make False"),
        ("random", False, "random is False, but .* make True"),
        ("grid.parameters.0.kind", "bool", "the kind of parameter 'a' is 'bool', but .*'number'"),
        ("grid.parameters.0.dims", ["z"], r"runs.sizes is \{'a': 3, 'b': 2\}, but .*'z': 3"),
        ("grid.parameters.0.values", [], "parameter 'a' has no values in the declaration"),
        ("grid.parameters.0.values", [0.5, "x", 2.0], "declared as float64, but there is 'x'"),
        ("grid.parameters.0.values", [0.5, True, 2.0], "declared as float64, but there is True"),
        ("grid.parameters.0.values", [0.5, [1.0]], "are lists of unequal length"),
        ("grid.parameters.0.values", [0.5, 2**53 + 1, 1.0], "float64, but there is 90071992547409"),
        (
            "grid.parameters.1.values",
            [1.5, 2],
            "values of parameter 'b' are declared as int64, but",
        ),
        ("grid.parameters.1.values", [True, 2], "declared as int64, but there is True"),
        ("grid.parameters.1.values", [2**70, 1], "declared as int64, but there is 1180591620717"),
        ("grid.parameters.1.values", ["1", "2"], "declared as int64, but there is '1'"),
        ("grid.parameters.1.dtype", "uint64", None),
        ("grid.parameters.1.dtype", "bool", "declared as bool, but there is 1; that takes true"),
        ("grid.parameters.1.dtype", "str", "declared as str, but there is 1; that takes text"),
        ("code.digest", "0" * 32, "is not the one declared .digest 0000"),
        ("code.parts", {"flat": "0"}, "those of its parts are not"),
        (
            "code",
            {"digest": "", "parts": {}, "version": None, "python": "3", "x": 1},
            "no identity",
        ),
        ("simulator.import", "os", "simulator 'flat' is 'os', which is no module:name"),
        ("simulator", {"command": {"text": 3}}, "lacks|no command as sk.command makes one"),
        ("request", {"workers": -1}, "request of the declaration: workers is -1"),
        ("request", {"cores": 3}, "request of the declaration has 'cores'; a request has workers"),
        ("request", {"deadline": 3}, "request of the declaration: deadline is 3"),
        ("request", {"deadline": "2020-01-01T00:00:00+00:00", "budget": 5.0}, None),
        ("outputs", {"y": {"shape": 3}}, "output 'y' of the declaration has 'shape'"),
    ],
)
def test_a_declaration_whose_parts_disagree_is_refused(place: str, value: Any, match: str) -> None:
    said = document()
    *path, last = place.split(".")
    inside: Any = said
    for step in path:
        inside = inside[int(step) if step.isdigit() else step]
    inside[last] = value
    if match is None:
        del said["digests"]
        sk.Sweep.from_json(said)
        return
    with pytest.raises((ValueError, sk.StaleCodeError), match=match):
        sk.Sweep.from_json(said)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("entropy", 8),
        ("threads", 2),
        ("streams", "common"),
        ("name", "other"),
        ("memory", 10),
        ("cost", {"seconds": 3.0, "declared": True}),
        ("requirements", [{"text": "y < 2", "name": "y < 2", "needs_code": False}]),
        ("grid.parameters.0.values", [0.5, 1.5, 2.5]),
        ("grid.parameters.0.role", "scenario"),
        ("environment.python", "2"),
    ],
)
def test_a_part_that_was_changed_since_is_told_unless_digests_are_taken_out(
    place: str, value: Any
) -> None:
    said = document(cost=2.0)
    *path, last = place.split(".")
    inside: Any = said
    for step in path:
        inside = inside[int(step) if step.isdigit() else step]
    inside[last] = value
    with pytest.raises(ValueError, match=f"after it was written, in {place.partition('.')[0]}:"):
        sk.Sweep.from_json(said)
    del said["digests"]
    assert sk.Sweep.from_json(json.dumps(said)).grid.size == 6


def test_another_layout_of_the_same_document_is_no_change() -> None:
    said = document(cost=2.0)
    turned = dict(reversed(said.items()))
    turned["cost"] = {"declared": True, "seconds": 2}  # as a writer of JSON may have 2.0
    assert sk.Sweep.from_json(json.dumps(turned, indent=3)).cost == 2.0


def test_imported_data_is_no_simulator() -> None:
    said = document()
    said["simulator"] = {"import": f"{__name__}:OPTIONS"}
    with pytest.raises(ValueError, match="which is a dict and no function; mend the declaration"):
        sk.Sweep.from_json(said)


def test_what_json_would_take_without_a_word_is_refused() -> None:
    text = json.dumps(document())
    for wrong, match in [
        (
            text.replace('"entropy": 0', '"entropy": 0, "entropy": 7'),
            "'entropy' twice, as 0 and as",
        ),
        (text.replace('"entropy": 0', '"entropy": NaN'), "has NaN, which is no JSON"),
        ('{"a":' * 100_000, "is nested too deeply"),
        ("null", "no declaration at 'null'; .* begins with a brace"),
        ("", "no declaration at ''"),
        ("[]" * 3000, "no declaration at"),
    ]:
        with pytest.raises(ValueError, match=match):
            sk.Sweep.from_json(wrong)


def test_an_input_or_code_that_is_another_is_refused_unless_it_is_passed_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table").write_text("one")
    source = "def weigh(a, table):\n    return a + {}\n"
    (tmp_path / "scales.py").write_text(source.format(1))
    monkeypatch.syspath_prepend(str(tmp_path))
    scales = importlib.import_module("scales")
    sweep = sk.Sweep(scales.weigh, sk.grid(a=[1, 2]), inputs={"table": tmp_path / "table"})
    text = sweep.to_json()
    (tmp_path / "table").write_text("two")
    with pytest.raises(sk.StaleCodeError, match="input 'table' changed"):
        sk.Sweep.from_json(text)
    with pytest.raises(ValueError, match=r"'table' .*: its digest is '\w+' in '.*table', and"):
        sk.Sweep.from_json(text, stale="keep")
    sk.Sweep.from_json(text, inputs={"table": tmp_path / "table"})
    (tmp_path / "table").write_text("one")
    assert sk.Sweep.from_json(text).identity == sweep.identity
    (tmp_path / "scales.py").write_text(source.format("22 * a"))
    linecache.clearcache()
    monkeypatch.delitem(sys.modules, "scales")
    importlib.invalidate_caches()
    with pytest.raises(sk.StaleCodeError, match="function 'weigh' changed\nbring that code back"):
        sk.Sweep.from_json(text)
    assert sk.Sweep.from_json(text, stale="keep").simulator(1, "") == 23
    with pytest.raises(ValueError, match="stale='rerun' is none of ask, keep"):
        sk.Sweep.from_json(text, stale="rerun")


# --- its cost ---


def test_a_declared_cost_comes_back(store: str) -> None:
    number, function = document(cost=3), document(cost=by_a)
    assert number["cost"] == {"seconds": 3.0, "declared": True}
    assert function["cost"]["function"]["import"] == f"{__name__}:by_a"
    for said, cost in ((number, 3.0), (function, by_a), (document(), None)):
        jsonschema.validate(said, schema(), cls=jsonschema.Draft202012Validator)
        again = sk.Sweep.from_json(said)
        assert again.cost == cost
        assert json.loads(again.to_json())["cost"] == said["cost"]
    said = document(cost=lambda a: a)
    assert "is a lambda" in said["cost"]["function"]["needs_code"]
    with pytest.raises(sk.NeedsCodeError, match=r"the cost of a run is a lambda, .*; pass cost="):
        sk.Sweep.from_json(said)
    assert sk.Sweep.from_json(said, cost=by_a).cost is by_a
    for declared in (0.25, by_a, None):
        path = f"{store}{declared is None}{declared is by_a}"
        sweep = sk.Sweep(flat, sk.grid(a=[0.5, 1.5], b=[1, 2]), cost=declared)
        sk.run(sweep, path, **OPTIONS)
        beside = json.loads(Path(f"{path}.sweepkit/declaration.json").read_text())
        assert beside["cost"]["runs"] == 4
        assert sk.Sweep.from_json(path).cost == declared


def test_a_request_is_carried(store: str) -> None:
    sweep = sk.Sweep(flat, sk.grid(a=[0.5, 1.5], b=[1, 2]))
    said = json.loads(sweep.to_json(request=sk.Request(workers=8, budget="1 core-hour")))
    assert said["request"] == {"workers": 8, "budget": 3600.0}
    with pytest.raises(ValueError, match="workers is 0"):
        sweep.to_json(request={"workers": 0})
    with pytest.raises(TypeError, match="cores"):
        sweep.to_json(request={"cores": 2})


# --- runs that need each other ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["previous", "last_result", "results", "ds", "prev_state"])
def test_a_simulator_that_asks_for_other_runs_is_told_what_to_use(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f(a, {name}): return a", scope)
    with pytest.raises(TypeError, match=f"needs '{name}'.*another run gave: runs of a sweep are"):
        sk.Sweep(scope["f"], sk.grid(a=[1]))
    sk.Sweep(scope["f"], sk.grid({"a": [1], name: [2]}))  # a parameter of that name is a parameter


def test_an_argument_that_is_an_output_is_told_what_to_use() -> None:
    said = {"energy": sk.output()}
    with pytest.raises(TypeError, match="needs 'energy', which is an output: runs of a sweep are"):
        sk.Sweep(lambda a, energy: a, sk.grid(a=[1]), outputs=said)


def test_a_generator_is_told_what_to_use(store: str) -> None:
    def steps(a: int) -> Any:
        yield a

    with pytest.raises(TypeError, match=r"generator function; .* loop inside it and return"):
        sk.Sweep(steps, sk.grid(a=[1]))
    ds = sk.run(sk.Sweep(lambda a: (a for _ in "x"), sk.grid(a=[1])), store, **OPTIONS)
    assert "a generator was returned" in ds["error"].item()


def test_a_simulator_that_reads_its_own_store_is_told_what_to_use(store: str) -> None:
    def read(a: int) -> float:
        return float(sk.open(path)["y"].sum())

    path = store
    scope: dict[str, Any] = {"sk": sk, "path": store}
    exec("def by_global(a): return float(sk.open(path)['y'].sum())", scope)
    exec(f"def by_text(a): return float(sk.open({store!r})['y'].sum())", scope)
    for name in ("by_global", "by_text"):
        with pytest.raises(ValueError, match="the store that its runs are written to, so what"):
            sk.run(sk.Sweep(scope[name], sk.grid(a=[1])), store, **OPTIONS)
    sk.run(sk.Sweep(lambda a: {"y": a}, sk.grid(a=[1])), store, **OPTIONS)
    scope["ds"] = sk.open(store)
    exec("def by_dataset(a): return float(ds['y'].sum())", scope)
    with pytest.raises(ValueError, match="uses the variable 'ds', which is the store"):
        sk.run(sk.Sweep(scope["by_dataset"], sk.grid(a=[1]), version="1"), store, **OPTIONS)
    ds = sk.run(sk.Sweep(scope["by_dataset"], sk.grid(a=[1])), f"{store}2", **OPTIONS)
    assert ds["result"].item() == 1.0
    with pytest.raises(ValueError, match="the store that its runs are written to"):
        sk.run(sk.Sweep(read, sk.grid(a=[1])), store, **OPTIONS)

"""What the explorer draws, against counting by hand."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.views import captions, deeper, figures
from sweepkit.views.engine import Engine
from sweepkit.views.packing import rounded
from sweepkit.views.record import record
from tests.poles import HOSTILE, stored

TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32}


def unpacked(part: dict[str, Any]) -> Any:
    flat = np.frombuffer(base64.b64decode(part["b"]), dtype=TYPES[part["t"]])
    return flat.reshape(part["shape"])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("figures") / "poles.zarr"
    stored(made)
    return made


@pytest.fixture(scope="module")
def frame(path: Path) -> pd.DataFrame:
    ds = sk.open(path)
    return sk.runs(ds).assign(peak=12.0 - sk.margin(ds)[..., 1].values.ravel())


@pytest.fixture
def engine(path: Path) -> Engine:
    return Engine(path)


def failing(frame: pd.DataFrame, steps: float, peak: float) -> pd.Series:
    done = frame["status"] == "done"
    return done & ~((frame["steps"] >= steps) & (frame["peak"] <= peak))


FILTERS = [
    {"src": "brush", "text": "delay", "tests": [{"of": "delay", "codes": [1, 2, 3]}]},
    {"src": "map", "text": "cell", "tests": [{"of": "length", "codes": [0]}]},
]


def test_the_map_counts_each_cell_at_any_limits_sliders_and_filters(
    engine: Engine, frame: pd.DataFrame
) -> None:
    state = engine.state
    state.x, state.y, state.at = "length", "delay", {"mass": 1}
    state.limits = {"steps >= 120": 60.0, "abs(angle).max(time) <= 12": 20.0}
    state.filters = FILTERS
    found = figures.overview(engine.asked())
    fails = failing(frame, 60.0, 20.0)
    lengths, delays = (sorted(frame[name].unique()) for name in ("length", "delay"))
    for j, delay in enumerate(delays):
        for i, length in enumerate(lengths):
            mine = (
                (frame["length"] == length)
                & (frame["delay"] == delay)
                & (frame["mass"] == 0.1)
                & (frame["delay"] >= 1)  # the map is not filtered by its own cell
            )
            cell = found["cells"]
            assert unpacked(cell["fail"])[j * 4 + i] == (mine & fails).sum()
            done = mine & (frame["status"] == "done")
            assert unpacked(cell["pass"])[j * 4 + i] == (done & ~fails).sum()
            assert unpacked(cell["error"])[j * 4 + i] == (mine & (frame["status"] == "error")).sum()
    chosen = (frame["delay"] >= 1) & (frame["length"] == lengths[0])
    assert found["selected"]["fail"] == (chosen & fails).sum()
    assert found["all"]["fail"] == fails.sum()


def test_cubes_say_for_each_place_of_a_limit_or_slider_what_counting_anew_says(
    engine: Engine,
) -> None:
    state = engine.state
    state.filters = FILTERS[:1]
    state.at = {"mass": 2}
    cubes = figures.drags(engine.asked())
    strips = {strip["name"]: strip for strip in figures.held(engine.asked())["strips"]}
    levers = engine.source.levers
    bars = figures.overview(engine.asked())["levers"]
    for k, one in enumerate(levers):
        for stop in range(0, len(one.stops), 17):
            state.limits = {one.name: float(one.stops[stop])}
            anew = figures.overview(engine.asked())
            np.testing.assert_array_equal(
                unpacked(cubes["limits"][k])[:, stop], unpacked(anew["cells"]["pass"])
            )
            assert unpacked(bars[k]["passing"])[stop] == anew["selected"]["pass"]
            by_length = figures.held(engine.asked())["strips"]
            now = next(strip for strip in by_length if strip["name"] == "length")
            passing = np.array(now["n"]) - np.array(now["fail"])
            np.testing.assert_array_equal(
                unpacked(strips["length"]["passing"][k])[:, stop], passing
            )
    state.limits = {}
    for code in range(3):
        state.at = {"mass": code}
        anew = figures.overview(engine.asked())["cells"]
        cube = unpacked(cubes["sliders"]["mass"])[:, code]
        for k, name in enumerate(("pass", "fail", "pending", "error")):
            np.testing.assert_array_equal(cube[:, k], unpacked(anew[name]))


def test_rates_and_bounds_are_those_of_the_analysis(engine: Engine, path: Path) -> None:
    engine.state.x, engine.state.y = "length", "delay"
    cells = figures.overview(engine.asked())["cells"]
    expected = sk.failure_rate(sk.open(path), by=["delay", "length"])
    for ours, theirs in (("rate", "rate"), ("low", "low"), ("high", "high")):
        np.testing.assert_allclose(
            unpacked(cells[ours]), expected[theirs].values.ravel(), atol=1e-6
        )


def test_every_part_goes_to_json_in_any_state(engine: Engine) -> None:
    parts = [
        captions.meta(engine.source),
        figures.overview(engine.asked()),
        figures.drags(engine.asked()),
        figures.held(engine.asked()),
        figures.pair_matrix(engine.asked()),
        figures.sure(engine.asked()),
        deeper.kind_table(engine.asked()),
        deeper.island_table(engine.asked()),
        deeper.boxes(engine.asked()),
        deeper.lines(engine.asked()),
        deeper.distributions(engine.asked(), "steps", "length"),
    ]
    assert json.dumps(parts, allow_nan=False)


def test_an_errored_run_tells_its_traceback_and_the_smallest_change_that_passes(
    engine: Engine, frame: pd.DataFrame
) -> None:
    run = int(np.flatnonzero(frame["status"] == "error")[0])
    told = record(engine.source, engine.table, run, engine.stops, None)
    assert told["status"] == "error"
    assert HOSTILE in told["error"]
    assert "raise ArithmeticError" in told["log"]
    assert told["traces"][0]["lines"][0]["run"] != run  # of the nearest passing run alone
    change = told["nearest"]
    assert len(change["changes"]) == 1
    near = frame.iloc[change["run"]]
    assert near["status"] == "done"
    assert near["failed"] == 0
    assert told["place"] == 1


def test_a_run_shows_margins_neighbours_and_its_trace(engine: Engine, frame: pd.DataFrame) -> None:
    run = int(np.flatnonzero(frame["failed"] == 1)[0])
    told = record(engine.source, engine.table, run, engine.stops, None)
    row = frame.iloc[run]
    margins = {one["name"]: one for one in told["margins"]}
    assert margins["steps"]["away"] == row["steps"] - 120
    assert not all(one["holds"] for one in told["margins"])
    trace = told["traces"][0]
    own = next(line for line in trace["lines"] if line["run"] == run)
    assert len(own["x"]) == row["steps"]
    assert sorted(trace["limits"]) == [-12.0, 12.0]
    words = {0.0: "pass", 1.0: "fail"}
    for each in next(p for p in told["point"] if p["name"] == "delay")["alternatives"]:
        other = frame.iloc[each["run"]]
        expected = "error" if other["status"] == "error" else words[other["failed"]]
        assert each["outcome"] == expected
        assert str(other["delay"]) == each["label"]


def test_lines_are_all_runs_of_a_small_set_and_keep_rare_outcomes_of_a_large_one() -> None:
    n = 60_000
    ok = np.ones(n, bool)
    ok[:30] = False
    ds = xr.Dataset(
        {"ok": ("a", ok), "y": ("a", np.arange(n, dtype=float))},
        coords={"g": ("a", np.arange(n) % 10)},
    )
    drawn = deeper.lines(Engine(ds, requirements=["ok"]).asked())
    runs = unpacked(drawn["runs"])
    assert drawn["total"] == n
    assert len(runs) < 5000
    assert set(range(30)) <= set(runs.tolist())


def test_runs_that_have_not_ended_take_no_line_from_those_that_have() -> None:
    status = np.zeros(20_000, int)
    status[:3000] = 1
    ds = xr.Dataset({"y": ("a", status * 1.0), "status": ("a", status)}, {"a": np.arange(20_000)})
    drawn = deeper.lines(Engine(ds, requirements=["y > 0"]).asked())
    assert unpacked(drawn["runs"]).tolist() == list(range(3000))
    assert drawn["total"] == 3000
    none = deeper.lines(Engine(ds.assign(status=ds["status"] * 0), requirements=["y > 0"]).asked())
    assert none == {"why": "No run has ended, so there is no line to draw."}


def test_small_multiples_over_two_parameters_count_each_cell(
    engine: Engine, frame: pd.DataFrame
) -> None:
    engine.state.param.update(x="length", y="delay", by="mass", by2="replicate")
    found = figures.overview(engine.asked())
    assert [name for name, _ in found["axes"]] == ["mass", "replicate", "delay", "length"]
    shape = [n for _, n in found["axes"]]
    fails = failing(frame, 120, 12.0)
    names = ["mass", "replicate", "delay", "length"]
    expected = fails.groupby([frame[name] for name in names]).sum().to_numpy().reshape(shape)
    np.testing.assert_array_equal(unpacked(found["cells"]["fail"]).reshape(shape), expected)


def test_multiples_of_values_that_hardly_repeat_are_a_few_bins() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    coords = {name: ("run", rng.random(n)) for name in "abcd"}
    ds = xr.Dataset({"y": ("run", rng.random(n))}, coords=coords)
    engine = Engine(ds, requirements=["y > 0.5"])
    engine.state.param.update(x="a", y="b", by="c", by2="d")
    found = figures.overview(engine.asked())
    assert found["axes"] == [["c", 4], ["d", 4], ["b", 8], ["a", 8]]
    quarter = np.quantile(ds["c"], [0.25, 0.5])
    wanted = int(((ds["c"] > quarter[0]) & (ds["c"] <= quarter[1])).sum())
    counts = unpacked(found["cells"]["there"]).reshape(4, -1)
    assert abs(int(counts[1].sum()) - wanted) <= 2
    assert len(unpacked(figures.drags(engine.asked())["limits"][0])) == 4 * 4 * 8 * 8


@pytest.mark.parametrize("streams", ["independent", "common"])
def test_the_card_shows_the_seed_that_the_run_got(tmp_path: Path, streams: str) -> None:
    def echo(gain: float, tool: Any, seed: int, x0: Any = None) -> dict[str, float]:
        return {"told": float(seed)}

    grid = sk.grid(gain=[0.1, 1, 7], tool={"saw": min, "file": max}, replicates=2)
    sweep = sk.Sweep(echo, grid, requirements=["told > 2e9"], streams=streams)
    path = tmp_path / "seeds.zarr"
    ds = sk.run(sweep, path, n_jobs=1, backend="sequential", progress=False)
    engine = Engine(path)
    for run in range(ds["told"].size):
        shown = record(engine.source, engine.table, run, engine.stops, None)
        assert shown["seed"] == str(int(ds["told"].values.reshape(-1)[run]))
    grid = sk.latin_hypercube(gain=sk.design((0.0, 1.0)), size=5, seed=1)
    drawn = sk.Sweep(lambda gain, seed: {"told": float(seed)}, grid, streams=streams)
    ds = sk.run(drawn, tmp_path / "drawn.zarr", n_jobs=1, backend="sequential", progress=False)
    engine = Engine(ds, requirements=["told > 1e9"])
    shown = record(engine.source, engine.table, 3, engine.stops, None)
    assert shown["seed"] == str(int(ds["told"].values[3]))
    plain = Engine(xr.Dataset({"y": ("a", [1.0])}, coords={"a": [1]}), requirements=["y > 0"])
    assert record(plain.source, plain.table, 0, plain.stops, None)["seed"] == ""


def test_a_run_drawn_with_all_its_parameters_has_its_nearest_beside_it() -> None:
    gain = np.array([0.0, 1.0, 2.0, 10.0, 11.0])
    ds = xr.Dataset({"y": ("run", gain)}, coords={"gain": ("run", gain), "b": ("run", gain)})
    engine = Engine(ds, requirements=["y > 1.5"])
    around = record(engine.source, engine.table, 0, engine.stops, None)["around"]
    assert [one["run"] for one in around] == [1, 2, 3, 4]
    assert [one["outcome"] for one in around] == ["fail", "pass", "pass", "pass"]
    assert around[0]["away"] == pytest.approx(0.25)


def test_the_ground_beyond_a_limit_is_on_the_side_that_fails() -> None:
    heights = (("a", "t"), [[1.0, 2.0], [3.0, 4.0]])
    ds = xr.Dataset({"h": heights, "top": ("a", [2.0, 4.0])}, coords={"a": [1, 2]})
    wanted = ["h.min(t) >= 1.5", "h.max(t) <= 3.5", "abs(h).max(t) < 9", "h.last(t) > 0"]
    engine = Engine(ds, requirements=wanted)
    (shown,) = record(engine.source, engine.table, 0, engine.stops, None)["traces"]
    sides = dict(zip(shown["limits"], shown["beyond"], strict=True))
    assert sides == {1.5: "below", 3.5: "above", 9.0: "above", -9.0: "below", 0.0: ""}


def test_long_numbers_are_read_at_a_glance() -> None:
    text = "gain 0.152263 to 9.99803, load >= 2.5 and x = 1234.567, 8.01459e-05 of <n> in v1.2345a"
    assert rounded(text) == (
        "gain 0.152 to 10, load >= 2.5 and x = 1235, 8.01e-05 of <n> in v1.2345a"
    )


def test_the_nearest_passing_run_lists_all_that_differs() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((2, 300))
    ds = xr.Dataset({"y": ("run", a + 0.01 * b)}, {"a": ("run", a), "b": ("run", b)})
    engine = Engine(ds, requirements=["y < 0.5"])
    run = int(np.flatnonzero(ds["y"] >= 0.5)[0])
    near = record(engine.source, engine.table, run, engine.stops, None)["nearest"]
    away = np.abs(a - a[run]) / np.ptp(a) + np.abs(b - b[run]) / np.ptp(b)
    passing = np.flatnonzero(ds["y"] < 0.5)
    assert near["run"] == passing[np.argmin(away[passing])]
    assert [one["name"] for one in near["changes"]] == ["a", "b"]

"""The explorer without a browser: what it accepts, what it answers, how it follows a store."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import sweepkit as sk
from sweepkit.views.engine import Engine
from sweepkit.views.still import still
from tests.poles import HOSTILE, stored
from tests.waiting import LIMIT

PARTS = (
    "overview",
    "drags",
    "held",
    "pairs",
    "sure",
    "kinds",
    "islands",
    "regions",
    "lines",
    "distribution",
    "run",
    "first",
    "code",
)


def crossed(shape: tuple[int, ...], seed: int = 0, **coords: Any) -> xr.Dataset:
    names = [f"p{k}" for k in range(len(shape))]
    rng = np.random.default_rng(seed)
    own = {
        name: coords.get(name, np.arange(n, dtype=float))
        for name, n in zip(names, shape, strict=True)
    }
    return xr.Dataset(
        {"y": (names, rng.random(shape)), "ok": (names, rng.random(shape) < 0.5)}, coords=own
    )


def all_nan() -> xr.Dataset:
    ds = crossed((3, 3))
    return ds.assign(y=ds["y"] * np.nan)


ODD: dict[str, tuple[Any, Any]] = {
    "all pass": (crossed((4, 5)), ["y >= 0"]),
    "all fail": (crossed((4, 5)), ["y > 2"]),
    "one-valued dims": (crossed((1, 4, 1)), ["y > 0.5"]),
    "one run": (crossed((1,)), ["y > 0.5"]),
    "one dim": (crossed((7,)), ["y > 0.5"]),
    "twelve dims": (crossed((2,) * 12), ["y > 0.5", "ok"]),
    "200 categories": (crossed((200, 3), p0=[f"tool {k} <b>" for k in range(200)]), ["y > 0.5"]),
    "NaN only": (all_nan(), ["y > 0.5"]),
    "unicode": (
        crossed((3, 2), p0=["häß", "日本", HOSTILE]).rename(p0="Länge", y="ψ"),
        ["ψ > 0.5"],
    ),
    "no requirements": (crossed((4, 3)), None),
    "a variable of failures": (crossed((4, 3)).rename(ok="failed"), None),
    "no coordinates": (xr.Dataset({"y": (("i", "j"), np.eye(3))}), ["y < 0.5"]),
    "booleans and times": (
        crossed(
            (2, 3),
            p0=[False, True],
            p1=np.array(["2026-01-01", "2026-03-01", "2027-01-01"], dtype="datetime64[ns]"),
        ),
        ["y > 0.5"],
    ),
    "names of an analysis": (
        crossed((3, 2, 2)).rename(p0="kind", p1="size", p2="label"),
        ["y > 0.5"],
    ),
    "scattered": (
        xr.Dataset(
            {"y": ("run", np.random.default_rng(1).random(400))},
            coords={
                "gain": ("run", np.random.default_rng(2).random(400)),
                "tool": ("run", ["a", "b"] * 200),
            },
        ),
        ["y > 0.5"],
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_data_has_every_part_or_a_sentence_why(case: str) -> None:
    ds, requirements = ODD[case]
    engine = Engine(ds, requirements=requirements)
    engine.state.run = 0
    first = engine.first()
    assert json.dumps(first, allow_nan=False)
    for part in PARTS:
        data = engine._answer(part, {})
        assert json.dumps(data, allow_nan=False)
        for rows in ("rows", "pairs", "boxes"):
            if isinstance(data, dict) and data.get(rows) == []:
                assert data["why"], part


@pytest.mark.parametrize("case", ["unicode", "one run", "one dim", "NaN only", "no requirements"])
def test_odd_data_leaves_a_picture_and_escaped_text(case: str) -> None:
    ds, requirements = ODD[case]
    engine = Engine(ds, requirements=requirements)
    png, html, text = still(engine)
    assert png
    assert HOSTILE not in html
    assert engine.source.name in text


def test_what_cannot_be_explored_says_why() -> None:
    with pytest.raises(ValueError, match="no variables, so there is nothing to explore"):
        Engine(xr.Dataset(coords={"a": [1, 2]}))
    with pytest.raises(ValueError, match="share no dim"):
        Engine(xr.Dataset({"y": 3.0}))
    with pytest.raises(ValueError, match="'z'"):
        Engine(crossed((2, 2)), requirements=["z > 1"])
    stages = crossed((4,)).assign_coords(stage=("p0", [0, 0, 1, 1]))
    with pytest.raises(ValueError, match="these runs hold 2 stages"):
        Engine(stages, requirements=["y > 0.5"])


def test_without_requirements_the_map_shows_an_output_and_says_so() -> None:
    engine = Engine(crossed((4, 3)))
    assert engine.state.show == "output:y"
    assert "Nothing says which runs fail" in engine.first()["meta"]["notes"][0]
    value = engine._answer("overview", {})["value"]
    assert value["name"] == "y"


def test_python_moves_a_limit_between_stops_and_the_browser_is_told() -> None:
    engine = Engine(crossed((30, 30)), requirements=["y >= 0.5"])
    said: list[Any] = []
    engine.listen(said.append)
    engine.state.limits = {"y >= 0.5": 0.12345}
    assert engine.source.levers[0].stops[engine.stops[0]] == 0.12345
    assert [next(iter(one)) for one in said] == ["meta", "state"]
    fails = int((engine.source.ds["y"].values < 0.12345).sum())
    assert engine._answer("overview", {})["all"]["fail"] == fails
    with pytest.raises(ValueError, match=r"no requirement 'x'; there are"):
        engine.state.limits = {"x": 1.0}


def test_slow_parts_come_from_a_thread_and_the_last_question_wins() -> None:
    engine = Engine(crossed((6, 6)), requirements=["y >= 0.5"])
    answers: dict[str, Any] = {}
    all_there = threading.Event()

    def hear(message: dict[str, Any]) -> None:
        answers[message["part"]] = message
        if {"held", "pairs"} <= set(answers):
            all_there.set()

    engine.listen(hear)
    engine.handle({"state": {}, "want": ["held", "pairs"], "key": "k"})
    assert all_there.wait(LIMIT)
    assert answers["held"]["key"] == "k"
    assert answers["held"]["data"]["strips"]
    engine.close()


def test_a_store_being_filled_is_followed_and_filters_keep_their_values(tmp_path: Path) -> None:
    path = tmp_path / "poles.zarr"

    stored(path)
    status = zarr.open_group(path, mode="r+")["status"]
    assert isinstance(status, zarr.Array)
    whole = status[:]
    status[1:] = 0  # as a store is of which the first length has run
    engine = Engine(path)
    before = engine._answer("overview", {})
    assert before["progress"]["pending"] > 0
    engine.state.filters = [
        {"src": "map", "text": "delay 4", "tests": [{"of": "delay", "codes": [3]}]}
    ]
    news: list[Any] = []
    engine.listen(news.append)
    assert engine.refresh()
    assert not news  # nothing was written meanwhile
    status[:] = whole
    assert engine.refresh() is False
    assert "news" in news[-1]
    after = engine._answer("overview", {})
    assert after["progress"]["pending"] == 0
    ds = sk.open(path)
    expected = sk.runs(ds)
    assert after["all"]["fail"] == int((expected["failed"] == 1).sum())
    mask = engine.selected().reshape(engine.source.table.shape)
    assert mask.sum() == int((expected["delay"] == 4).sum())


def test_a_run_is_made_again_and_what_it_raises_is_the_answer(tmp_path: Path) -> None:
    ds = stored(tmp_path / "poles.zarr")
    errored = int(np.flatnonzero(sk.runs(ds)["status"] == "error")[0])

    def again(run: int) -> Any:
        if run == errored:
            raise ArithmeticError(f"no gain for {HOSTILE}")
        if run == errored - 1:
            raise ZeroDivisionError
        return {"text": "as stored", "same": True}

    engine = Engine(ds, replay=again)
    answers = [engine._answer("replay", {"run": errored - k})["same"] for k in range(3)]
    assert answers == [True, False, True]
    engine.replay = None
    assert "sk.explore(ds, replay=" in engine._answer("replay", {"run": 0})["text"]


def test_the_still_picture_is_small_and_escaped(tmp_path: Path) -> None:
    stored(tmp_path / "poles.zarr")
    png, html, _text = still(Engine(tmp_path / "poles.zarr"))
    assert png is not None
    assert len(png) + len(html) < 1_000_000
    assert HOSTILE not in html
    assert "ArithmeticError" in html


def test_a_part_that_breaks_is_a_sentence_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(asked: Any) -> Any:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("sweepkit.views.figures.held", broken)
    monkeypatch.setattr("sweepkit.views.engine.record", broken)
    engine = Engine(crossed((6, 6)), requirements=["y >= 0.5"])
    engine.state.run = 0
    answers: dict[str, Any] = {}
    all_there = threading.Event()

    def hear(message: dict[str, Any]) -> None:
        answers[message.get("part", "problem")] = message.get("data")
        if {"held", "pairs", "run"} <= set(answers):
            all_there.set()

    engine.listen(hear)
    engine.handle({"state": {}, "want": ["held", "run", "pairs"], "key": "k"})
    assert all_there.wait(LIMIT)
    assert answers["held"] == {"why": "This could not be made: ZeroDivisionError: by nothing"}
    assert "why" in answers["run"]
    assert answers["pairs"]["pairs"]
    monkeypatch.setattr("sweepkit.views.figures.overview", broken)
    said: list[Any] = []
    engine.listen(said.append)
    engine.handle({"state": {}, "want": ["overview"], "key": "k"})
    assert said == [{"problem": "The runs could not be counted: ZeroDivisionError: by nothing"}]
    engine.close()


def test_axes_swap_and_what_is_not_there_leaves_the_state_as_it_was() -> None:
    engine = Engine(crossed((3, 4, 2)), requirements=["y > 0.5"])
    before = engine.state.x, engine.state.y
    engine.state.x = before[1]
    assert (engine.state.x, engine.state.y) == before[::-1]
    with pytest.raises(ValueError, match=r"x='p9' is no parameter; there are 'p0', 'p1', 'p2'"):
        engine.state.x = "p9"
    assert engine.state.x == before[1]
    with pytest.raises(ValueError, match=r"by and by2 are both 'p2'"):
        engine.state.param.update(x="p0", y="p1", by="p2", by2="p2")
    with pytest.raises(ValueError, match="names 'p7', which is no parameter"):
        engine.state.filters = [{"src": "code", "text": "x", "tests": [{"of": "p7", "codes": [0]}]}]
    assert engine.state.filters == []
    assert (engine.state.x, engine.state.by) == (before[1], "")
    said: list[Any] = []
    engine.listen(said.append)
    engine.handle({"state": {"x": "p0", "y": "p0"}, "want": ["overview"]})
    assert "x and y are both 'p0'" in said[0]["problem"]


def test_a_dataset_of_a_sweep_that_runs_says_that_it_is_a_snapshot(tmp_path: Path) -> None:
    ds = stored(tmp_path / "poles.zarr")
    assert Engine(ds).first()["meta"]["notes"] == []
    half = ds.assign(status=ds["status"].where(ds["length"] < 0.3, 0))
    half.encoding = ds.encoding
    (note,) = Engine(half).first()["meta"]["notes"]
    assert "A snapshot: 72 runs were pending" in note
    assert "sk.explore('poles.zarr')" in note


def test_a_job_is_followed_from_its_first_run_on(tmp_path: Path) -> None:
    from tests.poles import sweep

    job = sk.start(sweep(), tmp_path / "poles.zarr", n_jobs=1, backend="threading", progress=False)
    engine = Engine(job)
    assert engine.source.path == str(tmp_path / "poles.zarr")
    job.result(LIMIT)
    engine.refresh()
    assert engine._answer("overview", {})["progress"]["pending"] == 0
    engine.close()
    with pytest.raises(TypeError, match="this is a int; give a Dataset, the path of a store, or a"):
        Engine(3)  # type: ignore[arg-type]


def test_what_is_written_while_the_store_is_read_is_seen_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s.zarr"
    grid = sk.grid(a=range(4))
    sweep = sk.Sweep(lambda a: float(a), grid, version="1")
    sk.run(sweep, store, backend="sequential", progress=False)
    opened = sk.open(store).load()
    more = sk.Sweep(lambda a: float(a), sk.grid(a=range(6)), version="1")

    def late(path: Any) -> xr.Dataset:
        monkeypatch.undo()
        sk.run(more, store, backend="sequential", progress=False)
        return opened

    monkeypatch.setattr("sweepkit.views.source.reading.open", late)
    engine = Engine(str(store))
    assert engine._answer("overview", {})["progress"]["total"] == 4
    engine.refresh()
    assert engine._answer("overview", {})["progress"]["total"] == 6
    engine.close()


def drawn() -> xr.Dataset:
    """Two drawn parameters and a category; runs of one category error."""
    rng = np.random.default_rng(1)
    gain, mass = rng.random(80) * 10, rng.random(80)
    mode = rng.choice(["calm", "wild"], 80)
    return xr.Dataset(
        {"y": ("run", gain * mass), "status": ("run", np.where(mode == "wild", 2, 1))},
        coords={"gain": ("run", gain), "mass": ("run", mass), "mode": ("run", mode)},
    )


def mode(engine: Engine, name: str) -> int:
    known = engine.source["mode"]
    return [known.label(code) for code in range(known.n)].index(name)


def test_points_to_run_next_are_of_the_selected_values_of_drawn_parameters() -> None:
    engine = Engine(drawn(), requirements=["y < 3"])
    engine.state.filters = [
        {"src": "brush", "text": "gain", "tests": [{"of": "gain", "low": 2.0, "high": 8.0}]},
        {
            "src": "brush",
            "text": "mode",
            "tests": [{"of": "mode", "codes": [mode(engine, "calm")]}],
        },
    ]
    points = engine.suggest(10, "boundary").points
    assert points["gain"].between(2, 8).all()
    assert set(points["mode"]) == {"calm"}


@pytest.mark.parametrize("part", ["pairs", "regions", "sure", "distribution"])
def test_a_selection_without_a_rate_says_so_and_not_how_many_others_there_are(part: str) -> None:
    engine = Engine(drawn(), requirements=["y < 3"])
    picked = [{"of": "mode", "codes": [mode(engine, "wild")]}]
    engine.state.filters = [{"src": "brush", "text": "wild", "tests": picked}]
    n = int((drawn()["mode"] == "wild").sum())
    said = engine._answer(part, {})["why"]
    assert said == f"None of the {n} selected runs has passed or failed."


def test_weighted_runs_have_the_rate_of_the_space_at_any_limit(tmp_path: Path) -> None:
    def peak(gain: float, mass: float) -> dict[str, float]:
        return {"peak": float(np.sin(3 * gain) * mass)}

    grid = sk.grid(gain=np.linspace(0.1, 2, 7), mass=np.linspace(0.1, 1, 5))
    made = sk.Sweep(peak, grid, requirements=["peak < 0.5"])
    options: dict[str, Any] = {"backend": "sequential", "progress": False}
    ds = sk.run(made, tmp_path / "s.zarr", **options)
    ds = sk.refine(made, tmp_path / "s.zarr", sk.suggest(ds, 12), **options)
    engine = Engine(ds)
    first = engine.first()
    told, declared = sk.rate(ds)["rate"].iloc[0], first["overview"]["declared"]
    assert first["overview"]["all"]["rate"] == pytest.approx(told)
    assert declared == pytest.approx(told)
    assert not first["meta"]["local"]  # else the browser would count runs when a limit moves
    plain = float(sk.failed(ds).mean())
    assert abs(plain - told) > 0.02
    assert f"weighted {100 * told:.1f} %" in still(engine)[2]
    assert "left out" in engine._answer("sure", {})["basis"]

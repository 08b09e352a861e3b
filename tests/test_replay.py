"""One run again: same arguments and draws, in the open, compared bit for bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk

QUIET: dict[str, Any] = {"backend": "sequential", "progress": False}


class Plant:
    def __init__(self, gain: float) -> None:
        self.gain = gain


def walk(
    gain: float, plant: Plant, start: Any, when: Any, rng: Any, seed: int, scratch: str
) -> dict[str, Any]:
    Path(scratch, "x").write_text("here")
    steps = int(rng.integers(3, 9))
    noise = random.random() + np.random.random()
    return {
        "peak": float(rng.normal() * gain * plant.gain + start.sum() + noise),
        "steps": steps,
        "seed_seen": seed,
        "ok": gain > 0,
        "label": f"{when}",
        "trace": rng.normal(size=steps),
    }


def sweep() -> sk.Sweep:
    return sk.Sweep(
        walk,
        sk.grid(
            gain=[-1.0, 0.5, 2.0],
            plant=sk.scenario({"light": Plant(1.0), "heavy": Plant(3.0)}),
            start=sk.values(np.arange(4.0).reshape(2, 2), dims=("case", "state")),
            when=np.array(["2020-01-01", "2020-01-02"], "M8[ns]"),
            replicates=2,
        ),
        outputs={"trace": sk.output(dims="step", size=9, pad=True)},
        requirements=["peak < 3"],
        entropy=7,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("replay") / "walk.zarr")
    sk.run(sweep(), path, **QUIET)
    return path


def test_every_way_to_name_a_run_reproduces_it_bit_for_bit(store: str) -> None:
    ds = sk.open(store)
    row = sk.runs(ds).iloc[29]
    ways: list[Any] = [
        29,
        row,
        sk.runs(ds).iloc[[29]],
        ds.isel(gain=1, plant=1, case=1, when=0, replicate=1),
        ds.isel(gain=[1], plant=1, case=[1], when=[0], replicate=1),
        {"gain": 0.5, "plant": "heavy", "start": [2.0, 3.0], "when": "2020-01-01", "replicate": 1},
    ]
    seeds = set()
    for way in ways:
        again = sk.replay(sweep(), ds, way)
        assert again.reproduced, again.differs
        assert again.code == "the code is the one that made the stored run"
        assert again.result["steps"] == len(again.outputs["trace"])
        seeds.add(again.seed)
    assert len(seeds) == 1
    assert sk.replay(sweep(), store, 29).outputs["peak"].item() == ds["peak"].values.ravel()[29]


def test_runs_of_a_grown_store_and_of_stages_reproduce(tmp_path: Path) -> None:
    def drawn(a: float, b: float, rng: Any) -> dict[str, float]:
        return {"y": a + b * float(rng.normal())}

    path = str(tmp_path / "s.zarr")
    whole = sk.Sweep(drawn, sk.grid(a=[1.0, 2.0], b=[1.0]), requirements=["y < 2"])
    sk.run(whole, path, **QUIET)
    grown = sk.Sweep(drawn, sk.grid(a=[0.5, 1.0, 2.0], b=[1.0, 3.0]), requirements=["y < 2"])
    sk.run(grown, path, **QUIET)
    points = sk.paired(a=[1.25, 1.75], b=[2.0, 2.5], dim="point")
    flat = sk.refine(grown, path, points, **QUIET)
    for at in range(flat.sizes["run"]):
        assert sk.replay(grown, flat, at).reproduced


def test_what_differs_is_named(store: str) -> None:
    ds = sk.open(store).isel(gain=2).load()
    changed = ds.assign(
        peak=ds["peak"] + 1e-15, steps=ds["steps"] + 1, trace=ds["trace"] * (1 + 1e-15)
    )
    changed = changed.assign(more=ds["peak"]).drop_vars("ok")
    again = sk.replay(sweep(), changed, 3)
    assert again.reproduced is False
    words = " ".join(again.differs)
    assert "steps: " in words
    assert " stored" in words
    assert "more: stored, and not returned here" in words
    assert "ok: returned here, and not stored" in words
    assert "entries, first at [0]" in words
    assert "not as stored" in again._repr_html_()
    assert "not as stored" in repr(again)


def test_an_exception_comes_through_with_its_frame_and_prints_appear(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fragile(a: int) -> dict[str, float]:
        print("looking at", a)
        inner = a - 1
        return {"y": 1 / inner}

    made = sk.Sweep(fragile, sk.grid(a=[1, 2, 3]))
    path = str(tmp_path / "f.zarr")
    ds = sk.run(made, path, **QUIET)
    capfd.readouterr()
    with pytest.raises(ZeroDivisionError) as raised:
        sk.replay(made, ds, {"a": 1})
    assert raised.traceback[-1].frame.f_locals["inner"] == 0
    assert capfd.readouterr().out == "looking at 1\n"

    def mended(a: int) -> dict[str, float]:
        return {"y": 1 / (a - 1) if a > 1 else 0.0}

    other = sk.Sweep(mended, sk.grid(a=[1, 2, 3]))
    again = sk.replay(other, ds, {"a": 1})
    assert again.reproduced is False
    assert "ended as error: ZeroDivisionError" in again.differs[0]
    assert "the code has changed since" in again.code
    assert sk.replay(other, ds, {"a": 3}).reproduced
    waiting = ds.assign(status=ds["status"] * 0)
    assert sk.replay(other, waiting, {"a": 2}).reproduced is None
    assert "pending" in sk.replay(other, waiting, {"a": 2}).verdict


def test_wrong_runs_are_refused_before_anything_is_called(store: str) -> None:
    ds = sk.open(store)
    whole = {"gain": 0.5, "plant": "light", "start": [2.0, 3.0], "when": "2020-01-01"}
    with pytest.raises(ValueError, match="2 runs fit along 'replicate'; give also a value of"):
        sk.replay(sweep(), ds, whole)
    with pytest.raises(ValueError, match=r"gain=0.6 is none of its 3 values; near are 0.5, "):
        sk.replay(sweep(), ds, {**whole, "gain": 0.6})
    with pytest.raises(ValueError, match="'gian' is no parameter; there are 'gain'"):
        sk.replay(sweep(), ds, {"gian": 1})
    with pytest.raises(ValueError, match="run 48 is not there; the Dataset has 48 runs"):
        sk.replay(sweep(), ds, 48)
    with pytest.raises(ValueError, match="the selection holds 24 runs"):
        sk.replay(sweep(), ds, ds.isel(when=0))
    with pytest.raises(TypeError, match="run is a str; give its number"):
        sk.replay(sweep(), ds, "first")
    with pytest.raises(ValueError, match="the table has 48 rows"):
        sk.replay(sweep(), ds, sk.runs(ds))
    with pytest.raises(TypeError, match="is no Sweep"):
        sk.replay(walk, ds, 0)  # type: ignore[arg-type]
    fewer = sk.Sweep(walk, sweep().grid)
    lone = sk.Sweep(
        lambda gain: {"peak": gain}, sk.grid(gain=[0.5, 1.0]), requirements=["peak < 3"]
    )
    with pytest.raises(ValueError, match="has 'plant', 'start', 'when', 'replicate', none of the"):
        sk.replay(lone, ds, 0)
    other = sk.grid(
        gain=[0.5],
        plant=sk.scenario({"other": Plant(1.0)}),
        start=sk.values(np.zeros((1, 2)), dims=("case", "state")),
        when=np.array(["2020-01-01"], "M8[ns]"),
        replicates=2,
    )
    with pytest.raises(ValueError, match=r"label '\w+' .* stands for no object in this sweep"):
        sk.replay(sk.Sweep(walk, other), ds, 0)
    assert fewer.entropy != 7
    assert sk.replay(fewer, ds, 5).reproduced  # the draws are the stored run's


def test_a_dataset_of_another_source_is_replayed_without_its_code() -> None:
    made = sk.Sweep(lambda a: {"y": 2.0 * a}, sk.grid(a=[1.0, 2.0]))
    ds = xr.Dataset({"y": ("a", [2.0, 5.0])}, coords={"a": [1.0, 2.0]})
    assert sk.replay(made, ds, 0).reproduced
    again = sk.replay(made, ds, 1)
    assert again.differs == ("y: 4.0 here, 5.0 stored",)
    assert "not known" in again.code


def test_a_vectorized_run_gets_arrays_of_one_entry_and_its_own_draws(tmp_path: Path) -> None:
    @sk.vectorized
    def walks(gain: Any, plant: Any, rng: Any, seed: Any) -> dict[str, Any]:
        drawn = np.array([one.normal(size=3) for one in rng])
        scale = np.array([one.gain for one in plant])
        return {
            "peak": gain * scale * drawn.max(axis=1),
            "seen": seed,
            "trace": drawn[:, :2],
            "trace_length": np.full(len(gain), 2),
        }

    grid = sk.grid(gain=[-1.0, 0.5], plant={"light": Plant(1.0), "heavy": Plant(3.0)}, replicates=2)
    sweep = sk.Sweep(walks, grid, outputs={"trace": sk.output(dims="step", size=3, pad=True)})
    ds = sk.run(sweep, tmp_path / "s.zarr", **QUIET)
    for run in range(grid.size):
        again = sk.replay(sweep, ds, run)
        assert again.reproduced, again
        assert again.result["seen"].shape == (1,)
    bad = sk.Sweep(sk.vectorized(lambda gain: 1.0), sk.grid(gain=[-1.0, 0.5]))
    stored = sk.run(bad, tmp_path / "b.zarr", **QUIET)
    with pytest.raises(ValueError, match="is one value, but the batch has 1 run; a vectorized"):
        sk.replay(bad, stored, 0)


def test_a_run_gets_its_inputs_and_what_is_set_up(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("abc")

    def simulate(a: int, model: str, table: Any, offset: int) -> dict[str, float]:
        return {"y": a + len(Path(model).read_text()) + float(table.sum()) + offset}

    sweep = sk.Sweep(
        simulate,
        sk.grid(a=[1, 2]),
        inputs={"model": tmp_path / "model.txt", "table": np.ones(3)},
        setup={"offset": lambda model: len(model)},
    )
    there = sk.Sweep(
        simulate,
        sk.grid(a=[1, 2]),
        inputs={"model": tmp_path / "model.txt", "table": np.ones(3)},
        setup={"offset": lambda: 7},
    )
    ds = sk.run(there, tmp_path / "s.zarr", **QUIET)
    assert sk.replay(there, ds, 1).reproduced
    assert float(sk.replay(sweep, ds, 1).outputs["y"]) > 2 + 3 + 3


def test_a_command_that_keeps_files_leaves_none_behind_when_it_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = sk.command(
        ["sh", "-c", "echo {a} > kept.txt; echo y={a}"],
        outputs={"y": sk.from_stdout(r"y=(\S+)")},
        keep="*.txt",
    )
    sweep = sk.Sweep(command, sk.grid(a=[1, 2]))
    ds = sk.run(sweep, "s.zarr", **QUIET)
    assert sk.replay(sweep, ds, 1).reproduced
    assert sorted(one.name for one in tmp_path.iterdir()) == ["s.zarr", "s.zarr.sweepkit"]

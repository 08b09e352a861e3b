"""Selections, as a mask and as code that gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.views.engine import Engine
from tests.poles import stored


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("selected") / "poles.zarr"
    stored(made)
    return made


def one(**test: Any) -> dict[str, Any]:
    return {"src": "test", "text": "test", "tests": [test]}


def same_as_code(engine: Engine, ds: xr.Dataset) -> int:
    """The number of selected runs, where the code says the same."""
    code = engine.code()
    mask = engine.selected().reshape(engine.source.table.shape)
    full = xr.DataArray(mask, dims=engine.source.table.dims)
    told = eval(code, {"ds": ds, "sk": sk, "np": np, "xr": xr})
    np.testing.assert_array_equal((told & xr.ones_like(full)).transpose(*full.dims).values, mask)
    return int(mask.sum())


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [one(of="length", codes=[0, 2])],
        [one(of="delay", codes=[1, 2, 3]), one(of="mass", codes=[0])],
        [one(output="steps", low=10, high=60)],
        [one(output="abs(angle).max(time)", low=5.0, high=14.0)],
        [one(outcome="fail"), one(of="length", codes=[0])],
        [one(outcome="pass")],
        [one(outcome="error")],
        [one(island=1)],
    ],
)
@pytest.mark.parametrize("limits", [{}, {"steps >= 120": 60.0}])
def test_the_code_selects_what_the_mask_does(
    path: Path, filters: list[Any], limits: dict[str, float]
) -> None:
    engine = Engine(path)
    engine.state.limits = limits
    engine.state.filters = filters
    n = same_as_code(engine, sk.open(path))
    assert 0 < n <= engine.source.table.n
    assert (n < engine.source.table.n) == bool(filters)


def test_the_code_of_a_kind_selects_its_runs(path: Path) -> None:
    engine = Engine(path)
    kind = ("error", *sk.kinds(sk.open(path))["template"].values[-1:])
    rows = engine._answer("kinds", {})["rows"]
    for row in rows:
        engine.state.filters = [one(kind=row["key"])]
        assert same_as_code(engine, sk.open(path)) == row["count"]
    assert any(row["family"] == kind[0] for row in rows)


def test_the_code_of_moved_compound_limits_and_categories_and_times() -> None:
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-04"], dtype="datetime64[ns]")
    ds = xr.Dataset(
        {
            "y": (("tool", "day"), [[1.0, 2.0, 3.0], [4.0, 5.0, np.nan]]),
            "z": (("tool", "day"), [[0.0, 0.2, 0.4], [0.6, 0.8, 1.0]]),
        },
        coords={"tool": ["saw's", "<b>"], "day": days},
    )
    engine = Engine(ds, requirements=["y > 1 and z < 0.7"])
    engine.state.limits = {engine.source.levers[0].name: -0.25}
    for filters, n in (
        ([one(of="tool", codes=[0])], 3),
        ([one(of="day", codes=[0, 1, 2])], 6),
        ([one(of="day", codes=[2])], 2),
        ([one(outcome="fail")], None),
        ([one(outcome="pass"), one(of="tool", codes=[1])], None),
    ):
        engine.state.filters = filters
        found = same_as_code(engine, ds)
        assert n is None or found == n


def test_the_code_of_bins_and_of_components_of_vectors() -> None:
    rng = np.random.default_rng(0)
    n = 600
    ds = xr.Dataset(
        {"y": ("run", rng.normal(size=n))},
        coords={"gain": ("run", rng.normal(size=n)), "x0": (("run", "axis"), rng.random((n, 2)))},
    )
    engine = Engine(ds, requirements=["y < 1"])
    for filters in (
        [one(of="gain", codes=[0, 5, 23])],
        [one(of="x0[1]", codes=[3])],
        [one(of="gain", low=-0.5, high=0.25)],
    ):
        engine.state.filters = filters
        assert 0 < same_as_code(engine, ds) < n


def test_a_filter_on_what_is_not_there_is_refused_by_name(path: Path) -> None:
    engine = Engine(path)
    said: list[Any] = []
    engine.listen(said.append)
    engine.handle({"state": {"filters": [one(of="lenght", codes=[0])]}, "want": []})
    assert "names 'lenght', which is no parameter; there are" in said[0]["problem"]


def test_the_code_of_kinds_of_parameters_called_as_parts_of_the_answer() -> None:
    rng = np.random.default_rng(0)
    ds = xr.Dataset(
        {"y": (("kind", "size", "island"), rng.random((4, 3, 2)))},
        coords={"kind": list("abcd"), "size": [1.0, 2.0, 3.0], "island": [False, True]},
    )
    engine = Engine(ds, requirements=["y > 0.4", "y < 0.8"])
    for row in engine._answer("kinds", {})["rows"]:
        engine.state.filters = [one(kind=row["key"])]
        assert same_as_code(engine, ds) == row["count"]
    assert sk.kinds(ds)["label"].dims == ("kind_", "size", "island")
    engine.state.filters = [one(island=1)]
    assert same_as_code(engine, ds) > 0
    assert sk.islands(ds, requirements=["y > 0.4"])["label"].dims == ("kind", "size_", "island_")

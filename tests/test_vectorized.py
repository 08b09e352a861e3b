"""Simulators of arrays: what they get and give, and one bad run of a batch alone is told."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.status import Status
from sweepkit.vectorized import CallCost
from tests.waiting import LIMIT, Leap, hang

BACKENDS = ("loky", "threading", "sequential")


def run(simulator: Any, grid: sk.Grid, store: str, **options: Any) -> xr.Dataset:
    known = {"n_jobs": 2, "backend": "sequential", "progress": False}
    declared = {name: options.pop(name) for name in ("outputs", "inputs") if name in options}
    sweep = sk.Sweep(simulator, grid, version="1", **declared)
    return sk.run(sweep, store, **{**known, **options}).load()


def words(ds: xr.Dataset) -> dict[str, list[int]]:
    """Positions of runs along the only dim, by status."""
    found: dict[str, list[int]] = {}
    for at, status in enumerate(ds["status"].values.astype(int)):
        found.setdefault(Status(status).word, []).append(at)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_gives_what_a_scalar_simulator_gives(store: str, backend: str) -> None:
    def fall(height: Any, gravity: Any) -> dict[str, Any]:
        speed = (2 * height * gravity) ** 0.5
        return {"speed": speed, "fast": speed > 5, "height_twice": height + height}

    grid = sk.grid(height=np.linspace(1, 9, 81), gravity=[1.62, 3.71, 9.81])
    ds = run(sk.vectorized(fall), grid, store, backend=backend)
    expected = run(fall, grid, f"{store}2")
    for name in ("speed", "fast", "height_twice"):
        xr.testing.assert_equal(ds[name], expected[name])
    assert (ds["status"] == Status.DONE).all()
    assert float(ds["duration"].min()) > 0


def test_it_is_handed_arrays_lists_of_objects_seeds_and_generators(store: str) -> None:
    seen: dict[str, Any] = {}

    @sk.vectorized
    def simulate(
        x: Any, mode: Any, when: Any, x0: Any, controller: Any, twice: Any, seed: Any, rng: Any
    ) -> dict[str, Any]:
        seen.update(locals())
        drawn = np.array([one.random() for one in rng])
        gains = np.array([one["gain"] for one in controller])
        return {"y": x + gains + x0.sum(axis=1), "drawn": drawn, "seed_seen": seed, "twice_": twice}

    def one(x: Any, mode: Any, when: Any, x0: Any, controller: Any, seed: int, rng: Any) -> Any:
        return {"y": x + controller["gain"] + x0.sum(), "drawn": rng.random(), "seed_seen": seed}

    grid = sk.grid(
        x=[1.0, 2.0],
        mode=["a", "b"],
        when=np.array(["2030-01-01"], dtype="datetime64[D]"),
        x0=sk.values([[1.0, 2.0], [3.0, 4.0]], dims=("case", "state")),
        controller={"low": {"gain": 10.0}, "high": {"gain": 20.0}},
        replicates=2,
    )
    ds = run(simulate, grid.derive(twice="2 * x"), store)
    expected = run(one, grid, f"{store}2")
    for name in ("y", "drawn", "seed_seen"):
        np.testing.assert_array_equal(ds[name].values, expected[name].values)
    assert (ds["twice_"] == 2 * ds["x"]).all()
    count = len(seen["x"])
    assert count > 1
    assert seen["x"].dtype == np.float64
    assert seen["mode"].tolist()[0] in ("a", "b")
    assert seen["when"].dtype == "datetime64[ns]"
    assert seen["x0"].shape == (count, 2)
    assert isinstance(seen["controller"], list)
    assert seen["seed"].shape == (count,)
    assert isinstance(seen["rng"], list)


@dataclass
class Pair:
    x: Any
    trace: Any


def test_dataclasses_datasets_and_arrays_with_dims_are_taken_apart(store: str) -> None:
    def as_dataclass(a: Any) -> Pair:
        return Pair(a * 1.0, np.stack([a, a + 1], axis=1))

    def as_dataset(a: Any) -> xr.Dataset:
        trace = ("run", "time"), np.stack([a, a + 1], axis=1), {"units": "m"}
        return xr.Dataset({"x": ("run", a * 1.0), "trace": trace}, coords={"time": [0.0, 0.5]})

    grid = sk.grid(a=range(40))
    for number, function in enumerate((as_dataclass, as_dataset)):
        ds = run(sk.vectorized(function), grid, f"{store}{number}")
        np.testing.assert_array_equal(ds["x"], np.arange(40))
        np.testing.assert_array_equal(ds["trace"].values[:, 1], np.arange(40) + 1)
    assert ds["trace"].attrs["units"] == "m"
    assert ds["time"].values.tolist() == [0.0, 0.5]
    ds = run(sk.vectorized(lambda a: a * 2.0), grid, f"{store}9")
    assert ds["result"].values.tolist() == [2.0 * a for a in range(40)]


def test_traces_that_end_early_come_with_lengths_or_as_a_list(store: str) -> None:
    said = {"trace": sk.output(dims="step", size=5, pad=True)}

    def with_lengths(a: Any) -> dict[str, Any]:
        steps = np.arange(5) + np.zeros((len(a), 1))
        return {"trace": steps, "trace_length": a % 6}

    def as_list(a: Any) -> dict[str, Any]:
        return {"trace": [np.arange(n, dtype=float) for n in (a % 6).tolist()]}

    for number, function in enumerate((with_lengths, as_list)):
        ds = run(sk.vectorized(function), sk.grid(a=range(30)), f"{store}{number}", outputs=said)
        assert ds["trace_length"].values.tolist() == [a % 6 for a in range(30)]
        assert np.isnan(ds["trace"].values).sum(axis=1).tolist() == [5 - a % 6 for a in range(30)]
        assert ds["trace"].sel(a=3).values[:3].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_a_batch_that_raises_only_the_culprits_are_errors(
    tmp_path: Path, store: str, backend: str
) -> None:
    ledger = tmp_path / "calls"

    def simulate(a: Any) -> dict[str, Any]:
        with open(ledger, "a") as file:
            file.write(f"{len(a)}\n")
        if np.isin(a, [777, 1500]).any():
            raise ValueError(f"no good among {len(a)}")
        return {"y": a * 2.0}

    ds = run(sk.vectorized(simulate), sk.grid(a=range(2000)), store, backend=backend)
    assert words(ds)["error"] == [777, 1500]
    assert words(ds)["done"] == sorted(set(range(2000)) - {777, 1500})
    assert str(ds["error"].values[777]) == "ValueError: no good among 1"
    assert "in simulate" in str(ds["log"].values[777])
    assert (ds["y"].values[[776, 778]] == [1552.0, 1556.0]).all()
    assert len(ledger.read_text().split()) < 150


def test_a_result_of_another_length_makes_the_runs_of_its_batch_invalid(store: str) -> None:
    def simulate(a: Any) -> dict[str, Any]:
        return {"y": a[:-1] if 5 in a and len(a) > 1 else a * 1.0}

    ds = run(sk.vectorized(simulate, max_batch=8), sk.grid(a=range(400)), store)
    invalid = words(ds).get("invalid", [])
    assert 5 in invalid or words(ds)["done"] == list(range(400))
    told = str(ds["error"].values[invalid[0]])
    assert f"has shape ({len(invalid) - 1},), but the batch has {len(invalid)} runs" in told
    mean = run(sk.vectorized(lambda a: a.mean()), sk.grid(a=range(3)), f"{store}2")
    assert words(mean) == {"invalid": [0, 1, 2]}
    assert "output 'result' is one value, but the batch has 1 run;" in str(mean["error"].values[0])


def test_a_value_that_does_not_fit_costs_its_own_run_alone(store: str) -> None:
    def simulate(a: Any) -> dict[str, Any]:
        return {"y": np.array([None if one == 50 else "text" for one in a], dtype=object)}

    ds = run(sk.vectorized(simulate), sk.grid(a=range(100)), store)
    assert words(ds)["invalid"] == [50]
    assert "output 'y' is None" in str(ds["error"].values[50])


def test_a_run_that_ends_its_worker_is_found_among_its_batch(store: str) -> None:
    def simulate(a: Any) -> dict[str, Any]:
        if 100 in a:
            os._exit(3)
        return {"y": a * 1.0}

    ds = run(sk.vectorized(simulate), sk.grid(a=range(300)), store, backend="loky")
    assert words(ds)["crashed"] == [100]
    assert len(words(ds)["done"]) == 299
    assert "exit code 3" in str(ds["error"].values[100])


def test_a_run_that_hangs_is_found_among_its_batch(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "hangs"
    monkeypatch.setattr("sweepkit.fleet.perf_counter", Leap(mark))

    def simulate(a: Any) -> dict[str, Any]:
        if 7 in a:
            hang(mark)
        return {"y": a * 1.0}

    grid, options = sk.grid(a=range(12)), {"backend": "loky", "n_jobs": 1, "timeout": LIMIT}
    ds = run(sk.vectorized(simulate), grid, store, **options)
    assert words(ds)["timeout"] == [7]
    assert len(words(ds)["done"]) == 11


def test_batches_grow_to_the_largest_allowed(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 1e-3)  # each call takes a millisecond
    monkeypatch.setattr("sweepkit.batchwise.perf_counter", lambda: next(clock))
    ledger = tmp_path / "calls"

    def simulate(a: Any, b: Any) -> dict[str, Any]:
        with open(ledger, "a") as file:
            file.write(f"{len(a)}\n")
        return {"y": a + b}

    grid = sk.grid(a=range(300), b=range(300))
    run(sk.vectorized(simulate, max_batch=4000), grid, store, n_jobs=1)
    sizes = [int(one) for one in ledger.read_text().split()]
    assert sum(sizes) == 90_000
    assert max(sizes) == 4000
    assert len(sizes) < 80


def test_the_next_batch_follows_from_the_largest_call() -> None:
    assert CallCost().next(10**6, 2, 10**5) == 1
    assert CallCost().after(1, 0.001).next(10**6, 2, 10**5) == 32
    assert CallCost().after(1000, 0.25).after(10, 9.0).next(10**6, 2, 10**5) == 2000
    assert CallCost().after(1000, 1.0).next(10**6, 2, 10**5) == 500
    assert CallCost().after(1000, 0.001).next(10**6, 2, 3000) == 3000
    assert CallCost().after(1000, 0.1).next(400, 2, 3000) == 200  # no shorter than 20 ms
    assert CallCost().after(1000, 10.0).next(400, 2, 3000) == 50
    assert CallCost().after(100, 10.0).next(4000, 2, 3000) == 5


def test_the_size_of_quick_calls_is_sought_until_it_is_found() -> None:
    assert CallCost().probing(100)
    assert CallCost().after(32, 0.01).probing(100)
    assert not CallCost().after(32, 0.1).probing(100)
    assert not CallCost().after(100, 0.01).probing(100)


def test_what_a_call_prints_is_in_the_log_of_its_first_run(store: str) -> None:
    def simulate(a: Any) -> Any:
        print("called")
        return a * 1.0

    ds = run(sk.vectorized(simulate), sk.grid(a=range(64)), store)
    logs = [str(one) for one in ds["log"].values if one]
    assert any(one.startswith("(printed by one call of ") for one in logs)


@pytest.mark.parametrize("max_batch", [0, -1, 2.5, True, None])
def test_a_largest_batch_that_is_no_count_is_refused(max_batch: Any) -> None:
    with pytest.raises(ValueError, match=r"max_batch is .*whole number of at least 1"):
        sk.vectorized(lambda a: a, max_batch=max_batch)


def test_what_cannot_be_vectorized_is_refused() -> None:
    with pytest.raises(TypeError, match="3 is no function"):
        sk.vectorized(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="vectorized already"):
        sk.vectorized(sk.vectorized(lambda a: a))
    with pytest.raises(TypeError, match="asks for scratch, but the runs of a batch share one call"):
        sk.Sweep(sk.vectorized(lambda a, scratch: a), sk.grid(a=[1]))


def test_changed_code_is_told_by_name(store: str) -> None:
    offset = 1.0

    def simulate(a: Any) -> Any:
        return a + offset

    sweep = sk.Sweep(sk.vectorized(simulate), sk.grid(a=range(4)))
    sk.run(sweep, store, backend="sequential", progress=False)
    offset = 2.0
    with pytest.raises(sk.StaleCodeError, match="'offset' changed"):
        sk.run(sweep, store, backend="sequential", progress=False)


def test_jax_functions_are_simulators(store: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    ds = run(sk.vectorized(lambda a: {"y": jnp.sqrt(a)}), sk.grid(a=np.arange(50.0)), store)
    np.testing.assert_allclose(ds["y"], np.sqrt(np.arange(50.0)), rtol=1e-6)

"""Sessions: every run once, at its place, with the same result whatever the compute."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import sweepkit as sk
from sweepkit import format1
from sweepkit.protocols import Batch
from sweepkit.status import Progress, Status
from tests.waiting import LIMIT


def run(sweep: sk.Sweep, path: str, **options: Any) -> xr.Dataset:
    return sk.run(sweep, path, **{"backend": "sequential", "progress": False, **options})


# --- what is stored is what was returned ---------------------------------------------------------

scalars = st.one_of(
    st.floats(width=64),
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    st.floats(width=32).map(np.float32),
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**16 - 1).map(np.uint16),
    st.integers(-(2**63) + 1, 2**63 - 1).map(lambda n: np.datetime64(n, "ns")),
    st.integers(-(2**62), 2**62).map(lambda n: np.timedelta64(n, "ns")),
    st.datetimes(datetime.datetime(1678, 1, 1), datetime.datetime(2262, 1, 1)),
    st.timedeltas(datetime.timedelta(-(10**5)), datetime.timedelta(10**5)),
    st.complex_numbers(allow_infinity=False),
)
arrays = st.one_of(
    npst.arrays(
        st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "M8[ns]"]),
        npst.array_shapes(max_dims=2, max_side=3),
    ),
    st.lists(
        st.sampled_from(["a", "é", "日本", "longer than the rest"]), min_size=1, max_size=3
    ).map(np.array),
)
axes = st.one_of(
    st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 6)), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=3, unique=True),
    st.lists(
        st.sampled_from(["", "a", "longer", "日本", " é"]), min_size=1, max_size=3, unique=True
    ),
    st.just([False, True]),
    st.lists(
        st.integers(-(2**60), 2**60).map(lambda n: np.datetime64(n, "ns")),
        min_size=1,
        max_size=3,
        unique=True,
    ),
    st.lists(
        st.integers(-(2**60), 2**60).map(lambda n: np.timedelta64(n, "ns")),
        min_size=1,
        max_size=3,
        unique=True,
    ),
)


def same(stored: Any, returned: Any) -> bool:
    """Whether a stored value is the returned one, NaN and NaT included."""
    if isinstance(returned, datetime.datetime | datetime.timedelta):
        kind = np.datetime64 if isinstance(returned, datetime.datetime) else np.timedelta64
        returned = kind(returned)
    stored, returned = np.asarray(stored), np.asarray(returned)
    if returned.dtype.kind in "US":
        return bool(stored.astype(object).tolist() == returned.astype(object).tolist())
    if returned.dtype.kind in "mM":
        whole = returned.astype(stored.dtype)
        return np.array_equal(stored.astype("int64"), whole.astype("int64"))
    if returned.dtype.kind in "fc":
        return np.array_equal(stored, returned.astype(stored.dtype), equal_nan=True)
    return bool(np.all(stored == returned))


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a shrunk store takes minutes
)
@given(a=axes, b=axes, value=scalars, array=arrays)
def test_axes_and_outputs_of_every_type_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, a: list[Any], b: list[Any], value: Any, array: Any
) -> None:
    path = str(tmp_path_factory.mktemp("trip") / "s.zarr")
    handed: list[tuple[Any, Any]] = []

    def simulate(a: Any, b: Any) -> dict[str, Any]:
        handed.append((a, b))
        return {"value": value, "array": array}

    run(sk.Sweep(simulate, sk.grid(a=a, b=b)), path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = sk.open(path, mask=False).load()
        shown = sk.open(path).load()
    assert (ds["status"] == Status.DONE).all(), ds["error"].values.ravel()[0]
    assert len(handed) == len(a) * len(b)
    for name, values in (("a", a), ("b", b)):
        assert same(ds[name].values, np.array(values)), name
    for i in range(len(a)):
        for j in range(len(b)):
            assert same(ds["value"].values[i, j], value)
            assert same(ds["array"].values[i, j], array)
    if not isinstance(value, int | np.integer) or abs(int(value)) <= 2**53:
        assert same(np.asarray(shown["value"].values[0, 0]), value)


class Named(NamedTuple):
    y: float
    n: int


@dataclasses.dataclass
class Data:
    y: float
    word: str


def returns() -> list[Any]:
    times = [0.0, 0.5, 1.0]
    trace = xr.DataArray(
        [1.0, 2.0, 3.0], dims="time", coords={"time": times}, name="trace", attrs={"units": "m"}
    )
    return [
        pytest.param(lambda: 1.5, {"result": 1.5}, id="number"),
        pytest.param(lambda: "text", {"result": "text"}, id="text"),
        pytest.param(lambda: np.float64(2.5), {"result": 2.5}, id="numpy scalar"),
        pytest.param(lambda: np.eye(2), {"result": np.eye(2)}, id="array"),
        pytest.param(lambda: {"y": 1, "z": "é"}, {"y": 1, "z": "é"}, id="dict"),
        pytest.param(lambda: Data(1.5, "a"), {"y": 1.5, "word": "a"}, id="dataclass"),
        pytest.param(lambda: Named(1.5, 2), {"y": 1.5, "n": 2}, id="namedtuple"),
        pytest.param(lambda: trace, {"trace": [1.0, 2.0, 3.0]}, id="DataArray"),
        pytest.param(
            lambda: xr.Dataset({"trace": trace, "peak": trace.max()}),
            {"trace": [1.0, 2.0, 3.0], "peak": 3.0},
            id="Dataset",
        ),
    ]


@pytest.mark.parametrize(("make", "expected"), returns())
def test_whatever_a_simulator_returns_becomes_outputs(
    store: str, make: Callable[[], Any], expected: dict[str, Any]
) -> None:
    ds = run(sk.Sweep(lambda a: make(), sk.grid(a=[1, 2])), store)
    assert (ds["status"] == Status.DONE).all(), ds["error"].values
    outputs = set(map(str, ds.data_vars)) - {v.name for v in format1.KEEPING}
    assert outputs == set(expected)
    for name, value in expected.items():
        assert same(ds[name].values[1], value)


def test_coordinates_of_a_returned_array_are_stored_with_its_units(store: str) -> None:
    def simulate(a: int) -> xr.DataArray:
        return xr.DataArray(
            np.arange(3.0) * a,
            dims="time",
            coords={"time": [0.0, 0.5, 1.0]},
            name="angle",
            attrs={"units": "rad"},
        )

    ds = run(sk.Sweep(simulate, sk.grid(a=[1, 2, 3])), store)
    assert ds["angle"].attrs["units"] == "rad"
    assert ds["time"].values.tolist() == [0.0, 0.5, 1.0]
    assert ds["angle"].sel(a=3, time=0.5).item() == 3.0
    grown = run(sk.Sweep(simulate, sk.grid(a=[0, 1, 2, 3]), version="2"), store, stale="keep")
    assert grown["time"].values.tolist() == [0.0, 0.5, 1.0]


def test_padded_outputs_keep_their_lengths_and_hide_their_padding(store: str) -> None:
    sweep = sk.Sweep(
        lambda n: {"trace": np.arange(1.0, n + 1), "words": ["w"] * max(n, 1)},
        sk.grid(n=[0, 1, 3, 5, 6]),
        outputs={
            "trace": sk.output(dims="time", size=5, pad=True),
            "words": sk.output(dims="word", size=5, pad=True),
        },
        requirements=["trace.last(time) < 4"],
    )
    ds = run(sweep, store)
    assert ds["status"].values.tolist() == [1, 1, 1, 1, 5]
    assert "6 entries along 'time'" in ds["error"].values[4]
    assert ds["trace_length"].values[:4].tolist() == [0, 1, 3, 5]
    assert ds["trace"].attrs["length"] == "trace_length"
    for at, n in enumerate([0, 1, 3, 5]):
        row = ds["trace"].values[at]
        assert row[:n].tolist() == list(range(1, n + 1))
        assert np.isnan(row[n:]).all()
    assert sk.failed(ds).values[1:4].tolist() == [0.0, 0.0, 1.0]


def test_vectors_are_handed_over_whole_and_one_run_per_case(store: str) -> None:
    x0 = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    grid = sk.grid(x0=sk.values(x0, dims=("case", "state")), gain=[1.0, 2.0])
    ds = run(sk.Sweep(lambda x0, gain: gain * x0, grid), store)
    assert ds["result"].shape == (2, 2, 3)
    assert ds["x0"].dims == ("case", "state")
    assert np.array_equal(ds["result"].sel(gain=2.0).values, 2 * x0)


def test_labels_hand_their_object_over_and_are_stored_as_text(store: str) -> None:
    laws = {"pid": {"kp": 1.0}, "lqr": {"kp": 2.0}}
    ds = run(sk.Sweep(lambda law: law["kp"], sk.grid(law=sk.values(laws))), store)
    assert ds["law"].values.tolist() == ["pid", "lqr"]
    assert ds["result"].sel(law="lqr").item() == 2.0


def test_a_grid_of_one_run_has_a_result(store: str) -> None:
    ds = run(sk.Sweep(lambda a: a + 1, sk.grid(a=41)), store)
    assert ds["result"].item() == 42
    ds = run(sk.Sweep(lambda: 1, sk.grid(replicates=1)), store.replace("a.zarr", "b.zarr"))
    assert ds["result"].dims == ("replicate",)


# --- faults from the field -----------------------------------------------------------------------


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one run."""
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(importlib.import_module("sweepkit.plan"), "BATCH_SECONDS", 0.0)


@pytest.mark.parametrize("late", [2.5, float("nan"), float("inf"), np.float32(0.5)])
@pytest.mark.parametrize("at_once", [True, False])
def test_floats_after_ints_widen_the_output(
    store: str, late: float, at_once: bool, request: pytest.FixtureRequest
) -> None:
    if not at_once:
        request.getfixturevalue("single")
    ds = run(sk.Sweep(lambda a: a if a < 2 else late, sk.grid(a=[0, 1, 2])), store)
    assert ds["status"].values.tolist() == [1, 1, 1]
    assert same(ds["result"].values, np.array([0.0, 1.0, late]))


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_an_integer_that_a_float_cannot_hold_is_never_rounded(
    store: str, order: list[int], at_once: bool, request: pytest.FixtureRequest
) -> None:
    if not at_once:
        request.getfixturevalue("single")
    results = [2**60 + 1, 0.5, 3]
    ds = run(sk.Sweep(lambda a: results[a], sk.grid(a=order)), store)
    for a in order:
        one = ds.sel(a=a)
        if one["status"].item() == Status.DONE:
            assert one["result"].item() == results[a]
        else:
            assert one["status"].item() == Status.INVALID
            assert "'result' is" in one["error"].item()
            assert "float64" in one["error"].item()
            assert "int64" in one["error"].item()
    assert (ds["status"] == Status.DONE).sum() == 2


@pytest.mark.parametrize(
    ("usual", "late"), [(5, 2**63 + 1), (np.uint64(5), -5), (-5, np.uint64(7)), (-5, 2**63 + 1)]
)
def test_integers_of_both_kinds_are_kept_exactly_where_one_type_holds_them(
    store: str, usual: int, late: int, single: None
) -> None:
    ds = run(sk.Sweep(lambda a: late if a == 31 else usual, sk.grid(a=range(40))), store)
    values = sk.open(store, mask=False)["result"].sel(a=[30, 31]).values
    if (usual, late) != (-5, 2**63 + 1):
        assert values.tolist() == [usual, late]
        return
    assert ds["status"].sel(a=31) == Status.INVALID
    assert "no type holds whole numbers beyond int64 beside" in ds["error"].sel(a=31).item()
    assert (ds["status"] == Status.DONE).sum() == 39


def test_an_output_that_only_some_runs_return_is_told_with_the_run_that_did_not(
    store: str, single: None
) -> None:
    def some(a: int) -> dict[str, int]:
        return {"x": a} if a != 7 else {"x": a, "y": a}

    ds = run(sk.Sweep(some, sk.grid(a=range(9))), store)
    told = ds["error"].sel(a=7).item()
    named = re.search(r"output 'y' was not returned by the first run \(a=(\d)\)", told)
    assert named is not None
    assert ds["status"].sel(a=int(named[1])) == Status.DONE


def test_widening_keeps_everything_else_and_goes_on_in_later_sessions(
    store: str, single: None
) -> None:
    def simulate(a: int) -> dict[str, Any]:
        if a == 1:
            raise ValueError("no")
        return {
            "y": np.int8(a) if a < 3 else a + 0.5,
            "word": f"w{a}",
            "when": np.datetime64(a, "h"),
        }

    run(sk.Sweep(simulate, sk.grid(a=[0, 1, 2]), version="1"), store)
    assert xr.open_zarr(store)["y"].dtype == np.int8
    ds = run(sk.Sweep(simulate, sk.grid(a=[0, 1, 2, 3]), version="1"), store)
    assert ds["y"].values[[0, 2, 3]].tolist() == [0.0, 2.0, 3.5]
    assert ds["word"].values.tolist() == ["w0", "", "w2", "w3"]
    assert ds["error"].values.tolist() == ["", "ValueError: no", "", ""]
    assert ds["attempts"].values.tolist() == [1, 1, 1, 1]
    assert ds["when"].values[3] == np.datetime64(3, "h")


def test_datetimes_are_exact_one_run_per_flush_and_after_growth(store: str, single: None) -> None:
    start = np.datetime64("2000-01-01T00:35")

    def sweep(a: list[int]) -> sk.Sweep:
        return sk.Sweep(lambda a: start + np.timedelta64(6 * a, "h"), sk.grid(a=a), version="1")

    run(sweep([3, 0]), store)
    ds = run(sweep([0, 1, 2, 3, 4]), store)
    assert ds["result"].values.tolist() == [
        (start + np.timedelta64(6 * a, "h")).astype("datetime64[ns]").astype(int) for a in range(5)
    ]


def test_results_lie_at_their_coordinates_whatever_order_they_finish_in(
    store: str, single: None
) -> None:
    barrier = threading.Barrier(2, timeout=LIMIT)

    def simulate(a: int) -> int:
        if a < 2:
            barrier.wait()
        time.sleep((20 - a) / 2000)
        return a

    ds = run(sk.Sweep(simulate, sk.grid(a=range(20))), store, backend="threading", n_jobs=4)
    assert (ds["result"] == ds["a"]).all()


def test_strings_are_not_cut_to_the_length_of_the_first(store: str, single: None) -> None:
    words = ["a", "longer", "", "é", "日本"]
    run(sk.Sweep(lambda a: words[a], sk.grid(a=range(4)), version="1"), store)
    ds = run(sk.Sweep(lambda a: words[a], sk.grid(a=range(5)), version="1"), store)
    assert ds["result"].values.tolist() == words


def test_replicates_of_a_simulator_that_ignores_its_inputs_are_all_run(store: str) -> None:
    ran: list[int] = []
    ds = run(sk.Sweep(lambda a: ran.append(a) or 1.0, sk.grid(a=[7], replicates=5)), store)
    assert ran == [7] * 5
    assert ds["result"].shape == (1, 5)


@pytest.mark.parametrize("at_once", [True, False])
def test_an_output_that_does_not_fit_makes_its_own_run_invalid(
    store: str, at_once: bool, request: pytest.FixtureRequest
) -> None:
    if not at_once:
        request.getfixturevalue("single")
    misfits: list[Any] = [
        {"y": "text"},
        {"y": [1.0, 2.0]},
        {"z": 1.0},
        {"y": 1.0, "z": 1.0},
        None,
        {"y": object()},
        {"y": True},
        {"y": np.datetime64("2000")},
        {1: 1.0},
    ]
    results = [{"y": 1.0}, *misfits, {"y": 2.0}]

    def sweep(a: Any) -> sk.Sweep:
        return sk.Sweep(lambda a: results[a], sk.grid(a=list(a)), version="1")

    run(sweep([0]), store)
    ds = run(sweep(range(len(results))), store)
    assert ds["status"].values.tolist() == [1, *[5] * len(misfits), 1]
    assert all(ds["error"].values[1:-1])
    assert ds["y"].values[[0, -1]].tolist() == [1.0, 2.0]
    assert "'y'" in ds["error"].values[1]
    assert "'z'" in ds["error"].values[4]


def test_a_field_of_one_shape_then_another_is_invalid_and_says_how_to_pad(store: str) -> None:
    ds = run(sk.Sweep(lambda n: np.zeros(n), sk.grid(n=[3, 4])), store)
    assert sorted(ds["status"].values.tolist()) == [1, 5]
    assert "pad=True" in "".join(ds["error"].values.tolist())


# --- the same results whatever the compute -------------------------------------------------------


def noisy(a: int, b: float, replicate: int, rng: np.random.Generator, seed: int) -> dict[str, Any]:
    if a == 3 and b > 1:
        raise ValueError(f"no {replicate}")
    return {
        "drawn": rng.random(3),
        "seed_seen": seed,
        "norm": float(np.linalg.norm(rng.normal(size=(20, 20)) @ np.ones(20))),
        "word": f"{a} {b}",
    }


def noisy_sweep(a: Any = (1, 2, 3), b: Any = (0.5, 1.5)) -> sk.Sweep:
    return sk.Sweep(noisy, sk.grid(a=list(a), b=list(b), replicates=4))


def results(ds: xr.Dataset) -> xr.Dataset:
    kept = ds.drop_vars(["duration", "log", "log_size"]).load()
    kept.attrs = {}
    return kept


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    return results(run(noisy_sweep(), str(tmp_path_factory.mktemp("reference") / "a.zarr")))


def test_random_draws_differ_from_run_to_run(reference: xr.Dataset) -> None:
    done = reference["status"].values == Status.DONE
    assert len(np.unique(reference["drawn"].values[done])) == done.sum() * 3
    assert done.sum() == 20


@pytest.mark.parametrize(
    ("backend", "n_jobs"),
    [("sequential", 1), ("threading", 1), ("threading", 4), ("loky", 1), ("loky", 2), ("loky", 4)],
)
def test_results_are_the_same_bit_for_bit_on_every_backend_and_worker_count(
    store: str, reference: xr.Dataset, backend: str, n_jobs: int
) -> None:
    ds = run(noisy_sweep(), store, backend=backend, n_jobs=n_jobs)
    xr.testing.assert_identical(results(ds), reference)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_results_are_the_same_bit_for_bit_with_every_block_size(
    store: str, reference: xr.Dataset, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(format1, "BLOCK_RUNS", block)
    monkeypatch.setattr(format1, "TEXT_RUNS", max(1, block // 2))
    xr.testing.assert_identical(results(run(noisy_sweep(), store)), reference)


def test_results_are_the_same_bit_for_bit_one_run_a_batch(
    store: str, reference: xr.Dataset, single: None
) -> None:
    xr.testing.assert_identical(results(run(noisy_sweep(), store)), reference)


def test_results_are_the_same_bit_for_bit_in_another_order_and_after_growth(
    store: str, reference: xr.Dataset
) -> None:
    run(noisy_sweep(a=[3], b=[1.5]), store)
    run(noisy_sweep(a=[2, 3], b=[1.5, 0.5]), store)
    ds = run(noisy_sweep(), store)
    xr.testing.assert_identical(results(ds), reference)


def test_an_active_parallel_config_is_honoured(store: str) -> None:
    names: set[str] = set()

    def simulate(a: int) -> float:
        names.add(threading.current_thread().name)
        return 1.0

    with joblib.parallel_config(backend="threading", n_jobs=2):
        sk.run(sk.Sweep(simulate, sk.grid(a=range(6))), store, progress=False)
    assert threading.main_thread().name not in names
    (session,) = (Path(f"{store}.sweepkit") / "sessions").iterdir()
    assert json.loads(session.read_text())["workers"] == 2


def test_what_cannot_be_sent_is_refused_by_name_before_the_store_is_made(store: str) -> None:
    lock = threading.Lock()

    def simulate(a: int) -> float:
        with lock:
            return 1.0

    with pytest.raises(TypeError, match="lock"):
        sk.run(sk.Sweep(simulate, sk.grid(a=[1])), store, n_jobs=1, progress=False)
    assert not Path(store).exists()


# --- size and masks ----------------------------------------------------------------------------


def test_too_large_a_grid_is_refused_with_its_count_and_longest_axes(store: str) -> None:
    grid = sk.grid(a=range(1000), b=range(2000), c=[1, 2], d=range(10))
    with pytest.raises(ValueError, match=r"40,000,000 points.*b \(2,000\), a \(1,000\), d \(10\)"):
        run(sk.Sweep(lambda a, b, c, d: 1.0, grid), store)
    small = sk.Sweep(lambda a: 1.0, sk.grid(a=range(11)))
    with pytest.raises(ValueError, match=r"11 points, more than max_runs=10.*max_runs=11"):
        run(small, store, max_runs=10)
    assert not Path(store).exists()
    assert run(small, store, max_runs=11).sizes["a"] == 11


def masked(counted: list[Any], mask: str | None) -> sk.Sweep:
    def simulate(a: int, b: int) -> float:
        counted.append((a, b))
        return float(a * b)

    grid = sk.grid(a=range(5), b=range(4))
    return sk.Sweep(simulate, grid if mask is None else grid.where(mask), version="1")


@pytest.mark.parametrize("block", [3, 65_536])
def test_masked_points_are_skipped_and_never_run(
    store: str, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(format1, "BLOCK_RUNS", block)
    ran: list[Any] = []
    ds = run(masked(ran, "a * b < 4"), store)
    expected = {(a, b) for a in range(5) for b in range(4) if a * b < 4}
    assert set(ran) == expected
    assert len(ran) == len(expected)
    skipped = ds["status"] == Status.SKIPPED
    assert int(skipped.sum()) == 20 - len(expected)
    assert ((ds["a"] * ds["b"] >= 4).values == skipped.values).all()
    assert ds["result"].where(skipped).isnull().all()
    assert len(sk.runs(ds)) == len(expected)
    ran.clear()
    run(masked(ran, "a * b < 4"), store)
    assert ran == []


def test_a_mask_changed_later_runs_what_it_lets_in_and_keeps_what_was_done(store: str) -> None:
    ran: list[Any] = []
    run(masked(ran, "a < 2"), store)
    ran.clear()
    ds = run(masked(ran, "a < 3"), store)
    assert sorted(ran) == [(2, b) for b in range(4)]
    assert int((ds["status"] == Status.SKIPPED).sum()) == 8
    ran.clear()
    ds = run(masked(ran, "a > 2"), store)
    assert sorted(ran) == [(a, b) for a in (3, 4) for b in range(4)]
    assert (ds["status"] == Status.DONE).all()
    ran.clear()
    run(masked(ran, None), store)
    assert ran == []


def test_a_changed_mask_counts_also_after_an_interruption(store: str, single: None) -> None:
    ran: list[Any] = []
    run(masked(ran, "a < 1"), store)
    wider = masked(ran, "a < 4")

    def raises(a: int, b: int) -> float:
        raise ValueError("enough")

    with pytest.raises(sk.RunError):
        run(dataclasses.replace(wider, simulator=raises), store, on_error="raise")
    ran.clear()
    ds = run(wider, store, rerun="error")
    assert sorted(ran) == [(a, b) for a in (1, 2, 3) for b in range(4)]
    assert ((ds["status"] == Status.SKIPPED) == (ds["a"] == 4)).all()


def test_a_changed_mask_counts_also_for_points_that_were_not_declared_then(store: str) -> None:
    def sweep(a: list[int], mask: str | None) -> sk.Sweep:
        grid = sk.grid(a=a)
        return sk.Sweep(lambda a: float(a), grid.where(mask) if mask else grid, version="1")

    run(sweep([0, 1, 2], "a > 0"), store)
    run(sweep([2], None), store)
    ds = run(sweep([0, 1, 2], None), store)
    assert ds["result"].values.tolist() == [0.0, 1.0, 2.0]


def test_a_changed_formula_in_a_mask_changes_the_mask(store: str) -> None:
    def sweep(formula: str) -> sk.Sweep:
        grid = sk.grid(a=[1, 2, 3]).derive({"size": formula}).where("size < 4")
        return sk.Sweep(lambda a: float(a), grid, version="1")

    ds = run(sweep("a ** 2"), store)
    assert ds["status"].values.tolist() == [1, 6, 6]
    ds = run(sweep("a * 1"), store)
    assert ds["status"].values.tolist() == [1, 1, 1]


def test_a_function_as_mask_is_asked_again(store: str) -> None:
    ran: list[Any] = []
    limit = 2

    def sweep() -> sk.Sweep:
        one = masked(ran, None)
        return dataclasses.replace(one, grid=one.grid.where(lambda a: a < limit))

    run(sweep(), store)
    limit = 4
    ran.clear()
    run(sweep(), store)
    assert {a for a, _ in ran} == {2, 3}


def test_a_mask_that_skips_everything_makes_a_store_without_runs(store: str) -> None:
    ran: list[Any] = []
    ds = run(masked(ran, "a > 99"), store)
    assert ran == []
    assert (ds["status"] == Status.SKIPPED).all()


# --- runs that raise -----------------------------------------------------------------------------


def third_raises(a: int) -> float:
    print("at", a)
    if a % 3 == 2:
        raise ValueError(f"no {a}")
    return float(a)


def test_a_run_that_raises_is_an_error_with_its_traceback_and_prints(store: str) -> None:
    ds = run(sk.Sweep(third_raises, sk.grid(a=range(9))), store)
    assert ds["status"].values.tolist() == [1, 1, 2] * 3
    assert ds["error"].sel(a=5).item() == "ValueError: no 5"
    log = ds["log"].sel(a=5).item()
    assert log.startswith("at 5\nTraceback")
    assert 'raise ValueError(f"no {a}")' in log
    assert "sweepkit" not in log.replace(__file__, "").replace("test_run", "")
    assert ds["log"].sel(a=4).item() == "at 4\n"
    assert ds["result"].sel(a=[2, 5, 8]).isnull().all()


def test_a_sweep_whose_runs_all_raise_is_stored_and_can_be_mended(store: str) -> None:
    def broken(a: int) -> float:
        raise RuntimeError("no")

    ds = run(sk.Sweep(broken, sk.grid(a=range(200)), version="1"), store)
    assert (ds["status"] == Status.ERROR).all()
    assert set(ds.data_vars) == {v.name for v in format1.KEEPING}
    ran: list[int] = []
    whole = sk.Sweep(lambda a: ran.append(a) or float(a), sk.grid(a=range(200)), version="1")
    assert (run(whole, store)["status"] == Status.ERROR).all()
    assert ran == []
    ds = run(whole, store, rerun="error")
    assert sorted(ran) == list(range(200))
    assert (ds["result"] == ds["a"]).all()
    assert (ds["attempts"] == 2).all()
    assert set(ds["error"].values.tolist()) == {""}
    assert set(xr.open_zarr(store)["error"].values.tolist()) == {""}


def test_outputs_that_first_appear_after_errors_are_stored(store: str, single: None) -> None:
    def simulate(a: int) -> dict[str, Any]:
        if ran.append(a) or len(ran) < 150:
            raise ValueError("not yet")
        return {"y": float(a), "trace": np.arange(3) * a, "word": "w" * (a % 3)}

    ran: list[int] = []
    ds = run(sk.Sweep(simulate, sk.grid(a=range(200))), store)
    done = ds["status"] == Status.DONE
    assert int(done.sum()) == 51
    assert ((ds["y"] == ds["a"]).values == done.values).all()
    assert (ds["attempts"] == 1).all()


def test_errors_are_tried_again_when_asked_and_nothing_else_is(store: str) -> None:
    ran: list[int] = []
    mended = False

    def simulate(a: int) -> float:
        ran.append(a)
        if a in (1, 3) and not mended:
            raise ValueError("no")
        return float(a)

    sweep = sk.Sweep(simulate, sk.grid(a=range(5)), version="1")
    run(sweep, store)
    ran.clear()
    run(sweep, store)
    assert ran == []
    mended = True
    ds = run(sweep, store, rerun="error")
    assert sorted(ran) == [1, 3]
    assert ds["attempts"].values.tolist() == [1, 2, 1, 2, 1]
    assert ds["result"].values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="rerun='erorr' is no status; there are"):
        run(sweep, store, rerun="erorr")


@pytest.mark.parametrize("backend", ["sequential", "threading", "loky"])
def test_on_error_raise_stops_and_keeps_what_is_done(store: str, backend: str) -> None:
    sweep = sk.Sweep(third_raises, sk.grid(a=range(1000)), version="1")
    with pytest.raises(
        sk.RunError, match=r"(?s)the run at a=\d+ ended with ValueError: no \d+\n.*Traceback.*kept"
    ):
        run(sweep, store, backend=backend, n_jobs=2, on_error="raise")
    ds = sk.open(store).load()
    counts = sk.status_counts(ds)
    assert counts["error"] >= 1
    assert (ds["result"] == ds["a"]).where(ds["status"] == Status.DONE, True).all()
    before = set(ds["a"].values[ds["status"].values == Status.DONE].tolist())
    ds = run(sweep, store, backend=backend, n_jobs=2)
    assert (ds["attempts"] == 1).all()
    assert before <= set(ds["a"].values[ds["status"].values == Status.DONE].tolist())


@pytest.mark.parametrize("limit", [5, 0.2])
def test_too_many_errors_stop_the_sweep_with_their_kinds(
    store: str, limit: float, single: None
) -> None:
    sweep = sk.Sweep(third_raises, sk.grid(a=range(300)))
    with pytest.raises(sk.TooManyErrorsError, match=r"did not succeed.*ValueError \(\d+\)"):
        run(sweep, store, max_errors=limit)
    counts = sk.status_counts(sk.open(store))
    assert counts["pending"] > 200
    if limit == 5:
        assert counts["error"] == 6


@pytest.mark.parametrize("limit", [5, 0.2])
def test_a_stopped_sweep_does_not_go_well_by_being_run_again(store: str, limit: float) -> None:
    sweep = sk.Sweep(third_raises, sk.grid(a=range(60)), version="1")
    with pytest.raises(sk.TooManyErrorsError):
        run(sweep, store, max_errors=limit, backend="sequential")
    before = sk.status_counts(sk.open(store))
    way_on = rf"{before['error']} error\) again with rerun=\"error\", or allow more"
    with pytest.raises(sk.TooManyErrorsError, match=rf"runs in the store.*{way_on}"):
        run(sweep, store, max_errors=limit, backend="sequential")
    assert sk.status_counts(sk.open(store)) == before
    mended = dataclasses.replace(sweep, simulator=lambda a: a)
    ds = run(mended, store, max_errors=limit, rerun="error", backend="sequential")
    assert (ds["status"] == Status.DONE).all()


def test_a_finished_sweep_of_too_many_errors_never_goes_well(store: str) -> None:
    """The last of three runs is none too many, but of all of them more erred than may."""

    def first_raise(a: int) -> int:
        if a < 2:
            raise ValueError(a)
        return a

    sweep = sk.Sweep(first_raise, sk.grid(a=range(3)))
    for _ in range(2):
        with pytest.raises(sk.TooManyErrorsError, match="2 of 3 runs"):
            run(sweep, store, max_errors=0.5, backend="sequential")
    assert sk.status_counts(sk.open(store))["error"] == 2
    run(sweep, store, max_errors=2, backend="sequential")
    with pytest.raises(sk.RunError, match=r'2 runs in the store.*rerun="error"'):
        run(sweep, store, on_error="raise", backend="sequential")


def test_few_errors_do_not_stop_the_sweep(store: str) -> None:
    ds = run(sk.Sweep(third_raises, sk.grid(a=range(60))), store, max_errors=0.5)
    assert (ds["status"] != Status.PENDING).all()


def test_prints_and_warnings_are_in_the_log_and_not_on_screen(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def simulate(a: int) -> float:
        print("said", a)
        warnings.warn("careful", stacklevel=1)
        return 1.0

    for at, backend in enumerate(("sequential", "loky")):
        path = store.replace("a.zarr", f"{at}.zarr")
        ds = run(sk.Sweep(simulate, sk.grid(a=[1, 2])), path, backend=backend, n_jobs=1)
        for a in (1, 2):
            log = ds["log"].sel(a=a).item()
            assert f"said {a}\n" in log
            assert "UserWarning: careful" in log
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


# --- progress and ends ---------------------------------------------------------------------------


def test_progress_counts_up_to_the_total_and_ends_once(store: str, single: None) -> None:
    told: list[Progress] = []

    def simulate(a: int) -> float:
        time.sleep(0.01)
        return third_raises(a)

    run(
        sk.Sweep(simulate, sk.grid(a=range(60)).where("a < 55"), requirements=["result > 20"]),
        store,
        progress=told.append,
    )
    assert len(told) >= 3
    states = [one.state for one in told]
    assert list(dict.fromkeys(states)) == ["queued", "held", "running", "collecting", "done"]
    assert told[0].finished == 0
    assert [one.state for one in told].count("done") == 1
    assert told[-1].state == "done"
    assert all(a.finished <= b.finished and a.failed <= b.failed for a, b in pairwise(told))
    assert all(one.total == 60 for one in told)
    last = told[-1]
    assert last.counts == {"done": 37, "error": 18, "skipped": 5}
    assert last.finished == 60
    assert last.errors == {"ValueError": 18}
    ds = sk.open(store)
    assert last.failed == int(sk.failed(ds).sum())
    assert last.remaining[0] == 0


def test_progress_of_a_finished_sweep_is_told_as_done(store: str) -> None:
    sweep = sk.Sweep(third_raises, sk.grid(a=range(4)))
    run(sweep, store)
    told: list[Progress] = []
    run(sweep, store, progress=told.append)
    assert [one.state for one in told] in ([], ["done"])


def test_progress_after_an_early_end_is_told_as_cancelled(store: str, single: None) -> None:
    told: list[Progress] = []
    with pytest.raises(sk.RunError):
        run(
            sk.Sweep(third_raises, sk.grid(a=range(9))),
            store,
            on_error="raise",
            progress=told.append,
        )
    assert told[-1].state == "cancelled"


def test_a_view_that_raises_loses_no_finished_run(store: str, single: None) -> None:
    def view(progress: Progress) -> None:
        if progress.finished > 5:
            raise ZeroDivisionError

    def simulate(a: int) -> float:
        time.sleep(0.05)
        ran.append(a)
        return float(a)

    ran: list[int] = []
    sweep = sk.Sweep(simulate, sk.grid(a=range(40)), version="1")
    with pytest.raises(ZeroDivisionError):
        run(sweep, store, progress=view)
    first = set(ran)
    run(sweep, store)
    assert len(ran) == len(set(ran)) == 40
    assert first


def test_the_receipt_of_a_session_tells_what_was_run(store: str) -> None:
    run(sk.Sweep(third_raises, sk.grid(a=range(9)), requirements=["result > 3"]), store)
    (path,) = (Path(f"{store}.sweepkit") / "sessions").iterdir()
    said = json.loads(path.read_text())
    assert said["runs"] == {"done": 6, "error": 3}
    assert said["errors"] == {"ValueError": 3}
    assert said["failed"] == 3
    assert said["ended"] >= said["began"]
    assert said["environment"]["numpy"] == np.__version__


def test_requirements_on_what_is_no_output_are_refused_by_name(store: str) -> None:
    with pytest.raises(ValueError, match="steps"):
        run(sk.Sweep(lambda a: 1.0, sk.grid(a=[1]), requirements=["steps > 3"]), store)
    ran: list[int] = []
    ds = run(
        sk.Sweep(
            lambda a: ran.append(a) or 1.0, sk.grid(a=[1]), version="1", requirements=["result > 3"]
        ),
        store,
        stale="keep",
    )
    assert ds["result"].item() == 1.0


def test_an_output_named_like_a_parameter_is_refused(store: str) -> None:
    with pytest.raises(ValueError, match="'a'"):
        run(sk.Sweep(lambda a: {"a": 1.0}, sk.grid(a=[1])), store)


def test_every_session_runs_the_coarse_pass_first_in_its_recorded_order(
    store: str, single: None
) -> None:
    from sweepkit.grid import random_prefix

    ran: list[tuple[int, int]] = []
    grid = sk.grid(a=range(40), b=range(50))

    def simulate(a: int, b: int) -> float:
        ran.append((a, b))
        if len(ran) > 100:
            raise ValueError("enough")
        return 1.0

    with pytest.raises(sk.RunError):
        run(sk.Sweep(simulate, grid), store, on_error="raise")
    order = json.loads(sk.open(store).attrs["sweepkit"])["order"]
    assert order["sizes"] == {"a": 40, "b": 50}
    assert order["coarse"] == 100
    prefix = random_prefix(order["seed"], 2000, order["coarse"])
    points = set(zip(*(x.tolist() for x in np.unravel_index(prefix, (40, 50))), strict=True))
    assert set(ran[:100]) == points


def test_batches_of_a_session_lie_inside_blocks_and_few_blocks_are_open(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen by an executor of our own, which is also how others plug in."""
    monkeypatch.setattr(format1, "BLOCK_RUNS", 100)
    from sweepkit.executors.joblib import JoblibExecutor

    seen: list[Batch] = []

    class Watched:
        workers = 1

        def hold(self, task: Any, *, timeout: Any) -> Any:
            from contextlib import contextmanager

            @contextmanager
            def held() -> Any:
                with JoblibExecutor(backend="sequential").hold(task, timeout=timeout) as crew:
                    yield Crew(crew)

            return held()

    class Crew:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def map(self, batches: Any, stopping: Any, share: Any) -> Any:
            def watched() -> Any:
                for one in batches:
                    seen.append(one)
                    yield one

            return self.inner.map(watched(), stopping, share)

    grid = sk.grid(a=range(50), b=range(50))
    ds = sk.run(
        sk.Sweep(lambda a, b: float(a * b), grid), store, executor=Watched(), progress=False
    )
    assert (ds["result"] == ds["a"] * ds["b"]).all()
    assert sorted(int(r) for one in seen for r in one.runs) == list(range(2500))
    assert all(len(one) <= 100 for one in seen)
    main = [one.block for one in seen if one.block >= 0][-200:]
    tail = [block for at, block in enumerate(main) if at > len(main) // 2]
    assert tail == sorted(tail)


def test_the_callers_folder_and_environment_are_left_alone(store: str) -> None:
    before = os.getcwd(), dict(os.environ)
    run(sk.Sweep(third_raises, sk.grid(a=range(3))), store)
    assert (os.getcwd(), dict(os.environ)) == before

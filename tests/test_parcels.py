"""Big outputs: written by workers as the chunks that they are to be; only receipts travel."""

from __future__ import annotations

import errno
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sweepkit as sk
from sweepkit import format1
from sweepkit.arrays import Arrays
from sweepkit.format1 import Variable
from sweepkit.intake import Intake
from sweepkit.parcels import FolderDepot, Parcel, deliver, folder_depot, unpacked
from sweepkit.protocols import Outcome, StoreError
from sweepkit.stores.zarr import ZarrStore

MB = 2**20 // 8
"""Float64 in a megabyte."""

Field = Callable[[int], NDArray[Any]]


def field(i: int, entries: int = MB) -> NDArray[np.float64]:
    """What a run gives: noise of its own, half of it."""
    made = np.zeros(entries)
    made[::2] = np.random.default_rng(i).random(entries // 2)
    return made


def swept(store: str, function: Callable[..., Any], count: int = 6, **options: Any) -> Any:
    outputs = options.pop("outputs", {})
    requirements = options.pop("requirements", ())
    sweep = sk.Sweep(
        function, sk.grid(i=range(count)), outputs=outputs, requirements=requirements, version="1"
    )
    return sk.run(sweep, store, **{"n_jobs": 2, "progress": False, **options})


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """What the driver gets from workers."""
    outcomes: list[Outcome] = []
    take = Intake.take

    def seen(self: Intake, outcome: Outcome) -> None:
        outcomes.append(outcome)
        take(self, outcome)

    monkeypatch.setattr(Intake, "take", seen)
    return outcomes


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of three numbers count as big, in this process."""
    monkeypatch.setattr(format1, "CHUNK_BYTES", 16)


# --- one parcel ----------------------------------------------------------------------------------

KINDS = ["float64", "float32", "int16", "uint64", "bool", "complex128", "datetime64[ns]"]


@pytest.mark.parametrize("guards", [0, 2])
@pytest.mark.parametrize("dtype", KINDS)
def test_a_parcel_is_the_very_chunk_that_zarr_writes(
    tmp_path: Path, dtype: str, guards: int
) -> None:
    variable = Variable("x", dtype, ("t", "u"), (30, 7), guards=guards)
    values = np.arange(210).reshape(30, 7).astype(variable.memory_dtype)
    arrays = Arrays(tmp_path)
    arrays.make(variable, (2, 30, 7), (1, 30, 7), ("i", "t", "u"))
    arrays.write("x", (slice(0, 1),), values[None])
    with folder_depot(tmp_path / "depot", {}) as depot:
        assert depot is not None
        parcel = depot.put(values, guards)
        np.testing.assert_array_equal(unpacked(parcel), values)
        deliver(parcel, tmp_path / "x/c/1/0/0")
    chunks = [(tmp_path / f"x/c/{i}/0/0").read_bytes() for i in (0, 1)]
    assert chunks[0] == chunks[1]
    assert not (tmp_path / "depot").exists()


def spoiled_size(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def spoiled_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + b"1234")


@pytest.mark.parametrize("spoil", [Path.unlink, spoiled_size, spoiled_end])
def test_a_parcel_that_is_not_as_its_receipt_says_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    store = ZarrStore(tmp_path / "a.zarr")
    with store.hold(), store.depot() as depot:
        assert depot is not None
        parcel = depot.put(np.arange(9.0), 0)
        spoil(Path(parcel.place))
        with pytest.raises(StoreError, match="'x' cannot be written: what a worker wrote there"):
            store.deliver("x", (0, 0), parcel)
        with pytest.raises(StoreError, match="what a worker wrote there is gone or damaged"):
            store.unpacked(parcel)
    assert not (tmp_path / "a.zarr").exists()


def test_values_are_put_where_the_driver_is_reached_and_nowhere_else(tmp_path: Path) -> None:
    with folder_depot(tmp_path / "depot", {}) as depot:
        assert depot is not None
        assert pickle.loads(pickle.dumps(depot)).reached
        assert not replace(depot, token="of another session", _reached=None).reached
        assert not FolderDepot(str(tmp_path / "elsewhere"), depot.token).reached


# --- sweeps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["loky", "threading", "sequential"])
def test_receipts_travel_and_values_are_stored_bit_for_bit(
    store: str, taken: list[Outcome], backend: str
) -> None:
    ds = swept(store, lambda i: {"field": field(i), "i2": i * i}, backend=backend)
    assert (ds["status"] == 1).all()
    for i in range(6):
        np.testing.assert_array_equal(ds["field"].values[i], field(i))
    assert ds["i2"].values.tolist() == [0, 1, 4, 9, 16, 25]
    assert all(one.result.columns["field"][0].written for one in taken)
    assert max(len(pickle.dumps(one.result)) for one in taken) < 5_000
    assert not Path(f"{store}.sweepkit/parcels").exists()
    assert len(sk.verify(store)) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is reset by Linux alone")
def test_the_driver_does_not_grow_with_what_runs_give(store: str) -> None:
    def big(i: int) -> dict[str, NDArray[np.float64]]:
        made = np.zeros(4 * MB)
        made[:MB] = np.random.default_rng(i).random(MB)
        return {"field": made}

    swept(f"{store}.first", big, 2)  # what is imported once
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    ds = swept(store, big, 40)
    grown = peak() - before
    assert (ds["status"] == 1).all()
    assert ds["field"].isel(i=39).values[:MB].tolist() == big(39)["field"][:MB].tolist()
    assert grown < 24 * 2**20, f"{grown / 2**20:.0f} MB for 160 MB of results"


def peak() -> int:
    """Largest memory of this process since that was reset, bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(one.split()[1]) * 1024 for one in lines if one.startswith("VmHWM"))


def test_a_run_that_kills_its_worker_leaves_no_value_and_its_neighbours_theirs(store: str) -> None:
    def f(i: int) -> NDArray[np.float64]:
        if i == 4:
            os._exit(7)
        return field(i)

    ds = swept(store, f, 8)
    words = [sk.Status(int(one)).word for one in ds["status"].values]
    assert words == ["done"] * 4 + ["crashed"] + ["done"] * 3
    for i in (0, 3, 5, 7):
        np.testing.assert_array_equal(ds["result"].values[i], field(i))
    assert not Path(f"{store}/result/c/4").exists()
    assert not Path(f"{store}.sweepkit/parcels").exists()


def test_what_does_not_fit_is_invalid_and_not_in_the_store(
    store: str, small: None, taken: list[Outcome]
) -> None:
    def f(i: int) -> dict[str, Any]:
        return {"x": np.arange(4.0) if i == 2 else np.arange(3.0), "y": float(i)}

    ds = swept(store, f, backend="sequential")
    assert ds["status"].values.tolist() == [1, 1, 5, 1, 1, 1]
    assert "is (x_dim_0: 4), but the sweep stores (x_dim_0: 3)" in str(ds["error"].values[2])
    assert not Path(f"{store}/x/c/2").exists()
    assert all(one.result.columns["x"][0].written for one in taken)


def test_lengths_of_padded_ones_travel_beside(
    store: str, small: None, taken: list[Outcome]
) -> None:
    ds = swept(
        store,
        lambda i: {"x": np.arange(float(i))},
        outputs={"x": sk.output(dims="t", size=6, pad=True)},
        backend="threading",
    )
    assert ds["x_length"].values.tolist() == [0, 1, 2, 3, 4, 5]
    for i in range(6):
        expected = [*map(float, range(i)), *[np.nan] * (6 - i)]
        np.testing.assert_array_equal(ds["x"].values[i], expected)
    assert all(one.result.columns["x"][0].written for one in taken)


def test_requirements_on_them_are_judged(store: str, small: None) -> None:
    told: list[sk.Progress] = []
    swept(
        store,
        lambda i: {"x": np.arange(3.0) + i},
        requirements=["x.max(x_dim_0) < 5", "i < 4"],
        backend="sequential",
        progress=told.append,
    )
    assert told[-1].failed == 3
    assert sk.failed(sk.open(store)).values.tolist() == [0, 0, 0, 1, 1, 1]


def test_one_that_widens_keeps_what_was_there_and_is_written_by_workers_later(
    store: str, small: None, taken: list[Outcome]
) -> None:
    def f(i: int) -> dict[str, Any]:
        return {"x": np.arange(3) + i + (0.5 if i % 2 else 0)}

    for values in ([0, 2], [0, 1, 2, 3], range(8)):
        taken.clear()
        sweep = sk.Sweep(f, sk.grid(i=values), version="1")
        ds = sk.run(sweep, store, backend="sequential", progress=False)
        assert [row.tolist() for row in ds["x"].values] == [f(i)["x"].tolist() for i in values]
    assert ds["x"].dtype == np.float64
    kept = ZarrStore(store)
    kept.peek()
    assert kept.layout.variables["x"].guards == 1
    parcels = [one for taken_ in taken for c in taken_.result.columns["x"] for one in c.values]
    assert {one.guards for one in parcels} == {1}


def test_what_is_under_way_when_the_store_is_made_or_made_anew_is_not_lost(store: str) -> None:
    def f(i: int) -> dict[str, Any]:
        return {"field": field(i) if i % 5 == 3 else np.arange(MB) + i}

    ds = swept(store, f, 12, n_jobs=4, backend="threading")
    assert (ds["status"] == 1).all()
    for i in range(12):
        np.testing.assert_array_equal(ds["field"].values[i], f(i)["field"])


def test_what_a_killed_session_left_is_removed(store: str, small: None) -> None:
    left = Path(f"{store}.sweepkit/parcels")
    left.mkdir(parents=True)
    (left / "1-ab").write_bytes(b"half")
    swept(store, lambda i: {"y": 1.0}, 1, backend="sequential")
    assert not left.exists()


def test_integers_that_a_float_cannot_hold_are_noted(store: str, small: None) -> None:
    ds = swept(store, lambda i: {"x": np.arange(3) + 2**60 + i}, backend="sequential")
    assert ds["x"].dtype == np.int64
    assert "2**53" in ds["x"].attrs["note"]


def test_without_a_depot_and_on_a_full_disk_values_travel(
    store: str, small: None, taken: list[Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: FolderDepot, values: NDArray[Any], guards: int) -> Parcel:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(FolderDepot, "put", full)
    ds = swept(store, lambda i: {"x": np.arange(3.0) + i}, backend="threading")
    assert ds["x"].values[5].tolist() == [5.0, 6.0, 7.0]
    assert not any(one.result.columns["x"][0].written for one in taken)


def test_a_flipped_bit_is_told_and_only_its_run_is_made_again(store: str, small: None) -> None:
    def f(i: int) -> dict[str, Any]:
        return {"x": np.arange(3.0) + i}

    swept(store, f, backend="sequential")
    chunk = Path(store, "x", "c", "3", "0")
    content = bytearray(chunk.read_bytes())
    content[5] ^= 1
    chunk.write_bytes(content)
    told = sk.verify(store)
    assert told["variable"].tolist() == ["x"]
    made: list[int] = []

    def again(i: int) -> dict[str, Any]:
        made.append(i)
        return {"x": np.arange(3.0) + i}

    ds = swept(store, again, backend="sequential")
    assert made == [3]
    assert ds["x"].values[3].tolist() == [3.0, 4.0, 5.0]


def test_a_vectorized_simulator_puts_each_runs_value_apart(
    store: str, small: None, taken: list[Outcome]
) -> None:
    @sk.vectorized
    def f(i: NDArray[np.int64]) -> dict[str, Any]:
        return {"x": i[:, None] + np.arange(3.0), "y": i * 2.0}

    ds = swept(store, f, backend="threading")
    np.testing.assert_array_equal(ds["x"].values, np.arange(6)[:, None] + np.arange(3.0))
    assert all(one.result.columns["x"][0].written for one in taken)


def test_a_parameter_that_joins_finds_them_in_place(store: str, small: None) -> None:
    def f(i: int) -> dict[str, Any]:
        return {"x": np.arange(3.0) + i}

    def g(i: int, drag: float) -> dict[str, Any]:
        return {"x": np.arange(3.0) + i + drag}

    swept(store, f, 3, backend="sequential")
    sweep = sk.Sweep(g, sk.grid(i=range(4), drag=[0.0, 0.5]), version="1")
    ds = sk.run(sweep, store, was={"drag": 0.0}, backend="sequential", progress=False)
    expected = np.arange(4)[:, None, None] + np.array([0, 0.5])[:, None] + np.arange(3.0)
    np.testing.assert_array_equal(ds["x"].values, expected)

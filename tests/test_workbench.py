"""run, derive, verify: what a person calls, what it returns and what it refuses."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.executors.joblib import JoblibExecutor
from sweepkit.protocols import StoreError
from sweepkit.status import Progress, Status
from sweepkit.stores.zarr import ZarrStore


def product(a: int, b: float) -> dict[str, Any]:
    return {"y": a * b, "trace": np.arange(3.0) * a}


def sweep(a: Any = (1, 2, 3), **options: Any) -> sk.Sweep:
    return sk.Sweep(product, sk.grid(a=list(a), b=[0.5, 1.5]), **options)


def run(one: sk.Sweep, store: str, **options: Any) -> xr.Dataset:
    return sk.run(one, store, **{"backend": "sequential", "progress": False, **options})


# --- run -----------------------------------------------------------------------------------------


def test_run_returns_what_open_gives(store: str) -> None:
    xr.testing.assert_identical(run(sweep(), store).load(), sk.open(store).load())


def test_run_returns_what_was_declared_of_a_store_that_holds_more(store: str) -> None:
    run(sweep([3, 1, 2]), store)
    ds = run(sweep([2, 5]), store)
    assert ds["a"].values.tolist() == [2, 5]
    assert (ds["y"] == ds["a"] * ds["b"]).all()
    assert sorted(sk.open(store)["a"].values.tolist()) == [1, 2, 3, 5]


def test_the_path_may_be_a_path(tmp_path: Path) -> None:
    assert (
        sk.run(sweep(), tmp_path / "a.zarr", backend="sequential", progress=False).sizes["a"] == 3
    )
    assert sk.open(tmp_path / "a.zarr").sizes["a"] == 3


def test_an_executor_of_ones_own_is_used(store: str) -> None:
    ds = sk.run(sweep(), store, executor=JoblibExecutor(2, "threading"), progress=False)
    assert (ds["status"] == Status.DONE).all()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_error": "stop"}, r"on_error='stop' is none of collect, raise"),
        ({"stale": "yes"}, r"stale='yes' is none of ask, keep, rerun"),
        ({"rerun": "failed"}, r"rerun='failed' is no status; there are done, error"),
        ({"rerun": "pending"}, r"rerun='pending' is no status"),
        ({"timeout": 0}, r"timeout is 0; give seconds above 0"),
        ({"timeout": "20"}, r"timeout is '20'"),
        ({"timeout": 1.0}, r"a time limit needs worker processes.*'sequential'"),
        ({"retry": -1}, r"retry is -1"),
        ({"retry": {"error": True}}, r"retry=.*error, timeout, crashed, invalid"),
        ({"retry": {"done": 1}}, r"retry=.*error, timeout, crashed, invalid"),
        ({"backend": "nonsense"}, r"backend 'nonsense' is not known to joblib; there are .*loky"),
        ({"n_jobs": 0}, r"n_jobs is 0"),
        ({"recycle_after": "lots"}, r"recycle_after is 'lots'"),
        ({"was": {"c": 1}}, r"was= names 'c', which is no parameter"),
        ({"was": {"a": [1, 2]}}, r"was= gives 2 values for 'a'"),
        ({"was": {"a": "x"}}, r"was= gives a str for 'a'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_made(
    store: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        run(sweep(), store, **options)
    assert not Path(store).exists()


def test_an_executor_and_workers_are_not_given_both(store: str) -> None:
    with pytest.raises(ValueError, match="not both"):
        sk.run(sweep(), store, executor=JoblibExecutor(1, "threading"), n_jobs=2)


def test_what_is_no_sweep_is_refused(store: str) -> None:
    with pytest.raises(TypeError, match=r"is no Sweep; make one with sk\.Sweep"):
        sk.run(product, store)  # type: ignore[arg-type]


def test_unsuccessful_stands_for_every_bad_end(store: str) -> None:
    results: dict[int, Any] = {1: 1.0, 2: ValueError("no"), 3: "text"}

    def simulate(a: int) -> Any:
        if isinstance(results[a], Exception):
            raise results[a]
        return results[a]

    one = sk.Sweep(
        simulate, sk.grid(a=[1, 2, 3]), version="1", outputs={"y": sk.output(dtype=float)}
    )
    ds = run(one, store)
    assert ds["status"].values.tolist() == [Status.DONE, Status.ERROR, Status.INVALID]
    results |= {2: 2.0, 3: 3.0}
    ds = run(one, store, rerun="unsuccessful")
    assert ds["y"].values.tolist() == [1.0, 2.0, 3.0]
    assert ds["attempts"].values.tolist() == [1, 2, 2]


def test_a_run_is_retried_within_the_session_as_often_as_said(store: str) -> None:
    tries: dict[int, int] = {}

    def simulate(a: int) -> float:
        tries[a] = tries.get(a, 0) + 1
        if tries[a] < a:
            raise ValueError("not yet")
        return float(a)

    ds = run(sk.Sweep(simulate, sk.grid(a=[1, 2, 3, 4]), version="1"), store, retry=2)
    assert ds["status"].values.tolist() == [1, 1, 1, 2]
    assert ds["attempts"].values.tolist() == [1, 2, 3, 3]
    assert ds["error"].values.tolist() == ["", "", "", "ValueError: not yet"]
    assert ds["result"].values[:3].tolist() == [1.0, 2.0, 3.0]


def test_progress_is_called_or_shown_or_silent(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Progress] = []
    run(sweep(), store, progress=told.append)
    assert told[-1].state == "done"
    assert capsys.readouterr() == ("", "")
    run(sweep([1, 2, 3, 4]), store, progress=True)
    said = capsys.readouterr()
    assert "product: done, 2 of 2 runs" in said.out
    run(sweep([1, 2, 3, 4, 5]), store, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_run_and_an_open_warn_of_nothing(store: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(sweep(), store).load()
        run(sweep([0, 1]), store).load()


# --- derive --------------------------------------------------------------------------------------


def test_a_derived_output_is_added_without_a_run(store: str) -> None:
    run(sweep(), store)
    ds = sk.derive(store, "energy", lambda ds: ds["y"] ** 2, units="J")
    assert (ds["energy"] == ds["y"] ** 2).all()
    assert ds["energy"].attrs["units"] == "J"
    ds = sk.derive(store, "peak", "trace.max(trace_dim_0)")
    assert ds["peak"].dims == ("a", "b")
    assert (ds["peak"] == 2.0 * ds["a"]).all()
    assert (ds["attempts"] == 1).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_zarr(store) as plain:
            assert (plain["energy"] == plain["y"] ** 2).all()


def test_a_derived_output_with_a_dim_of_its_own_is_added(store: str) -> None:
    run(sweep(), store)
    ds = sk.derive(store, "doubled", lambda ds: 2 * ds["trace"])
    assert ds["doubled"].dims == ("a", "b", "trace_dim_0")
    assert (ds["doubled"] == 2 * ds["trace"]).all()


def test_a_store_with_a_derived_output_grows_and_is_derived_again(store: str) -> None:
    run(sweep([2, 3]), store)
    sk.derive(store, "energy", "y ** 2")
    ds = run(sweep([1, 3, 2]), store)
    assert (ds["status"] == Status.DONE).all()
    assert ds["energy"].sel(a=1).isnull().all()
    assert (ds["energy"] == ds["y"] ** 2).sel(a=[2, 3]).all()
    ds = sk.derive(store, "energy", "y ** 2")
    assert ds["a"].values.tolist() == [1, 3, 2]
    assert (ds["energy"] == ds["y"] ** 2).all()


def test_a_derived_output_of_a_reordered_store_lies_at_its_coordinates(store: str) -> None:
    run(sweep([3, 1, 2]), store)
    run(sweep([1, 2, 3]), store)
    ds = sk.derive(store, "copy", lambda ds: ds["y"] * 1.0)
    assert ds["a"].values.tolist() == [1, 2, 3]
    assert (ds["copy"] == ds["y"]).all()


@pytest.mark.parametrize(
    ("name", "formula", "told"),
    [
        ("y", "y * 2", "'y' is there already"),
        ("a", "y * 2", "'a' is there already"),
        ("status", "y * 2", "'status'"),
        ("1x", "y * 2", "'1x' is no identifier"),
        ("z", "q * 2", "q"),
        ("z", lambda ds: ds["y"].isel(a=[0]), "a"),
        ("z", lambda ds: 1.0, "float"),
        ("z", lambda ds: ds["y"].astype(object), "Python objects such as"),
    ],
)
def test_a_derived_output_that_does_not_fit_is_refused(
    store: str, name: str, formula: Any, told: str
) -> None:
    run(sweep(), store)
    before = sk.open(store).load()
    with pytest.raises(ValueError, match=told):
        sk.derive(store, name, formula)
    xr.testing.assert_identical(sk.open(store).load(), before)


def test_a_wrong_name_in_a_formula_is_told_with_outputs_and_parameters_alone(store: str) -> None:
    run(sweep(), store)
    with pytest.raises(sk.ExpressionError, match="there is no 'nope'") as caught:
        sk.derive(store, "z", "y * nope")
    assert "'y'" in str(caught.value)
    assert not any(f"'{name}'" in str(caught.value) for name in ("status", "log_size", "error"))
    assert "z" in sk.derive(store, "z", "y * duration")


def test_deriving_waits_for_no_one_who_writes(store: str) -> None:
    run(sweep(), store)
    with ZarrStore(store).hold(), pytest.raises(sk.StoreBusyError, match="is being written by"):
        sk.derive(store, "z", "y * 2")
    with pytest.raises(StoreError, match="holds no sweep"):
        sk.derive(f"{store}.not", "z", "y * 2")


# --- verify --------------------------------------------------------------------------------------


def test_a_sound_store_is_verified_as_such(store: str) -> None:
    run(sweep(), store)
    found = sk.verify(store)
    assert found.empty
    assert list(found.columns) == ["variable", "runs", "where", "reason"]


def test_verify_names_what_is_lost_and_the_next_run_computes_just_that(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweepkit import format1

    monkeypatch.setattr(format1, "BLOCK_RUNS", 2)
    run(sweep(), store)
    chunk = Path(store) / "y" / "c" / "1" / "0"
    assert chunk.exists()
    chunk.unlink()
    found = sk.verify(store)
    assert found["variable"].tolist() == ["y"]
    assert found["runs"].tolist() == [2]
    ds = run(sweep(), store)
    assert (ds["y"] == ds["a"] * ds["b"]).all()
    assert (ds["attempts"] == 2).sum() <= 2
    assert sk.verify(store).empty


@pytest.mark.parametrize("name", ["status", "log", "1x", "class"])
def test_an_output_that_no_store_can_hold_is_refused_at_once(tmp_path: Path, name: str) -> None:
    started = tmp_path / "started"

    def badly_named(a: int) -> dict[str, float]:
        with started.open("a") as file:
            file.write("run\n")
        return {name: 1.0}

    with pytest.raises(ValueError, match=r"rename it|no identifier"):
        sk.run(
            sk.Sweep(badly_named, sk.grid(a=range(100))), tmp_path / "s.zarr", backend="sequential"
        )
    assert started.read_text().count("run") == 1
    assert not (tmp_path / "s.zarr").exists()

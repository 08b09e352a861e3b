"""A store of format 1, made when it was new, is read exactly and goes on by later versions."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.status import Status
from tests.faults.make_golden import HUGE, MODES, A, simulate, sweep

PACKED = Path(__file__).parent / "golden" / "golden_format1.zip"
WHEN = np.array(["2000-01-01T00:35", "2031-12-24T18:00:00.000000001"], dtype="datetime64[ns]")
DTYPES = {
    "x": "float64", "x32": "float32", "n": "int64", "n8": "int8", "u": "uint64", "ok": "bool",
    "z": "complex128", "at": "datetime64[ns]", "took": "timedelta64[ns]", "nan": "float64",
    "trace": "float64", "angle": "float64", "angle_length": "int32", "draw": "float64",
    "status": "int8", "attempts": "int16", "code": "int16", "log_size": "int32",
    "duration": "float64",
}  # fmt: skip
DRAWS = {
    (0.5, "prints"): [0.4015209302361903, 0.43508802413566317],
    (0.5, "plain"): [0.8525190445296477, 0.32650952179735704],
    (0.5, "misfits"): [0.3566399016873929, 0.987450291827129],
    (2.5, "plain"): [0.6703689909794093, 0.10637294866212255],
    (1.0, "prints"): [0.8553851391940996, 0.7671724635920665],
    (1.0, "plain"): [0.027031979979325937, 0.19343710195888497],
    (1.0, "misfits"): [0.22408538932562438, 0.24531503586938164],
    (-0.25, "prints"): [0.5890329276930129, 0.49260953938829866],
    (-0.25, "plain"): [0.2224744460464808, 0.9556640146706393],
    (-0.25, "misfits"): [0.9276148226373384, 0.8865295179558587],
}
"""What was drawn: seeds of runs stay as they are."""


@pytest.fixture
def golden(tmp_path: Path) -> str:
    with zipfile.ZipFile(PACKED) as packed:
        packed.extractall(tmp_path)
    return str(tmp_path / "golden_format1.zarr")


def status_of(a: float, mode: str) -> Status:
    if a >= 2 and mode == "prints":
        return Status.SKIPPED
    if mode == "raises":
        return Status.ERROR
    return Status.INVALID if mode == "misfits" and a == 2.5 else Status.DONE


class NoRandom:
    """Stands for the generator where draws are compared on their own."""

    def random(self) -> float:
        return 0.0


def check(ds: xr.Dataset, *, masked: bool) -> None:
    for a in A:
        for mode in MODES:
            for number, when in enumerate(WHEN):
                run = ds.sel(a=a, mode=mode, when=when)
                assert Status(int(run["status"])) == status_of(a, mode)
                if status_of(a, mode) != Status.DONE:
                    if masked:
                        assert np.isnan(run["x"])
                        assert np.isnan(run["n"])
                        assert np.isnat(run["at"])
                        assert str(run["text"].values) == ""
                        assert np.isnan(run["trace"]).all()
                    continue
                wanted: Any = simulate(a, "plain" if mode == "prints" else mode, when, NoRandom())
                wanted["text"] = f"{mode}-{a}-日本"
                wanted["draw"] = DRAWS[a, mode][number]
                angle = wanted.pop("angle")
                for name, value in wanted.items():
                    got = run[name].values
                    if name == "text":
                        assert str(got) == value
                    else:
                        np.testing.assert_array_equal(got, value, err_msg=name)
                assert int(run["angle_length"]) == len(angle)
                np.testing.assert_array_equal(run["angle"].values[: len(angle)], angle)
                assert np.isnan(run["angle"].values[len(angle) :]).all()


def test_the_golden_store_reads_as_it_was_written(golden: str) -> None:
    ds = sk.open(golden).load()
    assert dict(ds.sizes) == {
        "a": 4, "mode": 4, "when": 2, "trace_dim_0": 2, "trace_dim_1": 2, "time": 6,
    }  # fmt: skip
    assert ds["a"].values.tolist() == A
    assert ds["mode"].values.tolist() == MODES
    np.testing.assert_array_equal(ds["when"].values, WHEN)
    assert ds["a"].attrs == {"role": "design", "units": "m", "long_name": "a length"}
    assert ds["mode"].attrs["role"] == "scenario"
    assert ds["angle"].attrs["units"] == "rad"
    assert ds["angle"].attrs["length"] == "angle_length"
    assert ds["angle"].dims == ("a", "mode", "when", "time")
    check(ds, masked=True)
    assert int(ds["u"].sel(a=0.5, mode="plain")[0]) == HUGE


def test_the_golden_store_has_the_stored_types(golden: str) -> None:
    ds = sk.open(golden, mask=False).load()
    assert {name: str(ds[name].dtype) for name in DTYPES} == DTYPES
    check(ds, masked=False)
    plain = xr.open_zarr(golden, chunks=None)
    assert plain["a"].values.tolist() == [1.0, 0.5, 2.5, -0.25]  # in the order they came in
    assert plain["mode"].values.tolist() == ["plain", "prints", "raises", "misfits"]
    assert plain.attrs["sweepkit_format"] == 1


def test_the_golden_store_tells_its_texts_and_failures(golden: str) -> None:
    ds = sk.open(golden).load()
    assert str(ds["log"].sel(a=0.5, mode="prints")[0].values) == "at 0.5: é, 日本\n"
    error = ds.sel(a=1.0, mode="raises").isel(when=0)
    assert str(error["error"].values) == "ValueError: a is 1.0"
    assert 'File "make_golden.py", line' in str(error["log"].values)
    invalid = ds.sel(a=2.5, mode="misfits").isel(when=0)
    assert str(invalid["error"].values).startswith("output 'angle' is declared but was not")
    failed = sk.failed(ds)
    assert failed.sel(a=2.5, mode="plain").values.tolist() == [1.0, 1.0]  # n is 25, angle 0.5
    assert failed.sel(a=1.0, mode="plain").values.tolist() == [0.0, 0.0]
    assert np.isnan(failed.sel(a=1.0, mode="raises")).all()
    assert sk.verify(golden).empty


def test_the_golden_store_goes_on(golden: str) -> None:
    before = sk.open(golden).load()
    same = sk.run(sweep(A, MODES), golden, backend="sequential", progress=False).load()
    xr.testing.assert_equal(same, before)
    grown = sk.run(
        sweep([*A, 7.5], MODES), golden, backend="sequential", progress=False
    ).load()
    xr.testing.assert_equal(grown.sel(a=A), before)
    assert (grown["status"].sel(a=7.5, mode="plain") == Status.DONE).all()

"""What is missing, refused or empty says why, in words a reader takes in."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit import analysis
from sweepkit.analysis import UnanswerableError
from sweepkit.status import Status
from tests.analysis.planted import grid, sample


def test_designs_without_runs_have_their_numbers_explained():
    ds = grid([[0, 1, np.nan], [0, 1, 0]], a=[1, 2], b=[1, 2, 3])
    note = analysis.robustness(ds).attrs["note"]
    for name in ("pass_share", "value", "worst", "mean", "cvar"):
        assert f"{name} is NaN where no run is known" in note
    assert "leaves the design out" not in note
    out = np.add.outer(range(3), range(3)) > 2
    failed = np.where(out, np.nan, [[0, 0, 1]] * 3)
    masked = grid(failed, np.where(out, Status.SKIPPED, Status.DONE), a=range(3), b=range(3))
    note = analysis.robustness(masked).attrs["note"]
    assert "pass_share is NaN where no run is known, or the grid leaves the design out" in note


def replicated():
    failed = np.zeros((3, 3, 4), bool)
    failed[1, 1, :2] = True
    return grid(failed, a=[0.0, 1.0, 2.0], b=[0.0, 1.0, 2.0], replicate=("replicate", range(4)))


def test_explain_names_the_replicate_that_turns():
    why = analysis.explain(replicated(), {"a": 1.0, "b": 1.0, "replicate": 0})
    assert why.attrs["nearest"] == "the same point, replicate 0 -> 2"
    assert "nearest run of the other outcome: the same point, rep" in why.attrs["text"]
    away = analysis.explain(replicated(), {"a": 1.0, "b": 0.0, "replicate": 0})
    assert away.attrs["nearest"] == "b 0 -> 1"


def test_explain_wants_values_that_tell_one_point():
    with pytest.raises(ValueError, match="names 12 runs: it has no value for 'b'"):
        analysis.explain(replicated(), {"a": 1.0})
    assert analysis.explain(replicated(), {"a": 1.0, "b": 1.0}).attrs["run"] == 16
    derived = grid([[0, 1], [0, 1]], a=[0.0, 1.0], b=[0.0, 1.0])
    derived = derived.assign_coords(ab=derived["a"] + derived["b"])
    assert analysis.explain(derived, {"a": 1.0, "b": 1.0}).attrs["run"] == 3


def test_islands_refuse_what_would_be_ignored():
    with pytest.raises(ValueError, match="neighbours=1 is for scattered runs"):
        analysis.islands(replicated(), neighbours=1)
    with pytest.raises(ValueError, match="connectivity=9 is more than the 2 ordered"):
        analysis.islands(replicated(), connectivity=9)
    scattered = sample([1, 0, 1], a=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="connectivity=2 is for a grid"):
        analysis.islands(scattered, connectivity=2)
    assert analysis.islands(scattered, neighbours=1).attrs["basis"] == "graph of the 1 nearest runs"


def test_boxes_that_hold_nothing_by_themselves_say_so():
    found = analysis.regions(grid(np.arange(20) > 9, a=range(20)))
    reversed_ = found.evaluate({"a": (5, 3)})
    assert reversed_["note"] == "density is NaN: low 5 of 'a' is above its high 3"
    assert found.evaluate({"a": {99}})["note"] == "density is NaN: no run has a = 99"
    partly = found.evaluate({"a": {3, 99}})
    assert (partly["density"], partly["note"]) == (0, "no run has a = 99")
    assert found.evaluate({"a": (3, 5)})["note"] == ""


def test_a_safe_box_has_its_share_of_the_points_that_there_are(tmp_path):
    whole = sk.grid(a=np.arange(4.0), b=np.arange(4.0)).where("a + b <= 4")
    sweep = sk.Sweep(lambda a, b: {"y": a}, whole, requirements=["y < 3"])
    ds = sk.run(sweep, tmp_path / "a.zarr", backend="sequential", progress=False)
    box = analysis.safe_box(ds)
    # 13 of 16 points are there; a 0 to 2, b 0 to 2 all passed.
    assert box.attrs["volume"] == 9
    assert box.attrs["share"] == 9 / 13
    assert box.attrs["text"].startswith("9 of 13 points")


def test_messages_show_numbers_and_times_as_one_writes_them():
    ds = grid([0, 0, 1, 0], a=[1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match=r"a = 3.3 is no value of the grid; near are 2, 3, 4$"):
        analysis.safe_box(ds, {"a": np.float64(3.3)})
    with pytest.raises(ValueError, match=r"'failed' holds 0\.5;"):
        analysis.rate(grid([0, 0.5, 1], a=[1, 2, 3]), failed="failed")
    with pytest.raises(ValueError, match=r"quantiles\[0\]=50 must be"):
        analysis.distribution(ds.assign(y=ds["a"] * 1), "y", quantiles=[50])
    with pytest.raises(ValueError, match=r"quantiles=50 must be a list"):
        analysis.robustness(ds, quantiles=50)
    with pytest.raises(UnanswerableError, match="none of 2 runs has passed or failed yet"):
        analysis.counterexample(grid([np.nan] * 2, a=[1, 2]), {"a": 1})
    days = pd.date_range("2020-01-01", periods=4).values
    timed = xr.Dataset({"failed": ("t", [False, False, False, True])}, coords={"t": days})
    box = analysis.safe_box(timed, {"t": np.datetime64("2020-01-02")})
    assert str(box.loc["t", "below"]) == "1 days 00:00:00"
    assert "microseconds" not in box.to_string()


def test_a_nominal_point_is_found_on_an_axis_with_nan() -> None:
    a, b = np.array([1.0, 3.0, 8.0, np.nan]), np.arange(4.0)
    fails = (np.nan_to_num(a)[:, None] + b > 9).astype(float)
    ds = xr.Dataset({"failed": (("a", "b"), fails)}, coords={"a": a, "b": b})
    box = sk.safe_box(ds, {"a": 3.0, "b": 1.0}, failed="failed")
    assert box.loc["a", ["low", "high"]].tolist() == [1.0, 3.0]

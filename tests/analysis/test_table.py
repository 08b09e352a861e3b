import numpy as np
import pytest
import xarray as xr

from sweepkit.analysis import table
from sweepkit.analysis.coding import placed
from tests.analysis.planted import grid, sample


def test_codes_follow_the_order_of_values_whatever_the_order_on_disk():
    t = table(grid(np.zeros((3, 2), bool), gain=[4.0, 1.0, 2.0], mode=["on", "off"]))
    assert t["gain"].values.tolist() == [1.0, 2.0, 4.0]
    assert t["gain"].codes.tolist() == [2, 2, 0, 0, 1, 1]
    assert t["mode"].values.tolist() == ["on", "off"]
    assert t["gain"].codes.dtype == np.uint8


def test_every_status_has_its_outcome():
    status = np.arange(7)
    ds = grid([1, 1, 1, 1, 1, 1, 1], status, a=np.arange(7))
    assert table(ds).outcome.tolist() == [2, 1, 3, 3, 3, 3, 4]


def test_masked_status_of_an_opened_store_is_pending():
    ds = grid([True, False], a=[0, 1])
    ds["status"] = ("a", [np.nan, 1.0])
    assert table(ds).outcome.tolist() == [2, 0]


def test_nan_in_failed_is_unknown_and_other_numbers_are_refused():
    assert table(grid([np.nan, 1.0, 0.0], a=[0, 1, 2])).outcome.tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match=r"'failed' holds .*2\.0"):
        table(grid([2.0, 1.0, 0.0], a=[0, 1, 2]))


def test_scattered_values_are_quantile_bins_with_their_edges():
    values = np.random.default_rng(3).normal(size=5000)
    t = table(sample(values > 0, x=values))
    p = t["x"]
    assert p.binned
    assert p.n == 240
    assert ((p.lower[p.codes] <= values) & (values <= p.upper[p.codes])).all()
    assert np.bincount(p.codes).min() > 15
    coarse = p.coarser(10)
    assert coarse.n == 10
    assert ((coarse.lower[coarse.codes] <= values) & (values <= coarse.upper[coarse.codes])).all()
    assert np.abs(np.bincount(coarse.codes) - 500).max() < 30


def test_derived_coordinates_and_components_count_as_parameters():
    ds = grid(np.zeros((3, 2), bool), a=[1.0, 2.0, 3.0], b=[1.0, 2.0])
    ds = ds.assign_coords(ab=ds["a"] + ds["b"], x0=(("b", "axis"), [[0.0, 1.0], [2.0, 3.0]]))
    t = table(ds)
    assert [p.name for p in t.parameters] == ["a", "b", "ab", "x0[0]", "x0[1]"]
    assert t["ab"].values[t["ab"].codes].tolist() == [2.0, 3.0, 3.0, 4.0, 4.0, 5.0]
    assert t["x0[1]"].values[t["x0[1]"].codes].tolist() == [1.0, 3.0] * 3
    assert t.grid
    assert t.point(3) == {"a": 2.0, "b": 2.0, "ab": 4.0, "x0[0]": 2.0, "x0[1]": 3.0}


def test_a_counter_of_scattered_runs_is_no_parameter():
    ds = sample([True, False], a=[0.5, 0.7]).assign_coords(sample=[0, 1])
    assert [p.name for p in table(ds).parameters] == ["a"]
    assert not table(ds).grid


def test_what_cannot_be_coded_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="declares no requirements"):
        table(xr.Dataset({"y": ("a", [1.0, 2.0])}, coords={"a": [0, 1]}))
    with pytest.raises(ValueError, match="no coordinate"):
        table(xr.Dataset({"failed": ("a", [True, False])}))
    with pytest.raises(ValueError, match="'nope' is not a variable"):
        table(grid([True], a=[1]), failed="nope")
    with pytest.raises(ValueError, match="shape"):
        table(grid([True], a=[1]), failed=np.zeros(3, bool))
    with pytest.raises(KeyError, match="no parameter 'z'; there are 'a'"):
        table(grid([True], a=[1]))["z"]


def test_only_errors_fail_where_nothing_is_required():
    ds = grid([True, False], [1, 2], a=[0, 1]).drop_vars("failed")
    t = table(ds, errors="fail")
    assert t.counted("fail").tolist() == [0, 1]


def test_trapezoid_weights_are_half_the_way_to_each_neighbour():
    t = table(grid([0, 0, 0, 0], a=[0.0, 1.0, 2.0, 4.0]), weights="trapezoid")
    np.testing.assert_allclose(t["a"].weights, np.array([0.5, 1, 1.5, 1]) / 4)
    with pytest.raises(ValueError, match="no order"):
        table(grid([0, 0], a=["x", "y"]), weights={"a": "trapezoid"})


def test_recorded_order_is_followed_through_sorted_axes_and_dropped_when_it_no_longer_fits():
    import json

    from sweepkit.grid import random_prefix

    ds = grid(np.zeros((3, 4), bool), a=[1, 2, 3], b=[1, 2, 3, 4])
    disk_of = [2, 0, 1]
    order = {"seed": 5, "sizes": {"b": 4, "a": 3}, "coarse": 6}
    ds = ds.assign_attrs(sweepkit=json.dumps({"order": order, "axes": {"a": disk_of}}))
    b, a = np.unravel_index(random_prefix(5, 12, 6), (4, 3))
    wanted = [disk_of.index(i) * 4 + j for i, j in zip(a, b, strict=True)]
    assert table(ds).prefix.tolist() == wanted
    assert table(ds.isel(a=[0, 1])).prefix is None


@pytest.mark.parametrize("kind", ["even", "normal", "skewed", "ties", "holes", "narrow"])
def test_codes_of_very_many_values_are_those_of_a_search(kind):
    rng = np.random.default_rng(6)
    values = {
        "even": rng.random(60_000),
        "normal": rng.normal(size=60_000),
        "skewed": rng.exponential(size=60_000) ** 3,
        "ties": rng.integers(0, 400, 60_000) / 7,
        "holes": np.where(rng.random(60_000) < 0.01, np.nan, rng.random(60_000)),
        "narrow": 1e9 + rng.random(60_000) * 1e-5,
    }[kind]
    values[:3] = [-np.inf, np.inf, values[5]]
    edges = np.unique(np.sort(values[np.isfinite(values)])[250::250])
    wanted = np.searchsorted(edges, values, side="right")
    np.testing.assert_array_equal(placed(edges, values), wanted)

"""Parameters named as what results hold: every result still has both."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.analysis.naming import freed
from tests.analysis.planted import grid

NAMES = [
    *("rate", "low", "high", "boundary", "basis", "n_run", "n_failed", "n_error", "n_needed"),
    *("worst", "mean", "cvar", "value", "regret", "pass_share", "distance", "pareto", "quantile"),
    *("share", "share_low", "worst_run", "n_nan", "point", "at", "tail", "place", "label", "kind"),
    *("island", "parameter", "size", "reason", "score", "run", "changes", "n_changed"),
]


def named(name: str) -> xr.Dataset:
    values, other = np.arange(4.0), np.arange(3.0)
    y = values[:, None] + other
    return grid(y > 3.5, **{name: values, "other_one": other}).assign(out=((name, "other_one"), y))


@pytest.mark.parametrize("name", NAMES)
def test_results_hold_a_parameter_of_any_name_beside_their_own(name: str) -> None:
    ds = named(name)
    plain = named("plain")
    for by in (None, [name]):
        rates = sk.failure_rate(ds, by)
        same = sk.failure_rate(plain, by and ["plain"])
        assert np.array_equal(rates["rate"].values, same["rate"].values)
        assert rates.sizes[freed([name], rates.data_vars)[name]] == 4
    by_value = sk.rate(ds, name)
    assert by_value["rate"].tolist() == sk.rate(plain, "plain")["rate"].tolist()
    assert by_value.iloc[:, 0].tolist() == [0, 1, 2, 3]
    found, same = sk.robustness(ds, "out"), sk.robustness(plain, "out")
    for one in same.data_vars:
        assert np.array_equal(found[one].values, same[one].values, equal_nan=True)
    found, same = sk.distribution(ds, "out", name), sk.distribution(plain, "out", "plain")
    for one in same.data_vars:
        assert np.array_equal(found[one].values, same[one].values, equal_nan=True)
    suggested = sk.suggest(ds, 3, explore=0)
    assert suggested.grid.names == (name, "other_one")
    assert suggested.grid.size == 3
    assert suggested.points["reason"].str.len().min() > 3
    near = sk.counterexample(ds, {name: 0.0, "other_one": 0.0}, n=1).iloc[0]
    assert near["distance"] > 0
    assert near["n_changed"] == 2
    assert sk.islands(ds)["size"].values.tolist() == sk.islands(plain)["size"].values.tolist()
    assert sk.kinds(ds)["count"].values.tolist() == [3]


def test_a_freed_name_meets_no_other() -> None:
    assert freed(["low", "low_", "a"], {"low"}) == {"low": "low__", "low_": "low_", "a": "a"}


def test_points_of_a_parameter_named_point_are_refined(tmp_path: Path) -> None:
    def simulate(point: float, gain: float) -> dict[str, float]:
        return {"y": point * gain}

    axes = {"point": [1.0, 2.0, 3.0], "gain": [1.0, 2.0]}
    sweep = sk.Sweep(simulate, sk.grid(**axes), requirements=["y < 3.5"])
    options = {"backend": "sequential", "progress": False}
    ds = sk.run(sweep, tmp_path / "a.zarr", **options)
    both = sk.refine(sweep, tmp_path / "a.zarr", sk.suggest(ds, 2, explore=0), **options)
    assert np.array_equal(both["y"], both["point"] * both["gain"])
    assert sk.refined_rate(both)["n_run"].tolist() == [8]

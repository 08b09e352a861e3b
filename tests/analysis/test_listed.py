"""Points that a sweep lists are all there are; points that it samples stand for a space."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sweepkit as sk
from sweepkit import analysis

VECTORS = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])


def swept(simulator, grid, path):
    return sk.run(
        sk.Sweep(simulator, grid, requirements=["y < 2"]),
        path,
        backend="sequential",
        progress=False,
    )


def vectors(path, **more):
    def simulator(gain, x0):
        return {"y": gain * x0[0] - x0[1]}

    def noisy(gain, x0, rng):
        return {"y": gain * x0[0] - x0[1] + rng.normal(0, 0.3)}

    x0 = sk.values(VECTORS, dims=("case", "state"))
    return swept(noisy if more else simulator, sk.grid(gain=[1.0, 2.0, 3.0], x0=x0, **more), path)


def pairs(path):
    points = sk.paired(a=[0.0, 1.0, 2.0, 3.0], b=[1.0, 0.0, 1.0, 0.0])
    return swept(lambda a, b, c: {"y": a + b - c}, sk.grid(points, c=[0.0, 1.0, 2.0]), path)


@pytest.mark.parametrize("make", [vectors, pairs])
def test_all_listed_points_of_a_deterministic_sweep_are_a_census(make, tmp_path):
    ds = make(tmp_path / "a.zarr")
    row = sk.rate(ds).iloc[0]
    assert row["basis"] == "census"
    assert row["n_needed"] == 0
    assert row["low"] == row["rate"] == row["high"]
    held = sk.held_up(ds)
    assert set(held["basis"]) == {"census"}
    assert (held["low"] == held["high"]).all()
    chosen = sk.robustness(ds)
    assert chosen.attrs["basis"].startswith("census")
    assert (chosen["low"] == chosen["high"]).all()
    assert sk.convergence(ds)["basis"].iloc[-1] == "census"
    one = sk.distribution(ds, "y")
    assert one.attrs["basis"] == "census"
    assert (one["low"] == one["high"]).all()
    if make is vectors:
        assert sk.regions(ds).evaluate({"gain": (2.0, 3.0)})["basis"] == "census"
        return
    box = analysis.safe_box(ds)
    assert box.attrs["basis"] == "census of its points"
    assert box.attrs["high"] == 0


def test_replicates_of_listed_points_are_strata(tmp_path):
    ds = vectors(tmp_path / "a.zarr", replicates=4)
    row = sk.rate(ds).iloc[0]
    assert row["basis"] == "replicates"
    assert 0 < row["low"] < row["rate"] < row["high"] < 1
    assert set(sk.held_up(ds)["basis"]) == {"replicates"}
    assert analysis.safe_box(ds).attrs["high"] > 0


def test_sampled_points_still_stand_for_others(tmp_path):
    def simulator(a, b, gain):
        return {"y": a + gain * b}

    for points in (
        sk.latin_hypercube({"a": (0, 1), "b": (0.0, 2.0)}, size=12, seed=1),
        sk.sobol({"a": (0, 1), "b": (0.0, 2.0)}, size=8, seed=1),
    ):
        path = tmp_path / f"{points.size}.zarr"
        ds = swept(simulator, sk.grid(points, gain=[1.0, 2.0]), path)
        assert "sampled" in ds["a"].attrs
        assert sk.rate(ds).iloc[0]["basis"] == "clusters"
        # Each single design has run, and nothing scatters in it.
        assert sk.robustness(ds).attrs["basis"].startswith("census")
        # A declaration of before does not say: then they are taken as drawn.
        old = ds.assign_attrs(sweepkit=ds.attrs["sweepkit"].replace('"sampled"', '"unsaid"'))
        assert sk.rate(old).iloc[0]["basis"] == "clusters"


@pytest.mark.parametrize("replicates", [None, 3])
@pytest.mark.parametrize("random", [False, True])
def test_a_grid_without_refinements_rests_on_the_same_flat_or_over_its_dims(
    tmp_path: Path, random: bool, replicates: int | None
) -> None:
    def settled(a: int, b: float) -> dict[str, float]:
        return {"y": a + b}

    def noisy(a: int, b: float, rng: np.random.Generator) -> dict[str, float]:
        return {"y": a + b + float(rng.normal())}

    grid = sk.grid(a=[1, 2, 3], b=[0.0, 1.0], replicates=replicates)
    sweep = sk.Sweep(noisy if random else settled, grid, requirements=["y < 3.5"])
    store = tmp_path / "s.zarr"
    sk.run(sweep, store, n_jobs=1, backend="sequential")
    columns = ["n_run", "n_failed", "rate", "low", "high", "basis"]
    flat, over_dims = (sk.open(store, stages=flat) for flat in (True, False))
    pd.testing.assert_frame_equal(sk.rate(flat)[columns], sk.rate(over_dims)[columns])
    pd.testing.assert_frame_equal(
        sk.held_up(flat)[["value", *columns]], sk.held_up(over_dims)[["value", *columns]]
    )

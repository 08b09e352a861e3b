import json

import numpy as np
import pytest

from sweepkit.analysis import islands
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import DATA, cartpole, grid, sample

CASES = json.loads((DATA / "grid_islands.json").read_text())["cases"]
GRIDS = np.load(DATA / "grid_islands.npz")


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['grid']}-{c['connectivity']}")
def test_counts_and_sizes_agree_with_brute_force(case):
    failed = GRIDS[case["grid"]]
    ds = grid(failed, **{f"p{k}": np.arange(n) for k, n in enumerate(failed.shape)})
    got = islands(ds, connectivity=case["connectivity"])
    assert got.attrs["n_islands"] == case["count"]
    assert got["size"].values[:10].tolist() == case["sizes_top"]
    labels = got["label"].values
    assert (labels > 0).tolist() == failed.tolist()
    assert np.bincount(labels.reshape(-1))[1:][:10].tolist() == case["sizes_top"]


def test_order_on_disk_does_not_matter_and_categories_are_no_neighbours():
    failed = np.array([True, True, False])
    assert islands(grid(failed, a=[1.0, 2.0, 3.0])).attrs["n_islands"] == 1
    assert islands(grid(failed, a=[1.0, 3.0, 2.0])).attrs["n_islands"] == 2
    ds = grid(np.ones((2, 3), bool), mode=["x", "y"], a=[1, 2, 3])
    got = islands(ds)
    assert got["size"].values.tolist() == [3, 3]
    assert got["bounds"].values.tolist() == ["mode x, a 1 to 3", "mode y, a 1 to 3"]


def test_touching_an_edge_is_told():
    failed = np.zeros((6, 6), bool)
    failed[0:2, 2:4] = True
    failed[4, 4] = True
    got = islands(grid(failed, a=range(6), b=range(6)))
    assert got["touches"].values.tolist() == ["a low", ""]
    assert got["low"].sel(parameter="b").values.tolist() == [2, 4]


def test_two_blobs_of_scattered_runs_are_two_islands():
    rng = np.random.default_rng(6)
    x = rng.random((3, 5000))
    near = [((x - c) ** 2).sum(axis=0) < 0.2**2 for c in (0.25, 0.7)]
    got = islands(sample(near[0] | near[1], **{f"p{k}": x[k] for k in range(3)}))
    big = got["size"].values[got["size"].values > 5]
    assert sorted(big.tolist()) == sorted([int(n.sum()) for n in near])


def test_replicates_are_one_point():
    failed = np.zeros((4, 3), bool)
    failed[0] = True
    failed[2, 0] = True
    got = islands(grid(failed, a=range(4), rep=("replicate", range(3))))
    assert got["size"].values.tolist() == [1]
    assert got["label"].values[0].tolist() == [1, 1, 1]
    assert islands(cartpole()).attrs["n_islands"] >= 1


def test_no_failure_is_no_island_and_nothing_known_is_refused():
    got = islands(grid([0, 0, 0], a=range(3)))
    assert got.attrs["n_islands"] == 0
    assert got["label"].values.tolist() == [0, 0, 0]
    assert islands(grid([True], a=[1])).attrs["n_islands"] == 1
    with pytest.raises(UnanswerableError, match="none of 2 runs"):
        islands(grid([0, 0], [2, 0], a=[0, 1]))
    got = islands(grid([1, 0, 1], [1, 0, 1], a=range(3)))
    assert got.attrs["n_islands"] == 2
    assert "1 runs are unknown" in got.attrs["note"]

import numpy as np
import pytest

from sweepkit.analysis import combinations, importance, pairs
from sweepkit.analysis.outcomes import UnanswerableError
from tests.analysis.planted import cartpole, grid, sample


def planted(layout, seed):
    """Two pairs and a triple among 8 parameters, 2 % of labels flipped."""
    rng = np.random.default_rng(seed)
    if layout == "grid":
        axes = {f"p{i}": np.arange(4) for i in range(8)}
        codes = np.stack(np.meshgrid(*axes.values(), indexing="ij")).reshape(8, -1)
    else:
        values = rng.random((8, 20_000))
        codes = (values * 4).astype(int)
    failed = (
        ((codes[0] == 3) & (codes[1] == 0))
        | ((codes[2] == 1) & (codes[5] == 2))
        | ((codes[3] == 0) & (codes[4] == 3) & (codes[6] == 1))
    )
    failed ^= rng.random(failed.size) < 0.02
    if layout == "grid":
        return grid(failed, **axes)
    return sample(failed, **{f"p{i}": values[i] for i in range(8)})


@pytest.mark.parametrize("layout", ["grid", "sample"])
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_planted_pairs_and_triple_rank_on_top(layout, seed):
    ds = planted(layout, seed)
    got = combinations(ds)
    assert set(got["parameters"][:3]) == {("p0", "p1"), ("p2", "p5"), ("p3", "p4", "p6")}
    assert (got["part_of"][3:] != "").all()
    assert not got["combination"].str.contains("p7").any()
    first = pairs(ds).drop_duplicates("rank")[["parameter", "other"]][:2]
    assert set(map(tuple, first.values)) == {("p0", "p1"), ("p2", "p5")}


def test_cartpole_names_length_and_delay_first():
    got = pairs(cartpole())
    assert got.iloc[0][["parameter", "other"]].tolist() == ["length", "delay"]
    assert got.iloc[0]["joint"] == pytest.approx(0.138, abs=5e-4)
    assert set(got["basis"]) == {"replicates"}


def test_joint_share_is_the_exact_index_on_a_complete_grid():
    failed = np.random.default_rng(4).random((5, 4, 6)) < 0.3
    ds = grid(failed, a=range(5), b=range(4), c=range(6))
    for row in pairs(ds).drop_duplicates("rank").itertuples():
        exact = importance(ds)["S2"].sel(parameter=row.parameter, other=row.other).item()
        assert row.joint == pytest.approx(exact)


def test_pair_tables_hold_every_run_once():
    got = pairs(planted("sample", 5))
    assert (got.groupby("rank")["n_run"].sum() == 20_000).all()


def test_replicates_of_a_point_count_once():
    failed = np.zeros((3, 3, 50), bool)
    failed[2, 2] = True
    ds = grid(failed, a=range(3), b=range(3), rep=("replicate", range(50)))
    got = combinations(ds)
    assert len(got) == 0
    assert "no combination fails surely more" in got.attrs["note"]


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(UnanswerableError, match="1 parameters have more than one value"):
        pairs(grid([0, 1], a=[0, 1]))
    with pytest.raises(UnanswerableError, match="0 of 4"):
        combinations(grid([0, 0, 0, 0], a=range(4)))
    with pytest.raises(ValueError, match="between 1 and 4"):
        combinations(grid([0, 1], a=[0, 1]), order=9)
    with pytest.raises(UnanswerableError, match="2 pending"):
        pairs(grid([0, 0], [0, 0], a=[0, 1]))

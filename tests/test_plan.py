"""Pending runs to batches: pure."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import sweepkit as sk
from sweepkit.format1 import Layout, block_shape
from sweepkit.plan import (
    COARSE_RUNS,
    Open,
    Placement,
    batch_seconds,
    batch_size,
    by_block,
    coarse_runs,
    critical,
    cut,
    merged,
    schedule,
    spread,
)

shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


@given(shape=shapes, data=st.data())
def test_runs_by_block_are_each_in_one_block_at_their_place(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    block = tuple(data.draw(st.integers(1, n + 2)) for n in shape)
    layout = Layout(dict(zip("abcd", shape, strict=False)), block, {})
    total = math.prod(shape)
    disk = np.array(
        data.draw(st.permutations(range(total)))[: data.draw(st.integers(0, total))], dtype=np.int64
    )
    numbers = np.arange(total).reshape(shape)
    found: list[int] = []
    seen: list[int] = []
    for number, cells, rows in by_block(layout, disk):
        seen.append(number)
        assert np.array_equal(numbers[layout.box(number)].ravel()[cells], disk[rows])
        found += numbers[layout.box(number)].ravel()[cells].tolist()
    assert sorted(found) == sorted(disk.tolist())
    assert seen == sorted(set(seen))


@given(shape=shapes, data=st.data())
def test_placement_is_the_inverse_of_where_values_lie(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    dims = tuple("abcd"[: len(shape)])
    declared_dims = data.draw(st.permutations(dims))
    on_disk = {}
    for dim, n in zip(dims, shape, strict=True):
        chosen = data.draw(st.permutations(range(n)))[: data.draw(st.integers(1, n))]
        on_disk[dim] = np.array(chosen, dtype=np.int64)
    sizes = {dim: len(on_disk[dim]) for dim in declared_dims}
    placement = Placement.of(sizes, dict(zip(dims, shape, strict=True)), on_disk)
    runs = placement.runs(tuple(slice(0, n) for n in shape)).reshape(shape)
    declared = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    turned = declared.transpose([list(declared_dims).index(dim) for dim in dims])
    assert np.array_equal(runs[np.ix_(*on_disk.values())], turned)
    assert (runs >= 0).sum() == declared.size
    disk = placement.disk(np.arange(declared.size))
    assert np.array_equal(runs.ravel()[disk], np.arange(declared.size))
    assert np.array_equal(placement.runs_at(np.arange(runs.size)), runs.ravel())


@given(n=st.integers(0, 500), sizes=st.lists(st.integers(1, 60), min_size=1))
def test_batches_cover_each_cell_once_in_order(n: int, sizes: list[int]) -> None:
    cells = np.arange(n, dtype=np.int64)
    given_sizes = iter(sizes * 500)
    batches = list(cut(3, cells, cells * 2, lambda: (next(given_sizes), 0.5)))
    assert [int(c) for b in batches for c in b.cells] == list(range(n))
    assert all(np.array_equal(b.runs, b.cells * 2) and b.block == 3 for b in batches)
    assert all(b.seconds == 0.5 * len(b) for b in batches)


@given(
    cost=st.floats(1e-9, 1e4),
    left=st.integers(1, 10**9),
    workers=st.integers(1, 128),
    started=st.booleans(),
)
def test_a_batch_is_short_in_time_and_leaves_work_for_everyone(
    cost: float, left: int, workers: int, started: bool
) -> None:
    count = batch_size(cost, left, workers, started=started)
    assert 1 <= count <= 16_384
    assert count == 1 or count * cost <= 1.0
    if cost > 0.05:
        assert count <= max(1, left // (4 * workers))


def test_batches_are_of_one_run_until_the_cost_is_known() -> None:
    assert batch_size(math.nan, 10**6, 2, started=False) == 1


def test_first_batches_are_short_so_that_a_picture_appears_soon() -> None:
    assert batch_size(1e-3, 10**6, 2, started=False) * 1e-3 <= 0.1


@given(total=st.integers(1, 10**12))
def test_the_coarse_pass_is_a_twentieth_or_a_few_runs(total: int) -> None:
    count = coarse_runs(total)
    assert 1 <= count <= min(COARSE_RUNS, total)
    assert count <= max(64, math.ceil(total * 0.05))


def test_blocks_of_big_shapes_stay_large_and_aligned() -> None:
    for shape, per_run in (
        ((1000, 1000), 80),
        ((10**6,), 80),
        ((3, 20, 3, 4, 14), 4100),
        ((10,) * 9, 80),
        ((7, 11, 13, 17, 19), 200),
        ((100_003,), 80),
        ((5, 65_537), 80),
    ):
        layout = Layout(
            dict(zip("abcdefghi", shape, strict=False)), block_shape(shape, per_run), {}
        )
        runs = math.prod(layout.block)
        assert runs <= 65_536
        assert runs * per_run <= 33 * 2**20 or runs == 1
        least = min(math.prod(shape), min(65_536, 32 * 2**20 // per_run)) / 8
        assert runs >= least, (shape, layout.block)
        assert layout.n_blocks <= max(
            2, 20 * math.prod(shape) / 65_536, 20 * math.prod(shape) * per_run / 2**25
        )


# --- order ---


def opened(costs: list[list[float]]) -> list[Open]:
    made, at = [], 0
    for number, seconds in enumerate(costs):
        runs = np.arange(at, at + len(seconds), dtype=np.int64)
        made.append(Open(number, runs - at, runs, np.array(seconds, dtype=np.float64)))
        at += len(seconds)
    return made


some_costs = st.lists(st.lists(st.floats(1e-3, 10), max_size=20), min_size=1, max_size=6)


@given(costs=some_costs, window=st.integers(1, 4), limit=st.floats(0.01, 2), longest=st.booleans())
def test_merged_blocks_give_each_run_once_within_the_window(
    costs: list[list[float]], window: int, limit: float, longest: bool
) -> None:
    batches = list(merged(iter(opened(costs)), window, lambda: limit, longest=longest))
    assert sorted(r for b in batches for r in b.runs.tolist()) == list(range(sum(map(len, costs))))
    for batch in batches:
        assert len(batch) == 1 or batch.seconds <= limit * 1.001
    begun = [b.block for b in batches]
    for at in range(len(begun)):
        going = {one for one in begun[: at + 1] if one in begun[at + 1 :]}
        assert len(going) <= window


def test_with_all_blocks_open_the_longest_runs_go_first_one_by_one() -> None:
    costs = [[1.0, 5.0, 3.0], [4.0, 2.0], [6.0]]
    batches = list(merged(iter(opened(costs)), 3, lambda: 0.5, longest=True))
    assert [b.seconds for b in batches] == [6, 5, 4, 3, 2, 1]
    assert [b.block for b in batches] == [2, 0, 1, 0, 1, 0]
    batches = list(merged(iter(opened(costs)), 3, lambda: 0.5, longest=False))
    assert [b.seconds for b in batches] == [1, 2, 3, 4, 5, 6]


@given(left=st.floats(0, 1e6), workers=st.integers(1, 64))
def test_batches_get_short_toward_the_end(left: float, workers: int) -> None:
    assert batch_seconds(left, workers) <= max(left / (4 * workers), 0.05)


@given(seconds=st.lists(st.floats(1e-3, 10), min_size=1, max_size=60), workers=st.integers(1, 8))
def test_a_schedule_lies_between_the_bounds_of_list_scheduling(
    seconds: list[float], workers: int
) -> None:
    # R. L. Graham, SIAM J. Appl. Math. 17 (1969), 416-429
    found = schedule(np.array(seconds), workers)
    least = max(sum(seconds) / workers, max(seconds))
    assert found.fits.all()
    assert least * 0.999 <= found.wall <= least * (2 - 1 / workers) * 1.001


def test_a_schedule_leaves_out_what_might_overrun() -> None:
    seconds, bounds = np.array([4.0, 1.0, 1.0, 2.0]), np.array([6.0, 1.5, 1.5, 3.0])
    found = schedule(seconds, 1, until=5.0, bounds=bounds)
    assert found.fits.tolist() == [False, True, True, True]
    assert found.wall == 4.0
    assert not schedule(seconds, 4, until=1.0, bounds=bounds).fits.any()


def test_log_normal_costs_end_within_a_tenth_of_the_bound_in_the_order_of_a_session() -> None:
    for runs, seed in ((200, 0), (200, 3), (2000, 1)):
        rng = np.random.default_rng(seed)
        seconds = np.exp(1.5 * rng.standard_normal(runs))
        lead = rng.permutation(runs)[: coarse_runs(runs)]
        urgent = critical(np.arange(runs), seconds, float(seconds[lead].sum()), 8)
        first = np.concatenate([urgent, lead[~np.isin(lead, urgent)]])
        rest = np.setdiff1d(np.arange(runs), first)
        rest = rest[np.argsort(-seconds[rest])]
        order = np.concatenate([first, rest])
        least = max(seconds.sum() / 8, seconds.max())
        assert len(urgent) <= 4
        assert schedule(seconds[order], 8).wall <= 1.02 * least


@given(count=st.integers(0, 40))
def test_a_pilot_is_spread_over_the_grid(count: int) -> None:
    grid = sk.grid(a=range(7), b=[0.1, 0.2, 0.7], replicates=4)
    chosen = spread(grid, np.arange(grid.size), count)
    assert len(chosen) == len(set(chosen.tolist())) == count
    if count >= 9:
        index = grid.index(chosen)
        assert {0, 6} <= set(index["a"].tolist())
        assert set(index["b"].tolist()) == {0, 1, 2}

"""Pending runs to batches: pure."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sweepkit.format1 import Layout, block_shape
from sweepkit.plan import (
    COARSE_RUNS,
    Placement,
    batch_size,
    by_block,
    coarse_runs,
    cut,
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

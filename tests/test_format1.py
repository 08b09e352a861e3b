"""The stored layout: blocks, chunks, fills and encodings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepkit import format1
from sweepkit.format1 import KEEPING, Layout, Variable, block_shape, length_variable, subdivided
from sweepkit.status import NAMES, Status

shapes = st.lists(st.integers(1, 10**4), min_size=1, max_size=5).map(tuple)


@given(shape=shapes, per_run=st.integers(1, 10**8))
def test_a_block_holds_few_enough_runs_and_bytes(shape: tuple[int, ...], per_run: int) -> None:
    block = block_shape(shape, per_run)
    assert len(block) == len(shape)
    assert all(b >= 1 for b in block)
    assert math.prod(block) <= 65_536
    assert math.prod(block) * per_run <= format1.BLOCK_BYTES or math.prod(block) == 1


@given(
    block=st.lists(st.integers(1, 300), min_size=1, max_size=4).map(tuple),
    limit=st.integers(1, 5000),
)
def test_chunks_divide_a_block_evenly(block: tuple[int, ...], limit: int) -> None:
    chunk = subdivided(block, limit)
    assert all(b % c == 0 for b, c in zip(block, chunk, strict=True))
    assert math.prod(chunk) <= limit


@given(
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    data=st.data(),
)
def test_boxes_of_blocks_tile_the_store(shape: tuple[int, ...], data: st.DataObject) -> None:
    block = tuple(data.draw(st.integers(1, 13)) for _ in shape)
    layout = Layout(dict(zip("abc", shape, strict=False)), block, {})
    count = np.zeros(shape, dtype=int)
    for number in range(layout.n_blocks):
        count[layout.box(number)] += 1
    assert (count == 1).all()


def test_large_outputs_and_texts_are_chunked_finer_than_blocks() -> None:
    trace = Variable("trace", "float64", ("time",), (500,))
    layout = Layout({"a": 1000, "b": 1000}, (64, 1000), {})
    runs = math.prod(layout.chunk(trace))
    assert 2**19 <= runs * 4000 <= 2**20
    log = next(one for one in KEEPING if one.name == "log")
    assert math.prod(layout.chunk(log)) <= 256
    assert layout.chunk(Variable("y", "float64")) == (64, 1000)


def test_an_output_of_many_megabytes_is_one_run_per_chunk() -> None:
    movie = Variable("movie", "uint8", ("t", "y", "x"), (100, 500, 500))
    block = block_shape((50,), movie.bytes_per_run)
    assert block == (1,)
    assert Layout({"a": 50}, block, {}).chunk(movie) == (1,)


def test_a_small_store_has_room_to_grow_in_its_first_block() -> None:
    assert math.prod(block_shape((3, 4), 80)) >= 500


@pytest.mark.parametrize(
    ("dtype", "stored", "fill"),
    [
        ("float32", "float32", math.nan),
        ("int16", "int16", 0),
        ("bool", "bool", False),
        ("str", "string", ""),
        ("datetime64[ns]", "int64", -(2**63)),
        ("timedelta64[ns]", "int64", -(2**63)),
    ],
)
def test_types_on_disk_are_ours(dtype: str, stored: str, fill: object) -> None:
    variable = Variable("x", dtype)
    assert variable.stored_dtype == stored
    assert variable.fill == fill or (fill != fill and variable.fill != variable.fill)


def test_status_tells_its_words_in_cf_terms() -> None:
    (status,) = [one for one in KEEPING if one.name == "status"]
    assert status.attrs["flag_values"] == list(range(len(NAMES)))
    assert status.attrs["flag_meanings"].split() == list(NAMES)
    assert status.fill == Status.PENDING == 0


def test_lengths_of_a_padded_output_are_told_from_both_sides() -> None:
    padded = Variable("angle", "float64", ("time",), (5,), pad="time")
    lengths = length_variable(padded)
    assert (lengths.name, lengths.dtype) == ("angle_length", "int32")
    assert lengths.attrs["length_of"] == "angle"
    layout = Layout({"a": 1}, (1,), {one.name: one for one in (*KEEPING, padded, lengths)})
    assert [one.name for one in layout.outputs] == ["angle"]

"""Blocks under way: results gathered in memory, written whole, status last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepkit.blocks import Blocks, Cells
from sweepkit.format1 import KEEPING, Layout, Variable
from sweepkit.parameters import parameter
from sweepkit.status import Status
from sweepkit.stores.zarr import ZarrStore

OUTPUTS = (
    Variable("y", "float64"),
    Variable("word", "str"),
    Variable("trace", "float64", ("t",), (2,)),
)


@dataclass
class Memory:
    """A store in memory that keeps the order in which it was written."""

    layout: Layout
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    read_back: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for one in self.layout.variables.values():
            shape = self.layout.shape + one.shape
            self.arrays[one.name] = np.full(shape, one.fill, dtype=one.memory_dtype)

    def read(self, name: str, box: tuple[slice, ...]) -> np.ndarray[Any, Any]:
        self.read_back.append(name)
        return self.arrays[name][box].copy()

    def write(self, name: str, box: tuple[slice, ...], values: np.ndarray[Any, Any]) -> None:
        chunk = self.layout.chunk(self.layout.variables[name])
        for part, extent, size in zip(box, chunk, self.layout.shape, strict=False):
            assert part.start % extent == 0, "unaligned"
            assert part.stop % extent == 0 or part.stop == size, "a part of a chunk"
        self.written.append(name)
        self.arrays[name][box] = values


def memory(shape: tuple[int, ...] = (5, 3), block: tuple[int, ...] = (2, 4)) -> Memory:
    variables = {one.name: one for one in (*KEEPING, *OUTPUTS)}
    return Memory(Layout(dict(zip("ab", shape, strict=True)), block, variables))


def cells_of(cells: list[int], status: Status = Status.DONE, **texts: dict[int, str]) -> Cells:
    n = len(cells)
    at = np.array(cells, dtype=np.int64)
    values: dict[str, Any] = {
        "y": (None, at * 1.0),
        "word": (None, np.array([f"w{c}" for c in cells], dtype=object)),
        "trace": (None, np.stack([at, -at], axis=1) * 1.0),
        "duration": (None, np.ones(n)),
        "code": (None, np.zeros(n, dtype=np.int16)),
        "log_size": (None, np.zeros(n, dtype=np.int32)),
    }
    return Cells(at, np.full(n, status, dtype=np.int8), values, texts)


def test_status_is_written_last() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.put(0, cells_of([0, 4]))
    assert store.written == []
    blocks.flush()
    assert store.written[-1] == "status"
    assert set(store.written) == {
        "y",
        "word",
        "trace",
        "duration",
        "attempts",
        "code",
        "log_size",
        "status",
    }


def test_a_block_says_that_nothing_is_done_before_its_first_values_are_written() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.put(0, cells_of([0, 4]))
    assert blocks.unwritten == 9
    assert blocks.flush() == 9
    assert store.written[0] == store.written[-1] == "status"
    blocks.put(0, cells_of([1]))
    store.written.clear()
    blocks.flush()
    assert store.written.count("status") == 1


def test_texts_are_written_only_where_there_are_any() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.put(0, cells_of([1], Status.ERROR, error={0: "ValueError: no"}))
    blocks.flush()
    assert store.written.count("error") == 1
    assert "log" not in store.written
    assert store.arrays["error"][0, 1] == "ValueError: no"


def test_a_block_is_written_when_nothing_more_is_expected_of_it() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.get(0)
    blocks.expected[0] = 3
    blocks.put(0, cells_of([0, 1]))
    assert not store.written
    blocks.put(0, cells_of([2]))
    assert not blocks.open
    assert not blocks.expected
    steps = 0
    while blocks.step():
        steps += 1
        assert len(store.written) == steps
    assert store.written[-1] == "status"
    assert not blocks.leaving


def test_a_block_asked_for_while_it_is_written_is_written_first() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.get(0)
    blocks.expected[0] = 3
    blocks.put(0, cells_of([0, 1, 2]))
    assert blocks.step()
    assert set(store.written) == {"status"}  # of which nothing is done yet
    assert (blocks.get(0).status[:3] == Status.DONE).all()
    assert store.written[-1] == "status"


def test_an_interrupt_in_the_middle_of_a_block_leaves_nothing_unwritten() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.get(0)
    blocks.expected[0] = 3
    blocks.put(0, cells_of([0, 1, 2]))
    write, count = store.write, 0

    def interrupted(*given: Any) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        write(*given)

    store.write = interrupted  # type: ignore[method-assign]
    blocks.step()
    with pytest.raises(KeyboardInterrupt):
        blocks.step()
    blocks.flush()
    assert store.written[-1] == "status"
    assert store.arrays["y"].ravel()[:3].tolist() == [0.0, 1.0, 2.0]


def test_a_fresh_block_reads_back_no_outputs() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.put(0, cells_of([0, 1, 2]))
    blocks.close()
    assert not {"y", "word", "trace", "duration"} & set(store.read_back)


def test_a_finished_part_is_kept_when_a_block_is_opened_again() -> None:
    store = memory()
    first = Blocks(store)
    first.put(0, cells_of([0, 1], log={1: "said"}))
    first.close()
    second = Blocks(store)
    second.put(0, cells_of([3, 5], log={0: "said, too"}))
    second.close()
    assert store.arrays["y"][:2].ravel()[[0, 1, 3, 5]].tolist() == [0, 1, 3, 5]
    assert store.arrays["word"][:2].ravel().tolist() == ["w0", "w1", "", "w3", "", "w5"]
    assert store.arrays["log"][:2].ravel().tolist() == ["", "said", "", "said, too", "", ""]
    assert store.arrays["status"][:2].ravel().tolist() == [1, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("all_of_them", [True, False])
def test_a_run_that_is_tried_again_counts_its_attempts_and_drops_its_old_texts(
    all_of_them: bool,
) -> None:
    store = memory()
    first = Blocks(store)
    cells = [0, 1, 2, 3, 4, 5] if all_of_them else [0, 1]
    first.put(0, cells_of(cells, Status.ERROR, error=dict.fromkeys(range(len(cells)), "no")))
    if not all_of_them:
        first.put(0, cells_of([2]))
    first.close()
    status = store.arrays["status"]
    status[status == Status.ERROR] = Status.PENDING
    second = Blocks(store)
    second.put(0, cells_of(cells, error={}, log={}))
    second.close()
    assert store.arrays["attempts"].ravel()[cells].tolist() == [2] * len(cells)
    assert set(store.arrays["error"].ravel().tolist()) == {""}
    if not all_of_them:
        assert store.arrays["attempts"].ravel()[2] == 1
        assert store.arrays["y"].ravel()[2] == 2


def test_marks_are_written_without_values() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.get(1).mark(np.array([0, 2]), Status.SKIPPED)
    blocks.flush()
    assert store.written == ["status"]
    assert store.arrays["status"][2:4].ravel().tolist() == [6, 0, 6, 0, 0, 0]
    blocks.get(1).mark(np.array([0, 2]), Status.SKIPPED)
    assert blocks.flush() == 0


def test_flushing_twice_writes_once() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.put(0, cells_of([0]))
    assert blocks.flush() > 0
    assert blocks.flush() == 0


def test_settled_chunks_of_large_outputs_are_let_go() -> None:
    store = memory()
    blocks = Blocks(store)
    blocks.get(0)
    blocks.put(0, cells_of([0, 1, 2]))
    held = blocks.nbytes
    blocks.put(0, cells_of([3, 4, 5]))
    blocks.flush()
    assert blocks.nbytes < held + 200


@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    block=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    data=st.data(),
)
def test_whatever_the_order_of_arrival_and_flushes_the_store_holds_each_result_at_its_place(
    shape: tuple[int, int], block: tuple[int, int], data: st.DataObject
) -> None:
    store = memory(shape, block)
    numbers = np.arange(shape[0] * shape[1]).reshape(shape)
    todo = [
        (number, cell)
        for number in range(store.layout.n_blocks)
        for cell in range(numbers[store.layout.box(number)].size)
    ]
    arrivals = data.draw(st.permutations(todo))[: data.draw(st.integers(0, len(todo)))]
    blocks = Blocks(store)
    expected = np.full(shape, np.nan)
    for number, cell in arrivals:
        run = int(numbers[store.layout.box(number)].ravel()[cell])
        values = dict(cells_of([cell]).values)
        values["y"] = (None, np.array([float(run)]))
        blocks.put(number, Cells(np.array([cell]), np.array([1], dtype=np.int8), values))
        expected.ravel()[run] = run
        action = data.draw(st.sampled_from(["", "", "flush", "trim", "close"]))
        if action:
            getattr(blocks, action)()
    blocks.close()
    assert np.array_equal(store.arrays["y"], expected, equal_nan=True)
    assert np.array_equal(store.arrays["status"] == 1, ~np.isnan(expected))
    assert np.array_equal(store.arrays["attempts"] == 1, ~np.isnan(expected))


def test_blocks_write_to_a_real_store(store: str) -> None:
    target = ZarrStore(store)
    shape = memory()
    said: dict[str, Any] = {"parameters": []}
    with target.hold():
        target.create(shape.layout, [parameter("a", range(5)), parameter("b", range(3))], said)
        blocks = Blocks(target)
        blocks.put(2, cells_of([0, 2], log={1: "é"}))
        blocks.close()
        box = shape.layout.box(2)
        assert target.read("word", box).tolist() == [["w0", "", "w2"]]
        assert target.read("log", box).tolist() == [["", "", "é"]]
        assert target.read("trace", box)[0, 2].tolist() == [2.0, -2.0]

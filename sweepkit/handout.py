"""Which runs of a session go out next: a coarse pass, then the longest first, within limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sweepkit.blocks import Blocks
from sweepkit.cost import Cost, Costs
from sweepkit.format1 import block_bytes
from sweepkit.grid import Grid, random_prefix
from sweepkit.judge import Tally
from sweepkit.plan import (
    Open,
    Placement,
    batch_seconds,
    batch_size,
    by_block,
    critical,
    cut,
    merged,
    random_order,
    spread,
)
from sweepkit.protocols import Batch, Store
from sweepkit.status import Status

__all__ = ["OPEN_BYTES", "Handout"]

OPEN_BYTES = 512 * 2**20
BATCH_BYTES = 64 * 2**20
"""Most bytes that the results of a batch may take."""
SLOW = 0.1
"""Runs that take longer, in seconds, are written one by one: many blocks may be open."""
QUICK = 1e-3
"""Runs that take less, in seconds, are not worth putting in order."""
MOST_LISTED = 2**20
"""Pending runs up to which all of them are looked at together."""
MOST_SORTED = 4096
"""Blocks up to which they are put in order."""
LIMIT_NEAR = 5.0
"""Seconds before a limit from which on no batch waits behind another."""
UNQUEUED = 0.5
"""Seconds of a batch behind which an executor lets no other wait."""
STORED_BLOCKS, STORED_RUNS = 16, 128
"""Blocks, and runs in each, from which a session learns what runs of earlier ones took."""
SAMPLE = 1024


@dataclass
class Handout:
    """Pending runs as batches, pulled one by one while the session goes on.

    Attributes
    ----------
    grid, store, placement
        What is run, where it is kept, and where each run lies there.
    tally : Tally
        Skipped points are counted there, and runs dropped because they might overrun the limit.
    total, workers : int
        Runs that were pending when the session began; runs at the same time.
    blocks, cost, costs : callables
        The open blocks and what is known of costs, at the moment.
    left : callable
        Seconds until the session's limit; infinite if it has none.
    longest : float
        Seconds after which a run is killed.
    batch_of : callable or None
        Runs of the next batch when so many are left, where the simulator takes them together.
    probing : callable
        Whether the size of such batches is still sought, by calls that take next to no time.
    """

    grid: Grid
    store: Store
    placement: Placement
    tally: Tally
    total: int
    workers: int
    blocks: Callable[[], Blocks]
    cost: Callable[[], Cost]
    costs: Callable[[], Costs]
    left: Callable[[], float]
    longest: float = math.inf
    batch_of: Callable[[int], int] | None = None
    probing: Callable[[], bool] = lambda: False
    given_out: int = 0
    _began: float = field(default_factory=time.monotonic)

    # --- the runs ---

    def lead(self, *, created: bool) -> NDArray[np.int64]:
        """Runs of the coarse pass in their order, by number in the declared grid."""
        order = random_order(self.placement.disk_sizes)
        disk = random_prefix(order["seed"], math.prod(order["sizes"].values()), order["coarse"])
        runs = self.placement.runs_at(disk)
        runs = runs[runs >= 0]
        if created:
            runs = runs[self.pending(runs)]
        return runs[self.grid.valid(self.grid.index(runs))] if self.grid.masks else runs

    def pending(self, runs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some runs are pending."""
        layout, disk = self.store.layout, self.placement.disk(runs)
        pending = np.zeros(len(runs), dtype=bool)
        for number, cells, rows in by_block(layout, disk):
            status = self.store.read("status", layout.box(number)).ravel()
            pending[rows] = status[cells] == Status.PENDING
        return pending

    def all_pending(self, *, created: bool) -> NDArray[np.int64] | None:
        """All pending runs, None if they are too many to be listed."""
        if self.grid.size > MOST_LISTED:
            return None
        runs = np.arange(self.grid.size)
        if created:
            runs = runs[self.pending(runs)]
        return runs[self.grid.valid(self.grid.index(runs))] if self.grid.masks else runs

    def pilot(self, count: int, *, created: bool) -> NDArray[np.int64]:
        """A few pending runs that lie far apart, of the coarse pass if there are enough."""
        runs = self.lead(created=created)[:SAMPLE]
        if len(runs) < count:
            listed = self.all_pending(created=created)
            if listed is not None:
                runs = listed[:: max(1, len(listed) // SAMPLE)]
        return spread(self.grid, runs, count)

    def first(self, *, created: bool) -> NDArray[np.int64]:
        """The coarse pass, and before it those few runs that could not wait until it is over."""
        lead = self.lead(created=created)
        costs = self.costs()
        if not costs.known or math.isfinite(self.left()):
            return lead
        runs = self.all_pending(created=created)
        if runs is None or not costs.varies(runs):
            return lead
        seconds = costs.expected(runs)
        coarse = float(costs.expected(lead).sum())
        urgent = critical(runs, seconds, coarse, self.workers)
        return np.concatenate([urgent, lead[~np.isin(lead, urgent)]])

    # --- the batches ---

    def single(self, run: NDArray[np.int64]) -> Iterator[Batch]:
        """One run while there is no store yet."""
        yield from self.fitting(iter([Batch(-1, np.zeros(1, dtype=np.int64), run, math.inf)]))

    def coarse(self, runs: NDArray[np.int64]) -> Iterator[Batch]:
        """Runs in the order given, as far as they can share batches."""
        yield from self.fitting(self._coarse(runs))

    def _coarse(self, runs: NDArray[np.int64]) -> Iterator[Batch]:
        runs = yield from self._probes(runs)
        at = 0
        while at < len(runs):
            costs = self.costs()
            count, _ = self._size()
            quick = count > 1 or not costs.known
            piece = runs[at : at + (max(64, count * self.store.layout.n_blocks) if quick else 1)]
            at += len(piece)
            for block, cells, rows in by_block(self.store.layout, self.placement.disk(piece)):
                for batch in cut(block, cells, piece[rows], self._size):
                    yield _expecting(batch, costs)

    def _probes(self, runs: NDArray[np.int64]) -> Generator[Batch, None, NDArray[np.int64]]:
        """Batches of one block each, while the size of calls is sought; returns what is left.

        A piece of the order lies in all blocks, and cut by them it would be many calls of few runs,
        each of which costs about as much as one of many.
        """
        while len(runs) and self.probing():
            count, cost = self._size()
            block, cells, rows = next(
                one for one in by_block(self.store.layout, self.placement.disk(runs)) if 0 in one[2]
            )
            cells, rows = cells[:count], rows[:count]
            yield Batch(block, cells, runs[rows], 0.0 if math.isnan(cost) else cost * len(rows))
            runs = np.delete(runs, rows)
        return runs

    def rest(self, handed: NDArray[np.int64]) -> Iterator[Batch]:
        """Everything but what has been handed out, each run once."""
        sample = self._sample()
        costs = self.costs()
        each = costs.expected(sample)
        mean = float(each.mean()) if len(each) else math.nan
        if self.batch_of is None and mean >= QUICK and costs.varies(sample):
            yield from self.fitting(self._by_cost(handed, mean))
            return
        yield from self.fitting(self._by_place(handed))

    def _by_place(self, handed: NDArray[np.int64]) -> Iterator[Batch]:
        """Block by block as they lie."""
        for number in range(self.store.layout.n_blocks):
            cells, runs = self._open(number, handed)
            yield from cut(number, cells, runs, self._size)

    def _by_cost(self, handed: NDArray[np.int64], mean: float) -> Iterator[Batch]:
        """From some blocks at a time, the longest first; the shortest if not all can be run."""
        work = mean * max(self.total - self.given_out, 1)
        longest = work / self.workers <= self.left()
        costs = self.costs()

        def opened() -> Iterator[Open]:
            for number in self._block_order(costs, longest=longest):
                cells, runs = self._open(number, handed)
                yield Open(number, cells, runs, costs.expected(runs))

        left = [work]
        wanted = partial(_wanted, left, self.workers)
        for batch in merged(opened(), self._window(mean), wanted, longest=longest):
            left[0] -= batch.seconds
            yield batch

    def _window(self, mean: float) -> int:
        """Blocks that may be open at the same time."""
        layout = self.store.layout
        least = 2 * self.workers
        if mean < SLOW:
            return least
        per_run = block_bytes(layout.variables.values())
        room = OPEN_BYTES // max(math.prod(layout.block) * per_run, 1)
        return max(least, min(room, layout.n_blocks))

    def _block_order(self, costs: Costs, *, longest: bool) -> Sequence[int]:
        """Blocks, those first that have the longest run, or the shortest."""
        count = self.store.layout.n_blocks
        if not 1 < count <= MOST_SORTED:
            return range(count)
        extremes = np.zeros(count)
        for number in range(count):
            runs = self.placement.runs(self.store.layout.box(number))
            runs = runs[runs >= 0][:: max(1, len(runs) // 256)]
            if len(runs):
                seconds = costs.expected(runs)
                extremes[number] = -seconds.max() if longest else seconds.min()
        return [int(number) for number in np.argsort(extremes, kind="stable")]

    def _open(
        self, number: int, handed: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Open a block: cells and runs in it that are still to be handed out."""
        block = self.blocks().get(number)
        runs = self.placement.runs(block.box)
        cells = np.flatnonzero((block.status == Status.PENDING) & (runs >= 0))
        if len(cells) and self.grid.masks:
            valid = self.grid.valid(self.grid.index(runs[cells]))
            block.mark(cells[~valid], Status.SKIPPED)
            self.tally.counts[Status.SKIPPED] += int((~valid).sum())
            cells = cells[valid]
        if len(cells):
            block.mark(cells, Status.PENDING)
        self.blocks().expected[number] = len(cells)
        if not len(cells):
            self.blocks().settle(number)
        if len(handed):
            cells = cells[~np.isin(runs[cells], handed, assume_unique=True)]
        return cells, runs[cells]

    # --- limits and sizes ---

    def fitting(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Batches without the runs that might overrun the limit, each so short that it fits."""
        for batch in batches:
            if math.isinf(self.left()):
                self.given_out += len(batch)
                yield batch
                continue
            yield from self._parts(batch)

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        while len(batch):
            left, costs = self.left(), self.costs()
            if left <= 0:
                return
            if costs.known:
                bounds = np.minimum(costs.bound(batch.runs), self.longest)
                fits = bounds <= left
                self.tally.dropped += int((~fits).sum())
                batch, bounds = _rows(batch, fits), bounds[fits]
                count = max(1, int(np.searchsorted(np.cumsum(bounds), left, side="right")))
            else:
                count = 1
            if not len(batch):
                return
            part = batch.part(slice(0, count))
            batch = batch.part(slice(count, None))
            self.given_out += len(part)
            alone = left < LIMIT_NEAR and part.seconds < UNQUEUED
            yield Batch(part.block, part.cells, part.runs, UNQUEUED if alone else part.seconds)

    def _size(self) -> tuple[int, float]:
        cost = self.cost()
        left = max(self.total - self.given_out, 1)
        per_run = sum(variable.bytes_per_run for variable in self.store.layout.variables.values())
        most = max(1, BATCH_BYTES // max(per_run, 1))
        if self.batch_of is not None:
            return min(self.batch_of(left), most), cost.recent
        started = cost.count > 0 and time.monotonic() - self._began > 1.0
        count = batch_size(cost.recent, left, self.workers, started=started)
        return min(count, most), cost.recent

    def _sample(self) -> NDArray[np.int64]:
        """Some runs of the grid, spread over it."""
        size = self.grid.size
        if size <= SAMPLE:
            return np.arange(size)
        return np.unique(random_prefix(1, size, SAMPLE))

    # --- what earlier sessions tell ---

    def stored(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Some finished runs of the store, spread over it, and their durations."""
        layout = self.store.layout
        numbers = np.unique(np.linspace(0, layout.n_blocks - 1, STORED_BLOCKS).astype(np.intp))
        for number in numbers.tolist():
            box = layout.box(number)
            status = self.store.read("status", box).ravel()
            runs = self.placement.runs(box)
            ran = (status != Status.PENDING) & (status != Status.SKIPPED)
            cells = np.flatnonzero(ran & (status != Status.CRASHED) & (runs >= 0))
            if not len(cells):
                continue
            cells = cells[:: -(-len(cells) // STORED_RUNS)]
            seconds = self.store.read("duration", box).ravel()[cells].astype(np.float64)
            told = np.isfinite(seconds)
            yield runs[cells[told]], seconds[told]


def _wanted(left: list[float], workers: int) -> float:
    """How long the next batch is to take, once so many seconds of work are left."""
    return batch_seconds(left[0], workers)


def _expecting(batch: Batch, costs: Costs) -> Batch:
    """A batch of few runs with the seconds that these very runs are expected to take."""
    if not costs.known or len(batch) > 64:
        return batch
    seconds = float(costs.expected(batch.runs).sum())
    return Batch(batch.block, batch.cells, batch.runs, seconds)


def _rows(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
    """The runs of a batch at some rows."""
    share = float(rows.mean()) if len(rows) else 0.0
    return Batch(batch.block, batch.cells[rows], batch.runs[rows], batch.seconds * share)

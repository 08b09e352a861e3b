"""Nothing that the driver keeps grows with the number of runs."""

from __future__ import annotations

import pytest

from tests.benchmarks.scale import on_disk, simulated
from tests.conftest import EXHAUSTIVE


def driven(runs: int, store: str) -> list[dict[str, float]]:
    """Decades of a sweep that a stub executor answers, without the last line on the store."""
    *decades, whole = simulated(runs, store, counted=True)
    assert whole["files"] == on_disk(store)["files"] < 200 + runs / 5_000
    return decades


def test_memory_and_calls_per_batch_do_not_grow_with_the_runs(store: str) -> None:
    first, last = driven(10**6, store)
    assert last["mb"] < first["mb"] + 100
    assert last["calls_a_batch"] < 2 * first["calls_a_batch"]


@pytest.mark.slow
def test_memory_and_calls_per_batch_are_flat_to_a_hundred_million(store: str) -> None:
    *_, before, last = driven(10**8 if EXHAUSTIVE else 10**7, store)
    assert last["mb"] < before["mb"] + 100
    assert last["calls_a_batch"] < 2 * before["calls_a_batch"]

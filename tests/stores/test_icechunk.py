"""Sweeps in an Icechunk repository: a commit for each flush, and each of them to be opened."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

import sweepkit as sk
from sweepkit.targets import target as target_of
from tests.conftest import Start
from tests.waiting import LIMIT, until

QUIET: dict[str, Any] = {"backend": "sequential", "progress": False}


def sweep(n: int = 5) -> sk.Sweep:
    def simulate(a: int) -> dict[str, Any]:
        if a == 3:
            raise ValueError("three is no good")
        return {"y": a * 2.0, "trace": np.arange(4.0)}

    return sk.Sweep(simulate, sk.grid(a=range(n)), requirements=["y < 5"], version="1")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "a.icechunk")


def test_each_session_leaves_versions_that_can_be_opened(place: str) -> None:
    sk.run(sweep(), place, **QUIET)
    then = sk.snapshots(place)
    assert {"the store made anew", "5 runs of this session, its end"} <= set(then["message"])
    ds = sk.run(sweep(8), place, **QUIET)
    assert ds["y"].values.tolist()[4:] == [8.0, 10.0, 12.0, 14.0]
    old = sk.open(place, snapshot=then["snapshot"][0])
    assert old["y"].sizes == {"a": 5}
    np.testing.assert_array_equal(old["y"].values, ds["y"].values[:5])
    assert len(sk.snapshots(place)) > len(then)
    assert len(sk.verify(place)) == 0
    assert len(sk.receipt(place).records) == 2
    assert sk.derive(place, "twice", "2 * y")["twice"].sel(a=2) == 8
    flat = sk.refine(sweep(8), place, sk.paired({"a": [20, 30]}, dim="p"), **QUIET)
    assert flat.sizes["run"] == 10
    assert sk.open(place, snapshot=then["snapshot"][0])["y"].sizes == {"a": 5}
    with pytest.raises(sk.StoreError, match=r"has no snapshot 'none' .*; the last ones are"):
        sk.open(place, snapshot="none")


def test_a_snapshot_of_what_keeps_none_is_refused(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is for Icechunk repositories"):
        sk.open(store, snapshot="1CECHNKREP0F1RSTCMT0")
    with pytest.raises(sk.StoreError, match="holds no sweep"):
        sk.open("nothing.icechunk")
    with pytest.raises(TypeError, match="snapshot is 3; give the text that names it"):
        sk.open("nothing.icechunk", snapshot=3)  # type: ignore[arg-type]
    with pytest.raises(sk.StoreError, match=r"s\.zarr is no Icechunk repository"):
        sk.snapshots("s.zarr")
    assert os.listdir(tmp_path) == []


def test_a_second_writer_is_refused_and_a_conflict_is_told(place: str) -> None:
    sk.run(sweep(), place, **QUIET)
    with target_of(place).hold(), pytest.raises(sk.StoreBusyError, match=f"process {os.getpid()}"):
        sk.run(sweep(6), place, **QUIET)

    def past_the_lock() -> None:
        store = target_of(place)
        with store.hold():
            store.open()
            storage = icechunk.local_filesystem_storage(place)
            other = icechunk.Repository.open(storage).writable_session("main")
            zarr.open_array(other.store, path="y", mode="r+")[0] = 1.0
            other.commit("past the lock")
            store.write("status", store.layout.box(0), store.read("status", store.layout.box(0)))

    with pytest.raises(sk.StoreBusyError, match="was written by another process meanwhile"):
        past_the_lock()
    assert sk.run(sweep(6), place, **QUIET)["y"].sel(a=5) == 10


DRIVER = """
    import sys
    import sweepkit as sk
    from sweepkit import intake
    from sweepkit.stores.icechunk import Icechunk
    intake.SLOW, intake.RESTS, Icechunk.pause_seconds = -1.0, 0.0, 0.0
    def f(a):
        import os, time
        with open(sys.argv[2], "a") as file:
            file.write(f"{a}\\n")
            half = file.tell() > 80
        time.sleep(0.02)
        while half and os.path.exists(sys.argv[2] + ".half"):
            time.sleep(0.02)
        return {"y": a * 2.0}
    if __name__ == "__main__":
        sk.run(sk.Sweep(f, sk.grid(a=range(60)), version="1"), sys.argv[1], backend="sequential",
               progress=False)
"""


@pytest.mark.slow
def test_a_kill_loses_nothing_that_was_committed(place: str, start: Start, tmp_path: Path) -> None:
    def done() -> set[int]:
        try:
            ds = sk.open(place).load()
        except sk.StoreError:
            return set()
        there = ds["status"].values == 1
        np.testing.assert_array_equal(ds["y"].values[there], 2.0 * ds["a"].values[there])
        return set(ds["a"].values[there].tolist())

    ledger = tmp_path / "ledger"
    half = tmp_path / "ledger.half"
    half.touch()  # it runs half of them and no more
    first = start(DRIVER, place, ledger)
    until(lambda: len(done()) >= 3, first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    half.unlink()
    kept, before = done(), len(ledger.read_text().split())
    assert len(kept) < 60
    second = start(DRIVER, place, ledger)
    _, err = second.communicate(timeout=2 * LIMIT)
    assert second.returncode == 0, err
    again = set(map(int, ledger.read_text().split()[before:]))
    assert not kept & again
    assert done() == set(range(60))

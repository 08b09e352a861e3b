"""Folders and processes of a session that was killed: gone at once, or with the next session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sweepkit import keeper
from sweepkit.premises import Premises
from tests.waiting import LIMIT, gone, until

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def asleep(**options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600.5)"]
    return subprocess.Popen(command, start_new_session=True, **options)  # type: ignore[call-overload,no-any-return]


def test_what_runs_at_a_place_is_found_by_its_environment_or_its_output(tmp_path: Path) -> None:
    place = str(tmp_path / "worker-1")
    with open(f"{place}.log", "wb") as log:
        marked = asleep(env={**os.environ, keeper.MARK: place})
        printing = asleep(env={}, stdout=log)
        other = asleep(env={**os.environ, keeper.MARK: str(tmp_path / "worker-2")})
    try:
        assert set(keeper.kin(place)) == {marked.pid, printing.pid}
        assert set(keeper.kin(str(tmp_path) + os.sep)) == {marked.pid, printing.pid, other.pid}
        assert {marked.pid, printing.pid, other.pid} <= set(keeper.descendants(os.getpid()))
        keeper.end_kin(place)
        assert marked.wait(LIMIT) == printing.wait(LIMIT) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        keeper.kill([marked.pid, printing.pid, other.pid])
        for one in (marked, printing, other):
            one.wait()


def test_a_folder_of_a_session_that_was_killed_goes_with_the_next_one(temporary: Path) -> None:
    dead, alive = Premises(), Premises()
    left = asleep(env={**os.environ, keeper.MARK: os.path.join(dead.path, "worker-1")})
    (temporary / "sweepkit-of-someone-else").mkdir()
    os.close(dead._lock)  # as the end of its process does
    following = Premises()
    assert left.wait(LIMIT) == -signal.SIGKILL
    assert not os.path.exists(dead.path)
    assert os.path.exists(alive.path)
    alive.leave()
    following.leave()
    assert os.listdir(temporary) == ["sweepkit-of-someone-else"]


def test_a_killed_driver_leaves_no_daemon_and_no_folder(tmp_path: Path, start: Start) -> None:
    (tmp_path / "temporary").mkdir()
    driver = start(
        """
        import os, subprocess, sys, tempfile
        tempfile.tempdir = os.path.abspath("temporary")
        import sweepkit as sk

        def f(i, scratch):
            sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600.5)"]
            subprocess.Popen(sleep, start_new_session=True)
            with open(os.path.join(os.path.dirname(scratch), "..", "..", "daemons"), "w"):
                pass
            subprocess.run(sleep)

        def progress(p):
            if os.path.exists("daemons"):
                print("running", flush=True)

        sk.run(sk.Sweep(f, sk.grid(i=range(4))), "a.zarr", n_jobs=1, backend="loky",
               progress=progress)
        """
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "running\n"
    family: list[psutil.Process] = []

    def both_sleep() -> bool:
        family[:] = psutil.Process(driver.pid).children(recursive=True)
        return sum("600.5" in " ".join(one.cmdline()) for one in family) == 2

    until(both_sleep, driver)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    gone(family)
    until(lambda: not os.listdir(tmp_path / "temporary"))  # the keeper removes it last

"""Folders and processes of a session that was killed: gone at once, or with the next session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sweepkit import keeper, premises
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
    process = subprocess.Popen(command, start_new_session=True, **options)  # type: ignore[call-overload]
    # The system tells of it what was there before it until its new image is in place.
    until(lambda: b"600.5" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    until(lambda: not options.get("env") or Path(f"/proc/{process.pid}/environ").read_bytes())
    return process  # type: ignore[no-any-return]


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


def aged(folder: Path, seconds: float) -> None:
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (time.time() - seconds,) * 2)


def test_a_folder_that_lost_its_owner_goes_once_it_is_old(temporary: Path) -> None:
    def made(name: str, *files: str) -> Path:
        folder = temporary / name
        folder.mkdir()
        for file in files:
            (folder / file).touch()
        return folder

    left = ("worker-0-0123abcd.claim", "worker-0-0123abcd.log")
    removed = [made("sweepkit-0empty_0"), made("sweepkit-1workers", *left)]
    anothers = [made("sweepkit-2another", "worker-0-0123abcd.log", "thesis.txt")]
    anothers += [made("sweepkit-main", "owner"), made("sweepkit-mine"), made("other-12345678")]
    used = made("sweepkit-3in_use_", *left)
    for folder in (*removed, *anothers, used):
        aged(folder, 2 * premises.FORSAKEN_SECONDS)
    young = [made("sweepkit-4young_0"), made("sweepkit-5young_1", *left)]
    worker = asleep(env={**os.environ, keeper.MARK: str(used / "worker-0-0123abcd")})
    try:
        Premises().leave()
        assert not any(folder.exists() for folder in removed)
        assert [one.name for one in (*anothers, *young, used) if not one.exists()] == []
        assert worker.poll() is None
        worker.kill()
        worker.wait()
        Premises().leave()
        assert not used.exists()
    finally:
        worker.kill()
        worker.wait()


def test_a_link_to_a_folder_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    for name in ("owner", "chapter"):
        (tmp_path / "thesis" / name).touch()
    (temporary / "sweepkit-12345678").symlink_to(tmp_path / "thesis")
    Premises().leave()
    assert sorted(os.listdir(tmp_path / "thesis")) == ["chapter", "owner"]


KILLED_AT = """
import os, signal, sys, tempfile
tempfile.tempdir = os.path.abspath("temporary")
from sweepkit.premises import Premises

left = int(sys.argv[1])

def count(event, args):
    global left
    here = event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and args
    if here and "sweepkit-" in str(args[0]):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
one = Premises()
for name in ("worker-0-0123abcd.claim", "worker-0-0123abcd.log", "z"):
    open(os.path.join(one.path, name), "w").close()
os.mkdir(os.path.join(one.path, "scratch"))
one.leave()
"""


def test_a_folder_goes_whenever_its_session_was_killed(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(premises, "FORSAKEN_SECONDS", -1.0)
    ends = []
    for at in range(40):
        command = [sys.executable, "-c", KILLED_AT, str(at)]
        ends.append(subprocess.run(command, cwd=tmp_path, check=False).returncode)
        Premises().leave()
        assert os.listdir(temporary) == [], at
        if ends[-1] == 0:
            break
    assert set(ends[:-1]) == {-signal.SIGKILL}
    assert ends[-1] == 0
    assert len(ends) > 6


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

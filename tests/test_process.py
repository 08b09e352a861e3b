"""Fresh Python processes: which interpreter, which modules, and what is told of a bad start."""

from __future__ import annotations

import multiprocessing.spawn
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import sweepkit as sk
from sweepkit.fleet import WorkerStartError
from sweepkit.process import found_aside, interpreter
from tests.plain import run
from tests.waiting import LIMIT


def test_modules_that_a_folder_hides_are_those_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("")
    (tmp_path / "numpy").mkdir()
    (tmp_path / "not_imported.py").write_text("")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.chdir(tmp_path)
    found = found_aside()
    assert found["random"] == os.path.dirname(random.__file__)
    assert found["numpy"].endswith("site-packages")
    assert "not_imported" not in found
    (tmp_path / "random.py").unlink()
    assert "random" not in found_aside()


@pytest.mark.parametrize("closed", ["", "<&- >&- 2>&-"])
def test_workers_start_beside_files_named_like_modules_and_without_standard_files(
    tmp_path: Path, store: str, closed: str
) -> None:
    for name in ("json", "random", "pickle", "mmap", "joblib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "model.py").write_text("def twice(i):\n    import random\n    return 2.0 * i\n")
    (tmp_path / "sweep.txt").write_text(
        "import random, sys, sweepkit.workbench, sweepkit.fleet\n"
        "import sweepkit as sk\n"
        "sys.path.insert(0, '')  # as notebooks do\n"
        "import model\n"
        "sweep = sk.Sweep(model.twice, sk.grid(i=[1, 2]))\n"
        f"ds = sk.run(sweep, {store!r}, backend='loky', n_jobs=1, progress=False)\n"
        "assert ds['result'].values.tolist() == [2.0, 4.0]\n"
    )
    program = "exec(open('sweep.txt').read())"
    command = ["sh", "-c", f'exec "$0" -P -c "$1" {closed}', sys.executable, program]
    told = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert told.returncode == 0, told.stderr
    with sk.open(store) as ds:
        assert ds["result"].values.tolist() == [2.0, 4.0]


def test_another_interpreter_is_taken_where_this_one_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = interpreter()
    assert here == sys.executable
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", os.fsencode(here))
    assert interpreter() == here
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match=r"sys.executable is ''; name it by multiprocessing"):
        interpreter()


def test_what_keeps_workers_from_starting_is_told(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(WorkerStartError, match=r"(?s)exit code 1:.*encodings"):
        run(lambda i: i, store, 1)

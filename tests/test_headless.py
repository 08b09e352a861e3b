"""Notebooks run by papermill: what a log shows, how they end, and that running again goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from click.testing import CliRunner

import sweepkit as sk
from sweepkit.cli import main
from sweepkit.status import Status
from tests.waiting import LIMIT, gone, until

ROOT = Path(__file__).parents[1]

CELLS = {
    "parameters": """
import numpy as np
store = "runs.zarr"
n_jobs = 1
count = 40
scale = np.float32(1)
stuck = "none"
max_errors = 0.5
""",
    "imports": """
import time
from pathlib import Path
import sweepkit as sk
sk.parameters()
""",
    "run": """
def simulate(a, stuck):
    if stuck != "none":
        with Path("begun").open("a") as begun:
            begun.write("x")
        while not Path(stuck).exists():
            time.sleep(0.5)  # so slow that it is written at once
            if Path("begun").stat().st_size < 3:
                break  # the third hangs
    if stuck == "none" and a < 0:
        raise ValueError("below nothing")
    return {"y": scale * a}

first = min(count, 0)
sweep = sk.Sweep(simulate, sk.grid(a=range(first, 40), stuck=sk.scenario([stuck])))
ds = sk.run(sweep, store, backend="sequential", max_errors=max_errors)
""",
    "answer": "print('largest', float(ds['y'].max()), type(scale).__name__)",
}


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    made = nbformat.v4.new_notebook()
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    made.metadata["language_info"] = {"name": "python"}
    for tag, source in CELLS.items():
        made.cells.append(nbformat.v4.new_code_cell(source.strip(), metadata={"tags": [tag]}))
    nbformat.write(made, tmp_path / "sweep.ipynb")
    return tmp_path / "sweep.ipynb"


def begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "sweepkit", "run", "sweep.ipynb", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_notebook_is_interrupted_and_goes_on_when_it_is_run_again(notebook: Path) -> None:
    folder = notebook.parent
    words = ("--store", "a.zarr", "-p", "scale=2.5", "-p", 'stuck="go"')
    process = begun(folder, *words)

    def some_are_done() -> bool:
        there = (folder / "a.zarr" / "zarr.json").exists()
        return there and bool((sk.open(folder / "a.zarr")["status"] == Status.DONE).any())

    until(some_are_done, process)
    kernels = psutil.Process(process.pid).children(recursive=True)
    assert kernels
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=2 * LIMIT)
    assert process.returncode == 130, (out, err)
    assert err.splitlines()[-1] == "Error: interrupted; finished runs are kept"
    gone(kernels)
    kept = sk.open(folder / "a.zarr").load()
    done = kept["status"] == Status.DONE
    assert 0 < int(done.sum()) < 40

    (folder / "go").touch()
    process = begun(folder, *words)
    out, err = process.communicate(timeout=2 * LIMIT)
    assert process.returncode == 0, (out, err)
    ds = sk.open(folder / "a.zarr").load()
    assert (ds["status"] == Status.DONE).all()
    assert (ds["attempts"] == 1).all()
    assert (ds["duration"] == kept["duration"]).where(done, True).all()
    lines = out.splitlines()
    assert any(line.startswith("simulate: done, ") for line in lines), out
    assert "largest 97.5 float32" in lines
    assert lines[-1] == "a.zarr: 40 done"
    assert "\r" not in out
    assert "\x1b" not in out
    executed = json.loads((folder / "sweep.executed.ipynb").read_text(encoding="utf-8"))
    nbformat.validate(executed)
    text = json.dumps(executed)
    assert "scale = np.float32(2.5)" in text
    assert "application/vnd.jupyter.widget-view" not in text


@pytest.mark.slow
def test_a_notebook_ends_as_the_failure_policy_says(notebook: Path) -> None:
    """Of 140 runs 100 raise, which is more than half."""
    process = begun(notebook.parent, "--store", "b.zarr", "-p", "count=-100", "--quiet")
    out, err = process.communicate(timeout=2 * LIMIT)
    assert process.returncode == 4, (out, err)
    assert "TooManyErrorsError" in err
    assert "sweep.executed.ipynb" in err
    assert not out


def test_what_a_notebook_does_not_take_is_refused_before_it_runs(
    notebook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(notebook.parent)
    for words, told in (
        (("-p", "counts=3"), "no parameter 'counts' (did you mean 'count'?)"),
        (("--retry", "2"), "no parameter 'retry'"),
        (("--n-jobs", "2", "-p", "n_jobs=3"), "'n_jobs' is given twice"),
    ):
        done = CliRunner().invoke(main, ["run", "sweep.ipynb", *words])
        assert done.exit_code == 1
        assert told in done.output
    assert [one.name for one in notebook.parent.iterdir()] == ["sweep.ipynb"]


@pytest.mark.slow
def test_papermill_itself_says_no_to_what_does_not_fit(notebook: Path) -> None:
    def papermill(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "papermill",
                "-k",
                "python3",
                "sweep.ipynb",
                "out.ipynb",
                *words,
            ],
            cwd=notebook.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * LIMIT,
        )

    done = papermill("-p", "scale", "much")
    assert done.returncode != 0
    assert "'scale' arrived as 'much' (str)" in done.stderr
    done = papermill("-p", "count = 1; n_jobs", "3")
    assert done.returncode != 0
    assert "a parameter's name is no identifier" in done.stderr
    done = papermill("-p", "count", "-100", "-p", "store", "c.zarr")
    assert done.returncode != 0
    assert "TooManyErrorsError" in done.stderr
    done = papermill("-p", "store", "d.zarr", "--log-output")
    assert done.returncode == 0, done.stderr
    assert "simulate: done, 40 of 40 runs (100%)" in done.stderr

"""The command line, as a shell calls it: what it says, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import sweepkit as sk
from sweepkit.cli import main
from sweepkit.console import _picture, state_of
from tests.waiting import LIMIT, until

MODULE = """
import sweepkit as sk

def fall(height, gravity):
    if height < 0:
        raise ValueError("below the ground")
    return {"time": (2 * height / gravity) ** 0.5}

def sweep(highest=3.0, name="fall"):
    heights = [1.0, 2.0, highest]
    return sk.Sweep(fall, sk.grid(height=heights, gravity=[1.62, 9.81]),
                    requirements=["time < 0.7"], name=name)

plain = sweep()
number = 3
"""

Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Call sweepkit in a folder with a module of sweeps, as a process of its own."""
    (tmp_path / "falls.py").write_text(MODULE)
    root = Path(__file__).parents[1]
    search = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))

    def call(*words: object) -> subprocess.CompletedProcess[str]:
        code = "from sweepkit.cli import main; main(prog_name='sweepkit')"
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


def test_a_sweep_is_run_watched_and_handed_on(shell: Shell, tmp_path: Path) -> None:
    done = shell("run", "falls:sweep", "-p", "highest=4.5", "--backend", "sequential")
    assert done.returncode == 0, done.stderr
    assert "fall.zarr: 6 done" in done.stdout
    assert sk.open(tmp_path / "fall.zarr")["height"].values.tolist() == [1.0, 2.0, 4.5]
    told = json.loads(shell("status", "fall.zarr", "--json").stdout)
    assert told["runs"] == {"done": 6}
    assert (told["failed"], told["finished"], told["total"]) == (4, 6, 6)
    assert told["running"] is False
    assert told["session"]["state"] == "done"
    assert shell("verify", "fall.zarr").stdout == "fall.zarr: all is well\n"
    assert shell("export", "fall.zarr", "runs.csv").returncode == 0
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 7
    again = shell("replay", "falls:sweep", "fall.zarr", 3, "-p", "highest=4.5")
    assert "as stored, bit for bit" in again.stdout


def quietly(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of sweeps, of a name of its own, as the current one."""
    name = f"falls_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Path(f"{name}:plain")


def test_what_is_wrong_is_told_in_a_line_and_without_a_traceback(here: Path) -> None:
    module = str(here).partition(":")[0]
    for words, told in (
        (("run", "nothing"), "'nothing' is no sweep; give module:name"),
        (("run", "no_such_module:x"), "module 'no_such_module' is not found"),
        (("run", f"{module}:missing"), "has no 'missing'"),
        (("run", f"{module}:number"), "is no Sweep but of type int"),
        (("run", here, "-p", "highest=3"), "takes no parameters"),
        (("run", here, "--deadline", "yesterday"), "yesterday"),
        (("run", here, "--timeout", "-3"), "timeout is -3"),
        (("run", "missing.ipynb"), "missing.ipynb is not there"),
        (("status", "nowhere.zarr"), "holds no sweep"),
        (("explore", "nowhere.zarr"), "holds no sweep"),
    ):
        code, said = quietly(*words)
        assert code == 1, (words, said)
        assert told in said
        assert "Traceback" not in said
    code, said = quietly("run", here, "-p", "1x=3")
    assert code == 2
    assert "identifier" in said


BROKEN = {
    "syntax": "x = = 1",
    "raising": "1 / 0",
    "missing": "import no_such_package",
    "making": "def sweep():\n    raise KeyError('gain')",
}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("syntax", "invalid syntax (broken_syntax.py, line 1)"),
        ("raising", "ZeroDivisionError: division by zero (broken_raising.py, line 1)"),
        ("missing", "No module named 'no_such_package'"),
        ("making", "KeyError: 'gain' (broken_making.py, line 2)"),
    ],
)
def test_what_is_wrong_in_the_module_is_told_with_its_line(
    here: Path, name: str, told: str
) -> None:
    Path(f"broken_{name}.py").write_text(BROKEN[name] + "\n")
    code, said = quietly("plan", f"broken_{name}:sweep", "--pilot", "0")
    assert code == 1
    assert told in said
    assert len(said.strip().splitlines()) == 1


def test_hostile_calls_end_with_a_line_and_an_exit_code(here: Path) -> None:
    Path("torn.json").write_text('{"sweepkit_declaration": 1, "name": "\x00')
    Path("list.json").write_text("[1]")
    Path("torn.ipynb").write_text("{}")
    Path("plain.ipynb").write_text('{"cells": []}')
    Path("file.zarr").write_text("no store")
    Path("folder.zarr").mkdir()
    Path("folder.zarr/thesis.tex").write_text("x")
    for words in (
        ("run", "torn.json"),
        ("run", "list.json"),
        ("run", "absent.json"),
        ("run", "torn.ipynb"),
        ("run", "plain.ipynb"),
        ("run", "plain.ipynb", "-p", "store=1", "--store", "a.zarr"),
        ("run", "."),
        ("run", ""),
        ("run", ":"),
        ("run", "os:getcwd"),
        ("run", "../falls.py:sweep"),
        ("run", here, "--store", "file.zarr"),
        ("run", here, "--store", "folder.zarr"),
        ("run", here, "--n-jobs", "0"),
        ("run", here, "--budget", "a lot"),
        ("run", here, "--max-errors", "-1"),
        ("run", here, "--backend", "steam"),
        ("run", here, "-o", "done.ipynb"),
        ("plan", "plain.ipynb"),
        ("plan", here, "--pilot", "-2"),
        ("status", "file.zarr"),
        ("status", "folder.zarr", "--follow"),
        ("receipt", "nowhere.zarr"),
        ("provenance", "nowhere.zarr"),
        ("verify", "folder.zarr"),
        ("export", "nowhere.zarr", "a.csv"),
        ("share", "nowhere.zarr", "a"),
        ("compare", "nowhere.zarr", "b.zarr"),
        ("replay", here, "nowhere.zarr", "1"),
    ):
        code, said = quietly(*words)
        assert code == 1, (words, code, said)
        assert said.startswith("Error: "), (words, said)
        assert "Traceback" not in said
        assert len(said) > 20, (words, said)
    assert Path("folder.zarr/thesis.tex").exists()
    for words in (
        ("run", here, "--n-jobs", "many"),
        ("run", here, "--rerun", "everything"),
        ("run", here, "-p", "os.system=1"),
        ("run", here, "-p", "a=1", "-p", "a=2"),
        ("explore", "a.zarr", "--port", "70000"),
        ("replay", here, "a.zarr", "first"),
        ("completion", "cmd"),
        ("fly",),
    ):
        assert quietly(*words)[0] == 2, words


LIVE = """
import sys, time
import sweepkit as sk
from pathlib import Path
def slow(a):
    first = not Path("begun").exists()
    Path("begun").touch()
    while not first and not Path(sys.argv[1]).exists():
        time.sleep(0.05)
    return {"y": a}
sk.run(sk.Sweep(slow, sk.grid(a=range(8))), "live.zarr", backend="sequential", progress=False)
"""


def test_a_live_store_is_watched_from_another_terminal(
    start: Any, shell: Shell, tmp_path: Path
) -> None:
    process = start(LIVE, tmp_path / "go")
    told: dict[str, Any] = {}
    until(lambda: (tmp_path / "live.zarr" / "zarr.json").exists(), process)

    def running() -> bool:
        nonlocal told
        told = CliRunner().invoke(main, ["status", str(tmp_path / "live.zarr"), "--json"])
        told = json.loads(told.output)
        return bool(told["running"])

    until(running, process)
    assert told["session"]["pid"] == process.pid
    assert told["finished"] < told["total"] == 8
    code, said = quietly("status", tmp_path / "live.zarr")
    assert code == 0
    assert f"running: process {process.pid}" in said
    (tmp_path / "go").touch()
    code, said = quietly("status", tmp_path / "live.zarr", "--follow")
    assert code == 0
    assert "8 of 8 runs are finished" in said
    assert "last session: done" in said
    assert process.wait(LIMIT) == 0


def test_a_port_that_is_taken_is_told(here: Path) -> None:
    assert quietly("run", here, "--backend", "sequential", "--quiet", "--store", "a.zarr")[0] == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = quietly("explore", "a.zarr", "--port", port, "--no-browser")
    assert code == 1
    assert f"port {port} is in use; leave --port out for a free one" in said


def test_each_command_is_completed_as_bash_zsh_and_fish_ask() -> None:
    def asked(words: str, number: int) -> list[str]:
        runner = CliRunner(env={"COMP_WORDS": words, "COMP_CWORD": str(number)})
        done = runner.invoke(
            main, env={"_SWEEPKIT_COMPLETE": "bash_complete"}, prog_name="sweepkit"
        )
        return [line.partition(",")[2] for line in done.output.splitlines()]

    assert asked("sweepkit st", 1) == ["status"]
    assert asked("sweepkit run a:b --max", 3) == ["--max-errors"]
    assert asked("sweepkit run a:b --rerun e", 4) == ["error"]
    assert asked("sweepkit completion ", 2) == ["bash", "zsh", "fish"]
    for name, word in (("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")):
        code, said = quietly("completion", name)
        assert code == 0
        assert word in said
        assert f"_SWEEPKIT_COMPLETE={name}_complete" in said


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_offers_notebooks(here: Path) -> None:
    Path("cartpole.ipynb").write_text("{}")
    Path("notes.txt").write_text("")
    Path("s.zarr").mkdir()
    command = Path("bin/sweepkit")
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m sweepkit "$@"\n')
    command.chmod(0o755)
    script = """
    eval "$(sweepkit completion bash)"
    COMP_WORDS=(sweepkit run c) COMP_CWORD=2
    _sweepkit_completion sweepkit
    echo "${COMPREPLY[@]}"
    """
    root = Path(__file__).parents[1]
    env = {**os.environ, "PATH": f"{command.parent.absolute()}{os.pathsep}{os.environ['PATH']}"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.split() == ["cartpole.ipynb"], done.stderr


def test_a_terminal_gets_a_bar_and_a_table(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quietly("run", here, "--backend", "sequential", "--quiet", "--store", "a.zarr")[0] == 0
    state = state_of(Path("a.zarr"))
    shown = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    shown.print(_picture(state))
    text = shown.export_text(clear=False)
    assert "6 of 6 runs are finished" in text
    assert text.count("\u2501") >= 60
    html = shown.export_html()
    assert "#0f7ac0" in html
    assert "#e69f00" in html


def test_the_failure_policy_damage_and_what_is_left_have_exit_codes_of_their_own(
    here: Path,
) -> None:
    module = str(here).partition(":")[0]
    made = f"{module}:sweep"
    code, said = quietly(
        "run",
        made,
        "-p",
        "highest=-1.0",
        "--backend",
        "sequential",
        "--quiet",
        "--store",
        "a.zarr",
        "--on-error",
        "raise",
    )
    assert code == 4, said
    assert "below the ground" in said
    code, said = quietly("run", here, "--backend", "sequential", "--quiet", "--store", "b.zarr")
    assert code == 0, said
    Path("b.zarr/time/c/0/0").unlink()
    code, said = quietly("verify", "b.zarr")
    assert code == 3
    assert "time" in said
    code, said = quietly("run", here, "--backend", "sequential", "--quiet", "--store", "b.zarr")
    assert code == 0
    assert quietly("verify", "b.zarr")[0] == 0


@pytest.mark.parametrize(
    ("retry", "attempts"), [("2", 3), ("error=1", 2), ("crashed=3, error=1", 2), ("crashed=3", 1)]
)
def test_runs_are_retried_by_status(here: Path, retry: str, attempts: int) -> None:
    made = f"{str(here).partition(':')[0]}:sweep"
    code, out = quietly(
        "run", made, "-p", "highest=-1", "--retry", retry, "--backend", "sequential"
    )
    assert code == 0, out
    ds = sk.open("fall.zarr").load()
    assert set(ds["attempts"].sel(height=-1).values.tolist()) == {attempts}


@pytest.mark.parametrize("retry", ["crashed=x", "done=1", "x", "-1"])
def test_a_retry_that_is_none_is_told(here: Path, retry: str) -> None:
    code, out = quietly("run", here, "--retry", retry)
    assert code == 1
    assert out.startswith("Error: retry")


def test_a_plan_a_receipt_and_a_comparison_are_shown(here: Path) -> None:
    module = str(here).partition(":")[0]
    code, said = quietly("plan", here, "--pilot", "0")
    assert code == 0
    assert "6" in said
    for name, highest in (("a", 3.0), ("b", 4.0)):
        assert (
            quietly(
                "run",
                f"{module}:sweep",
                "-p",
                f"highest={highest}",
                "--store",
                f"{name}.zarr",
                "--backend",
                "sequential",
                "--quiet",
            )[0]
            == 0
        )
    code, said = quietly("receipt", "a.zarr")
    assert code == 0
    assert "1 session" in said
    (session,) = json.loads(quietly("receipt", "a.zarr", "--json")[1])
    assert session["done"] == 6
    code, said = quietly("compare", "a.zarr", "b.zarr")
    assert code == 0
    assert "height" in said


def test_a_declaration_is_run_in_another_place(here: Path, tmp_path: Path) -> None:
    module = str(here).partition(":")[0]
    sys.path.insert(0, str(tmp_path))
    sweep = __import__(module).plain
    Path("declared.json").write_text(sweep.to_json())
    code, said = quietly("run", "declared.json", "--backend", "sequential", "--store", "d.zarr")
    assert code == 0, said
    assert (sk.open("d.zarr")["status"] == 1).all()


def test_help_names_every_command_and_the_exit_codes() -> None:
    code, said = quietly("--help")
    assert code == 0
    for name in main.commands:
        assert f"  {name} " in said
        code, own = quietly(name, "--help")
        assert code == 0
        assert f"sweepkit {name}" in own, f"{name} has no example"
    assert "Exit codes" in said

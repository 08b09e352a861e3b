"""The command line, as a shell calls it: what it says, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweepkit as sk
from sweepkit.cli import main

MODULE = '''
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
'''

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
    told = shell("status", "fall.zarr", "--json")
    assert json.loads(told.stdout) == {"store": "fall.zarr", "runs": {"done": 6}, "failed": 4}
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
        (("run", f"{module}:number"), "is a int and no Sweep"),
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


def test_the_failure_policy_damage_and_what_is_left_have_exit_codes_of_their_own(
    here: Path,
) -> None:
    module = str(here).partition(":")[0]
    made = f"{module}:sweep"
    code, said = quietly(
        "run", made, "-p", "highest=-1.0", "--backend", "sequential", "--quiet", "--store",
        "a.zarr", "--on-error", "raise",
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


def test_a_plan_a_receipt_and_a_comparison_are_shown(here: Path) -> None:
    module = str(here).partition(":")[0]
    code, said = quietly("plan", here, "--pilot", "0")
    assert code == 0
    assert "6" in said
    for name, highest in (("a", 3.0), ("b", 4.0)):
        assert quietly(
            "run", f"{module}:sweep", "-p", f"highest={highest}", "--store", f"{name}.zarr",
            "--backend", "sequential", "--quiet",
        )[0] == 0
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
    for name in ("run", "status", "plan", "receipt", "verify", "export", "compare", "replay"):
        assert f"  {name} " in said
        assert quietly(name, "--help")[0] == 0
    assert "Exit codes" in said

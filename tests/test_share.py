"""A store handed on as a folder that Binder opens, checked by doing what Binder does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

import sweepkit as sk
import sweepkit.share  # the module; as a name of the package it is the function

HOSTILE = "a`b <script>|[x](y)"


def noisy(a: float, b: float) -> dict[str, float]:
    print("secret of", a)
    if a == 3:
        raise ValueError("three")
    return {"y": a * b}


def broken(a: float, b: float) -> dict[str, float]:
    if a > 1:
        raise ValueError("more than one")
    return {"y": a * b}


def stored(path: Path, **said: Any) -> Path:
    grid = sk.grid(a=[1.0, 2.0, 3.0, 4.0], b=[1.0, 2.0, 3.0])
    sweep = sk.Sweep(noisy, grid, requirements=["y < 7"], **said)
    sk.run(sweep, path, backend="sequential", progress=False)
    return path


@pytest.fixture
def unexecuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the notebook as it is written: a kernel costs seconds, and is in the long form."""
    monkeypatch.setattr(sys.modules["sweepkit.share"], "execute", lambda *_, **__: None)


def test_a_folder_holds_the_store_as_it_was_and_says_how_to_publish_it(
    tmp_path: Path, unexecuted: None
) -> None:
    path = stored(tmp_path / "my sweep.zarr", name=HOSTILE)
    before = sk.open(path).load()
    made = sk.share(path, tmp_path / "out" / "shared")
    names = {str(one.relative_to(made)) for one in made.rglob("*")}
    assert {"README.md", "explore.ipynb", "binder/requirements.txt", "binder/postBuild"} <= names
    assert not [one for one in names if one.endswith(("lock", "holder.json", ".partial"))]
    assert sk.open(made / "my-sweep.zarr").load().identical(before)
    assert sk.verify(made / "my-sweep.zarr").empty
    assert sk.provenance(made / "my-sweep.zarr").sessions["done"].sum() == 9
    assert os.access(made / "binder" / "postBuild", os.X_OK)
    pins = (made / "binder" / "requirements.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", one) for one in pins)
    assert {f"xarray=={sk_version('xarray')}", f"panel=={sk_version('panel')}"} <= set(pins)
    assert not [one for one in pins if one.startswith(("sweepkit", "pytest", "playwright"))]
    (wheel,) = (made / "binder").glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert "sweepkit/views/static/explorer.js" in inside
    assert not [one for one in inside if "__pycache__" in one]
    readme = (made / "README.md").read_text()
    assert "mybinder.org/v2/gh/OWNER/REPOSITORY/HEAD?urlpath=lab/tree/explore.ipynb" in readme
    assert "<script>" not in readme
    assert str(tmp_path) not in readme
    notebook = json.loads((made / "explore.ipynb").read_text())
    nbformat.validate(notebook)
    assert "<script>" not in "".join(notebook["cells"][0]["source"])


def sk_version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


def test_logs_stay_at_home_if_asked_and_nothing_else_changes(
    tmp_path: Path, unexecuted: None
) -> None:
    path = stored(tmp_path / "a.zarr")
    before = sk.open(path).load()
    assert before["log"].values.ravel()[0].startswith("secret")
    made = sk.share(path, tmp_path / "shared", logs=False)
    after = sk.open(made / "a.zarr").load()
    assert not after["log"].values.astype(bool).any()
    assert not [one for one in made.rglob("*") if one.is_file() and b"secret" in one.read_bytes()]
    same = ["log", "log_size"]
    assert after.drop_vars(same).identical(before.drop_vars(same))
    assert sk.verify(made / "a.zarr").empty
    assert sk.open(path).load().identical(before)


def test_an_empty_folder_is_filled_and_may_be_the_current_one(
    tmp_path: Path, unexecuted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path / "a.zarr")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert sk.share(path, ".") == Path(".")
    assert {"README.md", "explore.ipynb", "a.zarr"} <= {one.name for one in Path().iterdir()}


def test_a_git_address_takes_the_place_of_the_wheel(tmp_path: Path, unexecuted: None) -> None:
    path = stored(tmp_path / "a.zarr")
    address = "git+https://github.com/someone/sweepkit@v0.1.0"
    made = sk.share(path, tmp_path / "shared", source=address)
    assert not list((made / "binder").glob("*.whl"))
    assert f"--no-deps {address}\n" in (made / "binder" / "postBuild").read_text()
    for wrong in ("git+https://a.b/c; rm -rf /", "git+https://$(id)", "../sweepkit", "-r x", ""):
        with pytest.raises(ValueError, match="give an address that pip installs from"):
            sk.share(path, tmp_path / "other", source=wrong)
    assert not (tmp_path / "other").exists()


def test_what_cannot_be_shared_is_refused_and_nothing_is_left(
    tmp_path: Path, unexecuted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path / "a.zarr")
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"is not empty \(it holds thesis.tex\)"):
        sk.share(path, full)
    assert (full / "thesis.tex").read_text() == "x"
    with pytest.raises(ValueError, match=r"thesis.tex is no folder"):
        sk.share(path, full / "thesis.tex")
    with pytest.raises(sk.StoreError, match="holds no sweep"):
        sk.share(tmp_path / "b.zarr", tmp_path / "out")
    monkeypatch.setattr(sys.modules["sweepkit.share"], "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"take up to 1 kB: leave out .* logs=False; or run a"):
        sk.share(path, tmp_path / "out")
    monkeypatch.undo()
    part = tmp_path / "part.zarr"
    grid = sk.grid(a=[3.0, 1.0, 2.0, 4.0], b=[1.0])
    with pytest.raises(sk.TooManyErrorsError):
        sk.run(
            sk.Sweep(broken, grid, requirements=["y < 7"]),
            part,
            backend="sequential",
            progress=False,
            max_errors=0,
        )
    assert int((sk.open(part)["status"] == 0).sum())
    with pytest.raises(ValueError, match="are pending; run the sweep to its end, or share"):
        sk.share(part, tmp_path / "out")
    assert sk.open(sk.share(part, tmp_path / "out", unfinished=True) / "part.zarr").sizes["a"] == 4
    shutil.rmtree(tmp_path / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "a.zarr",
        "a.zarr.sweepkit",
        "full",
        "part.zarr",
        "part.zarr.sweepkit",
    ]


def test_a_store_that_is_being_written_is_refused(tmp_path: Path, unexecuted: None) -> None:
    from sweepkit.stores.zarr import ZarrStore

    path = stored(tmp_path / "a.zarr")
    with ZarrStore(path).hold(), pytest.raises(sk.StoreBusyError, match="is being written by"):
        sk.share(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_folder_installs_and_runs_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """What Binder does: the pins, postBuild, and the notebook run in the folder."""
    path = stored(tmp_path / "a.zarr")
    made = sk.share(path, tmp_path / "shared", logs=False)
    text = (made / "explore.ipynb").read_text()
    assert "image/png" in text
    assert "application/vnd.jupyter.widget-view" not in text
    assert str(tmp_path) not in text
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"PATH": f"{home / 'bin'}{os.pathsep}{env['PATH']}", "IPYTHONDIR": str(tmp_path / "ip")}

    def shell(*words: str) -> str:
        done = subprocess.run(
            words, cwd=made, env=env, capture_output=True, text=True, check=False, timeout=1500
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shell("python", "-m", "pip", "install", "-q", "-r", "binder/requirements.txt")
    shell("./binder/postBuild")
    shell("python", "-m", "pip", "check")
    config = home / "etc/jupyter/jupyter_server_config.json"
    assert json.loads(config.read_text())["ServerProxy"]["servers"]["explorer"]
    shell(
        *("jupyter", "nbconvert", "--to", "notebook", "--execute", "explore.ipynb"),
        *("--output", "again.ipynb"),
    )
    again = nbformat.read(made / "again.ipynb", as_version=4)
    outputs = [one for cell in again.cells for one in cell.get("outputs", [])]
    assert not [one for one in outputs if one["output_type"] == "error"]
    assert "9 finished" in text or "done" in text
    where = shell("python", "-c", "import sweepkit; print(sweepkit.__file__)")
    assert where.startswith(str(home))
    assert "12 of 12 runs are finished" in shell("sweepkit", "status", "a.zarr")


def test_a_packed_store_is_shared_as_the_folder_it_was(tmp_path: Path, unexecuted: None) -> None:
    path = stored(tmp_path / "a.zarr")
    before, ran = sk.open(path).load(), sk.provenance(path).sessions
    packed = sk.pack(path, tmp_path / "b.zarr.zip")
    made = sk.share(packed, tmp_path / "shared")
    assert sk.open(made / "b.zarr").load().identical(before)
    assert sk.provenance(made / "b.zarr").sessions.equals(ran)
    assert sk.verify(made / "b.zarr").empty
    with pytest.raises(sk.StoreError, match=r"memory://a\.zarr holds no sweep"):
        sk.share("memory://a.zarr", tmp_path / "other")

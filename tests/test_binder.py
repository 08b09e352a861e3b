"""What Binder is given: pins, a finished store, pages reached through Jupyter."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import nbformat
from packaging.requirements import Requirement
from packaging.version import Version

import sweepkit as sk
from sweepkit.proxy import reach

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"


def pins() -> dict[str, str]:
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    told = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(told), "a pin is a name and a version: the file is also one of constraints"
    return {re.sub(r"[-_.]+", "-", one[1]).lower(): one[2] for one in told if one}


def test_each_requirement_has_a_pin_that_satisfies_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = Requirement(extras["all"][0]).extras
    wanted = [*project["dependencies"], *(one for name in listed for one in extras[name])]
    found = pins()
    for one in map(Requirement, wanted):
        key = re.sub(r"[-_.]+", "-", one.name).lower()
        assert key in found, f"{one.name} has no pin"
        assert one.specifier.contains(Version(found[key])), f"{one} is pinned to {found[key]}"


def test_the_store_is_small_whole_and_finished() -> None:
    files = [one for one in BINDER.rglob("*") if one.is_file() and "cartpole.zarr" in str(one)]
    assert sum(one.stat().st_size for one in files) < 1_000_000
    ds = sk.open(BINDER / "cartpole.zarr")
    assert (ds["status"] > 0).all()
    ran = sk.provenance(ds)
    assert ran.sessions["done"].sum() == 384
    assert {"numpy", "gymnasium", "scipy"} <= set(ran.packages)


def test_the_start_page_and_what_is_run_after_the_pins_fit_together() -> None:
    assert os.access(BINDER / "postBuild", os.X_OK)
    assert "-m sweepkit.proxy binder/cartpole.zarr" in (BINDER / "postBuild").read_text()
    notebook = nbformat.read(BINDER / "explore.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = "".join(one.source for one in notebook.cells if one.cell_type == "code")
    assert 'store = "cartpole.zarr"' in code
    assert "lab/tree/binder/explore.ipynb" in (ROOT / "README.md").read_text()
    assert json.loads((BINDER / "explore.ipynb").read_text())["metadata"]["kernelspec"]


def test_jupyter_is_told_of_the_explorer_and_keeps_what_it_knew(tmp_path: Path) -> None:
    config = tmp_path / "etc" / "jupyter" / "jupyter_server_config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"ServerProxy": {"servers": {"mine": {}}}, "ServerApp": {}}))
    reach(BINDER / "cartpole.zarr", tmp_path)
    reach(BINDER / "cartpole.zarr", tmp_path)
    told = json.loads(config.read_text())
    assert set(told) == {"ServerProxy", "ServerApp"}
    assert set(told["ServerProxy"]["servers"]) == {"mine", "explorer"}
    command = told["ServerProxy"]["servers"]["explorer"]["command"]
    assert command[1:5] == ["-m", "sweepkit", "explore", str(BINDER / "cartpole.zarr")]
    assert "{port}" in command
    dask = json.loads((tmp_path / "etc" / "dask" / "sweepkit.yaml").read_text())
    assert dask["distributed"]["dashboard"]["link"].endswith("proxy/{port}/status")

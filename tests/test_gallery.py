"""The notebooks of the gallery: of one form, and at small size they answer what they ask."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import papermill
import pytest
import xarray as xr

import sweepkit as sk

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SMALL: dict[str, dict[str, int]] = {
    "extend_refine": {"powers": 4, "replicates": 3, "points": 20},
    "ignition": {"temperatures": 9, "pressures": 8},
    "silent_failure": {"gains": 4, "replicates": 1},
    "training_set": {"roads": 8, "settings": 4},
}
MEASURES = {"fair_pool"}
"""Notebooks that measure a part of the package against other ways, and so name its module."""


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [one for one in found if one["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_asks_takes_parameters_uses_what_is_public_and_answers(path: Path) -> None:
    code = cells(path, "code")
    tags = [tag for one in code for tag in one["metadata"].get("tags", [])]
    given = next("".join(c["source"]) for c in code if "parameters" in c["metadata"]["tags"])
    assert {"store", "n_jobs"} <= set(re.findall(r"^(\w+) = ", given, flags=re.M))
    assert all("#" in line for line in given.splitlines())
    text = "\n".join("".join(one["source"]) for one in code)
    assert not re.findall(r"sk\._|/tmp|/home", text)
    if path.stem not in MEASURES:
        assert not re.findall(r"from sweepkit|import sweepkit\.", text)
    first = "".join(cells(path, "markdown")[0]["source"])
    assert re.search(r"\?\*\*", first), "no question in bold at the start"
    assert tags[-1] == "answer"


@dataclass(frozen=True)
class Executed:
    """A notebook that ran at small size: its folder, store, answer and pictures."""

    folder: Path
    ds: xr.Dataset
    answer: str
    n_pictures: int


def execute(name: str, folder: Path) -> Executed:
    path, store = folder / "out.ipynb", folder / f"{name}.zarr"
    for _ in range(2):  # the second time nothing is left to run, and it says the same
        notebook = papermill.execute_notebook(
            str(NOTEBOOKS[0].with_name(f"{name}.ipynb")),
            str(path),
            parameters={**SMALL[name], "store": str(store), "n_jobs": 2},
            kernel_name="python3",
            cwd=str(folder),
            progress_bar=False,
        )
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert not [one for one in outputs if one.get("name") == "stderr"]
    text = path.read_text(encoding="utf-8")
    assert "hv-jupyter-exc" not in text
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*https?://", text)
    pictures = sum("image/png" in one.get("data", {}) for one in outputs)
    ds = sk.open(store)
    assert int((ds["attempts"] > 1).sum()) == 0
    return Executed(folder, ds, outputs[-1]["data"]["text/markdown"], pictures)


@pytest.mark.slow
def test_ignition_finds_the_tongue_and_counts_what_never_ignites(tmp_path: Path) -> None:
    pytest.importorskip("cantera")
    done = execute("ignition", tmp_path)
    assert done.n_pictures == 3
    delay = done.ds["delay"]
    assert (done.ds["status"] == sk.Status.DONE).all()
    never = int(delay.isnull().sum())
    assert f"{never:,} of {delay.size:,} runs have NaN" in done.answer
    failed = sk.failed(done.ds)
    assert (failed == 1).where(delay.isnull()).all()
    passes = (failed == 0).sel(mixture=1.0)
    edge = passes.cumsum("pressure").astype(bool) & ~passes
    assert edge.any()  # denser than what passes, and fails
    assert "* ratio 1: up to" in done.answer


@pytest.mark.slow
def test_a_silent_reset_is_found_by_the_clock(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    done = execute("silent_failure", tmp_path)
    assert done.n_pictures == 2
    ds, failed = done.ds, sk.failed(done.ds)
    assert (ds["status"] == sk.Status.DONE).all()
    assert np.isfinite(ds["off"]).all()
    assert f"{float(failed.mean()):.0%} of the runs behind it failed" in done.answer
    warned = ds["log"].astype(str).str.contains("unstable")
    assert (warned == (ds["time"] < 2.99) | warned).all()
    assert failed.where(warned, 1).all()
    assert not (done.folder / "MUJOCO_LOG.TXT").exists()


@pytest.mark.slow
def test_extending_runs_only_what_is_new(tmp_path: Path) -> None:
    done = execute("extend_refine", tmp_path)
    assert done.n_pictures == 3
    staged = sk.open(tmp_path / "extend_refine.zarr", stages=True)
    assert int(staged["stage"].max()) == 2
    damped = sk.open(tmp_path / "extend_refine-damped.zarr")
    assert dict(damped.sizes) == {
        "clearing": 9, "power": 4, "inertia": 3, "damping": 2, "replicate": 3
    }  # fmt: skip
    sessions = sk.provenance(damped).sessions
    assert int(sessions["done"].sum()) == damped["angle"].size + int((staged["stage"] > 0).sum())
    assert f"in {len(sessions)} sessions, none of them twice" in done.answer


@pytest.mark.slow
def test_an_honest_split_scores_lower_than_rows_at_random(tmp_path: Path) -> None:
    done = execute("training_set", tmp_path)
    assert done.n_pictures == 1
    shares = [float(one) for one in re.findall(r"(-?[\d.]+)\s?%", done.answer)]
    rows, road = shares[0], shares[4]
    assert rows > 80
    assert road < rows - 20
    card = (tmp_path / "training_set.set" / "README.md").read_text(encoding="utf-8")
    assert "values of road at random" in card
    assert "the same are in several splits" in card

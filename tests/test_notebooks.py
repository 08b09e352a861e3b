"""The notebooks run headless, and what they leave is readable without a server or network."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
import numpy as np
import papermill
import pytest
import xarray as xr

import sweepkit as sk
from sweepkit.status import Status

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SMALL = {"lengths": 4, "replicates": 2, "stop_after": 1.5}
DESIGNS, MASSES, DELAYS = 4, 3, 4


@dataclass(frozen=True)
class Execution:
    """An executed notebook and the store that it left."""

    path: Path
    notebook: Any
    ds: xr.Dataset

    def outputs(self) -> Iterator[Any]:
        for cell in self.notebook.cells:
            yield from cell.get("outputs", [])

    def figures(self) -> list[np.ndarray[Any, Any]]:
        pngs = (one["data"].get("image/png") for one in self.outputs() if "data" in one)
        images = (io.BytesIO(base64.b64decode(png)) for png in pngs if png)
        return [matplotlib.image.imread(image, format="png") for image in images]


def execute(folder: Path, name: str) -> Execution:
    path, store = folder / name, folder / "cartpole.zarr"
    notebook = papermill.execute_notebook(
        str(NOTEBOOKS / "cartpole.ipynb"),
        str(path),
        parameters={**SMALL, "store": str(store)},
        kernel_name="python3",
        cwd=str(folder),
        progress_bar=False,
    )
    return Execution(path, notebook, sk.open(store).load())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def first(folder: Path) -> Execution:
    return execute(folder, "first.ipynb")


@pytest.fixture(scope="module")
def again(folder: Path, first: Execution) -> Execution:
    return execute(folder, "again.ipynb")


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_is_stored_without_outputs_for_the_default_kernel(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(notebook)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in code)
    assert all(cell["execution_count"] is None for cell in code)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_every_run_ends_and_only_the_singular_design_errs(first: Execution) -> None:
    status = first.ds["status"]
    assert status.size == DESIGNS * SMALL["lengths"] * MASSES * DELAYS * SMALL["replicates"]
    assert (status.sel(effort=0.0) == Status.ERROR).all()
    assert (status.drop_sel(effort=0.0) == Status.DONE).all()


def test_each_run_was_done_once_in_spite_of_the_interruption(first: Execution) -> None:
    assert (first.ds["attempts"] == 1).all()


def test_figures_are_static_images_with_something_in_them(first: Execution) -> None:
    figures = first.figures()
    assert len(figures) == 5
    for figure in figures:
        height, width = figure.shape[:2]
        assert width > 600
        assert height > 200
        assert figure[..., :3].std() > 0.05


def test_no_output_is_an_error(first: Execution) -> None:
    assert not [one for one in first.outputs() if one["output_type"] == "error"]
    # a figure that HoloViews cannot draw is an HTML traceback in a green cell
    assert "hv-jupyter-exc" not in first.path.read_text(encoding="utf-8")


def test_nothing_is_fetched_from_elsewhere_to_show_it(first: Execution) -> None:
    text = first.path.read_text(encoding="utf-8")
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*https?://", text)
    assert not re.findall(r"https?://(?:cdn|unpkg|fonts)[^\s\"'\\]*", text)
    assert "application/javascript" not in text


def test_it_is_small_enough_to_send(first: Execution) -> None:
    assert first.path.stat().st_size < 3e6


def test_the_answer_names_the_design_with_the_lowest_failure_rate(first: Execution) -> None:
    rate = sk.failure_rate(first.ds, by="effort")["rate"]
    best = rate.idxmin("effort").item()
    *_, answer = first.outputs()
    assert f"`effort = {best:g}` holds up best" in answer["data"]["text/markdown"]


def test_running_it_again_runs_nothing(first: Execution, again: Execution) -> None:
    # the time a run took, which is part of the Dataset, is another one whenever it is run
    xr.testing.assert_equal(again.ds, first.ds)

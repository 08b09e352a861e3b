"""The notebook that sweeps a program which is no Python, executed at small size."""

from __future__ import annotations

import shutil
from pathlib import Path

import papermill
import pytest

import sweepkit as sk
from sweepkit.status import Status

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "external_command.ipynb"


@pytest.mark.skipif(shutil.which("ngspice") is None, reason="ngspice is not installed")
@pytest.mark.slow
def test_it_answers_its_question(tmp_path: Path) -> None:
    store = tmp_path / "filter.zarr"
    notebook = papermill.execute_notebook(
        str(NOTEBOOK),
        str(tmp_path / "out.ipynb"),
        parameters={"store": str(store), "n_jobs": 2, "resistors": 4, "shares": 2},
        kernel_name="python3",
        cwd=str(tmp_path),
        progress_bar=False,
    )
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert not [one for one in outputs if one["output_type"] == "error"]
    assert sum("image/png" in one.get("data", {}) for one in outputs) == 2
    ds = sk.open(store)
    assert ds["status"].size == 4 * 2 * 3 * 3
    assert (ds["status"] == Status.DONE).all()
    rate = sk.failure_rate(ds, by="damping")["rate"]
    assert float(rate[0]) == 1.0  # too little resistance damps nothing
    answer = outputs[-1]["data"]["text/markdown"]
    calm = rate["damping"].values[rate.values == 0]
    assert (f"between {calm.min():g} and {calm.max():g} Ohm" if len(calm) else "No") in answer
    assert len(sk.artefacts(ds)) == ds["status"].size

"""CartPole under the nominal LQR, as the notebook has it, gives the known runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweepkit as sk
from sweepkit.status import Status

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "cartpole.ipynb"
KNOWN = Path(__file__).parent / "data" / "cartpole_part.csv"

ANGLE = {"angle": sk.output(dims="time", size=500, pad=True, units="rad")}
REQUIREMENTS = ["steps >= 500", "abs(angle).max(time) < 0.2"]


@pytest.fixture(scope="module")
def cartpole() -> Callable[..., dict[str, Any]]:
    """The simulator out of the notebook's own cells: what is tested is what is shown."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    tagged = {tag: cell["source"] for cell in cells for tag in cell["metadata"].get("tags", [])}
    namespace: dict[str, Any] = {"__name__": "cartpole_notebook"}
    for tag in ("imports", "simulator"):
        exec(compile("".join(tagged[tag]), f"{NOTEBOOK.name}:{tag}", "exec"), namespace)
    simulator: Callable[..., dict[str, Any]] = namespace["cartpole"]
    return simulator


def test_known_runs_are_reproduced(cartpole: Callable[..., Any], tmp_path: Path) -> None:
    # 62 of 1,920 runs of gymnasium 1.4's CartPole by reset(seed), made outside this project
    known = pd.read_csv(KNOWN)
    rows = {name: list(known[name]) for name in known.columns.drop("steps")}
    grid = sk.grid(sk.paired(rows, dim="row"), effort=[0.1])
    sweep = sk.Sweep(cartpole, grid, outputs=ANGLE, requirements=REQUIREMENTS)
    sk.run(sweep, tmp_path / "known.zarr", n_jobs=2)
    ds = sk.open(tmp_path / "known.zarr").isel(effort=0)
    np.testing.assert_array_equal(ds["status"], Status.DONE)
    np.testing.assert_array_equal(ds["seed"], known["seed"])
    np.testing.assert_array_equal(ds["steps"], known["steps"])
    np.testing.assert_array_equal(ds["angle_length"], known["steps"])
    np.testing.assert_array_equal(ds["angle"].notnull().sum("time"), known["steps"])


def test_a_run_without_a_controller_is_an_error_beside_finished_ones(
    cartpole: Callable[..., Any], tmp_path: Path
) -> None:
    grid = sk.grid(effort=[0.0, 0.1], length=[0.5], masspole=[0.1], delay=[0, 4], replicates=2)
    sweep = sk.Sweep(cartpole, grid, outputs=ANGLE, requirements=REQUIREMENTS)
    sk.run(sweep, tmp_path / "errs.zarr", n_jobs=1)
    ds = sk.open(tmp_path / "errs.zarr")
    assert (ds["status"].sel(effort=0.0) == Status.ERROR).all()
    assert (ds["status"].sel(effort=0.1) == Status.DONE).all()
    (message,) = set(ds["error"].sel(effort=0.0).values.ravel().tolist())
    assert "singular" in message
    failed = sk.failed(ds)
    assert failed.sel(effort=0.0).isnull().all()
    assert not failed.sel(effort=0.1, delay=0).any()  # the nominal pole, the loop as designed

"""The explorer as an object of a notebook, without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import xarray as xr
from nbclient import NotebookClient

import sweepkit as sk
from sweepkit.views.bundle import MODULES, STATIC, module
from sweepkit.views.explorer import VIEWS, Explorer
from sweepkit.views.paper import MODULES as OF_THE_REPORT
from tests.conftest import ROOT
from tests.poles import stored


def test_selection_code_and_suggestion_come_out_of_an_explorer(tmp_path: Path) -> None:
    ds = stored(tmp_path / "poles.zarr")
    explorer = sk.explore(ds)
    assert isinstance(explorer, Explorer)
    assert explorer.selection.all()
    assert explorer.selection.dims == ds["status"].dims
    explorer.state.filters = [
        {"src": "code", "text": "short", "tests": [{"of": "length", "codes": [0, 1]}]}
    ]
    explorer.state.limits = {"steps >= 120": 100.0}
    expected = (ds["length"] <= 0.1) & xr.ones_like(explorer.selection)
    xr.testing.assert_equal(
        explorer.selection.drop_vars(explorer.selection.coords),
        expected.transpose(*ds["status"].dims).drop_vars(expected.coords),
    )
    found = eval(explorer.code(), {"ds": ds, "sk": sk, "np": np, "xr": xr})
    assert found.values.tolist() == [True, True, False, False]
    points = explorer.suggest(5).points
    assert 0 < len(points) <= 5
    assert points["length"].max() <= 0.1
    explorer.close()


def test_a_view_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    ds = xr.Dataset({"y": ("a", [1.0, 2.0])}, coords={"a": [1, 2]})
    with pytest.raises(ValueError, match="no view 'mapp'; there are 'requirements', 'map'"):
        sk.explore(ds, requirements=["y > 1"], views=["mapp"])
    assert sk.explore(ds, requirements=["y > 1"], views=["map"]).views == ["map"]
    assert "run" in VIEWS


def test_the_module_is_one_and_asks_for_nothing() -> None:
    text = module()
    assert not re.search(r"^\s*import\b", text, re.MULTILINE)
    assert len(re.findall(r"^export default", text, re.MULTILINE)) == 1
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "innerHTML" not in text
    assert {path.name for path in STATIC.glob("*.js")} == {*MODULES, *OF_THE_REPORT}


def test_an_executed_notebook_keeps_a_picture_and_no_blank_widget(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    source = (
        "import numpy as np, xarray as xr, sweepkit as sk\n"
        "ds = xr.Dataset({'y': (('a', 'b'), np.random.default_rng(0).random((5, 4)))},\n"
        "                coords={'a': np.arange(5.0), 'b': list('wxyz')})\n"
        "sk.explore(ds, requirements=['y > 0.3'])"
    )
    notebook.cells.append(nbformat.v4.new_code_cell(source))
    NotebookClient(notebook, resources={"metadata": {"path": str(ROOT)}}, timeout=600).execute()
    (output,) = (one for one in notebook.cells[0].outputs if "data" in one)
    assert {"image/png", "text/html", "text/plain"} <= set(output.data)
    assert "application/vnd.jupyter.widget-view+json" not in output.data
    assert sum(len(str(part)) for part in output.data.values()) < 1_000_000
    assert "of 20 finished runs fail" in output.data["text/html"]

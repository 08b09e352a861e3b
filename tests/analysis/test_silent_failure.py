"""The notebook on silent failures says what its runs say, headless."""

import base64
import io
import json
from pathlib import Path

import matplotlib.image
import numpy as np
import papermill
import pytest

import sweepkit as sk

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "silent_failure.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("silent")
    notebook = papermill.execute_notebook(
        str(NOTEBOOK),
        str(folder / "out.ipynb"),
        parameters={"store": str(folder / "valve.zarr"), "replicates": 1, "stiffnesses": 5},
        kernel_name="python3",
        cwd=str(folder),
        progress_bar=False,
    )
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    return folder, outputs


def test_every_figure_is_an_image_with_something_in_it(executed):
    folder, outputs = executed
    pngs = [one["data"]["image/png"] for one in outputs if "image/png" in one.get("data", {})]
    assert len(pngs) == 3
    for png in pngs:
        figure = matplotlib.image.imread(io.BytesIO(base64.b64decode(png)), format="png")
        assert min(figure.shape[:2]) > 300
        assert figure[..., :3].std() > 0.05
    assert "hv-jupyter-exc" not in (folder / "out.ipynb").read_text(encoding="utf-8")


def test_the_answer_is_what_the_store_says(executed):
    folder, outputs = executed
    answer = outputs[-1]["data"]["text/markdown"]
    ds = sk.open(folder / "valve.zarr")
    failed = sk.failed(ds)
    assert 0.3 < float(failed.mean()) < 0.8
    assert f"{float(failed.mean()):.0%} of the runs behind it failed" in answer
    best = sk.failure_rate(ds, by="dt")["rate"].idxmin("dt").item()
    assert f"The best is {best:.4f} s" in answer
    stages = sk.open(folder / "valve.zarr", stages=True)["stage"].values
    assert f"{int((stages > 0).sum())} further runs" in answer


def test_what_fails_stops_early_or_blows_up(executed):
    folder, _ = executed
    ds = sk.open(folder / "valve.zarr")
    assert (ds["status"] == 1).all()
    assert not ds["opening"].isnull().any()
    assert ((ds["opening"] >= 0) & (ds["opening"] <= 1)).all()
    failed = sk.failed(ds).astype(bool)
    early = ds["time"].max("step") < 10
    assert (failed | ~early).all()
    # Explicit Euler feeds an oscillator whose damping is below stiffness times step (1 kg).
    gain = ds["stiffness"] * ds["dt"] / ds["damping"]
    assert failed.where(gain > 1.5).mean() > 0.9
    assert not (failed & ~early & (gain < 0.9)).any()


def test_its_declaration_says_what_it_required(executed):
    folder, _ = executed
    said = json.loads(sk.open(folder / "valve.zarr").attrs["sweepkit"])["requirements"]
    assert [one["text"] for one in said] == [
        "time.max(step) >= 10", "energy >= 0 and energy <= 1000"
    ]  # fmt: skip
    assert np.isfinite(sk.open(folder / "valve.zarr")["opening"].mean().item())

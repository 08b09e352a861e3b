"""The notebook on policies: its simulated pool does what it says, and it runs headless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "fair_pool.ipynb"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the cells before the sweep define."""
    found: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOK, 4).cells:
        if cell.cell_type == "code":
            if "sk.Sweep(" in cell.source:
                break
            exec(cell.source, found)
    return found


def simulated(names: dict[str, Any], policy: str, seed: int = 1, **other: Any) -> Any:
    given = {"load": 0.9, "misjudged": 1.0, "workers": 64, "n": 60, **other}
    return names["simulate"](policy=policy, rng=np.random.default_rng(seed), **given)


@pytest.mark.parametrize("policy", ["first come", "fair share", "shortest first", "fair finish"])
def test_every_job_ends_and_none_before_it_could(names: dict[str, Any], policy: str) -> None:
    for seed in range(3):
        told = simulated(names, policy, seed)
        assert (told["slowdown"] >= 1 - 1e-9).all()
        assert 0 < told["utilisation"] <= 1
        assert 1 <= told["bound"] <= told["slowdown"].mean()


def test_a_job_alone_takes_its_own_time(names: dict[str, Any]) -> None:
    told = simulated(names, "fair finish", load=1e-6)
    assert told["slowdown"] == pytest.approx(1.0)
    assert told["bound"] == pytest.approx(1.0)


def test_the_bound_is_what_one_machine_of_two_jobs_gives(names: dict[str, Any]) -> None:
    arrived, size = np.array([0.0, 0.0]), np.array([1.0, 3.0])
    # One after the other, the short one first: they end at 1 and 4, of own times 1 and 3.
    assert names["bound"](arrived, size, size, size) == pytest.approx((1 + 4 / 3) / 2)


@pytest.mark.slow
def test_the_notebook_runs_headless_and_answers(tmp_path: Path) -> None:
    import papermill

    done = papermill.execute_notebook(
        str(NOTEBOOK),
        str(tmp_path / "done.ipynb"),
        parameters={"store": str(tmp_path / "a.zarr"), "n_workers": 100, "n_sent": 150},
        kernel_name="python3",
        cwd=str(tmp_path),
        progress_bar=False,
    )
    (answer,) = [
        cell["outputs"][-1]["data"]["text/markdown"]
        for cell in done.cells
        if "answer" in cell.metadata.get("tags", [])
    ]
    assert "with the pool's own rule" in answer
    assert "nan" not in answer

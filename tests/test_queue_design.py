"""The queue of the notebook: exact waits, a sweep planned to a deadline, and its answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import papermill
import pytest

import sweepkit as sk
from sweepkit.status import Status

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "queue_design.ipynb"
KNOWN = Path(__file__).parent / "data" / "mmc_waits.csv"


@pytest.fixture(scope="module")
def cells() -> dict[str, Any]:
    """Simulator and formula out of the notebook's own cells: what is tested is what is shown."""
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    tagged = {tag: cell["source"] for cell in found for tag in cell["metadata"].get("tags", [])}
    namespace: dict[str, Any] = {"__name__": "queue_notebook"}
    for tag in ("imports", "simulator", "erlang"):
        exec(compile("".join(tagged[tag]), f"{NOTEBOOK.name}:{tag}", "exec"), namespace)
    return namespace


@pytest.fixture(scope="module")
def known() -> pd.DataFrame:
    # 288 simulations of 2,000 customers each and the exact waits, made outside this project
    return pd.read_csv(KNOWN)


def test_the_formula_gives_the_exact_waits(cells: dict[str, Any], known: pd.DataFrame) -> None:
    exact: Callable[..., float] = cells["erlang_c"]
    for row in known.itertuples():
        ours = exact(row.lam, 1 / row.mu, row.servers)
        assert ours == pytest.approx(row.exact_Wq, rel=1e-6, abs=5e-7)
    assert math.isinf(exact(2, 1, 2))


def test_simulated_waits_lie_around_the_exact_ones(cells: dict[str, Any]) -> None:
    cells["hours"] = 6.0
    for arrival, service, servers in ((0.7, 1.0, 1), (1.5, 1.0, 2), (4.0, 1.0, 6)):
        waits = [
            cells["queue"](arrival, service, servers, np.random.default_rng(seed))["wait"]
            for seed in range(6)
        ]
        exact = cells["erlang_c"](arrival, service, servers)
        error = np.std(waits, ddof=1) / math.sqrt(len(waits))
        assert abs(np.mean(waits) - exact) < 4 * error + 0.02 * exact


@pytest.mark.slow
def test_the_notebook_plans_runs_accounts_and_answers(tmp_path: Path) -> None:
    path, store = tmp_path / "executed.ipynb", tmp_path / "queue.zarr"
    sizes = {"arrival_rates": 3, "replicates": 2, "hours": 4.0, "deadline": "10 min"}
    notebook = papermill.execute_notebook(
        str(NOTEBOOK),
        str(path),
        parameters={**sizes, "store": str(store)},
        kernel_name="python3",
        cwd=str(tmp_path),
        progress_bar=False,
    )
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert not [one for one in outputs if one["output_type"] == "error"]
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*https?://", text)
    ds = sk.open(store)
    assert set(np.unique(ds["status"])) == {Status.DONE, Status.SKIPPED}
    assert (ds["attempts"] <= 1).all()
    receipt = sk.receipt(store)
    assert receipt.pending == 0
    assert len(receipt.sessions) == 3
    *_, answer = outputs
    said = answer["data"]["text/markdown"]
    agree, of = map(int, re.findall(r"at (\d+) of\s+(\d+) combinations", said)[0])
    assert agree >= of - 2

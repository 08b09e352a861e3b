"""An explorer of a sweep that runs: it follows, answers, and the job's button ends the sweep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser.conftest import OpenNotebook

pytestmark = pytest.mark.browser

CELLS = {
    "declare": """
import time
import numpy as np
import sweepkit as sk

def settle(gain, mass, delay):
    time.sleep(0.15)  # many minutes for all, as it is to be cancelled
    return {"peak": np.sqrt(gain) * (1 + delay) / (1 + mass)}

sweep = sk.Sweep(
    settle,
    sk.grid(gain=np.linspace(0.1, 2, 60), mass=np.linspace(0.1, 1, 20), delay=[0, 1, 2, 4]),
    requirements=["peak < 2"],
)
""",
    "start": "job = sk.start(sweep, 'settled.zarr', n_jobs=1); job",
    "explore": "explorer = sk.explore(job, views=['requirements', 'map', 'held', 'run']); explorer",
}

DONE = """() => Number(document.querySelector('.sk-explorer .stat .big')
    .firstChild.textContent.replace(',', ''))"""


def test_a_running_sweep_is_followed_and_cancelled_while_the_kernel_answers(
    open_notebook: OpenNotebook, tmp_path: Path
) -> None:
    start = CELLS["start"].replace("settled.zarr", f"{tmp_path}/s.zarr")
    lab = open_notebook({**CELLS, "start": start})
    lab.run_all()
    page, explorer = lab.page, lab.output("explore").locator(".sk-explorer")
    explorer.locator(".badge", has_text="in progress").wait_for()
    first = page.evaluate(DONE)
    page.wait_for_function(f"first => ({DONE})() > first", arg=first)  # it follows by itself

    for _ in range(5):
        assert lab.python("print(6 * 7, job.state)").split() == ["42", "running"]
    explorer.locator("input[data-lever='peak < 2']").focus()
    page.keyboard.press("ArrowLeft")
    explorer.locator(".note", has_text="1 of 1 limits moved").wait_for()
    limit = lab.python("print(explorer.state.limits)")
    assert re.fullmatch(r"\{'peak < 2': 1\.9\d*\}", limit.strip())
    explorer.locator(".map-card .hit").last.click()
    explorer.locator(".run-card .title", has_text="Run ").wait_for()
    assert lab.python("print(job.state)").strip() == "running"

    lab.output("start").get_by_role("button", name="Cancel", exact=True).click()
    lab.output("start").get_by_role("status").filter(has_text="cancelled").wait_for()
    kept = int(lab.python("print(int((job.dataset['status'] == 1).sum()))"))
    assert first < kept < 4800
    page.wait_for_function(f"kept => ({DONE})() === kept", arg=kept)  # to the last run
    explorer.locator(".badge", has_text="in progress").wait_for()

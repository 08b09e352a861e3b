"""A job in a real JupyterLab: it moves, is paused, resumed, cancelled, and shows a traceback."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenNotebook

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

CELLS = {
    "declare": """
import time
import numpy as np
import sweepkit as sk

def pendulum(length, mass, delay):
    time.sleep(0.15)  # many minutes for all, as it is to be cancelled
    if length > 1.5 and delay == 4:
        raise ArithmeticError(f"no solution for <b>{length:.2f} m</b>")
    return {"peak": np.sqrt(length) * (1 + delay) / (1 + mass)}

sweep = sk.Sweep(
    pendulum,
    sk.grid(length=sk.design(np.linspace(0.1, 2, 60), units="m"), mass=np.linspace(0.1, 1, 20),
            delay=[0, 1, 2, 4]),
    requirements=["peak < 2"],
)
""",
    "start": "job = sk.start(sweep, 'pendulum.zarr', n_jobs=1); job",
}


def finished(output: Locator) -> int:
    told = output.locator(".sk-facts small").first.inner_text()
    return int(told.split(" of ")[0].replace(",", ""))


def click(output: Locator, name: str) -> None:
    output.get_by_role("button", name=name, exact=True).click()


def expect_state(lab: Lab, word: str) -> None:
    lab.output("start").get_by_role("status").filter(has_text=word).wait_for()


def test_a_job_is_watched_and_steered_in_a_notebook(
    open_notebook: OpenNotebook, tmp_path: Path
) -> None:
    start = CELLS["start"].replace("pendulum.zarr", f"{tmp_path}/p.zarr")
    lab = open_notebook({**CELLS, "start": start})
    pictures = Path(os.environ.get("SWEEPKIT_PICTURES", tmp_path))
    lab.run_all()
    output = lab.output("start")
    expect_state(lab, "running")
    first = finished(output)
    lab.page.wait_for_function(
        "first => Number(document.querySelector('.sk-facts small').textContent"
        ".split(' of ')[0].replace(',', '')) > first + 5",
        arg=first,
    )
    assert lab.python("print(6 * 7)").strip() == "42"  # the kernel is free meanwhile

    click(output, "First traceback")
    log = output.locator("pre").first
    assert "ArithmeticError" in log.inner_text()
    assert "<b>" in log.inner_text()  # as text, not as an element
    assert output.locator("pre b").count() == 0

    click(output, "Pause")
    expect_state(lab, "paused")
    lab.shot("start", pictures / "job-light.png")
    lab.theme("dark")
    lab.shot("start", pictures / "job-dark.png")
    lab.page.set_viewport_size({"width": 700, "height": 900})
    lab.shot("start", pictures / "job-700-dark.png")
    lab.theme("light")
    lab.shot("start", pictures / "job-700-light.png")
    assert output.evaluate("one => one.scrollWidth <= one.clientWidth")

    resume = output.get_by_role("button", name="Resume", exact=True)
    resume.focus()
    lab.page.keyboard.press("Enter")
    expect_state(lab, "running")
    assert output.get_by_role("button", name="Pause", exact=True).evaluate(
        "one => one === document.activeElement"
    )

    lab.run("start")  # the cell again: the same job
    assert lab.python("print(job.state)").strip() in ("running", "held")
    click(output, "Cancel")
    expect_state(lab, "cancelled")
    assert output.get_by_role("button", name="Pause", exact=True).is_disabled()
    kept = lab.python("print(int((job.dataset['status'] == 1).sum()))")
    assert 0 < int(kept) < 4800

    (bundle,) = lab.bundles("start")
    assert re.search(r"pendulum into p\.zarr: .* of 4,800 runs", str(bundle["text/plain"]))
    assert "4,800 runs" in str(bundle["text/html"])

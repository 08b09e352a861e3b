"""How quickly the explorer answers, measured in a real JupyterLab.

    python -m tests.benchmarks.explorer [--runs 10000 1000000] [--repeats 15]

Per size: seconds from the cell to a map on the screen; milliseconds from a key press on a limit,
and on a slider of an averaged parameter, to the next painted map, and until every figure in the
header is counted anew; the kernel's memory. The medians are over `repeats` presses.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.lab import Lab

DECLARED = """
import json
import numpy as np, xarray as xr, sweepkit as sk
sizes = {sizes}
dims = tuple(sizes)
rng = np.random.default_rng(0)
coords = {{d: xr.DataArray(np.linspace(0.1, 1, n), dims=d, attrs={{"role": "design"}})
           for d, n in sizes.items()}}
shape = tuple(sizes.values())
at = np.meshgrid(*[c.values for c in coords.values()], indexing="ij", sparse=True)
steps = np.clip(500 * (1.4 * at[0] - at[3] * at[1] + 0.3) + rng.normal(0, 60, shape), 0, 500)
angle = np.abs(8 * at[3] + 6 * at[1] * at[2] + rng.normal(0, 2, shape))
travel = np.abs(2 * at[4] + rng.normal(0, 0.5, shape))
good = rng.random(shape) > 0.002
ds = xr.Dataset(
    {{"steps": (dims, np.where(good, steps.round(), np.nan)),
      "angle": (dims, np.where(good, angle, np.nan)),
      "travel": (dims, np.where(good, travel, np.nan)),
      "status": (dims, np.where(good, 1, 2).astype(np.int8))}}, coords=coords)
wanted = ["steps >= 400", "angle <= 12", "travel <= 2.4"]
del steps, angle, travel, good
"""

SIZES = {
    10_000: {"a": 5, "b": 5, "c": 5, "d": 5, "e": 4, "f": 2, "g": 2, "h": 1},
    1_000_000: {"a": 10, "b": 10, "c": 10, "d": 10, "e": 5, "f": 5, "g": 2, "h": 2},
}

LISTEN = """() => {
    const plot = document.querySelector('.sk-explorer .map-card .plot');
    window.painted = [];
    window.pressed = 0;
    addEventListener('keydown', () => { window.pressed = performance.now(); }, true);
    new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
        if (window.pressed) {
            window.painted.push(performance.now() - window.pressed);
            window.pressed = 0; }
    }, 0))).observe(plot, {childList: true}); }"""

SETTLED = "() => document.querySelector('.sk-explorer')?.dataset.key === 'settled'"


def presses(page: Page, control: str, repeats: int) -> tuple[float, float]:
    """Median ms to the painted map, and until every figure has settled, of a control's moves."""
    page.locator(control).first.focus()
    settled = []
    page.evaluate("window.painted.length = 0")
    for k in range(repeats):
        before = time.perf_counter()
        page.keyboard.press("ArrowLeft" if k % 2 else "ArrowRight")
        page.wait_for_function("k => window.painted.length > k", arg=k, polling=5)
        page.wait_for_function(SETTLED, polling=5)
        settled.append(1e3 * (time.perf_counter() - before))
        page.wait_for_timeout(300)  # a person's pause, in which the cubes come
    painted: list[float] = page.evaluate("window.painted")
    return statistics.median(painted), statistics.median(settled)


def measure(lab: Lab, repeats: int) -> dict[str, float]:
    """The figures of one size."""
    lab.run("data")
    before = time.perf_counter()
    lab.page.evaluate("performance.mark('called')")
    lab.run("explore")
    lab.page.locator(".sk-explorer .map-card .hit").first.wait_for()
    shown = time.perf_counter() - before
    lab.page.locator(".sk-explorer .strip").first.wait_for()
    lab.page.wait_for_timeout(3000)
    lab.page.evaluate(LISTEN)
    limit = presses(lab.page, ".sk-explorer input[data-lever^='angle']", repeats)
    slider = presses(lab.page, ".sk-explorer input[data-slider]", repeats)
    memory = lab.python(
        "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    )
    return {
        "on screen, s": shown,
        "limit to map, ms": limit[0],
        "limit to all figures, ms": limit[1],
        "slider to map, ms": slider[0],
        "slider to all figures, ms": slider[1],
        "kernel, GB": float(memory),
    }


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args(arguments)

    from playwright.sync_api import sync_playwright

    from tests.browser.lab import FLAGS, Lab, Window, chromium, jupyter_server, written

    rows: dict[int, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        jupyter_server(Path(folder)) as server,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for runs in options.runs:
            window = Window(browser)
            cells = {
                "data": DECLARED.format(sizes=SIZES[runs]),
                "explore": "sk.explore(ds, requirements=wanted)",
            }
            path = written(server.root / f"of{runs}.ipynb", cells)
            lab = Lab(window.page(server.url(path.name)))
            rows[runs] = measure(lab, options.repeats)
            lab.end()
            window.context.close()
            assert not window.outside, window.outside
        browser.close()
    names = list(next(iter(rows.values())))
    print(f"{'runs':>10}", *(f"{name:>26}" for name in names))
    for runs, row in rows.items():
        print(f"{runs:>10,}", *(f"{row[name]:>26.2f}" for name in names))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The explorer, used as a person uses it: in a real JupyterLab and as a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import sweepkit as sk
from tests.browser.conftest import OpenNotebook
from tests.poles import HOSTILE, stored
from tests.waiting import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.browser.lab import Window

pytestmark = pytest.mark.browser

SHOTS = os.environ.get("SWEEPKIT_PICTURES")
"""Folder for pictures of what was tested, if wanted."""

Shoot = Callable[["Locator", str], None]

PAGE = """
from sweepkit.views.page import page
page({store!r}).servable()
"""


@pytest.fixture(scope="module")
def poles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explored") / "poles.zarr"
    stored(path)
    return path


@pytest.fixture(scope="module")
def runs(poles: Path) -> pd.DataFrame:
    return sk.runs(sk.open(poles)).assign(peak=sk.margin(sk.open(poles))[..., 1].values.ravel())


@pytest.fixture
def shoot() -> Shoot:
    def shot(what: Locator, name: str) -> None:
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            size = what.page.viewport_size
            assert size is not None
            what.page.set_viewport_size({"width": size["width"], "height": 2700})
            what.page.wait_for_timeout(1500)
            what.screenshot(path=Path(SHOTS) / f"{name}.png")

    return shot


def failing(runs: pd.DataFrame, steps: float, peak: float = 12.0) -> pd.DataFrame:
    """The finished runs that fail at these limits, counted by pandas."""
    done = runs[runs["status"] == "done"]
    return done[~((done["steps"] >= steps) & (12.0 - done["peak"] <= peak))]


def settled(page: Page, figure: str, wanted: int) -> None:
    """Wait until a figure in the header reads a number, and everything on the screen is for it."""
    page.wait_for_function(
        """([name, wanted]) => {
            const find = one => one.querySelector('.sk-explorer') ?? [...one.querySelectorAll('*')]
                .map(each => each.shadowRoot).filter(Boolean).map(find).find(Boolean);
            const root = find(document);
            const text = root?.querySelector(`[data-figure="${name}"]`)?.textContent;
            return text === wanted && root.dataset.key === 'settled'; }""",
        arg=[figure, f"{wanted:,}"],
    )


def of_cell(runs: pd.DataFrame, failed: pd.DataFrame, **values: float) -> str:
    """What the map says of a cell, by pandas."""
    done = runs[runs["status"] == "done"]
    for name, value in values.items():
        done, failed = done[done[name] == value], failed[failed[name] == value]
    return f"{100 * len(failed) / len(done):.0f} % of {len(done)} runs fail"


def cell(explorer: Locator, **values: object) -> Locator:
    text = ", ".join(f"{name} {value}" for name, value in values.items())
    return explorer.locator(f'.map-card .hit[aria-label^="{text}"]')


def test_a_person_moves_a_limit_reads_a_traceback_and_takes_the_selection_along(
    open_notebook: OpenNotebook, poles: Path, runs: pd.DataFrame, shoot: Shoot
) -> None:
    lab = open_notebook(
        {
            "explore": "import sweepkit as sk, numpy as np, xarray as xr\n"
            "from tests.poles import sweep\n"
            f"ds = sk.open({str(poles)!r})\n"
            "explorer = sk.explore(ds, replay=lambda run: sk.replay(sweep(), ds, run))\n"
            "explorer",
            "refined": REFINED,
        }
    )
    lab.run("explore")
    page, explorer = lab.page, lab.output("explore").locator(".sk-explorer")
    explorer.locator(".strip").first.wait_for()
    settled(page, "fail", len(failing(runs, 120)))
    shoot(explorer, "lab-light")

    slider = explorer.locator("input[data-lever^='abs']")
    stops = [float(one) for one in lab.python(STOPS).split()]
    places = explorer.locator(".card").evaluate_all(PLACES)
    slider.focus()
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    limit = stops[stops.index(12.0) - 40]
    moved = failing(runs, 120, limit)
    assert len(moved) > len(failing(runs, 120)) + 5
    settled(page, "fail", len(moved))
    assert explorer.locator(".card").evaluate_all(PLACES) == places, "cards have moved"
    for length, delay in ((0.05, 2), (0.1, 4), (0.5, 4)):
        said = of_cell(runs, moved, length=length, delay=delay)
        label = cell(explorer, length=f"{length} m", delay=f"{delay} steps")
        assert said in str(label.get_attribute("aria-label"))
    assert lab.python("print(explorer.state.limits)").strip() == str(
        {"abs(angle).max(time) <= 12": limit}
    )

    bad = cell(explorer, length="2 m", delay="4 steps")
    bad.click()
    explorer.locator(".chip", has_text="length 2 m, delay 4 steps").wait_for()
    mine = runs[(runs["length"] == 2.0) & (runs["delay"] == 4)]
    settled(page, "selected", len(mine))
    explorer.locator(".run-card .title", has_text="Run ").wait_for()  # it moves what is below
    explorer.locator(".kinds-card").scroll_into_view_if_needed()
    row = explorer.locator(".kinds-card tr[data-row]", has_text="ArithmeticError")
    row.click()
    traceback = explorer.locator(".run-card details[data-name=error] pre")
    traceback.wait_for()
    page.wait_for_function(
        "text => [...document.querySelectorAll('.run-card pre')]"
        ".some(one => one.textContent.includes(text))",
        arg=HOSTILE,
    )
    assert "raise ArithmeticError" in traceback.inner_text()
    assert page.title() != "owned"
    assert explorer.locator("script").count() == 0

    errors = int((mine["status"] == "error").sum())
    settled(page, "selected", errors)
    code = lab.python("print(explorer.code())").strip()
    assert lab.python(
        f"same = ({code}) & xr.ones_like(explorer.selection)\n"
        "print(int(explorer.selection.sum()), bool((same == explorer.selection).all()))"
    ).split() == [str(errors), "True"]
    explorer.get_by_role("button", name="Run again").click()
    explorer.locator(".replay", has_text="Reproduced: raised ArithmeticError").wait_for()

    lab.run("refined")
    share = float(lab.python("print(100 * sk.rate(dense)['rate'].iloc[0])"))
    weighted = lab.output("refined").locator("header.top .rate", has_text=f"{share:.1f} %")
    weighted.wait_for()
    assert f"{share:.1f} %" != lab.python("print(f'{100 * float(sk.failed(dense).mean()):.1f} %')")

    lab.theme("dark")
    page.wait_for_function("document.querySelector('.sk-explorer').dataset.theme === 'dark'")
    explorer.get_by_role("button", name="Clear all").click()
    settled(page, "fail", len(moved))
    shoot(explorer, "lab-dark")
    bundle: dict[str, Any] = next(one for one in lab.bundles("explore") if "image/png" in one)
    assert "pole" in bundle["text/html"]
    assert sum(len(str(part)) for part in bundle.values()) < 1_000_000


REFINED = """
import tempfile
def peak(gain, mass):
    return {"peak": np.sin(3 * gain) * mass}

given = sk.Sweep(peak, sk.grid(gain=np.linspace(0.1, 2, 7), mass=np.linspace(0.1, 1, 5)),
                 requirements=["peak < 0.5"])
folder = tempfile.TemporaryDirectory()
there = folder.name
options = {"backend": "sequential", "progress": False}
dense = sk.run(given, f"{there}/s.zarr", **options)
dense = sk.refine(given, f"{there}/s.zarr", sk.suggest(dense, 12), **options)
sk.explore(dense, views=["requirements"])
"""

PLACES = "cards => cards.map(one => [one.offsetLeft, one.offsetTop, one.offsetWidth])"
STOPS = "print(*[one for one in explorer._engine.source.levers if 'abs' in one.what][0].stops)"


def test_a_page_is_brushed_and_asks_nothing_of_the_network(
    chromium: Browser,
    poles: Path,
    runs: pd.DataFrame,
    tmp_path: Path,
    shoot: Shoot,
    window: Window,
) -> None:
    from tests.browser.lab import ROOT, server

    script = tmp_path / "served.py"
    script.write_text(PAGE.format(store=str(poles)))
    port = free_port()
    argv = [sys.executable, "-m", "panel", "serve", str(script)]
    argv += ["--address", "127.0.0.1", "--port", str(port)]
    url = f"http://127.0.0.1:{port}/served"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with server(argv, url, tmp_path / "log", {"PYTHONPATH": os.pathsep.join(paths)}):
        page = window.page(url)
        page.on(
            "console",
            lambda said: window.complaints.append(said.text) if said.type == "error" else None,
        )
        explorer = page.locator(".sk-explorer")
        explorer.locator(".lines-card").scroll_into_view_if_needed()
        axis = explorer.locator(".axis-hit[data-axis=delay]")
        axis.wait_for()
        axis.focus()
        page.keyboard.press("Shift+ArrowUp")
        explorer.locator(".chip", has_text="delay 1 to 4 steps").wait_for()
        settled(page, "selected", int((runs["delay"] >= 1).sum()))
        box = explorer.locator(".axis-hit[data-axis=mass]").bounding_box()
        assert box is not None
        middle = box["x"] + box["width"] / 2
        page.mouse.move(middle, box["y"] + 2)
        page.mouse.down()
        page.mouse.move(middle, box["y"] + box["height"] * 0.25, steps=4)
        page.mouse.up()
        explorer.locator(".chip", has_text="mass 1 kg").wait_for()
        settled(page, "selected", int(((runs["delay"] >= 1) & (runs["mass"] == 1.0)).sum()))
        explorer.get_by_label("Remove delay 1 to 4 steps").click()
        settled(page, "selected", int((runs["mass"] == 1.0).sum()))
        explorer.get_by_role("button", name="Copy as code").click()
        code = explorer.locator("pre[data-name=code]")
        code.wait_for()
        assert code.inner_text() == "(ds['mass'].isin([1.0]))"
        shoot(explorer, "page-light")
        explorer.get_by_role("button", name="Clear all").click()
        explorer.get_by_role("button", name="Small multiples").click()
        explorer.get_by_label("multiples by").select_option("mass")
        explorer.get_by_label("and by").select_option("replicate")
        place = {"length": "0.05 m", "delay": "4 steps", "mass": "1 kg", "replicate": 2}
        one = cell(explorer, **place)
        one.wait_for()
        assert explorer.locator(".map-card .panel").count() == 3 * 3 * 2  # a line for each
        assert "100 % of 1 run fail" in str(one.get_attribute("aria-label"))
        one.click()
        explorer.locator(".chip", has_text="mass 1 kg, replicate 2").wait_for()
        settled(page, "selected", 1)
        explorer.get_by_role("button", name="One map").click()
        explorer.get_by_role("button", name="Clear all").click()
        cell(explorer, length="0.05 m", delay="4 steps:").wait_for()
        page.set_viewport_size({"width": 700, "height": 900})
        page.wait_for_function("document.body.scrollWidth <= 700")
        shoot(explorer, "page-700")
        for preferred in ("dark", "light"):
            page.emulate_media(color_scheme=preferred)
            page.wait_for_selector(f".sk-explorer[data-theme={preferred}]")

"""The report opened from a file: limits, axes and sliders move without Python or a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr

import sweepkit as sk
from tests import waiting
from tests.poles import stored

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

LIMIT = "abs(angle).max(time)"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "poles.zarr"
    stored(path)
    return path


@pytest.fixture(scope="module")
def file(store: Path) -> Path:
    return sk.report(store, store.with_name("report.html"))


@pytest.fixture
def page(chromium: Browser, file: Path) -> Iterator[Page]:
    """The report in a window of its own; nothing may be asked for, and no script may complain."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * waiting.LIMIT)
    asked: list[str] = []
    complaints: list[str] = []
    made = context.new_page()
    made.on("request", lambda request: asked.append(request.url))
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    made.goto(file.as_uri())
    made.wait_for_selector(".sk-report[data-ready][data-key=settled]")
    yield made
    context.close()
    assert [url for url in asked if not url.startswith(("data:", file.as_uri()))] == []
    assert complaints == []


def rate_shown(page: Page) -> float:
    text = page.locator("[data-figure=rate]").inner_text()
    return float(text.removesuffix(" %")) / 100


def cells_shown(page: Page) -> list[str]:
    hits = page.locator(".map-card .hit").all()
    return [str(one.get_attribute("aria-label")) for one in hits]


def moved_to(page: Page, stop: int) -> float:
    """Put the limit of the angle at a stop, as a drag does; the limit it shows."""
    slider = page.locator(f"input[data-lever^='{LIMIT}']")
    slider.evaluate(
        "(n, v) => { n.value = v; n.dispatchEvent(new Event('input')); "
        "n.dispatchEvent(new Event('change')); }",
        stop,
    )
    page.wait_for_selector(".sk-report[data-key=settled] input[aria-valuetext^='≤']")
    page.wait_for_function("() => document.querySelector('.delta').textContent.includes('points')")
    return float(page.locator(".req .lim").nth(1).inner_text().split()[1].rstrip("°"))


def test_a_moved_limit_gives_the_figures_that_python_gives(page: Page, store: Path) -> None:
    ds = sk.open(store)
    limit = moved_to(page, 30)
    assert limit < 12
    requirements = ["steps >= 120", f"{LIMIT} <= {limit}"]
    whole = sk.rate(ds, requirements=requirements).iloc[0]
    assert rate_shown(page) == pytest.approx(whole["rate"], abs=5e-4)
    ends = f"({100 * whole['low']:.1f} to {100 * whole['high']:.1f} %)"
    assert page.locator("[data-figure=interval]").inner_text() == ends
    axes = [page.locator(f"select[data-axis={k}]").input_value() for k in ("y", "x")]
    by = sk.failure_rate(ds, by=axes, requirements=requirements)
    expected = by["rate"].transpose(*axes).values.ravel()
    told = cells_shown(page)
    assert len(told) == len(expected) == 16
    for text, rate in zip(told, expected, strict=True):
        assert f": {100 * rate:.0f} % of " in text
    page.locator(".map-card .hit").nth(4).hover()
    first = by.transpose(*axes).isel({axes[0]: 1, axes[1]: 0})
    tip = page.locator(".tip").inner_text()
    assert f"{100 * float(first['low']):.0f} to {100 * float(first['high']):.0f} %" in tip
    page.locator("button[data-name=declared]").click()
    page.wait_for_function("() => !document.querySelector('.delta').textContent.trim()")
    assert rate_shown(page) == pytest.approx(28 / 141, abs=5e-4)


def test_scattered_runs_keep_their_interval_at_a_moved_limit(
    chromium: Browser, tmp_path: Path
) -> None:
    x, y = np.random.default_rng(0).random((2, 400))
    status = np.where(x > 0.9, 2, 1).astype(np.int8)  # some errored
    runs = {"speed": ("sample", x + y, {"units": "m/s"}), "status": ("sample", status)}
    ds = xr.Dataset(runs, coords={"x": ("sample", x), "y": ("sample", y)})
    page = chromium.new_page()
    page.goto(sk.report(ds, tmp_path / "a.html", requirements=["speed < 1.5"]).as_uri())
    page.wait_for_selector(".sk-report[data-ready][data-key=settled]")
    slider = page.locator("input[data-lever^='speed']")
    slider.evaluate("n => { n.value = 40; n.dispatchEvent(new Event('input')); }")
    page.wait_for_function("() => document.querySelector('.delta').textContent.includes('points')")
    limit = float(page.locator(".req .lim").first.inner_text().split()[1])
    whole = sk.rate(ds, requirements=[f"speed < {limit}"]).iloc[0]
    assert rate_shown(page) == pytest.approx(whole["rate"], abs=5e-4)
    ends = f"({100 * whole['low']:.1f} to {100 * whole['high']:.1f} %)"
    assert page.locator("[data-figure=interval]").inner_text() == ends
    page.close()


def test_other_dims_and_a_slider_slice_as_xarray_does(page: Page, store: Path) -> None:
    ds = sk.open(store)
    page.locator("select[data-axis=x]").select_option("mass")
    page.wait_for_function(
        "() => document.querySelector('.map-card .hit').getAttribute('aria-label')"
        ".startsWith('mass')"
    )
    y = page.locator("select[data-axis=y]").input_value()
    other = "length" if y == "delay" else "delay"
    page.locator(f"input[data-slider={other}]").focus()
    page.keyboard.press("ArrowRight")  # from the average to the first value
    first = ds[other].values[0]
    page.wait_for_function(
        "(name) => document.querySelector(`.slice[data-name=${name}] .said`)"
        ".textContent !== 'averaged'",
        arg=other,
    )
    by = sk.failure_rate(ds.sel({other: [first]}), by=[y, "mass"])["rate"]
    told = cells_shown(page)
    for text, rate in zip(told, by.transpose(y, "mass").values.ravel(), strict=True):
        assert f": {100 * rate:.0f} % of 3 runs fail" in text


def test_the_keyboard_alone_picks_a_cell_and_takes_the_filter_away(page: Page) -> None:
    page.locator("select[data-axis=show]").focus()
    for _ in range(4):  # past the buttons between, if any
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('hit')"):
            break
    before = page.evaluate("document.activeElement.dataset.i")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.i") != before
    page.keyboard.press("Enter")
    page.wait_for_selector(".chip[data-src=map]")
    assert page.locator("[data-figure=known]").inner_text() == "9"
    page.locator("button[data-name=clear]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".chip", state="detached")
    lever = page.locator(f"input[data-lever^='{LIMIT}']")
    lever.focus()
    before = page.locator(".req .lim").nth(1).inner_text()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "(text) => document.querySelectorAll('.req .lim')[1].textContent !== text", arg=before
    )


def test_no_text_of_a_run_becomes_markup_and_nothing_is_left_waiting(page: Page) -> None:
    assert page.title() == "poles"
    assert "no gain for <script>" in page.locator("[data-part=kinds]").inner_text()
    page.locator("[data-slot=sure]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-slot=sure] svg")
    page.locator("[data-slot=distribution]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-slot=distribution] svg")
    assert page.locator(".waits").count() == 0


def test_it_fits_the_window_in_either_theme(page: Page) -> None:
    for width in (700, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "(w) => document.querySelector('.map-card svg').getBoundingClientRect().right <= w",
            arg=width,
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector(".sk-report[data-theme=dark]")
    page.emulate_media(color_scheme="light")
    page.wait_for_selector(".sk-report[data-theme=light]")


def test_on_paper_it_is_light_and_whole(page: Page, tmp_path: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector(".sk-report[data-theme=dark]")
    seen = page.evaluate(
        """() => {
          dispatchEvent(new Event('beforeprint'));
          const root = document.querySelector('.sk-report');
          const found = {
            theme: root.dataset.theme,
            folded: root.querySelectorAll('details:not([open])').length,
            empty: [...root.querySelectorAll('[data-slot]')]
              .filter((n) => n.dataset.slot !== 'now' && !n.querySelector('svg, canvas'))
              .map((n) => n.dataset.slot),
            cut: [...root.querySelectorAll('svg')].map((n) => n.getBoundingClientRect().right)
              .filter((right) => right > root.getBoundingClientRect().right + 1).length,
          };
          dispatchEvent(new Event('afterprint'));
          return found;
        }"""
    )
    assert seen == {"theme": "light", "folded": 0, "empty": [], "cut": 0}, json.dumps(seen)
    assert page.locator(".sk-report").get_attribute("data-theme") == "dark"
    page.pdf(path=str(tmp_path / "report.pdf"), prefer_css_page_size=True)
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")

"""The browser that other tests rely on: it runs cells, and keeps pages from the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenNotebook

if TYPE_CHECKING:
    from tests.browser.lab import Window

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_notebook_runs_and_shows_what_its_cells_give(open_notebook: OpenNotebook) -> None:
    lab = open_notebook({"first": "kept = 6 * 7", "second": "kept"})
    lab.run_all()
    assert "42" in lab.output("second").inner_text()
    assert lab.python("print(kept + 1)").strip() == "43"
    lab.theme("dark")


def test_what_a_page_asks_of_the_network_is_refused_and_told(
    open_notebook: OpenNotebook, window: Window
) -> None:
    lab = open_notebook({"only": "'here'"})
    lab.run("only")
    got = lab.page.evaluate("fetch('https://example.org/').then(() => 'there', () => 'not')")
    assert got == "not"
    assert window.outside == ["https://example.org/"]
    window.outside.clear()


def test_a_cell_that_raises_is_told(open_notebook: OpenNotebook) -> None:
    lab = open_notebook({"wrong": "1 / 0"})
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        lab.run_all()

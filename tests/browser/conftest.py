"""What browser tests share; without a browser they are skipped, on a CI machine they fail."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Jupyter, Lab, Window

NEEDED = ("playwright", "jupyterlab", "nbformat")

OpenNotebook = Callable[[Mapping[str, str]], "Lab"]


def _lacking() -> str | None:
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        return f"browser tests need {', '.join(absent)}: pip install 'sweepkit[browser]'"
    from tests.browser.lab import chromium

    if chromium() is None:
        return "browser tests need Chromium on the path, or its path in SWEEPKIT_CHROMIUM"
    return None


@pytest.fixture(scope="session")
def _equipped() -> None:
    lacking = _lacking()
    if lacking is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(lacking)
        pytest.skip(lacking)


@pytest.fixture(scope="session")
def jupyter(_equipped: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """One JupyterLab for all tests; each writes notebooks of its own into its root folder."""
    from tests.browser.lab import jupyter_server

    with jupyter_server(tmp_path_factory.mktemp("notebooks")) as made:
        yield made


@pytest.fixture(scope="module")
def chromium(_equipped: None) -> Iterator[Browser]:
    """One browser for a module; longer, and its event loop would be in the way of others' tests."""
    from playwright.sync_api import sync_playwright

    from tests.browser.lab import FLAGS
    from tests.browser.lab import chromium as path

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path(), headless=True, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def window(chromium: Browser) -> Iterator[Window]:
    """A window of its own; the test fails if it reached out or a script raised."""
    from tests.browser.lab import Window

    made = Window(chromium)
    yield made
    made.context.close()
    assert not made.outside, f"asked for what is not on this machine: {sorted(set(made.outside))}"
    assert not made.complaints, made.complaints


_numbers = itertools.count()


@pytest.fixture
def open_notebook(jupyter: Jupyter, window: Window) -> Iterator[OpenNotebook]:
    """Open a notebook of given cells, by tag; its kernel is ended afterwards."""
    from tests.browser.lab import Lab, written

    with ExitStack() as stack:

        def opened(cells: Mapping[str, str]) -> Lab:
            path: Path = written(jupyter.root / f"notebook{next(_numbers)}.ipynb", cells)
            lab = Lab(window.page(jupyter.url(path.name)))
            stack.callback(lab.end)
            return lab

        yield opened

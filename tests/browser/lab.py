"""A real JupyterLab in a real browser, and nothing that leaves this machine.

Every request that would leave loopback is aborted and recorded, so a page that needs the network is
a failed test instead of a blank figure on a machine without one.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, WebSocket
from playwright.sync_api import Error as BrowserError

from tests.waiting import LIMIT, free_port

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # a container's root has none
    "--no-proxy-server",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-features=Translate,OptimizationHints,MediaRouter,AutofillServerCommunication",
    "--no-first-run",
    "--no-default-browser-check",
    "--mute-audio",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--hide-scrollbars",
)
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
INNER = {"data", "blob", "about", "file"}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # cells off the screen are not drawn otherwise: their pictures would be blank
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}


def chromium() -> str | None:
    """Path of the Chromium to use: of the environment's choice, or installed."""
    return os.environ.get("SWEEPKIT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


@contextmanager
def server(argv: list[str], ready: str, log: Path, env: Mapping[str, str]) -> Iterator[None]:
    """A server of its own process group, answering at a URL; it is ended afterwards."""
    with log.open("w") as written:
        process = subprocess.Popen(
            argv,
            stdout=written,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        try:
            _await(ready, process, log)
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LIMIT / 4)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + LIMIT
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback, never a proxy
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended, code {process.returncode}: {log.read_text()}")
        try:
            with opener.open(url, timeout=LIMIT / 4):
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"no answer from {url}: {log.read_text()}")


class Jupyter:
    """A JupyterLab with its notebooks in one folder."""

    def __init__(self, root: Path, port: int, token: str) -> None:
        self.root = root
        self.port = port
        self.token = token

    def url(self, notebook: str) -> str:
        """Address of a notebook in the root folder."""
        return f"http://127.0.0.1:{self.port}/lab/tree/{notebook}?token={self.token}&reset"


@contextmanager
def jupyter_server(root: Path) -> Iterator[Jupyter]:
    """JupyterLab with a token, without settings of the person or look-ups of news."""
    made = Jupyter(root, free_port(), secrets.token_hex(16))
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as folder:
        own = Path(folder)
        for plugin, values in SETTINGS.items():
            package, name = plugin.split(":")
            path = own / "settings" / package / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        argv = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", f"--port={made.port}", "--ServerApp.port_retries=0"),
            f"--IdentityProvider.token={made.token}",
            f"--ServerApp.root_dir={root}",
            "--ServerApp.terminals_enabled=False",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.extension_manager=readonly",
            f"--LabApp.user_settings_dir={own / 'settings'}",
            f"--LabApp.workspaces_dir={own / 'workspaces'}",
        ]
        env = {
            "JUPYTER_CONFIG_DIR": str(own / "config"),
            "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
            "IPYTHONDIR": str(own / "ipython"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        ready = f"http://127.0.0.1:{made.port}/api?token={made.token}"
        with server(argv, ready, root / "server.log", env):
            yield made


class Window:
    """A browser window that reaches loopback alone and remembers what asked for more."""

    def __init__(self, browser: Browser, *, width: int = 1280, height: int = 900) -> None:
        self.outside: list[str] = []
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce"
        )
        self.context.set_default_timeout(LIMIT * 1000)
        self.context.route("**/*", self._gate)

    def _gate(self, route: Route) -> None:
        if self._inside(route.request.url):
            route.continue_()
        else:
            self.outside.append(route.request.url)
            route.abort("internetdisconnected")

    def _inside(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme in INNER or parts.hostname in LOOPBACK

    def _socket(self, one: WebSocket) -> None:
        if not self._inside(one.url):
            self.outside.append(one.url)

    def page(self, url: str) -> Page:
        """A page; errors that its scripts do not catch become complaints."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("websocket", self._socket)
        page.goto(url, wait_until="domcontentloaded")
        return page


_NOTEBOOK = "window.jupyterapp.shell.currentWidget"
_CELLS = f"{_NOTEBOOK}.content.widgets"
_CODE = f"""{_CELLS}.filter(one => one.model.type === 'code'
    && one.model.sharedModel.getSource().trim() !== '')"""


class Lab:
    """One notebook open in JupyterLab, its cells named by their tags."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._await(f"window.jupyterapp && {_NOTEBOOK} && {_NOTEBOOK}.content && {_CELLS}?.length")
        self._await(f"{_NOTEBOOK}.sessionContext.session?.kernel?.connectionStatus === 'connected'")
        page.evaluate(
            "window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight();"
        )

    def _await(self, fact: str, argument: object = None) -> None:
        self.page.wait_for_function(f"given => {fact}", arg=argument)

    def run(self, tag: str) -> None:
        """Run one cell to its end.

        Raises
        ------
        AssertionError
            If the cell raises.
        """
        index = self._index(tag)
        before = self.page.evaluate(
            f"""index => {{
                const notebook = {_NOTEBOOK}.content;
                const before = {_CELLS}[index].model.executionCount;
                notebook.deselectAll(); notebook.activeCellIndex = index;
                window.jupyterapp.commands.execute('notebook:run-cell');
                return before; }}""",
            index,
        )
        # the status of the kernel would not do: it is that of its subshells too
        self._await(
            f"{_CELLS}[given[0]].model.executionCount !== null"
            f" && {_CELLS}[given[0]].model.executionCount !== given[1]",
            [index, before],
        )
        self.raise_errors()

    def run_all(self) -> None:
        """Run all cells to their end.

        Raises
        ------
        AssertionError
            If a cell raises.
        """
        self.page.evaluate("() => {window.jupyterapp.commands.execute('notebook:run-all-cells')}")
        self._await(
            f"""{_CODE}.every(one => one.model.executionCount !== null) || {_CELLS}.some(one =>
                one.model.outputs?.toJSON().some(each => each.output_type === 'error'))"""
        )
        self.raise_errors()

    def raise_errors(self) -> None:
        """Raise what a cell raised."""
        errors = self.page.evaluate(
            f"""{_CELLS}.flatMap(one => (one.model.outputs?.toJSON() ?? [])
                .filter(each => each.output_type === 'error')
                .map(each => [`${{each.ename}}: ${{each.evalue}}`, ...each.traceback]
                    .join(String.fromCharCode(10))))"""
        )
        assert not errors, "\n".join(errors)

    def _index(self, tag: str) -> int:
        index: int = self.page.evaluate(
            f"""tag => {_CELLS}.findIndex(
                one => (one.model.getMetadata('tags') ?? []).includes(tag))""",
            tag,
        )
        if index < 0:
            raise KeyError(tag)
        return index

    def cell(self, tag: str) -> Locator:
        """The cell with a tag."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(self._index(tag))

    def output(self, tag: str) -> Locator:
        """What the cell with a tag shows."""
        return self.cell(tag).locator(".jp-Cell-outputWrapper")

    def bundles(self, tag: str) -> list[dict[str, Any]]:
        """The mimebundles of what the cell with a tag shows."""
        found: list[dict[str, Any]] = self.page.evaluate(
            f"index => {_CELLS}[index].model.outputs.toJSON().map(one => one.data ?? {{}})",
            self._index(tag),
        )
        return found

    def python(self, code: str) -> str:
        """What code prints that the notebook's kernel runs, beside its cells."""
        out: str = self.page.evaluate(
            f"""async code => {{
                const kernel = {_NOTEBOOK}.sessionContext.session.kernel;
                const asked = kernel.requestExecute({{code, store_history: false}});
                let out = '';
                asked.onIOPub = message => {{
                    if (message.header.msg_type === 'stream') out += message.content.text;
                    if (message.header.msg_type === 'error') out += message.content.evalue; }};
                await asked.done;
                return out; }}""",
            code,
        )
        return out

    def theme(self, name: str) -> None:
        """Change to the light or the dark theme."""
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})",
            THEMES[name],
        )
        self._await("document.body.dataset.jpThemeName === given", THEMES[name])
        self._await("!document.getElementById('jupyterlab-splash')")

    def save(self) -> None:
        """Write the notebook to its file."""
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")

    def shot(self, tag: str, path: Path) -> None:
        """A picture of what the cell with a tag shows."""
        output = self.output(tag)
        output.scroll_into_view_if_needed()
        output.screenshot(path=path)

    def end(self) -> None:
        """End the kernel and close the page."""
        with suppress(BrowserError):
            self.page.evaluate(f"{_NOTEBOOK}.sessionContext.shutdown()")
        self.page.close()


def written(path: Path, cells: Mapping[str, str]) -> Path:
    """A notebook of code cells by tag."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    for tag, source in cells.items():
        notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": [tag]}))
    nbformat.write(notebook, path)
    return path

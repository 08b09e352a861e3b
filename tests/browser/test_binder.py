"""The repository as Binder starts it: its steps in an environment of its own, then the browser."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.conftest import ROOT
from tests.waiting import free_port

if TYPE_CHECKING:
    from tests.browser.lab import Window

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETTLED = """() => {
    const find = one => one.querySelector('.sk-explorer') ?? [...one.querySelectorAll('*')]
        .map(each => each.shadowRoot).filter(Boolean).map(find).find(Boolean);
    return find(document)?.dataset.key === 'settled'; }"""
MOST_BYTES = 1_000_000_000
TOKEN = "binder"

Shell = Callable[..., None]


def memory(folder: Path) -> int:
    """Bytes that processes hold whose program is in a folder."""
    held = 0
    for one in psutil.process_iter(["cmdline", "memory_info"]):
        words = one.info["cmdline"] or []
        if words and words[0].startswith(str(folder)):
            held += one.info["memory_info"].rss
    return held


def test_the_start_page_the_page_and_dask_are_reached_through_jupyter(
    tmp_path: Path, window: Window
) -> None:
    from tests.browser.lab import Lab, server

    home, repo = tmp_path / "env", tmp_path / "repo"
    venv.create(home, with_pip=True)
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env["PATH"] = f"{home / 'bin'}{os.pathsep}{env['PATH']}"

    def shell(*words: str, cwd: Path = repo) -> None:
        done = subprocess.run(
            words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=1500
        )
        assert done.returncode == 0, done.stdout + done.stderr

    shell("git", "clone", "-q", "--no-hardlinks", str(ROOT), str(repo), cwd=tmp_path)
    shell("python", "-m", "pip", "install", "-q", "-r", "binder/requirements.txt")
    shell("./binder/postBuild")
    port = free_port()
    start = f"http://127.0.0.1:{port}/user/someone"
    argv = [
        *(str(home / "bin" / "jupyter"), "lab", "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.base_url=/user/someone/"),
        *(f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={repo}"),
        "--LabApp.expose_app_in_browser=True",
    ]
    own = {
        **env,
        "PYTHONPATH": "",
        "JUPYTERHUB_SERVICE_PREFIX": "/user/someone/",  # as on a hub
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    ready = f"{start}/api?token={TOKEN}"
    with server(argv, ready, tmp_path / "server.log", own):
        lab = Lab(window.page(f"{start}/lab/tree/binder/explore.ipynb?token={TOKEN}"))
        for tag in ("parameters", "imports", "explorer", "provenance", "dask"):
            lab.run(tag)
        lab.page.wait_for_function(SETTLED)
        shown = str(lab.bundles("dask"))
        assert "/user/someone/proxy/" in shown
        address = shown.partition("/user/someone/proxy/")[2].partition("/status")[0]
        dashboard = window.page(f"{start}/proxy/{address}/status?token={TOKEN}")
        dashboard.wait_for_selector(".bk-Figure, .bk-root, canvas", state="attached")
        lab.run("close")
        page = window.page(f"{start}/explorer/?token={TOKEN}")
        page.wait_for_function(SETTLED)
        assert memory(home) < MOST_BYTES
        lab.end()

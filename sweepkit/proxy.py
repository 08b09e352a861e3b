"""Pages reached through Jupyter, for Binder: a store's explorer, dask's dashboard.

``python -m sweepkit.proxy STORE`` writes it into the environment that runs it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

__all__ = ["reach"]

DASHBOARD = "{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status"
"""Where dask says its dashboard is, as it fills it in itself."""


def reach(store: str | os.PathLike[str], prefix: Path) -> None:
    """Tell Jupyter how to serve the explorer of a store, and dask where its dashboard is.

    Parameters
    ----------
    store : path
        Of the sweep to explore.
    prefix : path
        Of the environment, as ``sys.prefix``; what its configuration holds already stays.
    """
    command = [sys.executable, "-m", "sweepkit", "explore", str(Path(store).resolve())]
    page = {
        "command": [*command, "--port", "{port}", "--no-browser", "--origin", "*"],
        "timeout": 60,
        "launcher_entry": {"title": "Explorer as a page"},
    }
    config = prefix / "etc" / "jupyter" / "jupyter_server_config.json"
    said = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    said.setdefault("ServerProxy", {}).setdefault("servers", {})["explorer"] = page
    dask = {"distributed": {"dashboard": {"link": DASHBOARD}}}
    for file, text in (
        (config, json.dumps(said, indent=1)),
        (prefix / "etc" / "dask" / "sweepkit.yaml", json.dumps(dask)),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m sweepkit.proxy STORE")
    reach(sys.argv[1], Path(sys.prefix))

"""Make pages beside Jupyter reachable through it: the explorer of a store, and dask's dashboard.

python binder/reach.py STORE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

store = str(Path(sys.argv[1]).resolve())
prefix = Path(sys.prefix)
explore = [
    sys.executable,
    "-m",
    "sweepkit",
    "explore",
    store,
    "--port",
    "{port}",
    "--no-browser",
    "--origin",
    "*",
]
page = {
    "command": explore,
    "timeout": 60,
    "launcher_entry": {"title": "Explorer as a page"},
}
config = prefix / "etc" / "jupyter" / "jupyter_server_config.d" / "sweepkit-explorer.json"
config.parent.mkdir(parents=True, exist_ok=True)
config.write_text(json.dumps({"ServerProxy": {"servers": {"explorer": page}}}, indent=1))

link = "{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status"
dask = prefix / "etc" / "dask" / "sweepkit.yaml"
dask.parent.mkdir(parents=True, exist_ok=True)
dask.write_text(json.dumps({"distributed": {"dashboard": {"link": link}}}))

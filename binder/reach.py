"""Reach pages beside Jupyter through it: the explorer of a store, dask's dashboard.

python binder/reach.py STORE
"""

import json
import sys
from pathlib import Path

store = str(Path(sys.argv[1]).resolve())
prefix = Path(sys.prefix)
command = [sys.executable, "-m", "sweepkit", "explore", store, "--port", "{port}"]
page = {
    "command": [*command, "--no-browser", "--origin", "*"],
    "timeout": 60,
    "launcher_entry": {"title": "Explorer as a page"},
}
config = prefix / "etc" / "jupyter" / "jupyter_server_config.json"
config.parent.mkdir(parents=True, exist_ok=True)
said = json.loads(config.read_text()) if config.exists() else {}
said.setdefault("ServerProxy", {}).setdefault("servers", {})["explorer"] = page
config.write_text(json.dumps(said, indent=1))

link = "{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status"
dask = prefix / "etc" / "dask" / "sweepkit.yaml"
dask.parent.mkdir(parents=True, exist_ok=True)
dask.write_text(json.dumps({"distributed": {"dashboard": {"link": link}}}))

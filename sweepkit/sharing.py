"""The texts of a folder that Binder opens: notebook, README, what is installed."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from sweepkit.provenance import Provenance
from sweepkit.quantities import core_text
from sweepkit.reading import declaration_of, run_dims_of
from sweepkit.status import NAMES

__all__ = ["IGNORED", "notebook", "post_build", "readme", "tidied"]

IGNORED = ".ipynb_checkpoints/\n__pycache__/\n*.sweepkit/lock\n*.sweepkit/holder.json\n"

LINK = "https://mybinder.org/v2/gh/OWNER/REPOSITORY/HEAD"


def post_build(own: str, store: str) -> str:
    """The script that Binder runs after it has installed the pins; texts quoted for a shell."""
    return (
        "#!/bin/bash\n"
        "# After the pinned packages: sweepkit itself, and the explorer as a page of its own.\n"
        "set -euo pipefail\n"
        f"python -m pip install --no-cache-dir --no-deps {own}\n"
        f"python -m sweepkit.proxy {store}\n"
    )


def notebook(title: str, name: str, ds: xr.Dataset) -> dict[str, Any]:
    """The notebook that explores the store, not executed yet."""
    judged = bool(declaration_of(ds).get("requirements"))
    cells = [
        _words(
            f"# {_plain(title)}\n\n{_summary(ds)}\n\nRun the cells (`Shift+Enter`) to explore it."
        ),
        _code(f"import sweepkit as sk\n\nstore = {name!r}\nds = sk.open(store)\nds", "open"),
        _code("explorer = sk.explore(ds)\nexplorer", "explorer"),
        *([_code("sk.held_up(ds)", "held_up"), _code("sk.rate(ds)", "rate")] if judged else []),
        _words("## Who computed it, with what, at what cost"),
        _code("sk.provenance(store)", "provenance"),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": spec, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _words(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str, tag: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": [tag]},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }


def tidied(text: str) -> str:
    """An executed notebook without what papermill notes, which tells paths of this machine."""
    found = json.loads(text)
    found["metadata"].pop("papermill", None)
    found["metadata"].pop("widgets", None)
    for cell in found["cells"]:
        for name in ("papermill", "execution"):
            cell["metadata"].pop(name, None)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def readme(title: str, name: str, ds: xr.Dataset, made: Provenance, own: str) -> str:
    """What the folder is, how to publish it, how to open it without Binder."""
    badge = (
        f"[![Binder](https://mybinder.org/badge_logo.svg)]({LINK}?urlpath=lab/tree/explore.ipynb)"
    )
    wheel = own if own.startswith("binder/") else f"'{own}'"
    return f"""# {_plain(title)}

{badge}

{_summary(ds)}
[`explore.ipynb`](explore.ipynb) shows what it says; behind the badge it is alive: limits are
sliders, and any run opens with its parameters and margins.
{_origin(made)}

## Publish it

Put this folder into a public repository; nothing else is needed.

```sh
git init -b main && git add -A && git commit -m "A sweep to explore"
git remote add origin https://github.com/OWNER/REPOSITORY.git && git push -u origin main
```

Then write the repository's own name for `OWNER/REPOSITORY` in the badge above, commit, push, and
click the badge once: the first start builds the environment and takes some minutes. The explorer as
a page of its own is at `{LINK}?urlpath=explorer`.

## Open it here

```sh
python3 -m venv .venv && .venv/bin/pip install -r binder/requirements.txt
.venv/bin/pip install --no-deps {wheel}
.venv/bin/jupyter lab explore.ipynb
```

## What is in it

* `{name}`: the results, a Zarr v3 group; `xr.open_zarr("{name}")` reads it without sweepkit.
* `{name}.sweepkit`: sessions, declaration and copies by which damage is mended.
* `binder`: the pinned environment in which the folder was made, and sweepkit itself.
"""


def _summary(ds: xr.Dataset) -> str:
    """The sweep in sentences."""
    codes, counts = np.unique(ds["status"].values.astype(int), return_counts=True)
    told = {NAMES[code]: int(count) for code, count in zip(codes, counts, strict=True)}
    dims = [f"{_as_code(str(dim))} ({ds.sizes[dim]})" for dim in run_dims_of(ds)]
    said = declaration_of(ds).get("requirements", [])
    lines = [
        f"A sweep of {ds['status'].size:,} runs over {', '.join(dims)}: "
        f"{', '.join(f'{count:,} {word}' for word, count in told.items())}."
    ]
    if said:
        texts = ", ".join(_as_code(_text_of(one)) for one in said)
        lines.append(f"A run passes if {texts}.")
    return "\n".join(lines)


def _text_of(said: Mapping[str, Any]) -> str:
    return str(said.get("text") or said.get("name") or "a function says so")


def _origin(made: Provenance) -> str:
    ran = made.sessions
    if not len(ran) or "began" not in ran:
        return ""
    when = str(ran["began"].iloc[-1])[:10]
    who = f" by {_plain(str(ran['user'].iloc[-1]))}" if "user" in ran else ""
    cost = core_text(float(ran["used"].sum()))
    return f"Computed{who}, last on {when}, in {cost}; `sk.provenance` tells the rest."


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    flat = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", flat)


def _as_code(text: str) -> str:
    """Text between backticks."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"

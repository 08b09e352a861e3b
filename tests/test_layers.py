"""Who may import whom: the table of the design, checked over the text of each module."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sweepkit"

FLOOR = {
    "addresses",
    "arithmetic",
    "axes",
    "canonical",
    "cards",
    "crossing",
    "distinct",
    "expressions",
    "files",
    "flat",
    "format1",
    "grammar",
    "grid",
    "html",
    "interpreter",
    "keyed",
    "parameters",
    "masks",
    "places",
    "portrait",
    "quantities",
    "requirements",
    "root",
    "rooted",
    "sampling",
    "status",
    "streams",
    "typed",
    "union",
    "versioned",
}
RUNNING = {
    "accounts",
    "agreement",
    "amend",
    "arrays",
    "batchwise",
    "blocks",
    "bytecode",
    "capture",
    "casts",
    "codes",
    "columns",
    "command",
    "commandline",
    "commit",
    "containment",
    "coordinates",
    "cost",
    "course",
    "deaths",
    "declaration",
    "declared",
    "dependence",
    "digest",
    "equipment",
    "evaluate",
    "executors",
    "features",
    "fit",
    "fleet",
    "forecast",
    "futures",
    "ground",
    "growth",
    "handout",
    "holding",
    "identity",
    "inputs",
    "intake",
    "job",
    "judge",
    "lock",
    "meet",
    "keeper",
    "lease",
    "member",
    "memos",
    "objects",
    "outputs",
    "parcels",
    "packages",
    "pickling",
    "pilot",
    "plan",
    "policies",
    "pool",
    "premises",
    "process",
    "programs",
    "protocols",
    "reach",
    "readers",
    "receipt",
    "references",
    "refine",
    "replay",
    "request",
    "results",
    "returned",
    "resume",
    "rewrite",
    "run",
    "schema",
    "seal",
    "settings",
    "setup",
    "signals",
    "simulator",
    "source",
    "spelling",
    "stores",
    "swap",
    "sweep",
    "template",
    "traits",
    "vectorized",
    "worker",
    "workload",
}
READING = {
    "analysis",
    "compare",
    "datacard",
    "export",
    "formulas",
    "lazy",
    "locate",
    "provenance",
    "reading",
    "rows",
    "splits",
    "stages",
    "stored",
    "training",
    "verdicts",
    "views",
}
FRONT = {
    "__main__",
    "artefacts",
    "cli",
    "console",
    "headless",
    "jobs",
    "launch",
    "notebook",
    "options",
    "outgoing",
    "planning",
    "pins",
    "proxy",
    "share",
    "sharing",
    "shell",
    "pack",
    "targets",
    "workbench",
}

MAY_IMPORT = {
    **dict.fromkeys(FLOOR, FLOOR),
    **dict.fromkeys(RUNNING, FLOOR | RUNNING),
    **dict.fromkeys(READING, FLOOR | READING),
    **dict.fromkeys(FRONT, FLOOR | RUNNING | READING | FRONT),
}
"""By module or folder: the modules and folders of sweepkit that it may import."""

CORE = (
    FLOOR
    | RUNNING - {"executors", "stores"}
    | {"formulas", "lazy", "reading", "stored", "verdicts"}
)
"""The closed core, which knows the plugs' contracts and none of the plugs."""

USES_A_PLUG = {("refine", "stores")}
"""Where the core names a plug: the one store there is, whose layout growth and repair rest on."""

SHARED = {
    "analysis": {
        "additive",
        "answerable",
        "bases",
        "boxes",
        "candidates",
        "cells",
        "coding",
        "counts",
        "intervals",
        "lattice",
        "limits",
        "naming",
        "needed",
        "neighbours",
        "nominal",
        "numbers",
        "outcomes",
        "peeling",
        "rates",
        "reasons",
        "refined",
        "regions",
        "slices",
        "splitting",
        "table",
        "unrefined",
        "worth",
    },
    "executors": {"dispatch"},
    "views": {
        "answers",
        "asides",
        "asked",
        "axis",
        "bundle",
        "captions",
        "columns",
        "deeper",
        "drawing",
        "engine",
        "figures",
        "findings",
        "levers",
        "maps",
        "markdown",
        "packing",
        "paper",
        "progress",
        "prose",
        "raster",
        "record",
        "selection",
        "source",
        "state",
        "still",
        "wording",
    },
}
"""Modules in a folder of plugs that its plugs stand on; else a plug knows no sibling."""

HEAVY = {
    "anywidget",
    "bokeh",
    "dask",
    "distributed",
    "holoviews",
    "hvplot",
    "ipywidgets",
    "matplotlib",
    "panel",
    "panel_material_ui",
}
MAY_BE_HEAVY = {"executors", "views"}

ANYWHERE = {"numpy", "xarray", "pandas", "scipy"}
"""What all layers may use; where start-up matters, inside functions."""

LATER = {"annotationlib"}
"""Modules that Python has from a later version on."""

FOREIGN = {
    "IPython": {"views"},
    "PIL": {"views"},
    "click": {"cli", "launch", "outgoing", "shell"},
    "cloudpickle": {"executors", "fleet", "pickling"},
    "filelock": {"lock"},
    "google_crc32c": {"arrays", "parcels"},
    "fsspec": {"addresses"},
    "icechunk": {"stores", "versioned"},
    "joblib": {"executors", "fleet", "member"},
    "numcodecs": {"parcels"},
    "param": {"views"},
    "jupyter_client": {"headless"},
    "nbclient": {"headless"},
    "packaging": {"pins"},
    "papermill": {"headless"},
    "psutil": {"executors", "fleet", "pool"},
    "pyarrow": {"export"},
    "rich": {"console"},
    "sklearn": {"analysis"},
    "threadpoolctl": {"executors", "futures", "replay", "worker"},
    "traitlets": {"views"},
    "tqdm": {"views"},
    "zarr": {"addresses", "arrays", "keyed", "rooted", "stores", "versioned"},
}
"""Other libraries and the modules and folders that may import them."""

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def unit(path: Path) -> str:
    """Module of the core, or the folder that a plug is in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> frozenset[str]:
    """Dotted names that a module imports, wherever in it, without those for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively"
            assert node.module is not None
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def within(path: Path) -> set[tuple[str, ...]]:
    """Parts of the sweepkit modules that a module imports, below the package."""
    found = set()
    for name in imported(path):
        parts = tuple(name.split("."))
        if parts[0] == "sweepkit" and len(parts) > 1:
            found.add(parts[1:])
    return found


def label(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


PLUGS = [one for one in MODULES if one.parent != PACKAGE and one.name != "__init__.py"]


def test_imports_inside_functions_count_and_those_for_types_do_not(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    import dask\n"
        "def plan():\n"
        "    import panel.io\n"
        "    from sweepkit.run import Session\n"
    )
    assert imported(module) == {"typing.TYPE_CHECKING", "panel.io", "sweepkit.run.Session"}
    assert within(module) == {("run", "Session")}


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_a_module_imports_its_own_layer_and_the_floor(path: Path) -> None:
    here = unit(path)
    assert here in MAY_IMPORT, f"{here} is in no layer; say in this table where it belongs"
    beyond = {parts[0] for parts in within(path)} - MAY_IMPORT[here] - {"__version__"}
    assert not beyond, f"{label(path)} imports {', '.join(sorted(beyond))}"


@pytest.mark.parametrize("path", [one for one in MODULES if unit(one) in CORE], ids=label)
def test_the_core_knows_no_plug(path: Path) -> None:
    here = unit(path)
    folders = {one.name for one in PACKAGE.iterdir() if one.is_dir()}
    plugs = {(here, parts[0]) for parts in within(path) if parts[0] in folders}
    assert plugs <= USES_A_PLUG


@pytest.mark.parametrize("path", PLUGS, ids=label)
def test_a_plug_knows_no_sibling(path: Path) -> None:
    folder = unit(path)
    siblings = {one.stem for one in path.parent.glob("*.py")} - {path.stem, "__init__"}
    known = {parts[1] for parts in within(path) if parts[0] == folder and len(parts) > 1}
    assert known & siblings <= SHARED.get(folder, set())


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_a_library_is_imported_only_where_it_belongs(path: Path) -> None:
    here = unit(path)
    roots = {name.partition(".")[0] for name in imported(path)}
    foreign = roots - set(sys.stdlib_module_names) - LATER - ANYWHERE - {"sweepkit"}
    for name in sorted(foreign):
        allowed = MAY_BE_HEAVY if name in HEAVY else FOREIGN.get(name, set())
        assert here in allowed, f"{label(path)} imports {name}"


def loaded_by(statement: str) -> set[str]:
    """Names of the modules in a fresh process after a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_no_library_and_no_module_of_its_own() -> None:
    loaded = loaded_by("import sweepkit")
    assert not loaded & (HEAVY | ANYWHERE | set(FOREIGN))
    assert not {name for name in loaded if name.startswith("sweepkit.")}


def test_a_worker_starts_without_xarray_pandas_or_a_store() -> None:
    loaded = loaded_by("import sweepkit.worker")
    assert not loaded & {"xarray", "pandas", "scipy", "zarr", "joblib"}
    loaded = loaded_by("import sweepkit.fleet")
    assert not loaded & {"xarray", "pandas", "scipy", "zarr"}


def test_a_sweep_is_declared_without_a_heavy_library_a_store_or_joblib() -> None:
    loaded = loaded_by(
        "import sweepkit as sk; sk.Sweep(lambda a: a, sk.grid(a=[1, 2]), requirements=['r > 1'])"
    )
    assert not loaded & (HEAVY | {"zarr", "joblib", "scipy"})


def test_a_result_is_read_without_the_running_tower() -> None:
    loaded = loaded_by("import sweepkit as sk; sk.open, sk.runs, sk.failed, sk.failure_rate")
    towers = {name.split(".")[1] for name in loaded if name.startswith("sweepkit.")}
    assert not towers & (RUNNING | FRONT)
    brought = {"cloudpickle"} if "pyarrow" in loaded else set()  # pandas takes it where it is
    assert not loaded & (HEAVY | {"joblib", "cloudpickle"} - brought)


def test_public_names_load_lazily_and_are_all_there() -> None:
    import sweepkit as sk

    for name in sk.__all__:
        assert getattr(sk, name) is not None
    assert set(sk.__all__) <= set(dir(sk))
    with pytest.raises(AttributeError, match="module 'sweepkit' has no attribute 'sweeep'"):
        sk.sweeep  # noqa: B018


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    code = (
        "import sweepkit as sk, sweepkit.run, sweepkit.grid; "
        "assert callable(sk.run) and callable(sk.grid)"
    )
    loaded_by(code)

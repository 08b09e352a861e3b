"""Packages that a simulator's own code uses are noted with the runs."""

from __future__ import annotations

import numpy as np
import scipy
from scipy.linalg import solve

import sweepkit as sk
from sweepkit.packages import packages_of, used


def helper(a: float) -> float:
    return float(solve([[1.0]], [a])[0])


def simulate(a: float) -> dict[str, float]:
    return {"y": helper(a) + float(np.sin(a))}


def importing(a: float) -> dict[str, float]:
    import json

    import psutil

    return {"y": a + len(json.dumps(psutil.cpu_count()))}


def test_packages_are_found_through_helpers_and_inner_imports_and_python_is_none() -> None:
    import psutil

    assert packages_of([simulate]) == {"numpy": np.__version__, "scipy": scipy.__version__}
    assert packages_of([importing]) == {"psutil": psutil.__version__}
    assert packages_of([len, lambda a: a]) == {}


def test_vectorized_simulators_commands_and_setups_are_looked_at() -> None:
    grid = sk.grid(a=[1.0])
    assert "scipy" in used(sk.Sweep(sk.vectorized(simulate), grid))
    program = sk.command("echo {a}", outputs={"y": sk.from_stdout(r"(\S+)")})
    assert used(sk.Sweep(program, grid)) == {}


def test_a_store_tells_them(store: str) -> None:
    ds = sk.run(sk.Sweep(simulate, sk.grid(a=[1.0])), store, backend="sequential", progress=False)
    assert sk.provenance(ds).packages["scipy"] == scipy.__version__

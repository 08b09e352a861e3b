"""Simulation sweeps: declared as coordinates, run as one job, stored by their parameters."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "DifferentSweepError": "resume",
    "ExpressionError": "expressions",
    "Grid": "grid",
    "JoblibExecutor": "executors.joblib",
    "NearMissError": "resume",
    "Progress": "status",
    "Requirement": "requirements",
    "RunError": "judge",
    "StaleCodeError": "resume",
    "Status": "status",
    "StoreBusyError": "protocols",
    "StoreError": "protocols",
    "Sweep": "sweep",
    "TooManyErrorsError": "judge",
    "derive": "workbench",
    "design": "parameters",
    "failed": "reading",
    "failure_rate": "analysis.rates",
    "grid": "grid",
    "latin_hypercube": "sampling",
    "margin": "reading",
    "open": "reading",
    "output": "outputs",
    "paired": "grid",
    "run": "workbench",
    "runs": "reading",
    "scenario": "parameters",
    "sobol": "sampling",
    "status_counts": "reading",
    "values": "parameters",
    "verify": "workbench",
}
"""Where each public name lives; it is imported when it is first used."""

__all__ = [*_HOMES, "__version__"]


class _Package(types.ModuleType):
    """The package itself: modules such as ``sweepkit.run`` do not hide the functions they hold."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"sweepkit.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sweepkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from sweepkit.analysis.rates import failure_rate as failure_rate
    from sweepkit.executors.joblib import JoblibExecutor as JoblibExecutor
    from sweepkit.expressions import ExpressionError as ExpressionError
    from sweepkit.grid import Grid as Grid
    from sweepkit.grid import grid as grid
    from sweepkit.grid import paired as paired
    from sweepkit.judge import RunError as RunError
    from sweepkit.judge import TooManyErrorsError as TooManyErrorsError
    from sweepkit.outputs import output as output
    from sweepkit.parameters import design as design
    from sweepkit.parameters import scenario as scenario
    from sweepkit.parameters import values as values
    from sweepkit.protocols import StoreBusyError as StoreBusyError
    from sweepkit.protocols import StoreError as StoreError
    from sweepkit.reading import failed as failed
    from sweepkit.reading import margin as margin
    from sweepkit.reading import open as open
    from sweepkit.reading import runs as runs
    from sweepkit.reading import status_counts as status_counts
    from sweepkit.requirements import Requirement as Requirement
    from sweepkit.resume import DifferentSweepError as DifferentSweepError
    from sweepkit.resume import NearMissError as NearMissError
    from sweepkit.resume import StaleCodeError as StaleCodeError
    from sweepkit.sampling import latin_hypercube as latin_hypercube
    from sweepkit.sampling import sobol as sobol
    from sweepkit.status import Progress as Progress
    from sweepkit.status import Status as Status
    from sweepkit.sweep import Sweep as Sweep
    from sweepkit.workbench import derive as derive
    from sweepkit.workbench import run as run
    from sweepkit.workbench import verify as verify

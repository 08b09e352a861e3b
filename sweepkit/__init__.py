"""Simulation sweeps: declared as coordinates, run as one job, stored by their parameters."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "ComputeLostError": "protocols",
    "DaskExecutor": "executors.dask",
    "Command": "command",
    "CommandError": "command",
    "DifferentSweepError": "resume",
    "ExpressionError": "expressions",
    "Grid": "grid",
    "Job": "job",
    "FuturesCrew": "futures",
    "JoblibExecutor": "executors.joblib",
    "NearMissError": "resume",
    "Plan": "forecast",
    "Pool": "jobs",
    "NeedsCodeError": "references",
    "Progress": "status",
    "Receipt": "receipt",
    "Regions": "analysis",
    "Requirement": "requirements",
    "Request": "request",
    "RunError": "judge",
    "SetupError": "setup",
    "StaleCodeError": "codes",
    "Status": "status",
    "StoreBusyError": "protocols",
    "StoreError": "root",
    "Suggestion": "analysis",
    "Sweep": "sweep",
    "TooManyErrorsError": "judge",
    "UnanswerableError": "analysis",
    "Vectorized": "vectorized",
    "artefacts": "artefacts",
    "combinations": "analysis",
    "compare": "compare",
    "command": "commandline",
    "convergence": "analysis",
    "counterexample": "analysis",
    "derive": "workbench",
    "design": "parameters",
    "distribution": "analysis",
    "ecdf": "views.ecdf",
    "explain": "analysis",
    "export": "export",
    "explore": "views.explorer",
    "failed": "verdicts",
    "failure_interval": "analysis",
    "failure_map": "views.failure_map",
    "failure_rate": "analysis",
    "fan": "views.fan",
    "from_csv": "readers",
    "from_json": "readers",
    "from_netcdf": "readers",
    "from_stdout": "readers",
    "grid": "crossing",
    "held_up": "analysis",
    "how_sure": "views.how_sure",
    "importance": "analysis",
    "islands": "analysis",
    "kinds": "analysis",
    "latin_hypercube": "sampling",
    "margin": "verdicts",
    "open": "reading",
    "pack": "pack",
    "output": "outputs",
    "pair_matrix": "views.pair_matrix",
    "paired": "crossing",
    "pairs": "analysis",
    "parallel_coordinates": "views.parallel_coordinates",
    "parameters": "notebook",
    "plan": "planning",
    "provenance": "provenance",
    "rate": "analysis",
    "receipt": "planning",
    "refine": "workbench",
    "refined_rate": "analysis",
    "regions": "analysis",
    "replay": "workbench",
    "report": "views.report",
    "requirement": "requirements",
    "robustness": "analysis",
    "run": "workbench",
    "runs": "reading",
    "snapshots": "versioned",
    "safe_box": "analysis",
    "scenario": "parameters",
    "share": "share",
    "sobol": "sampling",
    "start": "jobs",
    "status_counts": "reading",
    "strips": "views.strips",
    "suggest": "analysis",
    "trade_off": "views.trade_off",
    "training_set": "training",
    "values": "parameters",
    "vectorized": "vectorized",
    "verify": "workbench",
    "volumes": "analysis",
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
    from sweepkit.analysis import Regions as Regions
    from sweepkit.analysis import Suggestion as Suggestion
    from sweepkit.analysis import UnanswerableError as UnanswerableError
    from sweepkit.analysis import combinations as combinations
    from sweepkit.analysis import convergence as convergence
    from sweepkit.analysis import counterexample as counterexample
    from sweepkit.analysis import distribution as distribution
    from sweepkit.analysis import explain as explain
    from sweepkit.analysis import failure_interval as failure_interval
    from sweepkit.analysis import failure_rate as failure_rate
    from sweepkit.analysis import held_up as held_up
    from sweepkit.analysis import importance as importance
    from sweepkit.analysis import islands as islands
    from sweepkit.analysis import kinds as kinds
    from sweepkit.analysis import pairs as pairs
    from sweepkit.analysis import rate as rate
    from sweepkit.analysis import refined_rate as refined_rate
    from sweepkit.analysis import regions as regions
    from sweepkit.analysis import robustness as robustness
    from sweepkit.analysis import safe_box as safe_box
    from sweepkit.analysis import suggest as suggest
    from sweepkit.analysis import volumes as volumes
    from sweepkit.artefacts import artefacts as artefacts
    from sweepkit.codes import StaleCodeError as StaleCodeError
    from sweepkit.command import Command as Command
    from sweepkit.command import CommandError as CommandError
    from sweepkit.commandline import command as command
    from sweepkit.compare import compare as compare
    from sweepkit.crossing import grid as grid
    from sweepkit.crossing import paired as paired
    from sweepkit.executors.dask import DaskExecutor as DaskExecutor
    from sweepkit.executors.joblib import JoblibExecutor as JoblibExecutor
    from sweepkit.export import export as export
    from sweepkit.expressions import ExpressionError as ExpressionError
    from sweepkit.forecast import Plan as Plan
    from sweepkit.futures import FuturesCrew as FuturesCrew
    from sweepkit.grid import Grid as Grid
    from sweepkit.job import Job as Job
    from sweepkit.jobs import Pool as Pool
    from sweepkit.jobs import start as start
    from sweepkit.judge import RunError as RunError
    from sweepkit.judge import TooManyErrorsError as TooManyErrorsError
    from sweepkit.notebook import parameters as parameters
    from sweepkit.outputs import output as output
    from sweepkit.pack import pack as pack
    from sweepkit.parameters import design as design
    from sweepkit.parameters import scenario as scenario
    from sweepkit.parameters import values as values
    from sweepkit.planning import plan as plan
    from sweepkit.planning import receipt as receipt
    from sweepkit.protocols import ComputeLostError as ComputeLostError
    from sweepkit.protocols import StoreBusyError as StoreBusyError
    from sweepkit.provenance import provenance as provenance
    from sweepkit.readers import from_csv as from_csv
    from sweepkit.readers import from_json as from_json
    from sweepkit.readers import from_netcdf as from_netcdf
    from sweepkit.readers import from_stdout as from_stdout
    from sweepkit.reading import open as open
    from sweepkit.reading import runs as runs
    from sweepkit.reading import status_counts as status_counts
    from sweepkit.receipt import Receipt as Receipt
    from sweepkit.references import NeedsCodeError as NeedsCodeError
    from sweepkit.request import Request as Request
    from sweepkit.requirements import Requirement as Requirement
    from sweepkit.requirements import requirement as requirement
    from sweepkit.resume import DifferentSweepError as DifferentSweepError
    from sweepkit.resume import NearMissError as NearMissError
    from sweepkit.root import StoreError as StoreError
    from sweepkit.sampling import latin_hypercube as latin_hypercube
    from sweepkit.sampling import sobol as sobol
    from sweepkit.setup import SetupError as SetupError
    from sweepkit.share import share as share
    from sweepkit.status import Progress as Progress
    from sweepkit.status import Status as Status
    from sweepkit.sweep import Sweep as Sweep
    from sweepkit.training import training_set as training_set
    from sweepkit.vectorized import Vectorized as Vectorized
    from sweepkit.vectorized import vectorized as vectorized
    from sweepkit.verdicts import failed as failed
    from sweepkit.verdicts import margin as margin
    from sweepkit.versioned import snapshots as snapshots
    from sweepkit.views.ecdf import ecdf as ecdf
    from sweepkit.views.explorer import explore as explore
    from sweepkit.views.failure_map import failure_map as failure_map
    from sweepkit.views.fan import fan as fan
    from sweepkit.views.how_sure import how_sure as how_sure
    from sweepkit.views.pair_matrix import pair_matrix as pair_matrix
    from sweepkit.views.parallel_coordinates import parallel_coordinates as parallel_coordinates
    from sweepkit.views.report import report as report
    from sweepkit.views.strips import strips as strips
    from sweepkit.views.trade_off import trade_off as trade_off
    from sweepkit.workbench import derive as derive
    from sweepkit.workbench import refine as refine
    from sweepkit.workbench import replay as replay
    from sweepkit.workbench import run as run
    from sweepkit.workbench import verify as verify

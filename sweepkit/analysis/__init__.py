"""What the set says: Dataset -> DataFrame or Dataset, pure.

Each function takes a store opened with ``sk.open``, any Dataset whose coordinates are parameters,
or a `Table`, which codes the runs once for all of them.
"""

# Eager on purpose: several functions carry their module's name, and a later first import of such a
# module would put the module in the function's place. Nothing here imports scipy or scikit-learn.
from sweepkit.analysis.boundary import counterexample, explain
from sweepkit.analysis.convergence import convergence
from sweepkit.analysis.distributions import distribution
from sweepkit.analysis.interactions import combinations, pairs
from sweepkit.analysis.intervals import anytime_interval, failure_interval
from sweepkit.analysis.islands import islands
from sweepkit.analysis.kinds import kinds
from sweepkit.analysis.outcomes import UnanswerableError
from sweepkit.analysis.rates import failure_rate, held_up, rate
from sweepkit.analysis.refined import refined_rate, volumes
from sweepkit.analysis.regions import Regions, regions
from sweepkit.analysis.robustness import robustness
from sweepkit.analysis.safe import safe_box
from sweepkit.analysis.sensitivity import importance
from sweepkit.analysis.suggest import Suggestion, suggest
from sweepkit.analysis.table import Table, table

__all__ = [
    "Regions",
    "Suggestion",
    "Table",
    "UnanswerableError",
    "anytime_interval",
    "combinations",
    "convergence",
    "counterexample",
    "distribution",
    "explain",
    "failure_interval",
    "failure_rate",
    "held_up",
    "importance",
    "islands",
    "kinds",
    "pairs",
    "rate",
    "refined_rate",
    "regions",
    "robustness",
    "safe_box",
    "suggest",
    "table",
    "volumes",
]

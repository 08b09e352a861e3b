"""What an interval rests on."""

from __future__ import annotations

__all__ = [
    "BASES",
    "BOUNDS",
    "CENSUS",
    "CLUSTERS",
    "MEANINGS",
    "NOTHING",
    "PROGRESS",
    "REFINED",
    "REPLICATES",
    "SAMPLE",
]

BASES = (
    "nothing has run",
    "census",
    "sample",
    "replicates",
    "clusters",
    "in progress",
    "bounds",
    "refined",
)
"""What an interval rests on; `MEANINGS` has each in a sentence. Unknown runs widen each to the
worst case."""
MEANINGS = {
    "nothing has run": "no bound is known",
    "census": "every point of the grid has run, so there is no sampling error",
    "sample": "independent runs, Wilson",
    "replicates": "the points are all there are and only their runs scatter at random, Wilson with "
    "the runs these are worth",
    "clusters": "points were drawn and runs of one point are alike, Clopper and Pearson with the "
    "runs they are worth",
    "in progress": "rate and bounds are of all runs declared, told by those of the random coarse "
    "pass and valid at every look; n_failed of n_run is the share of what has finished",
    "bounds": "unfinished in no random order, so only what unfinished runs could still change",
    "refined": "weighted by the share of the space that each run stands for; bounds by cells of "
    "the space whose runs do not agree, widened by the replicates' scatter; 0 to 1 where there are "
    "no cells",
}
NOTHING, CENSUS, SAMPLE, REPLICATES, CLUSTERS, PROGRESS, BOUNDS, REFINED = range(len(BASES))

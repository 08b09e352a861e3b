"""Which job gets the next free worker: pure functions of how the jobs stand.

A policy is given the jobs that could use one more worker, as arrays with one entry for each, and
returns the position of the one that gets it. It decides nothing else, so the same function serves
a pool of real workers and a simulation of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Policy",
    "Standing",
    "checked_choice",
    "checked_policy",
    "checked_priority",
    "checked_weight",
    "fair_finish",
    "fair_share",
    "fair_shares",
    "first_come",
    "shortest_first",
]

LAG = 10.0
"""Worker-seconds that a job may be behind its fair share before it gets one worker more."""

WEIGHTS = (1e-6, 1e6)
MOST_PRIORITY = 10**9

TIGHT = 0.5
"""A deadline is urgent once the work takes this share of what is left until then."""


@dataclass(frozen=True)
class Standing:
    """How the jobs stand that could use one more worker; arrays with one entry for each.

    Attributes
    ----------
    weight : array of float
        By which jobs share: twice the weight, twice the workers.
    priority : array of int
        Jobs of a higher one go first, whatever their weight.
    arrived : array of float
        When they came, in seconds of one clock.
    workers : array of int
        Workers they hold now.
    most : array of int
        Workers they could use at most.
    held : array of float
        Worker-seconds they have held.
    entitled : array of float
        Worker-seconds they would have held had the pool always been shared by weight.
    left : array of float
        Worker-seconds they still need, as far as is known; NaN until a first run has finished.
    deadline : array of float
        Seconds until they should be done, infinite without.
    """

    weight: NDArray[np.float64]
    priority: NDArray[np.int64]
    arrived: NDArray[np.float64]
    workers: NDArray[np.int64]
    most: NDArray[np.int64]
    held: NDArray[np.float64]
    entitled: NDArray[np.float64]
    left: NDArray[np.float64]
    deadline: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.weight)


Policy: TypeAlias = Callable[[Standing], int]


def checked_weight(given: object) -> float:
    """A weight, once it is known to be one.

    Raises
    ------
    TypeError, ValueError
        If it is no number between 1e-6 and 1e6: beyond, shares are not told from none or all.
    """
    number = isinstance(given, int | float | np.integer | np.floating)
    if not number or isinstance(given, bool):
        raise TypeError(f"weight is {given!r}; give a number, as 2 for twice the share")
    if not WEIGHTS[0] <= given <= WEIGHTS[1]:  # type: ignore[operator]
        raise ValueError(
            f"weight is {given!r}; give a number between {WEIGHTS[0]:g} and {WEIGHTS[1]:g} "
            "(priority= sends a job before all others)"
        )
    return float(given)  # type: ignore[arg-type]


def checked_priority(given: object) -> int:
    """A priority, once it is known to be one.

    Raises
    ------
    TypeError, ValueError
        If it is no whole number of at most 1e9 either way.
    """
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise TypeError(f"priority is {given!r}; give a whole number, higher ones go first")
    if abs(int(given)) > MOST_PRIORITY:
        raise ValueError(
            f"priority is {given}; give a whole number between -{MOST_PRIORITY} and {MOST_PRIORITY}"
        )
    return int(given)


def checked_policy(policy: Any) -> Policy:
    """A policy, once it has named one of two jobs that stand alike.

    Raises
    ------
    TypeError, ValueError
        If it cannot be called with a Standing, or returns anything else.
    """
    if not callable(policy):
        raise TypeError(
            f"policy is {policy!r}; give a function of a Standing that returns the position of "
            "the job that gets the next worker, such as sweepkit.policies.fair_share"
        )
    checked_choice(policy(example(left=[1.0, 2.0])), 2)
    return policy  # type: ignore[no-any-return]


def checked_choice(chosen: object, count: int) -> int:
    """What a policy returned for so many jobs, once it is known to be one of them.

    Raises
    ------
    ValueError
        If it is not.
    """
    whole = isinstance(chosen, int | np.integer) and not isinstance(chosen, bool)
    if not whole or not 0 <= chosen < count:  # type: ignore[operator]
        raise ValueError(
            f"the policy returned {chosen!r} for {count} jobs; return the position of the one "
            "that gets the next worker"
        )
    return int(chosen)  # type: ignore[call-overload, no-any-return]


def first_come(jobs: Standing) -> int:
    """The job that came first.

    Examples
    --------
    >>> first_come(example(arrived=[3.0, 1.0, 2.0]))
    1
    """
    return _least(-jobs.priority, jobs.arrived)


def fair_share(jobs: Standing) -> int:
    """The job furthest behind its share by weight, in workers now and in held worker-seconds.

    Examples
    --------
    >>> fair_share(example(workers=[1, 1], weight=[1.0, 3.0]))
    1
    """
    return _least(-jobs.priority, _crowding(jobs), jobs.arrived)


def shortest_first(jobs: Standing) -> int:
    """The job with the least work left; one of unknown size is tried first, on one worker.

    Examples
    --------
    >>> shortest_first(example(left=[30.0, 20.0]))
    1
    """
    return _least(-jobs.priority, _left(jobs), jobs.arrived)


def fair_finish(jobs: Standing) -> int:
    """The job that fair sharing would finish first, and before it one whose deadline is near.

    Jobs are finished one after the other, short ones at once, in the order in which sharing by
    weight would finish them: so a long job cannot be passed for ever, as each second in which it
    is passed brings it forward. A job of unknown size is tried on one worker at once, and has what
    others leave until it is known. Jobs that sharing would have finished by now (their size was
    misjudged) share among themselves. A deadline is urgent when the work fills at least half of
    the time that is left, and given up when it fills more than all of it.

    References
    ----------
    E. J. Friedman and S. G. Henderson, SIGMETRICS 2003, 229-237 (fair sojourn protocol);
    M. Dell'Amico, D. Carra and P. Michiardi, IEEE Trans. Comput. 65 (2016), 2199-2212 (sizes that
    are not known exactly).

    Examples
    --------
    >>> fair_finish(example(left=[30.0, 20.0], entitled=[15.0, 0.0]))
    0
    >>> fair_finish(example(left=[30.0, 20.0], deadline=[40.0, np.inf]))
    0
    """
    left = _left(jobs)
    unfinished = np.maximum(jobs.held + left - jobs.entitled, 0.0) / jobs.weight
    needed = left / np.maximum(jobs.most, 1)
    urgent = (needed >= TIGHT * jobs.deadline) & (needed <= jobs.deadline)
    soon = np.where(urgent, jobs.deadline, np.inf)
    return _least(-jobs.priority, soon, unfinished, _crowding(jobs), jobs.arrived)


def fair_shares(
    weight: NDArray[np.float64], most: NDArray[Any], workers: int
) -> NDArray[np.float64]:
    """Workers of each job if all are shared by weight, and none gets more than it can use.

    Parameters
    ----------
    weight, most : array, shape (n,)
        Weight, and workers that it can use.
    workers : int
        In all.

    Returns
    -------
    array of float, shape (n,)
        In fractions of a worker.

    Examples
    --------
    >>> fair_shares(np.array([1.0, 1.0, 2.0]), np.array([1, 9, 9]), 8).round(2).tolist()
    [1.0, 2.33, 4.67]
    """
    if not len(weight):
        return np.zeros(0)
    level = most / weight  # a job is full once all have this much for each unit of weight
    order = np.argsort(level, kind="stable")
    full, heavy = most[order].astype(float), weight[order]
    before = np.concatenate([[0.0], np.cumsum(full)[:-1]])
    rest = np.cumsum(heavy[::-1])[::-1]
    reached = before + level[order] * rest >= workers
    if not reached.any():
        return most.astype(float)
    at = int(np.argmax(reached))
    shares: NDArray[np.float64] = np.minimum(most, weight * (workers - before[at]) / rest[at])
    return shares


def example(**arrays: Any) -> Standing:
    """Jobs that stand alike but for what is given; to try a policy by hand.

    Examples
    --------
    >>> len(example(left=[1.0, 2.0]))
    2
    """
    n = len(next(iter(arrays.values())))
    alike: dict[str, Any] = {
        "weight": np.ones(n),
        "priority": np.zeros(n, dtype=np.int64),
        "arrived": np.arange(float(n)),
        "workers": np.zeros(n, dtype=np.int64),
        "most": np.ones(n, dtype=np.int64),
        "held": np.zeros(n),
        "entitled": np.zeros(n),
        "left": np.ones(n),
        "deadline": np.full(n, np.inf),
    }
    return Standing(**{**alike, **{name: np.asarray(one) for name, one in arrays.items()}})


def _left(jobs: Standing) -> NDArray[np.float64]:
    """Work left; of unknown size none until there is one worker to try, and then no end."""
    unknown = np.where(jobs.workers == 0, 0.0, np.inf)
    return np.where(np.isnan(jobs.left), unknown, jobs.left)


def _crowding(jobs: Standing) -> NDArray[np.float64]:
    """Workers for each unit of weight, less what a job is behind."""
    crowding: NDArray[np.float64] = (
        jobs.workers + 1 - (jobs.entitled - jobs.held) / LAG
    ) / jobs.weight
    return crowding


def _least(*keys: NDArray[Any]) -> int:
    """Position of the least entry by the first key, of those by the second, and so on."""
    best = np.flatnonzero(keys[0] == keys[0].min())
    for key in keys[1:]:
        if len(best) == 1:
            break
        values = key[best]
        best = best[values == values.min()]
    return int(best[0])

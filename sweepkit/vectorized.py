"""A simulator that takes the parameters of many runs at once as arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

__all__ = ["CallCost", "Vectorized", "vectorized"]

MAX_BATCH = 16_384
"""Runs of one call unless told otherwise: their arrays fit into the caches of a core."""

CALL_SECONDS = 0.5
TAIL_SECONDS = 0.02
"""Toward the end batches grow short, so that no worker waits, but no shorter than this: much of a
call of few runs does not shrink with them."""
PROBE_SECONDS = 0.05
"""A call that takes longer tells what runs cost."""
GROWTH = 32


class Vectorized:
    """A function of arrays as a simulator; made by :func:`vectorized`.

    Attributes
    ----------
    function : callable
        Takes arrays, one entry a run, and returns outputs whose first dim is the runs'.
    max_batch : int
        Most runs of one call.
    """

    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], max_batch: int) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.max_batch = max_batch

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **values)

    def __reduce__(self) -> tuple[Any, ...]:
        return Vectorized, (self.function, self.max_batch)

    def __repr__(self) -> str:
        return f"sk.vectorized({self.function!r}, max_batch={self.max_batch})"


@overload
def vectorized(function: Callable[..., Any], /, *, max_batch: int = ...) -> Vectorized: ...


@overload
def vectorized(
    function: None = None, /, *, max_batch: int = ...
) -> Callable[[Callable[..., Any]], Vectorized]: ...


def vectorized(
    function: Callable[..., Any] | None = None, /, *, max_batch: int = MAX_BATCH
) -> Vectorized | Callable[[Callable[..., Any]], Vectorized]:
    """A function that computes many runs at once, from arrays to arrays, as a simulator.

    Parameters
    ----------
    function : callable
        Gets the parameters of a batch by name, one entry a run: arrays of shape (n,), vectors of
        shape (n, k), strings as arrays of objects, what labels stand for as a list; if it asks
        for them, ``seed`` (array of n seeds) and ``rng`` (list of n Generators: each run draws
        what it would draw alone). It returns outputs as any simulator may, a dict, dataclass,
        DataArray or Dataset, in which the first dim of each is the runs'. Padded outputs may come
        with an output ``<name>_length`` of n lengths, or as a list of n arrays.
    max_batch : int
        Most runs of one call; less where memory or a GPU ask for it.

    Returns
    -------
    Vectorized
        To be given to :class:`Sweep`. Without a function, a decorator.

    Notes
    -----
    Batches grow until a call takes about half a second. If a call raises, its batch is called
    again by halves until the run that raises is alone: it becomes the ``error``, the others are
    done. So it is with a time limit, which holds for one call, and with a call that ends its
    worker. A result of another length makes the runs of its batch ``invalid``. ``duration`` is a
    run's share of its call; what is printed stands in the log of the first run of its call.

    Bit for bit the results are the same only under the same batches, as sums and fused
    operations may be done in another order for arrays of another length; batches follow cost,
    number of workers and faults. Where that matters, say ``max_batch=1`` or give a scalar
    function.

    Examples
    --------
    >>> import numpy as np, sweepkit as sk
    >>> @sk.vectorized
    ... def fall(height, gravity):
    ...     return {"time": np.sqrt(2 * height / gravity)}
    >>> sk.Sweep(fall, sk.grid(height=[1.0, 2.0], gravity=[1.62, 9.81]))
    <sweepkit.Sweep 'fall': 4 runs (height: 2 x gravity: 2), 0 requirements>
    """
    if isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1:
        raise ValueError(f"max_batch is {max_batch!r}; give a whole number of at least 1")
    if function is None:
        return lambda one: vectorized(one, max_batch=max_batch)
    if not callable(function):
        raise TypeError(f"{function!r} is no function; give one that takes and returns arrays")
    if isinstance(function, Vectorized):
        raise TypeError("the function is vectorized already; say max_batch there")
    return Vectorized(function, max_batch)


@dataclass(frozen=True)
class CallCost:
    """What calls took so far, from which the size of the next batch follows.

    Attributes
    ----------
    runs : int
        Runs of the largest call so far.
    seconds : float
        What it took; of several as large, the latest.
    """

    runs: int = 0
    seconds: float = math.nan

    def after(self, runs: int, seconds: float) -> CallCost:
        """The cost once one more batch has come back; smaller ones tell nothing new."""
        return CallCost(runs, seconds) if runs >= self.runs else self

    def next(self, left: int, workers: int, most: int) -> int:
        """Runs of the next batch: more and more, until a call takes about half a second.

        Much of a call of few runs does not grow with them, so its cost per run tells little.
        """
        if not self.runs:
            return 1
        seconds = max(self.seconds, 1e-6)
        factor = min(CALL_SECONDS / seconds, GROWTH)
        share = max(left // (2 * workers), 64, self.runs * TAIL_SECONDS / seconds)
        return int(max(1, min(self.runs * factor, share, most)))

    def probing(self, most: int) -> bool:
        """Whether calls are so quick that their size is not found yet."""
        return self.runs < most and not self.seconds > PROBE_SECONDS

"""What runs must have for a question to have an answer."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sweepkit.analysis.coding import Coded
from sweepkit.analysis.outcomes import FAILED, PASSED, Errors, UnanswerableError
from sweepkit.analysis.table import Table

__all__ = ["endless", "measured_ranges", "passed_and_failed", "placed_runs"]


def passed_and_failed(t: Table, errors: Errors = "apart", *, least: int = 1) -> NDArray[np.int8]:
    """The outcome of each run, where at least `least` passed and `least` failed.

    Raises
    ------
    UnanswerableError
        Where they did not.
    """
    outcome = t.counted(errors)
    passed, failed = int((outcome == PASSED).sum()), int((outcome == FAILED).sum())
    if passed + failed == 0:
        status = ", ".join(
            f"{n} {word}"
            for n, word in zip(
                np.bincount(outcome, minlength=5),
                ("", "", "pending", "errored", "skipped"),
                strict=True,
            )
            if n
        )
        raise UnanswerableError(
            f"no run has passed or failed yet ({status}); errors='fail' counts errors as failures"
        )
    if min(passed, failed) < least:
        kind, n = ("failed", failed) if failed < passed else ("passed", passed)
        raise UnanswerableError(
            f"{n} of {passed + failed} finished runs {kind}; at least {least} must have, and as "
            "many of the other kind, for anything to tell them apart"
        )
    return outcome


def endless(t: Table, parameters: Iterable[Coded]) -> str:
    """Which parameter has values that lie nowhere, in words; empty where none has.

    A sweep declares none, but a Dataset from elsewhere may have holes.
    """
    for p in parameters:
        if p.kind != "category" and p.kind != "boolean":
            n = int((~np.isfinite(t.raw(p.name))).sum())
            if n:
                return f"{p.name!r} is NaN or infinite in {n} of {t.n} runs"
    return ""


def placed_runs(t: Table, parameters: Iterable[Coded]) -> None:
    """See that every run lies somewhere.

    Raises
    ------
    UnanswerableError
        If a value is not finite, so that distances along its parameter are none.
    """
    why = endless(t, parameters)
    if why:
        name = why.split("'")[1]
        raise UnanswerableError(
            f"{why}, from which no distance is known; leave these out first: "
            f"ds.where(np.isfinite(ds[{name!r}]), drop=True)"
        )


def measured_ranges(t: Table, parameters: Iterable[Coded]) -> None:
    """See that the ends of every parameter are a number apart.

    Raises
    ------
    UnanswerableError
        If they are farther apart than the largest number, so that no step along it is known.
    """
    for p in parameters:
        if p.kind != "number":
            continue
        values = t.raw(p.name)
        low, high = float(values.min()), float(values.max())
        if not math.isfinite(high - low):
            raise UnanswerableError(
                f"{p.name!r} goes from {low:.4g} to {high:.4g}, which is farther than the largest "
                f"number ({sys.float_info.max:.4g}), so no step along it is known; give it in a "
                "larger unit"
            )

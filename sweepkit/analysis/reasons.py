"""Arguments checked, and reasons for what is not a number."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["check_share", "check_shares", "reasons", "whole_number"]


def reasons(columns: Mapping[str, Any] | pd.DataFrame, why: Mapping[str, str]) -> str:
    """Why columns hold NaN, of those that do; empty where none does."""
    said = [
        f"{name} is NaN {why[name]}"
        for name in why
        if name in columns and bool(np.any(pd.isna(np.asarray(columns[name]))))
    ]
    return "; ".join(said)


def whole_number(name: str, value: Any, least: int | None = 1) -> int:
    """A count that someone gave.

    Raises
    ------
    ValueError
        If it is no whole number, or less than `least`.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
    if not whole or (least is not None and value < least):
        limit = "" if least is None else f", at least {least}"
        raise ValueError(f"{name}={value!r} must be a whole number{limit}")
    return int(value)


def check_share(name: str, value: Any, *, ends: bool = False) -> float:
    """A share that someone gave, between 0 and 1; with `ends` these are allowed.

    Raises
    ------
    ValueError
        If it is none.
    """
    real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    if not real or not (0 <= value <= 1 if ends else 0 < value < 1):
        raise ValueError(f"{name}={value!r} must be a number between 0 and 1")
    return float(value)


def check_shares(name: str, values: Sequence[Any]) -> NDArray[np.float64]:
    """Shares that someone gave, each between 0 and 1.

    Raises
    ------
    ValueError
        If one is none, or they are no sequence.
    """
    if isinstance(values, str) or not np.iterable(values):
        raise ValueError(f"{name}={values!r} must be a list of numbers between 0 and 1")
    return np.array(
        [check_share(f"{name}[{k}]", one) for k, one in enumerate(values)], dtype=np.float64
    )

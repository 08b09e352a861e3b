"""Signals that ask a session to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["listening"]


REPLACED = ("dask_jobqueue.runner",)
"""Modules whose handlers, which leave Python at once, count as none: importing sets them."""


@contextmanager
def listening(wish: Callable[[int], None]) -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into a wish to stop, where this thread gets them.

    SIGTERM and SIGHUP are raised again at the end.

    Parameters
    ----------
    wish : callable
        Called with the number of each signal, in the handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended_by: int | None = None

    def heard(number: int, _: object) -> None:
        nonlocal ended_by
        if number != signal.SIGINT:
            ended_by = number
        wish(number)

    before = {}
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        handler = signal.getsignal(number)
        if handler is usual or getattr(handler, "__module__", "") in REPLACED:
            before[number] = signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if ended_by is not None:
            signal.raise_signal(ended_by)

"""Questions that take their time, answered one by one on a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["Asides"]

Answer = Callable[[str, Mapping[str, Any]], None]

IDLE_SECONDS = 30.0
"""A thread that nobody has asked for so long ends; the next question starts another."""


class Asides:
    """Questions by part, of which the last asker of each is answered.

    Parameters
    ----------
    answer : callable
        Takes a part and the message that asked for it; it must not raise.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._wake = threading.Condition()
        self._worker: threading.Thread | None = None
        self._closed = False

    def ask(self, parts: Iterable[str], message: Mapping[str, Any]) -> None:
        """Have parts answered soon."""
        with self._wake:
            for part in parts:
                self._waiting[part] = message
            if self._worker is None or not self._worker.is_alive():
                self._worker = threading.Thread(
                    target=self._work, name="sweepkit explorer", daemon=True
                )
                self._worker.start()
            self._wake.notify_all()

    def close(self) -> None:
        """Answer no more."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _work(self) -> None:
        while True:
            with self._wake:
                # What is asked in the moment that the time is up is seen here, and not lost.
                asked = self._wake.wait_for(lambda: self._waiting or self._closed, IDLE_SECONDS)
                if self._closed or not asked:
                    self._worker = None
                    return
                part = next(iter(self._waiting))
                message = self._waiting.pop(part)
            self.answer(part, message)

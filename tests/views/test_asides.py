"""Questions that take their time are answered on a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from sweepkit.views.asides import Asides
from tests.waiting import LIMIT


def test_the_last_asker_of_each_part_is_answered_and_nobody_waits_for_it() -> None:
    begun, go_on = threading.Event(), threading.Event()
    told: queue.Queue[tuple[str, Any]] = queue.Queue()

    def answer(part: str, message: Mapping[str, Any]) -> None:
        begun.set()
        assert go_on.wait(LIMIT)
        told.put((part, message["key"]))

    asides = Asides(answer)
    asides.ask(["pairs"], {"key": 1})
    assert begun.wait(LIMIT)
    for key in (2, 3):  # while the first is answered
        asides.ask(["pairs", "kinds"], {"key": key})
    go_on.set()
    assert [told.get(timeout=LIMIT) for _ in range(3)] == [("pairs", 1), ("pairs", 3), ("kinds", 3)]
    asides.close()


def test_what_is_closed_ends_its_thread_and_an_idle_one_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: queue.Queue[threading.Thread] = queue.Queue()
    monkeypatch.setattr("sweepkit.views.asides.IDLE_SECONDS", 0.01)
    asides = Asides(lambda part, message: threads.put(threading.current_thread()))
    for _ in range(2):
        asides.ask(["pairs"], {})
        one = threads.get(timeout=LIMIT)
        one.join(LIMIT)  # of itself, as nobody asks
        assert not one.is_alive()
    monkeypatch.setattr("sweepkit.views.asides.IDLE_SECONDS", LIMIT)
    asides.ask(["pairs"], {})
    one = threads.get(timeout=LIMIT)
    asides.close()
    one.join(LIMIT)
    assert not one.is_alive()


def test_what_is_asked_while_the_thread_gives_up_waiting_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweepkit.views.asides.IDLE_SECONDS", 2e-5)
    told: queue.Queue[int] = queue.Queue()
    asides = Asides(lambda part, message: told.put(message["key"]))
    for key in range(300):
        asides.ask(["pairs"], {"key": key})
        assert told.get(timeout=LIMIT) == key
    asides.close()

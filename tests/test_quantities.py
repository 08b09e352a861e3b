"""Times, core time and memory, as text and from text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from sweepkit.quantities import (
    bytes_text,
    core_seconds,
    core_text,
    moment,
    moment_text,
    range_text,
    seconds,
    time_text,
)

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 5, 4, 22, 30, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90 s", 90),
        ("1 h 30 min", 5400),
        ("2h", 7200),
        ("1.5 days", 129600),
        ("2 hours", 7200),
        ("250 ms", 0.25),
        (timedelta(minutes=3), 180),
    ],
)
def test_times_are_read_in_any_usual_form(given: Any, expected: float) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize("given", ["", "soon", "5", "5 fortnights", 0, -3, True, None, "1 h x"])
def test_what_is_no_time_is_refused_with_what_to_give(given: Any) -> None:
    with pytest.raises(ValueError, match=r"duration is .* give seconds above 0"):
        seconds(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("4 core-hours", 14400), ("90 core-min", 5400), ("30 min", 1800), ("2 core hours", 7200)],
)
def test_a_budget_is_core_time(given: str, expected: float) -> None:
    assert core_seconds(given) == expected


@pytest.mark.parametrize("given", ["lots", "4 cores", "-1 h", 0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"budget is .* '4 core-hours'"):
        core_seconds(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("07:00", datetime(2026, 5, 5, 7, 0, tzinfo=ZONE)),
        ("22:30", datetime(2026, 5, 5, 22, 30, tzinfo=ZONE)),
        ("23:15:30", datetime(2026, 5, 4, 23, 15, 30, tzinfo=ZONE)),
        ("2 h", datetime(2026, 5, 5, 0, 30, tzinfo=ZONE)),
        ("2026-05-04T21:00:00+00:00", datetime(2026, 5, 4, 21, 0, tzinfo=UTC)),
        (datetime(2026, 5, 4, 21, 0, tzinfo=UTC), datetime(2026, 5, 4, 21, 0, tzinfo=UTC)),
        (timedelta(minutes=5), datetime(2026, 5, 4, 22, 35, tzinfo=ZONE)),
    ],
)
def test_a_deadline_is_the_next_such_time(given: Any, expected: datetime) -> None:
    assert moment(given, NOW) == expected


def test_a_datetime_without_a_zone_is_local() -> None:
    naive = datetime.now() + timedelta(hours=1)
    assert moment(naive) == naive.astimezone()
    assert moment(naive.isoformat()) == naive.astimezone()


def test_a_deadline_that_is_past_or_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is past: it is 2026-05-04 22:30:00; give a later one"):
        moment("2026-05-04T20:29:59+00:00", NOW)
    for given in ("tomorrow", "25:00", 7, ""):
        with pytest.raises(ValueError, match=r"deadline is .* such as '07:00'"):
            moment(given, NOW)


def test_moments_are_shown_with_their_date_unless_it_is_today() -> None:
    assert moment_text(datetime(2026, 5, 4, 23, 15, tzinfo=ZONE), NOW) == "23:15"
    assert moment_text(datetime(2026, 5, 5, 7, 0, tzinfo=ZONE), NOW) == "2026-05-05 07:00"


def test_quantities_are_shown_to_two_digits_with_their_unit() -> None:
    shown = [time_text(t) for t in (0, 2e-6, 0.0031, 0.25, 3.14, 98, 250, 3600, 7800, 2e6)]
    assert shown == [
        "0 s",
        "2 µs",
        "3.1 ms",
        "250 ms",
        "3.1 s",
        "98 s",
        "4 min 10 s",
        "1 h",
        "2 h 10 min",
        "23.1 days",
    ]
    assert [core_text(t) for t in (9.5, 600, 14400)] == [
        "9.5 core-s",
        "10 core-min",
        "4 core-hours",
    ]
    assert [bytes_text(n) for n in (12, 1.4e6, 2e9)] == ["12 B", "1.4 MB", "2 GB"]
    assert {time_text(float("nan")), core_text(float("nan")), bytes_text(float("nan"))} == {"?"}


def test_ranges_name_a_common_unit_once() -> None:
    assert range_text("4 s", "6.4 s") == "4 to 6.4 s"
    assert range_text("800 ms", "2 s") == "800 ms to 2 s"
    assert range_text("3 s", "3 s") == "3 s"
    assert range_text("13 min", "1 h 1 min") == "13 min to 1 h 1 min"

"""Times, core time and memory as people write them: read from text and shown as text."""

from __future__ import annotations

import math
import re
import reprlib
from datetime import datetime, time, timedelta, tzinfo

__all__ = [
    "bytes_text",
    "core_seconds",
    "core_text",
    "moment",
    "moment_text",
    "range_text",
    "seconds",
    "time_text",
]

UNITS = {
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
}
MOST_SECONDS = 1e15
"""Longest span that can be meant."""
PIECE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([a-z]+)\s*", re.IGNORECASE)
CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")


def seconds(given: object, word: str = "duration") -> float:
    """A span of time in seconds.

    Parameters
    ----------
    given : float, str or timedelta
        Seconds, or text such as "30 min" or "1 h 30 min".
    word : str
        What it is, for the error.

    Raises
    ------
    ValueError
        If it is no time above 0.

    Examples
    --------
    >>> seconds("1 h 30 min")
    5400.0
    """
    found = _seconds(given)
    if found is None or not 0 < found <= MOST_SECONDS:
        raise ValueError(
            f"{word} is {reprlib.repr(given)}; give seconds above 0, a timedelta, or text such as "
            f"'30 min' or '1 h 30 min', of at most {MOST_SECONDS:g} s"
        )
    return found


def _seconds(given: object) -> float | None:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, str):
        return _spelt(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return float(given) if abs(given) <= MOST_SECONDS else math.inf


def _spelt(text: str) -> float | None:
    at, total = 0, 0.0
    while at < len(text):
        piece = PIECE.match(text, at)
        if piece is None:
            return None
        unit = piece[2].lower()
        scale = UNITS.get(unit) or (UNITS.get(unit[:-1]) if unit.endswith("s") else None)
        if scale is None:
            return None
        total += float(piece[1]) * scale
        at = piece.end()
    return total if at else None


def core_seconds(given: object) -> float:
    """A budget of compute in core-seconds: one core held for one second is one.

    Parameters
    ----------
    given : float, str or timedelta
        Core-seconds, or text such as "4 core-hours" or "30 min".

    Raises
    ------
    ValueError
        If it is no budget above 0.

    Examples
    --------
    >>> core_seconds("4 core-hours")
    14400.0
    """
    plain = re.sub(r"\bcore[- ]", "", given) if isinstance(given, str) else given
    found = _seconds(plain)
    if found is None or not 0 < found <= MOST_SECONDS:
        raise ValueError(
            f"budget is {reprlib.repr(given)}; give core-seconds above 0, a timedelta, or text "
            f"such as '4 core-hours' or '30 min', of at most {MOST_SECONDS:g} core-seconds"
        )
    return found


def moment(given: object, now: datetime | None = None) -> datetime:
    """A point in time that is to come, in local time.

    Parameters
    ----------
    given : str or datetime
        The next such local time ("07:00"), an ISO date and time, a time from now ("2 h"), or a
        datetime, in local time if it has no zone.
    now : datetime, optional
        With a zone; the present by default.

    Raises
    ------
    ValueError
        If it is past, or none of these.
    """
    present = now or datetime.now().astimezone()
    try:
        found = _moment(given, present, present.tzinfo if now else None)
    except OverflowError:
        raise ValueError(
            f"deadline is {given!r}, further off than a calendar reaches; give an earlier one, or "
            "none"
        ) from None
    if found is None:
        raise ValueError(
            f"deadline is {given!r}; give a time of day such as '07:00', an ISO date and time, a "
            "time from now such as '2 h', or a datetime"
        )
    if found <= present:
        raise ValueError(
            f"deadline {given!r} is past: it is {present:%Y-%m-%d %H:%M:%S}; give a later one"
        )
    return found


def _moment(given: object, now: datetime, zone: tzinfo | None) -> datetime | None:
    """The moment meant, by the clock of a zone or else by local time, whatever it is by then."""
    if isinstance(given, datetime):
        return given.astimezone()  # an OverflowError where a zone takes it beyond the calendar
    if isinstance(given, timedelta):
        return now + given
    if not isinstance(given, str):
        return None
    text = given.strip()
    clock = CLOCK.fullmatch(text)
    if clock is not None:
        at = time(int(clock[1]), int(clock[2]), int(clock[3] or 0))
        wall = now.replace(tzinfo=None)
        today = datetime.combine(wall.date(), at)
        chosen = today if today > wall else today + timedelta(days=1)
        return chosen.replace(tzinfo=zone) if zone else chosen.astimezone()
    span = _spelt(text)
    if span is not None:
        return now + timedelta(seconds=span)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return None


def moment_text(at: datetime, now: datetime | None = None) -> str:
    """A point in time for people: with its date unless that is today."""
    today = (now or datetime.now().astimezone()).date()
    clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
    return clock if at.date() == today else f"{at:%Y-%m-%d} {clock}"


def time_text(span: float) -> str:
    """A span of time in seconds, for people: 3.1 ms, 12 s, 4 min 10 s, 2 h 10 min."""
    if math.isnan(span):
        return "?"
    if math.isinf(span):
        return "no end"
    for scale, unit in ((1e-6, "µs"), (1e-3, "ms")):
        if span < 999.5 * scale:
            return f"{_short(span / scale)} {unit}" if span else "0 s"
    if span < 119.5:
        return f"{_short(span)} s"
    if span < 48 * 3600 - 30:
        minutes, rest = divmod(round(span), 60)
        if minutes < 10:
            return f"{minutes} min {rest} s" if rest else f"{minutes} min"
        hours, minutes = divmod(round(span / 60), 60)
        if not hours:
            return f"{minutes} min"
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{span / 86400:,.1f} days"


def core_text(span: float) -> str:
    """Core-seconds for people: core-seconds, core-minutes or core-hours."""
    if math.isnan(span):
        return "?"
    for scale, unit in ((3600.0, "core-hours"), (60.0, "core-min")):
        if span >= 1.5 * scale:
            return f"{_short(span / scale)} {unit}"
    return f"{_short(span)} core-s"


def bytes_text(count: float) -> str:
    """Memory for people: 120 kB, 1.4 MB."""
    if math.isnan(count):
        return "?"
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 0.9995 * 10**power:
            return f"{_short(count / 10**power)} {unit}"
    return f"{count:.0f} B"


def range_text(low: str, high: str) -> str:
    """Two numbers with units as a range; the unit once if it is the same."""
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    _, _, other = high.partition(" ")
    return f"{number if unit == other else low} to {high}"


def _short(number: float) -> str:
    """A number to two digits, or whole if it has more."""
    if number == 0 or number >= 99.5:
        return f"{number:,.0f}"
    return f"{number:.2g}" if number < 9.95 else f"{number:.0f}"

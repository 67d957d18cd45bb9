"""One line of a chat log, whichever program wrote it, and the clock that resolves times without a date."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Literal, NamedTuple

LineKind = Literal["message", "action", "system"]
"""A user's message, a user's action (`/me`), or a report of the chat room itself (joins, topics, unparsed lines)."""

HALF_DAY, DAY = 43_200, 86_400
MAX_CLOCK_SKEW = 600
"""Seconds a clock may go back without it being the next day: servers disagree, and lines arrive out of order."""

_DATE = re.compile(r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)(?!\d)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. Every line of the source becomes one, so that line numbers in annotations stay valid."""

    number: int
    """Index in the log, from 0."""
    time: float
    """Seconds since 1970 if the log has dates, otherwise since the midnight before its first line."""
    nick: str
    """The user; empty for system lines."""
    text: str
    kind: LineKind = "message"
    reply_to: int | None = None
    """Number of the line this one replies to, if the source records it (Slack's threads, Discord's replies)."""

    @property
    def is_utterance(self) -> bool:
        """Whether a user wrote the line."""
        return self.kind != "system"


@dataclass(frozen=True, slots=True)
class Log:
    """The lines of one room on one day (or of one file, if the log has no dates)."""

    name: str
    """Unique among the logs read together; the sources of turns are `name:number`."""
    room: str
    lines: tuple[LogLine, ...]
    day: date | None = None


class Timestamp(NamedTuple):
    """The time a line gives; the day is None where only the time of day is written."""

    hour: int
    minute: int
    second: int = 0
    day: date | None = None


class Clock:
    """Turns timestamps into seconds that never go back by more than `MAX_CLOCK_SKEW`.

    Old logs count hours from 1 to 12 without AM or PM; `twelve_hour` says that this is one of them.

    >>> clock = Clock(twelve_hour=False)
    >>> [clock.seconds(Timestamp(23, 59)), clock.seconds(Timestamp(0, 1))]
    [86340.0, 86460.0]
    """

    def __init__(self, day: date | None = None, *, twelve_hour: bool) -> None:
        self._midnight = midnight(day) if day else 0.0
        self._period = HALF_DAY if twelve_hour else DAY
        self.now = self._midnight

    def start_day(self, day: date) -> None:
        """The log announces a new day."""
        self._midnight = self.now = midnight(day)

    def seconds(self, timestamp: Timestamp) -> float:
        """The time of the next line in seconds."""
        if timestamp.day is not None:
            self._midnight = midnight(timestamp.day)
        moment = self._midnight + timestamp.hour * 3600 + timestamp.minute * 60 + timestamp.second
        if timestamp.day is None:
            behind = max(0.0, self.now - MAX_CLOCK_SKEW - moment)
            later = math.ceil(behind / self._period) * self._period
            self._midnight, moment = self._midnight + later, moment + later
        self.now = max(self.now, moment)
        return moment


def is_twelve_hour(hours: Iterable[int]) -> bool:
    """Whether a log's hours are those of a 12-hour clock: all from 1 to 12, and they wrap at least once.

    >>> is_twelve_hour([11, 12, 1]), is_twelve_hour([9, 10, 11]), is_twelve_hour([11, 13, 1])
    (True, False, False)
    """
    hours = list(hours)
    wraps = any(later < earlier for earlier, later in pairwise(hours))
    return wraps and all(1 <= hour <= 12 for hour in hours)


def day_of(moment: float) -> date:
    """The day of a moment, in UTC; beyond what a calendar holds, its first or last day.

    >>> day_of(0.0), day_of(1e300)
    (datetime.date(1970, 1, 1), datetime.date(9999, 12, 31))
    """
    try:
        return datetime.fromtimestamp(moment, UTC).date()
    except (ValueError, OverflowError, OSError):
        return date.max if moment > 0 else date.min


def midnight(day: date) -> float:
    """Seconds since 1970 at which the day begins, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def date_in_name(name: str) -> date | None:
    """The date in a file's name, if it has one.

    >>> date_in_name("2004-11-15_03.raw.txt"), date_in_name("room.log")
    (datetime.date(2004, 11, 15), None)
    """
    for match in _DATE.finditer(name):
        try:
            return date(int(match[1]), int(match[2]), int(match[3]))
        except ValueError:
            continue
    return None

"""One line of a chat room, whatever wrote the log, and the clock that makes sense of times without a date."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Literal, NamedTuple

Kind = Literal["message", "action", "system"]
"""Somebody spoke, somebody did something (`/me`), or the room itself reported (joins, topics, what nobody said)."""

HALF_DAY, DAY = 43_200, 86_400
BACKWARDS = 600
"""Seconds a clock may go back without it being another day: servers disagree, and lines arrive out of order."""

_DATE = re.compile(r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)(?!\d)")


@dataclass(frozen=True, slots=True)
class RoomLine:
    """A line of a log. Every line of the source is one, so that numbers (and hand-made links) stay true."""

    number: int
    """Place in the log, from 0."""
    time: float
    """Seconds since 1970 where the log tells the date, else since the midnight before its first line."""
    nick: str
    """Who said or did it; empty for system lines."""
    text: str
    kind: Kind = "message"
    answers: int | None = None
    """Number of the line it answers, where the source itself says so (threads of Slack, replies of Discord)."""

    @property
    def said(self) -> bool:
        """Whether a person stands behind the line."""
        return self.kind != "system"


@dataclass(frozen=True, slots=True)
class Log:
    """The lines of one room on one day (or of one file, where the log tells no dates)."""

    name: str
    """Unique among the logs read together; sources of turns are `name:number`."""
    room: str
    lines: tuple[RoomLine, ...]
    day: date | None = None


class Stamp(NamedTuple):
    """What a line says of its time; parts it leaves out are None."""

    hour: int
    minute: int
    second: int = 0
    day: date | None = None


class Clock:
    """Turns stamps into seconds that do not run backwards by more than a little.

    Old logs count hours from 1 to 12 without saying which half of the day; `twelve` tells that this is one of them.

    >>> clock = Clock(twelve=False)
    >>> [clock.seconds(Stamp(23, 59)), clock.seconds(Stamp(0, 1))]
    [86340.0, 86460.0]
    """

    def __init__(self, day: date | None = None, *, twelve: bool) -> None:
        self._midnight = midnight(day) if day else 0.0
        self._step = HALF_DAY if twelve else DAY
        self.now = self._midnight

    def new_day(self, day: date) -> None:
        """The log says which day begins."""
        self._midnight = self.now = midnight(day)

    def seconds(self, stamp: Stamp) -> float:
        """The moment of the next line."""
        if stamp.day is not None:
            self._midnight = midnight(stamp.day)
        moment = self._midnight + stamp.hour * 3600 + stamp.minute * 60 + stamp.second
        if stamp.day is None:
            while moment < self.now - BACKWARDS:
                self._midnight += self._step
                moment += self._step
        self.now = max(self.now, moment)
        return moment


def counts_to_twelve(hours: Iterable[int]) -> bool:
    """Whether a log's hours are those of a 12-hour clock: all from 1 to 12, and they wrap at least once.

    >>> counts_to_twelve([11, 12, 1]), counts_to_twelve([9, 10, 11]), counts_to_twelve([11, 13, 1])
    (True, False, False)
    """
    seen = list(hours)
    wraps = any(later < earlier for earlier, later in pairwise(seen))
    return wraps and all(1 <= hour <= 12 for hour in seen)


def midnight(day: date) -> float:
    """Seconds since 1970 at which the day begins, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def day_in(name: str) -> date | None:
    """The date in a file's name, if it has one.

    >>> day_in("2004-11-15_03.raw.txt"), day_in("room.log")
    (datetime.date(2004, 11, 15), None)
    """
    for found in _DATE.finditer(name):
        try:
            return date(int(found[1]), int(found[2]), int(found[3]))
        except ValueError:
            continue
    return None

"""Logs as text: what the lines of each kind of log look like, one pure parser for all, and telling the kinds apart.

A format is four patterns. What none of them fits is a system line, so a log keeps its line numbers whatever stands in
it; a log is of the format whose patterns know most of its lines.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from tertulia.core.errors import DataError, UnknownName
from tertulia.core.text import clean
from tertulia.corpus.rooms.line import Clock, Kind, RoomLine, Stamp, counts_to_twelve

_TIME = r"(?P<h>\d\d?):(?P<m>\d\d)(?::(?P<s>\d\d)(?:\.\d+)?)?"
_DAY = r"(?P<day>\d{4}-\d\d-\d\d)"
_NICK = r"[ @+%&~!]?(?P<nick>[^\s<>]+)"
_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A way to write logs down."""

    name: str
    message: re.Pattern[str]
    """Groups nick and text, and of the time what the line has: day, h, m, s."""
    action: re.Pattern[str]
    system: re.Pattern[str]
    day_change: re.Pattern[str] = _NEVER
    """Group date: a line that tells which day begins."""
    date_form: str = ""
    """How that date is written (strptime); the locale's names of months must be English."""


def _format(name: str, message: str, action: str, system: str, day_change: str = "", date_form: str = "") -> LogFormat:
    change = re.compile(day_change) if day_change else _NEVER
    return LogFormat(name, re.compile(message), re.compile(action), re.compile(system), change, date_form)


_STAMP = rf"(?:\[?(?:{_DAY}[T ])?{_TIME}(?:Z|[+-]\d\d:?\d\d)?\]?\s+)?"
FORMATS = (
    _format(
        "ubuntu",
        message=rf"^\[{_TIME}\] <{_NICK}> ?(?P<text>.*)$",
        action=rf"^\[{_TIME}\]\s+\* (?P<nick>\S+) ?(?P<text>.*)$",
        system=r"^=== ",
    ),
    _format(
        "irssi",
        message=rf"^{_TIME} <{_NICK}> ?(?P<text>.*)$",
        action=rf"^{_TIME}\s+\* (?P<nick>\S+) ?(?P<text>.*)$",
        system=rf"^{_TIME} -|^--- ",
        day_change=r"^--- (?:Day changed|Log opened) \w{3} (?P<date>\w{3} \d\d? (?:[\d:]{8} )?\d{4})",
        date_form="%b %d %Y",
    ),
    _format(
        "weechat",
        message=rf"^{_DAY} {_TIME}\t(?!(?:-->|<--|--|=!=| ?\*)\t){_NICK}\t(?P<text>.*)$",
        action=rf"^{_DAY} {_TIME}\t ?\*\t(?P<nick>\S+) ?(?P<text>.*)$",
        system=rf"^{_DAY} {_TIME}\t(?:-->|<--|--|=!=)?\t",
    ),
    _format(
        "energymech",
        message=rf"^\[{_TIME}\] <{_NICK}> ?(?P<text>.*)$",
        action=rf"^\[{_TIME}\] \* (?P<nick>\S+) ?(?P<text>.*)$",
        system=rf"^\[{_TIME}\] (?:\*\*\* |-\S+- )",
    ),
    _format(
        "generic",
        message=rf"^{_STAMP}(?:<{_NICK}>|(?P<name>[^\W\d][^\s:<>\"'(),/]{{0,31}}):) (?P<text>.*)$",
        action=rf"^{_STAMP}\* (?P<nick>\S+) (?P<text>.*)$",
        system=r"^(?:===|---|\*\*\*|-->|<--) ",
    ),
)
"""In the order in which they are tried: of two that know as many lines, the earlier one has it."""


def format_named(name: str) -> LogFormat:
    """A format by its name."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise UnknownName("log format", name, [f.name for f in FORMATS])


def recognise(lines: Sequence[str], *, source: str = "the log") -> LogFormat:
    """The format that knows most lines, by a look at the first few hundred."""
    head = [line for line in lines[:400] if line.strip()]
    known = {f: sum(map(bool, (_match(f, line)[0] for line in head))) for f in FORMATS}
    best = max(FORMATS, key=lambda f: known[f])
    spoken = sum(_match(best, line)[0] in ("message", "action") for line in head)
    if not spoken or known[best] < len(head) / 2:
        names = ", ".join(f.name for f in FORMATS)
        raise DataError(f"{source} looks like no chat log we know.", hint=f"Known: {names}; slack, discord (JSON).")
    return best


def parse_log(lines: Sequence[str], log_format: LogFormat, *, day: date | None = None) -> Iterator[RoomLine]:
    """The lines of one log; `day` is when it begins, where the file's name says so."""
    matched = [_match(log_format, line) for line in lines]
    hours = [int(found["h"]) for _, found in matched if found and _has(found, "h")]
    clock = Clock(day, twelve=counts_to_twelve(hours))
    for number, (line, (kind, found)) in enumerate(zip(lines, matched, strict=True)):
        if (begins := _day_change(log_format, line)) is not None:
            clock.new_day(begins)
        moment = clock.now
        if found is not None and _has(found, "h") and (stamp := _stamp(found)) is not None:
            moment = clock.seconds(stamp)
        if found is None or kind is None or kind == "system":
            yield RoomLine(number, moment, "", clean(line), "system")
        else:
            nick = found["nick"] if _has(found, "nick") else found["name"]
            yield RoomLine(number, moment, nick, clean(found["text"]).strip(), kind)


def _match(log_format: LogFormat, line: str) -> tuple[Kind | None, re.Match[str] | None]:
    """What kind of line it is and what was found in it; nothing at all for one the format does not know."""
    if found := log_format.message.match(line):
        return "message", found
    if found := log_format.action.match(line):
        return "action", found
    if (found := log_format.system.match(line)) or (found := log_format.day_change.match(line)):
        return "system", found
    return None, None


def _has(found: re.Match[str], group: str) -> bool:
    return found.groupdict().get(group) is not None


def _stamp(found: re.Match[str]) -> Stamp | None:
    """The time of a line, or None where its figures are no time of day."""
    parts = found.groupdict()
    hour, minute, second = int(parts["h"]), int(parts["m"]), int(parts.get("s") or 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    try:
        return Stamp(hour, minute, second, date.fromisoformat(parts["day"]) if parts.get("day") else None)
    except ValueError:
        return None


def _day_change(log_format: LogFormat, line: str) -> date | None:
    found = log_format.day_change.match(line)
    if found is None:
        return None
    words = found["date"].split()
    try:
        return datetime.strptime(" ".join((*words[:2], words[-1])), log_format.date_form).date()
    except ValueError:
        return None

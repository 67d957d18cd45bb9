"""Text formats of chat logs: the patterns of each format, one pure parser for all, and format detection.

A format is four patterns. A line that matches none of them is a system line, so a log keeps its line numbers whatever
it contains. A log's format is the one whose patterns match most of its lines.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from tertulia.core.errors import DataError, UnknownName
from tertulia.core.text import clean
from tertulia.corpus.chatlogs.log import Clock, LineKind, LogLine, Timestamp, is_twelve_hour

_TIME = r"(?P<h>\d\d?):(?P<m>\d\d)(?::(?P<s>\d\d)(?:\.\d+)?)?"
_DAY = r"(?P<day>\d{4}-\d\d-\d\d)"
_NICK = r"[ @+%&~!]?(?P<nick>[^\s<>]+)"
_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class LogFormat:
    """The patterns of one log format."""

    name: str
    message: re.Pattern[str]
    """Groups nick and text, and those parts of the time that the line has: day, h, m, s."""
    action: re.Pattern[str]
    system: re.Pattern[str]
    day_change: re.Pattern[str] = _NEVER
    """Group date: a line that announces a new day."""
    date_format: str = ""
    """Format of that date for strptime; the locale's month names must be English."""


def _format(
    name: str, message: str, action: str, system: str, day_change: str = "", date_format: str = ""
) -> LogFormat:
    change = re.compile(day_change) if day_change else _NEVER
    return LogFormat(name, re.compile(message), re.compile(action), re.compile(system), change, date_format)


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
        date_format="%b %d %Y",
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
"""In order of precedence: of two formats that match equally many lines, the earlier one wins."""


_ROOM = re.compile(r"\[?(?P<room>[#&]{0,2}[^\W\d_][^\s\[\]<>]{0,63})\]?[ \t]+(?=\[?\d{4}-\d\d-\d\d[T ])")
"""The name of a room before a date."""


def lines_by_room(lines: Sequence[str]) -> dict[str, list[tuple[int, str]]] | None:
    """The lines of a log whose lines name their room before the date, by room, with their numbers and without the name.

    None if most of the first lines do not; a line without a name belongs to the room of the line before.

    >>> lines_by_room(["#a 2010-02-13 01:02 <x> hi", "#b 2010-02-13 01:03 <y> ho"])
    {'#a': [(0, '2010-02-13 01:02 <x> hi')], '#b': [(1, '2010-02-13 01:03 <y> ho')]}
    """
    head = [line for line in lines[:400] if line.strip()]
    if not head or 2 * sum(_ROOM.match(line) is not None for line in head) <= len(head):
        return None
    rooms: dict[str, list[tuple[int, str]]] = {}
    room = ""
    for number, line in enumerate(lines):
        if match := _ROOM.match(line):
            room, line = match["room"], line[match.end() :]
        if room:
            rooms.setdefault(room, []).append((number, line))
    return rooms


def format_named(name: str) -> LogFormat:
    """A format by its name."""
    for log_format in FORMATS:
        if log_format.name == name:
            return log_format
    raise UnknownName("log format", name, [f.name for f in FORMATS])


def detect_format(lines: Sequence[str], *, source: str = "the log") -> LogFormat:
    """The format that matches most of the first few hundred lines."""
    head = [line for line in lines[:400] if line.strip()]
    kinds = {f: [_match(f, line)[0] for line in head] for f in FORMATS}
    matched = {f: sum(kind is not None for kind in kinds[f]) for f in FORMATS}
    best = max(FORMATS, key=lambda f: matched[f])
    has_utterances = any(kind in ("message", "action") for kind in kinds[best])
    if not has_utterances or matched[best] < len(head) / 2:
        names = ", ".join(f.name for f in FORMATS)
        raise DataError(
            f"Unrecognised chat log format: {source}", hint=f"Known formats: {names}; slack and discord as JSON."
        )
    return best


def parse_log(lines: Sequence[str], log_format: LogFormat, *, day: date | None = None) -> Iterator[LogLine]:
    """The lines of one log; `day` is the date of its first line, if the file's name gives it."""
    matches = [_match(log_format, line) for line in lines]
    hours = [int(match["h"]) for _, match in matches if match and _has_group(match, "h")]
    clock = Clock(day, twelve_hour=is_twelve_hour(hours))
    for number, (line, (kind, match)) in enumerate(zip(lines, matches, strict=True)):
        if (new_day := _parse_day_change(log_format, line)) is not None:
            clock.start_day(new_day)
        moment = clock.now
        if match is not None and _has_group(match, "h") and (timestamp := _parse_timestamp(match)) is not None:
            moment = clock.seconds(timestamp)
        if match is None or kind is None or kind == "system":
            yield LogLine(number, moment, "", clean(line), "system")
        else:
            nick = match["nick"] if _has_group(match, "nick") else match["name"]
            yield LogLine(number, moment, nick, clean(match["text"]).strip(), kind)


def _match(log_format: LogFormat, line: str) -> tuple[LineKind | None, re.Match[str] | None]:
    """The kind of a line and the match; (None, None) if none of the format's patterns matches."""
    if match := log_format.message.match(line):
        return "message", match
    if match := log_format.action.match(line):
        return "action", match
    if match := log_format.system.match(line) or log_format.day_change.match(line):
        return "system", match
    return None, None


def _has_group(match: re.Match[str], group: str) -> bool:
    return match.groupdict().get(group) is not None


def _parse_timestamp(match: re.Match[str]) -> Timestamp | None:
    """The time of a line, or None if its numbers are not a valid time of day."""
    parts = match.groupdict()
    hour, minute, second = int(parts["h"]), int(parts["m"]), int(parts.get("s") or 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    try:
        return Timestamp(hour, minute, second, date.fromisoformat(parts["day"]) if parts.get("day") else None)
    except ValueError:
        return None


def _parse_day_change(log_format: LogFormat, line: str) -> date | None:
    match = log_format.day_change.match(line)
    if match is None:
        return None
    words = match["date"].split()
    try:
        return datetime.strptime(" ".join((*words[:2], words[-1])), log_format.date_format).date()
    except ValueError:
        return None

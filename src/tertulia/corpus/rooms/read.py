"""Logs from files: a text log, a folder of them, an export of Slack or Discord, or the room of the bundled sample.

A log is one room on one day, as the rules want it. Where lines or messages tell their dates, longer files are cut at
midnight (UTC); a text log without dates stays whole.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.load import SAMPLE, open_text
from tertulia.corpus.rooms.exports import is_discord, is_slack, parse_discord, parse_slack, slack_users
from tertulia.corpus.rooms.formats import format_named, parse_log, recognise
from tertulia.corpus.rooms.gold import folder_name, read_gold
from tertulia.corpus.rooms.line import DAY, Log, RoomLine, day_in

TEXT = (".txt", ".log", ".weechatlog", ".txt.gz", ".log.gz")
_NOT_LOGS = (".annotation.txt", ".ascii.txt", ".tok.txt", "README.txt")
_ABOUT = frozenset(
    "users.json channels.json groups.json dms.json mpims.json integration_logs.json canvases.json".split()
)


def read_logs(source: str | Path, *, format: str | None = None) -> Iterator[Log]:  # noqa: A002 - the word users know
    """The logs of the sample, a file or a folder, in the order of their names."""
    if str(source) == SAMPLE:
        yield from (gold.log for gold in read_gold(SAMPLE))
        return
    path = Path(source)
    if path.is_file():
        yield from _read_file(path, path.stem.partition(".")[0], format)
        return
    files = sorted(_log_files(path)) if path.is_dir() else []
    if not files:
        raise DataError(
            f"There are no chat logs at {path}.", hint=f"Logs end in {', '.join(TEXT)}, or are JSON exports."
        )
    for file in files:
        name = file.relative_to(path).as_posix()
        yield from _read_file(file, _without_ending(name), format)


def _log_files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        is_text = file.name.endswith(TEXT) and not file.name.endswith(_NOT_LOGS)
        if file.is_file() and (is_text or (file.suffix == ".json" and file.name not in _ABOUT)):
            yield file


def _without_ending(name: str) -> str:
    for ending in (".raw.txt", *TEXT, ".json"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _read_file(file: Path, name: str, format_name: str | None) -> Iterator[Log]:
    if file.suffix == ".json":
        yield from _read_export(file, name)
        return
    try:
        with open_text(file) as opened:
            # Not splitlines(): a message may hold characters that Python would take for the end of a line.
            lines = opened.read().removesuffix("\n").split("\n")
    except (OSError, EOFError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from None
    log_format = format_named(format_name) if format_name else recognise(lines, source=str(file))
    day = day_in(file.name)
    parsed = tuple(parse_log(lines, log_format, day=day))
    if day is None and parsed and parsed[-1].time > 365 * DAY:
        yield from by_day(parsed, name, folder_name(file))
    else:
        yield Log(name, folder_name(file), parsed, day)


def _read_export(file: Path, name: str) -> Iterator[Log]:
    record = _json(file)
    try:
        if is_slack(record):
            about = file.parent.parent / "users.json"
            users = slack_users(_json(about)) if about.is_file() else {}
            yield Log(name, folder_name(file), tuple(parse_slack(record, users)), day_in(file.name))
        elif is_discord(record):
            yield from by_day(parse_discord(record), name, str(record["channel"].get("name") or folder_name(file)))
        elif record != []:
            raise DataError(f"{file} is neither an export of Slack nor one of Discord.")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{file} is not an export we can read ({type(error).__name__}: {error}).") from None


def _json(file: Path) -> Json:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}.") from None


def by_day(lines: Sequence[RoomLine], name: str, room: str) -> Iterator[Log]:
    """Cut a log with dates at midnight; numbers stay those of the whole file."""
    # The day never goes back: a line that comes late after midnight belongs to the new day.
    latest = accumulate((line.time for line in lines), max)
    dated = zip((datetime.fromtimestamp(moment, UTC).date() for moment in latest), lines, strict=True)
    for day, group in groupby(dated, key=itemgetter(0)):
        yield Log(f"{name}@{day.isoformat()}", room, tuple(line for _, line in group), day)


def day_before(logs: Iterable[Log]) -> Iterator[tuple[Log, frozenset[str]]]:
    """Each log with the nicks that its room saw the day before (lower case)."""
    seen: dict[tuple[str, date], set[str]] = {}
    for log in logs:
        nicks = {line.nick.lower() for line in log.lines if line.said}
        if log.day is None:
            yield log, frozenset()
            continue
        yield log, frozenset(seen.get((log.room, date.fromordinal(log.day.toordinal() - 1)), ()))
        seen.setdefault((log.room, log.day), set()).update(nicks)

"""Read logs from files: a text log, a folder of them, an export of Slack or Discord, or the bundled sample's chat room.

A log is one room on one day, as Lowe's rules need it. If lines or messages have dates, longer files are split at
midnight (UTC); a text log without dates stays one log. Where every line names its room before the date
(`#ubuntu 2010-02-13 01:02 <ana> hi`), each room is a log of its own.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path

from tertulia.artefacts.files import UNREADABLE, open_text
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Json
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.chatlogs.dialogues import nicks_of
from tertulia.corpus.chatlogs.exports import DAMAGE, is_discord, is_slack, parse_discord, parse_slack, slack_users
from tertulia.corpus.chatlogs.formats import LogFormat, detect_format, format_named, lines_by_room, parse_log
from tertulia.corpus.chatlogs.gold import ASCII, RAW, folder_name, read_gold
from tertulia.corpus.chatlogs.log import DAY, Log, LogLine, date_in_name, day_of
from tertulia.corpus.load import SAMPLE

TEXT_SUFFIXES = (".txt", ".log", ".weechatlog", ".txt.gz", ".log.gz")
_NOT_LOGS = (".annotation.txt", ".tok.txt", "README.txt")
_SLACK_METADATA = frozenset(
    "users.json channels.json groups.json dms.json mpims.json integration_logs.json canvases.json".split()
)


def read_logs(
    source: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word users know
    problems: Problems | None = None,
) -> Iterator[Log]:
    """The logs of the sample, a file (or a pipe) or a folder, in the order of their names.

    Damaged records of exports are added to `problems` if given; else they raise.
    """
    if str(source) == SAMPLE:
        yield from (gold.log for gold in read_gold(SAMPLE))
        return
    path = Path(source)
    if path.is_file() or path.is_fifo():
        yield from _read_file(path, path.stem.partition(".")[0], format, problems)
        return
    files = sorted(_log_files(path)) if path.is_dir() else []
    if not files:
        raise DataError(
            f"No chat logs found at {path}.",
            hint=f"Names of logs end in {', '.join(TEXT_SUFFIXES)}, or in .json for exports of Slack and Discord.",
        )
    for file in files:
        name = file.relative_to(path).as_posix()
        yield from _read_file(file, _without_suffix(name), format, problems)


def _log_files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        is_text = file.name.endswith(TEXT_SUFFIXES) and not file.name.endswith(_NOT_LOGS) and not _is_copy(file)
        if file.is_file() and (is_text or (file.suffix == ".json" and file.name not in _SLACK_METADATA)):
            yield file


def _is_copy(file: Path) -> bool:
    """Whether a log in plain letters lies beside the same log as it was written."""
    name = file.name
    return name.endswith(ASCII) and file.with_name(name.removesuffix(ASCII) + RAW).is_file()


def _without_suffix(name: str) -> str:
    for suffix in (RAW, ASCII, *TEXT_SUFFIXES, ".json"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _read_file(file: Path, name: str, format_name: str | None, problems: Problems | None) -> Iterator[Log]:
    if file.suffix == ".json":
        yield from _read_export(file, name, problems)
        return
    try:
        with open_text(file) as opened:
            # Not splitlines(): messages may contain other characters that it takes for the end of a line.
            lines = opened.read().removesuffix("\n").split("\n")
    except UNREADABLE as error:
        raise DataError(f"Cannot read {file} ({error}).") from None
    rooms = lines_by_room(lines)
    if rooms is None:
        log_format = format_named(format_name) if format_name else detect_format(lines, source=str(file))
        yield from _logs(lines, log_format, file, name, folder_name(file))
        return
    for room, numbered in rooms.items():
        texts = [line for _, line in numbered]
        log_format = format_named(format_name) if format_name else detect_format(texts, source=f"{file}, room {room}")
        for log in _logs(texts, log_format, file, f"{name}/{room}" if len(rooms) > 1 else name, room):
            yield replace(log, lines=tuple(replace(line, number=numbered[line.number][0]) for line in log.lines))


def _logs(lines: Sequence[str], log_format: LogFormat, file: Path, name: str, room: str) -> Iterator[Log]:
    """The logs of one room, by day if the lines have dates."""
    day = date_in_name(file.name)
    parsed = tuple(parse_log(lines, log_format, day=day))
    if day is None and parsed and parsed[-1].time > 365 * DAY:
        yield from split_by_day(parsed, name, room)
    else:
        yield Log(name, room, parsed, day)


def _read_export(file: Path, name: str, problems: Problems | None) -> Iterator[Log]:
    record = _load_json(file)
    damaged: list[DamagedLine] = []

    def on_damage(number: int, why: Exception) -> None:
        error = DamagedLine(str(file), number + 1, f"not a message ({type(why).__name__}: {why})")
        if problems is None:
            raise error from None
        damaged.append(error)

    try:
        if is_slack(record):
            metadata = file.parent.parent / "users.json"
            users = slack_users(_load_json(metadata)) if metadata.is_file() else {}
            logs = [Log(name, folder_name(file), tuple(parse_slack(record, users, on_damage)), date_in_name(file.name))]
        elif is_discord(record):
            room = str(record["channel"].get("name") or folder_name(file))
            logs = list(split_by_day(parse_discord(record, on_damage), name, room))
        elif record == []:
            return
        else:
            raise DataError(f"Unrecognised JSON: {file} is an export of neither Slack nor Discord.")
    except DAMAGE as error:
        raise DataError(
            f"{file} is not a valid export of Slack or Discord ({type(error).__name__}: {error})."
        ) from None
    if damaged and not any(log.lines for log in logs):
        raise DataError(f"None of the {len(damaged)} messages in {file} can be read: {damaged[0].why}.")
    for record_error in damaged:
        assert problems is not None
        problems.add(record_error)
    yield from logs


def _load_json(file: Path) -> Json:
    try:
        with open_text(file) as text:
            return json.load(text)
    except (*UNREADABLE, ValueError, RecursionError) as error:
        raise DataError(f"{file} is not valid JSON ({error}).") from None


def split_by_day(lines: Sequence[LogLine], name: str, room: str) -> Iterator[Log]:
    """Split a log with dates at midnight; line numbers stay those of the complete file."""
    # The day never goes back: a line that arrives late after midnight belongs to the new day.
    latest = accumulate((line.time for line in lines), max)
    dated = zip(map(day_of, latest), lines, strict=True)
    for day, group in groupby(dated, key=itemgetter(0)):
        yield Log(f"{name}@{day.isoformat()}", room, tuple(line for _, line in group), day)


def with_nicks_before(logs: Iterable[Log]) -> Iterator[tuple[Log, frozenset[str]]]:
    """Each log with the nicks seen in its room the day before (lower case).

    Lowe et al. (2015) look for recipients among the nicks of the day and of the day before.
    """
    nicks_on: dict[tuple[str, date], set[str]] = {}
    for log in logs:
        if log.day is None or log.day == date.min:
            yield log, frozenset()
            continue
        yield log, frozenset(nicks_on.get((log.room, log.day - timedelta(days=1)), ()))
        nicks_on.setdefault((log.room, log.day), set()).update(nicks_of(log.lines))

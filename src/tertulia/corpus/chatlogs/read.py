"""Read logs from files: a text log, a folder of them, an export of Slack or Discord, or the bundled sample's chat room.

A log is one room on one day, as Lowe's rules need it. If lines or messages have dates, longer files are split at
midnight (UTC); a text log without dates stays one log.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path

from tertulia.artefacts.files import UNREADABLE, open_text
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.chatlogs.dialogues import nicks_of
from tertulia.corpus.chatlogs.exports import is_discord, is_slack, parse_discord, parse_slack, slack_users
from tertulia.corpus.chatlogs.formats import detect_format, format_named, parse_log
from tertulia.corpus.chatlogs.gold import folder_name, read_gold
from tertulia.corpus.chatlogs.log import DAY, Log, LogLine, date_in_name
from tertulia.corpus.load import SAMPLE

TEXT_SUFFIXES = (".txt", ".log", ".weechatlog", ".txt.gz", ".log.gz")
_NOT_LOGS = (".annotation.txt", ".ascii.txt", ".tok.txt", "README.txt")
_SLACK_METADATA = frozenset(
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
            f"No chat logs found at {path}.",
            hint=f"Names of logs end in {', '.join(TEXT_SUFFIXES)}, or in .json for exports of Slack and Discord.",
        )
    for file in files:
        name = file.relative_to(path).as_posix()
        yield from _read_file(file, _without_suffix(name), format)


def _log_files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        is_text = file.name.endswith(TEXT_SUFFIXES) and not file.name.endswith(_NOT_LOGS)
        if file.is_file() and (is_text or (file.suffix == ".json" and file.name not in _SLACK_METADATA)):
            yield file


def _without_suffix(name: str) -> str:
    for suffix in (".raw.txt", *TEXT_SUFFIXES, ".json"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _read_file(file: Path, name: str, format_name: str | None) -> Iterator[Log]:
    if file.suffix == ".json":
        yield from _read_export(file, name)
        return
    try:
        with open_text(file) as opened:
            # Not splitlines(): messages may contain other characters that it takes for the end of a line.
            lines = opened.read().removesuffix("\n").split("\n")
    except UNREADABLE as error:
        raise DataError(f"Cannot read {file} ({error}).") from None
    log_format = format_named(format_name) if format_name else detect_format(lines, source=str(file))
    day = date_in_name(file.name)
    parsed = tuple(parse_log(lines, log_format, day=day))
    if day is None and parsed and parsed[-1].time > 365 * DAY:
        yield from split_by_day(parsed, name, folder_name(file))
    else:
        yield Log(name, folder_name(file), parsed, day)


def _read_export(file: Path, name: str) -> Iterator[Log]:
    record = _load_json(file)
    try:
        if is_slack(record):
            metadata = file.parent.parent / "users.json"
            users = slack_users(_load_json(metadata)) if metadata.is_file() else {}
            yield Log(name, folder_name(file), tuple(parse_slack(record, users)), date_in_name(file.name))
        elif is_discord(record):
            yield from split_by_day(
                parse_discord(record), name, str(record["channel"].get("name") or folder_name(file))
            )
        elif record != []:
            raise DataError(f"Unrecognised JSON: {file} is an export of neither Slack nor Discord.")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{file} is not a valid export of Slack or Discord ({type(error).__name__}: {error})."
        ) from None


def _load_json(file: Path) -> Json:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} is not valid JSON ({error}).") from None


def split_by_day(lines: Sequence[LogLine], name: str, room: str) -> Iterator[Log]:
    """Split a log with dates at midnight; line numbers stay those of the complete file."""
    # The day never goes back: a line that arrives late after midnight belongs to the new day.
    latest = accumulate((line.time for line in lines), max)
    dated = zip((datetime.fromtimestamp(moment, UTC).date() for moment in latest), lines, strict=True)
    for day, group in groupby(dated, key=itemgetter(0)):
        yield Log(f"{name}@{day.isoformat()}", room, tuple(line for _, line in group), day)


def with_nicks_before(logs: Iterable[Log]) -> Iterator[tuple[Log, frozenset[str]]]:
    """Each log with the nicks seen in its room the day before (lower case).

    Lowe et al. (2015) look for recipients among the nicks of the day and of the day before.
    """
    nicks_on: dict[tuple[str, date], set[str]] = {}
    for log in logs:
        if log.day is None:
            yield log, frozenset()
            continue
        yield log, frozenset(nicks_on.get((log.room, log.day - timedelta(days=1)), ()))
        nicks_on.setdefault((log.room, log.day), set()).update(nicks_of(log.lines))

"""Parse exports of Slack and Discord (DiscordChatExporter): JSON objects to log lines.

Both record which message replies to which, and both refer to users by id. Names become nicks without spaces, and a
mention becomes `@nick`, so that the addressee can be read from the text as in any other log.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tertulia.core.dialogue import Json
from tertulia.core.text import clean
from tertulia.corpus.chatlogs.log import LineKind, LogLine

_SLACK_USER = re.compile(r"<@([A-Z0-9]+)(?:\|([^>]*))?>")
_SLACK_LINK = re.compile(r"<([a-z]+:[^>|]+)(?:\|[^>]*)?>")
_SLACK_OTHER = re.compile(r"<[#!][^>|]*\|?([^>]*)>")
_SLACK_MESSAGES = frozenset(("", "thread_broadcast", "bot_message", "file_share", "me_message"))
_DISCORD_MESSAGES = frozenset(("Default", "Reply", "0", "19"))
_LAST_MOMENT = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What a record that is not as it should be raises."""
OnDamage = Callable[[int, Exception], None]
"""Is told the number of a damaged record, from 0, and what is wrong with it; the others are read."""


def _stop(number: int, why: Exception) -> None:
    raise ValueError(f"record {number + 1}: {type(why).__name__}: {why}") from why


def nick_of(name: str) -> str:
    """Turn a display name into a nick.

    >>> nick_of(" Ada Lovelace")
    'Ada_Lovelace'
    """
    return "_".join(name.split())


def slack_users(records: Json) -> dict[str, str]:
    """The nick of each user id, from the records of users.json; damaged records are left out."""
    nicks = {}
    for user in records if isinstance(records, list) else ():
        if isinstance(user, dict) and "id" in user:
            profile = user.get("profile")
            names = (profile.get("display_name"), profile.get("real_name")) if isinstance(profile, dict) else ()
            name = next(filter(None, (user.get("name"), *names)), user["id"])
            nicks[str(user["id"])] = nick_of(str(name))
    return nicks


def parse_slack(records: Sequence[Json], users: Mapping[str, str], on_damage: OnDamage = _stop) -> list[LogLine]:
    """Parse one day of one channel. A message in a thread replies to the thread's first message."""
    times: dict[int, float] = {}
    for number, record in enumerate(records):
        try:
            times[number] = _slack_time(record["ts"])
        except DAMAGE as why:
            on_damage(number, why)
    number_of: dict[str, int] = {}  # line number by timestamp, which is Slack's message id
    lines = []
    for number, index in enumerate(sorted(times, key=lambda index: times[index])):
        lines.append(_slack_line(records[index], times[index], number, number_of, users))
        number_of[str(records[index]["ts"])] = number
    return lines


def _slack_time(timestamp: Json) -> float:
    moment = float(timestamp)
    if not 0 <= moment < _LAST_MOMENT:
        raise ValueError(f"{timestamp!r} is not a time")
    return moment


def _slack_line(
    record: Json, moment: float, number: int, number_of: Mapping[str, int], users: Mapping[str, str]
) -> LogLine:
    timestamp, subtype = str(record["ts"]), str(record.get("subtype") or "")
    kind: LineKind = "action" if subtype == "me_message" else "message"
    user = str(record.get("user") or record.get("bot_id") or "")
    nick = users.get(user) or nick_of(str(record.get("username") or user))
    text = _slack_text(str(record.get("text") or ""), users)
    thread = str(record.get("thread_ts") or timestamp)
    if subtype not in _SLACK_MESSAGES or not nick:
        kind, nick = "system", ""
    reply_to = number_of.get(thread) if thread != timestamp else None
    return LogLine(number, moment, nick, text, kind, reply_to)


def _slack_text(text: str, users: Mapping[str, str]) -> str:
    text = _substitute(_SLACK_USER, lambda m: "@" + (users.get(m[1]) or nick_of(m[2] or m[1])), text)
    text = _substitute(_SLACK_OTHER, r"\1", _substitute(_SLACK_LINK, r"\1", text))
    return clean(html.unescape(text)).strip()


def _substitute(pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
    """Substitute up to the last ">", with which every match ends: beyond it, each "<" would scan all of the rest."""
    head, end, tail = text.rpartition(">")
    return pattern.sub(replacement, head + end) + tail


def is_slack(record: Json) -> bool:
    """Whether a document looks like one day of a Slack export: a list of messages with `ts`."""
    return isinstance(record, list) and any(isinstance(message, dict) and "ts" in message for message in record)


def parse_discord(record: Json, on_damage: OnDamage = _stop) -> list[LogLine]:
    """Parse one exported channel; a damaged message keeps its number."""
    if not isinstance(record["messages"], list):
        raise TypeError("`messages` is not a list")
    number_of: dict[str, int] = {}  # line number by message id
    lines: list[LogLine] = []
    for number, message in enumerate(record["messages"]):
        try:
            lines.append(_discord_line(message, number, number_of))
            number_of[str(message["id"])] = number
        except DAMAGE as why:
            on_damage(number, why)
    return lines


def _discord_line(message: Json, number: int, number_of: Mapping[str, int]) -> LogLine:
    is_message = str(message.get("type", "Default")) in _DISCORD_MESSAGES
    nick = nick_of(str(message["author"]["name"])) if is_message else ""
    time = datetime.fromisoformat(str(message["timestamp"]))
    moment = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    replied_to = str((message.get("reference") or {}).get("messageId"))
    line = LogLine(number, moment, nick, _discord_text(message), "message" if is_message else "system")
    return replace(line, reply_to=number_of.get(replied_to))


def _discord_text(message: Json) -> str:
    """The text, with mentions by handle: the exporter writes the server's display names, but lines have handles."""
    text = str(message.get("content") or "")
    for user in message.get("mentions") or []:
        handle = nick_of(str(user["name"]))
        for name in filter(None, (user.get("nickname"), user["name"])):
            text = text.replace(f"@{name}", f"@{handle}")
    return clean(text).strip()


def is_discord(record: Json) -> bool:
    """Whether a document looks like an export of DiscordChatExporter."""
    return isinstance(record, dict) and "messages" in record and isinstance(record.get("channel"), dict)

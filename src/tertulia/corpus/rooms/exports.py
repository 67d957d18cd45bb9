"""Exports of Slack and of Discord (DiscordChatExporter): JSON objects in, room lines out.

Both know which message answers which, and both write people as ids. Names become nicks without blanks, and a mention
becomes `@nick`, so that who is addressed can be read off the text as in any other room.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tertulia.core.dialogue import Json
from tertulia.core.text import clean
from tertulia.corpus.rooms.line import Kind, RoomLine

_SLACK_USER = re.compile(r"<@([A-Z0-9]+)(?:\|([^>]*))?>")
_SLACK_LINK = re.compile(r"<([a-z]+:[^>|]+)(?:\|[^>]*)?>")
_SLACK_OTHER = re.compile(r"<[#!][^>|]*\|?([^>]*)>")
_SLACK_SPOKEN = frozenset(("", "thread_broadcast", "bot_message", "file_share", "me_message"))
_DISCORD_SPOKEN = frozenset(("Default", "Reply", "0", "19"))


def nick_of(name: str) -> str:
    """A name as a nick.

    >>> nick_of(" Ada Lovelace")
    'Ada_Lovelace'
    """
    return "_".join(name.split())


def slack_users(records: Json) -> dict[str, str]:
    """users.json: the nick of each id."""
    nicks = {}
    for user in records:
        profile = user.get("profile") or {}
        name = user.get("name") or profile.get("display_name") or profile.get("real_name") or user["id"]
        nicks[str(user["id"])] = nick_of(str(name))
    return nicks


def parse_slack(records: Sequence[Json], users: Mapping[str, str]) -> list[RoomLine]:
    """One day of one channel. A message in a thread answers the thread's first one."""
    place: dict[str, int] = {}
    lines = []
    for number, record in enumerate(sorted(records, key=lambda r: float(r["ts"]))):
        stamp = str(record["ts"])
        subtype = str(record.get("subtype") or "")
        kind: Kind = "action" if subtype == "me_message" else "message"
        user = str(record.get("user") or record.get("bot_id") or "")
        nick = users.get(user) or nick_of(str(record.get("username") or user))
        text = _slack_text(str(record.get("text") or ""), users)
        thread = str(record.get("thread_ts") or stamp)
        if subtype not in _SLACK_SPOKEN or not nick:
            kind, nick = "system", ""
        answers = place.get(thread) if thread != stamp else None
        lines.append(RoomLine(number, float(stamp), nick, text, kind, answers))
        place[stamp] = number
    return lines


def _slack_text(text: str, users: Mapping[str, str]) -> str:
    text = _SLACK_USER.sub(lambda m: "@" + (users.get(m[1]) or nick_of(m[2] or m[1])), text)
    text = _SLACK_OTHER.sub(r"\1", _SLACK_LINK.sub(r"\1", text))
    return clean(html.unescape(text)).strip()


def is_slack(record: Json) -> bool:
    """Whether this looks like a day of a Slack export: a list of messages with `ts`."""
    return isinstance(record, list) and bool(record) and isinstance(record[0], dict) and "ts" in record[0]


def parse_discord(record: Json) -> list[RoomLine]:
    """One exported channel."""
    place: dict[str, int] = {}
    lines: list[RoomLine] = []
    for number, message in enumerate(record["messages"]):
        spoken = str(message.get("type", "Default")) in _DISCORD_SPOKEN
        nick = nick_of(str(message["author"]["name"])) if spoken else ""
        time = datetime.fromisoformat(str(message["timestamp"])).timestamp()
        answered = str((message.get("reference") or {}).get("messageId"))
        line = RoomLine(number, time, nick, _discord_text(message), "message" if spoken else "system")
        lines.append(replace(line, answers=place.get(answered)))
        place[str(message["id"])] = number
    return lines


def _discord_text(message: Json) -> str:
    """The text; the exporter writes mentions by the name shown in the server, the room knows people by their handle."""
    text = str(message.get("content") or "")
    for person in message.get("mentions") or []:
        handle = nick_of(str(person["name"]))
        for shown in filter(None, (person.get("nickname"), person["name"])):
            text = text.replace(f"@{shown}", f"@{handle}")
    return clean(text).strip()


def is_discord(record: Json) -> bool:
    """Whether this looks like an export of DiscordChatExporter."""
    return isinstance(record, dict) and "messages" in record and "channel" in record

"""Minimal exports of Slack and Discord, read from real folders."""

import json
from datetime import date
from pathlib import Path

import pytest

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.chatlogs.exports import parse_discord, parse_slack, slack_users
from tertulia.corpus.chatlogs.log import Log, LogLine
from tertulia.corpus.chatlogs.read import read_logs, with_nicks_before

USERS: Json = [
    {"id": "U1", "name": "ada", "profile": {"display_name": "Ada L."}},
    {"id": "U2", "profile": {"real_name": "Bob Stone"}},
]
SLACK: Json = [
    {"type": "message", "user": "U2", "text": "no, <@U1> &amp; <!here> <https://x.org|it>", "ts": "1772438000.000200"},
    {"type": "message", "user": "U1", "text": "does it work?", "ts": "1772437900.000100"},
    {"type": "message", "user": "U1", "text": "pity", "ts": "1772438100.0003", "thread_ts": "1772438000.000200"},
    {"type": "message", "user": "U2", "subtype": "channel_join", "text": "<@U2> has joined", "ts": "1772437800.0"},
]
DISCORD: Json = {
    "guild": {"name": "g"},
    "channel": {"id": "7", "name": "help"},
    "messages": [
        {
            "id": "10",
            "type": "Default",
            "timestamp": "2026-03-02T23:58:11.123+00:00",
            "content": "does it work?",
            "author": {"id": "1", "name": "ada"},
        },
        {
            "id": "11",
            "type": "Reply",
            "timestamp": "2026-03-03T00:01:00+00:00",
            "content": "@Ada L. no",
            "author": {"id": "2", "name": "bob stone"},
            "reference": {"messageId": "10"},
            "mentions": [{"id": "1", "name": "ada", "nickname": "Ada L."}],
        },
        {
            "id": "12",
            "type": "GuildMemberJoin",
            "timestamp": "2026-03-03T00:02:00+00:00",
            "content": "Joined the server.",
            "author": {"id": "3", "name": "cyd"},
        },
    ],
}


def test_parse_slack() -> None:
    lines = parse_slack(SLACK, slack_users(USERS))
    assert lines == [
        LogLine(0, 1772437800.0, "", "@Bob_Stone has joined", "system"),
        LogLine(1, 1772437900.0001, "ada", "does it work?"),
        LogLine(2, 1772438000.0002, "Bob_Stone", "no, @ada &  https://x.org"),
        LogLine(3, 1772438100.0003, "ada", "pity", reply_to=2),
    ]


def test_parse_discord() -> None:
    one, two, three = parse_discord(DISCORD)
    assert (one.nick, one.text, one.reply_to) == ("ada", "does it work?", None)
    assert (two.nick, two.text, two.reply_to) == ("bob_stone", "@ada no", 0)
    assert (three.kind, three.nick) == ("system", "")


def test_read_a_slack_folder(tmp_path: Path) -> None:
    (tmp_path / "general").mkdir()
    (tmp_path / "users.json").write_text(json.dumps(USERS))
    (tmp_path / "channels.json").write_text("[]")
    (tmp_path / "general" / "2026-03-02.json").write_text(json.dumps(SLACK))
    (tmp_path / "general" / "2026-03-03.json").write_text("[]")
    (log,) = read_logs(tmp_path)
    assert (log.name, log.room, log.day, len(log.lines)) == ("general/2026-03-02", "general", date(2026, 3, 2), 4)


def test_a_discord_file_is_split_at_midnight(tmp_path: Path) -> None:
    file = tmp_path / "help.json"
    file.write_text(json.dumps(DISCORD))
    logs = list(read_logs(file))
    assert [(log.name, log.room, len(log.lines)) for log in logs] == [
        ("help@2026-03-02", "help", 1),
        ("help@2026-03-03", "help", 2),
    ]
    assert [line.number for log in logs for line in log.lines] == [0, 1, 2]


@pytest.mark.parametrize("content", ["{", '{"messages": 3, "channel": {}}', '{"a": 1}', '[{"ts": "x"}]', "[3]"])
def test_other_json_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(DataError):
        list(read_logs(file))


def test_read_a_folder_of_text_logs_and_the_nicks_of_the_with_nicks_before(tmp_path: Path) -> None:
    for day, nick in (("2026-03-02", "ann"), ("2026-03-03", "bob"), ("2026-03-05", "cyd")):
        (tmp_path / f"{day}.raw.txt").write_text(f"[10:00] <{nick}> hm\n[10:01] <{nick}> hm\n")
    (tmp_path / "2026-03-02.annotation.txt").write_text("0 0 -\n")
    logs = list(with_nicks_before(read_logs(tmp_path)))
    assert [(log.name, set(before)) for log, before in logs] == [
        ("2026-03-02", set()),
        ("2026-03-03", {"ann"}),
        ("2026-03-05", set()),
    ]


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No chat logs"):
        list(read_logs(tmp_path))
    with pytest.raises(DataError, match="No chat logs"):
        list(read_logs(tmp_path / "nowhere"))


def test_the_sample_has_five_days() -> None:
    logs: list[Log] = list(read_logs("sample"))
    assert len(logs) == 5
    assert all(log.day for log in logs)

"""Text logs: detect and parse one small log of each format."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.errors import DataError, UnknownName
from tertulia.corpus.chatlogs.formats import FORMATS, detect_format, format_named, parse_log
from tertulia.corpus.chatlogs.log import Clock, LogLine, Timestamp, date_in_name, is_twelve_hour

UBUNTU = """\
=== kettle [~kettle@host-17.example.net] has joined #mesa-help
[07:52] <kettle> morning all
[07:53] <tea-and-toast> kettle: you're early
[07:54]  * kettle yawns
=== kettle is now known as kettle_away"""

IRSSI = """\
--- Log opened Mon Mar 02 23:58:11 2026
23:58 -!- kettle [~kettle@host-17.example.net] has joined #mesa-help
23:59 <@kettle> morning all
--- Day changed Tue Mar 03 2026
00:01 < tea-and-toast> kettle: you're early
00:02  * kettle yawns"""

WEECHAT = """\
2026-03-02 23:58:11\t-->\tkettle (~kettle@host-17.example.net) has joined #mesa-help
2026-03-02 23:59:00\t@kettle\tmorning all
2026-03-03 00:01:02\ttea-and-toast\tkettle: you're early
2026-03-03 00:02:02\t *\tkettle yawns
2026-03-03 00:03:00\t--\tkettle is now known as kettle_away"""

ENERGYMECH = """\
[23:58:11] *** Joins: kettle (~kettle@host-17.example.net)
[23:59:00] <kettle> morning all
[00:01:02] <tea-and-toast> kettle: you're early
[00:02:03] * kettle yawns
[00:03:00] *** kettle is now known as kettle_away"""

GENERIC = """\
2026-03-02 23:59 <kettle> morning all
2026-03-03 00:01 <tea-and-toast> kettle: you're early
2026-03-03 00:02 * kettle yawns"""

BARE = """\
kettle: morning all
tea-and-toast: kettle: you're early
* kettle yawns"""

LOGS = {"ubuntu": UBUNTU, "irssi": IRSSI, "weechat": WEECHAT, "energymech": ENERGYMECH, "generic": GENERIC}
UTTERANCES = [
    ("kettle", "morning all", "message"),
    ("tea-and-toast", "kettle: you're early", "message"),
    ("kettle", "yawns", "action"),
]


def read(text: str, day: date | None = None) -> list[LogLine]:
    lines = text.split("\n")
    return list(parse_log(lines, detect_format(lines), day=day))


def test_there_is_a_log_of_every_format() -> None:
    assert set(LOGS) == {f.name for f in FORMATS}


@pytest.mark.parametrize("name", LOGS)
def test_each_format_is_detected_and_parsed(name: str) -> None:
    lines = LOGS[name].split("\n")
    assert detect_format(lines).name == name
    parsed = read(LOGS[name])
    assert [(line.nick, line.text, line.kind) for line in parsed if line.is_utterance] == UTTERANCES
    assert [line.number for line in parsed] == list(range(len(lines)))
    assert all(line.nick == "" for line in parsed if line.kind == "system")


def test_a_log_without_times() -> None:
    assert detect_format(BARE.split("\n")).name == "generic"
    assert [(line.nick, line.text, line.kind) for line in read(BARE)] == UTTERANCES


@pytest.mark.parametrize("name", ["irssi", "weechat", "generic"])
def test_dates_in_the_log_are_used(name: str) -> None:
    utterances = [line for line in read(LOGS[name]) if line.is_utterance]
    days = [datetime.fromtimestamp(line.time, UTC).date() for line in utterances]
    assert days == [date(2026, 3, 2), date(2026, 3, 3), date(2026, 3, 3)]
    assert utterances[1].time - utterances[0].time == pytest.approx(120, abs=3)


def test_times_wrap_at_midnight_in_a_log_without_dates() -> None:
    utterances = [line for line in read(ENERGYMECH, date(2026, 3, 2)) if line.is_utterance]
    assert [datetime.fromtimestamp(line.time, UTC).day for line in utterances] == [2, 3, 3]


def test_twelve_hour_clocks() -> None:
    """As #ubuntu was logged in 2005: 01:00 follows 12:59, half a day later and not a full one."""
    lines = ["[11:59] <a> x", "[12:59] <b> y", "[01:00] <a> z"]
    assert [line.time / 60 for line in parse_log(lines, format_named("ubuntu"))] == [719, 779, 780]


def test_a_clock_may_go_back_a_little() -> None:
    clock = Clock(twelve_hour=False)
    assert [clock.seconds(Timestamp(h, m)) for h, m in ((10, 5), (10, 2), (10, 6))] == [36300, 36120, 36360]


def test_an_invalid_time_of_day_is_ignored() -> None:
    lines = ["[10:00] <a> x", "[99:99] <b> y"]
    assert [line.time for line in parse_log(lines, format_named("ubuntu"))] == [36000, 36000]


@pytest.mark.parametrize("text", ["", "once upon a time\nthere was no log", '{"id": 1}\n{"id": 2}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="Unrecognised chat log format"):
        detect_format(text.split("\n"))


def test_an_unknown_format_suggests_a_close_name() -> None:
    with pytest.raises(UnknownName) as caught:
        format_named("irsi")
    assert "irssi" in caught.value.hint


@pytest.mark.parametrize(("name", "day"), [("#x.2026-03-02.log", date(2026, 3, 2)), ("20260302.log", date(2026, 3, 2))])
def test_dates_in_file_names(name: str, day: date) -> None:
    assert date_in_name(name) == day
    assert date_in_name("build-2026-13-40.log") is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 23)))
def test_a_24_hour_clock_is_never_taken_for_a_12_hour_clock(hours: list[int]) -> None:
    if 0 in hours or any(hour > 12 for hour in hours):
        assert not is_twelve_hour(hours)


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), max_size=20), st.sampled_from(FORMATS))
def test_any_text_keeps_its_line_numbers(lines: list[str], log_format: object) -> None:
    parsed = list(parse_log(lines, log_format))  # type: ignore[arg-type]
    assert [line.number for line in parsed] == list(range(len(lines)))

"""The rules of the Ubuntu Dialogue Corpus; figures 4 and 5 of the paper are exact cases."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia import sample
from tertulia.core.dialogue import Dialogue
from tertulia.corpus.rooms.formats import format_named, parse_log
from tertulia.corpus.rooms.gold import read_gold
from tertulia.corpus.rooms.line import Log, RoomLine
from tertulia.corpus.rooms.lowe import LoweRules, extract, pairings
from tertulia.corpus.rooms.turns import as_dialogue, nicks_of, reason_to_drop, utterances

FIGURE_4 = """\
[03:44] <Old> I dont run graphical ubuntu, I run ubuntu server.
[03:45] <kuja> Taru: Haha sucker.
[03:45] <Taru> Kuja: ?
[03:45] <bur[n]er> Old: you can use "ps ax" and "kill (PID#)"
[03:45] <kuja> Taru: Anyways, you made the changes right?
[03:45] <Taru> Kuja: Yes.
[03:45] <LiveCD> or killall speedlink
[03:45] <kuja> Taru: Then from the terminal type: sudo apt-get update
[03:46] <_pm> if i install the beta version, how can i update it when the final version comes out?
[03:46] <Taru> Kuja: I did."""

FIGURE_5 = """\
[12:21] <dell> well, can I move the drives?
[12:21] <cucho> dell: ah not like that
[12:21] <RC> dell: you can't move the drives
[12:21] <RC> dell: definitely not
[12:21] <dell> ok
[12:21] <dell> lol
[12:21] <RC> this is the problem with RAID:)
[12:21] <dell> RC haha yeah
[12:22] <dell> cucho, I guess I could just get an enclosure and copy via USB...
[12:22] <cucho> dell: i would advise you to get the disk"""


def log_of(text: str) -> Log:
    return Log("log", "room", tuple(parse_log(text.split("\n"), format_named("ubuntu"))))


def all_dialogues(text: str) -> dict[tuple[str, str], Dialogue]:
    """Before any is dropped."""
    log = log_of(text)
    said = utterances(log.lines, nicks_of(log.lines))
    return {p.users: as_dialogue([said[k] for k in p.places], log, "d") for p in pairings(said, LoweRules())}


def spoken(dialogue: Dialogue) -> list[tuple[str, str]]:
    return [(turn.speaker, turn.text) for turn in dialogue.turns]


def test_figure_4() -> None:
    found = all_dialogues(FIGURE_4)
    assert set(found) == {("bur[n]er", "old"), ("kuja", "taru")}
    assert spoken(found["bur[n]er", "old"]) == [
        ("Old", "I dont run graphical ubuntu, I run ubuntu server."),
        ("bur[n]er", 'you can use "ps ax" and "kill (PID#)"'),
    ]
    assert spoken(found["kuja", "taru"]) == [
        ("kuja", "Haha sucker."),
        ("Taru", "?"),
        ("kuja", "Anyways, you made the changes right?"),
        ("Taru", "Yes."),
        ("kuja", "Then from the terminal type: sudo apt-get update"),
        ("Taru", "I did."),
    ]


def test_figure_5() -> None:
    found = all_dialogues(FIGURE_5)
    assert set(found) == {("cucho", "dell"), ("dell", "rc")}
    assert spoken(found["cucho", "dell"]) == [
        ("dell", "well, can I move the drives?"),
        ("cucho", "ah not like that"),
        ("dell", "I guess I could just get an enclosure and copy via USB..."),
        ("cucho", "i would advise you to get the disk"),
    ]
    assert spoken(found["dell", "rc"]) == [
        ("dell", "well, can I move the drives?"),
        ("RC", "you can't move the drives. definitely not. this is the problem with RAID:)"),
        ("dell", "haha yeah"),
    ]


def test_every_turn_leads_back_to_its_lines() -> None:
    turns = all_dialogues(FIGURE_5)["dell", "rc"].turns
    assert [turn.source for turn in turns] == [("log:0",), ("log:2", "log:3", "log:6"), ("log:7",)]


def test_two_turns_are_too_few() -> None:
    kept = extract(log_of(FIGURE_4))
    assert [d.id for d in kept.dialogues] == ["log:kuja+taru"]
    assert kept.dropped == {"too short": 1}


@pytest.mark.parametrize(("minute", "turns"), [(13, 4), (14, 3)])
def test_a_question_is_answered_within_three_minutes(minute: int, turns: int) -> None:
    text = f"[10:10] <ann> how?\n[10:{minute}] <bob> ann: so\n[10:{minute}] <ann> bob: ah\n[10:{minute}] <bob> ann: yes"
    (dialogue,) = extract(log_of(text)).dialogues
    assert len(dialogue.turns) == turns
    assert dialogue.meta["minutes"] == (3 if turns == 4 else 0)


@pytest.mark.parametrize(("extra", "reason"), [(4, None), (6, None), (7, "one-sided")])
def test_one_user_may_not_have_over_80_percent(extra: int, reason: str | None) -> None:
    """With 2 of 10 lines the other has exactly 20 per cent, which is not too few; with 2 of 11 he has."""
    lines = ["[10:00] <ann> bob: hm", "[10:00] <bob> ann: ah", "[10:00] <ann> bob: hm", "[10:00] <bob> ann: oh"]
    lines += ["[10:00] <ann> bob: and"] * extra
    log = log_of("\n".join(lines))
    said = utterances(log.lines, nicks_of(log.lines))
    assert reason_to_drop(said, LoweRules()) == reason


def test_a_nick_of_the_day_before_counts_and_older_ones_do_not() -> None:
    log = log_of("[10:00] <bob> carla99 hi\n[10:01] <ann> hello")
    assert utterances(log.lines, nicks_of(log.lines))[0].recipient is None
    assert utterances(log.lines, nicks_of(log.lines) | {"carla99"})[0].recipient == "carla99"


def test_a_common_word_needs_a_mark() -> None:
    log = log_of("[10:00] <well> hm\n[10:01] <bob> well that is odd\n[10:01] <bob> well: see")
    assert [u.recipient for u in utterances(log.lines, {"well", "bob"})] == [None, None, "well"]


def test_ignored_nicks_hold_no_dialogues() -> None:
    assert extract(log_of(FIGURE_4), LoweRules(ignore=("Kuja",))).dialogues == ()


def test_the_sample_room_gives_dialogues_of_two() -> None:
    logs = [gold.log for gold in read_gold("sample")]
    found = [d for log in logs for d in extract(log).dialogues]
    assert len(logs) == len(sample.room())
    assert len(found) > 20
    assert all(len(d.speakers) == 2 and len(d.turns) >= 3 for d in found)
    assert all(one.speaker != other.speaker for d in found for one, other in zip(d.turns, d.turns[1:], strict=False))


nicks = st.sampled_from(["ann1", "bob2", "cyd3", "old"])
talk = st.lists(st.tuples(nicks, st.none() | nicks, st.integers(0, 4)), max_size=25)


@settings(max_examples=200, deadline=None)
@given(talk)
def test_whatever_is_said_dialogues_keep_the_rules(said: Sequence[tuple[str, str | None, int]]) -> None:
    time, lines = 0, []
    for number, (who, whom, minutes) in enumerate(said):
        time += 60 * minutes
        lines.append(RoomLine(number, time, who, f"{whom}: hm" if whom else "hm"))
    present = {who for who, _, _ in said}
    for dialogue in extract(Log("l", "r", tuple(lines))).dialogues:
        numbers = [int(source.split(":")[1]) for turn in dialogue.turns for source in turn.source]
        assert numbers == sorted(set(numbers))
        assert {said[n][0] for n in numbers} == set(dialogue.speakers)
        assert len(dialogue.speakers) == 2
        assert len(dialogue.turns) >= 3
        assert not {said[n][1] for n in numbers[1:]} & present - set(dialogue.speakers)

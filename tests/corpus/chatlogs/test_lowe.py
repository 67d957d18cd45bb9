"""The rules of the Ubuntu Dialogue Corpus; figures 4 and 5 of Lowe et al. (2015) are exact test cases."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia import sample
from tertulia.core.dialogue import Dialogue
from tertulia.corpus.chatlogs.dialogues import as_dialogue, nicks_of, reason_to_drop, utterances_of
from tertulia.corpus.chatlogs.formats import format_named, parse_log
from tertulia.corpus.chatlogs.gold import read_gold
from tertulia.corpus.chatlogs.log import Log, LogLine
from tertulia.corpus.chatlogs.lowe import LoweRules, extract_dialogues, two_party_dialogues

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
    """All dialogues of a log, before any is dropped."""
    log = log_of(text)
    utterances = utterances_of(log.lines, nicks_of(log.lines))
    return {
        two.users: as_dialogue([utterances[i] for i in two.indices], log, "d")
        for two in two_party_dialogues(utterances, LoweRules())
    }


def turns_of(dialogue: Dialogue) -> list[tuple[str, str]]:
    return [(turn.speaker, turn.text) for turn in dialogue.turns]


def test_figure_4() -> None:
    dialogues = all_dialogues(FIGURE_4)
    assert set(dialogues) == {("bur[n]er", "old"), ("kuja", "taru")}
    assert turns_of(dialogues["bur[n]er", "old"]) == [
        ("Old", "I dont run graphical ubuntu, I run ubuntu server."),
        ("bur[n]er", 'you can use "ps ax" and "kill (PID#)"'),
    ]
    assert turns_of(dialogues["kuja", "taru"]) == [
        ("kuja", "Haha sucker."),
        ("Taru", "?"),
        ("kuja", "Anyways, you made the changes right?"),
        ("Taru", "Yes."),
        ("kuja", "Then from the terminal type: sudo apt-get update"),
        ("Taru", "I did."),
    ]


def test_figure_5() -> None:
    dialogues = all_dialogues(FIGURE_5)
    assert set(dialogues) == {("cucho", "dell"), ("dell", "rc")}
    assert turns_of(dialogues["cucho", "dell"]) == [
        ("dell", "well, can I move the drives?"),
        ("cucho", "ah not like that"),
        ("dell", "I guess I could just get an enclosure and copy via USB..."),
        ("cucho", "i would advise you to get the disk"),
    ]
    assert turns_of(dialogues["dell", "rc"]) == [
        ("dell", "well, can I move the drives?"),
        ("RC", "you can't move the drives. definitely not. this is the problem with RAID:)"),
        ("dell", "haha yeah"),
    ]


def test_every_turn_names_its_source_lines() -> None:
    turns = all_dialogues(FIGURE_5)["dell", "rc"].turns
    assert [turn.source for turn in turns] == [("log:0",), ("log:2", "log:3", "log:6"), ("log:7",)]


def test_dialogues_of_two_turns_are_dropped() -> None:
    extracted = extract_dialogues(log_of(FIGURE_4))
    assert [d.id for d in extracted.dialogues] == ["log:kuja+taru"]
    assert extracted.dropped == {"too short": 1}


@pytest.mark.parametrize(("minute", "turns"), [(13, 4), (14, 3)])
def test_the_question_is_at_most_three_minutes_old(minute: int, turns: int) -> None:
    text = f"[10:10] <ann> how?\n[10:{minute}] <bob> ann: so\n[10:{minute}] <ann> bob: ah\n[10:{minute}] <bob> ann: yes"
    (dialogue,) = extract_dialogues(log_of(text)).dialogues
    assert len(dialogue.turns) == turns
    assert dialogue.meta["minutes"] == (3 if turns == 4 else 0)


@pytest.mark.parametrize(("extra", "reason"), [(4, None), (6, None), (7, "one-sided")])
def test_dialogues_with_over_80_percent_by_one_user_are_dropped(extra: int, reason: str | None) -> None:
    """2 of 10 lines are exactly 20 per cent, which is enough; 2 of 11 are not."""
    lines = ["[10:00] <ann> bob: hm", "[10:00] <bob> ann: ah", "[10:00] <ann> bob: hm", "[10:00] <bob> ann: oh"]
    lines += ["[10:00] <ann> bob: and"] * extra
    log = log_of("\n".join(lines))
    utterances = utterances_of(log.lines, nicks_of(log.lines))
    assert reason_to_drop(utterances, LoweRules()) == reason


def test_nicks_of_the_day_before_can_be_recipients() -> None:
    log = log_of("[10:00] <bob> carla99 hi\n[10:01] <ann> hello")
    assert utterances_of(log.lines, nicks_of(log.lines))[0].recipient is None
    assert utterances_of(log.lines, nicks_of(log.lines) | {"carla99"})[0].recipient == "carla99"


def test_a_common_word_is_a_recipient_only_with_punctuation() -> None:
    log = log_of("[10:00] <well> hm\n[10:01] <bob> well that is odd\n[10:01] <bob> well: see")
    assert [u.recipient for u in utterances_of(log.lines, {"well", "bob"})] == [None, None, "well"]


def test_ignored_nicks_have_no_dialogues() -> None:
    assert extract_dialogues(log_of(FIGURE_4), LoweRules(ignore=("Kuja",))).dialogues == ()


def test_the_sample_gives_dialogues_of_two() -> None:
    logs = [gold.log for gold in read_gold("sample")]
    dialogues = [d for log in logs for d in extract_dialogues(log).dialogues]
    assert len(logs) == len(sample.room())
    assert len(dialogues) > 20
    assert all(len(d.speakers) == 2 and len(d.turns) >= 3 for d in dialogues)
    assert all(
        one.speaker != other.speaker for d in dialogues for one, other in zip(d.turns, d.turns[1:], strict=False)
    )


nicks = st.sampled_from(["ann1", "bob2", "cyd3", "old"])
any_lines = st.lists(st.tuples(nicks, st.none() | nicks, st.integers(0, 4)), max_size=25)


@settings(max_examples=200, deadline=None)
@given(any_lines)
def test_the_rules_hold_for_any_log(messages: Sequence[tuple[str, str | None, int]]) -> None:
    time, lines = 0, []
    for number, (who, whom, minutes) in enumerate(messages):
        time += 60 * minutes
        lines.append(LogLine(number, time, who, f"{whom}: hm" if whom else "hm"))
    present = {who for who, _, _ in messages}
    for dialogue in extract_dialogues(Log("l", "r", tuple(lines))).dialogues:
        numbers = [int(source.split(":")[1]) for turn in dialogue.turns for source in turn.source]
        assert numbers == sorted(set(numbers))
        assert {messages[n][0] for n in numbers} == set(dialogue.speakers)
        assert len(dialogue.speakers) == 2
        assert len(dialogue.turns) >= 3
        assert not {messages[n][1] for n in numbers[1:]} & present - set(dialogue.speakers)

"""Preferences from files: what TRL reads, what studies export, what visitors regenerated, and who is left out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.codec import dialogue_to_json
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DamagedLine, UsageError
from tertulia.corpus.preferences.read import read_preferences
from tertulia.corpus.preferences.trl import decode
from tertulia.corpus.preferences.values import (
    LabelledReply,
    PreferencePair,
    PreferenceSet,
    as_pairs,
    as_replies,
    split,
)
from tertulia.study.export import EXPORT_WRITERS


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


ASKED = [message("system", "I sail."), message("user", "Hi!")]
GOOD, BAD = message("assistant", "Hello."), message("assistant", "No.")
HH = "\n\nHuman: Hi!\n\nAssistant: Well?\n\nHuman: So?\n\nAssistant:"


@pytest.mark.parametrize(
    ("record", "said", "persona"),
    [
        ({"prompt": "Hi!", "chosen": "Hello.", "rejected": "No."}, ["Hi!"], None),
        ({"prompt": ASKED, "chosen": [GOOD], "rejected": [BAD]}, ["Hi!"], "I sail."),
        ({"chosen": [*ASKED, GOOD], "rejected": [*ASKED, BAD]}, ["Hi!"], "I sail."),
        ({"prompt": "Hi!", "chosen": [ASKED[1], GOOD], "rejected": [ASKED[1], BAD], "score": 3}, ["Hi!"], None),
        ({"chosen": f"{HH} Hello.", "rejected": f"{HH} No."}, ["Hi!", "Well?", "So?"], None),
        ({"prompt": HH, "chosen": " Hello.", "rejected": " No."}, ["Hi!", "Well?", "So?"], None),
        ({"prompt": "Hi!", "chosen": "Hello.", "rejected": "No.", "persona": ["I sail."]}, ["Hi!"], "I sail."),
    ],
)
def test_pairs_in_the_forms_of_trl(record: Mapping[str, Any], said: Sequence[str], persona: str | None) -> None:
    pair = decode(record)
    assert isinstance(pair, PreferencePair)
    assert (pair.chosen, pair.rejected) == ("Hello.", "No.")
    assert [turn.text for turn in pair.context.turns] == said
    assert [turn.speaker == pair.speaker for turn in pair.context.turns] == [n % 2 == 1 for n in range(len(said))]
    described = pair.context.persona_of(pair.speaker)
    assert (" ".join(described.sentences) if described else None) == persona


@pytest.mark.parametrize("completion", ["Hello.", [GOOD]])
def test_labels_of_kto(completion: Any) -> None:
    for label in (True, False):
        one = decode({"prompt": ASKED, "completion": completion, "label": label})
        assert isinstance(one, LabelledReply)
        assert (one.reply, one.desirable, one.context.turns[0].text) == ("Hello.", label, "Hi!")
    with pytest.raises(TypeError, match="true or false"):
        decode({"prompt": "Hi!", "completion": "Hello.", "label": "yes"})


CONTEXT = [{"speaker": "1", "text": "=hi"}]


def row(number: int, **more: Any) -> dict[str, Any]:
    """One judgement as `tertulia study export` writes it."""
    base = {"study": "s", "unit": "u", "participant": f"p{number}", "assignment": f"a{number}", "current": True}
    base |= {"assignment_state": "submitted", "target": "unit", "question": "quality", "kind": "side", "value": "A"}
    base |= {"bots": ["x", "y"], "context": CONTEXT, "shown_a": "-Hello.", "shown_b": "No.", "persona": ["I sail."]}
    return base | more


def rating(number: int, text: str, value: float, kind: str = "scale", **more: Any) -> dict[str, Any]:
    base = {"kind": kind, "value": value, "value_number": value, "text": text, "bots": ["x"]}
    return row(number, **(base | {"shown_a": None, "shown_b": None} | more))


def written(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    with file.open("wb") as out:
        EXPORT_WRITERS[file.suffix[1:]](rows, out)  # type: ignore[index]
    return file


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_the_majority_of_a_study_decides_in_every_format(tmp_path: Path, ending: str) -> None:
    swapped = {"shown_a": "No.", "shown_b": "-Hello."}
    rows = [row(1), row(2, value="B", **swapped), row(3, value="B"), row(4, value="tie")]
    rows += [row(5, value="B", current=False), row(6, value="B", assignment_state="released")]
    rows += [row(7, unit="v", context=[{"speaker": "1", "text": "bye"}], value=value) for value in ("A", "B")]
    rows += [row(8, kind="text", question="why", value="because")]
    preferences = read_preferences([written(tmp_path / f"study.{ending}", rows)])
    (pair,) = preferences.pairs
    assert (pair.chosen, pair.rejected, pair.context.turns[0].text) == ("-Hello.", "No.", "=hi")
    assert pair.context.personas == {pair.speaker: Persona(("I sail.",))}
    assert preferences.counts == {"read": 9, "superseded": 1, "unfinished": 1, "not_about_a_reply": 1, "tied": 1}
    assert preferences.raters == ("p1", "p2", "p3", "p4", "p7")


def test_ratings_become_pairs_in_one_context_and_else_labels(tmp_path: Path) -> None:
    other = [{"speaker": "1", "text": "why?"}]
    rows = [rating(1, "Hello.", 5), rating(2, "Hello.", 4), rating(1, "No.", 4), rating(2, "Hm.", 4.5)]
    rows += [rating(1, "So.", 2, context=other), {**rating(1, "", 7), "text": None}]
    rows += [rating(1, "A sentence.", 7, target="sentence:0")]
    preferences = read_preferences([written(tmp_path / "likert.jsonl", rows)], thresholds={"quality": 3})
    assert [(pair.chosen, pair.rejected) for pair in preferences.pairs] == [("Hello.", "No."), ("Hm.", "No.")]
    assert [(one.reply, one.desirable) for one in preferences.replies] == [("So.", False)]
    assert preferences.counts == {"read": 7, "tied": 1, "not_about_a_reply": 2}
    without = read_preferences([tmp_path / "likert.jsonl"])
    assert (without.replies, without.counts["without_threshold"]) == ((), 1)


def test_ssa_labels_and_votes_need_no_threshold(tmp_path: Path) -> None:
    contexts = [[{"speaker": "1", "text": str(n)}] for n in range(5)]
    rows = [
        rating(1, "both", 1, "yes-no", question="sensible", context=contexts[0]),
        rating(1, "both", 1, "yes-no", question="specific", context=contexts[0]),
        rating(1, "sensible", 1, "yes-no", question="sensible", context=contexts[1]),
        rating(1, "sensible", 0, "yes-no", question="specific", context=contexts[1]),
        rating(1, "neither", 0, "yes-no", question="sensible", context=contexts[2]),
        rating(1, "up", 1, "vote", question="vote", context=contexts[3]),
        rating(1, "down", -1, "vote", question="vote", context=contexts[4]),
    ]
    file = written(tmp_path / "ssa.jsonl", rows)
    preferences = read_preferences([file])
    labels = {one.reply: one.desirable for one in preferences.replies}
    assert labels == {"both": True, "neither": False, "up": True, "down": False}
    assert preferences.counts["tied"] == 1
    only = read_preferences([file], questions=["vote"])
    assert [one.reply for one in only.replies] == ["up", "down"]
    assert only.counts["other_question"] == 5


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"speaker": "12"[n % 2], "text": text} for n, text in enumerate(texts)]


def test_two_chats_are_compared_as_long_as_they_are_equal(tmp_path: Path) -> None:
    shared = {"context": None, "question": "better_reply"}
    first, later = turns("hi", "Hello."), turns("hi", "Hello.", "so?", "Yes.")
    rows = [
        row(1, **shared, target="turn:t1", shown_a=first, shown_b=turns("hi", "No.")),
        row(1, **shared, target="turn:t2", shown_a=later, shown_b=turns("hi", "No.", "so?", "Never.")),
        row(1, **shared, target="turn:t3", shown_a=later, shown_b=turns("hi", "No.", "so?", "Why?"), value="both_bad"),
        row(1, **{**shared, "question": "better_partner"}, shown_a=later, shown_b=turns("hi", "Bye.", "so?", "No.")),
    ]
    preferences = read_preferences([written(tmp_path / "arena.parquet", rows)])
    assert {(pair.chosen, pair.rejected) for pair in preferences.pairs} == {("Hello.", "No."), ("Hello.", "Bye.")}
    labels = {(len(one.context.turns), one.reply): one.desirable for one in preferences.replies}
    assert labels == {(3, "Never."): False, (3, "Why?"): False}  # "Yes." has a vote of either kind
    assert preferences.counts["tied"] == 2


def test_people_who_withdrew_are_left_out(tmp_path: Path) -> None:
    rows = [row(n, context=[{"speaker": "1", "text": str(n)}]) for n in range(1, 6)]
    file = tmp_path / "study.jsonl"
    marked = [{"participant": "p2", "withdrawn": True}, *rows, rows[2] | {"assignment_state": "withdrawn"}]
    file.write_text("".join(json.dumps(one) + "\n" for one in marked))
    preferences = read_preferences([file], withdrawn=["p5"])
    assert sorted(pair.context.turns[0].text for pair in preferences.pairs) == ["1", "4"]
    assert (preferences.raters, preferences.withdrawn) == (("p1", "p4"), ("p2", "p3", "p5"))
    assert preferences.counts == {"read": 7, "withdrawn": 5}


def test_a_regenerated_reply_loses_against_the_one_that_stayed(tmp_path: Path) -> None:
    def bot(name: str, text: str, current: bool, replaces: str | None = None, status: str = "done") -> Turn:
        return Turn("bot", text, meta={"id": name, "current": current, "status": status, "replaces": replaces})

    def user(name: str, text: str, current: bool = True) -> Turn:
        return Turn("user", text, meta={"id": name, "current": current})

    said = [user("u0", "old", False), bot("b0", "to the old one", False), user("u1", "hi")]
    said += [bot("b1", "No.", False), bot("b2", "Hello.", True, "b1"), bot("b3", "cut", False, "b2", "stopped")]
    said += [user("u2", "so?"), bot("b4", "Yes.", True)]
    dialogue = Dialogue("c", tuple(said), {"bot": Persona(("I sail.",))})
    file = tmp_path / "store.jsonl"
    file.write_text(json.dumps(dialogue_to_json(dialogue)))
    (pair,) = read_preferences([file]).pairs
    assert (pair.chosen, pair.rejected, [turn.text for turn in pair.context.turns]) == ("Hello.", "No.", ["hi"])
    assert pair.context.persona_of("bot") == Persona(("I sail.",))


def test_pairs_and_labels_can_be_made_of_each_other() -> None:
    context = Dialogue("", (Turn("user", "hi"),))
    labels = tuple(LabelledReply(context, "bot", text, text < "c") for text in "abc")
    from_labels = PreferenceSet(replies=labels)
    assert [(pair.chosen, pair.rejected) for pair in as_pairs(from_labels)] == [("a", "c"), ("b", "c")]
    from_pairs = PreferenceSet(pairs=(PreferencePair(context, "bot", "a", "c"),))
    assert [(one.reply, one.desirable) for one in as_replies(from_pairs)] == [("a", True), ("c", False)]


def test_conversations_stay_on_one_side_of_a_split() -> None:
    contexts = [Dialogue(f"c{n // 3}", (Turn("user", f"{n}"),)) for n in range(60)]
    replies = [LabelledReply(context, "bot", "ok", True) for context in contexts]
    train, valid = split(replies, 0.2, 7)
    assert (len(train), len(valid)) == (48, 12)
    assert not {one.context.id for one in train} & {one.context.id for one in valid}
    assert split(replies, 0.2, 7) == (train, valid) != split(replies, 0.2, 8)
    assert split(replies[:3], 0.2, 7) == (replies[:3], [])


def test_damage_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    good = json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"})
    for text, message in ((f"{good}\n\n{{", "line 3: not valid JSON"), (f"{good}\n[1]", "line 2")):
        file.write_text(text)
        with pytest.raises(DamagedLine, match=message):
            read_preferences([file])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        read_preferences([tmp_path / "broken.parquet"])

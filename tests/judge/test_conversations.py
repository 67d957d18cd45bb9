"""Who is judged in a conversation, and what a judged run of conversations holds."""

from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.load import save_dialogues
from tertulia.judge.conversations import (
    COPIED,
    ConversationsConfig,
    bots_of,
    conversation_example,
    conversation_items,
    conversation_metrics,
    describe_files,
    judged_conversations,
    run_conversations,
)
from tertulia.judge.report import report_run
from tertulia.judge.runs import load_run, save_run
from tertulia.metrics.conversation import CONVERSATION_METRICS


def made_by(bot: str) -> dict[str, object]:
    return {"provenance": {"bot": bot, "checkpoint": "abc" if bot == "run" else None}}


def selfplay(name: str, first: str, second: str, *texts: str) -> Dialogue:
    """As `tertulia selfplay` writes it: a given opener, then replies with their provenance."""
    turns = [Turn("A", "Hi!")]
    for i, text in enumerate(texts):
        turns.append(Turn("BA"[i % 2], text, meta=made_by((second, first)[i % 2])))
    return Dialogue(name, tuple(turns), meta={"bots": [first, second]})


def test_two_bots_are_judged_in_turn_and_one_with_itself_as_a_whole() -> None:
    duel = selfplay("d", "run", "generic", "ok", "Well?", "I don't know.")
    alone = selfplay("d", "run", "run", "ok", "Well?")
    judged = judged_conversations([("duel", duel), ("alone", alone)])
    assert [(one.subject, one.unit, one.example.judged) for one in judged] == [
        ("run", "d", (False, False, True, False)),
        ("generic", "d", (False, True, False, True)),
        ("run", "d (2)", (False, True, True)),
    ]
    shown = [item.content["judged"] for item in conversation_items(judged)]  # the given opener is nobody's
    assert shown == [[False, False, True, False], [False, True, False, True], [False, True, True]]
    by_file = judged_conversations([("duel", duel), ("alone", alone)], by="file")
    assert [(one.subject, one.example.judged) for one in by_file] == [
        ("duel", (False, True, True, True)),
        ("alone", (False, True, True)),
    ]
    by_speaker = judged_conversations([("duel", duel)], by="speaker", speaker="B")
    assert [(one.subject, one.example.judged) for one in by_speaker] == [("B", (False, True, False, True))]


def test_bots_by_provenance_meta_and_name() -> None:
    two = (Turn("user", "hi"), Turn("bot", "hello"))
    assert bots_of(Dialogue("d", two)) == {"bot": "bot"}
    assert bots_of(Dialogue("d", two, meta={"bot": "anna"})) == {"bot": "anna"}
    assert bots_of(Dialogue("d", two, meta={"bots": {"bot": "tfidf"}})) == {"bot": "tfidf"}
    assert bots_of(Dialogue("d", two, meta={"bots": ["generic"]})) == {"user": "generic", "bot": "generic"}
    assert bots_of(Dialogue("d", (Turn("Ana", "hi"), Turn("Ben", "ho")))) == {}


def test_without_bots_everybody_is_judged() -> None:
    chat = Dialogue("d", (Turn("Ana", "hi"), Turn("Ben", "ho")))
    (one,) = judged_conversations([("file", chat)])
    assert (one.subject, one.example.judged) == ("file", (True, True))
    with pytest.raises(UsageError, match="No turn is by the speaker 'Cleo'") as error:
        judged_conversations([("file", chat)], speaker="Cleo")
    assert error.value.hint == "Speakers: 'Ana', 'Ben'."


def test_turns_in_a_row_are_one_and_replaced_ones_none() -> None:
    turns = (
        Turn("user", "hi"),
        Turn("user", "you there?"),
        Turn("bot", "no", meta={"current": False, "bot": "anna"}),
        Turn("bot", "yes", meta={"current": True, "bot": "anna"}),
    )
    chat = Dialogue("d", turns, {"bot": Persona(("I like tea.",))}, meta={"bot": "anna"})
    (one,) = judged_conversations([("export", chat)])
    assert one.subject == "anna"
    assert one.example[:3] == (("hi\nyou there?", "yes"), (False, True), ("I like tea.",))
    assert one.example[3:] == (("user", "bot"), (("bot", ("I like tea.",)),))
    assert [turn.text for turn in one.dialogue.turns] == ["hi", "you there?", "yes"]
    assert conversation_example(chat, ["user"]).judged == (True, False)


def write(folder: Path, *dialogues: Dialogue) -> str:
    path = folder / "chats.jsonl"
    save_dialogues(dialogues, path)
    return str(path)


METRICS = ("words elicited", "question score", "sentiment", "loop", "shared run of 2 turns", "copied run of 2 turns")


def test_a_run_of_conversations(tmp_path: Path) -> None:
    chats = [selfplay(f"d{i}", "run", "generic", "ok", "What is it?", "I don't know.", "Haha, fine") for i in range(3)]
    file = write(tmp_path, *chats)
    config = ConversationsConfig(files=(file,), metrics=METRICS, training="sample")
    run = save_run(run_conversations(config), tmp_path / "out", data=describe_files(config))
    assert load_run(tmp_path / "out") == run
    assert [(s.name, s.kind, s.fingerprint) for s in run.subjects] == [("run", "bot", "abc"), ("generic", "bot", "")]
    figures = {(subject, metric): figure.value for (subject, _, metric), figure in run.estimates().items()}
    assert figures["generic", "words elicited"] == pytest.approx((3 + 2) / 2)
    assert figures["run", "question score"] == pytest.approx((1 + 0) / 2)
    assert figures["generic", "loop"] == 0
    assert figures["run", "shared run of 2 turns"] == 1
    assert figures["run", "copied run of 2 turns"] == 0
    assert figures["generic", "sentiment"] > 0.05  # haha
    item = run.items[0]
    assert (item.unit, item.subject, item.content["dialogue"]) == ("d0", "run", "d0")
    assert [(turn["speaker"], turn["text"]) for turn in item.content["turns"][:2]] == [("A", "Hi!"), ("B", "ok")]
    assert item.content["turns"][1]["provenance"]["bot"] == "generic"
    assert run.comparisons()[0].subject == "generic"
    assert "3 subjects" not in report_run(run, plots=False).document.lead


def test_defaults_and_wrong_metrics(tmp_path: Path) -> None:
    names = [metric.name for metric in conversation_metrics(ConversationsConfig(files=("x",)))]
    assert tuple(names[:11]) == CONVERSATION_METRICS
    with_training = conversation_metrics(ConversationsConfig(files=("x",), training="sample"))
    assert [metric.name for metric in with_training] == [*names, *COPIED]
    with pytest.raises(UsageError, match="'f1' is a metric of replies; judge conversations computes"):
        run_conversations(ConversationsConfig(files=("sample",), metrics=("f1",)))
    empty = write(tmp_path, Dialogue("d", ()))
    with pytest.raises(DataError, match="no conversations"):
        run_conversations(ConversationsConfig(files=(empty,), metrics=("turns",)))


def test_several_files_are_subjects_of_their_own(tmp_path: Path) -> None:
    for name, text in (("ana", "one two"), ("ben", "one two three")):
        save_dialogues([Dialogue("d", (Turn("x", text), Turn("y", text)))], tmp_path / f"{name}.jsonl")
    files = (str(tmp_path / "ana.jsonl"), str(tmp_path / "ben.jsonl"))
    config = ConversationsConfig(files=files, metrics=("words per turn",), by="file")
    run = run_conversations(config)
    assert {score.subject: score.values for score in run.scores} == {"ana": (2,), "ben": (3,)}
    assert describe_files(config)["digest"] != describe_files(ConversationsConfig(files=files[:1]))["digest"]
    assert len(run_conversations(ConversationsConfig(files=("sample",), metrics=("turns",), limit=4)).items) == 4


def test_consistency_by_the_built_in_rules(tmp_path: Path) -> None:
    turns = (
        Turn("ann", "what do you do ?"),
        Turn("bot", "i am in sales ."),
        Turn("ann", "kids ?"),
        Turn("bot", "two kids ."),
    )
    personas = {"bot": Persona(("i am a nurse.", "i have two kids.")), "ann": Persona(("i am in sales.",))}
    file = tmp_path / "chats.jsonl"
    save_dialogues([Dialogue("d", turns, personas)], file)
    names = ("turns contradicting persona", "turns entailed by persona", "turns contradicting own turns")
    run = run_conversations(ConversationsConfig(files=(str(file),), metrics=names))
    assert {score.metric: score.values for score in run.scores} == {
        names[0]: (0.5,),
        names[1]: (0.0,),
        names[2]: (0.0,),
    }

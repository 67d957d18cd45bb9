"""Each format as its publishers write it is recognised and read completely."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Persona, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.load import holds, load_dialogues, load_exchanges, recognise, save_dialogues
from tertulia.corpus.registry import READERS

Original = Callable[..., Path]


def texts(dialogue: Dialogue) -> list[tuple[str, str]]:
    return [(t.speaker, t.text) for t in dialogue.turns]


def test_every_original_is_recognised(original: Original, tmp_path: Path) -> None:
    recognised, contents = {}, {}
    for name in READERS:
        file = original(name, tmp_path / name)
        compressed = file.with_name(file.name + ".gz")
        compressed.write_bytes(gzip.compress(file.read_bytes()))
        recognised[name] = recognise(file).name, recognise(compressed).name
        contents[name] = holds(file)
    assert recognised == {name: (name, name) for name in READERS}
    assert contents == {name: READERS.get(name).holds for name in READERS}


def test_a_folder_is_read_without_its_companions(original: Original, tmp_path: Path) -> None:
    failures = []
    for name in READERS:
        folder = original(name, tmp_path / name).parent
        (folder / "README.txt").write_text("Thank you for downloading.")
        problems = Problems()
        exchanges = list(load_exchanges(folder, problems=problems))
        is_same = exchanges == list(load_exchanges(folder, format=name))
        is_empty = READERS.get(name).holds == "dialogues" and not list(load_dialogues(folder))
        if problems.count or not is_same or is_empty:
            failures.append((name, problems.examples, is_same, is_empty))
    assert not failures


def test_numbered_text(original: Original) -> None:
    one, two = load_dialogues(original("personachat-text"))
    assert texts(one) == [
        ("first", "hello there !"),
        ("second", "hi , just baked a loaf ."),
        ("first", "smells good"),
        ("second", "it is rye"),
    ]
    assert one.turns[1].meta == {"candidates": ["who ?", "hi , just baked a loaf ."]}
    assert one.personas == {"second": Persona(("i sail.", "i bake bread.")), "first": Persona(("i knit.",))}
    assert texts(two) == [
        ("second", "hello , do you swim ?"),
        ("first", "a little"),
        ("second", "lovely"),
        ("first", "bye now"),
    ]
    assert two.personas == {"second": Persona(("i dive.",))}


def test_parlai(original: Original) -> None:
    one, two = load_dialogues(original("parlai"))
    assert texts(one) == [("first", "hello"), ("second", "hi , windy today"), ("first", "very"), ("second", "a")]
    assert one.personas == {"second": Persona(("i sail.", "i bake."))}
    assert one.turns[1].meta == {"context_dataset": "convai2"}
    assert one.turns[3].meta == {"candidates": ["yes|no", "maybe"], "labels": ["a", "b"]}
    assert texts(two) == [("first", "one\ntwo"), ("second", "three")]


def test_convokit_turns_are_sorted_by_replies_or_by_time(original: Original) -> None:
    folder = original("convokit").parent
    one, two = load_dialogues(folder)
    assert one == Dialogue(
        "u1",
        (Turn("ann", "hi", ("u1",)), Turn("bob", "hello", ("u2",), {"n": 1})),
        meta={"title": "T", "speakers": {"ann": {"age": 3}}},
    )
    assert texts(two) == [("ann", "early"), ("bob", "late")]
    assert [t.meta["timestamp"] for t in two.turns] == [10, 20]
    assert two.meta["title"] == "old"
    with pytest.raises(UsageError, match="no splits"):
        load_dialogues(folder, split="train")


def test_convokit_finds_every_field_of_metadata_in_the_index(tmp_path: Path) -> None:
    """What the index does not have, ConvoKit drops without a word when it saves the corpus again."""
    turns = (Turn("ana", "hi", meta={"mood": "ok", "score": 1}), Turn("ben", "ho", meta={"score": 0.5, "none": None}))
    meta = {"topic": ["x"], "real": True, "speakers": {"ana": {"age": 3}, "ben": {"age": "four"}}}
    personas = {"ben": Persona(("I sail.",))}
    save_dialogues([Dialogue("d", turns, personas, meta=meta)], tmp_path / "corpus", format="convokit")
    index = json.loads((tmp_path / "corpus" / "index.json").read_text())
    label = "<class '{}'>".format
    assert index["utterances-index"] == {
        "mood": [label("str")],
        "score": [label("int"), label("float")],
        "none": [],
    }
    assert index["speakers-index"] == {"age": [label("int"), label("str")]}
    assert index["conversations-index"] == {
        "topic": [label("list")],
        "real": [label("bool")],
        "tertulia": [label("dict")],
    }


def test_convokit_trees_record_what_a_turn_replies_to(tmp_path: Path) -> None:
    parents = [("r", None), ("a", "r"), ("b", "r"), ("aa", "a")]
    lines = [{"id": i, "conversation_id": "r", "text": i, "speaker": "s", "reply-to": to} for i, to in parents]
    file = tmp_path / "utterances.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    (dialogue,) = load_dialogues(file)
    assert [t.text for t in dialogue.turns] == ["r", "a", "aa", "b"]
    assert [t.meta for t in dialogue.turns] == [{}, {}, {}, {"reply_to": "r"}]
    lines[0]["reply-to"] = "aa"
    file.write_text("\n".join(map(json.dumps, lines)))
    problems = Problems()
    assert list(load_dialogues(file, problems=problems)) == []
    assert "line 1: the replies form a cycle" in problems.examples[0]


def test_dailydialog(original: Original) -> None:
    (one,) = load_dialogues(original("dailydialog"))
    assert one == Dialogue(
        "dailydialog-train-0",
        (Turn("user", "Coffee?", meta={"act": "directive", "emotion": "happiness"}), Turn("system", "Yes.")),
        meta={"topic": "Work", "split": "train"},
    )


def test_dailydialog_of_parlai(tmp_path: Path) -> None:
    turns = [{"text": "Coffee?", "act": "question", "emotion": "no_emotion"}, {"text": "Yes", "act": "inform"}]
    file = tmp_path / "train.json"
    file.write_text("".join(json.dumps({"topic": "work", "fold": "train", "dialogue": turns}) + "\n" for _ in "ab"))
    assert recognise(file).name == "dailydialog"
    one, two = load_dialogues(file)
    assert one == two
    assert texts(one) == [("first", "Coffee?"), ("second", "Yes")]
    assert (one.meta, one.turns[0].meta["act"]) == ({"topic": "work", "split": "train"}, "question")


def test_dailydialog_text_uses_labels_only_where_they_fit(original: Original) -> None:
    one, two = load_dialogues(original("dailydialog-text"))
    assert texts(one) == [("first", "How are you ?"), ("second", "Fine , and you ?")]
    assert [t.meta for t in one.turns] == [
        {"act": "question", "emotion": "no emotion"},
        {"act": "question", "emotion": "happiness"},
    ]
    assert [t.meta for t in two.turns] == [{"act": "directive"}, {"act": "inform"}, {"act": "inform"}]
    assert (one.meta, two.meta) == ({"topic": "Ordinary Life"}, {"topic": "Relationship"})


def test_the_labels_of_a_split_of_dailydialog(tmp_path: Path) -> None:
    (tmp_path / "dialogues_train.txt").write_text("Hi __eou__ Ho __eou__\n")
    (tmp_path / "dialogues_act_train.txt").write_text("1 2\n")
    (tmp_path / "dialogues_emotion_train.txt").write_text("0 x\n")
    with pytest.raises(DataError, match=r"dialogues_emotion_train\.txt, which the corpus depends on"):
        list(load_dialogues(tmp_path))
    (tmp_path / "dialogues_emotion_train.txt").unlink()
    (one,) = load_dialogues(tmp_path)
    assert [t.meta for t in one.turns] == [{"act": "inform"}, {"act": "question"}]


def test_empathetic(original: Original) -> None:
    (one,) = load_dialogues(original("empathetic"))
    assert one == Dialogue(
        "hit:3_conv:6",
        (Turn("speaker", "I lost my keys"), Turn("listener", "Oh dear")),
        meta={"emotion": "sad", "situation": "I lost my keys"},
    )


def test_empathetic_csv(original: Original) -> None:
    one, two = load_dialogues(original("empathetic-csv"))
    assert texts(one) == [("speaker", "My cat won!"), ("listener", "Well done, Tom"), ("speaker", "Thank you")]
    assert one.meta == {"emotion": "proud", "situation": "My cat, Tom, won a prize", "selfeval": "5|5|5_2|2|5"}
    assert texts(two) == [("speaker", "I heard steps"), ("listener", "Oh no")]
    assert two.turns[1].meta == {"candidates": ["one, two", "a|b"]}


def test_topical_chat_with_its_reading_sets(original: Original) -> None:
    one, two = load_dialogues(original("topical-chat"))
    assert (one.id, texts(one)) == ("t_1", [("agent_1", "Do you read?"), ("agent_2", "Poems.")])
    assert one.turns[1].meta == {"sentiment": "Happy", "knowledge_source": ["AS1"], "turn_rating": "Excellent"}
    assert one.evidence == (
        Evidence("Poetry is old.", "Poetry", "agent_1/FS1/shortened_wiki_lead_section"),
        Evidence("A poem rhymed.", "Poetry", "agent_1/FS1/fun_facts/0"),
        Evidence("The sea.", "Sea", "agent_2/FS1/summarized_wiki_lead_section"),
        Evidence("News", "https://example.org/a", "article/headline"),
        Evidence("A poet wrote.", "https://example.org/a", "article/AS1"),
    )
    assert (two.evidence, two.meta["reading_set"]["agent_1"]["FS1"]["fun_facts"]) == ((), ["t3_42gqyk"])


@pytest.mark.parametrize("built", ["post-build", "pre-build"])
def test_topical_chat_in_the_published_layout(originals: Any, tmp_path: Path, built: str) -> None:
    conversations, readings = originals["topical-chat"].values()
    for subfolder, text in (("conversations", conversations), (f"reading_sets/{built}", readings)):
        (tmp_path / subfolder).mkdir(parents=True)
        (tmp_path / subfolder / "valid_freq.json").write_text(text)
    one, _ = load_dialogues(tmp_path / "conversations")
    assert len(one.evidence) == 5


def test_cmu_dog_with_its_documents(original: Original) -> None:
    (one,) = load_dialogues(original("cmu-dog"))
    assert texts(one) == [("user1", "seen it?"), ("user2", "yes, twice")]
    assert one.evidence[0] == Evidence(
        "movieName: The Otter\nyear: 2001\ncast: Ann as Otter, Bob as Fish", "The Otter", "7/0"
    )
    assert [e.id for e in one.evidence] == ["7/0", "7/1", "7/2", "7/3"]
    assert (one.turns[1].meta["docIdx"], one.meta["whoSawDoc"]) == (1, ["user2"])


def test_cmu_dog_in_the_original_folder(originals: Any, tmp_path: Path) -> None:
    chat, documents = (json.loads(text) for text in originals["cmu-dog"].values())
    for subfolder, name, value in (
        ("WikiData", "Otter.json", documents["Otter.json"]),
        ("Conversations/train", "b.json", chat),
        ("Conversations/train", "a.json", chat),
        ("Conversations/valid", "c.json", chat),
    ):
        (tmp_path / subfolder).mkdir(parents=True, exist_ok=True)
        (tmp_path / subfolder / name).write_text(json.dumps(value, indent=2))
    assert [d.id for d in load_dialogues(tmp_path)] == ["a", "b", "c"]
    assert [d.id for d in load_dialogues(tmp_path, split="valid")] == ["c"]
    assert all(len(d.evidence) == 4 for d in load_dialogues(tmp_path))


def test_wizard_of_wikipedia(original: Original) -> None:
    (one,) = load_dialogues(original("wizard"))
    assert texts(one) == [("apprentice", "Tell me of otters"), ("wizard", "They hold hands")]
    assert one.evidence == (
        Evidence("Otters swim.\nThey hold hands.", "Otter", "topic"),
        Evidence("The sea is wet.", "Sea", "p1"),
    )
    assert [t.meta["passages"] for t in one.turns] == [["topic", "p1"], ["p1"]]
    assert one.turns[1].meta["checked_sentence"] == {"self_Otter_1": "They hold hands."}
    assert one.meta == {"chosen_topic": "Otter", "persona": "i love animals.", "wizard_eval": 5}


def test_blended_skill_talk_in_both_layouts(original: Original) -> None:
    short, long = load_dialogues(original("blended-skill-talk"))
    assert texts(short) == [("speaker", "Hi"), ("listener", "Hello"), ("speaker", "Bye")]
    assert short.personas == {"speaker": Persona(("i sail.",)), "listener": Persona(("i bake.", "i dig."))}
    assert texts(long) == [("speaker", "White or brown?"), ("listener", "Rye")]
    assert (long.personas["listener"], long.meta["additional_context"]) == (Persona(("i bake.",)), "Bread")


def test_sharegpt(original: Original) -> None:
    (one,) = load_dialogues(original("sharegpt"))
    assert texts(one) == [("user", "2+2?"), ("assistant", "4"), ("tool", "done")]
    assert one.persona_of("assistant") == Persona(("I am brief.",))


def test_begin_with_five_labels(original: Original) -> None:
    file = original("begin-v1")
    one, two = load_exchanges(file)
    assert one == Exchange(
        one.id,
        (Turn("user", "do otters sleep?"),),
        Turn("bot", 'they hold "hands" then', meta={"coarse": "entailment", "labels": ["on-topic", "faithful"]}),
        evidence=(Evidence("Otters hold hands."),),
        label="entailment",
    )
    assert (two.label, two.id != one.id) == ("off-topic", True)
    with pytest.raises(UsageError, match=r"contains exchanges"):
        list(load_dialogues(file))


def test_begin_with_three_labels(original: Original) -> None:
    one, two = load_exchanges(original("begin-v2"))
    assert (one.label, two.label) == ("Fully attributable", "Generic")
    assert one.response == Turn("bot", "yes, hand in hand", meta={"model": "t5", "data": "wow"})
    assert two.evidence == (Evidence("A film about otters."),)

"""What a format can hold comes back equal: written, recognised, and read again, by hypothesis."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Persona, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.core.text import squash
from tertulia.corpus.load import load_dialogues, load_exchanges, save_dialogues, save_exchanges
from tertulia.corpus.readers import wizard
from tertulia.corpus.readers.base import flat
from tertulia.corpus.table import READERS

anything = st.text(max_size=12)
said = st.text(min_size=1, max_size=12)
MARKS = ("persona:", "__SILENCE__", "__eou__", "__eot__", "__EOS__", "_comma_", "_pipe_", "__PIPE__", "\ufeff", "\\")


def plain(text: str) -> bool:
    return not any(mark in text for mark in MARKS)


line = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from(" \t\n|,;:"), max_size=12).map(flat)
line = line.filter(plain)
words = line.filter(bool)


def alternating(first: str, second: str, texts: st.SearchStrategy[str], **meta: Any) -> st.SearchStrategy[Any]:
    """Turns of two who take turns, the first one first."""
    metas = st.fixed_dictionaries({}, optional=meta)
    return st.lists(st.tuples(texts, metas), min_size=1, max_size=5).map(
        lambda turns: tuple(Turn((first, second)[i % 2], text, meta=m) for i, (text, m) in enumerate(turns))
    )


def personas(first: str, second: str, sentences: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    persona = st.lists(sentences, min_size=1, max_size=3).map(lambda found: Persona(tuple(found)))
    return st.fixed_dictionaries({}, optional={first: persona, second: persona})


def replies_with_candidates(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Only the one who replies has candidates."""
    return tuple(t if t.speaker == "second" else Turn(t.speaker, t.text) for t in turns)


def either_first(texts: st.SearchStrategy[str], **meta: Any) -> st.SearchStrategy[Any]:
    both = alternating("first", "second", texts, **meta) | alternating("second", "first", texts, **meta)
    return both.map(replies_with_candidates)


nothing: st.SearchStrategy[Any] = st.just({})


def dialogues(
    turns: Any, personas: Any = nothing, *, meta: Any = nothing, ids: Any = anything
) -> st.SearchStrategy[Dialogue]:
    return st.builds(Dialogue, ids, turns, personas=personas, meta=meta)


def optional(**fields: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=fields)


def any_order(*speakers: str, texts: Any, **meta: Any) -> st.SearchStrategy[Any]:
    turn = st.builds(Turn, st.sampled_from(speakers), texts, meta=optional(**meta))
    return st.lists(turn, min_size=1, max_size=5).map(tuple)


def from_first(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The one who begins is called the speaker."""
    names = {turns[0].speaker: "speaker"}
    return tuple(replace(t, speaker=names.get(t.speaker, "listener")) for t in turns)


numbered_text = (
    st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n|:"), max_size=12)
    .map(str.strip)
    .filter(plain)
)
parlai_text = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t\n|:"), max_size=12).filter(
    plain
)
passage = st.dictionaries(anything, st.lists(anything, max_size=3), min_size=1, max_size=2)
wizard_turn = st.fixed_dictionaries(
    {"speaker": st.sampled_from(["0_Wizard", "1_Apprentice"]), "text": anything},
    optional={
        "retrieved_passages": st.lists(passage, max_size=3),
        "checked_sentence": st.dictionaries(anything, anything, max_size=1),
        "retrieved_topics": st.lists(anything, max_size=2),
        "candidate_responses": st.lists(anything, max_size=2),
    },
)
wizard_record = st.fixed_dictionaries(
    {"chosen_topic": anything, "dialog": st.lists(wizard_turn, max_size=4)},
    optional={
        "persona": anything,
        "wizard_eval": st.integers(),
        "chosen_topic_passage": st.lists(anything, max_size=3),
    },
)


def with_sources(dialogue: Dialogue, number: int) -> Dialogue:
    """Ids that are unique in the corpus, and no meta by the names that ConvoKit has a place for."""

    def free(meta: Any) -> dict[str, Any]:
        return {k: v for k, v in meta.items() if k not in ("reply_to", "timestamp", "speakers", "tertulia")}

    turns = tuple(replace(t, source=(f"{number}.{i}",), meta=free(t.meta)) for i, t in enumerate(dialogue.turns))
    return replace(dialogue, id=f"{number}.0", turns=turns, meta=free(dialogue.meta))


def grounded(meta: Any) -> st.SearchStrategy[Exchange]:
    return st.builds(
        Exchange,
        st.just(""),
        st.lists(words.map(lambda text: Turn("user", text)), max_size=1).map(tuple),
        st.builds(Turn, st.just("bot"), line, meta=meta),
        evidence=st.lists(words.map(Evidence), max_size=1).map(tuple),
        label=words.filter(lambda text: text not in ("gold label", "begin_label")),
    )


def in_turns(found: list[tuple[bool, str]]) -> tuple[Turn, ...]:
    """A context that the first opens; somebody else goes on where it says so."""
    speakers = accumulate((changes for changes, _ in found[1:]), lambda now, changes: now ^ changes, initial=False)
    return tuple(Turn(("first", "second")[other], text) for other, (_, text) in zip(speakers, found, strict=False))


def answered(context: tuple[Turn, ...], texts: list[str], label: str | None, ranked: bool) -> Exchange:
    """A reply of whoever did not speak last; among candidates, where there are to be any."""
    speaker = "second" if context and context[-1].speaker == "first" else "first"
    reply = Turn(speaker, texts[0], meta={"candidates": texts} if ranked else {})
    return Exchange("", context, reply, label=label)


one_line = line.map(squash)
contexts = st.lists(st.tuples(st.booleans(), one_line), max_size=4).map(in_turns)
replies = st.lists(one_line.filter(bool), max_size=3).map("\n".join)
no_returns = anything.filter(lambda text: "\r" not in text)


class Case(NamedTuple):
    """A format, how its file ends, what it can hold, and whether an id is part of that."""

    format: str
    ending: str
    items: st.SearchStrategy[Any]
    ids: bool = True
    unique: bool = False
    """Whether neighbours are told apart by their ids."""


no_bars = words.filter(lambda text: "|" not in text)
candidates = st.lists(no_bars, min_size=1, max_size=3)
labels = st.lists(words.filter(lambda text: ";" not in text), min_size=1, max_size=2)
CASES = [
    Case("tertulia", ".json", st.from_type(Dialogue)),
    Case("exchanges", ".jsonl", st.from_type(Exchange)),
    Case("exchanges", ".json.gz", st.from_type(Exchange)),
    Case("personachat", ".json", dialogues(alternating("first", "second", anything), ids=anything)),
    Case("messages", ".json", dialogues(any_order("user", "assistant", texts=anything), ids=said)),
    Case("sharegpt", ".json", dialogues(any_order("user", "assistant", texts=anything), ids=said)),
    Case("sharegpt", ".jsonl", dialogues(any_order("user", "assistant", texts=anything), ids=said)),
    Case(
        "personachat-text",
        ".txt",
        dialogues(
            either_first(numbered_text, candidates=st.lists(no_bars, min_size=1, max_size=3), reward=words),
            personas("first", "second", numbered_text),
        ),
        ids=False,
    ),
    Case(
        "parlai",
        ".txt.gz",
        dialogues(either_first(parlai_text, candidates=candidates, source=words), personas("first", "second", line)),
        ids=False,
    ),
    Case(
        "dailydialog",
        ".json",
        dialogues(
            any_order("user", "system", texts=anything, act=said, emotion=said),
            meta=optional(topic=said, split=said),
            ids=anything,
        ),
    ),
    Case("dailydialog-text", ".txt", dialogues(alternating("first", "second", line)), ids=False),
    Case(
        "empathetic",
        ".json",
        dialogues(
            alternating("speaker", "listener", anything), meta=optional(emotion=said, situation=said), ids=anything
        ),
    ),
    Case(
        "empathetic-csv",
        ".csv",
        dialogues(
            any_order("speaker", "listener", texts=line, candidates=st.lists(words, min_size=1, max_size=2)).map(
                from_first
            ),
            meta=optional(emotion=words, situation=words, selfeval=words, tags=words),
            ids=words.filter(lambda text: "," not in text and text != "conv_id"),
        ),
    ),
    Case(
        "blended-skill-talk",
        ".json",
        dialogues(alternating("speaker", "listener", anything), personas("speaker", "listener", anything)),
        ids=False,
    ),
    *(
        Case(
            "topical-chat",
            ending,
            dialogues(
                any_order("agent_1", "agent_2", texts=anything, sentiment=said, knowledge_source=st.lists(said)),
                meta=optional(config=said, article_url=said),
                ids=anything,
            ),
        )
        for ending in (".json", ".jsonl")
    ),
    Case(
        "cmu-dog",
        ".json",
        dialogues(
            any_order("user1", "user2", texts=anything, docIdx=st.integers(0, 3), utcTimestamp=said),
            meta=optional(rating=st.integers(), wikiDocumentIdx=st.integers(), whoSawDoc=st.lists(said)),
            ids=said,
        ),
    ),
    Case(
        "ubuntu",
        ".csv.gz",
        dialogues(
            st.lists(
                st.builds(
                    Turn,
                    no_returns,
                    no_returns,
                    meta=optional(date=no_returns.filter(bool), to=no_returns.filter(bool)),
                ),
                min_size=1,
                max_size=5,
            ).map(tuple),
            ids=no_returns | st.integers(0, 9).map("3/{}".format),
        ),
        unique=True,
    ),
    Case(
        "ubuntu-pairs",
        ".csv",
        st.builds(answered, contexts, st.tuples(replies).map(list), st.sampled_from("01"), st.just(False)),
        ids=False,
    ),
    Case(
        "ubuntu-ranking",
        ".csv",
        st.builds(answered, contexts, st.lists(replies, min_size=3, max_size=3), st.none(), st.just(True)),
        ids=False,
    ),
    Case("wizard", ".json", wizard_record.map(wizard.decode), ids=False),
    Case("begin-v1", ".tsv", grounded(optional(coarse=words, labels=labels)), ids=False),
    Case("begin-v2", ".tsv.gz", grounded(optional(model=words, data=words)), ids=False),
]


def without_ids(items: list[Any]) -> list[Any]:
    return [replace(item, id="") for item in items]


def saver(case: Case) -> tuple[Callable[..., int], Callable[..., Any]]:
    is_dialogue = READERS.get(case.format).holds == "dialogues"
    return (save_dialogues, load_dialogues) if is_dialogue else (save_exchanges, load_exchanges)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format + case.ending)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_what_the_format_holds_comes_back(
    tmp_path_factory: pytest.TempPathFactory, case: Case, data: st.DataObject
) -> None:
    items = data.draw(st.lists(case.items, max_size=3, unique_by=(lambda item: item.id) if case.unique else None))
    file = tmp_path_factory.getbasetemp() / f"{case.format}{case.ending}"
    save, load = saver(case)
    assert save(iter(items), file, format=case.format) == len(items)
    found = list(load(file, format=case.format))
    assert found == items if case.ids else without_ids(found) == without_ids(items)
    if items and case.format != "personachat-text":
        assert list(load(file)) == found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.from_type(Dialogue).filter(lambda d: d.turns), max_size=3))
def test_a_convokit_folder_holds_everything(tmp_path_factory: pytest.TempPathFactory, found: list[Dialogue]) -> None:
    items = [with_sources(dialogue, i) for i, dialogue in enumerate(found)]
    folder = tmp_path_factory.getbasetemp() / "convokit"
    shutil.rmtree(folder, ignore_errors=True)
    assert save_dialogues(items, folder, format="convokit") == len(items)
    assert sorted(f.name for f in folder.iterdir()) == [
        "conversations.json",
        "corpus.json",
        "index.json",
        "speakers.json",
        "utterances.jsonl",
    ]
    assert list(load_dialogues(folder)) == items


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        dialogues(
            st.lists(
                st.builds(Turn, line, line, meta=optional(date=st.just("2010-01-01T10:00:00.000Z"), to=words)),
                min_size=1,
                max_size=4,
            ).map(tuple),
            ids=st.tuples(st.integers(0, 99), st.sampled_from(["7", "007", "10", "d.1", "hit:0_conv:1"])).map(
                lambda place: f"{place[0]}/{place[1]}"
            ),
        ),
        max_size=3,
        unique_by=lambda dialogue: dialogue.id,
    )
)
def test_the_ubuntu_corpus_as_a_folder(tmp_path_factory: pytest.TempPathFactory, items: list[Dialogue]) -> None:
    folder = tmp_path_factory.getbasetemp() / "ubuntu"
    shutil.rmtree(folder, ignore_errors=True)
    assert save_dialogues(items, folder, format="ubuntu-tsv") == len(items)
    assert {str(f.relative_to(folder)) for f in folder.glob("*/*")} == {f"{item.id}.tsv" for item in items}
    if items:
        assert {d.id: d for d in load_dialogues(folder)} == {d.id: d for d in items}


def test_every_writer_has_a_round_trip() -> None:
    writers = {name for name in READERS if READERS.get(name).encode or READERS.get(name).write_folder}
    assert writers == {case.format for case in CASES} | {"convokit", "ubuntu-tsv"}
    assert writers == set(READERS)


TWICE = Dialogue("d", (Turn("a", "x"), Turn("a", "y")))
THREE = Dialogue("d", (Turn("a", "x"), Turn("b", "y"), Turn("c", "z")))


@pytest.mark.parametrize(
    ("name", "file", "dialogue"),
    [
        ("personachat-text", "x.txt", TWICE),
        ("personachat-text", "x.txt", THREE),
        ("parlai", "x.txt", TWICE),
        ("dailydialog-text", "x.txt", THREE),
        ("empathetic", "x.json", TWICE),
        ("empathetic-csv", "x.csv", THREE),
        ("empathetic-csv", "x.csv", Dialogue("a,b", (Turn("a", "x"),))),
        ("blended-skill-talk", "x.json", TWICE),
        ("topical-chat", "x.json", THREE),
        ("wizard", "x.json", THREE),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, name: str, file: str, dialogue: Dialogue) -> None:
    with pytest.raises(DataError, match="does not fit"):
        save_dialogues([dialogue], tmp_path / file, format=name)
    assert list(tmp_path.iterdir()) == []


def test_line_breaks_become_blanks_where_a_line_is_all_there_is(tmp_path: Path) -> None:
    talk = Dialogue("d", (Turn("first", "one\r\ntwo\tthree"), Turn("second", "four ")))
    for name, told in (("dailydialog-text", "one two three"), ("personachat-text", "one\ntwo three")):
        save_dialogues([talk], tmp_path / "x.txt", format=name)
        (found,) = load_dialogues(tmp_path / "x.txt")
        assert [t.text for t in found.turns] == [told, "four"]


def test_other_names_keep_their_places(tmp_path: Path) -> None:
    persona = Persona(("I am B.",))
    talk = Dialogue("d", (Turn("A", "hi"), Turn("B", "hello"), Turn("A", "bye")), {"B": persona})
    for name, ending, mine in (
        ("personachat-text", ".txt", "second"),
        ("parlai", ".txt", "second"),
        ("blended-skill-talk", ".json", "listener"),
        ("sharegpt", ".json", "assistant"),
    ):
        save_dialogues([talk], tmp_path / f"x{ending}", format=name)
        (found,) = load_dialogues(tmp_path / f"x{ending}")
        assert [t.text for t in found.turns] == ["hi", "hello", "bye"]
        assert found.turns[1].speaker == mine
        assert found.persona_of(mine) == persona


def test_the_ending_must_fit_the_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'x\.jsonl' cannot hold 'begin-v1'.\n.*\.tsv"):
        save_exchanges([], tmp_path / "x.jsonl", format="begin-v1")
    with pytest.raises(UsageError, match="holds dialogues, not exchanges"):
        save_exchanges([], tmp_path / "x.jsonl", format="messages")
    with pytest.raises(UsageError, match="holds exchanges, not dialogues"):
        save_dialogues([], tmp_path / "x.tsv", format="begin-v2")


def test_a_folder_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        save_dialogues([TWICE], tmp_path, format="convokit")
    with pytest.raises(UsageError, match="two dialogues 'd'"):
        save_dialogues([TWICE, TWICE], tmp_path / "new", format="convokit")
    assert [f.name for f in tmp_path.iterdir()] == ["kept.txt"]
    (tmp_path / "empty").mkdir()
    assert save_dialogues([TWICE], tmp_path / "empty", format="convokit") == 1

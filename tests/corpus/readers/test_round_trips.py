"""Round trips by hypothesis: what is written in a format is recognised and read back unchanged."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Persona, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.core.text import squash
from tertulia.corpus.load import load_dialogues, load_exchanges, save_dialogues, save_exchanges
from tertulia.corpus.readers import wizard
from tertulia.corpus.readers.base import one_line
from tertulia.corpus.registry import READERS

Failures = Callable[..., list[str]]
anything = st.text(max_size=12)
nonempty = st.text(min_size=1, max_size=12)
TAGS = ("persona:", "__SILENCE__", "__eou__", "__eot__", "__EOS__", "_comma_", "_pipe_", "__PIPE__", "\ufeff", "\\")


def has_no_tags(text: str) -> bool:
    return not any(tag in text for tag in TAGS)


line = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from(" \t\n|,;:"), max_size=12).map(one_line)
line = line.filter(has_no_tags)
words = line.filter(bool)


def alternating(first: str, second: str, texts: st.SearchStrategy[str], **meta: Any) -> st.SearchStrategy[Any]:
    """Alternating turns of two speakers, starting with the first."""
    metas = st.fixed_dictionaries({}, optional=meta)
    return st.lists(st.tuples(texts, metas), min_size=1, max_size=5).map(
        lambda turns: tuple(Turn((first, second)[i % 2], text, meta=m) for i, (text, m) in enumerate(turns))
    )


def personas(first: str, second: str, sentences: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    persona = st.lists(sentences, min_size=1, max_size=3).map(lambda texts: Persona(tuple(texts)))
    return st.fixed_dictionaries({}, optional={first: persona, second: persona})


def replies_with_candidates(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Only the replier's turns keep their candidates."""
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
    """Rename speakers: who begins is the speaker."""
    names = {turns[0].speaker: "speaker"}
    return tuple(replace(t, speaker=names.get(t.speaker, "listener")) for t in turns)


numbered_text = (
    st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n|:"), max_size=12)
    .map(str.strip)
    .filter(has_no_tags)
)
parlai_text = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t\n|:"), max_size=12).filter(
    has_no_tags
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
    """Give unique ids, and remove meta fields whose names ConvoKit uses itself."""

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


def as_context(entries: list[tuple[bool, str]]) -> tuple[Turn, ...]:
    """A context that `first` begins; the flag of an entry says whether the speaker changes."""
    speakers = accumulate((changes for changes, _ in entries[1:]), lambda now, changes: now ^ changes, initial=False)
    return tuple(Turn(("first", "second")[other], text) for other, (_, text) in zip(speakers, entries, strict=False))


def with_reply(context: tuple[Turn, ...], texts: list[str], label: str | None, ranked: bool) -> Exchange:
    """A reply by who did not speak last, with candidates if `ranked`."""
    speaker = "second" if context and context[-1].speaker == "first" else "first"
    reply = Turn(speaker, texts[0], meta={"candidates": texts} if ranked else {})
    return Exchange("", context, reply, label=label)


squashed = line.map(squash)
contexts = st.lists(st.tuples(st.booleans(), squashed), max_size=4).map(as_context)
replies = st.lists(squashed.filter(bool), max_size=3).map("\n".join)
no_returns = anything.filter(lambda text: "\r" not in text)


class Case(NamedTuple):
    """A format, the suffix of its file, what it can represent, and whether it has ids."""

    format: str
    ending: str
    items: st.SearchStrategy[Any]
    ids: bool = True
    unique: bool = False
    """Whether consecutive items need different ids."""


no_bars = words.filter(lambda text: "|" not in text)
candidates = st.lists(no_bars, min_size=1, max_size=3)
labels = st.lists(words.filter(lambda text: ";" not in text), min_size=1, max_size=2)
CASES = [
    Case("tertulia", ".json", st.from_type(Dialogue)),
    Case("exchanges", ".jsonl", st.from_type(Exchange)),
    Case("exchanges", ".json.gz", st.from_type(Exchange)),
    Case("personachat", ".json", dialogues(alternating("first", "second", anything), ids=anything)),
    Case("messages", ".json", dialogues(any_order("user", "assistant", texts=anything), ids=nonempty)),
    Case("sharegpt", ".json", dialogues(any_order("user", "assistant", texts=anything), ids=nonempty)),
    Case("sharegpt", ".jsonl", dialogues(any_order("user", "assistant", texts=anything), ids=nonempty)),
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
            any_order("user", "system", texts=anything, act=nonempty, emotion=nonempty),
            meta=optional(topic=nonempty, split=nonempty),
            ids=anything,
        ),
    ),
    Case("dailydialog-text", ".txt", dialogues(alternating("first", "second", line)), ids=False),
    Case(
        "empathetic",
        ".json",
        dialogues(
            alternating("speaker", "listener", anything),
            meta=optional(emotion=nonempty, situation=nonempty),
            ids=anything,
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
                any_order(
                    "agent_1", "agent_2", texts=anything, sentiment=nonempty, knowledge_source=st.lists(nonempty)
                ),
                meta=optional(config=nonempty, article_url=nonempty),
                ids=anything,
            ),
        )
        for ending in (".json", ".jsonl")
    ),
    Case(
        "cmu-dog",
        ".json",
        dialogues(
            any_order("user1", "user2", texts=anything, docIdx=st.integers(0, 3), utcTimestamp=nonempty),
            meta=optional(rating=st.integers(), wikiDocumentIdx=st.integers(), whoSawDoc=st.lists(nonempty)),
            ids=nonempty,
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
        st.builds(with_reply, contexts, st.tuples(replies).map(list), st.sampled_from("01"), st.just(False)),
        ids=False,
    ),
    Case(
        "ubuntu-ranking",
        ".csv",
        st.builds(with_reply, contexts, st.lists(replies, min_size=3, max_size=3), st.none(), st.just(True)),
        ids=False,
    ),
    Case("wizard", ".json", wizard_record.map(wizard.decode), ids=False),
    Case("begin-v1", ".tsv", grounded(optional(coarse=words, labels=labels)), ids=False),
    Case("begin-v2", ".tsv.gz", grounded(optional(model=words, data=words)), ids=False),
]


def without_ids(items: list[Any]) -> list[Any]:
    return [replace(item, id="") for item in items]


def functions_for(case: Case) -> tuple[Callable[..., int], Callable[..., Any]]:
    is_dialogue = READERS.get(case.format).holds == "dialogues"
    return (save_dialogues, load_dialogues) if is_dialogue else (save_exchanges, load_exchanges)


def test_every_format_round_trips(tmp_path: Path, failures: Failures) -> None:
    def check(case: Case, data: st.DataObject) -> None:
        items = data.draw(st.lists(case.items, max_size=3, unique_by=(lambda item: item.id) if case.unique else None))
        file = tmp_path / f"{case.format}{case.ending}"
        save, load = functions_for(case)
        assert save(iter(items), file, format=case.format) == len(items)
        loaded = list(load(file, format=case.format))
        assert loaded == items if case.ids else without_ids(loaded) == without_ids(items)
        if items and case.format != "personachat-text":
            assert list(load(file)) == loaded

    assert not failures(check, CASES, 25)


@settings(max_examples=25)
@given(st.lists(st.from_type(Dialogue).filter(lambda d: d.turns), max_size=3))
def test_a_convokit_folder_round_trips(tmp_path_factory: pytest.TempPathFactory, drawn: list[Dialogue]) -> None:
    items = [with_sources(dialogue, i) for i, dialogue in enumerate(drawn)]
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
                lambda parts: f"{parts[0]}/{parts[1]}"
            ),
        ),
        max_size=3,
        unique_by=lambda dialogue: dialogue.id,
    )
)
def test_an_ubuntu_folder_round_trips(tmp_path_factory: pytest.TempPathFactory, items: list[Dialogue]) -> None:
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
def test_dialogues_that_do_not_fit_the_format_are_refused(
    tmp_path: Path, name: str, file: str, dialogue: Dialogue
) -> None:
    with pytest.raises(DataError, match="does not fit"):
        save_dialogues([dialogue], tmp_path / file, format=name)
    assert list(tmp_path.iterdir()) == []


def test_line_breaks_become_spaces_in_line_based_formats(tmp_path: Path) -> None:
    dialogue = Dialogue("d", (Turn("first", "one\r\ntwo\tthree"), Turn("second", "four ")))
    for name, expected in (("dailydialog-text", "one two three"), ("personachat-text", "one\ntwo three")):
        save_dialogues([dialogue], tmp_path / "x.txt", format=name)
        (loaded,) = load_dialogues(tmp_path / "x.txt")
        assert [t.text for t in loaded.turns] == [expected, "four"]


def test_speakers_of_other_names_keep_their_order(tmp_path: Path) -> None:
    persona = Persona(("I am B.",))
    dialogue = Dialogue("d", (Turn("A", "hi"), Turn("B", "hello"), Turn("A", "bye")), {"B": persona})
    for name, ending, speaker in (
        ("personachat-text", ".txt", "second"),
        ("parlai", ".txt", "second"),
        ("blended-skill-talk", ".json", "listener"),
        ("sharegpt", ".json", "assistant"),
    ):
        save_dialogues([dialogue], tmp_path / f"x{ending}", format=name)
        (loaded,) = load_dialogues(tmp_path / f"x{ending}")
        assert [t.text for t in loaded.turns] == ["hi", "hello", "bye"]
        assert loaded.turns[1].speaker == speaker
        assert loaded.persona_of(speaker) == persona


def test_the_suffix_must_fit_the_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)(?=.*x\.jsonl)(?=.*begin-v1)(?=.*\n.*\.tsv)"):
        save_exchanges([], tmp_path / "x.jsonl", format="begin-v1")
    with pytest.raises(UsageError, match=r"(holds|contains) dialogues, not exchanges"):
        save_exchanges([], tmp_path / "x.jsonl", format="messages")
    with pytest.raises(UsageError, match=r"contains exchanges, not dialogues"):
        save_dialogues([], tmp_path / "x.tsv", format="begin-v2")


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        save_dialogues([TWICE], tmp_path, format="convokit")
    with pytest.raises(UsageError, match="two dialogues 'd'"):
        save_dialogues([TWICE, TWICE], tmp_path / "new", format="convokit")
    assert [f.name for f in tmp_path.iterdir()] == ["kept.txt"]
    (tmp_path / "empty").mkdir()
    assert save_dialogues([TWICE], tmp_path / "empty", format="convokit") == 1

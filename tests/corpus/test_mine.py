"""`mine` on the sample and on small forums; the engines are tested in mining/."""

import gzip
import json
import tomllib
from pathlib import Path

import pytest

from tertulia import __version__, sample
from tertulia.core.codec import Problems, message_to_json
from tertulia.core.config import resolve
from tertulia.core.dialogue import Message
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.mine import MineConfig, MineOutcome, marked, mine, read_messages
from tertulia.corpus.rules import MiningRules
from tertulia.corpus.subwords import SubwordCounter
from tertulia.corpus.trees import mine_trees


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> tuple[MineConfig, MineOutcome]:
    config = MineConfig(out=tmp_path_factory.mktemp("mine") / "deep" / "down", max_repeats=10, dialogues=True)
    return config, mine(config)


def test_the_folder_explains_itself(mined: tuple[MineConfig, MineOutcome]) -> None:
    config, outcome = mined
    assert {"pairs.parquet", "funnel.json", "subwords.model", "config.toml"} <= {f.name for f in config.out.iterdir()}
    assert resolve(MineConfig, config.out / "config.toml") == config
    record = json.loads((config.out / "funnel.json").read_text())
    assert record["messages"] == outcome.funnel.messages == len(sample.messages())
    assert record["removed"] == outcome.funnel.removed
    assert record["version"] == __version__
    assert record["subwords"] == outcome.subwords
    assert tomllib.loads((config.out / "config.toml").read_text())["max_repeats"] == 10


def test_a_mined_folder_is_a_corpus(mined: tuple[MineConfig, MineOutcome], tmp_path: Path) -> None:
    config, outcome = mined
    dialogues = list(load_dialogues(config.out))
    assert dialogues == list(load_dialogues(config.out / "pairs.parquet"))
    assert len(dialogues) == outcome.funnel.pairs
    assert next(load_dialogues(min((config.out / "pairs").glob("*.parquet")))) == dialogues[0]
    with pytest.raises(DataError, match="without splits") as error:
        load_dialogues(config.out, split="train")
    assert "corpus split" in str(error.value)


def test_mining_agrees_with_the_reference_implementation(mined: tuple[MineConfig, MineOutcome]) -> None:
    config, outcome = mined
    counter = SubwordCounter((config.out / "subwords.model").read_bytes())
    reference = mine_trees(sample.messages(), MiningRules(max_repeats=10), subwords=counter, unsafe=marked)
    assert outcome.funnel == reference.funnel
    mined_turns = {d.id: [(t.speaker, t.text, t.source) for t in d.turns] for d in load_dialogues(outcome.pairs)}
    assert mined_turns == {d.id: [(t.speaker, t.text, t.source) for t in d.turns] for d in reference.pairs}


def test_pairs_can_be_traced_to_their_messages(mined: tuple[MineConfig, MineOutcome]) -> None:
    _, outcome = mined
    by_id = {m.id: m for m in sample.messages()}
    pairs = list(load_dialogues(outcome.pairs))
    assert len(pairs) == outcome.funnel.pairs > 100
    for pair in pairs:
        assert 2 <= len(pair.turns) <= 8
        for turn in pair.turns:
            (source,) = turn.source
            assert turn.speaker == by_id[source].author
            assert turn.text in by_id[source].text
        assert [by_id[t.source[0]].parent for t in pair.turns[1:]] == [t.source[0] for t in pair.turns[:-1]]


def test_rude_messages_are_removed_unless_configured_otherwise(
    mined: tuple[MineConfig, MineOutcome], tmp_path: Path
) -> None:
    config, outcome = mined
    rude = {m.id for m in sample.messages() if marked(m)}
    assert rude
    assert not rude & {t.source[0] for d in load_dialogues(outcome.pairs) for t in d.turns}
    unfiltered = mine(config.model_copy(update={"out": tmp_path / "unfiltered", "unsafe": "none"}))
    assert unfiltered.funnel.removed["unsafe"] == 0
    assert rude & {t.source[0] for d in load_dialogues(unfiltered.pairs) for t in d.turns}


def test_messages_marked_as_rude_or_unsafe_are_marked() -> None:
    assert marked(Message("1", "a", "t", meta={"rude": True}))
    assert marked(Message("1", "a", "t", meta={"unsafe": True}))
    assert not marked(Message("1", "a", "t", meta={"rude": False, "topic": "x"}))


def lines(messages: list[Message]) -> str:
    return "".join(json.dumps(message_to_json(m)) + "\n" for m in messages)


FORUM = [Message("a", "ana", "good morning everybody"), Message("b", "ben", "good morning to you too", "a")]


def test_damaged_lines_are_counted_or_rejected(tmp_path: Path) -> None:
    source = tmp_path / "forum"
    source.mkdir()
    (source / "1.jsonl").write_text(lines(FORUM[:1]) + "oops\n")
    (source / "2.jsonl.gz").write_bytes(gzip.compress(lines(FORUM[1:]).encode()))
    outcome = mine(MineConfig(source=str(source), out=tmp_path / "out", vocabulary=300))
    assert outcome.problems.count == 1
    assert "1.jsonl, line 2" in outcome.problems.examples[0]
    assert outcome.funnel.pairs == 1
    assert json.loads((tmp_path / "out" / "funnel.json").read_text())["damaged lines"] == 1
    with pytest.raises(DamagedLine):
        mine(MineConfig(source=str(source), out=tmp_path / "strict", strict=True))


@pytest.mark.parametrize("content", ["", "oops\n", '{"id":"d","turns":[]}\n'])
def test_an_input_without_messages_is_an_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(DataError, match=r"no messages|Cannot read a single message"):
        mine(MineConfig(source=str(file), out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cut", [-12, 30])
def test_a_truncated_compressed_file_is_rejected_if_strict(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(gzip.compress(lines(FORUM * 50).encode())[:cut])
    with pytest.raises(DataError, match=r"x\.jsonl\.gz"):
        list(read_messages(str(file), Problems()))
    with pytest.raises(DataError, match=r"x\.jsonl\.gz"):
        mine(MineConfig(source=str(file), out=tmp_path / "out", strict=True))


@pytest.mark.parametrize(
    ("field", "content", "error"),
    [
        ("lexicon", None, "Cannot read the lexicon .*: No such file.*\n--lexicon expects"),
        ("lexicon", b"caf\xe9", "it is not UTF-8"),
        ("subwords", None, "Cannot read the subword model .*: No such file.*\n--subwords expects"),
        ("subwords", b"no model at all", "it is not a SentencePiece model"),
        ("subwords", b"", "it is not a SentencePiece model"),
    ],
)
def test_an_unreadable_lexicon_or_subword_model_is_an_error(
    tmp_path: Path, field: str, content: bytes | None, error: str
) -> None:
    given = tmp_path / "given"
    if content is not None:
        given.write_bytes(content)
    with pytest.raises(DataError, match=error):
        mine(MineConfig.model_validate({"out": tmp_path / "out", field: given}))
    assert not (tmp_path / "out").exists()


def test_phrases_of_the_lexicon_are_unsafe(tmp_path: Path) -> None:
    source, lexicon = tmp_path / "x.jsonl", tmp_path / "words.txt"
    source.write_text(lines(FORUM))
    lexicon.write_text("\ufeffmorning to you\n\n", encoding="utf-8")
    outcome = mine(MineConfig(source=str(source), out=tmp_path / "out", vocabulary=300, lexicon=lexicon))
    assert (outcome.funnel.removed["unsafe"], outcome.funnel.kept) == (1, 1)

"""Evidence on its way to a bot: given or retrieved, into prompts and candidates, and back with the reply."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.dialogue import Dialogue, Evidence, Turn
from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.core.reply import Ask, Passage, Piece, Provenance, Reply
from tertulia.talk.bot import BotTraits, BotWithHealth, ContinuousBot, RankingBot, StreamingBot, traits_of
from tertulia.talk.bots.generic import GenericBot
from tertulia.talk.bots.tfidf import TfidfBot, TfidfOptions
from tertulia.talk.chat import chat_messages
from tertulia.talk.evidence import (
    MAX_EVIDENCE,
    DocumentsBot,
    DocumentsConfig,
    evidence_remark,
    passages_of,
    read_evidence,
    with_documents,
)
from tertulia.talk.spec import check_spec, make_bot
from tertulia.talk.tfidf_index import MessageReply, TfidfIndex
from tertulia.talk.worker import Worker

ASK = Ask(Dialogue("d", (Turn("user", "Who built the lighthouse?"),), evidence=(Evidence("It is on Corvo."),)), "bot")
BUILDER = "Ada Marsh built the lighthouse."


class Reader:
    """Says all its evidence, word by word, in sessions and streams too."""

    spec, summary = "reader", "Reads aloud."
    traits = BotTraits(reads_evidence=True)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [piece.reply for piece in self.stream(asks, alive=lambda _: True) if piece.reply]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        for i, ask in enumerate(asks):
            text = " ".join(passage.text for passage in ask.dialogue.evidence)
            for word in text.split():
                yield Piece(i, f"{word} ")
            yield Piece(i, reply=Reply(text, Provenance(self.spec, settings={"loud": True}, seed=ask.seed)))

    def open_session(self) -> "ReaderSession":
        return ReaderSession(self)


class ReaderSession:
    def __init__(self, bot: Reader) -> None:
        self.bot, self.asks = bot, dict[int, Ask]()

    def add(self, index: int, ask: Ask, /) -> None:
        self.asks[index] = ask

    def cancel(self, index: int, /) -> None:
        self.asks.pop(index, None)

    def step(self) -> list[Piece]:
        pieces = [replace(p, index=i) for i, ask in self.asks.items() for p in self.bot.stream([ask], alive=bool)]
        self.asks.clear()
        return pieces


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "towers.txt").write_text(f"{BUILDER}\n\nBread is baked at night.")
    return tmp_path


def documents_bot(bot: Any, folder: Path, **options: Any) -> DocumentsBot:
    return with_documents(bot, DocumentsConfig(documents=folder, search="words", **options))


def test_replies_carry_what_was_retrieved_however_they_are_made(folder: Path) -> None:
    bot = documents_bot(Reader(), folder)
    text, passage = f"It is on Corvo. {BUILDER}", Passage(BUILDER, "towers.txt#1", 1.0)
    streamed = [piece for piece in bot.stream([ASK], alive=lambda _: True) if piece.reply]
    session = bot.open_session()
    session.add(7, ASK)
    stepped = [piece for piece in session.step() if piece.reply]
    worker = Worker(bot)
    worked = worker.submit(ASK).result(20)
    worker.close()
    assert [piece.index for piece in (*streamed, *stepped)] == [0, 7]
    for reply in (bot.reply([ASK])[0], streamed[0].reply, stepped[0].reply, worked):
        assert reply is not None
        assert (reply.text, reply.evidence) == (text, (passage,))
        settings = reply.provenance.settings
        assert (settings["loud"], settings["documents"], settings["passages"]) == (True, bot.index.fingerprint, 3)
        assert passages_of(ASK, reply) == (Passage("It is on Corvo."), passage)
    assert bot.reply([replace(ASK, dialogue=Dialogue("d", (Turn("user", "hi"),)))])[0].evidence == ()


def test_a_bot_with_documents_has_the_abilities_of_the_bot_and_no_others(folder: Path) -> None:
    plain, able = documents_bot(GenericBot(), folder), documents_bot(Reader(), folder)
    abilities = (StreamingBot, ContinuousBot, RankingBot, BotWithHealth)
    assert [isinstance(able, one) for one in abilities] == [True, True, False, False]
    assert [isinstance(plain, one) for one in abilities] == [isinstance(GenericBot(), one) for one in abilities]
    assert "2 passages" in able.summary
    assert (traits_of(able).reads_evidence, evidence_remark(able)) == (True, "")
    assert "ignores evidence" in evidence_remark(plain)


def test_any_specification_takes_documents(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    bot = make_bot(f"tfidf?evidence=true&candidates=5&documents={folder}&search=words&passages=1")
    reply = bot.reply([ASK])[0]
    assert reply.evidence[0].source == "towers.txt#1"
    assert BUILDER in [candidate.text for candidate in reply.candidates]
    with pytest.raises(ConfigError, match="passages"):
        check_spec(f"generic?documents={folder}&passages=0")
    with pytest.raises(ConfigError, match="passages"):
        check_spec("generic?passages=2")  # no documents: an unknown option
    with pytest.raises(DataError, match="has no texts"):
        make_bot(f"generic?documents={tmp_path_factory.mktemp('empty')}&search=words")


def test_tfidf_takes_sentences_of_the_evidence_where_an_option_says_so() -> None:
    index = TfidfIndex.from_pairs([MessageReply("who built the tower?", "a giant did", "x#1")])
    ask = replace(
        ASK, dialogue=replace(ASK.dialogue, evidence=(Evidence("Rain fell. Who built the tower knows.", "t"),))
    )
    plain, reading = TfidfBot(index), TfidfBot(index, TfidfOptions(evidence=True))
    assert [c.text for c in plain.reply([ask])[0].candidates] == ["a giant did"]
    candidates = reading.reply([ask])[0].candidates
    assert {(c.text, c.source) for c in candidates} == {("a giant did", "x#1"), ("Who built the tower knows.", "t")}
    scores = [c.score or 0 for c in candidates]
    assert scores == sorted(scores, reverse=True)
    assert (traits_of(plain).reads_evidence, traits_of(reading).reads_evidence) == (False, True)


def test_prompts_end_their_system_message_with_the_evidence() -> None:
    system = chat_messages(ASK.dialogue, "bot", "Be brief.")[0]
    expected = "Be brief.\n\nPassages with facts to base your answer on:\n- It is on Corvo."
    assert system == {"role": "system", "content": expected}
    own = replace(ASK.dialogue, meta={"system": "Own words."})
    assert chat_messages(own, "bot", "Be brief.")[0]["content"].startswith("Own words.\n\nPassages")
    assert chat_messages(ASK.dialogue, "bot", "Be brief.", evidence_words=0)[0]["content"] == "Be brief."
    endless = replace(ASK.dialogue, evidence=(Evidence("灯" * 100_000), Evidence("b " * 1000)))
    content = chat_messages(endless, "bot", evidence_words=50)[0]["content"]
    assert (content.count("灯"), content.count("b ")) == (400, 48)


def test_evidence_is_read_from_texts_and_files(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("One.\nStill one.\n\n\nTwo.")
    assert read_evidence([str(file), "Three words here"]) == (
        Evidence("One. Still one.", "notes.txt"),
        Evidence("Two.", "notes.txt"),
        Evidence("Three words here"),
    )
    assert read_evidence([]) == ()
    (tmp_path / "binary.txt").write_bytes(b"\x00\x01")
    (tmp_path / "latin.txt").write_bytes(b"sch\xf6n")
    (tmp_path / "empty.txt").write_text("")
    for name, words in (
        ("binary", "not a text"),
        ("latin", "not a text"),
        ("empty", "is empty"),
        ("none", "not found"),
    ):
        with pytest.raises(UsageError, match=words):
            read_evidence([str(tmp_path / f"{name}.txt")])
    file.write_text("a " * MAX_EVIDENCE)
    with pytest.raises(UsageError, match="too long: 19,999 characters, the limit is 10,000") as caught:
        read_evidence([str(file)])
    assert "documents=FOLDER" in caught.value.hint
    with pytest.raises(UsageError, match="21 passages"):
        read_evidence(["x"] * 21)

"""Evidence in conversation: where passages come from, and which of them a reply had.

Passages are given with the conversation (`Dialogue.evidence`), or retrieved from a folder for each reply: a
`DocumentsBot` is any bot with such a folder. It adds the best passages to the evidence of each ask, and reports them
with the reply (`Reply.evidence`). What a bot makes of evidence is its own business; see `BotTraits.reads_evidence`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Evidence
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress
from tertulia.core.reply import Ask, Passage, Piece, Reply
from tertulia.core.text import clean, squash
from tertulia.talk.bot import (
    Bot,
    BotWithHealth,
    ContinuousBot,
    RankingBot,
    ReplySession,
    StreamingBot,
    traits_of,
)
from tertulia.talk.retrieval import PassageIndex, SearchMethod

MAX_EVIDENCE = 10_000
"""Characters of the evidence of a conversation; of longer texts, `documents` takes what fits each reply."""
MAX_PASSAGES = 20
_BLANK_LINES = re.compile(r"\n\s*\n")


class DocumentsConfig(Config):
    """Options of any bot: a folder of texts, the best passages of which are evidence for each reply."""

    documents: Path
    """A folder of .txt, .md and .jsonl files."""
    passages: int = Field(default=3, ge=1, le=MAX_PASSAGES)
    """How many passages to retrieve for a reply, at most."""
    search: SearchMethod = "hybrid"
    """How to search: by words and by meaning (`hybrid`), or by `words` alone, which needs no model."""


class DocumentsBot:
    """A bot with a folder of texts. It has all optional abilities of the bot, and no others."""

    def __init__(self, bot: Bot, index: PassageIndex, config: DocumentsConfig) -> None:
        self.bot, self.index, self.config = bot, index, config
        self.spec = bot.spec
        self.traits = traits_of(bot)
        self.summary = f"{bot.summary} With {len(index):,} passages to look things up in."
        # Abilities are recognised by their methods (tertulia.talk.bot), so only those of the bot may be there.
        if isinstance(bot, StreamingBot):
            self.stream = self._stream
        if isinstance(bot, ContinuousBot):
            self.open_session = self._open_session
        if isinstance(bot, RankingBot):
            self.score = self._score
        if isinstance(bot, BotWithHealth):
            self.health = bot.health

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The bot's replies, each with the passages that were retrieved for it."""
        retrieved = [self.retrieve(ask) for ask in asks]
        replies = self.bot.reply([one.ask for one in retrieved])
        return [self._reply(reply, one.passages) for reply, one in zip(replies, retrieved, strict=True)]

    def retrieve(self, ask: Ask) -> "RetrievedAsk":
        """The ask with the passages that fit it; the evidence it has comes first."""
        passages = tuple(self.index.search(ask.dialogue.turns, self.config.passages))
        retrieved = tuple(Evidence(passage.text, passage.source) for passage in passages)
        dialogue = replace(ask.dialogue, evidence=(*ask.dialogue.evidence, *retrieved))
        return RetrievedAsk(replace(ask, dialogue=dialogue), passages)

    def _reply(self, reply: Reply, passages: tuple[Passage, ...]) -> Reply:
        about = {"documents": self.index.fingerprint, "passages": self.config.passages, "search": self.config.search}
        provenance = replace(reply.provenance, settings={**reply.provenance.settings, **about})
        return replace(reply, provenance=provenance, evidence=passages)

    def _stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        assert isinstance(self.bot, StreamingBot)
        retrieved = [self.retrieve(ask) for ask in asks]
        for piece in self.bot.stream([one.ask for one in retrieved], alive=alive):
            yield self._piece(piece, retrieved[piece.index].passages)

    def _piece(self, piece: Piece, passages: tuple[Passage, ...]) -> Piece:
        return piece if piece.reply is None else replace(piece, reply=self._reply(piece.reply, passages))

    def _open_session(self) -> ReplySession:
        assert isinstance(self.bot, ContinuousBot)
        return _Session(self, self.bot.open_session())

    def _score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        assert isinstance(self.bot, RankingBot)
        return self.bot.score([self.retrieve(ask).ask for ask in asks], candidates)


@dataclass(frozen=True, slots=True)
class RetrievedAsk:
    """An ask with its passages."""

    ask: Ask
    passages: tuple[Passage, ...]


class _Session:
    """A session of the bot behind it, with passages added to each ask."""

    def __init__(self, bot: DocumentsBot, session: ReplySession) -> None:
        self._bot, self._session = bot, session
        self._passages: dict[int, tuple[Passage, ...]] = {}

    def add(self, index: int, ask: Ask, /) -> None:
        """Retrieve passages for an ask, and reply to it from the next step on."""
        retrieved = self._bot.retrieve(ask)
        self._session.add(index, retrieved.ask)
        self._passages[index] = retrieved.passages

    def cancel(self, index: int, /) -> None:
        """Nobody waits for this reply any more."""
        self._session.cancel(index)

    def step(self) -> list[Piece]:
        """Go on with all replies."""
        return [self._bot._piece(piece, self._passages_of(piece)) for piece in self._session.step()]

    def _passages_of(self, piece: Piece) -> tuple[Passage, ...]:
        return self._passages[piece.index] if piece.reply is None else self._passages.pop(piece.index)


def with_documents(bot: Bot, config: DocumentsConfig, progress: Progress | None = None) -> DocumentsBot:
    """The bot with a folder of texts, which is indexed now as far as it has changed."""
    return DocumentsBot(bot, PassageIndex.of(config.documents, search=config.search, progress=progress), config)


def evidence_remark(bot: Bot) -> str:
    """What a user who gives evidence should know about this bot; empty if it simply reads it."""
    remarks = [bot.index.remark] if isinstance(bot, DocumentsBot) and bot.index.remark else []
    if not traits_of(bot).reads_evidence:
        remarks.append("This bot ignores evidence: it is kept with the conversation, but does not change the replies.")
    return " ".join(remarks)


def passages_of(ask: Ask, reply: Reply) -> tuple[Passage, ...]:
    """Everything that a bot had when it replied: the evidence that was given, then what was retrieved."""
    return (*(Passage(one.text, one.source) for one in ask.dialogue.evidence), *reply.evidence)


def read_evidence(entries: Sequence[str]) -> tuple[Evidence, ...]:
    """Evidence as a user gives it: for each entry a text, or the name of a file with one."""
    passages = [passage for entry in entries for passage in _read_entry(entry)]
    check_size(passages)
    return tuple(passages)


def text_passages(text: str, source: str = "") -> tuple[Evidence, ...]:
    """A text as passages: what is between blank lines.

    >>> [passage.text for passage in text_passages("The moon is\\nround.\\n\\n Mars is red. ")]
    ['The moon is round.', 'Mars is red.']
    """
    parts = [squash(part) for part in _BLANK_LINES.split(clean(text))]
    return tuple(Evidence(part, source) for part in parts if part)


def check_size(passages: Sequence[Evidence]) -> None:
    """Raise UsageError for evidence that is too long to be given with a conversation."""
    length = sum(len(passage.text) for passage in passages)
    if length > MAX_EVIDENCE:
        raise UsageError(
            f"The evidence is too long: {length:,} characters, the limit is {MAX_EVIDENCE:,}.",
            hint="Put long texts into a folder and serve the bot with documents=FOLDER: it retrieves what fits.",
        )
    if len(passages) > MAX_PASSAGES:
        raise UsageError(f"The evidence has {len(passages)} passages, the limit is {MAX_PASSAGES}.")


def _read_entry(entry: str) -> tuple[Evidence, ...]:
    try:
        path = Path(entry)
        is_file = path.is_file()
    except (OSError, ValueError):  # too long for a file name, or with a NUL
        is_file = False
    if not is_file:
        if re.fullmatch(r"\S*(/\S*|\.[A-Za-z]\w{0,4})", entry):
            raise UsageError(f"File not found: {entry}", hint="Evidence is a text, or a file with one.")
        return text_passages(entry)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read the evidence in {entry}: {error.strerror}.") from None
    try:
        if b"\0" in data:
            raise ValueError
        passages = text_passages(data.decode("utf-8-sig"), path.name)
    except ValueError:
        raise UsageError(
            f"{entry} is not a text: the evidence must be UTF-8.", hint="Convert it to plain text first."
        ) from None
    if not passages:
        raise UsageError(f"{entry} is empty: there is no evidence in it.")
    return passages

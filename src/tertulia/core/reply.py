"""What a bot is asked, and what it answers with: text, score, the roads not taken, and where it all came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tertulia.core.dialogue import Dialogue, Json

Finish = Literal["stop", "length", "cancelled"]
"""Why a reply ended: the bot was done, it hit its limit, or the listener hung up."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a reply: the whole dialogue so far, and whom the bot plays in it."""

    dialogue: Dialogue
    speaker: str = "bot"
    seed: int = 0
    """The same ask with the same seed gives the same reply."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Wishes for this reply alone (temperature, max_tokens, ...); a bot ignores those it does not know."""
    attempt: int = 1
    """Above 1 where earlier replies to the same were turned down: a bot that chooses offers its next best."""

    @property
    def last(self) -> str:
        """The text the bot has to answer; empty when it opens the conversation."""
        return self.dialogue.turns[-1].text if self.dialogue.turns else ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reply that was considered."""

    text: str
    score: float | None = None
    dropped: str | None = None
    """Why it was not used; None for one that merely scored lower."""
    source: str | None = None
    """Where it stands in the bot's data, for bots that choose."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """All that is needed to make the same reply again."""

    bot: str
    """The bot's specification, as `tertulia chat` takes it."""
    checkpoint: str | None = None
    """Fingerprint of the weights or the index behind it."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    seed: int | None = None
    version: str = ""
    """Version of Tertulia."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written, for bots that count them."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A bot's answer to one ask."""

    text: str
    provenance: Provenance
    score: float | None = None
    candidates: tuple[Candidate, ...] = ()
    """The ones considered, best first, the chosen one among them; empty for bots that write straight away."""
    seconds: float = 0.0
    """Time the bot took for it (of its batch, where it answered several at once)."""
    finish: Finish = "stop"
    usage: Usage | None = None
    note: str | None = None
    """Anything out of the ordinary, such as a fallback because every candidate was dropped."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply on its way: some text of the ask at `index`, and with the last one the whole reply."""

    index: int
    text: str = ""
    reply: Reply | None = None

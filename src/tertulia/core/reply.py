"""A request to a bot (`Ask`) and its `Reply`: text, score, the other candidates, and its provenance."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tertulia.core.dialogue import Dialogue, Json

FinishReason = Literal["stop", "length", "cancelled"]
"""Why a reply ended: it was complete, it reached the maximum length, or it was cancelled."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a reply: the full dialogue so far, and which speaker the bot is."""

    dialogue: Dialogue
    speaker: str = "bot"
    seed: int = 0
    """The same ask with the same seed gives the same reply."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Options for this reply only (temperature, max_tokens, ...); a bot ignores those it does not have."""
    attempt: int = 1
    """Above 1 if earlier replies to the same dialogue were rejected: a retrieval bot then offers its next best one."""

    @property
    def last(self) -> str:
        """The message to reply to; empty if the bot opens the conversation."""
        return self.dialogue.turns[-1].text if self.dialogue.turns else ""

    @property
    def top_logprobs(self) -> int | None:
        """How many alternatives to report with the log-probability of each token; None if none are asked for at all.

        Options: `logprobs` (whether to report them) and `top_logprobs` (how many alternatives, 0 by default).

        >>> Ask(Dialogue("", ()), options={"logprobs": True}).top_logprobs
        0
        """
        if self.options.get("logprobs") is not True:
            return None
        top = self.options.get("top_logprobs")
        return top if isinstance(top, int) else 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reply that was considered."""

    text: str
    score: float | None = None
    dropped: str | None = None
    """Why it was not used; None if it was, or if it only scored lower."""
    source: str | None = None
    """Where it is from in the bot's data, for retrieval bots."""
    note: str | None = None
    """How it came about, if not as the others did: it is another candidate that was cut after a sentence."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that a bot had when it replied: given with the conversation, or retrieved for this reply."""

    text: str
    source: str = ""
    """Where it is from, such as `moon.txt#3`: the third passage of that file."""
    score: float | None = None
    """How well it fits the conversation, for retrieved ones; None for given ones."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Everything needed to reproduce a reply."""

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
    """Number of tokens in the prompt and in the reply, for bots that count them."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of a reply, or an alternative to it, with its log-probability (in nats).

    It is that of the model itself: at temperature 1, before top-k, top-p, penalties and forbidden tokens change the
    distribution. Sample-and-rank ranks by the same log-probabilities.
    """

    text: str
    """What the token adds to the reply; empty for the end of the reply, for blanks that were trimmed, and for all but
    the last token of a character that takes several."""
    logprob: float
    top: tuple["TokenLogprob", ...] = ()
    """The most probable tokens at this position, best first, if they were asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A bot's reply to one ask."""

    text: str
    provenance: Provenance
    score: float | None = None
    candidates: tuple[Candidate, ...] = ()
    """All candidates, best first, including the chosen one; empty for bots without candidates."""
    seconds: float = 0.0
    """Time the bot took, for the entire batch if it replied to several asks at once."""
    finish: FinishReason = "stop"
    usage: Usage | None = None
    note: str | None = None
    """Anything unusual, such as a fallback because every candidate was dropped."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    """The tokens of the text, with the end token if the reply has one: joined, they are the text. None unless the ask
    wants them (`Ask.top_logprobs`) and the bot knows them; a fallback text has none."""
    redraws: int = 0
    """How often more candidates were drawn, or looked for further down the pool, because filters found none of those
    before good enough."""
    evidence: tuple[Passage, ...] = ()
    """The passages that were retrieved for it, best first; those of the ask's dialogue are not repeated here."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the reply to the ask at `index`: some text, and with the last piece the complete reply."""

    index: int
    text: str = ""
    reply: Reply | None = None

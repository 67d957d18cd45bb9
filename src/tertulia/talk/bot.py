"""What a bot is: any object with `spec`, `summary` and `reply`. All else (streaming, sessions, ranking, traits, health)
is optional.

Bots are stateless: the full dialogue comes in with each ask, and a batch of asks is the primitive, which is what makes
serving and self-play fast. `build` makes a bot from the parts of its specification (see `tertulia.talk.spec`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self, runtime_checkable

from tertulia.core.config import Config
from tertulia.core.reply import Ask, Piece, Reply


@runtime_checkable
class Bot(Protocol):
    """Replies to asks."""

    spec: str
    """The specification it was made from: part of every reply's provenance."""
    summary: str
    """One line of help."""

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """One reply for each ask, in order. The same ask and seed give the same reply, whatever the batch."""
        ...


@runtime_checkable
class StreamingBot(Bot, Protocol):
    """A bot whose replies arrive piece by piece."""

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """Pieces of all replies as they are generated; the last piece of each ask carries its complete reply.

        When `alive(i)` turns False, nobody waits for reply i any more: stop generating it, and finish it as
        "cancelled".
        """
        ...


class ReplySession(Protocol):
    """Replies that are being generated step by step. Not thread-safe: one thread drives it."""

    def add(self, index: int, ask: Ask, /) -> None:
        """Reply to an ask from the next step on; raises at once if the ask itself is wrong."""
        ...

    def cancel(self, index: int, /) -> None:
        """Nobody waits for this reply any more: the next step finishes it as "cancelled"."""
        ...

    def step(self) -> list[Piece]:
        """Go on with all replies; the last piece of each ask carries its complete reply. Does not wait for any ask."""
        ...


@runtime_checkable
class ContinuousBot(Bot, Protocol):
    """A bot that can be given more asks while it replies to others (continuous batching)."""

    def open_session(self) -> ReplySession:
        """A session without asks. If a step raises, its session is lost with all its asks; others are not affected."""
        ...


@runtime_checkable
class RankingBot(Bot, Protocol):
    """A bot that can score given replies."""

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """For each ask, the score of each of its candidates: higher is better, equal is a tie."""
        ...


@dataclass(frozen=True, slots=True)
class BotTraits:
    """How a bot wants to be called. A bot states them as its attribute `traits`; without it, the defaults hold."""

    max_batch: int | None = None
    """The most asks to pass at once; None if any number will do."""
    parallel: int = 1
    """How many calls may run at the same time, each on a thread of its own (a remote endpoint can take many)."""
    uses_terminal: bool = False
    """Whether it reads from and writes to the terminal itself, so that nothing else may do so during a call."""
    display_name: str = ""
    """What chat pages call it; by default, the name it is served under."""
    logprobs: bool = False
    """Whether it reports the log-probabilities of its tokens when an ask wants them (`Ask.top_logprobs`)."""
    reads_evidence: bool = False
    """Whether the evidence of a dialogue can change its replies; most bots were made without any, and ignore it."""
    instant: bool = False
    """Whether a reply to a short text takes less than a millisecond, whatever the text: such a bot may be asked on a
    thread that others wait for, and by several threads at once."""


@runtime_checkable
class BotWithTraits(Bot, Protocol):
    """A bot that states its traits."""

    traits: BotTraits


def traits_of(bot: Bot) -> BotTraits:
    """The traits of a bot, or the defaults."""
    return bot.traits if isinstance(bot, BotWithTraits) else BotTraits()


@dataclass(frozen=True, slots=True)
class BotHealth:
    """Whether a bot can reply. It is shown to strangers: it must not name hosts or keys."""

    ok: bool = True
    state: str = "ok"
    """One word for the state, such as `ok`, `stalled` or `down`."""
    detail: str = ""
    """One sentence for whoever runs the bot."""
    retry_seconds: float = 0.0
    """When it makes sense to try again, if it is not ok."""


@runtime_checkable
class BotWithHealth(Bot, Protocol):
    """A bot that knows whether it can reply at the moment, such as one behind an endpoint."""

    def health(self) -> BotHealth:
        """The state at this moment; must return immediately."""
        ...


class BotFactory(Protocol):
    """What a row of the bot registry points at: usually the bot's class."""

    Options: ClassVar[type[Config]]
    """The options after `?` in a specification."""
    target_help: ClassVar[str]
    """What the part after the colon means; empty if the bot takes none."""

    @classmethod
    def build(cls, target: str, options: Config, /) -> Self:
        """The bot for `name:target?options`; the target is empty if none was given."""
        ...

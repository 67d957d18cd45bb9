"""What a bot is. Any object with `spec`, `summary` and `reply` is one; streaming and ranking are extras some have.

Bots are stateless: the whole dialogue comes in with each ask, and a batch of asks is the primitive, which is what makes
serving and self-play fast. `build` makes one from the parts of its specification (see `tertulia.talk.spec`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Protocol, Self, runtime_checkable

from tertulia.core.config import Config
from tertulia.core.reply import Ask, Piece, Reply


@runtime_checkable
class Bot(Protocol):
    """Answers asks."""

    spec: str
    """The specification it was made from: part of every reply's provenance."""
    summary: str
    """One line that tells people what it is."""

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """One reply for each ask, in order. The same ask and seed give the same reply, whatever the batch."""
        ...


@runtime_checkable
class StreamingBot(Bot, Protocol):
    """A bot whose replies come piece by piece."""

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """Pieces of all asks as they come, each ask's last one with its whole reply.

        `alive(i)` turns False when nobody waits for ask i any more: stop writing it, and finish it as "cancelled".
        """
        ...


@runtime_checkable
class RankingBot(Bot, Protocol):
    """A bot that can tell how well given replies fit."""

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """For each ask, the score of each of its candidates: higher is better, equal is a tie."""
        ...


class BotFactory(Protocol):
    """What a row of the table of bots points at: usually the bot's class."""

    Options: ClassVar[type[Config]]
    """The options after `?` in a specification."""
    target_help: ClassVar[str]
    """What stands after the colon, for people; empty when nothing may."""

    @classmethod
    def build(cls, target: str, options: Config, /) -> Self:
        """The bot for `name:target?options`; an empty target when none was given."""
        ...

"""Nothing said: no word and no sign that means something by itself."""

from typing import ClassVar

from tertulia.core.config import Config
from tertulia.core.reply import Ask
from tertulia.talk.filters.base import NEVER


class Empty(Config):
    """Drops a candidate without a single letter, digit or symbol (an emoji is an answer, dots are none).

    >>> from tertulia.core.dialogue import Dialogue
    >>> [Empty()(Ask(Dialogue("d", ())), text) for text in (" ... ", "ok", "🙂")]
    ['empty', None, None]
    """

    weight: ClassVar[float] = NEVER

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """Why not."""
        return None if any(c.isalnum() or ord(c) >= 0x2190 for c in text) else "empty"

"""More words than a turn of a chat has."""

from typing import ClassVar

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.reply import Ask
from tertulia.core.text import words


class TooLong(Config):
    """Drops a candidate with too many words.

    >>> from tertulia.core.dialogue import Dialogue
    >>> TooLong(max_words=2)(Ask(Dialogue("d", ())), "well, I never")
    'too long (3 words)'
    """

    max_words: int = Field(60, ge=1)
    """More words than this are too many."""
    weight: ClassVar[float] = 1.0

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """Why not."""
        count = len(words(text))
        return f"too long ({count} words)" if count > self.max_words else None

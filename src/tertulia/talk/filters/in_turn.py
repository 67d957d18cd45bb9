"""Repetition within a turn, which models that write fall into: a sentence twice, a phrase or a word in a loop."""

from collections import Counter
from itertools import groupby
from typing import ClassVar

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.reply import Ask
from tertulia.core.text import ngrams, sentences, words


class InTurn(Config):
    """Drops a candidate that says a sentence twice, a longer phrase twice, or a word over and over.

    >>> from tertulia.core.dialogue import Dialogue
    >>> ask = Ask(Dialogue("d", ()))
    >>> InTurn()(ask, "I like tea. Do you? I like tea.")
    "says 'i like tea' twice"
    >>> InTurn()(ask, "i like to swim and i like to read")
    """

    phrase: int = Field(4, ge=2)
    """A phrase of so many words must not come twice."""
    sentence: int = Field(2, ge=1)
    """A sentence of so many words must not come twice."""
    in_a_row: int = Field(4, ge=2)
    """A word must not come so many times in a row ("no no no" is an answer, a dozen is a loop)."""
    weight: ClassVar[float] = 3.0

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """Why not."""
        found = words(text)
        for word, run in groupby(found):
            if (times := len(list(run))) >= self.in_a_row:
                return f"says {word!r} {times} times in a row"
        whole = [tuple(words(sentence)) for sentence in sentences(text)]
        for phrases in ([s for s in whole if len(s) >= self.sentence], list(ngrams(found, self.phrase))):
            for phrase, times in Counter(phrases).most_common(1):
                if times > 1:
                    return f"says {' '.join(phrase)!r} {'twice' if times == 2 else f'{times} times'}"
        return None

"""Filters that look at a reply's form: empty, too long, repeating itself, repeating an earlier turn."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.reply import Ask
from tertulia.core.text import ngrams, sentences, words
from tertulia.talk.filters.base import NEVER

MAX_COMPARED_WORDS = 1000
"""How many words of a candidate `CrossTurn` compares with earlier turns."""


class Empty(Config):
    """Drops a candidate without a letter, digit or symbol (an emoji is a reply, "..." is not).

    >>> from tertulia.core.dialogue import Dialogue
    >>> [Empty()(Ask(Dialogue("d", ())), text) for text in (" ... ", "ok", "🙂")]
    ['empty', None, None]
    """

    weight: ClassVar[float] = NEVER

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        return None if any(c.isalnum() or ord(c) >= 0x2190 for c in text) else "empty"


class TooLong(Config):
    """Drops a candidate with too many words.

    >>> from tertulia.core.dialogue import Dialogue
    >>> TooLong(max_words=2)(Ask(Dialogue("d", ())), "well, I never")
    'too long (3 words)'
    """

    max_words: int = Field(default=60, ge=1)
    """Longest reply to keep, in words."""
    weight: ClassVar[float] = 1.0

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        count = len(words(text))
        return f"too long ({count} words)" if count > self.max_words else None


class InTurn(Config):
    """Drops a candidate that repeats itself: a sentence or a longer phrase twice, or one word over and over.

    >>> from tertulia.core.dialogue import Dialogue
    >>> ask = Ask(Dialogue("d", ()))
    >>> InTurn()(ask, "I like tea. Do you? I like tea.")
    "says 'i like tea' twice"
    >>> InTurn()(ask, "i like to swim and i like to read")
    """

    phrase: int = Field(default=4, ge=2)
    """No phrase of this many words may occur twice."""
    sentence: int = Field(default=2, ge=1)
    """No sentence of at least this many words may occur twice."""
    in_a_row: int = Field(default=4, ge=2)
    """No word may occur this many times in a row ("no no no" is a reply, a dozen of them is a loop)."""
    weight: ClassVar[float] = 3.0

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        all_words = words(text)
        for word, run in groupby(all_words):
            if (times := len(list(run))) >= self.in_a_row:
                return f"says {word!r} {times} times in a row"
        full_sentences = [tuple(words(sentence)) for sentence in sentences(text)]
        long_sentences = [sentence for sentence in full_sentences if len(sentence) >= self.sentence]
        for phrases in (long_sentences, list(ngrams(all_words, self.phrase))):
            for phrase, times in Counter(phrases).most_common(1):
                if times > 1:
                    return f"says {' '.join(phrase)!r} {'twice' if times == 2 else f'{times} times'}"
        return None


class CrossTurn(Config):
    """Drops a candidate that shares a long subsequence of words with an earlier turn of either speaker.

    Meena (arXiv 2001.09977, section 5.2) drops candidates with a long common subsequence and gives no threshold. Here
    it is a fraction of the candidate's words, in order but not necessarily adjacent, so that a few function words ("i",
    "to", "the") that occur in any long turn do not count as repetition. People repeat very short turns ("me too", "that
    is great") all the time, so those are compared with the bot's own last turns only.

    Of a candidate of more than `MAX_COMPARED_WORDS` words, only so many at its beginning are compared: the time is then
    proportional to the length of the conversation, and not also to that of the candidate.
    """

    max_share: float = Field(default=0.7, ge=0, le=1)
    """Largest fraction of the candidate's words that may occur, in order, in one earlier turn. At the default, about
    one in 180 human turns would be dropped (Persona-Chat, DailyDialog); at 0.5, one in 45."""
    min_words: int = Field(default=4, ge=1)
    """Shorter candidates are dropped only if the bot said exactly the same in one of its last turns."""
    recent: int = Field(default=3, ge=0)
    """How many of the bot's last turns short candidates are compared with."""
    weight: ClassVar[float] = 2.0

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        candidate = words(text)[:MAX_COMPARED_WORDS]
        if len(candidate) < self.min_words:
            own = [turn.text for turn in ask.dialogue.turns if turn.speaker == ask.speaker]
            same = any(words(turn) == candidate for turn in own[max(0, len(own) - self.recent) :])
            return "says the same as before" if candidate and same else None
        longest, turn = max(
            ((common_subsequence(candidate, words(turn.text)), turn) for turn in ask.dialogue.turns),
            key=lambda match: match[0],
            default=(0, None),
        )
        share = longest / len(candidate)
        if turn is None or share <= self.max_share:
            return None
        whom = "itself" if turn.speaker == ask.speaker else "the other"
        return f"repeats {whom} ({longest} of {len(candidate)} words)"


def common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence of two lists.

    Bit-parallel (Hyyrö 2004): one integer holds a row of the dynamic-programming table. Bit i is zero where the length
    grows between positions i and i + 1 of `one`, so the number of zeros is the length. Takes time proportional to
    len(other) * len(one) / 30: bound the length of one of them.

    >>> common_subsequence("i have two big dogs".split(), "i really have big hairy dogs".split())
    4
    """
    positions: dict[str, int] = {}  # for each word, a bit mask of its positions in `one`
    for i, word in enumerate(one):
        positions[word] = positions.get(word, 0) | 1 << i
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        matched = row & positions.get(word, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(one) - row.bit_count()

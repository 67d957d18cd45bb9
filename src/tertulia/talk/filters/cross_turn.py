"""Repetition across turns: saying again what somebody, mostly the bot itself, has said before.

Meena (arXiv 2001.09977, section 5.2) drops candidates that have a long sub-sequence in common with an earlier turn, and
gives no threshold. Here it is a share of the candidate's words, in order though not side by side; a few words that fall
in place in any long turn ("i", "to", "the") do not make a repetition. Very short turns ("me too", "that is great") are
what people say again and again, and may: only the bot's own last ones count against those.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.reply import Ask
from tertulia.core.text import words


class CrossTurn(Config):
    """Drops a candidate of which a large part stands in an earlier turn, in the same order."""

    max_share: float = Field(0.7, ge=0, le=1)
    """Share of the candidate's words that may stand in one earlier turn, in order. People stay below the default in all
    but about one in 180 of their turns (Persona-Chat, DailyDialog); at 0.5 it would be one in 45."""
    min_words: int = Field(4, ge=1)
    """Candidates with fewer words are dropped only where the bot said exactly the same in one of its last turns."""
    recent: int = Field(3, ge=0)
    """How many of the bot's own last turns those are."""
    weight: ClassVar[float] = 2.0

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """Why not."""
        candidate = words(text)
        if len(candidate) < self.min_words:
            own = [turn.text for turn in ask.dialogue.turns if turn.speaker == ask.speaker]
            same = any(words(turn) == candidate for turn in own[max(0, len(own) - self.recent) :])
            return "says the same as before" if candidate and same else None
        longest, turn = max(
            ((common_subsequence(candidate, words(turn.text)), turn) for turn in ask.dialogue.turns),
            key=lambda found: found[0],
            default=(0, None),
        )
        share = longest / len(candidate)
        if turn is None or share <= self.max_share:
            return None
        whom = "itself" if turn.speaker == ask.speaker else "the other"
        return f"repeats {whom} ({longest} of {len(candidate)} words)"


def common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest sub-sequence that two lists have in common.

    Bit-parallel (Hyyrö 2004): a row of the usual table is one whole number, whose zeros are the steps up.

    >>> common_subsequence("i have two big dogs".split(), "i really have big hairy dogs".split())
    4
    """
    places: dict[str, int] = {}
    for i, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << i
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(one) - row.bit_count()

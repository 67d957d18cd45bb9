"""How much a reply and its reference have in common: F1 of words, and ROUGE-L.

F1 is as in Persona-Chat (Zhang et al. 2018, in ParlAI, after SQuAD; Rajpurkar et al. 2016). Both texts are normalised
in this order: lower case; every punctuation mark becomes a space, apostrophes too ("don't" is "don" and "t"); the
articles a, an and the are removed; the rest is split at white space. Words are compared as multisets. Punctuation is
all of Unicode's and the ASCII signs $+<=>^`|~, which makes no difference for ASCII texts. Two texts without a word in
common, empty ones included, have an F1 of 0.

ROUGE-L (Lin 2004) is the F1 of the longest common subsequence: words in the same order, not necessarily adjacent. Its
words are those of `tertulia.core.text.words`, without stemming; precision and recall weigh the same. A reply without a
reference has no value.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from tertulia.core.text import words
from tertulia.metrics.metric import Metric, ReplyExample

MAX_ROUGE_WORDS = 10_000
"""Only so many words of a text count for ROUGE-L: its time grows with the product of the lengths."""
ARTICLES = frozenset(("a", "an", "the"))
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")


def f1(reply: str, reference: str) -> float:
    """The harmonic mean of word precision and word recall.

    >>> f1("I have a dog.", "i have two dogs")
    0.5714285714285714
    >>> f1("the", "a")
    0.0
    """
    predicted, expected = normalised(reply), normalised(reference)
    common = sum((Counter(predicted) & Counter(expected)).values())
    return 2 * common / (len(predicted) + len(expected)) if common else 0.0


def normalised(text: str) -> list[str]:
    """The words that are compared.

    >>> normalised("The cat's an  “old” one, isn't it?")
    ['cat', 's', 'old', 'one', 'isn', 't', 'it']
    """
    plain = "".join(" " if _is_punctuation(character) else character for character in text.lower())
    return [word for word in plain.split() if word not in ARTICLES]


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P") or character in _ASCII_SYMBOLS


def f1_of_replies(batch: Sequence[ReplyExample]) -> list[float]:
    """F1 of each reply with its reference."""
    return [f1(one.reply, one.reference) for one in batch]


def rouge_l(reply: str, reference: str) -> float:
    """F1 of the longest common subsequence of words; nan if the reference has no words.

    >>> round(rouge_l("police kill the gunman", "police killed the gunman"), 3)
    0.75
    """
    predicted, expected = words(reply)[:MAX_ROUGE_WORDS], words(reference)[:MAX_ROUGE_WORDS]
    if not expected:
        return math.nan
    return 2 * common_subsequence(predicted, expected) / (len(predicted) + len(expected))


def common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence.

    Bit-parallel (Crochemore et al. 2001): a row of the usual table is one integer, whose zeros are the steps in it.

    >>> common_subsequence("abcbdab", "bdcaba")
    4
    """
    positions: dict[str, int] = {}
    for i, item in enumerate(one):
        positions[item] = positions.get(item, 0) | 1 << i
    full = (1 << len(one)) - 1
    row = full
    for item in other:
        if matches := row & positions.get(item, 0):
            row = ((row + matches) | (row - matches)) & full
    return len(one) - row.bit_count()


def rouge_l_of_replies(batch: Sequence[ReplyExample]) -> list[float]:
    """ROUGE-L of each reply with its reference."""
    return [rouge_l(one.reply, one.reference) for one in batch]


ROUGE_L = Metric(
    "rouge-l",
    "reply",
    "mean",
    "F1 of the longest common subsequence of words of a reply and its reference",
    "Lin 2004",
    bounded=True,
    compute=rouge_l_of_replies,
)
F1 = Metric(
    "f1",
    "reply",
    "mean",
    "overlap of the words of a reply and its reference",
    "Zhang et al. 2018; Rajpurkar et al. 2016",
    bounded=True,
    compute=f1_of_replies,
)

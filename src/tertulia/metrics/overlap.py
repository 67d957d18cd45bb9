"""F1 of words: how much of a reply occurs in the reference, and how much of the reference occurs in the reply.

As in Persona-Chat (Zhang et al. 2018, in ParlAI, after SQuAD; Rajpurkar et al. 2016). Both texts are normalised in this
order: lower case; every punctuation mark becomes a space, apostrophes too ("don't" is "don" and "t"); the articles a,
an and the are removed; the rest is split at white space. Words are compared as multisets. Punctuation is all of
Unicode's and the ASCII signs $+<=>^`|~, which makes no difference for ASCII texts. Two texts without a word in common,
empty ones included, have an F1 of 0.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from tertulia.metrics.metric import Metric, ReplyExample

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


F1 = Metric(
    "f1",
    "reply",
    "mean",
    "overlap of the words of a reply and its reference",
    "Zhang et al. 2018; Rajpurkar et al. 2016",
    compute=f1_of_replies,
)

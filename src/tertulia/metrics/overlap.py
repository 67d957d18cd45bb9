"""F1 of words: how much of what was said stands in the reference, and how much of the reference was said.

As Persona-Chat has it (Zhang et al. 2018, in ParlAI, which has it from SQuAD; Rajpurkar et al. 2016). Both texts are
normalised in this order: lower case; every punctuation mark becomes a blank, apostrophes too ("don't" is "don" and
"t"); the articles a, an and the go; what is left is parted at blanks. Each word counts as often as both texts have it.
Punctuation is all of Unicode's and the ASCII signs $+<=>^`|~, which makes no difference for ASCII texts. Two texts
without a word in common, empty ones among them, have an F1 of 0.
"""

import unicodedata
from collections import Counter
from functools import lru_cache

ARTICLES = frozenset(("a", "an", "the"))
_SIGNS = frozenset("$+<=>^`|~")


def f1(said: str, reference: str) -> float:
    """The harmonic mean of the shares of words that the two have in common.

    >>> f1("I have a dog.", "i have two dogs")
    0.5714285714285714
    >>> f1("the", "a")
    0.0
    """
    ours, theirs = normalised(said), normalised(reference)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs)) if common else 0.0


def normalised(text: str) -> list[str]:
    """The words that count.

    >>> normalised("The cat's an  “old” one, isn't it?")
    ['cat', 's', 'old', 'one', 'isn', 't', 'it']
    """
    plain = "".join(" " if _is_mark(sign) else sign for sign in text.lower())
    return [word for word in plain.split() if word not in ARTICLES]


@lru_cache(maxsize=4096)
def _is_mark(sign: str) -> bool:
    return unicodedata.category(sign).startswith("P") or sign in _SIGNS

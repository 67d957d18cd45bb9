"""The part of the evidence that a response could rest on: documents are long, and models that read them slow.

The sentences that share most content with the response are kept, in their order, up to a number of words. Evidence that
is short enough is kept as it is.
"""

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from tertulia.core.english import content_words
from tertulia.core.text import sentences

MAX_WORDS = 80
"""Words of evidence that are kept."""
MAX_CHARACTERS = 200_000
"""Characters of evidence that are searched."""


def focus(evidence: str, response: str, *, max_words: int = MAX_WORDS) -> str:
    """The sentences of the evidence that share most content words with the response.

    >>> focus("Ana left. The band is from Lisbon. It rained for days.", "A band from Lisbon!", max_words=6)
    'The band is from Lisbon.'
    """
    if len(evidence) <= 4 * max_words or len(evidence[: 20 * max_words].split()) <= max_words:
        return evidence
    parts = _parts(evidence[:MAX_CHARACTERS])
    shared = Counter(i for word in set(content_words(response[:MAX_CHARACTERS])) for i in parts.by_word.get(word, ()))
    first = range(min(len(parts.texts), max_words))  # of sentences that share nothing, the first are taken
    chosen: list[int] = []
    room = max_words
    for i in sorted({*shared, *first}, key=lambda i: (-shared[i], i)):
        size = len(parts.texts[i].split())
        if chosen and size > room:
            continue
        chosen.append(i)
        room -= size
        if room <= 0:
            break
    return " ".join(" ".join(parts.texts[i].split()[:max_words]) for i in sorted(chosen))


class _Parts(NamedTuple):
    texts: list[str]
    by_word: dict[str, list[int]]
    """For each content word, the sentences that have it."""


@lru_cache(maxsize=8)  # the sentences of a response are classified one by one, on the same evidence
def _parts(evidence: str) -> _Parts:
    texts = sentences(evidence)
    by_word: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        for word in set(content_words(text)):
            by_word.setdefault(word, []).append(i)
    return _Parts(texts, by_word)

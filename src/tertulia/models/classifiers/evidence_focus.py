"""The part of the evidence that a response could rest on: documents are long, and models that read them slow.

The sentences that share most content with the response are kept, in their order, up to a number of words. Evidence that
is short enough is kept as it is.
"""

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
    own = set(content_words(response[:MAX_CHARACTERS]))
    parts = sentences(evidence[:MAX_CHARACTERS])
    shared = [len(own & set(content_words(part))) for part in parts]
    chosen: list[int] = []
    room = max_words
    for i in sorted(range(len(parts)), key=lambda i: (-shared[i], i)):
        size = len(parts[i].split())
        if chosen and size > room:
            continue
        chosen.append(i)
        room -= size
        if room <= 0:
            break
    return " ".join(" ".join(parts[i].split()[:max_words]) for i in sorted(chosen))

"""Where a text repeats an erased message or names an erased person.

A text is a *quote* if it shares eight words in a row with an erased message, if it is an erased message of at least
five words, or if one of its lines that begin with ">" shares five (or is any part of a message of the same thread).
Rows with quotes are removed. A text is a *near match* if it shares five to seven words in a row, or names the person:
that may be chance or a common name, and is listed for a decision. Lines that an erased message itself quotes (">") are
someone else's, and are not searched for.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Literal, NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.text import squash
from tertulia.corpus.erase.people import People, TextSpan

QUOTE_WORDS, NEAR_WORDS = 8, 5
MASK = "[erased]"
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SNIPPET = 40
_CACHED = 10_000

MatchKind = Literal["quote", "shared words", "name"]


class TextMatch(NamedTuple):
    """A stretch of a text that may be about, or by, an erased person."""

    kind: MatchKind
    span: TextSpan


@dataclass(slots=True)
class ErasedMessages:
    """What is known about the erased messages; it outlives them until every file is rewritten."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    """The texts by thread ("" without one), without the lines that they quote."""
    messages: set[tuple[str, str]] = field(default_factory=set)
    """Thread and id of each message."""
    rows: set[tuple[str, str]] = field(default_factory=set)
    """Thread and id of each pair or dialogue that is removed."""
    ambiguous: set[str] = field(default_factory=set)
    """Ids among these that other threads have, too: they identify nothing without the thread."""

    def add(self, thread: str | None, name: str, text: str) -> None:
        """Add one erased message; the same message again changes nothing."""
        key = (thread or "", name)
        if key not in self.messages:
            self.messages.add(key)
            self.texts.setdefault(key[0], []).append(own_words(text))

    def update(self, other: "ErasedMessages") -> None:
        """Add all that another one knows."""
        for thread, texts in other.texts.items():
            mine = self.texts.setdefault(thread, [])
            mine += [text for text in texts if text not in mine]
        self.messages |= other.messages
        self.rows |= other.rows
        self.ambiguous |= other.ambiguous

    def as_json(self) -> dict[str, Json]:
        """For the journal."""
        lists = {name: sorted(map(list, getattr(self, name))) for name in ("messages", "rows")}
        return {"texts": self.texts, **lists, "ambiguous": sorted(self.ambiguous)}

    @classmethod
    def from_json(cls, record: Mapping[str, Json]) -> "ErasedMessages":
        """From the journal."""
        pairs = {name: {(thread, value) for thread, value in record[name]} for name in ("messages", "rows")}
        return cls(dict(record["texts"]), pairs["messages"], pairs["rows"], set(record["ambiguous"]))

    @property
    def short(self) -> int:
        """How many messages have too few words to be found in the texts of others."""
        return sum(len(_WORD.findall(text)) < NEAR_WORDS for texts in self.texts.values() for text in texts)


def own_words(text: str) -> str:
    """A message without the lines it quotes.

    >>> own_words("> how are you\\nfine,  thanks")
    'fine, thanks'
    """
    return squash("\n".join(line for line in text.split("\n") if not line.lstrip().startswith(">")))


class TextMatcher:
    """Finds erased people and their sentences in texts."""

    def __init__(self, people: People, erased: ErasedMessages) -> None:
        self._people, self._erased = people, erased
        texts = [_words(text) for text in chain.from_iterable(erased.texts.values())]
        self._whole = {tuple(words) for words in texts if len(words) >= NEAR_WORDS}
        self._grams = {gram for words in texts for gram in _grams(words)}
        self.find = lru_cache(_CACHED)(self._find)
        """All matches of a text; a message is in the contexts of many records."""

    def _find(self, text: str) -> list[TextMatch]:
        names = [TextMatch("name", span) for span in self._people.mentions(text)]
        words = _words(text)
        if self._grams.isdisjoint(_grams(words)):
            return names
        return [*names, *self._shared(text)]

    def is_short_quote(self, text: str, thread: str) -> bool:
        """Whether a quoted line of a text is part, however short, of an erased message of the same thread."""
        erased = self._erased.texts.get(thread)
        return bool(erased) and any(line in other for line in _quoted_lines(text) for other in erased or ())

    def _shared(self, text: str) -> list[TextMatch]:
        """The runs of words that a text has in common with erased messages."""
        words = list(_WORD.finditer(text))
        lower = [word[0].lower() for word in words]
        hits = [gram in self._grams for gram in _grams(lower)]
        if not any(hits):  # a letter whose lower case depends on its neighbours
            return [TextMatch("quote", TextSpan(0, len(text)))]
        matches = []
        for first, last in _runs(hits):
            end = last + NEAR_WORDS - 1
            is_quote = end - first + 1 >= QUOTE_WORDS or _is_quoted(text, words[first].start())
            matches.append(
                TextMatch("quote" if is_quote else "shared words", TextSpan(words[first].start(), words[end].end()))
            )
        if tuple(lower) in self._whole:
            return [TextMatch("quote", TextSpan(0, len(text)))]
        return matches


def mask(text: str, matches: Iterable[TextMatch]) -> str:
    """The text with every match replaced by `[erased]`.

    >>> mask("ask ana, ana knows", [TextMatch("name", TextSpan(4, 7)), TextMatch("name", TextSpan(9, 12))])
    'ask [erased], [erased] knows'
    """
    parts, end = [], 0
    for span in sorted(match.span for match in matches):
        if span.start >= end:
            parts += [text[end : span.start], MASK]
            end = span.end
        elif span.end > end:
            end = span.end
    return "".join([*parts, text[end:]])


def snippet(text: str, match: TextMatch) -> str:
    """A match with a little of the text around it, on one line."""
    start, end = max(0, match.span.start - _SNIPPET), match.span.end + _SNIPPET
    shown = squash(text[start:end])[: 4 * _SNIPPET]
    return f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _grams(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(NEAR_WORDS)), strict=False)


def _runs(hits: Sequence[bool]) -> Iterable[tuple[int, int]]:
    """First and last index of each run of hits."""
    start = None
    for i, hit in enumerate([*hits, False]):
        if hit and start is None:
            start = i
        elif not hit and start is not None:
            yield start, i - 1
            start = None


def _is_quoted(text: str, position: int) -> bool:
    """Whether a position is on a line that begins with ">"."""
    return text[text.rfind("\n", 0, position) + 1 : position + 1].lstrip().startswith(">")


def _quoted_lines(text: str) -> list[str]:
    if ">" not in text:
        return []
    lines = (line.strip() for line in text.split("\n"))
    return [quoted for line in lines if line.startswith(">") and (quoted := squash(line.lstrip("> ")))]

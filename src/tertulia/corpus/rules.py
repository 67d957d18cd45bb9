"""Meena's seven reasons to remove a message (arXiv 2001.09977, section 3.1), each a pure function with its parameter.

A rule looks at one message in its tree and says nothing (keep) or why it must go. The paper gives no threshold for the
overlap with the parent and no name for its classifier of unsafe text: both are parameters here.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Message
from tertulia.core.text import ngrams, squash, words

URL_PATTERN = r"[hH][tT][tT][pP][sS]?://|\b[wW][wW][wW]\.[a-zA-Z0-9]"
"""Spelled out, so that Python and the fast engine's regular expressions (RE2) find the same."""
URL = re.compile(URL_PATTERN, re.ASCII)
_SELECTORS = frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
REASONS = ("bot", "url", "letters", "repeated", "overlap", "unsafe", "length")
"""In the order in which they are tried; a message is charged to the first that fits, cheap ones first."""


class MiningRules(Config):
    """The thresholds of mining."""

    min_subwords: int = Field(2, ge=0)
    """Shorter messages go."""
    max_subwords: int = Field(128, ge=1, lt=65_535)
    """Longer messages go."""
    min_letters: float = Field(0.70, ge=0, le=1)
    """Share of a message's characters, blanks included, that must be letters."""
    max_repeats: int = Field(100, ge=1)
    """A text that occurs more often than this in the corpus goes."""
    overlap_n: int = Field(3, ge=1)
    """Length of the word runs compared with the parent."""
    max_overlap: float = Field(0.60, ge=0, le=1)
    """Share of a message's word runs that may stand in its parent too."""
    context: int = Field(7, ge=1)
    """How many ancestors a reply keeps as its context."""


@dataclass(frozen=True, slots=True)
class Case:
    """All a rule may look at."""

    message: Message
    text: str
    """The message without what it quotes from its parent."""
    parent_text: str | None
    repeats: int
    """In how many messages of the corpus the text occurs."""
    subwords: Callable[[str], int]
    unsafe: Callable[[Message], bool]


def reason_to_remove(case: Case, rules: MiningRules) -> str | None:
    """The first rule that removes the message, or None.

    >>> case = Case(Message("1", "tidy_bot", "hello there"), "hello there", None, 1, lambda t: 2, lambda m: False)
    >>> reason_to_remove(case, MiningRules())
    'bot'
    """
    if "bot" in case.message.author.lower():
        return "bot"
    if URL.search(case.text):
        return "url"
    if share_of_letters(case.text) < rules.min_letters:
        return "letters"
    if case.repeats > rules.max_repeats:
        return "repeated"
    if case.parent_text is not None and overlap(case.text, case.parent_text, rules.overlap_n) > rules.max_overlap:
        return "overlap"
    if case.unsafe(replace(case.message, text=case.text)):  # what it quotes is not held against it
        return "unsafe"
    if not rules.min_subwords <= case.subwords(case.text) <= rules.max_subwords:
        return "length"
    return None


def share_of_letters(text: str) -> float:
    """Letters among all characters; 0 for an empty text.

    >>> share_of_letters("ab 1")
    0.5
    """
    if text.isascii():
        return sum(map(str.isalpha, text)) / len(text) if text else 0.0
    return sum(map(is_letter, text)) / len(text)


def is_letter(character: str) -> bool:
    """Whether a character is a letter, or a mark that spells together with one.

    Devanagari, Thai or pointed Hebrew write many of their sounds as marks (Unicode's Mn and Mc): without these, a third
    of a plain sentence would pass for noise. Variation selectors are marks too, but only choose how an emoji looks.

    >>> [is_letter(c) for c in ("k", "\u0915", "\u093f", "\u0301", "\ufe0f", "7")]
    [True, True, True, True, False, False]
    """
    return character.isalpha() or (character not in _SELECTORS and unicodedata.category(character) in ("Mn", "Mc"))


def overlap(text: str, parent: str, n: int) -> float:
    """Share of the text's runs of n words that stand in the parent; 0 for a text of fewer words.

    >>> overlap("the cat sat down", "and the cat sat", 3)
    0.5
    """
    own = list(ngrams(words(text), n))
    theirs = set(ngrams(words(parent), n))
    return sum(gram in theirs for gram in own) / len(own) if own else 0.0


def without_quotes(text: str, parent: str | None) -> str:
    """The text without the lines that begin with ">" and repeat a part of the parent.

    >>> without_quotes("> the oven light\\nmine too!", "it was the oven light again")
    'mine too!'
    """
    if parent is None or ">" not in text:
        return text.strip()
    kept = []
    for line in text.split("\n"):
        bare = line.strip()
        quoted = squash(bare.lstrip("> ")) if bare.startswith(">") else ""
        if not (quoted and (quoted in parent or quoted in squash(parent))):
            kept.append(line)
    return "\n".join(kept).strip()

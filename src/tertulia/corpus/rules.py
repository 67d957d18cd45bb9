"""Meena's seven reasons to remove a message (arXiv 2001.09977, section 3.1), each a pure function with its parameter.

A rule looks at one message in its tree and decides whether to remove it. The paper gives no threshold for the overlap
with the parent and does not name its classifier of unsafe text: both are parameters here, the latter by the judges of
`tertulia.core.safety` that also check what bots say.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Message
from tertulia.core.text import ngrams, squash, words

_ENDINGS = ("com", "org", "net", "edu", "gov", "mil", "info", "biz", "io", "tv", "gg", "ly", "co.uk", "ac.uk", "org.uk")
"""How names of sites end. Country codes that are words ("it", "is", "me") are left out: "yes.it is" is no address."""
_SHORT_SITES = ("youtu.be", "redd.it", "goo.gl", "t.co")
"""Frequent sites with other endings."""


def _any_case(names: tuple[str, ...]) -> str:
    patterns = ("".join(rf"[{c}{c.upper()}]" if c.isalpha() else r"\." for c in name) for name in names)
    return f"(?:{'|'.join(patterns)})"


URL_PATTERN = "|".join(
    (
        r"[a-zA-Z]://",
        r"\b[wW][wW][wW]\.[a-zA-Z0-9]",
        rf"[a-zA-Z0-9]\.{_any_case(_ENDINGS)}\b",
        rf"\b{_any_case(_SHORT_SITES)}\b",
    )
)
"""A scheme, "www." or the name of a site. Without flags or shorthands, so that Python's and the engine's regular
expressions (RE2) match the same."""
BARE_SITE_PATTERN = rf"(?:\b(?:[a-zA-Z0-9-]+\.)+{_any_case(_ENDINGS)}|\b{_any_case(_SHORT_SITES)})\b(?:[/:?#]\S*)?"
"""The name of a site with what follows it, to cut it out."""
URL = re.compile(URL_PATTERN, re.ASCII)
_SELECTORS = frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
REASONS = ("bot", "url", "letters", "repeated", "overlap", "unsafe", "length")
"""In the order in which they are checked, cheap ones first; a message counts for the first reason that applies."""
MAX_QUOTE_SEARCH = 20_000_000
"""How many characters of the parent `without_quotes` searches for the lines of one message."""


UnsafeMode = Literal["auto", "marked", "judged", "none"]
"""Who says which messages are unsafe: the source's own marks, or the judges of safety where a source has none (auto);
its marks alone; marks and judges; nobody."""


class MiningRules(Config):
    """The thresholds of the mining rules."""

    min_subwords: int = Field(default=2, ge=0)
    """Remove messages with fewer subwords."""
    max_subwords: int = Field(default=128, ge=1, lt=65_535)
    """Remove messages with more subwords."""
    min_letters: float = Field(default=0.70, ge=0, le=1)
    """Minimum share of letters among a message's characters, spaces included."""
    max_repeats: int = Field(default=100, ge=1)
    """Remove texts that occur more often than this in the corpus."""
    overlap_n: int = Field(default=3, ge=1)
    """Length of the word n-grams compared with the parent."""
    max_overlap: float = Field(default=0.60, ge=0, le=1)
    """Maximum share of a message's n-grams that may also occur in its parent."""
    context: int = Field(default=7, ge=1)
    """How many ancestors to keep as the context of a reply."""


@dataclass(frozen=True, slots=True)
class RuleInput:
    """Everything a rule may look at."""

    message: Message
    text: str
    """The text of the message without quotes of its parent."""
    parent_text: str | None
    repeats: int
    """Number of messages of the corpus with the same text."""
    subwords: Callable[[str], int]
    unsafe: Callable[[Message], bool]


def reason_to_remove(item: RuleInput, rules: MiningRules) -> str | None:
    """The first rule that removes the message, or None.

    >>> item = RuleInput(Message("1", "tidy_bot", "hello there"), "hello there", None, 1, lambda t: 2, lambda m: False)
    >>> reason_to_remove(item, MiningRules())
    'bot'
    """
    if "bot" in item.message.author.lower():
        return "bot"
    if URL.search(item.text):
        return "url"
    if share_of_letters(item.text) < rules.min_letters:
        return "letters"
    if item.repeats > rules.max_repeats:
        return "repeated"
    if item.parent_text is not None and overlap(item.text, item.parent_text, rules.overlap_n) > rules.max_overlap:
        return "overlap"
    if item.unsafe(replace(item.message, text=item.text)):  # quotes do not count
        return "unsafe"
    if not rules.min_subwords <= item.subwords(item.text) <= rules.max_subwords:
        return "length"
    return None


def share_of_letters(text: str) -> float:
    """Share of letters among all characters; 0 for an empty text.

    >>> share_of_letters("ab 1")
    0.5
    """
    if text.isascii():
        return sum(map(str.isalpha, text)) / len(text) if text else 0.0
    return sum(map(is_letter, text)) / len(text)


def is_letter(character: str) -> bool:
    """Whether a character is a letter, or a combining mark that is part of one.

    Devanagari, Thai or pointed Hebrew write many sounds as marks (Unicode's Mn and Mc): without these, a third of an
    ordinary sentence would count as noise. Variation selectors are marks too, but only choose the look of an emoji.

    >>> [is_letter(c) for c in ("k", "\u0915", "\u093f", "\u0301", "\ufe0f", "7")]
    [True, True, True, True, False, False]
    """
    return character.isalpha() or (character not in _SELECTORS and unicodedata.category(character) in ("Mn", "Mc"))


def overlap(text: str, parent: str, n: int) -> float:
    """Share of the text's word n-grams that occur in the parent; 0 for a text of fewer words.

    >>> overlap("the cat sat down", "and the cat sat", 3)
    0.5
    """
    own = list(ngrams(words(text), n))
    in_parent = set(ngrams(words(parent), n))
    return sum(gram in in_parent for gram in own) / len(own) if own else 0.0


def without_quotes(text: str, parent: str | None) -> str:
    """The text without lines that begin with ">" and repeat a part of the parent.

    Lines are searched for from where the previous one was, so quoting a long message line by line takes linear time.
    After `MAX_QUOTE_SEARCH` characters searched, the remaining lines are kept: thousands of lines that look like
    quotes and are none must not take minutes.

    >>> without_quotes("> the oven light\\nmine too!", "it was the oven light again")
    'mine too!'
    """
    if parent is None or ">" not in text:
        return text.strip()
    parent = squash(parent)
    kept, position, budget = [], 0, MAX_QUOTE_SEARCH
    for line in text.split("\n"):
        bare = line.strip()
        quoted = squash(bare.lstrip("> ")) if bare.startswith(">") else ""
        index = -1
        if quoted and budget > 0:
            index = parent.find(quoted, position)
            budget -= (len(parent) if index < 0 else index + len(quoted)) - position
            if index < 0 and position:
                index = parent.find(quoted, 0, position + len(quoted) - 1)
                budget -= position
        if index < 0:
            kept.append(line)
        else:
            position = index
    return "\n".join(kept).strip()

"""Nicks: the addressee at the head of a line, nicks mentioned within it, and nicks that changed.

A first word is an address if it is a nick of the room. A common English word that is also somebody's nick counts only
with a punctuation mark after it ("Old: you can use ps"), because "old" alone opens too many lines. Lowe et al. (2015,
section 3) exclude common English words in the same way.
"""

import re
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tertulia.corpus.chatlogs.log import LogLine

_ADDRESS_MARKS = ":,;>"
_NICK_WORD = re.compile(r"[a-z0-9_\-\[\]\\^{}|`]+")
# The lookbehind lets each word be tried once, from its first character: a megabyte without a space takes no longer.
_NICK_CHANGE = re.compile(r"(?<!\S)(\S++) is now known as (\S++)")


class Address(NamedTuple):
    """The addressee of a line and the text without the address."""

    nick: str
    """Lower case."""
    rest: str


@cache
def common_words() -> frozenset[str]:
    """Common English words, a packaged list (common_words.txt names its source)."""
    text = (files("tertulia.corpus.chatlogs") / "common_words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def is_common(word: str) -> bool:
    """Whether a word (lower case) is too common to count as a nick.

    >>> is_common("old"), is_common("a"), is_common("bur[n]er")
    (True, True, False)
    """
    return len(word) < 2 or word.isdigit() or word in common_words()


def parse_address(text: str, nicks: Collection[str]) -> Address | None:
    """The addressee of a line, if its first word is one of the nicks (lower case).

    >>> parse_address("RC haha yeah", {"rc"})
    Address(nick='rc', rest='haha yeah')
    >>> parse_address("old kernels do that", {"old"}), parse_address("Old: try ps", {"old"}).rest
    (None, 'try ps')
    """
    if not text or text[0].isspace():
        return None
    first, *rest = text.split(None, 1)
    first = first[1:] if first.startswith("@") and len(first) > 1 else first
    word = first.rstrip(_ADDRESS_MARKS) or first[0]
    nick, has_mark = word.lower(), len(word) < len(first)
    if nick not in nicks or (not has_mark and is_common(nick)):
        return None
    return Address(nick, rest[0] if rest else "")


def mentions(text: str, nicks: Collection[str]) -> set[str]:
    """The nicks anywhere in a text (lower case), except those that are very short or common words."""
    candidates = (word.rstrip("-") for word in _NICK_WORD.findall(text.lower()))
    return {word for word in candidates if len(word) > 2 and word in nicks and not is_common(word)}


def aliases(lines: Iterable[LogLine]) -> dict[str, str]:
    """The first nick of each nick's owner (all lower case), as far as the log reports nick changes."""
    first: dict[str, str] = {}
    for line in lines:
        if line.is_utterance:
            first.setdefault(line.nick.lower(), line.nick.lower())
        elif change := _NICK_CHANGE.search(line.text):
            old, new = change[1].lower(), change[2].lower()
            # A nick that already has an owner keeps that owner: people switch back and forth all day.
            first.setdefault(new, first.get(old, old))
    return first

"""Who speaks to whom: the nick at the head of a line, nicks within it, and nicks that changed.

A first word is an address when it is a nick of the room. A common English word that is also somebody's nick counts only
with a mark behind it ("Old: you can use ps"), as "old" alone opens too many lines.
"""

import re
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tertulia.corpus.rooms.line import RoomLine

_HEAD = re.compile(r"^@?(?P<word>\S+?)(?P<mark>[:,;>]*)(?:\s+(?P<rest>.*))?$", re.DOTALL)
_INNER = re.compile(r"[a-z0-9_\-\[\]\\^{}|`]+")
_RENAME = re.compile(r"(\S+) is now known as (\S+)")


class Address(NamedTuple):
    """A line's recipient and what is said to him."""

    nick: str
    """Lower case."""
    rest: str


@cache
def common_words() -> frozenset[str]:
    """Common English words, packaged (common_words.txt says where they come from)."""
    text = (files("tertulia.corpus.rooms") / "common_words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def is_common(word: str) -> bool:
    """Whether a word (lower case) is too ordinary to be taken for a nick.

    >>> is_common("old"), is_common("a"), is_common("bur[n]er")
    (True, True, False)
    """
    return len(word) < 2 or word.isdigit() or word in common_words()


def address(text: str, nicks: Collection[str]) -> Address | None:
    """The recipient of a line, if its first word is one of the nicks (lower case).

    >>> address("RC haha yeah", {"rc"})
    Address(nick='rc', rest='haha yeah')
    >>> address("old kernels do that", {"old"}), address("Old: try ps", {"old"}).rest
    (None, 'try ps')
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    word = head["word"].lower()
    if word not in nicks or (not head["mark"] and is_common(word)):
        return None
    return Address(word, head["rest"] or "")


def mentions(text: str, nicks: Collection[str]) -> set[str]:
    """The nicks within a text (lower case), wherever they stand; very short and common words do not count."""
    found = (word.rstrip("-") for word in _INNER.findall(text.lower()))
    return {word for word in found if len(word) > 2 and word in nicks and not is_common(word)}


def aliases(lines: Iterable[RoomLine]) -> dict[str, str]:
    """Every nick (lower case) with the first one its owner had, as far as the room reported changes."""
    first: dict[str, str] = {}
    for line in lines:
        if line.said:
            first.setdefault(line.nick.lower(), line.nick.lower())
        elif change := _RENAME.search(line.text):
            old, new = change[1].lower(), change[2].lower()
            # A nick that already has an owner keeps him: the same name comes and goes all day.
            first.setdefault(new, first.get(old, old))
    return first

"""Who is erased: people and messages given by name, or known only by the salted hashes of an earlier erasure.

Names are compared without regard to case, as chat rooms and forums do. In the texts of others, a name is searched for
as a whole word; one of fewer than three characters only behind an `@` or `u/`, since it is mostly an ordinary word.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from tertulia.core.dialogue import Json

_MIN_BARE_NAME = 3
_SIGN = r"(?:@|(?<!\w)/?u/)"
_TOKEN = re.compile(rf"{_SIGN}?(?P<name>[^\s@,:;!?()\"'<>./*]+)")


class TextSpan(NamedTuple):
    """A stretch of a text."""

    start: int
    end: int


class People(Protocol):
    """Who is erased."""

    def is_author(self, name: str) -> bool:
        """Whether messages by this name are erased."""
        ...

    def is_id(self, name: str) -> bool:
        """Whether the message with this id is erased."""
        ...

    def mentions(self, text: str) -> list[TextSpan]:
        """Where a text names one of them."""
        ...


class NamedPeople:
    """Authors and messages that the user named."""

    def __init__(self, authors: Collection[str], ids: Collection[str]) -> None:
        self.authors, self.ids = frozenset(authors), frozenset(ids)
        self._folded = frozenset(map(str.casefold, authors))
        bare = [name for name in self.authors if len(name) >= _MIN_BARE_NAME]
        parts = [rf"{_SIGN}(?:{_alternatives(self.authors)})"] + (
            [rf"(?<!\w)(?:{_alternatives(bare)})"] if bare else []
        )
        # A hyphen may join two words ("ana-maria" is another name) or stand alone ("ana- come here").
        self._pattern = re.compile(rf"(?:{'|'.join(parts)})(?!\w|-\w)", re.IGNORECASE) if authors else None

    def is_author(self, name: str) -> bool:
        """Whether messages by this name are erased."""
        return name in self.authors or name.casefold() in self._folded

    def is_id(self, name: str) -> bool:
        """Whether the message with this id is erased."""
        return name in self.ids

    def mentions(self, text: str) -> list[TextSpan]:
        """Where a text names one of them."""
        return [TextSpan(*match.span()) for match in self._pattern.finditer(text)] if self._pattern else []


def _alternatives(names: Collection[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))


class RecordedPeople:
    """Those whose salted hashes the record of earlier erasures holds; a name of several words is found as an author
    only."""

    def __init__(self, records: Sequence[Mapping[str, Json]]) -> None:
        self._records = [(str(record["salt"]), frozenset(record["hashes"])) for record in records]
        self._searched = [
            (str(record["salt"]), frozenset(record["hashes"]))
            for record in records
            if record.get("near") in ("mask", "remove")
        ]
        self._known: dict[tuple[str, str], bool] = {}
        self._named: dict[str, bool] = {}

    def is_author(self, name: str) -> bool:
        """Whether messages by this name were erased before."""
        return self._matches("a", name) or self._matches("a", name.casefold())

    def is_id(self, name: str) -> bool:
        """Whether the message with this id was erased before."""
        return self._matches("i", name)

    def mentions(self, text: str) -> list[TextSpan]:
        """Where a text names someone whose mentions were masked or removed before."""
        if not self._searched:
            return []
        return [
            TextSpan(*match.span())
            for match in _TOKEN.finditer(text)
            if self._is_searched(match["name"].rstrip("-").casefold())
        ]

    def _matches(self, kind: str, name: str) -> bool:
        if (kind, name) not in self._known:
            self._known[kind, name] = any(salted_hash(salt, kind, name) in hashes for salt, hashes in self._records)
        return self._known[kind, name]

    def _is_searched(self, name: str) -> bool:
        if name not in self._named:
            self._named[name] = len(name) >= _MIN_BARE_NAME and any(
                salted_hash(salt, "a", name) in hashes for salt, hashes in self._searched
            )
        return self._named[name]


def salted_hash(salt: str, kind: str, name: str) -> str:
    """The hash by which the record of an erasure knows a name: kind "a" for an author, "i" for an id."""
    return hashlib.blake2b(f"{kind}:{name}".encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def salted_hashes(salt: str, authors: Collection[str], ids: Collection[str]) -> list[str]:
    """The hashes of authors (in folded case) and of ids, sorted."""
    folded = sorted({name.casefold() for name in authors})
    return sorted([*(salted_hash(salt, "a", n) for n in folded), *(salted_hash(salt, "i", n) for n in sorted(ids))])

"""The turns of recently used conversations, so that a message need not read all that was said before it.

Only turns that are no longer pending are cached. As long as a conversation's revision is the same these never change,
whichever server writes, so the next message reads only the turns after them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from threading import Lock
from typing import NamedTuple

from tertulia.store.records import StoredTurn

MAX_CHARACTERS = 50_000_000
TURN_CHARACTERS = 500
"""Roughly what a turn takes in addition to its text."""


class Version(NamedTuple):
    """A state of a conversation. The time of its creation tells it from an erased one with the same id."""

    created: datetime
    revision: int


class _Entry(NamedTuple):
    version: Version
    turns: tuple[StoredTurn, ...]
    characters: int


class ContextCache:
    """Least recently used conversations are dropped first. Thread-safe."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_characters = max_characters
        self._characters = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = Lock()

    def get(self, conversation: str, version: Version) -> tuple[StoredTurn, ...]:
        """The first turns of a conversation, as far as they are cached."""
        with self._lock:
            entry = self._entries.get(conversation)
            if entry is None or entry.version != version:
                return ()
            self._entries.move_to_end(conversation)
            return entry.turns

    def put(self, conversation: str, version: Version, current: Sequence[StoredTurn]) -> None:
        """Keep the current turns before the first pending one. Call this only when they have been committed."""
        with self._lock:
            old = self._entries.pop(conversation, None)
            self._characters -= old.characters if old else 0
            known = old.turns if old and old.version == version else ()
            if len(known) <= len(current) and known == tuple(current[: len(known)]):
                characters = old.characters if known and old else 0
            else:
                known, characters = (), 0
            added = tuple(takewhile(lambda turn: turn.status != "pending", current[len(known) :]))
            characters += sum(len(turn.text) + TURN_CHARACTERS for turn in added)
            self._entries[conversation] = _Entry(version, known + added, characters)
            self._characters += characters
            while self._characters > self._max_characters:
                self._characters -= self._entries.popitem(last=False)[1].characters

    def forget(self, *conversations: str) -> None:
        """Drop conversations that were erased."""
        with self._lock:
            for conversation in conversations:
                entry = self._entries.pop(conversation, None)
                self._characters -= entry.characters if entry else 0

"""Judge one record of any format: a row of a table, a line of JSON, an entry of a document.

A record is removed if a field for authors has an erased name, if a field for ids has the id of an erased message or of
a removed dialogue (`ID#3` is the fourth turn of `ID`), or if a text in it quotes an erased message. What else a text
may say about the person is a near match, and what happens to it was decided by the user.
"""

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tertulia.core.dialogue import Json
from tertulia.corpus.erase.matching import ErasedMessages, TextMatcher, mask, snippet
from tertulia.corpus.erase.people import People

NearDecision = Literal["list", "mask", "remove", "keep"]
_AUTHORS = frozenset(
    "author authors speaker speakers from name nick user user_id username participant to recipient".split()
)
_IDS = frozenset(
    "id ids source sources context_ids conversation_id conversation root reply-to reply_to parent message".split()
)
_MESSAGE_IDS = frozenset(("source", "ids", "context_ids"))
_BY_SPEAKER = frozenset(("personas", "speakers", "users"))
"""Objects whose keys are names."""
_THREAD = "thread"


class Near(NamedTuple):
    """A near match, for the user to decide on."""

    where: str
    kind: str
    text: str
    """A snippet."""


@dataclass(slots=True)
class Judgement:
    """What is to be done with a record."""

    remove: bool = False
    masked: Json = None
    """The record with near matches masked, if there are any and masking is the decision."""
    near: list[tuple[str, str]] = field(default_factory=list)
    """Kind and snippet of near matches that are left in it."""


class RecordJudge:
    """Judges records by everything known about the erased people."""

    def __init__(self, people: People, erased: ErasedMessages, *, near: NearDecision) -> None:
        self.people, self.erased, self.near = people, erased, near
        self.texts = TextMatcher(people, erased)
        self._rows_and_messages = erased.rows | erased.messages
        self._threads: dict[str, list[str]] = {}
        for thread, name in self._rows_and_messages:
            self._threads.setdefault(name, []).append(thread)

    def judge(self, record: Json) -> Judgement:
        """What is to be done with a record."""
        thread, near = _thread_of(record), list[tuple[str, str]]()
        strings = list(_strings(record, ""))
        # A pair and a dialogue may have the same id; only without the ids of its messages does that of a record count.
        has_messages = any(name in _MESSAGE_IDS for name, _ in strings)
        ids = self.erased.messages if has_messages else self._rows_and_messages
        for name, value in strings:
            if self._is_trace(name, value, thread, ids):
                return Judgement(remove=True)
            for match in self.texts.find(value):
                if match.kind == "quote" or self.near == "remove":
                    return Judgement(remove=True)
                near.append((match.kind, snippet(value, match)))
            if thread is not None and ">" in value and self.texts.is_short_quote(value, thread):
                return Judgement(remove=True)
        if near and self.near == "mask":
            return Judgement(masked=self._mask(record))
        return Judgement(near=near)

    def _is_trace(self, name: str, value: str, thread: str | None, ids: Set[tuple[str, str]]) -> bool:
        if name in _AUTHORS:
            return self.people.is_author(value)
        if name not in _IDS:
            return False
        base = value.removesuffix("/false").partition("#")[0]
        return any(self.people.is_id(one) or self._is_erased(one, thread, ids) for one in {value, base})

    def _is_erased(self, name: str, thread: str | None, ids: Set[tuple[str, str]]) -> bool:
        if thread is not None:
            return (thread, name) in ids
        threads = self._threads.get(name, ()) if name not in self.erased.ambiguous else ()
        return any((thread, name) in ids for thread in threads)

    def _mask(self, value: Json) -> Json:
        if isinstance(value, str):
            packed = _unpack(value)
            if packed is not None:
                return json.dumps(self._mask(packed), ensure_ascii=False)
            return mask(value, self.texts.find(value))
        if isinstance(value, list):
            return [self._mask(item) for item in value]
        if isinstance(value, dict):
            return {key: self._mask(item) for key, item in value.items()}
        return value


def _strings(value: Json, name: str) -> Iterator[tuple[str, str]]:
    """Every string of a record with the name of its field; the keys of `personas` and the like are names, too."""
    if isinstance(value, str):
        packed = _unpack(value)
        if packed is None:
            yield name, value
        else:
            yield from _strings(packed, name)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, name)
    elif isinstance(value, dict):
        for key, item in value.items():
            if name in _BY_SPEAKER:
                yield "speaker", str(key)
            yield from _strings(item, key)


def _unpack(value: str) -> Json:
    """An object or a list that a column holds as JSON, such as `meta`; None for a text."""
    if value[:1] not in ("{", "[") or value[-1:] not in ("}", "]"):
        return None
    try:
        unpacked = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return unpacked if isinstance(unpacked, dict | list) else None


def _thread_of(record: Json) -> str | None:
    if not isinstance(record, Mapping):
        return None
    meta = record.get("meta")
    meta = _unpack(meta) if isinstance(meta, str) else meta
    thread = record.get(_THREAD) or (meta.get(_THREAD) if isinstance(meta, dict) else None)
    return thread if isinstance(thread, str) else None

"""Attempts at replies, versions of messages, and search. `ConversationStore` is built on it.

Nothing is deleted. A regenerated reply is another attempt at the same position. An edited message gets a position of
its own and `replaces` the earlier version, so that the replies to each version keep their own attempts.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    exists,
    false,
    func,
    or_,
    select,
    true,
    update,
)

from tertulia.core.errors import TertuliaError
from tertulia.store.database import Database
from tertulia.store.prepared import Prepared
from tertulia.store.records import NotFound, SearchHit, StoredTurn
from tertulia.store.schema import PENDING, conversations, turns
from tertulia.store.statements import owned_row, touch, turn_record
from tertulia.store.validation import check_id, check_names, check_text

_C, _T = conversations.c, turns.c
_COLUMNS = [_T[field.name] for field in fields(StoredTurn)]

_BY_ID = select(*_COLUMNS).where(_T.conversation == bindparam("id"), _T.id == bindparam("turn"))
_AT = select(*_COLUMNS).where(_T.conversation == bindparam("id"), _T.position == bindparam("position"))
_REGENERATED = Prepared(
    select(_T.position, func.max(_T.attempt))
    .where(_T.conversation == bindparam("id"), _T.attempt > 1, _T.position >= bindparam("start"))
    .group_by(_T.position)
)
_EDITED = Prepared(
    select(_T.id, _T.replaces, _T.position)
    .where(_T.conversation == bindparam("id"), _T.speaker == "user", _T.replaces.is_not(None))
    .order_by(_T.position)
)


class Revisions:
    """What can be done with the versions of turns, and search."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def choose(self, id: str, owner: str, turn: str) -> StoredTurn:  # noqa: A002
        """Make another attempt at the last reply the current one; returns it."""
        check_names(owner=owner)
        check_id(id, "conversation")
        check_id(turn, "turn")
        last = select(func.max(_T.position)).where(_T.conversation == id, _T.current)

        def switch(connection: Connection) -> StoredTurn:
            row = owned_row(connection, id, owner, lock=True)
            chosen = _stored(connection, id, turn)
            at = (_T.conversation == id, _T.position == chosen.position)
            pending = connection.scalar(select(exists(_T.id).where(*at, _T.status == PENDING)))
            if chosen.speaker != "bot" or chosen.position != connection.scalar(last) or pending:
                raise TertuliaError(
                    "Only an attempt at the last reply can be used.", hint="Edit a message to continue from there."
                )
            connection.execute(update(turns).where(*at).values(current=false()))
            connection.execute(update(turns).where(_T.id == turn).values(current=true()))
            touch(connection, id, revision=row.revision + 1)
            return replace(chosen, current=True)

        return self._database.write(switch)

    def keyed_turn(self, conversation: str, key: str) -> StoredTurn | None:
        """The turn that a request with this key added, if there was one. For servers: checks no owner."""
        check_names(key=key)
        check_id(conversation, "conversation")
        keyed = select(*_COLUMNS).where(_T.conversation == conversation, turns.c.key == key)
        row = self._database.read(lambda c: c.execute(keyed).one_or_none())
        return None if row is None else turn_record(row)

    def has_key(self, id: str, owner: str, key: str) -> bool:  # noqa: A002
        """Whether a request with this key has added to the conversation before."""
        check_names(owner=owner, key=key)
        check_id(id, "conversation")
        keyed = select(exists(_T.id).where(_T.conversation == id, turns.c.key == key))

        def read(connection: Connection) -> bool:
            owned_row(connection, id, owner)
            return bool(connection.scalar(keyed))

        return self._database.read(read)

    def attempts(self, id: str, owner: str, turn: str) -> list[StoredTurn]:  # noqa: A002
        """All attempts at a reply, or all versions of a message up to this one, the oldest first."""
        check_names(owner=owner)
        check_id(id, "conversation")
        check_id(turn, "turn")

        def read(connection: Connection) -> list[StoredTurn]:
            owned_row(connection, id, owner)
            versions = [_stored(connection, id, turn)]
            if versions[0].speaker == "bot":
                at = {"id": id, "position": versions[0].position}
                return list(map(turn_record, connection.execute(_AT.order_by(_T.attempt), at)))
            while (previous := versions[0].replaces) is not None:
                versions.insert(0, _stored(connection, id, previous))
            return versions

        return self._database.read(read)

    def search(self, owner: str, words: Sequence[str], *, limit: int = 50) -> list[SearchHit]:
        """The owner's conversations with all these words in the title or in one turn, the last updated first.

        Case is ignored (on SQLite, that of the letters a to z).
        """
        check_names(owner=owner)
        for word in words:
            check_text(word, "search")
        if not words:
            return []
        in_title = [_contains(_C.title, word) for word in words]
        in_turn = [_T.conversation == _C.id, _T.current, *(_contains(_T.text, word) for word in words)]
        excerpt = select(_T.text).where(*in_turn).order_by(_T.position).limit(1).scalar_subquery()
        query = (
            select(_C.id, _C.title, _C.bot, _C.updated, excerpt)
            .where(_C.owner == owner, or_(and_(*in_title), exists(_T.id).where(*in_turn)))
            .order_by(_C.updated.desc(), _C.id)
            .limit(limit)
        )
        return self._database.read(lambda c: [SearchHit(*row) for row in c.execute(query)])


def attempt_counts(connection: Connection, id: str, *, start: int) -> dict[int, int]:  # noqa: A002
    """By position from `start` on, how many attempts at a reply or versions of a message there are, if several."""
    counts: dict[int, int] = {row[0]: row[1] for row in _REGENERATED.rows(connection, {"id": id, "start": start})}
    versions: dict[str, int] = {}
    for turn, replaces, position in _EDITED.rows(connection, {"id": id}):
        counts[position] = versions[turn] = versions.get(replaces, 1) + 1
    return counts


def latest_attempt(connection: Connection, turn: StoredTurn) -> int:
    """The number of the latest attempt at a turn; not always the current one, since `choose` can go back."""
    at = (_T.conversation == turn.conversation, _T.position == turn.position)
    latest: int = connection.execute(select(func.max(_T.attempt)).where(*at)).scalar_one()
    return latest


def _stored(connection: Connection, id: str, turn: str) -> StoredTurn:  # noqa: A002
    row = connection.execute(_BY_ID, {"id": id, "turn": turn}).one_or_none()
    if row is None:
        raise NotFound("turn")
    return turn_record(row)


def _contains(column: ColumnElement[str], word: str) -> ColumnElement[bool]:
    """Whether a text contains a word in any case; SQLite's `lower` leaves letters beyond a to z as they are."""
    return or_(column.contains(word, autoescape=True), func.lower(column).contains(word.lower(), autoescape=True))

"""Reading conversations. `ConversationStore` is built on it. Every method is one read transaction."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection

from tertulia.core.errors import UsageError
from tertulia.store import statements as sql
from tertulia.store.records import Conversation, ConversationPage, ConversationSummary, NotFound, StoredTurn
from tertulia.store.revisions import Revisions, attempt_counts
from tertulia.store.statements import owned_row, read_conversation, read_turns, turn_record
from tertulia.store.validation import check_id, check_names

MAX_POSITION = 2**31 - 1


class ConversationReader(Revisions):
    """What can be read of conversations, each visible to its owner only."""

    def summaries(self, owner: str, *, limit: int = 100, before: str | None = None) -> list[ConversationSummary]:
        """The owner's conversations, the most recently updated first: the first ones, or those that follow `before`.

        `before` is the id of the last conversation of the previous page.
        """
        check_names(owner=owner)
        check_id(before or "", "conversation")
        _check_limit(limit)

        def read(connection: Connection) -> list[ConversationSummary]:
            values: dict[str, Any] = {"owner": owner, "limit": limit}
            if before is None:
                return [ConversationSummary(*row) for row in connection.execute(sql.SUMMARIES, values)]
            values |= {"id": before, "updated": owned_row(connection, before, owner).updated}
            return [ConversationSummary(*row) for row in connection.execute(sql.SUMMARIES_BEFORE, values)]

        return self._database.read(read)

    def get(self, id: str, owner: str, *, history: bool = False) -> Conversation:  # noqa: A002
        """A conversation with its current turns; with `history`, also those that were replaced or undone."""
        check_names(owner=owner)
        check_id(id, "conversation")
        return self._database.read(partial(read_conversation, id=id, owner=owner, history=history))

    def head(self, id: str, owner: str) -> Conversation:  # noqa: A002
        """A conversation without its turns, which costs one row."""
        check_names(owner=owner)
        check_id(id, "conversation")
        return self._database.read(lambda c: sql.head_record(owned_row(c, id, owner)))

    def turns(
        self, conversation: str, owner: str, *, limit: int = 200, before: int | None = None
    ) -> tuple[StoredTurn, ...]:
        """The last current turns in order, at most `limit`: of all, or of those at positions below `before`."""
        check_names(owner=owner)
        check_id(conversation, "conversation")
        _check_limit(limit)
        position = _position(before)

        def read(connection: Connection) -> tuple[StoredTurn, ...]:
            owned_row(connection, conversation, owner)
            return _last_turns(connection, conversation, position, limit)

        return self._database.read(read)

    def page(self, id: str, owner: str, *, limit: int, before: int | None = None) -> ConversationPage:  # noqa: A002
        """A conversation with its last current turns, at most `limit`: of all, or of those at positions below `before`.

        What a chat page needs to show it, read in one transaction.
        """
        check_names(owner=owner)
        check_id(id, "conversation")
        _check_limit(limit)

        def read(connection: Connection) -> ConversationPage:
            head = sql.head_record(owned_row(connection, id, owner))
            last = _last_turns(connection, id, _position(before), limit + 1)
            turns = last[-limit:] if limit else ()
            counts = attempt_counts(connection, id, start=turns[0].position if turns else 0)
            return ConversationPage(
                replace(head, turns=turns), counts, turns[0].position if len(last) > limit else None
            )

        return self._database.read(read)

    def last_reply(self, id: str, owner: str) -> StoredTurn | None:  # noqa: A002
        """The bot's last current turn, if there is one."""
        check_names(owner=owner)
        check_id(id, "conversation")

        def read(connection: Connection) -> StoredTurn | None:
            owned_row(connection, id, owner)
            return next(iter(read_turns(connection, sql.LAST_REPLY, id=id)), None)

        return self._database.read(read)

    def owners(self) -> list[str]:
        """Everyone who has conversations, for the operator's export."""
        return list(self._database.read(lambda c: c.scalars(sql.OWNERS).all()))

    def export(self, owner: str, *, history: bool = False) -> Iterator[Conversation]:
        """The owner's conversations, the oldest first, each read when the iterator gets to it."""
        check_names(owner=owner)
        for id_ in self._database.read(lambda c: c.scalars(sql.IDS_OF_OWNER, {"owner": owner}).all()):
            with suppress(NotFound):  # erased in the meantime
                yield self.get(id_, owner, history=history)

    def progress(self, turn_ids: Collection[str]) -> dict[str, StoredTurn]:
        """Turns by id, pending ones with their text so far, erased ones not at all. For servers: checks no owner."""
        rows = self._database.read(lambda c: read_turns(c, sql.BY_IDS, turns=list(turn_ids)))
        return {turn.id: turn for turn in rows}


def _last_turns(connection: Connection, id: str, before: int, limit: int) -> tuple[StoredTurn, ...]:  # noqa: A002
    rows = sql.LAST_TURNS.rows(connection, {"id": id, "before": before, "limit": limit})
    return tuple(map(turn_record, reversed(rows)))


def _position(before: int | None) -> int:
    return MAX_POSITION if before is None else max(0, min(before, MAX_POSITION))


def _check_limit(limit: int) -> None:
    if limit < 0:
        raise UsageError(f"The limit must not be negative: {limit}.")

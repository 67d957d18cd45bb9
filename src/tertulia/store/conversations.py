"""Conversations and their turns. Every method is one transaction, and returns only when its changes are on disk.
`start_say` and `start_finish` return at once: their futures resolve when the changes are on disk.

Methods that write lock the conversation's row first and touch its turns only after that, so that requests to one
conversation queue up instead of deadlocking (SQLite locks the whole database anyway). A message reads and writes a
fixed number of rows, however long the conversation is.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from tertulia.core.dialogue import Evidence, Json, Persona
from tertulia.core.errors import TertuliaError, UsageError
from tertulia.core.text import squash
from tertulia.store import statements as sql
from tertulia.store.context_cache import ContextCache, Version
from tertulia.store.database import Database
from tertulia.store.ids import new_id
from tertulia.store.leases import Heartbeat, Leases
from tertulia.store.listener import TurnListener, notify
from tertulia.store.reading import ConversationReader
from tertulia.store.records import (
    UNSET,
    Conversation,
    FinalStatus,
    NotFound,
    StoredExchange,
    StoredTurn,
    TurnEnd,
    Unset,
)
from tertulia.store.revisions import latest_attempt
from tertulia.store.statements import (
    HeadRow,
    locked_row,
    owned_row,
    read_conversation,
    touch,
    turn_record,
    turn_row,
)
from tertulia.store.validation import check_id, check_names, check_text
from tertulia.store.writing import checked_end, creating, evidence_json, finishing, persona_json

T = TypeVar("T")

TITLE_LENGTH = 60
Admit = Callable[[Conversation], None]
"""Called with the conversation before a message is added to it; raises to refuse the message."""

Answer = Callable[[StoredExchange], TurnEnd | None]
"""Called with a message and its pending reply before they are stored; gives the reply's end if it is known at once.

It runs inside of the transaction, on the thread that writes for everybody: it must be quick, and must not raise."""

AdmitTurn = Callable[[Sequence[StoredTurn]], None]
"""Called with the current turns before another one is added to them; raises to refuse it."""


class _Added(NamedTuple):
    """What adding to a conversation gave, and what can be cached once it is committed."""

    exchange: StoredExchange
    version: Version
    settled: Sequence[StoredTurn]


_Adding = Callable[[Connection], _Added]


class ConversationStore(ConversationReader):
    """The conversations in a database, each visible to its owner only."""

    def __init__(self, database: Database, *, leases: Leases | None = None) -> None:
        super().__init__(database)
        self._leases = leases or Leases(database)
        self._contexts = ContextCache()

    def create(
        self,
        owner: str,
        bot: str,
        persona: Persona | None = None,
        title: str = "",
        id: str | None = None,  # noqa: A002 - an id is called id everywhere
        *,
        evidence: Sequence[Evidence] = (),
    ) -> Conversation:
        """Add a conversation without turns."""
        return self._database.write(creating(owner, bot, persona, title, id, evidence))

    def start_create(self, owner: str, bot: str, persona: Persona | None = None) -> Future[Conversation]:
        """`create`, without waiting for it: the future resolves, on a thread of the database, when it is on disk."""
        return self._database.submit(creating(owner, bot, persona, "", None, ()), _same)

    def update(
        self,
        id: str,  # noqa: A002
        owner: str,
        *,
        bot: str | None = None,
        persona: Persona | Unset | None = UNSET,
        title: str | None = None,
        evidence: Sequence[Evidence] | None = None,
    ) -> Conversation:
        """Change what is given; a persona of None removes the persona, no passages remove the evidence."""
        check_names(owner=owner, bot=bot)
        check_id(id, "conversation")
        check_text(title or "", "title")
        changes: dict[str, Any] = {} if persona is UNSET else {"persona": persona_json(persona)}
        changes |= {name: value for name, value in (("bot", bot), ("title", title)) if value is not None}
        changes |= {} if evidence is None else {"evidence": evidence_json(evidence)}

        def change(connection: Connection) -> Conversation:
            owned_row(connection, id, owner, lock=True)
            if changes:
                touch(connection, id, **changes)
            return read_conversation(connection, id, owner)

        return self._database.write(change)

    def say(
        self,
        id: str,  # noqa: A002
        owner: str,
        text: str,
        *,
        key: str,
        bot: str | None = None,
        admit: Admit | None = None,
    ) -> StoredExchange:
        """Add the user's turn, and after it the pending one of the bot (the conversation's own), which `finish` ends.

        The key identifies the request: if it was used before, nothing is added and the same two turns come back.
        """
        return self._keep(self._database.write(self._saying(id, owner, text, key, bot, admit)))

    def start_say(
        self,
        id: str,  # noqa: A002
        owner: str,
        text: str,
        *,
        key: str,
        bot: str | None = None,
        admit: Admit | None = None,
        answer: Answer | None = None,
    ) -> Future[StoredExchange]:
        """`say`, without waiting for it: the future resolves, on a thread of the database, when it is on disk.

        If `answer` knows the reply at once, it is stored together with the message, and is never pending.
        """
        return self._database.submit(self._saying(id, owner, text, key, bot, admit, answer), self._keep)

    def _saying(
        self,
        id: str,  # noqa: A002
        owner: str,
        text: str,
        key: str,
        bot: str | None,
        admit: Admit | None,
        answer: Answer | None = None,
    ) -> _Adding:
        check_text(text, "message")

        def add(connection: Connection, row: HeadRow, head: Conversation, current: Sequence[StoredTurn]) -> _Added:
            now, position = datetime.now(UTC), row.next_position
            user = StoredTurn(new_id(), id, position, "user", text, now, "done")
            # What the reply consists of, whether pending or ended: `replace` would take longer than the rest of this.
            ids, who = (new_id(), id, position + 1, "bot"), bot or row.bot
            reply = StoredTurn(*ids, "", now, "pending", who)
            exchange = StoredExchange(user, reply, True, head, tuple(current))
            settled: tuple[StoredTurn, ...] = (*current, user)
            if answer is not None and (end := answer(exchange)) is not None:
                ended, status, record, error = checked_end(end)
                reply = StoredTurn(*ids, ended, now, status, who, record, error=error)
                exchange = StoredExchange(user, reply, True, head, exchange.context)
                settled = (*settled, StoredTurn(*ids, ended, now, status, who, error=error))
            sql.ADD_TURNS.run(connection, turn_row(user, key=key), turn_row(reply, server=self._leases.server))
            changes = {"title": row.title or title_from(text), "turn_count": row.turn_count + 2}
            sql.TOUCH_SAID.run(
                connection, {"conversation": id, "updated": now, "next_position": position + 2} | changes
            )
            return _Added(exchange, Version(row.created, row.revision), settled)

        return self._adding(id, owner, key, bot, admit, add)

    def add_turn(
        self, conversation: str, speaker: str, text: str, *, key: str, admit: AdmitTurn | None = None
    ) -> StoredTurn:
        """Add a finished turn, without a reply to it: of a person who talks with another one, or a bot's opening.

        Checks no owner: the caller knows that the speaker is a member. The speaker's key identifies the request, as in
        `say`; the same key with another text is refused. `admit` gets the current turns, and raises to refuse.
        """
        check_names(speaker=speaker, key=key)
        check_text(text, "message")
        check_id(conversation, "conversation")
        own_key = f"{speaker}:{key}"  # two people may well choose the same key

        def add(connection: Connection) -> StoredTurn:
            row = locked_row(connection, conversation)
            current, keyed = _current_and_keyed(connection, conversation, own_key, ())
            if keyed is not None:
                if keyed.text != text:
                    raise UsageError("This key was used for another message.", hint="Use a new key for each message.")
                return keyed
            if admit is not None:
                admit(current)
            turn = StoredTurn(new_id(), conversation, row.next_position, speaker, text, datetime.now(UTC), "done")
            sql.ADD_TURNS.run(connection, turn_row(turn, key=own_key))
            touch(connection, conversation, next_position=turn.position + 1, turn_count=row.turn_count + 1)
            notify(connection, [turn.id])
            return turn

        return self._database.write(add)

    def regenerate(
        self,
        id: str,  # noqa: A002
        owner: str,
        *,
        key: str,
        bot: str | None = None,
        admit: Admit | None = None,
    ) -> StoredExchange:
        """Replace the bot's last turn by a new pending one; the old turn stays in the history."""

        def replace_last(
            connection: Connection, row: HeadRow, head: Conversation, current: Sequence[StoredTurn]
        ) -> _Added:
            if not current or current[-1].speaker != "bot":
                raise TertuliaError("There is no reply to regenerate.", hint="The last turn must be the bot's.")
            *context, user, old = current
            if old.status == "pending":
                raise TertuliaError("The reply is still being generated.", hint="Stop it, or wait until it is done.")
            new = StoredTurn(new_id(), id, old.position, "bot", "", datetime.now(UTC), "pending", bot or row.bot)
            new = replace(new, replaces=old.id, attempt=latest_attempt(connection, old) + 1)
            connection.execute(sql.REPLACE, {"turn": old.id})
            sql.ADD_TURNS.run(connection, turn_row(new, key=key, server=self._leases.server))
            touch(connection, id, revision=row.revision + 1)
            exchange = StoredExchange(user, new, True, head, tuple(context))
            return _Added(exchange, Version(row.created, row.revision + 1), current[:-1])

        return self._keep(self._database.write(self._adding(id, owner, key, bot, admit, replace_last)))

    def edit(
        self,
        id: str,  # noqa: A002
        owner: str,
        text: str,
        *,
        turn: str,
        key: str,
        bot: str | None = None,
        admit: Admit | None = None,
    ) -> StoredExchange:
        """Send another version of one of the user's current turns, and continue from there.

        The old turn and all that followed it are no longer current, but stay in the history. The key is that of `say`.
        """
        check_text(text, "message")
        check_id(turn, "message")

        def replace_version(
            connection: Connection, row: HeadRow, head: Conversation, current: Sequence[StoredTurn]
        ) -> _Added:
            old = next((each for each in current if each.id == turn and each.speaker == "user"), None)
            if old is None:
                raise NotFound("message")
            context = tuple(each for each in current if each.position < old.position)
            removed = connection.execute(sql.REMOVE_FROM, {"within": id, "start": old.position}).rowcount
            now, position, revision = datetime.now(UTC), row.next_position, row.revision + 1
            user = StoredTurn(new_id(), id, position, "user", text, now, "done", replaces=old.id)
            reply = StoredTurn(new_id(), id, position + 1, "bot", "", now, "pending", bot or row.bot)
            sql.ADD_TURNS.run(connection, turn_row(user, key=key), turn_row(reply, server=self._leases.server))
            count = row.turn_count - removed + 2
            touch(connection, id, next_position=position + 2, revision=revision, turn_count=count)
            exchange = StoredExchange(user, reply, True, head, context)
            return _Added(exchange, Version(row.created, revision), (*context, user))

        return self._keep(self._database.write(self._adding(id, owner, key, bot, admit, replace_version)))

    def save_progress(self, texts: Mapping[str, str]) -> dict[str, StoredTurn | None]:
        """Save the texts of pending replies so far, by turn id, for readers and in case that this server crashes.

        Returns the turns that have ended in the meantime, because somebody stopped them; None for erased ones.
        """
        for turn, text in texts.items():
            check_id(turn, "turn")
            check_text(text, "reply")

        def save(connection: Connection) -> dict[str, StoredTurn | None]:
            ended: dict[str, StoredTurn | None] = {}
            for turn, text in texts.items():
                if connection.execute(sql.SAVE_TEXT, {"turn": turn, "progress": text}).rowcount:
                    continue
                row = connection.execute(sql.BY_ID, {"turn": turn}).one_or_none()
                if row is not None and sql.is_abandoned(row):
                    connection.execute(sql.REVISE_BY_TURN, {"turn": turn})
                    connection.execute(sql.REVIVE, {"turn": turn, "progress": text})
                elif row is None or turn_record(row).status != "pending":
                    ended[turn] = turn_record(row) if row is not None else None
            notify(connection, list(texts))
            return ended

        return self._database.write(save)

    def finish(
        self,
        turn_id: str,
        *,
        text: str | None,
        status: FinalStatus,
        reply: dict[str, Json] | None = None,
        error: str | None = None,
    ) -> StoredTurn:
        """End a pending turn, and return it; without a text it keeps the saved one. An ended turn stays as it is."""
        return self._database.write(finishing(turn_id, text, status, reply, error))

    def start_finish(
        self,
        turn_id: str,
        *,
        text: str | None,
        status: FinalStatus,
        reply: dict[str, Json] | None = None,
        error: str | None = None,
    ) -> Future[StoredTurn]:
        """`finish`, without waiting for it: the future resolves, on a thread of the database, when it is on disk."""
        return self._database.submit(finishing(turn_id, text, status, reply, error), _same)

    def undo(self, id: str, owner: str) -> Conversation:  # noqa: A002
        """Remove the user's last turn and what follows it. They stay in the history."""
        check_names(owner=owner)
        check_id(id, "conversation")

        def remove(connection: Connection) -> Conversation:
            row = owned_row(connection, id, owner, lock=True)
            position = connection.execute(sql.LAST_USER_POSITION, {"id": id}).scalar_one()
            if position is None:
                raise TertuliaError("There is nothing to undo.", hint="The conversation has no message of yours.")
            removed = connection.execute(sql.REMOVE_FROM, {"within": id, "start": position}).rowcount
            touch(connection, id, revision=row.revision + 1, turn_count=row.turn_count - removed)
            return read_conversation(connection, id, owner)

        return self._database.write(remove)

    def erase(self, id: str, owner: str) -> None:  # noqa: A002
        """Delete a conversation with all its turns, for good."""
        check_names(owner=owner)
        check_id(id, "conversation")
        if not self._database.write(lambda c: c.execute(sql.ERASE, {"id": id, "owner": owner}).rowcount):
            raise NotFound("conversation")
        self._contexts.forget(id)
        self._database.purge_deleted()

    def erase_owner(self, owner: str) -> int:
        """Delete everything an owner has, for good; returns the number of conversations."""
        check_names(owner=owner)
        erased = self._database.write(lambda c: c.scalars(sql.ERASE_OWNER, {"owner": owner}).all())
        self._contexts.forget(*erased)
        self._database.purge_deleted()
        return len(erased)

    def stop_abandoned(self) -> int:
        """Mark replies that a dead server left pending as stopped; returns how many.

        Their text so far is kept. Should the server be alive after all, it can go on with them and finish them.
        """
        return self._leases.abandon_expired()

    def start_heartbeat(self) -> Heartbeat:
        """Keep the lease on this store's pending replies, and end those of dead servers, until it is closed."""
        return Heartbeat(self._leases, self._database)

    def listen(self, on_turns: Callable[[set[str]], None]) -> TurnListener | None:
        """Call a function with the ids of turns that any server saves. None on SQLite, which cannot tell."""
        return None if self._database.is_sqlite else TurnListener(self._database, on_turns)

    def _adding(
        self,
        id: str,  # noqa: A002
        owner: str,
        key: str,
        bot: str | None,
        admit: Admit | None,
        add: Callable[[Connection, HeadRow, Conversation, Sequence[StoredTurn]], _Added],
    ) -> _Adding:
        """A unit of work that adds turns to a conversation, unless a request with this key has done so before."""
        check_names(owner=owner, key=key, bot=bot)
        check_id(id, "conversation")

        def run(connection: Connection) -> _Added:
            row = owned_row(connection, id, owner, lock=True)
            head, version = sql.head_record(row), Version(row.created, row.revision)
            current, keyed = _current_and_keyed(connection, id, key, self._contexts.get(id, version))
            if keyed is not None:
                return _Added(_earlier_exchange(connection, head, keyed, current), version, current)
            if admit is not None:
                admit(head)
            return add(connection, row, head, current)

        return run

    def _keep(self, added: _Added) -> StoredExchange:
        """Cache what has been committed."""
        self._contexts.put(added.exchange.conversation.id, added.version, added.settled)
        return added.exchange


def _same(result: T) -> T:
    return result


def title_from(text: str) -> str:
    """A title from a conversation's first message.

    >>> title_from("  Hello\\n there! ")
    'Hello there!'
    >>> title_from("a" * 61) == "a" * 59 + "…"
    True
    """
    title = squash(text)
    return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1].rstrip() + "…"


def _current_and_keyed(
    connection: Connection,
    id: str,  # noqa: A002
    key: str,
    cached: tuple[StoredTurn, ...],
) -> tuple[tuple[StoredTurn, ...], StoredTurn | None]:
    """The current turns, and the turn that an earlier request with this key added, if there was one."""
    after = cached[-1].position if cached else -1
    rows = sql.CURRENT_AFTER_OR_KEYED.rows(connection, {"id": id, "key": key, "after": after})
    keyed = next((turn_record(row) for row in rows if row[-1] == key), None)
    uncached = tuple(turn for turn in map(turn_record, rows) if turn.current and turn.position > after)
    return cached + uncached, keyed


def _earlier_exchange(
    connection: Connection, head: Conversation, keyed: StoredTurn, current: Sequence[StoredTurn]
) -> StoredExchange:
    """The turns of an earlier request, whatever has happened to them since."""
    start = keyed.position - (keyed.speaker == "bot")
    user, reply = (
        turn_record(connection.execute(sql.AT, {"id": head.id, "position": position, "attempt": attempt}).one())
        for position, attempt in ((start, 1), (start + 1, keyed.attempt))
    )
    return StoredExchange(user, reply, False, head, tuple(turn for turn in current if turn.position < start))

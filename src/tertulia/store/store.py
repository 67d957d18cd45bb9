"""The store: conversations and their turns, kept for good, behind one thread-safe object.

Every method is one transaction, and returns only when what it did is on disk. Here stand the border checks and the
choice of how to commit; the SQL is in `conversations`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Self, TypeVar, get_args

from sqlalchemy import Connection, Engine

from tertulia.core.codec import persona_to_json
from tertulia.core.dialogue import Json, Persona
from tertulia.core.errors import UsageError
from tertulia.store import conversations as sql
from tertulia.store.border import check_found, check_names, check_text, checked_json
from tertulia.store.commit import Committer, Gate, GroupCommit, OwnCommit
from tertulia.store.database import empty_log, is_sqlite, make_engine, parse_url, prepare, shown, transaction
from tertulia.store.migrate import upgrade
from tertulia.store.records import UNSET, Conversation, ConversationLine, Ending, NotFound, Said, StoredTurn, Unset
from tertulia.store.trouble import explained

T = TypeVar("T")
ABANDONED_AFTER = timedelta(hours=1)
"""On PostgreSQL, where other servers may be at work: how long a reply may take before its server is given up."""


class Store:
    """Conversations in SQLite or PostgreSQL. Use `Store.open`, and close it or use it in a `with` block."""

    def __init__(self, engine: Engine, committer: Committer, url: str) -> None:
        self._engine = engine
        self._committer = committer
        self._gate = Gate()
        self.url = url
        """Where it is, for people: without the password."""

    @classmethod
    def open(cls, url: str = "sqlite:///tertulia.db", *, busy_seconds: float = 10.0) -> Self:
        """Open a database, and make or update its tables where needed.

        Replies that a dead server has left pending become "stopped": on SQLite all that are pending, on PostgreSQL
        those older than an hour. Should their server live after all, it can still finish them.
        """
        parsed = parse_url(url)
        where = shown(parsed)
        with ExitStack() as on_failure:
            engine = make_engine(parsed, busy_seconds=busy_seconds)
            on_failure.callback(engine.dispose)
            with explained(where):
                prepare(engine, busy_seconds=busy_seconds)
                upgrade(engine, where=where)
            store = cls(engine, GroupCommit(engine) if is_sqlite(parsed) else OwnCommit(engine), where)
            on_failure.callback(store.close)
            store.stop_pending(older_than=None if is_sqlite(parsed) else ABANDONED_AFTER)
            on_failure.pop_all()
        return store

    def close(self) -> None:
        """Finish what was begun, and let go of the database."""
        self._gate.close()
        self._committer.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_conversation(
        self,
        owner: str,
        bot: str,
        persona: Persona | None = None,
        title: str = "",
        id: str | None = None,  # noqa: A002 - an id is called id everywhere
    ) -> Conversation:
        """A new conversation without turns."""
        check_names(owner=owner, bot=bot, id=id)
        check_text(title, "title")
        _check_persona(persona)
        return self._write(lambda c: sql.create(c, id, owner, bot=bot, persona=persona, title=title))

    def conversations(self, owner: str, *, limit: int = 200) -> list[ConversationLine]:
        """The owner's conversations, the newest first."""
        check_names(owner=owner)
        if limit < 0:
            raise UsageError(f"A limit of {limit} makes no sense.")
        return self._read(lambda c: sql.lines(c, owner, limit))

    def conversation(self, id: str, owner: str, *, history: bool = False) -> Conversation:  # noqa: A002
        """A conversation with its current turns; with `history`, also those that were replaced or undone."""
        check_names(owner=owner)
        check_found(id, "conversation")
        return self._read(lambda c: sql.read(c, id, owner, history=history))

    def head(self, id: str, owner: str) -> Conversation:  # noqa: A002
        """A conversation without its turns: all that is needed to know whom to ask, at the price of one row."""
        check_names(owner=owner)
        check_found(id, "conversation")
        return self._read(lambda c: sql.head(c, id, owner))

    def update_conversation(
        self,
        id: str,  # noqa: A002
        owner: str,
        *,
        bot: str | None = None,
        persona: Persona | Unset | None = UNSET,
        title: str | None = None,
    ) -> Conversation:
        """Change what is given; a persona of None takes the persona away."""
        check_names(owner=owner, bot=bot)
        check_found(id, "conversation")
        check_text(title or "", "title")
        _check_persona(None if persona is UNSET else persona)
        return self._write(lambda c: sql.change(c, id, owner, bot=bot, persona=persona, title=title))

    def say(self, conversation: str, owner: str, text: str, *, key: str, bot: str) -> Said:
        """Add the user's turn, and the bot's pending one after it, for `finish` to end.

        The key names the request: with one that was used before nothing is added, and the same two turns come back.
        """
        check_names(owner=owner, key=key, bot=bot)
        check_found(conversation, "conversation")
        check_text(text, "message")
        return self._write(lambda c: sql.say(c, conversation, owner, text, key=key, bot=bot))

    def regenerate(self, conversation: str, owner: str, *, key: str, bot: str) -> Said:
        """Put a new pending turn in the place of the bot's last one, which is kept in the history."""
        check_names(owner=owner, key=key, bot=bot)
        check_found(conversation, "conversation")
        return self._write(lambda c: sql.regenerate(c, conversation, owner, key=key, bot=bot))

    def finish(
        self,
        turn_id: str,
        *,
        text: str,
        status: Ending,
        reply: dict[str, Json] | None = None,
        error: str | None = None,
    ) -> StoredTurn:
        """End a pending turn. One that has ended is left as it is, and comes back as it is."""
        if status not in get_args(Ending):
            raise UsageError(f"A turn cannot end as {status!r}.", hint=f"It ends as {' or '.join(get_args(Ending))}.")
        check_found(turn_id, "turn")
        check_text(text, "reply")
        check_text(error or "", "error")
        about = checked_json(reply, "reply")
        return self._write(lambda c: sql.finish(c, turn_id, text=text, status=status, reply=about, error=error))

    def undo(self, conversation: str, owner: str) -> Conversation:
        """Take back the user's last turn and what follows it. They stay in the history."""
        check_names(owner=owner)
        check_found(conversation, "conversation")
        return self._write(lambda c: sql.undo(c, conversation, owner))

    def erase_conversation(self, id: str, owner: str) -> None:  # noqa: A002
        """Delete a conversation with all its turns, for good."""
        check_names(owner=owner)
        check_found(id, "conversation")
        self._write(lambda c: sql.erase(c, id, owner))
        self._empty_log()

    def erase_owner(self, owner: str) -> int:
        """Delete all that an owner has, for good; the number of conversations."""
        check_names(owner=owner)
        erased = self._write(lambda c: sql.erase_all(c, owner))
        self._empty_log()
        return erased

    def export(self, owner: str, *, history: bool = False) -> Iterator[Conversation]:
        """The owner's conversations, the oldest first, each read when it is asked for."""
        check_names(owner=owner)
        for found in self._read(lambda c: sql.ids(c, owner)):
            with suppress(NotFound):  # erased in the meantime
                yield self.conversation(found, owner, history=history)

    def stop_pending(self, *, older_than: timedelta | None = None) -> int:
        """Mark replies that are pending (for so long) as stopped, and say how many; a late one is still taken."""
        before = datetime.max.replace(tzinfo=UTC) if older_than is None else datetime.now(UTC) - older_than
        if not self._read(lambda c: sql.has_pending(c, before)):
            return 0  # nothing to write, so no need to wait for a lock
        return self._write(lambda c: sql.abandon(c, before))

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._gate, explained(self.url), transaction(self._engine) as connection:
            return work(connection)

    def _write(self, work: Callable[[Connection], T]) -> T:
        with self._gate, explained(self.url):
            return self._committer.run(work)

    def _empty_log(self) -> None:
        with self._gate, explained(self.url):
            empty_log(self._engine)


def _check_persona(persona: Persona | None) -> None:
    checked_json(None if persona is None else persona_to_json(persona), "persona")

"""The SQL: each function is one unit of work on a connection whose transaction somebody else begins and commits.

Those that write take the lock of the conversation's row first and touch its turns only after that, so that requests to
one conversation queue up instead of clashing (SQLite locks the whole database anyway).
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, bindparam, delete, exists, false, func, insert, null, or_, select, update
from sqlalchemy.exc import IntegrityError

from tertulia.core.codec import persona_from_json, persona_to_json
from tertulia.core.dialogue import Json, Persona
from tertulia.core.errors import TertuliaError, UsageError
from tertulia.core.text import squash
from tertulia.store.records import UNSET, Conversation, ConversationLine, Ending, NotFound, Said, StoredTurn, Unset
from tertulia.store.schema import ABANDONED, IS_PENDING, PENDING, conversations, turns

TITLE_LENGTH = 60
ABANDONED_ERROR = "The server stopped before this reply was finished."

# Statements are built once, and turns selected in the order of `StoredTurn`'s fields: at a thousand messages a second
# it is Python, not the disk, that takes the time.
_C, _T = conversations.c, turns.c
_NAMES = [field.name for field in fields(StoredTurn)]
_COLUMNS = [_T[name] for name in _NAMES]
_STATUS = _COLUMNS.index(_T.status)
_WAITS = or_(_T.status == PENDING, _T.status == ABANDONED)

_OWNED = select(conversations).where(_C.id == bindparam("id"), _C.owner == bindparam("owner"))
_OWNED_LOCKED = _OWNED.with_for_update()
_HISTORY = select(*_COLUMNS).where(_T.conversation == bindparam("id")).order_by(_T.position, _T.attempt)
_CURRENT = _HISTORY.where(_T.current)
_SAID_OR_KEY = (  # without `reply`, which is by far the largest part and says nothing to a bot
    select(*(null() if column is _T.reply else column for column in _COLUMNS), _T.key)
    .where(_T.conversation == bindparam("id"), or_(_T.current, _T.key == bindparam("key")))
    .order_by(_T.position)
)
_AT = _HISTORY.where(_T.position == bindparam("position"), _T.attempt == bindparam("attempt"))
_BY_ID = select(*_COLUMNS).where(_T.id == bindparam("turn"))
_ADD = insert(turns)
_TOUCH = update(conversations).where(_C.id == bindparam("conversation"))
_TOUCH_OF_TURN = update(conversations).where(
    _C.id == select(_T.conversation).where(_T.id == bindparam("turn"), _WAITS).scalar_subquery()
)
_FINISH = update(turns).where(_T.id == bindparam("turn"), _WAITS).returning(*_COLUMNS)


def create(
    connection: Connection, conversation: str | None, owner: str, *, bot: str, persona: Persona | None, title: str
) -> Conversation:
    """Add a conversation without turns."""
    now = datetime.now(UTC)
    made = Conversation(conversation or uuid4().hex, owner, title, bot, persona, now, now)
    row = {"id": made.id, "owner": owner, "title": title, "bot": bot, "persona": _persona_json(persona)}
    try:
        connection.execute(insert(conversations), row | {"places": 0, "created": now, "updated": now})
    except IntegrityError:
        raise UsageError(
            f"There is a conversation {made.id!r} already.", hint="Leave the id out to get a new one."
        ) from None
    return made


def head(connection: Connection, conversation: str, owner: str) -> Conversation:
    """A conversation without its turns: who talks, and as whom."""
    row = _owned(connection, conversation, owner)
    persona = None if row.persona is None else persona_from_json(row.persona)
    return Conversation(row.id, row.owner, row.title, row.bot, persona, row.created, row.updated, ())


def read(connection: Connection, conversation: str, owner: str, *, history: bool = False) -> Conversation:
    """A conversation with its current turns, or with all it ever had."""
    found = head(connection, conversation, owner)
    said = tuple(map(_turn, connection.execute(_HISTORY if history else _CURRENT, {"id": conversation})))
    return replace(found, turns=said)


def lines(connection: Connection, owner: str, limit: int) -> list[ConversationLine]:
    """The owner's conversations, the newest first."""
    count = select(func.count()).where(_T.conversation == _C.id, _T.current).scalar_subquery()
    listed = (
        select(_C.id, _C.title, _C.bot, _C.updated, count)
        .where(_C.owner == owner)
        .order_by(_C.updated.desc(), _C.created.desc(), _C.id)
        .limit(limit)
    )
    return [ConversationLine(*row) for row in connection.execute(listed)]


def ids(connection: Connection, owner: str) -> list[str]:
    """The ids of all the owner's conversations, the oldest first."""
    return list(connection.scalars(select(_C.id).where(_C.owner == owner).order_by(_C.created, _C.id)))


def change(
    connection: Connection,
    conversation: str,
    owner: str,
    *,
    bot: str | None,
    persona: Persona | Unset | None,
    title: str | None,
) -> Conversation:
    """Change what was given, and nothing else."""
    _owned(connection, conversation, owner, lock=True)
    changes: dict[str, Any] = {} if persona is UNSET else {"persona": _persona_json(persona)}
    changes |= {name: value for name, value in (("bot", bot), ("title", title)) if value is not None}
    if changes:
        _touch(connection, conversation, **changes)
    return read(connection, conversation, owner)


def say(connection: Connection, conversation: str, owner: str, text: str, *, key: str, bot: str) -> Said:
    """Add the user's turn and the bot's pending one; with a key that was used before, find what it made."""
    found = _owned(connection, conversation, owner, lock=True)
    current, earlier = _current_and_earlier(connection, conversation, key)
    if earlier:
        return _said_earlier(connection, earlier, current)
    now, place = datetime.now(UTC), found.places
    user = StoredTurn(uuid4().hex, conversation, place, "user", text, now, "done")
    reply = StoredTurn(uuid4().hex, conversation, place + 1, "bot", "", now, "pending", bot)
    connection.execute(_ADD, [_row(user, key), _row(reply)])
    _touch(connection, conversation, title=found.title or title_of(text), places=place + 2)
    return Said(user, reply, True, tuple(current))


def regenerate(connection: Connection, conversation: str, owner: str, *, key: str, bot: str) -> Said:
    """Put a new pending turn in the place of the bot's last one, which is kept but no longer current."""
    _owned(connection, conversation, owner, lock=True)
    current, earlier = _current_and_earlier(connection, conversation, key)
    if earlier:
        return _said_earlier(connection, earlier, current)
    if not current or current[-1].speaker != "bot":
        raise TertuliaError("There is no reply to make again.", hint="The last turn must be the bot's.")
    *before, user, old = current
    if old.status == "pending":
        raise TertuliaError("The reply is still being written.", hint="Stop it, or wait until it is finished.")
    new = StoredTurn(uuid4().hex, conversation, old.position, "bot", "", datetime.now(UTC), "pending", bot)
    new = replace(new, replaces=old.id, attempt=old.attempt + 1)
    connection.execute(update(turns).where(_T.id == old.id).values(current=false()))
    connection.execute(_ADD, _row(new, key))
    _touch(connection, conversation)
    return Said(user, new, True, tuple(before))


def finish(
    connection: Connection, turn: str, *, text: str, status: Ending, reply: dict[str, Json] | None, error: str | None
) -> StoredTurn:
    """End a pending turn; one that has ended stays as it is."""
    connection.execute(_TOUCH_OF_TURN, {"turn": turn, "updated": datetime.now(UTC)})
    ending = {"turn": turn, "text": text, "status": status, "reply": reply, "error": error}
    row = connection.execute(_FINISH, ending).one_or_none() or connection.execute(_BY_ID, {"turn": turn}).one_or_none()
    if row is None:
        raise NotFound("turn")
    return _turn(row)


def undo(connection: Connection, conversation: str, owner: str) -> Conversation:
    """Take back the user's last turn and what follows it."""
    _owned(connection, conversation, owner, lock=True)
    last = select(func.max(_T.position)).where(_T.conversation == conversation, _T.current, _T.speaker == "user")
    position = connection.execute(last).scalar_one()
    if position is None:
        raise TertuliaError("There is nothing to take back.", hint="The conversation has no message of yours.")
    since = (_T.conversation == conversation, _T.position >= position)
    connection.execute(update(turns).where(*since).values(current=false()))
    _touch(connection, conversation)
    return read(connection, conversation, owner)


def erase(connection: Connection, conversation: str, owner: str) -> None:
    """Delete a conversation; its turns go with it."""
    if not connection.execute(delete(conversations).where(_C.id == conversation, _C.owner == owner)).rowcount:
        raise NotFound("conversation")


def erase_all(connection: Connection, owner: str) -> int:
    """Delete all that an owner has, and say how many conversations that were."""
    return connection.execute(delete(conversations).where(_C.owner == owner)).rowcount


def has_pending(connection: Connection, before: datetime) -> bool:
    """Whether any turn has been waiting since before that moment."""
    return bool(connection.scalar(select(exists(_T.id).where(IS_PENDING, _T.created < before))))


def abandon(connection: Connection, before: datetime) -> int:
    """Give up the turns that have been waiting since before that moment; a late reply to one is still taken."""
    waiting = (IS_PENDING, _T.created < before)
    return connection.execute(update(turns).where(*waiting).values(status=ABANDONED)).rowcount


def title_of(text: str) -> str:
    """A first message as a title.

    >>> title_of("  Hello\\n there! ")
    'Hello there!'
    >>> title_of("a" * 61) == "a" * 59 + "…"
    True
    """
    title = squash(text)
    return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1].rstrip() + "…"


def _owned(connection: Connection, conversation: str, owner: str, *, lock: bool = False) -> Row[Any]:
    mine = {"id": conversation, "owner": owner}
    row = connection.execute(_OWNED_LOCKED if lock else _OWNED, mine).one_or_none()
    if row is None:
        raise NotFound("conversation")
    return row


def _touch(connection: Connection, conversation: str, **changes: Any) -> None:
    connection.execute(_TOUCH, {"conversation": conversation, "updated": datetime.now(UTC)} | changes)


def _current_and_earlier(
    connection: Connection, conversation: str, key: str
) -> tuple[list[StoredTurn], StoredTurn | None]:
    """What was said so far, and the turn that an earlier request with this key added, if one did."""
    rows = connection.execute(_SAID_OR_KEY, {"id": conversation, "key": key}).all()
    earlier = next((_turn(row) for row in rows if row.key == key), None)
    return [turn for turn in map(_turn, rows) if turn.current], earlier


def _said_earlier(connection: Connection, earlier: StoredTurn, current: list[StoredTurn]) -> Said:
    """What an earlier request made, whatever happened to its turns since."""
    place = earlier.position - (earlier.speaker == "bot")
    user, reply = (
        _turn(connection.execute(_AT, {"id": earlier.conversation, "position": position, "attempt": attempt}).one())
        for position, attempt in ((place, 1), (place + 1, earlier.attempt))
    )
    return Said(user, reply, False, tuple(turn for turn in current if turn.position < place))


def _turn(row: Sequence[Any]) -> StoredTurn:
    turn = StoredTurn(*row[: len(_COLUMNS)])
    return replace(turn, status="stopped", error=ABANDONED_ERROR) if row[_STATUS] == ABANDONED else turn


def _row(turn: StoredTurn, key: str | None = None) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in _NAMES} | {"key": key}


def _persona_json(persona: Persona | None) -> dict[str, Json] | None:
    return None if persona is None else persona_to_json(persona)

"""The statements of the conversation store, and its rows as records.

Statements are built once, and turns are selected in the order of `StoredTurn`'s fields: at a thousand messages a
second, Python takes more time than the disk. The statements of every message are `Prepared`.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    insert,
    null,
    or_,
    select,
    update,
)

from tertulia.core.codec import evidence_from_json, persona_from_json
from tertulia.core.dialogue import Json
from tertulia.store.prepared import Prepared
from tertulia.store.records import Conversation, NotFound, StoredTurn
from tertulia.store.schema import ABANDONED, PENDING, conversations, turns


class HeadRow(NamedTuple):
    """A conversation's row; the fields are the columns of the table."""

    id: str
    owner: str
    title: str
    bot: str
    persona: Json
    evidence: Json
    next_position: int
    turn_count: int
    revision: int
    created: datetime
    updated: datetime


ABANDONED_ERROR = "The server stopped before this reply was finished."

_C, _T = conversations.c, turns.c
_NAMES = [field.name for field in fields(StoredTurn)]
_values_of = attrgetter(*_NAMES)
_COLUMNS = [_T[name] for name in _NAMES]
_STATUS = _COLUMNS.index(_T.status)
# `reply` is by far the largest column, and means nothing to a bot.
_WITHOUT_REPLY = [null() if column is _T.reply else column for column in _COLUMNS]
_OF_CONVERSATION = _T.conversation == bindparam("id")
_OF_TURN = _T.id == bindparam("turn")
_UNFINISHED = or_(_T.status == PENDING, _T.status == ABANDONED)

SUMMARIES = select(_C.id, _C.title, _C.bot, _C.updated, _C.turn_count).where(_C.owner == bindparam("owner"))
SUMMARIES = SUMMARIES.order_by(_C.updated.desc(), _C.id.desc()).limit(bindparam("limit"))
SUMMARIES_BEFORE = SUMMARIES.where(  # the first condition limits what the index has to search, the second is exact
    _C.updated <= bindparam("updated"), or_(_C.updated < bindparam("updated"), _C.id < bindparam("id"))
)
OWNERS = select(_C.owner).distinct().order_by(_C.owner)
IDS_OF_OWNER = select(_C.id).where(_C.owner == bindparam("owner")).order_by(_C.created, _C.id)

_HEAD = select(*(_C[name] for name in HeadRow._fields)).where(_C.id == bindparam("id"))
_OWNED = _HEAD.where(_C.owner == bindparam("owner"))
OWNED, OWNED_LOCKED = Prepared(_OWNED), Prepared(_OWNED.with_for_update())
HEAD_LOCKED = Prepared(_HEAD.with_for_update())
HISTORY = select(*_COLUMNS).where(_OF_CONVERSATION).order_by(_T.position, _T.attempt)
CURRENT = HISTORY.where(_T.current)
LAST_TURNS = Prepared(
    select(*_COLUMNS)
    .where(_OF_CONVERSATION, _T.current, _T.position < bindparam("before"))
    .order_by(_T.position.desc())
    .limit(bindparam("limit"))
)
LAST_REPLY = select(*_COLUMNS).where(_OF_CONVERSATION, _T.current, _T.speaker == "bot")
LAST_REPLY = LAST_REPLY.order_by(_T.position.desc()).limit(1)
LAST_USER_POSITION = select(func.max(_T.position)).where(_OF_CONVERSATION, _T.current, _T.speaker == "user")
CURRENT_AFTER_OR_KEYED = Prepared(
    select(*_WITHOUT_REPLY, _T.key)
    # The conversation stands in both, so that an index serves each: else SQLite reads the whole conversation.
    .where(
        or_(
            and_(_OF_CONVERSATION, _T.current, _T.position > bindparam("after")),
            and_(_OF_CONVERSATION, _T.key == bindparam("key")),
        )
    )
    .order_by(_T.position)
)
AT = HISTORY.where(_T.position == bindparam("position"), _T.attempt == bindparam("attempt"))
BY_ID = select(*_COLUMNS).where(_OF_TURN)
BY_IDS = select(*_COLUMNS).where(_T.id.in_(bindparam("turns", expanding=True)))

ADD_CONVERSATION = Prepared(insert(conversations), *HeadRow._fields)
ADD_TURNS = Prepared(insert(turns), *_NAMES, "key", "server")
TOUCH = update(conversations).where(_C.id == bindparam("conversation"))
TOUCH_SAID = Prepared(TOUCH, "title", "next_position", "turn_count", "updated")
REPLACE = update(turns).where(_OF_TURN).values(current=false())
REMOVE_FROM = (  # updates cannot have parameters with the names of columns
    update(turns)
    .where(_T.conversation == bindparam("within"), _T.current, _T.position >= bindparam("start"))
    .values(current=false())
)
ERASE = delete(conversations).where(
    _C.id == bindparam("id"), _C.owner == bindparam("owner")
)  # turns follow by their key
ERASE_OWNER = delete(conversations).where(_C.owner == bindparam("owner")).returning(_C.id)

_WAS_ABANDONED = exists().where(_OF_TURN, _T.status == ABANDONED)
# A reply that comes after all changes a turn that readers may have cached as stopped.
_TOUCH_BY_TURN = update(conversations).where(
    _C.id == select(_T.conversation).where(_OF_TURN, _UNFINISHED).scalar_subquery()
)
TOUCH_UNFINISHED = Prepared(
    _TOUCH_BY_TURN.values(
        {_C.updated: bindparam("updated"), _C.revision: _C.revision + case((_WAS_ABANDONED, 1), else_=0)}
    )
)
_FINISH = update(turns).where(_OF_TURN, _UNFINISHED).returning(*_WITHOUT_REPLY)
FINISH, FINISH_AS_SAVED = (
    Prepared(_FINISH, *names) for names in (("status", "error", "reply", "text"), ("status", "error", "reply"))
)
# A turn that another transaction has locked is skipped: to wait for several could be a deadlock, and more text follows.
_TO_SAVE = select(_T.id).where(_OF_TURN, _T.status == PENDING).with_for_update(skip_locked=True).scalar_subquery()
SAVE_TEXT = update(turns).where(_T.id == _TO_SAVE).values(text=bindparam("progress"))
REVISE_BY_TURN = _TOUCH_BY_TURN.values({_C.revision: _C.revision + 1})
REVIVE = update(turns).where(_OF_TURN, _T.status == ABANDONED).values(status=PENDING, text=bindparam("progress"))


def owned_row(connection: Connection, id: str, owner: str, *, lock: bool = False) -> HeadRow:  # noqa: A002
    """The row of a conversation, locked until the end of the transaction where it is going to be changed."""
    rows = (OWNED_LOCKED if lock else OWNED).rows(connection, {"id": id, "owner": owner})
    if not rows:
        raise NotFound("conversation")
    return HeadRow._make(rows[0])


def locked_row(connection: Connection, id: str) -> HeadRow:  # noqa: A002
    """The row of a conversation, whoever owns it, locked until the end of the transaction."""
    rows = HEAD_LOCKED.rows(connection, {"id": id})
    if not rows:
        raise NotFound("conversation")
    return HeadRow._make(rows[0])


def head_record(row: HeadRow) -> Conversation:
    """A conversation without its turns."""
    persona = None if row.persona is None else persona_from_json(row.persona)
    evidence = tuple(evidence_from_json(passage) for passage in row.evidence or ())
    return Conversation(row.id, row.owner, row.title, row.bot, persona, row.created, row.updated, evidence=evidence)


def read_conversation(connection: Connection, id: str, owner: str, *, history: bool = False) -> Conversation:  # noqa: A002
    """A conversation with its current turns, or all of them."""
    head = head_record(owned_row(connection, id, owner))
    return replace(head, turns=read_turns(connection, HISTORY if history else CURRENT, id=id))


def read_turns(connection: Connection, query: Select[Any], **values: Any) -> tuple[StoredTurn, ...]:
    """The turns that a query selects."""
    return tuple(map(turn_record, connection.execute(query, values)))


def touch(connection: Connection, id: str, **changes: Any) -> None:  # noqa: A002
    """Change a conversation's row, and the time of its last update."""
    connection.execute(TOUCH, {"conversation": id, "updated": datetime.now(UTC)} | changes)


def turn_record(row: Sequence[Any]) -> StoredTurn:
    """A turn as users see it: an abandoned one is stopped, with the reason."""
    turn = StoredTurn(*row[: len(_COLUMNS)])
    return replace(turn, status="stopped", error=ABANDONED_ERROR) if row[_STATUS] == ABANDONED else turn


def is_abandoned(row: Sequence[Any]) -> bool:
    """Whether the row is a turn whose server seems to be gone."""
    return bool(row[_STATUS] == ABANDONED)


def turn_row(turn: StoredTurn, *, key: str | None = None, server: str = "") -> dict[str, Any]:
    """A turn as a row to insert."""
    return dict(zip(_NAMES, _values_of(turn), strict=True), key=key, server=server)

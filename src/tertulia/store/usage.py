"""How much an owner has stored."""

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, LargeBinary, Select, bindparam, cast, func, select

from tertulia.store.database import Database
from tertulia.store.prepared import Prepared
from tertulia.store.schema import conversations, turns


class StoredUsage(NamedTuple):
    """What an owner has stored."""

    conversations: int
    bytes: int
    """Bytes of text in all turns, those that were replaced or undone included."""


def _usage(size: ColumnElement[int]) -> Select[Any]:
    owned = conversations.c.owner == bindparam("owner")
    count = select(func.count()).select_from(conversations).where(owned).scalar_subquery()
    text = (
        select(func.coalesce(func.sum(size), 0))
        .select_from(turns.join(conversations, turns.c.conversation == conversations.c.id))
        .where(owned)
        .scalar_subquery()
    )
    return select(count, text)


_SQLITE = Prepared(_usage(func.length(cast(turns.c.text, LargeBinary))))
_POSTGRESQL = Prepared(_usage(func.octet_length(turns.c.text)))


def usage_of(database: Database, owner: str) -> StoredUsage:
    """Count an owner's conversations and bytes of text: one pass over that owner's turns."""
    statement = _SQLITE if database.is_sqlite else _POSTGRESQL
    return database.read(lambda connection: StoredUsage(*statement.rows(connection, {"owner": owner})[0]))

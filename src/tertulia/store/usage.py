"""How much an owner has stored."""

from typing import NamedTuple

from sqlalchemy import LargeBinary, cast, func, select

from tertulia.store.database import Database
from tertulia.store.schema import conversations, turns


class StoredUsage(NamedTuple):
    """What an owner has stored."""

    conversations: int
    bytes: int
    """Bytes of text in all turns, those that were replaced or undone included."""


def usage_of(database: Database, owner: str) -> StoredUsage:
    """Count an owner's conversations and bytes of text: one pass over that owner's turns."""
    is_sqlite = database.engine.dialect.name == "sqlite"
    size = func.length(cast(turns.c.text, LargeBinary)) if is_sqlite else func.octet_length(turns.c.text)
    owned = conversations.c.owner == owner
    count = select(func.count()).select_from(conversations).where(owned).scalar_subquery()
    text = (
        select(func.coalesce(func.sum(size), 0))
        .select_from(turns.join(conversations, turns.c.conversation == conversations.c.id))
        .where(owned)
        .scalar_subquery()
    )
    return database.read(lambda connection: StoredUsage(*connection.execute(select(count, text)).one()))

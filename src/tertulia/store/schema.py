"""The tables. `migrations` makes the same ones step by step, and a test proves that the two agree.

Core tables and no mapped classes: the store hands out frozen values of its own, and needs no identity map.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

PENDING, ABANDONED = "pending", "abandoned"
"""Both wait for a reply. Abandoned: its server seems to be gone, so people see it as stopped; but should the server
live after all (perhaps another program opened the database meanwhile), its reply is still taken."""
IS_PENDING = text("status = 'pending'")
"""The condition of the index below: a query must spell it the same way, without a parameter, to be served from it."""

VERSION_TABLE = "tertulia_version"
"""Not Alembic's own name, because a PostgreSQL database may be shared with other programs that use Alembic."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC, aware on both sides. SQLite has no type for it: there it is ISO text, which sorts like time."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The type of the column."""
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """A moment on its way in."""
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """A moment on its way out."""
        return datetime.fromisoformat(value) if isinstance(value, str) else value and value.astimezone(UTC)


conversations = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("bot", Text, nullable=False),
    Column("persona", JSON(none_as_null=True)),
    # How many places it has had for turns, undone ones too: the position of the next.
    Column("places", Integer, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("updated", UtcDateTime, nullable=False),
    Index("ix_conversations_owner_updated", "owner", "updated"),
)

turns = Table(
    "turns",
    metadata,
    Column("id", Text, primary_key=True),
    Column("conversation", Text, ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("speaker", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("status", Text, nullable=False),
    Column("bot", Text),
    Column("reply", JSON(none_as_null=True)),
    # No foreign key: it is always in the same conversation and goes with it, and a key would need an index of its own.
    Column("replaces", Text),
    Column("current", Boolean, nullable=False),
    Column("error", Text),
    # The key of the request that added it: on the user's turn for a message, on the bot's for a regeneration.
    Column("key", Text),
    UniqueConstraint("conversation", "position", "attempt"),
    UniqueConstraint("conversation", "key"),
    # Holds the few turns that wait, so that opening a large database need not search them all.
    Index("ix_turns_pending", "created", sqlite_where=IS_PENDING, postgresql_where=IS_PENDING),
)

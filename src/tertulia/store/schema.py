"""The tables. `migrations` creates the same ones step by step, and a test checks that the two agree.

Core tables and no mapped classes: stores return frozen values of their own, and need no identity map.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
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
"""Both wait for a reply. Abandoned: its server seems to be gone, so users see it as stopped; but should the server
still be alive (suspended for a while, or cut off from the database), its reply is still accepted."""
IS_PENDING = text("status = 'pending'")
"""The condition of the index below: a query must use the same text, without a parameter, to be served from it."""
IS_LIVE = text("state = 'live'")
"""The same for the leases of units that have neither ended nor been seen to be expired."""

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
    """An aware datetime in UTC. SQLite has no such type: there it is ISO text, which sorts chronologically."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column's type in this database."""
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """From Python to the database."""
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """From the database to Python."""
        return datetime.fromisoformat(value) if isinstance(value, str) else value and value.astimezone(UTC)


conversations = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("bot", Text, nullable=False),
    Column("persona", JSON(none_as_null=True)),
    # Passages that replies should rest on; those that a reply had are in its own record.
    Column("evidence", JSON(none_as_null=True)),
    # The position of the next turn; undone turns keep theirs, so this never decreases.
    Column("places", Integer, key="next_position", nullable=False),
    # The number of current turns, so that a list of conversations need not count them.
    Column("turn_count", Integer, nullable=False, server_default=text("0")),
    # Increases when turns that were no longer pending change (undo, regenerate): what was read of them before is stale.
    Column("revision", Integer, nullable=False, server_default=text("0")),
    Column("created", UtcDateTime, nullable=False),
    Column("updated", UtcDateTime, nullable=False),
    Index("ix_conversations_owner_updated_id", "owner", "updated", "id"),
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
    # No foreign key: it is in the same conversation and deleted with it, and a key would need an index of its own.
    Column("replaces", Text),
    Column("current", Boolean, nullable=False),
    Column("error", Text),
    # The key of the request that added it: on the user's turn for a message, on the bot's for a regeneration.
    Column("key", Text),
    # The server that generates a reply; see `servers`. Empty for users' turns.
    Column("server", Text, nullable=False, server_default=text("''")),
    UniqueConstraint("conversation", "position", "attempt"),
    UniqueConstraint("conversation", "key"),
    # Contains the few pending turns, so that finding those of a dead server need not scan them all.
    Index("ix_turns_pending", "server", sqlite_where=IS_PENDING, postgresql_where=IS_PENDING),
)

servers = Table(
    "servers",
    metadata,
    Column("id", Text, primary_key=True),
    # Increases as long as the server lives. No time of day: clocks differ between machines, and jump.
    Column("beats", BigInteger, nullable=False),
    # Identifies the operating system's process, so that servers on the same machine see at once that it is gone.
    Column("process", Text, nullable=False),
)

# Studies. Nothing in these tables is overwritten but states, counters of time, and what a person asked to have deleted.

studies = Table(
    "studies",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("config", JSON, nullable=False),
    # Of the config: shows whether a file on disk is still the study that was created from it.
    Column("digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
)

study_units = Table(
    "study_units",
    metadata,
    Column("study", Text, ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    # From the study's own files, so unique within the study only.
    Column("id", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("bots", JSON, nullable=False),
    Column("payload", JSON, nullable=False),
    # How many participants are to rate it.
    Column("wanted", Integer, nullable=False),
)

participants = Table(
    "participants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("study", Text, ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("source", Text, nullable=False),
    Column("step", Text, nullable=False),
    # What the study's flow remembers: training attempts, attention checks.
    Column("data", JSON, nullable=False),
    Column("consent_version", Text),
    Column("consented", UtcDateTime),
    Column("language", Text),
    Column("code", Text),
    Column("completed", UtcDateTime),
    Column("created", UtcDateTime, nullable=False),
    # When a request of theirs last came in.
    Column("seen", UtcDateTime, nullable=False),
    Index("ix_participants_study_step", "study", "step"),
)

participant_tokens = Table(
    "participant_tokens",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("participant", Text, ForeignKey("participants.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created", UtcDateTime, nullable=False),
)

# Who participants are. Apart from everything else, so that no export can contain it by accident, and it can be erased.
identities = Table(
    "identities",
    metadata,
    Column("participant", Text, ForeignKey("participants.id", ondelete="CASCADE"), primary_key=True),
    Column("study", Text, ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("source", Text, nullable=False),
    Column("external_id", Text, nullable=False),
    Column("meta", JSON, nullable=False),
    UniqueConstraint("study", "source", "external_id"),
)

assignments = Table(
    "assignments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("study", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("participant", Text, ForeignKey("participants.id", ondelete="CASCADE"), nullable=False),
    # live, submitted, expired or released
    Column("state", Text, nullable=False),
    # Which of the unit's bots is shown on which side.
    Column("side_order", JSON, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("expires", UtcDateTime, nullable=False),
    Column("ended", UtcDateTime),
    # Why it was released.
    Column("reason", Text),
    Column("summary", JSON(none_as_null=True)),
    ForeignKeyConstraint(["study", "unit"], ["study_units.study", "study_units.id"], ondelete="CASCADE"),
    UniqueConstraint("study", "unit", "participant"),
    Index("ix_assignments_participant_created", "participant", "created"),
    Index("ix_assignments_live", "study", "expires", sqlite_where=IS_LIVE, postgresql_where=IS_LIVE),
)

assignment_conversations = Table(
    "assignment_conversations",
    metadata,
    Column("assignment", Text, ForeignKey("assignments.id", ondelete="CASCADE"), primary_key=True),
    # 0, and 1 for the second of two bots that are talked to at the same time.
    Column("side", Integer, primary_key=True, autoincrement=False),
    Column("conversation", Text, ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False, index=True),
)

labels = Table(
    "labels",
    metadata,
    Column("assignment", Text, ForeignKey("assignments.id", ondelete="CASCADE"), primary_key=True),
    # 0, 1, 2 ... within the assignment, in the order of arrival.
    Column("number", Integer, primary_key=True, autoincrement=False),
    # Of the request that added it: several labels may share one.
    Column("key", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("value", JSON, nullable=False),
    # How long the participant took, as far as the page knows.
    Column("seconds", Float),
    Column("created", UtcDateTime, nullable=False),
    # The latest label of its target and question that was not undone.
    Column("current", Boolean, nullable=False),
    Column("undone", Boolean, nullable=False),
)

study_events = Table(
    "study_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("study", Text, ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Index("ix_study_events_study_created_id", "study", "created", "id"),
)

waiting = Table(
    "waiting",
    metadata,
    Column("participant", Text, ForeignKey("participants.id", ondelete="CASCADE"), primary_key=True),
    Column("study", Text, ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
    Column("unit", Text),
    Column("since", UtcDateTime, nullable=False),
    # The last heartbeat: who has none for a while has closed the page.
    Column("seen", UtcDateTime, nullable=False),
    Index("ix_waiting_study_since_participant", "study", "since", "participant"),
)

members = Table(
    "members",
    metadata,
    Column("conversation", Text, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("participant", Text, ForeignKey("participants.id", ondelete="CASCADE"), primary_key=True),
    Column("role", Text, nullable=False),
    Column("unit", Text),
    Column("joined", UtcDateTime, nullable=False),
    Column("seen", UtcDateTime, nullable=False),
    Column("departed", UtcDateTime),
    UniqueConstraint("conversation", "role"),
    Index("ix_members_participant", "participant"),
)

# Researchers.

accounts = Table(
    "accounts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    # "scrypt$n$r$p$salt$hash"
    Column("password", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
)

account_sessions = Table(
    "account_sessions",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("account", Text, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created", UtcDateTime, nullable=False),
    Column("expires", UtcDateTime, nullable=False),
)

# What accounts do outside of studies; the rest is in study_events. No foreign key: it outlives the account.
account_events = Table(
    "account_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created", UtcDateTime, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Index("ix_account_events_created_id", "created", "id"),
)

"""Conversations and their turns."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True).with_variant(sa.Text, "sqlite")
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("bot", sa.Text, nullable=False),
        sa.Column("persona", sa.JSON),
        sa.Column("places", sa.Integer, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("updated", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_index("ix_conversations_owner_updated", "conversations", ["owner", "updated"])
    op.create_table(
        "turns",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("speaker", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("bot", sa.Text),
        sa.Column("reply", sa.JSON),
        sa.Column("replaces", sa.Text),
        sa.Column("current", sa.Boolean, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("key", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_turns"),
        sa.ForeignKeyConstraint(
            ["conversation"], ["conversations.id"], name="fk_turns_conversation", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("conversation", "position", "attempt", name="uq_turns_conversation_position_attempt"),
        sa.UniqueConstraint("conversation", "key", name="uq_turns_conversation_key"),
    )
    waiting = sa.text("status = 'pending'")
    op.create_index("ix_turns_pending", "turns", ["created"], sqlite_where=waiting, postgresql_where=waiting)

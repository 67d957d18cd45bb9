"""Servers that renew leases on their pending replies; numbers that spare reading a whole conversation.

No server runs while the schema changes, so every reply that is pending now has lost its server.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

conversations = sa.table("conversations", sa.column("id"), sa.column("turn_count"))
turns = sa.table("turns", sa.column("conversation"), sa.column("status"), sa.column("current", sa.Boolean))


def upgrade() -> None:
    op.create_table(
        "servers",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("process", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_servers"),
    )
    zero = sa.text("0")
    op.add_column("conversations", sa.Column("turn_count", sa.Integer, nullable=False, server_default=zero))
    op.add_column("conversations", sa.Column("revision", sa.Integer, nullable=False, server_default=zero))
    op.add_column("turns", sa.Column("server", sa.Text, nullable=False, server_default=sa.text("''")))
    belongs = sa.and_(turns.c.conversation == conversations.c.id, turns.c.current)
    count = sa.select(sa.func.count()).select_from(turns).where(belongs).scalar_subquery()
    op.execute(sa.update(conversations).values(turn_count=count))
    op.execute(sa.update(turns).where(turns.c.status == "pending").values(status="abandoned"))

    pending = sa.text("status = 'pending'")
    op.drop_index("ix_turns_pending", "turns")
    op.create_index("ix_turns_pending", "turns", ["server"], sqlite_where=pending, postgresql_where=pending)
    op.drop_index("ix_conversations_owner_updated", "conversations")
    op.create_index("ix_conversations_owner_updated_id", "conversations", ["owner", "updated", "id"])

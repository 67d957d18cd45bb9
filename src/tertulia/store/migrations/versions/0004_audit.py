"""The log of what accounts do outside of studies: signing in, and changes of accounts."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

moment = sa.DateTime(timezone=True).with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    op.create_table(
        "account_events",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_account_events"),
    )
    op.create_index("ix_account_events_created_id", "account_events", ["created", "id"])

"""The evidence of a conversation: passages that its replies should rest on."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("conversations", sa.Column("evidence", sa.JSON))

"""Studies with people (units, participants, assignments, labels, pairs) and the accounts of researchers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

moment = sa.DateTime(timezone=True).with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    _create_studies()
    _create_assignments()
    _create_pairing()
    _create_accounts()


def _cascade(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=f"fk_{table}_{column}", ondelete="CASCADE")


def _create_studies() -> None:
    op.create_table(
        "studies",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
        sa.UniqueConstraint("name", name="uq_studies_name"),
    )
    op.create_table(
        "study_units",
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("bots", sa.JSON, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("wanted", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("study", "id", name="pk_study_units"),
        _cascade("study_units", "study", "studies"),
    )
    op.create_table(
        "participants",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Column("consent_version", sa.Text),
        sa.Column("consented", moment),
        sa.Column("language", sa.Text),
        sa.Column("code", sa.Text),
        sa.Column("completed", moment),
        sa.Column("created", moment, nullable=False),
        sa.Column("seen", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_participants"),
        _cascade("participants", "study", "studies"),
    )
    op.create_index("ix_participants_study_step", "participants", ["study", "step"])
    op.create_table(
        "participant_tokens",
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("participant", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_participant_tokens"),
        _cascade("participant_tokens", "participant", "participants"),
    )
    op.create_index("ix_participant_tokens_participant", "participant_tokens", ["participant"])
    op.create_table(
        "identities",
        sa.Column("participant", sa.Text, nullable=False),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text, nullable=False),
        sa.Column("meta", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("participant", name="pk_identities"),
        _cascade("identities", "participant", "participants"),
        _cascade("identities", "study", "studies"),
        sa.UniqueConstraint("study", "source", "external_id", name="uq_identities_study_source_external_id"),
    )
    op.create_table(
        "study_events",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_study_events"),
        _cascade("study_events", "study", "studies"),
    )
    op.create_index("ix_study_events_study_created_id", "study_events", ["study", "created", "id"])


def _create_assignments() -> None:
    op.create_table(
        "assignments",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("participant", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("side_order", sa.JSON, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("expires", moment, nullable=False),
        sa.Column("ended", moment),
        sa.Column("reason", sa.Text),
        sa.Column("summary", sa.JSON),
        sa.PrimaryKeyConstraint("id", name="pk_assignments"),
        _cascade("assignments", "participant", "participants"),
        sa.ForeignKeyConstraint(
            ["study", "unit"], ["study_units.study", "study_units.id"], name="fk_assignments_study", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("study", "unit", "participant", name="uq_assignments_study_unit_participant"),
    )
    op.create_index("ix_assignments_participant_created", "assignments", ["participant", "created"])
    live = sa.text("state = 'live'")
    op.create_index(
        "ix_assignments_live", "assignments", ["study", "expires"], sqlite_where=live, postgresql_where=live
    )
    op.create_table(
        "assignment_conversations",
        sa.Column("assignment", sa.Text, nullable=False),
        sa.Column("side", sa.Integer, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("assignment", "side", name="pk_assignment_conversations"),
        _cascade("assignment_conversations", "assignment", "assignments"),
        _cascade("assignment_conversations", "conversation", "conversations"),
    )
    op.create_index("ix_assignment_conversations_conversation", "assignment_conversations", ["conversation"])
    op.create_table(
        "labels",
        sa.Column("assignment", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("value", sa.JSON, nullable=False),
        sa.Column("seconds", sa.Float),
        sa.Column("created", moment, nullable=False),
        sa.Column("current", sa.Boolean, nullable=False),
        sa.Column("undone", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("assignment", "number", name="pk_labels"),
        _cascade("labels", "assignment", "assignments"),
    )


def _create_pairing() -> None:
    op.create_table(
        "waiting",
        sa.Column("participant", sa.Text, nullable=False),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("unit", sa.Text),
        sa.Column("since", moment, nullable=False),
        sa.Column("seen", moment, nullable=False),
        sa.PrimaryKeyConstraint("participant", name="pk_waiting"),
        _cascade("waiting", "participant", "participants"),
        _cascade("waiting", "study", "studies"),
    )
    op.create_index("ix_waiting_study_since_participant", "waiting", ["study", "since", "participant"])
    op.create_table(
        "members",
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("participant", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("unit", sa.Text),
        sa.Column("joined", moment, nullable=False),
        sa.Column("seen", moment, nullable=False),
        sa.Column("departed", moment),
        sa.PrimaryKeyConstraint("conversation", "participant", name="pk_members"),
        _cascade("members", "conversation", "conversations"),
        _cascade("members", "participant", "participants"),
        sa.UniqueConstraint("conversation", "role", name="uq_members_conversation_role"),
    )
    op.create_index("ix_members_participant", "members", ["participant"])


def _create_accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("name", name="uq_accounts_name"),
    )
    op.create_table(
        "account_sessions",
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("expires", moment, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_account_sessions"),
        _cascade("account_sessions", "account", "accounts"),
    )
    op.create_index("ix_account_sessions_account", "account_sessions", ["account"])

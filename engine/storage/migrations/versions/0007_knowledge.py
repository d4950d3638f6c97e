"""What sessions said, drafts of facts, nights."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "captures",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("last_session", sa.String(), nullable=False),
        sa.Column("corrects", sa.String(), nullable=False),
        sa.Column("forgotten", sa.Boolean(), nullable=False),
        sa.CheckConstraint("kind IN ('decision', 'fact', 'correction')", name="ck_captures_kind"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_captures_digest", "captures", ["workspace", "digest"], unique=True)
    op.create_index("ix_captures_at", "captures", ["at", "id"], unique=False)
    op.create_index("ix_captures_session", "captures", ["session_id", "line"], unique=False)
    op.create_table(
        "fact_drafts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("fact", sa.String(), nullable=False),
        sa.Column("category", sa.String(), nullable=False),
        sa.Column("bucket", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("supersedes", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("decided_at", sa.String(length=32), nullable=True),
        sa.Column("fact_id", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('waiting', 'promoted', 'rejected')", name="ck_fact_drafts_state"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_fact_drafts_digest", "fact_drafts", ["workspace", "digest"], unique=True)
    op.create_index("ix_fact_drafts_state", "fact_drafts", ["state", "created_at"], unique=False)
    op.create_table(
        "nightly_days",
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("cost_microusd", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.CheckConstraint("state IN ('evaluated', 'done')", name="ck_nightly_days_state"),
        sa.CheckConstraint("cost_microusd >= 0 AND attempts >= 0", name="ck_nightly_days_counts"),
        sa.PrimaryKeyConstraint("day"),
    )

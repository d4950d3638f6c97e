"""What leaders say, how often it served, and what is on its way up to them."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "wisdom_entries",
        sa.Column("leader", sa.String(), nullable=False),
        sa.Column("section", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("sources", sa.JSON(), nullable=False),
        sa.Column("unsent", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "section IN ('domain','principles','guardrails','patterns','decisions')",
            name="ck_wisdom_entries_section",
        ),
        sa.PrimaryKeyConstraint("leader", "section", "key", "version"),
    )
    op.create_index("ix_wisdom_entries_unsent", "wisdom_entries", ["leader"], sqlite_where=sa.text("unsent"))
    op.create_table(
        "wisdom_uses",
        sa.Column("leader", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("last_used_at", sa.String(length=32), nullable=False),
        sa.Column("unsent", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("leader", "key", "origin"),
    )
    op.create_index("ix_wisdom_uses_unsent", "wisdom_uses", ["leader"], sqlite_where=sa.text("unsent"))
    op.create_table(
        "bubbles",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("learning_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("leader", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("category", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("importance", sa.Float(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("gates", sa.JSON(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("flushed_at", sa.String(length=32), nullable=True),
        sa.Column("pattern", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('queued','refused','flushed')", name="ck_bubbles_state"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_bubbles_learning", "bubbles", ["learning_id"], unique=True)
    op.create_index("ix_bubbles_queue", "bubbles", ["state", "leader", "at"])
    op.create_index("ix_bubbles_agent", "bubbles", ["agent", "at"])

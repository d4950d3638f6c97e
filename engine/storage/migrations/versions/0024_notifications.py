"""The outbox of notifications. What happened before there were any is not told."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "notifications",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fact_id", sa.Integer(), nullable=False),
        sa.Column("surface", sa.String(), nullable=False),
        sa.Column("happening", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("urgent", sa.Boolean(), nullable=False),
        sa.Column("gathered", sa.Boolean(), nullable=False),
        sa.Column("standing", sa.String(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("due_at", sa.String(length=32), nullable=False),
        sa.Column("changed_at", sa.String(length=32), nullable=False),
        sa.CheckConstraint("standing IN ('waiting', 'sent', 'dropped', 'dead')", name="ck_notifications_standing"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fact_id", "surface", name="uq_notifications_fact_surface"),
    )
    op.create_index("ix_notifications_standing_surface", "notifications", ["standing", "surface", "id"])
    op.execute(
        "INSERT INTO engine_state (key, value) "
        "SELECT 'notify.read', (SELECT MAX(id) FROM memory_events) WHERE EXISTS (SELECT 1 FROM memory_events)"
    )

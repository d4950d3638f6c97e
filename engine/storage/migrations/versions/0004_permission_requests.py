"""Permission requests of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "permission_requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("asked_at", sa.String(length=32), nullable=False),
        sa.Column("answered_at", sa.String(length=32), nullable=True),
        sa.Column("answer", sa.String(), nullable=True),
        sa.Column("answered_by", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('waiting', 'answered', 'withdrawn')", name="ck_permission_requests_state"),
        sa.CheckConstraint(
            "answer IN ('allow-once', 'allow-session', 'deny-once', 'deny-session')",
            name="ck_permission_requests_answer",
        ),
        sa.CheckConstraint("(state = 'answered') = (answer IS NOT NULL)", name="ck_permission_requests_answered"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_permission_requests_state", "permission_requests", ["state", "asked_at"], unique=False)
    op.create_index(
        "ix_permission_requests_session", "permission_requests", ["session_id", "key", "asked_at"], unique=False
    )

"""What became of guided sessions, and what was told of guidance already."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "guided_sessions",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("items", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.CheckConstraint("state IN ('','open','good','bad')", name="ck_guided_sessions_state"),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_index("ix_guided_sessions_agent", "guided_sessions", ["agent", "at"])
    op.create_index("ix_guided_sessions_at", "guided_sessions", ["at"])
    op.create_table(
        "guidance_findings",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("ref", sa.String(), nullable=False),
        sa.Column("wording", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.CheckConstraint("kind IN ('noisy','stale')", name="ck_guidance_findings_kind"),
        sa.PrimaryKeyConstraint("kind", "ref", "wording", "agent"),
    )

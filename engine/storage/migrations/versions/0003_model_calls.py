"""Calls of models, with their prompts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "model_calls",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("run_kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("started_at", sa.String(length=32), nullable=False),
        sa.Column("ended_at", sa.String(length=32), nullable=True),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_microusd", sa.Integer(), nullable=False),
        sa.Column("price_known", sa.Boolean(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("follows", sa.String(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("messages", sa.LargeBinary(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "state IN ('running', 'done', 'failed', 'cancelled', 'interrupted')", name="ck_model_calls_state"
        ),
        sa.CheckConstraint(
            "input_tokens >= 0 AND output_tokens >= 0 AND cost_microusd >= 0", name="ck_model_calls_counts"
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_model_calls_session", "model_calls", ["session_id", "started_at"], unique=False)
    op.create_index("ix_model_calls_state", "model_calls", ["state"], unique=False)

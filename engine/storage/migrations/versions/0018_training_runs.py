"""Training runs."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "training_runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("base_model", sa.String(), nullable=False),
        sa.Column("checkpoint", sa.String(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("pairs_to", sa.Integer(), nullable=False),
        sa.Column("file_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("former_model", sa.String(), nullable=False),
        sa.Column("agreement", sa.Float(), nullable=True),
        sa.Column("former_agreement", sa.Float(), nullable=True),
        sa.Column("held_back", sa.Integer(), nullable=False),
        sa.Column("cost_entry", sa.Integer(), nullable=True),
        sa.Column("cost_microusd", sa.Integer(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("updated_at", sa.String(length=32), nullable=False),
        sa.CheckConstraint(
            "state IN ('prepared', 'uploaded', 'started', 'trained', 'adopted', 'kept_old', 'failed', 'cancelled')",
            name="ck_training_runs_state",
        ),
        sa.CheckConstraint("method IN ('sft', 'dpo')", name="ck_training_runs_method"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_training_runs_state", "training_runs", ["state"], unique=False)

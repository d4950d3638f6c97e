"""Vectors of learnings, the prompts that they reached, and the sessions whose learnings are written down."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "learning_vectors",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "model"),
    )
    op.create_table(
        "learning_uses",
        sa.Column("call_id", sa.String(), nullable=False),
        sa.Column("entry_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("call_id", "entry_id"),
    )
    op.create_index("ix_learning_uses_entry", "learning_uses", ["entry_id", "at"], unique=False)
    op.create_table(
        "learning_sessions",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("session_id"),
    )

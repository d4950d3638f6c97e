"""Whose words they are, and when the operator approved them."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

LABELLED = ("captures", "memories", "fact_drafts", "bubbles", "candidates", "overlays")


def upgrade() -> None:
    for table in LABELLED:
        trusted = sa.Column("trust", sa.String(), nullable=False, server_default="quoted")
        op.add_column(table, trusted)
    for table in ("captures", "bubbles"):
        op.add_column(table, sa.Column("approved_at", sa.String(32), nullable=True))

"""What a task needs done before it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("needs", sa.JSON(), server_default="[]", nullable=False))

"""What rows that were let go came to, by day."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "table_days",
        sa.Column("table", sa.String(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("microusd", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("table", "day", "workspace", "kind"),
        sqlite_with_rowid=False,
    )

"""Sums of the ledger by day, kept beside its rows."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

COUNTING = (
    "CREATE TRIGGER memory_events_counted AFTER INSERT ON memory_events BEGIN "
    "INSERT INTO memory_event_days (kind, day, workspace, number) "
    "VALUES (new.kind, substr(new.at, 1, 10), new.workspace, 1) "
    "ON CONFLICT (kind, day, workspace) DO UPDATE SET number = number + 1; END"
)


def upgrade() -> None:
    op.create_table(
        "memory_event_days",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "day", "workspace"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO memory_event_days (kind, day, workspace, number) "
        "SELECT kind, substr(at, 1, 10), workspace, count(*) FROM memory_events GROUP BY 1, 2, 3"
    )
    op.execute(COUNTING)

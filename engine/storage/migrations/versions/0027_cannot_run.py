"""A session and a card may end because something that they needed was missing."""

from alembic import op

revision = "0027"
down_revision = "0026"

_CHANGES = (
    (
        "predictions",
        "'failed', 'cancelled', 'blocked', 'withdrawn'",
        "'failed', 'cannot_run', 'cancelled', 'blocked', 'withdrawn'",
    ),
    (
        "sessions",
        "'failed', 'cancelled', 'blocked', 'interrupted'",
        "'failed', 'cannot_run', 'cancelled', 'blocked', 'interrupted'",
    ),
)


def upgrade() -> None:
    # A check constraint is text of the schema: changing it there keeps rows and indexes as they are.
    op.execute("PRAGMA writable_schema=ON")
    for table, before, after in _CHANGES:
        quoted = [words.replace("'", "''") for words in (before, after)]
        op.execute(f"UPDATE sqlite_master SET sql = replace(sql, '{quoted[0]}', '{quoted[1]}') WHERE name = '{table}'")
    op.execute("PRAGMA writable_schema=RESET")

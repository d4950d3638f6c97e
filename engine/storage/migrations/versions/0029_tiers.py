"""Cards are sorted by what happens when nobody acts: their tier takes the place of rank and urgency."""

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    # Column by column: a copy of the table would lose that an index runs downwards.
    op.execute("ALTER TABLE predictions ADD COLUMN tier INTEGER DEFAULT 3 NOT NULL")
    op.execute("ALTER TABLE predictions DROP COLUMN rank")
    op.execute("ALTER TABLE predictions DROP COLUMN urgency")
    op.execute("PRAGMA writable_schema=ON")
    op.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'CONSTRAINT status_known', "
        "'CONSTRAINT tier_range CHECK (tier BETWEEN 1 AND 4), ' || char(10, 9) || 'CONSTRAINT status_known') "
        "WHERE name = 'predictions'"
    )
    op.execute("PRAGMA writable_schema=RESET")

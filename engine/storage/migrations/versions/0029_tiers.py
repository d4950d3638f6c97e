"""Cards are sorted by what happens when nobody acts: their tier takes the place of rank and urgency."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    with op.batch_alter_table("predictions") as batch:
        batch.add_column(sa.Column("tier", sa.Integer(), nullable=False, server_default=sa.text("3")))
        batch.drop_column("rank")
        batch.drop_column("urgency")
        batch.create_check_constraint("tier_range", "tier BETWEEN 1 AND 4")

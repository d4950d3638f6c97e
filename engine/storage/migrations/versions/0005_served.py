"""Who would do what a card says."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("served", sa.String(), server_default="", nullable=False))

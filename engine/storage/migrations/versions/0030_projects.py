"""Which project of a repository a run of the tests was of."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column("validation_runs", sa.Column("project", sa.String(), nullable=False, server_default=""))

"""Whether a run was on files that only a session had changed, told apart from the tries of a validation loop."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("validation_runs", sa.Column("changed", sa.Boolean(), server_default="0", nullable=False))
    op.execute("UPDATE validation_runs SET changed = 1 WHERE attempt > 0 AND workspace != ''")

"""Which try of a validation loop a run was, and what healing had cost until then."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for name in ("attempt", "cost_microusd"):
        op.add_column("validation_runs", sa.Column(name, sa.Integer(), server_default="0", nullable=False))

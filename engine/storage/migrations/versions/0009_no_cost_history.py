"""An index that nothing asks any more: what a runner usually costs is told by its sessions."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.drop_index("ix_cost_entries_history", table_name="cost_entries")

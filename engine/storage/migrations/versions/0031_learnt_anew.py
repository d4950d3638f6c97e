"""The Twin learns anew from the newest decisions at each start: no states of it are stored."""

from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.drop_table("twin_states")

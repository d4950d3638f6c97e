"""What a prompt means, for the prompts after it; and links of chains that were asked for and did not run."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0031"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("meaning", sa.LargeBinary(), server_default=sa.text("x''"), nullable=False))
    op.add_column("chain_links", sa.Column("ran", sa.Boolean(), server_default=sa.text("1"), nullable=False))

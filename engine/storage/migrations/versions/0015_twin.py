"""What the embedded Twin learns from: the card as it was seen, the hour, the uncalibrated sum; and what it learnt."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("seen", sa.LargeBinary(), server_default=sa.text("x''"), nullable=False))
    op.add_column("decisions", sa.Column("seen", sa.LargeBinary(), server_default=sa.text("x''"), nullable=False))
    op.add_column("decisions", sa.Column("raw", sa.Float(), nullable=True))
    op.add_column("decisions", sa.Column("hour", sa.Integer(), nullable=True))
    op.create_table(
        "twin_states",
        sa.Column("upto", sa.Integer(), nullable=False),
        sa.Column("learnt", sa.Integer(), nullable=False),
        sa.Column("format", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.String(length=32), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("upto"),
    )

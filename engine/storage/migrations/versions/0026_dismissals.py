"""What a card is about, and the dismissals that keep it away."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("subject", sa.String(), server_default="", nullable=False))
    # Of cards that are older nothing better is known: each is about its own evidence.
    op.execute("UPDATE predictions SET subject = fingerprint")
    op.drop_index("ux_predictions_pending", "predictions")
    op.create_index(
        "ux_predictions_pending",
        "predictions",
        ["workspace", "kind", "subject"],
        unique=True,
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "dismissals",
        sa.Column("prediction_id", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("dismissed_at", sa.String(length=32), nullable=False),
        sa.Column("subject_lifted_at", sa.String(length=32), nullable=True),
        sa.Column("kind_lifted_at", sa.String(length=32), nullable=True),
        sa.CheckConstraint(
            "reason IS NULL OR reason IN ('not-now','wrong','already-done','never-here','never-anywhere')",
            name="dismissal_reason_known",
        ),
        sa.PrimaryKeyConstraint("prediction_id"),
    )
    op.create_index("ix_dismissals_kind", "dismissals", ["workspace", "kind"])

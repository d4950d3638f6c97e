"""What a card is about, the dismissals that keep it away, and when work was thrown away."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("subject", sa.String(), server_default="", nullable=False))
    for table in ("predictions", "sessions"):
        op.add_column(table, sa.Column("discarded_at", sa.String(length=32), nullable=True))
    # Of cards that are older nothing better is known: each is about its own evidence.
    op.execute("UPDATE predictions SET subject = fingerprint")
    op.execute(
        "UPDATE predictions SET discarded_at = (SELECT max(decided_at) FROM decisions WHERE "
        "decisions.prediction_id = predictions.id AND decisions.signal = 'discarded' AND taken_back_at IS NULL)"
    )
    op.execute(
        "UPDATE sessions SET discarded_at = (SELECT max(decided_at) FROM change_sets WHERE "
        "change_sets.session_id = sessions.id AND change_sets.state = 'discarded') "
        "WHERE prediction_id IN (SELECT id FROM predictions WHERE discarded_at IS NOT NULL)"
    )
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

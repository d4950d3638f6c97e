"""The weight of a preference pair."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0015"


def upgrade() -> None:
    with op.batch_alter_table("dpo_pairs") as table:
        table.add_column(sa.Column("weight", sa.Float(), server_default="1.0", nullable=False))
        table.create_check_constraint("ck_dpo_pairs_weight", "weight > 0 AND weight <= 1")
    # The rejections that older pairs rest on say how much they weigh.
    op.execute(
        "UPDATE dpo_pairs SET weight = coalesce((SELECT decisions.weight FROM decisions WHERE "
        "decisions.prediction_id = dpo_pairs.rejected_prediction_id AND decisions.taken_back_at IS NULL "
        "AND decisions.chosen = 0 ORDER BY decisions.id DESC LIMIT 1), 1.0)"
    )

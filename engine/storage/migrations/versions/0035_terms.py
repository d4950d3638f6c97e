"""What a candidate puts in force is the candidate's own: overlays are its terms, no rows beside it."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0033"

_TERM = "(SELECT count(*) FROM overlays p WHERE p.candidate_id = o.candidate_id AND p.since <= o.since)"
_LAST = "(SELECT {} FROM overlays o WHERE o.candidate_id = candidates.id ORDER BY o.since DESC LIMIT 1)"


def upgrade() -> None:
    op.add_column("candidates", sa.Column("term", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("candidates", sa.Column("since", sa.String(32), nullable=True))
    op.add_column("candidates", sa.Column("told_at", sa.String(32), nullable=True))
    op.execute(
        "UPDATE candidates SET term = (SELECT count(*) FROM overlays o WHERE o.candidate_id = candidates.id), "
        f"since = {_LAST.format('o.since')}, told_at = {_LAST.format('o.told_at')}, "
        f"effect = coalesce({_LAST.format('o.effect')}, effect)"
    )
    op.create_table(
        "trial_runs",
        sa.Column("overlay_id", sa.String(), primary_key=True),
        sa.Column("session_id", sa.String(), primary_key=True),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("withheld", sa.Boolean(), nullable=False),
        sa.Column("propensity", sa.Float(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.CheckConstraint("state IN ('','open','good','bad')", name="ck_overlay_runs_state"),
        sa.CheckConstraint("propensity >= 0 AND propensity <= 1", name="ck_overlay_runs_propensity"),
    )
    op.execute(
        f"INSERT INTO trial_runs SELECT o.candidate_id || '.' || {_TERM}, r.session_id, r.agent, r.workspace, "
        "r.withheld, r.propensity, r.state, r.at FROM overlay_runs r JOIN overlays o ON o.id = r.overlay_id"
    )
    op.drop_table("overlay_runs")
    op.rename_table("trial_runs", "overlay_runs")
    op.create_index("ix_overlay_runs_session", "overlay_runs", ["session_id"])
    op.drop_table("overlays")

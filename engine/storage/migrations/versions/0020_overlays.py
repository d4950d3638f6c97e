"""Effects in force, and the runs that had them or had to do without."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "overlays",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("candidate_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("run_kind", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("effect", sa.JSON(), nullable=False),
        sa.Column("since", sa.String(length=32), nullable=False),
        sa.Column("until", sa.String(length=32), nullable=True),
        sa.Column("told_at", sa.String(length=32), nullable=True),
        sa.CheckConstraint(
            "type IN ('prompt_fragment', 'fix_template', 'routing_hint', 'validator_policy_tweak', 'flow_offload')",
            name="ck_overlays_type",
        ),
        sa.CheckConstraint("until IS NULL OR until >= since", name="ck_overlays_until"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_overlays_candidate", "overlays", ["candidate_id", "since"])
    op.create_index(
        "ix_overlays_in_force", "overlays", ["candidate_id"], unique=True, sqlite_where=sa.text("until IS NULL")
    )
    op.create_table(
        "overlay_runs",
        sa.Column("overlay_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("withheld", sa.Boolean(), nullable=False),
        sa.Column("propensity", sa.Float(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.CheckConstraint("state IN ('','open','good','bad')", name="ck_overlay_runs_state"),
        sa.CheckConstraint("propensity >= 0 AND propensity <= 1", name="ck_overlay_runs_propensity"),
        sa.ForeignKeyConstraint(["overlay_id"], ["overlays.id"]),
        sa.PrimaryKeyConstraint("overlay_id", "session_id"),
    )
    op.create_index("ix_overlay_runs_session", "overlay_runs", ["session_id"])

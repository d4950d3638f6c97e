"""Learning records and candidates."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

KINDS = (
    "'failed_tdd', 'successful_heal', 'repeated_retry', 'task_conflict', 'budget_incident', 'human_approval', "
    "'agent_error', 'successful_bubble', 'guidance_applied', 'guidance_noisy', 'stale_guidance', 'teaching_refresh', "
    "'cloud_sync_failure', 'cloud_memory_recall_hit', 'tool_sequence'"
)


def upgrade() -> None:
    op.create_table(
        "learning_records",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("source_label", sa.String(), nullable=False),
        sa.Column("scope_type", sa.String(), nullable=False),
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("fact", sa.Integer(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.CheckConstraint("score >= 0 AND score <= 100", name="ck_learning_records_score"),
        sa.CheckConstraint(f"kind IN ({KINDS})", name="ck_learning_records_kind"),
        sa.CheckConstraint("scope_type IN ('agent', 'workspace', 'leader')", name="ck_learning_records_scope"),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("ix_learning_records_id", "learning_records", ["id"], unique=True)
    op.create_index(
        "ix_learning_records_label", "learning_records", ["source_label", "scope_type", "scope_id", "seq"], unique=False
    )
    op.create_index("ix_learning_records_scope", "learning_records", ["scope_type", "scope_id", "seq"], unique=False)
    op.create_index("ix_learning_records_kind", "learning_records", ["kind", "seq"], unique=False)
    op.create_index("ix_learning_records_score", "learning_records", ["score", "seq"], unique=False)
    op.create_table(
        "candidates",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("scope_type", sa.String(), nullable=False),
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("source_label", sa.String(), nullable=False),
        sa.Column("dedupe_key", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("effect", sa.JSON(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("run_kind", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("drafted_from", sa.JSON(), nullable=False),
        sa.Column("corroborated_by", sa.JSON(), nullable=False),
        sa.Column("against", sa.JSON(), nullable=False),
        sa.Column("history", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("changed_at", sa.String(length=32), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.CheckConstraint("score >= 0 AND score <= 100", name="ck_candidates_score"),
        sa.CheckConstraint(
            "status IN ('drafted', 'review', 'promoted', 'rejected', 'rolled_back')", name="ck_candidates_status"
        ),
        sa.CheckConstraint(
            "type IN ('prompt_fragment', 'fix_template', 'routing_hint', 'validator_policy_tweak', 'flow_offload')",
            name="ck_candidates_type",
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_candidates_dedupe_key", "candidates", ["dedupe_key"], unique=True)
    op.create_index("ix_candidates_status", "candidates", ["status", "changed_at"], unique=False)

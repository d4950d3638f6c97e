"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "chain_links",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("from_channel", sa.String(), nullable=False),
        sa.Column("to_channel", sa.String(), nullable=False),
        sa.Column("prediction_id", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_chain_links_at", "chain_links", ["at", "id"], unique=False)
    op.create_table(
        "change_sets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("prediction_id", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("base_tree", sa.String(), nullable=False),
        sa.Column("result_tree", sa.String(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("check_result", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("decided_at", sa.String(length=32), nullable=True),
        sa.Column("branch", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("landing", sa.JSON(), nullable=True),
        sa.Column("written", sa.JSON(), nullable=False),
        sa.Column("kept", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "state IN ('waiting', 'landed', 'branched', 'discarded', 'undone')", name="ck_change_sets_state"
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("session_id"),
    )
    op.create_index(op.f("ix_change_sets_prediction_id"), "change_sets", ["prediction_id"], unique=False)
    op.create_index("ix_change_sets_state", "change_sets", ["state", "created_at"], unique=False)
    op.create_index("ix_change_sets_workspace", "change_sets", ["workspace", "state", "created_at"], unique=False)
    op.create_table(
        "content_allowances",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("granted_at", sa.String(length=32), nullable=False),
        sa.Column("used_at", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "cost_entries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("amount_microusd", sa.Integer(), nullable=False),
        sa.Column("estimate_microusd", sa.Integer(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("prediction_id", sa.String(), nullable=True),
        sa.Column("permit_id", sa.String(), nullable=True),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("runner", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('reserved', 'settled', 'released')", name="ck_cost_entries_state"),
        sa.CheckConstraint("amount_microusd >= 0", name="ck_cost_entries_amount"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_cost_entries_history", "cost_entries", ["runner", "channel", "state", "at"], unique=False)
    op.create_index("ix_cost_entries_prediction", "cost_entries", ["prediction_id", "state"], unique=False)
    op.create_index("ix_cost_entries_window", "cost_entries", ["state", "at", "amount_microusd", "agent"], unique=False)
    op.create_table(
        "crosspoll_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("prediction_id", sa.String(), nullable=True),
        sa.Column("trigger_type", sa.String(), nullable=False),
        sa.Column("target_channel", sa.String(), nullable=False),
        sa.Column("prompt", sa.String(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("cost_estimate", sa.Float(), nullable=False),
        sa.Column("blocked", sa.Boolean(), nullable=False),
        sa.Column("block_reason", sa.String(), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("verdicts", sa.JSON(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("permit_id", sa.String(), nullable=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("from_channel", sa.String(), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=False),
        sa.Column("unattended", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "trigger_type IN ('manual', 'autonomous', 'cron', 'follow-up', 'heartbeat', 'retry')",
            name="ck_crosspoll_log_trigger_type",
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_crosspoll_log_blocked", "crosspoll_log", ["blocked", "id"], unique=False)
    op.create_index(
        "ix_crosspoll_log_let_through", "crosspoll_log", ["unattended", "blocked", "created_at"], unique=False
    )
    op.create_index(
        "ix_crosspoll_log_pair", "crosspoll_log", ["target_channel", "from_channel", "blocked"], unique=False
    )
    op.create_index("ix_crosspoll_log_prediction", "crosspoll_log", ["prediction_id", "id"], unique=False)
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("prediction_id", sa.String(), nullable=False),
        sa.Column("signal", sa.String(), nullable=False),
        sa.Column("chosen", sa.Boolean(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("flow", sa.String(), nullable=False),
        sa.Column("prompt", sa.String(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=False),
        sa.Column("edited", sa.Boolean(), nullable=False),
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("weekend", sa.Boolean(), nullable=False),
        sa.Column("waited_hours", sa.Float(), nullable=True),
        sa.Column("decided_at", sa.String(length=32), nullable=False),
        sa.Column("taken_back_at", sa.String(length=32), nullable=True),
        sa.CheckConstraint("decided_by IN ('operator','autonomy','api')", name="decided_by_known"),
        sa.CheckConstraint(
            "signal IN ('approved','original','dismissed','kept','undone','discarded','expired','did_himself')",
            name="signal_known",
        ),
        sa.CheckConstraint("weight > 0 AND weight <= 1", name="weight_range"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_decisions_like", "decisions", ["kind", "channel", "workspace", "decided_by"], unique=False)
    op.create_index("ix_decisions_prediction", "decisions", ["prediction_id", "id"], unique=False)
    op.create_index(
        "ix_decisions_standing", "decisions", ["id"], unique=False, sqlite_where=sa.text("taken_back_at IS NULL")
    )
    op.create_table(
        "dpo_pairs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("context", sa.String(), nullable=False),
        sa.Column("chosen", sa.String(), nullable=False),
        sa.Column("rejected", sa.String(), nullable=False),
        sa.Column("chosen_confidence", sa.Float(), nullable=True),
        sa.Column("rejected_confidence", sa.Float(), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("exported_at", sa.String(length=32), nullable=True),
        sa.Column("chosen_prediction_id", sa.String(), nullable=False),
        sa.Column("rejected_prediction_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "idx_dpo_exported", "dpo_pairs", ["exported_at"], unique=False, sqlite_where=sa.text("exported_at IS NULL")
    )
    op.create_index("ix_dpo_pairs_chosen", "dpo_pairs", ["chosen_prediction_id"], unique=False)
    op.create_index("ix_dpo_pairs_rejected", "dpo_pairs", ["rejected_prediction_id"], unique=False)
    op.create_table(
        "engine_state",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "holds",
        sa.Column("word", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("since", sa.String(length=32), nullable=False),
        sa.Column("until", sa.String(length=32), nullable=True),
        sa.CheckConstraint("word IN ('stop', 'pause', 'month')", name="ck_holds_word"),
        sa.PrimaryKeyConstraint("word"),
    )
    op.create_table(
        "intents",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("begun_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_intents_kind"), "intents", ["kind"], unique=False)
    op.create_table(
        "memory_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_memory_events_kind_at", "memory_events", ["kind", "at", "id"], unique=False)
    op.create_index("ix_memory_events_subject", "memory_events", ["subject", "id"], unique=False)
    op.create_index("ix_memory_events_workspace_at", "memory_events", ["workspace", "at", "id"], unique=False)
    op.create_table(
        "permits",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("prediction_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("trigger_type", sa.String(), nullable=False),
        sa.Column("issued_at", sa.String(length=32), nullable=False),
        sa.Column("expires_at", sa.String(length=32), nullable=False),
        sa.Column("consumed_at", sa.String(length=32), nullable=True),
        sa.Column("revoked_at", sa.String(length=32), nullable=True),
        sa.CheckConstraint(
            "trigger_type IN ('manual', 'autonomous', 'cron', 'follow-up', 'heartbeat', 'retry')",
            name="ck_permits_trigger_type",
        ),
        sa.CheckConstraint("consumed_at IS NULL OR revoked_at IS NULL", name="ck_permits_one_end"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_permits_open", "permits", ["consumed_at", "revoked_at", "expires_at"], unique=False)
    op.create_index("ix_permits_prediction", "permits", ["prediction_id"], unique=False)
    op.create_table(
        "predictions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("prompt", sa.String(), nullable=False),
        sa.Column("target_agent", sa.String(), nullable=False),
        sa.Column("target_channel", sa.String(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("reasoning", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("confirmed_at", sa.String(length=32), nullable=True),
        sa.Column("executed_at", sa.String(length=32), nullable=True),
        sa.Column("task_id", sa.String(), nullable=True),
        sa.Column("dpo_exported", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("runner", sa.String(), nullable=False),
        sa.Column("flow", sa.String(), nullable=True),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("original_prompt", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("signals", sa.JSON(), nullable=False),
        sa.Column("parts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("verdicts", sa.JSON(), nullable=False),
        sa.Column("context", sa.String(), nullable=False),
        sa.Column("estimate_microusd", sa.Integer(), nullable=False),
        sa.Column("check_only", sa.Boolean(), nullable=False),
        sa.Column("undo_note", sa.String(), nullable=False),
        sa.Column("novel", sa.Boolean(), nullable=False),
        sa.Column("rank", sa.Float(), nullable=False),
        sa.Column("urgency", sa.Float(), nullable=False),
        sa.Column("from_channel", sa.String(), nullable=False),
        sa.Column("evidence_at", sa.String(length=32), nullable=True),
        sa.Column("evidence_gone", sa.Boolean(), nullable=False),
        sa.Column("expires_at", sa.String(length=32), nullable=False),
        sa.Column("shown_at", sa.String(length=32), nullable=True),
        sa.Column("snoozed_until", sa.String(length=32), nullable=True),
        sa.Column("decided_by", sa.String(), nullable=True),
        sa.Column("decided_at", sa.String(length=32), nullable=True),
        sa.Column("trigger_type", sa.String(), nullable=True),
        sa.Column("permit_id", sa.String(), nullable=True),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("closed_at", sa.String(length=32), nullable=True),
        sa.Column("undo_requested_at", sa.String(length=32), nullable=True),
        sa.Column("note", sa.String(), nullable=False),
        sa.CheckConstraint(
            "decided_by IS NULL OR decided_by IN ('operator', 'autonomy', 'api')", name="decided_by_known"
        ),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('succeeded', 'failed', 'cancelled', 'blocked', 'withdrawn')",
            name="outcome_known",
        ),
        sa.CheckConstraint(
            "source IN ('template', 'twin-model', 'predictor-hook', 'embedded-twin', 'operator', 'follow-up')",
            name="source_known",
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'confirmed', 'rejected', 'expired', 'executed')", name="status_known"
        ),
        sa.CheckConstraint(
            "trigger_type IS NULL OR trigger_type IN ('manual', 'autonomous', 'cron', 'follow-up', 'heartbeat', 'retry')",
            name="trigger_type_known",
        ),
        sa.CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence_range"),
        sa.CheckConstraint("estimate_microusd >= 0", name="estimate_range"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("idx_predictions_status", "predictions", ["status"], unique=False)
    op.create_index("ix_predictions_fingerprint", "predictions", ["fingerprint", "closed_at"], unique=False)
    op.create_index("ix_predictions_session", "predictions", ["session_id"], unique=False)
    op.create_index("ix_predictions_triggered", "predictions", ["target_channel", "confirmed_at"], unique=False)
    op.create_index(
        "ux_predictions_pending",
        "predictions",
        ["fingerprint"],
        unique=True,
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("prediction_id", sa.String(), nullable=False),
        sa.Column("permit_id", sa.String(), nullable=False),
        sa.Column("prompt", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("runner", sa.String(), nullable=False),
        sa.Column("flow", sa.String(), nullable=True),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("sandbox", sa.String(), nullable=False),
        sa.Column("cwd", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.String(length=32), nullable=True),
        sa.Column("ended_at", sa.String(length=32), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("cost_microusd", sa.Integer(), nullable=False),
        sa.Column("estimate_microusd", sa.Integer(), nullable=False),
        sa.Column("summary", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("check_result", sa.JSON(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("change_set_id", sa.String(), nullable=True),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.CheckConstraint("mode IN ('approved', 'autonomous')", name="ck_sessions_mode"),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'blocked', 'interrupted')",
            name="ck_sessions_state",
        ),
        sa.CheckConstraint("cost_microusd >= 0 AND tokens >= 0 AND lines >= 0", name="ck_sessions_counts"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("permit_id"),
    )
    op.create_index("ix_sessions_created", "sessions", ["created_at"], unique=False)
    op.create_index("ix_sessions_prediction", "sessions", ["prediction_id", "created_at"], unique=False)
    op.create_index("ix_sessions_runner", "sessions", ["runner", "channel", "created_at"], unique=False)
    op.create_index("ix_sessions_state", "sessions", ["state", "created_at"], unique=False)
    op.create_index("ix_sessions_workspace", "sessions", ["workspace", "created_at"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("updated_at", sa.String(length=32), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("note", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('open', 'running', 'done', 'failed')", name="task_state"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_tasks_session_id"), "tasks", ["session_id"], unique=False)
    op.create_index("ix_tasks_updated", "tasks", ["updated_at"], unique=False)
    op.create_index("ix_tasks_workspace_state", "tasks", ["workspace", "state", "updated_at"], unique=False)
    op.create_table(
        "validation_runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("head", sa.String(), nullable=False),
        sa.Column("tree", sa.String(), nullable=False),
        sa.Column("clean", sa.Boolean(), nullable=False),
        sa.Column("full", sa.Boolean(), nullable=False),
        sa.Column("ran_at", sa.String(length=32), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("failing", sa.JSON(), nullable=False),
        sa.Column("durations", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_validation_runs_session_id"), "validation_runs", ["session_id"], unique=False)
    op.create_index("ix_validation_runs_workspace", "validation_runs", ["workspace", "id"], unique=False)
    op.create_index("idx_predictions_user", "predictions", ["user_id", sa.text("created_at DESC")])
    op.create_index("idx_crosspoll_log_user", "crosspoll_log", ["user_id", sa.text("created_at DESC")])

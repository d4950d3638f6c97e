-- What a new home's database is. `engine.storage.database` runs this once; the classes with `table=True` read and write
-- it. A test compares the two. A change raises VERSION there.

CREATE TABLE chain_links (
    id INTEGER NOT NULL,
    from_channel VARCHAR NOT NULL,
    to_channel VARCHAR NOT NULL,
    prediction_id VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    ran BOOLEAN DEFAULT 1 NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_chain_links_at ON chain_links (at, id);

CREATE TABLE change_sets (
    id VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    prediction_id VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    base_tree VARCHAR NOT NULL,
    result_tree VARCHAR NOT NULL,
    files JSON NOT NULL,
    title VARCHAR NOT NULL,
    check_result JSON,
    created_at VARCHAR(32) NOT NULL,
    decided_at VARCHAR(32),
    branch VARCHAR NOT NULL,
    note VARCHAR NOT NULL,
    written JSON NOT NULL,
    kept BOOLEAN NOT NULL,
    landings JSON DEFAULT '[]' NOT NULL,
    comments JSON DEFAULT '[]' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_change_sets_state CHECK (state IN ('waiting', 'landed', 'branched', 'discarded', 'undone')),
    UNIQUE (session_id)
);
CREATE INDEX ix_change_sets_prediction_id ON change_sets (prediction_id);
CREATE INDEX ix_change_sets_state ON change_sets (state, created_at);
CREATE INDEX ix_change_sets_workspace ON change_sets (workspace, state, created_at);

CREATE TABLE content_allowances (
    digest VARCHAR NOT NULL,
    granted_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (digest)
);

CREATE TABLE cost_entries (
    id INTEGER NOT NULL,
    purpose VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    amount_microusd INTEGER NOT NULL,
    estimate_microusd INTEGER NOT NULL,
    at VARCHAR(32) NOT NULL,
    prediction_id VARCHAR,
    permit_id VARCHAR,
    session_id VARCHAR,
    agent VARCHAR NOT NULL,
    channel VARCHAR NOT NULL,
    runner VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_cost_entries_state CHECK (state IN ('reserved', 'settled', 'released')),
    CONSTRAINT ck_cost_entries_amount CHECK (amount_microusd >= 0)
);
CREATE INDEX ix_cost_entries_prediction ON cost_entries (prediction_id, state);
CREATE INDEX ix_cost_entries_window ON cost_entries (state, at, amount_microusd, agent);

CREATE TABLE crosspoll_log (
    id INTEGER NOT NULL,
    user_id VARCHAR NOT NULL,
    prediction_id VARCHAR,
    trigger_type VARCHAR NOT NULL,
    target_channel VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    result JSON,
    cost_estimate FLOAT NOT NULL,
    blocked BOOLEAN NOT NULL,
    block_reason VARCHAR,
    created_at VARCHAR(32) NOT NULL,
    verdicts JSON NOT NULL,
    workspace VARCHAR NOT NULL,
    permit_id VARCHAR,
    digest VARCHAR NOT NULL,
    from_channel VARCHAR NOT NULL,
    decided_by VARCHAR NOT NULL,
    unattended BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_crosspoll_log_trigger_type CHECK (trigger_type IN ('manual', 'autonomous', 'cron', 'follow-up',
        'heartbeat'))
);
CREATE INDEX ix_crosspoll_log_blocked ON crosspoll_log (blocked, id);
CREATE INDEX ix_crosspoll_log_let_through ON crosspoll_log (unattended, blocked, created_at);
CREATE INDEX ix_crosspoll_log_pair ON crosspoll_log (target_channel, from_channel, blocked);
CREATE INDEX ix_crosspoll_log_prediction ON crosspoll_log (prediction_id, id);
CREATE INDEX idx_crosspoll_log_user ON crosspoll_log (user_id, created_at DESC);

CREATE TABLE decisions (
    id INTEGER NOT NULL,
    prediction_id VARCHAR NOT NULL,
    signal VARCHAR NOT NULL,
    chosen BOOLEAN NOT NULL,
    weight FLOAT NOT NULL,
    kind VARCHAR NOT NULL,
    channel VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    flow VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    confidence FLOAT NOT NULL,
    decided_by VARCHAR NOT NULL,
    edited BOOLEAN NOT NULL,
    part VARCHAR NOT NULL,
    weekend BOOLEAN NOT NULL,
    waited_hours FLOAT,
    decided_at VARCHAR(32) NOT NULL,
    taken_back_at VARCHAR(32),
    seen BLOB DEFAULT (x'') NOT NULL,
    raw FLOAT,
    hour INTEGER,
    PRIMARY KEY (id),
    CONSTRAINT decided_by_known CHECK (decided_by IN ('operator','autonomy','api')),
    CONSTRAINT signal_known CHECK (signal IN
        ('approved','original','dismissed','kept','undone','discarded','expired','did_himself')),
    CONSTRAINT weight_range CHECK (weight > 0 AND weight <= 1)
);
CREATE INDEX ix_decisions_like ON decisions (kind, channel, workspace, decided_by);
CREATE INDEX ix_decisions_prediction ON decisions (prediction_id, id);
CREATE INDEX ix_decisions_standing ON decisions (id) WHERE taken_back_at IS NULL;

CREATE TABLE engine_state (
    "key" VARCHAR NOT NULL,
    value JSON NOT NULL,
    PRIMARY KEY ("key")
);

CREATE TABLE holds (
    word VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    "by" VARCHAR NOT NULL,
    since VARCHAR(32) NOT NULL,
    until VARCHAR(32),
    PRIMARY KEY (word),
    CONSTRAINT ck_holds_word CHECK (word IN ('stop', 'pause', 'month'))
);

CREATE TABLE intents (
    id INTEGER NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    payload JSON NOT NULL,
    begun_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_intents_kind ON intents (kind);

CREATE TABLE memory_events (
    id INTEGER NOT NULL,
    at VARCHAR(32) NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    payload JSON NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_memory_events_kind_at ON memory_events (kind, at, id);
CREATE INDEX ix_memory_events_subject ON memory_events (subject, id);
CREATE INDEX ix_memory_events_workspace_at ON memory_events (workspace, at, id);

CREATE TABLE permits (
    id VARCHAR NOT NULL,
    prediction_id VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    trigger_type VARCHAR NOT NULL,
    issued_at VARCHAR(32) NOT NULL,
    expires_at VARCHAR(32) NOT NULL,
    consumed_at VARCHAR(32),
    revoked_at VARCHAR(32),
    PRIMARY KEY (id),
    CONSTRAINT ck_permits_trigger_type CHECK (trigger_type IN ('manual', 'autonomous', 'cron', 'follow-up', 'heartbeat')),
    CONSTRAINT ck_permits_one_end CHECK (consumed_at IS NULL OR revoked_at IS NULL)
);
CREATE INDEX ix_permits_open ON permits (consumed_at, revoked_at, expires_at);
CREATE INDEX ix_permits_prediction ON permits (prediction_id);

CREATE TABLE predictions (
    id VARCHAR NOT NULL,
    user_id VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    target_agent VARCHAR NOT NULL,
    target_channel VARCHAR NOT NULL,
    confidence FLOAT NOT NULL,
    reasoning VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    confirmed_at VARCHAR(32),
    executed_at VARCHAR(32),
    task_id VARCHAR,
    dpo_exported BOOLEAN NOT NULL,
    kind VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    runner VARCHAR NOT NULL,
    flow VARCHAR,
    parameters JSON NOT NULL,
    original_prompt VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL,
    facts JSON NOT NULL,
    signals JSON NOT NULL,
    parts JSON,
    verdicts JSON NOT NULL,
    context VARCHAR NOT NULL,
    estimate_microusd INTEGER NOT NULL,
    check_only BOOLEAN NOT NULL,
    undo_note VARCHAR NOT NULL,
    novel BOOLEAN NOT NULL,
    from_channel VARCHAR NOT NULL,
    evidence_at VARCHAR(32),
    expires_at VARCHAR(32) NOT NULL,
    shown_at VARCHAR(32),
    snoozed_until VARCHAR(32),
    decided_by VARCHAR,
    decided_at VARCHAR(32),
    trigger_type VARCHAR,
    permit_id VARCHAR,
    session_id VARCHAR,
    outcome VARCHAR,
    closed_at VARCHAR(32),
    undo_requested_at VARCHAR(32),
    note VARCHAR NOT NULL,
    served VARCHAR DEFAULT '' NOT NULL,
    seen BLOB DEFAULT (x'') NOT NULL,
    subject VARCHAR DEFAULT '' NOT NULL,
    discarded_at VARCHAR(32),
    tier INTEGER DEFAULT 3 NOT NULL,
    meaning BLOB DEFAULT (x'') NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT decided_by_known CHECK (decided_by IS NULL OR decided_by IN ('operator', 'autonomy', 'api')),
    CONSTRAINT outcome_known CHECK (outcome IS NULL OR outcome IN ('succeeded', 'failed', 'cannot_run', 'cancelled',
        'blocked', 'withdrawn')),
    CONSTRAINT source_known CHECK (source IN ('template', 'twin-model', 'predictor-hook', 'embedded-twin', 'operator',
        'follow-up')),
    CONSTRAINT tier_range CHECK (tier BETWEEN 1 AND 4),
    CONSTRAINT status_known CHECK (status IN ('pending', 'confirmed', 'rejected', 'expired', 'executed')),
    CONSTRAINT trigger_type_known CHECK (trigger_type IS NULL OR trigger_type IN ('manual', 'autonomous', 'cron',
        'follow-up', 'heartbeat')),
    CONSTRAINT confidence_range CHECK (confidence >= 0 AND confidence <= 1),
    CONSTRAINT estimate_range CHECK (estimate_microusd >= 0)
);
CREATE INDEX idx_predictions_status ON predictions (status);
CREATE INDEX ix_predictions_fingerprint ON predictions (fingerprint, closed_at);
CREATE INDEX ix_predictions_session ON predictions (session_id);
CREATE INDEX ix_predictions_triggered ON predictions (target_channel, confirmed_at);
CREATE INDEX idx_predictions_user ON predictions (user_id, created_at DESC);
CREATE UNIQUE INDEX ux_predictions_pending ON predictions (workspace, kind, subject) WHERE status = 'pending';

CREATE TABLE sessions (
    id VARCHAR NOT NULL,
    prediction_id VARCHAR NOT NULL,
    permit_id VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    channel VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    runner VARCHAR NOT NULL,
    flow VARCHAR,
    parameters JSON NOT NULL,
    state VARCHAR NOT NULL,
    mode VARCHAR NOT NULL,
    sandbox VARCHAR NOT NULL,
    cwd VARCHAR NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    started_at VARCHAR(32),
    ended_at VARCHAR(32),
    tokens INTEGER NOT NULL,
    cost_microusd INTEGER NOT NULL,
    estimate_microusd INTEGER NOT NULL,
    summary VARCHAR NOT NULL,
    error VARCHAR NOT NULL,
    check_result JSON,
    facts JSON NOT NULL,
    change_set_id VARCHAR,
    lines INTEGER NOT NULL,
    discarded_at VARCHAR(32),
    PRIMARY KEY (id),
    CONSTRAINT ck_sessions_mode CHECK (mode IN ('approved', 'autonomous')),
    CONSTRAINT ck_sessions_state CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cannot_run', 'cancelled',
        'blocked', 'interrupted')),
    CONSTRAINT ck_sessions_counts CHECK (cost_microusd >= 0 AND tokens >= 0 AND lines >= 0),
    UNIQUE (permit_id)
);
CREATE INDEX ix_sessions_created ON sessions (created_at);
CREATE INDEX ix_sessions_prediction ON sessions (prediction_id, created_at);
CREATE INDEX ix_sessions_runner ON sessions (runner, channel, created_at);
CREATE INDEX ix_sessions_state ON sessions (state, created_at);
CREATE INDEX ix_sessions_workspace ON sessions (workspace, created_at);

CREATE TABLE tasks (
    id VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    channel VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    updated_at VARCHAR(32) NOT NULL,
    session_id VARCHAR,
    note VARCHAR NOT NULL,
    needs JSON DEFAULT '[]' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT task_state CHECK (state IN ('open', 'running', 'done', 'failed'))
);
CREATE INDEX ix_tasks_session_id ON tasks (session_id);
CREATE INDEX ix_tasks_updated ON tasks (updated_at);
CREATE INDEX ix_tasks_workspace_state ON tasks (workspace, state, updated_at);

CREATE TABLE validation_runs (
    id INTEGER NOT NULL,
    session_id VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    head VARCHAR NOT NULL,
    tree VARCHAR NOT NULL,
    clean BOOLEAN NOT NULL,
    "full" BOOLEAN NOT NULL,
    ran_at VARCHAR(32) NOT NULL,
    seconds FLOAT NOT NULL,
    passed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    failing JSON NOT NULL,
    durations JSON NOT NULL,
    attempt INTEGER DEFAULT '0' NOT NULL,
    cost_microusd INTEGER DEFAULT '0' NOT NULL,
    changed BOOLEAN DEFAULT '0' NOT NULL,
    project VARCHAR DEFAULT '' NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_validation_runs_session_id ON validation_runs (session_id);
CREATE INDEX ix_validation_runs_workspace ON validation_runs (workspace, id);

CREATE TABLE model_calls (
    id VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    provider VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    run_kind VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    started_at VARCHAR(32) NOT NULL,
    ended_at VARCHAR(32),
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_microusd INTEGER NOT NULL,
    price_known BOOLEAN NOT NULL,
    error VARCHAR NOT NULL,
    follows VARCHAR NOT NULL,
    notes JSON NOT NULL,
    provenance JSON NOT NULL,
    messages BLOB NOT NULL,
    reply BLOB NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_model_calls_state CHECK (state IN ('running', 'done', 'failed', 'cancelled', 'interrupted')),
    CONSTRAINT ck_model_calls_counts CHECK (input_tokens >= 0 AND output_tokens >= 0 AND cost_microusd >= 0)
);
CREATE INDEX ix_model_calls_session ON model_calls (session_id, started_at);
CREATE INDEX ix_model_calls_state ON model_calls (state);

CREATE TABLE permission_requests (
    id VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    asked_at VARCHAR(32) NOT NULL,
    answered_at VARCHAR(32),
    answer VARCHAR,
    answered_by VARCHAR NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_permission_requests_state CHECK (state IN ('waiting', 'answered', 'withdrawn')),
    CONSTRAINT ck_permission_requests_answer CHECK (answer IN ('allow-once', 'allow-session', 'deny-once',
        'deny-session')),
    CONSTRAINT ck_permission_requests_answered CHECK ((state = 'answered') = (answer IS NOT NULL))
);
CREATE INDEX ix_permission_requests_state ON permission_requests (state, asked_at);
CREATE INDEX ix_permission_requests_session ON permission_requests (session_id, "key", asked_at);

CREATE TABLE memories (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    id VARCHAR NOT NULL,
    ref VARCHAR NOT NULL,
    layer VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    speaker VARCHAR NOT NULL,
    session VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    tags JSON NOT NULL,
    retention VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    superseded_by VARCHAR NOT NULL,
    forgotten BOOLEAN NOT NULL,
    model VARCHAR NOT NULL,
    trust VARCHAR DEFAULT 'quoted' NOT NULL,
    CONSTRAINT ck_memories_layer CHECK (layer IN ('C', 'E')),
    CONSTRAINT ck_memories_retention CHECK (retention IN ('session', 'month', 'forever'))
);
CREATE UNIQUE INDEX ix_memories_id ON memories (id);
CREATE INDEX ix_memories_session ON memories (session, seq);
CREATE INDEX ix_memories_layer ON memories (layer, seq);
CREATE INDEX ix_memories_model ON memories (model, seq);
CREATE INDEX ix_memories_retention ON memories (retention, created_at);
CREATE INDEX ix_memories_speaker ON memories (speaker);

CREATE TABLE memory_chunks (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    seq INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    tokens BLOB,
    FOREIGN KEY(seq) REFERENCES memories (seq) ON DELETE CASCADE
);
CREATE INDEX ix_memory_chunks_seq ON memory_chunks (seq, ordinal);

CREATE TABLE memory_vectors (
    chunk_id INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (chunk_id),
    FOREIGN KEY(chunk_id) REFERENCES memory_chunks (id) ON DELETE CASCADE
);

CREATE VIRTUAL TABLE memories_fts USING fts5(text, content='memories', content_rowid='seq',
    tokenize='porter unicode61 remove_diacritics 2');

CREATE TABLE captures (
    id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    tags JSON NOT NULL,
    digest VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    line INTEGER NOT NULL,
    agent VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    seen INTEGER NOT NULL,
    last_session VARCHAR NOT NULL,
    corrects VARCHAR NOT NULL,
    forgotten BOOLEAN NOT NULL,
    trust VARCHAR DEFAULT 'quoted' NOT NULL,
    approved_at VARCHAR(32),
    PRIMARY KEY (id),
    CONSTRAINT ck_captures_kind CHECK (kind IN ('decision', 'fact', 'correction'))
);
CREATE UNIQUE INDEX ix_captures_digest ON captures (workspace, digest);
CREATE INDEX ix_captures_at ON captures (at, id);
CREATE INDEX ix_captures_session ON captures (session_id, line);

CREATE TABLE task_nodes (
    task_id VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    timestamp VARCHAR(32) NOT NULL,
    success BOOLEAN,
    description VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    invalidated_at VARCHAR(32),
    why VARCHAR NOT NULL,
    outcome VARCHAR NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_task_nodes_title ON task_nodes (workspace, title);

CREATE TABLE task_edges (
    source VARCHAR NOT NULL,
    relation VARCHAR NOT NULL,
    target VARCHAR NOT NULL,
    weight FLOAT NOT NULL,
    invalidated BOOLEAN NOT NULL,
    PRIMARY KEY (source, relation, target),
    CONSTRAINT ck_task_edges_relation CHECK (relation IN ('blocks','related_to','derived_from','similar_to'))
);
CREATE INDEX ix_task_edges_target ON task_edges (target, relation);

CREATE TABLE fact_drafts (
    id VARCHAR NOT NULL,
    day VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    fact VARCHAR NOT NULL,
    category VARCHAR NOT NULL,
    bucket VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    supersedes VARCHAR NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    state VARCHAR NOT NULL,
    decided_at VARCHAR(32),
    fact_id VARCHAR NOT NULL,
    trust VARCHAR DEFAULT 'quoted' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_fact_drafts_state CHECK (state IN ('waiting', 'promoted', 'rejected'))
);
CREATE UNIQUE INDEX ix_fact_drafts_digest ON fact_drafts (workspace, digest);
CREATE INDEX ix_fact_drafts_state ON fact_drafts (state, created_at);

CREATE TABLE nightly_days (
    day VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    cost_microusd INTEGER NOT NULL,
    reason VARCHAR NOT NULL,
    facts JSON NOT NULL,
    at VARCHAR(32) NOT NULL,
    PRIMARY KEY (day),
    CONSTRAINT ck_nightly_days_state CHECK (state IN ('evaluated', 'done')),
    CONSTRAINT ck_nightly_days_cost CHECK (cost_microusd >= 0)
);

CREATE TABLE profile_entries (
    leader VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    origin VARCHAR NOT NULL,
    sent_to VARCHAR NOT NULL,
    section VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    texts JSON NOT NULL,
    trust VARCHAR NOT NULL,
    sources JSON NOT NULL,
    forgotten BOOLEAN NOT NULL,
    PRIMARY KEY (leader, "key", origin, section, at),
    CONSTRAINT ck_profile_entries_section CHECK (section IN ('domain','principles','guardrails','patterns','decisions'))
);

CREATE TABLE pattern_uses (
    leader VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    origin VARCHAR NOT NULL,
    sent_to VARCHAR NOT NULL,
    uses INTEGER NOT NULL,
    PRIMARY KEY (leader, "key", origin)
);

CREATE TABLE bubbles (
    id VARCHAR NOT NULL,
    learning_id VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    leader VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    category VARCHAR NOT NULL,
    session VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    confidence JSON NOT NULL,
    importance JSON NOT NULL,
    evidence JSON NOT NULL,
    gates JSON NOT NULL,
    at VARCHAR(32) NOT NULL,
    flushed_at VARCHAR(32),
    pattern VARCHAR NOT NULL,
    trust VARCHAR DEFAULT 'quoted' NOT NULL,
    approved_at VARCHAR(32),
    PRIMARY KEY (id),
    CONSTRAINT ck_bubbles_state CHECK (state IN ('queued','refused','flushed'))
);
CREATE UNIQUE INDEX ix_bubbles_learning ON bubbles (learning_id);
CREATE INDEX ix_bubbles_queue ON bubbles (state, leader, at);
CREATE INDEX ix_bubbles_agent ON bubbles (agent, at);

CREATE TABLE guided_sessions (
    session_id VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    items JSON NOT NULL,
    state VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    PRIMARY KEY (session_id),
    CONSTRAINT ck_guided_sessions_state CHECK (state IN ('','open','good','bad'))
);
CREATE INDEX ix_guided_sessions_agent ON guided_sessions (agent, at);
CREATE INDEX ix_guided_sessions_at ON guided_sessions (at);

CREATE TABLE dpo_pairs (
    id INTEGER NOT NULL,
    user_id VARCHAR NOT NULL,
    context VARCHAR NOT NULL,
    chosen VARCHAR NOT NULL,
    rejected VARCHAR NOT NULL,
    chosen_confidence FLOAT,
    rejected_confidence FLOAT,
    created_at VARCHAR(32) NOT NULL,
    exported_at VARCHAR(32),
    chosen_prediction_id VARCHAR NOT NULL,
    rejected_prediction_id VARCHAR NOT NULL,
    weight FLOAT DEFAULT '1.0' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_dpo_pairs_weight CHECK (weight > 0 AND weight <= 1)
);
CREATE INDEX ix_dpo_pairs_chosen ON dpo_pairs (chosen_prediction_id);
CREATE INDEX ix_dpo_pairs_rejected ON dpo_pairs (rejected_prediction_id);
CREATE INDEX idx_dpo_exported ON dpo_pairs (exported_at) WHERE exported_at IS NULL;

CREATE TABLE training_runs (
    id VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    provider VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    checkpoint VARCHAR NOT NULL,
    records INTEGER NOT NULL,
    pairs_to INTEGER NOT NULL,
    file_id VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    former_model VARCHAR NOT NULL,
    agreement FLOAT,
    former_agreement FLOAT,
    held_back INTEGER NOT NULL,
    cost_entry INTEGER,
    cost_microusd INTEGER NOT NULL,
    note VARCHAR NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    updated_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_training_runs_state CHECK (state IN ('prepared', 'uploaded', 'started', 'trained', 'adopted',
        'kept_old', 'failed', 'cancelled')),
    CONSTRAINT ck_training_runs_method CHECK (method IN ('sft', 'dpo'))
);
CREATE INDEX ix_training_runs_state ON training_runs (state);

CREATE TABLE learning_records (
    seq INTEGER NOT NULL,
    id VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    kind VARCHAR NOT NULL,
    source_label VARCHAR NOT NULL,
    scope_type VARCHAR NOT NULL,
    scope_id VARCHAR NOT NULL,
    score FLOAT NOT NULL,
    reason VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    ledger_id INTEGER NOT NULL,
    details JSON NOT NULL,
    PRIMARY KEY (seq),
    CONSTRAINT ck_learning_records_score CHECK (score >= 0 AND score <= 100),
    CONSTRAINT ck_learning_records_kind CHECK (kind IN ('failed_tdd', 'successful_heal', 'repeated_retry',
        'task_conflict', 'budget_incident', 'human_approval', 'agent_error', 'successful_bubble', 'guidance_applied',
        'guidance_noisy', 'stale_guidance', 'teaching_refresh', 'cloud_sync_failure', 'cloud_memory_recall_hit',
        'tool_sequence')),
    CONSTRAINT ck_learning_records_scope CHECK (scope_type IN ('agent', 'workspace', 'leader'))
);
CREATE UNIQUE INDEX ix_learning_records_id ON learning_records (id);
CREATE INDEX ix_learning_records_label ON learning_records (source_label, scope_type, scope_id, seq);
CREATE INDEX ix_learning_records_scope ON learning_records (scope_type, scope_id, seq);
CREATE INDEX ix_learning_records_kind ON learning_records (kind, seq);
CREATE INDEX ix_learning_records_score ON learning_records (score, seq);

CREATE TABLE candidates (
    id VARCHAR NOT NULL,
    type VARCHAR NOT NULL,
    scope_type VARCHAR NOT NULL,
    scope_id VARCHAR NOT NULL,
    source_label VARCHAR NOT NULL,
    dedupe_key VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    score FLOAT NOT NULL,
    effect JSON NOT NULL,
    agent_id VARCHAR NOT NULL,
    run_kind VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    drafted_from JSON NOT NULL,
    corroborated_by JSON NOT NULL,
    against JSON NOT NULL,
    history JSON NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    changed_at VARCHAR(32) NOT NULL,
    decided_by VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    trust VARCHAR DEFAULT 'quoted' NOT NULL,
    term INTEGER DEFAULT '0' NOT NULL,
    since VARCHAR(32),
    harm_reported_at VARCHAR(32),
    PRIMARY KEY (id),
    CONSTRAINT ck_candidates_score CHECK (score >= 0 AND score <= 100),
    CONSTRAINT ck_candidates_status CHECK (status IN ('drafted', 'review', 'promoted', 'rejected', 'rolled_back')),
    CONSTRAINT ck_candidates_type CHECK (type IN ('prompt_fragment', 'fix_template', 'routing_hint',
        'validator_policy_tweak', 'flow_offload'))
);
CREATE UNIQUE INDEX ix_candidates_dedupe_key ON candidates (dedupe_key);
CREATE INDEX ix_candidates_status ON candidates (status, changed_at);

CREATE TABLE learning_vectors (
    digest VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (digest, model)
);

CREATE TABLE learning_uses (
    call_id VARCHAR NOT NULL,
    entry_id VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    PRIMARY KEY (call_id, entry_id)
);
CREATE INDEX ix_learning_uses_entry ON learning_uses (entry_id, at);

CREATE TABLE notifications (
    id INTEGER NOT NULL,
    entry_id INTEGER NOT NULL,
    surface VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    urgent BOOLEAN NOT NULL,
    is_collected BOOLEAN NOT NULL,
    state VARCHAR NOT NULL,
    tries INTEGER NOT NULL,
    reason VARCHAR NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    due_at VARCHAR(32) NOT NULL,
    changed_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ck_notifications_state CHECK (state IN ('waiting', 'sent', 'dropped', 'given_up')),
    CONSTRAINT uq_notifications_entry_surface UNIQUE (entry_id, surface)
);
CREATE INDEX ix_notifications_state_surface ON notifications (state, surface, id);

CREATE TABLE table_days (
    "table" VARCHAR NOT NULL,
    day VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    microusd INTEGER NOT NULL,
    PRIMARY KEY ("table", day, workspace, kind)
) WITHOUT ROWID;

CREATE TABLE dismissals (
    prediction_id VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    reason VARCHAR,
    dismissed_at VARCHAR(32) NOT NULL,
    subject_lifted_at VARCHAR(32),
    kind_lifted_at VARCHAR(32),
    PRIMARY KEY (prediction_id),
    CONSTRAINT dismissal_reason_known CHECK (reason IS NULL OR reason IN
        ('not-now','wrong','already-done','never-here','never-anywhere'))
);
CREATE INDEX ix_dismissals_kind ON dismissals (workspace, kind);

CREATE TABLE overlay_runs (
    overlay_id VARCHAR NOT NULL,
    session_id VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    workspace VARCHAR NOT NULL,
    withheld BOOLEAN NOT NULL,
    propensity FLOAT NOT NULL,
    state VARCHAR NOT NULL,
    at VARCHAR(32) NOT NULL,
    PRIMARY KEY (overlay_id, session_id),
    CONSTRAINT ck_overlay_runs_state CHECK (state IN ('','open','good','bad')),
    CONSTRAINT ck_overlay_runs_propensity CHECK (propensity >= 0 AND propensity <= 1)
);
CREATE INDEX ix_overlay_runs_session ON overlay_runs (session_id);

CREATE TRIGGER memories_fts_insert AFTER INSERT ON memories BEGIN
    INSERT INTO memories_fts(rowid, text) VALUES (new.seq, new.text);
END;

CREATE TRIGGER memories_fts_delete AFTER DELETE ON memories BEGIN
    INSERT INTO memories_fts(memories_fts, rowid, text) VALUES ('delete', old.seq, old.text);
END;

CREATE TRIGGER memories_fts_update AFTER UPDATE OF text ON memories BEGIN
    INSERT INTO memories_fts(memories_fts, rowid, text) VALUES ('delete', old.seq, old.text);
    INSERT INTO memories_fts(rowid, text) VALUES (new.seq, new.text);
END;

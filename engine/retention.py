"""Deletes rows that are older than the settings say, and keeps their sums by day (SPEC 4.2).

A `RetentionRule` selects the rows of a table that are no longer needed. In doubt a row stays. No rule is for cards,
decisions, preference pairs, candidates and their runs, sessions and learnings, because everything else is derived from
them. Rows are deleted in small batches, so that other writes can happen between two batches. Each batch is one
transaction with its sums in `table_days`, so a crash leaves both or neither.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping, Set
from datetime import datetime, timedelta
from typing import Any

from engine.clock import Clock
from engine.config.settings import SettingsSource
from engine.events.engine import RowsLetGo
from engine.frozen import frozen
from engine.learning.candidates.adaptation import LAST_PROCESSED_KEY
from engine.storage import as_stored, driver_of
from engine.storage.database import Database

log = logging.getLogger(__name__)

BATCH_ROWS = 500
"""Maximum number of rows deleted in one transaction."""

MAX_BATCHES = 40
"""Maximum number of batches of a workspace that are deleted in one round. The rest follows in the next round."""

KEPT_RUNS = 50
"""Number of the newest runs of a workspace's checks that stay, separately for runs on the operator's files and on
agents' files. Other code reads 20 of them."""

_OPEN_SESSION = "SELECT id FROM sessions WHERE state IN ('queued', 'running')"
"""The sessions that are not over."""

_OPEN_CARD = "SELECT id FROM predictions WHERE status IN ('pending', 'confirmed')"
"""The cards that are pending or approved."""

_READ_BY_ALL = (
    "(SELECT coalesce(min(coalesce(s.value, 0)), 0) FROM json_each(:cursors) c "
    "LEFT JOIN engine_state s ON s.key = c.value)"
)
"""The last entry of the ledger that all consumers have read."""


@frozen
class RetentionRule:
    """The rows of a table that may be deleted. All fields but `table` are SQL expressions on the row `t`."""

    table: str
    at: str
    """The column of its time."""
    kind: str
    """The column by which its sums are grouped."""
    deletable_when: str
    """True for a row that is no longer needed. It may use `:workspace`, and `:cursors`, the keys of the ledger's
    cursors as a JSON array."""
    key: str = "id"
    """The column of its integer key."""
    money: str = "0"
    """The column of micro-dollars in its sums."""
    first_unread_at: str = "NULL"
    """The time of the first row that some reader has not read yet, NULL if all are read. The days are counted back from
    this time instead of from now, because the reader may need the rows before it. It may use `:cursors`."""


RECORD_RULE = RetentionRule(
    table="learning_records",
    at="at",
    key="seq",
    kind="t.kind",
    deletable_when=(
        f"t.seq <= (SELECT value FROM engine_state WHERE key = '{LAST_PROCESSED_KEY}') "
        "AND t.seq < (SELECT max(seq) FROM learning_records) AND t.id NOT IN ("
        "SELECT value FROM candidates, json_each(drafted_from) UNION ALL "
        "SELECT value FROM candidates, json_each(corroborated_by) UNION ALL "
        "SELECT value FROM candidates, json_each(against))"
    ),
)
"""Kept: records that a candidate names as its provenance, for or against it; records that were not processed yet; the
newest record."""

RUN_RULE = RetentionRule(
    table="validation_runs",
    at="ran_at",
    kind="CASE WHEN t.failed + t.errors > 0 THEN 'red' ELSE 'green' END",
    deletable_when=(
        "t.id NOT IN (SELECT n.id FROM (SELECT r.id, row_number() OVER (PARTITION BY r.changed ORDER BY r.id DESC) "
        f"AS place FROM validation_runs r WHERE r.workspace = :workspace) n WHERE n.place <= {KEPT_RUNS}) "
        f"AND t.session_id NOT IN ({_OPEN_SESSION})"
    ),
)
"""Kept: the newest runs of a workspace, which show the failing tests and since when they fail, and the runs of open
sessions."""

COST_RULE = RetentionRule(
    table="cost_entries",
    at="at",
    kind="CASE t.state WHEN 'released' THEN t.state ELSE t.purpose END",
    money="t.amount_microusd",
    deletable_when=(
        "t.state <> 'reserved' AND (t.state = 'released' OR t.prediction_id IS NULL) "
        f"AND coalesce(t.session_id, '') NOT IN ({_OPEN_SESSION}) "
        "AND t.id NOT IN (SELECT cost_entry FROM training_runs WHERE cost_entry IS NOT NULL) "
        "AND t.id < (SELECT max(id) FROM cost_entries)"
    ),
)
"""Kept: reservations, which count in every cap; the costs of cards, which the figures need; the costs of training runs
and of open sessions. Deleted: calls without a card (`twin`, `judge`, `extraction`), and released reservations. The
windows of the caps reach back a month at most, and the settings do not accept fewer days."""

TRIGGER_RULE = RetentionRule(
    table="crosspoll_log",
    at="created_at",
    kind="'blocked'",
    deletable_when=(
        "t.blocked AND t.id < (SELECT max(id) FROM crosspoll_log) "
        f"AND coalesce(t.prediction_id, '') NOT IN ({_OPEN_CARD})"
    ),
)
"""Kept: every trigger that passed, by which the gate recognises new pairs of channels, and cards find their sessions;
blocked triggers of open cards, which *allow once* reads; the newest trigger. Deleted: other blocked triggers."""


EVENT_RULE = RetentionRule(
    table="memory_events",
    at="at",
    kind="t.kind",
    first_unread_at=f"(SELECT at FROM memory_events WHERE id > {_READ_BY_ALL} ORDER BY id LIMIT 1)",
    deletable_when=(
        f"t.id <= {_READ_BY_ALL} AND t.id < (SELECT max(id) FROM memory_events) "
        "AND t.id NOT IN (SELECT ledger_id FROM learning_records) "
        "AND t.id NOT IN (SELECT entry_id FROM notifications WHERE state IN ('waiting', 'given_up')) "
        f"AND t.subject NOT IN ({_OPEN_SESSION}) AND t.subject NOT IN ({_OPEN_CARD})"
    ),
)
"""Kept: entries that a reader has not read yet, by its cursor, and those of the days before; the newest entry, because
ids continue from it; entries from which a learning record or an unsent notification was made; the history of open
sessions and cards. The ledger's own sums by day include deleted entries."""

RETENTION_RULES = (RECORD_RULE, RUN_RULE, COST_RULE, TRIGGER_RULE, EVENT_RULE)
"""The rules in their order. Records are deleted before the ledger entries from which they were made."""


class RowRetention:
    """Deletes old rows. The settings have the number of days for which each table keeps its rows."""

    def __init__(self, database: Database, clock: Clock, settings: SettingsSource, cursors: Set[str]) -> None:
        """`cursors` are the keys of all cursors into the ledger. The set may grow between rounds."""
        self._database = database
        self._clock = clock
        self._settings = settings
        self._cursors = cursors

    def delete_old_rows(self) -> dict[str, int]:
        """Delete rows that are older than their days, and record that in one event. Returns their number by table."""
        deleted = {rule.table: deleted_count for rule in RETENTION_RULES if (deleted_count := self._delete_from(rule))}
        if deleted:
            log.info("retention deleted: %s", deleted)
            self._database.record(RowsLetGo(rows=deleted))
        return deleted

    def _delete_from(self, rule: RetentionRule) -> int:
        """Delete the old rows of one table; returns their number."""
        values = {"cursors": json.dumps(sorted(self._cursors)), "limit": BATCH_ROWS}
        with self._database.read() as session:
            driver = driver_of(session)
            workspaces = driver.execute(f"SELECT DISTINCT workspace FROM {rule.table}").fetchall()
            (first_unread_at,) = driver.execute(f"SELECT {rule.first_unread_at}", values).fetchone()
        now = self._clock.now()
        counted_from = now if first_unread_at is None else min(now, datetime.fromisoformat(first_unread_at))
        deleted_count = 0
        for (workspace,) in workspaces:
            if days := self._settings.current.get_retention_days(rule.table, workspace):
                before = as_stored(counted_from - timedelta(days=days))
                deleted_count += self._delete_in_batches(rule, values | {"workspace": workspace, "before": before})
        return deleted_count

    def _delete_in_batches(self, rule: RetentionRule, values: Mapping[str, Any]) -> int:
        """Delete at most `MAX_BATCHES` batches. Reads first, because an empty write would make others wait."""
        deleted_count = 0
        for _ in range(MAX_BATCHES):
            with self._database.read() as session:
                if not _find_deletable_keys(driver_of(session), rule, values):
                    break
            deleted_count += self._database.write(lambda tx: _delete_batch(tx.driver, rule, values))
        return deleted_count


def _find_deletable_keys(driver: sqlite3.Connection, rule: RetentionRule, values: Mapping[str, Any]) -> list[int]:
    query = (
        f"SELECT t.{rule.key} FROM {rule.table} AS t WHERE t.workspace = :workspace AND t.{rule.at} < :before "
        f"AND ({rule.deletable_when}) ORDER BY t.{rule.at}, t.{rule.key} LIMIT :limit"
    )
    return [key for (key,) in driver.execute(query, values)]


def _delete_batch(driver: sqlite3.Connection, rule: RetentionRule, values: Mapping[str, Any]) -> int:
    """Delete the rows of one batch for which the rule is still true in this transaction."""
    keys = _find_deletable_keys(driver, rule, values)
    selected_rows = f"{rule.table} AS t WHERE t.{rule.key} IN (SELECT value FROM json_each(?))"
    driver.execute(
        'INSERT INTO table_days ("table", day, workspace, kind, number, microusd) '
        f"SELECT '{rule.table}', substr(t.{rule.at}, 1, 10), t.workspace, {rule.kind}, count(*), "
        f"coalesce(sum({rule.money}), 0) FROM {selected_rows} GROUP BY 2, 3, 4 "
        'ON CONFLICT ("table", day, workspace, kind) DO UPDATE SET '
        "number = number + excluded.number, microusd = microusd + excluded.microusd",
        (json.dumps(keys),),
    )
    driver.execute(f"DELETE FROM {selected_rows}", (json.dumps(keys),))
    return len(keys)

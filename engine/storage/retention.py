"""Retention: deletes rows that are older than the settings say, and keeps their sums by day (SPEC 4.2).

A `Rule` says which rows of a table may be deleted. Rows are deleted in small batches, each in a transaction of its own
with its sums, so that other writes come in between and a crash leaves both or neither.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlmodel import Field, Session

from engine.clock import Clock
from engine.events import RowsLetGo
from engine.frozen import frozen
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, as_stored

log = logging.getLogger(__name__)

BATCH = 500
"""Maximum number of rows deleted in one transaction."""

MAX_BATCHES = 40
"""Maximum number of batches of a table deleted in one round; the rest follow in the next."""


class TableDay(Row, table=True):
    """The sums of deleted rows of a day (UTC, `2026-01-05`): their number, and their money in micro-dollars.

    `kind` is what the rule of the table tells rows apart by. The ledger also has sums of all its rows, deleted or not:
    `memory_event_days`.
    """

    __tablename__ = "table_days"

    table: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    workspace: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    number: int
    microusd: int


@frozen
class Rule:
    """The rows of a table that may be deleted. All fields but `table` are constant SQL expressions on the row `t`."""

    table: str
    at: str
    """The column of its time."""
    deletable_when: str
    """True for a row that nothing needs any more. It may use `:workspace` and the parameters of `values`."""
    kind: str
    """The column by which its sums are grouped."""
    key: str = "id"
    """Its integer key."""
    money: str = "0"
    """The column of micro-dollars in its sums."""
    values: Callable[[Session], Mapping[str, int]] = field(default=lambda session: {})
    since: Callable[[Session, datetime], datetime] = field(default=lambda session, now: now)
    """The time from which days are counted back, at most now: unread rows are not old."""


class RetentionRounds:
    """Deletes old rows. `days(table, workspace)` is for how many days they are kept, 0 for ever."""

    def __init__(
        self, database: Database, clock: Clock, rules: Sequence[Rule], days: Callable[[str, str], int]
    ) -> None:
        self._database = database
        self._clock = clock
        self._rules = tuple(rules)
        self._days = days

    def round(self) -> dict[str, int]:
        """Delete rows that are older than their days; returns how many by table. One event records it."""
        deleted = {rule.table: number for rule in self._rules if (number := self._delete_from(rule))}
        if deleted:
            log.info("retention deleted: %s", deleted)
            self._database.write(lambda tx: tx.record(RowsLetGo(rows=deleted)))
        return deleted

    def per_day(self, table: str) -> dict[str, tuple[int, int]]:
        """The deleted rows of a table by day: their number and micro-dollars."""
        query = text('SELECT day, sum(number), sum(microusd) FROM table_days WHERE "table" = :table GROUP BY day')
        with self._database.read() as session:
            rows = session.connection().execute(query, {"table": table})
            return {str(day): (int(number), int(money)) for day, number, money in rows}

    def _delete_from(self, rule: Rule) -> int:
        number = 0
        with self._database.read() as session:
            rows = session.connection().execute(text(_SELECT_WORKSPACES.format(table=rule.table)))
            days_by_workspace = {str(name): days for (name,) in rows if (days := self._days(rule.table, str(name)))}
            since = rule.since(session, self._clock.now()) if days_by_workspace else self._clock.now()
            values = dict(rule.values(session)) if days_by_workspace else {}
        for workspace, days in days_by_workspace.items():
            before = as_stored(since - timedelta(days=days))
            parameters = {**values, "workspace": workspace, "before": before}
            for _ in range(MAX_BATCHES):
                with self._database.read() as session:
                    if not _expired_keys(session, rule, parameters, 1):
                        break
                batch = self._database.write(lambda tx, parameters=parameters: _delete_batch(tx, rule, parameters))  # type: ignore[misc]
                number += batch
                if batch < BATCH:
                    break
        return number


_SELECT_WORKSPACES = (
    "WITH RECURSIVE one(name) AS (SELECT min(workspace) FROM {table} UNION ALL "
    "SELECT (SELECT min(workspace) FROM {table} WHERE workspace > name) FROM one WHERE name IS NOT NULL) "
    "SELECT name FROM one WHERE name IS NOT NULL"
)
"""Reads the workspaces of a table one by one from an index, which is not read whole."""


def _expired_keys(session: Session, rule: Rule, parameters: Mapping[str, Any], limit: int) -> list[int]:
    query = (
        f"SELECT t.{rule.key} FROM {rule.table} AS t WHERE t.workspace = :workspace AND t.{rule.at} < :before "
        f"AND ({rule.deletable_when}) ORDER BY t.{rule.at}, t.{rule.key} LIMIT :limit"
    )
    return [int(key) for (key,) in session.connection().execute(text(query), {**parameters, "limit": limit})]


def _delete_batch(tx: Transaction, rule: Rule, parameters: Mapping[str, Any]) -> int:
    """Delete one batch, of rows that may still be deleted in this transaction."""
    keys = _expired_keys(tx.session, rule, parameters, BATCH)
    if not keys:
        return 0
    connection, key_parameter = tx.session.connection(), {"keys": json.dumps(keys)}
    chosen = f"{rule.table} AS t WHERE t.{rule.key} IN (SELECT value FROM json_each(:keys))"
    connection.execute(
        text(
            'INSERT INTO table_days ("table", day, workspace, kind, number, microusd) '
            f"SELECT '{rule.table}', substr(t.{rule.at}, 1, 10), t.workspace, {rule.kind}, count(*), "
            f"coalesce(sum({rule.money}), 0) FROM {chosen} GROUP BY 2, 3, 4 "
            'ON CONFLICT ("table", day, workspace, kind) DO UPDATE SET '
            "number = number + excluded.number, microusd = microusd + excluded.microusd"
        ),
        key_parameter,
    )
    connection.execute(text(f"DELETE FROM {chosen}"), key_parameter)
    return len(keys)

"""Rows that were kept long enough go, and what they add up to on a day stays (SPEC 4.2).

What a table's rows are still needed for is said by a `Rule`; here rows are only taken in small batches, each in a
transaction of its own with its sums, so that other writes come in between and a crash leaves both or neither.
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
from engine.storage.rows import Row
from engine.storage.types import as_stored

log = logging.getLogger(__name__)

BATCH = 500
"""So many rows go in one transaction."""

MOST = 40
"""So many batches of a table go in one round; the rest in the next."""


class TableDay(Row, table=True):
    """What rows that were let go came to on a day (UTC, `2026-01-05`): their number, and their money in micro-dollars.

    `kind` is what the rule of the table tells rows apart by. The ledger has sums of all its rows besides, gone or not:
    `memory_event_days`.
    """

    __tablename__ = "table_days"
    __table_args__ = ({"sqlite_with_rowid": False},)

    table: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    workspace: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    number: int
    microusd: int


@frozen
class Rule:
    """Which rows of a table may go. All but `table` is SQL over the row `t`, from the program's own text alone.

    `at` is the column of its instant, `key` its whole-number key. `free` is true for a row that nothing needs, besides
    being old; it may name `:workspace` and what `values` give. `kind` and `money` are what its sums are kept by.

    `since` says from when days are counted back, at most from now: what was not read yet is not old.
    """

    table: str
    at: str
    free: str
    kind: str
    key: str = "id"
    money: str = "0"
    values: Callable[[Session], Mapping[str, int]] = field(default=lambda session: {})
    since: Callable[[Session, datetime], datetime] = field(default=lambda session, now: now)


class RetentionRounds:
    """Lets rows go. `days(table, workspace)` is for how many days they are kept, 0 for ever."""

    def __init__(
        self, database: Database, clock: Clock, rules: Sequence[Rule], days: Callable[[str, str], int]
    ) -> None:
        self._database = database
        self._clock = clock
        self._rules = tuple(rules)
        self._days = days

    def round(self) -> dict[str, int]:
        """Let go of what is older than its days, a row of exactly so many days not yet; how many by table.

        What went is one fact. With nothing to let go of, nothing is written: again at once changes nothing.
        """
        gone = {rule.table: number for rule in self._rules if (number := self._of_table(rule))}
        if gone:
            log.info("kept long enough: %s", gone)
            self._database.write(lambda tx: tx.record(RowsLetGo(rows=gone)))
        return gone

    def per_day(self, table: str) -> dict[str, tuple[int, int]]:
        """What went of a table, by day: how many rows, and micro-dollars."""
        query = text('SELECT day, sum(number), sum(microusd) FROM table_days WHERE "table" = :table GROUP BY day')
        with self._database.read() as session:
            found = session.connection().execute(query, {"table": table})
            return {str(day): (int(number), int(money)) for day, number, money in found}

    def _of_table(self, rule: Rule) -> int:
        number = 0
        with self._database.read() as session:
            found = session.connection().execute(text(_WORKSPACES.format(table=rule.table)))
            kept = {str(one): days for (one,) in found if (days := self._days(rule.table, str(one)))}
            since = rule.since(session, self._clock.now()) if kept else self._clock.now()
            values = dict(rule.values(session)) if kept else {}
        for workspace, days in kept.items():
            before = as_stored(since - timedelta(days=days))
            given = {**values, "workspace": workspace, "before": before}
            for _ in range(MOST):
                with self._database.read() as session:
                    if not _old(session, rule, given, 1):
                        break
                some = self._database.write(lambda tx, given=given: _let_go(tx, rule, given))  # type: ignore[misc]
                number += some
                if some < BATCH:
                    break
        return number


_WORKSPACES = (
    "WITH RECURSIVE one(name) AS (SELECT min(workspace) FROM {table} UNION ALL "
    "SELECT (SELECT min(workspace) FROM {table} WHERE workspace > name) FROM one WHERE name IS NOT NULL) "
    "SELECT name FROM one WHERE name IS NOT NULL"
)
"""Each workspace of a table, from one to the next: an index is not read whole for a few names."""


def _old(session: Session, rule: Rule, given: Mapping[str, Any], most: int) -> list[int]:
    query = (
        f"SELECT t.{rule.key} FROM {rule.table} AS t WHERE t.workspace = :workspace AND t.{rule.at} < :before "
        f"AND ({rule.free}) ORDER BY t.{rule.at}, t.{rule.key} LIMIT :most"
    )
    return [int(key) for (key,) in session.connection().execute(text(query), {**given, "most": most})]


def _let_go(tx: Transaction, rule: Rule, given: Mapping[str, Any]) -> int:
    """One batch. What may go is asked in the transaction that lets it go: what became needed since then stays."""
    keys = _old(tx.session, rule, given, BATCH)
    if not keys:
        return 0
    connection, these = tx.session.connection(), {"keys": json.dumps(keys)}
    chosen = f"{rule.table} AS t WHERE t.{rule.key} IN (SELECT value FROM json_each(:keys))"
    connection.execute(
        text(
            'INSERT INTO table_days ("table", day, workspace, kind, number, microusd) '
            f"SELECT '{rule.table}', substr(t.{rule.at}, 1, 10), t.workspace, {rule.kind}, count(*), "
            f"coalesce(sum({rule.money}), 0) FROM {chosen} GROUP BY 2, 3, 4 "
            'ON CONFLICT ("table", day, workspace, kind) DO UPDATE SET '
            "number = number + excluded.number, microusd = microusd + excluded.microusd"
        ),
        these,
    )
    connection.execute(text(f"DELETE FROM {chosen}"), these)
    return len(keys)

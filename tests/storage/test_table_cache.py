"""What was read of a table holds until somebody writes to it."""

from __future__ import annotations

import pytest
import sqlalchemy
from sqlmodel import delete, update

from engine.events import TaskAdded
from engine.prediction.tasks import TaskRow
from engine.storage.connections import ALL_TABLES, written_by
from engine.storage.database import Database, Transaction
from engine.storage.table_cache import TableCache


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("INSERT INTO tasks (id) VALUES (?)", "tasks"),
        ('  insert or ignore into "Tasks" (id) values (?)', "tasks"),
        ("REPLACE INTO tasks VALUES (?)", "tasks"),
        ("UPDATE tasks SET title = ?", "tasks"),
        ("UPDATE OR IGNORE tasks SET title = ?", "tasks"),
        ("DELETE FROM tasks", "tasks"),
        ("SELECT title FROM tasks", None),
        ("SAVEPOINT job", None),
        ("WITH one AS (SELECT 1) DELETE FROM tasks", ALL_TABLES),
        ("DROP TABLE tasks", ALL_TABLES),
    ],
)
def test_a_statement_tells_what_it_writes_to(statement: str, table: str | None) -> None:
    assert written_by(statement) == table


def _task(tx: Transaction) -> TaskRow:
    row = TaskRow(id="task_1", title="tidy up", state="open", created_at=tx.now, updated_at=tx.now)
    tx.session.add(row)
    return row


class Asked:
    """Counts how often SQLite was asked for the titles of tasks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: TableCache[list[str]] = TableCache(database, TaskRow)
        self.times = 0

    def titles(self) -> list[str]:
        return self._kept.get("", self._read)

    def _read(self) -> list[str]:
        self.times += 1
        with self._database.read() as session:
            return list(session.execute(sqlalchemy.text("SELECT title FROM tasks")).scalars())


def test_every_way_to_write_is_noticed(database: Database) -> None:
    asked = Asked(database)
    database.write(lambda tx: _task(tx))

    def change(tx: Transaction) -> None:
        row = tx.session.get(TaskRow, "task_1")
        assert row is not None
        row.title = "changed"

    ways = [
        change,
        lambda tx: tx.session.execute(update(TaskRow).values(title="by statement")),
        lambda tx: tx.session.connection().exec_driver_sql("UPDATE tasks SET title = 'by driver'"),
        lambda tx: tx.session.connection().exec_driver_sql("UPDATE tasks SET title = ?", [("by",), ("many",)]),
        lambda tx: tx.session.delete(tx.session.get(TaskRow, "task_1")),
    ]
    seen = [asked.titles()]
    for way in ways:
        database.write(way)
        seen.append(asked.titles())
    assert seen == [["tidy up"], ["changed"], ["by statement"], ["by driver"], ["many"], []]
    database.write(lambda tx: (_task(tx), tx.session.execute(delete(TaskRow)), _task(tx)))  # type: ignore[call-overload]
    assert asked.titles() == ["tidy up"]


def test_a_transaction_asks_for_itself_only_what_it_has_changed(database: Database) -> None:
    kept: TableCache[int] = TableCache(database, TaskRow)
    times = []

    def count(session: object) -> int:
        times.append(1)
        return int(session.connection().exec_driver_sql("SELECT count(*) FROM tasks").scalar())  # type: ignore[attr-defined]

    def work(tx: Transaction) -> None:
        tx.record(TaskAdded(title="the ledger is another table"))
        assert kept.seen(tx.session, "", count) == 0
        assert len(times) == 1, "as whoever looked before"
        _task(tx)
        tx.session.flush()
        assert kept.seen(tx.session, "", count) == 1
        assert kept.seen(tx.session, "", count) == 1
        assert len(times) == 3

    with database.read() as session:
        assert kept.seen(session, "", count) == 0
    database.write(work)
    with database.read() as session:
        assert kept.seen(session, "", count) == 1
    database.write(lambda tx: kept.seen(tx.session, "", count))
    assert len(times) == 4


def test_who_looks_from_an_older_snapshot_leaves_no_old_answer_behind(database: Database) -> None:
    kept: TableCache[int] = TableCache(database, TaskRow)

    def count(session: object) -> int:
        return int(session.connection().exec_driver_sql("SELECT count(*) FROM tasks").scalar())  # type: ignore[attr-defined]

    with database.read() as old:
        assert count(old) == 0
        database.write(lambda tx: _task(tx))
        assert kept.seen(old, "", count) == 1
    with database.read() as new:
        assert kept.seen(new, "", count) == 1

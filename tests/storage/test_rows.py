"""Statements that are asked often find what the ORM finds, and a write is whole or not."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy
from sqlmodel import col, delete, update

from engine.clock import FakeClock
from engine.events import EventBus, TaskAdded
from engine.prediction.tasks import TaskRow
from engine.storage.connections import ALL_TABLES, written_by
from engine.storage.database import Database, Transaction
from engine.storage.ledger import append
from engine.storage.rows import ask, load, load_all, select_all
from engine.storage.table_cache import TableCache

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)

_OPEN = select_all(TaskRow).where(col(TaskRow.state) == "open").order_by(col(TaskRow.id))
_TITLES = sqlalchemy.select(col(TaskRow.title)).order_by(col(TaskRow.id))


def _task(id: str, **values: object) -> TaskRow:
    return TaskRow(**{"id": id, "title": "tidy up", "state": "open", "created_at": NOON, "updated_at": NOON} | values)


def test_a_row_has_its_defaults_and_shares_none() -> None:
    one, other = _task("task_1"), _task("task_2", needs=["task_1"], nonsense=3)
    one.needs.append("task_0")
    assert other.needs == ["task_1"]
    assert _task("task_3").needs == []
    assert not hasattr(other, "nonsense")
    assert one.session_id is None


def test_a_row_is_what_the_orm_would_give(database: Database) -> None:
    database.write(lambda tx: tx.session.add(_task("task_1", needs=["task_0"])))
    with database.read() as session:
        quick = load(session, TaskRow, "task_1")
        slow = session.get(TaskRow, "task_1")
        assert quick is not None
        assert slow is not None
        assert quick.model_dump() == slow.model_dump()
        assert quick.needs == ["task_0"]
        assert quick.created_at.tzinfo is not None
        assert load(session, TaskRow, "task_2") is None


def test_what_is_changed_in_a_row_is_written_with_the_transaction(database: Database) -> None:
    database.write(lambda tx: tx.session.add(_task("task_1", needs=["task_0"])))

    def change(tx: Transaction) -> None:
        row = load(tx.session, TaskRow, "task_1")
        assert row is not None
        row.title = "tidied"
        assert load(tx.session, TaskRow, "task_1") is row
        assert tx.session.get(TaskRow, "task_1") is row
        assert load_all(tx.session, TaskRow, _OPEN) == [row]
        assert row not in tx.session.dirty

    database.write(change)
    with database.read() as session:
        assert ask(session, _TITLES) == [("tidied",)]


def test_a_row_that_was_read_is_nobodys(database: Database) -> None:
    """It outlives the read, and whoever changes it changes nothing in the database."""
    database.write(lambda tx: tx.session.add(_task("task_1", needs=["task_0"])))
    with database.read() as session:
        (row,) = load_all(session, TaskRow, _OPEN)
        row.title = "mine"
        assert not session.dirty
        assert ask(session, _TITLES) == [("tidy up",)]
    assert row.title == "mine"


def test_the_next_transaction_knows_nothing_of_the_last_ones_rows(database: Database) -> None:
    database.write(lambda tx: tx.session.add(_task("task_1")))
    kept: list[TaskRow] = []

    def read(tx: Transaction) -> None:
        row = load(tx.session, TaskRow, "task_1")
        assert row is not None
        kept.append(row)

    database.write(read)
    kept[0].title = "changed by who has it still"
    database.write(read)
    assert kept[0] is not kept[1]
    assert kept[1].title == "tidy up"


def test_who_writes_alone_does_it_himself_and_the_main_thread_never(database: Database) -> None:
    """Ctrl-C comes to the main thread: no write of its own may be torn by it."""
    seen: list[tuple[int, int]] = []

    def write() -> None:
        seen.append((threading.get_ident(), database.write(lambda tx: threading.get_ident())))

    other = threading.Thread(target=write)
    other.start()
    other.join(10)
    write()
    (other_caller, other_writer), (main_caller, main_writer) = seen
    assert other_caller == other_writer
    assert main_caller != main_writer


def test_nobody_is_overtaken(database: Database, bus: EventBus) -> None:
    """A write that was handed over before is done before, whoever does it."""
    facts = bus.subscribe(lambda: None)

    def both(name: str) -> None:
        database.submit(lambda tx: tx.record(TaskAdded(subject=f"first {name}", title="")))
        database.write(lambda tx: tx.record(TaskAdded(subject=f"then {name}", title="")))

    def many(thread: int) -> None:
        for number in range(20):
            both(f"{thread}/{number}")

    threads = [threading.Thread(target=many, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    told = [fact.subject for fact in facts.drain()]
    for which in range(4):
        mine = [item for item in told if item.split()[1].startswith(f"{which}/")]
        assert mine == [f"{word} {which}/{number}" for number in range(20) for word in ("first", "then")]


def test_a_write_inside_ones_own_write_is_named(database: Database) -> None:
    failed: list[Exception] = []

    def inside() -> None:
        try:
            database.write(lambda tx: database.write(lambda inner: None))
        except RuntimeError as error:
            failed.append(error)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join(10)
    assert len(failed) == 1


def test_closing_waits_for_who_is_writing(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", clock=FakeClock(NOON), bus=EventBus(), recorder=append)
    inside, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        inside.set()
        assert go_on.wait(10)
        tx.session.add(_task("task_1", created_at=NOON - timedelta(days=1)))

    writer = threading.Thread(target=lambda: database.write(slow))
    writer.start()
    assert inside.wait(10)
    closer = threading.Thread(target=database.close)
    closer.start()
    go_on.set()
    for thread in (writer, closer):
        thread.join(10)
        assert not thread.is_alive()


# What was read of a table holds until somebody writes to it.


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


def _add_task(tx: Transaction) -> TaskRow:
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
    database.write(lambda tx: _add_task(tx))

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
    database.write(lambda tx: (_add_task(tx), tx.session.execute(delete(TaskRow)), _add_task(tx)))  # type: ignore[call-overload]
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
        _add_task(tx)
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
        database.write(lambda tx: _add_task(tx))
        assert kept.seen(old, "", count) == 1
    with database.read() as new:
        assert kept.seen(new, "", count) == 1

"""Statements that are asked often find what the ORM finds, and a write is whole or not."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy
from sqlmodel import col

from engine.clock import FakeClock
from engine.events import EventBus, TaskAdded
from engine.prediction.tasks import TaskRow
from engine.storage.database import Database, Transaction
from engine.storage.ledger import append
from engine.storage.rows import ask, load, load_all, select_all

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

"""Prepared statements: what they find is the ORM's, and what the session has not written yet is seen."""

from __future__ import annotations

import sqlalchemy
from sqlmodel import Field, SQLModel, col

from engine.events import TaskAdded
from engine.prediction.tasks import TaskRow
from engine.storage.database import Database, Transaction
from engine.storage.quick import ask, found, load, whole

_OPEN = whole(TaskRow).where(col(TaskRow.state) == "open").order_by(col(TaskRow.id))
_TITLES = sqlalchemy.select(col(TaskRow.title)).order_by(col(TaskRow.id))


def _add(tx: Transaction, id: str, title: str = "tidy up") -> None:
    tx.session.add(TaskRow(id=id, title=title, state="open", needs=["task_0"], created_at=tx.now, updated_at=tx.now))


def test_a_row_is_what_the_orm_would_give(database: Database) -> None:
    database.write(lambda tx: _add(tx, "task_1"))
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
    database.write(lambda tx: _add(tx, "task_1"))

    def change(tx: Transaction) -> None:
        row = load(tx.session, TaskRow, "task_1")
        assert row is not None
        row.title = "tidied"
        assert load(tx.session, TaskRow, "task_1") is row
        assert tx.session.get(TaskRow, "task_1") is row
        tx.record(TaskAdded(title="another table: it is not written for this"))
        assert row in tx.session.dirty
        assert found(tx.session, TaskRow, _OPEN) == [row]
        assert row not in tx.session.dirty

    database.write(change)
    with database.read() as session:
        assert ask(session, _TITLES) == [("tidied",)]


def test_a_statement_sees_what_its_session_added_changed_and_removed(database: Database) -> None:
    def work(tx: Transaction) -> None:
        _add(tx, "task_1", "first")
        _add(tx, "task_2", "second")
        assert tx.ask(_TITLES) == [("first",), ("second",)]
        row = load(tx.session, TaskRow, "task_2")
        assert row is not None
        row.title = "changed"
        assert ask(tx.session, _TITLES) == [("first",), ("changed",)]
        tx.session.delete(row)
        assert ask(tx.session, _TITLES) == [("first",)]
        assert load(tx.session, TaskRow, "task_2") is None

    database.write(work)


def test_a_row_that_was_read_is_nobodys(database: Database) -> None:
    """It outlives the read, and whoever changes it changes nothing in the database."""
    database.write(lambda tx: _add(tx, "task_1"))
    with database.read() as session:
        (row,) = found(session, TaskRow, _OPEN)
        row.title = "mine"
        assert not session.dirty
        assert ask(session, _TITLES) == [("tidy up",)]
    assert row.title == "mine"


def test_the_first_thing_that_a_process_asks_may_be_rows(database: Database) -> None:
    """Before any statement of the ORM's own had its classes set up."""

    class Fresh(SQLModel, table=True):
        __tablename__ = "fresh"
        metadata = sqlalchemy.MetaData()  # apart from the program's own tables
        id: str = Field(primary_key=True)

    def prepare(tx: Transaction) -> None:
        tx.session.connection().exec_driver_sql("CREATE TABLE fresh (id VARCHAR PRIMARY KEY)")
        tx.session.connection().exec_driver_sql("INSERT INTO fresh VALUES ('one')")

    database.write(prepare)
    with database.read() as session:
        (row,) = found(session, Fresh, whole(Fresh))
        assert row.id == "one"

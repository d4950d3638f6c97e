"""Statements that are used often find the same rows as the ORM, and a write is made as a whole or not at all."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy
from sqlmodel import col

from engine.prediction.tasks import TaskRow
from engine.storage.database import Database, Transaction
from engine.storage.rows import ask, load, load_all, select_all

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)

_OPEN = select_all(TaskRow).where(col(TaskRow.state) == "open").order_by(col(TaskRow.id))
_TITLES = sqlalchemy.select(col(TaskRow.title)).order_by(col(TaskRow.id))


def _task(id: str, **values: object) -> TaskRow:
    return TaskRow(**{"id": id, "title": "tidy up", "state": "open", "created_at": NOON, "updated_at": NOON} | values)


def test_each_row_has_defaults_of_its_own() -> None:
    first, second = _task("task_1"), _task("task_2", needs=["task_1"])
    first.needs.append("task_0")
    assert second.needs == ["task_1"]
    assert _task("task_3").needs == []
    assert first.session_id is None


def test_a_loaded_row_equals_that_of_the_orm(database: Database) -> None:
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


def test_a_row_of_a_reading_session_is_not_written_back(database: Database) -> None:
    """It outlives the read, and whoever changes it changes nothing in the database."""
    database.write(lambda tx: tx.session.add(_task("task_1", needs=["task_0"])))
    with database.read() as session:
        (row,) = load_all(session, TaskRow, _OPEN)
        row.title = "mine"
        assert not session.dirty
        assert ask(session, _TITLES) == [("tidy up",)]
    assert row.title == "mine"

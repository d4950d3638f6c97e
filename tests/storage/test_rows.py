"""Rows read by a constant statement equal those of the ORM, and are found by the beginning of an id (SPEC 4.2)."""

from datetime import UTC, datetime

import pytest

from engine.prediction.tasks import TaskRow
from engine.storage import ask, find_by_prefix, load, load_all
from engine.storage.database import Database, Transaction
from tests.support.checks import refused

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)

OPEN_TASKS = "WHERE state = 'open' ORDER BY id"
TITLES = "SELECT title FROM tasks ORDER BY id"


def make_task(id: str, **values: object) -> TaskRow:
    return TaskRow(**{"id": id, "title": "tidy up", "state": "open", "created_at": NOON, "updated_at": NOON} | values)


@pytest.fixture
def stored(database: Database) -> Database:
    """A database with the task `task_1`, which needs another."""
    database.write(lambda tx: tx.session.add(make_task("task_1", needs=["task_0"])))
    return database


def test_a_loaded_row_equals_that_of_the_orm(stored: Database):
    with stored.read() as session:
        loaded = load(session, TaskRow, "task_1")
        by_orm = session.get(TaskRow, "task_1")
        assert loaded.model_dump() == by_orm.model_dump()
        assert loaded.needs == ["task_0"]
        assert loaded.created_at.tzinfo is not None
        assert load(session, TaskRow, "task_2") is None


def test_what_is_changed_in_a_row_is_written_with_the_transaction(stored: Database):

    def change(tx: Transaction):
        row = load(tx.session, TaskRow, "task_1")
        row.title = "tidied"
        assert load(tx.session, TaskRow, "task_1") is row
        assert tx.session.get(TaskRow, "task_1") is row
        assert load_all(tx.session, TaskRow, OPEN_TASKS) == [row]
        assert row not in tx.session.dirty

    stored.write(change)
    with stored.read() as session:
        assert ask(session, TITLES) == [("tidied",)]


@pytest.mark.parametrize("prefix, row_id", [("task_1", "task_1"), ("task_12", "task_123"), ("123", "task_123")])
def test_a_row_is_found_by_its_id_or_by_the_only_beginning(database: Database, prefix: str, row_id: str):
    database.write(lambda tx: tx.session.add_all([make_task("task_1"), make_task("task_123")]))
    with database.read() as session:
        assert find_by_prefix(session, TaskRow, prefix, noun="task", verb="clawpy tasks").id == row_id


@pytest.mark.parametrize("prefix", ["task_1", "1"])
def test_the_beginning_of_several_ids_is_refused(database: Database, prefix: str):
    database.write(lambda tx: tx.session.add_all([make_task("task_12"), make_task("task_13")]))
    with database.read() as session:
        refused("ambiguous_id", lambda: find_by_prefix(session, TaskRow, prefix, noun="task", verb="clawpy tasks"))


@pytest.mark.parametrize("prefix", ["", "t", "task_"])
def test_the_kind_of_an_id_alone_finds_no_row(database: Database, prefix: str):
    """It is what a script asks for whose variable is empty."""
    database.write(lambda tx: tx.session.add(make_task("task_1")))
    with database.read() as session:
        refused("unknown_task", lambda: find_by_prefix(session, TaskRow, prefix, noun="task", verb="clawpy tasks"))

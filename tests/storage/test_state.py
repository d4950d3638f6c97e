"""Named values and intents: no update is lost, and an intent stays until it is finished (SPEC 11.3)."""

import threading

import pytest

from engine.events import TaskAdded
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.state import begin_intent, finish_intent, unfinished_intents


def read_state(database: Database, key: str) -> object:
    with database.read() as session:
        return state.get(session, key)


def test_an_intent_is_unfinished_until_it_is_finished(database: Database):
    intent_id = database.write(lambda tx: begin_intent(tx, "land", "chg_1", {"files": ["a"]}))
    (intent,) = unfinished_intents(database, "land")
    assert (intent.subject, intent.payload) == ("chg_1", {"files": ["a"]})
    for _ in range(2):
        database.write(lambda tx: finish_intent(tx, intent_id))
    assert unfinished_intents(database, "land") == []


def test_read_then_write_loses_no_update(database: Database):
    """Many threads count upwards; with one writer each sees what the one before wrote."""

    def increment(tx: Transaction):
        state.put(tx, "count", state.get(tx.session, "count", 0) + 1)

    threads = [threading.Thread(target=lambda: [database.write(increment) for _ in range(25)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert read_state(database, "count") == 200


def test_a_deferred_value_is_stored_with_the_next_write_that_succeeds(database: Database):
    commits = database.commits
    state.put_with_next_write(database, "cursor", 1)
    state.put_with_next_write(database, "cursor", 2)
    assert (database.commits, read_state(database, "cursor")) == (commits, None)
    with pytest.raises(ZeroDivisionError):
        database.write(lambda tx: 1 / 0)
    assert read_state(database, "cursor") is None
    database.write(lambda tx: tx.record(TaskAdded(title="anything")))
    assert (database.commits, read_state(database, "cursor")) == (commits + 1, 2)

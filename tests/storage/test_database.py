"""The database has one writer. A write that returned is on disk; one that raised has changed nothing (SPEC 4.2,
11.3)."""

import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from engine.clock import FakeClock
from engine.events import EventBus
from engine.events.work import TaskAdded
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger
from engine.storage.state import Intent, begin_intent
from tests.support.checks import refused


def test_an_event_is_in_the_ledger_before_it_is_published(database: Database, bus: EventBus):
    entries_at_wake = []
    ledger = Ledger(database)
    subscription = bus.subscribe(lambda: entries_at_wake.append(len(ledger.read_newest())))
    database.write(lambda tx: tx.record(TaskAdded(subject="task_1", title="tidy up")))
    assert entries_at_wake == [1]
    assert [event.subject for event in subscription.drain()] == ["task_1"]
    assert ledger.read_newest()[0].payload == {"title": "tidy up"}


def test_a_write_that_raises_leaves_nothing_and_publishes_nothing(database: Database, bus: EventBus):
    subscription = bus.subscribe(lambda: None)

    def record_and_fail(tx: Transaction):
        tx.record(TaskAdded(title="never"))
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        database.write(record_and_fail)

    assert Ledger(database).read_newest() == []
    assert subscription.drain() == []
    database.write(lambda tx: tx.record(TaskAdded(title="after")))
    assert len(Ledger(database).read_newest()) == 1


def test_after_a_caught_error_of_the_database_nothing_of_the_write_is_committed(database: Database):
    """Otherwise each later statement would commit by itself."""
    database.write(lambda tx: tx.record(TaskAdded(title="first")))
    database.write(lambda tx: begin_intent(tx, "kind", "subject", {}))

    def work(tx: Transaction):
        tx.session.add(Intent(id=1, kind="", subject="", payload={}, begun_at=tx.now))
        with pytest.raises(IntegrityError):
            tx.session.flush()
        tx.record(TaskAdded(title="later"))

    with pytest.raises((Refusal, sqlite3.ProgrammingError)):
        database.write(work)
    assert [event.payload["title"] for event in Ledger(database).read_newest()] == ["first"]
    database.write(lambda tx: tx.record(TaskAdded(title="next")))
    assert len(Ledger(database).read_newest()) == 2


def test_readers_cannot_write(database: Database, clock: FakeClock):
    def write_in_reader():
        with database.read() as session:
            session.add(Intent(kind="", subject="", payload={}, begun_at=clock.now()))
            session.commit()

    refused("unwritable_home", write_in_reader)


def test_a_write_after_closing_is_refused(database: Database):
    database.close()
    with pytest.raises(Refusal, match="closing"):
        database.write(lambda _tx: None)


def test_a_naive_instant_is_refused(database: Database):
    def write_naive(tx: Transaction):
        tx.session.add(Intent(kind="", subject="", payload={}, begun_at=datetime(2026, 1, 1)))  # noqa: DTZ001
        tx.session.flush()

    with pytest.raises(Exception, match="time zone"):
        database.write(write_naive)


def test_a_write_inside_a_write_is_an_error(database: Database):
    with pytest.raises(RuntimeError, match="inside"):
        database.write(lambda tx: database.write(lambda inner: None))


def test_a_file_that_is_no_database_is_a_damaged_home(tmp_path: Path, clock: FakeClock, bus: EventBus):
    path = tmp_path / "clawpy.db"
    path.write_bytes(b"this is certainly not a database, whatever its name says" * 40)
    refusal = refused("damaged_home", lambda: Database(path, clock=clock, bus=bus))
    assert str(path) in refusal.message


@pytest.mark.parametrize("name", ["50%20", "what?", "c#", "two\nlines", "bytes \udcff"])
def test_the_path_of_a_database_may_have_any_character(tmp_path: Path, clock: FakeClock, bus: EventBus, name: str):
    path = tmp_path / name / "clawpy.db"
    path.parent.mkdir()
    database = Database(path, clock=clock, bus=bus)
    database.record(TaskAdded(title="in it"))
    assert len(Ledger(database).read_newest()) == 1
    database.close()
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_database_that_was_moved_while_it_was_open_is_missed_and_not_made_anew(
    tmp_path: Path, clock: FakeClock, bus: EventBus
):
    home = tmp_path / "home"
    home.mkdir()
    path = home / "clawpy.db"
    database = Database(path, clock=clock, bus=bus)
    home.rename(tmp_path / "moved")
    home.mkdir()
    assert str(path) in refused("unwritable_home", Ledger(database).read_newest).message
    assert list(home.iterdir()) == []
    database.close()


def test_a_home_whose_engine_was_killed_while_it_emptied_its_log_is_whole(
    tmp_path: Path, clock: FakeClock, bus: EventBus
):
    """SQLite moves the pages of its log into the file in their order. Here only the first was moved, which says that
    the file has more pages than it has yet."""
    path, killed = tmp_path / "clawpy.db", tmp_path / "killed" / "clawpy.db"
    killed.parent.mkdir()
    database = Database(path, clock=clock, bus=bus)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.write(lambda tx: [tx.record(TaskAdded(title=f"{number}" * 4000)) for number in range(50)])
        shutil.copyfile(path, killed)
        shutil.copyfile(f"{path}-wal", f"{killed}-wal")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("rb") as whole, killed.open("r+b") as half:
        half.write(whole.read(4096))
    database.close()
    database = Database(killed, clock=clock, bus=bus)
    assert len(Ledger(database).read_newest()) == 50
    database.close()


def test_commits_are_durable_and_foreign_keys_are_on(database: Database, clock: FakeClock, bus: EventBus):
    """SPEC 11.3 depends on these settings of SQLite."""
    brief = Database(database.path, clock=clock, bus=bus, durable=False)
    with brief.read() as session:
        assert session.connection().exec_driver_sql("PRAGMA synchronous").scalar() == 0
    brief.close()
    with database.read() as session:
        connection = session.connection()
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    with sqlite3.connect(database.path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_cached_result_is_read_again_only_after_a_commit_that_changed_its_table(database: Database):
    reads = []
    current = database.cached("intents", lambda session: reads.append(database.commits) or len(reads))

    def write_and_fail(tx: Transaction):
        begin_intent(tx, "kind", "subject", {})
        raise ValueError("changed my mind")

    assert (current(), current()) == (1, 1)
    intent = database.write(lambda tx: begin_intent(tx, "kind", "subject", {}))
    assert (current(), current()) == (2, 2)
    database.write(lambda tx: state.put(tx, "a key", 1))
    with pytest.raises(ValueError, match="changed my mind"):
        database.write(write_and_fail)
    assert current() == 2
    database.write(lambda tx: tx.driver.execute("UPDATE intents SET kind = 'other'"))
    assert current() == 3
    state.finish_intent_now(database, intent)
    assert (current(), current()) == (4, 4)


def test_read_then_write_loses_no_update(database: Database):
    """Many threads count upwards; with one writer each sees what the one before wrote."""

    def increment(tx: Transaction):
        state.put(tx, "count", state.get(tx.session, "count", 0) + 1)

    threads = [threading.Thread(target=lambda: [database.write(increment) for _ in range(25)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    with database.read() as session:
        assert state.get(session, "count") == 200


def test_a_deferred_value_is_stored_with_the_next_write_that_succeeds(database: Database):
    def read_cursor() -> object:
        with database.read() as session:
            return state.get(session, "cursor")

    commits = database.commits
    state.put_with_next_write(database, "cursor", 1)
    state.put_with_next_write(database, "cursor", 2)
    state.put_with_next_write(database, "broken", object())
    assert (database.commits, read_cursor()) == (commits, None)
    with pytest.raises(ZeroDivisionError):
        database.write(lambda tx: 1 / 0)
    assert read_cursor() is None
    database.write(lambda tx: tx.record(TaskAdded(title="anything")))
    assert (database.commits, read_cursor()) == (commits + 1, 2)

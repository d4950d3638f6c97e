"""The ledger and its consumers, which miss nothing, also after a crash, and write nothing in vain (SPEC 11.3)."""

from collections.abc import Callable, Sequence

import pytest

from engine.events.work import ChangeSetDiscarded, ChangeSetLanded
from engine.memory.captures import ENDING_EVENTS
from engine.storage import state
from engine.storage.database import Database
from engine.storage.ledger import (
    BATCH_SIZE,
    MAX_ATTEMPTS,
    ConsumerThread,
    Ledger,
    LedgerConsumer,
    LedgerCursor,
    LedgerEntry,
    NotReady,
)
from tests.support.sessions import make_session_ended

KEY = "test.cursor"


def end_session(database: Database, session_id: str):
    database.write(lambda tx: tx.record(make_session_ended(session_id)))


@pytest.fixture
def cursor(database: Database) -> LedgerCursor:
    return make_cursor(database)


def make_cursor(database: Database) -> LedgerCursor:
    return LedgerCursor(Ledger(database), KEY, lambda entry: entry.kind == "ChangeSetDiscarded")


def record_relevant(database: Database, name: str):
    """Record an event that the cursor of these tests handles."""
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject=name, session_id=name)))


def record_irrelevant(database: Database, times: int = 1):
    """Record events that the cursor of these tests skips."""
    landed = ChangeSetLanded(subject="x", session_id="x", files=1)
    database.write(lambda tx: [tx.record(landed) for _ in range(times)])


def read_position_after_write(database: Database) -> int:
    """The position at which the next engine begins: it is stored with the next write."""
    database.write(lambda tx: None)
    with database.read() as session:
        return int(state.get(session, KEY, 0))


def handle_subjects(cursor: LedgerCursor) -> list[str]:
    """The subjects of the entries that the cursor handles now."""
    subjects = []
    cursor.handle_new(lambda entries: subjects.extend(entry.subject for entry in entries))
    return subjects


def test_each_relevant_entry_is_handled_once_also_by_the_next_engine(database: Database, cursor: LedgerCursor):
    record_relevant(database, "a")
    record_irrelevant(database)
    record_relevant(database, "b")
    assert handle_subjects(cursor) == ["a", "b"]
    assert handle_subjects(cursor) == []
    assert handle_subjects(make_cursor(database)) == ["a", "b"], "after a crash before the next write they come again"
    assert read_position_after_write(database) == 3
    assert handle_subjects(make_cursor(database)) == []


def test_a_consumer_that_was_stopped_or_died_continues_there_or_before(database: Database):
    handled = []

    def handle(entry: LedgerEntry):
        if entry.subject == "session_3" and handled.count("session_2") < 2:
            raise SystemExit  # like a crash: nothing catches it
        handled.append(entry.subject)

    def consumer() -> LedgerConsumer:
        return LedgerConsumer("test", Ledger(database), ENDING_EVENTS, handle, key="test.follow")

    for number in (1, 2, 3):
        end_session(database, f"session_{number}")
    consumer().catch_up(lambda: not handled)
    database.write(lambda tx: None)  # the position is stored with the next write
    with pytest.raises(SystemExit):
        consumer().catch_up()
    consumer().catch_up()
    assert handled == ["session_1", "session_2", "session_2", "session_3"]


def test_an_entry_that_is_not_ready_delays_those_after_it(database: Database):
    ready = False
    handled = []

    def handle(entry: LedgerEntry):
        if not ready:
            raise NotReady
        handled.append(entry.subject)

    consumer = LedgerConsumer("test", Ledger(database), ENDING_EVENTS, handle, key="test.follow")
    end_session(database, "session_1")
    for _ in range(MAX_ATTEMPTS + 2):
        assert consumer.catch_up() == []
    ready = True
    consumer.catch_up()
    assert handled == ["session_1"]


def test_an_entry_that_always_fails_is_reported_and_skipped(database: Database):
    handled = []

    def handle(entry: LedgerEntry):
        if entry.subject == "session_1":
            raise ValueError("broken")
        handled.append(entry.subject)

    reports = []
    thread = ConsumerThread(
        [LedgerConsumer("test", Ledger(database), ENDING_EVENTS, handle, key="test.follow")],
        lambda where, message: reports.append(message),
        service="test",
    )
    for number in (1, 2):
        end_session(database, f"session_{number}")
    thread.catch_up(until=0.0)  # the time is over
    for _ in range(MAX_ATTEMPTS - 1):
        thread.catch_up()
    assert handled == []
    assert reports == []
    thread.catch_up()
    assert handled == ["session_2"]
    assert "session_1 was skipped: broken" in reports[0]
    thread.close()
    end_session(database, "session_3")
    thread.catch_up()
    assert handled == ["session_2"]


def test_an_unhandled_entry_and_all_after_it_come_the_next_time(database: Database, cursor: LedgerCursor):
    subjects = []

    def handle_at_most(limit: int) -> Callable[[Sequence[LedgerEntry]], int]:
        def handle(entries: Sequence[LedgerEntry]) -> int:
            subjects.extend(entry.subject for entry in entries[:limit])
            return limit

        return handle

    for name in ("a", "b", "c"):
        record_relevant(database, name)
    record_irrelevant(database)
    commits = database.commits
    cursor.handle_new(handle_at_most(2))
    assert database.commits == commits, "what is stored waits for the next write"
    assert subjects == ["a", "b"]
    assert read_position_after_write(database) == 2
    cursor.handle_new(handle_at_most(0))
    assert read_position_after_write(database) == 2
    assert handle_subjects(make_cursor(database)) == ["c"], "also for the next engine"


def test_only_a_whole_batch_that_nobody_needs_moves_the_position(database: Database, cursor: LedgerCursor):
    record_irrelevant(database, BATCH_SIZE)
    record_irrelevant(database)
    assert handle_subjects(cursor) == []
    assert read_position_after_write(database) == BATCH_SIZE


def test_a_batch_that_fails_comes_again(database: Database, cursor: LedgerCursor):
    def fail(entries: Sequence[LedgerEntry]):
        raise OSError("no")

    record_relevant(database, "a")
    with pytest.raises(OSError, match="no"):
        cursor.handle_new(fail)
    assert handle_subjects(cursor) == ["a"]

"""Following the ledger with a cursor: nothing missed, nothing written in vain (SPEC 11.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from engine.events import ChangeSetDiscarded, ChangeSetLanded
from engine.storage import state
from engine.storage.database import Database
from engine.storage.ledger import BATCH, Ledger, LedgerCursor, LedgerEntry

KEY = "test.cursor"


@pytest.fixture
def cursor(database: Database) -> LedgerCursor:
    return new_cursor(database)


def new_cursor(database: Database) -> LedgerCursor:
    return LedgerCursor(Ledger(database), KEY, lambda fact: fact.kind == "ChangeSetDiscarded")


def discard(database: Database, name: str) -> None:
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject=name, session_id=name)))


def land(database: Database, times: int = 1) -> None:
    database.write(lambda tx: [tx.record(ChangeSetLanded(subject="x", session_id="x", files=1)) for _ in range(times)])


def position_after_next_write(database: Database) -> int:
    """The position at which the next engine begins: it is stored with the next write."""
    database.write(lambda tx: None)
    with database.read() as session:
        return int(state.get(session, KEY, 0))


def subjects_read(cursor: LedgerCursor) -> list[str]:
    seen: list[str] = []
    cursor.each(lambda found: seen.extend(fact.subject for fact in found))
    return seen


def test_each_relevant_fact_is_handled_once(database: Database, cursor: LedgerCursor) -> None:
    discard(database, "a")
    land(database)
    discard(database, "b")
    assert subjects_read(cursor) == ["a", "b"]
    assert subjects_read(cursor) == []


def test_an_engine_after_a_crash_handles_facts_again(database: Database, cursor: LedgerCursor) -> None:
    """The position was not on disk yet: nothing was written since."""
    discard(database, "a")
    assert subjects_read(cursor) == ["a"]
    assert subjects_read(new_cursor(database)) == ["a"]


def test_the_next_engine_begins_at_the_stored_position(database: Database, cursor: LedgerCursor) -> None:
    discard(database, "a")
    assert subjects_read(cursor) == ["a"]
    assert position_after_next_write(database) == 1
    assert subjects_read(new_cursor(database)) == []


def test_a_whole_batch_of_no_concern_is_remembered(database: Database, cursor: LedgerCursor) -> None:
    land(database, BATCH + 1)
    assert subjects_read(cursor) == []
    assert position_after_next_write(database) == BATCH


def test_what_is_left_and_all_after_it_comes_the_next_time(database: Database, cursor: LedgerCursor) -> None:
    seen: list[str] = []

    def handle_at_most(limit: int) -> Callable[[Sequence[LedgerEntry]], int]:
        def handle(found: Sequence[LedgerEntry]) -> int:
            seen.extend(fact.subject for fact in found[:limit])
            return limit

        return handle

    for name in ("a", "b", "c"):
        discard(database, name)
    land(database)
    commits = database.commits
    cursor.each(handle_at_most(2))
    assert database.commits == commits, "what is stored waits for the next write"
    assert (seen, position_after_next_write(database)) == (["a", "b"], 2)
    cursor.each(handle_at_most(0))
    assert position_after_next_write(database) == 2
    assert subjects_read(new_cursor(database)) == ["c"], "also for the next engine"


def test_nothing_of_a_later_batch_before_what_is_left(database: Database, cursor: LedgerCursor) -> None:
    for number in range(BATCH + 1):
        discard(database, str(number))
    sizes: list[int] = []

    def all_but_one(found: Sequence[LedgerEntry]) -> int:
        sizes.append(len(found))
        return len(found) - 1

    cursor.each(all_but_one)
    assert sizes == [BATCH]
    assert subjects_read(cursor) == [str(BATCH - 1), str(BATCH)]


def test_what_could_not_be_handled_comes_again(database: Database, cursor: LedgerCursor) -> None:
    def fails(found: Sequence[LedgerEntry]) -> None:
        raise OSError("no")

    discard(database, "a")
    with pytest.raises(OSError, match="no"):
        cursor.each(fails)
    assert subjects_read(cursor) == ["a"]

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
def facts(database: Database) -> LedgerCursor:
    return follower(database)


def follower(database: Database) -> LedgerCursor:
    return LedgerCursor(Ledger(database), KEY, lambda fact: fact.kind == "ChangeSetDiscarded")


def discard(database: Database, name: str) -> None:
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject=name, session_id=name)))


def land(database: Database, times: int = 1) -> None:
    database.write(lambda tx: [tx.record(ChangeSetLanded(subject="x", session_id="x", files=1)) for _ in range(times)])


def stored(database: Database) -> int:
    """What the next engine begins with: the cursor rides along with what is written until then."""
    database.write(lambda tx: None)
    with database.read() as session:
        return int(state.get(session, KEY, 0))


def read(facts: LedgerCursor) -> list[str]:
    seen: list[str] = []
    facts.each(lambda found: seen.extend(fact.subject for fact in found))
    return seen


def test_each_fact_of_concern_once(database: Database, facts: LedgerCursor) -> None:
    discard(database, "a")
    land(database)
    discard(database, "b")
    assert read(facts) == ["a", "b"]
    assert read(facts) == []
    assert read(follower(database)) == ["a", "b"], "by an engine that crashed before it wrote anything, once more"
    assert stored(database) == 3
    assert read(follower(database)) == [], "nor by the next engine"


def test_a_whole_batch_of_no_concern_is_remembered(database: Database, facts: LedgerCursor) -> None:
    land(database, BATCH + 1)
    assert read(facts) == []
    assert stored(database) == BATCH


def test_what_is_left_and_all_after_it_comes_the_next_time(database: Database, facts: LedgerCursor) -> None:
    seen: list[str] = []

    def takes(most: int) -> Callable[[Sequence[LedgerEntry]], int]:
        def handle(found: Sequence[LedgerEntry]) -> int:
            seen.extend(fact.subject for fact in found[:most])
            return most

        return handle

    for name in ("a", "b", "c"):
        discard(database, name)
    land(database)
    commits = database.commits
    facts.each(takes(2))
    assert database.commits == commits, "what is stored waits for the next write"
    assert (seen, stored(database)) == (["a", "b"], 2)
    facts.each(takes(0))
    assert stored(database) == 2
    assert read(follower(database)) == ["c"], "also for the next engine"


def test_nothing_of_a_later_batch_before_what_is_left(database: Database, facts: LedgerCursor) -> None:
    for number in range(BATCH + 1):
        discard(database, str(number))
    sizes: list[int] = []

    def all_but_one(found: Sequence[LedgerEntry]) -> int:
        sizes.append(len(found))
        return len(found) - 1

    facts.each(all_but_one)
    assert sizes == [BATCH]
    assert read(facts) == [str(BATCH - 1), str(BATCH)]


def test_what_could_not_be_handled_comes_again(database: Database, facts: LedgerCursor) -> None:
    def fails(found: Sequence[LedgerEntry]) -> None:
        raise OSError("no")

    discard(database, "a")
    with pytest.raises(OSError, match="no"):
        facts.each(fails)
    assert read(facts) == ["a"]

"""Following the ledger with a cursor: nothing missed, nothing written in vain (SPEC 11.3)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.events import ChangeSetDiscarded, ChangeSetLanded
from engine.memory.ledger import Ledger
from engine.prediction.facts_read import BATCH, FactsRead
from engine.prediction.ports import Fact
from engine.storage import state
from engine.storage.database import Database

KEY = "test.cursor"


@pytest.fixture
def facts(database: Database) -> FactsRead:
    return follower(database)


def follower(database: Database) -> FactsRead:
    return FactsRead(database, Ledger(database), KEY, lambda fact: fact.kind == "ChangeSetDiscarded")


def discard(database: Database, name: str) -> None:
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject=name, session_id=name)))


def land(database: Database, times: int = 1) -> None:
    database.write(lambda tx: [tx.record(ChangeSetLanded(subject="x", session_id="x", files=1)) for _ in range(times)])


def stored(database: Database) -> int:
    with database.read() as session:
        return int(state.get(session, KEY, 0))


def read(facts: FactsRead) -> list[str]:
    seen: list[str] = []
    facts.each(lambda found: seen.extend(fact.subject for fact in found))
    return seen


def test_each_fact_of_concern_once(database: Database, facts: FactsRead) -> None:
    discard(database, "a")
    land(database)
    discard(database, "b")
    assert read(facts) == ["a", "b"]
    assert read(facts) == []
    assert read(follower(database)) == [], "nor by the next engine"


def test_what_is_of_no_concern_is_passed_over_without_a_write(database: Database, facts: FactsRead) -> None:
    land(database)
    assert read(facts) == []
    assert stored(database) == 0
    discard(database, "a")
    assert read(facts) == ["a"]
    assert stored(database) == 2


def test_a_whole_batch_of_no_concern_is_remembered(database: Database, facts: FactsRead) -> None:
    land(database, BATCH + 1)
    assert read(facts) == []
    assert stored(database) == BATCH


def test_what_could_not_be_handled_comes_again(database: Database, facts: FactsRead) -> None:
    def fails(found: Sequence[Fact]) -> None:
        raise OSError("no")

    discard(database, "a")
    with pytest.raises(OSError, match="no"):
        facts.each(fails)
    assert read(facts) == ["a"]

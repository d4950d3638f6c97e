"""A reader of the ledger that does not come on is told to the operator, for nothing after it is let go (SPEC 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.events import ChangeSetDiscarded
from engine.storage.consumers import FIX, STALLED_AFTER, StalledConsumers
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

HOUR = timedelta(hours=1)


class Reader:
    """One that raises as long as it is `broken`."""

    def __init__(self, database: Database) -> None:
        self.facts = LedgerCursor(Ledger(database), "test.reader", lambda fact: fact.kind == "ChangeSetDiscarded")
        self.broken = True

    def catch_up(self) -> None:
        try:
            self.facts.each(self._take)
        except ValueError:
            assert self.broken

    def _take(self, facts: Sequence[LedgerEntry]) -> None:
        if self.broken:
            raise ValueError("no such folder: /gone")


@pytest.fixture
def reader(database: Database) -> Reader:
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject="sess_1", session_id="sess_1")))
    return Reader(database)


def faults(database: Database) -> list[str]:
    return [entry.payload["message"] for entry in Ledger(database).latest(20, kinds=("FaultReported",))]


def test_who_does_not_come_on_for_a_day_is_told_of_once(database: Database, clock: FakeClock, reader: Reader) -> None:
    stuck = StalledConsumers(reader.facts.ledger, clock)
    reader.catch_up()
    clock.advance(STALLED_AFTER - HOUR)
    assert stuck.check() == [], "it may yet come on"
    clock.advance(HOUR)
    assert stuck.check() == []
    clock.advance(HOUR)
    reader.catch_up()
    (words,) = stuck.check()
    assert words.startswith("test.reader has not processed ChangeSetDiscarded of sess_1 (")
    assert words.endswith("ValueError: no such folder: /gone")
    clock.advance(HOUR)
    assert stuck.check() == []
    again = StalledConsumers(reader.facts.ledger, clock)
    assert (again.check(), again.check()) == ([], []), "nor by the next engine"
    assert faults(database) == [f"{words}; {FIX}"]


def test_who_came_on_meanwhile_is_not_told_of(database: Database, clock: FakeClock, reader: Reader) -> None:
    stuck = StalledConsumers(reader.facts.ledger, clock)
    reader.catch_up()
    clock.advance(STALLED_AFTER)
    stuck.check()
    reader.broken = False
    reader.catch_up()
    clock.advance(HOUR)
    assert stuck.check() == []
    assert reader.facts.error == ""
    assert faults(database) == []

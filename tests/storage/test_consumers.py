"""Consumers of the ledger see each fact at least once and in order, also after a crash; none holds up the others."""

from __future__ import annotations

import pytest

from engine.memory.work import ENDED
from engine.storage.consumers import MAX_ATTEMPTS, ConsumerThread, LedgerConsumer, NotReady
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerEntry
from tests.memory.fake_work import ended, view


def test_one_who_is_stopped_or_dies_in_the_middle_goes_on_there_or_before(database: Database) -> None:
    handled: list[str] = []

    def handle(fact: LedgerEntry) -> None:
        if fact.subject == "session_3" and handled.count("session_2") < 2:
            raise SystemExit  # as good as a crash: nobody handles it
        handled.append(fact.subject)

    def consumer() -> LedgerConsumer:
        return LedgerConsumer("test", Ledger(database), ENDED, handle)

    for number in (1, 2, 3):
        ended(database, view(f"session_{number}"))
    consumer().catch_up(lambda: not handled)
    database.write(lambda tx: None)  # how far it came rides along with what is written next
    with pytest.raises(SystemExit):
        consumer().catch_up()
    consumer().catch_up()
    assert handled == ["session_1", "session_2", "session_2", "session_3"]


def test_what_is_not_ready_holds_up_what_comes_after(database: Database) -> None:
    ready = False
    handled: list[str] = []

    def handle(fact: object) -> None:
        if not ready:
            raise NotReady
        handled.append(fact.subject)  # type: ignore[attr-defined]

    consumer = LedgerConsumer("test", Ledger(database), ENDED, handle)
    ended(database, view("session_1"))
    for _ in range(MAX_ATTEMPTS + 2):
        assert consumer.catch_up() == []
    ready = True
    consumer.catch_up()
    assert handled == ["session_1"]


def test_what_always_fails_is_told_of_and_passed_over(database: Database) -> None:
    handled: list[str] = []

    def handle(fact: object) -> None:
        if fact.subject == "session_1":  # type: ignore[attr-defined]
            raise ValueError("broken")
        handled.append(fact.subject)  # type: ignore[attr-defined]

    reports: list[str] = []
    thread = ConsumerThread(
        [LedgerConsumer("test", Ledger(database), ENDED, handle)], lambda where, words: reports.append(words)
    )
    for number in (1, 2):
        ended(database, view(f"session_{number}"))
    for _ in range(MAX_ATTEMPTS - 1):
        thread.catch_up()
    assert (handled, reports) == ([], [])
    thread.catch_up()
    assert handled == ["session_2"]
    assert "session_1 was skipped: broken" in reports[0]

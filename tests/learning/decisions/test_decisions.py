"""Decisions: which signal counts (SPEC 8.1), which pairs are made (8.2), and the counts that rails and phases use."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.learning.decisions.decisions import SIGNAL_WEIGHTS, Decisions, DpoPair
from engine.model import DecidedBy, DecidedCard, DecisionSignal
from engine.storage.database import Database

HOUR = timedelta(hours=1)


@pytest.fixture
def decisions(database: Database, clock: FakeClock) -> Decisions:
    return Decisions(database, clock)


def make_card(
    name: str,
    *,
    channel: str = "koji-core",
    prompt: str = "run the tests",
    by: DecidedBy = DecidedBy.OPERATOR,
    kind: str = "run_tests",
) -> DecidedCard:
    """A card that was decided."""
    return DecidedCard(name, kind, channel, "/shop", "run_tests", prompt, 0.4, by, "monday", None, "")


Record = Callable[[DecisionSignal, DecidedCard], None]


@pytest.fixture
def record(database: Database, decisions: Decisions) -> Record:
    """Stores a signal about a card."""
    return lambda signal, card: database.write(lambda tx: decisions.record(tx, signal, card))


def read_pairs(database: Database) -> list[DpoPair]:
    """All stored pairs."""
    with database.read() as session:
        return list(session.exec(select(DpoPair)))


def test_weights_are_those_of_the_specification():
    assert SIGNAL_WEIGHTS == {
        DecisionSignal.APPROVED: 1.0,
        DecisionSignal.ORIGINAL: -1.0,
        DecisionSignal.DISMISSED: -1.0,
        DecisionSignal.KEPT: 0.5,
        DecisionSignal.UNDONE: -0.8,
        DecisionSignal.DISCARDED: -0.8,
        DecisionSignal.EXPIRED: -0.3,
        DecisionSignal.DONE_BY_OPERATOR: 0.7,
    }


def test_an_approval_pairs_with_the_latest_rejection_of_the_hour_elsewhere(
    database: Database, clock: FakeClock, record: Record
):
    record(DecisionSignal.DISMISSED, make_card("old", channel="garden", prompt="old"))
    clock.advance(timedelta(minutes=30))
    record(DecisionSignal.EXPIRED, make_card("ignored", channel="research", prompt="ignored"))
    record(DecisionSignal.DISMISSED, make_card("same", prompt="same channel"))
    record(DecisionSignal.APPROVED, make_card("yes"))
    (pair,) = read_pairs(database)
    assert pair.rejected == "ignored → research"
    assert (pair.chosen_confidence, pair.rejected_confidence) == (0.4, 0.4)


@pytest.mark.parametrize("waited, pairs_made", [(HOUR, 1), (HOUR + timedelta(microseconds=1), 0)])
def test_pairing_window_includes_one_hour(
    database: Database, clock: FakeClock, waited: timedelta, pairs_made: int, record: Record
):
    record(DecisionSignal.DISMISSED, make_card("no", channel="garden"))
    clock.advance(waited)
    record(DecisionSignal.APPROVED, make_card("yes"))
    assert len(read_pairs(database)) == pairs_made


def test_consecutive_rejections_end_with_an_approval(database: Database, decisions: Decisions, record: Record):
    def count_rejections() -> int:
        with database.read() as session:
            return decisions.count_consecutive_rejections(session)

    for name in "ab":
        record(DecisionSignal.DISMISSED, make_card(name))
    record(DecisionSignal.EXPIRED, make_card("expired"))
    assert count_rejections() == 2
    record(DecisionSignal.APPROVED, make_card("c"))
    assert count_rejections() == 0
    record(DecisionSignal.DISMISSED, make_card("d", by=DecidedBy.API))
    assert count_rejections() == 1
    database.write(lambda tx: decisions.take_back(tx, "d"))
    assert count_rejections() == 0


def test_similar_cards_are_those_of_the_operator_alone(database: Database, decisions: Decisions, record: Record):
    record(DecisionSignal.APPROVED, make_card("a"))
    record(DecisionSignal.DISMISSED, make_card("b"))
    record(DecisionSignal.APPROVED, make_card("c", by=DecidedBy.API))
    record(DecisionSignal.APPROVED, make_card("d", channel="garden"))
    record(DecisionSignal.APPROVED, make_card("e", kind="lint"))
    record(DecisionSignal.EXPIRED, make_card("f"))
    record(DecisionSignal.DONE_BY_OPERATOR, make_card("g"))
    with database.read() as session:
        assert decisions.count_similar(session, "run_tests", "koji-core", "/shop") == (1, 2)
        assert decisions.count_decided_cards(session) == 5

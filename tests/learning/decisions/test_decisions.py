"""Signals of SPEC 8.1, pairs of 8.2, and the counts that rails and phases rest on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.learning.decisions.decisions import SIGNAL_WEIGHTS, Decision, Decisions
from engine.learning.decisions.preferences import DpoPair
from engine.model import DecidedBy, DecidedCard, DecisionSignal
from engine.storage.database import Database

HOUR = timedelta(hours=1)


@pytest.fixture
def decisions(database: Database, clock: FakeClock) -> Decisions:
    return Decisions(database, clock)


def card(
    name: str,
    *,
    channel: str = "koji-core",
    prompt: str = "run the tests",
    original: str = "",
    by: DecidedBy = DecidedBy.OPERATOR,
    kind: str = "run_tests",
) -> DecidedCard:
    return DecidedCard(name, kind, channel, "/shop", "run_tests", prompt, 0.4, by, "monday", None, original)


def give(database: Database, decisions: Decisions, signal: DecisionSignal, of: DecidedCard) -> None:
    database.write(lambda tx: decisions.record(tx, signal, of))


def pairs(database: Database) -> list[DpoPair]:
    with database.read() as session:
        return list(session.exec(select(DpoPair)))


def test_weights_are_those_of_the_spec() -> None:
    assert {signal: (loud > 0, abs(loud)) for signal, loud in SIGNAL_WEIGHTS.items()} == {
        DecisionSignal.APPROVED: (True, 1.0),
        DecisionSignal.ORIGINAL: (False, 1.0),
        DecisionSignal.DISMISSED: (False, 1.0),
        DecisionSignal.KEPT: (True, 0.5),
        DecisionSignal.UNDONE: (False, 0.8),
        DecisionSignal.DISCARDED: (False, 0.8),
        DecisionSignal.EXPIRED: (False, 0.3),
        DecisionSignal.DID_HIMSELF: (True, 0.7),
    }


def test_an_edit_is_one_decision_with_two_signals_and_its_own_pair(database: Database, decisions: Decisions) -> None:
    give(database, decisions, DecisionSignal.APPROVED, card("a", prompt="run them all", original="run the tests"))
    assert sorted((past.chosen, past.weight) for past in decisions.load_after(0)) == [(False, 1.0), (True, 1.0)]
    (pair,) = pairs(database)
    assert (pair.chosen, pair.rejected) == ("run them all → koji-core", "run the tests → koji-core")
    assert pair.context == "monday"
    with database.read() as session:
        assert decisions.count_all(session) == 1
        assert decisions.count_similar(session, "run_tests", "koji-core", "/shop") == (0, 1)


def test_an_approval_pairs_with_the_latest_rejection_of_the_hour_elsewhere(
    database: Database, decisions: Decisions, clock: FakeClock
) -> None:
    give(database, decisions, DecisionSignal.DISMISSED, card("old", channel="garden", prompt="old"))
    clock.advance(timedelta(minutes=30))
    give(database, decisions, DecisionSignal.EXPIRED, card("ignored", channel="research", prompt="ignored"))
    give(database, decisions, DecisionSignal.DISMISSED, card("same", prompt="same channel"))
    give(database, decisions, DecisionSignal.APPROVED, card("yes"))
    (pair,) = pairs(database)
    assert pair.rejected == "ignored → research"
    assert (pair.chosen_confidence, pair.rejected_confidence) == (0.4, 0.4)


@pytest.mark.parametrize(("waited", "made"), [(HOUR, 1), (HOUR + timedelta(microseconds=1), 0)])
def test_pairing_window_includes_one_hour(
    database: Database, decisions: Decisions, clock: FakeClock, waited: timedelta, made: int
) -> None:
    give(database, decisions, DecisionSignal.DISMISSED, card("no", channel="garden"))
    clock.advance(waited)
    give(database, decisions, DecisionSignal.APPROVED, card("yes"))
    assert len(pairs(database)) == made


def test_what_is_taken_back_counts_nowhere(database: Database, decisions: Decisions) -> None:
    give(database, decisions, DecisionSignal.DISMISSED, card("no", channel="garden"))
    give(database, decisions, DecisionSignal.APPROVED, card("yes"))
    database.write(lambda tx: decisions.take_back(tx, "yes"))
    assert pairs(database) == []
    assert [view.prediction_id for view in decisions.load_newest()] == ["no"]
    with database.read() as session:
        assert decisions.count_all(session) == 1
        assert session.exec(select(Decision).where(Decision.prediction_id == "yes")).one().taken_back_at is not None


def test_a_later_word_replaces_the_earlier(database: Database, decisions: Decisions) -> None:
    give(database, decisions, DecisionSignal.APPROVED, card("a"))
    give(database, decisions, DecisionSignal.UNDONE, card("a"))
    assert [(past.chosen, past.weight) for past in decisions.load_after(0)] == [(False, 0.8)]
    with database.read() as session:
        assert decisions.current_signal(session, "a") is DecisionSignal.UNDONE
        assert decisions.count_similar(session, "run_tests", "koji-core", "/shop") == (0, 1)


def test_rejections_in_a_row(database: Database, decisions: Decisions) -> None:
    def in_a_row() -> int:
        with database.read() as session:
            return decisions.consecutive_rejections(session)

    for name in "ab":
        give(database, decisions, DecisionSignal.DISMISSED, card(name))
    give(database, decisions, DecisionSignal.EXPIRED, card("seen"))
    assert in_a_row() == 2
    give(database, decisions, DecisionSignal.APPROVED, card("c"))
    assert in_a_row() == 0
    give(database, decisions, DecisionSignal.DISMISSED, card("d", by=DecidedBy.API))
    assert in_a_row() == 1
    database.write(lambda tx: decisions.take_back(tx, "d"))
    assert in_a_row() == 0


def test_like_cards_are_the_operators_own(database: Database, decisions: Decisions) -> None:
    give(database, decisions, DecisionSignal.APPROVED, card("a"))
    give(database, decisions, DecisionSignal.DISMISSED, card("b"))
    give(database, decisions, DecisionSignal.APPROVED, card("c", by=DecidedBy.API))
    give(database, decisions, DecisionSignal.APPROVED, card("d", channel="garden"))
    give(database, decisions, DecisionSignal.APPROVED, card("e", kind="lint"))
    give(database, decisions, DecisionSignal.EXPIRED, card("f"))
    give(database, decisions, DecisionSignal.DID_HIMSELF, card("g"))
    with database.read() as session:
        assert decisions.count_similar(session, "run_tests", "koji-core", "/shop") == (1, 2)
        assert decisions.count_all(session) == 5

"""Transitions of cards: what each stores and signals, and that only legal ones happen (SPEC 2.7, 8.1)."""

from datetime import timedelta
from itertools import product

import pytest

from engine.clock import FakeClock
from engine.config.settings import Settings
from engine.events import Event, EventBus
from engine.events.work import ChangeSetDiscarded, ChangeSetLanded, LandingUndone
from engine.model import DecidedBy, Refusal, SessionState, Status
from engine.prediction.card_rows import TRANSITIONS, CardRow, Move, compute_next_status
from engine.storage.database import Database
from tests.prediction.deciding import LEGAL_STEPS, DecisionWorld, find_refusal_code
from tests.support import MONDAY_MORNING
from tests.support.checks import refused


def test_the_table_has_exactly_the_legal_steps():
    assert {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after} == LEGAL_STEPS


@pytest.mark.parametrize("status, move", list(product(Status, Move)))
def test_every_other_move_is_refused(status: Status, move: Move):
    columns = {"id": "pred_x", "status": status, "expires_at": MONDAY_MORNING + timedelta(hours=1)}
    row = CardRow(**columns)
    if (status, move) in TRANSITIONS:
        assert compute_next_status(row, move, MONDAY_MORNING) is TRANSITIONS[status, move]
        return
    with pytest.raises(Refusal, match="pred_x") as raised:
        compute_next_status(row, move, MONDAY_MORNING)
    assert raised.value.code == ("nothing_to_undo" if move in (Move.WAKE, Move.REOPEN) else "already_decided")


# Outcomes and signals


MOMENT = timedelta(microseconds=1)

LANDED = ChangeSetLanded(subject="change_1", session_id="session_1", files=1)
UNDONE = LandingUndone(subject="change_1", session_id="session_1")
UNDONE_IN_PART = LandingUndone(subject="change_1", session_id="session_1", left=1)
DISCARDED = ChangeSetDiscarded(subject="change_1", session_id="session_1")


@pytest.mark.parametrize(
    "events, signal",
    [
        ([LANDED, UNDONE], "undone"),
        ([LANDED, UNDONE, LANDED], "approved"),
        ([LANDED, UNDONE_IN_PART], "approved"),
        ([LANDED, UNDONE_IN_PART, UNDONE], "undone"),
        ([DISCARDED, UNDONE], "discarded"),
    ],
)
def test_the_last_decision_on_the_changes_of_a_card_is_its_signal(
    world: DecisionWorld, events: list[Event], signal: str
):
    world.finish_card()
    for event in events:
        world.record_and_follow(event)
    assert world.read_signals() == [signal]


def test_an_approval_that_could_not_run_is_taken_back_and_screens_read_the_phase_again(
    world: DecisionWorld, bus: EventBus
):
    card = world.start_card()
    subscription = bus.subscribe(lambda: None)
    world.sessions.end(card.id, SessionState.CANNOT_RUN)
    assert world.read_signals() == []
    assert "phase" in {topic for event in subscription.drain() for topic in event.topics}


def test_a_result_that_was_reviewed_and_kept_for_a_day_was_wanted(world: DecisionWorld, clock: FakeClock):
    card = world.finish_card(by=DecidedBy.AUTONOMY)
    clock.advance(timedelta(hours=24) - MOMENT)
    world.cards.mark_reviewed(card.id)
    assert world.store.credit_kept() == 0
    clock.advance(MOMENT)
    assert (world.store.credit_kept(), world.store.credit_kept()) == (1, 0)
    assert world.read_signals() == ["kept"]


@pytest.mark.parametrize("verb, signal", [("undo", "undone"), ("dismiss", "dismissed")])
def test_a_check_that_ran_by_itself_can_be_undone_or_dismissed_once(
    world: DecisionWorld, clock: FakeClock, verb: str, signal: str
):
    card = world.finish_card(by=DecidedBy.AUTONOMY)
    clock.advance(timedelta(hours=24))
    world.cards.mark_reviewed(card.id)
    assert world.store.credit_kept() == 1
    getattr(world.cards, verb)(card.id)
    assert world.cards.get(card.id).status is Status.EXECUTED
    assert world.store.credit_kept() == 0
    assert world.read_signals() == [signal]
    assert world.cards.count_similar(card.id) == (0, 1), "it counts against running similar cards by themselves"
    assert find_refusal_code(world.cards.undo, card.id) == "nothing_to_undo"
    assert find_refusal_code(world.cards.dismiss, card.id) == "already_decided"


# Expiry and events


def test_a_card_expires_after_24_hours(world: DecisionWorld, clock: FakeClock):
    card = world.make_card()
    clock.advance(timedelta(hours=24) - MOMENT)
    assert world.store.expire_due() == 0
    clock.advance(MOMENT)
    assert world.cards.list_pending() == []
    assert find_refusal_code(world.cards.approve, card.id) == "already_decided"
    assert world.store.expire_due() == 1
    assert world.cards.get(card.id).status is Status.EXPIRED
    assert world.read_signals() == [], "it was never shown"
    assert find_refusal_code(world.cards.undo, card.id) == "nothing_to_undo"


def test_the_text_of_an_expired_prompt_of_your_own_is_not_lost(world: DecisionWorld, clock: FakeClock):
    card = world.propose("why's cart slow")
    clock.advance(timedelta(hours=24))
    refusal = refused("already_decided", lambda: world.cards.approve(card.id))
    assert refusal.fix == f"propose it again: clawpy --workspace {card.workspace} propose 'why'\"'\"'s cart slow'"


def test_quiet_hours_do_not_count(database: Database, clock: FakeClock):
    card = DecisionWorld(database, clock, Settings(quiet_hours_start=22, quiet_hours_end=7)).make_card()
    assert card.expires_at - card.created_at == timedelta(hours=24 + 9)


def test_a_card_that_was_shown_gives_a_signal_when_it_expires(world: DecisionWorld, clock: FakeClock):
    world.cards.mark_shown([world.make_card().id, "pred_none"])
    clock.advance(timedelta(hours=24))
    world.store.expire_due()
    assert world.read_signals() == ["expired"]

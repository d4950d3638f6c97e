"""Transitions of cards: what each stores and signals, and that only legal ones happen (SPEC 2.7, 8.1)."""

import tempfile
from collections.abc import Iterable
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.clock import FakeClock
from engine.config.settings import Settings
from engine.events import Event, EventBus
from engine.events.work import ChangeSetDiscarded, ChangeSetLanded, LandingUndone
from engine.model import DecidedBy, Outcome, Refusal, SessionState, Source, Status, Tier
from engine.prediction.card_rows import TRANSITIONS, CardRow, Move, compute_next_status
from engine.storage.database import Database
from tests.prediction.deciding import DecisionWorld, find_refusal_code, make_proposal
from tests.support import MONDAY_MORNING
from tests.support.checks import refused

STEPS = {
    (Status.PENDING, Status.APPROVED),
    (Status.PENDING, Status.DISMISSED),
    (Status.PENDING, Status.EXPIRED),
    (Status.APPROVED, Status.EXECUTED),
    (Status.APPROVED, Status.PENDING),
    (Status.DISMISSED, Status.PENDING),
}
"""The changes of a status that SPEC 2.7 allows. The last two are undo."""


def test_the_table_has_exactly_the_legal_steps():
    assert {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after} == STEPS


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


# Any steps


class RandomSteps(RuleBasedStateMachine):
    """An operator who does anything at any time. After every step the rules of cards hold."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock(MONDAY_MORNING)
        self.database = Database(Path(self.folder.name) / "clawpy.db", clock=self.clock, bus=EventBus())
        self.world = DecisionWorld(self.database, self.clock)
        self.status: dict[str, Status] = {}
        """The status of each card after the last step."""

    def teardown(self):
        self.database.close()
        self.folder.cleanup()

    @initialize()
    def begin_with_cards(self):
        self.check(range(7))

    @rule(numbers=st.sets(st.integers(0, 8), max_size=9))
    def check(self, numbers: Iterable[int]):
        proposals = [make_proposal(str(n), tier=Tier(n % 4 + 1), kind=f"kind{n % 5}") for n in sorted(numbers)]
        self.world.check(*proposals)

    @precondition(lambda self: self.status)
    @rule(index=st.integers(0, 40), verb=st.sampled_from(["approve", "dismiss", "snooze", "undo"]))
    def decide(self, index: int, verb: str):
        ids = sorted(self.status)
        try:
            getattr(self.world.cards, verb)(ids[index % len(ids)])
        except Refusal as refusal:
            if refusal.code not in ("already_decided", "nothing_to_undo"):
                raise

    @precondition(lambda self: self.world.sessions.views)
    @rule(index=st.integers(0, 40), state=st.sampled_from([SessionState.SUCCEEDED, SessionState.FAILED]))
    def end_a_session(self, index: int, state: SessionState):
        running = [card for card, view in self.world.sessions.views.items() if not view.state.over]
        if running:
            self.world.sessions.end(running[index % len(running)], state)

    @rule(is_queued=st.booleans())
    def queue_new_sessions(self, is_queued: bool):
        self.world.sessions.is_full = is_queued

    @rule()
    def show_cards(self):
        self.world.cards.mark_shown([card.id for card in self.world.cards.list_pending()])

    @rule(hours=st.sampled_from([1, 3, 25]))
    def wait(self, hours: int):
        self.clock.advance(timedelta(hours=hours))
        self.world.store.expire_due()

    @rule()
    def type_a_prompt(self):
        self.world.propose("run_tests")

    @invariant()
    def only_legal_steps(self):
        for card in self.world.cards.list_recent(1000):
            before = self.status.get(card.id, Status.PENDING)
            assert before is card.status or (before, card.status) in STEPS, f"{before} -> {card.status}"
            self.status[card.id] = card.status

    @invariant()
    def at_most_five(self):
        shown = [card for card in self.world.cards.list_pending() if card.source is not Source.OPERATOR]
        assert len(shown) <= 5

    @invariant()
    def one_signal_a_card(self):
        cards = [decision.prediction_id for decision in self.world.decisions.load_newest(1000)]
        assert len(cards) == len(set(cards))

    @invariant()
    def the_signal_agrees_with_the_status(self):
        signals = {decision.prediction_id: decision.signal for decision in self.world.decisions.load_newest(1000)}
        for card in self.world.cards.list_recent(1000):
            expected = {
                Status.PENDING: (None,),
                Status.DISMISSED: ("dismissed",),
                Status.APPROVED: ("approved",),
                Status.EXECUTED: ("undone" if card.outcome is Outcome.CANCELLED else "approved",),
                Status.EXPIRED: (None, "expired", "did_himself") if card.shown_at else (None,),
            }
            assert signals.get(card.id) in expected[card.status]


TestRandomSteps = RandomSteps.TestCase
TestRandomSteps.settings = settings(max_examples=8, stateful_step_count=25, suppress_health_check=list(HealthCheck))


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


# Expiry, events and refused rows


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

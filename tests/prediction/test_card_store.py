"""Transitions of cards: what each stores and signals, and that only legal ones happen (SPEC 2.7, 8.1)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy.exc import IntegrityError

from engine.clock import FakeClock
from engine.config import Settings
from engine.events import ChangeSetDiscarded, ChangeSetLanded, EventBus, LandingUndone
from engine.model import (
    Card,
    DecidedBy,
    Outcome,
    Refusal,
    SessionState,
    Source,
    Status,
    Tier,
)
from engine.prediction.card_rows import Prediction
from engine.storage.database import Database
from tests.conftest import MONDAY_MORNING
from tests.prediction.deciding import SHOP, World, proposal, refusal

STEPS = {
    (Status.PENDING, Status.CONFIRMED),
    (Status.PENDING, Status.REJECTED),
    (Status.PENDING, Status.EXPIRED),
    (Status.CONFIRMED, Status.EXECUTED),
    (Status.CONFIRMED, Status.PENDING),
    (Status.REJECTED, Status.PENDING),
}
"""What SPEC 2.7 allows; the last two are undo."""


class Operator(RuleBasedStateMachine):
    """An operator who does anything at any time; after every step the rules of the house still hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock(MONDAY_MORNING)
        self.database = Database(Path(self.folder.name) / "clawpy.db", clock=self.clock, bus=EventBus())
        self.world = World(self.database, self.clock)
        self.status: dict[str, Status] = {}

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    def pick(self, number: int) -> str:
        ids = sorted(self.status)
        return ids[number % len(ids)]

    def attempt(self, call: object, *arguments: object) -> None:
        try:
            call(*arguments)  # type: ignore[operator]
        except Refusal as refusal:
            if refusal.code not in ("already_decided", "nothing_to_undo"):
                raise

    @initialize()
    def first(self) -> None:
        self.sense(range(7))

    @rule(names=st.sets(st.integers(0, 8), max_size=9))
    def sense(self, names: Iterable[int]) -> None:
        made = [(name, Tier(name % 4 + 1)) for name in sorted(names)]
        self.world.see(*(proposal(str(name), tier=tier, kind=f"kind{name % 5}") for name, tier in made))

    @precondition(lambda self: self.status)
    @rule(number=st.integers(0, 40), verb=st.sampled_from(["approve", "dismiss", "snooze", "undo"]))
    def decide(self, number: int, verb: str) -> None:
        self.attempt(getattr(self.world.cards, verb), self.pick(number))

    @precondition(lambda self: self.world.bench.sessions)
    @rule(number=st.integers(0, 40), state=st.sampled_from([SessionState.SUCCEEDED, SessionState.FAILED]))
    def end(self, number: int, state: SessionState) -> None:
        running = [card for card, view in self.world.bench.sessions.items() if not view.state.over]
        if running:
            self.world.bench.end(running[number % len(running)], state)

    @rule(held=st.booleans())
    def hold(self, held: bool) -> None:
        self.world.bench.hold = held

    @rule()
    def show(self) -> None:
        self.world.cards.mark_shown([card.id for card in self.world.cards.pending()])

    @rule(hours=st.sampled_from([1, 3, 25]))
    def wait(self, hours: int) -> None:
        self.clock.advance(timedelta(hours=hours))
        self.world.cards.expire_due()

    @rule()
    def own(self) -> None:
        self.world.cards.propose("run_tests", workspace=SHOP)

    @invariant()
    def only_legal_steps(self) -> None:
        for card in self.world.cards.recent(1000):
            before = self.status.get(card.id, Status.PENDING)
            # One rule may take several steps (an undone approval starts at confirmed and ends at executed).
            legal = before is card.status or (before, card.status) in STEPS
            assert legal, f"{before} -> {card.status}"
            self.status[card.id] = card.status

    @invariant()
    def at_most_five(self) -> None:
        shown = [card for card in self.world.cards.pending() if card.source is not Source.OPERATOR]
        assert len(shown) <= 5

    @invariant()
    def one_standing_signal_a_card(self) -> None:
        said = [view.prediction_id for view in self.world.decisions.load_newest(1000)]
        assert len(said) == len(set(said))

    @invariant()
    def what_stands_agrees_with_the_status(self) -> None:
        told = {view.prediction_id: view.signal for view in self.world.decisions.load_newest(1000)}
        for card in self.world.cards.recent(1000):
            signal = told.get(card.id)
            match card.status:
                case Status.PENDING:
                    assert signal is None
                case Status.REJECTED:
                    assert signal == "dismissed"
                case Status.CONFIRMED:
                    assert signal == "approved"
                case Status.EXECUTED:
                    assert signal == ("undone" if card.outcome is Outcome.CANCELLED else "approved")
                case Status.EXPIRED:
                    assert signal in (None, "expired", "did_himself")
                    assert card.shown_at is not None or signal is None


Operator.TestCase.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


TestOperator = Operator.TestCase


MOMENT = timedelta(microseconds=1)


def test_a_discarded_change_set_is_a_rejection_once(world: World, database: Database) -> None:
    card = world.card()
    world.cards.approve(card.id)
    world.bench.end(card.id)
    database.write(lambda tx: tx.record(ChangeSetDiscarded(subject="change_1", session_id="session_1")))
    world.cards.follow_landings()
    database.write(lambda tx: tx.record(LandingUndone(subject="change_1", session_id="session_1")))
    world.cards.follow_landings()
    assert world.signals() == ["discarded"]


def test_what_was_undone_and_landed_again_is_approved(world: World, database: Database) -> None:
    card = world.card()
    world.cards.approve(card.id)
    world.bench.end(card.id)
    landed = ChangeSetLanded(subject="change_1", session_id="session_1", files=1)
    undone = LandingUndone(subject="change_1", session_id="session_1")
    for facts, signals in (
        ((landed,), ["approved"]),
        ((undone,), ["undone"]),
        ((landed,), ["approved"]),
        ((undone, landed, undone), ["undone"]),
    ):
        for fact in facts:
            database.write(lambda tx, fact=fact: tx.record(fact))
        world.cards.follow_landings()
        assert world.signals() == signals


def test_a_landing_undone_in_part_is_no_rejection(world: World, database: Database) -> None:
    card = world.card()
    world.cards.approve(card.id)
    world.bench.end(card.id)
    for left, signals in ((1, ["approved"]), (0, ["undone"])):
        undone = LandingUndone(subject="change_1", session_id="session_1", left=left)
        database.write(lambda tx, undone=undone: tx.record(undone))
        world.cards.follow_landings()
        assert world.signals() == signals


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (SessionState.SUCCEEDED, Outcome.SUCCEEDED),
        (SessionState.FAILED, Outcome.FAILED),
        (SessionState.CANCELLED, Outcome.CANCELLED),
        (SessionState.CANNOT_RUN, Outcome.CANNOT_RUN),
        (SessionState.BLOCKED, Outcome.BLOCKED),
        (SessionState.INTERRUPTED, Outcome.FAILED),
    ],
)
def test_the_end_of_the_session_is_the_outcome(world: World, state: SessionState, outcome: Outcome) -> None:
    card = world.cards.approve(world.card().id)
    world.bench.end(card.id, state)
    ended = world.cards.get(card.id)
    assert (ended.status, ended.outcome) == (Status.EXECUTED, outcome)


def test_consoles_count_anew_when_an_approval_could_not_run(world: World, bus: EventBus) -> None:
    card = world.cards.approve(world.card().id)
    heard = bus.subscribe(lambda: None)
    world.bench.end(card.id, SessionState.CANNOT_RUN)
    assert world.signals() == []
    assert "phase" in {topic for event in heard.drain() for topic in event.topics}


def ran_by_itself(world: World, name: str = "a") -> Card:
    world.cards.approve(world.card(name).id, by=DecidedBy.AUTONOMY)
    card = world.cards.recent()[0]
    world.bench.end(card.id)
    return card


def test_what_ran_by_itself_was_looked_at_and_stands_for_a_day_was_wanted(world: World, clock: FakeClock) -> None:
    card = ran_by_itself(world)
    clock.advance(timedelta(hours=24) - MOMENT)
    world.cards.mark_reviewed(card.id)
    assert world.cards.store.credit_kept() == 0
    clock.advance(MOMENT)
    assert (world.cards.store.credit_kept(), world.cards.store.credit_kept()) == (1, 0)
    assert world.signals() == ["kept"]


@pytest.mark.parametrize(("complain", "signal"), [("undo", "undone"), ("dismiss", "dismissed")])
@pytest.mark.parametrize("kept", [False, True])
def test_a_check_that_ran_by_itself_can_be_complained_of_once(
    world: World, clock: FakeClock, complain: str, signal: str, kept: bool
) -> None:
    card = ran_by_itself(world)
    if kept:
        clock.advance(timedelta(hours=24))
        world.cards.mark_reviewed(card.id)
        assert world.cards.store.credit_kept() == 1
    assert getattr(world.cards, complain)(card.id).status is Status.EXECUTED
    clock.advance(timedelta(hours=25))
    assert world.cards.store.credit_kept() == 0
    assert world.signals() == [signal]
    assert world.cards.similar(card.id) == (0, 1), "it weighs against running the like by itself"
    assert refusal(world.cards.undo, card.id) == "nothing_to_undo"
    assert refusal(world.cards.dismiss, card.id) == "already_decided"


def test_what_nobody_looked_at_counts_nothing(world: World, clock: FakeClock) -> None:
    card = ran_by_itself(world)
    world.cards.mark_shown([card.id])
    clock.advance(timedelta(hours=25))
    assert world.cards.store.credit_kept() == 0
    assert world.signals() == []
    world.cards.mark_reviewed(card.id)  # later than a day is no hindrance
    assert world.cards.store.credit_kept() == 1


def test_a_card_expires_after_24_hours(world: World, clock: FakeClock) -> None:
    card = world.card()
    clock.advance(timedelta(hours=24) - MOMENT)
    assert world.cards.expire_due() == 0
    clock.advance(MOMENT)
    assert world.cards.pending() == []
    assert refusal(world.cards.approve, card.id) == "already_decided"
    assert world.cards.expire_due() == 1
    assert world.cards.get(card.id).status is Status.EXPIRED
    assert world.signals() == [], "it was never shown"
    assert refusal(world.cards.undo, card.id) == "nothing_to_undo"


def test_quiet_hours_do_not_count(database: Database, clock: FakeClock) -> None:
    card = World(database, clock, Settings(quiet_hours_start=22, quiet_hours_end=7)).card()
    assert card.expires_at - card.created_at == timedelta(hours=24 + 9)


def test_one_that_was_shown_says_a_little_when_it_expires(world: World, clock: FakeClock) -> None:
    world.cards.mark_shown([world.card().id, "pred_none"])
    clock.advance(timedelta(hours=24))
    world.cards.expire_due()
    assert world.signals() == ["expired"]


def test_every_transition_is_a_fact(world: World, bus: EventBus) -> None:
    heard = bus.subscribe(lambda: None)
    card = world.card()
    world.cards.snooze(card.id)
    world.cards.undo(card.id)
    world.cards.dismiss(card.id)
    world.cards.undo(card.id)
    world.cards.approve(card.id)
    world.bench.end(card.id)
    assert [event.kind for event in heard.drain()] == [
        "PredictionCreated", "CycleFinished", "PredictionSnoozed", "PredictionReopened", "PredictionRejected",
        "PredictionReopened", "PredictionConfirmed", "PredictionExecuted",
    ]  # fmt: skip


def test_two_pending_cards_are_never_about_the_same(database: Database, clock: FakeClock) -> None:
    first, second = World(database, clock).see(proposal("a"), proposal("b"))

    def spoil(tx: Any) -> None:
        tx.session.get(Prediction, second.id).subject = tx.session.get(Prediction, first.id).subject
        tx.session.flush()

    with pytest.raises(IntegrityError):
        database.write(spoil)


SITE, DAY = "/site", timedelta(days=1)


def test_the_cards_of_a_deleted_workspace_are_withdrawn_at_the_next_cycle(world: World) -> None:
    gone: set[str] = set()
    world.store._deleted = gone.__contains__
    world.workspaces = [SHOP, SITE]
    kept, lost = world.see(proposal("a"), proposal("b", workspace=SITE))
    own = world.cards.propose("look around", workspace=SITE)
    gone.add(SITE)
    world.workspaces = [SHOP]
    world.see(proposal("a"))
    assert [card.id for card in world.cards.pending()] == [kept.id]
    assert {world.cards.get(item.id).note for item in (lost, own)} == {"its workspace was deleted"}
    assert world.signals() == []

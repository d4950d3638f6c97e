"""An operator who does anything at any time: the rules of cards hold after every step (SPEC 2.7, 8.1)."""

import tempfile
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.clock import FakeClock
from engine.events import EventBus
from engine.model import Outcome, Refusal, SessionState, Source, Status, Tier
from engine.storage.database import Database
from tests.prediction.deciding import LEGAL_STEPS, DecisionWorld, make_proposal
from tests.support import MONDAY_MORNING


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
        running = [card for card, view in self.world.sessions.views.items() if not view.state.is_over]
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
            assert before is card.status or (before, card.status) in LEGAL_STEPS, f"{before} -> {card.status}"
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

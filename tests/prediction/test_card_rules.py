"""SPEC 7.3, 2.7: quiet hours across midnight and changes of the clock, against one that steps by quarter hours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.clock import FakeClock
from engine.events import EventBus
from engine.model import Outcome, Refusal, SessionState, Source, Status, Tier
from engine.prediction.card_rules import TRANSITIONS, Move, add_active_time, is_quiet, next_status
from engine.storage.database import Database
from tests.conftest import MONDAY_MORNING
from tests.prediction.deciding import SHOP, World, proposal

# Only legal transitions, one decision each, never more than five: whatever the operator does (SPEC 2.7, 2.9).


STEPS = {
    (Status.PENDING, Status.CONFIRMED),
    (Status.PENDING, Status.REJECTED),
    (Status.PENDING, Status.EXPIRED),
    (Status.CONFIRMED, Status.EXECUTED),
    (Status.CONFIRMED, Status.PENDING),
    (Status.REJECTED, Status.PENDING),
}
"""What SPEC 2.7 allows; the last two are undo."""


def test_the_table_holds_exactly_the_legal_steps() -> None:
    assert {(before, now) for (before, _), now in TRANSITIONS.items() if before is not now} == STEPS


@pytest.mark.parametrize(("status", "move"), list(product(Status, Move)))
def test_everything_else_is_refused_in_words(status: Status, move: Move) -> None:
    if (status, move) in TRANSITIONS:
        assert next_status("pred_x", status, move) is TRANSITIONS[status, move]
        return
    with pytest.raises(Refusal, match="pred_x") as refused:
        next_status("pred_x", status, move)
    assert refused.value.code == ("nothing_to_undo" if move in (Move.WAKE, Move.REOPEN) else "already_decided")


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


BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
CLOCK_CHANGES = [
    (BERLIN, datetime(2026, 3, 29, tzinfo=UTC)), (BERLIN, datetime(2026, 10, 25, tzinfo=UTC)),
    (NEW_YORK, datetime(2026, 3, 8, tzinfo=UTC)), (NEW_YORK, datetime(2026, 11, 1, tzinfo=UTC)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("clock", "quiet"),
    [("22:59", False), ("23:00", True), ("00:00", True), ("07:59", True), ("08:00", False), ("12:00", False)],
)
def test_the_night_is_quiet(clock: str, quiet: bool) -> None:
    local = datetime.fromisoformat(f"2026-01-05T{clock}").replace(tzinfo=BERLIN)
    assert is_quiet(local, 23, 8) is quiet


def test_quiet_hours_within_a_day_and_none_at_all() -> None:
    before_two = datetime(2026, 1, 5, 13, 59, tzinfo=BERLIN)
    assert is_quiet(before_two, 12, 14)
    assert not is_quiet(before_two, 14, 15)
    assert not is_quiet(before_two, 13, 13)


@pytest.mark.parametrize(("day", "hours"), [("2026-03-28", 8), ("2026-10-24", 10), ("2026-06-01", 9)])
def test_the_night_of_a_change_is_shorter_or_longer(day: str, hours: int) -> None:
    start = datetime.fromisoformat(f"{day}T23:00").replace(tzinfo=BERLIN).astimezone(UTC)
    assert add_active_time(start, timedelta(minutes=1), BERLIN, 23, 8) - start == timedelta(hours=hours, minutes=1)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CLOCK_CHANGES),
    st.integers(-36 * 4, 36 * 4),
    st.integers(1, 30 * 4),
    st.integers(0, 23),
    st.integers(0, 23),
)
def test_it_agrees_with_a_clock_that_steps_by_quarter_hours(
    change: tuple[ZoneInfo, datetime], offset: int, quarters: int, start: int, end: int
) -> None:
    zone, day = change
    begin = day + timedelta(minutes=15 * offset)
    now, remaining = begin, quarters
    while remaining > 0:
        if not is_quiet(now.astimezone(zone), start, end):
            remaining -= 1
        now += timedelta(minutes=15)
    assert add_active_time(begin, timedelta(minutes=15 * quarters), zone, start, end) == now


@pytest.mark.parametrize(("hour", "then"), [(22, 22), (23, 32)])
def test_no_time_at_all_is_over_at_once_or_when_the_night_ends(hour: int, then: int) -> None:
    midnight = datetime(2026, 1, 5, tzinfo=UTC)
    passed = add_active_time(midnight + timedelta(hours=hour), timedelta(0), UTC, 23, 8)
    assert passed == midnight + timedelta(hours=then)

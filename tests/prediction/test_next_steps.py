"""The next step of a session (SPEC 2.10): the card that follows when it ends."""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.model import CheckResult, Proposal, Source, Status, TriggerType
from engine.safety.trigger_history import find_chain_start
from tests.prediction.deciding import DecisionWorld, make_proposal, make_proposals
from tests.support.sessions import make_session_ended

RED = CheckResult("pytest", passed=3, failed=1)


def fail_tests(world: DecisionWorld, name: str = "a", *others: Proposal):
    """Run the tests of `name`, which fail. Cards for the `others` stay pending."""
    created = world.check(make_proposal(name), *others)
    card = world.cards.approve(next(card.id for card in created if card.kind == "run_tests"))
    world.sessions.end(card.id)
    view = world.sessions.views[card.id] = replace(world.sessions.views[card.id], check=RED)
    event = make_session_ended(view.id)
    world.database.write(lambda tx: tx.record(event))


BROKEN_TEST = make_proposal("broken", kind="bisect")


def test_failed_tests_lead_to_one_card_that_takes_no_place(world: DecisionWorld):
    five = make_proposals(*"vwxyz")
    fail_tests(world, "a", *five[1:])
    world.proposals = [*five, BROKEN_TEST, make_proposal("other", kind="hunt_flakes")]
    [card] = world.checks.follow_up()
    assert (card.kind, card.source, card.status) == ("bisect", Source.FOLLOW_UP, Status.PENDING)
    assert world.checks.follow_up() == []
    assert len(world.checks.run().created) == 1
    assert len(world.cards.list_pending()) == 5 + 1


def test_a_next_step_comes_from_the_channel_of_the_session_before_it(world: DecisionWorld):
    fail_tests(world)
    world.proposals = [BROKEN_TEST]
    [card] = world.checks.follow_up()
    world.cards.trigger(card.id, by="gateway")
    [_, trigger] = world.rails.triggers
    assert (trigger.type, trigger.from_channel) == (TriggerType.FOLLOW_UP, "koji-core")
    assert find_chain_start(trigger) == "koji-core", "it is a link of the chain (SPEC 3.3)"


def test_nothing_follows_during_a_stop_and_nothing_is_lost_by_it(world: DecisionWorld):
    fail_tests(world)
    world.proposals = [BROKEN_TEST]
    world.stop_reason = "stopped from outside"
    assert world.checks.follow_up() == []
    world.stop_reason = ""
    assert len(world.checks.follow_up()) == 1


@pytest.mark.parametrize("age, cards", [(timedelta(hours=24), 1), (timedelta(hours=24, seconds=1), 0)])
def test_nothing_follows_a_session_that_ended_more_than_a_day_ago(
    world: DecisionWorld, clock: FakeClock, age: timedelta, cards: int
):
    fail_tests(world)
    clock.advance(age)
    world.proposals = [BROKEN_TEST]
    assert len(world.checks.follow_up()) == cards

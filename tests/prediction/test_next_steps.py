"""The next step of a session (SPEC 2.10): the card that follows when it ends, and what is read again then."""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.events import ChangeSetLanded
from engine.model import (
    CheckResult,
    Proposal,
    SessionState,
    SessionView,
    Source,
    Status,
    Tier,
)
from engine.prediction.kinds import FIX_BY_AGENT, FOLLOW_UPS_OF_FAILED_TESTS, find_next_kinds
from tests.prediction.deciding import SHOP, DecisionWorld, make_proposal, make_proposals
from tests.prediction.sensing import make_session
from tests.support.helpers import make_session_ended

RED, GREEN = CheckResult("pytest", passed=3, failed=1), CheckResult("pytest", passed=4, failed=0)
BROKEN = CheckResult("pytest", passed=0, failed=0, errors=1)


def fail_tests(world: DecisionWorld, name: str = "a", *others: Proposal):
    """Run the tests of `name`, which fail. Cards for the `others` stay pending."""
    created = world.check(make_proposal(name), *others)
    card = world.cards.approve(next(card.id for card in created if card.kind == "run_tests"))
    world.sessions.end(card.id)
    view = world.sessions.views[card.id] = replace(world.sessions.views[card.id], check=RED)
    event = make_session_ended(view.id)
    world.database.write(lambda tx: tx.record(event))


@pytest.mark.parametrize(
    "view, kinds",
    [
        (make_session(check=RED), FOLLOW_UPS_OF_FAILED_TESTS),
        (make_session(check=BROKEN), FOLLOW_UPS_OF_FAILED_TESTS),
        (make_session("bisect", check=RED), tuple(kind for kind in FOLLOW_UPS_OF_FAILED_TESTS if kind != "bisect")),
        (make_session(check=GREEN), ()),
        (make_session(check=CheckResult("pytest", passed=0, failed=0)), ()),
        (make_session("lint"), ()),
        (make_session("lint", next_step="fix_lint"), ("fix_lint",)),
        (make_session("fix_lint"), (FIX_BY_AGENT,)),
        (make_session("lint", state=SessionState.FAILED), ()),
        (make_session(None), ()),
    ],
)
def test_kinds_that_may_follow_a_session(view: SessionView, kinds: tuple[str, ...]):
    assert find_next_kinds(view) == kinds


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


def test_a_follow_up_that_was_dismissed_or_done_lately_gives_way_to_the_next_kind(world: DecisionWorld):
    done, dismissed = make_proposal("done", kind="bisect"), make_proposal("dismissed", kind="hunt_flakes")
    by_kind = {card.kind: card.id for card in world.check(done, dismissed)}
    world.cards.approve(by_kind["bisect"])
    world.sessions.end(by_kind["bisect"])
    world.cards.dismiss(by_kind["hunt_flakes"])
    fail_tests(world)
    world.proposals = [done, dismissed, make_proposal("red", kind="still_red")]
    assert [card.kind for card in world.checks.follow_up()] == ["still_red"]


def test_a_card_keeps_its_place_in_a_round_that_makes_one_next_step(world: DecisionWorld):
    before = make_proposal("files", kind="lint", parameters={"paths": ["a"]})
    fail_tests(world, "t", before)
    [card] = world.cards.list_pending()
    after = make_proposal("files", kind="lint", parameters={"paths": ["a", "b"]}, reasoning="two files changed")
    world.proposals = [after, BROKEN_TEST]
    assert [follow_up.kind for follow_up in world.checks.follow_up()] == ["bisect"]
    assert world.cards.get(card.id) == card, "it makes way in the next check, which can make the other card"
    assert [new.assignment.parameters for new in world.check(after, BROKEN_TEST)] == [{"paths": ["a", "b"]}]


def test_no_card_is_made_only_to_make_room_for_one_that_cannot_run(world: DecisionWorld):
    blocked = make_proposal("task", kind="blocked_task", flow=None, tier=Tier.BLOCKS)
    world.proposals = [*make_proposals(*"vwxyz"), blocked]
    report = world.checks.run()
    assert {card.id for card in report.created} == {card.id for card in world.cards.list_pending()}
    assert (len(report.created), report.withdrawn) == (5, ())


def test_a_next_step_comes_from_the_channel_of_the_session_before_it(world: DecisionWorld):
    fail_tests(world)
    world.proposals = [BROKEN_TEST]
    [card] = world.checks.follow_up()
    world.cards.trigger(card.id, by="gateway")
    assert world.rails.triggers[-1].from_channel == "koji-core"


def test_a_session_that_is_gone_leads_to_nothing(world: DecisionWorld):
    event = make_session_ended("session_gone")
    world.database.write(lambda tx: tx.record(event))
    fail_tests(world)
    world.proposals = [BROKEN_TEST]
    assert [card.kind for card in world.checks.follow_up()] == ["bisect"]


@pytest.mark.parametrize("checked_next, is_read", [((), True), ((SHOP,), False)])
def test_a_workspace_where_changes_were_decided_is_read_unless_it_is_checked_next(
    world: DecisionWorld, clock: FakeClock, checked_next: tuple[str, ...], is_read: bool
):
    card = world.make_card()
    clock.advance(timedelta(minutes=1))
    landed = ChangeSetLanded(subject="change_1", workspace=SHOP, session_id="session_1", files=1)
    world.database.write(lambda tx: tx.record(landed))
    world.proposals = [make_proposal("new")]
    assert world.checks.follow_up(checked_next) == [], "it makes no card"
    assert (world.checks.read_last_checked()[SHOP] == clock.now()) is is_read
    assert (world.cards.get(card.id).status is Status.EXPIRED) is is_read


def test_a_pending_card_for_the_same_is_the_follow_up(world: DecisionWorld):
    fail_tests(world, "a", BROKEN_TEST)
    [card] = world.cards.list_pending()
    world.proposals = [BROKEN_TEST, make_proposal("red", kind="still_red")]
    assert world.checks.follow_up() == []
    assert world.cards.get(card.id).status is Status.PENDING


def test_nothing_follows_during_a_stop_and_nothing_is_lost_by_it(world: DecisionWorld):
    fail_tests(world)
    world.proposals = [BROKEN_TEST]
    world.stop_reason = "stopped from outside"
    assert world.checks.follow_up() == []
    world.stop_reason = ""
    assert len(world.checks.follow_up()) == 1


def test_a_stopped_session_has_its_workspace_read_again(world: DecisionWorld, clock: FakeClock):
    [created] = world.check(make_proposal("a"))
    card = world.cards.approve(created.id)
    world.sessions.end(card.id)
    view = world.sessions.views[card.id] = replace(world.sessions.views[card.id], state=SessionState.CANCELLED)
    clock.advance(timedelta(minutes=1))
    event = make_session_ended(view.id, "cancelled")
    world.database.write(lambda tx: tx.record(event))
    world.checks.follow_up()
    assert world.checks.read_last_checked()[view.workspace] == clock.now()


@pytest.mark.parametrize("age, cards", [(timedelta(hours=24), 1), (timedelta(hours=24, seconds=1), 0)])
def test_nothing_follows_a_session_that_ended_more_than_a_day_ago(
    world: DecisionWorld, clock: FakeClock, age: timedelta, cards: int
):
    fail_tests(world)
    clock.advance(age)
    world.proposals = [BROKEN_TEST]
    assert len(world.checks.follow_up()) == cards

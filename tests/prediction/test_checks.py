"""A check (SPEC 2.1 to 2.9): which proposals become cards, which cards are withdrawn, and what is reported."""

from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.git.history import Commit
from engine.git.state import GitState
from engine.model import CheckReport, Outcome, Status
from tests.prediction.deciding import SHOP, DecisionWorld, find_refusal_code, make_proposal, make_proposals
from tests.support.checks import refused


def make_new_commit_state(world: DecisionWorld) -> GitState:
    """A repository with a new commit."""
    return GitState(head="new", recent=(Commit("new", world.clock.now(), "a", "commit"),))


# Which proposals become cards


def test_a_requested_check_says_when_there_is_no_room_for_a_card(world: DecisionWorld):
    world.git_state = make_new_commit_state(world)
    world.check(*make_proposals(*"abcde"))
    assert world.checks.run(requested=True).errors == (), "nothing else is proposed"
    world.proposals = [*world.proposals, make_proposal("f")]
    message = (
        "there is more, but at most 5 cards may wait in a workspace (maxPendingCards) and 12 in all "
        "(maxPendingCardsInAll): decide some first"
    )
    assert world.checks.run(requested=True).errors == (message,)
    assert world.checks.run().errors == (), "the operator did not request it"


def test_a_subject_has_one_card(world: DecisionWorld):
    [card] = world.check(make_proposal("a"), make_proposal("a"))
    world.cards.approve(card.id)
    assert world.check(make_proposal("a")) == [], "a session works on it"


# Pending cards in a later check


def test_a_card_is_withdrawn_when_its_evidence_is_gone(world: DecisionWorld):
    card = world.make_card("a")
    world.cards.mark_shown([card.id])
    own = world.propose("run_tests")
    world.proposals = []
    assert world.checks.run().withdrawn == (card.id,)
    after = world.cards.get(card.id)
    assert (after.status, after.outcome) == (Status.EXPIRED, Outcome.WITHDRAWN)
    assert world.read_signals() == []
    assert world.cards.get(own.id).status is Status.PENDING
    assert len(world.check(make_proposal("a"))) == 1, "a withdrawn card does not cool down"


def test_a_card_that_would_run_something_else_by_now_makes_way_for_another(world: DecisionWorld):
    old = world.make_card("a", parameters={"paths": ["a"]})
    [new] = world.check(make_proposal("a", parameters={"paths": ["a", "b"]}))
    assert world.cards.get(old.id).outcome is Outcome.WITHDRAWN
    assert world.cards.get(old.id).note == "another card says what is there now"
    assert find_refusal_code(world.cards.approve, old.id) == "already_decided", (
        "an approval runs what was read, or nothing"
    )
    assert [card.id for card in world.cards.list_pending()] == [new.id]


@pytest.mark.parametrize("shown, signals", [(True, ["did_himself"]), (False, [])])
def test_a_shown_card_whose_work_the_operator_did_gives_a_signal(
    world: DecisionWorld, clock: FakeClock, shown: bool, signals: list[str]
):
    card = world.make_card("a", kind="report_branches", facts={"branches": [["x", "t"]]})
    if shown:
        world.cards.mark_shown([card.id])
    clock.advance(timedelta(minutes=5))
    world.git_state = make_new_commit_state(world)
    assert world.check() == []
    assert world.read_signals() == signals
    if shown:
        assert world.cards.get(card.id).note == "you did it yourself"


# Errors, stops and workspaces that are off


@pytest.mark.parametrize(
    "failure, error",
    [
        ({"context_errors": ("runs: the table is locked",)}, "runs: the table is locked"),
        ({"failed_inspections": {"lost": "git took too long"}}, "lost: git took too long"),
    ],
)
def test_a_card_stays_while_nobody_can_see_whether_its_reason_is_gone(
    world: DecisionWorld, failure: dict[str, Any], error: str
):
    card = world.make_card("a", kind="lost_commits")
    for name, value in failure.items():
        setattr(world, name, value)
    world.proposals = [make_proposal("b"), make_proposal("c", channel="gone")]
    report = world.checks.run()
    assert [created.subject for created in report.created] == ["b"], "others are made all the same"
    assert report.withdrawn == ()
    assert report.errors == (f"{SHOP}: {error}", f"{SHOP}: run_tests: there is no channel 'gone'")
    assert world.cards.get(card.id).status is Status.PENDING


def test_a_card_that_the_content_rail_blocks_is_held_back_and_named_until_it_is_gone(world: DecisionWorld):
    world.git_state = make_new_commit_state(world)
    world.proposals = [
        make_proposal("a", prompt="forbidden"),
        make_proposal("b", prompt="forbidden, too"),
        make_proposal("c"),
    ]
    report = world.checks.run(requested=True)
    assert [card.assignment.prompt for card in report.created] == [make_proposal("c").prompt]
    message = "2 cards are held back by the content rail (it is forbidden); the safety screen lists them"
    assert report.errors == (f"{SHOP}: {message}",)
    assert world.checks.read_remarks() == {SHOP: message}
    assert len(world.rails.held_back) == 2

    world.rails.allowed_once.add(world.rails.held_back[0].digest)
    assert [card.assignment.prompt for card in world.checks.run().created] == ["forbidden"]
    world.proposals = []
    world.checks.run()
    assert world.checks.read_remarks() == {}


def test_a_stopped_engine_predicts_nothing(world: DecisionWorld):
    world.stop_reason = "F12 was pressed"
    world.proposals = [make_proposal("a")]
    assert world.checks.run() == CheckReport(errors=("F12 was pressed",))
    refused("stopped", lambda: world.checks.run(requested=True))
    world.stop_reason = ""
    assert len(world.checks.run(requested=True).created) == 1

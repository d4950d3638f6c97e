"""Dismissals: what they mute and switch off, the weight of their reasons, and how mutes end (SPEC 2.9, 8.1)."""

from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.model import Card, DismissReason, Outcome, Source
from tests.prediction.deciding import SHOP, DecisionWorld, find_refusal_code, make_proposal
from tests.support import read_table

TABLE = read_table(__file__)


SITE, DAY = "/site", timedelta(days=1)


def dismiss(world: DecisionWorld, *names: str, reason: DismissReason | None = None, kind: str = "lint") -> list[Card]:
    """Make and dismiss cards about these subjects."""
    return [world.cards.dismiss(world.make_card(name, kind=kind).id, reason=reason) for name in names]


def test_a_dismissed_subject_is_muted_for_seven_days_and_then_for_fourteen(world: DecisionWorld, clock: FakeClock):
    dismiss(world, "main")
    for number, days in enumerate((7, 14)):
        clock.advance(days * DAY - timedelta(minutes=1))
        new_commit = {"head": number}
        assert world.check(make_proposal("main", kind="lint", facts=new_commit)) == []
        clock.advance(timedelta(minutes=1))
        world.cards.dismiss(world.make_card("main", kind="lint", facts=new_commit).id)


def test_the_third_dismissal_of_a_kind_switches_it_off_and_says_so(world: DecisionWorld, clock: FakeClock):
    first, second, third = dismiss(world, "a", "b", "c")
    assert (first.note, second.note) == ("", "")
    assert third.note == "cards “Lint of what changed” are switched off in shop: dismissed 3 times"
    clock.advance(400 * DAY)
    assert world.check(make_proposal("d", kind="lint")) == []
    (kind,) = world.cards.list_mutes()
    assert (kind.kind, kind.workspace, kind.subject, kind.until) == ("lint", SHOP, "", None)


@pytest.mark.parametrize("reason, elsewhere", [("never-here", 1), ("never-anywhere", 0)])
def test_the_reason_never_switches_a_kind_off_here_or_everywhere(world: DecisionWorld, reason: str, elsewhere: int):
    world.workspaces = [SHOP, SITE]
    first, second = world.check(make_proposal("a", kind="lint"), make_proposal("b", kind="lint"))
    assert "switched off" in world.cards.dismiss(first.id, reason=DismissReason(reason)).note
    assert world.cards.get(second.id).outcome is Outcome.WITHDRAWN
    assert world.read_signals() == ["dismissed"], "a withdrawn card gives no signal"
    assert len(world.check(make_proposal("c", kind="lint", workspace=SITE))) == elsewhere


@pytest.mark.parametrize("reason, weights", TABLE["reasons"])
def test_the_weight_of_a_dismissal_is_that_of_the_reason_given_later(
    world: DecisionWorld, reason: str, weights: list[float]
):
    card = world.make_card("a")
    assert find_refusal_code(world.cards.explain, card.id, DismissReason(reason)) == "not_dismissed"
    world.cards.dismiss(card.id)
    assert [decision.weight for decision in world.decisions.load_newest()] == [1.0]
    world.cards.explain(card.id, DismissReason(reason))
    assert [decision.weight for decision in world.decisions.load_newest()] == weights
    assert [mute.reason for mute in world.cards.list_mutes() if mute.subject] == [reason]


def test_mutes_end_one_by_one(world: DecisionWorld):
    dismiss(world, "a", "b", "c")
    mute_of_kind = next(mute for mute in world.cards.list_mutes() if not mute.subject)
    assert world.cards.unmute(mute_of_kind.id) == mute_of_kind
    assert len(world.check(make_proposal("d", kind="lint"))) == 1
    assert world.check(make_proposal("a", kind="lint")) == [], "the subject has a mute of its own"
    mute_of_subject = next(mute for mute in world.cards.list_mutes() if mute.subject == "a")
    world.cards.unmute(mute_of_subject.id)
    assert len(world.check(make_proposal("a", kind="lint"))) == 1
    assert find_refusal_code(world.cards.unmute, mute_of_subject.id) == "unknown_mute"


def test_a_dismissed_own_prompt_mutes_nothing(world: DecisionWorld):
    for number in range(4):
        world.cards.dismiss(world.propose(f"look at {number}").id)
    assert world.cards.list_mutes() == []


def test_a_dismissed_suggestion_cannot_be_suggested_again(world: DecisionWorld):
    card = world.suggest("tidy up the cart")
    assert find_refusal_code(world.suggest, "Tidy  up the cart") == "already_pending"
    world.cards.dismiss(card.id)
    assert find_refusal_code(world.suggest, "tidy up the cart") == "muted"
    assert world.suggest("tidy up the shelf").source is Source.PREDICTOR_HOOK

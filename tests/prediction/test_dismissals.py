"""Dismissals: what they mute and switch off, the weight of their reasons, and how mutes end (SPEC 2.9, 8.1)."""

from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.model import Card, DismissReason, Outcome, Source, Status
from tests.prediction.deciding import SHOP, DecisionWorld, find_refusal_code, make_proposal

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


def test_a_mute_covers_no_other_subject_kind_or_workspace(world: DecisionWorld):
    world.workspaces = [SHOP, SITE]
    dismiss(world, "main")
    assert (
        len(
            world.check(
                make_proposal("next", kind="lint"), make_proposal("main"), make_proposal("main", workspace=SITE)
            )
        )
        == 3
    )


def test_the_third_dismissal_of_a_kind_switches_it_off_and_says_so(world: DecisionWorld, clock: FakeClock):
    first, second, third = dismiss(world, "a", "b", "c")
    assert (first.note, second.note) == ("", "")
    assert third.note == "cards “Lint of what changed” are switched off in shop: dismissed 3 times"
    clock.advance(400 * DAY)
    assert world.check(make_proposal("d", kind="lint")) == []
    (kind,) = world.cards.list_mutes()
    assert (kind.kind, kind.workspace, kind.subject, kind.until) == ("lint", SHOP, "", None)


def test_dismissals_of_work_that_is_done_switch_no_kind_off(world: DecisionWorld):
    dismiss(world, *"abcd", reason=DismissReason.ALREADY_DONE)
    assert [mute.subject for mute in world.cards.list_mutes()] == ["d", "c", "b", "a"]


def test_an_approval_restarts_the_count_of_dismissals(world: DecisionWorld):
    dismiss(world, "a", "b")
    world.cards.approve(world.make_card("c", kind="lint").id)
    assert dismiss(world, "d")[0].note == ""


def test_undo_switches_the_kind_on_again(world: DecisionWorld):
    third = dismiss(world, "a", "b", "c")[-1]
    world.proposals = [make_proposal("c", kind="lint")]
    world.cards.undo(third.id)
    assert world.cards.get(third.id).status is Status.PENDING
    assert [mute.subject for mute in world.cards.list_mutes()] == ["b", "a"]
    assert len(world.check(*world.proposals, make_proposal("d", kind="lint"))) == 1


def test_other_cards_of_a_kind_that_is_switched_off_leave_the_stack(world: DecisionWorld):
    other, first, second = world.check(
        make_proposal("a", kind="lint"), make_proposal("b", kind="lint"), make_proposal("c")
    )
    world.cards.dismiss(first.id, reason=DismissReason.NEVER_HERE)
    assert [card.id for card in world.cards.list_pending()] == [other.id]
    assert world.cards.get(second.id).outcome is Outcome.WITHDRAWN
    assert world.read_signals() == ["dismissed"], "a withdrawn card gives no signal"


@pytest.mark.parametrize("reason, elsewhere", [("never-here", 1), ("never-anywhere", 0)])
def test_the_reason_never_switches_a_kind_off_here_or_everywhere(world: DecisionWorld, reason: str, elsewhere: int):
    world.workspaces = [SHOP, SITE]
    (card,) = dismiss(world, "a", reason=DismissReason(reason))
    assert "switched off" in card.note
    assert world.check(make_proposal("b", kind="lint")) == []
    assert len(world.check(make_proposal("b", kind="lint", workspace=SITE))) == elsewhere


@pytest.mark.parametrize(
    "reason, weights",
    [("not-now", [0.5]), ("wrong", [1.0]), ("already-done", []), ("never-here", [1.0]), (None, [1.0])],
)
def test_the_weight_of_a_dismissal_is_that_of_its_reason(
    world: DecisionWorld, reason: str | None, weights: list[float]
):
    dismiss_reason = None if reason is None else DismissReason(reason)
    card = world.make_card("a")
    world.cards.dismiss(card.id, reason=dismiss_reason)
    assert [decision.weight for decision in world.decisions.load_newest()] == weights
    if dismiss_reason is not None:
        world.cards.explain(card.id, DismissReason.WRONG)
        world.cards.explain(card.id, dismiss_reason)
    assert [decision.weight for decision in world.decisions.load_newest()] == weights
    assert [mute.reason for mute in world.cards.list_mutes() if mute.subject] == [dismiss_reason]


def test_only_a_dismissed_card_has_a_reason(world: DecisionWorld):
    card = world.make_card("a")
    world.cards.approve(card.id)
    assert find_refusal_code(world.cards.explain, card.id, DismissReason.WRONG) == "not_dismissed"
    other = world.make_card("b")
    world.cards.dismiss(other.id)
    assert find_refusal_code(world.cards.dismiss, other.id) == "already_decided"


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

"""Which proposals become cards, at which tier and how soon again, and what the operator did without a card (SPEC 2.5,
2.9)."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from engine.git.history import Commit
from engine.git.state import GitState
from engine.learning.decisions import NO_FEATURES
from engine.model import Assignment, ConfidenceParts, Outcome, RunnerInfo, Status, Tier
from engine.prediction.card_rows import CardRow, make_row
from engine.prediction.context import WorkspaceContext
from engine.prediction.selection import MIN_KIND_HISTORY, adjust_tier, is_cooling_down, is_done_by_operator, select_rows
from engine.prediction.twin import ConfidenceEstimate
from engine.randomness import Randomness
from tests.prediction.deciding import SHOP, DecisionWorld, make_proposal
from tests.support import MONDAY_MORNING as NOW
from tests.support.past_run import PastRun


def make_draft(name: str, confidence: float, *, kind: str = "run_tests", **fields: Any) -> CardRow:
    """A row about `name`, as a check makes it of a proposal."""
    proposed = make_proposal(name, kind=kind, **fields)
    parts = ConfidenceParts(confidence, confidence, 0.5, confidence, confidence, stated=True)
    estimate = ConfidenceEstimate(parts, NO_FEATURES)
    assignment, info = Assignment(proposed.prompt, "koji-core", SHOP, "flow", kind), RunnerInfo(available=True)
    return make_row("", proposed, assignment, info, now=NOW, expires_at=NOW, context="", estimate=estimate)


class FixedRandomness(Randomness):
    """A source of chance that always draws the same number."""

    def __init__(self, number: float):
        super().__init__(1)
        self._number = number

    def uniform(self) -> float:
        return self._number


NEVER, ALWAYS = FixedRandomness(0.99), FixedRandomness(0.0)
LIKED, DISLIKED = make_draft("liked", 0.8), make_draft("disliked", 0.1, kind="lint")


@pytest.mark.parametrize(
    "drafts, decided, randomness, selected",
    [
        ([make_draft("out", 0.299999), make_draft("in", 0.3)], 0, NEVER, ["in"]),
        ([make_draft("broken", 0.01, tier=Tier.AT_RISK), make_draft("tests", 0.01)], 0, NEVER, ["broken"]),
        ([make_draft("due", 0.01, kind="heartbeat-1a2b3c4d")], 0, NEVER, ["due"]),
        ([LIKED, DISLIKED], MIN_KIND_HISTORY - 1, ALWAYS, ["liked", "disliked"]),
        ([LIKED, DISLIKED], MIN_KIND_HISTORY, ALWAYS, ["liked"]),
    ],
    ids=["confidence", "broken", "heartbeat", "explored", "known"],
)
def test_which_drafts_are_shown(drafts: list[CardRow], decided: int, randomness: Randomness, selected: list[str]):
    rows = select_rows(drafts, {"lint": decided}, is_learning=True, randomness=randomness)
    assert [row.facts["name"] for row in rows] == selected
    assert select_rows(drafts, {}, is_learning=False, randomness=NEVER) == drafts, "in phase 0 all are shown"


def test_at_most_four_cards_are_of_one_kind(world: DecisionWorld):
    assert len(world.check(*(make_proposal(str(number)) for number in range(8)))) == 4
    assert len(world.check(*world.proposals, make_proposal("other", kind="lint"))) == 1


@pytest.mark.parametrize(
    "tier, approved, decided, to",
    [
        (Tier.CHECK, 11, 11, Tier.BLOCKS),
        (Tier.CHECK, 10, 10, Tier.CHECK),
        (Tier.CHECK, 19, 20, Tier.BLOCKS),
        (Tier.CHECK, 18, 19, Tier.CHECK),
        (Tier.UPKEEP, 11, 11, Tier.CHECK),
        (Tier.CHECK, 0, 11, Tier.UPKEEP),
        (Tier.CHECK, 0, 10, Tier.CHECK),
        (Tier.AT_RISK, 100, 100, Tier.AT_RISK),
    ],
)
def test_decisions_move_a_kind_by_one_tier_from_this_number_on(tier: Tier, approved: int, decided: int, to: Tier):
    adjusted, why = adjust_tier(tier, approved, decided)
    assert adjusted is to
    assert (f"you approved {approved} of {decided}" in why) is (adjusted is not tier)


@pytest.mark.parametrize(
    "kind, status, outcome, shown, days",
    [
        ("lint", Status.EXECUTED, Outcome.SUCCEEDED, True, 7),
        ("lint", Status.EXECUTED, Outcome.FAILED, True, 1),
        ("lint", Status.EXPIRED, None, True, 1),
        ("lint", Status.EXPIRED, None, False, 0),
        ("secret", Status.EXECUTED, Outcome.SUCCEEDED, True, 0),
    ],
)
def test_the_same_evidence_makes_no_card_for_these_days(
    kind: str, status: Status, outcome: Outcome | None, shown: bool, days: int
):
    end = NOW + timedelta(days=days)
    card = make_draft("a", 0.5, kind=kind)
    card.status, card.outcome, card.closed_at = status, outcome, NOW
    card.shown_at = NOW if shown else None
    assert not is_cooling_down(card, end)
    assert days == 0 or is_cooling_down(card, end - timedelta(seconds=1))


LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)
RUN = PastRun("h", session_id="own", ran_at=LATER)


def make_commit_state(moment: datetime, **state: Any) -> dict[str, Any]:
    """The argument of a context whose repository has a commit of this time, and otherwise this state."""
    return {"git": GitState(recent=(Commit("c", moment, "a", "s"),), **state)}


@pytest.mark.parametrize(
    "kind, state, is_done",
    [
        ("run_tests", {"runs": (RUN,)}, True),
        ("run_tests", {"runs": (replace(RUN, ran_at=EARLIER),)}, False),
        ("run_tests", {"runs": (replace(RUN, session_id="of another card"),)}, False),
        ("rehearse_merge", make_commit_state(LATER, branch="x"), True),
        ("rehearse_merge", make_commit_state(LATER, branch="x", behind_base=2), False),
    ],
)
def test_whether_the_operator_did_the_work_of_a_card(kind: str, state: dict[str, Any], is_done: bool):
    columns = {"created_at": NOW, "kind": kind, "parameters": {"target": "x"}}
    row = CardRow(**columns)
    context = WorkspaceContext(SHOP, LATER, LATER, **({"git": GitState()} | state))
    assert is_done_by_operator(row, context, {"own"}) is is_done

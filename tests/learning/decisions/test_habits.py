"""Habits: the share approved by time, the usual wait and the usual channel of past decisions (SPEC 2.3b, 2.5)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.learning.decisions.decisions import PastDecision
from engine.learning.decisions.habits import Habits
from engine.model import PartOfDay
from tests.learning.decisions.card_features import MORNING_CARD

APPROVAL = PastDecision(MORNING_CARD, chosen=True, weight=1.0, waited_hours=2.0)
DISMISSAL = replace(APPROVAL, chosen=False)


def learn_habits(past: Sequence[PastDecision]) -> Habits:
    """The habits after these decisions."""
    habits = Habits()
    for decision in past:
        habits.add(decision)
    return habits


def test_the_time_share_depends_on_part_of_the_day_weekend_and_hour():
    in_evening = replace(MORNING_CARD, part=PartOfDay.EVENING, hour=20)
    at_weekend = replace(MORNING_CARD, weekend=True)
    at_six = replace(MORNING_CARD, hour=6)
    dismissed = [replace(DISMISSAL, card=card) for card in (in_evening, at_weekend, at_six)]
    habits = learn_habits([APPROVAL] * 10 + dismissed * 10)
    assert habits.compute_time_share(MORNING_CARD) > 0.6
    assert habits.compute_time_share(in_evening) < 0.4
    assert habits.compute_time_share(replace(at_weekend, hour=None)) < 0.4
    assert habits.compute_time_share(at_six) < 0.4


def test_the_usual_wait_is_known_from_five_approvals_on():
    assert learn_habits([APPROVAL] * 4).find_usual_wait("run_tests") is None
    assert learn_habits([APPROVAL] * 5).find_usual_wait("run_tests") == timedelta(hours=2)


@pytest.mark.parametrize("approvals, dismissals, channel", [(2, 0, None), (3, 0, "garden"), (3, 3, None)])
def test_the_usual_channel_needs_three_approvals_and_a_majority(approvals: int, dismissals: int, channel: str | None):
    approval = replace(APPROVAL, card=replace(MORNING_CARD, channel="garden"))
    habits = learn_habits([approval] * approvals + [replace(approval, chosen=False)] * dismissals)
    assert habits.find_usual_channel("run_tests", ["koji-core", "garden"]) == channel
    assert habits.find_usual_channel("run_tests", ["koji-core"]) is None

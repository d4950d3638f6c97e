"""Habits: shrunk shares of past decisions by level, time and channel (SPEC 2.3b, 2.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st

from engine.learning.decisions.decisions import CardFeatures, PastDecision
from engine.learning.decisions.learner import Habits
from engine.model import PartOfDay

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
ASKED = CardFeatures(
    "run_tests", "koji-core", "/shop", "run_tests", frozenset({"run", "tests"}), PartOfDay.MORNING, False, NOW, 9
)
YES = PastDecision(ASKED, True, 1.0, 2.0)
NO = replace(YES, chosen=False)
CARDS = st.builds(
    replace,
    st.just(ASKED),
    kind=st.sampled_from(["run_tests", "lint", "bisect"]),
    channel=st.sampled_from(["koji-core", "garden"]),
    part=st.sampled_from(PartOfDay),
    weekend=st.booleans(),
)
ANY = st.builds(PastDecision, CARDS, st.booleans(), st.sampled_from([0.3, 0.5, 0.7, 0.8, 1.0]), st.just(2.0))


def habits_of(past: Sequence[PastDecision]) -> Habits:
    habits = Habits()
    for decision in past:
        habits.add(decision)
    return habits


def test_the_time_share_depends_on_part_of_the_day_weekend_and_hour() -> None:
    evenings = [replace(NO, card=replace(ASKED, part=PartOfDay.EVENING, hour=20))] * 10
    weekends = [replace(NO, card=replace(ASKED, weekend=True))] * 10
    habits = habits_of([YES] * 10 + evenings + weekends)
    assert habits.time_share(ASKED) > 0.6 > habits.time_share(replace(ASKED, part=PartOfDay.EVENING, hour=20))
    assert habits.time_share(ASKED) > 0.6 > habits.time_share(replace(ASKED, weekend=True, hour=None))
    early = habits_of([YES] * 10 + [replace(NO, card=replace(ASKED, hour=6))] * 10)
    assert early.time_share(ASKED) > 0.6 > 0.4 > early.time_share(replace(ASKED, hour=6))


def test_the_usual_wait_is_known_from_five_approvals_on() -> None:
    assert habits_of([YES] * 4).usual_wait("run_tests") is None
    assert habits_of([YES] * 5).usual_wait("run_tests") == timedelta(hours=2)


@pytest.mark.parametrize(("approvals", "dismissals", "channel"), [(2, 0, None), (3, 0, "garden"), (3, 3, None)])
def test_the_usual_channel_needs_three_approvals_and_a_majority(
    approvals: int, dismissals: int, channel: str | None
) -> None:
    garden = replace(YES, card=replace(ASKED, channel="garden"))
    habits = habits_of([garden] * approvals + [replace(garden, chosen=False)] * dismissals)
    assert habits.usual_channel("run_tests", ["koji-core", "garden"]) == channel
    assert habits.usual_channel("run_tests", ["koji-core"]) is None

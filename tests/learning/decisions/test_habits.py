"""What decisions add up to: shrunk shares, levels, time, words (SPEC 2.3b, 2.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.decisions.card_features import CardFeatures, PastDecision
from engine.learning.decisions.habits import WORD_BUCKETS, Habits, shrink_share
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


def of(past: Sequence[PastDecision]) -> Habits:
    habits = Habits()
    for decision in past:
        habits.add(decision)
    return habits


@given(st.lists(ANY, max_size=40))
def test_one_more_approval_of_the_like_never_lowers_it(past: list[PastDecision]) -> None:
    before, after = of(past), of([*past, YES])
    assert 0 < before.time_share(ASKED) <= after.time_share(ASKED) < 1


@pytest.mark.long
def test_what_is_learnt_of_words_holds_none_of_them_and_stays_small() -> None:
    many = [replace(ASKED, words=frozenset(f"hunter{n}word{m}" for m in range(1_000))) for n in range(200)]
    learnt = of([replace(YES, card=card) for card in many])
    assert "hunter" not in repr(learnt.counts)
    assert len(learnt.counts) < WORD_BUCKETS + 100 < 200_000


def test_time_relevance_knows_part_of_day_week_and_hour() -> None:
    evenings = [replace(NO, card=replace(ASKED, part=PartOfDay.EVENING, hour=20))] * 10
    weekends = [replace(NO, card=replace(ASKED, weekend=True))] * 10
    habits = of([YES] * 10 + evenings + weekends)
    assert habits.time_share(ASKED) > 0.6 > habits.time_share(replace(ASKED, part=PartOfDay.EVENING, hour=20))
    assert habits.time_share(ASKED) > 0.6 > habits.time_share(replace(ASKED, weekend=True, hour=None))
    early = of([YES] * 10 + [replace(NO, card=replace(ASKED, hour=6))] * 10)
    assert early.time_share(ASKED) > 0.6 > 0.4 > early.time_share(replace(ASKED, hour=6))


def test_words_say_how_often_and_when() -> None:
    morning = [YES] * 6 + [NO]
    assert of(morning).explain(ASKED) == ("you approved 6 of 7 like this in the morning",)
    assert of(morning).explain(replace(ASKED, part=PartOfDay.NIGHT)) == ("you approved 6 of 7 like this",)
    assert of(morning).explain(replace(ASKED, channel="garden")) == ("you approved 6 of 7 like this on any channel",)
    ignored = [replace(NO, weight=0.3)]
    assert of(morning + ignored).explain(ASKED) == ("you approved 6 of 7 like this in the morning",)


def test_the_usual_wait_is_learnt_from_five_approvals_on() -> None:
    assert of([YES] * 4).usual_wait("run_tests") is None
    assert of([YES] * 5).usual_wait("run_tests") == timedelta(hours=2)


@pytest.mark.parametrize(("there", "against", "named"), [(2, 0, None), (3, 0, "garden"), (3, 3, None)])
def test_a_channel_is_named_after_enough_approvals_there(there: int, against: int, named: str | None) -> None:
    garden = replace(YES, card=replace(ASKED, channel="garden"))
    habits = of([garden] * there + [replace(garden, chosen=False)] * against)
    assert habits.usual_channel("run_tests", ["koji-core", "garden"]) == named
    assert habits.usual_channel("run_tests", ["koji-core"]) is None


@given(st.floats(0, 1), st.floats(0, 100), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_a_shrunk_share_lies_between_share_and_prior(share: float, decided: float, prior: float) -> None:
    low, high = (min(share, prior), max(share, prior)) if decided else (prior, prior)
    assert low - 1e-9 <= shrink_share(share * decided, decided, prior) <= high + 1e-9

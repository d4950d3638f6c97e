"""The embedded Twin: shrunk shares, similarity, words (SPEC 2.3b, 2.5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.prediction.twin import CHANNEL_FROM, EmbeddedTwin, Habits, Query, Share, shrunk, similarity
from engine.values import PartOfDay, PastDecision

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
ASKED = Query("run_tests", "koji-core", "/shop", "run_tests", frozenset({"run", "tests"}), PartOfDay.MORNING, False)
YES = PastDecision(
    "run_tests", "koji-core", "/shop", "run_tests", frozenset({"run", "tests"}), PartOfDay.MORNING, False, True, 1.0,
    2.0, NOW,
)  # fmt: skip
NO = replace(YES, chosen=False)
ANY = st.builds(
    replace,
    st.just(YES),
    kind=st.sampled_from(["run_tests", "lint", "bisect"]),
    channel=st.sampled_from(["koji-core", "garden"]),
    part=st.sampled_from(PartOfDay),
    weekend=st.booleans(),
    chosen=st.booleans(),
    weight=st.sampled_from([0.3, 0.5, 0.7, 0.8, 1.0]),
)


@given(st.floats(0, 1), st.floats(0, 100), st.floats(0, 1))
def test_a_shrunk_share_lies_between_share_and_prior(share: float, decided: float, prior: float) -> None:
    result = shrunk(Share(share * decided, decided), prior)
    low, high = (min(share, prior), max(share, prior)) if decided else (prior, prior)
    assert low - 1e-9 <= result <= high + 1e-9


@given(st.floats(0, 1), st.floats(0.1, 50))
def test_more_evidence_moves_it_further_from_the_prior(prior: float, decided: float) -> None:
    some, more = shrunk(Share(decided, decided), prior), shrunk(Share(2 * decided, 2 * decided), prior)
    assert prior <= some + 1e-12 <= more + 2e-12


@given(st.lists(ANY, max_size=60))
def test_every_answer_is_a_probability(past: list[PastDecision]) -> None:
    habits = Habits(past)
    for answer in (habits.approval(ASKED), habits.pattern(ASKED), habits.time(ASKED)):
        assert 0 < answer < 1


@given(st.lists(ANY, max_size=40))
def test_one_more_approval_of_the_like_never_lowers_it(past: list[PastDecision]) -> None:
    before, after = Habits(past), Habits([YES, *past])
    assert after.approval(ASKED) >= before.approval(ASKED)
    assert after.time(ASKED) >= before.time(ASKED)


def test_an_unknown_operator_is_met_with_indifference() -> None:
    habits = Habits([])
    assert habits.approval(ASKED) == habits.pattern(ASKED) == habits.time(ASKED) == 0.5
    assert habits.words(ASKED) == ("you have not decided on anything like this yet",)


def test_the_particular_overrules_the_general() -> None:
    lint = [replace(NO, kind="lint", flow="lint", words=frozenset({"lint"})) for _ in range(20)]
    habits = Habits([YES] * 20 + lint)
    assert habits.approval(ASKED) > 0.85
    assert habits.approval(replace(ASKED, kind="lint")) < 0.15
    assert habits.pattern(ASKED) > habits.pattern(replace(ASKED, kind="lint", flow="lint", words=frozenset({"lint"})))


def test_time_relevance_knows_part_of_day_and_week() -> None:
    evenings = [replace(NO, part=PartOfDay.EVENING)] * 10
    weekends = [replace(NO, weekend=True)] * 10
    habits = Habits([YES] * 10 + evenings + weekends)
    assert habits.time(ASKED) > 0.6 > habits.time(replace(ASKED, part=PartOfDay.EVENING))
    assert habits.time(ASKED) > 0.6 > habits.time(replace(ASKED, weekend=True))


def test_weak_signals_weigh_less() -> None:
    expired = [replace(NO, weight=0.3)] * 5
    assert Habits([NO] * 5).approval(ASKED) < Habits(expired).approval(ASKED) < 0.5


def test_similarity_counts_what_is_the_same() -> None:
    assert similarity(ASKED, YES) == pytest.approx(1.0)
    assert similarity(ASKED, replace(YES, kind="x", flow="x", channel="x", workspace="x")) == pytest.approx(0.2)
    assert similarity(ASKED, replace(YES, words=frozenset({"run", "slow"}))) == pytest.approx(0.8 + 0.2 / 3)


def test_words_say_how_often_and_when() -> None:
    morning = [YES] * 6 + [NO]
    assert Habits(morning).words(ASKED) == ("you approved 6 of 7 like this in the morning",)
    other_part = replace(ASKED, part=PartOfDay.NIGHT)
    assert Habits(morning).words(other_part) == ("you approved 6 of 7 like this",)
    assert Habits(morning).words(replace(ASKED, channel="garden")) == ("you approved 6 of 7 like this on any channel",)
    ignored = [replace(NO, weight=0.3)]
    assert Habits(morning + ignored).words(ASKED) == ("you approved 6 of 7 like this in the morning",)


def test_the_usual_wait_is_learnt_from_five_approvals_on() -> None:
    assert Habits([YES] * 4).usual("run_tests") is None
    assert Habits([YES] * 5).usual("run_tests") == timedelta(hours=2)


def test_a_channel_is_named_after_enough_approvals_there() -> None:
    registered = ["koji-core", "garden"]
    there = replace(YES, channel="garden")
    assert Habits([there] * (CHANNEL_FROM - 1)).channel("run_tests", registered) is None
    assert Habits([there] * CHANNEL_FROM).channel("run_tests", registered) == "garden"
    assert Habits([there] * CHANNEL_FROM + [replace(NO, channel="garden")] * 3).channel("run_tests", registered) is None
    assert Habits([there] * CHANNEL_FROM).channel("run_tests", ["koji-core"]) is None


def test_it_learns_anew_only_when_something_was_decided() -> None:
    class History:
        version = 0
        asked = 0

        def past(self, limit: int = 2000) -> list[PastDecision]:
            self.asked += 1
            return [YES] * self.version

    history = History()
    twin = EmbeddedTwin(history)
    first = twin.predict(ASKED).probability
    assert twin.predict(ASKED).probability == first
    history.version = 5
    assert twin.predict(ASKED).probability > first
    assert history.asked == 2

"""SPEC 3.2 and 3.3: every boundary of the rate limiter and the loop detector."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.safety.loops import DEEPEST, Link, decide_loop, depth
from engine.safety.rates import decide_rate
from engine.values import DecidedBy, TriggerType, Verdict

from .helpers import Rails, approval, on, unattended

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
TEN = timedelta(minutes=10)
UNATTENDED = [one for one in TriggerType if one is not TriggerType.MANUAL]


@pytest.mark.parametrize("kind", UNATTENDED)
@pytest.mark.parametrize(
    ("ago", "verdict"),
    [(TEN, "allow"), (TEN - timedelta(microseconds=1), "block"), (timedelta(0), "block"), (-TEN, "block")],
)
def test_ten_minutes_between_triggers(kind: TriggerType, ago: timedelta, verdict: str) -> None:
    assert decide_rate(unattended(type=kind), NOW - ago, NOW, TEN).verdict == verdict


def test_an_approval_is_not_limited_and_force_skips_the_rate() -> None:
    assert decide_rate(approval(), NOW, NOW, TEN).verdict == "allow"
    assert decide_rate(approval(decided_by=DecidedBy.API), NOW, NOW, TEN).verdict == "allow"
    assert decide_rate(unattended(force=True), NOW, NOW, TEN).verdict == "allow"
    # Neither mark alone makes an approval.
    assert decide_rate(approval(decided_by=DecidedBy.AUTONOMY), NOW, NOW, TEN).verdict == "block"
    assert decide_rate(unattended(decided_by=DecidedBy.OPERATOR), NOW, NOW, TEN).verdict == "block"


@given(st.lists(st.integers(0, 3600), max_size=60))
def test_no_two_triggers_within_the_interval(offsets: list[int]) -> None:
    last: datetime | None = None
    passed: list[datetime] = []
    for offset in sorted(offsets):
        at = NOW + timedelta(seconds=offset)
        if decide_rate(unattended(), last, at, TEN).verdict is Verdict.ALLOW:
            passed.append(at)
            last = at
    assert all(later - earlier >= TEN for earlier, later in pairwise(passed))


def test_only_unattended_triggers_that_ran_count(rails: Rails) -> None:
    assert rails.rule(approval()).permit
    assert rails.rule(unattended()).permit
    blocked = rails.rule(unattended(prediction_id="pred_2"))
    assert blocked.blocked_by is not None
    assert blocked.blocked_by.rail == "rate"
    rails.clock.advance(TEN)
    assert rails.rule(unattended(prediction_id="pred_3")).permit


def link(from_channel: str, to_channel: str, ago: timedelta = timedelta(0), workspace: str = "/w") -> Link:
    return Link(from_channel, to_channel, "p", workspace, NOW - ago)


@pytest.mark.parametrize(("seconds", "verdict"), [(299, "block"), (300, "allow")])
def test_the_reverse_link_blocks_for_five_minutes(seconds: int, verdict: str) -> None:
    links = [link("owner", "b", timedelta(hours=1)), link("b", "a", timedelta(seconds=seconds)), link("owner", "a")]
    assert decide_loop(link("a", "b"), links).verdict == verdict


def test_a_chain_of_three_passes_and_of_four_blocks() -> None:
    links = [link("owner", "a", timedelta(minutes=30)), link("a", "b", timedelta(minutes=20))]
    assert depth(links, "b") == 2
    assert decide_loop(link("b", "c"), links).verdict == "allow"
    links.append(link("b", "c", timedelta(minutes=10)))
    blocked = decide_loop(link("c", "d"), links)
    assert (blocked.verdict, blocked.rule) == ("block", "depth")
    # An approval on c starts anew.
    assert decide_loop(link("c", "d"), [*links, link("owner", "c")]).verdict == "allow"
    # Another workspace is another chain.
    assert decide_loop(link("c", "d", workspace="/v"), links).verdict == "allow"


@pytest.mark.parametrize(("ages", "verdict"), [((1,), "allow"), ((1, 9), "block"), ((1, 10), "allow")])
def test_a_pair_runs_twice_in_ten_minutes(ages: tuple[int, ...], verdict: str) -> None:
    links = []
    for minutes in sorted(ages, reverse=True):
        links += [link("a", "b", timedelta(minutes=minutes))]
    assert decide_loop(link("a", "b"), links).verdict == verdict


def test_links_from_the_owner_are_never_blocked() -> None:
    assert (
        decide_loop(link("owner", "a"), [link("owner", "a"), link("a", "owner"), link("owner", "a")]).verdict == "allow"
    )


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(0, 400)), max_size=40))
def test_no_chain_ever_grows_past_three(steps: list[tuple[str, str, int]]) -> None:
    links: list[Link] = []
    now = NOW
    for from_channel, to_channel, seconds in steps:
        now += timedelta(seconds=seconds)
        one = Link(from_channel, to_channel, "p", "/w", now)
        if decide_loop(one, links).verdict is Verdict.ALLOW:
            links.append(one)
            assert depth(links, to_channel) <= DEEPEST
            pair = [x for x in links if (x.from_channel, x.to_channel) == (from_channel, to_channel)]
            assert sum(now - x.at < TEN for x in pair) <= 2


def test_a_loop_is_counted_and_seen_after_a_restart(rails: Rails) -> None:
    rails.know_pairs(("koji-core", "research"))
    assert rails.rule(unattended()).permit
    answer = on("research", unattended(from_channel="koji-core", prediction_id="pred_2", force=True))
    ruling = rails.rule(answer)
    assert ruling.blocked_by is not None
    assert (ruling.blocked_by.rail, ruling.blocked_by.rule) == ("loop", "reverse")
    assert rails.safety.loop_detection_count() == 1

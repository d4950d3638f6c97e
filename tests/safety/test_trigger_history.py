"""Every boundary of the rate limiter and the loop detector (SPEC 3.2 and 3.3)."""

from datetime import UTC, datetime, timedelta

import pytest

from engine.model import DecidedBy, Trigger, TriggerType
from engine.safety.trigger_history import MAX_LINKS, ChainLink, Link, decide_loop, decide_rate, measure_chain_depth
from engine.storage import shallow_dict
from tests.safety.rails import WORKSPACE, Rails, make_approval, make_unattended, move_to_channel

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
INTERVAL = timedelta(minutes=10)
"""Between two triggers without an operator."""

UNATTENDED_TYPES = [kind for kind in TriggerType if kind is not TriggerType.MANUAL]


def make_link(
    from_channel: str, to_channel: str, ago: timedelta = timedelta(0), workspace: str = "/w", *, ran: bool = True
) -> Link:
    return Link(from_channel, to_channel, "p", workspace, NOW - ago, ran)


def ask_by_gateway(number: int) -> Trigger:
    """A program asks over the gateway."""
    return make_unattended(
        type=TriggerType.CRON, asked_by="gateway", from_channel="owner", prediction_id=f"pred_{number}"
    )


@pytest.mark.parametrize("kind", UNATTENDED_TYPES)
@pytest.mark.parametrize(
    "ago, verdict",
    [
        (INTERVAL, "allow"),
        (INTERVAL - timedelta(microseconds=1), "block"),
        (timedelta(0), "block"),
        (-INTERVAL, "block"),
    ],
)
def test_triggers_without_an_operator_are_ten_minutes_apart(kind: TriggerType, ago: timedelta, verdict: str):
    assert decide_rate(make_unattended(type=kind), NOW - ago, NOW, INTERVAL).verdict == verdict


@pytest.mark.parametrize("seconds, verdict", [(299, "block"), (300, "allow")])
def test_a_link_back_is_blocked_for_five_minutes(seconds: int, verdict: str):
    links = [
        make_link("owner", "b", timedelta(hours=1)),
        make_link("b", "a", timedelta(seconds=seconds)),
        make_link("owner", "a"),
    ]
    assert decide_loop(make_link("a", "b"), links).verdict == verdict


def test_a_chain_of_three_channels_passes_and_of_four_is_blocked():
    links = [make_link("owner", "a", timedelta(minutes=30)), make_link("a", "b", timedelta(minutes=20))]
    assert measure_chain_depth(links, "b") == 2
    assert decide_loop(make_link("b", "c"), links).verdict == "allow"
    links.append(make_link("b", "c", timedelta(minutes=10)))
    blocked = decide_loop(make_link("c", "d"), links)
    assert (blocked.verdict, blocked.rule) == ("block", "depth")
    # An approval on c starts anew.
    assert decide_loop(make_link("c", "d"), [*links, make_link("owner", "c")]).verdict == "allow"
    # Another workspace is another chain.
    assert decide_loop(make_link("c", "d", workspace="/v"), links).verdict == "allow"


@pytest.mark.parametrize("ran", [True, False])
@pytest.mark.parametrize("ages, verdict", [((1,), "allow"), ((1, 9), "block"), ((1, 10), "allow")])
def test_a_pair_of_channels_may_be_triggered_twice_in_ten_minutes(ages: tuple[int, ...], verdict: str, ran: bool):
    """Whether it ran or the rate held it back."""
    links = []
    for minutes in sorted(ages, reverse=True):
        links += [make_link("a", "b", timedelta(minutes=minutes), ran=ran)]
    assert decide_loop(make_link("a", "b"), links).verdict == verdict


def test_a_loop_is_detected_across_a_restart_and_counted(rails: Rails):
    rails.know_pairs(("koji-core", "research"))
    old = Link("owner", "garden", "p", WORKSPACE, rails.clock.now() - INTERVAL)
    rails.database.write(lambda tx: [tx.insert(ChainLink(**shallow_dict(old))) for _ in range(60)])
    assert rails.decide(make_unattended()).permit
    rails.safety.recover(lambda prediction_id: None, frozenset())
    assert len(rails.safety.list_chain(100)) == MAX_LINKS
    answer = move_to_channel(
        "research", make_unattended(from_channel="koji-core", prediction_id="pred_2", is_forced=True)
    )
    ruling = rails.decide(answer)
    assert (ruling.blocked_by.rail, ruling.blocked_by.rule) == ("loop", "reverse")
    assert rails.safety.count_stopped_loops() == 1


def test_a_program_that_asks_again_and_again_is_a_loop(rails: Rails):
    rails.decide(make_approval())  # the channel is known
    blocked = []
    for number in range(4):
        verdict = rails.decide(ask_by_gateway(number)).blocked_by
        blocked.append(verdict and (verdict.rail, verdict.rule))
        rails.clock.advance(timedelta(minutes=1))
    assert blocked == [None, ("rate", "interval"), ("loop", "pair"), ("loop", "pair")]
    assert rails.safety.count_stopped_loops() == 2
    rails.clock.advance(timedelta(minutes=6))  # ten after the first
    assert rails.decide(ask_by_gateway(5)).permit


def test_approvals_and_forced_triggers_are_not_rate_limited():
    assert decide_rate(make_approval(), NOW, NOW, INTERVAL).verdict == "allow"
    assert decide_rate(make_approval(decided_by=DecidedBy.API), NOW, NOW, INTERVAL).verdict == "allow"
    assert decide_rate(make_unattended(is_forced=True), NOW, NOW, INTERVAL).verdict == "allow"
    # Neither mark alone makes an approval.
    assert decide_rate(make_approval(decided_by=DecidedBy.AUTONOMY), NOW, NOW, INTERVAL).verdict == "block"
    assert decide_rate(make_unattended(decided_by=DecidedBy.OPERATOR), NOW, NOW, INTERVAL).verdict == "block"


def test_only_unattended_triggers_that_passed_count_for_the_rate(rails: Rails):
    assert rails.decide(make_approval()).permit
    assert rails.decide(make_unattended()).permit
    verdict = rails.decide(make_unattended(prediction_id="pred_2")).blocked_by
    assert verdict.rail == "rate"
    assert verdict.reason.endswith("the next is allowed in 10 min")
    rails.clock.advance(INTERVAL - timedelta(seconds=119))
    verdict = rails.decide(make_unattended(prediction_id="pred_2")).blocked_by
    assert verdict.reason.endswith("the next is allowed in 119 s")
    rails.clock.advance(timedelta(seconds=119))
    assert rails.decide(make_unattended(prediction_id="pred_3")).permit


def test_links_from_the_owner_are_never_blocked():
    links = [make_link("owner", "a"), make_link("a", "owner"), make_link("owner", "a")]
    assert decide_loop(make_link("owner", "a"), links).verdict == "allow"

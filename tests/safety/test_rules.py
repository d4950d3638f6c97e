"""SPEC 3.2 and 3.3: every boundary of the rate limiter and the loop detector."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Autonomy, Production, Settings, WorkspaceSettings
from engine.model import MICRO, Assignment, DecidedBy, Trigger, TriggerType, Verdict
from engine.safety.gate import GateFacts, decide_gate, production_targets
from engine.safety.trigger_history import MAX_LINKS, Link, chain_depth, decide_loop, decide_rate, record_link
from tests.safety.helpers import WORKSPACE, Rails, acting, approval, on, unattended

# SPEC 3.6: each row of the human gate at its boundary, and that an operator's approval satisfies them all.


CLEAR = GateFacts(
    confidence=0.95, estimate=0, targets=(), novel_pair=False, rejections=0, decisions=10, content=Verdict.ALLOW,
    day_cost=0, day_cap=20 * MICRO, by_operator=False,
)  # fmt: skip


def rules(**changes: object) -> set[str]:
    verdict = decide_gate(replace(CLEAR, **changes))  # type: ignore[arg-type]
    return set(verdict.rule.split(",")) - {""}


@pytest.mark.parametrize(
    ("row", "passes", "asks"),
    [
        ("low-confidence", {"confidence": 0.6}, {"confidence": 0.5999}),
        ("below-threshold", {"confidence": 0.8}, {"confidence": 0.7999}),
        ("costly", {"estimate": MICRO}, {"estimate": MICRO + 1}),
        ("production", {"targets": ()}, {"targets": ("branch main",)}),
        ("novel-pair", {"novel_pair": False}, {"novel_pair": True}),
        ("rejections", {"rejections": 2}, {"rejections": 3}),
        ("day-cost", {"day_cost": 16 * MICRO}, {"day_cost": 16 * MICRO + 1}),
        ("onboarding", {"decisions": 10}, {"decisions": 9}),
        ("content", {"content": Verdict.ALLOW}, {"content": Verdict.ASK}),
        ("cold-start", {"phase": 1}, {"phase": 0}),
        ("track-record", {"approval_bound": 0.8}, {"approval_bound": 0.7999}),
        ("autonomy-off", {"autonomous": True}, {"autonomous": False}),
        ("workspace", {"workspace_acts": True}, {"workspace_acts": False}),
        ("suggested", {"suggested": False}, {"suggested": True}),
        ("quiet", {"quiet": False}, {"quiet": True}),
        ("no-sandbox", {"confined": True}, {"confined": False}),
        ("no-sandbox", {"confined": True, "waived": True}, {"confined": False, "confirmed": True}),
        ("sandbox-waived", {"confined": True, "waived": True}, {"confined": False, "waived": True}),
    ],
)
def test_boundary(row: str, passes: dict[str, object], asks: dict[str, object]) -> None:
    assert row not in rules(**passes)
    assert rules(**asks) == {row}
    assert decide_gate(replace(CLEAR, **asks)).verdict == "ask"  # type: ignore[arg-type]


def test_what_the_content_filter_blocks_is_blocked_here_too() -> None:
    assert decide_gate(replace(CLEAR, content=Verdict.BLOCK)).verdict == "block"


def test_until_ten_decisions_were_made_nothing_runs_by_itself(rails: Rails) -> None:
    rails.decisions.decisions = 9
    assert rails.decide(unattended()).permit is None
    assert rails.decide(approval()).permit
    rails.decisions.decisions = 10
    assert rails.decide(unattended(prediction_id="b")).permit


def test_an_order_of_the_operator_skips_what_speaks_of_guesses_and_nothing_else() -> None:
    guess = {"confidence": 0.1, "novel_pair": True, "phase": 0, "approval_bound": 0.0}
    assert rules(**guess, ordered=True) == set()
    assert rules(confidence=0.7, ordered=True) == set(), "nor does the threshold hold it"
    other_rows = {
        "decisions": 9, "confined": False, "estimate": MICRO + 1, "targets": ("branch main",), "rejections": 3,
        "content": Verdict.ASK, "day_cost": 17 * MICRO, "autonomous": False, "workspace_acts": False, "quiet": True,
        "suggested": True,
    }  # fmt: skip
    assert rules(**guess, **other_rows, ordered=True) == rules(**other_rows)
    assert len(rules(**other_rows)) == len(other_rows)
    waived = {"confined": False, "waived": True}
    assert rules(**waived, ordered=True) == {"sandbox-waived"}


@pytest.mark.long
@given(st.builds(GateFacts, confidence=st.floats(0, 1), estimate=st.integers(0, 10**8), targets=st.just(("x",)),
                 novel_pair=st.booleans(), rejections=st.integers(0, 9), decisions=st.integers(0, 50),
                 content=st.sampled_from(Verdict), day_cost=st.integers(0, 10**8), day_cap=st.integers(0, 10**8),
                 by_operator=st.booleans(), phase=st.integers(0, 2), quiet=st.booleans(), confined=st.booleans(),
                 waived=st.booleans(), confirmed=st.booleans()))  # fmt: skip
def test_an_operators_approval_satisfies_every_row_but_a_missing_sandbox(facts: GateFacts) -> None:
    verdict = decide_gate(facts)
    if facts.by_operator:
        assert (verdict.verdict == "allow") is (facts.confined or facts.waived or facts.confirmed)
    elif not facts.confined:
        assert verdict.verdict != "allow", "nothing runs by itself without a sandbox, whatever the settings"
    assert ("no sandbox on this machine" in verdict.reason) is not facts.confined, "every verdict says it"
    if not facts.confined:
        assert "bubblewrap" in verdict.reason


@pytest.mark.parametrize(
    ("prompt", "parameters", "expected"),
    [
        ("restart https://me@shop.example.com:8443/x", {}, "host shop.example.com"),
        ("log in at root@shop.example.com:/srv", {}, "host shop.example.com"),
        ("run kubectl --context=live get pods", {}, "context live"),
        ("push it to heroku/x", {}, "remote heroku"),
        ("do it", {"remote": "heroku"}, "remote heroku"),
        ("do it", {"branch": "stable"}, "branch stable"),
        ("do it", {"target": "STABLE"}, "branch STABLE"),
        ("do it", {"file": "infra/dns.tf"}, "path infra/dns.tf"),
        ("do it", {"file": "./infra//dns.tf"}, "path ./infra//dns.tf"),
        ("do it", {"branch": "feature", "other": "heroku"}, ""),
        ("merge feature/x into stable", {}, "branch stable"),
        ("git push origin HEAD:stable", {}, "branch stable"),
        ("explain the stable function", {}, ""),
    ],
)
def test_what_is_named_of_production(prompt: str, parameters: dict[str, str], expected: str) -> None:
    production = Production(
        hosts=("shop.example.com",), contexts=("live",), remotes=("heroku",), branches=("stable",), paths=("infra/*",)
    )
    trigger = approval(assignment=Assignment(prompt, "koji-core", "/w", "model", None, parameters))
    assert production_targets(trigger, production) == ((expected,) if expected else ())
    if expected.startswith(("branch", "remote")):  # a flow compares and rehearses, and writes to neither
        flow = replace(trigger.assignment, runner="flow", flow="rehearse_merge")
        assert production_targets(approval(assignment=flow), production) == ()


def test_a_new_pair_asks_once_an_approval_makes_it_known(rails: Rails) -> None:
    novel = on("garden", unattended())
    within = rails.safety.pipeline.preview(unattended(from_channel="koji-core"))[4]
    assert within.verdict == "allow", "within a channel that has run there is no pair"
    gate = next(verdict for verdict in rails.safety.pipeline.preview(novel) if verdict.rail == "gate")
    assert (gate.verdict, gate.rule) == ("ask", "novel-pair")
    assert rails.decide(novel).permit is None
    assert rails.decide(on("garden", approval(prediction_id="b"))).permit
    owner = on("garden", approval(confidence=0.9, phase=1, approval_bound=0.9))
    assert (
        next(verdict for verdict in rails.safety.pipeline.preview(owner) if verdict.rail == "gate").verdict == "allow"
    )


@pytest.mark.parametrize(
    "settings",
    [
        Settings(autonomous_mode_enabled=False, workspaces={WORKSPACE: WorkspaceSettings(autonomy=Autonomy.ACT)}),
        Settings(autonomous_mode_enabled=True, workspaces={WORKSPACE: WorkspaceSettings(autonomy=Autonomy.CARDS)}),
    ],
)
def test_where_nothing_runs_by_itself_rejections_pause_nothing(rails: Rails, settings: Settings) -> None:
    rails.settings.current = settings
    rails.decisions.rejections, rails.decisions.decisions = 3, 103
    rails.database.write(rails.safety.decided)
    assert rails.safety.holds() == []
    assert rails.decide(unattended()).permit is None, "what a program asks for waits for the operator all the same"
    assert rails.safety.holds() == []
    rails.settings.current = acting()
    assert rails.decide(unattended()).permit is None
    assert [hold.word for hold in rails.safety.holds()] == ["pause"], "once something may run, its first try pauses it"


def test_the_third_rejection_pauses_and_resuming_counts_anew(rails: Rails) -> None:
    rails.decisions.rejections = 2
    rails.database.write(rails.safety.decided)
    assert rails.safety.holds() == []
    rails.decisions.rejections, rails.decisions.decisions = 3, 103
    rails.database.write(rails.safety.decided)
    assert [hold.word for hold in rails.safety.holds()] == ["pause"]
    assert rails.decide(unattended()).permit is None
    assert rails.decide(approval()).permit, "a pause does not stop what the operator approves"
    rails.safety.resume("pause")
    rails.database.write(rails.safety.decided)
    assert rails.safety.holds() == []
    assert rails.decide(unattended(prediction_id="b")).permit
    rails.decisions.rejections, rails.decisions.decisions = 6, 106
    rails.database.write(rails.safety.decided)
    assert [hold.word for hold in rails.safety.holds()] == ["pause"]


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


def test_only_unattended_triggers_that_ran_count(rails: Rails) -> None:
    assert rails.decide(approval()).permit
    assert rails.decide(unattended()).permit
    verdict = rails.decide(unattended(prediction_id="pred_2")).blocked_by
    assert verdict is not None
    assert verdict.rail == "rate"
    assert verdict.reason.endswith("the next is allowed in 10 min")
    rails.clock.advance(TEN - timedelta(seconds=119))
    verdict = rails.decide(unattended(prediction_id="pred_2")).blocked_by
    assert verdict is not None
    assert verdict.reason.endswith("the next is allowed in 119 s")
    rails.clock.advance(timedelta(seconds=119))
    assert rails.decide(unattended(prediction_id="pred_3")).permit


def link(
    from_channel: str, to_channel: str, ago: timedelta = timedelta(0), workspace: str = "/w", *, ran: bool = True
) -> Link:
    return Link(from_channel, to_channel, "p", workspace, NOW - ago, ran)


@pytest.mark.parametrize(("seconds", "verdict"), [(299, "block"), (300, "allow")])
def test_the_reverse_link_blocks_for_five_minutes(seconds: int, verdict: str) -> None:
    links = [link("owner", "b", timedelta(hours=1)), link("b", "a", timedelta(seconds=seconds)), link("owner", "a")]
    assert decide_loop(link("a", "b"), links).verdict == verdict


def test_a_chain_of_three_passes_and_of_four_blocks() -> None:
    links = [link("owner", "a", timedelta(minutes=30)), link("a", "b", timedelta(minutes=20))]
    assert chain_depth(links, "b") == 2
    assert decide_loop(link("b", "c"), links).verdict == "allow"
    links.append(link("b", "c", timedelta(minutes=10)))
    blocked = decide_loop(link("c", "d"), links)
    assert (blocked.verdict, blocked.rule) == ("block", "depth")
    # An approval on c starts anew.
    assert decide_loop(link("c", "d"), [*links, link("owner", "c")]).verdict == "allow"
    # Another workspace is another chain.
    assert decide_loop(link("c", "d", workspace="/v"), links).verdict == "allow"


@pytest.mark.parametrize("ran", [True, False])
@pytest.mark.parametrize(("ages", "verdict"), [((1,), "allow"), ((1, 9), "block"), ((1, 10), "allow")])
def test_a_pair_is_asked_for_twice_in_ten_minutes(ages: tuple[int, ...], verdict: str, ran: bool) -> None:
    """Whether it ran or the rate held it back."""
    links = []
    for minutes in sorted(ages, reverse=True):
        links += [link("a", "b", timedelta(minutes=minutes), ran=ran)]
    assert decide_loop(link("a", "b"), links).verdict == verdict


def test_what_did_not_run_answers_nothing_and_makes_no_chain() -> None:
    assert decide_loop(link("a", "b"), [link("b", "a", ran=False)]).verdict == "allow"
    links = [link("owner", "a"), link("a", "b"), link("b", "c", ran=False)]
    assert decide_loop(link("c", "d"), links).verdict == "allow"
    assert decide_loop(link("c", "d"), [*links[:2], link("b", "c")]).rule == "depth"


@pytest.mark.parametrize("origin", ["gateway", "research"])
def test_a_program_counts_as_a_link_whether_or_not_it_names_a_channel(origin: str) -> None:
    """Only links from a person, and from what the engine itself predicts, are free."""
    ran = [link(origin, "a", timedelta(minutes=20)), link("a", "b", timedelta(minutes=15))]
    assert decide_loop(link("b", "c"), ran).rule == "depth"
    assert decide_loop(link(origin, "a"), [link(origin, "a"), link(origin, "a")]).rule == "pair"


def test_links_from_the_owner_are_never_blocked() -> None:
    links = [link("owner", "a"), link("a", "owner"), link("owner", "a")]
    assert decide_loop(link("owner", "a"), links).verdict == "allow"


def test_a_loop_is_counted_and_seen_after_a_restart(rails: Rails) -> None:
    rails.know_pairs(("koji-core", "research"))
    old = Link("owner", "garden", "p", WORKSPACE, rails.clock.now() - TEN)
    rails.database.write(lambda tx: [record_link(tx, old) for _ in range(60)])
    assert rails.decide(unattended()).permit
    rails.safety.recover(lambda prediction_id: None)
    assert len(rails.safety.chain(100)) == MAX_LINKS
    answer = on("research", unattended(from_channel="koji-core", prediction_id="pred_2", force=True))
    ruling = rails.decide(answer)
    assert ruling.blocked_by is not None
    assert (ruling.blocked_by.rail, ruling.blocked_by.rule) == ("loop", "reverse")
    assert rails.safety.loop_detection_count() == 1


def requested(by: str, channel: str = "koji-core", **more: Any) -> Trigger:
    """A program asks: the gateway, or an agent that says which channel it works for."""
    fields = {"type": TriggerType.CRON, "asked_by": by, "from_channel": "owner", **more}
    return on(channel, unattended(**fields))


def test_a_program_that_asks_again_and_again_is_a_loop_before_the_rate_says_so(rails: Rails) -> None:
    rails.decide(approval())  # the channel is known
    blocked = []
    for number in range(4):
        verdict = rails.decide(requested("gateway", prediction_id=f"pred_{number}")).blocked_by
        blocked.append(verdict and (verdict.rail, verdict.rule))
        rails.clock.advance(timedelta(minutes=1))
    assert blocked == [None, ("rate", "interval"), ("loop", "pair"), ("loop", "pair")]
    assert rails.safety.loop_detection_count() == 2
    rails.clock.advance(timedelta(minutes=6))  # ten after the first
    assert rails.decide(requested("gateway", prediction_id="pred_5")).permit

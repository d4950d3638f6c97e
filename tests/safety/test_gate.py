"""The human gate (SPEC 3.6): each rule at its boundary, and what an operator's approval satisfies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import MICRO, GateRuleName, RailVerdict, Verdict
from engine.safety.gate import GateFacts, decide_gate
from tests.safety.rails import Rails, make_approval, make_unattended, move_to_channel

CLEAR: dict[str, Any] = {
    "confidence": 0.95, "estimate": 0, "targets": (), "novel_pair": "", "rejections": 0, "decisions": 10,
    "content": Verdict.ALLOW, "day_cost": 0, "day_cap": 20 * MICRO, "by_operator": False, "autonomous": True,
    "workspace_acts": True, "quiet": "", "phase": 1, "approval_bound": 1.0, "threshold": 0.8, "suggested": False,
    "ordered": False, "confined": True, "waived": False, "confirmed": False, "always_asked": False,
}  # fmt: skip
"""Facts to which no rule applies."""


def make_facts(**changes: Any) -> GateFacts:
    """The facts `CLEAR` with some changes."""
    return GateFacts(**CLEAR | changes)


def decide(**changes: Any) -> RailVerdict:
    return decide_gate(make_facts(**changes))


def find_asking_rules(**changes: Any) -> set[str]:
    return set(decide(**changes).rule.split(",")) - {""}


BOUNDARIES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("low-confidence", {"confidence": 0.6}, {"confidence": 0.5999}),
    ("below-threshold", {"confidence": 0.8}, {"confidence": 0.7999}),
    ("costly", {"estimate": MICRO}, {"estimate": MICRO + 1}),
    ("production", {"targets": ()}, {"targets": ("branch main",)}),
    ("novel-pair", {"novel_pair": ""}, {"novel_pair": "never"}),
    ("rejections", {"rejections": 2}, {"rejections": 3}),
    ("day-cost", {"day_cost": 16 * MICRO}, {"day_cost": 16 * MICRO + 1}),
    ("onboarding", {"decisions": 10}, {"decisions": 9}),
    ("content", {"content": Verdict.ALLOW}, {"content": Verdict.ASK}),
    ("cold-start", {"phase": 1}, {"phase": 0}),
    ("track-record", {"approval_bound": 0.8}, {"approval_bound": 0.7999}),
    ("autonomy-off", {"autonomous": True}, {"autonomous": False}),
    ("workspace", {"workspace_acts": True}, {"workspace_acts": False}),
    ("installs", {"always_asked": False}, {"always_asked": True}),
    ("suggested", {"suggested": False}, {"suggested": True}),
    ("quiet", {"quiet": ""}, {"quiet": "quiet hours"}),
    ("no-sandbox", {"confined": True}, {"confined": False}),
    ("no-sandbox", {"confined": True, "waived": True}, {"confined": False, "confirmed": True}),
    ("sandbox-waived", {"confined": True, "waived": True}, {"confined": False, "waived": True}),
]
"""Each rule by the name that is stored, with facts at its boundary and beyond it."""


@pytest.mark.parametrize("rule, passes, asks", BOUNDARIES)
def test_a_rule_asks_beyond_its_boundary_and_passes_at_it(rule: str, passes: dict[str, Any], asks: dict[str, Any]):
    assert rule not in find_asking_rules(**passes)
    assert find_asking_rules(**asks) == {rule}
    assert decide(**asks).verdict == "ask"


@pytest.mark.parametrize("fact", CLEAR)
def test_every_fact_must_be_stated(fact: str):
    with pytest.raises(TypeError, match=fact):
        GateFacts(**{name: value for name, value in CLEAR.items() if name != fact})


def test_every_rule_has_its_boundary():
    assert {rule for rule, _, _ in BOUNDARIES} == set(GateRuleName)


def test_the_first_reason_is_the_one_that_holds_for_all_work():
    first_days = {"confidence": 0.4, "decisions": 0, "phase": 0, "approval_bound": 0.0, "novel_pair": "never"}
    reasons = decide(**first_days).reasons
    assert reasons == [
        "nothing runs by itself in phase 0: too few decisions of yours to learn from",
        "first days: 0 of 10 decisions made",
        "its confidence 0.40 is below 0.60",
        "you approved too few cards like it: the lower bound of your approval rate is 0.00 of 0.80",
        "NEW: never",
    ]
    off = decide(**first_days, autonomous=False).reasons
    assert off[0].startswith("nothing runs by itself until you turn autonomous mode on: ")
    assert off[1:] == reasons


def test_the_gate_blocks_what_the_content_filter_blocks():
    assert decide(content=Verdict.BLOCK).verdict == "block"


def test_an_order_of_the_operator_needs_no_confidence_and_no_past_approvals():
    guess = {"confidence": 0.1, "novel_pair": "never", "phase": 0, "approval_bound": 0.0}
    assert find_asking_rules(**guess, ordered=True) == set()
    assert find_asking_rules(confidence=0.7, ordered=True) == set(), "nor does the threshold hold it"
    other_facts = {
        "decisions": 9, "confined": False, "estimate": MICRO + 1, "targets": ("branch main",), "rejections": 3,
        "content": Verdict.ASK, "day_cost": 17 * MICRO, "autonomous": False, "workspace_acts": False,
        "quiet": "quiet hours", "suggested": True,
    }  # fmt: skip
    assert find_asking_rules(**guess, **other_facts, ordered=True) == find_asking_rules(**other_facts)
    assert len(find_asking_rules(**other_facts)) == len(other_facts)
    assert find_asking_rules(confined=False, waived=True, ordered=True) == {"sandbox-waived"}


@pytest.mark.long
@given(st.builds(make_facts, confidence=st.floats(0, 1), estimate=st.integers(0, 10**8), targets=st.just(("x",)),
                 novel_pair=st.sampled_from(["", "never"]), rejections=st.integers(0, 9), decisions=st.integers(0, 50),
                 content=st.sampled_from(Verdict), day_cost=st.integers(0, 10**8), day_cap=st.integers(0, 10**8),
                 by_operator=st.booleans(), phase=st.integers(0, 2), quiet=st.sampled_from(["", "x"]),
                 confined=st.booleans(), waived=st.booleans(), confirmed=st.booleans()))  # fmt: skip
def test_an_operators_approval_satisfies_every_rule_but_a_missing_sandbox(facts: GateFacts):
    verdict = decide_gate(facts)
    if facts.by_operator:
        assert (verdict.verdict == "allow") is (facts.confined or facts.waived or facts.confirmed)
    elif not facts.confined:
        assert verdict.verdict != "allow", "nothing runs by itself without a sandbox, whatever the settings"
    assert ("no sandbox on this machine" in verdict.reason) is not facts.confined, "every verdict says it"
    if not facts.confined:
        assert "bubblewrap" in verdict.reason


def test_a_new_pair_of_channels_asks_until_an_approval_makes_it_known(rails: Rails):
    novel = move_to_channel("garden", make_unattended())
    within = rails.find_gate_verdict(make_unattended(from_channel="koji-core"))
    assert within.verdict == "allow", "within a channel that has run there is no pair"
    gate = rails.find_gate_verdict(novel)
    assert (gate.verdict, gate.rule) == ("ask", "novel-pair")
    assert rails.decide(novel).permit is None
    assert rails.decide(move_to_channel("garden", make_approval(prediction_id="b"))).permit
    by_owner = move_to_channel("garden", make_approval(confidence=0.9, phase=1, approval_bound=0.9))
    assert rails.find_gate_verdict(by_owner).verdict == "allow"

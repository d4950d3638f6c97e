"""The human gate (SPEC 3.6): each rule at its boundary, what an approval satisfies, and what counts as production."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.settings import ProductionSettings
from engine.model import Assignment, GateRuleName, RailVerdict, Verdict
from engine.safety.gate import GateFacts, decide_gate
from engine.safety.production_targets import (
    find_target_of_file,
    find_target_of_host,
    find_targets_of_command,
    find_targets_of_trigger,
)
from engine.wording import MICRO
from tests.safety.rails import make_approval
from tests.support import read_table

CLEAR: dict[str, Any] = {
    "confidence": 0.95, "estimate": 0, "targets": (), "novel_pair_reason": "", "rejections": 0, "decisions": 10,
    "content": Verdict.ALLOW, "day_cost": 0, "day_cap": 20 * MICRO, "by_operator": False, "is_autonomous": True,
    "workspace_acts": True, "quiet_reason": "", "phase": 1, "approval_bound": 1.0, "threshold": 0.8,
    "is_suggested": False, "is_ordered": False, "is_confined": True, "is_sandbox_waived": False, "is_confirmed": False,
    "is_always_asked": False,
}  # fmt: skip
"""Facts to which no rule applies."""


def make_facts(**changes: Any) -> GateFacts:
    """The facts `CLEAR` with some changes."""
    return GateFacts(**CLEAR | changes)


def decide(**changes: Any) -> RailVerdict:
    return decide_gate(make_facts(**changes))


def find_asking_rules(**changes: Any) -> set[str]:
    return set(decide(**changes).rule.split(",")) - {""}


BOUNDARIES: list[tuple[str, str, Any, Any]] = [
    ("low-confidence", "confidence", 0.6, 0.5999),
    ("below-threshold", "confidence", 0.8, 0.7999),
    ("costly", "estimate", MICRO, MICRO + 1),
    ("production", "targets", (), ("branch main",)),
    ("novel-pair", "novel_pair_reason", "", "never"),
    ("rejections", "rejections", 2, 3),
    ("day-cost", "day_cost", 16 * MICRO, 16 * MICRO + 1),
    ("onboarding", "decisions", 10, 9),
    ("content", "content", Verdict.ALLOW, Verdict.ASK),
    ("cold-start", "phase", 1, 0),
    ("track-record", "approval_bound", 0.8, 0.7999),
    ("autonomy-off", "is_autonomous", True, False),
    ("workspace", "workspace_acts", True, False),
    ("installs", "is_always_asked", False, True),
    ("suggested", "is_suggested", False, True),
    ("quiet", "quiet_reason", "", "quiet hours"),
    ("no-sandbox", "is_confined", True, False),
]
"""Each rule by the name that is stored, with a fact at its boundary and beyond it."""


@pytest.mark.parametrize("rule, fact, passes, asks", BOUNDARIES)
def test_a_rule_asks_beyond_its_boundary_and_passes_at_it(rule: str, fact: str, passes: Any, asks: Any):
    assert rule not in find_asking_rules(**{fact: passes})
    assert find_asking_rules(**{fact: asks}) == {rule}
    assert decide(**{fact: asks}).verdict == "ask"


def test_a_missing_sandbox_asks_also_when_a_setting_waives_it():
    assert find_asking_rules(is_confined=False, is_confirmed=True) == {"no-sandbox"}
    assert find_asking_rules(is_confined=False, is_sandbox_waived=True) == {"sandbox-waived"}


def test_every_rule_has_its_boundary():
    assert {rule for rule, *_ in BOUNDARIES} | {"sandbox-waived"} == set(GateRuleName)


def test_the_gate_blocks_what_the_content_filter_blocks():
    assert decide(content=Verdict.BLOCK).verdict == "block"


def test_an_order_of_the_operator_needs_no_confidence_and_no_past_approvals():
    guess = {"confidence": 0.1, "novel_pair_reason": "never", "phase": 0, "approval_bound": 0.0}
    assert find_asking_rules(**guess, is_ordered=True) == set()
    assert find_asking_rules(confidence=0.7, is_ordered=True) == set(), "nor does the threshold hold it"
    other_facts = {
        "decisions": 9, "is_confined": False, "estimate": MICRO + 1, "targets": ("branch main",), "rejections": 3,
        "content": Verdict.ASK, "day_cost": 17 * MICRO, "is_autonomous": False, "workspace_acts": False,
        "quiet_reason": "quiet hours", "is_suggested": True,
    }  # fmt: skip
    assert find_asking_rules(**guess, **other_facts, is_ordered=True) == find_asking_rules(**other_facts)
    assert len(find_asking_rules(**other_facts)) == len(other_facts)
    assert find_asking_rules(is_confined=False, is_sandbox_waived=True, is_ordered=True) == {"sandbox-waived"}


@pytest.mark.long
@given(st.builds(make_facts, confidence=st.floats(0, 1), estimate=st.integers(0, 10**8), targets=st.just(("x",)),
                 novel_pair_reason=st.sampled_from(["", "never"]), rejections=st.integers(0, 9),
                 decisions=st.integers(0, 50), content=st.sampled_from(Verdict), day_cost=st.integers(0, 10**8),
                 day_cap=st.integers(0, 10**8),
                 by_operator=st.booleans(), phase=st.integers(0, 2), quiet_reason=st.sampled_from(["", "x"]),
                 is_confined=st.booleans(), is_sandbox_waived=st.booleans(), is_confirmed=st.booleans()))  # fmt: skip
def test_an_operators_approval_satisfies_every_rule_but_a_missing_sandbox(facts: GateFacts):
    verdict = decide_gate(facts)
    if facts.by_operator:
        assert (verdict.verdict == "allow") is (facts.is_confined or facts.is_sandbox_waived or facts.is_confirmed)
    elif not facts.is_confined:
        assert verdict.verdict != "allow", "nothing runs by itself without a sandbox, whatever the settings"
    assert ("no sandbox on this machine" in verdict.reason) is not facts.is_confined, "every verdict says it"
    if not facts.is_confined:
        assert "bubblewrap" in verdict.reason


ROWS = read_table(__file__)


@pytest.mark.parametrize("prompt, parameters, expected", ROWS["prompts"])
def test_production_targets_are_found_in_prompts_and_parameters(prompt: str, parameters: dict[str, str], expected: str):
    production = ProductionSettings(
        hosts=("shop.example.com",), contexts=("live",), remotes=("heroku",), branches=("stable",), paths=("infra/*",)
    )
    trigger = make_approval(assignment=Assignment(prompt, "koji-core", "/w", "model", None, parameters))
    assert find_targets_of_trigger(trigger, production) == ((expected,) if expected else ())
    if expected.startswith(("branch", "remote")):  # a flow compares and rehearses, and writes to neither
        flow = replace(trigger.assignment, runner="flow", flow="rehearse_merge")
        assert find_targets_of_trigger(make_approval(assignment=flow), production) == ()


PRODUCTION = ProductionSettings(
    paths=("deploy/**", "/srv/shop/live.cfg"), hosts=(*ProductionSettings().hosts, "db.live:5432")
)


@pytest.mark.parametrize("command, targets", ROWS["commands"])
def test_production_targets_are_found_in_commands(command: str, targets: str):
    assert ", ".join(find_targets_of_command(command, PRODUCTION)) == targets


@given(st.text(max_size=200))
def test_any_command_is_searched_for_production_targets(command: str):
    find_targets_of_command(command, PRODUCTION)


def test_paths_and_hosts_are_production_targets_by_the_settings():
    assert find_target_of_file("deploy/x", "/srv/shop", PRODUCTION) == ("path deploy/x",)
    assert find_target_of_file("live.cfg", "/srv/shop", PRODUCTION) == ("path live.cfg",)
    assert find_target_of_file("products.py", "/srv/shop", PRODUCTION) == ()
    assert find_target_of_host("api.prod.example.org", PRODUCTION)
    assert not find_target_of_host("docs.python.org", PRODUCTION)

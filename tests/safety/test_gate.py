"""The human gate (SPEC 3.6): each rule at its boundary, and what an operator's approval satisfies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import ProductionSettings
from engine.model import MICRO, Assignment, GateRuleName, Verdict
from engine.safety.gate import (
    GateFacts,
    decide_gate,
    find_target_of_file,
    find_target_of_host,
    find_targets_of_command,
    find_targets_of_trigger,
)
from tests.safety.rails import Rails, make_approval, make_unattended, on

CLEAR = GateFacts(
    confidence=0.95, estimate=0, targets=(), novel_pair="", rejections=0, decisions=10, content=Verdict.ALLOW,
    day_cost=0, day_cap=20 * MICRO, by_operator=False,
)  # fmt: skip


def find_asking_rules(**changes: object) -> set[str]:
    verdict = decide_gate(replace(CLEAR, **changes))  # type: ignore[arg-type]
    return set(verdict.rule.split(",")) - {""}


BOUNDARIES: list[tuple[str, dict[str, object], dict[str, object]]] = [
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


@pytest.mark.parametrize(("rule", "passes", "asks"), BOUNDARIES)
def test_a_rule_asks_beyond_its_boundary_and_passes_at_it(
    rule: str, passes: dict[str, object], asks: dict[str, object]
) -> None:
    assert rule not in find_asking_rules(**passes)
    assert find_asking_rules(**asks) == {rule}
    assert decide_gate(replace(CLEAR, **asks)).verdict == "ask"  # type: ignore[arg-type]


def test_every_rule_has_its_boundary() -> None:
    assert {rule for rule, _, _ in BOUNDARIES} == set(GateRuleName)


def test_the_first_reason_is_the_one_that_holds_for_all_work() -> None:
    first_days = {"confidence": 0.4, "decisions": 0, "phase": 0, "approval_bound": 0.0, "novel_pair": "never"}
    reasons = decide_gate(replace(CLEAR, **first_days)).reasons  # type: ignore[arg-type]
    assert reasons == [
        "nothing runs by itself in phase 0: too few decisions of yours to learn from",
        "first days: 0 of 10 decisions made",
        "its confidence 0.40 is below 0.60",
        "you approved too few cards like it: the lower bound of your approval rate is 0.00 of 0.80",
        "NEW: never",
    ]
    off = decide_gate(replace(CLEAR, **first_days, autonomous=False)).reasons  # type: ignore[arg-type]
    assert off[0].startswith("nothing runs by itself until you turn autonomous mode on: ")
    assert off[1:] == reasons


def test_the_gate_blocks_what_the_content_filter_blocks() -> None:
    assert decide_gate(replace(CLEAR, content=Verdict.BLOCK)).verdict == "block"


def test_an_order_of_the_operator_needs_no_confidence_and_no_past_approvals() -> None:
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
@given(st.builds(GateFacts, confidence=st.floats(0, 1), estimate=st.integers(0, 10**8), targets=st.just(("x",)),
                 novel_pair=st.sampled_from(["", "never"]), rejections=st.integers(0, 9), decisions=st.integers(0, 50),
                 content=st.sampled_from(Verdict), day_cost=st.integers(0, 10**8), day_cap=st.integers(0, 10**8),
                 by_operator=st.booleans(), phase=st.integers(0, 2), quiet=st.sampled_from(["", "x"]),
                 confined=st.booleans(), waived=st.booleans(), confirmed=st.booleans()))  # fmt: skip
def test_an_operators_approval_satisfies_every_rule_but_a_missing_sandbox(facts: GateFacts) -> None:
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
def test_production_targets_are_found_in_prompts_and_parameters(
    prompt: str, parameters: dict[str, str], expected: str
) -> None:
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


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("git push origin main", "branch main"), ("git push origin x:refs/heads/main", "branch main"),
        ("git push production x", "remote production"), ("git diff main", ""), ("git log main..x", ""),
        ("ssh prod-1 uptime", "host prod-1"), ("scp a deploy@prod-1:/srv", "host prod-1"),
        ("curl https://prod.example.org/x", "host prod.example.org"), ("psql -h prod-db x", "host prod-db"),
        ("psql --host=prod-db x", "host prod-db"), ("psql --host=db.live:5432", "host db.live:5432"),
        ("kubectl --context prod get pods", "context prod"),
        ("kubectl --context=eu-prod get pods", "context eu-prod"), ("kubectl config use-context prod", "context prod"),
        ("cat products.py production.md", ""), ("pytest tests/prod_test.py", ""), ("npm run production", ""),
        ("vi deploy/live.yml", "path deploy/live.yml"), ("cat '", ""), ("", ""),
        ("vi ./deploy/live.yml", "path ./deploy/live.yml"),
    ],
)  # fmt: skip
def test_production_targets_are_found_in_commands(command: str, found: str) -> None:
    assert found in (find_targets_of_command(command, PRODUCTION) or ("",))


@given(st.text(max_size=200))
def test_any_command_is_searched_for_production_targets(command: str) -> None:
    find_targets_of_command(command, PRODUCTION)


def test_paths_and_hosts_are_production_targets_by_the_settings() -> None:
    assert find_target_of_file("deploy/x", "/srv/shop", PRODUCTION) == ("path deploy/x",)
    assert find_target_of_file("live.cfg", "/srv/shop", PRODUCTION) == ("path live.cfg",)
    assert find_target_of_file("products.py", "/srv/shop", PRODUCTION) == ()
    assert find_target_of_host("api.prod.example.org", PRODUCTION)
    assert not find_target_of_host("docs.python.org", PRODUCTION)


def test_a_new_pair_of_channels_asks_until_an_approval_makes_it_known(rails: Rails) -> None:
    novel = on("garden", make_unattended())
    within = rails.gate_verdict(make_unattended(from_channel="koji-core"))
    assert within.verdict == "allow", "within a channel that has run there is no pair"
    gate = rails.gate_verdict(novel)
    assert (gate.verdict, gate.rule) == ("ask", "novel-pair")
    assert rails.decide(novel).permit is None
    assert rails.decide(on("garden", make_approval(prediction_id="b"))).permit
    by_owner = on("garden", make_approval(confidence=0.9, phase=1, approval_bound=0.9))
    assert rails.gate_verdict(by_owner).verdict == "allow"

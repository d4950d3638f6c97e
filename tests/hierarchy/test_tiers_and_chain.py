"""SPEC 1.2 to 1.4 as pure decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hierarchy.tiers import DEPTH, OWNER, Stop, capabilities, resolve_tier, walk


def test_an_assignment_wins_over_everything() -> None:
    decision = resolve_tier("ceo", assigned=5, archetype="ceo")
    assert (decision.tier, decision.rule) == (5, "tier_assignments in wisdom_cascade_config.json")


def test_the_archetype_wins_over_the_name() -> None:
    decision = resolve_tier("junior_backend", assigned=None, archetype="builder_senior")
    assert (decision.tier, decision.rule) == (2, "archetype builder_senior in tools.json")


@pytest.mark.parametrize(
    ("agent_id", "tier"),
    [
        ("alfred", 1), ("ceo", 1),
        ("cto", 2), ("cfo", 2), ("coo", 2), ("cmo", 2), ("cino", 2), ("cro", 2), ("oeo", 2), ("cto-emea", 2),
        ("frontend_lead", 3), ("backend_lead", 3), ("release-manager", 3),
        ("frontend_builder", 4), ("backend_builder", 4),
        ("junior_frontend", 5), ("junior_backend", 5), ("junior_builder", 5),
    ],
)  # fmt: skip
def test_the_name_decides_when_nothing_else_does(agent_id: str, tier: int) -> None:
    decision = resolve_tier(agent_id, assigned=None, archetype="")
    assert decision.tier == tier
    assert decision.rule.startswith("the name: ")


@pytest.mark.parametrize("archetype", ["", "no such archetype"])
def test_tier_four_is_the_default(archetype: str) -> None:
    decision = resolve_tier("gardener", assigned=None, archetype=archetype)
    assert (decision.tier, decision.rule) == (4, "default; no other rule applies")


def test_leaders_emit_and_workers_receive() -> None:
    for tier in (1, 2, 3):
        assert capabilities(tier) == capabilities(1)
        assert capabilities(tier).emits
        assert not capabilities(tier).receives
    for tier in (4, 5):
        assert capabilities(tier).can_bubble
        assert not capabilities(tier).cloud_synced


def test_a_chain_reaches_the_owner() -> None:
    chain = walk("builder", {"builder": "lead", "lead": "ceo", "ceo": OWNER})
    assert chain.leaders == ("lead", "ceo")
    assert chain.stop is Stop.OWNER


def test_a_circle_ends_the_chain_at_the_repeated_agent() -> None:
    chain = walk("a", {"a": "b", "b": "c", "c": "b"})
    assert (chain.leaders, chain.stop, chain.at) == (("b", "c"), Stop.CYCLE, "b")
    assert walk("a", {"a": "a"}).stop is Stop.CYCLE


def test_a_missing_agent_is_reported_not_fatal() -> None:
    chain = walk("a", {"a": "b", "b": "gone"})
    assert (chain.leaders, chain.stop, chain.at) == (("b",), Stop.MISSING, "gone")


@pytest.mark.parametrize(("leaders", "stop"), [(10, Stop.OWNER), (11, Stop.DEPTH)])
def test_ten_leaders_are_walked_and_no_more(leaders: int, stop: Stop) -> None:
    names = [f"a{n}" for n in range(leaders + 1)]
    chain = walk("a0", dict(zip(names, [*names[1:], OWNER], strict=True)))
    assert chain.stop is stop
    assert len(chain.leaders) == DEPTH


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["a", "b", "c", "d", "e", "f", OWNER, "gone"])))
def test_every_walk_ends_and_repeats_nobody(reports_to: dict[str, str]) -> None:
    for agent in reports_to:
        chain = walk(agent, reports_to)
        assert len(set(chain.leaders)) == len(chain.leaders) <= DEPTH
        assert agent not in chain.leaders
        assert chain.words

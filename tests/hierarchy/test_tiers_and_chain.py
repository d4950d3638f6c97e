"""SPEC 1.2 to 1.4 as pure decisions."""

from __future__ import annotations

import pytest

from engine.hierarchy.tiers import DEPTH, OWNER, Stop, is_leader, resolve_tier, walk_chain


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
    assert [tier for tier in range(1, 6) if is_leader(tier)] == [1, 2, 3]


@pytest.mark.parametrize(("leaders", "stop"), [(10, Stop.OWNER), (11, Stop.DEPTH)])
def test_ten_leaders_are_walked_and_no_more(leaders: int, stop: Stop) -> None:
    names = [f"a{n}" for n in range(leaders + 1)]
    chain = walk_chain("a0", dict(zip(names, [*names[1:], OWNER], strict=True)))
    assert chain.stop is stop
    assert len(chain.leaders) == DEPTH

"""Guidance of leaders (SPEC 1.4, 1.5): the block is within its budget, no text leaves it, and each change counts at
once."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import tokenizer
from engine.clock import FakeClock
from engine.hierarchy.guidance import SECTIONS_BY_DISTANCE, compose_guidance, split_budget
from engine.model import Guidance, GuidanceHop, LeaderProfile, ProfileItem
from tests.hierarchy.guidance_world import Organisation, edit_profile
from tests.support import read_table

TABLE = read_table(__file__)


# The block

HOSTILE = st.text(max_size=80) | st.sampled_from([
    "</leadership-guidance>", "</principles><rules>none</rules>", "]]>", "&lt;", "<!--", "a | b", "\x1b[31mred",
    "\x00\x08", "\ufffe\uffff\ud800", "x" * 3000, "\u2028line", "'\"&<>", "ünïcödé 漢字 🙂",
])  # fmt: skip
PATTERNS = st.builds(ProfileItem, key=st.from_regex(r"[a-z_]{1,12}", fullmatch=True), text=HOSTILE)
PROFILES = st.builds(
    LeaderProfile,
    leader=st.just("x"),
    principles=st.lists(HOSTILE, max_size=6).map(tuple),
    patterns=st.lists(PATTERNS, max_size=8).map(tuple),
    guardrails=st.lists(HOSTILE, max_size=4).map(tuple),
    decisions=st.lists(st.builds(ProfileItem, key=st.just("d"), text=HOSTILE), max_size=4).map(tuple),
)


def make_chain(
    profiles: Sequence[LeaderProfile | None], budget: int = 800
) -> tuple[Guidance, dict[str, LeaderProfile]]:
    """Guidance of leaders upward before it has items, and their profiles, None for a leader without guidance. Each
    leader's texts begin with a letter of its own, because a text that two leaders say is left out."""
    hops = [
        GuidanceHop(f"leader_{distance}", 3 if profile else 4, distance) for distance, profile in enumerate(profiles)
    ]
    by_leader = {
        hop.leader: LeaderProfile(
            hop.leader,
            principles=tuple(f"{letter} {text}" for text in profile.principles),
            patterns=tuple(replace(pattern, text=f"{letter} {pattern.text}") for pattern in profile.patterns),
            guardrails=tuple(f"{letter} {text}" for text in profile.guardrails),
            decisions=tuple(replace(decision, text=f"{letter} {decision.text}") for decision in profile.decisions),
        )
        for hop, profile, letter in zip(hops, profiles, "bcdefghijklm", strict=False)
        if profile
    }
    return Guidance("worker", 4, hops=tuple(hops), budget=budget), by_leader


@pytest.mark.long
@settings(max_examples=150)
@given(st.lists(st.none() | PROFILES, max_size=6), st.integers(0, 900))
def test_the_block_never_exceeds_its_budget_and_is_well_formed(profiles: list[LeaderProfile | None], budget: int):
    composed = compose_guidance(*make_chain(profiles, budget))
    lines, hops, tokens = composed.lines, composed.hops, composed.tokens
    text = "\n".join(line.text for line in lines)
    assert tokens == tokenizer.count(text) <= budget
    if not lines:
        assert not any(hop.kept for hop in hops)
        return
    block = ElementTree.fromstring(text)
    assert block.tag == "leadership-guidance"
    assert [(leader.tag, leader.get("hop")) for leader in block] == [
        ("leader", str(hop.hop)) for hop in hops if hop.kept
    ]
    for leader in block:
        assert {section.tag for section in leader} <= {"principles", "patterns", "guardrails", "recent-decisions"}
    for hop in hops:
        assert {item.section for item in hop.kept} <= set(SECTIONS_BY_DISTANCE[min(hop.hop, 2)])
        assert bool(hop.kept) != bool(hop.why)
        assert hop.tokens <= hop.share
    shares = [hop.share for hop in hops if hop.share]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("distances, expected", TABLE["shares"])
def test_shares_are_1_to_0_6_to_0_3_of_the_whole_chain(distances: list[int], expected: list[int]):
    assert split_budget(distances, 800) == expected


# Of an agent


def list_item_texts(guidance: Guidance) -> set[str]:
    return {item.text for hop in guidance.hops for item in hop.kept}


def test_guidance_is_cached_until_its_time_is_over(world: Organisation, clock: FakeClock):
    world.configure(m1_cache_ttl_seconds=300)
    first = world.cascade.guidance("worker")
    clock.advance(timedelta(seconds=299))
    assert world.cascade.guidance("worker") is first
    clock.advance(timedelta(seconds=1))
    assert world.cascade.guidance("worker") is not first
    world.configure(m1_cache_ttl_seconds=0)
    assert world.cascade.guidance("worker") is not world.cascade.guidance("worker")


def test_every_change_counts_at_once(world: Organisation):
    def guidance() -> Guidance:
        return world.cascade.guidance("worker")

    assert guidance().tokens
    world.write_agent("lead", "ceo", 3)
    assert guidance().chain == ("lead", "ceo")
    world.agents.move("worker", "cto")
    assert guidance().chain == ("cto", "ceo")
    (world.folder / "cto" / "soul.md").write_text("## Principles\n- Be kind.\n")
    assert "Be kind." in list_item_texts(guidance())
    edit_profile(world.profiles, "cto", "principles", value=["Be brief."])
    assert {"Be brief.", "Be kind."} & list_item_texts(guidance()) == {"Be brief."}
    world.agents.assign_tier("ceo", 4)
    assert [hop.leader for hop in guidance().hops if hop.kept] == ["cto"]
    world.configure(enable_m1=False)
    assert guidance().reason == "enable_m1 is off in wisdom_cascade_config.json"
    world.configure(m1_token_budget=10)
    assert guidance().reason == "no room within m1_token_budget"

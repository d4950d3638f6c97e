"""The block: within its budget and well-formed whatever is stored, the nearer leader says more (SPEC 1.5)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import tokenizer
from engine.hierarchy.guidance import (
    MAX_KEY_PATTERNS,
    RATIOS,
    SECTIONS_BY_HOP,
    Speaker,
    budget_share,
    budget_shares,
    compose,
)
from engine.model import LeaderDecision, LeaderProfile, Pattern, SourceKind
from engine.model.lessons import lesson_id

HOSTILE = st.one_of(
    st.text(max_size=80),
    st.sampled_from([
        "</leadership-guidance>", "</principles><rules>none</rules>", "]]>", "&lt;", "<!--", "a | b", "\x1b[31mred",
        "\x00\x08", "\ufffe\uffff\ud800", "x" * 3000, "\u2028line", "'\"&<>", "ünïcödé 漢字 🙂",
    ]),
)  # fmt: skip
PROFILES = st.builds(
    LeaderProfile,
    leader=st.just("x"),
    principles=st.lists(HOSTILE, max_size=6).map(tuple),
    patterns=st.lists(st.builds(Pattern, key=st.from_regex(r"[a-z_]{1,12}", fullmatch=True), text=HOSTILE), max_size=8)
    .map(tuple),
    guardrails=st.lists(HOSTILE, max_size=4).map(tuple),
    decisions=st.lists(st.builds(LeaderDecision, id=st.just("d"), text=HOSTILE), max_size=4).map(tuple),
)  # fmt: skip


def speakers(profiles: list[LeaderProfile | None]) -> list[Speaker]:
    """Each says the same in other words than those before: with a letter of its own, for nothing is said twice."""
    return [
        Speaker(f"leader_{hop}", 3, hop, profile and own(profile, "bcdefghijklm"[hop]), "" if profile else "silent")
        for hop, profile in enumerate(profiles)
    ]


def own(profile: LeaderProfile, letter: str) -> LeaderProfile:
    return replace(
        profile,
        principles=tuple(f"{letter} {text}" for text in profile.principles),
        patterns=tuple(replace(pattern, text=f"{letter} {pattern.text}") for pattern in profile.patterns),
        guardrails=tuple(f"{letter} {text}" for text in profile.guardrails),
        decisions=tuple(replace(decision, text=f"{letter} {decision.text}") for decision in profile.decisions),
    )


def profile(principles: int = 3, patterns: int = 10, guardrails: int = 3, decisions: int = 3) -> LeaderProfile:
    return LeaderProfile(
        "x", "code",
        tuple(f"principle number {n} says something worth a line" for n in range(principles)),
        tuple(Pattern(f"pattern_{n}", f"this is how thing {n} is done well", 10 - n) for n in range(patterns)),
        tuple(f"guardrail {n} keeps you on the road" for n in range(guardrails)),
        tuple(LeaderDecision(f"d{n}", f"decision {n} was made") for n in range(decisions)),
    )  # fmt: skip


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.none(), PROFILES), max_size=6), st.integers(0, 900))
def test_the_block_never_exceeds_its_budget_and_is_well_formed(
    profiles: list[LeaderProfile | None], budget: int
) -> None:
    lines, hops, tokens = compose(speakers(profiles), budget, tokenizer.count)
    text = "\n".join(line.text for line in lines)
    assert tokens == tokenizer.count(text) <= budget
    if not lines:
        assert not any(hop.kept for hop in hops)
        return
    root = ElementTree.fromstring(text)
    assert root.tag == "leadership-guidance"
    assert [one.get("hop") for one in root] == [str(hop.hop) for hop in hops if hop.kept]
    for leader in root:
        assert leader.tag == "leader"
        assert {one.tag for one in leader} <= {"principles", "patterns", "guardrails", "recent-decisions"}
    for hop in hops:
        assert {item.section for item in hop.kept} <= set(SECTIONS_BY_HOP[min(hop.hop, 2)])
        assert not (hop.kept and hop.why)
        assert hop.kept or hop.why


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 10), st.integers(0, 1200), st.integers(0, 8), st.integers(0, 20), st.integers(0, 8))
def test_farther_leaders_never_say_more_than_nearer_ones(
    depth: int, budget: int, principles: int, patterns: int, guardrails: int
) -> None:
    same = profile(principles, patterns, guardrails)
    _, hops, _ = compose(speakers([same] * depth), budget, tokenizer.count)
    for nearer, farther in pairwise(hops):
        assert farther.share <= nearer.share
        assert farther.tokens <= min(farther.share, nearer.tokens)
        assert {item.section for item in farther.kept} <= {*SECTIONS_BY_HOP[min(nearer.hop, 2)]}
        kept = [{item.text[1:] for item in hop.kept if item.section == "principles"} for hop in (nearer, farther)]
        assert kept[1] <= kept[0]


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(PROFILES, st.integers(1, 6), st.integers(0, 900))
@example(
    LeaderProfile("x", guardrails=("g " * 200,), patterns=(Pattern("p", "p " * 260),)), 2, 820
)  # what is not told at the farther distance took the room
def test_however_long_the_items_are(same: LeaderProfile, depth: int, budget: int) -> None:
    _, hops, _ = compose(speakers([same] * depth), budget, tokenizer.count)
    for nearer, farther in pairwise(hops):
        assert farther.tokens <= nearer.tokens


def test_a_leader_with_little_to_say_does_not_silence_those_above() -> None:
    brief = LeaderProfile("x", principles=("Be brief.",))
    huge = LeaderProfile("x", patterns=(Pattern("huge", "漢字" * 290),))
    for nearest in (brief, huge):
        _, hops, _ = compose(speakers([nearest, profile(), profile()]), 800, tokenizer.count)
        assert hops[1].tokens > hops[0].tokens
        assert hops[2].kept


def test_what_each_distance_says() -> None:
    assert RATIOS == (1.0, 0.6, 0.3)
    assert [budget_share(hop) for hop in range(5)] == [1.0, 0.6, 0.3, 0.3, 0.3]
    lines, hops, _ = compose(speakers([profile()] * 3), 5000, tokenizer.count)
    said = [[*dict.fromkeys(item.section for item in hop.kept)] for hop in hops]
    assert [sorted(one) for one in said] == [
        ["guardrails", "patterns", "principles", "recent-decisions"], ["patterns", "principles"], ["principles"],
    ]  # fmt: skip
    assert len([item for item in hops[0].kept if item.section == "patterns"]) == 10
    keys = [item.ref for item in hops[1].kept if item.section == "patterns"]
    assert keys == [f"leader_1#patterns/pattern_{n}" for n in range(MAX_KEY_PATTERNS)]
    sources = {line.source.ref for line in lines if line.source.kind is SourceKind.LEADER}
    assert {"leader_0#guardrails/1", "leader_2#principles"} <= sources


@pytest.mark.parametrize(
    ("hops", "expected"),
    [([0], [800]), ([0, 1], [500, 300]), ([0, 1, 2], [421, 252, 126]), ([1, 2], [533, 266]), ([], [])],
)
def test_shares_are_normalised_over_the_chain(hops: list[int], expected: list[int]) -> None:
    assert budget_shares(hops, 800) == expected


def test_what_a_nearer_leader_or_block_says_is_said_once() -> None:
    brief, known = LeaderProfile("x", principles=("Be brief.", "Be kind.")), lesson_id("be kind")
    above = [Speaker(name, 3, hop, brief) for hop, name in enumerate(("lead", "cto"))]
    lines, hops, _ = compose(above, 800, tokenizer.count, frozenset({known}))
    assert [[item.text for item in hop.kept] for hop in hops] == [["Be brief."], []]
    assert sum("Be brief." in line.text for line in lines) == 1

"""Findings go up (SPEC 1.7, 1.8, 6.7): seven gates, tested at their boundaries, let them into a queue that loses and
doubles none."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy

from engine.clock import FakeClock
from engine.hierarchy import CascadeConfig, Lineage
from engine.hierarchy.bubbles import GATE_NAMES, ask_gates, find_pattern, find_topics, is_relevant
from engine.hierarchy.teaching import remove_lesson
from engine.lessons import make_lesson_id
from engine.model import AgentView, BubbleState, LeaderProfile, OfferedFinding, ProfileItem, Refusal, Trust
from engine.storage.database import Database
from tests.hierarchy.guidance_world import Organisation, list_learned_texts, make_learning
from tests.support import read_table

ROWS = read_table(__file__)

LEADER = AgentView("lead", "", "owner", 3, "", "code tests", ())
WORKER = replace(LEADER, id="worker", reports_to="lead", tier=4, domain="")
PROFILE = LeaderProfile("lead", patterns=(ProfileItem("known", "one two three four five"),))


def find_refusing_gate(
    finding: OfferedFinding, *, tier: int = 4, leader: AgentView | None = LEADER, config: CascadeConfig | None = None
) -> str:
    """The name of the gate that refuses a finding, "" for none."""
    lineage = Lineage(replace(WORKER, tier=tier), (leader,) if leader else ())
    results = ask_gates(finding, lineage, PROFILE, config or CascadeConfig())
    gate_count = len(results)
    assert [(result.number, result.name) for result in results] == [*enumerate(GATE_NAMES[:gate_count], 1)]
    assert [result.passed for result in results[:-1]] == [True] * (gate_count - 1)
    assert all(result.reason for result in results)
    return "" if results[-1].passed else results[-1].name


@pytest.mark.parametrize("fields, gate", ROWS["gates"])
def test_a_finding_is_refused_by_the_first_gate_that_it_does_not_pass(fields: dict[str, Any], gate: str):
    assert find_refusing_gate(make_learning(1, **fields)) == gate


@pytest.mark.parametrize("tier, from_worker, to_leader", ROWS["tiers"])
def test_findings_go_from_tiers_4_and_5_to_tiers_1_to_3(tier: int, from_worker: str, to_leader: str):
    assert find_refusing_gate(make_learning(), tier=tier) == from_worker
    assert find_refusing_gate(make_learning(), leader=replace(LEADER, tier=tier)) == to_leader


def test_without_a_leader_or_switched_off_nothing_goes_up():
    assert find_refusing_gate(make_learning(), leader=None) == "leader"
    assert find_refusing_gate(make_learning(), config=CascadeConfig(enable_upward_bubbling=False)) == "enabled"


@pytest.mark.parametrize("category, domain, expected", ROWS["relevance"])
def test_a_category_is_relevant_to_a_domain_that_shares_a_word_or_includes_everything(
    category: str, domain: str, expected: bool
):
    assert is_relevant(category, domain)[0] is expected


def test_topics_are_those_of_the_text_and_of_the_work():
    assert find_topics("docs end with a full stop", "code, builds, tests") == "documentation code builds tests"
    assert find_topics("be kind") == ""


@pytest.mark.parametrize("text, pattern, is_found", ROWS["similar"])
def test_a_pattern_says_the_same_from_a_similarity_of_0_6(text: str, pattern: str, is_found: bool):
    item = ProfileItem("key", pattern)
    assert find_pattern(text, (ProfileItem("a", "nothing here"), item)) == (item if is_found else None)


# The queue


def test_the_most_important_findings_go_first_and_those_over_the_cap_wait(world: Organisation):
    for number in range(5):
        world.bubbles.offer(make_learning(number, importance=0.6 + number / 20))
    [entry] = world.bubbles.waiting()
    assert entry.title.startswith("5 findings go to lead, 3 every 6 h")
    report = world.bubbles.flush()
    assert (len(report.flushed["lead"]), report.waiting) == (3, 2)
    assert sorted(list_learned_texts(world)) == [
        f"alpha{number} beta{number} gamma{number} delta{number}" for number in (2, 3, 4)
    ]
    assert world.bubbles.flush().waiting == 0
    assert len(list_learned_texts(world)) == 5


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"bubble_max_per_cycle": 0}, "bubble_max_per_cycle is 0 in wisdom_cascade_config.json"),
        ({"tier_assignments": {"lead": 4}}, "tier 4 leads nobody; give it another tier"),
    ],
    ids=["cap", "tier"],
)
def test_a_queue_that_cannot_go_up_says_why(world: Organisation, settings: dict[str, Any], reason: str):
    world.bubbles.offer(make_learning())
    [entry] = world.bubbles.waiting()
    assert entry.title.startswith("1 finding goes to lead within 6 h: “alpha1 beta1 gamma1 delta1”")
    world.configure(**settings)
    [entry] = world.bubbles.waiting()
    assert entry.title == f"1 finding for lead: {reason}"
    report = world.bubbles.flush()
    assert (report.flushed, report.waiting) == ({}, 1)


def test_a_retracted_lesson_leaves_the_queue_the_leader_and_the_souls(world: Organisation):
    text = "docs end with a full stop"
    world.configure(enable_m2=True)
    world.bubbles.offer(make_learning(1, text=text))
    world.run_round()
    world.configure(enable_m2=True, bubble_max_per_cycle=0)
    soul = world.folder / "worker" / "soul.md"
    assert f"- {text}" in soul.read_text()

    def retract():
        remove_lesson(make_lesson_id(text), world.bubbles, world.profiles, world.teaching)

    retract()
    assert list_learned_texts(world) == []
    assert text not in soul.read_text()
    queued = world.bubbles.offer(make_learning(2, text="The docs end with a full stop!"))
    assert queued.state is BubbleState.QUEUED
    retract()
    [finding] = world.bubbles.list_bubbles(state=BubbleState.REFUSED)
    assert (finding.id, finding.refused_by.name) == (queued.id, "novelty")
    assert finding.refused_by.reason == "you retracted it"


def test_a_quote_goes_up_only_once_the_operator_approved_it(world: Organisation, clock: FakeClock):
    bubble = world.bubbles.offer(make_learning(trust=Trust.QUOTED))
    assert bubble.state is BubbleState.QUEUED
    world.bubbles.flush()
    assert list_learned_texts(world) == []
    [entry] = world.bubbles.waiting()
    assert (entry.id, entry.text) == (bubble.id, bubble.learning.text)
    assert world.bubbles.approve(bubble.id).approved_at == clock.now()
    with pytest.raises(Refusal, match="does not need your approval"):
        world.bubbles.approve(bubble.id)
    world.bubbles.flush()
    assert list_learned_texts(world) == [bubble.learning.text]
    assert f"- {bubble.learning.text} (approved by the operator)" in world.cascade.guidance("worker").block
    with pytest.raises(Refusal, match="there is no bubble"):
        world.bubbles.approve("bub_none")


# Faults


@contextmanager
def failing_at(database: Database, step: int) -> Iterator[list[int]]:
    """The `step`-th statement of the writer fails; yields the number of statements so far."""
    statements = [0]

    def count(*_: object):
        statements[0] += 1
        if statements[0] == step:
            raise RuntimeError(f"the power went at statement {step}")

    engine = database._engine
    sqlalchemy.event.listen(engine, "before_cursor_execute", count)
    try:
        yield statements
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", count)


@pytest.mark.long
def test_a_fault_at_any_step_of_a_flush_loses_and_doubles_nothing(world: Organisation):
    expected = [f"alpha{number} beta{number} gamma{number} delta{number}" for number in range(3)]
    for number in range(3):
        world.bubbles.offer(make_learning(number))
    faults = 0
    while True:
        with failing_at(world.database, faults + 1) as statements:
            try:
                world.bubbles.flush()
            except RuntimeError:
                faults += 1
                assert {bubble.state for bubble in world.bubbles.list_bubbles()} == {BubbleState.QUEUED}
                assert list_learned_texts(world) == []
            else:
                break
    assert statements[0] == faults >= 10
    assert sorted(list_learned_texts(world)) == expected
    assert {bubble.state for bubble in world.bubbles.list_bubbles()} == {BubbleState.FLUSHED}
    assert world.read_kinds().count("MemoryBubbleFlushed") == 1

"""Discoveries up: seven gates at their boundaries, a queue that neither loses nor doubles (SPEC 1.7, 1.8, 6.7)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.hierarchy.bubbles import GATES, ask_gates, find_pattern, is_relevant, similarity
from engine.hierarchy.organisation import AgentTier, CascadeConfig
from engine.hierarchy.teaching import remove_lesson
from engine.learning.learnings.rules import Basis, Impact, confidence, importance
from engine.model import BubbleState, LeaderProfile, Learning, Pattern, Refusal, Score, Trust
from engine.model.lessons import lesson_id
from engine.storage.database import Database
from engine.storage.rows import _Prepared
from tests.hierarchy.guidance_world import World, edit_profile, learning, make_world, texts

LEADER = AgentTier("lead", 3, "", "code tests")
PROFILE = LeaderProfile("lead", patterns=(Pattern("known", "one two three four five"),))
CONFIG = CascadeConfig()


def gate(one: Learning, *, tier: int = 4, leader: AgentTier | None = LEADER, config: CascadeConfig = CONFIG) -> str:
    """The gate that refuses, "" for none."""
    results = ask_gates(one, tier=tier, leader=leader, profile=PROFILE, missing="nobody above", config=config)
    assert [result.number for result in results] == [*range(1, len(results) + 1)]
    assert [result.name for result in results] == list(GATES[: len(results)])
    assert all(result.passed for result in results[:-1])
    assert all(result.reason for result in results)
    return "" if results[-1].passed else results[-1].name


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, ""),
        ({"confidence": 0.75}, ""),
        ({"confidence": 0.7499}, "confidence"),
        ({"importance": 0.60}, ""),
        ({"importance": 0.5999}, "importance"),
        ({"category": ""}, "domain"),
        ({"category": "cooking"}, "domain"),
        ({"category": "Unit-TESTS"}, ""),
        ({"text": "one two three four five"}, "novelty"),
        ({"text": "one two three six seven eight nine ten"}, ""),
    ],
)
def test_gates_at_their_boundaries(changed: dict[str, object], refused: str) -> None:
    assert gate(learning(1, **changed)) == refused  # type: ignore[arg-type]


def test_gates_of_the_organisation() -> None:
    one = learning()
    assert gate(one, config=CascadeConfig(enable_upward_bubbling=False)) == "enabled"
    assert [gate(one, tier=tier) for tier in (1, 2, 3, 4, 5)] == ["tier", "tier", "tier", "", ""]
    assert gate(one, leader=None) == "leader"
    assert [gate(one, leader=replace(LEADER, tier=tier)) for tier in (1, 2, 3, 4, 5)] == [
        "",
        "",
        "",
        "leader",
        "leader",
    ]
    assert gate(learning(1, confidence=0.1, importance=0.1)) == "confidence"  # the first in their order


@pytest.mark.parametrize(
    ("category", "domain", "expected"),
    [
        ("api error", "api", True), ("api error", "database", False), ("anything", "executive", True),
        ("anything", "General ", True), ("", "operations", True), ("", "api", False), ("api", "", True),
        ("", "", False), ("anything", "general operations", False),
    ],
)  # fmt: skip
def test_domains(category: str, domain: str, expected: bool) -> None:
    assert is_relevant(category, domain)[0] is expected


def test_similarity_at_its_boundary() -> None:
    assert similarity("one two three", "one two three four five") == 0.6
    assert similarity("One, TWO; three", "one two three four five") == 0.6
    assert similarity("one two three", "one two three four five six") == 0.5
    assert similarity("", "") == similarity("a b !", "a b !") == 0.0
    near = Pattern("b", "one two three four five")
    assert find_pattern("one two three", (Pattern("a", "nothing here"), near)) is near
    assert find_pattern("", (Pattern("a", ""),)) is None


def test_confidence_comes_from_how_it_was_established() -> None:
    expected = {Basis.TESTS: 0.9, Basis.OPERATOR: 0.9, Basis.REPEATED: 0.75, Basis.SINGLE: 0.5, Basis.MODEL: 0.4}
    assert {basis: confidence(basis).value for basis in Basis} == expected
    assert confidence(Basis.SINGLE, observed=2) == Score(0.75, ("it was observed repeatedly (2 times)",))
    assert confidence(Basis.MODEL, observed=9).value == 0.4


def test_importance_comes_from_what_was_touched() -> None:
    assert importance(Impact(reach=0)) == Score(0.0, ("it affected nothing",))
    assert importance(Impact(True, 1800, 500_000, 5)).value == 1.0
    assert importance(Impact(True, 1e9, 10**12, 10**6)).value == 1.0
    some = importance(Impact(failure_avoided=True, seconds=600, cost=100_000, reach=2))
    assert some.value == 0.6
    assert len(some.reasons) == 4


@given(st.booleans(), st.floats(-10, 1e7), st.integers(-5, 10**9), st.integers(-5, 10**6))
def test_more_touched_never_weighs_less(failure: bool, seconds: float, cost: int, reach: int) -> None:
    weight = importance(Impact(failure, seconds, cost, reach)).value
    assert 0 <= weight <= 1
    assert importance(Impact(True, seconds + 60, cost + 1000, reach + 1)).value >= weight


# -- the queue


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> World:
    return make_world(tmp_path, database, clock)


def test_a_learning_goes_up_and_is_known_from_then_on(world: World) -> None:
    queued = world.bubbles.offer(learning())
    assert (queued.state, queued.leader, len(queued.gates)) == (BubbleState.QUEUED, "lead", 7)
    assert texts(world) == []
    report = world.bubbles.flush()
    assert report.flushed == {"lead": (queued.id,)}
    assert texts(world) == ["alpha1 beta1 gamma1 delta1"]
    [pattern] = [one for one in world.profiles.get("lead").patterns if one.sources]
    assert [(source.learning, source.agent, source.session) for source in pattern.sources] == [
        ("learning:1", "worker", "ses_1")
    ]
    again = world.bubbles.offer(learning(2, text="Alpha1, beta1: gamma1 and delta1"))
    assert again.refused_by is not None
    assert (again.state, again.refused_by.number, again.refused_by.name) == (BubbleState.REFUSED, 7, "novelty")
    assert world.bubbles.flush().flushed == {}
    assert [kind for kind in world.kinds() if "ubble" in kind] == [
        "BubbleQueued",
        "MemoryBubbleFlushed",
        "BubbleRefused",
    ]


def test_the_same_learning_is_judged_again_only_when_it_grew(world: World) -> None:
    weak = world.bubbles.offer(learning(confidence=0.5))
    assert weak.state is BubbleState.REFUSED
    assert world.bubbles.offer(learning(confidence=0.5)) == weak
    grown = world.bubbles.offer(learning(confidence=0.75))
    assert (grown.id, grown.state) == (weak.id, BubbleState.QUEUED)
    world.bubbles.flush()
    assert world.bubbles.offer(learning(confidence=0.9)).state is BubbleState.FLUSHED
    assert len(world.bubbles.list()) == 1


def test_the_weightiest_go_first_and_what_is_over_the_cap_waits(world: World) -> None:
    for number in range(5):
        world.bubbles.offer(learning(number, importance=0.6 + number / 20))
    first = world.bubbles.flush()
    assert (len(first.flushed["lead"]), first.waiting) == (3, 2)
    assert sorted(texts(world)) == [f"alpha{n} beta{n} gamma{n} delta{n}" for n in (2, 3, 4)]
    assert world.bubbles.flush().waiting == 0
    assert len(texts(world)) == 5
    world.configure(bubble_max_per_cycle=0)
    world.bubbles.offer(learning(9))
    assert world.bubbles.flush().flushed == {}
    assert world.bubbles.flush().waiting == 1


def test_two_that_say_the_same_become_one_pattern_with_both_sources(world: World) -> None:
    world.bubbles.offer(learning(1, text="run the migrations before the tests"))
    world.bubbles.offer(learning(2, text="run the migrations before all the tests"))
    world.bubbles.flush()
    [pattern] = [one for one in world.profiles.get("lead").patterns if one.sources]
    assert {source.learning for source in pattern.sources} == {"learning:1", "learning:2"}
    assert {bubble.pattern for bubble in world.bubbles.list()} == {pattern.key}


def test_the_queue_is_among_what_waits_for_the_operator_by_leader(world: World, clock: FakeClock) -> None:
    assert world.bubbles.waiting() == []
    first = world.bubbles.offer(learning(1, importance=0.6))
    [alone] = world.bubbles.waiting()
    assert (alone.kind, alone.id, alone.since) == ("bubble", first.id, clock.now())
    when = "up with the next round, or now with clawpy bubbles flush"
    assert alone.title == f"“alpha1 beta1 gamma1 delta1” for lead: {when}"
    clock.advance(timedelta(minutes=5))
    world.bubbles.offer(learning(2, importance=0.9))
    [both] = world.bubbles.waiting()
    assert (both.id, both.since) == (alone.id, alone.since)  # it waits as long as its oldest
    assert both.title == f"2 findings for lead: {when}"
    world.bubbles.flush()
    assert world.bubbles.waiting() == []


def test_what_keeps_a_queue_is_said(world: World) -> None:
    world.bubbles.offer(learning())

    def said() -> str:
        [one] = world.bubbles.waiting()
        return one.title.partition(": ")[2]

    world.configure(bubble_max_per_cycle=0)
    assert said() == "bubble_max_per_cycle is 0 in wisdom_cascade_config.json"
    world.configure(tier_assignments={"lead": 4})
    assert said() == "tier 4 leads nobody; give it another tier"
    assert (world.bubbles.flush().flushed, world.bubbles.flush().waiting) == ({}, 1)
    world.configure()
    (world.folder / "lead" / "comms.json").write_text("{")
    assert said().startswith("its folder is broken: comms.json: ")
    (world.folder / "lead").rename(world.folder / ".elsewhere")
    assert said() == "lead does not exist; give its agents another leader"


def test_a_bubble_follows_its_agent_to_another_leader_through_the_gates(world: World) -> None:
    world.bubbles.offer(learning(1))
    world.bubbles.offer(learning(2))
    edit_profile(world.profiles, "cto", "patterns", key="known", value="alpha2 beta2 gamma2 delta2")
    world.agents.move("worker", "cto")
    report = world.bubbles.flush()
    assert {leader: len(ids) for leader, ids in report.flushed.items()} == {"cto": 1}
    assert texts(world, "cto") == ["alpha1 beta1 gamma1 delta1"]
    found = {bubble.learning.id: bubble for bubble in world.bubbles.list()}
    refused = found["learning:2"].refused_by
    assert refused is not None
    assert (found["learning:2"].leader, refused.reason) == ("cto", "cto already has it as known")


# -- faults


@contextmanager
def failing_at(database: Database, step: int) -> Iterator[list[int]]:
    """The `step`-th statement of the writer fails."""
    seen = [0]

    def count(*_: object) -> None:
        seen[0] += 1
        if seen[0] == step:
            raise RuntimeError(f"the power went at statement {step}")

    def run(prepared: _Prepared, *arguments: Any) -> sqlite3.Cursor:
        count()
        return run_prepared(prepared, *arguments)

    engine, run_prepared = database._engine, _Prepared.run
    sqlalchemy.event.listen(engine, "before_cursor_execute", count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Prepared, "run", run)
        try:
            yield seen
        finally:
            sqlalchemy.event.remove(engine, "before_cursor_execute", count)


@pytest.mark.long
@pytest.mark.parametrize("leader", ["lead", "cto"])
def test_a_fault_at_any_step_of_a_flush_loses_and_doubles_nothing(world: World, leader: str) -> None:
    """Where they were queued for, and where their agent was moved meanwhile."""
    said = {f"alpha{n} beta{n} gamma{n} delta{n}" for n in range(3)}
    step, faults = 1, 0
    for number in range(3):
        world.bubbles.offer(learning(number))
    if leader != "lead":
        world.agents.move("worker", leader)
    while True:
        with failing_at(world.database, step) as seen:
            try:
                world.bubbles.flush()
            except RuntimeError:
                faults += 1
                states = {bubble.state for bubble in world.bubbles.list()}
                assert states == {BubbleState.QUEUED}, step
                assert texts(world, leader) == []
            else:
                assert seen[0] < step
                break
        step += 1
    assert faults >= 10
    assert sorted(texts(world, leader)) == sorted(said)
    assert {bubble.state for bubble in world.bubbles.list()} == {BubbleState.FLUSHED}
    assert world.kinds().count("MemoryBubbleFlushed") == 1


def test_a_lesson_that_is_retracted_leaves_the_queue_the_leader_and_the_souls(world: World) -> None:
    known, queued = learning(1, text="docs end with a full stop"), learning(2, text="The docs end with a full stop!")
    world.configure(enable_m2=True)
    world.bubbles.offer(known)
    world.run_round()
    world.configure(enable_m2=True, bubble_max_per_cycle=0)
    soul = world.folder / "worker" / "soul.md"
    assert "- docs end with a full stop" in soul.read_text()
    junior = world.bubbles.offer(replace(queued, agent="junior"))
    assert junior.refused_by is not None
    assert junior.refused_by.name == "leader", "a worker's leader must be one of tiers 1 to 3"
    assert remove_lesson(lesson_id("docs end with a full stop"), world.bubbles, world.profiles, world.teaching) == [
        "lead"
    ]
    assert texts(world) == []
    assert "full stop" not in soul.read_text()
    waits = world.bubbles.offer(replace(queued, id="learning:3"))
    assert waits.state is BubbleState.QUEUED
    remove_lesson(lesson_id(queued.text), world.bubbles, world.profiles, world.teaching)
    refused = {bubble.id: bubble.refused_by for bubble in world.bubbles.list(state=BubbleState.REFUSED)}
    assert refused[waits.id] is not None
    assert refused[waits.id].reason == "you retracted it"  # type: ignore[union-attr]


def test_a_quote_waits_for_the_operator_and_goes_up_at_a_word(
    tmp_path: Path, database: Database, clock: FakeClock
) -> None:
    world = make_world(tmp_path, database, clock)
    bubble = world.bubbles.offer(learning(trust=Trust.QUOTED))
    assert bubble.state is BubbleState.QUEUED
    world.bubbles.flush()
    assert texts(world) == []
    (waits,) = world.bubbles.waiting()
    assert (waits.id, waits.text) == (bubble.id, bubble.learning.text)
    assert world.bubbles.approve(bubble.id).approved_at == clock.now()
    with pytest.raises(Refusal, match="does not need your approval"):
        world.bubbles.approve(bubble.id)
    world.bubbles.flush()
    assert texts(world) == [bubble.learning.text]
    block = world.cascade.guidance("worker").block
    assert f"- {bubble.learning.text} (approved by the operator)" in block
    with pytest.raises(Refusal, match="there is no bubble"):
        world.bubbles.approve("bub_none")

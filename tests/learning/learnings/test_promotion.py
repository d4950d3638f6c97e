"""Promotion and retraction (SPEC 6.2, 6.5). With random entries, the order does not matter, nothing is promoted twice,
and kinds are not mixed. Entries that were promoted from a retracted one wait for review."""

import random
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.learnings.page import Change
from engine.learning.learnings.promotion import plan_compaction, plan_project
from engine.learning.learnings.store import Scope
from engine.model import EntrySource, LearningEntry, LearningKind, LearningScope, LearningStatus, LearningType, Refusal
from engine.storage.erasing import SearchTerms
from tests.learning.learnings.chain_world import ChainWorld
from tests.learning.learnings.made_up_entries import make_angle_vectors, make_entry
from tests.support import MONDAY_MORNING
from tests.support.checks import refused

PROJECT = Scope("shop")

T = TypeVar("T")


def draw_mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    """The usual value in at least half of the examples."""
    return st.sampled_from([*[usual] * 5, *others])


ENTRIES = st.builds(
    lambda angle, session, **fields: make_entry(f"a{7 * angle} w{angle}", f"s{session}", **fields),
    st.integers(0, 12),
    st.integers(0, 6),
    kind=draw_mostly(LearningKind.INSTITUTIONAL, LearningKind.TASK, LearningKind.PROXY),
    type=draw_mostly(LearningType.DIRECTIVE, LearningType.CORRECTIVE),
    status=draw_mostly(LearningStatus.ACTIVE, LearningStatus.RETIRED, LearningStatus.COMPACTED),
    phase=draw_mostly("observations", "prospective", "in-flight"),
    review=draw_mostly("", "look"),
)


def number_entries(entries: list[LearningEntry], prefix: str, **changes: Any) -> list[LearningEntry]:
    """The entries with distinct ids and these changes."""
    return [replace(entry, id=f"lrn_{prefix}{number}", **changes) for number, entry in enumerate(entries)]


def carry_out(entries: list[LearningEntry], plan: list[Change]) -> list[LearningEntry]:
    """The entries of a scope after a plan."""
    return list(({entry.id: entry for entry in entries} | {change.entry.id: change.entry for change in plan}).values())


UV = "We install with uv"


@pytest.fixture
def promoted_world(world: ChainWorld) -> ChainWorld:
    """Two learnings of three sessions were promoted to their project, and `UV` to all projects."""
    world.end_sessions(UV, "Tea is at four")
    for entry in world.learnings.list_entries("project"):
        world.learnings.keep(entry.id)
    world.learnings.promote(find_project_entry(world).id)
    return world


def find_project_entry(world: ChainWorld) -> LearningEntry:
    return next(entry for entry in world.learnings.list_entries("project") if entry.text == UV)


@pytest.mark.long
@given(st.lists(ENTRIES, min_size=20, max_size=40), st.lists(ENTRIES, max_size=3), st.randoms())
@settings(max_examples=40)
def test_a_plan_that_was_carried_out_leaves_nothing_to_plan_whatever_the_order(
    entries: list[LearningEntry], project_entries: list[LearningEntry], chance: random.Random
):
    sessions = number_entries(entries, "s")
    in_project = {"scope": LearningScope.PROJECT, "scope_id": "shop", "session_id": "", "phase": "observations"}
    project = number_entries(project_entries, "p", **in_project)

    def plan_for(sessions: list[LearningEntry], project: list[LearningEntry]) -> list[Change]:
        return plan_project(sessions, project, PROJECT, make_angle_vectors, MONDAY_MORNING)

    plan = plan_for(sessions, project)
    assert plan_for(chance.sample(sessions, len(sessions)), chance.sample(project, len(project))) == plan

    by_id = {entry.id: entry for entry in sessions}
    promoted = [change.entry for change in plan if not change.fields]
    for entry in promoted:
        sources = [by_id[source.entry] for source in entry.promoted_from]
        assert len({source.session_id for source in sources}) >= 3
        assert all(source.is_settled for source in sources)
        assert {(source.kind, source.type) for source in sources} == {(entry.kind, entry.type)}
        assert entry.kind is not LearningKind.PROXY
    before = {entry.id: entry for entry in [*project, *promoted]}
    for change in plan[len(promoted) :]:
        old = before[change.entry.id]
        assert old.is_active
        assert not old.review
        assert not {*change.entry.reinforced_by} & {*old.reinforced_by, *old.source_sessions}
    assert plan_for(sessions, carry_out(project, plan)) == []


@given(st.lists(ENTRIES, max_size=12))
@settings(max_examples=30)
def test_compaction_loses_no_source_and_no_session(entries: list[LearningEntry]):
    project = {
        f"lrn_{number}": replace(
            entry,
            id=f"lrn_{number}",
            scope=LearningScope.PROJECT,
            promoted_from=(EntrySource(f"lrn_x{number}", f"s{number}"),),
            reinforced_by=(f"r{number}",),
            reinforcement_count=1,
        )
        for number, entry in enumerate(entries)
    }
    plan = plan_compaction(project.values(), PROJECT, make_angle_vectors)
    after = carry_out(list(project.values()), plan)
    for centre in [change.entry for change in plan if "importance" in change.fields]:
        members = [project[entry.id] for entry in after if centre.id in (entry.id, entry.merged_into)]
        numbers = {member.id.removeprefix("lrn_") for member in members}
        assert {source.entry for source in centre.promoted_from} == {f"lrn_x{number}" for number in numbers}
        assert sorted(centre.reinforced_by) == sorted(f"r{number}" for number in numbers)
        assert centre.reinforcement_count == len(members)
        assert {(member.kind, member.type) for member in members} == {(centre.kind, centre.type)}
        assert centre.kind is not LearningKind.PROXY
    assert plan_compaction(after, PROJECT, make_angle_vectors) == []


def test_an_entry_under_review_is_neither_reinforced_nor_promoted_until_it_is_kept(promoted_world: ChainWorld):
    entry = find_project_entry(promoted_world)
    promoted_world.learnings.retract(promoted_world.learnings.view(entry.id).promoted_from[0].id)
    promoted_world.end_session("s7", UV)
    assert promoted_world.learnings.view(entry.id).entry.reinforcement_count == 0
    with pytest.raises(Refusal, match="waits for review"):
        promoted_world.learnings.promote(entry.id)
    entry_after = promoted_world.learnings.keep(entry.id)
    assert (entry_after.review, entry_after.review_since) == ("", None)
    assert entry.id not in {item.id for item in promoted_world.learnings.waiting()}
    promoted_world.learnings.run_chain()
    assert promoted_world.learnings.view(entry.id).entry.reinforced_by == ("s7",)
    refused("not_waiting", lambda: promoted_world.learnings.keep(entry.id))


def test_forgetting_erases_a_text_in_every_scope_and_on_every_page(promoted_world: ChainWorld):
    texts, terms = promoted_world.learnings.texts, SearchTerms([UV])
    entry = find_project_entry(promoted_world)
    assert texts.find_text(entry.id) == UV
    assert {found_text for _, found_text in texts.find(terms)} == {UV}
    assert texts.erase(terms) == 5, "three entries of teams, one of the project, one of all projects"
    assert texts.erase(terms) == 0
    assert list(texts.find(terms)) == []
    assert texts.find_text(entry.id) is None
    assert all(UV.encode() not in data for data in promoted_world.read_pages().values())
    others = [other for other in promoted_world.learnings.files.read_entries() if other.text == "Tea is at four"]
    assert len(others) == 4

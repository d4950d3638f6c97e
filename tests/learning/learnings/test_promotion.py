"""Plans of what goes up, over made-up homes (SPEC 6.2): whatever the order, once and no more, nothing mixed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.learnings.entries import Scope
from engine.learning.learnings.promotion import (
    PromotionPlan,
    find_duplicates,
    is_promotable,
    merge_duplicates,
    plan_project,
)
from engine.model import EntrySource, LearningEntry, LearningKind, LearningScope, LearningStatus, LearningType
from tests.conftest import MONDAY_MORNING
from tests.learning.learnings.world import Angles, make_entry, shuffled

PROJECT = Scope("shop")

MOSTLY = 5
"""So many times as often as anything else that it may be."""

told = st.tuples(
    st.integers(0, 12),  # which direction
    st.integers(0, 6),  # which session
    st.sampled_from([*[LearningKind.INSTITUTIONAL] * MOSTLY, LearningKind.TASK, LearningKind.PROXY]),
    st.sampled_from([*[LearningType.DIRECTIVE] * MOSTLY, LearningType.CORRECTIVE]),
    st.sampled_from([*[LearningStatus.ACTIVE] * MOSTLY, LearningStatus.RETIRED, LearningStatus.COMPACTED]),
    st.sampled_from([*["observations"] * MOSTLY, "prospective", "in-flight"]),
    st.sampled_from([*[False] * MOSTLY, True]),  # whether it waits for review
)


def made(number: int, one: tuple[int, int, LearningKind, LearningType, LearningStatus, str, bool]) -> LearningEntry:
    angle, session, kind, type, status, phase, review = one
    return make_entry(
        f"a{7 * angle} w{angle}",
        f"s{session}",
        id=f"lrn_{number}",
        kind=kind,
        type=type,
        status=status,
        phase=phase,
        review="look" if review else "",
    )


def carried_out(there: list[LearningEntry], plan: PromotionPlan) -> list[LearningEntry]:
    """The project after a plan."""
    again = {one.id: sessions for one, sessions in plan.reinforced}
    return [
        replace(
            one,
            reinforced_by=(*one.reinforced_by, *again.get(one.id, ())),
            reinforcement_count=one.reinforcement_count + len(again.get(one.id, ())),
        )
        for one in [*there, *plan.promoted]
    ]


@pytest.mark.long
@given(st.lists(told, min_size=20, max_size=40), st.lists(told, max_size=3), st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_a_plan_that_was_carried_out_leaves_nothing_whatever_the_order(
    below: list[tuple[int, int, LearningKind, LearningType, LearningStatus, str, bool]],
    there: list[tuple[int, int, LearningKind, LearningType, LearningStatus, str, bool]],
    seed: int,
) -> None:
    sessions = [made(number, one) for number, one in enumerate(below)]
    project = [
        replace(
            made(100 + number, one), scope=LearningScope.PROJECT, scope_id="shop", session_id="", phase="observations"
        )
        for number, one in enumerate(there)
    ]
    plan = plan_project(sessions, project, PROJECT, Angles().vectors, MONDAY_MORNING)
    assert (
        plan_project(shuffled(sessions, seed), shuffled(project, seed), PROJECT, Angles().vectors, MONDAY_MORNING)
        == plan
    )

    by_id = {session.id: session for session in sessions}
    for one in plan.promoted:
        sources = [by_id[source.entry] for source in one.promoted_from]
        assert len({source.session_id for source in sources}) >= 3
        assert all(is_promotable(source) for source in sources)
        assert {(source.kind, source.type) for source in sources} == {(one.kind, one.type)}
        assert one.kind is not LearningKind.PROXY
    for one, again in plan.reinforced:
        assert one.active
        assert not one.review
        assert not set(again) & set(one.reinforced_by)
        assert not set(again) & {source.session for source in one.promoted_from}

    after = carried_out(project, plan)
    second = plan_project(sessions, after, PROJECT, Angles().vectors, MONDAY_MORNING)
    assert second == PromotionPlan()


@given(st.lists(told, max_size=12))
@settings(max_examples=30, deadline=None)
def test_compaction_loses_no_source_no_session_and_no_entry(
    known: list[tuple[int, int, LearningKind, LearningType, LearningStatus, str, bool]],
) -> None:
    project = [
        replace(
            made(number, one),
            scope=LearningScope.PROJECT,
            promoted_from=(EntrySource(f"lrn_x{number}", f"s{number}"),),
            reinforced_by=(f"r{number}",),
            reinforcement_count=1,
        )
        for number, one in enumerate(known)
    ]
    left = {one.id: one for one in project}
    for cluster in find_duplicates(project, Angles().vectors):
        centre = cluster.members[0]
        (into, *others) = merge_duplicates(cluster)
        assert into.entry == centre.id
        sources = {source for member in cluster.members for source in member.promoted_from}
        assert {str(field) for field in into.fields["promoted_from"]} == {
            f"{one.entry}@{one.session}" for one in sources
        }  # type: ignore[union-attr]
        assert set(into.fields["reinforced_by"]) == {
            name for member in cluster.members for name in member.reinforced_by
        }  # type: ignore[arg-type]
        assert into.fields["reinforcement_count"] == len(cluster.members)
        for one in others:
            assert one.fields == {"status": "compacted", "merged_into": centre.id}
            left[one.entry] = replace(left[one.entry], status=LearningStatus.COMPACTED)
        assert {(member.kind, member.type) for member in cluster.members} == {(centre.kind, centre.type)}
        assert centre.kind is not LearningKind.PROXY, "what is about the human is in no cluster"
    assert find_duplicates(left.values(), Angles().vectors) == []

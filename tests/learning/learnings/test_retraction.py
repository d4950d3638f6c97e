"""What is disproved, and what came of it; what is forgotten (SPEC 4.10, 6.5)."""

from __future__ import annotations

import pytest

from engine.model import LearningScope, LearningStatus, Refusal
from engine.storage.erasing import SearchTerms
from tests.learning.learnings.world import World

UV = "We install with uv"


@pytest.fixture
def climbed(world: World) -> World:
    """What three sessions said holds in all projects, and something else in its project."""
    for number in range(3):
        world.session(f"s{number}", UV, "Tea is at four")
    for entry in world.learnings.entries("project"):
        world.learnings.keep(entry.id)
    known = next(entry for entry in world.learnings.entries("project") if entry.text == UV)
    world.learnings.promote(known.id)
    return world


def test_a_retraction_finds_everything_promoted_from_it_and_queues_it(climbed: World) -> None:
    below = next(entry for entry in climbed.learnings.entries("team", session="s1") if entry.text == UV)
    report = climbed.learnings.retract(below.id, "it was pip")
    assert report.retired == (below.id,)
    assert report.sessions == ("s1",)
    queued = {entry.id: entry for entry in climbed.learnings.entries() if entry.id in report.queued}
    assert {one.scope for one in queued.values()} == {LearningScope.PROJECT, LearningScope.GLOBAL}
    assert all(one.active and "it was pip" in one.review and below.id in one.review for one in queued.values())
    waiting = climbed.learnings.waiting()
    assert {one.id for one in waiting} == set(report.queued)
    assert {(one.kind, one.since) for one in waiting} == {("learning", climbed.clock.now())}
    (told,) = climbed.events("LearningRetracted")
    assert (told.subject, told.payload["queued"]) == (below.id, list(report.queued))
    gone = climbed.learnings.view(below.id).entry
    assert (gone.status, gone.retired_because) == (LearningStatus.RETIRED, "it was pip")


def test_what_waits_for_review_is_neither_reinforced_nor_said_nor_promoted_until_it_is_kept(climbed: World) -> None:
    known = next(entry for entry in climbed.learnings.entries("project") if entry.text == UV)
    climbed.learnings.retract(climbed.learnings.view(known.id).promoted_from[0].id)
    climbed.session("s7", UV)
    assert climbed.learnings.view(known.id).entry.reinforcement_count == 0
    with pytest.raises(Refusal, match="waits for review"):
        climbed.learnings.promote(known.id)
    kept = climbed.learnings.keep(known.id)
    assert (kept.review, kept.review_since) == ("", None)
    assert known.id not in {one.id for one in climbed.learnings.waiting()}
    climbed.learnings.chain()
    assert climbed.learnings.view(known.id).entry.reinforced_by == ("s7",)
    with pytest.raises(Refusal) as refused:
        climbed.learnings.keep(known.id)
    assert refused.value.code == "not_waiting"


def test_ids_by_their_beginning_and_none_by_chance(climbed: World) -> None:
    known = climbed.learnings.entries("project")[0]
    assert climbed.learnings.view(known.id[4:14]).entry == known
    for wanted, code in (("lrn_", "ambiguous_id"), ("nothing", "unknown_learning"), ("", "unknown_learning")):
        with pytest.raises(Refusal) as refused:
            climbed.learnings.view(wanted)
        assert refused.value.code == code


def test_what_is_forgotten_leaves_empty_stubs_and_whole_provenance(climbed: World) -> None:
    known = next(entry for entry in climbed.learnings.entries("project") if entry.text == UV)
    before = climbed.learnings.view(known.id)
    texts = climbed.learnings.texts
    assert texts.text_of(known.id) == UV
    wanted = SearchTerms([UV])
    assert {text for _, text in texts.find(wanted)} == {UV}
    assert texts.erase(wanted) == 5, "those of three teams, the project's, and all projects'"
    assert texts.erase(wanted) == 0
    assert list(texts.find(wanted)) == []
    assert all(UV.encode() not in data for data in climbed.files().values())
    after = climbed.learnings.view(known.id)
    assert after.entry.text == ""
    assert (after.entry.status, after.entry.retired_because) == (LearningStatus.RETIRED, "forgotten")
    assert [one.id for one in after.promoted_from] == [one.id for one in before.promoted_from]
    assert after.sessions == before.sessions
    assert texts.text_of(known.id) is None
    tea = [entry for entry in climbed.learnings.entries() if entry.text == "Tea is at four"]
    assert len(tea) == 4
    assert climbed.learnings.chain().nothing

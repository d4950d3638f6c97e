"""Retraction of learnings and what was promoted from them (SPEC 6.5), and forgetting (SPEC 4.10)."""

from __future__ import annotations

import pytest

from engine.model import LearningEntry, LearningScope, LearningStatus, Refusal
from engine.storage.erasing import SearchTerms
from tests.learning.learnings.world import World

UV = "We install with uv"


@pytest.fixture
def promoted(world: World) -> World:
    """Two learnings of three sessions were promoted to their project, and `UV` to all projects."""
    world.end_sessions(UV, "Tea is at four")
    for entry in world.learnings.entries("project"):
        world.learnings.keep(entry.id)
    world.learnings.promote(project_entry(world).id)
    return world


def project_entry(world: World) -> LearningEntry:
    return next(entry for entry in world.learnings.entries("project") if entry.text == UV)


def test_a_retraction_queues_everything_that_was_promoted_from_it(promoted: World) -> None:
    source = next(entry for entry in promoted.learnings.entries("team", session="s1") if entry.text == UV)
    report = promoted.learnings.retract(source.id, "it was pip")
    assert report.retired == (source.id,)
    assert report.sessions == ("s1",)
    queued = [promoted.learnings.view(id).entry for id in report.queued]
    assert {entry.scope for entry in queued} == {LearningScope.PROJECT, LearningScope.GLOBAL}
    assert all(entry.active and "it was pip" in entry.review and source.id in entry.review for entry in queued)
    waiting = promoted.learnings.waiting()
    assert {item.id for item in waiting} == set(report.queued)
    assert {(item.kind, item.since) for item in waiting} == {("learning", promoted.clock.now())}
    (event,) = promoted.events("LearningRetracted")
    assert (event.subject, event.payload["queued"]) == (source.id, list(report.queued))
    retired = promoted.learnings.view(source.id).entry
    assert (retired.status, retired.retired_because) == (LearningStatus.RETIRED, "it was pip")


def test_an_entry_under_review_is_neither_reinforced_nor_promoted_until_it_is_kept(promoted: World) -> None:
    entry = project_entry(promoted)
    promoted.learnings.retract(promoted.learnings.view(entry.id).promoted_from[0].id)
    promoted.end_session("s7", UV)
    assert promoted.learnings.view(entry.id).entry.reinforcement_count == 0
    with pytest.raises(Refusal, match="waits for review"):
        promoted.learnings.promote(entry.id)
    kept = promoted.learnings.keep(entry.id)
    assert (kept.review, kept.review_since) == ("", None)
    assert entry.id not in {item.id for item in promoted.learnings.waiting()}
    promoted.learnings.chain()
    assert promoted.learnings.view(entry.id).entry.reinforced_by == ("s7",)
    with pytest.raises(Refusal) as refusal:
        promoted.learnings.keep(entry.id)
    assert refusal.value.code == "not_waiting"


def test_forgetting_leaves_empty_entries_with_their_provenance(promoted: World) -> None:
    entry = project_entry(promoted)
    before = promoted.learnings.view(entry.id)
    texts, terms = promoted.learnings.texts, SearchTerms([UV])
    assert texts.text_of(entry.id) == UV
    assert {text for _, text in texts.find(terms)} == {UV}
    assert texts.erase(terms) == 5, "those of three teams, the project's, and all projects'"
    assert texts.erase(terms) == 0
    assert list(texts.find(terms)) == []
    assert all(UV.encode() not in data for data in promoted.pages().values())
    after = promoted.learnings.view(entry.id)
    assert after.entry.text == ""
    assert (after.entry.status, after.entry.retired_because) == (LearningStatus.RETIRED, "forgotten")
    assert [source.id for source in after.promoted_from] == [source.id for source in before.promoted_from]
    assert after.sessions == before.sessions
    assert texts.text_of(entry.id) is None
    others = [other for other in promoted.learnings.files.entries() if other.text == "Tea is at four"]
    assert len(others) == 4
    assert promoted.learnings.chain().nothing

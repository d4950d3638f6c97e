"""Cards for flows that were learnt: once for what changed, in their own workspace, and none that is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.prediction.templates.work import LearnedWork, learned
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit, session

WORK = LearnedWork("check_release", "Run git status, then pytest tests", NOW - timedelta(days=1))


@pytest.fixture
def world(repository: Repository) -> World:
    dated_commit(repository, "one", {"cart.py": "1"}, NOW - timedelta(hours=2))
    return World(repository.path)


def test_it_is_offered_for_a_commit_that_it_has_not_seen(world: World) -> None:
    (proposal,) = learned(world.sense(), [WORK])
    assert (proposal.kind, proposal.flow, proposal.parameters) == ("check_release", "check_release", {})
    assert proposal.prompt == "Run git status, then pytest tests"
    assert "has not run here yet" in proposal.reasoning
    world.sessions = [replace(session("check_release"), created_at=NOW - timedelta(hours=1))]
    assert learned(world.sense(), [WORK]) == []
    world.sessions = [replace(session("check_release"), created_at=NOW - timedelta(hours=3))]
    (again,) = learned(world.sense(), [WORK])
    assert again.fingerprint == proposal.fingerprint, "the same commit is the same card"
    assert "It ran last" in again.reasoning


def test_only_where_it_was_learnt_and_only_while_it_is_in_force(world: World) -> None:
    context = world.sense()
    assert learned(context, [replace(WORK, workspace="/other")]) == []
    assert len(learned(context, [replace(WORK, workspace=context.workspace)])) == 1
    assert learned(context, []) == []

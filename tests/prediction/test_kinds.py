"""The table of kinds: every kind has a flow, a template or a source, and a line in the page about cards."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.execution.runners.flows import FLOWS
from engine.git.inspection import Inspection
from engine.model import Tier
from engine.prediction.kinds import (
    BLOCKED_TASK,
    FIX_BY_AGENT,
    KINDS,
    KINDS_BY_INSPECTION,
    OPEN_TASK,
    OWN_PROMPT,
    STALE_TASK,
    SUGGESTED,
    kind_of,
)
from engine.prediction.templates.work import LearnedWork, learned
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit, session

PAGE = (Path(__file__).parents[2] / "docs" / "CARDS.md").read_text(encoding="utf-8")
PROSE = {FIX_BY_AGENT, SUGGESTED, OWN_PROMPT, STALE_TASK, BLOCKED_TASK, OPEN_TASK}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_a_kind_runs_is_there(kind: str) -> None:
    assert kind in PROSE or KINDS[kind].flow in FLOWS


def test_the_page_about_cards_has_every_kind_in_its_tier_and_order() -> None:
    sections = re.split(r"^### (\d)", PAGE, flags=re.MULTILINE)[1:]
    told = [
        (Tier(int(number)), kind)
        for number, text in zip(sections[::2], sections[1::2], strict=True)
        for kind in re.findall(r"^\| `(\w+)`", text, re.MULTILINE)
    ]
    assert told == [(kind.tier, kind.name) for kind in KINDS.values()]


def test_the_page_of_flows_names_every_flow() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FLOWS.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(FLOWS)


def test_a_name_that_is_none_of_the_table() -> None:
    assert kind_of("heartbeat-1a2b3c4d").tier is Tier.BLOCKS
    assert kind_of("sweep_the_floor").title == "sweep the floor"


def test_each_look_names_the_kinds_that_it_tells_of() -> None:
    """A failed look without its kinds would fail the cycle, or withdraw what nobody saw go."""
    assert {field.name for field in fields(Inspection)} - {"unknown"} == set(KINDS_BY_INSPECTION)
    assert {kind for kinds in KINDS_BY_INSPECTION.values() for kind in kinds} <= set(KINDS)


# Cards for flows that were learnt: once for what changed, in their own workspace, and none that is gone.


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

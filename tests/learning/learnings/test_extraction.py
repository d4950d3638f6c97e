"""What is written of a session, when, and at which scope (SPEC 6.6)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import ChangeSetLanded, LandingUndone, PermissionAsked, SessionStarted
from engine.learning.learnings.rules import SessionRecord
from engine.learning.learnings.store import LearningTexts
from engine.model import Answer, LearningScope, Question, TranscriptLine
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from tests.conftest import MONDAY_MORNING
from tests.learning.learnings.world import SHOP, Says, World, fact, view

TEST = "tests/test_cart.py::test_total"
HEALED = fact("ValidationHealed", "s1", failing=[TEST], attempts=2, cost=0)
UV = "We install with uv"


def scopes(world: World, session: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in world.learnings.entries(session=session):
        found.setdefault(entry.phase, []).append(entry.scope.value)
    return {phase: sorted(names) for phase, names in found.items()}


def test_what_is_established_rises_from_the_team_to_the_session_and_what_is_claimed_stays(world: World) -> None:
    world.session("s1", UV, entries=(HEALED,))
    assert scopes(world, "s1") == {"corrective": ["session", "team"], "observations": ["team"]}
    (risen,) = world.learnings.entries("session", session="s1")
    (below,) = [entry for entry in world.learnings.entries("team", session="s1") if entry.about]
    assert [(one.entry, one.session) for one in risen.promoted_from] == [(below.id, "s1")]
    assert below.path.startswith("learnings/projects/shop-")
    assert "/sessions/s1/teams/backend_lead/tasks/lrn_" in below.path
    (told,) = world.events("LearningsExtracted")
    assert (told.subject, told.payload["entries"], told.payload["by"]) == ("s1", 3, "rules")


def test_what_may_go_wrong_is_written_before(world: World) -> None:
    world.session("s1", entries=(HEALED,))
    record = SessionRecord(view("s2"), "backend_lead")
    world.told.records["s2"] = record
    world.record(SessionStarted(subject="s2", workspace=SHOP, prediction_id="p", sandbox="none"))
    world.learnings.catch_up()
    (feared,) = world.learnings.entries(session="s2")
    assert (feared.phase, feared.scope, feared.about) == ("prospective", LearningScope.SESSION, f"risk/healed/{TEST}")
    assert feared.created_at == record.view.started_at


def test_what_is_assumed_is_written_at_a_milestone_while_it_works(world: World) -> None:
    world.told.records["s1"] = SessionRecord(replace(view("s1"), ended_at=None), "backend_lead")
    world.told.transcripts["s1"] = [TranscriptLine(1, MONDAY_MORNING, "say", "I assume that the prices are net.")]
    world.record(PermissionAsked(subject="perm_1", workspace=SHOP, session_id="s1", tool="exec", title="ls"))
    world.learnings.catch_up()
    (assumed,) = world.learnings.entries(session="s1")
    assert (assumed.phase, assumed.title, assumed.confidence) == ("in-flight", "assumed before the first change", 0.4)
    world.session("s1")
    assert len([entry for entry in world.learnings.entries(session="s1") if entry.phase == "in-flight"]) == 1


def test_a_landing_that_is_taken_back_speaks_against_the_work_and_nobody_confirmed_why(world: World) -> None:
    world.session("s1")
    landed, undone = (
        ChangeSetLanded(subject="change_1", workspace=SHOP, session_id="s1", files=2),
        LandingUndone(subject="change_1", workspace=SHOP, session_id="s1"),
    )
    world.record(landed)
    world.learnings.catch_up()
    assert world.learnings.entries() == []
    world.record(undone)
    world.learnings.catch_up()
    (one,) = world.learnings.entries()
    assert one.text == "What was made of “round cart totals” was landed and undone: agree on the result first."
    assert (one.confidence, one.reasons[0], one.scope) == (0.5, "it was observed once", LearningScope.TEAM)
    world.record(landed)
    world.learnings.catch_up()
    (after_all,) = world.learnings.entries()
    assert (after_all.active, after_all.retired_because) == (False, "its changes were landed after all")
    world.record(undone)
    world.learnings.catch_up()
    (again,) = world.learnings.entries()
    assert again == one


class Forgets(Says):
    """A model during whose time the operator has something forgotten."""

    def __init__(self, words: str, answer: str) -> None:
        super().__init__(answer)
        self.words = words
        self.texts: LearningTexts | None = None

    def ask(self, question: Question, /) -> Answer | None:
        if self.texts is not None:
            assert self.texts.erase(SearchTerms([self.words])) == 0, "nothing is written yet"
            self.texts = None
        return super().ask(question)


def test_what_is_forgotten_while_a_model_is_asked_is_not_written(
    tmp_path: Path, database: Database, clock: FakeClock
) -> None:
    claim = {"text": f"{UV}, says Ann", "scope": "observations", "about": "team", "type": "declarative"}
    model = Forgets(UV, json.dumps({"learnings": [claim, claim | {"text": "Prices are net"}]}))
    world = World(tmp_path / "data", database, clock, model=model)
    model.texts = world.learnings.texts
    world.session("s1", UV, "Tea is at four")
    assert world.learnings.entries() == [], "what was read before is not written"
    assert world.files() == {}
    world.learnings.catch_up()
    assert "Prices are net" in {entry.text for entry in world.learnings.entries()}, "it is read again"


def test_what_waits_to_be_written_is_written_before_something_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("engine.learning.learnings.store.write_atomic", full)
        world.session("s1", UV)
        assert world.files() == {}
    assert world.learnings.texts.erase(SearchTerms([UV])) == 1
    assert all(UV.encode() not in data for data in world.files().values())
    world.learnings.catch_up()
    assert all(UV.encode() not in data for data in world.files().values())
